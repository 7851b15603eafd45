/* Ops on quantized numbers: a tensor of small integers and the range of floats [min, max] they stand for.
 *
 * How the one becomes the other is in quantized.h. Products are 32-bit sums that are brought down to 8 bits again, over
 * the range they use or one that is given, in fixed point with 16 bits behind the point: results are TensorFlow's to
 * the bit. The Uniform ops, which have a scale and a zero point instead, are in quantized_uniform.c. */
#include <string.h>

#include "ops/quantized/quantized.h"

/* ---- numbers ---- */

static uint8_t byte_clamped(float x, float lo, float hi) {
  int64_t q = level_of(&levels_quint8, x, lo, hi);
  return (uint8_t)MAX(0, MIN(q, 255));
}

/* 32-bit numbers over [in_lo, in_hi] as bytes over [lo, hi]. */
static void bring_down(const int32_t *in, int64_t n, float in_lo, float in_hi, float lo, float hi, uint8_t *out) {
  enum { POINT = 16 };
  float in_range = in_hi - in_lo, range = hi - lo, middle = (float)((double)(in_lo + in_hi) / 2.0);
  float per_range = range == 0 ? 0 : (float)(255.0 / (double)range);
  int64_t scale = range == 0 ? 0 : level_int(255.0 * (1 << POINT) * (double)in_range / (double)range);
  int64_t in_offset = level_int((double)(middle * per_range * (float)(1 << POINT)));
  int64_t offset = range == 0 ? 0 : level_int((1 << POINT) * ((double)lo * 255.0) / (double)range);
  uint64_t add = (uint64_t)in_offset - (uint64_t)offset + (1u << (POINT - 1));
  for (int64_t i = 0; i < n; i++) {
    int64_t product = (int64_t)((uint64_t)(int64_t)in[i] * (uint64_t)scale) >> 32;
    int64_t v = (int64_t)((uint64_t)product + add) >> POINT;
    out[i] = (uint8_t)MAX(0, MIN(v, 255));
  }
}

/* ---- activations, shapes ---- */

static shoal_status relu_with(struct kernel_ctx *ctx, bool six) {
  float lo, hi;
  struct tensor *y;
  TRY(range_in(ctx, 1, "min_features", &lo));
  TRY(range_in(ctx, 2, "max_features", &hi));
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(x);
  TRY(ctx_out(ctx, 0, &shape, &y));
  uint8_t least = byte_clamped(0, lo, hi), most = six ? byte_clamped(6, lo, hi) : 255;
  for (int64_t i = 0; i < x->n; i++) {
    uint8_t v = T_DATA(x, const uint8_t)[i];
    v = MAX(v, least);
    T_DATA(y, uint8_t)[i] = MIN(v, most);
  }
  TRY(range_out(ctx, 1, lo));
  return range_out(ctx, 2, hi);
}

static shoal_status relu_run(struct kernel_ctx *ctx) { return relu_with(ctx, false); }
static shoal_status relu6_run(struct kernel_ctx *ctx) { return relu_with(ctx, true); }

/* ---- 32 bits to 8 ---- */

/* The range that the numbers use, from zero at most. */
static void used_range(const struct tensor *x, float in_lo, float in_hi, float *lo, float *hi) {
  int32_t least = INT32_MAX, most = INT32_MIN;
  for (int64_t i = 0; i < x->n; i++) {
    int32_t v = T_DATA(x, const int32_t)[i];
    least = MIN(least, v);
    most = MAX(most, v);
  }
  *lo = fminf(0.0f, level_value(&levels_qint32, least, in_lo, in_hi));
  *hi = level_value(&levels_qint32, most, in_lo, in_hi);
}

static shoal_status range_run(struct kernel_ctx *ctx) {
  float in_lo, in_hi, lo, hi;
  TRY(range_in(ctx, 1, "input_min", &in_lo));
  TRY(range_in(ctx, 2, "input_max", &in_hi));
  used_range(ctx_in(ctx, 0), in_lo, in_hi, &lo, &hi);
  TRY(range_out(ctx, 0, lo));
  return range_out(ctx, 1, hi);
}

static shoal_status bring_down_to(struct kernel_ctx *ctx, float in_lo, float in_hi, float lo, float hi) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(x);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &shape, &y));
  bring_down(x->data, x->n, in_lo, in_hi, lo, hi, y->data);
  TRY(range_out(ctx, 1, lo));
  return range_out(ctx, 2, hi);
}

static shoal_status shrink_run(struct kernel_ctx *ctx) {
  float in_lo, in_hi, lo, hi;
  TRY(range_in(ctx, 1, "input_min", &in_lo));
  TRY(range_in(ctx, 2, "input_max", &in_hi));
  used_range(ctx_in(ctx, 0), in_lo, in_hi, &lo, &hi);
  return bring_down_to(ctx, in_lo, in_hi, lo, hi);
}

static shoal_status requantize_run(struct kernel_ctx *ctx) {
  float in_lo, in_hi, lo, hi;
  TRY(range_in(ctx, 1, "input_min", &in_lo));
  TRY(range_in(ctx, 2, "input_max", &in_hi));
  TRY(range_in(ctx, 3, "requested_output_min", &lo));
  TRY(range_in(ctx, 4, "requested_output_max", &hi));
  if (!(lo <= 0)) return INVALID("requested_output_min must be <= 0, but got %g", (double)lo);
  if (!(hi >= lo))
    return INVALID("requested_output_max must be >= requested_output_min, but got %g and %g", (double)hi, (double)lo);
  return bring_down_to(ctx, in_lo, in_hi, lo, hi);
}

/* ---- products ---- */

struct quantized_matmul_state {
  bool turn_a, turn_b;
};

static shoal_status matmul_init(struct kernel_init *ki, void *state) {
  struct quantized_matmul_state *s = state;
  TRY(node_get_bool(ki->node, "transpose_a", &s->turn_a));
  return node_get_bool(ki->node, "transpose_b", &s->turn_b);
}

/* a [rows, inner] times b [inner, columns], each perhaps turned, less what stands for zero. */
struct quantized_product {
  const uint8_t *a, *b;
  int64_t inner, columns, a_row, a_step, b_row, b_step;
  int32_t a_zero, b_zero;
  int32_t *out;
};

static void product_rows(void *arg, int64_t begin, int64_t end) {
  const struct quantized_product *p = arg;
  for (int64_t r = begin; r < end; r++)
    for (int64_t c = 0; c < p->columns; c++) {
      uint32_t sum = 0; /* wraps, as 32 bits do */
      for (int64_t k = 0; k < p->inner; k++)
        sum += (uint32_t)(p->a[r * p->a_row + k * p->a_step] - p->a_zero) *
               (uint32_t)(p->b[k * p->b_row + c * p->b_step] - p->b_zero);
      p->out[r * p->columns + c] = (int32_t)sum;
    }
}

static shoal_status matmul_run(struct kernel_ctx *ctx) {
  const struct quantized_matmul_state *s = ctx->state;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  float lo_a, hi_a, lo_b, hi_b;
  TRY(range_in(ctx, 2, "min_a", &lo_a));
  TRY(range_in(ctx, 3, "max_a", &hi_a));
  TRY(range_in(ctx, 4, "min_b", &lo_b));
  TRY(range_in(ctx, 5, "max_b", &hi_b));
  if (!(hi_a > lo_a)) return INVALID("max_a must be larger than min_a.");
  if (!(hi_b > lo_b)) return INVALID("max_b must be larger than min_b.");
  if (a->rank != 2 || b->rank != 2) return INVALID("In[0] and In[1] must be matrices");
  int64_t rows = a->dims[s->turn_a], inner = a->dims[!s->turn_a], columns = b->dims[!s->turn_b];
  if (inner != b->dims[s->turn_b])
    return INVALID("Matrix size-incompatible: In[0] has %" PRId64 " columns, In[1] %" PRId64 " rows", inner,
                   b->dims[s->turn_b]);
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){rows, columns}, &y));
  struct quantized_product p = {.a = a->data, .b = b->data, .inner = inner, .columns = columns, .out = y->data};
  p.a_row = s->turn_a ? 1 : inner;
  p.a_step = s->turn_a ? rows : 1;
  p.b_row = s->turn_b ? 1 : columns;
  p.b_step = s->turn_b ? inner : 1;
  p.a_zero = zero_of(&levels_quint8, lo_a, hi_a);
  p.b_zero = zero_of(&levels_quint8, lo_b, hi_b);
  int64_t cost;
  if (mul_overflows(MAX(inner, 1), MAX(columns, 1), &cost)) cost = INT64_MAX;
  pool_for(ctx_pool(ctx), rows, nn_grain(cost), product_rows, &p);
  float level = product_level(&levels_quint8, lo_a, hi_a, &levels_quint8, lo_b, hi_b);
  TRY(range_out(ctx, 1, level * (float)INT32_MIN));
  return range_out(ctx, 2, level * (float)INT32_MAX);
}

static shoal_status matmul_shape(struct shape_ctx *c) {
  bool turn_a, turn_b;
  TRY(node_get_bool(c->node, "transpose_a", &turn_a));
  TRY(node_get_bool(c->node, "transpose_b", &turn_b));
  c->out[0] =
      shape_matrix(c->in[0].rank == 2 ? c->in[0].dims[turn_a] : -1, c->in[1].rank == 2 ? c->in[1].dims[!turn_b] : -1);
  return ranges_shape(c);
}

/* ---- rows ---- */

#define KERNEL(attr, type, run_) ONE_KERNEL(.type_attr = attr, .types = type, .run = run_)
#define DOWN(attr, run_) \
  ONE_KERNEL(.type_attr = "Tinput", .types = DT(QINT32), .type_attr2 = attr, .types2 = DT(QUINT8), .run = run_)
static shoal_status range_shape(struct shape_ctx *c) {
  c->out[0] = c->out[1] = shape_scalar();
  return NULL;
}

static const struct op_row rows[] = {
    {.name = "QuantizedRelu",
     .flags = OP_NO_GRADIENT,
     .shape = like_shape,
     .in = "features: Tinput, min_features: float, max_features: float",
     .out = "activations: out_type, min_activations: float, max_activations: float",
     .attrs = "Tinput: " Q "; out_type: " Q " = quint8",
     .kernels = KERNEL("Tinput", DT(QUINT8), relu_run)},
    {.name = "QuantizedRelu6",
     .flags = OP_NO_GRADIENT,
     .shape = like_shape,
     .in = "features: Tinput, min_features: float, max_features: float",
     .out = "activations: out_type, min_activations: float, max_activations: float",
     .attrs = "Tinput: " Q "; out_type: " Q " = quint8",
     .kernels = KERNEL("Tinput", DT(QUINT8), relu6_run)},
    {.name = "QuantizeDownAndShrinkRange",
     .flags = OP_NO_GRADIENT,
     .shape = like_shape,
     .in = "input: Tinput, input_min: float, input_max: float",
     .out = "output: out_type, output_min: float, output_max: float",
     .attrs = "Tinput: " Q "; out_type: " Q,
     .kernels = DOWN("out_type", shrink_run)},
    {.name = "Requantize",
     .flags = OP_NO_GRADIENT,
     .shape = like_shape,
     .in =
         "input: Tinput, input_min: float, input_max: float, requested_output_min: float, requested_output_max: float",
     .out = "output: out_type, output_min: float, output_max: float",
     .attrs = "Tinput: " Q "; out_type: " Q,
     .kernels = DOWN("out_type", requantize_run)},
    {.name = "RequantizationRange",
     .flags = OP_NO_GRADIENT,
     .shape = range_shape,
     .in = "input: Tinput, input_min: float, input_max: float",
     .out = "output_min: float, output_max: float",
     .attrs = "Tinput: " Q,
     .kernels = KERNEL("Tinput", DT(QINT32), range_run)},
    {.name = "QuantizedMatMul",
     .flags = OP_NO_GRADIENT,
     .shape = matmul_shape,
     .in = "a: T1, b: T2, min_a: float, max_a: float, min_b: float, max_b: float",
     .out = "out: Toutput, min_out: float, max_out: float",
     .attrs = "T1: " Q "; T2: " Q "; Toutput: " Q " = qint32; transpose_a: bool = false; "
              "transpose_b: bool = false; Tactivation: " Q " = quint8",
     .kernels = ONE_KERNEL(BYTES("T1", "T2"), .state_size = sizeof(struct quantized_matmul_state), .init = matmul_init,
                           .run = matmul_run)},
};
OP_FAMILY(quantized, rows);
