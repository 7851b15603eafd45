/* What the image families share: pixels as floats, and sizes. */
#ifndef OPS_IMAGE_IMAGE_H
#define OPS_IMAGE_IMAGE_H

#include "ops/array/array_util.h"

/* x's elements as float32: x itself when it has that type, else converted. Release it. */
shoal_status image_floats(const struct tensor *x, struct tensor *out);
/* The other way: rounds each float to y's type (floating types only). */
void image_store(const float *from, struct tensor *y);
/* Input i as [height, width]: a vector of two positive numbers. */
shoal_status image_size(const struct kernel_ctx *ctx, int i, int64_t *height, int64_t *width);

#endif
