/* What a rank of a shared group (shared_group.h) does in each turn where values are in devices' memory: as
 * shared_work.h has it, with slots in windows (device.h) instead of the host's memory, and copies and sums by the
 * device.
 *
 * In a turn a rank shows a chunk of what it brings in its slot, and takes what all have shown in the turn before; it
 * says that the turn has ended when its device has done all of that, so that processes need no marks of each other's
 * streams. A turn costs the wait for the device and, on one card, its change from one process to the other, some 200 us
 * on an H200: chunks are large, and sums that are done as one (shared_order.h) are one chunk. Each rank sums everything
 * by itself: what is on one card is read sooner than another turn is over. */
#ifndef COLLECTIVE_WINDOW_WORK_H
#define COLLECTIVE_WINDOW_WORK_H

#include "collective/run.h"
#include "collective/shared_work.h"
#include "device/device.h"

enum { WINDOW_SLOT = 16 << 20, WINDOW_BYTES = 2 * WINDOW_SLOT };

struct window_work {
  const struct shared_part *parts; /* [n_parts], more than one of sums alone */
  int n_parts;
  struct device *device;
  const struct tensor *windows; /* [size], the own one too */
  int rank, size;
  /* its own */
  const struct collective_run *run; /* of the first part */
  enum collective_operation operation;
  int64_t n, each, chunks; /* elements that are shown, of all and of a chunk; of one part */
};

/* Returns how many turns it takes. */
int64_t window_work_init(struct window_work *w);
/* The k-th turn of them; number: which it is since the epoch began. Waits for the device. */
shoal_status window_work_turn(const struct window_work *w, int64_t k, uint64_t number);

#endif
