/* Convolutions on the CPU in up to three dimensions, channels last: the forward product and both gradients.
 * All three are matrix products over patches of an image; the patches are packed straight from the image, so the
 * matrix of all patches never exists. */
#ifndef MATH_CONV_H
#define MATH_CONV_H

#include "math/gemm.h"

/* Unused spatial dimensions come first and are 1 throughout (stride and dilation too, padding 0). */
struct conv {
  int64_t batch;
  int64_t in[3], out[3], filter[3], stride[3], dilation[3];
  int64_t pad[3]; /* before; what is after follows from the sizes */
  int64_t ci, co; /* channels of the image and of the result */
  int64_t groups; /* both are cut into this many, each convolved by itself */
};

/* y [batch, out, co] = x [batch, in, ci] convolved with w [filter, ci / groups, co]. epilogue may be NULL. */
shoal_status conv_forward(struct pool *pool, const struct conv *c, shoal_dtype type, const void *x, const void *w,
                          void *y, const struct gemm_epilogue *epilogue);
/* dx from dy. */
shoal_status conv_backward_input(struct pool *pool, const struct conv *c, shoal_dtype type, const void *w,
                                 const void *dy, void *dx);
/* dw from x and dy. */
shoal_status conv_backward_filter(struct pool *pool, const struct conv *c, shoal_dtype type, const void *x,
                                  const void *dy, void *dw);

#endif
