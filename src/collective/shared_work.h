/* What a rank does with its own and the others' slots in each turn of a collective in shared memory.
 *
 * Before a turn begins all ranks have ended the one before. In a turn a rank shows a chunk of what it brings in its
 * slot, and works on what all have shown in the turn before: so a slot is written again two turns later, when nobody
 * reads it any more, and a collective is as many turns as it has chunks, and one or two. A chunk is small enough that
 * it is still in the cache when others read it.
 *
 * All-reduce: of what is small each rank sums everything by itself, straight from all slots. Of what is large each
 * rank sums its piece of a chunk and shows that; in the next turn everybody copies the others'. */
#ifndef COLLECTIVE_SHARED_WORK_H
#define COLLECTIVE_SHARED_WORK_H

#include "collective/run.h"
#include "collective/shared_memory.h"

struct shared_work {
  const struct collective_run *run;
  struct shared_area *const *areas; /* [size] */
  int rank, size;
  char *spare; /* SHARED_SPARE bytes */
  /* its own */
  enum collective_operation operation;
  bool at_once; /* an all-reduce in which everybody sums everything */
  int64_t n;    /* elements that are shown, chunk by chunk */
  int64_t each; /* elements of a chunk */
  int64_t chunks;
};

enum { SHARED_AT_ONCE = 64 << 10, SHARED_SUM = 16 << 10, SHARED_SPARE = 8 * SHARED_SUM };

/* Returns how many turns it takes. */
int64_t shared_work_init(struct shared_work *w);
/* The k-th turn of them; number: which it is since the epoch began. */
void shared_work_turn(const struct shared_work *w, int64_t k, uint64_t number);

#endif
