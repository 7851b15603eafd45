/* One element after the other: unary ops, their gradients, and binary ops of shapes that are spread to one another.
 * Where memory lies well a thread takes 16 bytes at a time. */
#include "types.cuh"

template <class A, class B> struct packed {
  enum { WIDEST = sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B), N = PACK_BYTES / WIDEST };
};

/* out[i] = f(in[i]); what is left over at the end goes one by one. */
template <class T, class O, class F> __device__ inline void map_one(const T *in, O *out, int64_t n, F f) {
  enum { N = packed<T, O>::N };
  int64_t packs = is_packed(in, N) && is_packed(out, N) ? n / N : 0;
  EACH_ELEMENT(i, packs) {
    pack_of<T, N> x = ((const pack_of<T, N> *)in)[i];
    pack_of<O, N> y;
    for (int k = 0; k < N; k++) y.v[k] = stored<O>::of(f(load(x.v[k])));
    ((pack_of<O, N> *)out)[i] = y;
  }
  EACH_ELEMENT(i, n - packs * N) out[packs * N + i] = stored<O>::of(f(load(in[packs * N + i])));
}

/* out[i] = f(first[i], second[i]); a step of 0 is one number for all. */
template <class T, class O, class F>
__device__ inline void map_two(const T *first, const T *second, O *out, int64_t n, int a_step, int b_step, F f) {
  enum { N = packed<T, O>::N };
  bool fits = (!a_step || is_packed(first, N)) && (!b_step || is_packed(second, N)) && is_packed(out, N);
  int64_t packs = fits ? n / N : 0;
  typename computed<T>::type a_all = load(first[0]), b_all = load(second[0]);
  EACH_ELEMENT(i, packs) {
    pack_of<T, N> a, b;
    pack_of<O, N> y;
    if (a_step) a = ((const pack_of<T, N> *)first)[i];
    if (b_step) b = ((const pack_of<T, N> *)second)[i];
    for (int k = 0; k < N; k++)
      y.v[k] = stored<O>::of(f(a_step ? load(a.v[k]) : a_all, b_step ? load(b.v[k]) : b_all));
    ((pack_of<O, N> *)out)[i] = y;
  }
  EACH_ELEMENT(i, n - packs * N) {
    int64_t at = packs * N + i;
    out[at] = stored<O>::of(f(load(first[at * a_step]), load(second[at * b_step])));
  }
}

/* ---- unary: c is the computed type, x the element ---- */

#define UNARY_TO(T, O, name, expr)                                        \
  extern "C" __global__ void name##_##T(const T *in, O *out, int64_t n) { \
    typedef typename computed<T>::type c;                                 \
    map_one(in, out, n, [](c x) { return expr; });                        \
  }
#define UNARY_OF(T, name, expr) UNARY_TO(T, T, name, expr)
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
UNARY(Selu, x < (c)0 ? (c)1.7580993408473768599402175208123 * (c)expm1(x) : (c)1.0507009873554804934193349852946 * x)
UNARY(Erfc, erfc(x))
UNARY(Sinh, sinh(x))
UNARY(Cosh, cosh(x))
UNARY(Tan, tan(x))
UNARY(Asin, asin(x))
UNARY(Acos, acos(x))
UNARY(Atan, atan(x))
#define ASK_OF(T, name, expr) UNARY_TO(T, bool, name, expr)
#define ASK(name, expr) FLOATING(ASK_OF, name, expr)
ASK(IsNan, x != x)
ASK(IsInf, x - x != x - x && x == x)
ASK(IsFinite, x - x == x - x)
#define UNARY_ANY(name, expr) WITH_INTEGERS(UNARY_OF, name, expr)
UNARY_ANY(Neg, -x)
UNARY_ANY(Square, x * x)
UNARY_ANY(Abs, x < (c)0 ? -x : x)
UNARY_ANY(OnesLike, (c)1)

extern "C" __global__ void LogicalNot_bool(const bool *in, bool *out, int64_t n) { EACH_ELEMENT(i, n) out[i] = !in[i]; }

/* ---- gradients: g is what came back, x what the op had (or made) ---- */

#define GRADIENT_OF(T, name, expr)                                                            \
  extern "C" __global__ void name##_##T(const T *first, const T *second, T *out, int64_t n) { \
    typedef typename computed<T>::type c;                                                     \
    map_two(first, second, out, n, 1, 1, [](c a, c b) { return expr; });                      \
  }
#define GRADIENT(name, expr) FLOATING(GRADIENT_OF, name, expr)
GRADIENT(ReluGrad, b > (c)0 ? a : (c)0)
GRADIENT(Relu6Grad, b > (c)0 && b < (c)6 ? a : (c)0)
GRADIENT(EluGrad, b < (c)0 ? a * (b + (c)1) : a)
GRADIENT(SeluGrad, b < (c)0 ? a * (b + (c)1.7580993408473768599402175208123)
                            : a * (c)1.0507009873554804934193349852946)
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

/* Can operand k be read n neighbours at a time, or is it one number for all of them? */
template <class T> __device__ inline bool is_stretched(const spread_of &s, int k, const T *p, int n) {
  int last = s.rank - 1;
  if (s.dims[last] % n || s.step[k][last] > 1) return false;
  if (!s.step[k][last]) return true;
  for (int d = 0; d < last; d++)
    if (s.step[k][d] % n) return false;
  return is_packed(p, n);
}

/* Neighbours of operand k from place `at` on. */
template <int N, class T>
__device__ inline pack_of<T, N> stretch_at(const spread_of &s, int k, const T *p, uint32_t at) {
  pack_of<T, N> v;
  if (s.step[k][s.rank - 1]) return *(const pack_of<T, N> *)(p + at);
  for (int i = 0; i < N; i++) v.v[i] = p[at];
  return v;
}

template <class T, class O, class F>
__device__ inline void map_spread(const T *first, const T *second, O *out, const spread_of &s, F f) {
  enum { N = packed<T, O>::N };
  if (s.rank <= 1 && s.step[0][0] <= 1 && s.step[1][0] <= 1) {
    map_two(first, second, out, s.n, (int)s.step[0][0], (int)s.step[1][0], f);
    return;
  }
  if (is_packed(out, N) && is_stretched(s, 0, first, N) && is_stretched(s, 1, second, N)) {
    EACH_ELEMENT(i, s.n / N) {
      uint32_t at[2];
      places<2>(s, (uint32_t)i * N, at);
      pack_of<T, N> a = stretch_at<N>(s, 0, first, at[0]), b = stretch_at<N>(s, 1, second, at[1]);
      pack_of<O, N> y;
      for (int k = 0; k < N; k++) y.v[k] = stored<O>::of(f(load(a.v[k]), load(b.v[k])));
      ((pack_of<O, N> *)out)[i] = y;
    }
    return;
  }
  EACH_ELEMENT(i, s.n) {
    uint32_t at[2];
    places<2>(s, (uint32_t)i, at);
    out[i] = stored<O>::of(f(load(first[at[0]]), load(second[at[1]])));
  }
}

#define BINARY_TO(T, O, name, expr)                                                             \
  extern "C" __global__ void name##_##T(const T *first, const T *second, O *out, spread_of s) { \
    typedef typename computed<T>::type c;                                                       \
    map_spread(first, second, out, s, [](c a, c b) { return expr; });                           \
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
template <class C> __device__ inline C floor_mod(C a, C b) {
  C r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
BINARY_FLOATING(FloorDiv, floor(a / b))
BINARY_FLOATING(FloorMod, floor_mod(a, b))
BINARY_FLOATING(Xdivy, a == (c)0 ? (c)0 : a / b)
BINARY_FLOATING(Xlogy, a == (c)0 ? (c)0 : a *(c)log(b))
COMPARE(Equal, a == b)
COMPARE(NotEqual, a != b)
COMPARE(Less, a < b)
COMPARE(LessEqual, a <= b)
COMPARE(Greater, a > b)
COMPARE(GreaterEqual, a >= b)
COMPARE_OF(bool, LogicalAnd, a &&b)
COMPARE_OF(bool, LogicalOr, a || b)

template <class T>
__device__ inline void choose(const bool *which, const T *yes, const T *no, T *out, const spread_of &s) {
  enum { N = PACK_BYTES / sizeof(T) };
  bool packs = s.rank && is_packed(out, N) && is_stretched(s, 0, which, N) && is_stretched(s, 1, yes, N) &&
               is_stretched(s, 2, no, N);
  EACH_ELEMENT(i, packs ? s.n / N : 0) {
    uint32_t at[3];
    places<3>(s, (uint32_t)i * N, at);
    pack_of<bool, N> w = stretch_at<N>(s, 0, which, at[0]);
    pack_of<T, N> y = stretch_at<N>(s, 1, yes, at[1]), z = stretch_at<N>(s, 2, no, at[2]);
    for (int k = 0; k < N; k++) y.v[k] = w.v[k] ? y.v[k] : z.v[k];
    ((pack_of<T, N> *)out)[i] = y;
  }
  EACH_ELEMENT(i, packs ? 0 : s.n) {
    uint32_t at[3];
    places<3>(s, (uint32_t)i, at);
    out[i] = which[at[0]] ? yes[at[1]] : no[at[2]];
  }
}
#define SELECT_OF(T, name)                                                                                   \
  extern "C" __global__ void name##_##T(const bool *which, const T *yes, const T *no, T *out, spread_of s) { \
    choose(which, yes, no, out, s);                                                                          \
  }
WITH_BYTES(SELECT_OF, SelectV2)

/* Of one operand: BroadcastTo. */
template <class T> __device__ inline void spread_out(const T *in, T *out, const spread_of &s) {
  enum { N = PACK_BYTES / sizeof(T) };
  bool packs = s.rank && is_packed(out, N) && is_stretched(s, 0, in, N);
  EACH_ELEMENT(i, packs ? s.n / N : 0) {
    uint32_t at[1];
    places<1>(s, (uint32_t)i * N, at);
    ((pack_of<T, N> *)out)[i] = stretch_at<N>(s, 0, in, at[0]);
  }
  EACH_ELEMENT(i, packs ? 0 : s.n) {
    uint32_t at[1];
    places<1>(s, (uint32_t)i, at);
    out[i] = in[at[0]];
  }
}
#define SPREAD_OF(T, name) \
  extern "C" __global__ void name##_##T(const T *in, T *out, spread_of s) { spread_out(in, out, s); }
WITH_BYTES(SPREAD_OF, BroadcastTo)

/* ---- casts ---- */

#define CAST_OF(F, T)                                                         \
  extern "C" __global__ void Cast_##F##_##T(const F *in, T *out, int64_t n) { \
    map_one(in, out, n, [](typename computed<F>::type x) { return x; });      \
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

WITH_INTEGERS(GRADIENT_OF, AddN, a + b)
WITH_INTEGERS(GRADIENT_OF, Subtract, a - b)

/* The value is of the host. */
#define FILL_OF(T, name) \
  extern "C" __global__ void name##_##T(T *out, T value, int64_t n) { EACH_ELEMENT(i, n) out[i] = value; }
WITH_BYTES(FILL_OF, Fill)

/* [outer, channels, inner] += bias[channel] */
template <class T>
__device__ inline void add_bias(const T *in, const T *bias, T *out, int64_t n, uint32_t channels, uint32_t inner) {
  enum { N = PACK_BYTES / sizeof(T) };
  bool fits = is_packed(in, N) && is_packed(out, N) && inner == 1 && channels % N == 0 && n <= UINT32_MAX;
  uint32_t across = channels / N;
  EACH_ELEMENT(i, fits ? n / N : 0) {
    pack_of<T, N> x = ((const pack_of<T, N> *)in)[i];
    const T *b = bias + (uint32_t)i % across * N;
    for (int k = 0; k < N; k++) x.v[k] = stored<T>::of(load(x.v[k]) + load(b[k]));
    ((pack_of<T, N> *)out)[i] = x;
  }
  EACH_ELEMENT(i, fits ? 0 : n) out[i] = stored<T>::of(load(in[i]) + load(bias[(uint32_t)(i / inner) % channels]));
}
#define BIAS_OF(T, name)                                                                                  \
  extern "C" __global__ void name##_##T(const T *in, const T *bias, T *out, int64_t n, uint32_t channels, \
                                        uint32_t inner) {                                                 \
    add_bias(in, bias, out, n, channels, inner);                                                          \
  }
WITH_INTEGERS(BIAS_OF, BiasAdd)

/* ---- with a number of the node's ---- */

#define LEAKY_OF(T, name)                                                                                  \
  extern "C" __global__ void LeakyRelu_##T(const T *in, T *out, int64_t n, float alpha) {                  \
    typedef typename computed<T>::type c;                                                                  \
    map_one(in, out, n, [alpha](c x) { return x > (c)0 ? x : (c)alpha * x; });                             \
  }                                                                                                        \
  extern "C" __global__ void LeakyReluGrad_##T(const T *g, const T *in, T *out, int64_t n, float alpha) {  \
    typedef typename computed<T>::type c;                                                                  \
    map_two(g, in, out, n, 1, 1, [alpha](c a, c b) { return b > (c)0 ? a : (c)alpha * a; });               \
  }
FLOATING(LEAKY_OF, leaky)

/* The smaller of x and high, then the larger of that and low; NaN stays. */
#define CLIP_OF(T, name)                                                                                       \
  extern "C" __global__ void name##_##T(const T *in, const T *low, const T *high, T *out, spread_of s) {       \
    typedef typename computed<T>::type c;                                                                      \
    EACH_ELEMENT(i, s.n) {                                                                                     \
      uint32_t at[3];                                                                                          \
      places<3>(s, (uint32_t)i, at);                                                                           \
      c x = load(in[at[0]]), l = load(low[at[1]]), h = load(high[at[2]]);                                      \
      x = h != h || x > h ? h : x;                                                                             \
      out[i] = stored<T>::of(l != l || x < l ? l : x);                                                         \
    }                                                                                                          \
  }
WITH_INTEGERS(CLIP_OF, ClipByValue)
