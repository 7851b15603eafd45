/* Loops of one input: sign and rounding, powers, exponentials, trigonometry; and predicates.
 *
 * float goes through vector_math.h where a function is hot, through the C library where it is not; double and complex
 * through the library. Lists of loops are made by macros over an expression in x, so that an op reads as one line. */
#include <math.h>

#include "ops/math/complex_math.h"
#include "ops/math/elementwise.h"
#include "ops/math/vector_math.h"

#define DEFINE(op, tag, in_t, out_t, expr)                                     \
  VECTOR_CLONES static void op##_##tag(void *out, const void *in, int64_t n) { \
    const in_t *a = in;                                                        \
    out_t *o = out;                                                            \
    LOOP_FREE for (int64_t i = 0; i < n; i++) {                                \
      in_t x = a[i];                                                           \
      o[i] = (out_t)(expr);                                                    \
    }                                                                          \
  }

#define SIGNED_INTS(op, expr)             \
  DEFINE(op, i8, int8_t, int8_t, expr)    \
  DEFINE(op, i16, int16_t, int16_t, expr) \
  DEFINE(op, i32, int32_t, int32_t, expr) \
  DEFINE(op, i64, int64_t, int64_t, expr)
#define UNSIGNED_INTS(op, expr)             \
  DEFINE(op, u8, uint8_t, uint8_t, expr)    \
  DEFINE(op, u16, uint16_t, uint16_t, expr) \
  DEFINE(op, u32, uint32_t, uint32_t, expr) \
  DEFINE(op, u64, uint64_t, uint64_t, expr)
#define REALS(op, f, d) DEFINE(op, f32, float, float, f) DEFINE(op, f64, double, double, d)
#define COMPLEXES(op, f, d) DEFINE(op, c64, c64, c64, f) DEFINE(op, c128, c128, c128, d)

/* ---- basic ---- */

/* Integer arithmetic wraps around: it is done without sign. */
#define WRAP(e) (uint64_t)(e)

REALS(Abs, fabsf(x), fabs(x))
SIGNED_INTS(Abs, x < 0 ? 0 - WRAP(x) : WRAP(x))
REALS(Neg, -x, -x)
SIGNED_INTS(Neg, 0 - WRAP(x))
COMPLEXES(Neg, -x, -x)
REALS(Sign, x != x ? x : (float)((x > 0) - (x < 0)), x != x ? x : (double)((x > 0) - (x < 0)))
SIGNED_INTS(Sign, (x > 0) - (x < 0))
COMPLEXES(Sign, x == 0 ? 0 : x / cabsf(x), x == 0 ? 0 : x / cabs(x))
REALS(Square, x *x, x *x)
SIGNED_INTS(Square, WRAP(x) * WRAP(x))
UNSIGNED_INTS(Square, WRAP(x) * WRAP(x))
COMPLEXES(Square, x *x, x *x)
REALS(Reciprocal, 1 / x, 1 / x)
COMPLEXES(Reciprocal, 1 / x, 1 / x)
REALS(Sqrt, sqrtf(x), sqrt(x))
COMPLEXES(Sqrt, csqrtf(x), csqrt(x))
REALS(Rsqrt, 1 / sqrtf(x), 1 / sqrt(x))
COMPLEXES(Rsqrt, 1 / csqrtf(x), 1 / csqrt(x))
REALS(Floor, floorf(x), floor(x))
REALS(Ceil, ceilf(x), ceil(x))
REALS(Rint, rintf(x), rint(x))
DEFINE(Same, i8, int8_t, int8_t, x)
DEFINE(Same, i16, int16_t, int16_t, x)
DEFINE(Same, i32, int32_t, int32_t, x)
DEFINE(Same, i64, int64_t, int64_t, x)
DEFINE(Round, c64, c64, c64, c64_of(rintf(crealf(x)), rintf(cimagf(x))))
DEFINE(Round, c128, c128, c128, c128_of(rint(creal(x)), rint(cimag(x))))
COMPLEXES(Conj, conjf(x), conj(x))
SIGNED_INTS(Invert, ~x)
UNSIGNED_INTS(Invert, ~x)
DEFINE(Not, b, bool, bool, !x)
DEFINE(Real, c64, c64, float, crealf(x))
DEFINE(Real, c128, c128, double, creal(x))
DEFINE(Imag, c64, c64, float, cimagf(x))
DEFINE(Imag, c128, c128, double, cimag(x))
DEFINE(Angle, c64, c64, float, cargf(x))
DEFINE(Angle, c128, c128, double, carg(x))
DEFINE(ComplexAbs, c64, c64, float, cabsf(x))
DEFINE(ComplexAbs, c128, c128, double, cabs(x))
DEFINE(Bits, 8, uint8_t, uint8_t, __builtin_popcount(x))
DEFINE(Bits, 16, uint16_t, uint8_t, __builtin_popcount(x))
DEFINE(Bits, 32, uint32_t, uint8_t, __builtin_popcount(x))
DEFINE(Bits, 64, uint64_t, uint8_t, __builtin_popcountll(x))

const struct unary_loops unary_basic[] = {
    {"Abs", COST_MOVE, .fn = {IN_REALS(Abs), IN_SIGNED(Abs)}},
    {"Neg", COST_MOVE, .fn = {IN_REALS(Neg), IN_SIGNED(Neg), IN_COMPLEXES(Neg)}},
    {"Sign", COST_MOVE, .fn = {IN_REALS(Sign), IN_SIGNED(Sign), IN_COMPLEXES(Sign)}},
    {"Square", COST_MOVE, .fn = {IN_REALS(Square), IN_SIGNED(Square), IN_UNSIGNED(Square), IN_COMPLEXES(Square)}},
    {"Reciprocal", COST_MOVE, .fn = {IN_REALS(Reciprocal), IN_COMPLEXES(Reciprocal)}},
    {"Inv", COST_MOVE, .fn = {IN_REALS(Reciprocal), IN_COMPLEXES(Reciprocal)}},
    {"Sqrt", COST_MOVE, .fn = {IN_REALS(Sqrt), IN_COMPLEXES(Sqrt)}},
    {"Rsqrt", COST_MOVE, .fn = {IN_REALS(Rsqrt), IN_COMPLEXES(Rsqrt)}},
    {"Floor", COST_MOVE, .fn = {IN_REALS(Floor)}},
    {"Ceil", COST_MOVE, .fn = {IN_REALS(Ceil)}},
    {"Rint", COST_MOVE, .fn = {IN_REALS(Rint)}},
    {"Round", COST_MOVE, .fn = {IN_REALS(Rint), IN_SIGNED(Same), IN_COMPLEXES(Round)}},
    {"Conj", COST_MOVE, .fn = {IN_COMPLEXES(Conj)}},
    {"Invert", COST_MOVE, .fn = {IN_SIGNED(Invert), IN_UNSIGNED(Invert)}},
    {"LogicalNot", COST_MOVE, .fn = {[SHOAL_BOOL] = Not_b}},
    {"Real", COST_MOVE, .fn = {IN_COMPLEXES(Real)}},
    {"Imag", COST_MOVE, .fn = {IN_COMPLEXES(Imag)}},
    {"Angle", COST_CALL, .fn = {IN_COMPLEXES(Angle)}},
    {"ComplexAbs", COST_CALL, .fn = {IN_COMPLEXES(ComplexAbs)}},
    {"PopulationCount", COST_MOVE,
     .fn = {[SHOAL_INT8] = Bits_8,
            [SHOAL_UINT8] = Bits_8,
            [SHOAL_INT16] = Bits_16,
            [SHOAL_UINT16] = Bits_16,
            [SHOAL_INT32] = Bits_32,
            [SHOAL_UINT32] = Bits_32,
            [SHOAL_INT64] = Bits_64,
            [SHOAL_UINT64] = Bits_64}},
    {0}};

/* ---- exponentials and trigonometry ---- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* Complex expm1 and log1p without the loss near 0 that 1 + x has. */
static c128 cexpm1_(c128 x) {
  double a = creal(x), b = cimag(x), e = expm1(a), s = sin(b / 2);
  return c128_of(e * cos(b) - 2 * s * s, (e + 1) * sin(b));
}
static c128 clog1p_(c128 x) {
  double a = creal(x), b = cimag(x);
  double re = fabs(a) < 0.5 && fabs(b) < 0.5 ? 0.5 * log1p(a * (2 + a) + b * b) : log(hypot(1 + a, b));
  return c128_of(re, atan2(b, 1 + a));
}

REALS(Exp, vm_exp(x), exp(x))
COMPLEXES(Exp, cexpf(x), cexp(x))
REALS(Expm1, vm_expm1(x), expm1(x))
COMPLEXES(Expm1, cexpm1_(x), cexpm1_(x))
REALS(Log, vm_log(x), log(x))
COMPLEXES(Log, clogf(x), clog(x))
REALS(Log1p, vm_log1p(x), log1p(x))
COMPLEXES(Log1p, clog1p_(x), clog1p_(x))
REALS(Sigmoid, vm_sigmoid(x), sigmoid(x))
COMPLEXES(Sigmoid, 1 / (1 + cexpf(-x)), 1 / (1 + cexp(-x)))
REALS(Tanh, vm_tanh(x), tanh(x))
COMPLEXES(Tanh, ctanhf(x), ctanh(x))
REALS(Tan, tanf(x), tan(x))
COMPLEXES(Tan, ctanf(x), ctan(x))
REALS(Asin, asinf(x), asin(x))
COMPLEXES(Asin, casinf(x), casin(x))
REALS(Acos, acosf(x), acos(x))
COMPLEXES(Acos, cacosf(x), cacos(x))
REALS(Atan, atanf(x), atan(x))
COMPLEXES(Atan, catanf(x), catan(x))
REALS(Sinh, sinhf(x), sinh(x))
COMPLEXES(Sinh, csinhf(x), csinh(x))
REALS(Cosh, coshf(x), cosh(x))
COMPLEXES(Cosh, ccoshf(x), ccosh(x))
REALS(Asinh, asinhf(x), asinh(x))
COMPLEXES(Asinh, casinhf(x), casinh(x))
REALS(Acosh, acoshf(x), acosh(x))
COMPLEXES(Acosh, cacoshf(x), cacosh(x))
REALS(Atanh, atanhf(x), atanh(x))
COMPLEXES(Atanh, catanhf(x), catanh(x))

/* Sine and cosine of float: a block whose arguments are all moderate goes through the vector functions, any other
 * through the library's, which reduce without loss. */
#define DEFINE_TRIG(op, vector, library)                                        \
  VECTOR_CLONES static void op##_f32(void *out, const void *in, int64_t n) {    \
    const float *a = in;                                                        \
    float *o = out;                                                             \
    for (int64_t i = 0; i < n;) {                                               \
      int64_t end = i + 256 < n ? i + 256 : n;                                  \
      int large = 0;                                                            \
      for (int64_t j = i; j < end; j++) large |= !(fabsf(a[j]) <= VM_TRIG_MAX); \
      if (large)                                                                \
        for (; i < end; i++) o[i] = library(a[i]);                              \
      else LOOP_FREE for (int64_t j = i; j < end; j++) o[j] = vector(a[j]);     \
      i = end;                                                                  \
    }                                                                           \
  }
DEFINE_TRIG(Sin, vm_sin, sinf)
DEFINE(Sin, f64, double, double, sin(x))
COMPLEXES(Sin, csinf(x), csin(x))
DEFINE_TRIG(Cos, vm_cos, cosf)
DEFINE(Cos, f64, double, double, cos(x))
COMPLEXES(Cos, ccosf(x), ccos(x))

#define ROW(op, cost)                                   \
  {                                                     \
#op, cost, .fn = { IN_REALS(op), IN_COMPLEXES(op) } \
  }
const struct unary_loops unary_transcendental[] = {
    ROW(Exp, COST_VECTOR),   ROW(Expm1, COST_VECTOR),   ROW(Log, COST_VECTOR),
    ROW(Log1p, COST_VECTOR), ROW(Sigmoid, COST_VECTOR), ROW(Tanh, COST_VECTOR),
    ROW(Sin, COST_VECTOR),   ROW(Cos, COST_VECTOR),     ROW(Tan, COST_CALL),
    ROW(Asin, COST_CALL),    ROW(Acos, COST_CALL),      ROW(Atan, COST_CALL),
    ROW(Sinh, COST_CALL),    ROW(Cosh, COST_CALL),      ROW(Asinh, COST_CALL),
    ROW(Acosh, COST_CALL),   ROW(Atanh, COST_CALL),     {0}};

/* ---- predicates ---- */

DEFINE(IsNan, f32, float, bool, x != x)
DEFINE(IsNan, f64, double, bool, x != x)
DEFINE(IsInf, f32, float, bool, fabsf(x) == INFINITY)
DEFINE(IsInf, f64, double, bool, fabs(x) == (double)INFINITY)
DEFINE(IsFinite, f32, float, bool, fabsf(x) < INFINITY)
DEFINE(IsFinite, f64, double, bool, fabs(x) < (double)INFINITY)

const struct unary_loops unary_predicates[] = {{"IsNan", COST_MOVE, .fn = {IN_REALS(IsNan)}},
                                               {"IsInf", COST_MOVE, .fn = {IN_REALS(IsInf)}},
                                               {"IsFinite", COST_MOVE, .fn = {IN_REALS(IsFinite)}},
                                               {0}};
