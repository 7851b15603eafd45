/* Kernels of the soft device that have one of the CPU's inside (soft_kernels.c). */
#ifndef DEVICE_SOFT_SOFT_BORROW_H
#define DEVICE_SOFT_SOFT_BORROW_H

#include "runtime/kernel_borrow.h"

/* The init of a kernel whose state begins with a borrowing. */
shoal_status soft_borrowing_init(struct kernel_init *ki, void *state);

/* (soft_queued.c) NULL: none. */
const struct kernel_def *soft_queued(const struct op *op);

/* Kernels that queue (soft_queued.c, soft_rows.c). */
extern const struct kernel_def soft_gather[], soft_scatter_add[];
/* The kernel's variable is changed by change(), with its lock held. */
shoal_status soft_change(struct kernel_ctx *ctx, shoal_status (*change)(struct kernel_ctx *ctx, struct variable *v));

#endif
