/* What kernels of _ShoalAttention share: the op's attributes and shapes. */
#ifndef OPS_NN_ATTENTION_H
#define OPS_NN_ATTENTION_H

#include "ops/nn/nn_util.h"

struct attention_state { /* attributes */
  int64_t heads, depth;  /* depth: the width of a head */
  float scale;
  bool causal;
};
shoal_status attention_state_init(struct attention_state *st, const struct shoal_node *n);

struct attention_size {
  int64_t batch, queries, keys, width, depth;
};
/* Of inputs 0 to 2, and for the gradient 3 to 5: INVALID_ARGUMENT where they do not go together. */
shoal_status attention_size(const struct kernel_ctx *ctx, const struct attention_state *st, bool back,
                            struct attention_size *out);

#endif
