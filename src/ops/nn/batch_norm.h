/* Batch normalisation as nodes have it: attributes, and the matrix that an image is. For the kernels of every device.
 */
#ifndef OPS_NN_BATCH_NORM_H
#define OPS_NN_BATCH_NORM_H

#include "ops/nn/window.h"

struct norm_state {
  float epsilon, factor; /* exponential_avg_factor */
  bool channels_first, training, relu;
  int side_inputs;
  bool sum; /* the gradient is that of two tensors' sum */
  bool wide_rank; /* V3: rank 5 too */
};
struct norm_matrix {
  int64_t rows, channels;
};

shoal_status norm_state_init(struct norm_state *st, const struct shoal_node *n);
/* The inputs of FusedBatchNorm and of FusedBatchNormGrad: no element is looked at. */
shoal_status norm_check(const struct kernel_ctx *ctx, const struct norm_state *st, struct norm_matrix *m);
shoal_status norm_check_back(const struct kernel_ctx *ctx, const struct norm_state *st, struct norm_matrix *m);

#endif
