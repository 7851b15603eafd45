/* What kernels of _ShoalAttention share: the op's attributes and shapes. */
#ifndef OPS_NN_ATTENTION_H
#define OPS_NN_ATTENTION_H

#include "ops/nn/nn_util.h"

struct attention_state { /* attributes */
  int64_t heads, depth;  /* depth: the width of a head */
  float scale;
  bool causal;
  bool masked; /* by the last input, which is added to the scores: of _ShoalMaskedAttention */
};
shoal_status attention_state_init(struct attention_state *st, const struct shoal_node *n);

/* Queries, keys and values are three tensors [batch, time, width], or one [batch, time, 3 width] with all of them. So
 * are their gradients. */
struct attention_size {
  int64_t batch, queries, keys, width, depth;
  int64_t step; /* of queries, keys and values: elements from one time to the next */
  bool packed;
};
/* By the inputs; those of the gradient have y, sums and dy behind. INVALID_ARGUMENT where they do not go together. */
shoal_status attention_size(const struct kernel_ctx *ctx, const struct attention_state *st, bool back,
                            struct attention_size *out);

/* Where queries (0), keys (1) or values (2) begin in the first inputs, or in as many outputs. */
static inline void *attention_part(const struct attention_size *s, const struct tensor *of, int part) {
  return (char *)of->data + (s->packed ? (size_t)(part * s->width) * dtype_size((shoal_dtype)of->dtype) : 0);
}
static inline void *attention_in(const struct kernel_ctx *ctx, const struct attention_size *s, int part) {
  return attention_part(s, ctx_in(ctx, s->packed ? 0 : part), part);
}
static inline void *attention_out(const struct kernel_ctx *ctx, const struct attention_size *s, int part) {
  return attention_part(s, &ctx->out[s->packed ? 0 : part], part);
}
/* Output 0, y. */
shoal_status attention_make_y(struct kernel_ctx *ctx, const struct attention_size *s, struct tensor **out);
/* Outputs like the first inputs. */
shoal_status attention_make_gradients(struct kernel_ctx *ctx, const struct attention_size *s);

#endif
