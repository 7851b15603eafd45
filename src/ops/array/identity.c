/* Ops that pass a value on as it is (Identity and its kin), and those that only look at it: CheckNumerics,
 * EnsureShape, Shape, Size, Rank. Passing on shares the buffer; only DeepCopy copies. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/array/array_util.h"

/* ---- passing on ---- */

static shoal_status pass_run(struct kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->n_out; i++) TRY(ctx_forward(ctx, i, i, NULL));
  return NULL;
}

/* What goes in and comes out is told by attributes that need not agree. */
static shoal_status list_init(struct kernel_init *ki, void *state) {
  const struct shoal_node *n = ki->node;
  if (n->n_in != n->n_out) return INTERNAL("#inputs != #outputs : %d vs. %d", n->n_in, n->n_out);
  for (int i = 0; i < n->n_in; i++)
    if (n->in_types[i] != n->out_types[i])
      return INTERNAL("Input and output types for position %d do not match: %s vs. %s", i,
                      dtype_tf_name(n->in_types[i]), dtype_tf_name(n->out_types[i]));
  return NULL;
}

static shoal_status copy_run(struct kernel_ctx *ctx) {
  struct tensor t;
  TRY(tensor_copy(&t, ctx_in(ctx, 0)));
  ctx_set(ctx, 0, &t);
  return NULL;
}

static shoal_status ref_pass_run(struct kernel_ctx *ctx) {
  ctx_set_ref(ctx, 0, ctx_ref(ctx, 0));
  return NULL;
}

static shoal_status nothing_run(struct kernel_ctx *ctx) { return NULL; }

static const struct kernel_def pass_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = pass_run}, {0}};
static const struct kernel_def list_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .init = list_init, .run = pass_run}, {0}};
static const struct kernel_def ref_pass_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = ref_pass_run}, {0}};
static const struct kernel_def copy_kernels[] = {{.device = "CPU", .run = copy_run}, {0}};
static const struct kernel_def nothing_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = nothing_run}, {0}};

/* Gradients of each input are those of its output, slices included. */
static shoal_status pass_grad(struct grad_ctx *c) {
  for (int i = 0; i < c->node->n_in; i++) c->dx[i] = c->dy[i];
  return NULL;
}

static shoal_status prevent_grad(struct grad_ctx *c) {
  const char *why;
  TRY(node_get_string(c->node, "message", &why));
  return STATUS(SHOAL_INVALID_ARGUMENT, "Gradient explicitly disabled. Reason: %s", why);
}

/* ---- CheckNumerics ---- */

enum { SEEN_NAN = 1, SEEN_PLUS_INF = 2, SEEN_MINUS_INF = 4 };

struct check_state {
  char *message;
  bool tell_signs; /* V2 */
};

static shoal_status check_init(struct kernel_init *ki, void *state) {
  struct check_state *st = state;
  const char *message;
  TRY(node_get_string(ki->node, "message", &message));
  st->message = mem_strdup(message);
  st->tell_signs = op_is(ki->node->op, "CheckNumericsV2");
  return NULL;
}

static void check_release(void *state) { free(((struct check_state *)state)->message); }

/* The bits of anything that is not finite; the common case costs one pass without branches. */
#define SCAN(name, type, uint, exponent, sign)                                    \
  static int name(const void *data, int64_t n) {                                  \
    const uint *x = data;                                                         \
    uint bad = 0;                                                                 \
    for (int64_t i = 0; i < n; i++) bad |= (uint)((x[i] & exponent) == exponent); \
    int seen = 0;                                                                 \
    for (int64_t i = 0; bad && i < n; i++) {                                      \
      if ((x[i] & exponent) != exponent) continue;                                \
      if (x[i] & (uint) ~(exponent | sign)) seen |= SEEN_NAN;                     \
      else seen |= x[i] & sign ? SEEN_MINUS_INF : SEEN_PLUS_INF;                  \
    }                                                                             \
    return seen;                                                                  \
  }
SCAN(scan_float, float, uint32_t, 0x7f800000u, 0x80000000u)
SCAN(scan_double, double, uint64_t, 0x7ff0000000000000u, 0x8000000000000000u)
SCAN(scan_half, f16, uint16_t, (uint16_t)0x7c00, (uint16_t)0x8000)
SCAN(scan_bfloat16, bf16, uint16_t, (uint16_t)0x7f80, (uint16_t)0x8000)

static shoal_status check_run(struct kernel_ctx *ctx) {
  struct check_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  int seen;
  switch (x->dtype) {
    case SHOAL_FLOAT32: seen = scan_float(x->data, x->n); break;
    case SHOAL_FLOAT64: seen = scan_double(x->data, x->n); break;
    case SHOAL_FLOAT16: seen = scan_half(x->data, x->n); break;
    default: seen = scan_bfloat16(x->data, x->n);
  }
  if (!seen) return ctx_forward(ctx, 0, 0, NULL);
  static const char *const plain[] = {"", "NaN", "Inf", "Inf and NaN", "Inf", "Inf and NaN", "Inf", "Inf and NaN"};
  static const char *const signs[] = {"",     "NaN",          "+Inf",          "+Inf and NaN",
                                      "-Inf", "-Inf and NaN", "-Inf and +Inf", "-Inf, +Inf, and NaN"};
  return INVALID("%s : Tensor had %s values", st->message, (st->tell_signs ? signs : plain)[seen]);
}

static shoal_status check_grad(struct grad_ctx *c) {
  const char *message;
  TRY(node_get_string(c->node, "message", &message));
  char *text = mem_printf("Not a number (NaN) or infinity (Inf) values detected in gradient. b'%s'", message);
  struct build b = build_begin(c->g, c->node->op->name, NULL);
  build_in(&b, grad_dy(c, 0));
  build_attr_string(&b, "message", text);
  free(text);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

static const struct kernel_def check_kernels[] = {{.device = "CPU",
                                                   .type_attr = "T",
                                                   .types = DT_FLOATING,
                                                   .state_size = sizeof(struct check_state),
                                                   .init = check_init,
                                                   .release = check_release,
                                                   .run = check_run},
                                                  {0}};

/* ---- GuaranteeConst ---- */

static shoal_status const_run(struct kernel_ctx *ctx) {
  if (ctx_in_type(ctx, 0) == SHOAL_RESOURCE)
    return INVALID("Input tensor cannot be a resource variable handle. Found %s", ctx->kernel->name);
  return ctx_forward(ctx, 0, 0, NULL);
}

static const struct kernel_def const_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = const_run}, {0}};

/* ---- EnsureShape ---- */

struct ensure_state {
  struct shape shape;
  char *input; /* the tensor's name, for the error */
};

static shoal_status ensure_init(struct kernel_init *ki, void *state) {
  struct ensure_state *st = state;
  shoal_out in = ki->node->in[0];
  st->input = in.index ? mem_printf("%s:%d", in.node->name, in.index) : mem_strdup(in.node->name);
  return node_get_shape(ki->node, "shape", &st->shape);
}

static void ensure_release(void *state) { free(((struct ensure_state *)state)->input); }

static shoal_status ensure_run(struct kernel_ctx *ctx) {
  const struct ensure_state *st = ctx->state;
  struct shape s = tensor_shape(ctx_in(ctx, 0));
  if (!shape_compatible(&st->shape, &s))
    return INVALID("Shape of tensor %s %s is not compatible with expected shape %s.", st->input, shape_str(&s),
                   shape_str(&st->shape));
  return ctx_forward(ctx, 0, 0, NULL);
}

static shoal_status ensure_shape(struct shape_ctx *c) {
  struct shape s;
  TRY(node_get_shape(c->node, "shape", &s));
  return shape_merge(&c->in[0], &s, &c->out[0]);
}

static shoal_status ensure_grad(struct grad_ctx *c) {
  struct shape s;
  TRY(node_get_shape(c->node, "shape", &s));
  struct build b = build_begin(c->g, "EnsureShape", NULL);
  build_in(&b, grad_dy(c, 0));
  build_attr_shape(&b, "shape", &s);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

static const struct kernel_def ensure_kernels[] = {{.device = "CPU",
                                                    .flags = KERNEL_CHEAP | KERNEL_ANYWHERE,
                                                    .state_size = sizeof(struct ensure_state),
                                                    .init = ensure_init,
                                                    .release = ensure_release,
                                                    .run = ensure_run},
                                                   {0}};

/* ---- Shape, ShapeN, Size, Rank ---- */

static shoal_status put_int(struct kernel_ctx *ctx, struct tensor *y, int64_t i, int64_t v) {
  if (y->dtype == SHOAL_INT32 && v > INT32_MAX)
    return INVALID("Shape output type is 32-bit but dim %" PRId64 " is %" PRId64, i, v);
  int_put(y, i, v);
  return NULL;
}

static shoal_status shape_run(struct kernel_ctx *ctx) {
  for (int k = 0; k < ctx->kernel->n_out; k++) {
    const struct tensor *x = ctx_in(ctx, k);
    struct shape s = shape_vector(x->rank);
    struct tensor *y;
    TRY(ctx_out(ctx, k, &s, &y));
    for (int i = 0; i < x->rank; i++) TRY(put_int(ctx, y, i, x->dims[i]));
  }
  return NULL;
}

static shoal_status size_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  if (y->dtype == SHOAL_INT32 && x->n > INT32_MAX)
    return INVALID("Number of elements was larger than representable by 32-bit output type");
  int_put(y, 0, x->n);
  return NULL;
}

static shoal_status rank_run(struct kernel_ctx *ctx) {
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  *T_DATA(y, int32_t) = ctx_in(ctx, 0)->rank;
  return NULL;
}

static shoal_status shape_shape(struct shape_ctx *c) {
  for (int i = 0; i < c->node->n_out; i++) c->out[i] = shape_vector(c->in[i].rank);
  return NULL;
}

static const struct kernel_def shape_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = shape_run, .host_out = UINT32_MAX}, {0}};
static const struct kernel_def size_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = size_run, .host_out = 1}, {0}};
static const struct kernel_def rank_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = rank_run, .host_out = 1}, {0}};

static const struct op_row rows[] = {
    {.name = "NoOp", .kernels = nothing_kernels},
    {.name = "ControlTrigger", .kernels = nothing_kernels},
    {.name = "Identity",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = shape_pass,
     .grad = pass_grad,
     .kernels = pass_kernels},
    {.name = "IdentityN",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: list(type) >= 1",
     .shape = shape_pass,
     .grad = pass_grad,
     .kernels = pass_kernels},
    {.name = "RefIdentity",
     .in = "input: Ref(T)",
     .out = "output: Ref(T)",
     .attrs = "T: type",
     .flags = OP_UNINITIALIZED_OK,
     .shape = shape_pass,
     .grad = pass_grad,
     .kernels = ref_pass_kernels},
    {.name = "Snapshot",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type",
     .shape = shape_pass,
     .grad = pass_grad,
     .kernels = pass_kernels},
    {.name = "DeepCopy",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: type",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_pass,
     .kernels = copy_kernels},
    {.name = "StopGradient",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_pass,
     .kernels = pass_kernels},
    {.name = "PreventGradient",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type; message: string = ''",
     .shape = shape_pass,
     .grad = prevent_grad,
     .kernels = pass_kernels},
    {.name = "GuaranteeConst",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type",
     .flags = OP_STATEFUL,
     .shape = shape_pass,
     .grad = pass_grad,
     .kernels = const_kernels},
    {.name = "DebugGradientIdentity",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type",
     .flags = OP_UNINITIALIZED_OK,
     .shape = shape_pass,
     .grad = pass_grad,
     .kernels = pass_kernels},
    {.name = "DebugGradientRefIdentity",
     .in = "input: Ref(T)",
     .out = "output: Ref(T)",
     .attrs = "T: type",
     .flags = OP_UNINITIALIZED_OK,
     .shape = shape_pass,
     .grad = pass_grad,
     .kernels = ref_pass_kernels},
    {.name = "_ListToArray",
     .in = "input: Tin",
     .out = "output: N * T",
     .attrs = "Tin: list(type) >= 1; T: type; N: int >= 1",
     .shape = shape_pass,
     .kernels = list_kernels},
    {.name = "_ArrayToList",
     .in = "input: N * T",
     .out = "output: out_types",
     .attrs = "T: type; N: int >= 1; out_types: list(type) >= 1",
     .shape = shape_pass,
     .kernels = list_kernels},
    {.name = "CheckNumerics",
     .in = "tensor: T",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double}; message: string",
     .flags = OP_STATEFUL,
     .shape = shape_unchanged,
     .grad = check_grad,
     .kernels = check_kernels},
    {.name = "CheckNumericsV2",
     .in = "tensor: T",
     .out = "output: T",
     .attrs = "T: {bfloat16, half, float, double}; message: string",
     .flags = OP_STATEFUL,
     .shape = shape_unchanged,
     .grad = check_grad,
     .kernels = check_kernels},
    {.name = "EnsureShape",
     .in = "input: T",
     .out = "output: T",
     .attrs = "shape: shape; T: type",
     .shape = ensure_shape,
     .grad = ensure_grad,
     .kernels = ensure_kernels},
    {.name = "Shape",
     .in = "input: T",
     .out = "output: out_type",
     .attrs = "T: type; out_type: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_shape,
     .kernels = shape_kernels},
    {.name = "ShapeN",
     .in = "input: N * T",
     .out = "output: N * out_type",
     .attrs = "N: int >= 1; T: type; out_type: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_shape,
     .kernels = shape_kernels},
    {.name = "Size",
     .in = "input: T",
     .out = "output: out_type",
     .attrs = "T: type; out_type: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = size_kernels},
    {.name = "Rank",
     .in = "input: T",
     .out = "output: int32",
     .attrs = "T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = rank_kernels},
};
OP_FAMILY(identity, rows);
