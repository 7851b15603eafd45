/* Dense layers that are too small for a card's library: products of which each block makes a few rows and columns, its
 * warps sharing out what is summed; and the last layer of a classifier with its losses and the way back, a warp to a
 * row.
 *
 * Such products take a card no time; what takes time is to begin them, and to wait for memory. So several of them are
 * one launch (the gradients of all layers), operands go from memory to registers with nothing between, all of a warp's
 * at once, and what would be a kernel of its own (a bias, Relu, the sums for a bias' gradient) is done where the
 * numbers are.
 *
 * Numbers are multiplied as sums of two TF32 numbers each, in three products: that is float32 but for the last bits,
 * and costs nothing here. */
#include <float.h>

#include "types.cuh"

enum { WARP = 32, TILE_ROWS = 16, TILE_K = 8, MOST_WARPS = 16, AT_ONCE = 4, PRODUCTS = 24 };

struct small_product { /* as kernels_small.c fills it: out = a b, m by n, k are summed */
  const float *a, *b, *bias;          /* bias NULL: none */
  float *out, *sums;                  /* sums: of b's columns, n of them; NULL: not wanted */
  int32_t m, n, k;
  int32_t a_row, a_col, b_row, b_col; /* from an element to the next row's, and the next column's */
  uint32_t first;                     /* block */
  uint32_t relu;
};
struct small_products {
  small_product item[PRODUCTS];
  int32_t n_items;
};
static_assert(sizeof(small_products) <= 4000, "what a kernel is given has room");

/* ---- products ---- */

/* v is high + low, to 21 bits behind the point; what is not a number is high alone. */
__device__ inline void split(float v, uint32_t &high, uint32_t &low) {
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(v));
  float rest = v - __uint_as_float(high);
  if (!(fabsf(rest) <= FLT_MAX)) rest = 0;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(low) : "f"(rest));
}

/* c += a b: 16 by 8 times 8 by 8. Of lane l, with g = l / 4 and t = l % 4: a is rows g, g + 8 of column t, then of
 * column t + 4; b rows t, t + 4 of column g; c row g, columns 2t and 2t + 1, then row g + 8. */
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
               "{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int N> __device__ inline void multiply_split(float (&c)[N][4], const float (&a)[4], const float (&b)[N][2]) {
  uint32_t high[4], low[4];
  for (int i = 0; i < 4; i++) split(a[i], high[i], low[i]);
  for (int n = 0; n < N; n++) {
    uint32_t b_high[2], b_low[2];
    for (int i = 0; i < 2; i++) split(b[n][i], b_high[i], b_low[i]);
    multiply(c[n], low, b_high);
    multiply(c[n], high, b_low);
    multiply(c[n], high, b_high);
  }
}

/* Behind a's last row comes one of ones, where sums are wanted. */
__device__ inline float a_at(const small_product &p, int row, int k) {
  if (k >= p.k) return 0;
  if (row < p.m) return p.a[(int64_t)row * p.a_row + (int64_t)k * p.a_col];
  return row == p.m && p.sums ? 1.0f : 0.0f;
}

__device__ inline float b_at(const small_product &p, int k, int column) {
  return k < p.k && column < p.n ? p.b[(int64_t)k * p.b_row + (int64_t)column * p.b_col] : 0;
}

/* A warp's part of what is summed: every so many eighths. */
template <int N> __device__ inline void sum_part(const small_product &p, int row, int column, float (&c)[N][4]) {
  int warp = threadIdx.x / WARP, warps = blockDim.x / WARP, g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
  for (int k = warp * TILE_K; k < p.k; k += warps * TILE_K * AT_ONCE) {
    float a[AT_ONCE][4], b[AT_ONCE][N][2];
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) {
      int at = k + u * warps * TILE_K + t;
      for (int i = 0; i < 4; i++) a[u][i] = a_at(p, row + g + i % 2 * 8, at + i / 2 * 4);
      for (int n = 0; n < N; n++)
        for (int i = 0; i < 2; i++) b[u][n][i] = b_at(p, at + i * 4, column + n * 8 + g);
    }
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) multiply_split<N>(c, a[u], b[u]);
  }
}

__device__ inline void put(const small_product &p, int row, int column, float v) {
  if (column >= p.n) return;
  if (row < p.m) {
    if (p.bias) v += p.bias[column];
    p.out[(int64_t)row * p.n + column] = p.relu && !(v > 0) && v == v ? 0 : v;
  } else if (row == p.m && p.sums) {
    p.sums[column] = v;
  }
}

/* The last one that begins at this block or before. */
__device__ inline int item_of(const small_products &m) {
  int i = m.n_items - 1;
  while (i > 0 && m.item[i].first > blockIdx.x) i--;
  return i;
}

/* A block makes 16 rows and 8 * N columns; it has at least 4 warps. */
template <int N> __device__ inline void make_tile(const small_products &m) {
  __shared__ float parts[MOST_WARPS][N * 4][WARP];
  const small_product &p = m.item[item_of(m)];
  int across = (p.n + 8 * N - 1) / (8 * N), at = blockIdx.x - p.first;
  int row = at / across * TILE_ROWS, column = at % across * 8 * N;
  float c[N][4] = {};
  sum_part<N>(p, row, column, c);
  for (int i = 0; i < N * 4; i++) parts[threadIdx.x / WARP][i][threadIdx.x % WARP] = c[i / 4][i % 4];
  __syncthreads();
  for (int e = threadIdx.x; e < N * 4 * WARP; e += blockDim.x) {
    int i = e / WARP, lane = e % WARP;
    float v = 0;
    for (int w = 0; w < blockDim.x / WARP; w++) v += parts[w][i][lane];
    put(p, row + lane / 4 + i % 4 / 2 * 8, column + i / 4 * 8 + lane % 4 * 2 + i % 2, v);
  }
}

extern "C" __global__ void __launch_bounds__(512) small_products_8(small_products m) { make_tile<1>(m); }
extern "C" __global__ void __launch_bounds__(512) small_products_16(small_products m) { make_tile<2>(m); }

/* ---- the last layer of a classifier ---- */

enum { ROWS = 4, MOST_CLASSES = 16, MOST_WEIGHTS = 8192 };

struct small_classifier { /* as kernels_small.c fills it */
  const float *x, *w, *bias, *each; /* [rows, width], [width, classes], [classes], [rows] */
  const void *labels;
  float *loss, *grad, *back, *mean; /* [rows], [rows, classes], [rows, width], [] */
  uint32_t *done;                   /* blocks; 0 before and after */
  int32_t rows, width, classes;
  uint32_t relu; /* x came of one: back is led through it */
};

/* Each lane has all sums in the end. */
__device__ inline void logits_of(const small_classifier &m, const float *w, const float *x, float (&z)[MOST_CLASSES]) {
  int lane = threadIdx.x % WARP;
#pragma unroll
  for (int n = 0; n < MOST_CLASSES; n++) z[n] = 0;
  for (int k = lane; k < m.width; k += WARP) {
    float v = x[k];
#pragma unroll
    for (int n = 0; n < MOST_CLASSES; n++)
      if (n < m.classes) z[n] += v * w[k * m.classes + n];
  }
  for (int d = WARP / 2; d > 0; d /= 2)
#pragma unroll
    for (int n = 0; n < MOST_CLASSES; n++)
      if (n < m.classes) z[n] += __shfl_xor_sync(~0u, z[n], d);
#pragma unroll
  for (int n = 0; n < MOST_CLASSES; n++) z[n] = n < m.classes ? z[n] + m.bias[n] : -INFINITY;
}

/* z becomes its gradient; returns the loss. A label that there is not makes NaN, as TensorFlow's on a card. */
__device__ inline float entropy_of(const small_classifier &m, int64_t label, float each, float (&z)[MOST_CLASSES]) {
  bool fits = label >= 0 && label < m.classes;
  float top = z[0], sum = 0, at = NAN;
#pragma unroll
  for (int n = 1; n < MOST_CLASSES; n++) top = fmaxf(top, z[n]);
#pragma unroll
  for (int n = 0; n < MOST_CLASSES; n++) {
    if (n == label) at = z[n];
    z[n] = n < m.classes ? expf(z[n] - top) : 0;
    sum += z[n];
  }
  if (!fits) each = NAN;
#pragma unroll
  for (int n = 0; n < MOST_CLASSES; n++) z[n] = z[n] / sum * each - (n == label ? each : 0);
  return logf(sum) - (at - top);
}

__device__ inline void back_of(const small_classifier &m, const float *w, const float *x,
                               const float (&z)[MOST_CLASSES], float *back) {
  for (int k = threadIdx.x % WARP; k < m.width; k += WARP) {
    float v = 0;
#pragma unroll
    for (int n = 0; n < MOST_CLASSES; n++)
      if (n < m.classes) v += z[n] * w[k * m.classes + n];
    back[k] = m.relu && !(x[k] > 0) ? 0 : v;
  }
}

/* The last block to come adds the losses, in their order. */
__device__ inline void add_losses(const small_classifier &m) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(m.done, 1) + 1 == gridDim.x;
  __syncthreads();
  if (!last || threadIdx.x >= WARP) return;
  __threadfence();
  float sum = 0;
  for (int i = threadIdx.x; i < m.rows; i += WARP) sum += __ldcg(m.loss + i);
  for (int d = WARP / 2; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x > 0) return;
  *m.mean = sum / m.rows;
  *m.done = 0;
}

template <class L> __device__ inline void classify(const small_classifier &m) {
  __shared__ float w[MOST_WEIGHTS];
  int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP;
  for (int i = threadIdx.x; i < m.width * m.classes; i += blockDim.x) w[i] = m.w[i];
  __syncthreads();
  if (row < m.rows) {
    const float *x = m.x + row * m.width;
    float z[MOST_CLASSES];
    logits_of(m, w, x, z);
    float loss = entropy_of(m, ((const L *)m.labels)[row], m.each[row], z);
    if (threadIdx.x % WARP == 0) m.loss[row] = loss;
#pragma unroll
    for (int n = 0; n < MOST_CLASSES; n++)
      if (n < m.classes && n == threadIdx.x % WARP) m.grad[row * m.classes + n] = z[n];
    back_of(m, w, x, z, m.back + row * m.width);
  }
  add_losses(m);
}

extern "C" __global__ void small_classifier_i32(small_classifier m) { classify<i32>(m); }
extern "C" __global__ void small_classifier_i64(small_classifier m) { classify<i64>(m); }
