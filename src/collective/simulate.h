/* The time a collective takes on links that are only numbers: every rank's program (schedule.h), all at once.
 *
 * A rank has one port out and one port in, each of which carries a message at a time. A message of b bytes costs its
 * sender `overhead`, holds the sender's port out and the receiver's port in for b * per_byte, and arrives `latency`
 * after that; what is merged or copied costs its rank b * per_byte of that. Inside a host there are other numbers than
 * between hosts, and what leaves or enters a host goes through one port out and one in that all of its ranks share.
 * This says how an algorithm's time grows with ranks and bytes, beyond the machines at hand. */
#ifndef COLLECTIVE_SIMULATE_H
#define COLLECTIVE_SIMULATE_H

#include "collective/schedule.h"

struct link_cost {
  double latency, overhead, per_byte; /* seconds */
};

struct machine_cost {
  struct link_cost inside, between; /* a host; hosts */
  double merge_per_byte, copy_per_byte;
};

/* r->rank is not looked at: all ranks begin at 0; *seconds is when the last has ended. */
shoal_status simulate_collective(const struct schedule_request *r, size_t element, const struct machine_cost *cost,
                                 double *seconds);

#endif
