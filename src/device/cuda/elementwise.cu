/* One element after the other: unary ops, their gradients, and binary ops of shapes that are spread to one another. */
#include "types.cuh"

/* ---- unary: c is the computed type, x the element ---- */

#define UNARY_OF(T, name, expr)                                               \
  extern "C" __global__ void name##_##T(const T *in, T *out, int64_t n) {     \
    typedef typename computed<T>::type c;                                     \
    EACH_ELEMENT(i, n) {                                                      \
      c x = load(in[i]);                                                      \
      out[i] = stored<T>::of(expr);                                           \
    }                                                                         \
  }
#define UNARY(name, expr) FLOATING(UNARY_OF, name, expr)

__device__ inline float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline double sigmoid_of(double x) { return 1.0 / (1.0 + exp(-x)); }

/* Comparisons are such that NaN stays NaN. */
UNARY(Relu, x < (c)0 ? (c)0 : x)
UNARY(Relu6, x < (c)0 ? (c)0 : x > (c)6 ? (c)6 : x)
UNARY(Elu, x < (c)0 ? (c)expm1(x) : x)
UNARY(Softplus, x > (c)20 ? x : (c)log1p(exp(x)))
UNARY(Softsign, x / ((c)1 + fabs(x)))
UNARY(Sigmoid, sigmoid_of(x))
UNARY(Tanh, tanh(x))
UNARY(Exp, exp(x))
UNARY(Expm1, expm1(x))
UNARY(Log, log(x))
UNARY(Log1p, log1p(x))
UNARY(Sqrt, sqrt(x))
UNARY(Rsqrt, (c)1 / sqrt(x))
UNARY(Sin, sin(x))
UNARY(Cos, cos(x))
UNARY(Erf, erf(x))
UNARY(Floor, floor(x))
UNARY(Ceil, ceil(x))
UNARY(Rint, rint(x))
UNARY(Round, rint(x))
UNARY(Reciprocal, (c)1 / x)
UNARY(Inv, (c)1 / x)
UNARY(Sign, x > (c)0 ? (c)1 : x < (c)0 ? (c)-1 : x)
#define UNARY_ANY(name, expr) WITH_INTEGERS(UNARY_OF, name, expr)
UNARY_ANY(Neg, -x)
UNARY_ANY(Square, x * x)
UNARY_ANY(Abs, x < (c)0 ? -x : x)
UNARY_ANY(OnesLike, (c)1)

extern "C" __global__ void LogicalNot_bool(const bool *in, bool *out, int64_t n) { EACH_ELEMENT(i, n) out[i] = !in[i]; }

/* ---- gradients: g is what came back, x what the op had (or made) ---- */

#define GRADIENT_OF(T, name, expr)                                                           \
  extern "C" __global__ void name##_##T(const T *first, const T *second, T *out, int64_t n) { \
    typedef typename computed<T>::type c;                                                    \
    EACH_ELEMENT(i, n) {                                                                     \
      c a = load(first[i]), b = load(second[i]);                                             \
      out[i] = stored<T>::of(expr);                                                          \
    }                                                                                        \
  }
#define GRADIENT(name, expr) FLOATING(GRADIENT_OF, name, expr)
GRADIENT(ReluGrad, b > (c)0 ? a : (c)0)
GRADIENT(Relu6Grad, b > (c)0 && b < (c)6 ? a : (c)0)
GRADIENT(EluGrad, b < (c)0 ? a * (b + (c)1) : a)
GRADIENT(SoftplusGrad, a / ((c)1 + exp(-b)))
GRADIENT(SoftsignGrad, a / (((c)1 + fabs(b)) * ((c)1 + fabs(b))))
GRADIENT(SigmoidGrad, b * a * ((c)1 - a))
GRADIENT(TanhGrad, b * ((c)1 - a * a))
GRADIENT(SqrtGrad, b * (c)0.5 / a)
GRADIENT(RsqrtGrad, (c)-0.5 * b * (a * a * a))
GRADIENT(ReciprocalGrad, -b * a * a)
GRADIENT(InvGrad, -b * a * a)

/* ---- binary ---- */

/* As ops/math/broadcast.h has it: dimensions from outside in; a step of 0 repeats. One thread serves one element of the
 * output at a time. */
enum { SPREAD_RANK = 16, SPREAD_IN = 3 };
struct spread_of {
  int64_t n;
  int rank;
  uint32_t dims[SPREAD_RANK];
  uint32_t step[SPREAD_IN][SPREAD_RANK];
};

template <int K> __device__ inline void places(const spread_of &s, uint32_t i, uint32_t *at) {
  for (int k = 0; k < K; k++) at[k] = 0;
  for (int d = s.rank - 1; d > 0; d--) {
    uint32_t rest = i / s.dims[d], here = i - rest * s.dims[d];
    for (int k = 0; k < K; k++) at[k] += here * s.step[k][d];
    i = rest;
  }
  for (int k = 0; k < K; k++) at[k] += i * s.step[k][0];
}

#define BINARY_TO(T, O, name, expr)                                                         \
  extern "C" __global__ void name##_##T(const T *first, const T *second, O *out, spread_of s) { \
    typedef typename computed<T>::type c;                                                   \
    EACH_ELEMENT(i, s.n) {                                                                  \
      uint32_t at[2];                                                                       \
      places<2>(s, (uint32_t)i, at);                                                        \
      c a = load(first[at[0]]), b = load(second[at[1]]);                                    \
      out[i] = stored<O>::of(expr);                                                         \
    }                                                                                       \
  }
#define BINARY_OF(T, name, expr) BINARY_TO(T, T, name, expr)
#define BINARY(name, expr) WITH_INTEGERS(BINARY_OF, name, expr)
#define BINARY_FLOATING(name, expr) FLOATING(BINARY_OF, name, expr)
#define COMPARE_OF(T, name, expr) BINARY_TO(T, bool, name, expr)
#define COMPARE(name, expr) WITH_BYTES(COMPARE_OF, name, expr)

BINARY(Add, a + b)
BINARY(AddV2, a + b)
BINARY(Sub, a - b)
BINARY(Mul, a *b)
BINARY(Maximum, b != b || a < b ? b : a)
BINARY(Minimum, b != b || a > b ? b : a)
BINARY(SquaredDifference, (a - b) * (a - b))
BINARY_FLOATING(RealDiv, a / b)
BINARY_FLOATING(Div, a / b)
BINARY_FLOATING(DivNoNan, b == (c)0 ? (c)0 : a / b)
BINARY_FLOATING(MulNoNan, b == (c)0 ? (c)0 : a *b)
BINARY_FLOATING(Pow, pow(a, b))
COMPARE(Equal, a == b)
COMPARE(NotEqual, a != b)
COMPARE(Less, a < b)
COMPARE(LessEqual, a <= b)
COMPARE(Greater, a > b)
COMPARE(GreaterEqual, a >= b)
COMPARE_OF(bool, LogicalAnd, a &&b)
COMPARE_OF(bool, LogicalOr, a || b)

#define SELECT_OF(T, name)                                                                                  \
  extern "C" __global__ void name##_##T(const bool *which, const T *yes, const T *no, T *out, spread_of s) {   \
    EACH_ELEMENT(i, s.n) {                                                                                  \
      uint32_t at[3];                                                                                       \
      places<3>(s, (uint32_t)i, at);                                                                        \
      out[i] = which[at[0]] ? yes[at[1]] : no[at[2]];                                                       \
    }                                                                                                       \
  }
WITH_BYTES(SELECT_OF, SelectV2)

/* Of one operand: BroadcastTo. */
#define SPREAD_OF(T, name)                                                        \
  extern "C" __global__ void name##_##T(const T *in, T *out, spread_of s) {          \
    EACH_ELEMENT(i, s.n) {                                                        \
      uint32_t at[1];                                                             \
      places<1>(s, (uint32_t)i, at);                                              \
      out[i] = in[at[0]];                                                         \
    }                                                                             \
  }
WITH_BYTES(SPREAD_OF, BroadcastTo)

/* ---- casts ---- */

#define CAST_OF(F, T)                                                                    \
  extern "C" __global__ void Cast_##F##_##T(const F *in, T *out, int64_t n) {            \
    EACH_ELEMENT(i, n) out[i] = stored<T>::of(load(in[i]));                              \
  }
#define CAST_FROM(F)                                                                                        \
  CAST_OF(F, f32) CAST_OF(F, f64) CAST_OF(F, f16) CAST_OF(F, bf16) CAST_OF(F, i32) CAST_OF(F, i64) CAST_OF(F, u8) \
  CAST_OF(F, i8) CAST_OF(F, bool)
CAST_FROM(f32)
CAST_FROM(f64)
CAST_FROM(f16)
CAST_FROM(bf16)
CAST_FROM(i32)
CAST_FROM(i64)
CAST_FROM(u8)
CAST_FROM(i8)
CAST_FROM(bool)

/* ---- sums of several, and one value for all ---- */

#define SUM_INTO_OF(T, name, op)                                                               \
  extern "C" __global__ void name##_##T(const T *first, const T *second, T *out, int64_t n) {  \
    EACH_ELEMENT(i, n) out[i] = stored<T>::of(load(first[i]) op load(second[i]));              \
  }
WITH_INTEGERS(SUM_INTO_OF, AddN, +)
WITH_INTEGERS(SUM_INTO_OF, Subtract, -)

/* The value is of the host. */
#define FILL_OF(T, name) \
  extern "C" __global__ void name##_##T(T *out, T value, int64_t n) { EACH_ELEMENT(i, n) out[i] = value; }
WITH_BYTES(FILL_OF, Fill)

/* [outer, channels, inner] += bias[channel] */
#define BIAS_OF(T, name)                                                                                   \
  extern "C" __global__ void name##_##T(const T *in, const T *bias, T *out, int64_t n, uint32_t channels,  \
                                        uint32_t inner) {                                                  \
    EACH_ELEMENT(i, n)                                                                                     \
    out[i] = stored<T>::of(load(in[i]) + load(bias[(uint32_t)(i / inner) % channels]));                    \
  }
WITH_INTEGERS(BIAS_OF, BiasAdd)
