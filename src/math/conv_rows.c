/* Rows of patches; see conv_rows.h.
 *
 * A kernel that takes rows (struct gemm_rows) needs no patch that lies in the image as it would in the matrix: the
 * taps of a row of the filter, with all their channels, if they are inside. At the left and right edge there are copies
 * with zeros, above and below rows of zeros. So of a 5x5 filter over 14x14 pixels a quarter is copied, where packing
 * all of it took two fifths of the time of the product. */
#include "math/conv_rows.h"

#include <string.h>

#include "base/mem.h"

static const float zeros[GEMM_ROW];

/* Taps of the last dimension stand side by side in the image. */
static bool taps_touch(const struct patches *p) {
  if (p->pixel != p->channels) return false;
  for (int64_t t = 1; t < p->taps[2]; t++)
    if (p->offset[2][t] != p->offset[2][t - 1] + 1) return false;
  return true;
}

int64_t patch_run(const struct patches *p) { return taps_touch(p) ? p->taps[2] * p->channels : p->channels; }

struct patch_columns patch_columns_of(const struct patches *p, int64_t k, int64_t n) {
  struct patch_columns c = {tap_of(p, k / p->channels), k % p->channels, n, patch_run(p), taps_touch(p)};
  if (!c.touch) return c;
  c.at += c.tap.at[2] * p->channels;
  c.tap.at[2] = 0;
  return c;
}

/* n elements from x on of a row of `width`; zeros where there are none. */
static void copy_stretch(const char *row, int64_t x, int64_t n, int64_t width, size_t es, char *to) {
  int64_t low = MIN(MAX(0, -x), n), high = MAX(low, MIN(n, width - x));
  if (low) memset(to, 0, (size_t)low * es);
  if (low < high) memcpy(to + (size_t)low * es, row + (x + low) * (int64_t)es, (size_t)(high - low) * es);
  if (high < n) memset(to + (size_t)high * es, 0, (size_t)(n - high) * es);
}

static void copy_row(const struct patches *p, const struct patch_columns *c, const struct patch_place *s, char *to) {
  size_t es = dtype_size(p->type);
  struct patch_place t = c->tap;
  int64_t at = c->at, width = p->size[2] * p->pixel;
  for (int64_t left = c->n, len; left > 0; left -= len, at = 0, to += (size_t)len * es) {
    int64_t row = row_at(p, s, &t), x2 = s->at[2] * p->step[2] + p->offset[2][t.at[2]];
    len = MIN(c->run - at, left);
    if (row < 0 || (!c->touch && (x2 < 0 || x2 >= p->size[2]))) memset(to, 0, (size_t)len * es);
    else copy_stretch((const char *)p->image + (size_t)row * es, x2 * p->pixel + at, len, width, es, to);
    if (c->touch) t.at[2] = p->taps[2] - 1;
    tap_next(p, &t);
  }
}

void patch_copy(const struct patches *p, const struct patch_columns *c, const struct patch_place *places, int lanes,
                int64_t step, void *to) {
  for (int i = 0; i < lanes; i++) copy_row(p, c, &places[i], (char *)to + (size_t)(i * step) * dtype_size(p->type));
}

/* The row where it lies, or zeros; NULL: it must be copied. For columns of one stretch. row: of the image. */
static const float *row_in_place(const struct patches *p, const struct patch_columns *c, const struct patch_place *s,
                                 int64_t row) {
  int64_t x2 = s->at[2] * p->step[2] + p->offset[2][c->tap.at[2]];
  if (row < 0) return zeros;
  int64_t x = x2 * p->pixel + c->at;
  if (x >= 0 && x + c->n <= p->size[2] * p->pixel) return (const float *)p->image + row + x;
  return c->touch ? NULL : zeros;
}

void patch_rows(const struct patches *p, const struct patch_columns *c, const struct patch_place *places, int lanes,
                int width, struct gemm_rows *to) {
  bool stay = c->at + c->n <= c->run && gemm_rows_may_stay(p->step[2] * p->pixel);
  int64_t row = -1;
  for (int i = 0; i < lanes; i++) {
    if (!i || !places[i].at[2]) row = row_at(p, &places[i], &c->tap); /* others stand in the same row of the grid */
    const float *at = stay ? row_in_place(p, c, &places[i], row) : NULL;
    if (!at) copy_row(p, c, &places[i], (char *)to->own[i]);
    to->at[i] = at ? at : to->own[i];
  }
  for (int i = lanes; i < width; i++) to->at[i] = to->at[0];
}

void patch_tap_row(const struct patches *p, const struct patch_place *t, struct patch_place s, int64_t n, float *to) {
  for (int64_t len; n > 0; n -= len, to += len) {
    len = MIN(p->grid[2] - s.at[2], n);
    int64_t row = row_at(p, &s, t);
    if (row < 0) memset(to, 0, (size_t)len * sizeof *to);
    else
      copy_stretch((const char *)((const float *)p->image + row), s.at[2] + p->offset[2][t->at[2]], len, p->size[2],
                   sizeof *to, (char *)to);
    s.at[2] = p->grid[2] - 1;
    place_next(p, &s);
  }
}
