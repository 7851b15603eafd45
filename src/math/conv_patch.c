/* Packing panels of patches.
 *
 * Two ways for each of the two operands: a quick one that writes the panel straight from the image, where the
 * element type needs no conversion and taps fall on whole channels; and a plain one that first copies the patches
 * wanted into scratch (which a panel's worth of fits the first-level cache) and packs from there. */
#include "math/conv_patch.h"

#include <string.h>

#include "base/mem.h"
#include "base/vector.h"
#include "math/conv_rows.h"
#include "math/scratch.h"
#include "math/transpose.h"

enum { MAX_WIDTH = 64, ZEROS = 256 };
static const float zeros[ZEROS];

/* ---- positions as lanes ---- */

/* n steps of k from `lanes` rows, rows[i] contiguous: o[step * width + i]. */
static void interleave(int width, int lanes, const float *const *rows, int64_t n, float *o) {
  int i = 0;
  for (; i + 4 <= lanes; i += 4) interleave_4_rows(rows[i], rows[i + 1], rows[i + 2], rows[i + 3], n, o + i, width);
  for (; i < lanes; i++)
    for (int64_t k = 0; k < n; k++) o[k * width + i] = rows[i][k];
}

/* One channel: of the positions that stand in one row, a step of k is a contiguous run of the image. s is the first of
 * them, lanes [first, first + count) of rows of `step` bytes. */
static void copy_row_of_pixels(const struct patches *p, const struct patch_place *s, int first, int count, int64_t k,
                               int64_t n, size_t step, char *o) {
  struct patch_place t = tap_of(p, k);
  size_t es = dtype_size(p->type), bytes = (size_t)count * es;
  o += (size_t)first * es;
  int64_t at = -1; /* the row under a row of taps */
  for (int64_t i = 0; i < n; i++, o += step, tap_next(p, &t)) {
    if (!i || !t.at[2]) at = row_at(p, s, &t);
    int64_t x2 = s->at[2] + p->offset[2][t.at[2]];
    bool inside = at >= 0;
    const char *row = (const char *)p->image + (inside ? (size_t)at * es : 0);
    int64_t low = inside ? MAX(0, -x2) : count, high = inside ? MIN(count, p->size[2] - x2) : 0;
    if (low == 0 && high == count) {
      if (bytes == 48) memcpy(o, row + (size_t)x2 * es, 48); /* lengths of panels: a few moves each */
      else if (bytes == 32) memcpy(o, row + (size_t)x2 * es, 32);
      else if (bytes == 16) memcpy(o, row + (size_t)x2 * es, 16);
      else memcpy(o, row + (size_t)x2 * es, bytes);
      continue;
    }
    memset(o, 0, bytes);
    if (low < high) memcpy(o + (size_t)low * es, row + (size_t)(x2 + low) * es, (size_t)(high - low) * es);
  }
}

/* What the panel's type or grouping does not take as it is goes through scratch. */
static void pack_rows_of_pixels(const struct patches *p, const struct gemm_panel *panel,
                                const struct patch_place *places, int lanes, int64_t k, int64_t n, void *dst) {
  size_t step = (size_t)panel->width * dtype_size(p->type);
  bool direct = p->type == panel->type && panel->group == 1;
  char *o = direct ? dst : scratch_get(SCRATCH_PATCH, (size_t)n * step);
  if (lanes < panel->width) memset(o, 0, (size_t)n * step);
  for (int i = 0, count; i < lanes; i += count) {
    count = (int)MIN(lanes - i, p->grid[2] - places[i].at[2]);
    copy_row_of_pixels(p, &places[i], i, count, k, n, step, o);
  }
  if (!direct) gemm_pack_block(panel, o, p->type, 1, panel->width, false, panel->width, n, dst);
}

/* Rows of pixels' channels, interleaved tap by tap. */
static void pack_channels(const struct patches *p, const struct gemm_panel *panel, const struct patch_place *places,
                          int lanes, int64_t k, int64_t n, float *o) {
  const float *rows[MAX_WIDTH];
  int w = panel->width;
  struct patch_place t = tap_of(p, k / p->channels);
  int64_t c = k % p->channels;
  for (int i = lanes; i < w; i++) rows[i] = zeros;
  while (n > 0) {
    int64_t len = MIN(MIN(p->channels - c, n), ZEROS);
    for (int i = 0; i < lanes; i++) {
      int64_t at = pixel_at(p, &places[i], &t);
      rows[i] = at < 0 ? zeros : (const float *)p->image + at + c;
    }
    interleave(w, w, rows, len, o);
    o += len * w;
    n -= len;
    c += len;
    if (c == p->channels) {
      c = 0;
      tap_next(p, &t);
    }
  }
}

/* The same for groups of k: what a lane takes of a pixel goes down in pieces of a group. */
static void pack_channel_groups(const struct patches *p, const struct gemm_panel *panel,
                                const struct patch_place *places, int lanes, int64_t k, int64_t n, char *o) {
  size_t piece = (size_t)panel->group * 2, step = piece * (size_t)panel->width;
  struct patch_place t = tap_of(p, k / p->channels);
  int64_t c = k % p->channels, steps = (n + panel->round - 1) / panel->round * panel->round / panel->group;
  if (lanes < panel->width) memset(o, 0, (size_t)steps * step);
  int64_t rest = steps - n / panel->group;
  if (rest) memset(o + (size_t)(n / panel->group) * step, 0, (size_t)rest * step);
  while (n > 0) {
    int64_t len = MIN(p->channels - c, n), pieces = len / panel->group;
    for (int i = 0; i < lanes; i++) {
      int64_t at = pixel_at(p, &places[i], &t);
      const char *from = (const char *)p->image + (at + c) * 2;
      char *to = o + (size_t)i * piece;
      if (at < 0)
        for (int64_t q = 0; q < pieces; q++, to += step) memset(to, 0, piece);
      else if (piece == 8)
        for (int64_t q = 0; q < pieces; q++, to += step, from += 8) memcpy(to, from, 8);
      else
        for (int64_t q = 0; q < pieces; q++, to += step, from += piece) memcpy(to, from, piece);
    }
    o += (size_t)pieces * step;
    n -= len;
    c += len;
    if (c == p->channels) {
      c = 0;
      tap_next(p, &t);
    }
  }
}

/* Into scratch, row by row, then packed. */
static void pack_copied(const struct patches *p, const struct gemm_panel *panel, const struct patch_place *places,
                        int lanes, int64_t k, int64_t n, void *dst) {
  struct patch_columns c = patch_columns_of(p, k, n);
  void *rows = scratch_get(SCRATCH_PATCH, (size_t)panel->width * (size_t)n * dtype_size(p->type));
  patch_copy(p, &c, places, lanes, n, rows);
  gemm_pack_block(panel, rows, p->type, n, 1, false, lanes, n, dst);
}

bool patch_positions_run(const struct patches *p) { return p->step[2] == 1 && p->pixel == 1; }

static void pack_positions(const struct patches *p, const struct gemm_panel *panel, const struct patch_place *places,
                           int lanes, int64_t k, int64_t n, void *dst) {
  if (patch_positions_run(p)) pack_rows_of_pixels(p, panel, places, lanes, k, n, dst);
  else if (p->type == SHOAL_FLOAT32) pack_channels(p, panel, places, lanes, k, n, dst);
  else if (panel->type == SHOAL_BFLOAT16 && p->channels % panel->group == 0 && k % panel->group == 0 &&
           n % panel->group == 0)
    pack_channel_groups(p, panel, places, lanes, k, n, dst);
  else pack_copied(p, panel, places, lanes, k, n, dst);
}

void patch_pack_positions(const struct gemm_operand *o, const struct gemm_panel *panel, int64_t lane, int64_t lanes,
                          int64_t k, int64_t n, void *dst, size_t step) {
  const struct patches *p = o->arg;
  struct patch_place places[MAX_WIDTH], next = place_of(p, lane);
  struct patch_columns columns;
  if (panel->lie == GEMM_A_ROWS) columns = patch_columns_of(p, k, n);
  for (int64_t l = 0; l < lanes; l += panel->width, dst = (char *)dst + step) {
    int here = (int)MIN(panel->width, lanes - l);
    for (int i = 0; i < here; i++, place_next(p, &next)) places[i] = next;
    if (panel->lie == GEMM_A_ROWS) patch_rows(p, &columns, places, here, panel->width, dst);
    else pack_positions(p, panel, places, here, k, n, dst);
  }
}

/* ---- taps as lanes ---- */

/* Positions [low, high) of a run of them, from s on, are inside the image under tap t; none where low is high. */
static void inside_of(const struct patches *p, const struct patch_place *s, const struct patch_place *t, int64_t run,
                      int64_t *low, int64_t *high) {
  int64_t x2 = s->at[2] * p->step[2] + p->offset[2][t->at[2]], first = 0, end = 0;
  if (x2 < 0) first = (-x2 + p->step[2] - 1) / p->step[2];
  if (x2 < p->size[2]) end = (p->size[2] - x2 + p->step[2] - 1) / p->step[2];
  *low = MIN(first, run);
  *high = MAX(*low, MIN(end, run));
}

/* Lanes [first, first + count) of the panel are channels [c, c + count) of one tap. Positions go row by row of the
 * grid, so that what is inside the image is one range of each row. */
VECTOR_CLONES
static void copy_tap(const struct patches *p, const struct patch_place *t, int64_t c, int64_t count,
                     struct patch_place s, int64_t n, size_t step, char *dst) {
  size_t es = dtype_size(p->type), bytes = (size_t)count * es;
  while (n > 0) {
    int64_t run = MIN(p->grid[2] - s.at[2], n), row = row_at(p, &s, t), low = run, high = run;
    if (row >= 0) inside_of(p, &s, t, run, &low, &high);
    for (int64_t i = 0; i < low; i++) memset(dst + (size_t)i * step, 0, bytes);
    int64_t x2 = (s.at[2] + low) * p->step[2] + p->offset[2][t->at[2]];
    const char *from = (const char *)p->image + (low < high ? (size_t)(row + x2 * p->pixel + c) * es : 0);
    size_t jump = (size_t)(p->step[2] * p->pixel) * es;
    char *to = dst + (size_t)low * step;
    int64_t many = high - low;
#define COPY(B)                                                                       \
  case B:                                                                             \
    for (int64_t i = 0; i < many; i++, to += step, from += jump) memcpy(to, from, B); \
    break;
    switch (bytes) {
      COPY(2)
      COPY(4)
      COPY(8)
      COPY(16)
      COPY(32)
      COPY(48)
      COPY(64)
      COPY(128)
      default:
        for (int64_t i = 0; i < many; i++, to += step, from += jump) memcpy(to, from, bytes);
    }
#undef COPY
    for (int64_t i = high; i < run; i++) memset(dst + (size_t)i * step, 0, bytes);
    dst += (size_t)run * step;
    n -= run;
    s.at[2] = p->grid[2] - 1;
    place_next(p, &s);
  }
}

/* A panel from channel c of tap t on, for n positions from `first` on. Moves t on; returns the channel it comes to. */
static int64_t pack_taps(const struct patches *p, const struct gemm_panel *panel, struct patch_place *t, int64_t c,
                         struct patch_place first, int lanes, int64_t n, void *dst) {
  size_t es = dtype_size(p->type), step = (size_t)panel->width * es;
  bool direct = p->type == panel->type && panel->group == 1;
  char *block = direct ? dst : scratch_get(SCRATCH_PATCH, (size_t)n * step);
  if (direct && lanes < panel->width) memset(block, 0, (size_t)n * step);
  for (int i = 0; i < lanes;) {
    int64_t count = MIN(p->channels - c, lanes - i);
    copy_tap(p, t, c, count, first, n, step, block + (size_t)i * es);
    i += (int)count;
    c += count;
    if (c < p->channels) continue;
    c = 0;
    tap_next(p, t);
  }
  if (!direct) gemm_pack_block(panel, block, p->type, 1, panel->width, false, lanes, n, dst);
  return c;
}

/* Channels from c on of tap t, as many as the panel has lanes, where they lie. */
static void find_stretches(const struct patches *p, const struct patch_place *t, int64_t c, struct patch_place s,
                           int64_t n, struct gemm_stretches *to) {
  to->step = p->step[2] * p->pixel;
  to->n = 0;
  for (int64_t k = 0, run; k < n; k += run) {
    int64_t low, high, row = row_at(p, &s, t);
    run = MIN(p->grid[2] - s.at[2], n - k);
    inside_of(p, &s, t, run, &low, &high);
    if (row >= 0 && low < high) {
      int64_t x2 = (s.at[2] + low) * p->step[2] + p->offset[2][t->at[2]];
      to->at[to->n++] = (struct gemm_stretch){(const float *)p->image + row + x2 * p->pixel + c, (int32_t)(k + low),
                                              (int32_t)(high - low)};
    }
    s.at[2] = p->grid[2] - 1;
    place_next(p, &s);
  }
}

/* One channel. */
static void pack_tap_rows(const struct patches *p, struct patch_place *t, struct patch_place first, int lanes,
                          int width, int64_t n, struct gemm_rows *to) {
  for (int i = 0; i < lanes; i++, tap_next(p, t)) patch_tap_row(p, t, first, n, to->own[i]);
  for (int i = 0; i < width; i++) to->at[i] = to->own[i < lanes ? i : 0];
}

/* As pack_taps(). Panels are parts of taps: their lanes divide the channels. */
static int64_t pack_stretches(const struct patches *p, struct patch_place *t, int64_t c, struct patch_place first,
                              int lanes, int64_t n, struct gemm_stretches *to) {
  find_stretches(p, t, c, first, n, to);
  if (c + lanes < p->channels) return c + lanes;
  tap_next(p, t);
  return 0;
}

void patch_pack_taps(const struct gemm_operand *o, const struct gemm_panel *panel, int64_t lane, int64_t lanes,
                     int64_t k, int64_t n, void *dst, size_t step) {
  const struct patches *p = o->arg;
  struct patch_place t = tap_of(p, lane / p->channels), first = place_of(p, k);
  int64_t c = lane % p->channels;
  for (int64_t l = 0; l < lanes; l += panel->width, dst = (char *)dst + step) {
    int here = (int)MIN(panel->width, lanes - l);
    if (panel->lie == GEMM_A_ROWS) pack_tap_rows(p, &t, first, here, panel->width, n, dst);
    else if (panel->lie == GEMM_B_STRETCHES) c = pack_stretches(p, &t, c, first, here, n, dst);
    else c = pack_taps(p, panel, &t, c, first, here, n, dst);
  }
}
