/* QuantizedResizeBilinear: an image of quantized numbers (or floats) at another size, the numbers' range kept.
 *
 * Integers are interpolated in fixed point, 7 bits behind the point for bytes and 30 for 32-bit numbers, divided
 * between the two directions and at the end: TensorFlow's results to the bit. */
#include <stdlib.h>

#include "ops/image/image.h"
#include "ops/quantized/quantized.h"

struct quantized_resize_state {
  bool align_corners, half_pixel;
};

static shoal_status init(struct kernel_init *ki, void *state) {
  struct quantized_resize_state *st = state;
  TRY(node_get_bool(ki->node, "align_corners", &st->align_corners));
  return node_get_bool(ki->node, "half_pixel_centers", &st->half_pixel);
}

/* Between which two input pixels an output pixel lies, and how far from the first. */
struct pixel_place {
  int64_t low, high;
  float part;
};

static struct pixel_place *places_new(const struct quantized_resize_state *st, int64_t in, int64_t out) {
  struct pixel_place *p = mem_try_zalloc((size_t)out, sizeof *p);
  float scale = st->align_corners && out > 1 ? (float)(in - 1) / (float)(out - 1) : (float)in / (float)out;
  for (int64_t i = 0; p && i < out; i++) {
    float at = st->half_pixel ? ((float)i + 0.5f) * scale - 0.5f : (float)i * scale, base = floorf(at);
    p[i].low = MIN(MAX((int64_t)base, 0), in - 1);
    p[i].high = MIN((int64_t)ceilf(at), in - 1);
    p[i].part = at - base;
  }
  return p;
}

struct resizing {
  const struct tensor *x;
  struct tensor *y;
  const struct pixel_place *rows, *columns;
};

static int64_t between(const int64_t corner[4], const struct pixel_place *column, const struct pixel_place *row,
                       int bits) {
  int64_t one = (int64_t)1 << bits, right = (int64_t)(column->part * (float)one),
          down = (int64_t)(row->part * (float)one);
  int64_t top = corner[0] * one + (corner[1] - corner[0]) * right;
  int64_t bottom = corner[2] * one + (corner[3] - corner[2]) * right;
  return (top + (bottom - top) / one * down + one / 2) / one;
}

static void resize_rows(void *arg, int64_t begin, int64_t end) {
  const struct resizing *z = arg;
  const struct tensor *x = z->x;
  int64_t height = z->y->dims[1], width = z->y->dims[2], depth = x->dims[3];
  for (int64_t at = begin; at < end; at++) {
    const struct pixel_place *row = &z->rows[at % height];
    int64_t image = at / height * x->dims[1];
    for (int64_t q = 0; q < width; q++) {
      const struct pixel_place *column = &z->columns[q];
      int64_t from[4] = {(image + row->low) * x->dims[2] + column->low, (image + row->low) * x->dims[2] + column->high,
                         (image + row->high) * x->dims[2] + column->low,
                         (image + row->high) * x->dims[2] + column->high};
      for (int64_t k = 0; k < depth; k++) {
        int64_t to = (at * width + q) * depth + k;
        if (x->dtype == SHOAL_FLOAT32) {
          const float *v = x->data;
          float a = v[from[0] * depth + k], b = v[from[1] * depth + k], c = v[from[2] * depth + k];
          float top = a + (b - a) * column->part, bottom = c + (v[from[3] * depth + k] - c) * column->part;
          T_DATA(z->y, float)[to] = top + (bottom - top) * row->part;
          continue;
        }
        int64_t corner[4]; /* by way of a float, which is how TensorFlow reads its own 32-bit type */
        for (int i = 0; i < 4; i++) corner[i] = (int64_t)(float)level_at(x, from[i] * depth + k);
        level_put(z->y, to, between(corner, column, row, x->dtype == SHOAL_QUINT8 ? 7 : 30));
      }
    }
  }
}

static shoal_status run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  static const char *const names[] = {"min", "max"};
  float ends[2];
  for (int i = 0; i < 2; i++) {
    if (ctx_in(ctx, 2 + i)->rank) return INVALID("%s must be a scalar", names[i]);
    TRY(range_in(ctx, 2 + i, names[i], &ends[i]));
    TRY(range_out(ctx, 1 + i, ends[i]));
  }
  if (x->rank != 4) return INVALID("input must be 4-dimensional%s", tensor_shape_str(x));
  struct shape s = tensor_shape(x);
  TRY(image_size(ctx, 1, &s.dims[1], &s.dims[2]));
  if (x->dims[1] <= 0 || x->dims[2] <= 0) return INVALID("input image must be of non-zero size");
  if (s.dims[1] == x->dims[1] && s.dims[2] == x->dims[2]) return ctx_forward(ctx, 0, 0, NULL);
  struct resizing z = {.x = x};
  TRY(ctx_out(ctx, 0, &s, &z.y));
  if (!z.y->n) return NULL;
  struct pixel_place *rows = places_new(ctx->state, x->dims[1], s.dims[1]);
  struct pixel_place *columns = places_new(ctx->state, x->dims[2], s.dims[2]);
  bool there = rows && columns;
  z.rows = rows;
  z.columns = columns;
  if (there) pool_for(ctx_pool(ctx), s.dims[0] * s.dims[1], nn_grain(s.dims[2] * s.dims[3] * 8), resize_rows, &z);
  free(rows);
  free(columns);
  return there ? NULL : NO_MEMORY((s.dims[1] + s.dims[2]) * (int64_t)sizeof *rows, "the places of pixels");
}

static shoal_status shape(struct shape_ctx *c) {
  TRY(shape_in_rank(c, 0, 4, &c->out[0]));
  const struct tensor *size = c->values[1];
  for (int d = 1; d < 3; d++) c->out[0].dims[d] = size && size->n == 2 ? MAX(-1, int_at(size, d - 1)) : -1;
  return ranges_shape(c);
}

static const struct op_row rows[] = {
    {.name = "QuantizedResizeBilinear",
     .flags = OP_NO_GRADIENT,
     .shape = shape,
     .in = "images: T, size: int32, min: float, max: float",
     .out = "resized_images: T, out_min: float, out_max: float",
     .attrs = "T: {quint8, qint32, float}; align_corners: bool = false; half_pixel_centers: bool = false",
     .kernels = ONE_KERNEL(.type_attr = "T", .types = DT(QUINT8) | DT(QINT32) | DT(FLOAT32), .flags = KERNEL_EXPENSIVE,
                           .state_size = sizeof(struct quantized_resize_state), .init = init, .run = run)},
};
OP_FAMILY(quantized_resize, rows);
