/* Comparisons, logic and bitwise ops: rows, and what is special about equality (strings, shapes that do not fit). */
#include <math.h>

#include "graph/shape_fn.h"
#include "ops/math/broadcast.h"
#include "ops/math/elementwise.h"

/* ---- Equal, NotEqual ---- */

struct equal {
  struct binary_loop loop; /* binary_run takes the state to begin with this */
  bool negate;
  bool shapes_may_differ; /* then the answer is one "no", not an error */
};

static shoal_status equal_init(struct kernel_init *ki, void *state) {
  struct equal *e = state;
  bool fail;
  TRY(node_get_bool(ki->node, "incompatible_shape_error", &fail));
  e->shapes_may_differ = !fail;
  e->negate = op_is(ki->kernel->op, "NotEqual");
  return dtype_base(ki->kernel->in_types[0]) == SHOAL_STRING ? NULL : binary_init(ki, state);
}

/* True when the shapes do not fit and that is an answer: sets it. */
static bool answered(struct kernel_ctx *ctx, const struct equal *e, shoal_status *s) {
  if (!e->shapes_may_differ) return false;
  struct shape a = tensor_shape(ctx_in(ctx, 0)), b = tensor_shape(ctx_in(ctx, 1)), both;
  shoal_status differ = shape_broadcast(&a, &b, &both);
  if (!differ) return false;
  shoal_status_free(differ);
  struct tensor *z;
  *s = ctx_out_dims(ctx, 0, 0, NULL, &z);
  if (!*s) *T_DATA(z, bool) = e->negate;
  return true;
}

static shoal_status equal_run(struct kernel_ctx *ctx) {
  shoal_status s = NULL;
  if (answered(ctx, ctx->state, &s)) return s;
  return binary_run(ctx);
}

struct string_task {
  bool *out, negate, step_a, step_b;
  const struct str *a, *b;
};

static void string_stretch(void *arg, int64_t at, const int64_t *in_at, int64_t n) {
  const struct string_task *t = arg;
  for (int64_t i = 0; i < n; i++) {
    const struct str *a = &t->a[in_at[0] + (t->step_a ? i : 0)], *b = &t->b[in_at[1] + (t->step_b ? i : 0)];
    bool same = a->size == b->size && memcmp(str_data(a), str_data(b), a->size) == 0;
    t->out[at + i] = same != t->negate;
  }
}

static shoal_status equal_strings_run(struct kernel_ctx *ctx) {
  const struct equal *e = ctx->state;
  shoal_status s = NULL;
  if (answered(ctx, e, &s)) return s;
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  struct broadcast plan;
  TRY(broadcast_plan(&plan, (const struct tensor *const[]){a, b}, 2));
  struct tensor *z;
  TRY(ctx_out(ctx, 0, &plan.out, &z));
  struct string_task t = {z->data, e->negate, broadcast_inner(&plan, 0), broadcast_inner(&plan, 1), a->data, b->data};
  broadcast_each(&plan, 0, plan.n, string_stretch, &t);
  return NULL;
}

static shoal_status equal_shape(struct shape_ctx *c) {
  bool fail;
  TRY(node_get_bool(c->node, "incompatible_shape_error", &fail));
  if (fail) return shape_broadcast_binary(c);
  /* A dimension that turns out not to fit makes the result a scalar: only known shapes say anything. */
  if (!shape_known(&c->in[0]) || !shape_known(&c->in[1])) return NULL;
  shoal_status differ = shape_broadcast(&c->in[0], &c->in[1], &c->out[0]);
  if (differ) c->out[0] = shape_scalar();
  shoal_status_free(differ);
  return NULL;
}

/* ---- ApproximateEqual: equal shapes only ---- */

struct approximate {
  float tolerance;
};

static shoal_status approximate_init(struct kernel_init *ki, void *state) {
  return node_get_float(ki->node, "tolerance", &((struct approximate *)state)->tolerance);
}

static shoal_status approximate_run(struct kernel_ctx *ctx) {
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  if (!tensor_same_shape(a, b)) {
    struct shape x = tensor_shape(a), y = tensor_shape(b);
    return INVALID("x and y must be of the same shape. x shape: %s. y shape: %s", shape_str(&x), shape_str(&y));
  }
  const struct approximate *st = ctx->state;
  struct tensor *z;
  struct shape s = tensor_shape(a);
  TRY(ctx_out(ctx, 0, &s, &z));
  bool *o = z->data;
  if (a->dtype == SHOAL_FLOAT32) {
    const float *x = a->data, *y = b->data, tolerance = st->tolerance;
    for (int64_t i = 0; i < a->n; i++) o[i] = fabsf(x[i] - y[i]) < tolerance;
  } else {
    const double *x = a->data, *y = b->data, tolerance = st->tolerance;
    for (int64_t i = 0; i < a->n; i++) o[i] = fabs(x[i] - y[i]) < tolerance;
  }
  return NULL;
}

/* ---- rows ---- */

static const struct kernel_def equal_kernels[] = {
    {"CPU", "T", DT_PLAIN, .state_size = sizeof(struct equal), .init = equal_init, .run = equal_run},
    {"CPU", "T", DT(STRING), .state_size = sizeof(struct equal), .init = equal_init, .run = equal_strings_run},
    {0}};
static const struct kernel_def ordered_kernels[] = {BINARY_KERNEL(DT_REAL), {0}};
static const struct kernel_def integer_kernels[] = {BINARY_KERNEL(DT_INTEGER), {0}};
static const struct kernel_def bool_kernels[] = {
    {"CPU", .state_size = sizeof(struct binary_loop), .init = binary_init, .run = binary_run}, {0}};
static const struct kernel_def approximate_kernels[] = {
    {"CPU", "T", DT(FLOAT32) | DT(FLOAT64), .state_size = sizeof(struct approximate), .init = approximate_init,
     .run = approximate_run},
    {0}};

static const struct op_row rows[] = {
    {.name = "Equal",
     .in = "x: T, y: T",
     .out = "z: bool",
     .attrs = "T: type; incompatible_shape_error: bool = true",
     .flags = OP_COMMUTATIVE | OP_NO_GRADIENT,
     .shape = equal_shape,
     .kernels = equal_kernels},
    {.name = "NotEqual",
     .in = "x: T, y: T",
     .out = "z: bool",
     .attrs = "T: type; incompatible_shape_error: bool = true",
     .flags = OP_COMMUTATIVE | OP_NO_GRADIENT,
     .shape = equal_shape,
     .kernels = equal_kernels},
    {.name = "Less",
     .in = "x: T, y: T",
     .out = "z: bool",
     .attrs = "T: {realnumbertype}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = ordered_kernels},
    {.name = "LessEqual",
     .in = "x: T, y: T",
     .out = "z: bool",
     .attrs = "T: {realnumbertype}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = ordered_kernels},
    {.name = "Greater",
     .in = "x: T, y: T",
     .out = "z: bool",
     .attrs = "T: {realnumbertype}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = ordered_kernels},
    {.name = "GreaterEqual",
     .in = "x: T, y: T",
     .out = "z: bool",
     .attrs = "T: {realnumbertype}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = ordered_kernels},
    {.name = "ApproximateEqual",
     .in = "x: T, y: T",
     .out = "z: bool",
     .attrs = "T: {numbertype}; tolerance: float = 1e-05",
     .flags = OP_COMMUTATIVE | OP_NO_GRADIENT,
     .shape = shape_merge_all,
     .kernels = approximate_kernels},
    {.name = "LogicalAnd",
     .in = "x: bool, y: bool",
     .out = "z: bool",
     .flags = OP_COMMUTATIVE | OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = bool_kernels},
    {.name = "LogicalOr",
     .in = "x: bool, y: bool",
     .out = "z: bool",
     .flags = OP_COMMUTATIVE | OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = bool_kernels},
    {.name = "BitwiseAnd",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     .flags = OP_COMMUTATIVE | OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = integer_kernels},
    {.name = "BitwiseOr",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     .flags = OP_COMMUTATIVE | OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = integer_kernels},
    {.name = "BitwiseXor",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     .flags = OP_COMMUTATIVE | OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = integer_kernels},
    {.name = "LeftShift",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = integer_kernels},
    {.name = "RightShift",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = integer_kernels},
};
OP_FAMILY(compare, rows);
