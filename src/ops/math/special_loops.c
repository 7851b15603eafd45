/* Loops of the error function and its kin, of gamma and Bessel functions, and of powers.
 *
 * The functions themselves, in double, are in special_math.c; float takes them and rounds, which is exact enough and
 * keeps one definition of each. Only erf of float, which activations use, is vector code. */
#include "ops/math/special_math.h"

#include "ops/math/binary_loops.h"

#define UNARY(op, tag, type, expr)                               \
  static void op##_##tag(void *out, const void *in, int64_t n) { \
    const type *a = in;                                          \
    type *o = out;                                               \
    for (int64_t i = 0; i < n; i++) {                            \
      type x = a[i];                                             \
      o[i] = (type)(expr);                                       \
    }                                                            \
  }
#define UNARY_DOUBLE(op, expr) UNARY(op, f32, float, expr) UNARY(op, f64, double, expr)

VECTOR_CLONES static void Erf_f32(void *out, const void *in, int64_t n) {
  const float *a = in;
  float *o = out;
  LOOP_FREE for (int64_t i = 0; i < n; i++) o[i] = vm_erf(a[i]);
}
UNARY(Erf, f64, double, erf(x))
UNARY(Erfc, f32, float, erfcf(x))
UNARY(Erfc, f64, double, erfc(x))
UNARY_DOUBLE(Erfinv, special_erfinv(x))
UNARY_DOUBLE(Ndtri, special_ndtri(x))
UNARY_DOUBLE(Lgamma, special_lgamma(x))
UNARY_DOUBLE(Digamma, special_digamma(x))
UNARY_DOUBLE(BesselI0, special_bessel_i(0, x, false))
UNARY_DOUBLE(BesselI1, special_bessel_i(1, x, false))
UNARY_DOUBLE(BesselI0e, special_bessel_i(0, x, true))
UNARY_DOUBLE(BesselI1e, special_bessel_i(1, x, true))
UNARY_DOUBLE(BesselK0, special_bessel_k(0, x, false))
UNARY_DOUBLE(BesselK1, special_bessel_k(1, x, false))
UNARY_DOUBLE(BesselK0e, special_bessel_k(0, x, true))
UNARY_DOUBLE(BesselK1e, special_bessel_k(1, x, true))
UNARY_DOUBLE(BesselJ0, j0(x))
UNARY_DOUBLE(BesselJ1, j1(x))
UNARY_DOUBLE(BesselY0, x < 0 ? -INFINITY : y0(x))
UNARY_DOUBLE(BesselY1, x < 0 ? -INFINITY : y1(x))
UNARY_DOUBLE(Dawsn, special_dawsn(x))
UNARY_DOUBLE(Expint, special_expint(x))
UNARY_DOUBLE(FresnelCos, special_fresnel(x, true))
UNARY_DOUBLE(FresnelSin, special_fresnel(x, false))
UNARY_DOUBLE(Spence, special_spence(x))

#define ROW(op)                            \
  {                                        \
#op, COST_CALL, .fn = { IN_REALS(op) } \
  }
const struct unary_loops unary_special[] = {{"Erf", COST_VECTOR, .fn = {IN_REALS(Erf)}},
                                            ROW(Erfc),
                                            ROW(Erfinv),
                                            ROW(Ndtri),
                                            ROW(Lgamma),
                                            ROW(Digamma),
                                            ROW(BesselI0),
                                            ROW(BesselI1),
                                            ROW(BesselI0e),
                                            ROW(BesselI1e),
                                            ROW(BesselK0),
                                            ROW(BesselK1),
                                            ROW(BesselK0e),
                                            ROW(BesselK1e),
                                            ROW(BesselJ0),
                                            ROW(BesselJ1),
                                            ROW(BesselY0),
                                            ROW(BesselY1),
                                            ROW(Dawsn),
                                            ROW(Expint),
                                            ROW(FresnelCos),
                                            ROW(FresnelSin),
                                            ROW(Spence),
                                            {0}};

/* ---- two inputs ---- */

/* Squares are by far the most common power, and come with the exponent as a scalar. */
#define POWER(tag, type, fn)                                                                               \
  static unsigned Pow_##tag(void *out, const void *va, const void *vb, int64_t n, enum binary_mode mode) { \
    const type *a = va, *b = vb;                                                                           \
    type *o = out;                                                                                         \
    if (mode == VECTOR_SCALAR && b[0] == 2) {                                                              \
      LOOP_FREE for (int64_t i = 0; i < n; i++) o[i] = a[i] * a[i];                                        \
      return 0;                                                                                            \
    }                                                                                                      \
    const int64_t sa = mode != SCALAR_VECTOR, sb = mode != VECTOR_SCALAR;                                  \
    for (int64_t i = 0; i < n; i++) o[i] = fn(a[i * sa], b[i * sb]);                                       \
    return 0;                                                                                              \
  }
POWER(f32, float, powf)
POWER(f64, double, pow)

/* By squaring, modulo 2^64; a negative exponent has no integer result. */
static uint64_t integer_power(uint64_t x, uint64_t y) {
  uint64_t r = 1;
  for (; y; y >>= 1, x *= x)
    if (y & 1) r *= x;
  return r;
}
#define INTEGER_POWER                                           \
  if (y < 0) {                                                  \
    bad = 1;                                                    \
    z = 0;                                                      \
  } else {                                                      \
    z = (__typeof__(z))integer_power((uint64_t)x, (uint64_t)y); \
  }
BINARY_SIGNED(BINARY_SMALL, Pow, INTEGER_POWER)
BINARY_CALL(Pow, c64, c64, c64, y == 0 ? 1 : cpowf(x, y))
BINARY_CALL(Pow, c128, c128, c128, y == 0 ? 1 : cpow(x, y))

BINARY_CALL(Atan2, f32, float, float, atan2f(x, y))
BINARY_CALL(Atan2, f64, double, double, atan2(x, y))
BINARY_REALS(Xlogy, x == 0 ? 0 : x * vm_log(y), x == 0 ? 0 : x * log(y))
BINARY_COMPLEXES(Xlogy, x == 0 ? 0 : x * clogf(y), x == 0 ? 0 : x * clog(y))
BINARY_REALS(Xlog1py, x == 0 ? 0 : x * vm_log1p(y), x == 0 ? 0 : x * log1p(y))
BINARY_COMPLEXES(Xlog1py, x == 0 ? 0 : x * clogf(1 + y), x == 0 ? 0 : x * clog(1 + y))
BINARY_CALL(NextAfter, f32, float, float, nextafterf(x, y))
BINARY_CALL(NextAfter, f64, double, double, nextafter(x, y))
BINARY(Complex, f32, float, c64, c64_of(x, y))
BINARY(Complex, f64, double, c128, c128_of(x, y))
#define BINARY_DOUBLE(op, expr) BINARY_CALL(op, f32, float, float, expr) BINARY_CALL(op, f64, double, double, expr)
BINARY_DOUBLE(Igamma, special_igamma(x, y))
BINARY_DOUBLE(Igammac, special_igammac(x, y))
BINARY_DOUBLE(IgammaGradA, special_igamma_grad_a(x, y))
BINARY_DOUBLE(RandomGammaGrad, special_random_gamma_grad(x, y))
BINARY_DOUBLE(Zeta, special_zeta(x, y))
BINARY_DOUBLE(Polygamma, special_polygamma(x, y))

#undef ROW
#define ROW(op)                            \
  {                                        \
#op, COST_CALL, .fn = { IN_REALS(op) } \
  }
const struct binary_loops binary_special[] = {{"Pow", COST_CALL, "Integers to negative integer powers are not allowed",
                                               .fn = {IN_REALS(Pow), IN_SIGNED(Pow), IN_COMPLEXES(Pow)}},
                                              {"Xlogy", COST_CALL, .fn = {IN_REALS(Xlogy), IN_COMPLEXES(Xlogy)}},
                                              {"Xlog1py", COST_CALL, .fn = {IN_REALS(Xlog1py), IN_COMPLEXES(Xlog1py)}},
                                              {"Complex", COST_MOVE, .fn = {IN_REALS(Complex)}},
                                              ROW(Atan2),
                                              ROW(NextAfter),
                                              ROW(Igamma),
                                              ROW(Igammac),
                                              ROW(IgammaGradA),
                                              ROW(RandomGammaGrad),
                                              ROW(Zeta),
                                              ROW(Polygamma),
                                              {0}};
