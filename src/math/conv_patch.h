/* Patches: the matrix a convolution multiplies with, given by rule instead of by elements.
 *
 * Row (n, p0, p1, p2) of the matrix is a position of a grid over image n; column (t0, t1, t2, channel) is a tap.
 * The element is the image at step * p + offset[t] in each dimension, or zero outside the image. */
#ifndef MATH_CONV_PATCH_H
#define MATH_CONV_PATCH_H

#include "math/gemm.h"

struct patches {
  const void *image; /* [batch, size, pixel], the first channel wanted */
  shoal_dtype type;
  int64_t size[3], grid[3], step[3], taps[3];
  const int64_t *offset[3]; /* [taps] each */
  int64_t channels, pixel;  /* channels taken of each pixel; elements from pixel to pixel */
};

/* Operand whose lanes are positions and whose k are taps and channels: for y = patches * w. */
void patch_pack_positions(const struct gemm_operand *o, const struct gemm_panel *panel, int64_t lane, int64_t lanes,
                          int64_t k, int64_t n, void *dst, size_t step);
/* There is one channel: positions of a row of the grid lie contiguous in the image, not what is under taps. */
bool patch_positions_run(const struct patches *p);
/* How many columns of the matrix lie contiguous in the image. */
int64_t patch_run(const struct patches *p);
/* Operand whose lanes are taps and channels and whose k are positions: for dw = patches' * dy. */
void patch_pack_taps(const struct gemm_operand *o, const struct gemm_panel *panel, int64_t lane, int64_t lanes,
                     int64_t k, int64_t n, void *dst, size_t step);

#endif
