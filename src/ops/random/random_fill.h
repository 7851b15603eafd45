/* Filling memory with random numbers of the simple distributions, and the generator that random kernels keep. */
#ifndef OPS_RANDOM_RANDOM_FILL_H
#define OPS_RANDOM_RANDOM_FILL_H

#include <pthread.h>

#include "base/philox.h"
#include "base/pool.h"
#include "runtime/kernel.h"

enum random_kind {
  RANDOM_UNIFORM, /* [0, 1) */
  RANDOM_NORMAL,
  RANDOM_TRUNCATED_NORMAL, /* normal, without what is past 2 deviations */
  RANDOM_FULL_INT,         /* every value of the integer type */
};

/* n elements at out. The same numbers whatever the pool. */
void random_fill(struct pool *pool, struct philox p, enum random_kind kind, shoal_dtype dtype, void *out, int64_t n);
/* lo + x mod range, in the unsigned arithmetic of the element's width (32- and 64-bit integers). */
void random_fill_ints(struct pool *pool, struct philox p, shoal_dtype dtype, uint64_t lo, uint64_t range, void *out,
                      int64_t n);

/* A generator that calls take their parts from, in order. */
struct random_state {
  pthread_mutex_t lock;
  struct philox p; /* lock */
};
/* From the node's seed and seed2; drawn when both are 0. */
shoal_status random_state_init(struct kernel_init *ki, void *state);
void random_state_release(void *state);
/* The generator as it is now; it moves on by as many blocks. */
struct philox random_reserve(struct random_state *s, uint64_t blocks);

/* What every call reserves for each element it makes, so that no two calls ever overlap. */
enum { RANDOM_BLOCKS_PER_OUTPUT = 256 };

/* The shape a random op is asked for. */
shoal_status random_shape(const struct tensor *t, struct shape *out);
/* Scalars minval and maxval as bit patterns of the element type; range is their distance. */
shoal_status random_bounds(const struct tensor *lo_t, const struct tensor *hi_t, uint64_t *lo, uint64_t *range);
/* The generator of a stateless op from its pair of seeds. */
shoal_status random_from_seed_tensor(const struct tensor *seed, struct philox *out);

/* For rows: the one kernel of an op that keeps such a state. */
#define RANDOM_KERNEL(attr, dtypes, fn)         \
  (const struct kernel_def[]) {                 \
    {.device = "CPU",                           \
     .borrowable = true,                        \
     .type_attr = attr,                         \
     .types = dtypes,                           \
     .flags = KERNEL_EXPENSIVE,                 \
     .state_size = sizeof(struct random_state), \
     .init = random_state_init,                 \
     .release = random_state_release,           \
     .run = fn},                                \
    {                                           \
      0                                         \
    }                                           \
  }

#endif
