/* Reductions of tensors: what reduce.c and their gradients (reduce_grad.c) share. */
#ifndef OPS_MATH_REDUCE_H
#define OPS_MATH_REDUCE_H

#include "graph/gradient.h"

shoal_status reduce_sum_grad(struct grad_ctx *c);
shoal_status reduce_mean_grad(struct grad_ctx *c);
shoal_status reduce_prod_grad(struct grad_ctx *c);
shoal_status reduce_extreme_grad(struct grad_ctx *c);
shoal_status reduce_norm_grad(struct grad_ctx *c);
shoal_status reduce_l2_loss_grad(struct grad_ctx *c);

#endif
