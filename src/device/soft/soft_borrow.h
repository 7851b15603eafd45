/* Kernels of the soft device that have one of the CPU's inside (soft_kernels.c). */
#ifndef DEVICE_SOFT_SOFT_BORROW_H
#define DEVICE_SOFT_SOFT_BORROW_H

#include "runtime/kernel.h"

struct soft_borrowing {
  struct kernel inner; /* the CPU's, on soft->host */
};
/* Of a kernel whose state begins with one. */
shoal_status soft_borrowing_init(struct kernel_init *ki, void *state);
void soft_borrowing_release(void *state);
static inline const struct kernel *soft_borrowed(const struct kernel_ctx *ctx) {
  return &((const struct soft_borrowing *)ctx->state)->inner;
}

/* (soft_queued.c) NULL: none. */
const struct kernel_def *soft_queued(const struct op *op);

/* Kernels that queue (soft_queued.c, soft_rows.c). */
extern const struct kernel_def soft_gather[], soft_scatter_add[];
/* The kernel's variable is changed by change(), with its lock held. */
shoal_status soft_change(struct kernel_ctx *ctx, shoal_status (*change)(struct kernel_ctx *ctx, struct variable *v));

#endif
