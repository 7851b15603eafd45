/* Reductions of tensors, for the reduction ops and for others that reduce on the way (losses, norms). */
#ifndef OPS_MATH_REDUCE_H
#define OPS_MATH_REDUCE_H

#include "graph/gradient.h"
#include "ops/math/reduce_loops.h"
#include "runtime/kernel.h"

/* What becomes of an accumulator in the end. */
enum reduce_finish { FINISH_NONE, FINISH_MEAN, FINISH_ROOT };

struct reduce {
  shoal_dtype dtype, acc;
  const struct reduce_loops *loops, *merge;
  enum reduce_finish finish;
};

shoal_status reduce_init(struct reduce *r, enum reduce_op op, shoal_dtype dtype, enum reduce_finish finish);
/* Which axes a tensor of axes (negative ones count from the end) names. */
shoal_status reduce_axes(const struct tensor *axes, int rank, bool *reduced);
/* Reduces x over the dimensions marked, into out: accumulators (r->acc), one for each kept element. */
shoal_status reduce_tensor(struct kernel_ctx *ctx, const struct reduce *r, const struct tensor *x, const bool *reduced,
                           void *out);
/* n accumulators to elements of type t; out may be acc when the types are the same. count is what a mean divides by. */
void reduce_finish(shoal_dtype t, enum reduce_finish finish, int64_t count, void *out, const void *acc, int64_t n);

/* Gradients: reduce_grad.c. */
shoal_status reduce_sum_grad(struct grad_ctx *c);
shoal_status reduce_mean_grad(struct grad_ctx *c);
shoal_status reduce_prod_grad(struct grad_ctx *c);
shoal_status reduce_extreme_grad(struct grad_ctx *c);
shoal_status reduce_norm_grad(struct grad_ctx *c);
shoal_status reduce_l2_loss_grad(struct grad_ctx *c);

#endif
