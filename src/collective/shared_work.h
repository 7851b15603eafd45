/* What a rank does with its own and the others' slots in each turn of an exchange in shared memory: of one collective,
 * or of several sums.
 *
 * Before a turn begins all ranks have ended the one before. In a turn a rank shows a chunk of what it brings in its
 * slot, and works on what all have shown in the turn before: so a slot is written again two turns later, when nobody
 * reads it any more, and an exchange is as many turns as it has chunks, and one or two. A chunk is small enough that
 * it is still in the cache when others read it.
 *
 * All-reduce: of what is small, by what a rank reads of others, each sums everything by itself, straight from all
 * slots. Of what is large each rank sums its piece of a chunk and writes the sum over what the others have shown; in
 * the next turn everybody takes the sums out of its own slot, and shows in it what comes next. So a line of a slot goes
 * to the core that sums it and back, each time to be read and written, where one that is written by one and read by the
 * other goes twice each way: a quarter less time. (Two ranks that sum everything at any size were tried: no gain.)
 *
 * Sums of one exchange stand one behind the other, each from a line of the cache on, and are cut into chunks and pieces
 * as if they were one value: 200 of 4 KB take the turns of one of 800 KB. Each has its own type and arithmetic, and
 * every element is added in the order of ranks that it has alone. */
#ifndef COLLECTIVE_SHARED_WORK_H
#define COLLECTIVE_SHARED_WORK_H

#include "collective/run.h"
#include "collective/shared_memory.h"

/* A collective's place in its exchange. */
struct shared_part {
  struct collective_run *run;
  size_t at, bytes;
};

struct shared_work {
  const struct shared_part *parts; /* [n_parts], more than one of sums alone */
  int n_parts;
  struct shared_area *const *areas; /* [size] */
  int rank, size;
  char *spare; /* SHARED_SPARE bytes */
  /* its own */
  const struct collective_run *run; /* of the first part */
  enum collective_operation operation;
  bool at_once; /* sums of which everybody sums everything: one turn less */
  size_t bytes; /* of all parts that are summed */
  int64_t n;    /* others: elements that are shown, chunk by chunk */
  int64_t each; /* elements of a chunk */
  int64_t chunks;
};

enum { SHARED_AT_ONCE = 32 << 10, SHARED_SUM = 16 << 10, SHARED_SPARE = 8 * SHARED_SUM };

/* Rank r's slot of a turn. */
static inline char *shared_slot(const struct shared_work *w, int r, uint64_t turn) {
  return w->areas[r]->slots[turn & 1];
}

/* May it be one of several in an exchange? Then *room is how many bytes of that it takes. */
bool shared_work_joins(enum collective_operation operation, int64_t n, size_t element, size_t *room);
/* Returns how many turns it takes. */
int64_t shared_work_init(struct shared_work *w);
/* The k-th turn of them; number: which it is since the epoch began. */
void shared_work_turn(const struct shared_work *w, int64_t k, uint64_t number);

/* ---- shared_sums.c ---- */

/* to = the sum of `count` elements of all, rank r's at sources[r]. */
void shared_sum(const struct shared_work *w, const struct collective_run *r, const char *const *sources, char *to,
                int64_t count);
/* The turns of sums that everybody has. */
int64_t shared_sums_init(struct shared_work *w);
void shared_sums_turn(const struct shared_work *w, int64_t k, uint64_t turn);

#endif
