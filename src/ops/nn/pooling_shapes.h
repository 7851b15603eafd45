/* Pooling as nodes have it: attributes, and from shapes what is to be computed. For the kernels of every device. */
#ifndef OPS_NN_POOLING_SHAPES_H
#define OPS_NN_POOLING_SHAPES_H

#include "ops/nn/pooling_loops.h"
#include "ops/nn/window.h"

struct pool_state {
  struct window w;
  bool sizes_are_inputs; /* the V2 ops: ksize and strides are the last two inputs */
  bool batch_in_index;
};

int pool_dims(const struct shoal_node *n); /* 2 or 3 */
shoal_status pool_state_init(struct pool_state *st, const struct shoal_node *n);
/* The window for this run: the V2 ops bring sizes with them, in host memory. */
shoal_status pool_window(const struct kernel_ctx *ctx, const struct pool_state *st, struct window *w);
shoal_status pool_geometry(const struct window *w, const struct shape *x, const char *what, struct pooling *p);
shoal_status pool_check_depth(const struct kernel_ctx *ctx, const struct window *w);
shoal_status pool_check_shape(const struct tensor *t, const struct shape *want, const char *what);

#endif
