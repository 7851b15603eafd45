/* Rows of the matrix of patches, and of its transpose, as they would stand in memory. */
#ifndef MATH_CONV_ROWS_H
#define MATH_CONV_ROWS_H

#include "math/conv_place.h"

/* Columns from one on: n of them. In stretches of the image that lie contiguous. */
struct patch_columns {
  struct patch_place tap; /* of the first; where taps touch, the first of its row */
  int64_t at, n;          /* the first, from that tap on; how many */
  int64_t run;            /* elements of a stretch */
  bool touch;             /* a stretch is all taps of a row, not one */
};
struct patch_columns patch_columns_of(const struct patches *p, int64_t k, int64_t n);

/* Of the rows of these positions, `step` elements from row to row. */
void patch_copy(const struct patches *p, const struct patch_columns *c, const struct patch_place *places, int lanes,
                int64_t step, void *to);
/* The same as a panel of float, of which what can be is left where it is. */
void patch_rows(const struct patches *p, const struct patch_columns *c, const struct patch_place *places, int lanes,
                int width, struct gemm_rows *to);
/* One channel: the values under one tap at n positions from s on. */
void patch_tap_row(const struct patches *p, const struct patch_place *t, struct patch_place s, int64_t n, float *to);

#endif
