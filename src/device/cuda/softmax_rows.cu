/* Softmax of rows that fit the registers of those who share them: a warp, or a block. Each element is loaded once and
 * stored once, 16 bytes at a time; rows are a multiple of that. */
#include "types.cuh"

enum { WARP = 32, BLOCK = 256 };

__device__ inline float larger(float a, float b) { return fmaxf(a, b); }
__device__ inline double larger(double a, double b) { return fmax(a, b); }

/* Half precision keeps fewer digits than the fast one has. */
template <class T> struct power {
  template <class C> static __device__ inline C of(C x) { return exp(x); }
};
template <> struct power<f16> {
  static __device__ inline float of(float x) { return __expf(x); }
};
template <> struct power<bf16> {
  static __device__ inline float of(float x) { return __expf(x); }
};

struct join_max {
  template <class C> static __device__ inline C of(C a, C b) { return larger(a, b); }
  template <class C> static __device__ inline C none() { return -(C)INFINITY; }
};
struct join_sum {
  template <class C> static __device__ inline C of(C a, C b) { return a + b; }
  template <class C> static __device__ inline C none() { return 0; }
};

template <class J, class C> __device__ inline C over_warp(C v) {
  for (int d = WARP / 2; d > 0; d /= 2) v = J::of(v, __shfl_xor_sync(~0u, v, d));
  return v;
}

/* Over all who share a row: the result is everybody's. */
template <class J, int THREADS, class C> __device__ inline C over_row(C v) {
  v = over_warp<J>(v);
  if (THREADS == WARP) return v;
  __shared__ C parts[BLOCK / WARP];
  __syncthreads();
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = v;
  __syncthreads();
  v = threadIdx.x % WARP < BLOCK / WARP ? parts[threadIdx.x % WARP] : J::template none<C>();
  return over_warp<J>(v);
}

/* What is added to a row: the mask has rows that repeat. */
template <class T> struct mask_of {
  const T *at; /* NULL: none */
  int64_t rows;
};

/* THREADS to a row, PACKS of 16 bytes to a thread. */
template <class T, int THREADS, int PACKS, bool LOG>
__device__ inline void rows(const T *in, T *out, int64_t n_rows, int n, mask_of<T> mask) {
  typedef typename computed<T>::type C;
  enum { V = PACK_BYTES / sizeof(T) };
  int64_t row = blockIdx.x * (int64_t)(BLOCK / THREADS) + threadIdx.x / THREADS;
  int first = threadIdx.x % THREADS, packs = n / V;
  if (row >= n_rows) return; /* all of a warp, or none of the block */
  const pack_of<T, V> *x = (const pack_of<T, V> *)(in + row * n);
  pack_of<T, V> *y = (pack_of<T, V> *)(out + row * n);
  const pack_of<T, V> *added = (const pack_of<T, V> *)(mask.at ? mask.at + row % mask.rows * n : in);
  C v[PACKS][V], top = -(C)INFINITY, total = 0;
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    if (first + p * THREADS >= packs) continue;
    pack_of<T, V> q = x[first + p * THREADS], more;
    if (mask.at) more = added[first + p * THREADS];
    for (int k = 0; k < V; k++) {
      v[p][k] = mask.at ? load(q.v[k]) + load(more.v[k]) : load(q.v[k]);
      top = larger(top, v[p][k]);
    }
  }
  top = over_row<join_max, THREADS>(top);
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    if (first + p * THREADS >= packs) continue;
    for (int k = 0; k < V; k++) {
      C e = power<T>::of(v[p][k] - top);
      total += e;
      v[p][k] = LOG ? v[p][k] - top : e;
    }
  }
  total = over_row<join_sum, THREADS>(total);
  C by = LOG ? log(total) : (C)1 / total;
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    if (first + p * THREADS >= packs) continue;
    pack_of<T, V> q;
    for (int k = 0; k < V; k++) q.v[k] = stored<T>::of(LOG ? v[p][k] - by : v[p][k] * by);
    y[first + p * THREADS] = q;
  }
}

/* Up to 1,024 elements to a warp, up to 8,192 to a block (kernels_softmax.c counts on both). */
#define ROWS_OF(T, name, is_log)                                                                      \
  extern "C" __global__ void name##_warp_##T(const T *in, T *out, int64_t n_rows, int n) {            \
    rows<T, WARP, 1024 * sizeof(T) / (WARP * PACK_BYTES), is_log>(in, out, n_rows, n, {NULL, 1});     \
  }                                                                                                   \
  extern "C" __global__ void name##_block_##T(const T *in, T *out, int64_t n_rows, int n) {           \
    rows<T, BLOCK, 8192 * sizeof(T) / (BLOCK * PACK_BYTES), is_log>(in, out, n_rows, n, {NULL, 1});   \
  }
FLOATING(ROWS_OF, Softmax, false)
FLOATING(ROWS_OF, LogSoftmax, true)

#define MASKED_OF(T, unused)                                                                                       \
  extern "C" __global__ void masked_warp_##T(const T *in, const T *mask, T *out, int64_t n_rows, int n,            \
                                             int64_t mask_rows) {                                                  \
    rows<T, WARP, 1024 * sizeof(T) / (WARP * PACK_BYTES), false>(in, out, n_rows, n, {mask, mask_rows});           \
  }                                                                                                                \
  extern "C" __global__ void masked_block_##T(const T *in, const T *mask, T *out, int64_t n_rows, int n,           \
                                              int64_t mask_rows) {                                                 \
    rows<T, BLOCK, 8192 * sizeof(T) / (BLOCK * PACK_BYTES), false>(in, out, n_rows, n, {mask, mask_rows});         \
  }
FLOATING(MASKED_OF, 0)

/* ---- the way back: dx = (dy - sum(dy * y)) * y ---- */

template <class T, int THREADS, int PACKS>
__device__ inline void rows_back(const T *softmax, const T *grad, T *out, int64_t n_rows, int n) {
  typedef typename computed<T>::type C;
  enum { V = PACK_BYTES / sizeof(T) };
  int64_t row = blockIdx.x * (int64_t)(BLOCK / THREADS) + threadIdx.x / THREADS;
  int first = threadIdx.x % THREADS, packs = n / V;
  if (row >= n_rows) return;
  const pack_of<T, V> *y = (const pack_of<T, V> *)(softmax + row * n), *dy = (const pack_of<T, V> *)(grad + row * n);
  pack_of<T, V> *dx = (pack_of<T, V> *)(out + row * n), a[PACKS], b[PACKS];
  C sum = 0;
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    if (first + p * THREADS >= packs) continue;
    a[p] = y[first + p * THREADS];
    b[p] = dy[first + p * THREADS];
    for (int k = 0; k < V; k++) sum += load(a[p].v[k]) * load(b[p].v[k]);
  }
  sum = over_row<join_sum, THREADS>(sum);
#pragma unroll
  for (int p = 0; p < PACKS; p++) {
    if (first + p * THREADS >= packs) continue;
    for (int k = 0; k < V; k++) a[p].v[k] = stored<T>::of((load(b[p].v[k]) - sum) * load(a[p].v[k]));
    dx[first + p * THREADS] = a[p];
  }
}

#define BACK_OF(T, unused)                                                                                         \
  extern "C" __global__ void back_warp_##T(const T *y, const T *dy, T *dx, int64_t n_rows, int n, int64_t) {       \
    rows_back<T, WARP, 1024 * sizeof(T) / (WARP * PACK_BYTES)>(y, dy, dx, n_rows, n);                              \
  }                                                                                                                \
  extern "C" __global__ void back_block_##T(const T *y, const T *dy, T *dx, int64_t n_rows, int n, int64_t) {      \
    rows_back<T, BLOCK, 8192 * sizeof(T) / (BLOCK * PACK_BYTES)>(y, dy, dx, n_rows, n);                            \
  }
FLOATING(BACK_OF, 0)
