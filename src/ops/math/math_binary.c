/* Ops of two inputs, elementwise with broadcasting: arithmetic, powers, special functions; rows and gradients. The
 * loops are in binary_loops.c and special_loops.c; strings are joined here. */
#include <math.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/math/broadcast.h"
#include "ops/math/elementwise.h"
#include "ops/math/grad_help.h"
#include "ops/math/special_math.h"

/* ---- gradients; x and y are the inputs, z the output; what broadcasting repeated is added up ---- */

#define GRADIENT_OF(name, left, right, gx, gy)   \
  static shoal_status name(struct grad_ctx *c) { \
    shoal_out dz = grad_dy(c, 0);                \
    shoal_out x = left, y = right;               \
    (void)x;                                     \
    (void)y;                                     \
    return g_set_broadcast(c, gx, gy);           \
  }
#define GRADIENT(name, gx, gy) GRADIENT_OF(name, g_conj(c, gin(c, 0)), g_conj(c, gin(c, 1)), gx, gy)
/* Those for which TensorFlow takes complex inputs as they are. */
#define PLAIN_GRADIENT(name, gx, gy) GRADIENT_OF(name, gin(c, 0), gin(c, 1), gx, gy)
#define MUL(a, b) g_mul(c, a, b)
#define DIV(a, b) g_div(c, a, b)
#define NOTHING ((shoal_out){0})

GRADIENT(add_grad, dz, dz)
GRADIENT(sub_grad, dz, g_neg(c, dz))
GRADIENT(mul_grad, MUL(dz, y), MUL(x, dz))
PLAIN_GRADIENT(mul_no_nan_grad, g_op2(c, "MulNoNan", dz, y), g_op2(c, "MulNoNan", x, dz))
GRADIENT(div_grad, g_op2(c, "Div", dz, y), MUL(dz, g_op2(c, "Div", g_op2(c, "Div", g_neg(c, x), y), y)))
GRADIENT(real_div_grad, DIV(dz, y), MUL(dz, DIV(DIV(g_neg(c, x), y), y)))
GRADIENT(div_no_nan_grad, g_op2(c, "DivNoNan", dz, y),
         MUL(dz, g_op2(c, "DivNoNan", g_op2(c, "DivNoNan", g_neg(c, x), y), y)))
GRADIENT(floor_mod_grad, dz, MUL(dz, g_neg(c, g_op2(c, "FloorDiv", x, y))))

/* Where x is not 0 in the type of x. */
static shoal_out not_zero(struct grad_ctx *c, shoal_out x) {
  return build_cast(c->g, g_op2(c, "NotEqual", x, g_num(c, x, 0)), out_type(x));
}
PLAIN_GRADIENT(xlogy_grad, MUL(g_op2(c, "Xlogy", not_zero(c, x), y), dz), MUL(g_op2(c, "Xdivy", x, y), dz))
PLAIN_GRADIENT(xlog1py_grad, MUL(g_op2(c, "Xlog1py", not_zero(c, x), y), dz),
               MUL(g_op2(c, "Xdivy", x, g_add(c, y, g_num(c, y, 1))), dz))
PLAIN_GRADIENT(xdivy_grad, MUL(g_op2(c, "Xdivy", not_zero(c, x), y), dz),
               MUL(g_op2(c, "Xdivy", g_neg(c, x), g_square(c, y)), dz))

/* The larger (or smaller) side gets it all; on a tie that is x. */
static shoal_status choose_grad(struct grad_ctx *c, const char *op) {
  shoal_out dz = grad_dy(c, 0), zero = g_num(c, dz, 0);
  shoal_out mask = g_op2(c, op, gin(c, 0), gin(c, 1));
  return g_set_broadcast(c, build_op3(c->g, "SelectV2", mask, dz, zero), build_op3(c->g, "SelectV2", mask, zero, dz));
}
static shoal_status maximum_grad(struct grad_ctx *c) { return choose_grad(c, "GreaterEqual"); }
static shoal_status minimum_grad(struct grad_ctx *c) { return choose_grad(c, "LessEqual"); }

static shoal_status squared_difference_grad(struct grad_ctx *c) {
  shoal_out dx = g_mul(c, g_scale(c, grad_dy(c, 0), 2), g_sub(c, gin(c, 0), gin(c, 1)));
  return g_set_broadcast(c, dx, g_neg(c, dx));
}

/* The logarithm is taken only where x has one; elsewhere the gradient of the exponent is 0. */
static shoal_status pow_grad(struct grad_ctx *c) {
  shoal_out x = g_conj(c, gin(c, 0)), y = g_conj(c, gin(c, 1)), z = g_conj(c, gout(c, 0)), dz = grad_dy(c, 0);
  shoal_out gx = g_mul(c, g_mul(c, dz, y), g_op2(c, "Pow", x, g_sub(c, y, g_num(c, y, 1))));
  shoal_out gy = {0};
  if (!dtype_integer(out_type(x))) {
    shoal_out mask = g_op2(c, dtype_complex(out_type(x)) ? "NotEqual" : "Greater", x, g_num(c, x, 0));
    shoal_out log_x = g_op(c, "Log", build_op3(c->g, "SelectV2", mask, x, g_num(c, x, 1)));
    gy = g_mul(c, g_mul(c, dz, z), log_x);
  }
  return g_set_broadcast(c, gx, gy);
}

static shoal_status atan2_grad(struct grad_ctx *c) {
  shoal_out y = gin(c, 0), x = gin(c, 1);
  shoal_out r = g_div(c, grad_dy(c, 0), g_add(c, g_square(c, x), g_square(c, y)));
  return g_set_broadcast(c, g_mul(c, x, r), g_mul(c, g_neg(c, y), r));
}

static shoal_status igamma_grad_of(struct grad_ctx *c, bool complement) {
  shoal_out a = gin(c, 0), x = gin(c, 1), dz = grad_dy(c, 0);
  if (complement) dz = g_neg(c, dz);
  /* In logarithms: gamma(a) itself may be too large. */
  shoal_out e = g_sub(c, g_mul(c, g_sub(c, a, g_num(c, a, 1)), g_op(c, "Log", x)), x);
  e = g_op(c, "Exp", g_sub(c, e, g_op(c, "Lgamma", a)));
  return g_set_broadcast(c, g_mul(c, g_op2(c, "IgammaGradA", a, x), dz), g_mul(c, e, dz));
}
static shoal_status igamma_grad(struct grad_ctx *c) { return igamma_grad_of(c, false); }
static shoal_status igammac_grad(struct grad_ctx *c) { return igamma_grad_of(c, true); }

GRADIENT(zeta_grad, NOTHING, MUL(dz, MUL(g_neg(c, x), g_op2(c, "Zeta", g_add(c, x, g_num(c, x, 1)), y))))
GRADIENT(polygamma_grad, NOTHING, MUL(dz, g_op2(c, "Polygamma", g_add(c, x, g_num(c, x, 1)), y)))

static shoal_status betainc_grad(struct grad_ctx *c) {
  shoal_out a = gin(c, 0), b = gin(c, 1), x = gin(c, 2), one = g_num(c, x, 1);
  shoal_out log_beta =
      g_sub(c, g_add(c, g_op(c, "Lgamma", a), g_op(c, "Lgamma", b)), g_op(c, "Lgamma", g_add(c, a, b)));
  shoal_out e = g_add(c, g_mul(c, g_sub(c, b, one), g_op(c, "Log1p", g_neg(c, x))),
                      g_mul(c, g_sub(c, a, one), g_op(c, "Log", x)));
  shoal_out gx = g_mul(c, grad_dy(c, 0), g_op(c, "Exp", g_sub(c, e, log_beta)));
  grad_set(c, 2, grad_unbroadcast(c->g, gx, x, a, 0));
  return NULL;
}

static shoal_status next_after_grad(struct grad_ctx *c) {
  shoal_out dz = grad_dy(c, 0);
  return g_set_broadcast(c, dz, g_zeros_like(c, dz));
}

/* ---- strings ---- */

struct string_join {
  struct str *out;
  const struct str *a, *b;
  bool step_a, step_b;
};

static void join_stretch(void *arg, int64_t at, const int64_t *in_at, int64_t n) {
  const struct string_join *j = arg;
  for (int64_t i = 0; i < n; i++) {
    const struct str *a = &j->a[in_at[0] + (j->step_a ? i : 0)], *b = &j->b[in_at[1] + (j->step_b ? i : 0)];
    char *to = str_resize(&j->out[at + i], a->size + b->size);
    if (!to) return;
    memcpy(to, str_data(a), a->size);
    memcpy(to + a->size, str_data(b), b->size);
  }
}

static shoal_status add_strings_run(struct kernel_ctx *ctx) {
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  struct broadcast plan;
  TRY(broadcast_plan(&plan, (const struct tensor *const[]){a, b}, 2));
  struct tensor *z;
  TRY(ctx_out(ctx, 0, &plan.out, &z));
  struct string_join j = {z->data, a->data, b->data, broadcast_inner(&plan, 0), broadcast_inner(&plan, 1)};
  broadcast_each(&plan, 0, plan.n, join_stretch, &j);
  return NULL;
}

/* ---- Betainc: three inputs, all of one shape or scalars ---- */

struct betainc {
  bool is_float;
  void *out;
  const void *in[3];
  bool step[3];
};

static double element(const struct betainc *t, int k, int64_t i) {
  i = t->step[k] ? i : 0;
  return t->is_float ? ((const float *)t->in[k])[i] : ((const double *)t->in[k])[i];
}

static void betainc_piece(void *arg, int64_t begin, int64_t end) {
  const struct betainc *t = arg;
  for (int64_t i = begin; i < end; i++) {
    double z = special_betainc(element(t, 0, i), element(t, 1, i), element(t, 2, i));
    if (t->is_float) ((float *)t->out)[i] = (float)z;
    else ((double *)t->out)[i] = z;
  }
}

static shoal_status betainc_run(struct kernel_ctx *ctx) {
  struct betainc t = {.is_float = ctx_in_type(ctx, 0) == SHOAL_FLOAT32};
  const struct tensor *full = NULL;
  for (int k = 0; k < 3; k++) {
    const struct tensor *in = ctx_in(ctx, k);
    t.in[k] = in->data;
    t.step[k] = in->rank > 0;
    if (!t.step[k]) continue;
    if (full && !tensor_same_shape(full, in)) {
      struct shape want = tensor_shape(full), got = tensor_shape(in);
      return INVALID("Shapes of a, b and x must be equal or scalar, but are %s and %s", shape_str(&want),
                     shape_str(&got));
    }
    full = in;
  }
  struct shape s = full ? tensor_shape(full) : shape_scalar();
  struct tensor *z;
  TRY(ctx_out(ctx, 0, &s, &z));
  t.out = z->data;
  pool_for(ctx_pool(ctx), z->n, 256, betainc_piece, &t);
  return NULL;
}

static shoal_status betainc_shape(struct shape_ctx *c) {
  c->out[0] = shape_unknown();
  bool all_scalar = true;
  for (int k = 0; k < 3; k++) {
    if (c->in[k].rank < 0) all_scalar = false;
    if (c->in[k].rank <= 0) continue;
    all_scalar = false;
    TRY(shape_merge(&c->out[0], &c->in[k], &c->out[0]));
  }
  if (all_scalar) c->out[0] = shape_scalar();
  return NULL;
}

/* ---- rows ---- */

static const struct kernel_def number_kernels[] = {BINARY_KERNEL(DT_NUMBER), {0}};
static const struct kernel_def add_kernels[] = {
    BINARY_KERNEL(DT_NUMBER), {"CPU", "T", DT(STRING), .run = add_strings_run}, {0}};
static const struct kernel_def real_kernels[] = {BINARY_KERNEL(DT_REAL), {0}};
static const struct kernel_def signed_kernels[] = {BINARY_KERNEL(DT_FLOATING | DT_SIGNED | DT_COMPLEX), {0}};
static const struct kernel_def squared_kernels[] = {BINARY_KERNEL(DT_FLOATING | DT(INT32) | DT(INT64) | DT_COMPLEX),
                                                    {0}};
static const struct kernel_def float_kernels[] = {BINARY_KERNEL(DT_FLOATING | DT_COMPLEX), {0}};
static const struct kernel_def floating_kernels[] = {BINARY_KERNEL(DT_FLOATING), {0}};
static const struct kernel_def betainc_kernels[] = {{"CPU", "T", DT(FLOAT32) | DT(FLOAT64), .run = betainc_run}, {0}};

static const struct op_row rows[] = {
    {.name = "Add",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128, "
              "string}",
     .shape = shape_broadcast_binary,
     .grad = add_grad,
     .kernels = add_kernels},
    {.name = "AddV2",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, uint8, uint16, uint32, uint64, int8, int16, int32, int64, "
              "complex64, complex128}",
     .flags = OP_COMMUTATIVE | OP_AGGREGATE,
     .shape = shape_broadcast_binary,
     .grad = add_grad,
     .kernels = number_kernels},
    {.name = "Sub",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, int64, complex64, "
              "complex128, uint32, uint64}",
     .shape = shape_broadcast_binary,
     .grad = sub_grad,
     .kernels = number_kernels},
    {.name = "Mul",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
              "complex64, complex128}",
     .flags = OP_COMMUTATIVE,
     .shape = shape_broadcast_binary,
     .grad = mul_grad,
     .kernels = number_kernels},
    {.name = "MulNoNan",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_broadcast_binary,
     .grad = mul_no_nan_grad,
     .kernels = float_kernels},
    {.name = "Div",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
              "complex64, complex128}",
     .shape = shape_broadcast_binary,
     .grad = div_grad,
     .kernels = number_kernels},
    {.name = "RealDiv",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
              "complex64, complex128}",
     .shape = shape_broadcast_binary,
     .grad = real_div_grad,
     .kernels = float_kernels},
    {.name = "DivNoNan",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {half, float, bfloat16, double, complex64, complex128}",
     .shape = shape_broadcast_binary,
     .grad = div_no_nan_grad,
     .kernels = float_kernels},
    {.name = "FloorDiv",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
              "complex64, complex128}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = real_kernels},
    {.name = "TruncateDiv",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, uint8, int8, uint16, int16, int32, uint32, uint64, int64, "
              "complex64, complex128}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_broadcast_binary,
     .kernels = real_kernels},
    {.name = "Mod",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {int32, int64, half, half, bfloat16, float, double}",
     .shape = shape_broadcast_binary,
     .kernels = real_kernels},
    {.name = "FloorMod",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64, bfloat16, half, float, double}",
     .shape = shape_broadcast_binary,
     .grad = floor_mod_grad,
     .kernels = real_kernels},
    {.name = "TruncateMod",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {int32, int64, bfloat16, half, float, double}",
     .shape = shape_broadcast_binary,
     .kernels = real_kernels},
    {.name = "Pow",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, float, half, double, int8, int16, int32, int64, complex64, complex128}",
     .shape = shape_broadcast_binary,
     .grad = pow_grad,
     .kernels = signed_kernels},
    {.name = "Maximum",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}",
     .shape = shape_broadcast_binary,
     .grad = maximum_grad,
     .kernels = real_kernels},
    {.name = "Minimum",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64}",
     .shape = shape_broadcast_binary,
     .grad = minimum_grad,
     .kernels = real_kernels},
    {.name = "SquaredDifference",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}",
     .flags = OP_COMMUTATIVE,
     .shape = shape_broadcast_binary,
     .grad = squared_difference_grad,
     .kernels = squared_kernels},
    {.name = "Atan2",
     .in = "y: T, x: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_broadcast_binary,
     .grad = atan2_grad,
     .kernels = floating_kernels},
    {.name = "Xdivy",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {half, bfloat16, float, double, complex64, complex128}",
     .shape = shape_broadcast_binary,
     .grad = xdivy_grad,
     .kernels = float_kernels},
    {.name = "Xlogy",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {half, bfloat16, float, double, complex64, complex128}",
     .shape = shape_broadcast_binary,
     .grad = xlogy_grad,
     .kernels = float_kernels},
    {.name = "Xlog1py",
     .in = "x: T, y: T",
     .out = "z: T",
     .attrs = "T: {half, bfloat16, float, double, complex64, complex128}",
     .shape = shape_broadcast_binary,
     .grad = xlog1py_grad,
     .kernels = float_kernels},
    {.name = "Igamma",
     .in = "a: T, x: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_broadcast_binary,
     .grad = igamma_grad,
     .kernels = floating_kernels},
    {.name = "Igammac",
     .in = "a: T, x: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_broadcast_binary,
     .grad = igammac_grad,
     .kernels = floating_kernels},
    {.name = "IgammaGradA",
     .in = "a: T, x: T",
     .out = "z: T",
     .attrs = "T: {float, double}",
     .shape = shape_broadcast_binary,
     .kernels = floating_kernels},
    {.name = "RandomGammaGrad",
     .in = "alpha: T, sample: T",
     .out = "output: T",
     .attrs = "T: {float, double}",
     .shape = shape_broadcast_binary,
     .kernels = floating_kernels},
    {.name = "Zeta",
     .in = "x: T, q: T",
     .out = "z: T",
     .attrs = "T: {float, double}",
     .shape = shape_broadcast_binary,
     .grad = zeta_grad,
     .kernels = floating_kernels},
    {.name = "Polygamma",
     .in = "a: T, x: T",
     .out = "z: T",
     .attrs = "T: {float, double}",
     .shape = shape_broadcast_binary,
     .grad = polygamma_grad,
     .kernels = floating_kernels},
    {.name = "Betainc",
     .in = "a: T, b: T, x: T",
     .out = "z: T",
     .attrs = "T: {float, double}",
     .shape = betainc_shape,
     .grad = betainc_grad,
     .kernels = betainc_kernels},
    {.name = "NextAfter",
     .in = "x1: T, x2: T",
     .out = "output: T",
     .attrs = "T: {double, float} = float",
     .shape = shape_broadcast_binary,
     .grad = next_after_grad,
     .kernels = floating_kernels},
};
OP_FAMILY(math_binary, rows);
