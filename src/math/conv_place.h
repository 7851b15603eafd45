/* Positions of a grid and taps of a filter, counted through as the matrix of patches (conv_patch.h) has them. */
#ifndef MATH_CONV_PLACE_H
#define MATH_CONV_PLACE_H

#include "math/conv_patch.h"

/* A position of image n, or a tap (of no image). */
struct patch_place {
  int64_t n, at[3];
};

static inline struct patch_place place_of(const struct patches *p, int64_t index) {
  struct patch_place s;
  s.at[2] = index % p->grid[2];
  index /= p->grid[2];
  s.at[1] = index % p->grid[1];
  index /= p->grid[1];
  s.at[0] = index % p->grid[0];
  s.n = index / p->grid[0];
  return s;
}

static inline void place_next(const struct patches *p, struct patch_place *s) {
  for (int d = 2; d >= 0; d--) {
    if (++s->at[d] < p->grid[d]) return;
    s->at[d] = 0;
  }
  s->n++;
}

static inline struct patch_place tap_of(const struct patches *p, int64_t index) {
  struct patch_place t = {0};
  if (!index) return t; /* divisions are slow */
  t.at[2] = index % p->taps[2];
  index /= p->taps[2];
  t.at[1] = index % p->taps[1];
  t.at[0] = index / p->taps[1];
  return t;
}

static inline void tap_next(const struct patches *p, struct patch_place *t) {
  for (int d = 2; d >= 0; d--) {
    if (++t->at[d] < p->taps[d]) return;
    t->at[d] = 0;
  }
}

/* The row of pixels under a tap, in elements from the image's start; -1 outside. */
static inline int64_t row_at(const struct patches *p, const struct patch_place *s, const struct patch_place *t) {
  int64_t x0 = s->at[0] * p->step[0] + p->offset[0][t->at[0]], x1 = s->at[1] * p->step[1] + p->offset[1][t->at[1]];
  if (x0 < 0 || x0 >= p->size[0] || x1 < 0 || x1 >= p->size[1]) return -1;
  return ((s->n * p->size[0] + x0) * p->size[1] + x1) * p->size[2] * p->pixel;
}

/* The pixel there, likewise. */
static inline int64_t pixel_at(const struct patches *p, const struct patch_place *s, const struct patch_place *t) {
  int64_t row = row_at(p, s, t), x2 = s->at[2] * p->step[2] + p->offset[2][t->at[2]];
  return row < 0 || x2 < 0 || x2 >= p->size[2] ? -1 : row + x2 * p->pixel;
}

#endif
