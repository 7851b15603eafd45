/* What _BiasReluPool and _BiasReluPoolGrad are given, looked at: for their kernels on every device. */
#ifndef OPS_NN_RELU_POOL_H
#define OPS_NN_RELU_POOL_H

#include "ops/nn/pooling_shapes.h"

enum { RELU_POOL_NONE = 255 }; /* where nothing of a window is above zero: no gradient goes back */

struct relu_pool_state {
  struct window w;
  int64_t height, width; /* of what a gradient makes */
};
/* Flat images, channels last, windows side by side that a byte can tell the places of; UNIMPLEMENTED if not. */
shoal_status relu_pool_init(struct relu_pool_state *st, const struct shoal_node *n);

struct relu_pool {
  const struct tensor *x, *bias; /* forward; to: */
  struct tensor *y, *where;
  const struct tensor *taken, *dy; /* back; to: */
  struct tensor *dx, *sums;
  struct pooling p; /* sizes alone */
};
/* Both make the outputs. */
shoal_status relu_pool_begin(struct kernel_ctx *ctx, const struct relu_pool_state *st, struct relu_pool *out);
shoal_status relu_pool_grad_begin(struct kernel_ctx *ctx, const struct relu_pool_state *st, struct relu_pool *out);

#endif
