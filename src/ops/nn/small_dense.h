/* What _DenseCrossEntropy and _DenseGrads are given, looked at: for their kernels on every device. */
#ifndef OPS_NN_SMALL_DENSE_H
#define OPS_NN_SMALL_DENSE_H

#include "ops/nn/nn_util.h"

/* A classifier's last layer: inputs and outputs of _DenseCrossEntropy, which this makes. */
struct dense_classifier {
  const struct tensor *x, *w, *bias, *labels, *each; /* [rows, width], [width, classes], [classes], [rows], [rows] */
  struct tensor *loss, *grad, *back, *mean;          /* [rows], [rows, classes], [rows, width], [] */
  int64_t rows, width, classes;
};
shoal_status dense_classifier_begin(struct kernel_ctx *ctx, struct dense_classifier *out);

/* Pair i of _DenseGrads: values [rows, m] and gradients [rows, n] give a product [m, n] and sums [n]. */
struct dense_pair {
  const struct tensor *x, *g;
  struct tensor *product, *sums;
  int64_t rows, m, n;
};
shoal_status dense_pair_begin(struct kernel_ctx *ctx, int i, struct dense_pair *out);

#endif
