/* Layers on quantized numbers: sums, products, bias, normalization, and what only moves numbers.
 *
 * Sums and products of bytes are 32-bit numbers over a range wide enough for them (quantized.h). Where TensorFlow's own
 * broadcasting knows a vector along the last dimensions alone, so does this. */
#include <stdlib.h>
#include <string.h>

#include "ops/quantized/quantized.h"

/* ---- two operands ---- */

struct quantized_operand {
  const struct tensor *t;
  float lo, hi;
};

/* The shape of both; which is repeated along the other: is a number, or a vector of its last dimensions. */
static shoal_status pair_in(struct kernel_ctx *ctx, struct quantized_operand *large, struct quantized_operand *small) {
  struct quantized_operand x = {.t = ctx_in(ctx, 0)}, y = {.t = ctx_in(ctx, 1)};
  static const char *const names[] = {"min_x", "max_x", "min_y", "max_y"};
  float *ends[] = {&x.lo, &x.hi, &y.lo, &y.hi};
  for (int i = 0; i < 4; i++) {
    if (ctx_in(ctx, 2 + i)->rank)
      return INVALID("`%s` must be rank 0 but is rank %d", names[i], ctx_in(ctx, 2 + i)->rank);
    TRY(range_in(ctx, 2 + i, names[i], ends[i]));
  }
  if (!(x.hi > x.lo)) return INVALID("max_x must be larger than min_x.");
  if (!(y.hi > y.lo)) return INVALID("max_y must be larger than min_y.");
  bool swap = x.t->n < y.t->n || (x.t->n == y.t->n && x.t->rank < y.t->rank);
  *large = swap ? y : x;
  *small = swap ? x : y;
  const struct tensor *a = large->t, *b = small->t;
  bool fits = b->rank <= a->rank;
  int first = 0;
  while (first < b->rank && b->dims[first] == 1) first++;
  for (int i = first; fits && i < b->rank; i++) fits = b->dims[i] == a->dims[a->rank - b->rank + i];
  if (!b->n && a->n) return INVALID("Must have some elements to add or multiply");
  if (fits) return NULL;
  for (int i = 1; i <= a->rank && i <= b->rank; i++) {
    int64_t m = a->dims[a->rank - i], n = b->dims[b->rank - i];
    if (m != n && m != 1 && n != 1)
      return INVALID("Incompatible shapes: %s vs. %s", tensor_shape_str(x.t), tensor_shape_str(y.t));
  }
  return UNIMPLEMENTED("Broadcast between %s and %s is not supported yet.", tensor_shape_str(x.t),
                       tensor_shape_str(y.t));
}

static shoal_status pair_out(struct kernel_ctx *ctx, const struct quantized_operand *large, struct tensor **out,
                             float lo, float hi) {
  struct shape s = tensor_shape(large->t);
  TRY(ctx_out(ctx, 0, &s, out));
  TRY(range_out(ctx, 1, lo));
  return range_out(ctx, 2, hi);
}

/* Bytes over one range as 32-bit numbers over another: that of 0, and what each step adds. */
struct widening {
  int64_t zero, step;
};

static struct widening widen(const struct quantized_operand *x, float lo, float hi) {
  int64_t zero = level_of(&levels_qint32, level_value(&levels_quint8, 0, x->lo, x->hi), lo, hi);
  int64_t one = level_of(&levels_qint32, level_value(&levels_quint8, 1, x->lo, x->hi), lo, hi);
  return (struct widening){zero, (int32_t)(uint32_t)((uint64_t)one - (uint64_t)zero)};
}

static int32_t widened(const struct widening *w, uint8_t v) { return level_clamped(w->zero + v * w->step); }

static shoal_status add_run(struct kernel_ctx *ctx) {
  struct quantized_operand a, b;
  TRY(pair_in(ctx, &a, &b));
  float least = fminf(a.lo, b.lo), most = fmaxf(a.hi, b.hi), range = fmaxf(fabsf(least), fabsf(most)) * (1 << 14);
  struct tensor *z;
  TRY(pair_out(ctx, &a, &z, -range, range));
  struct widening wa = widen(&a, -range, range), wb = widen(&b, -range, range);
  const uint8_t *x = a.t->data, *y = b.t->data;
  int32_t one = 0; /* a single number goes by way of its float */
  if (b.t->n == 1 && a.t->n)
    one = level_clamped(level_of(&levels_qint32, level_value(&levels_quint8, y[0], b.lo, b.hi), -range, range));
  for (int64_t i = 0; i < a.t->n; i++) {
    int32_t other = b.t->n == 1 ? one : widened(&wb, y[i % b.t->n]);
    T_DATA(z, int32_t)[i] = (int32_t)((uint32_t)widened(&wa, x[i]) + (uint32_t)other);
  }
  return NULL;
}

static shoal_status mul_run(struct kernel_ctx *ctx) {
  struct quantized_operand a, b;
  TRY(pair_in(ctx, &a, &b));
  float level = product_level(&levels_quint8, a.lo, a.hi, &levels_quint8, b.lo, b.hi);
  struct tensor *z;
  TRY(pair_out(ctx, &a, &z, level * (float)INT32_MIN, level * (float)INT32_MAX));
  uint32_t za = (uint32_t)zero_of(&levels_quint8, a.lo, a.hi), zb = (uint32_t)zero_of(&levels_quint8, b.lo, b.hi);
  const uint8_t *x = a.t->data, *y = b.t->data;
  for (int64_t i = 0; i < a.t->n; i++) T_DATA(z, int32_t)[i] = (int32_t)((x[i] - za) * (y[i % b.t->n] - zb));
  return NULL;
}

static shoal_status bias_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *bias = ctx_in(ctx, 1);
  static const char *const names[] = {"min_input", "max_input", "min_bias", "max_bias"};
  float end[4];
  for (int i = 0; i < 4; i++) TRY(range_in(ctx, 2 + i, names[i], &end[i]));
  if (x->rank < 2) return INVALID("Input tensor must be at least 2D: %s", tensor_shape_str(x));
  if (bias->rank != 1) return INVALID("Biases must be 1D: %s", tensor_shape_str(bias));
  if (bias->n != x->dims[x->rank - 1])
    return INVALID("Must provide as many biases as the last dimension of the input tensor: %s vs. %s",
                   tensor_shape_str(bias), tensor_shape_str(x));
  if (!bias->n) return INVALID("Must provide at least 1 bias");
  float range = fmaxf(end[1], fmaxf(-end[0], fmaxf(end[3], -end[2]))) * (1 << 17);
  struct tensor *y;
  struct shape s = tensor_shape(x);
  TRY(ctx_out(ctx, 0, &s, &y));
  const struct levels *l = levels_of((shoal_dtype)x->dtype);
  struct level_line in = line_to_float(l, end[0], end[1]), by = line_to_float(l, end[2], end[3]);
  struct level_line to = line_from_float(&levels_qint32, -range, range);
  int32_t zero = level_clamped(level_of(&levels_qint32, 0, -range, range));
  for (int64_t i = 0; i < x->n; i++) {
    int32_t a = line_level(&to, line_value(&in, level_at(x, i)));
    int32_t b = line_level(&to, line_value(&by, level_at(bias, i % bias->n)));
    T_DATA(y, int32_t)[i] = (int32_t)((uint32_t)a + (uint32_t)b + (uint32_t)zero);
  }
  TRY(range_out(ctx, 1, -range));
  return range_out(ctx, 2, range);
}

/* ---- instance normalization ---- */

struct quantized_norm_state {
  bool given;
  float lo, hi, epsilon, separation;
};

static shoal_status norm_init(struct kernel_init *ki, void *state) {
  struct quantized_norm_state *st = state;
  TRY(node_get_bool(ki->node, "output_range_given", &st->given));
  TRY(node_get_float(ki->node, "given_y_min", &st->lo));
  TRY(node_get_float(ki->node, "given_y_max", &st->hi));
  TRY(node_get_float(ki->node, "variance_epsilon", &st->epsilon));
  TRY(node_get_float(ki->node, "min_separation", &st->separation));
  if (st->given && !(st->lo < st->hi))
    return INVALID("given_y_min must be less than given_y_max : %g >= %g", (double)st->lo, (double)st->hi);
  return NULL;
}

/* Each channel of each image, less its mean, by its deviation: into y. */
static void normalize(const struct tensor *x, float scale, float epsilon, float *y) {
  int64_t pixels = x->dims[1] * x->dims[2], depth = x->dims[3];
  const uint8_t *in = x->data;
  for (int64_t i = 0; i < x->dims[0] * depth; i++) {
    int64_t first = i / depth * pixels * depth + i % depth;
    double sum = 0, squares = 0;
    for (int64_t p = 0; p < pixels; p++) sum += in[first + p * depth];
    float mean = (float)(sum / (double)pixels);
    for (int64_t p = 0; p < pixels; p++) {
      double d = (double)(scale * ((float)in[first + p * depth] - mean));
      squares += d * d;
    }
    float by = 1.0f / sqrtf((float)(squares / (double)pixels) + epsilon);
    for (int64_t p = 0; p < pixels; p++) y[first + p * depth] = scale * ((float)in[first + p * depth] - mean) * by;
  }
}

static shoal_status norm_run(struct kernel_ctx *ctx) {
  const struct quantized_norm_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  float in_lo, in_hi, lo = st->lo, hi = st->hi;
  static const char *const names[] = {"", "x_min", "x_max"};
  for (int i = 1; i < 3; i++)
    if (ctx_in(ctx, i)->rank) return INVALID("`%s` must be rank 0 but is rank %d", names[i], ctx_in(ctx, i)->rank);
  TRY(range_in(ctx, 1, "x_min", &in_lo));
  TRY(range_in(ctx, 2, "x_max", &in_hi));
  if (!(in_lo < in_hi))
    return INVALID("input_min must be less than input_max : %g >= %g", (double)in_lo, (double)in_hi);
  if (x->rank != 4) return INVALID("x must be rank 4 but is rank %d", x->rank);
  struct shape s = tensor_shape(x);
  struct tensor *y, normed;
  TRY(ctx_out(ctx, 0, &s, &y));
  TRY(tensor_new(&normed, SHOAL_FLOAT32, &s));
  float *v = normed.data;
  normalize(x, (in_hi - in_lo) / 255.0f, st->epsilon, v);
  if (!st->given) {
    lo = INFINITY, hi = -INFINITY;
    for (int64_t i = 0; i < x->n; i++) {
      lo = fminf(lo, v[i]);
      hi = fmaxf(hi, v[i]);
    }
  }
  if (hi - lo < st->separation) hi = lo + st->separation;
  struct level_line to = line_from_float(&levels_quint8, lo, hi);
  for (int64_t i = 0; i < x->n; i++) T_DATA(y, uint8_t)[i] = (uint8_t)line_level(&to, v[i]);
  tensor_release(&normed);
  TRY(range_out(ctx, 1, lo));
  return range_out(ctx, 2, hi);
}

/* ---- batch normalization ---- */

struct batch_norm_state {
  float epsilon;
  bool scaled;
};

static shoal_status batch_norm_init(struct kernel_init *ki, void *state) {
  struct batch_norm_state *st = state;
  TRY(node_get_float(ki->node, "variance_epsilon", &st->epsilon));
  return node_get_bool(ki->node, "scale_after_normalization", &st->scaled);
}

/* x * scale + offset by channel, in fixed point: numbers over +-2^20, which is eleven bits behind the point. */
static shoal_status batch_norm_run(struct kernel_ctx *ctx) {
  enum { INPUT, MEAN, VARIANCE, BETA, GAMMA, OPERANDS };
  static const char *const names[] = {"input", "mean", "var", "beta", "gamma"};
  const struct batch_norm_state *st = ctx->state;
  const float range = 1 << 20;
  struct quantized_operand in[OPERANDS];
  for (int i = 0; i < OPERANDS; i++) {
    in[i].t = ctx_in(ctx, 3 * i);
    TRY(range_in(ctx, 3 * i + 1, names[i], &in[i].lo));
    TRY(range_in(ctx, 3 * i + 2, names[i], &in[i].hi));
    int rank = i == INPUT ? 4 : 1;
    if (in[i].t->rank != rank) return INVALID("%s must be %d-dimensional%s", names[i], rank, tensor_shape_str(in[i].t));
    if (i != INPUT && in[i].t->n != in[INPUT].t->dims[3])
      return INVALID("%s must have as many elements as the input's last dimension: %s vs. %s", names[i],
                     tensor_shape_str(in[i].t), tensor_shape_str(in[INPUT].t));
  }
  const struct tensor *x = in[INPUT].t;
  int64_t depth = x->dims[3];
  if (depth < 2)
    return INVALID("Must have at least a mean value%s", tensor_shape_str(in[MEAN].t)); /* TensorFlow's bound */
  struct shape s = tensor_shape(x);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  int32_t one = level_clamped(level_of(&levels_qint32, 1, -range, range));
  for (int64_t c = 0; c < depth; c++) {
    float v[OPERANDS];
    for (int i = MEAN; i < OPERANDS; i++) v[i] = level_value(&levels_quint8, level_at(in[i].t, c), in[i].lo, in[i].hi);
    float scale = 1.0f / sqrtf(v[VARIANCE] + st->epsilon);
    if (st->scaled) scale *= v[GAMMA];
    uint32_t by = (uint32_t)level_clamped(level_of(&levels_qint32, scale, -range, range));
    uint32_t add = (uint32_t)level_clamped(level_of(&levels_qint32, -v[MEAN] * scale + v[BETA], -range, range));
    for (int64_t i = c; i < x->n; i += depth) {
      float value = level_value(&levels_quint8, level_at(x, i), in[INPUT].lo, in[INPUT].hi);
      uint32_t q = (uint32_t)level_clamped(level_of(&levels_qint32, value, -range, range));
      T_DATA(y, int32_t)[i] = (int32_t)((uint32_t)((int32_t)(q * by) / one) + add);
    }
  }
  TRY(range_out(ctx, 1, -range));
  return range_out(ctx, 2, range);
}

/* ---- numbers that only move ---- */

static shoal_status reshape_run(struct kernel_ctx *ctx) {
  struct shape s;
  TRY(reshape_size(ctx_in(ctx, 0), ctx_in(ctx, 1), &s));
  float lo, hi;
  TRY(range_in(ctx, 2, "input_min", &lo));
  TRY(range_in(ctx, 3, "input_max", &hi));
  TRY(ctx_forward(ctx, 0, 0, &s));
  TRY(range_out(ctx, 1, lo));
  return range_out(ctx, 2, hi);
}

static shoal_status reshape_shape(struct shape_ctx *c) {
  TRY(shape_in_value(c, 1, &c->out[0]));
  for (int i = 0; i < c->out[0].rank; i++) c->out[0].dims[i] = MAX(c->out[0].dims[i], -1);
  return ranges_shape(c);
}

/* Numbers of several ranges brought to that of all of them, and joined. */
static shoal_status concat_run(struct kernel_ctx *ctx) {
  int n = (ctx->kernel->n_in - 1) / 3;
  const struct tensor *axis_in = ctx_in(ctx, 0), *first = ctx_in(ctx, 1);
  if (axis_in->rank)
    return INVALID("Concat dim tensor should be a scalar integer, but got shape %s", tensor_shape_str(axis_in));
  int64_t axis = int_at(axis_in, 0);
  if (axis < 0 || axis >= first->rank)
    return INVALID("ConcatOp : Expected concatenating dimensions in the range [0, %d), but got %" PRId64, first->rank,
                   axis);
  struct shape s = tensor_shape(first);
  float lo = INFINITY, hi = -INFINITY, e[2];
  s.dims[axis] = 0;
  for (int i = 0; i < n; i++) {
    const struct tensor *t = ctx_in(ctx, 1 + i);
    TRY(range_in(ctx, 1 + n + i, "input_mins", &e[0]));
    TRY(range_in(ctx, 1 + 2 * n + i, "input_maxes", &e[1]));
    lo = fminf(lo, e[0]);
    hi = fmaxf(hi, e[1]);
    bool same = t->rank == first->rank;
    for (int d = 0; same && d < t->rank; d++) same = d == axis || t->dims[d] == first->dims[d];
    if (!same)
      return INVALID("ConcatOp : Dimensions of inputs should match: shape[0] = %s vs. shape[%d] = %s",
                     tensor_shape_str(first), i, tensor_shape_str(t));
    if (__builtin_add_overflow(s.dims[axis], t->dims[axis], &s.dims[axis])) return INVALID("The result is too large");
  }
  if (first->dtype == SHOAL_QINT32) hi = fmaxf(fabsf(lo), fabsf(hi)), lo = -hi; /* zero in the middle */
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  const struct levels *l = levels_of((shoal_dtype)first->dtype);
  struct level_line to = line_from_float(l, lo, hi);
  int64_t outer = dims_product(s.dims, 0, (int)axis), inner = dims_product(s.dims, (int)axis + 1, s.rank), at = 0;
  for (int i = 0; i < n; i++) {
    const struct tensor *t = ctx_in(ctx, 1 + i);
    float in_lo = *T_DATA(ctx_in(ctx, 1 + n + i), const float),
          in_hi = *T_DATA(ctx_in(ctx, 1 + 2 * n + i), const float);
    struct level_line in = line_to_float(l, in_lo, in_hi);
    int64_t row = t->dims[axis] * inner;
    for (int64_t k = 0; k < outer * row; k++) {
      int32_t v = level_at(t, k);
      if (in_lo != lo || in_hi != hi) v = line_level(&to, line_value(&in, v));
      level_put(y, k / row * s.dims[axis] * inner + at + k % row, v);
    }
    at += row;
  }
  TRY(range_out(ctx, 1, lo));
  return range_out(ctx, 2, hi);
}

/* ---- rows ---- */

#define PAIR(name_, run_)                                                                                      \
  {                                                                                                            \
    .name = name_, .flags = OP_NO_GRADIENT, .shape = ranges_shape,                                             \
    .in = "x: T1, y: T2, min_x: float, max_x: float, min_y: float, max_y: float",                              \
    .out = "z: Toutput, min_z: float, max_z: float", .attrs = "T1: " Q "; T2: " Q "; Toutput: " Q " = qint32", \
    .kernels = ONE_KERNEL(BYTES("T1", "T2"), .run = run_)                                                      \
  }

static const struct op_row rows[] = {
    PAIR("QuantizedAdd", add_run),
    PAIR("QuantizedMul", mul_run),
    {.name = "QuantizedBiasAdd",
     .flags = OP_NO_GRADIENT,
     .shape = like_shape,
     .in = "input: T1, bias: T2, min_input: float, max_input: float, min_bias: float, max_bias: float",
     .out = "output: out_type, min_out: float, max_out: float",
     .attrs = "T1: " Q "; T2: " Q "; out_type: " Q,
     .kernels = (const struct kernel_def[]){{.device = "CPU", BYTES("T1", "T2"), .run = bias_run},
                                            {.device = "CPU",
                                             .type_attr = "T1",
                                             .types = DT(QINT8),
                                             .type_attr2 = "T2",
                                             .types2 = DT(QINT8),
                                             .run = bias_run},
                                            {0}}},
    {.name = "QuantizedInstanceNorm",
     .flags = OP_NO_GRADIENT,
     .shape = like_shape,
     .in = "x: T, x_min: float, x_max: float",
     .out = "y: T, y_min: float, y_max: float",
     .attrs = "T: " Q "; output_range_given: bool = false; given_y_min: float = 0; given_y_max: float = 0; "
              "variance_epsilon: float = 0.00001; min_separation: float = 0.001",
     .kernels = ONE_KERNEL(.type_attr = "T", .types = DT(QUINT8), .state_size = sizeof(struct quantized_norm_state),
                           .init = norm_init, .run = norm_run)},
    {.name = "QuantizedBatchNormWithGlobalNormalization",
     .flags = OP_NO_GRADIENT,
     .shape = like_shape,
     .in = "t: Tinput, t_min: float, t_max: float, m: Tinput, m_min: float, m_max: float, v: Tinput, v_min: float, "
           "v_max: float, beta: Tinput, beta_min: float, beta_max: float, gamma: Tinput, gamma_min: float, gamma_max: "
           "float",
     .out = "result: out_type, result_min: float, result_max: float",
     .attrs = "Tinput: " Q "; out_type: " Q "; variance_epsilon: float; scale_after_normalization: bool",
     .kernels =
         ONE_KERNEL(.type_attr = "Tinput", .types = DT(QUINT8), .type_attr2 = "out_type", .types2 = DT(QINT32),
                    .state_size = sizeof(struct batch_norm_state), .init = batch_norm_init, .run = batch_norm_run)},
    {.name = "QuantizedReshape",
     .flags = OP_NO_GRADIENT,
     .shape = reshape_shape,
     .in = "tensor: T, shape: Tshape, input_min: float, input_max: float",
     .out = "output: T, output_min: float, output_max: float",
     .attrs = "T: type; Tshape: {int32, int64} = int32",
     .kernels = ONE_KERNEL(.type_attr = "T", .types = DT(QUINT8) | DT(QINT32), .run = reshape_run)},
    {.name = "QuantizedConcat",
     .flags = OP_NO_GRADIENT,
     .shape = ranges_shape,
     .in = "concat_dim: int32, values: N * T, input_mins: N * float, input_maxes: N * float",
     .out = "output: T, output_min: float, output_max: float",
     .attrs = "N: int >= 2; T: type",
     .kernels = ONE_KERNEL(.type_attr = "T", .types = DT(QUINT8) | DT(QINT32), .run = concat_run)},
};
OP_FAMILY(quantized_nn, rows);
