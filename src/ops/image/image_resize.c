/* Resizing images [batch, height, width, channels]: bilinear, nearest neighbour, bicubic, area; and the gradients of
 * the first three. Where an output pixel lies in the input is the same question for all: see place(). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/image/image.h"

struct resize_state {
  bool align_corners, half_pixel;
};

static shoal_status resize_get(const struct shoal_node *n, struct resize_state *st) {
  TRY(node_get_bool(n, "align_corners", &st->align_corners));
  st->half_pixel = false;
  if (node_attr(n, "half_pixel_centers")) TRY(node_get_bool(n, "half_pixel_centers", &st->half_pixel));
  if (st->align_corners && st->half_pixel)
    return INVALID("If half_pixel_centers is True, align_corners must be False.");
  return NULL;
}

static shoal_status resize_init(struct kernel_init *ki, void *state) { return resize_get(ki->node, state); }

static float scale_of(const struct resize_state *st, int64_t in, int64_t out) {
  return st->align_corners && out > 1 ? (float)(in - 1) / (float)(out - 1) : (float)in / (float)out;
}

/* The coordinate in the input of output pixel i. */
static float place(const struct resize_state *st, int64_t i, float scale) {
  return st->half_pixel ? ((float)i + 0.5f) * scale - 0.5f : (float)i * scale;
}

/* Checked input 0 and the output's shape. */
static shoal_status resize_begin(struct kernel_ctx *ctx, struct shape *s) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank != 4) return INVALID("input must be 4-dimensional%s", tensor_shape_str(x));
  *s = tensor_shape(x);
  TRY(image_size(ctx, 1, &s->dims[1], &s->dims[2]));
  if (x->dims[1] <= 0 || x->dims[2] <= 0) return INVALID("input image must be of non-zero size");
  return NULL;
}

static shoal_status resize_shape(struct shape_ctx *c) {
  struct shape x, size;
  TRY(shape_in_rank(c, 0, 4, &x));
  TRY(shape_in_rank(c, 1, 1, &size));
  const struct tensor *v = c->values[1];
  c->out[0] = x.rank == 4 ? x : shape_unknown_of_rank(4);
  c->out[0].dims[1] = v && v->n == 2 ? MAX(-1, int_at(v, 0)) : -1;
  c->out[0].dims[2] = v && v->n == 2 ? MAX(-1, int_at(v, 1)) : -1;
  return NULL;
}

static shoal_status grad_like_shape(struct shape_ctx *c) {
  c->out[0] = c->in[1];
  return NULL;
}

static void copy_options(struct build *b, const struct shoal_node *from) {
  struct resize_state st;
  shoal_status s = resize_get(from, &st);
  MUST(!s);
  build_attr_bool(b, "align_corners", st.align_corners);
  build_attr_bool(b, "half_pixel_centers", st.half_pixel);
}

/* ---- weights: which input pixels an output pixel sees, and how much of each ---- */

enum { TAPS = 4 };

struct taps {
  int64_t at[TAPS];
  float weight[TAPS];
};

static void linear_taps(const struct resize_state *st, int64_t in, int64_t out, struct taps *taps) {
  float scale = scale_of(st, in, out);
  for (int64_t i = 0; i < out; i++) {
    float p = place(st, i, scale), base = floorf(p), part = p - base;
    taps[i].at[0] = MIN(in - 1, MAX((int64_t)base, 0));
    taps[i].at[1] = MAX(0, MIN((int64_t)ceilf(p), in - 1));
    taps[i].weight[0] = 1 - part;
    taps[i].weight[1] = part;
  }
}

/* The cubic kernel, looked up in steps of 1/1024: [0] for distances up to 1, [1] for 1 to 2. */
enum { CUBIC_STEPS = 1024 };

static float cubic(double a, int64_t step, int far) {
  float x = (float)((double)step * 1.0 / CUBIC_STEPS), k = (float)a;
  if (!far) return ((k + 2) * x - (k + 3)) * x * x + 1;
  x += 1.0f;
  return ((k * x - 5 * k) * x + 8 * k) * x - 4 * k;
}

static void cubic_taps(const struct resize_state *st, int64_t in, int64_t out, struct taps *taps) {
  float scale = scale_of(st, in, out);
  double a = st->half_pixel ? -0.5 : -0.75;
  for (int64_t i = 0; i < out; i++) {
    float p = place(st, i, scale);
    int64_t base = st->half_pixel ? (int64_t)floorf(p) : (int64_t)p;
    float delta = p - (float)base;
    int64_t step = lrintf(delta * CUBIC_STEPS);
    float w[TAPS] = {cubic(a, step, 1), cubic(a, step, 0), cubic(a, CUBIC_STEPS - step, 0),
                     cubic(a, CUBIC_STEPS - step, 1)};
    float sum = 0;
    for (int k = 0; k < TAPS; k++) {
      int64_t at = base - 1 + k, inside = MIN(in - 1, MAX(0, at));
      taps[i].at[k] = inside;
      taps[i].weight[k] = st->half_pixel && inside != at ? 0 : w[k]; /* what is outside counts nothing */
      sum += taps[i].weight[k];
    }
    if (st->half_pixel && fabsf(sum) >= 1000.0f * __FLT_MIN__)
      for (int k = 0; k < TAPS; k++) taps[i].weight[k] *= 1.0f / sum;
  }
}

typedef void (*taps_fn)(const struct resize_state *st, int64_t in, int64_t out, struct taps *taps);

/* Taps for rows and columns, in one allocation, which is counted as tensors are: values say how large it is. */
static shoal_status taps_make(const struct resize_state *st, taps_fn fn, const int64_t *in, const int64_t *out,
                              struct buffer **room, struct taps **ys, struct taps **xs) {
  TRY(buffer_new(sizeof **ys * (size_t)(out[0] + out[1]), room));
  *ys = (*room)->data;
  *xs = *ys + out[0];
  fn(st, in[0], out[0], *ys);
  fn(st, in[1], out[1], *xs);
  return NULL;
}

struct interpolate {
  const float *x;
  float *y;
  const struct taps *ys, *xs;
  int64_t in_h, in_w, out_h, out_w, channels;
  int n; /* taps in use */
};

/* Rows [begin, end) of all images. */
static void interpolate_rows(void *arg, int64_t begin, int64_t end) {
  const struct interpolate *t = arg;
  int64_t line = t->in_w * t->channels;
  for (int64_t r = begin; r < end; r++) {
    const float *image = t->x + r / t->out_h * t->in_h * line;
    const struct taps *ty = &t->ys[r % t->out_h];
    float *to = t->y + r * t->out_w * t->channels;
    for (int64_t c = 0; c < t->out_w; c++, to += t->channels) {
      const struct taps *tx = &t->xs[c];
      if (t->n == 2) {
        const float *a = image + ty->at[0] * line, *b = image + ty->at[1] * line;
        int64_t left = tx->at[0] * t->channels, right = tx->at[1] * t->channels;
        float px = tx->weight[1], py = ty->weight[1];
        for (int64_t k = 0; k < t->channels; k++) {
          float top = a[left + k] + (a[right + k] - a[left + k]) * px;
          float bottom = b[left + k] + (b[right + k] - b[left + k]) * px;
          to[k] = top + (bottom - top) * py;
        }
        continue;
      }
      for (int64_t k = 0; k < t->channels; k++) {
        float column[TAPS];
        for (int i = 0; i < TAPS; i++) {
          const float *row = image + ty->at[i] * line + k;
          column[i] = row[tx->at[0] * t->channels] * tx->weight[0] + row[tx->at[1] * t->channels] * tx->weight[1] +
                      row[tx->at[2] * t->channels] * tx->weight[2] + row[tx->at[3] * t->channels] * tx->weight[3];
        }
        to[k] = column[0] * ty->weight[0] + column[1] * ty->weight[1] + column[2] * ty->weight[2] +
                column[3] * ty->weight[3];
      }
    }
  }
}

static shoal_status interpolate_run(struct kernel_ctx *ctx, taps_fn fn, int n) {
  struct shape s;
  TRY(resize_begin(ctx, &s));
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y, pixels;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  struct taps *ys, *xs;
  struct buffer *room;
  TRY(image_floats(x, &pixels));
  shoal_status bad = taps_make(ctx->state, fn, x->dims + 1, s.dims + 1, &room, &ys, &xs);
  if (!bad) {
    struct interpolate t = {pixels.data, y->data, ys, xs, x->dims[1], x->dims[2], s.dims[1], s.dims[2], s.dims[3], n};
    pool_for(ctx_pool(ctx), s.dims[0] * s.dims[1], copy_grain(s.dims[2] * s.dims[3] * 16), interpolate_rows, &t);
    buffer_unref(room);
  }
  tensor_release(&pixels);
  return bad;
}

static shoal_status bilinear_run(struct kernel_ctx *ctx) { return interpolate_run(ctx, linear_taps, 2); }
static shoal_status bicubic_run(struct kernel_ctx *ctx) { return interpolate_run(ctx, cubic_taps, TAPS); }

#define T float
#define NAME spread_float
#include "ops/image/image_resize_spread.inc"
#define T double
#define NAME spread_double
#include "ops/image/image_resize_spread.inc"

static shoal_status spread_run(struct kernel_ctx *ctx, taps_fn fn, int n) {
  const struct tensor *dy = ctx_in(ctx, 0), *x = ctx_in(ctx, 1);
  if (dy->rank != 4) return INVALID("input_grad must be 4-dimensional%s", tensor_shape_str(dy));
  if (x->rank != 4) return INVALID("original_image must be 4-dimensional%s", tensor_shape_str(x));
  if (dy->dims[0] != x->dims[0] || dy->dims[3] != x->dims[3])
    return INVALID("gradient %s and image %s differ in batch or channels", tensor_shape_str(dy), tensor_shape_str(x));
  struct shape s = tensor_shape(x);
  struct tensor *dx, sums;
  TRY(ctx_out(ctx, 0, &s, &dx));
  if (!dx->n || !dy->n) {
    tensor_zero(dx);
    return NULL;
  }
  bool wide = dx->dtype == SHOAL_FLOAT64;
  struct taps *ys, *xs;
  struct buffer *room;
  TRY(taps_make(ctx->state, fn, x->dims + 1, dy->dims + 1, &room, &ys, &xs));
  shoal_status bad = tensor_new(&sums, wide ? SHOAL_FLOAT64 : SHOAL_FLOAT32, &s);
  if (!bad) {
    tensor_zero(&sums);
    if (wide) spread_double(dy, &sums, ys, xs, n);
    else spread_float(dy, &sums, ys, xs, n);
    if (wide) memcpy(dx->data, sums.data, tensor_bytes(dx));
    else image_store(sums.data, dx);
    tensor_release(&sums);
  }
  buffer_unref(room);
  return bad;
}

static shoal_status bilinear_grad_run(struct kernel_ctx *ctx) { return spread_run(ctx, linear_taps, 2); }
static shoal_status bicubic_grad_run(struct kernel_ctx *ctx) { return spread_run(ctx, cubic_taps, TAPS); }

static shoal_status interpolate_grad(struct grad_ctx *c) {
  shoal_dtype t = out_type(gin(c, 0));
  bool cubic_op = op_is(c->node->op, "ResizeBicubic");
  if (t != SHOAL_FLOAT32 && t != SHOAL_FLOAT64 && (cubic_op || !dtype_floating(t))) return NULL;
  struct build b = build_begin(c->g, cubic_op ? "ResizeBicubicGrad" : "ResizeBilinearGrad", NULL);
  build_in(&b, grad_dy(c, 0));
  build_in(&b, gin(c, 0));
  copy_options(&b, c->node);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

/* ---- nearest neighbour ---- */

static int64_t nearest(const struct resize_state *st, int64_t i, float scale, int64_t in) {
  float p = st->half_pixel ? ((float)i + 0.5f) * scale : (float)i * scale;
  int64_t at = st->align_corners ? (int64_t)roundf(p) : (int64_t)floorf(p);
  return MAX(0, MIN(at, in - 1));
}

static shoal_status nearest_run(struct kernel_ctx *ctx) {
  const struct resize_state *st = ctx->state;
  struct shape s;
  TRY(resize_begin(ctx, &s));
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  size_t bytes = (size_t)s.dims[3] * dtype_size((shoal_dtype)x->dtype);
  float hs = scale_of(st, x->dims[1], s.dims[1]), ws = scale_of(st, x->dims[2], s.dims[2]);
  char *to = y->data;
  for (int64_t b = 0; b < s.dims[0] && bytes; b++)
    for (int64_t r = 0; r < s.dims[1]; r++) {
      int64_t row = (b * x->dims[1] + nearest(st, r, hs, x->dims[1])) * x->dims[2];
      for (int64_t c = 0; c < s.dims[2]; c++, to += bytes)
        memcpy(to, (const char *)x->data + (size_t)(row + nearest(st, c, ws, x->dims[2])) * bytes, bytes);
    }
  return NULL;
}

static shoal_status nearest_grad_run(struct kernel_ctx *ctx) {
  const struct resize_state *st = ctx->state;
  const struct tensor *dy = ctx_in(ctx, 0);
  if (dy->rank != 4) return INVALID("input must be 4-dimensional%s", tensor_shape_str(dy));
  struct shape s = tensor_shape(dy);
  TRY(image_size(ctx, 1, &s.dims[1], &s.dims[2]));
  struct tensor *dx;
  TRY(ctx_out(ctx, 0, &s, &dx));
  tensor_zero(dx);
  int64_t channels = s.dims[3];
  float hs = scale_of(st, s.dims[1], dy->dims[1]), ws = scale_of(st, s.dims[2], dy->dims[2]);
  int64_t from = 0;
  for (int64_t b = 0; b < s.dims[0]; b++)
    for (int64_t r = 0; r < dy->dims[1]; r++)
      for (int64_t c = 0; c < dy->dims[2]; c++, from += channels) {
        int64_t to =
            ((b * s.dims[1] + nearest(st, r, hs, s.dims[1])) * s.dims[2] + nearest(st, c, ws, s.dims[2])) * channels;
        for (int64_t k = 0; k < channels; k++) switch (dy->dtype) {
            case SHOAL_FLOAT32: T_DATA(dx, float)[to + k] += T_DATA(dy, const float)[from + k]; break;
            case SHOAL_FLOAT64: T_DATA(dx, double)[to + k] += T_DATA(dy, const double)[from + k]; break;
            case SHOAL_FLOAT16:
              T_DATA(dx, f16)
              [to + k] =
                  f16_from_float(f16_to_float(T_DATA(dx, f16)[to + k]) + f16_to_float(T_DATA(dy, const f16)[from + k]));
              break;
            case SHOAL_BFLOAT16:
              T_DATA(dx, bf16)
              [to + k] = bf16_from_float(bf16_to_float(T_DATA(dx, bf16)[to + k]) +
                                         bf16_to_float(T_DATA(dy, const bf16)[from + k]));
              break;
            case SHOAL_INT32: T_DATA(dx, uint32_t)[to + k] += T_DATA(dy, const uint32_t)[from + k]; break;
            default:
              T_DATA(dx, uint8_t)
              [to + k] = (uint8_t)(T_DATA(dx, uint8_t)[to + k] + T_DATA(dy, const uint8_t)[from + k]);
          }
      }
  return NULL;
}

static shoal_status nearest_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  struct build b = build_begin(g, "ResizeNearestNeighborGrad", NULL);
  build_in(&b, grad_dy(c, 0));
  build_in(&b, array_part(g, array_shape(g, gin(c, 0), SHOAL_INT32), 1, 3));
  copy_options(&b, c->node);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

/* ---- area: the mean of what an output pixel covers ---- */

/* How much of input pixel i lies in [from, to). */
static float covered(int64_t i, float from, float to, float scale) {
  float p = (float)i;
  if (p < from) return p + 1 > to ? scale : p + 1 - from;
  return p + 1 > to ? to - p : 1.0f;
}

static shoal_status area_run(struct kernel_ctx *ctx) {
  const struct resize_state *st = ctx->state;
  struct shape s;
  TRY(resize_begin(ctx, &s));
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y, pixels;
  TRY(ctx_out(ctx, 0, &s, &y));
  TRY(image_floats(x, &pixels));
  float hs = scale_of(st, x->dims[1], s.dims[1]), ws = scale_of(st, x->dims[2], s.dims[2]), mean = 1.0f / (hs * ws);
  int64_t channels = s.dims[3], line = x->dims[2] * channels;
  float *to = y->data;
  if (y->n) memset(to, 0, tensor_bytes(y));
  for (int64_t b = 0; b < s.dims[0] && y->n; b++) {
    const float *image = T_DATA(&pixels, const float) + b * x->dims[1] * line;
    for (int64_t r = 0; r < s.dims[1]; r++) {
      float y0 = (float)r * hs, y1 = (float)(r + 1) * hs;
      for (int64_t c = 0; c < s.dims[2]; c++, to += channels) {
        float x0 = (float)c * ws, x1 = (float)(c + 1) * ws;
        for (int64_t i = (int64_t)floorf(y0); i < (int64_t)ceilf(y1); i++) {
          float wy = covered(i, y0, y1, hs);
          const float *row = image + MIN(x->dims[1] - 1, MAX(0, i)) * line;
          for (int64_t j = (int64_t)floorf(x0); j < (int64_t)ceilf(x1); j++) {
            float w = wy * covered(j, x0, x1, ws) * mean;
            const float *p = row + MIN(x->dims[2] - 1, MAX(0, j)) * channels;
            for (int64_t k = 0; k < channels; k++) to[k] += p[k] * w;
          }
        }
      }
    }
  }
  tensor_release(&pixels);
  return NULL;
}

#define IMAGE_TYPES (DT_SIGNED | DT(UINT8) | DT(UINT16) | DT_FLOATING)
#define RESIZE_KERNELS(name, mask)                                                               \
  static const struct kernel_def name##_kernels[] = {{.device = "CPU",                           \
                                                      .type_attr = "T",                          \
                                                      .types = mask,                             \
                                                      .state_size = sizeof(struct resize_state), \
                                                      .init = resize_init,                       \
                                                      .run = name##_run},                        \
                                                     {0}}
RESIZE_KERNELS(bilinear, IMAGE_TYPES);
RESIZE_KERNELS(bilinear_grad, DT_FLOATING);
RESIZE_KERNELS(bicubic, IMAGE_TYPES);
RESIZE_KERNELS(bicubic_grad, DT(FLOAT32) | DT(FLOAT64));
RESIZE_KERNELS(nearest, IMAGE_TYPES);
RESIZE_KERNELS(nearest_grad, DT_FLOATING | DT(UINT8) | DT(INT8) | DT(INT32));
RESIZE_KERNELS(area, IMAGE_TYPES);

static const struct op_row rows[] = {
    {.name = "ResizeBilinear",
     .in = "images: T, size: int32",
     .out = "resized_images: float",
     .attrs = "T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double, bfloat16}; align_corners: "
              "bool = false; half_pixel_centers: bool = false",
     .shape = resize_shape,
     .grad = interpolate_grad,
     .kernels = bilinear_kernels},
    {.name = "ResizeBilinearGrad",
     .in = "grads: float, original_image: T",
     .out = "output: T",
     .attrs = "T: {float, bfloat16, half, double}; align_corners: bool = false; half_pixel_centers: bool = false",
     .shape = grad_like_shape,
     .kernels = bilinear_grad_kernels},
    {.name = "ResizeBicubic",
     .in = "images: T, size: int32",
     .out = "resized_images: float",
     .attrs = "T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}; align_corners: bool = "
              "false; half_pixel_centers: bool = false",
     .shape = resize_shape,
     .grad = interpolate_grad,
     .kernels = bicubic_kernels},
    {.name = "ResizeBicubicGrad",
     .in = "grads: float, original_image: T",
     .out = "output: T",
     .attrs = "T: {float, double}; align_corners: bool = false; half_pixel_centers: bool = false",
     .shape = grad_like_shape,
     .kernels = bicubic_grad_kernels},
    {.name = "ResizeNearestNeighbor",
     .in = "images: T, size: int32",
     .out = "resized_images: T",
     .attrs = "T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}; align_corners: bool = "
              "false; half_pixel_centers: bool = false",
     .shape = resize_shape,
     .grad = nearest_grad,
     .kernels = nearest_kernels},
    {.name = "ResizeNearestNeighborGrad",
     .in = "grads: T, size: int32",
     .out = "output: T",
     .attrs = "T: {uint8, int8, int32, half, float, double, bfloat16}; align_corners: bool = false; "
              "half_pixel_centers: bool = false",
     .shape = resize_shape,
     .kernels = nearest_grad_kernels},
    {.name = "ResizeArea",
     .in = "images: T, size: int32",
     .out = "resized_images: float",
     .attrs = "T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}; align_corners: bool = "
              "false",
     .shape = resize_shape,
     .kernels = area_kernels},
};
OP_FAMILY(image_resize, rows);
