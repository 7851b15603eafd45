/* A communicator: one member's place in a group, by which V3 collective ops know it, made by
 * CollectiveInitializeCommunicator. Each op that uses it takes its next instance key, so all members run the same ops
 * in the same order. */
#ifndef OPS_CONTROL_COMMUNICATOR_H
#define OPS_CONTROL_COMMUNICATOR_H

#include <stdatomic.h>

#include "collective/site.h"
#include "runtime/resource.h"

struct communicator {
  struct resource head;
  int group_key, rank, group_size;
  float timeout_s;
  atomic_uint next; /* instance key */
};
extern const struct resource_type communicator_type;

/* A member goes to where the step's collectives meet; m->done may be called before it returns. */
void collective_meet(struct step *step, struct collective_member *m);
/* The same for one whose group is all in this task. */
void collective_meet_here(struct step *step, struct collective_member *m);

#endif
