/* ScaleAndTranslate: images resampled through a filter, rows and columns apart, and its gradient. Each place of the
 * result along one side reads a span of the source with weights that add up to one; the gradient hands back along the
 * same spans. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "ops/image/image.h"
#include "ops/nn/nn_util.h"

/* ---- filters ---- */

static float lanczos(float x, float radius) {
  const float pi = 3.14159265359f;
  if (x > radius) return 0;
  return x <= 1e-3f ? 1 : radius * sinf(pi * x) * sinf(pi * x / radius) / (pi * pi * x * x);
}
static float gaussian(float x, float radius) {
  float sigma = radius / 3;
  return x >= radius ? 0 : expf(-x * x / (2 * sigma * sigma));
}
static float box(float x, float radius) { return x < 0.5f ? 1 : x == 0.5f ? 0.5f : 0; }
static float triangle(float x, float radius) { return x < 1 ? 1 - x : 0; }
static float keys(float x, float radius) {
  if (x >= 2) return 0;
  return x >= 1 ? ((-0.5f * x + 2.5f) * x - 4) * x + 2 : (1.5f * x - 2.5f) * x * x + 1;
}
static float mitchell(float x, float radius) {
  if (x >= 2) return 0;
  if (x >= 1) return ((-7.0f / 18 * x + 2) * x - 10.0f / 3) * x + 16.0f / 9;
  return (7.0f / 6 * x - 2) * x * x + 8.0f / 9;
}

struct filter {
  const char *name;
  float (*at)(float x, float radius); /* x >= 0 */
  float radius;
};
static const struct filter filters[] = {
    {"lanczos1", lanczos, 1}, {"lanczos3", lanczos, 3},  {"lanczos5", lanczos, 5}, {"gaussian", gaussian, 1.5f},
    {"box", box, 1},          {"triangle", triangle, 1}, {"keyscubic", keys, 2},   {"mitchellcubic", mitchell, 2}};

struct scale_state {
  const struct filter *filter;
  bool antialias;
};

static shoal_status scale_init(struct kernel_init *ki, void *state) {
  struct scale_state *st = state;
  const char *name;
  TRY(node_get_bool(ki->node, "antialias", &st->antialias));
  TRY(node_get_string(ki->node, "kernel_type", &name));
  for (size_t i = 0; i < COUNT_OF(filters); i++)
    if (!strcmp(filters[i].name, name)) st->filter = &filters[i];
  return st->filter ? NULL : INVALID("Unrecognized kernel type: %s", name);
}

/* ---- spans ---- */

struct spans {
  struct buffer *starts, *all; /* values say how large they are: counted as tensors are */
  int64_t *start;
  float *weights; /* [places, width]; zero where a span is shorter */
  int64_t width;
};

static void spans_release(struct spans *s) {
  buffer_unref(s->starts);
  buffer_unref(s->all);
}

static shoal_status spans_make(const struct scale_state *st, int64_t out, int64_t in, float scale, float shift,
                               struct spans *s) {
  float back = 1 / scale, stretch = st->antialias ? fmaxf(back, 1) : 1, reach = st->filter->radius * stretch;
  /* A wild scale reaches over everything; the span is never longer than the source. */
  s->width = reach < 1e9f ? MIN(2 * (int64_t)ceilf(reach) + 1, in) : in;
  int64_t cells;
  if (__builtin_mul_overflow(out, s->width, &cells) || cells > INT64_MAX / 8)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "Resampling %" PRId64 " to %" PRId64 " needs too many weights", in, out);
  TRY(buffer_new((size_t)out * sizeof *s->start, &s->starts));
  TRY(buffer_new((size_t)cells * sizeof *s->weights, &s->all));
  s->start = memset(s->starts->data, 0, (size_t)out * sizeof *s->start);
  s->weights = memset(s->all->data, 0, (size_t)cells * sizeof *s->weights);
  for (int64_t x = 0; x < out; x++) {
    float at = ((float)x + 0.5f) * back - back * shift, total = 0, *w = s->weights + x * s->width;
    if (!(at >= 0 && at <= (float)in)) continue;
    int64_t first = (int64_t)fmaxf(ceilf(at - reach - 0.5f), 0),
            last = (int64_t)fminf(floorf(at + reach - 0.5f), (float)(in - 1));
    first = MIN(first, in - 1);
    last = MIN(MAX(last, 0), first + s->width - 1);
    for (int64_t i = first; i <= last; i++)
      total += w[i - first] = st->filter->at(fabsf(((float)i + 0.5f - at) / stretch), st->filter->radius);
    for (int64_t i = first; i <= last; i++) w[i - first] = fabsf(total) >= 1000 * FLT_MIN ? w[i - first] / total : 0;
    s->start[x] = first;
  }
  return NULL;
}

/* ---- both ways ---- */

struct scale_plan {
  struct spans rows, cols;
  int64_t batch, depth, big[2], small[2]; /* big: the source's height and width; small: the result's */
};

static shoal_status plan_make(const struct kernel_ctx *ctx, int scale_at, struct scale_plan *p) {
  const float *v[2];
  for (int i = 0; i < 2; i++) {
    const struct tensor *t = ctx_in(ctx, scale_at + i);
    if (t->rank != 1) return INVALID("t must be 1-dimensional%s", tensor_shape_str(t));
    if (t->n != 2) return INVALID("t must have two elements%s", tensor_shape_str(t));
    v[i] = t->data;
  }
  if (!(v[0][0] > 0 && v[0][1] > 0)) return INVALID("Scale must be greater than zero.");
  if (p->big[0] <= 0 || p->big[1] <= 0) return INVALID("input image must be of non-zero size");
  if (p->small[0] <= 0 || p->small[1] <= 0) return INVALID("output dimensions must be positive");
  if (p->depth <= 0) return INVALID("image must have at least one channel");
  TRY(spans_make(ctx->state, p->small[0], p->big[0], v[0][0], v[1][0], &p->rows));
  return spans_make(ctx->state, p->small[1], p->big[1], v[0][1], v[1][1], &p->cols);
}

static void plan_release(struct scale_plan *p) {
  spans_release(&p->rows);
  spans_release(&p->cols);
}

/* to += w * from over n floats. */
static void add_scaled(float *to, const float *from, float w, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] += w * from[i];
}

/* One image: rows first, through a strip of as many rows as the result has. */
static void resample(const struct scale_plan *p, const float *from, float *strip, float *to) {
  int64_t line = p->big[1] * p->depth;
  memset(strip, 0, (size_t)(p->small[0] * line) * sizeof *strip);
  memset(to, 0, (size_t)(p->small[0] * p->small[1] * p->depth) * sizeof *to);
  for (int64_t y = 0; y < p->small[0]; y++)
    for (int64_t k = 0; k < p->rows.width; k++) {
      float w = p->rows.weights[y * p->rows.width + k];
      if (w != 0) add_scaled(strip + y * line, from + (p->rows.start[y] + k) * line, w, line);
    }
  for (int64_t y = 0; y < p->small[0]; y++)
    for (int64_t x = 0; x < p->small[1]; x++)
      for (int64_t k = 0; k < p->cols.width; k++) {
        float w = p->cols.weights[x * p->cols.width + k];
        if (w != 0)
          add_scaled(to + (y * p->small[1] + x) * p->depth, strip + y * line + (p->cols.start[x] + k) * p->depth, w,
                     p->depth);
      }
}

/* The way back. */
static void hand_back(const struct scale_plan *p, const float *dy, float *strip, float *dx) {
  int64_t line = p->big[1] * p->depth;
  memset(strip, 0, (size_t)(p->small[0] * line) * sizeof *strip);
  memset(dx, 0, (size_t)(p->big[0] * line) * sizeof *dx);
  for (int64_t y = 0; y < p->small[0]; y++)
    for (int64_t x = 0; x < p->small[1]; x++)
      for (int64_t k = 0; k < p->cols.width; k++) {
        float w = p->cols.weights[x * p->cols.width + k];
        if (w != 0)
          add_scaled(strip + y * line + (p->cols.start[x] + k) * p->depth, dy + (y * p->small[1] + x) * p->depth, w,
                     p->depth);
      }
  for (int64_t y = 0; y < p->small[0]; y++)
    for (int64_t k = 0; k < p->rows.width; k++) {
      float w = p->rows.weights[y * p->rows.width + k];
      if (w != 0) add_scaled(dx + (p->rows.start[y] + k) * line, strip + y * line, w, line);
    }
}

static shoal_status run_all(const struct scale_plan *p, const float *from, float *to, bool back) {
  int64_t big = p->big[0] * p->big[1] * p->depth, small = p->small[0] * p->small[1] * p->depth;
  struct tensor strip;
  TRY(tensor_new_dims(&strip, SHOAL_FLOAT32, 2, (int64_t[]){p->small[0], p->big[1] * p->depth}));
  for (int64_t b = 0; b < p->batch; b++)
    if (back) hand_back(p, from + b * small, strip.data, to + b * big);
    else resample(p, from + b * big, strip.data, to + b * small);
  tensor_release(&strip);
  return NULL;
}

static shoal_status scale_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *size = ctx_in(ctx, 1);
  if (x->rank != 4) return INVALID("input must be 4-dimensional%s", tensor_shape_str(x));
  if (size->rank != 1) return INVALID("output_shape_t must be 1-dimensional%s", tensor_shape_str(size));
  if (size->n != 2) return INVALID("output_shape_t must have two elements%s", tensor_shape_str(size));
  struct scale_plan p = {.batch = x->dims[0],
                         .depth = x->dims[3],
                         .big = {x->dims[1], x->dims[2]},
                         .small = {int_at(size, 0), int_at(size, 1)}};
  struct tensor *y, pixels = {0};
  shoal_status s = plan_make(ctx, 2, &p);
  if (!s) s = ctx_out_dims(ctx, 0, 4, (int64_t[]){p.batch, p.small[0], p.small[1], p.depth}, &y);
  if (!s) s = image_floats(x, &pixels);
  if (!s) s = run_all(&p, pixels.data, y->data, false);
  if (tensor_valid(&pixels)) tensor_release(&pixels);
  plan_release(&p);
  return s;
}

static shoal_status scale_grad_run(struct kernel_ctx *ctx) {
  const struct tensor *dy = ctx_in(ctx, 0), *x = ctx_in(ctx, 1);
  if (dy->rank != 4) return INVALID("input must be 4-dimensional%s", tensor_shape_str(dy));
  if (x->rank != 4) return INVALID("original_input must be 4-dimensional%s", tensor_shape_str(x));
  if (dy->dims[0] != x->dims[0] || dy->dims[3] != x->dims[3])
    return INVALID("grads %s and original_image %s differ in batch or channels", tensor_shape_str(dy),
                   tensor_shape_str(x));
  struct scale_plan p = {
      .batch = x->dims[0], .depth = x->dims[3], .big = {x->dims[1], x->dims[2]}, .small = {dy->dims[1], dy->dims[2]}};
  struct shape shape = tensor_shape(x);
  struct tensor *dx;
  shoal_status s = plan_make(ctx, 2, &p);
  if (!s) s = ctx_out(ctx, 0, &shape, &dx);
  if (!s) s = run_all(&p, dy->data, dx->data, true);
  plan_release(&p);
  return s;
}

static shoal_status scale_shape(struct shape_ctx *c) {
  struct shape x, size, *y = &c->out[0];
  TRY(shape_in_rank(c, 0, 4, &x));
  TRY(shape_in_value(c, 1, &size));
  *y = shape_unknown_of_rank(4);
  y->dims[0] = x.dims[0];
  y->dims[3] = x.dims[3];
  if (size.rank == 2) y->dims[1] = size.dims[0], y->dims[2] = size.dims[1];
  return NULL;
}

static shoal_status scale_grad_shape(struct shape_ctx *c) {
  c->out[0] = c->in[1];
  return NULL;
}

static shoal_status scale_grad(struct grad_ctx *c) {
  struct build b = build_begin(c->g, "ScaleAndTranslateGrad", NULL);
  build_in(&b, grad_dy(c, 0));
  build_in(&b, build_cast(c->g, gin(c, 0), SHOAL_FLOAT32));
  build_in(&b, gin(c, 2));
  build_in(&b, gin(c, 3));
  build_attr(&b, "kernel_type", attr_copy(node_attr(c->node, "kernel_type")));
  build_attr(&b, "antialias", attr_copy(node_attr(c->node, "antialias")));
  grad_set(c, 0, build_cast(c->g, build_end_out(&b), out_type(gin(c, 0))));
  return NULL;
}

static const struct kernel_def scale_kernels[] = {{.device = "CPU",
                                                   .type_attr = "T",
                                                   .types = DT_REAL,
                                                   .state_size = sizeof(struct scale_state),
                                                   .init = scale_init,
                                                   .run = scale_run},
                                                  {0}};
static const struct kernel_def scale_grad_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct scale_state), .init = scale_init, .run = scale_grad_run}, {0}};

static const struct op_row rows[] = {
    {.name = "ScaleAndTranslate",
     .in = "images: T, size: int32, scale: float, translation: float",
     .out = "resized_images: float",
     .attrs = "T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double}; kernel_type: string = "
              "'lanczos3'; antialias: bool = true",
     .shape = scale_shape,
     .grad = scale_grad,
     .kernels = scale_kernels},
    {.name = "ScaleAndTranslateGrad",
     .in = "grads: T, original_image: T, scale: float, translation: float",
     .out = "output: T",
     .attrs = "T: {float}; kernel_type: string = 'lanczos3'; antialias: bool = true",
     .shape = scale_grad_shape,
     .kernels = scale_grad_kernels},
};
OP_FAMILY(image_scale, rows);
