/* Padding with one value, for the kernels of every device. */
#ifndef OPS_ARRAY_PAD_H
#define OPS_ARRAY_PAD_H

#include "ops/array/array_util.h"

/* All of y becomes the value that is padded with. */
typedef shoal_status (*pad_fill)(struct kernel_ctx *ctx, struct tensor *y);
/* Pad and PadV2: paddings are the host's. */
shoal_status pad_filled(struct kernel_ctx *ctx, pad_fill fill);

#endif
