/* Batch normalisation of a matrix [rows, channels]. Statistics are taken in pieces of rows, as means and sums of
 * squared distances from them, which are joined in a fixed order: nothing is lost when the mean is large. A thread
 * serves V neighbouring channels with one load. */
#include "types.cuh"

enum { WARP = 32, THREADS = 256 };

/* Of n numbers: their mean, and the sum of squared distances from it. */
struct norm_spread {
  float n, mean, squares;
};

__device__ inline norm_spread join(norm_spread a, norm_spread b) {
  float n = a.n + b.n, apart = b.mean - a.mean;
  if (b.n == 0) return a;
  if (a.n == 0) return b;
  return {n, a.mean + apart * (b.n / n), a.squares + b.squares + apart * apart * (a.n * b.n / n)};
}

struct norm_rows { /* as kernels_norm.c fills it: a block has `columns` threads side by side, each of V channels */
  int64_t rows, channels, piece;
  int32_t columns;
};

__device__ inline int64_t rows_below(const norm_rows &r, int64_t piece) {
  return piece * r.piece < r.rows ? piece * r.piece : r.rows;
}

/* Means, then squares, of a piece: out is [pieces][2][channels]. */
template <class T, int V> __device__ inline void sum_rows(const T *x, float *out, const norm_rows &r) {
  __shared__ norm_spread parts[THREADS][V];
  int column = threadIdx.x % r.columns, row = threadIdx.x / r.columns, height = THREADS / r.columns;
  int64_t channel = (blockIdx.x * (int64_t)r.columns + column) * V, begin = rows_below(r, blockIdx.y) + row;
  int64_t end = rows_below(r, blockIdx.y + 1);
  float first[V], sum[V], squares[V];
  for (int k = 0; k < V; k++) first[k] = sum[k] = squares[k] = 0;
  if (channel < r.channels && begin < end) {
    pack_of<T, V> p = *(const pack_of<T, V> *)(x + begin * r.channels + channel);
    for (int k = 0; k < V; k++) first[k] = load(p.v[k]);
#pragma unroll 4
    for (int64_t i = begin; i < end; i += height) {
      pack_of<T, V> p = *(const pack_of<T, V> *)(x + i * r.channels + channel);
      for (int k = 0; k < V; k++) {
        float v = load(p.v[k]) - first[k];
        sum[k] += v;
        squares[k] += v * v;
      }
    }
  }
  float n = begin < end ? (float)((end - begin + height - 1) / height) : 0;
  for (int k = 0; k < V; k++) {
    float mean = n ? sum[k] / n : 0;
    parts[threadIdx.x][k] = {n, first[k] + mean, fmaxf(squares[k] - sum[k] * mean, 0)};
  }
  for (int half = height / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int k = 0; k < V && row < half; k++)
      parts[threadIdx.x][k] = join(parts[threadIdx.x][k], parts[threadIdx.x + half * r.columns][k]);
  }
  if (row || channel >= r.channels) return;
  for (int k = 0; k < V; k++) {
    out[(int64_t)blockIdx.y * 2 * r.channels + channel + k] = parts[column][k].mean;
    out[((int64_t)blockIdx.y * 2 + 1) * r.channels + channel + k] = parts[column][k].squares;
  }
}

/* Of a gradient: sums of dy, and of dy * (x - mean). */
template <class T, int V>
__device__ inline void sum_back_rows(const T *x, const T *dy, const float *mean, float *out, const norm_rows &r) {
  __shared__ float parts[THREADS][2 * V];
  int column = threadIdx.x % r.columns, row = threadIdx.x / r.columns, height = THREADS / r.columns;
  int64_t channel = (blockIdx.x * (int64_t)r.columns + column) * V, begin = rows_below(r, blockIdx.y) + row;
  int64_t end = rows_below(r, blockIdx.y + 1);
  float sum[V], product[V], centre[V];
  for (int k = 0; k < V; k++) {
    sum[k] = product[k] = 0;
    centre[k] = channel < r.channels ? mean[channel + k] : 0;
  }
  if (channel < r.channels) {
#pragma unroll 4
    for (int64_t i = begin; i < end; i += height) {
      pack_of<T, V> p = *(const pack_of<T, V> *)(x + i * r.channels + channel);
      pack_of<T, V> d = *(const pack_of<T, V> *)(dy + i * r.channels + channel);
      for (int k = 0; k < V; k++) {
        sum[k] += load(d.v[k]);
        product[k] += load(d.v[k]) * (load(p.v[k]) - centre[k]);
      }
    }
  }
  for (int k = 0; k < V; k++) {
    parts[threadIdx.x][k] = sum[k];
    parts[threadIdx.x][V + k] = product[k];
  }
  for (int half = height / 2; half > 0; half /= 2) {
    __syncthreads();
    for (int k = 0; k < 2 * V && row < half; k++)
      parts[threadIdx.x][k] += parts[threadIdx.x + half * r.columns][k];
  }
  if (row || channel >= r.channels) return;
  for (int k = 0; k < V; k++) {
    out[(int64_t)blockIdx.y * 2 * r.channels + channel + k] = parts[column][k];
    out[((int64_t)blockIdx.y * 2 + 1) * r.channels + channel + k] = parts[column][V + k];
  }
}

/* ---- from pieces to what is applied: a warp to a channel ---- */

struct norm_ends { /* as kernels_norm.c fills it */
  const float *parts, *scale, *offset, *old_mean, *old_variance, *mean, *variance;
  float *new_mean, *new_variance, *saved_mean, *saved_variance, *factor;
  int64_t pieces;
  float epsilon, blend;
  int32_t training;
};

__device__ inline norm_spread join_pieces(const norm_ends &e, const norm_rows &r, int64_t channel) {
  norm_spread all = {0, 0, 0};
  for (int64_t p = threadIdx.x % WARP; p < e.pieces; p += WARP) {
    float n = (float)(rows_below(r, p + 1) - rows_below(r, p));
    all = join(all, {n, e.parts[p * 2 * r.channels + channel], e.parts[(p * 2 + 1) * r.channels + channel]});
  }
  for (int d = WARP / 2; d > 0; d /= 2) {
    norm_spread other = {__shfl_down_sync(~0u, all.n, d), __shfl_down_sync(~0u, all.mean, d),
                    __shfl_down_sync(~0u, all.squares, d)};
    all = join(all, other);
  }
  return all;
}

/* The running statistics after this batch; the variance is that of the population behind the sample. */
__device__ inline void blend(const norm_ends &e, const norm_rows &r, int64_t c, float mean, float variance) {
  float rows = (float)r.rows, wide = variance * (rows / (r.rows > 1 ? rows - 1 : 1));
  e.new_mean[c] = e.blend == 1 ? mean : (1 - e.blend) * e.old_mean[c] + e.blend * mean;
  e.new_variance[c] = e.blend == 1 ? wide : (1 - e.blend) * e.old_variance[c] + e.blend * wide;
}

extern "C" __global__ void norm_finish(norm_ends e, norm_rows r) {
  int64_t c = blockIdx.x * (int64_t)(blockDim.x / WARP) + threadIdx.x / WARP;
  if (c >= r.channels) return;
  norm_spread all = {0, 0, 0};
  if (e.training) all = join_pieces(e, r, c);
  if (threadIdx.x % WARP) return;
  float mean = e.training ? all.mean : e.old_mean[c];
  float variance = e.training ? all.squares / (float)r.rows : e.old_variance[c];
  if (e.training) {
    blend(e, r, c, mean, variance);
  } else {
    e.new_mean[c] = mean;
    e.new_variance[c] = variance;
  }
  e.saved_mean[c] = mean;
  e.saved_variance[c] = variance;
  e.factor[c] = e.scale[c] / sqrtf(variance + e.epsilon);
}

/* No rows: what is learnt of nothing. */
extern "C" __global__ void norm_nothing(norm_ends e, norm_rows r) {
  EACH_ELEMENT(c, r.channels) {
    e.new_mean[c] = e.new_variance[c] = NAN;
    e.saved_mean[c] = e.saved_variance[c] = 0;
  }
}

/* factor is [3][channels]: of dy, what is taken from it, and the slope of x. */
struct norm_back_ends { /* as kernels_norm.c fills it */
  const float *parts, *scale, *variance;
  float *dscale, *doffset, *factor;
  int64_t pieces;
  float epsilon;
  int32_t training;
};

extern "C" __global__ void norm_back_finish(norm_back_ends e, norm_rows r) {
  int64_t c = blockIdx.x * (int64_t)(blockDim.x / WARP) + threadIdx.x / WARP;
  if (c >= r.channels) return;
  float sum = 0, product = 0;
  for (int64_t p = threadIdx.x % WARP; p < e.pieces; p += WARP) {
    sum += e.parts[p * 2 * r.channels + c];
    product += e.parts[(p * 2 + 1) * r.channels + c];
  }
  for (int d = WARP / 2; d > 0; d /= 2) {
    sum += __shfl_down_sync(~0u, sum, d);
    product += __shfl_down_sync(~0u, product, d);
  }
  if (threadIdx.x % WARP) return;
  float variance = e.variance[c] + e.epsilon, inverse = 1 / sqrtf(variance);
  e.doffset[c] = sum;
  e.dscale[c] = product * inverse;
  e.factor[c] = e.scale[c] * inverse;
  e.factor[r.channels + c] = e.training ? sum / (float)r.rows : 0;
  e.factor[2 * r.channels + c] = e.training ? product / (float)r.rows / variance : 0;
}

/* ---- applied: a thread stays with its channels, and keeps what they need ---- */

/* y = (x - mean) * factor + offset */
template <class T, int V>
__device__ inline void apply(const T *x, T *y, const float *mean, const float *factor, const float *offset,
                             const norm_rows &r) {
  int column = threadIdx.x % r.columns, row = threadIdx.x / r.columns, height = THREADS / r.columns;
  int64_t channel = (blockIdx.x * (int64_t)r.columns + column) * V, end = rows_below(r, blockIdx.y + 1);
  float m[V], f[V], o[V];
  if (channel >= r.channels) return;
  for (int k = 0; k < V; k++) {
    m[k] = mean[channel + k];
    f[k] = factor[channel + k];
    o[k] = offset[channel + k];
  }
#pragma unroll 4
  for (int64_t i = rows_below(r, blockIdx.y) + row; i < end; i += height) {
    pack_of<T, V> p = *(const pack_of<T, V> *)(x + i * r.channels + channel);
    for (int k = 0; k < V; k++) p.v[k] = stored<T>::of((load(p.v[k]) - m[k]) * f[k] + o[k]);
    *(pack_of<T, V> *)(y + i * r.channels + channel) = p;
  }
}

/* dx = factor[0] * (dy - factor[1] - (x - mean) * factor[2]) */
template <class T, int V>
__device__ inline void apply_back(const T *x, const T *dy, T *dx, const float *mean, const float *factor,
                                  const norm_rows &r) {
  int column = threadIdx.x % r.columns, row = threadIdx.x / r.columns, height = THREADS / r.columns;
  int64_t channel = (blockIdx.x * (int64_t)r.columns + column) * V, end = rows_below(r, blockIdx.y + 1);
  float m[V], f[V], o[V], b[V];
  if (channel >= r.channels) return;
  for (int k = 0; k < V; k++) {
    m[k] = mean[channel + k];
    f[k] = factor[channel + k];
    o[k] = factor[r.channels + channel + k];
    b[k] = factor[2 * r.channels + channel + k];
  }
#pragma unroll 2
  for (int64_t i = rows_below(r, blockIdx.y) + row; i < end; i += height) {
    pack_of<T, V> p = *(const pack_of<T, V> *)(x + i * r.channels + channel);
    pack_of<T, V> d = *(const pack_of<T, V> *)(dy + i * r.channels + channel);
    for (int k = 0; k < V; k++)
      p.v[k] = stored<T>::of(f[k] * (load(d.v[k]) - o[k] - (load(p.v[k]) - m[k]) * b[k]));
    *(pack_of<T, V> *)(dx + i * r.channels + channel) = p;
  }
}

#define NORM_OF(T, how, V)                                                                                    \
  extern "C" __global__ void norm_sums_##how##_##T(const T *x, float *out, norm_rows r) {                     \
    sum_rows<T, V>(x, out, r);                                                                                \
  }                                                                                                           \
  extern "C" __global__ void norm_apply_##how##_##T(const T *x, T *y, const float *mean, const float *factor, \
                                                    const float *offset, norm_rows r) {                       \
    apply<T, V>(x, y, mean, factor, offset, r);                                                               \
  }
#define NORM_BACK_OF(T, how, V)                                                                                 \
  extern "C" __global__ void norm_back_sums_##how##_##T(const T *x, const T *dy, const float *mean, float *out, \
                                                        norm_rows r) {                                          \
    sum_back_rows<T, V>(x, dy, mean, out, r);                                                                   \
  }                                                                                                             \
  extern "C" __global__ void norm_back_apply_##how##_##T(const T *x, const T *dy, T *dx, const float *mean,     \
                                                         const float *factor, norm_rows r) {                    \
    apply_back<T, V>(x, dy, dx, mean, factor, r);                                                               \
  }
#define NORM(T, how, V) NORM_OF(T, how, V) NORM_BACK_OF(T, how, V)
NORM(f32, one, 1)
NORM(f16, one, 1)
NORM(bf16, one, 1)
NORM(f32, wide, 4)
NORM(f16, wide, 8)
NORM(bf16, wide, 8)
