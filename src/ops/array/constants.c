/* Constants and other tensors that come from an attribute or a shape alone: Const, placeholders, Fill, zeros and
 * ones, Empty. A constant's buffer is held by the kernel and shared with every step; nothing is copied. */
#include <string.h>

#include "base/clock.h"
#include "ops/array/array_util.h"

/* ---- Const, placeholders ---- */

struct const_state {
  struct tensor value;
};

static shoal_status const_init(struct kernel_init *ki, void *state) {
  struct const_state *st = state;
  const struct tensor *t;
  shoal_dtype dtype;
  TRY(node_get_tensor(ki->node, "value", &t));
  TRY(node_get_type(ki->node, "dtype", &dtype));
  if (t->dtype != dtype)
    return INVALID("Type mismatch between value (%s) and dtype (%s)", dtype_tf_name(t->dtype), dtype_tf_name(dtype));
  tensor_ref(&st->value, t);
  return NULL;
}

static void const_release(void *state) { tensor_release(&((struct const_state *)state)->value); }

static shoal_status const_run(struct kernel_ctx *ctx) {
  struct const_state *st = ctx->state;
  struct tensor t;
  tensor_ref(&t, &st->value);
  ctx_set(ctx, 0, &t);
  return NULL;
}

static shoal_status const_shape(struct shape_ctx *c) {
  const struct tensor *t;
  TRY(node_get_tensor(c->node, "value", &t));
  c->out[0] = tensor_shape(t);
  return NULL;
}

static const struct kernel_def const_kernels[] = {{.device = "CPU",
                                                   .flags = KERNEL_CHEAP | KERNEL_ANYWHERE,
                                                   .state_size = sizeof(struct const_state),
                                                   .init = const_init,
                                                   .release = const_release,
                                                   .run = const_run,
                                                   .host_out = 1},
                                                  {0}};

struct placeholder_state {
  struct shape shape;
};

static shoal_status placeholder_init(struct kernel_init *ki, void *state) {
  return node_get_shape(ki->node, "shape", &((struct placeholder_state *)state)->shape);
}

static shoal_status placeholder_run(struct kernel_ctx *ctx) {
  struct placeholder_state *st = ctx->state;
  const char *type = dtype_tf_name(ctx_out_type(ctx, 0));
  if (st->shape.rank > 0)
    return INVALID("You must feed a value for placeholder tensor '%s' with dtype %s and shape %s", ctx->kernel->name,
                   type, shape_str(&st->shape));
  return INVALID("You must feed a value for placeholder tensor '%s' with dtype %s", ctx->kernel->name, type);
}

static const struct kernel_def placeholder_kernels[] = {{.device = "CPU",
                                                         .flags = KERNEL_CHEAP,
                                                         .state_size = sizeof(struct placeholder_state),
                                                         .init = placeholder_init,
                                                         .run = placeholder_run},
                                                        {0}};

static shoal_status default_run(struct kernel_ctx *ctx) { return ctx_forward(ctx, 0, 0, NULL); }

static shoal_status default_shape(struct shape_ctx *c) {
  struct shape s;
  TRY(node_get_shape(c->node, "shape", &s));
  if (!shape_compatible(&s, &c->in[0]))
    return INVALID("Placeholder's shape %s is not compatible with its default's shape %s", shape_str(&s),
                   shape_str(&c->in[0]));
  c->out[0] = s;
  return NULL;
}

static const struct kernel_def default_kernels[] = {{.device = "CPU", .flags = KERNEL_CHEAP, .run = default_run}, {0}};

/* Stands for a value that a branch has not: of the shape that was promised, a scalar where none was; nobody looks. */
static shoal_status fake_param_run(struct kernel_ctx *ctx) {
  struct placeholder_state *st = ctx->state;
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &st->shape, &y));
  tensor_zero(y);
  return NULL;
}

static shoal_status fake_param_init(struct kernel_init *ki, void *state) {
  struct placeholder_state *st = state;
  TRY(placeholder_init(ki, state));
  if (!shape_known(&st->shape)) st->shape = (struct shape){0};
  return NULL;
}

static const struct kernel_def fake_param_kernels[] = {{.device = "CPU",
                                                        .flags = KERNEL_CHEAP,
                                                        .state_size = sizeof(struct placeholder_state),
                                                        .init = fake_param_init,
                                                        .run = fake_param_run},
                                                       {0}};

/* ---- Fill, ZerosLike, OnesLike, Empty ---- */

static shoal_status fill_run(struct kernel_ctx *ctx) {
  const struct tensor *dims = ctx_in(ctx, 0), *value = ctx_in(ctx, 1);
  if (dims->rank > 1 || (dims->rank == 0 && dims->n != 1))
    return INVALID("dims must represent a vector, got shape %s", tensor_shape_str(dims));
  if (value->n != 1 || value->rank > 1)
    return INVALID("value must represent a scalar, got shape %s", tensor_shape_str(value));
  struct shape s;
  TRY(shape_from_values(dims, &s));
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  elements_fill(ctx_pool(ctx), (shoal_dtype)value->dtype, y->data, value->data, y->n);
  return NULL;
}

static shoal_status fill_shape(struct shape_ctx *c) { return shape_in_value(c, 0, &c->out[0]); }

static shoal_status fill_grad(struct grad_ctx *c) {
  grad_set(c, 1, array_sum_all(c->g, grad_dy(c, 0)));
  return NULL;
}

static shoal_status zeros_like_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  if (x->dtype == SHOAL_VARIANT) {
    struct shape s = tensor_shape(x);
    TRY(ctx_out(ctx, 0, &s, &y));
    for (int64_t i = 0; i < x->n; i++) {
      struct variant *v = T_DATA(x, struct variant *)[i];
      if (!v) continue;
      if (!v->type->zeros_like) return UNIMPLEMENTED("ZerosLike: variants of type %s have no zero", v->type->name);
      T_DATA(y, struct variant *)[i] = v->type->zeros_like(v);
    }
    return NULL;
  }
  if (x->dtype == SHOAL_RESOURCE)
    return INVALID("ZerosLike non-scalar Tensor with dtype=DT_RESOURCE is not supported.");
  struct shape s = tensor_shape(x);
  TRY(ctx_out(ctx, 0, &s, &y));
  tensor_zero(y);
  return NULL;
}

static shoal_status ones_like_run(struct kernel_ctx *ctx) {
  shoal_dtype t = ctx_in_type(ctx, 0);
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  union {
    float f;
    double d;
    int64_t i;
    uint16_t h;
    c64 c;
    c128 z;
  } one = {.i = 1}; /* little-endian: right for every integer size and bool */
  if (t == SHOAL_FLOAT32) one.f = 1;
  else if (t == SHOAL_FLOAT64) one.d = 1;
  else if (t == SHOAL_FLOAT16) one.h = f16_from_float(1).bits;
  else if (t == SHOAL_BFLOAT16) one.h = bf16_from_float(1).bits;
  else if (t == SHOAL_COMPLEX64) one.c = 1;
  else if (t == SHOAL_COMPLEX128) one.z = 1;
  elements_fill(ctx_pool(ctx), t, y->data, &one, y->n);
  return NULL;
}

struct empty_state {
  bool init;
};

static shoal_status empty_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "init", &((struct empty_state *)state)->init);
}

static shoal_status empty_run(struct kernel_ctx *ctx) {
  struct empty_state *st = ctx->state;
  const struct tensor *dims = ctx_in(ctx, 0);
  if (dims->rank != 1) return INVALID("shape must be a vector of int32, got shape %s", tensor_shape_str(dims));
  struct shape s;
  TRY(tensor_get_shape(dims, false, &s));
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (st->init) tensor_zero(y);
  return NULL;
}

static const struct kernel_def fill_kernels[] = {{.device = "CPU", .run = fill_run, .host_in = 1}, {0}};
/* A variant is in host memory, and so are its zeros. */
static const struct kernel_def zeros_like_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT(VARIANT), .flags = KERNEL_ANYWHERE, .run = zeros_like_run},
    {.device = "CPU", .run = zeros_like_run},
    {0}};
static const struct kernel_def ones_like_kernels[] = {{.device = "CPU", .run = ones_like_run}, {0}};
static const struct kernel_def empty_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct empty_state), .init = empty_init, .run = empty_run, .host_in = 1},
    {0}};

/* ---- Timestamp ---- */

static shoal_status timestamp_run(struct kernel_ctx *ctx) {
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  *T_DATA(y, double) = (double)wall_micros() / 1e6;
  return NULL;
}

static const struct kernel_def timestamp_kernels[] = {{.device = "CPU", .flags = KERNEL_CHEAP, .run = timestamp_run},
                                                      {0}};

static const struct op_row rows[] = {
    {.name = "Const",
     .out = "output: dtype",
     .attrs = "value: tensor; dtype: type",
     .flags = OP_NO_GRADIENT,
     .shape = const_shape,
     .kernels = const_kernels},
    {.name = "HostConst",
     .out = "output: dtype",
     .attrs = "value: tensor; dtype: type",
     .flags = OP_NO_GRADIENT,
     .shape = const_shape,
     .kernels = const_kernels},
    {.name = "Placeholder",
     .out = "output: dtype",
     .attrs = "dtype: type; shape: shape = {}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_explicit,
     .kernels = placeholder_kernels},
    {.name = "PlaceholderV2",
     .out = "output: dtype",
     .attrs = "dtype: type; shape: shape",
     .flags = OP_NO_GRADIENT,
     .shape = shape_explicit,
     .kernels = placeholder_kernels},
    {.name = "PlaceholderWithDefault",
     .in = "input: dtype",
     .out = "output: dtype",
     .attrs = "dtype: type; shape: shape",
     .shape = default_shape,
     .grad = grad_pass,
     .kernels = default_kernels},
    {.name = "FakeParam",
     .out = "output: dtype",
     .attrs = "dtype: type; shape: shape",
     .flags = OP_NO_GRADIENT,
     .shape = shape_explicit,
     .kernels = fake_param_kernels},
    {.name = "Fill",
     .in = "dims: index_type, value: T",
     .out = "output: T",
     .attrs = "T: type; index_type: {int32, int64} = int32",
     .shape = fill_shape,
     .grad = fill_grad,
     .kernels = fill_kernels},
    {.name = "ZerosLike",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = zeros_like_kernels},
    {.name = "OnesLike",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, "
              "complex64, complex128, bool}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = ones_like_kernels},
    {.name = "Empty",
     .in = "shape: int32",
     .out = "output: dtype",
     .attrs = "dtype: type; init: bool = false",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = fill_shape,
     .kernels = empty_kernels},
    {.name = "Timestamp",
     .out = "ts: double",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .shape = shape_scalar_out,
     .kernels = timestamp_kernels},
};
OP_FAMILY(constants, rows);
