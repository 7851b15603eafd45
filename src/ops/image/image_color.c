/* Colours: RGB to HSV and back, and the adjustments of contrast, hue and saturation. All work in float; double
 * keeps its own precision in the conversions. */
#include <math.h>

#include "ops/math/grad_help.h"
#include "ops/image/image.h"

/* ---- RGB and HSV ---- */

#define T float
#define NAME(x) x##_f
#define FMIN fminf
#define FMAX fmaxf
#define FABS fabsf
#include "ops/image/image_color_pixel.inc"
#define T double
#define NAME(x) x##_d
#define FMIN fmin
#define FMAX fmax
#define FABS fabs
#include "ops/image/image_color_pixel.inc"

static shoal_status convert(struct kernel_ctx *ctx, void (*f)(const float *, float *),
                            void (*d)(const double *, double *)) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank < 1) return INVALID("input must be at least 1D%s", tensor_shape_str(x));
  if (x->dims[x->rank - 1] != 3)
    return STATUS(SHOAL_FAILED_PRECONDITION, "input must have 3 channels but input only has %" PRId64 " channels.",
                  x->dims[x->rank - 1]);
  struct shape s = tensor_shape(x);
  struct tensor *y, pixels;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (x->dtype == SHOAL_FLOAT64) {
    for (int64_t i = 0; i < x->n; i += 3) d(T_DATA(x, const double) + i, T_DATA(y, double) + i);
    return NULL;
  }
  if (x->dtype == SHOAL_FLOAT32) {
    for (int64_t i = 0; i < x->n; i += 3) f(T_DATA(x, const float) + i, T_DATA(y, float) + i);
    return NULL;
  }
  TRY(image_floats(x, &pixels));
  float *p = pixels.data;
  for (int64_t i = 0; i < x->n; i += 3) {
    float out[3];
    f(p + i, out);
    p[i] = out[0], p[i + 1] = out[1], p[i + 2] = out[2];
  }
  image_store(p, y);
  tensor_release(&pixels);
  return NULL;
}

static shoal_status to_hsv_run(struct kernel_ctx *ctx) { return convert(ctx, rgb_to_hsv_f, rgb_to_hsv_d); }
static shoal_status to_rgb_run(struct kernel_ctx *ctx) { return convert(ctx, hsv_to_rgb_f, hsv_to_rgb_d); }

static shoal_status color_shape(struct shape_ctx *c) {
  TRY(shape_in_rank_at_least(c, 0, 1, &c->out[0]));
  struct shape *s = &c->out[0];
  if (s->rank < 1) return NULL;
  if (s->dims[s->rank - 1] >= 0 && s->dims[s->rank - 1] != 3)
    return INVALID("Dimension must be 3 but is %" PRId64, s->dims[s->rank - 1]);
  s->dims[s->rank - 1] = 3;
  return NULL;
}

static shoal_out both(struct grad_ctx *c, shoal_out a, shoal_out b) {
  return build_cast(c->g, g_op2(c, "LogicalAnd", a, b), out_type(gin(c, 0)));
}

/* Piece by piece: of the three colours one is the largest, one the smallest (of equal ones the first is the largest,
 * the last the smallest). v is the largest, s is 1 - smallest / largest, and h grows with the difference of the two
 * others over the range. */
static shoal_status to_hsv_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out parts[2][3], dy[3], x[3], dx[3], large[3], small[3];
  for (int i = 0; i < 2; i++) {
    struct build b = build_begin(g, "Split", NULL);
    build_in(&b, build_const_int(g, SHOAL_INT32, -1));
    build_in(&b, i ? grad_dy(c, 0) : gin(c, 0));
    build_attr_int(&b, "num_split", 3);
    struct shoal_node *n = build_end(&b);
    if (!n) return NULL;
    for (int k = 0; k < 3; k++) parts[i][k] = node_out(n, k);
  }
  for (int k = 0; k < 3; k++) x[k] = parts[0][k], dy[k] = parts[1][k];
  large[0] = both(c, g_op2(c, "GreaterEqual", x[0], x[2]), g_op2(c, "GreaterEqual", x[0], x[1]));
  large[1] = both(c, g_op2(c, "Greater", x[1], x[0]), g_op2(c, "GreaterEqual", x[1], x[2]));
  large[2] = both(c, g_op2(c, "Greater", x[2], x[0]), g_op2(c, "Greater", x[2], x[1]));
  small[0] = both(c, g_op2(c, "Less", x[0], x[2]), g_op2(c, "Less", x[0], x[1]));
  small[1] = both(c, g_op2(c, "LessEqual", x[1], x[0]), g_op2(c, "Less", x[1], x[2]));
  small[2] = both(c, g_op2(c, "LessEqual", x[2], x[0]), g_op2(c, "LessEqual", x[2], x[1]));
  shoal_out most = g_op2(c, "Maximum", x[0], g_op2(c, "Maximum", x[1], x[2]));
  shoal_out least = g_op2(c, "Minimum", x[0], g_op2(c, "Minimum", x[1], x[2])), range = g_sub(c, most, least);
  shoal_out top = g_zeros_like(c, x[0]); /* what h's numerator is */
  for (int k = 0; k < 3; k++) top = g_add(c, top, g_mul(c, large[k], g_sub(c, x[(k + 1) % 3], x[(k + 2) % 3])));
  shoal_out by_range = g_op2(c, "DivNoNan", g_num(c, x[0], 1.0 / 6), range);
  shoal_out by_square = g_op2(c, "DivNoNan", g_mul(c, top, by_range), range);
  for (int k = 0; k < 3; k++) {
    /* The numerator is x[k] - ... when the colour two on is the largest, ... - x[k] when the next one is. */
    shoal_out turn = g_mul(c, by_range, g_sub(c, large[(k + 2) % 3], large[(k + 1) % 3]));
    shoal_out dh = g_sub(c, turn, g_mul(c, by_square, g_sub(c, large[k], small[k])));
    shoal_out ds = g_sub(c, g_op2(c, "DivNoNan", g_mul(c, large[k], least), g_square(c, most)),
                         g_op2(c, "DivNoNan", small[k], most));
    dx[k] = g_add(c, g_add(c, g_mul(c, dy[0], dh), g_mul(c, dy[1], ds)), g_mul(c, dy[2], large[k]));
  }
  grad_set(c, 0, array_concat(g, dx, 3, -1));
  return NULL;
}

/* ---- adjustments ---- */

static shoal_status adjust_check(struct kernel_ctx *ctx, const char *what, bool rgb, float *by) {
  const struct tensor *x = ctx_in(ctx, 0), *d = ctx_in(ctx, 1);
  if (x->rank < 3) return INVALID("input must be at least 3-D, got shape%s", tensor_shape_str(x));
  if (d->rank) return INVALID("%s must be scalar: %s", what, tensor_shape_str(d));
  if (rgb && x->dims[x->rank - 1] != 3)
    return INVALID("input must have 3 channels but instead has %" PRId64 " channels.", x->dims[x->rank - 1]);
  *by = *T_DATA(d, const float);
  return NULL;
}

/* Each pixel through HSV, changed by fn. */
static shoal_status adjust(struct kernel_ctx *ctx, const char *what, void (*fn)(float *hsv, float by)) {
  float by;
  TRY(adjust_check(ctx, what, true, &by));
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape s = tensor_shape(x);
  struct tensor *y, pixels;
  TRY(ctx_out(ctx, 0, &s, &y));
  TRY(image_floats(x, &pixels));
  struct tensor out;
  shoal_status bad = tensor_new(&out, SHOAL_FLOAT32, &s);
  if (!bad) {
    for (int64_t i = 0; i < x->n; i += 3) {
      float hsv[3];
      rgb_to_hsv_f(T_DATA(&pixels, const float) + i, hsv);
      fn(hsv, by);
      hsv_to_rgb_f(hsv, T_DATA(&out, float) + i);
    }
    image_store(out.data, y);
    tensor_release(&out);
  }
  tensor_release(&pixels);
  return bad;
}

static void turn_hue(float *hsv, float by) {
  float h = hsv[0] + by;
  hsv[0] = h - floorf(h);
}

static void scale_saturation(float *hsv, float by) { hsv[1] = fminf(1, fmaxf(0, hsv[1] * by)); }

static shoal_status hue_run(struct kernel_ctx *ctx) { return adjust(ctx, "delta", turn_hue); }
static shoal_status saturation_run(struct kernel_ctx *ctx) { return adjust(ctx, "scale", scale_saturation); }

/* Away from, or towards, each channel's mean over the image. */
static shoal_status contrast_run(struct kernel_ctx *ctx) {
  float by;
  TRY(adjust_check(ctx, "contrast_factor", false, &by));
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape s = tensor_shape(x);
  struct tensor *y, pixels, out;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  TRY(image_floats(x, &pixels));
  shoal_status bad = tensor_new(&out, SHOAL_FLOAT32, &s);
  int64_t channels = x->dims[x->rank - 1], area = x->dims[x->rank - 2] * x->dims[x->rank - 3];
  for (int64_t b = 0; !bad && b < x->n / (channels * area); b++)
    for (int64_t c = 0; c < channels; c++) {
      const float *from = T_DATA(&pixels, const float) + b * area * channels + c;
      float *to = T_DATA(&out, float) + b * area * channels + c;
      double sum = 0;
      for (int64_t i = 0; i < area; i++) sum += from[i * channels];
      float mean = (float)(sum / (double)area);
      for (int64_t i = 0; i < area; i++) to[i * channels] = (from[i * channels] - mean) * by + mean;
    }
  if (!bad) {
    image_store(out.data, y);
    tensor_release(&out);
  }
  tensor_release(&pixels);
  return bad;
}

static shoal_status adjust_shape(struct shape_ctx *c) { return shape_in_rank_at_least(c, 0, 3, &c->out[0]); }

#define COLOR_KERNELS(name, mask)                     \
  static const struct kernel_def name##_kernels[] = { \
      {.device = "CPU", .type_attr = "T", .types = mask, .run = name##_run}, {0}}
COLOR_KERNELS(to_hsv, DT_FLOATING);
COLOR_KERNELS(to_rgb, DT_FLOATING);
COLOR_KERNELS(hue, DT(FLOAT32) | DT(FLOAT16));
COLOR_KERNELS(saturation, DT(FLOAT32) | DT(FLOAT16));
COLOR_KERNELS(contrast, DT(FLOAT32) | DT(FLOAT16));

static const struct op_row rows[] = {
    {.name = "RGBToHSV",
     .in = "images: T",
     .out = "output: T",
     .attrs = "T: {half, bfloat16, float, double} = float",
     .shape = color_shape,
     .grad = to_hsv_grad,
     .kernels = to_hsv_kernels},
    {.name = "HSVToRGB",
     .in = "images: T",
     .out = "output: T",
     .attrs = "T: {half, bfloat16, float, double} = float",
     .flags = OP_NO_GRADIENT,
     .shape = color_shape,
     .kernels = to_rgb_kernels},
    {.name = "AdjustHue",
     .in = "images: T, delta: float",
     .out = "output: T",
     .attrs = "T: {half, float} = float",
     .shape = adjust_shape,
     .kernels = hue_kernels},
    {.name = "AdjustSaturation",
     .in = "images: T, scale: float",
     .out = "output: T",
     .attrs = "T: {half, float} = float",
     .shape = adjust_shape,
     .kernels = saturation_kernels},
    {.name = "AdjustContrastv2",
     .in = "images: T, contrast_factor: float",
     .out = "output: T",
     .attrs = "T: {half, float} = float",
     .shape = adjust_shape,
     .kernels = contrast_kernels},
};
OP_FAMILY(image_color, rows);
