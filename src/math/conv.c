/* Convolutions as matrix products.
 *
 *   forward          y  [positions, co] = patches(x) [positions, taps*ci] * w [taps*ci, co]
 *   filter gradient  dw [taps*ci, co]   = patches(x)' * dy [positions, co], or dw' = dy' * patches(x)
 *   input gradient   dx [positions, ci] = patches(dy) [positions, taps*co] * w turned round [taps*co, ci]
 *
 * With strides, the input gradient falls into as many phases as there are remainders of a coordinate by the
 * stride; each phase sees only the taps that reach it, so no product with an inserted zero is ever taken.
 * Winograd's transform was not taken: it changes rounding by more than the tests against TensorFlow allow in
 * bfloat16, and the tiles of these products already run near the peak. */
#include "math/conv.h"

#include <string.h>

#include "base/mem.h"
#include "math/conv_patch.h"
#include "math/gemm_kernel.h"
#include "tensor/buffer.h"

enum { MAX_OFFSETS = 64 };

/* Offsets of taps by dimension; on the heap when the filter is large. */
struct offsets {
  int64_t small[3][MAX_OFFSETS], *at[3];
  struct buffer *big;
};

static shoal_status offsets_init(struct offsets *o, const struct conv *c) {
  o->big = NULL;
  int64_t most = MAX(MAX(c->filter[0], c->filter[1]), c->filter[2]);
  if (most > MAX_OFFSETS) TRY(buffer_new((size_t)most * 3 * sizeof(int64_t), &o->big));
  for (int d = 0; d < 3; d++) o->at[d] = o->big ? (int64_t *)o->big->data + d * most : o->small[d];
  return NULL;
}

static void offsets_release(struct offsets *o) { buffer_unref(o->big); }

static int64_t volume(const int64_t *d) { return d[0] * d[1] * d[2]; }

/* The patches that the forward product reads. */
static shoal_status forward_patches(const struct conv *c, shoal_dtype type, struct patches *p, struct offsets *o) {
  TRY(offsets_init(o, c));
  *p = (struct patches){.type = type, .channels = c->ci / c->groups, .pixel = c->ci};
  for (int d = 0; d < 3; d++) {
    p->size[d] = c->in[d];
    p->grid[d] = c->out[d];
    p->step[d] = c->stride[d];
    p->taps[d] = c->filter[d];
    p->offset[d] = o->at[d];
    for (int64_t t = 0; t < c->filter[d]; t++) o->at[d][t] = t * c->dilation[d] - c->pad[d];
  }
  return NULL;
}

/* Every position is its own patch: the image is the matrix. */
static bool is_product(const struct conv *c) {
  for (int d = 0; d < 3; d++)
    if (c->filter[d] != 1 || c->stride[d] != 1 || c->pad[d] != 0 || c->in[d] != c->out[d]) return false;
  return true;
}

/* The patches as the left operand; ld: of the image, where that is the matrix. */
static struct gemm_operand patch_operand(const struct conv *c, const struct patches *p, int64_t ld) {
  struct gemm_operand o = {.data = p->image, .type = p->type, .ld = ld, .arg = p};
  if (is_product(c)) return o;
  o.pack = patch_pack_positions;
  o.trans = patch_positions_run(p);
  o.run = patch_run(p);
  return o;
}

static struct gemm_epilogue of_group(const struct gemm_epilogue *e, int64_t first, size_t acc, size_t es) {
  struct gemm_epilogue g = *e;
  if (g.scale) g.scale = (const char *)g.scale + (size_t)first * acc;
  if (g.bias) g.bias = (const char *)g.bias + (size_t)first * acc;
  if (g.add) g.add = (const char *)g.add + (size_t)first * es;
  return g;
}

shoal_status conv_forward(struct pool *pool, const struct conv *c, shoal_dtype type, const void *x, const void *w,
                          void *y, const struct gemm_epilogue *epilogue) {
  struct patches p;
  struct offsets o;
  TRY(forward_patches(c, type, &p, &o));
  size_t es = dtype_size(type), acc = dtype_size(gemm_acc_type(type));
  int64_t ci = c->ci / c->groups, co = c->co / c->groups;
  shoal_status s = NULL;
  for (int64_t i = 0; i < c->groups && !s; i++) {
    struct gemm g = {.m = c->batch * volume(c->out), .n = co, .k = volume(c->filter) * ci, .type = type, .ldc = c->co};
    struct gemm_epilogue e;
    if (epilogue) {
      e = of_group(epilogue, i * co, acc, es);
      g.epilogue = &e;
    }
    p.image = (const char *)x + (size_t)(i * ci) * es;
    g.a = patch_operand(c, &p, c->ci);
    g.b = (struct gemm_operand){.data = (const char *)w + (size_t)(i * co) * es, .type = type, .ld = c->co};
    g.c = (char *)y + (size_t)(i * co) * es;
    s = gemm_run(pool, &g);
  }
  offsets_release(&o);
  return s;
}

/* A tile's rows of A that begin and end within taps are copied in odd pieces, and there are many of them; where a
 * tile's columns are whole taps, those are the better side to have them on. */
static bool taps_suit_columns(const struct conv *c, shoal_dtype type, int64_t rows, int64_t co, int64_t ci) {
  if (type != SHOAL_FLOAT32 || is_product(c)) return false;
  const struct gemm_kernel *kn = gemm_kernel_find(type, rows, co, GEMM_LANES);
  return ci % kn->mr != 0 && ci % kn->nr == 0;
}

/* from [n, rows] to [rows, n], rows of `to` ld apart. */
static void turn_back(const float *from, int64_t rows, int64_t n, float *to, int64_t ld) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < n; j++) to[i * ld + j] = from[j * rows + i];
}

shoal_status conv_backward_filter(struct pool *pool, const struct conv *c, shoal_dtype type, const void *x,
                                  const void *dy, void *dw) {
  struct patches p;
  struct offsets o;
  TRY(forward_patches(c, type, &p, &o));
  size_t es = dtype_size(type);
  int64_t ci = c->ci / c->groups, co = c->co / c->groups, rows = volume(c->filter) * ci;
  bool turned = taps_suit_columns(c, type, rows, co, ci);
  struct buffer *turned_dw = NULL;
  shoal_status s = turned ? buffer_new((size_t)(rows * co) * es, &turned_dw) : NULL;
  for (int64_t i = 0; i < c->groups && !s; i++) {
    p.image = (const char *)x + (size_t)(i * ci) * es;
    struct gemm_operand taps = {.data = p.image, .type = type, .ld = c->ci, .arg = &p};
    struct gemm_operand grads = {.data = (const char *)dy + (size_t)(i * co) * es, .type = type, .ld = c->co};
    if (!is_product(c)) taps.pack = patch_pack_taps;
    struct gemm g = {.m = rows, .n = co, .k = c->batch * volume(c->out), .a = taps, .b = grads, .type = type};
    g.c = (char *)dw + (size_t)(i * co) * es;
    g.ldc = c->co;
    g.a.trans = is_product(c) || !patch_positions_run(&p);
    if (turned) {
      g = (struct gemm){co, rows, g.k, grads, taps, turned_dw->data, type, .ldc = rows};
      g.a.trans = g.b.stretches = true;
    }
    s = gemm_run(pool, &g);
    if (turned && !s) turn_back(turned_dw->data, rows, co, (float *)dw + i * co, c->co);
  }
  buffer_unref(turned_dw);
  offsets_release(&o);
  return s;
}

/* ---- input gradient ---- */

/* The taps of dimension d that reach coordinates of remainder `phase`: which[] and how far from the position. */
static int64_t phase_taps(const struct conv *c, int d, int64_t phase, int64_t *which, int64_t *offset) {
  int64_t n = 0;
  for (int64_t t = c->filter[d]; t-- > 0;) { /* from left to right in dy */
    int64_t at = phase + c->pad[d] - t * c->dilation[d];
    if (at % c->stride[d]) continue;
    which[n] = t;
    offset[n++] = at / c->stride[d];
  }
  return n;
}

/* w [filter, ci, co] of one group to [taps, co, ci]. */
static void turn_filter(const struct conv *c, size_t es, const char *w, const int64_t *taps, int64_t *const which[3],
                        int64_t ci, int64_t co, char *to) {
  for (int64_t a = 0; a < taps[0]; a++)
    for (int64_t b = 0; b < taps[1]; b++)
      for (int64_t t = 0; t < taps[2]; t++) {
        int64_t tap = (which[0][a] * c->filter[1] + which[1][b]) * c->filter[2] + which[2][t];
        const char *from = w + (size_t)(tap * ci * c->co) * es;
        for (int64_t i = 0; i < ci; i++)
          for (int64_t o = 0; o < co; o++)
            memcpy(to + (size_t)(o * ci + i) * es, from + (size_t)(i * c->co + o) * es, es);
        to += (size_t)(ci * co) * es;
      }
}

/* Rows of a phase's result to where they belong in dx. */
static void spread_rows(const struct conv *c, size_t es, const int64_t *phase, const int64_t *grid, const char *from,
                        int64_t ci, char *dx) {
  size_t bytes = (size_t)ci * es;
  for (int64_t n = 0; n < c->batch; n++)
    for (int64_t a = 0; a < grid[0]; a++)
      for (int64_t b = 0; b < grid[1]; b++)
        for (int64_t t = 0; t < grid[2]; t++, from += bytes) {
          int64_t x0 = phase[0] + a * c->stride[0], x1 = phase[1] + b * c->stride[1], x2 = phase[2] + t * c->stride[2];
          memcpy(dx + (size_t)((((n * c->in[0] + x0) * c->in[1] + x1) * c->in[2] + x2) * c->ci) * es, from, bytes);
        }
}

static shoal_status run_phase(struct pool *pool, const struct conv *c, shoal_dtype type, const char *w, const char *dy,
                              char *dx, const int64_t *phase) {
  size_t es = dtype_size(type);
  int64_t ci = c->ci / c->groups, co = c->co / c->groups;
  struct offsets offsets, which;
  struct buffer *turned = NULL, *rows = NULL;
  struct patches p = {.image = dy, .type = type, .channels = co, .pixel = c->co};
  TRY(offsets_init(&offsets, c));
  shoal_status s = offsets_init(&which, c);
  if (s) {
    offsets_release(&offsets);
    return s;
  }
  for (int d = 0; d < 3; d++) {
    p.size[d] = c->out[d];
    p.grid[d] = (c->in[d] - phase[d] + c->stride[d] - 1) / c->stride[d];
    p.step[d] = 1;
    p.taps[d] = phase_taps(c, d, phase[d], which.at[d], offsets.at[d]);
    p.offset[d] = offsets.at[d];
  }
  bool whole = volume(c->stride) == 1;
  struct gemm g = {.m = c->batch * volume(p.grid), .n = ci, .k = volume(p.taps) * co, .type = type};
  TRY_GOTO(s, buffer_new(MAX((size_t)(g.k * ci) * es, 1), &turned), done);
  turn_filter(c, es, w, p.taps, which.at, ci, co, turned->data);
  if (!whole) TRY_GOTO(s, buffer_new(MAX((size_t)(g.m * ci) * es, 1), &rows), done);
  g.a = patch_operand(c, &p, c->co);
  g.b = (struct gemm_operand){.data = turned->data, .type = type, .ld = ci};
  g.c = whole ? (void *)dx : rows->data;
  g.ldc = whole ? c->ci : ci;
  TRY_GOTO(s, gemm_run(pool, &g), done);
  if (!whole) spread_rows(c, es, phase, p.grid, rows->data, ci, dx);
done:
  buffer_unref(rows);
  buffer_unref(turned);
  offsets_release(&which);
  offsets_release(&offsets);
  return s;
}

shoal_status conv_backward_input(struct pool *pool, const struct conv *c, shoal_dtype type, const void *w,
                                 const void *dy, void *dx) {
  size_t es = dtype_size(type);
  int64_t ci = c->ci / c->groups, co = c->co / c->groups, phase[3];
  for (int64_t i = 0; i < c->groups; i++)
    for (phase[0] = 0; phase[0] < MIN(c->stride[0], c->in[0]); phase[0]++)
      for (phase[1] = 0; phase[1] < MIN(c->stride[1], c->in[1]); phase[1]++)
        for (phase[2] = 0; phase[2] < MIN(c->stride[2], c->in[2]); phase[2]++)
          TRY(run_phase(pool, c, type, (const char *)w + (size_t)(i * co) * es,
                        (const char *)dy + (size_t)(i * co) * es, (char *)dx + (size_t)(i * ci) * es, phase));
  return NULL;
}
