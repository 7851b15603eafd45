/* Broadcasting: how several operands of different shapes line up with one output.
 *
 * A plan drops dimensions of size 1 and merges neighbours that every operand walks in the same way, so that most
 * cases end in one or two dimensions; the innermost one always has step 1 or 0 for each operand. A kernel then
 * handles runs of the innermost dimension: vector with vector, vector with scalar, scalar with vector. */
#ifndef OPS_MATH_BROADCAST_H
#define OPS_MATH_BROADCAST_H

#include "tensor/tensor.h"

enum { BROADCAST_MAX = 4 };

struct broadcast {
  struct shape out; /* in full, for the output tensor */
  int64_t n;        /* elements of the output */
  int n_in;
  int rank; /* >= 1; of what follows, outermost first */
  int64_t dims[SHOAL_MAX_RANK];
  int64_t step[BROADCAST_MAX][SHOAL_MAX_RANK]; /* in elements; 0 where the operand is repeated */
};

/* "Incompatible shapes: [2] vs. [3]" when they do not fit (the two that clash are named). */
shoal_status broadcast_plan(struct broadcast *b, const struct tensor *const *in, int n_in);
/* The same from shapes, all fully known. */
shoal_status broadcast_plan_shapes(struct broadcast *b, const struct shape *in, int n_in);

/* Whether operand k is stepped through in the innermost dimension (else one element serves the whole run). */
static inline bool broadcast_inner(const struct broadcast *b, int k) { return b->step[k][b->rank - 1] != 0; }

/* Calls run for each stretch of the innermost dimension inside elements [begin, end) of the output: n elements from
 * output element `at` on; operand k's first element is at[k]. Any [begin, end) will do, so loops can be split. */
typedef void (*broadcast_run)(void *arg, int64_t out_at, const int64_t *in_at, int64_t n);
void broadcast_each(const struct broadcast *b, int64_t begin, int64_t end, broadcast_run run, void *arg);

/* Select's own rule: the condition (the first of three) is a scalar, or of the others' shape, or a vector that chooses
 * rows (select.c). */
shoal_status select_plan(const struct tensor *const *in, struct broadcast *out);

#endif
