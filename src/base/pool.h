/* Thread pools: one for nodes that run side by side (inter-op), one for the loops inside a kernel (intra-op).
 *
 * Submitting allocates only when the ring of waiting tasks must grow. A loop's pieces depend on the length and
 * the grain alone, never on the number of threads: a kernel that reduces piece by piece gives the same bits on
 * any machine. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stdbool.h>
#include <stdint.h>

struct pool;

/* threads <= 0: one for each core this process may use. */
struct pool *pool_new(int threads, const char *name);
/* Runs what was submitted, then ends the threads. */
void pool_free(struct pool *p);
int pool_threads(const struct pool *p);
/* Tasks run in the order of submission as threads come free. */
void pool_submit(struct pool *p, void (*fn)(void *arg), void *arg);
/* True on one of p's own threads. */
bool pool_is_mine(const struct pool *p);

/* Between these this thread computes, in loops or not, and has a core of its own: that is one less to help in the loops
 * of others. They nest. */
void pool_compute(struct pool *p);
void pool_rest(void);

/* Calls fn over [0, n) in pieces of grain elements (the last may be shorter), on the caller and on idle threads
 * of p; returns when all are done. p may be NULL (the caller does everything). A piece is never larger than
 * grain unless everything runs on the caller alone, in which case fn may get [0, n) whole: pieces must be
 * independent. */
void pool_for(struct pool *p, int64_t n, int64_t grain, void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);
/* The same in pieces of at most `most` elements, which become smaller as less is left, down to `least`: so all threads
 * end at about the same time. On at most so many threads, the caller's included: for loops that more would not make
 * shorter. */
void pool_for_tapered(struct pool *p, int64_t n, int64_t most, int64_t least, int threads,
                      void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);
/* As pool_for, but fn always gets exactly the pieces [i*grain, (i+1)*grain): for reductions with fixed order. */
void pool_for_pieces(struct pool *p, int64_t n, int64_t grain, void (*fn)(void *arg, int64_t begin, int64_t end),
                     void *arg);

int cpu_count(void);

#endif
