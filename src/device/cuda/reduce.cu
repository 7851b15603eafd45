/* Reductions of a block [outer, length, inner] to [outer, inner], in an order that the shape alone decides. */
#include "types.cuh"

enum { WARP = 32, ROW_THREADS = 256, TILE_ROWS = 8 };

#define REDUCTION(name, start_, expr)                                              \
  struct name {                                                                    \
    template <class C> static __device__ inline C start() { return start_; }       \
    template <class C> static __device__ inline C join(C a, C b) { return expr; }  \
  };
template <class C> struct extremes;
template <> struct extremes<float> {
  static __device__ inline float top() { return INFINITY; }
};
template <> struct extremes<double> {
  static __device__ inline double top() { return INFINITY; }
};
REDUCTION(by_sum, (C)0, a + b)
REDUCTION(by_prod, (C)1, a *b)
REDUCTION(by_max, -extremes<C>::top(), b != b || a < b ? b : a)
REDUCTION(by_min, extremes<C>::top(), b != b || a > b ? b : a)

REDUCTION(by_all, (C)1, a &&b)
REDUCTION(by_any, (C)0, a || b)

template <class R, class C> __device__ inline C join_warp(C v) {
  for (int d = WARP / 2; d > 0; d /= 2) v = R::join(v, __shfl_down_sync(~0u, v, d));
  return v;
}

template <class R, class C> __device__ inline C join_block(C v) {
  __shared__ C parts[WARP];
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  v = join_warp<R>(v);
  if (lane == 0) parts[warp] = v;
  __syncthreads();
  v = threadIdx.x < blockDim.x / WARP ? parts[lane] : R::template start<C>();
  return join_warp<R>(v);
}

/* inner is 1, rows are long: a block each. A row is cut into pieces, which are results of their own. */
template <class R, class T, class O>
__device__ inline void long_rows(const T *in, O *out, int64_t length, int64_t piece, double scale) {
  typedef typename computed<T>::type C;
  int64_t begin = (int64_t)blockIdx.y * piece, end = begin + piece < length ? begin + piece : length;
  C v = R::template start<C>();
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) v = R::join(v, load(in[blockIdx.x * length + i]));
  v = join_block<R>(v);
  if (threadIdx.x == 0) out[(int64_t)blockIdx.x * gridDim.y + blockIdx.y] = stored<O>::of(v * (C)scale);
}

/* inner is 1, rows are short: a warp each. */
template <class R, class T, class O>
__device__ inline void short_rows(const T *in, O *out, int64_t outer, int64_t length, double scale) {
  typedef typename computed<T>::type C;
  int64_t row = blockIdx.x * (int64_t)(blockDim.x / WARP) + threadIdx.x / WARP;
  if (row >= outer) return;
  C v = R::template start<C>();
  for (int64_t i = threadIdx.x % WARP; i < length; i += WARP) v = R::join(v, load(in[row * length + i]));
  v = join_warp<R>(v);
  if (threadIdx.x % WARP == 0) out[row] = stored<O>::of(v * (C)scale);
}

/* Columns: 32 of them and 8 rows at a time to a block; blockIdx.y is a piece of an outer one. */
template <class R, class T, class O>
__device__ inline void columns(const T *in, O *out, int64_t length, int64_t inner, int64_t piece, int64_t pieces,
                               double scale) {
  typedef typename computed<T>::type C;
  __shared__ C parts[TILE_ROWS][WARP + 1];
  int lane = threadIdx.x % WARP, row = threadIdx.x / WARP;
  int64_t column = blockIdx.x * (int64_t)WARP + lane, o = blockIdx.y / pieces, p = blockIdx.y % pieces;
  int64_t begin = p * piece, end = begin + piece < length ? begin + piece : length;
  C v = R::template start<C>();
  if (column < inner)
    for (int64_t i = begin + row; i < end; i += TILE_ROWS) v = R::join(v, load(in[(o * length + i) * inner + column]));
  parts[row][lane] = v;
  __syncthreads();
  if (row || column >= inner) return;
  for (int k = 1; k < TILE_ROWS; k++) v = R::join(v, parts[k][lane]);
  out[(o * pieces + p) * inner + column] = stored<O>::of(v * (C)scale);
}

/* The same with V neighbouring columns to a thread, `across` threads side by side. */
template <class R, class T, class O, int V>
__device__ inline void wide_columns(const T *in, O *out, int64_t length, int64_t inner, int64_t piece, int64_t pieces,
                                    int across, double scale) {
  typedef typename computed<T>::type C;
  __shared__ C parts[ROW_THREADS][V];
  int x = threadIdx.x % across, row = threadIdx.x / across, height = ROW_THREADS / across;
  int64_t column = (blockIdx.x * (int64_t)across + x) * V, o = blockIdx.y / pieces, p = blockIdx.y % pieces;
  int64_t begin = p * piece, end = begin + piece < length ? begin + piece : length;
  C v[V];
  for (int k = 0; k < V; k++) v[k] = R::template start<C>();
  if (column < inner) {
#pragma unroll 4
    for (int64_t i = begin + row; i < end; i += height) {
      pack_of<T, V> q = *(const pack_of<T, V> *)(in + (o * length + i) * inner + column);
      for (int k = 0; k < V; k++) v[k] = R::join(v[k], (C)load(q.v[k]));
    }
  }
  for (int k = 0; k < V; k++) parts[threadIdx.x][k] = v[k];
  for (int half = height / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int k = 0; k < V && row < half; k++)
      parts[threadIdx.x][k] = R::join(parts[threadIdx.x][k], parts[threadIdx.x + half * across][k]);
  }
  if (row || column >= inner) return;
  for (int k = 0; k < V; k++)
    out[(o * pieces + p) * inner + column + k] = stored<O>::of(parts[x][k] * (C)scale);
}

#define WIDE_OF(T, O, name)                                                                            \
  extern "C" __global__ void name##_wide_##T##_##O(const T *in, O *out, int64_t length, int64_t inner, \
                                                   int64_t piece, int64_t pieces, int across,          \
                                                   double scale) {                                     \
    wide_columns<by_##name, T, O, PACK_BYTES / sizeof(T)>(in, out, length, inner, piece, pieces, across, scale); \
  }
#define REDUCE_OF(T, O, name)                                                                             \
  extern "C" __global__ void name##_long_##T##_##O(const T *in, O *out, int64_t length, int64_t piece,    \
                                                   double scale) {                                        \
    long_rows<by_##name>(in, out, length, piece, scale);                                                  \
  }                                                                                                       \
  extern "C" __global__ void name##_short_##T##_##O(const T *in, O *out, int64_t outer, int64_t length,   \
                                                    double scale) {                                       \
    short_rows<by_##name>(in, out, outer, length, scale);                                                 \
  }                                                                                                       \
  extern "C" __global__ void name##_columns_##T##_##O(const T *in, O *out, int64_t length, int64_t inner, \
                                                      int64_t piece, int64_t pieces, double scale) {      \
    columns<by_##name>(in, out, length, inner, piece, pieces, scale);                                     \
  }                                                                                                       \
  WIDE_OF(T, O, name)
#define REDUCE(name)                                                                          \
  REDUCE_OF(f32, f32, name) REDUCE_OF(f64, f64, name) REDUCE_OF(f16, f16, name) REDUCE_OF(bf16, bf16, name) \
  REDUCE_OF(f16, f32, name) REDUCE_OF(bf16, f32, name) REDUCE_OF(f32, f16, name) REDUCE_OF(f32, bf16, name)
REDUCE(sum)
REDUCE(prod)
REDUCE(max)
REDUCE(min)
REDUCE_OF(bool, bool, all)
REDUCE_OF(bool, bool, any)

/* Half the sum of squares: pieces of it, to be summed. */
#define SQUARES_OF(T, O)                                                                                        \
  extern "C" __global__ void squares_##T##_##O(const T *in, O *out, int64_t n, int64_t piece) {                 \
    O v = 0;                                                                                                    \
    int64_t begin = (int64_t)blockIdx.x * piece, end = begin + piece < n ? begin + piece : n;                   \
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) v += (O)load(in[i]) * (O)load(in[i]) / 2;   \
    v = join_block<by_sum>(v);                                                                                     \
    if (threadIdx.x == 0) out[blockIdx.x] = v;                                                                  \
  }
SQUARES_OF(f32, f32)
SQUARES_OF(f64, f64)
SQUARES_OF(f16, f32)
SQUARES_OF(bf16, f32)

/* The first place of the largest (sign 1) or smallest (sign -1): a warp to a result. NaN never wins, as on the CPU. */
template <class T, class O>
__device__ inline void find_extreme(const T *in, O *out, int64_t outer, int64_t length, int64_t inner, int sign) {
  typedef typename computed<T>::type C;
  int64_t at = blockIdx.x * (int64_t)(blockDim.x / WARP) + threadIdx.x / WARP;
  if (at >= outer * inner) return;
  const T *x = in + at / inner * length * inner + at % inner;
  C best = 0;
  int64_t place = length;
  for (int64_t i = threadIdx.x % WARP; i < length; i += WARP) {
    C v = load(x[i * inner]);
    if (place == length || (sign > 0 ? v > best : v < best)) best = v, place = i;
  }
  for (int d = WARP / 2; d > 0; d /= 2) {
    C v = __shfl_down_sync(~0u, best, d);
    int64_t p = __shfl_down_sync(~0u, place, d);
    bool better = place == length || (sign > 0 ? v > best : v < best) || (v == best && p < place);
    if (p < length && better) best = v, place = p;
  }
  if (threadIdx.x % WARP == 0) out[at] = (O)place;
}
#define ARG_OF(T, O)                                                                                          \
  extern "C" __global__ void arg_##T##_##O(const T *in, O *out, int64_t outer, int64_t length, int64_t inner, \
                                           int sign) {                                                        \
    find_extreme(in, out, outer, length, inner, sign);                                                        \
  }
#define ARG(T) ARG_OF(T, i32) ARG_OF(T, i64)
ARG(f32)
ARG(f64)
ARG(f16)
ARG(bf16)
ARG(i32)
ARG(i64)
