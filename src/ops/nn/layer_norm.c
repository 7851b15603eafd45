/* _ShoalLayerNorm and _ShoalLayerNormGrad: normalisation over the last dimension, in one pass each (made by the rewrite
 * "fuse_layers"). x and y are of any type, all else is float; mean and rstd are of each row, for the gradient.
 *
 * With h = (x - mean) rstd and n = dy scale:
 *   dx = rstd (n - mean(n) - h mean(n h)),  dscale = sum over rows of dy h,  doffset = of dy.
 * A tensor that is given too is added to dx: the gradient of what goes past the layer.
 * Those sums are taken in up to PIECES of the rows, cut by their number alone, and added in order. */
#include <math.h>
#include <string.h>

#include "math/scratch.h"
#include "ops/math/vector_math.h"
#include "ops/nn/nn_util.h"

enum { PIECES = 32 };

struct layer_norm_rows {
  shoal_dtype type;
  int64_t n, width;
  const char *x, *dy, *added; /* added: NULL for none */
  char *y;                    /* or dx */
  const float *scale, *offset;
  float *mean, *rstd;
  float *sums; /* [pieces][2][width] */
  int64_t pieces;
  float epsilon;
};

VECTOR_CLONES static float sum(const float *x, int64_t n) {
  float s[VM_PARTS] = {0};
  int64_t i = 0;
  for (; i + VM_PARTS <= n; i += VM_PARTS)
    for (int l = 0; l < VM_PARTS; l++) s[l] += x[i + l];
  for (int l = 0; i < n; i++, l++) s[l] += x[i];
  return vm_total(s);
}

VECTOR_CLONES static float sum_of_squares(const float *x, float mean, int64_t n) {
  float s[VM_PARTS] = {0};
  int64_t i = 0;
  for (; i + VM_PARTS <= n; i += VM_PARTS)
    for (int l = 0; l < VM_PARTS; l++) s[l] += (x[i + l] - mean) * (x[i + l] - mean);
  for (int l = 0; i < n; i++, l++) s[l] += (x[i] - mean) * (x[i] - mean);
  return vm_total(s);
}

VECTOR_CLONES static void normalize(const float *x, float *y, float mean, float rstd, const float *scale,
                                    const float *offset, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * scale[i] + offset[i];
}

static const float *as_float(const struct layer_norm_rows *s, const char *from, int64_t row, float *room) {
  const char *at = from + (size_t)(row * s->width) * dtype_size(s->type);
  if (s->type == SHOAL_FLOAT32) return (const float *)at;
  nn_to_float(s->type, at, room, s->width);
  return room;
}

static float *result(const struct layer_norm_rows *s, int64_t row, float *room) {
  return s->type == SHOAL_FLOAT32 ? (float *)s->y + row * s->width : room;
}

static void put(const struct layer_norm_rows *s, int64_t row, const float *room) {
  if (s->type != SHOAL_FLOAT32)
    nn_from_float(s->type, room, s->y + (size_t)(row * s->width) * dtype_size(s->type), s->width);
}

static void norm_rows(void *arg, int64_t begin, int64_t end) {
  const struct layer_norm_rows *s = arg;
  int64_t n = s->width;
  float *room = scratch_get(SCRATCH_PATCH, (size_t)n * sizeof *room);
  for (int64_t r = begin; r < end; r++) {
    const float *x = as_float(s, s->x, r, room);
    float mean = sum(x, n) / (float)n;
    float rstd = 1 / sqrtf(sum_of_squares(x, mean, n) / (float)n + s->epsilon);
    normalize(x, result(s, r, room), mean, rstd, s->scale, s->offset, n);
    put(s, r, room);
    s->mean[r] = mean;
    s->rstd[r] = rstd;
  }
}

/* ---- the gradient ---- */

/* Of a row: sum(n) and sum(n h). */
VECTOR_CLONES static void row_sums(const struct layer_norm_rows *s, const float *x, const float *dy, float mean,
                                   float rstd, float out[2]) {
  float a[VM_PARTS] = {0}, b[VM_PARTS] = {0};
  int64_t n = s->width;
  const float *scale = s->scale;
  for (int64_t i = 0; i < n; i += VM_PARTS) {
    int some = (int)MIN(VM_PARTS, n - i);
    for (int l = 0; l < some; l++) {
      float v = dy[i + l] * scale[i + l];
      a[l] += v;
      b[l] += v * ((x[i + l] - mean) * rstd);
    }
  }
  out[0] = vm_total(a);
  out[1] = vm_total(b);
}

/* dx may be dy. */
VECTOR_CLONES static void row_grad(const struct layer_norm_rows *s, const float *x, const float *dy, float *dx,
                                   float mean, float rstd, const float means[2], float *sums) {
  float m0 = means[0], m1 = means[1];
  int64_t n = s->width;
  const float *scale = s->scale;
  LOOP_FREE for (int64_t i = 0; i < n; i++) {
    float h = (x[i] - mean) * rstd, d = dy[i];
    sums[i] += d * h;
    sums[n + i] += d;
    dx[i] = rstd * (d * scale[i] - m0 - h * m1);
  }
}

VECTOR_CLONES static void add_row(float *to, const float *from, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static void grad_piece(const struct layer_norm_rows *s, int64_t begin, int64_t end, float *sums) {
  int64_t n = s->width;
  float *room = scratch_get(SCRATCH_PATCH, (size_t)n * 2 * sizeof *room), means[2];
  memset(sums, 0, (size_t)n * 2 * sizeof *sums);
  for (int64_t r = begin; r < end; r++) {
    const float *x = as_float(s, s->x, r, room), *dy = as_float(s, s->dy, r, room + n);
    row_sums(s, x, dy, s->mean[r], s->rstd[r], means);
    means[0] /= (float)n;
    means[1] /= (float)n;
    row_grad(s, x, dy, result(s, r, room + n), s->mean[r], s->rstd[r], means, sums);
    if (s->added) add_row(result(s, r, room + n), as_float(s, s->added, r, room), n);
    put(s, r, room + n);
  }
}

static void grad_pieces(void *arg, int64_t begin, int64_t end) {
  const struct layer_norm_rows *s = arg;
  for (int64_t p = begin; p < end; p++)
    grad_piece(s, s->n * p / s->pieces, s->n * (p + 1) / s->pieces, s->sums + p * 2 * s->width);
}

static void add_pieces(const struct layer_norm_rows *s, float *scale, float *offset) {
  int64_t n = s->width;
  memcpy(scale, s->sums, (size_t)n * sizeof *scale);
  memcpy(offset, s->sums + n, (size_t)n * sizeof *offset);
  for (int64_t p = 1; p < s->pieces; p++)
    for (int64_t i = 0; i < n; i++) {
      scale[i] += s->sums[2 * n * p + i];
      offset[i] += s->sums[2 * n * p + n + i];
    }
}

/* ---- kernels ---- */

static shoal_status norm_init(struct kernel_init *ki, void *state) {
  return node_get_float(ki->node, "epsilon", state);
}

static shoal_status check(const struct tensor *x, const struct tensor *scale) {
  if (x->rank < 1 || x->dims[x->rank - 1] < 1 || scale->rank != 1 || scale->dims[0] != x->dims[x->rank - 1])
    return INVALID("a row of %s is not one of %s", tensor_shape_str(x), tensor_shape_str(scale));
  return NULL;
}

static shoal_status norm_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *scale = ctx_in(ctx, 1), *offset = ctx_in(ctx, 2);
  struct tensor *y, *mean, *rstd;
  TRY(check(x, scale));
  TRY(check(x, offset));
  struct layer_norm_rows s = {.type = ctx_in_type(ctx, 0), .width = x->dims[x->rank - 1], .x = x->data};
  s.n = x->n / s.width;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  TRY(ctx_out_dims(ctx, 1, 1, &s.n, &mean));
  TRY(ctx_out_dims(ctx, 2, 1, &s.n, &rstd));
  s.y = y->data;
  s.scale = scale->data;
  s.offset = offset->data;
  s.mean = mean->data;
  s.rstd = rstd->data;
  s.epsilon = *(const float *)ctx->state;
  pool_for(ctx_pool(ctx), s.n, nn_grain(s.width * 2), norm_rows, &s);
  return NULL;
}

static shoal_status check_grad(struct kernel_ctx *ctx, int64_t n) {
  TRY(check(ctx_in(ctx, 0), ctx_in(ctx, 1)));
  TRY(nn_check_same(ctx, 0, 4));
  if (ctx->kernel->n_in > 6) return INVALID("at most one tensor is added");
  if (ctx->kernel->n_in == 6) TRY(nn_check_same(ctx, 0, 5));
  if (ctx_in(ctx, 2)->n != n || ctx_in(ctx, 3)->n != n)
    return INVALID("there are %" PRId64 " rows, but means %s", n, tensor_shape_str(ctx_in(ctx, 2)));
  return NULL;
}

static shoal_status grad_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *scale = ctx_in(ctx, 1), *dy = ctx_in(ctx, 4);
  struct tensor *dx, *dscale, *doffset, sums;
  TRY(check(x, scale));
  struct layer_norm_rows s = {.type = ctx_in_type(ctx, 0), .width = x->dims[x->rank - 1], .x = x->data, .dy = dy->data};
  s.n = x->n / s.width;
  TRY(check_grad(ctx, s.n));
  TRY(ctx_out_like(ctx, 0, 4, &dx));
  TRY(ctx_out_dims(ctx, 1, 1, &s.width, &dscale));
  TRY(ctx_out_dims(ctx, 2, 1, &s.width, &doffset));
  s.pieces = MAX(1, MIN(PIECES, s.n));
  struct shape room = shape_vector(s.pieces * 2 * s.width);
  TRY(ctx_temp(ctx, SHOAL_FLOAT32, &room, &sums));
  s.y = dx->data;
  s.added = ctx->kernel->n_in == 6 ? ctx_in(ctx, 5)->data : NULL;
  s.scale = scale->data;
  s.mean = ctx_in(ctx, 2)->data;
  s.rstd = ctx_in(ctx, 3)->data;
  s.sums = sums.data;
  pool_for(ctx_pool(ctx), s.pieces, nn_grain(s.n / s.pieces * s.width * 2), grad_pieces, &s);
  add_pieces(&s, dscale->data, doffset->data);
  tensor_release(&sums);
  return NULL;
}

static shoal_status norm_shape(struct shape_ctx *c) {
  c->out[0] = c->in[0];
  c->out[1] = c->out[2] = shape_unknown_of_rank(1);
  return NULL;
}

static shoal_status grad_shape(struct shape_ctx *c) {
  c->out[0] = c->in[0];
  c->out[1] = c->out[2] = c->in[1];
  return NULL;
}

#define HALVES_AND_FLOAT .device = "CPU", .type_attr = "T", .types = DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16)

static const struct kernel_def norm_kernels[] = {
    {HALVES_AND_FLOAT, .state_size = sizeof(float), .init = norm_init, .run = norm_run}, {0}};
static const struct kernel_def grad_kernels[] = {{HALVES_AND_FLOAT, .run = grad_run}, {0}};

static const struct op_row rows[] = {
    {"_ShoalLayerNorm", .flags = OP_OWN, .in = "x: T, scale: float, offset: float",
     .out = "y: T, mean: float, rstd: float", .attrs = "T: {half, bfloat16, float}; epsilon: float",
     .shape = norm_shape, .kernels = norm_kernels},
    {"_ShoalLayerNormGrad", .flags = OP_OWN, .in = "x: T, scale: float, mean: float, rstd: float, dy: T, added: N * T",
     .out = "dx: T, dscale: float, doffset: float", .attrs = "N: int >= 0; T: {half, bfloat16, float}",
     .shape = grad_shape, .kernels = grad_kernels},
};
OP_FAMILY(layer_norm, rows);
