/* Numbers with a scale and a zero point (quantized_scale.h): made of floats and turned back, brought to other scales,
 * and sums and products whose results have a scale of their own. UniformQuantizedDotHybrid brings each row of floats to
 * 8 bits over the range that it uses, zero included. */
#include <stdlib.h>
#include <string.h>

#include "ops/math/broadcast.h"
#include "ops/quantized/quantized_scale.h"

struct uniform_state {
  struct side lhs, rhs, out; /* lhs: the one input of UniformRequantize */
};

/* The ratios for each pair of slices, along whichever of the two has more. */
static shoal_status ratios_of(const struct scale *in, const struct scale *to, struct ratio **out) {
  int64_t n = MAX(in->n, to->n);
  struct ratio *r = mem_try_zalloc((size_t)n, sizeof *r);
  if (n && !r) return NO_MEMORY((size_t)n * sizeof *r, "scales");
  shoal_status s = NULL;
  for (int64_t i = 0; !s && i < n; i++)
    s = ratio_of((double)in->scales[in->n == 1 ? 0 : i] / (double)to->scales[to->n == 1 ? 0 : i], &r[i]);
  if (s) free(r);
  else *out = r;
  return s;
}

/* ---- state ---- */

static shoal_status init(struct kernel_init *ki, void *state) {
  struct uniform_state *s = state;
  s->lhs.axis = s->rhs.axis = s->out.axis = -1;
  TRY(side_read(ki->node, op_is(ki->node->op, "UniformRequantize") ? "input_" : "lhs_", &s->lhs));
  TRY(side_read(ki->node, "rhs_", &s->rhs));
  TRY(side_read(ki->node, "output_", &s->out));
  if (!strstr(ki->node->op->name, "Dot")) return NULL;
  if (s->lhs.axis != -1) return INVALID("lhs_quantization_axis Attr must be -1 (per-tensor).");
  if ((s->rhs.axis != -1 && s->rhs.axis != 1) || (s->out.axis != -1 && s->out.axis != 1))
    return INVALID("rhs_ and output_quantization_axis Attr must be 1 (per-channel) or -1 (per-tensor).");
  return NULL;
}

/* ---- floats to integers and back; UniformQuantizedClipByValue ---- */

static shoal_status one_init(struct kernel_init *ki, void *state) {
  struct uniform_state *s = state;
  s->out.axis = -1;
  TRY(side_read(ki->node, "", &s->out));
  if (s->out.least >= s->out.most)
    return INVALID("quantization_min_val must be smaller than quantization_max_val: %" PRId64 " and %" PRId64,
                   s->out.least, s->out.most);
  return NULL;
}

/* The result, of input 0's shape, and its scales, which are inputs i and i + 1. */
static shoal_status one_begin(struct kernel_ctx *ctx, int i, struct scale *by, struct tensor **y) {
  const struct uniform_state *st = ctx->state;
  struct shape s = tensor_shape(ctx_in(ctx, 0));
  TRY(scale_in(ctx, i, &s, st->out.axis, by));
  return ctx_out(ctx, 0, &s, y);
}

/* What the attributes and the type both allow. */
static struct side within_type(const struct side *s, shoal_dtype t) {
  const struct levels *l = levels_of(t);
  return (struct side){s->axis, MAX(s->least, l->lowest), MIN(s->most, l->highest)};
}

static shoal_status quantize_run(struct kernel_ctx *ctx) {
  const struct uniform_state *st = ctx->state;
  struct scale by;
  struct tensor *y;
  TRY(one_begin(ctx, 1, &by, &y));
  struct side to = within_type(&st->out, (shoal_dtype)y->dtype);
  const float *x = ctx_in(ctx, 0)->data;
  for (int64_t i = 0; i < y->n; i++) {
    int64_t k = slice_of(&by, i), q = level_int((double)floorf(x[i] * (1.0f / by.scales[k]) + 0.5f)) + by.zeros[k];
    level_put(y, i, MAX(to.least, MIN(q, to.most)));
  }
  return NULL;
}

static shoal_status dequantize_run(struct kernel_ctx *ctx) {
  struct scale by;
  struct tensor *y;
  TRY(one_begin(ctx, 1, &by, &y));
  for (int64_t i = 0; i < y->n; i++) {
    int64_t k = slice_of(&by, i);
    int32_t q = (int32_t)((uint32_t)level_at(ctx_in(ctx, 0), i) - (uint32_t)by.zeros[k]);
    T_DATA(y, float)[i] = (float)q * by.scales[k];
  }
  return NULL;
}

static shoal_status clip_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *lo = ctx_in(ctx, 1), *hi = ctx_in(ctx, 2);
  struct scale by;
  struct tensor *y;
  TRY(one_begin(ctx, 3, &by, &y));
  if (lo->n != by.n || hi->n != by.n) return INVALID("min and max must have as many elements as scales");
  for (int64_t i = 0; i < y->n; i++) {
    int64_t k = slice_of(&by, i);
    int32_t v = MIN(T_DATA(x, const int32_t)[i], T_DATA(hi, const int32_t)[k]);
    T_DATA(y, int32_t)[i] = MAX(v, T_DATA(lo, const int32_t)[k]);
  }
  return NULL;
}

/* ---- UniformRequantize, UniformQuantizedAdd ---- */

static shoal_status requantize_run(struct kernel_ctx *ctx) {
  const struct uniform_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape s = tensor_shape(x);
  struct scale in, to;
  struct ratio *r;
  struct tensor *y;
  TRY(scale_in(ctx, 1, &s, st->lhs.axis, &in));
  TRY(scale_in(ctx, 3, &s, st->out.axis, &to));
  if (st->lhs.axis >= 0 && st->out.axis >= 0 && st->lhs.axis != st->out.axis)
    return INVALID("If input and output is both per-axis quantized, the quantization axis must be same.");
  struct side within = within_type(&st->out, ctx_out_type(ctx, 0));
  TRY(ctx_out(ctx, 0, &s, &y));
  TRY(ratios_of(&in, &to, &r));
  const struct scale *wide = in.n >= to.n ? &in : &to;
  for (int64_t i = 0; i < x->n; i++)
    level_put(y, i,
              requantized(r[slice_of(wide, i)], level_at(x, i), in.zeros[slice_of(&in, i)], to.zeros[slice_of(&to, i)],
                          &within));
  free(r);
  return NULL;
}

/* A sum: each operand, its scales, and their ratios to those of the result. */
struct adding {
  const struct tensor *in[2];
  struct scale own[2], to;
  struct ratio *r[2];
  bool step[2];
  const struct side *within;
  int32_t *out;
};

static void add_stretch(void *arg, int64_t at, const int64_t *in_at, int64_t n) {
  const struct adding *a = arg;
  static const struct side whole = {-1, INT32_MIN, INT32_MAX};
  for (int64_t i = 0; i < n; i++) {
    int64_t slice = slice_of(&a->to, at + i);
    uint32_t sum = (uint32_t)a->to.zeros[slice];
    for (int k = 0; k < 2; k++) {
      int64_t from = in_at[k] + (a->step[k] ? i : 0), mine = slice_of(&a->own[k], from);
      sum += (uint32_t)requantized(a->r[k][a->own[k].n > 1 ? mine : slice], level_at(a->in[k], from),
                                   a->own[k].zeros[mine], 0, &whole);
    }
    a->out[at + i] = (int32_t)MAX(a->within->least, MIN((int64_t)(int32_t)sum, a->within->most));
  }
}

static shoal_status add_run(struct kernel_ctx *ctx) {
  const struct uniform_state *st = ctx->state;
  struct adding a = {.in = {ctx_in(ctx, 0), ctx_in(ctx, 1)}, .within = &st->out};
  const struct side *sides[2] = {&st->lhs, &st->rhs};
  struct broadcast plan;
  TRY(broadcast_plan(&plan, a.in, 2));
  TRY(scale_in(ctx, 6, &plan.out, st->out.axis, &a.to));
  for (int k = 0; k < 2; k++) {
    struct shape shape = tensor_shape(a.in[k]);
    TRY(scale_in(ctx, 2 + 2 * k, &shape, sides[k]->axis, &a.own[k]));
    if (sides[k]->axis >= 0 && st->out.axis >= 0 && shape.rank - sides[k]->axis != plan.out.rank - st->out.axis)
      return INVALID("If operands and output are per-axis quantized, the quantization axis must match.");
    if (a.own[k].n > 1 && a.to.n > 1 && a.own[k].n != a.to.n)
      return INVALID("Operands and output are quantized along dimensions of different sizes");
    a.step[k] = broadcast_inner(&plan, k);
  }
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &plan.out, &y));
  a.out = y->data;
  shoal_status s = ratios_of(&a.own[0], &a.to, &a.r[0]);
  if (!s) s = ratios_of(&a.own[1], &a.to, &a.r[1]);
  if (!s) broadcast_each(&plan, 0, plan.n, add_stretch, &a);
  free(a.r[0]);
  free(a.r[1]);
  return s;
}

/* ---- products ---- */

static shoal_status check_dot(const struct tensor *a, const struct tensor *b) {
  if (a->rank != 2 || b->rank != 2)
    return INVALID("lhs and rhs must be matrices: %s, %s", tensor_shape_str(a), tensor_shape_str(b));
  if (a->dims[1] != b->dims[0])
    return INVALID("lhs.dim_size(1) and rhs.dim_size(0) must be equal: %s, %s", tensor_shape_str(a),
                   tensor_shape_str(b));
  return NULL;
}

/* Row r of a, less a_zero, times column c of b, less its own; wraps, as 32 bits do. */
static int32_t dot(const int8_t *row, int32_t a_zero, const struct tensor *b, int64_t c, int32_t b_zero) {
  uint32_t sum = 0;
  for (int64_t k = 0; k < b->dims[0]; k++)
    sum += ((uint32_t)row[k] - (uint32_t)a_zero) *
           ((uint32_t)T_DATA(b, const int8_t)[k * b->dims[1] + c] - (uint32_t)b_zero);
  return (int32_t)sum;
}

static shoal_status dot_run(struct kernel_ctx *ctx) {
  const struct uniform_state *st = ctx->state;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  TRY(check_dot(a, b));
  struct shape s = shape_matrix(a->dims[0], b->dims[1]), sa = tensor_shape(a), sb = tensor_shape(b);
  struct scale one, by, to;
  TRY(scale_in(ctx, 2, &sa, -1, &one));
  TRY(scale_in(ctx, 4, &sb, st->rhs.axis, &by));
  TRY(scale_in(ctx, 6, &s, st->out.axis, &to));
  if (st->out.axis >= 0 && st->rhs.axis < 0) return INVALID("If output is per-channel quantized, rhs must be too.");
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  for (int64_t c = 0; c < s.dims[1]; c++) {
    int64_t k = by.n == 1 ? 0 : c, j = to.n == 1 ? 0 : c;
    struct ratio r;
    TRY(ratio_of((double)one.scales[0] * (double)by.scales[k] / (double)to.scales[j], &r));
    for (int64_t i = 0; i < s.dims[0]; i++) {
      int32_t sum = dot(T_DATA(a, const int8_t) + i * a->dims[1], one.zeros[0], b, c, by.zeros[k]);
      T_DATA(y, int32_t)[i * s.dims[1] + c] = requantized(r, sum, 0, to.zeros[j], &st->out);
    }
  }
  return NULL;
}

/* A row of floats as bytes over the range it uses. */
static struct byte_line quantize_row(const float *x, int64_t n, int8_t *to) {
  float least = 0, most = 0;
  for (int64_t i = 0; i < n; i++) least = fminf(least, x[i]), most = fmaxf(most, x[i]);
  struct byte_line line = byte_line_of(least, most);
  for (int64_t i = 0; i < n; i++) to[i] = byte_of(&line, x[i]);
  return line;
}

static shoal_status hybrid_run(struct kernel_ctx *ctx) {
  const struct uniform_state *st = ctx->state;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  TRY(check_dot(a, b));
  struct shape s = shape_matrix(a->dims[0], b->dims[1]), sb = tensor_shape(b);
  struct scale by;
  TRY(scale_in(ctx, 2, &sb, st->rhs.axis, &by));
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  int8_t *row = mem_try_alloc((size_t)a->dims[1] + 1);
  if (!row) return NO_MEMORY(a->dims[1], "a row");
  for (int64_t i = 0; i < s.dims[0]; i++) {
    struct byte_line line = quantize_row(T_DATA(a, const float) + i * a->dims[1], a->dims[1], row);
    for (int64_t c = 0; c < s.dims[1]; c++) {
      int64_t k = by.n == 1 ? 0 : c;
      T_DATA(y, float)[i * s.dims[1] + c] = (float)dot(row, line.zero, b, c, by.zeros[k]) * line.scale * by.scales[k];
    }
  }
  free(row);
  return NULL;
}

static shoal_status dot_shape(struct shape_ctx *c) {
  struct shape a, b;
  TRY(shape_in_rank(c, 0, 2, &a));
  TRY(shape_in_rank(c, 1, 2, &b));
  c->out[0] = shape_matrix(a.dims[0], b.dims[1]);
  return NULL;
}

/* ---- rows ---- */

#define KERNEL(attr, type, run_) \
  ONE_KERNEL(.type_attr = attr, .types = type, .state_size = sizeof(struct uniform_state), .init = init, .run = run_)
#define ONE(attr, type, run_)                                                                                \
  ONE_KERNEL(.type_attr = attr, .types = type, .state_size = sizeof(struct uniform_state), .init = one_init, \
             .run = run_)

static const struct op_row rows[] = {
    {.name = "UniformQuantize",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .in = "input: Tin, " UNIFORM_SCALES(""),
     .out = "output: Tout",
     .attrs = "Tin: {float}; Tout: {qint8, qint32}; " UNIFORM_SIDE(""),
     .kernels = ONE("Tout", DT(QINT8) | DT(QINT32), quantize_run)},
    {.name = "UniformDequantize",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .in = "input: Tin, " UNIFORM_SCALES(""),
     .out = "output: Tout",
     .attrs = "Tin: {qint8, qint32}; Tout: {float}; " UNIFORM_SIDE(""),
     .kernels = ONE("Tin", DT(QINT8) | DT(QINT32), dequantize_run)},
    {.name = "UniformQuantizedClipByValue",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .in = "operand: T, min: T, max: T, " UNIFORM_SCALES(""),
     .out = "output: T",
     .attrs = "T: {qint32}; " UNIFORM_SIDE(""),
     .kernels = ONE("T", DT(QINT32), clip_run)},
    {.name = "UniformRequantize",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .in = "input: Tin, " UNIFORM_SCALES("input_") ", " UNIFORM_SCALES("output_"),
     .out = "output: Tout",
     .attrs = "Tin: {qint8, qint32}; Tout: {qint8, qint32}; " UNIFORM_SIDE("input_") "; " UNIFORM_SIDE("output_"),
     .kernels = KERNEL("Tout", DT(QINT8), requantize_run)},
    {.name = "UniformQuantizedAdd",
     .flags = OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .in = "lhs: T, rhs: T, " UNIFORM_SCALES("lhs_") ", " UNIFORM_SCALES("rhs_") ", " UNIFORM_SCALES("output_"),
     .out = "output: T",
     .attrs = UNIFORM_SIDE("lhs_") "; " UNIFORM_SIDE("rhs_") "; " UNIFORM_SIDE("output_") "; T: {qint32}",
     .kernels = KERNEL("T", DT(QINT32), add_run)},
    {.name = "UniformQuantizedDot",
     .flags = OP_NO_GRADIENT,
     .shape = dot_shape,
     .in = "lhs: Tin, rhs: Tin, " UNIFORM_SCALES("lhs_") ", " UNIFORM_SCALES("rhs_") ", " UNIFORM_SCALES("output_"),
     .out = "output: Tout",
     .attrs =
         "Tin: {qint8}; Tout: {qint32}; " UNIFORM_SIDE("lhs_") "; " UNIFORM_SIDE("rhs_") "; " UNIFORM_SIDE("output_"),
     .kernels = KERNEL("Tin", DT(QINT8), dot_run)},
    {.name = "UniformQuantizedDotHybrid",
     .flags = OP_NO_GRADIENT,
     .shape = dot_shape,
     .in = "lhs: Tlhs, rhs: Trhs, " UNIFORM_SCALES("rhs_"),
     .out = "output: Tout",
     .attrs = "Tlhs: {float}; Trhs: {qint8}; Tout: {float}; " UNIFORM_SIDE("rhs_"),
     .kernels = KERNEL("Trhs", DT(QINT8), hybrid_run)},
};
OP_FAMILY(quantized_uniform, rows);
