/* Kernels of a card, one element after the other: elementwise.cu. */
#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"
#include "ops/math/broadcast.h"

static shoal_status fn_init(struct kernel_init *ki, void *state) { return cuda_fn_init(ki, "elementwise", state); }

/* ---- unary ---- */

static shoal_status unary_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  int64_t n = x->n;
  return cuda_run_each(ctx, st->f, n, (void *[]){(void *)&x->data, &y->data, &n});
}

/* Two inputs of one shape: gradients. */
static shoal_status pair_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  struct tensor *y;
  if (!tensor_same_shape(a, b))
    return INVALID("inputs must have the same shape: %s and %s", tensor_shape_str(a), tensor_shape_str(b));
  TRY(ctx_out_like(ctx, 0, 0, &y));
  int64_t n = a->n;
  return cuda_run_each(ctx, st->f, n, (void *[]){(void *)&a->data, (void *)&b->data, &y->data, &n});
}

/* ---- with a number of the node's: LeakyRelu ---- */

struct cuda_leaky {
  CUfunction f;
  float alpha;
};

/* alpha as the elements' type has it. */
static shoal_status leaky_init(struct kernel_init *ki, void *state) {
  struct cuda_leaky *st = state;
  struct cuda_fn fn;
  shoal_dtype type = dtype_base(ki->kernel->in_types[0]);
  TRY(cuda_fn_init(ki, "elementwise", &fn));
  st->f = fn.f;
  TRY(node_get_float(ki->node, "alpha", &st->alpha));
  if (type == SHOAL_FLOAT16) st->alpha = f16_to_float(f16_from_float(st->alpha));
  if (type == SHOAL_BFLOAT16) st->alpha = bf16_to_float(bf16_from_float(st->alpha));
  return NULL;
}

static shoal_status leaky_run(struct kernel_ctx *ctx) {
  const struct cuda_leaky *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  int64_t n = x->n;
  float alpha = st->alpha;
  return cuda_run_each(ctx, st->f, n, (void *[]){(void *)&x->data, &y->data, &n, &alpha});
}

static shoal_status leaky_grad_run(struct kernel_ctx *ctx) {
  const struct cuda_leaky *st = ctx->state;
  const struct tensor *g = ctx_in(ctx, 0), *x = ctx_in(ctx, 1);
  struct tensor *y;
  if (!tensor_same_shape(g, x))
    return INVALID("inputs must have the same shape: %s and %s", tensor_shape_str(g), tensor_shape_str(x));
  TRY(ctx_out_like(ctx, 0, 0, &y));
  int64_t n = x->n;
  float alpha = st->alpha;
  return cuda_run_each(ctx, st->f, n, (void *[]){(void *)&g->data, (void *)&x->data, &y->data, &n, &alpha});
}

/* ---- shapes that are spread to one another ---- */

enum { SPREAD_IN = 3 };
struct cuda_spread { /* as elementwise.cu has it */
  int64_t n;
  int32_t rank;
  uint32_t dims[SHOAL_MAX_RANK];
  uint32_t step[SPREAD_IN][SHOAL_MAX_RANK];
};

static shoal_status spread_from(const struct broadcast *b, struct cuda_spread *out) {
  if (b->n > UINT32_MAX) return UNIMPLEMENTED("more than 2^32 elements that are spread, on a card");
  *out = (struct cuda_spread){.n = b->n, .rank = b->rank};
  for (int d = 0; d < b->rank; d++) {
    out->dims[d] = (uint32_t)b->dims[d];
    for (int k = 0; k < b->n_in; k++) out->step[k][d] = (uint32_t)b->step[k][d];
  }
  return NULL;
}

shoal_status cuda_run_spread(struct kernel_ctx *ctx, CUfunction f, const struct broadcast *b,
                             const struct tensor *const *in, const struct tensor *out) {
  struct cuda_spread s;
  void *args[SPREAD_IN + 2];
  const struct tensor *uses[SPREAD_IN + 1];
  TRY(spread_from(b, &s));
  for (int i = 0; i < b->n_in; i++) {
    args[i] = (void *)&in[i]->data;
    uses[i] = in[i];
  }
  args[b->n_in] = (void *)&out->data;
  args[b->n_in + 1] = &s;
  uses[b->n_in] = out;
  if (!b->n) return NULL;
  return cuda_run_on(ctx, f, cuda_blocks(cuda_ctx(ctx), b->n), 1, CUDA_BLOCK, args, b->n_in + 1, uses);
}

static shoal_status spread_planned(struct kernel_ctx *ctx, const struct broadcast *b) {
  const struct cuda_fn *st = ctx->state;
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &b->out, &y));
  return cuda_run_spread(ctx, st->f, b, ctx->in, y);
}

static shoal_status spread_run(struct kernel_ctx *ctx, int n_in) {
  struct broadcast b;
  TRY(broadcast_plan(&b, ctx->in, n_in));
  return spread_planned(ctx, &b);
}

static shoal_status binary_run(struct kernel_ctx *ctx) { return spread_run(ctx, 2); }
static shoal_status select_v2_run(struct kernel_ctx *ctx) { return spread_run(ctx, 3); }

/* Select has its own rule: the condition is a scalar, or of t's shape, or a vector that chooses rows. */
static shoal_status select_run(struct kernel_ctx *ctx) {
  struct broadcast b;
  TRY(select_plan(ctx->in, &b));
  return spread_planned(ctx, &b);
}

/* Bounds are scalars, or of the value's shape. */
static shoal_status clip_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  for (int i = 1; i < 3; i++)
    if (ctx_in(ctx, i)->rank && !tensor_same_shape(x, ctx_in(ctx, i)))
      return INVALID(
          "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. input shape: %s"
          "clip_value_min shape: %sclip_value_max shape: %s",
          tensor_shape_str(x), tensor_shape_str(ctx_in(ctx, 1)), tensor_shape_str(ctx_in(ctx, 2)));
  return spread_run(ctx, 3);
}

static shoal_status select_init(struct kernel_init *ki, void *state) {
  struct cuda_fn *st = state;
  return cuda_function(cuda_of(ki->device), "elementwise", "SelectV2", dtype_base(ki->kernel->in_types[1]), 0, &st->f);
}

/* The shape is of the host; as an operand without memory it says what the other one is spread to. */
static shoal_status broadcast_to_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shapes[2] = {tensor_shape(x)};
  struct broadcast b;
  struct cuda_spread s;
  struct tensor *y;
  TRY(shape_from_values(ctx_in(ctx, 1), &shapes[1]));
  TRY(broadcast_plan_shapes(&b, shapes, 2));
  if (!shape_equal(&b.out, &shapes[1]))
    return INVALID("Incompatible shapes: %s vs. %s", shape_str(&shapes[0]), shape_str(&shapes[1]));
  TRY(spread_from(&b, &s));
  TRY(ctx_out(ctx, 0, &b.out, &y));
  return cuda_run_each(ctx, st->f, b.n, (void *[]){(void *)&x->data, &y->data, &s});
}

/* ---- Cast ---- */

static shoal_status cast_init(struct kernel_init *ki, void *state) {
  struct cuda_fn *st = state;
  return cuda_function(cuda_of(ki->device), "elementwise", "Cast", dtype_base(ki->kernel->in_types[0]),
                       dtype_base(ki->kernel->out_types[0]), &st->f);
}

static shoal_status cast_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(x);
  struct tensor *y;
  if (ctx_in_type(ctx, 0) == ctx_out_type(ctx, 0)) return ctx_forward(ctx, 0, 0, NULL);
  TRY(ctx_out(ctx, 0, &shape, &y));
  int64_t n = x->n;
  return cuda_run_each(ctx, st->f, n, (void *[]){(void *)&x->data, &y->data, &n});
}

/* ---- AddN, Fill, ZerosLike, BiasAdd ---- */

static shoal_status add_n_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  int64_t n = x->n;
  struct tensor *y;
  for (int i = 1; i < ctx->kernel->n_in; i++)
    if (!tensor_same_shape(x, ctx_in(ctx, i)))
      return INVALID(
          "Inputs to operation %s of type AddN must have the same size and shape.  Input 0: %s != input %d: %s",
          ctx->kernel->name, tensor_shape_str(x), i, tensor_shape_str(ctx_in(ctx, i)));
  if (ctx->kernel->n_in == 1) return ctx_forward(ctx, 0, 0, NULL);
  TRY(ctx_out_like(ctx, 0, 0, &y));
  void *sum = x->data;
  for (int i = 1; i < ctx->kernel->n_in; i++) {
    TRY(cuda_run_each(ctx, st->f, n, (void *[]){&sum, (void *)&ctx_in(ctx, i)->data, &y->data, &n}));
    sum = y->data;
  }
  return NULL;
}

static shoal_status fill_init(struct kernel_init *ki, void *state) {
  struct cuda_fn *st = state;
  return cuda_function(cuda_of(ki->device), "elementwise", "Fill", dtype_base(ki->kernel->out_types[0]), 0, &st->f);
}

static shoal_status fill_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  struct shape shape;
  struct tensor *y;
  TRY(ctx_check_scalar(ctx, 1, "value"));
  TRY(shape_from_values(ctx_in(ctx, 0), &shape));
  TRY(ctx_out(ctx, 0, &shape, &y));
  int64_t n = y->n;
  return cuda_run_each(ctx, st->f, n, (void *[]){&y->data, ctx_in(ctx, 1)->data, &n});
}

static shoal_status zeros_run(struct kernel_ctx *ctx) {
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  ctx->kernel->device->type->ops->zero(ctx->kernel->device, y);
  return NULL;
}

struct cuda_bias {
  struct cuda_fn fn;
  bool channels_first;
};

static shoal_status find_format(struct kernel_init *ki, bool *channels_first) {
  const char *format = "NHWC";
  if (node_attr(ki->node, "data_format")) TRY(node_get_string(ki->node, "data_format", &format));
  *channels_first = format[0] == 'N' && format[1] == 'C';
  return NULL;
}

static shoal_status bias_init(struct kernel_init *ki, void *state) {
  struct cuda_bias *st = state;
  TRY(find_format(ki, &st->channels_first));
  return cuda_function(cuda_of(ki->device), "elementwise", "BiasAdd", dtype_base(ki->kernel->in_types[0]), 0,
                       &st->fn.f);
}

static shoal_status bias_run(struct kernel_ctx *ctx) {
  const struct cuda_bias *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *bias = ctx_in(ctx, 1);
  struct tensor *y;
  if (x->rank < 2) return INVALID("Input tensor must be at least 2D: %s", tensor_shape_str(x));
  if (bias->rank != 1) return INVALID("Biases must be 1D: %s", tensor_shape_str(bias));
  int axis = st->channels_first ? 1 : x->rank - 1;
  if (bias->dims[0] != x->dims[axis])
    return INVALID("Must provide as many biases as the last dimension of the input tensor: %s vs. %s",
                   tensor_shape_str(bias), tensor_shape_str(x));
  TRY(ctx_out_like(ctx, 0, 0, &y));
  int64_t n = x->n;
  uint32_t channels = (uint32_t)bias->dims[0], inner = (uint32_t)dims_product(x->dims, axis + 1, x->rank);
  return cuda_run_each(ctx, st->fn.f, n,
                       (void *[]){(void *)&x->data, (void *)&bias->data, &y->data, &n, &channels, &inner});
}

struct cuda_bias_grad {
  struct cuda_reducer sum;
  bool channels_first;
};

static shoal_status bias_grad_init(struct kernel_init *ki, void *state) {
  struct cuda_bias_grad *st = state;
  TRY(find_format(ki, &st->channels_first));
  return cuda_reducer_init(cuda_of(ki->device), CUDA_SUM, dtype_base(ki->kernel->in_types[0]), &st->sum);
}

/* [n, channels, inner]: the inner ones first, then over n. */
static shoal_status sum_channels(struct kernel_ctx *ctx, const struct tensor *g, int64_t channels,
                                 const struct tensor *out) {
  const struct cuda_bias_grad *st = ctx->state;
  int64_t n = g->dims[0], inner = dims_product(g->dims, 2, g->rank);
  struct shape shape = shape_vector(n * channels);
  struct tensor parts;
  TRY(cuda_temp(ctx, dtype_size(st->sum.type) < 4 ? SHOAL_FLOAT32 : st->sum.type, &shape, &parts));
  shoal_status s = cuda_reduce(ctx, &st->sum, g, (struct cuda_block){n * channels, inner, 1}, 1, &parts);
  if (!s) s = cuda_reduce(ctx, &st->sum, &parts, (struct cuda_block){1, n, channels}, 1, out);
  tensor_release(&parts);
  return s;
}

static shoal_status bias_grad_run(struct kernel_ctx *ctx) {
  const struct cuda_bias_grad *st = ctx->state;
  const struct tensor *g = ctx_in(ctx, 0);
  struct tensor *out;
  if (g->rank < 2) return INVALID("Input tensor must be at least 2D: %s", tensor_shape_str(g));
  int64_t channels = g->dims[st->channels_first ? 1 : g->rank - 1];
  TRY(ctx_out_dims(ctx, 0, 1, &channels, &out));
  if (st->channels_first && g->rank > 2) return sum_channels(ctx, g, channels, out);
  return cuda_reduce(ctx, &st->sum, g, (struct cuda_block){1, channels ? g->n / channels : 0, channels}, 1, out);
}

/* ---- the table ---- */

#define KERNEL(id, types_, run_, ...)                                           \
  static const struct kernel_def id[] = {{.device = "GPU",                      \
                                          .type_attr = "T",                     \
                                          .types = types_,                      \
                                          .state_size = sizeof(struct cuda_fn), \
                                          .init = fn_init,                      \
                                          .run = run_},                         \
                                         {0}};
KERNEL(unary, CUDA_FLOATING, unary_run)
KERNEL(unary_any, CUDA_ARITHMETIC, unary_run)
KERNEL(pair, CUDA_FLOATING, pair_run)
KERNEL(binary, CUDA_ARITHMETIC, binary_run)
KERNEL(binary_floating, CUDA_FLOATING, binary_run)
KERNEL(compare, CUDA_PLAIN, binary_run)
KERNEL(clip, CUDA_ARITHMETIC, clip_run)
KERNEL(add_n, CUDA_ARITHMETIC, add_n_run)
#define OTHER(id, ...) static const struct kernel_def id[] = {{.device = "GPU", __VA_ARGS__}, {0}};
OTHER(logical, .state_size = sizeof(struct cuda_fn), .init = fn_init, .run = binary_run)
OTHER(logical_not, .state_size = sizeof(struct cuda_fn), .init = fn_init, .run = unary_run)
OTHER(select_v2, .type_attr = "T", .types = CUDA_PLAIN, .state_size = sizeof(struct cuda_fn), .init = select_init,
      .run = select_v2_run)
OTHER(select_v1, .type_attr = "T", .types = CUDA_PLAIN, .state_size = sizeof(struct cuda_fn), .init = select_init,
      .run = select_run)
OTHER(leaky, .type_attr = "T", .types = CUDA_FLOATING, .state_size = sizeof(struct cuda_leaky), .init = leaky_init,
      .run = leaky_run)
OTHER(leaky_grad, .type_attr = "T", .types = CUDA_FLOATING, .state_size = sizeof(struct cuda_leaky), .init = leaky_init,
      .run = leaky_grad_run)
OTHER(broadcast_to, .type_attr = "T", .types = CUDA_PLAIN, .state_size = sizeof(struct cuda_fn), .init = fn_init,
      .run = broadcast_to_run, .host_in = 2)
OTHER(cast, .type_attr = "SrcT", .types = CUDA_PLAIN, .type_attr2 = "DstT", .types2 = CUDA_PLAIN,
      .state_size = sizeof(struct cuda_fn), .init = cast_init, .run = cast_run)
OTHER(fill, .type_attr = "T", .types = CUDA_PLAIN, .state_size = sizeof(struct cuda_fn), .init = fill_init,
      .run = fill_run, .host_in = 3)
OTHER(zeros, .type_attr = "T", .types = CUDA_PLAIN, .run = zeros_run)
OTHER(bias, .type_attr = "T", .types = CUDA_ARITHMETIC, .state_size = sizeof(struct cuda_bias), .init = bias_init,
      .run = bias_run)
OTHER(bias_grad, .type_attr = "T", .types = CUDA_FLOATING, .state_size = sizeof(struct cuda_bias_grad),
      .init = bias_grad_init, .run = bias_grad_run)

const struct device_kernels cuda_elementwise_kernels[] = {{"Relu", unary},
                                                          {"Relu6", unary},
                                                          {"Elu", unary},
                                                          {"Softplus", unary},
                                                          {"Softsign", unary},
                                                          {"Sigmoid", unary},
                                                          {"Tanh", unary},
                                                          {"Exp", unary},
                                                          {"Expm1", unary},
                                                          {"Log", unary},
                                                          {"Log1p", unary},
                                                          {"Sqrt", unary},
                                                          {"Rsqrt", unary},
                                                          {"Sin", unary},
                                                          {"Cos", unary},
                                                          {"Erf", unary},
                                                          {"Floor", unary},
                                                          {"Ceil", unary},
                                                          {"Rint", unary},
                                                          {"Round", unary},
                                                          {"Reciprocal", unary},
                                                          {"Inv", unary},
                                                          {"Sign", unary},
                                                          {"Selu", unary},
                                                          {"Erfc", unary},
                                                          {"Sinh", unary},
                                                          {"Cosh", unary},
                                                          {"Tan", unary},
                                                          {"Asin", unary},
                                                          {"Acos", unary},
                                                          {"Atan", unary},
                                                          {"IsNan", unary},
                                                          {"IsInf", unary},
                                                          {"IsFinite", unary},
                                                          {"LeakyRelu", leaky},
                                                          {"Neg", unary_any},
                                                          {"Square", unary_any},
                                                          {"Abs", unary_any},
                                                          {"OnesLike", unary_any},
                                                          {"ZerosLike", zeros},
                                                          {"LogicalNot", logical_not},
                                                          {"ReluGrad", pair},
                                                          {"Relu6Grad", pair},
                                                          {"EluGrad", pair},
                                                          {"SeluGrad", pair},
                                                          {"LeakyReluGrad", leaky_grad},
                                                          {"SoftplusGrad", pair},
                                                          {"SoftsignGrad", pair},
                                                          {"SigmoidGrad", pair},
                                                          {"TanhGrad", pair},
                                                          {"SqrtGrad", pair},
                                                          {"RsqrtGrad", pair},
                                                          {"ReciprocalGrad", pair},
                                                          {"InvGrad", pair},
                                                          {"Add", binary},
                                                          {"AddV2", binary},
                                                          {"Sub", binary},
                                                          {"Mul", binary},
                                                          {"Maximum", binary},
                                                          {"Minimum", binary},
                                                          {"SquaredDifference", binary},
                                                          {"RealDiv", binary_floating},
                                                          {"Div", binary_floating},
                                                          {"DivNoNan", binary_floating},
                                                          {"MulNoNan", binary_floating},
                                                          {"Pow", binary_floating},
                                                          {"FloorDiv", binary_floating},
                                                          {"FloorMod", binary_floating},
                                                          {"Xdivy", binary_floating},
                                                          {"Xlogy", binary_floating},
                                                          {"Equal", compare},
                                                          {"NotEqual", compare},
                                                          {"Less", compare},
                                                          {"LessEqual", compare},
                                                          {"Greater", compare},
                                                          {"GreaterEqual", compare},
                                                          {"LogicalAnd", logical},
                                                          {"LogicalOr", logical},
                                                          {"Select", select_v1},
                                                          {"ClipByValue", clip},
                                                          {"SelectV2", select_v2},
                                                          {"BroadcastTo", broadcast_to},
                                                          {"Cast", cast},
                                                          {"AddN", add_n},
                                                          {"Fill", fill},
                                                          {"BiasAdd", bias},
                                                          {"BiasAddV1", bias},
                                                          {"BiasAddGrad", bias_grad},
                                                          {0}};
