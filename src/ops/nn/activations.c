/* ops/nn: layers of neural networks: convolutions, pooling, normalization, activations, recurrent cells, losses. */

/* Activations that work element by element, and their gradients. Each is written once for float and once for
 * double; half and bfloat16 go through float, integers (Relu and Relu6 alone) have loops of their own.
 *
 * Comparisons are written so that NaN passes through Relu, as it does in TensorFlow. */
#include <math.h>

#include "ops/nn/nn_util.h"
#include "ops/math/vector_math.h"

#define SELU_SCALE 1.0507009873554804934193349852946
#define SELU_SCALE_ALPHA 1.7580993408473768599402175208123

/* A function of one input for float and double; EXP and so on are those of the type. */
#define UNARY(name, expr_f, expr_d)                                                                                \
  VECTOR_CLONES static void name##_float(const float *a, const float *b, float *out, int64_t n, const void *arg) { \
    LOOP_FREE for (int64_t i = 0; i < n; i++) {                                                                    \
      float x = a[i];                                                                                              \
      out[i] = expr_f;                                                                                             \
    }                                                                                                              \
  }                                                                                                                \
  static void name##_double(const double *a, const double *b, double *out, int64_t n, const void *arg) {           \
    for (int64_t i = 0; i < n; i++) {                                                                              \
      double x = a[i];                                                                                             \
      out[i] = expr_d;                                                                                             \
    }                                                                                                              \
  }
/* Of two: g the gradient that comes in, x the features or outputs. */
#define BINARY(name, expr_f, expr_d)                                                                               \
  VECTOR_CLONES static void name##_float(const float *a, const float *b, float *out, int64_t n, const void *arg) { \
    LOOP_FREE for (int64_t i = 0; i < n; i++) {                                                                    \
      float g = a[i], x = b[i];                                                                                    \
      out[i] = expr_f;                                                                                             \
    }                                                                                                              \
  }                                                                                                                \
  static void name##_double(const double *a, const double *b, double *out, int64_t n, const void *arg) {           \
    for (int64_t i = 0; i < n; i++) {                                                                              \
      double g = a[i], x = b[i];                                                                                   \
      out[i] = expr_d;                                                                                             \
    }                                                                                                              \
  }
#define UNARY1(name, expr) UNARY(name, expr, expr)
#define BINARY1(name, expr) BINARY(name, expr, expr)

UNARY1(relu, x < 0 ? 0 : x)
UNARY1(relu6, x<0 ? 0 : x> 6 ? 6 : x)
UNARY(elu, x < 0 ? vm_expm1(x) : x, x < 0 ? expm1(x) : x)
UNARY(selu, x < 0 ? (float)SELU_SCALE_ALPHA * vm_expm1(x) : (float)SELU_SCALE * x,
      x < 0 ? SELU_SCALE_ALPHA * expm1(x) : SELU_SCALE * x)
/* Beyond these thresholds log(1 + e^x) is x, or e^x, to the last bit. */
UNARY(softplus,
      x > 13.942385f    ? x
      : x < -13.942385f ? vm_exp(x)
                        : vm_log1p(vm_exp(x)),
      x > 34.04365338911715    ? x
      : x < -34.04365338911715 ? exp(x)
                               : log1p(exp(x)))
UNARY(softsign, x / (1 + fabsf(x)), x / (1 + fabs(x)))
UNARY(swish, x *vm_sigmoid(x), x / (1 + exp(-x)))

/* Products, not choices: a gradient that is no number stays one where the unit is off, as TensorFlow has it. */
BINARY1(relu_grad, g *(x > 0))
BINARY1(relu6_grad, g *(x > 0 && x < 6))
BINARY1(elu_grad, x < 0 ? (x + 1) * g : g)
BINARY(selu_grad, x < 0 ? g * (x + (float)SELU_SCALE_ALPHA) : g * (float)SELU_SCALE,
       x < 0 ? g * (x + SELU_SCALE_ALPHA) : g * SELU_SCALE)
BINARY(softplus_grad, g / (vm_exp(-x) + 1), g / (exp(-x) + 1))
BINARY(softsign_grad, g / ((1 + fabsf(x)) * (1 + fabsf(x))), g / ((1 + fabs(x)) * (1 + fabs(x))))

static void leaky_float(const float *a, const float *b, float *out, int64_t n, const void *arg) {
  float alpha = *(const float *)arg;
  LOOP_FREE for (int64_t i = 0; i < n; i++) out[i] = a[i] > 0 ? a[i] : alpha * a[i];
}
static void leaky_double(const double *a, const double *b, double *out, int64_t n, const void *arg) {
  double alpha = (double)*(const float *)arg;
  for (int64_t i = 0; i < n; i++) out[i] = a[i] > 0 ? a[i] : alpha * a[i];
}
static void leaky_grad_float(const float *a, const float *b, float *out, int64_t n, const void *arg) {
  float alpha = *(const float *)arg;
  LOOP_FREE for (int64_t i = 0; i < n; i++) out[i] = b[i] > 0 ? a[i] : alpha * a[i];
}
static void leaky_grad_double(const double *a, const double *b, double *out, int64_t n, const void *arg) {
  double alpha = (double)*(const float *)arg;
  for (int64_t i = 0; i < n; i++) out[i] = b[i] > 0 ? a[i] : alpha * a[i];
}

/* ---- kernels ---- */

enum { CHEAP_GRAIN = 1 << 15, COSTLY_GRAIN = 1 << 12 };

/* Either input may be written over. */
static shoal_status run(struct kernel_ctx *ctx, int n_in, int64_t grain, nn_map_float f, nn_map_double d,
                        const void *arg) {
  if (n_in == 2) TRY(nn_check_same(ctx, 0, 1));
  struct tensor *out;
  TRY(ctx_out_like(ctx, 0, 0, &out));
  nn_map(ctx_pool(ctx), ctx_in_type(ctx, 0), ctx_in(ctx, 0)->data, n_in == 2 ? ctx_in(ctx, 1)->data : NULL, out->data,
         out->n, grain, f, d, arg);
  return NULL;
}

#define KERNELS(name, n_in, grain)                                   \
  static shoal_status name##_run(struct kernel_ctx *ctx) {           \
    return run(ctx, n_in, grain, name##_float, name##_double, NULL); \
  }                                                                  \
  static const struct kernel_def name##_kernels[] = {                \
      {.device = "CPU", .type_attr = "T", .types = DT_FLOATING, .run = name##_run}, {0}};

KERNELS(elu, 1, COSTLY_GRAIN)
KERNELS(selu, 1, COSTLY_GRAIN)
KERNELS(softplus, 1, COSTLY_GRAIN)
KERNELS(softsign, 1, CHEAP_GRAIN)
KERNELS(swish, 1, COSTLY_GRAIN)
KERNELS(elu_grad, 2, CHEAP_GRAIN)
KERNELS(selu_grad, 2, CHEAP_GRAIN)
KERNELS(softplus_grad, 2, COSTLY_GRAIN)
KERNELS(softsign_grad, 2, CHEAP_GRAIN)

/* Relu and Relu6 have integers too. */
struct ints {
  const void *g, *x;
  void *out;
};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtype-limits" /* an unsigned value is never below 0, and need not be */
#define LOOPS "ops/nn/relu_integers.inc"
#include "tensor/each_integer.inc"
#undef LOOPS
#pragma GCC diagnostic pop

static shoal_status run_relu(struct kernel_ctx *ctx, int n_in, nn_map_float f, nn_map_double d,
                             void (*ints)(void *arg, int64_t begin, int64_t end)) {
  if (!ints) return run(ctx, n_in, CHEAP_GRAIN, f, d, NULL);
  if (n_in == 2) TRY(nn_check_same(ctx, 0, 1));
  struct tensor *out;
  TRY(ctx_out_like(ctx, 0, 0, &out));
  struct ints s = {ctx_in(ctx, 0)->data, ctx_in(ctx, n_in - 1)->data, out->data};
  pool_for(ctx_pool(ctx), out->n, CHEAP_GRAIN, ints, &s);
  return NULL;
}

#define INTS(name)                                                                                                \
  [SHOAL_INT8] = name##_SHOAL_INT8, [SHOAL_UINT8] = name##_SHOAL_UINT8, [SHOAL_INT16] = name##_SHOAL_INT16,       \
  [SHOAL_UINT16] = name##_SHOAL_UINT16, [SHOAL_INT32] = name##_SHOAL_INT32, [SHOAL_UINT32] = name##_SHOAL_UINT32, \
  [SHOAL_INT64] = name##_SHOAL_INT64, [SHOAL_UINT64] = name##_SHOAL_UINT64
#define RELU_KERNELS(name, n_in)                                                        \
  static shoal_status name##_run(struct kernel_ctx *ctx) {                              \
    static void (*const ints[DTYPE_COUNT])(void *, int64_t, int64_t) = {INTS(name)};    \
    return run_relu(ctx, n_in, name##_float, name##_double, ints[ctx_in_type(ctx, 0)]); \
  }                                                                                     \
  static const struct kernel_def name##_kernels[] = {                                   \
      {.device = "CPU", .type_attr = "T", .types = DT_REAL, .run = name##_run}, {0}};
RELU_KERNELS(relu, 1)
RELU_KERNELS(relu6, 1)
RELU_KERNELS(relu_grad, 2)
RELU_KERNELS(relu6_grad, 2)

/* alpha as the elements' type has it. */
static shoal_status leaky_init(struct kernel_init *ki, void *state) {
  float *alpha = state;
  shoal_dtype t;
  TRY(node_get_float(ki->node, "alpha", alpha));
  TRY(node_get_type(ki->node, "T", &t));
  if (t == SHOAL_FLOAT16) *alpha = f16_to_float(f16_from_float(*alpha));
  if (t == SHOAL_BFLOAT16) *alpha = bf16_to_float(bf16_from_float(*alpha));
  return NULL;
}
static shoal_status leaky_run(struct kernel_ctx *ctx) {
  return run(ctx, 1, CHEAP_GRAIN, leaky_float, leaky_double, ctx->state);
}
static shoal_status leaky_grad_run(struct kernel_ctx *ctx) {
  return run(ctx, 2, CHEAP_GRAIN, leaky_grad_float, leaky_grad_double, ctx->state);
}
static const struct kernel_def leaky_kernels[] = {{.device = "CPU",
                                                   .type_attr = "T",
                                                   .types = DT_FLOATING,
                                                   .state_size = sizeof(float),
                                                   .init = leaky_init,
                                                   .run = leaky_run},
                                                  {0}};
static const struct kernel_def leaky_grad_kernels[] = {{.device = "CPU",
                                                        .type_attr = "T",
                                                        .types = DT_FLOATING,
                                                        .state_size = sizeof(float),
                                                        .init = leaky_init,
                                                        .run = leaky_grad_run},
                                                       {0}};

/* ---- gradients ---- */

/* dx = OP(dy, output) or OP(dy, input). */
#define GRAD_OF_OUTPUT(name, op)                                    \
  static shoal_status name(struct grad_ctx *c) {                    \
    grad_set(c, 0, build_op2(c->g, op, grad_dy(c, 0), gout(c, 0))); \
    return NULL;                                                    \
  }
GRAD_OF_OUTPUT(relu_g, "ReluGrad")
GRAD_OF_OUTPUT(relu6_g, "Relu6Grad")
GRAD_OF_OUTPUT(elu_g, "EluGrad")
GRAD_OF_OUTPUT(selu_g, "SeluGrad")

static shoal_status softplus_g(struct grad_ctx *c) {
  grad_set(c, 0, build_op2(c->g, "SoftplusGrad", grad_dy(c, 0), gin(c, 0)));
  return NULL;
}
static shoal_status softsign_g(struct grad_ctx *c) {
  grad_set(c, 0, build_op2(c->g, "SoftsignGrad", grad_dy(c, 0), gin(c, 0)));
  return NULL;
}

static shoal_out leaky_node(struct grad_ctx *c, shoal_out dy, shoal_out x) {
  struct build n = build_begin(c->g, "LeakyReluGrad", NULL);
  float alpha = 0;
  shoal_status s = node_get_float(c->node, "alpha", &alpha);
  if (s) graph_fail(c->g, s);
  build_in(&n, dy);
  build_in(&n, x);
  build_attr_float(&n, "alpha", alpha);
  return build_end_out(&n);
}
static shoal_status leaky_g(struct grad_ctx *c) {
  grad_set(c, 0, leaky_node(c, grad_dy(c, 0), gin(c, 0)));
  return NULL;
}

/* Piecewise linear: the second derivative is zero. */
static shoal_status relu_grad_g(struct grad_ctx *c) {
  shoal_out x = gin(c, 1);
  grad_set(c, 0, build_op2(c->g, c->node->op->name, grad_dy(c, 0), x));
  grad_set(c, 1, array_zeros_like(c->g, x));
  return NULL;
}
static shoal_status leaky_grad_g(struct grad_ctx *c) {
  grad_set(c, 0, leaky_node(c, grad_dy(c, 0), gin(c, 1)));
  grad_set(c, 1, array_zeros_like(c->g, gin(c, 1)));
  return NULL;
}
/* Elu and Selu: the slope is linear in the output below zero. */
static shoal_status elu_grad_g(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out dy = grad_dy(c, 0), x = gin(c, 1), zero = array_zeros_like(g, x);
  grad_set(c, 0, build_op2(g, c->node->op->name, dy, x));
  shoal_out below = build_op2(g, "Less", x, zero);
  grad_set(c, 1, build_op3(g, "SelectV2", below, build_op2(g, "Mul", dy, gin(c, 0)), zero));
  return NULL;
}
/* d(dy / (1 + e^-x))/dx = dy / (e^-x + 2 + e^x). */
static shoal_status softplus_grad_g(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out ddx = grad_dy(c, 0), x = gin(c, 1);
  grad_set(c, 0, build_op2(g, "SoftplusGrad", ddx, x));
  shoal_out down = build_op1(g, "Exp", build_op1(g, "Neg", x)), up = build_op1(g, "Exp", x);
  shoal_out sum = build_op2(g, "AddV2", build_op2(g, "AddV2", down, build_const_float(g, out_type(x), 2)), up);
  grad_set(c, 1, build_op2(g, "RealDiv", build_op2(g, "Mul", ddx, gin(c, 0)), sum));
  return NULL;
}
/* x s + x^2 s (1 - s) over x, with s = sigmoid(x): dy (y + s (1 - y)). */
static shoal_status swish_g(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out y = gout(c, 0), s = build_op1(g, "Sigmoid", gin(c, 0)), one = build_const_float(g, out_type(y), 1);
  shoal_out slope = build_op2(g, "AddV2", y, build_op2(g, "Mul", s, build_op2(g, "Sub", one, y)));
  grad_set(c, 0, build_op2(g, "Mul", grad_dy(c, 0), slope));
  return NULL;
}

static const struct op_row rows[] = {
    {"Relu", .in = "features: T", .out = "activations: T",
     .attrs = "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8}",
     .shape = shape_unchanged, .grad = relu_g, .kernels = relu_kernels},
    {"ReluGrad", .in = "gradients: T, features: T", .out = "backprops: T", .attrs = "T: realnumbertype",
     .shape = shape_merge_all, .grad = relu_grad_g, .kernels = relu_grad_kernels},
    {"Relu6", .in = "features: T", .out = "activations: T", .attrs = "T: realnumbertype", .shape = shape_unchanged,
     .grad = relu6_g, .kernels = relu6_kernels},
    {"Relu6Grad", .in = "gradients: T, features: T", .out = "backprops: T", .attrs = "T: realnumbertype",
     .shape = shape_merge_all, .grad = relu_grad_g, .kernels = relu6_grad_kernels},
    {"LeakyRelu", .in = "features: T", .out = "activations: T",
     .attrs = "alpha: float = 0.2; T: {half, bfloat16, float, double} = float", .shape = shape_unchanged,
     .grad = leaky_g, .kernels = leaky_kernels},
    {"LeakyReluGrad", .in = "gradients: T, features: T", .out = "backprops: T",
     .attrs = "alpha: float = 0.2; T: {half, bfloat16, float, double} = float", .shape = shape_merge_all,
     .grad = leaky_grad_g, .kernels = leaky_grad_kernels},
    {"Elu", .in = "features: T", .out = "activations: T", .attrs = "T: {half, bfloat16, float, double}",
     .shape = shape_unchanged, .grad = elu_g, .kernels = elu_kernels},
    {"EluGrad", .in = "gradients: T, outputs: T", .out = "backprops: T", .attrs = "T: {half, bfloat16, float, double}",
     .shape = shape_merge_all, .grad = elu_grad_g, .kernels = elu_grad_kernels},
    {"Selu", .in = "features: T", .out = "activations: T", .attrs = "T: {half, bfloat16, float, double}",
     .shape = shape_unchanged, .grad = selu_g, .kernels = selu_kernels},
    {"SeluGrad", .in = "gradients: T, outputs: T", .out = "backprops: T", .attrs = "T: {half, bfloat16, float, double}",
     .shape = shape_merge_all, .grad = elu_grad_g, .kernels = selu_grad_kernels},
    {"Softplus", .in = "features: T", .out = "activations: T", .attrs = "T: {half, bfloat16, float, double}",
     .shape = shape_unchanged, .grad = softplus_g, .kernels = softplus_kernels},
    {"SoftplusGrad", .in = "gradients: T, features: T", .out = "backprops: T",
     .attrs = "T: {half, bfloat16, float, double}", .shape = shape_merge_all, .grad = softplus_grad_g,
     .kernels = softplus_grad_kernels},
    {"Softsign", .in = "features: T", .out = "activations: T", .attrs = "T: {half, bfloat16, float, double}",
     .shape = shape_unchanged, .grad = softsign_g, .kernels = softsign_kernels},
    {"SoftsignGrad", .in = "gradients: T, features: T", .out = "backprops: T",
     .attrs = "T: {half, bfloat16, float, double}", .shape = shape_merge_all, .kernels = softsign_grad_kernels},
    {"_MklSwish", .in = "features: T", .out = "activations: T", .attrs = "T: {float, bfloat16} = float",
     .shape = shape_unchanged, .grad = swish_g, .kernels = swish_kernels},
};
OP_FAMILY(activations, rows);
