/* Softmax and its cross entropy: a block to a row. */
#include "types.cuh"

enum { WARP = 32 };

template <class C> __device__ inline C row_sum(C v) {
  __shared__ C parts[WARP];
  for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = v;
  __syncthreads();
  v = threadIdx.x % WARP < blockDim.x / WARP ? parts[threadIdx.x % WARP] : (C)0;
  for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  __syncthreads();
  return v;
}

template <class C> __device__ inline C row_max(C v) {
  __shared__ C parts[WARP];
  for (int d = WARP / 2; d > 0; d /= 2) v = fmax(v, __shfl_xor_sync(~0u, v, d));
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = v;
  __syncthreads();
  v = threadIdx.x % WARP < blockDim.x / WARP ? parts[threadIdx.x % WARP] : -(C)INFINITY;
  for (int d = WARP / 2; d > 0; d /= 2) v = fmax(v, __shfl_xor_sync(~0u, v, d));
  __syncthreads();
  return v;
}

template <class T> struct row_of {
  typedef typename computed<T>::type C;
  C top, total; /* the largest, and the sum of exp(x - top) */
  __device__ inline row_of(const T *x, int n) {
    C v = -(C)INFINITY, s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) v = fmax(v, load(x[i]));
    top = row_max(v);
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += exp(load(x[i]) - top);
    total = row_sum(s);
  }
};

#define SOFTMAX_OF(T, name, expr)                                             \
  extern "C" __global__ void name##_##T(const T *in, T *out, int n) {         \
    const T *x = in + (int64_t)blockIdx.x * n;                                \
    T *y = out + (int64_t)blockIdx.x * n;                                     \
    row_of<T> r(x, n);                                                           \
    for (int i = threadIdx.x; i < n; i += blockDim.x) {                       \
      typename computed<T>::type v = load(x[i]) - r.top;                      \
      y[i] = stored<T>::of(expr);                                             \
    }                                                                         \
  }
FLOATING(SOFTMAX_OF, Softmax, exp(v) / r.total)
FLOATING(SOFTMAX_OF, LogSoftmax, v - log(r.total))

/* Labels are probabilities; either operand may have one row for all. */
#define CROSS_ENTROPY_OF(T, name)                                                                             \
  extern "C" __global__ void name##_##T(const T *logits, const T *labels, T *loss, T *back, int n,            \
                                        int64_t logits_step, int64_t labels_step) {                           \
    typedef typename computed<T>::type C;                                                                     \
    const T *x = logits + blockIdx.x * logits_step, *p = labels + blockIdx.x * labels_step;                   \
    row_of<T> r(x, n);                                                                                           \
    C shift = log(r.total), part = 0;                                                                         \
    for (int i = threadIdx.x; i < n; i += blockDim.x) {                                                       \
      C v = load(x[i]) - r.top, q = load(p[i]);                                                               \
      back[(int64_t)blockIdx.x * n + i] = stored<T>::of(exp(v) / r.total - q);                                \
      if (q != 0) part += q * (shift - v);                                                                    \
    }                                                                                                         \
    part = row_sum(part);                                                                                     \
    if (threadIdx.x == 0) loss[blockIdx.x] = stored<T>::of(part);                                             \
  }
FLOATING(CROSS_ENTROPY_OF, SoftmaxCrossEntropyWithLogits)

/* A label out of range is NaN here, as TensorFlow's on a card. */
#define SPARSE_OF(T, L)                                                                                              \
  extern "C" __global__ void SparseSoftmaxCrossEntropyWithLogits_##T##_##L(const T *logits, const L *labels, T *loss, \
                                                                           T *back, int n) {                         \
    typedef typename computed<T>::type C;                                                                            \
    const T *x = logits + (int64_t)blockIdx.x * n;                                                                   \
    int64_t label = labels[blockIdx.x];                                                                              \
    bool fits = label >= 0 && label < n;                                                                             \
    row_of<T> r(x, n); \
    C shift = log(r.total), nan = (C)NAN;                                                                            \
    for (int i = threadIdx.x; i < n; i += blockDim.x) {                                                              \
      C v = load(x[i]) - r.top;                                                                                      \
      back[(int64_t)blockIdx.x * n + i] = stored<T>::of(fits ? exp(v) / r.total - (C)(i == label) : nan);            \
    }                                                                                                                \
    if (threadIdx.x == 0) loss[blockIdx.x] = stored<T>::of(fits ? shift - (load(x[label]) - r.top) : nan);           \
  }
#define SPARSE(T, unused) SPARSE_OF(T, i32) SPARSE_OF(T, i64)
FLOATING(SPARSE, 0)
