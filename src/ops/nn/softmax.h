/* What cross entropies share with softmax.c: rows of float, and labels. */
#ifndef OPS_NN_SOFTMAX_H
#define OPS_NN_SOFTMAX_H

#include "ops/nn/nn_util.h"

/* The largest of x; NaN is larger than any number. */
float softmax_largest(const float *x, int64_t n);
/* y = x less the largest of x, which it gives; y may be x. */
float softmax_shift(const float *x, float *y, int64_t n);
/* Sum of e^x; e holds the terms (it may be x). Eight partial sums in a fixed order. */
float softmax_exp_sum(const float *x, float *e, int64_t n);
/* Label i, of either type. */
static inline int64_t label_of(const struct tensor *labels, int64_t i) {
  return labels->dtype == SHOAL_INT64 ? T_DATA(labels, const int64_t)[i] : T_DATA(labels, const int32_t)[i];
}
/* Rows and labels that go together, each a class; else INVALID_ARGUMENT in TensorFlow's words. Without labels' values:
 * they are not the host's. */
shoal_status sparse_check_shapes(const struct tensor *x, const struct tensor *labels);
shoal_status sparse_check_labels(const struct tensor *labels, int64_t classes);

#endif
