/* QuantizeV2 and Dequantize: floats to small integers over a range, and back. The range is one for the tensor, or one
 * for each slice along an axis.
 *
 * Three modes. MIN_COMBINED spreads the range over all values of the type; MIN_FIRST does too, but rounds the smallest
 * value to a step, so that zero is exact; SCALED only multiplies, so that zero is zero. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/nn/nn_util.h"

enum quantize_mode { MIN_COMBINED, MIN_FIRST, SCALED };

struct quantize_state {
  enum quantize_mode mode;
  bool to_even, narrow;
  int64_t axis;
  float least_range;
};

/* What a quantized type holds. */
struct type_range {
  double lo, hi, half; /* half: what is added to a signed value to count from zero */
};

static struct type_range limits_of(shoal_dtype t) {
  switch (t) {
    case SHOAL_QINT8: return (struct type_range){INT8_MIN, INT8_MAX, 128};
    case SHOAL_QUINT8: return (struct type_range){0, UINT8_MAX, 0};
    case SHOAL_QINT16: return (struct type_range){INT16_MIN, INT16_MAX, 32768};
    case SHOAL_QUINT16: return (struct type_range){0, UINT16_MAX, 0};
    default: return (struct type_range){INT32_MIN, INT32_MAX, 2147483648.0};
  }
}

/* v, already rounded, is cut to what the type and a float can hold; what is not a number becomes the least. */
static void put_quantized(struct tensor *t, int64_t i, float v) {
  struct type_range l = limits_of((shoal_dtype)t->dtype);
  float lo = (float)l.lo, hi = fminf((float)l.hi, 2147483520.0f);
  int32_t q = (int32_t)(v >= hi ? hi : v > lo ? v : lo);
  switch (t->dtype) {
    case SHOAL_QINT8: T_DATA(t, int8_t)[i] = (int8_t)q; break;
    case SHOAL_QUINT8: T_DATA(t, uint8_t)[i] = (uint8_t)q; break;
    case SHOAL_QINT16: T_DATA(t, int16_t)[i] = (int16_t)q; break;
    case SHOAL_QUINT16: T_DATA(t, uint16_t)[i] = (uint16_t)q; break;
    default: T_DATA(t, int32_t)[i] = q;
  }
}

static int32_t get_quantized(const struct tensor *t, int64_t i) {
  switch (t->dtype) {
    case SHOAL_QINT8: return T_DATA(t, const int8_t)[i];
    case SHOAL_QUINT8: return T_DATA(t, const uint8_t)[i];
    case SHOAL_QINT16: return T_DATA(t, const int16_t)[i];
    case SHOAL_QUINT16: return T_DATA(t, const uint16_t)[i];
    default: return T_DATA(t, const int32_t)[i];
  }
}

static shoal_status read_mode(const struct shoal_node *n, struct quantize_state *st) {
  const char *mode;
  TRY(node_get_string(n, "mode", &mode));
  st->mode = !strcmp(mode, "MIN_COMBINED") ? MIN_COMBINED : !strcmp(mode, "MIN_FIRST") ? MIN_FIRST : SCALED;
  TRY(node_get_bool(n, "narrow_range", &st->narrow));
  return node_get_int(n, "axis", &st->axis);
}

static shoal_status quantize_init(struct kernel_init *ki, void *state) {
  struct quantize_state *st = state;
  const char *rounding, *mode;
  TRY(read_mode(ki->node, st));
  TRY(node_get_string(ki->node, "mode", &mode));
  TRY(node_get_string(ki->node, "round_mode", &rounding));
  TRY(node_get_float(ki->node, "ensure_minimum_range", &st->least_range));
  st->to_even = !strcmp(rounding, "HALF_TO_EVEN");
  if (st->to_even && st->mode != SCALED)
    return INVALID("Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '%s'.", mode);
  return NULL;
}

static shoal_status dequantize_init(struct kernel_init *ki, void *state) {
  struct quantize_state *st = state;
  shoal_dtype to;
  TRY(read_mode(ki->node, st));
  TRY(node_get_type(ki->node, "dtype", &to));
  if (to == SHOAL_BFLOAT16 && st->mode != MIN_COMBINED)
    return INVALID("When output type is bfloat16, Mode string must be 'MIN_COMBINED', is '%s'",
                   st->mode == SCALED ? "SCALED" : "MIN_FIRST");
  return NULL;
}

/* How often a slice comes, how many there are, how long one is. */
struct axis_slices {
  int64_t outer, n, inner;
};

static struct axis_slices slices_of(const struct tensor *x, int64_t axis) {
  if (axis < 0) return (struct axis_slices){1, 1, x->n};
  return (struct axis_slices){dims_product(x->dims, 0, (int)axis), x->dims[axis],
                              dims_product(x->dims, (int)axis + 1, x->rank)};
}

/* ---- QuantizeV2 ---- */

static shoal_status check_range(const struct tensor *x, const struct tensor *r, const char *name, int64_t axis) {
  if (axis < 0) {
    if (r->n != 1)
      return INVALID("If axis is not specified, %s must contain a single float element, but it contains %" PRId64
                     " elements",
                     name, r->n);
    return NULL;
  }
  if (r->rank != 1)
    return INVALID(
        "If axis is specified, %s must be a 1-D tensor whose size matches the axis dimension of the input "
        "and output tensors, but %s dims are %d",
        name, name, r->rank);
  if (r->n != x->dims[axis])
    return INVALID(
        "If axis is specified, %s must be a 1-D tensor whose size matches the axis dimension of the input "
        "and output tensors, but %s is a 1-D tensor of size %" PRId64 " and input's axis dimension is of size %" PRId64,
        name, name, r->n, x->dims[axis]);
  return NULL;
}

/* One value to its quantum: v = (x, cut to [lo, hi], - shift) * scale - back, rounded. */
struct quantum {
  float lo, hi, scale, shift, back;
  enum { HALF_AWAY, HALF_EVEN, HALF_UP } rounding;
};

static struct quantum quantum_of(const struct quantize_state *st, shoal_dtype type, float *lo, float *hi) {
  struct type_range l = limits_of(type);
  struct quantum q = {.rounding = st->to_even ? HALF_EVEN : HALF_AWAY};
  if (st->mode == MIN_COMBINED) {
    q.scale = (float)((l.hi - l.lo) / (double)(*hi - *lo));
    q.shift = *lo;
    q.back = (float)l.half;
    if (l.lo == 0) q.rounding = HALF_UP;
    q.lo = *lo, q.hi = *hi;
  } else if (st->mode == MIN_FIRST) {
    double steps = l.hi - l.lo;
    q.scale = *hi == *lo ? 0 : (float)(steps / (double)(*hi - *lo));
    q.back = (*hi == *lo ? *lo : roundf(*lo * q.scale)) - (float)l.lo;
    q.lo = -INFINITY, q.hi = INFINITY;
  } else {
    float least = (float)(l.lo + (st->narrow ? 1 : 0)), most = (float)l.hi;
    float from_lo = least * *lo > 0 ? least / *lo : FLT_MAX, from_hi = most * *hi > 0 ? most / *hi : FLT_MAX;
    q.scale = fminf(from_lo, from_hi);
    *lo = least / q.scale;
    *hi = most / q.scale;
    q.lo = *lo, q.hi = *hi;
  }
  return q;
}

static float quantum_apply(const struct quantum *q, float x, enum quantize_mode mode) {
  if (mode == MIN_FIRST) return roundf(x * q->scale) - q->back;
  float v = (fmaxf(fminf(x, q->hi), q->lo) - q->shift) * q->scale;
  if (q->rounding == HALF_UP) return floorf(v + 0.5f);
  v -= q->back;
  return q->rounding == HALF_EVEN ? rintf(v) : roundf(v);
}

static shoal_status quantize_run(struct kernel_ctx *ctx) {
  const struct quantize_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *lo = ctx_in(ctx, 1), *hi = ctx_in(ctx, 2);
  int64_t axis = st->axis < 0 ? -1 : st->axis;
  if (axis >= x->rank)
    return INVALID(
        "Axis is on a zero-based index, so its value must always be less than number of input's dims, but "
        "given axis value was %" PRId64 " and input's dims was %d",
        axis, x->rank);
  TRY(check_range(x, lo, "min_range", axis));
  TRY(check_range(x, hi, "max_range", axis));
  struct axis_slices s = slices_of(x, axis);
  if (s.n != 1 && st->mode == MIN_FIRST)
    return UNIMPLEMENTED("MIN_FIRST mode is not implemented for Quantize with axis != -1.");
  struct shape shape = tensor_shape(x), range = tensor_shape(lo);
  struct tensor *y, *y_lo, *y_hi;
  TRY(ctx_out(ctx, 0, &shape, &y));
  TRY(ctx_out(ctx, 1, &range, &y_lo));
  TRY(ctx_out(ctx, 2, &range, &y_hi));
  for (int64_t k = 0; k < s.n; k++) {
    float a = T_DATA(lo, const float)[k], b = T_DATA(hi, const float)[k];
    if (b < a) return INVALID("input_max_range must be larger than input_min_range.");
    /* The range takes in zero, and is wide enough that its ends differ. */
    float least = fmaxf(1.0f, fmaxf(fabsf(a), fabsf(b))) * st->least_range;
    a = fminf(0.0f, a);
    b = fmaxf(0.0f, fmaxf(b, a + least));
    struct quantum q = quantum_of(st, (shoal_dtype)y->dtype, &a, &b);
    T_DATA(y_lo, float)[k] = a;
    T_DATA(y_hi, float)[k] = b;
    for (int64_t o = 0; o < s.outer; o++)
      for (int64_t i = (o * s.n + k) * s.inner, end = i + s.inner; i < end; i++)
        put_quantized(y, i, quantum_apply(&q, T_DATA(x, const float)[i], st->mode));
  }
  return NULL;
}

static shoal_status quantize_shape(struct shape_ctx *c) {
  int64_t axis;
  TRY(node_get_int(c->node, "axis", &axis));
  if (axis < -1) return INVALID("axis should be at least -1, got %" PRId64, axis);
  c->out[0] = c->in[0];
  c->out[1] = c->out[2] = axis < 0 ? shape_scalar() : shape_vector(-1);
  if (axis >= 0 && c->in[0].rank > axis) c->out[1].dims[0] = c->out[2].dims[0] = c->in[0].dims[axis];
  return NULL;
}

/* ---- Dequantize ---- */

static shoal_status dequantize_run(struct kernel_ctx *ctx) {
  const struct quantize_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *lo = ctx_in(ctx, 1), *hi = ctx_in(ctx, 2);
  int64_t axis = st->axis < 0 ? -1 : st->axis;
  if (axis >= x->rank) return INVALID("Axis must be less than input dimension(%d), got %" PRId64, x->rank, axis);
  struct axis_slices s = slices_of(x, axis);
  for (int i = 1; i < 3; i++)
    if (ctx_in(ctx, i)->n != s.n)
      return INVALID("input_%s_tensor must have as many elements as input on the dequantization axis (%" PRId64
                     "), got %" PRId64 ", expected %" PRId64,
                     i == 1 ? "min" : "max", axis, ctx_in(ctx, i)->n, s.n);
  if (s.n != 1 && st->mode == MIN_FIRST)
    return UNIMPLEMENTED("MIN_FIRST mode is not implemented for Dequantize with axis != -1.");
  struct shape shape = tensor_shape(x);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &shape, &y));
  struct type_range l = limits_of((shoal_dtype)x->dtype);
  for (int64_t k = 0; k < s.n; k++) {
    float a = T_DATA(lo, const float)[k], b = T_DATA(hi, const float)[k], scale, add = 0, shift = 0;
    if (st->mode == SCALED) {
      float least = (float)(l.lo + (st->narrow ? 1 : 0)), top = b / (float)l.hi;
      scale = l.lo == 0 ? top : fmaxf(a / least, top);
    } else {
      scale =
          st->mode == MIN_COMBINED ? (b - a) / ((float)l.hi - (float)l.lo) : (float)((double)(b - a) / (l.hi - l.lo));
      add = st->mode == MIN_COMBINED || a == b ? a : roundf(a / scale) * scale;
      shift = (float)l.half;
    }
    for (int64_t o = 0; o < s.outer; o++)
      for (int64_t i = (o * s.n + k) * s.inner, end = i + s.inner; i < end; i++) {
        float v = ((float)get_quantized(x, i) + shift) * scale + add;
        if (y->dtype == SHOAL_FLOAT32) T_DATA(y, float)[i] = v;
        else T_DATA(y, bf16)[i] = bf16_from_float(v);
      }
  }
  return NULL;
}

static const struct kernel_def quantize_kernels[] = {{.device = "CPU",
                                                      .type_attr = "T",
                                                      .types = DT_QUANTIZED,
                                                      .state_size = sizeof(struct quantize_state),
                                                      .init = quantize_init,
                                                      .run = quantize_run},
                                                     {0}};
static const struct kernel_def dequantize_kernels[] = {{.device = "CPU",
                                                        .type_attr = "T",
                                                        .types = DT_QUANTIZED,
                                                        .state_size = sizeof(struct quantize_state),
                                                        .init = dequantize_init,
                                                        .run = dequantize_run},
                                                       {0}};

#define TYPE_AND_MODE \
  "T: {qint8, quint8, qint32, qint16, quint16}; mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'; "

static const struct op_row rows[] = {
    {.name = "QuantizeV2",
     .in = "input: float, min_range: float, max_range: float",
     .out = "output: T, output_min: float, output_max: float",
     .attrs = TYPE_AND_MODE "round_mode: {'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'; "
                            "narrow_range: bool = false; axis: int = -1; ensure_minimum_range: float = 0.01",
     .shape = quantize_shape,
     .kernels = quantize_kernels},
    {.name = "Dequantize",
     .in = "input: T, min_range: float, max_range: float",
     .out = "output: dtype",
     .attrs = TYPE_AND_MODE "narrow_range: bool = false; axis: int = -1; dtype: {bfloat16, float} = float",
     .shape = shape_unchanged,
     .kernels = dequantize_kernels},
};
OP_FAMILY(quantize, rows);
