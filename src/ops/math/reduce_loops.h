/* Reducing runs of elements: what reduce.c builds its plans from.
 *
 * Values are kept in an accumulator type: float for the halves, 64 bits for integers (whose sums and products wrap,
 * so that cutting the result to the element's size gives what arithmetic in that size would), else the element's own.
 * Sums are taken pairwise over blocks: the error grows with the logarithm of the length, and the order depends on the
 * length alone. */
#ifndef OPS_MATH_REDUCE_LOOPS_H
#define OPS_MATH_REDUCE_LOOPS_H

#include "tensor/tensor.h"

enum reduce_op { REDUCE_SUM, REDUCE_PROD, REDUCE_MAX, REDUCE_MIN, REDUCE_SQUARES, REDUCE_OPS };

/* Columns that `rows` takes at most. */
enum { REDUCE_COLUMNS = 128 };

struct reduce_loops {
  /* out[0] = in[0] op ... op in[n - 1] */
  void (*run)(void *out, const void *in, int64_t n);
  /* out[j] = op over i of in[i * stride + j], for j < columns */
  void (*rows)(void *out, const void *in, int64_t n, int64_t stride, int64_t columns);
};

/* NULL functions when op does not apply to the type (the order of complex numbers). bool is taken as its bytes. */
const struct reduce_loops *reduce_loops_for(enum reduce_op op, shoal_dtype t);
/* The accumulator's type. */
shoal_dtype reduce_accumulator(shoal_dtype t);

#endif
