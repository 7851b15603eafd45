/* Masks, scans and the largest of rows: OneHot, Cumsum and Cumprod, TopK and InTopK; one value of the card for all. */
#include "types.cuh"

enum { WARP = 32 };

/* ---- OneHot: [outer, depth, inner], by the size of elements; on and off are the card's ---- */

#define ONE_HOT_OF(U, bytes, I)                                                                                 \
  extern "C" __global__ void one_hot_##bytes##_##I(const I *index, const U *on, const U *off, U *out, int64_t n, \
                                                   int64_t depth, int64_t inner) {                              \
    U yes = *on, no = *off;                                                                                     \
    EACH_ELEMENT(i, n) {                                                                                        \
      int64_t row = i / inner, at = (int64_t)index[row / depth * inner + i % inner];                            \
      out[i] = at == row % depth ? yes : no;                                                                    \
    }                                                                                                           \
  }
#define ONE_HOT(U, bytes) ONE_HOT_OF(U, bytes, i32) ONE_HOT_OF(U, bytes, i64) ONE_HOT_OF(U, bytes, u8)
ONE_HOT(uint8_t, 1)
ONE_HOT(uint16_t, 2)
ONE_HOT(uint32_t, 4)
ONE_HOT(uint64_t, 8)

/* ---- one value for all, by the size of elements ---- */

#define FILL_FROM(U, bytes)                                                                     \
  extern "C" __global__ void fill_from_##bytes(const U *value, U *out, int64_t n) {             \
    U v = *value;                                                                               \
    EACH_ELEMENT(i, n) out[i] = v;                                                              \
  }
FILL_FROM(uint8_t, 1)
FILL_FROM(uint16_t, 2)
FILL_FROM(uint32_t, 4)
FILL_FROM(uint64_t, 8)

/* ---- scans of [outer, length, inner] ---- */

struct scan_of { /* as kernels_arrays.c fills it */
  int64_t outer, length, inner;
  int32_t exclusive, reverse;
};

#define SCANNER(how, start_, expr)                                                \
  struct how {                                                                    \
    template <class C> static __device__ inline C start() { return start_; }      \
    template <class C> static __device__ inline C join(C a, C b) { return expr; } \
  };
SCANNER(scan_sum, (C)0, a + b)
SCANNER(scan_prod, (C)1, a *b)

__device__ inline int64_t scan_at(const scan_of &s, int64_t line, int64_t i) {
  return (line / s.inner * s.length + (s.reverse ? s.length - 1 - i : i)) * s.inner + line % s.inner;
}

/* Lines side by side: a thread to each. */
template <class R, class T> __device__ inline void scan_lines(const T *x, T *y, const scan_of &s) {
  typedef typename computed<T>::type C;
  EACH_ELEMENT(line, s.outer * s.inner) {
    C sum = R::template start<C>();
    for (int64_t i = 0; i < s.length; i++) {
      int64_t at = scan_at(s, line, i);
      C next = R::join(sum, (C)load(x[at]));
      y[at] = stored<T>::of(s.exclusive ? sum : next);
      sum = next;
    }
  }
}

/* A line in a row: a warp to each, 32 elements at a time. */
template <class R, class T> __device__ inline void scan_rows(const T *x, T *y, const scan_of &s) {
  typedef typename computed<T>::type C;
  int64_t line = blockIdx.x * (int64_t)(blockDim.x / WARP) + threadIdx.x / WARP;
  int lane = threadIdx.x % WARP;
  if (line >= s.outer) return;
  C before = R::template start<C>();
  for (int64_t base = 0; base < s.length; base += WARP) {
    int64_t i = base + lane, at = scan_at(s, line, i < s.length ? i : 0);
    C sum = i < s.length ? (C)load(x[at]) : R::template start<C>();
    for (int d = 1; d < WARP; d *= 2) {
      C other = __shfl_up_sync(~0u, sum, d);
      if (lane >= d) sum = R::join(other, sum);
    }
    C left = __shfl_up_sync(~0u, sum, 1);
    C mine = s.exclusive ? (lane ? R::join(before, left) : before) : R::join(before, sum);
    if (i < s.length) y[at] = stored<T>::of(mine);
    before = R::join(before, (C)__shfl_sync(~0u, sum, WARP - 1));
  }
}

#define SCAN_OF(T, name)                                                                                             \
  extern "C" __global__ void name##_lines_##T(const T *x, T *y, scan_of s) { scan_lines<scan_##name>(x, y, s); }     \
  extern "C" __global__ void name##_rows_##T(const T *x, T *y, scan_of s) { scan_rows<scan_##name>(x, y, s); }
FLOATING(SCAN_OF, sum)
FLOATING(SCAN_OF, prod)
SCAN_OF(i64, sum)
SCAN_OF(i64, prod)

/* ---- the largest of rows: a block to a row finds them one after the other ---- */

/* The order of TopK: larger first, then the lower index; NaN behind everything. */
template <class C> __device__ inline bool goes_before(C a, int64_t i, C b, int64_t j) {
  bool no_a = a != a, no_b = b != b;
  if (no_a || no_b) return no_a != no_b ? no_b : i < j;
  return a != b ? a > b : i < j;
}

template <class C> struct top_of {
  C value;
  int64_t at; /* -1: none */
  __device__ inline void take(C v, int64_t i) {
    if (i >= 0 && (at < 0 || goes_before(v, i, value, at))) {
      value = v;
      at = i;
    }
  }
};

template <class C> __device__ inline top_of<C> top_of_block(top_of<C> t) {
  __shared__ C values[WARP];
  __shared__ int64_t places[WARP];
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  for (int d = WARP / 2; d > 0; d /= 2)
    t.take(__shfl_xor_sync(~0u, t.value, d), __shfl_xor_sync(~0u, t.at, d));
  __syncthreads();
  if (lane == 0) {
    values[warp] = t.value;
    places[warp] = t.at;
  }
  __syncthreads();
  t.at = -1;
  for (int w = 0; w < (int)blockDim.x / WARP; w++) t.take(values[w], places[w]);
  return t;
}

template <class T, class I>
__device__ inline void top_k(const T *x, T *values, I *indices, int64_t columns, int64_t k) {
  typedef typename computed<T>::type C;
  const T *row = x + blockIdx.x * columns;
  top_of<C> last = {0, -1};
  for (int64_t r = 0; r < k; r++) {
    top_of<C> best = {0, -1};
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
      C v = load(row[i]);
      if (last.at < 0 || goes_before(last.value, last.at, v, i)) best.take(v, i);
    }
    last = top_of_block(best);
    if (threadIdx.x) continue;
    values[blockIdx.x * k + r] = row[last.at];
    indices[blockIdx.x * k + r] = (I)last.at;
  }
}
#define TOP_OF(T, I)                                                                                               \
  extern "C" __global__ void top_##T##_##I(const T *x, T *values, I *indices, int64_t columns, int64_t k) {        \
    top_k(x, values, indices, columns, k);                                                                         \
  }
#define TOP(T) TOP_OF(T, i32) TOP_OF(T, i64)
TOP(f32)
TOP(f64)
TOP(f16)
TOP(bf16)
TOP(i32)
TOP(i64)

/* A warp to a row: how many are larger than the target's? */
template <class I>
__device__ inline void in_top(const float *x, const I *targets, bool *out, int64_t rows, int64_t columns, int64_t k) {
  int64_t r = blockIdx.x * (int64_t)(blockDim.x / WARP) + threadIdx.x / WARP;
  if (r >= rows) return;
  const float *row = x + r * columns;
  int64_t target = (int64_t)targets[r];
  bool there = target >= 0 && target < columns;
  float v = there ? row[target] : NAN;
  int more = 0, odd = !there || !isfinite(v);
  for (int64_t i = threadIdx.x % WARP; i < columns; i += WARP) {
    odd |= !isfinite(row[i]);
    more += row[i] > v;
  }
  for (int d = WARP / 2; d > 0; d /= 2) {
    more += __shfl_xor_sync(~0u, more, d);
    odd |= __shfl_xor_sync(~0u, odd, d);
  }
  if (threadIdx.x % WARP == 0) out[r] = !odd && more < k;
}
#define IN_TOP_OF(I)                                                                                              \
  extern "C" __global__ void in_top_##I(const float *x, const I *targets, bool *out, int64_t rows, int64_t columns, \
                                        int64_t k) {                                                              \
    in_top(x, targets, out, rows, columns, k);                                                                    \
  }
IN_TOP_OF(i32)
IN_TOP_OF(i64)
