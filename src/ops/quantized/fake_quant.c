/* ops/quantized: numbers as small integers with a range or a scale, and layers on them. */

/* Quantization that is only played: floats are rounded to what they would be as small integers, so that training sees
 * the loss of precision. QuantizeAndDequantize scales and rounds; FakeQuant moves the range so that zero is exact. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/math/grad_help.h"
#include "ops/nn/nn_util.h"

/* Slices along an axis: element i belongs to slice i / inner % n. */
struct slices {
  int64_t n, inner;
};

/* ---- QuantizeAndDequantize ---- */

struct rounding_state {
  bool is_signed, given, narrow, up;
  int64_t bits, axis;
};

static shoal_status check_bits(int64_t bits, bool is_signed, const char *what) {
  if (bits > 0 && bits < (is_signed ? 62 : 63)) return NULL;
  return INVALID("num_bits is out of range: %" PRId64 " with %s %d", bits, what, is_signed);
}

static shoal_status rounding_init(struct kernel_init *ki, void *state) {
  struct rounding_state *st = state;
  const struct shoal_node *n = ki->node;
  const char *mode;
  st->axis = -1;
  TRY(node_get_bool(n, "signed_input", &st->is_signed));
  TRY(node_get_bool(n, "range_given", &st->given));
  if (node_attr(n, "num_bits")) {
    TRY(node_get_int(n, "num_bits", &st->bits));
    TRY(check_bits(st->bits, st->is_signed, "signed_input_"));
  }
  if (node_attr(n, "axis")) TRY(node_get_int(n, "axis", &st->axis));
  if (st->axis < -1) return INVALID("Axis must be at least -1. Found %" PRId64, st->axis);
  if (node_attr(n, "narrow_range")) TRY(node_get_bool(n, "narrow_range", &st->narrow));
  if (node_attr(n, "round_mode")) {
    TRY(node_get_string(n, "round_mode", &mode));
    st->up = !strcmp(mode, "HALF_UP");
  }
  return NULL;
}

#define T float
#define NAME round_float
#define RINT rintf
#define FLOOR floorf
#define FMIN fminf
#define FMAX fmaxf
#define BIG FLT_MAX
#include "ops/quantized/fake_quant_slice.inc"
#define T double
#define NAME round_double
#define RINT rint
#define FLOOR floor
#define FMIN fmin
#define FMAX fmax
#define BIG DBL_MAX
#include "ops/quantized/fake_quant_slice.inc"

static shoal_status rounding_run(struct kernel_ctx *ctx) {
  const struct rounding_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *lo = ctx_in(ctx, 1), *hi = ctx_in(ctx, 2);
  int64_t bits = st->bits;
  struct slices s = {1, x->n};
  if (st->axis >= x->rank)
    return INVALID("Axis requested is larger than input dimensions. Axis: %" PRId64 " Input Dimensions: %d", st->axis,
                   x->rank);
  if (st->axis >= 0) s = (struct slices){x->dims[st->axis], dims_product(x->dims, (int)st->axis + 1, x->rank)};
  if (ctx->kernel->n_in > 3) {
    const struct tensor *b = ctx_in(ctx, 3);
    if (b->rank) return INVALID("Invalid shape. The `num_bits` tensor should be a scalar. Got dimensions: %d", b->rank);
    bits = int_at(b, 0);
    TRY(check_bits(bits, st->is_signed, "`signed_input_`"));
  }
  if (st->given) {
    if (st->axis >= 0 && (lo->rank != 1 || hi->rank != 1))
      return INVALID("Shape must be rank 1 for input_%s_tensor when the axis is specified",
                     lo->rank != 1 ? "min" : "max");
    if (lo->n != s.n)
      return INVALID("input_min_tensor has incorrect size, expected %" PRId64 " was %" PRId64, s.n, lo->n);
    if (hi->n != s.n)
      return INVALID("input_max_tensor has incorrect size, expected %" PRId64 " was %" PRId64, s.n, hi->n);
    for (int64_t k = 0; st->axis < 0 && k < s.n; k++)
      if (!(real_at(lo, k) <= real_at(hi, k)))
        return INVALID("Invalid range: input_min %g > input_max %g", real_at(lo, k), real_at(hi, k));
  }
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  for (int64_t k = 0; x->n && k < s.n; k++) {
    double a = st->given ? real_at(lo, k) : 0, b = st->given ? real_at(hi, k) : 0;
    if (x->dtype == SHOAL_FLOAT32) round_float(st, bits, s, k, x->data, y->data, x->n, (float)a, (float)b);
    else round_double(st, bits, s, k, x->data, y->data, x->n, a, b);
  }
  return NULL;
}

static shoal_status rounding_shape(struct shape_ctx *c) {
  c->out[0] = c->in[0];
  int64_t axis;
  if (!node_attr(c->node, "axis")) return NULL;
  TRY(node_get_int(c->node, "axis", &axis));
  if (axis < -1) return INVALID("axis should be at least -1, got %" PRId64, axis);
  return axis >= 0 ? shape_in_rank_at_least(c, 0, (int)MIN(axis, SHOAL_MAX_RANK - 1) + 1, &c->out[0]) : NULL;
}

/* V4: what the range cut off has no gradient; the range itself has none at all. */
static shoal_status cut_grad_run(struct kernel_ctx *ctx) {
  const struct tensor *dy = ctx_in(ctx, 0), *x = ctx_in(ctx, 1), *lo = ctx_in(ctx, 2), *hi = ctx_in(ctx, 3);
  int64_t axis = *(const int64_t *)ctx->state;
  if (!tensor_same_shape(dy, x)) return INVALID("gradient and input must be the same size");
  if (axis >= x->rank || axis < -1)
    return INVALID("Axis should be -1 or 0 or a positive value less than %d, but given axis value was %" PRId64,
                   x->rank, axis);
  struct slices s = {1, MAX(x->n, 1)};
  if (axis >= 0) s = (struct slices){x->dims[axis], dims_product(x->dims, (int)axis + 1, x->rank)};
  if (lo->n != s.n) return INVALID("min has incorrect size, expected %" PRId64 " was %" PRId64, s.n, lo->n);
  if (hi->n != s.n) return INVALID("max has incorrect size, expected %" PRId64 " was %" PRId64, s.n, hi->n);
  struct shape range = tensor_shape(lo);
  struct tensor *dx, *d_lo, *d_hi;
  TRY(ctx_out_like(ctx, 0, 0, &dx));
  TRY(ctx_out(ctx, 1, &range, &d_lo));
  TRY(ctx_out(ctx, 2, &range, &d_hi));
  tensor_zero(d_lo);
  tensor_zero(d_hi);
  for (int64_t i = 0; i < x->n; i++) {
    int64_t k = i / s.inner % s.n;
    double v = real_at(x, i);
    bool inside = v >= real_at(lo, k) && v <= real_at(hi, k);
    if (x->dtype == SHOAL_FLOAT32) T_DATA(dx, float)[i] = T_DATA(dy, const float)[i] * (inside ? 1.0f : 0.0f);
    else T_DATA(dx, double)[i] = T_DATA(dy, const double)[i] * (inside ? 1.0 : 0.0);
  }
  return NULL;
}

static shoal_status axis_init(struct kernel_init *ki, void *state) { return node_get_int(ki->node, "axis", state); }

static shoal_status cut_grad_shape(struct shape_ctx *c) {
  c->out[0] = c->in[0];
  c->out[1] = c->in[2];
  c->out[2] = c->in[3];
  return NULL;
}

static shoal_status rounding_v4_grad(struct grad_ctx *c) {
  int64_t axis;
  TRY(node_get_int(c->node, "axis", &axis));
  struct build b = build_begin(c->g, "QuantizeAndDequantizeV4Grad", NULL);
  build_in(&b, grad_dy(c, 0));
  for (int i = 0; i < 3; i++) build_in(&b, gin(c, i));
  build_attr_int(&b, "axis", axis);
  struct shoal_node *n = build_end(&b);
  for (int i = 0; n && i < 3; i++) grad_set(c, i, node_out(n, i));
  return NULL;
}

/* ---- FakeQuant ---- */

struct fake_state {
  float least, most; /* quanta */
  float lo, hi;      /* of the ops that have them as attributes */
};

static shoal_status fake_init(struct kernel_init *ki, void *state) {
  struct fake_state *st = state;
  int64_t bits;
  bool narrow;
  TRY(node_get_int(ki->node, "num_bits", &bits));
  TRY(node_get_bool(ki->node, "narrow_range", &narrow));
  if (bits < 2 || bits > 16) return INVALID("num_bits must be between 2 and 16, inclusive");
  st->least = narrow ? 1 : 0;
  st->most = (float)(((int64_t)1 << bits) - 1);
  if (!node_attr(ki->node, "min")) return NULL;
  TRY(node_get_float(ki->node, "min", &st->lo));
  TRY(node_get_float(ki->node, "max", &st->hi));
  if (!(st->lo < st->hi))
    return INVALID("min has to be smaller than max, was: %g >= %g", (double)st->lo, (double)st->hi);
  return NULL;
}

/* The range moved so that zero is a quantum. all: both ends are zero, and everything counts as inside. */
struct nudged {
  float lo, hi, scale;
  bool all;
};

static struct nudged nudge(const struct fake_state *st, float lo, float hi) {
  struct nudged r = {.all = lo == 0 && hi == 0};
  if (r.all) return r;
  r.scale = (hi - lo) / (st->most - st->least);
  float zero = st->least - lo / r.scale;
  zero = zero < st->least ? st->least : zero > st->most ? st->most : roundf(zero);
  r.lo = (st->least - zero) * r.scale;
  r.hi = (st->most - zero) * r.scale;
  return r;
}

static float fake(const struct nudged *r, float x) {
  if (r->all) return 0;
  float inverse = 1.0f / r->scale, zero = floorf(-r->lo * inverse + 0.5f);
  float v = fmaxf(fminf(x, r->hi), r->lo) - r->lo;
  return floorf(v * inverse - zero + 0.5f) * r->scale;
}

/* Where the ranges come from: attributes, or inputs `at` and `at` + 1, one for the tensor or one for each channel. */
static shoal_status check_fake(const struct kernel_ctx *ctx, int at, const struct tensor *x, bool channels,
                               struct slices *s) {
  *s = (struct slices){1, MAX(x->n, 1)};
  if (at >= ctx->kernel->n_in) return NULL;
  static const char *const names[2] = {"min", "max"};
  for (int i = 0; i < 2; i++) {
    const struct tensor *r = ctx_in(ctx, at + i);
    if (r->rank != channels) return INVALID("`%s` must be rank %d but is rank %d", names[i], channels, r->rank);
    if (!channels) continue;
    if (!x->rank) return INVALID("inputs must have at least one dimension");
    int64_t depth = x->dims[x->rank - 1];
    if (r->n != depth)
      return INVALID("%s has incorrect size, expected %" PRId64 " was %" PRId64, names[i], depth, r->n);
    *s = (struct slices){depth, 1};
  }
  return NULL;
}

static struct nudged fake_range(const struct kernel_ctx *ctx, int at, int64_t k) {
  const struct fake_state *st = ctx->state;
  if (at >= ctx->kernel->n_in) return nudge(st, st->lo, st->hi);
  return nudge(st, T_DATA(ctx_in(ctx, at), const float)[k], T_DATA(ctx_in(ctx, at + 1), const float)[k]);
}

static shoal_status fake_forward(struct kernel_ctx *ctx, bool channels) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct slices s;
  TRY(check_fake(ctx, 1, x, channels, &s));
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  for (int64_t k = 0; x->n && k < s.n; k++) {
    struct nudged r = fake_range(ctx, 1, k);
    for (int64_t o = k * s.inner; o < x->n; o += s.n * s.inner)
      for (int64_t i = o; i < o + s.inner; i++) T_DATA(y, float)[i] = fake(&r, T_DATA(x, const float)[i]);
  }
  return NULL;
}

static shoal_status fake_backward(struct kernel_ctx *ctx, bool channels) {
  const struct tensor *dy = ctx_in(ctx, 0), *x = ctx_in(ctx, 1);
  if (!tensor_same_shape(dy, x)) return INVALID("gradient and input must be the same size");
  struct slices s;
  TRY(check_fake(ctx, 2, x, channels, &s));
  struct tensor *dx, *d_lo = NULL, *d_hi = NULL;
  TRY(ctx_out_like(ctx, 0, 0, &dx));
  if (ctx->kernel->n_out > 1) {
    struct shape range = tensor_shape(ctx_in(ctx, 2));
    TRY(ctx_out(ctx, 1, &range, &d_lo));
    TRY(ctx_out(ctx, 2, &range, &d_hi));
    tensor_zero(d_lo);
    tensor_zero(d_hi);
  }
  for (int64_t k = 0; x->n && k < s.n; k++) {
    struct nudged r = fake_range(ctx, 2, k);
    double below = 0, above = 0;
    for (int64_t o = k * s.inner; o < x->n; o += s.n * s.inner)
      for (int64_t i = o; i < o + s.inner; i++) {
        float v = T_DATA(x, const float)[i], g = T_DATA(dy, const float)[i];
        bool inside = r.all || (v >= r.lo && v <= r.hi);
        if (!r.all && v < r.lo) below += (double)g;
        if (!r.all && v > r.hi) above += (double)g;
        T_DATA(dx, float)[i] = inside ? g : 0;
      }
    if (!d_lo) continue;
    T_DATA(d_lo, float)[k] = (float)below;
    T_DATA(d_hi, float)[k] = (float)above;
  }
  return NULL;
}

static shoal_status fake_run(struct kernel_ctx *ctx) { return fake_forward(ctx, false); }
static shoal_status fake_channels_run(struct kernel_ctx *ctx) { return fake_forward(ctx, true); }
static shoal_status fake_grad_run(struct kernel_ctx *ctx) { return fake_backward(ctx, false); }
static shoal_status fake_channels_grad_run(struct kernel_ctx *ctx) { return fake_backward(ctx, true); }

static shoal_status fake_grad_shape(struct shape_ctx *c) {
  TRY(shape_merge(&c->in[0], &c->in[1], &c->out[0]));
  for (int i = 1; i < c->node->n_out; i++) c->out[i] = c->in[i + 1];
  return NULL;
}

/* FakeQuantX has FakeQuantXGradient, with the same attributes. */
static shoal_status fake_grad(struct grad_ctx *c) {
  char op[64];
  snprintf(op, sizeof op, "%sGradient", c->node->op->name);
  struct build b = build_begin(c->g, op, NULL);
  build_in(&b, grad_dy(c, 0));
  for (int i = 0; i < c->node->n_in; i++) build_in(&b, gin(c, i));
  static const char *const copied[] = {"min", "max", "num_bits", "narrow_range"};
  for (size_t i = 0; i < COUNT_OF(copied); i++)
    if (node_attr(c->node, copied[i])) build_attr(&b, copied[i], attr_copy(node_attr(c->node, copied[i])));
  struct shoal_node *n = build_end(&b);
  for (int i = 0; n && i < c->node->n_in; i++) grad_set(c, i, node_out(n, i));
  return NULL;
}

#define KERNEL(id, state, init_, run_, ...) \
  static const struct kernel_def id[] = {   \
      {.device = "CPU", .state_size = sizeof(state), .init = init_, .run = run_, __VA_ARGS__}, {0}}
#define REAL .type_attr = "T", .types = DT(FLOAT32) | DT(FLOAT64)
KERNEL(rounding_kernels, struct rounding_state, rounding_init, rounding_run, REAL);
KERNEL(cut_grad_kernels, int64_t, axis_init, cut_grad_run, REAL);
KERNEL(fake_kernels, struct fake_state, fake_init, fake_run);
KERNEL(fake_channels_kernels, struct fake_state, fake_init, fake_channels_run);
KERNEL(fake_grad_kernels, struct fake_state, fake_init, fake_grad_run);
KERNEL(fake_channels_grad_kernels, struct fake_state, fake_init, fake_channels_grad_run);

#define FLOATS "T: {bfloat16, half, float, double}"
#define NARROW "narrow_range: bool = false"
#define ROUNDING                                                                     \
  "signed_input: bool = true; num_bits: int = 8; range_given: bool = false; " FLOATS \
  "; round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'; " NARROW "; axis: int = -1"
#define FAKE "num_bits: int = 8; " NARROW
#define FAKE_ARGS "min: float = -6; max: float = 6; " FAKE

static const struct op_row rows[] = {
    {.name = "QuantizeAndDequantizeV2",
     .in = "input: T, input_min: T, input_max: T",
     .out = "output: T",
     .attrs = ROUNDING,
     .shape = rounding_shape,
     .grad = grad_pass,
     .kernels = rounding_kernels},
    {.name = "QuantizeAndDequantizeV3",
     .in = "input: T, input_min: T, input_max: T, num_bits: int32",
     .out = "output: T",
     .attrs = "signed_input: bool = true; range_given: bool = true; " FLOATS "; " NARROW "; axis: int = -1",
     .shape = rounding_shape,
     .grad = grad_pass,
     .kernels = rounding_kernels},
    {.name = "QuantizeAndDequantizeV4",
     .in = "input: T, input_min: T, input_max: T",
     .out = "output: T",
     .attrs = ROUNDING,
     .shape = rounding_shape,
     .grad = rounding_v4_grad,
     .kernels = rounding_kernels},
    {.name = "QuantizeAndDequantizeV4Grad",
     .in = "gradients: T, input: T, input_min: T, input_max: T",
     .out = "input_backprop: T, input_min_backprop: T, input_max_backprop: T",
     .attrs = FLOATS "; axis: int = -1",
     .shape = cut_grad_shape,
     .grad = grad_pass,
     .kernels = cut_grad_kernels},
    {.name = "FakeQuantWithMinMaxArgs",
     .in = "inputs: float",
     .out = "outputs: float",
     .attrs = FAKE_ARGS,
     .shape = shape_unchanged,
     .grad = fake_grad,
     .kernels = fake_kernels},
    {.name = "FakeQuantWithMinMaxArgsGradient",
     .in = "gradients: float, inputs: float",
     .out = "backprops: float",
     .attrs = FAKE_ARGS,
     .shape = fake_grad_shape,
     .kernels = fake_grad_kernels},
    {.name = "FakeQuantWithMinMaxVars",
     .in = "inputs: float, min: float, max: float",
     .out = "outputs: float",
     .attrs = FAKE,
     .shape = shape_unchanged,
     .grad = fake_grad,
     .kernels = fake_kernels},
    {.name = "FakeQuantWithMinMaxVarsGradient",
     .in = "gradients: float, inputs: float, min: float, max: float",
     .out = "backprops_wrt_input: float, backprop_wrt_min: float, backprop_wrt_max: float",
     .attrs = FAKE,
     .shape = fake_grad_shape,
     .kernels = fake_grad_kernels},
    {.name = "FakeQuantWithMinMaxVarsPerChannel",
     .in = "inputs: float, min: float, max: float",
     .out = "outputs: float",
     .attrs = FAKE,
     .shape = shape_unchanged,
     .grad = fake_grad,
     .kernels = fake_channels_kernels},
    {.name = "FakeQuantWithMinMaxVarsPerChannelGradient",
     .in = "gradients: float, inputs: float, min: float, max: float",
     .out = "backprops_wrt_input: float, backprop_wrt_min: float, backprop_wrt_max: float",
     .attrs = FAKE,
     .shape = fake_grad_shape,
     .kernels = fake_channels_grad_kernels},
};
OP_FAMILY(fake_quant, rows);
