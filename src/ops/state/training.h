/* A dense update of float32 with what stood around it in one pass over memory, for nodes that stand for all of it
 * (join_updates.c): the gradient is read as it is, in half precision perhaps, and multiplied; the variable shrinks
 * first. Each element sees the operations that it saw before, in their order, so that the bits are the same. */
#ifndef OPS_STATE_TRAINING_H
#define OPS_STATE_TRAINING_H

#include "runtime/kernel.h"

struct training_joined {
  const float *scale, *shrink; /* or NULL: what gradients are multiplied by; how much of a variable is taken off */
  bool fits;                   /* the gradient was seen to have the variable's shape, and may come under another */
};

/* Is it the kernel of such an update? */
bool training_joins(const struct kernel *k);
/* As the kernel's own run(); the gradient may be of half precision. */
shoal_status training_run_joined(struct kernel_ctx *ctx, const struct training_joined *with);

#endif
