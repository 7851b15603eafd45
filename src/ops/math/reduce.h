/* Reductions of tensors: what reduce.c and their gradients (reduce_grad.c) share. */
#ifndef OPS_MATH_REDUCE_H
#define OPS_MATH_REDUCE_H

#include "graph/gradient.h"
#include "runtime/kernel.h"

/* Which axes a tensor of axes (negative ones count from the end) names. */
shoal_status reduce_axes(const struct tensor *axes, int rank, bool *reduced);
/* L2Loss of what x, of float32 or half precision, is in float32. */
shoal_status reduce_l2_loss(struct kernel_ctx *ctx, const struct tensor *x, float *out);

shoal_status reduce_sum_grad(struct grad_ctx *c);
shoal_status reduce_mean_grad(struct grad_ctx *c);
shoal_status reduce_prod_grad(struct grad_ctx *c);
shoal_status reduce_extreme_grad(struct grad_ctx *c);
shoal_status reduce_norm_grad(struct grad_ctx *c);
shoal_status reduce_l2_loss_grad(struct grad_ctx *c);

#endif
