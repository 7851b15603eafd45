/* Ops of one input, elementwise: their rows and gradients. The loops are in unary_loops.c and special_loops.c. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "graph/shape_fn.h"
#include "ops/math/elementwise.h"
#include "ops/math/grad_help.h"

/* ---- gradients; x is the input, y the output ---- */

#define GRADIENT(name, expr)                     \
  static shoal_status name(struct grad_ctx *c) { \
    shoal_out dy = grad_dy(c, 0);                \
    shoal_out x = gin(c, 0), y = gout(c, 0);     \
    (void)dy;                                    \
    (void)x;                                     \
    (void)y;                                     \
    grad_set(c, 0, expr);                        \
    return NULL;                                 \
  }

#define MUL(a, b) g_mul(c, a, b)
#define DIV(a, b) g_div(c, a, b)
#define CX g_conj(c, x)
#define CY g_conj(c, y)
#define ONE g_num(c, x, 1)

GRADIENT(abs_grad, MUL(dy, g_op(c, "Sign", x)))
GRADIENT(neg_grad, g_neg(c, dy))
GRADIENT(sign_grad, g_zeros_like(c, x))
GRADIENT(reciprocal_grad, g_op2(c, "ReciprocalGrad", y, dy))
GRADIENT(square_grad, MUL(dy, g_scale(c, CX, 2)))
GRADIENT(sqrt_grad, g_op2(c, "SqrtGrad", y, dy))
GRADIENT(rsqrt_grad, g_op2(c, "RsqrtGrad", y, dy))
GRADIENT(exp_grad, MUL(dy, CY))
GRADIENT(expm1_grad, MUL(dy, g_op(c, "Exp", CX)))
GRADIENT(log_grad, MUL(dy, g_op(c, "Reciprocal", CX)))
GRADIENT(log1p_grad, MUL(dy, g_op(c, "Reciprocal", g_add(c, ONE, CX))))
GRADIENT(sinh_grad, MUL(dy, g_op(c, "Cosh", CX)))
GRADIENT(cosh_grad, MUL(dy, g_op(c, "Sinh", CX)))
GRADIENT(tanh_grad, g_op2(c, "TanhGrad", CY, dy))
GRADIENT(asinh_grad, DIV(dy, g_op(c, "Cosh", CY)))
GRADIENT(acosh_grad, DIV(dy, g_op(c, "Sinh", CY)))
GRADIENT(atanh_grad, MUL(dy, g_op(c, "Reciprocal", g_sub(c, ONE, g_square(c, CX)))))
GRADIENT(sigmoid_grad, g_op2(c, "SigmoidGrad", CY, dy))
GRADIENT(sin_grad, MUL(dy, g_op(c, "Cos", CX)))
GRADIENT(cos_grad, MUL(g_neg(c, dy), g_op(c, "Sin", CX)))
GRADIENT(tan_grad, MUL(dy, g_square(c, g_op(c, "Reciprocal", g_op(c, "Cos", CX)))))
GRADIENT(asin_grad, DIV(dy, g_op(c, "Sqrt", g_sub(c, ONE, g_square(c, CX)))))
GRADIENT(acos_grad, g_neg(c, DIV(dy, g_op(c, "Sqrt", g_sub(c, ONE, g_square(c, CX))))))
GRADIENT(atan_grad, MUL(dy, g_op(c, "Reciprocal", g_add(c, ONE, g_square(c, CX)))))
GRADIENT(erf_grad, MUL(g_scale(c, dy, M_2_SQRTPI), g_op(c, "Exp", g_neg(c, g_square(c, x)))))
GRADIENT(erfc_grad, MUL(g_scale(c, dy, -M_2_SQRTPI), g_op(c, "Exp", g_neg(c, g_square(c, x)))))
GRADIENT(erfinv_grad, MUL(g_scale(c, dy, 1 / M_2_SQRTPI), g_op(c, "Exp", g_square(c, y))))
GRADIENT(ndtri_grad, MUL(g_scale(c, dy, sqrt(2 * M_PI)), g_op(c, "Exp", g_scale(c, g_square(c, y), 0.5))))
GRADIENT(lgamma_grad, MUL(dy, g_op(c, "Digamma", x)))
GRADIENT(digamma_grad, MUL(dy, g_op2(c, "Polygamma", ONE, x)))
GRADIENT(conj_grad, g_op(c, "Conj", dy))

/* y / x, which is 1/2 where x is tiny for the functions below of order one. */
static shoal_out over_x(struct grad_ctx *c, shoal_out y, shoal_out x, double at_zero) {
  double eps = out_type(x) == SHOAL_FLOAT64 ? 0x1p-52 : out_type(x) == SHOAL_FLOAT32 ? 0x1p-23 : 0x1p-10;
  shoal_out large = g_op2(c, "Greater", g_op(c, "Abs", x), g_num(c, x, eps));
  shoal_out safe = build_op3(c->g, "SelectV2", large, x, g_num(c, x, 1));
  return build_op3(c->g, "SelectV2", large, g_div(c, y, safe), g_num(c, x, at_zero));
}

#define SIGNED_Y MUL(g_op(c, "Sign", x), y)
GRADIENT(i0_grad, MUL(dy, g_op(c, "BesselI1", x)))
GRADIENT(i0e_grad, MUL(dy, g_sub(c, g_op(c, "BesselI1e", x), SIGNED_Y)))
GRADIENT(i1_grad, MUL(dy, g_sub(c, g_op(c, "BesselI0", x), over_x(c, y, x, 0.5))))
GRADIENT(i1e_grad, MUL(dy, g_sub(c, g_op(c, "BesselI0e", x), g_add(c, SIGNED_Y, over_x(c, y, x, 0.5)))))
GRADIENT(k0_grad, MUL(dy, g_neg(c, g_op(c, "BesselK1", x))))
GRADIENT(k0e_grad, MUL(dy, g_sub(c, y, g_op(c, "BesselK1e", x))))
GRADIENT(k1_grad, MUL(dy, g_neg(c, g_add(c, g_op(c, "BesselK0", x), DIV(y, x)))))
GRADIENT(k1e_grad, MUL(dy, g_sub(c, g_sub(c, y, g_op(c, "BesselK0e", x)), DIV(y, x))))
GRADIENT(j0_grad, MUL(dy, g_neg(c, g_op(c, "BesselJ1", x))))
GRADIENT(j1_grad, MUL(dy, g_sub(c, g_op(c, "BesselJ0", x), over_x(c, y, x, 0.5))))
GRADIENT(y0_grad, MUL(dy, g_neg(c, g_op(c, "BesselY1", x))))
GRADIENT(y1_grad, MUL(dy, g_sub(c, g_op(c, "BesselY0", x), DIV(y, x))))
GRADIENT(dawsn_grad, MUL(dy, g_sub(c, ONE, g_scale(c, MUL(x, y), 2))))
GRADIENT(expint_grad, DIV(MUL(dy, g_op(c, "Exp", x)), x))
GRADIENT(fresnel_cos_grad, MUL(dy, g_op(c, "Cos", g_scale(c, g_square(c, x), M_PI_2))))
GRADIENT(fresnel_sin_grad, MUL(dy, g_op(c, "Sin", g_scale(c, g_square(c, x), M_PI_2))))

/* -log(x) / (x - 1), which is -1 at x = 1. */
static shoal_status spence_grad(struct grad_ctx *c) {
  shoal_out x = gin(c, 0), dy = grad_dy(c, 0), one = g_num(c, x, 1);
  shoal_out d = g_neg(c, g_div(c, g_op(c, "Log", x), g_sub(c, x, one)));
  d = build_op3(c->g, "SelectV2", g_op2(c, "Equal", x, one), g_num(c, x, -1), d);
  grad_set(c, 0, g_mul(c, dy, d));
  return NULL;
}

/* ---- between real and complex ---- */

static shoal_out make_complex(struct grad_ctx *c, shoal_out re, shoal_out im) {
  struct build b = build_begin(c->g, "Complex", NULL);
  build_in(&b, re);
  build_in(&b, im);
  build_attr_type(&b, "Tout", out_type(re) == SHOAL_FLOAT64 ? SHOAL_COMPLEX128 : SHOAL_COMPLEX64);
  return build_end_out(&b);
}

static shoal_out part_of(struct grad_ctx *c, const char *op, shoal_out z) {
  struct build b = build_begin(c->g, op, NULL);
  build_in(&b, z);
  build_attr_type(&b, "Tout", out_type(z) == SHOAL_COMPLEX128 ? SHOAL_FLOAT64 : SHOAL_FLOAT32);
  return build_end_out(&b);
}

GRADIENT(real_grad, make_complex(c, dy, g_num(c, dy, 0)))
GRADIENT(imag_grad, make_complex(c, g_num(c, dy, 0), dy))
GRADIENT(complex_abs_grad,
         MUL(g_op2(c, "DivNoNan", make_complex(c, dy, g_zeros_like(c, dy)), make_complex(c, y, g_zeros_like(c, y))), x))

static shoal_status angle_grad(struct grad_ctx *c) {
  shoal_out z = gin(c, 0), dy = grad_dy(c, 0);
  shoal_out turned = make_complex(c, part_of(c, "Imag", z), part_of(c, "Real", z));
  grad_set(c, 0, g_mul(c, make_complex(c, g_neg(c, dy), g_num(c, dy, 0)), g_op(c, "Reciprocal", turned)));
  return NULL;
}

static shoal_status complex_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  return g_set_broadcast(c, part_of(c, "Real", dy), part_of(c, "Imag", dy));
}

/* ---- gradients of gradients: inputs are y of the function and b, the gradient that came to it ---- */

static shoal_status tanh_grad_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), a = g_conj(c, gin(c, 0)), b = g_conj(c, gin(c, 1));
  grad_set(c, 0, g_mul(c, g_scale(c, g_mul(c, dy, b), -2), a));
  grad_set(c, 1, g_op2(c, "TanhGrad", a, dy));
  return NULL;
}

static shoal_status sigmoid_grad_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), a = g_conj(c, gin(c, 0)), b = g_conj(c, gin(c, 1)), gb = g_mul(c, dy, b);
  grad_set(c, 0, g_sub(c, gb, g_mul(c, g_scale(c, gb, 2), a)));
  grad_set(c, 1, g_op2(c, "SigmoidGrad", a, dy));
  return NULL;
}

static shoal_status reciprocal_grad_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), ca = g_conj(c, gin(c, 0));
  grad_set(c, 0, g_mul(c, g_mul(c, g_scale(c, g_conj(c, dy), -2), gin(c, 1)), ca));
  grad_set(c, 1, g_op2(c, "ReciprocalGrad", ca, dy));
  return NULL;
}

static shoal_status sqrt_grad_grad(struct grad_ctx *c) {
  shoal_out ga = g_div(c, grad_dy(c, 0), gin(c, 0));
  grad_set(c, 0, g_mul(c, g_neg(c, g_conj(c, ga)), gout(c, 0)));
  grad_set(c, 1, g_scale(c, ga, 0.5));
  return NULL;
}

static shoal_status rsqrt_grad_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), ca = g_conj(c, gin(c, 0));
  grad_set(c, 0, g_mul(c, g_mul(c, g_scale(c, g_conj(c, dy), -1.5), gin(c, 1)), g_square(c, ca)));
  grad_set(c, 1, g_op2(c, "RsqrtGrad", ca, dy));
  return NULL;
}

/* ---- _UnaryOpsComposition: a chain that a rewriter made of several ops ---- */

enum { CHAIN_BLOCK = 2048 };

struct unary_chain {
  struct unary_loop *loops;
  int n;
  int32_t grain;
};

static shoal_status chain_init(struct kernel_init *ki, void *state) {
  struct unary_chain *ch = state;
  const struct attr *names;
  TRY(node_get_list(ki->node, "op_names", ATTR_STRING, &names));
  if (names->list.n == 0) return INVALID("Number of unary op compositions must be greater than zero");
  shoal_dtype t = dtype_base(ki->kernel->in_types[0]);
  ch->loops = mem_zalloc(names->list.n, sizeof *ch->loops);
  ch->grain = INT32_MAX;
  for (size_t i = 0; i < names->list.n; i++) {
    const char *name = names->list.at[i].s.data;
    shoal_status s = unary_loop_init(&ch->loops[i], name, t, t);
    if (s) return status_prefix(s, "Do not have a compute function registered for op: %s: ", name);
    ch->grain = MIN(ch->grain, ch->loops[i].grain);
    ch->n++;
  }
  return NULL;
}

static void chain_release(void *state) { free(((struct unary_chain *)state)->loops); }

struct chain_task {
  const struct unary_chain *ch;
  char *out;
  const char *in;
  int size;
};

/* Block by block, so that what one loop wrote is still in the cache when the next reads it. */
static void chain_piece(void *arg, int64_t begin, int64_t end) {
  const struct chain_task *t = arg;
  for (int64_t i = begin; i < end; i += CHAIN_BLOCK) {
    int64_t n = MIN(end - i, CHAIN_BLOCK);
    char *to = t->out + i * t->size;
    unary_loop_run(&t->ch->loops[0], to, t->in + i * t->size, n);
    for (int k = 1; k < t->ch->n; k++) unary_loop_run(&t->ch->loops[k], to, to, n);
  }
}

static shoal_status chain_run(struct kernel_ctx *ctx) {
  const struct unary_chain *ch = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  struct chain_task t = {ch, y->data, x->data, ch->loops[0].in_size};
  pool_for(ctx_pool(ctx), x->n, ch->grain, chain_piece, &t);
  return NULL;
}

/* ---- rows ---- */

static const struct kernel_def float_kernels[] = {UNARY_KERNEL(DT_FLOATING | DT_COMPLEX), {0}};
static const struct kernel_def real_kernels[] = {UNARY_KERNEL(DT_FLOATING), {0}};
static const struct kernel_def abs_kernels[] = {UNARY_KERNEL(DT_FLOATING | DT_SIGNED), {0}};
static const struct kernel_def neg_kernels[] = {UNARY_KERNEL(DT_FLOATING | DT_SIGNED | DT_COMPLEX), {0}};
static const struct kernel_def number_kernels[] = {UNARY_KERNEL(DT_NUMBER), {0}};
static const struct kernel_def integer_kernels[] = {UNARY_KERNEL(DT_INTEGER), {0}};
static const struct kernel_def complex_kernels[] = {UNARY_KERNEL(DT_COMPLEX), {0}};
static const struct kernel_def bool_kernels[] = {
    {"CPU", .state_size = sizeof(struct unary_loop), .init = unary_init, .run = unary_run}, {0}};
#define TWO_TYPES(n, from, to) \
  { "CPU", "T", DT(from), "Tout", DT(to), .state_size = sizeof(struct n##_loop), .init = n##_init, .run = n##_run }
static const struct kernel_def part_kernels[] = {
    TWO_TYPES(unary, COMPLEX64, FLOAT32), TWO_TYPES(unary, COMPLEX128, FLOAT64), {0}};
static const struct kernel_def make_complex_kernels[] = {
    TWO_TYPES(binary, FLOAT32, COMPLEX64), TWO_TYPES(binary, FLOAT64, COMPLEX128), {0}};
static const struct kernel_def gradient_kernels[] = {
    {"CPU", "T", DT_FLOATING | DT_COMPLEX, .flags = KERNEL_ELEMENTWISE, .state_size = sizeof(struct binary_loop),
     .init = binary_init, .run = binary_pairs_run},
    {0}};
static const struct kernel_def chain_kernels[] = {
    {"CPU", "T", DT(FLOAT32) | DT(FLOAT64) | DT(FLOAT16), .state_size = sizeof(struct unary_chain), .init = chain_init,
     .release = chain_release, .run = chain_run},
    {0}};

static const struct op_row rows[] = {
    {.name = "Abs",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, int8, int16, int32, int64}",
     .shape = shape_unchanged,
     .grad = abs_grad,
     .kernels = abs_kernels},
    {.name = "Neg",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = neg_grad,
     .kernels = neg_kernels},
    {.name = "Sign",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = sign_grad,
     .kernels = neg_kernels},
    {.name = "Exp",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = exp_grad,
     .kernels = float_kernels},
    {.name = "Expm1",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = expm1_grad,
     .kernels = float_kernels},
    {.name = "Log",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = log_grad,
     .kernels = float_kernels},
    {.name = "Log1p",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = log1p_grad,
     .kernels = float_kernels},
    {.name = "Sqrt",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = sqrt_grad,
     .kernels = float_kernels},
    {.name = "Rsqrt",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = rsqrt_grad,
     .kernels = float_kernels},
    {.name = "Square",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
              "complex64, complex128}",
     .shape = shape_unchanged,
     .grad = square_grad,
     .kernels = number_kernels},
    {.name = "Reciprocal",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = reciprocal_grad,
     .kernels = float_kernels},
    {.name = "Inv",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = reciprocal_grad,
     .kernels = float_kernels},
    {.name = "Floor",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = real_kernels},
    {.name = "Ceil",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = real_kernels},
    {.name = "Round",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, int8, int16, int32, int64, complex64, complex128}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = neg_kernels},
    {.name = "Rint",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = real_kernels},
    {.name = "Sin",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = sin_grad,
     .kernels = float_kernels},
    {.name = "Cos",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = cos_grad,
     .kernels = float_kernels},
    {.name = "Tan",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = tan_grad,
     .kernels = float_kernels},
    {.name = "Asin",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = asin_grad,
     .kernels = float_kernels},
    {.name = "Acos",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = acos_grad,
     .kernels = float_kernels},
    {.name = "Atan",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = atan_grad,
     .kernels = float_kernels},
    {.name = "Sinh",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = sinh_grad,
     .kernels = float_kernels},
    {.name = "Cosh",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = cosh_grad,
     .kernels = float_kernels},
    {.name = "Tanh",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = tanh_grad,
     .kernels = float_kernels},
    {.name = "Asinh",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = asinh_grad,
     .kernels = float_kernels},
    {.name = "Acosh",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = acosh_grad,
     .kernels = float_kernels},
    {.name = "Atanh",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = atanh_grad,
     .kernels = float_kernels},
    {.name = "Sigmoid",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_unchanged,
     .grad = sigmoid_grad,
     .kernels = float_kernels},
    {.name = "Erf",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = erf_grad,
     .kernels = real_kernels},
    {.name = "Erfc",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = erfc_grad,
     .kernels = real_kernels},
    {.name = "Erfinv",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = erfinv_grad,
     .kernels = real_kernels},
    {.name = "Ndtri",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = ndtri_grad,
     .kernels = real_kernels},
    {.name = "Lgamma",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = lgamma_grad,
     .kernels = real_kernels},
    {.name = "Digamma",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = digamma_grad,
     .kernels = real_kernels},
    {.name = "BesselI0",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = i0_grad,
     .kernels = real_kernels},
    {.name = "BesselI1",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = i1_grad,
     .kernels = real_kernels},
    {.name = "BesselI0e",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = i0e_grad,
     .kernels = real_kernels},
    {.name = "BesselI1e",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = i1e_grad,
     .kernels = real_kernels},
    {.name = "BesselK0",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = k0_grad,
     .kernels = real_kernels},
    {.name = "BesselK1",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = k1_grad,
     .kernels = real_kernels},
    {.name = "BesselK0e",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = k0e_grad,
     .kernels = real_kernels},
    {.name = "BesselK1e",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = k1e_grad,
     .kernels = real_kernels},
    {.name = "BesselJ0",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = j0_grad,
     .kernels = real_kernels},
    {.name = "BesselJ1",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = j1_grad,
     .kernels = real_kernels},
    {.name = "BesselY0",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = y0_grad,
     .kernels = real_kernels},
    {.name = "BesselY1",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = y1_grad,
     .kernels = real_kernels},
    {.name = "Dawsn",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = dawsn_grad,
     .kernels = real_kernels},
    {.name = "Expint",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = expint_grad,
     .kernels = real_kernels},
    {.name = "FresnelCos",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = fresnel_cos_grad,
     .kernels = real_kernels},
    {.name = "FresnelSin",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = fresnel_sin_grad,
     .kernels = real_kernels},
    {.name = "Spence",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {bfloat16, half, float, double}",
     .shape = shape_unchanged,
     .grad = spence_grad,
     .kernels = real_kernels},
    {.name = "IsNan",
     .in = "x: T",
     .out = "y: bool",
     .attrs = "T: {bfloat16, half, float, double}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = real_kernels},
    {.name = "IsInf",
     .in = "x: T",
     .out = "y: bool",
     .attrs = "T: {bfloat16, half, float, double}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = real_kernels},
    {.name = "IsFinite",
     .in = "x: T",
     .out = "y: bool",
     .attrs = "T: {bfloat16, half, float, double}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = real_kernels},
    {.name = "LogicalNot",
     .in = "x: bool",
     .out = "y: bool",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = bool_kernels},
    {.name = "Invert",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = integer_kernels},
    {.name = "Conj",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: {complex64, complex128, variant} = complex64",
     .shape = shape_unchanged,
     .grad = conj_grad,
     .kernels = complex_kernels},
    {.name = "Real",
     .in = "input: T",
     .out = "output: Tout",
     .attrs = "T: {complex64, complex128} = complex64; Tout: {float, double} = float",
     .shape = shape_unchanged,
     .grad = real_grad,
     .kernels = part_kernels},
    {.name = "Imag",
     .in = "input: T",
     .out = "output: Tout",
     .attrs = "T: {complex64, complex128} = complex64; Tout: {float, double} = float",
     .shape = shape_unchanged,
     .grad = imag_grad,
     .kernels = part_kernels},
    {.name = "Angle",
     .in = "input: T",
     .out = "output: Tout",
     .attrs = "T: {complex64, complex128} = complex64; Tout: {float, double} = float",
     .shape = shape_unchanged,
     .grad = angle_grad,
     .kernels = part_kernels},
    {.name = "ComplexAbs",
     .in = "x: T",
     .out = "y: Tout",
     .attrs = "T: {complex64, complex128} = complex64; Tout: {float, double} = float",
     .shape = shape_unchanged,
     .grad = complex_abs_grad,
     .kernels = part_kernels},
    {.name = "Complex",
     .in = "real: T, imag: T",
     .out = "out: Tout",
     .attrs = "T: {float, double} = float; Tout: {complex64, complex128} = complex64",
     .shape = shape_broadcast_binary,
     .grad = complex_grad,
     .kernels = make_complex_kernels},
    {.name = "PopulationCount",
     .in = "x: T",
     .out = "y: uint8",
     .attrs = "T: {int8, int16, int32, int64, uint8, uint16, uint32, uint64}",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = integer_kernels},
    {.name = "TanhGrad",
     .in = "y: T, dy: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_merge_all,
     .grad = tanh_grad_grad,
     .kernels = gradient_kernels},
    {.name = "SigmoidGrad",
     .in = "y: T, dy: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_merge_all,
     .grad = sigmoid_grad_grad,
     .kernels = gradient_kernels},
    {.name = "RsqrtGrad",
     .in = "y: T, dy: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_merge_all,
     .grad = rsqrt_grad_grad,
     .kernels = gradient_kernels},
    {.name = "SqrtGrad",
     .in = "y: T, dy: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_merge_all,
     .grad = sqrt_grad_grad,
     .kernels = gradient_kernels},
    {.name = "ReciprocalGrad",
     .in = "y: T, dy: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_merge_all,
     .grad = reciprocal_grad_grad,
     .kernels = gradient_kernels},
    {.name = "InvGrad",
     .in = "y: T, dy: T",
     .out = "z: T",
     .attrs = "T: {bfloat16, half, float, double, complex64, complex128}",
     .shape = shape_merge_all,
     .grad = reciprocal_grad_grad,
     .kernels = gradient_kernels},
    {.name = "_UnaryOpsComposition",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {float, half, double}; op_names: list(string)",
     .flags = OP_NO_GRADIENT,
     .shape = shape_unchanged,
     .kernels = chain_kernels},
};
OP_FAMILY(math_unary, rows);
