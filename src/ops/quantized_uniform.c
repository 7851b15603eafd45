/* Arithmetic on numbers with a scale and a zero point (value = scale * (integer - zero point)): UniformRequantize, and
 * sums and products whose results have a scale of their own.
 *
 * A ratio of scales is a 31-bit fraction and a power of two, so that the rest is integers: x * fraction, rounded once,
 * shifted. Scales and zero points are one for a tensor or one for each slice along an axis. UniformQuantizedDotHybrid
 * brings each row of floats to 8 bits over the range that it uses, zero included. */
#include <stdlib.h>
#include <string.h>

#include "ops/quantized.h"

struct side {
  int64_t axis, least, most;
};

struct uniform_state {
  struct side lhs, rhs, out; /* lhs: the one input of UniformRequantize */
};

/* ---- scales ---- */

/* A number's multiplier: x * fraction / 2^(31 - shift). */
struct ratio {
  int32_t fraction;
  int shift;
};

static shoal_status ratio_of(double v, struct ratio *out) {
  if (!isfinite(v) || v <= 0) return INVALID("The ratio of scales must be a positive finite number, given %g", v);
  int shift;
  int64_t fraction = (int64_t)round(frexp(v, &shift) * 2147483648.0);
  if (fraction == (int64_t)1 << 31) {
    fraction /= 2;
    shift++;
  }
  if (shift < -31) shift = 0, fraction = 0; /* nothing is left of any number */
  if (shift > 30) shift = 30, fraction = INT32_MAX;
  *out = (struct ratio){(int32_t)fraction, shift};
  return NULL;
}

static int32_t times(struct ratio r, int32_t x) {
  int by = 31 - r.shift;
  return level_clamped(((int64_t)x * r.fraction + ((int64_t)1 << (by - 1))) >> by);
}

static int32_t requantized(struct ratio r, int32_t x, int32_t zero_in, int32_t zero_out, const struct side *to) {
  int32_t v = times(r, (int32_t)((uint32_t)x - (uint32_t)zero_in));
  v = (int32_t)((uint32_t)v + (uint32_t)zero_out);
  return (int32_t)MAX(to->least, MIN((int64_t)v, to->most));
}

/* Scales and zero points of a tensor of that shape, by axis. */
struct scale {
  const float *scales;
  const int32_t *zeros;
  int64_t n, inner; /* how many, and how many elements a slice has */
};

static shoal_status scale_in(const struct kernel_ctx *ctx, int i, const struct shape *s, int64_t axis,
                             struct scale *out) {
  const struct tensor *scales = ctx_in(ctx, i), *zeros = ctx_in(ctx, i + 1);
  if (axis < -1 || axis >= s->rank)
    return INVALID("quantization_axis %" PRId64 " is out of range for rank %d", axis, s->rank);
  int rank = axis < 0 ? 0 : 1;
  *out = (struct scale){scales->data, zeros->data, axis < 0 ? 1 : s->dims[axis],
                        axis < 0 ? 1 : dims_product(s->dims, (int)axis + 1, s->rank)};
  if (scales->rank != rank || zeros->rank != rank || scales->n != out->n || zeros->n != out->n)
    return INVALID("scales and zero_points must be %s: %s, %s", rank ? "vectors, of the axis' dimension" : "scalars",
                   tensor_shape_str(scales), tensor_shape_str(zeros));
  for (int64_t k = 0; k < out->n; k++)
    if (!(out->scales[k] > 0)) return INVALID("scales elements must be all positive.");
  return NULL;
}

static int64_t slice_of(const struct scale *s, int64_t i) { return s->n == 1 ? 0 : i / MAX(s->inner, 1) % s->n; }

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

static shoal_status read_side(const struct node *n, const char *prefix, struct side *out) {
  static const char *const names[] = {"axis", "min_val", "max_val"};
  int64_t *to[] = {&out->axis, &out->least, &out->most};
  for (int i = 0; i < 3; i++) {
    char *name = mem_printf("%s_quantization_%s", prefix, names[i]);
    shoal_status s = node_attr(n, name) ? node_get_int(n, name, to[i]) : NULL;
    free(name);
    TRY(s);
  }
  if (out->axis < -1) return INVALID("quantization_axis must be at least -1, given: %" PRId64, out->axis);
  if (out->least < INT32_MIN || out->most > INT32_MAX)
    return INVALID("quantization_min_val or _max_val is out of range");
  return NULL;
}

static shoal_status init(struct kernel_init *ki, void *state) {
  struct uniform_state *s = state;
  s->lhs.axis = s->rhs.axis = s->out.axis = -1;
  TRY(read_side(ki->node, op_is(ki->node->op, "UniformRequantize") ? "input" : "lhs", &s->lhs));
  TRY(read_side(ki->node, "rhs", &s->rhs));
  TRY(read_side(ki->node, "output", &s->out));
  if (!strstr(ki->node->op->name, "Dot")) return NULL;
  if (s->lhs.axis != -1) return INVALID("lhs_quantization_axis Attr must be -1 (per-tensor).");
  if ((s->rhs.axis != -1 && s->rhs.axis != 1) || (s->out.axis != -1 && s->out.axis != 1))
    return INVALID("rhs_ and output_quantization_axis Attr must be 1 (per-channel) or -1 (per-tensor).");
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
  struct side within = st->out;
  if (ctx_out_type(ctx, 0) == SHOAL_QINT8)
    within.least = MAX(within.least, INT8_MIN), within.most = MIN(within.most, INT8_MAX);
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

/* Where element i of the result is in an operand. */
static int64_t place_in(const struct shape *s, int64_t i, const struct tensor *t) {
  int64_t at = 0, step = 1;
  for (int d = s->rank - 1; d >= 0; d--) {
    int64_t k = i % s->dims[d];
    int own = d - (s->rank - t->rank);
    i /= s->dims[d];
    if (own < 0) continue;
    if (t->dims[own] > 1) at += k * step;
    step *= t->dims[own];
  }
  return at;
}

static shoal_status add_run(struct kernel_ctx *ctx) {
  const struct uniform_state *st = ctx->state;
  const struct tensor *in[2] = {ctx_in(ctx, 0), ctx_in(ctx, 1)};
  const struct side *sides[2] = {&st->lhs, &st->rhs};
  struct shape s = {.rank = MAX(in[0]->rank, in[1]->rank)};
  for (int d = 0; d < s.rank; d++) {
    int64_t v[2];
    for (int k = 0; k < 2; k++) v[k] = d < s.rank - in[k]->rank ? 1 : in[k]->dims[d - (s.rank - in[k]->rank)];
    if (v[0] != v[1] && v[0] != 1 && v[1] != 1)
      return INVALID("Cannot Add tensors of shapes: %s%s", tensor_shape_str(in[0]), tensor_shape_str(in[1]));
    s.dims[d] = v[0] == 1 ? v[1] : v[0];
  }
  struct scale own[2], to;
  struct ratio *r[2] = {NULL, NULL};
  TRY(scale_in(ctx, 6, &s, st->out.axis, &to));
  for (int k = 0; k < 2; k++) {
    struct shape shape = tensor_shape(in[k]);
    TRY(scale_in(ctx, 2 + 2 * k, &shape, sides[k]->axis, &own[k]));
    if (sides[k]->axis >= 0 && st->out.axis >= 0 && in[k]->rank - sides[k]->axis != s.rank - st->out.axis)
      return INVALID("If operands and output are per-axis quantized, the quantization axis must match.");
    if (own[k].n > 1 && to.n > 1 && own[k].n != to.n)
      return INVALID("Operands and output are quantized along dimensions of different sizes");
  }
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  shoal_status bad = ratios_of(&own[0], &to, &r[0]);
  if (!bad) bad = ratios_of(&own[1], &to, &r[1]);
  static const struct side whole = {-1, INT32_MIN, INT32_MAX};
  for (int64_t i = 0; !bad && i < y->n; i++) {
    int64_t slice = slice_of(&to, i);
    uint32_t sum = (uint32_t)to.zeros[slice];
    for (int k = 0; k < 2; k++) {
      int64_t at = place_in(&s, i, in[k]), mine = slice_of(&own[k], at);
      sum +=
          (uint32_t)requantized(r[k][own[k].n > 1 ? mine : slice], level_at(in[k], at), own[k].zeros[mine], 0, &whole);
    }
    T_DATA(y, int32_t)[i] = (int32_t)MAX(st->out.least, MIN((int64_t)(int32_t)sum, st->out.most));
  }
  free(r[0]);
  free(r[1]);
  return bad;
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

/* A row of floats as bytes over the range it uses: their scale and zero point. */
static void quantize_row(const float *x, int64_t n, int8_t *to, float *scale, int32_t *zero) {
  float least = 0, most = 0;
  for (int64_t i = 0; i < n; i++) least = fminf(least, x[i]), most = fmaxf(most, x[i]);
  double lo = (double)least, hi = (double)most;
  float inverse = hi - lo != 0 ? (float)(255.0 / (hi - lo)) : 0;
  *scale = (float)((hi - lo) / 255.0);
  *zero = 0;
  if (*scale == 0 || !isfinite(inverse)) {
    memset(to, 0, (size_t)n);
    *scale = 1;
    return;
  }
  double from_lo = -128.0 - lo / (double)*scale, from_hi = 127.0 - hi / (double)*scale;
  double error_lo = 128.0 + fabs(lo / (double)*scale), error_hi = 127.0 + fabs(hi / (double)*scale);
  double z = error_lo < error_hi ? from_lo : from_hi;
  *zero = z <= -128 ? -128 : z >= 127 ? 127 : (int32_t)round(z);
  for (int64_t i = 0; i < n; i++) {
    int64_t q = level_int((double)floorf(x[i] * inverse + 0.5f)) + *zero;
    to[i] = (int8_t)MAX(-128, MIN(q, 127));
  }
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
    float scale;
    int32_t zero;
    quantize_row(T_DATA(a, const float) + i * a->dims[1], a->dims[1], row, &scale, &zero);
    for (int64_t c = 0; c < s.dims[1]; c++) {
      int64_t k = by.n == 1 ? 0 : c;
      T_DATA(y, float)[i * s.dims[1] + c] = (float)dot(row, zero, b, c, by.zeros[k]) * scale * by.scales[k];
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
#define SIDE(name) \
  name "_quantization_axis: int = -1; " name "_quantization_min_val: int; " name "_quantization_max_val: int"
#define SCALES(name) name "_scales: float, " name "_zero_points: int32"

static const struct op_row rows[] = {
    {.name = "UniformRequantize",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .in = "input: Tin, " SCALES("input") ", " SCALES("output"),
     .out = "output: Tout",
     .attrs = "Tin: {qint8, qint32}; Tout: {qint8, qint32}; " SIDE("input") "; " SIDE("output"),
     .kernels = KERNEL("Tout", DT(QINT8), requantize_run)},
    {.name = "UniformQuantizedAdd",
     .flags = OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .in = "lhs: T, rhs: T, " SCALES("lhs") ", " SCALES("rhs") ", " SCALES("output"),
     .out = "output: T",
     .attrs = SIDE("lhs") "; " SIDE("rhs") "; " SIDE("output") "; T: {qint32}",
     .kernels = KERNEL("T", DT(QINT32), add_run)},
    {.name = "UniformQuantizedDot",
     .flags = OP_NO_GRADIENT,
     .shape = dot_shape,
     .in = "lhs: Tin, rhs: Tin, " SCALES("lhs") ", " SCALES("rhs") ", " SCALES("output"),
     .out = "output: Tout",
     .attrs = "Tin: {qint8}; Tout: {qint32}; " SIDE("lhs") "; " SIDE("rhs") "; " SIDE("output"),
     .kernels = KERNEL("Tin", DT(QINT8), dot_run)},
    {.name = "UniformQuantizedDotHybrid",
     .flags = OP_NO_GRADIENT,
     .shape = dot_shape,
     .in = "lhs: Tlhs, rhs: Trhs, " SCALES("rhs"),
     .out = "output: Tout",
     .attrs = "Tlhs: {float}; Trhs: {qint8}; Tout: {float}; " SIDE("rhs"),
     .kernels = KERNEL("Trhs", DT(QINT8), hybrid_run)},
};
OP_FAMILY(quantized_uniform, rows);
