/* ImageProjectiveTransformV2 and V3: every pixel of the output is looked up at (x', y') = ((a0 x + a1 y + a2) / k,
 * (b0 x + b1 y + b2) / k), k = c0 x + c1 y + 1, in the nearest pixel or between four. What lies outside is a fill
 * value, or comes from inside by reflection, by wrapping round, or as the nearest edge, as SciPy has it. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "ops/array/array_util.h"
#include "ops/math/grad_help.h"

enum fill_mode { FILL_REFLECT, FILL_WRAP, FILL_CONSTANT, FILL_NEAREST };

struct transform_state {
  bool bilinear;
  enum fill_mode mode;
};

static shoal_status init(struct kernel_init *ki, void *state) {
  static const char *const modes[] = {"REFLECT", "WRAP", "CONSTANT", "NEAREST"};
  struct transform_state *st = state;
  const char *interpolation, *mode;
  TRY(node_get_string(ki->node, "interpolation", &interpolation));
  TRY(node_get_string(ki->node, "fill_mode", &mode));
  st->bilinear = !strcmp(interpolation, "BILINEAR");
  if (!st->bilinear && strcmp(interpolation, "NEAREST") != 0)
    return INVALID("Invalid interpolation %s. Supported types: NEAREST, BILINEAR", interpolation);
  for (int i = 0; i < 4; i++)
    if (!strcmp(mode, modes[i])) {
      st->mode = (enum fill_mode)i;
      return NULL;
    }
  return INVALID("Invalid mode %s. Supported types: REFLECT, WRAP, CONSTANT, NEAREST", mode);
}

/* Farther out than any image is wide, and still a number that integers hold. */
#define FAR 1e9f

/* Where a coordinate is looked up in a dimension of n. */
static float inside(enum fill_mode mode, float at, int64_t n) {
  float last = (float)(n - 1);
  if (mode == FILL_CONSTANT) return at;
  at = fminf(fmaxf(at, -FAR), FAR);
  if (mode == FILL_NEAREST || (at >= 0 && at <= last)) return fminf(fmaxf(at, 0), last);
  if (n <= 1) return 0;
  if (mode == FILL_REFLECT) {
    int64_t period = 2 * n;
    if (at < 0) {
      at = (float)(period * (int64_t)(-at / (float)period)) + at;
      at = at < (float)-n ? at + (float)period : -at - 1;
    } else {
      at -= (float)(period * (int64_t)(at / (float)period));
      if (at >= (float)n) at = (float)period - at - 1;
    }
  } else if (at < 0) {
    at += (float)(n * ((int64_t)(-at / last) + 1));
  } else {
    at -= (float)(n * (int64_t)(at / last));
  }
  return fminf(fmaxf(at, 0), last);
}

struct picture {
  const struct tensor *images;
  int64_t height, width, channels;
  float fill;
};

/* The pixel's place, or -1 outside. */
static int64_t place(const struct picture *p, int64_t image, int64_t y, int64_t x) {
  if (y < 0 || y >= p->height || x < 0 || x >= p->width) return -1;
  return ((image * p->height + y) * p->width + x) * p->channels;
}

static float value(const struct picture *p, int64_t at, int64_t c) {
  return at < 0 ? p->fill : (float)real_at(p->images, at + c);
}

/* A fill value as the type holds it; one that it cannot hold, as near as it can. */
static double fitted(shoal_dtype type, double v) {
  if (dtype_floating(type)) return v;
  if (isnan(v)) return 0;
  double low = type == SHOAL_UINT8 ? 0 : type == SHOAL_INT32 ? INT32_MIN : -0x1p63;
  double high = type == SHOAL_UINT8 ? UINT8_MAX : type == SHOAL_INT32 ? INT32_MAX : 0x1.fffffffffffffp62;
  return trunc(fmin(fmax(v, low), high));
}

static void pixel(const struct picture *p, const struct transform_state *st, const float *t, int64_t image, int64_t row,
                  int64_t column, struct tensor *out, int64_t at) {
  float u = (float)column, v = (float)row, k = t[6] * u + t[7] * v + 1;
  float x = inside(st->mode, (t[0] * u + t[1] * v + t[2]) / k, p->width);
  float y = inside(st->mode, (t[3] * u + t[4] * v + t[5]) / k, p->height);
  int64_t nearest = -1;
  bool nowhere = k == 0 || !(fabsf(x) < FAR && fabsf(y) < FAR);
  if (!st->bilinear && !nowhere) nearest = place(p, image, (int64_t)roundf(y), (int64_t)roundf(x));
  if (nowhere || (!st->bilinear && nearest < 0)) {
    for (int64_t c = 0; c < p->channels; c++) real_put(out, at + c, p->fill);
    return;
  }
  if (!st->bilinear) {
    size_t size = dtype_size((shoal_dtype)out->dtype);
    memcpy((char *)out->data + (size_t)at * size, (const char *)p->images->data + (size_t)nearest * size,
           (size_t)p->channels * size);
    return;
  }
  float y0 = floorf(y), x0 = floorf(x), right = x - x0, left = x0 + 1 - x;
  int64_t top = (int64_t)y0, first = (int64_t)x0;
  int64_t a = place(p, image, top, first), b = place(p, image, top, first + 1);
  int64_t c0 = place(p, image, top + 1, first), d = place(p, image, top + 1, first + 1);
  for (int64_t c = 0; c < p->channels; c++) {
    float upper = left * value(p, a, c) + right * value(p, b, c);
    float lower = left * value(p, c0, c) + right * value(p, d, c);
    real_put(out, at + c, fitted((shoal_dtype)out->dtype, (double)((y0 + 1 - y) * upper + (y - y0) * lower)));
  }
}

struct projective_work {
  const struct transform_state *st;
  struct picture picture;
  const struct tensor *transforms;
  struct tensor *out;
};

static void some_rows(void *arg, int64_t begin, int64_t end) {
  struct projective_work *w = arg;
  int64_t height = w->out->dims[1], width = w->out->dims[2];
  for (int64_t r = begin; r < end; r++) {
    int64_t image = r / height;
    const float *t = T_DATA(w->transforms, const float) + (w->transforms->dims[0] == 1 ? 0 : 8 * image);
    for (int64_t x = 0; x < width; x++)
      pixel(&w->picture, w->st, t, image, r % height, x, w->out, (r * width + x) * w->picture.channels);
  }
}

static shoal_status run(struct kernel_ctx *ctx) {
  const struct tensor *images = ctx_in(ctx, 0), *transforms = ctx_in(ctx, 1), *size = ctx_in(ctx, 2);
  if (images->rank != 4) return INVALID("Input images must have rank 4");
  if (transforms->rank != 2 || transforms->dims[1] != 8 ||
      (transforms->dims[0] != images->dims[0] && transforms->dims[0] != 1))
    return INVALID("Input transform should be num_images x 8 or 1 x 8");
  if (size->rank != 1 || size->n != 2)
    return INVALID("output shape must be 1-dimensional with 2 elements: %s", tensor_shape_str(size));
  int64_t height = int_at(size, 0), width = int_at(size, 1);
  if (height <= 0 || width <= 0) return INVALID("output dimensions must be positive");
  struct projective_work w = {.st = ctx->state,
                              .transforms = transforms,
                              .picture = {images, images->dims[1], images->dims[2], images->dims[3], 0}};
  if (ctx->kernel->n_in > 3) {
    if (ctx_in(ctx, 3)->rank) return INVALID("fill_value must be a scalar");
    w.picture.fill = (float)fitted((shoal_dtype)images->dtype, real_at(ctx_in(ctx, 3), 0));
  }
  TRY(ctx_out_dims(ctx, 0, 4, (int64_t[]){images->dims[0], height, width, images->dims[3]}, &w.out));
  pool_for(ctx_pool(ctx), images->dims[0] * height, copy_grain(16 * width * images->dims[3]), some_rows, &w);
  return NULL;
}

static shoal_status shape(struct shape_ctx *c) {
  struct shape images;
  TRY(shape_in_rank(c, 0, 4, &images));
  const struct tensor *size = c->values[2];
  bool known = size && size->n == 2;
  c->out[0] = (struct shape){.rank = 4,
                             .dims = {images.dims[0], known ? MAX(-1, int_at(size, 0)) : -1,
                                      known ? MAX(-1, int_at(size, 1)) : -1, images.dims[3]}};
  return NULL;
}

/* TensorFlow's: the gradient as an image, brought back by the inverse transforms (of what lies outside nothing comes,
 * and where pixels are shared this is not the derivative). */
static shoal_status grad(struct grad_ctx *c) {
  shoal_out t = gin(c, 1), one = build_const_float(c->g, SHOAL_FLOAT32, 1), part[2];
  shoal_out more = g_reshape(c, build_const_ints(c->g, SHOAL_INT32, (int64_t[]){0, 0, 0, 1}, 4),
                             build_const_ints(c->g, SHOAL_INT32, (int64_t[]){2, 2}, 2));
  shoal_out matrices = g_reshape(c, build_op3(c->g, "PadV2", t, more, one),
                                 build_const_ints(c->g, SHOAL_INT32, (int64_t[]){-1, 3, 3}, 3));
  shoal_out flat =
      g_reshape(c, g_op(c, "MatrixInverse", matrices), build_const_ints(c->g, SHOAL_INT32, (int64_t[]){-1, 9}, 2));
  for (int i = 0; i < 2; i++) /* the last entry, and the eight before it */
    part[i] = build_op3(c->g, "Slice", flat, build_const_ints(c->g, SHOAL_INT32, (int64_t[]){0, i ? 0 : 8}, 2),
                        build_const_ints(c->g, SHOAL_INT32, (int64_t[]){-1, i ? 8 : 1}, 2));
  shoal_out size =
      build_op3(c->g, "Slice", g_shape(c, gin(c, 0)), build_const_ints(c->g, SHOAL_INT32, (int64_t[]){1}, 1),
                build_const_ints(c->g, SHOAL_INT32, (int64_t[]){2}, 1));
  struct build b = build_begin(c->g, c->node->op->name, NULL);
  build_in(&b, grad_dy(c, 0));
  build_in(&b, g_div(c, part[1], part[0]));
  build_in(&b, size);
  if (c->node->n_in > 3) build_in(&b, build_const_float(c->g, SHOAL_FLOAT32, 0));
  static const char *const names[] = {"interpolation", "fill_mode"};
  for (int i = 0; i < 2; i++) build_attr(&b, names[i], attr_copy(node_attr(c->node, names[i])));
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

static const struct kernel_def kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct transform_state), .init = init, .run = run, .host_in = 12}, {0}};
#define ATTRS "dtype: {uint8, int32, int64, half, float, double}; interpolation: string; fill_mode: string = 'CONSTANT'"

static const struct op_row rows[] = {
    {.name = "ImageProjectiveTransformV2",
     .in = "images: dtype, transforms: float, output_shape: int32",
     .out = "transformed_images: dtype",
     .attrs = ATTRS,
     .shape = shape,
     .grad = grad,
     .kernels = kernels},
    {.name = "ImageProjectiveTransformV3",
     .in = "images: dtype, transforms: float, output_shape: int32, fill_value: float",
     .out = "transformed_images: dtype",
     .attrs = ATTRS,
     .shape = shape,
     .grad = grad,
     .kernels = kernels},
};
OP_FAMILY(image_projective, rows);
