/* Dense layers that are too small for a card's library: products of which each block makes a few rows and columns, its
 * warps sharing out what is summed; and the last layer of a classifier with its losses and the way back, a warp to a
 * row.
 *
 * Such products take a card no time; what takes time is to begin them, and to wait for memory. So several of them are
 * one launch (the gradients of all layers), operands go from memory to registers with nothing between, all of a warp's
 * at once, and what would be a kernel of its own (a bias, Relu, the sums for a bias' gradient) is done where the
 * numbers are.
 *
 * Tensor cores multiply, with the precision of float32 (split.cuh), which costs nothing here. */
#include "split.cuh"

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

/* Where a lane's elements are: of two rows of a, and of N columns of b, from the first k on. Rows and columns that
 * there are not are others in their place, whose results nobody stores; behind a's last row comes one of ones, where
 * sums are wanted. */
template <int N> struct lane_of {
  const float *a[2], *b[N];
  bool ones[2];
  __device__ inline lane_of(const small_product &p, int row, int column) {
    int g = threadIdx.x % WARP / 4;
    for (int i = 0; i < 2; i++) {
      int r = row + g + i * 8;
      ones[i] = r == p.m && p.sums;
      a[i] = p.a + (r < p.m ? r * p.a_row : 0);
    }
    for (int n = 0; n < N; n++) {
      int c = column + n * 8 + g;
      b[n] = p.b + (c < p.n ? c * p.b_col : 0);
    }
  }
};

/* A step of 8 of k, of which this lane has two. */
template <int N> struct step_of {
  float a[4], b[N][2];
  __device__ inline void load(const small_product &p, const lane_of<N> &l, int k) {
    for (int i = 0; i < 2; i++) {
      int at = k + i * 4;
      bool there = at < p.k;
      int in_a = there ? at * p.a_col : 0, in_b = there ? at * p.b_row : 0;
      for (int r = 0; r < 2; r++) {
        float v = l.a[r][in_a];
        a[r + i * 2] = !there ? 0 : l.ones[r] ? 1 : v;
      }
      for (int n = 0; n < N; n++) {
        float v = l.b[n][in_b];
        b[n][i] = there ? v : 0;
      }
    }
  }
};

/* A warp's part of what is summed: every so many eighths. */
template <int N> __device__ inline void sum_part(const small_product &p, int row, int column, float (&c)[N][4]) {
  int warp = threadIdx.x / WARP, step = blockDim.x / WARP * TILE_K, t = threadIdx.x % 4;
  lane_of<N> l(p, row, column);
  for (int k = warp * TILE_K; k < p.k; k += step * AT_ONCE) {
    step_of<N> s[AT_ONCE];
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) s[u].load(p, l, k + u * step + t);
#pragma unroll
    for (int u = 0; u < AT_ONCE; u++) multiply_split<N>(c, s[u].a, s[u].b);
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

/* Of one element, by single multiplications: as they come on the CPU where something is infinite. */
__device__ float sum_plainly(const small_product &p, int row, int column) {
  float v = 0;
  for (int k = 0; k < p.k; k++)
    v += (row < p.m ? p.a[row * p.a_row + k * p.a_col] : 1) * p.b[column * p.b_col + k * p.b_row];
  return v;
}

/* Parts of an infinite number are no numbers (split.cuh), so where none came out it is made once more. */
__device__ inline void put_sum(const small_product &p, int row, int column, float v) {
  bool wanted = column < p.n && (row < p.m || (row == p.m && p.sums));
  put(p, row, column, wanted && v != v ? sum_plainly(p, row, column) : v);
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
    put_sum(p, row + lane / 4 + i % 4 / 2 * 8, column + i / 4 * 8 + lane % 4 * 2 + i % 2, v);
  }
}

extern "C" __global__ void __launch_bounds__(512) small_products_8(small_products m) { make_tile<1>(m); }
extern "C" __global__ void __launch_bounds__(512) small_products_16(small_products m) { make_tile<2>(m); }

/* ---- the last layer of a classifier ---- */

enum { ROWS = 4, BLOCK = ROWS * WARP, MOST_CLASSES = 16, MOST_WEIGHTS = 8192, EACH = 4, STAGED = 8 };

struct small_classifier { /* as kernels_small.c fills it */
  const float *x, *w, *bias, *each; /* [rows, width], [width, classes], [classes], [rows] */
  const void *labels;
  float *loss, *grad, *back, *mean; /* [rows], [rows, classes], [rows, width], [] */
  uint32_t *done;                   /* blocks; 0 before and after */
  int32_t rows, width, classes;
  uint32_t relu; /* x came of one: back is led through it */
};

/* A lane's elements of a row: from k on, every 32nd. */
__device__ inline void load_row(const small_classifier &m, const float *x, int k, float (&v)[EACH]) {
#pragma unroll
  for (int i = 0; i < EACH; i++) v[i] = k + i * WARP < m.width ? x[k + i * WARP] : 0;
}

__device__ inline void stage_weights(const small_classifier &m, float *w, int n) {
  for (int at = threadIdx.x; at < n; at += BLOCK * STAGED) {
    float v[STAGED];
#pragma unroll
    for (int u = 0; u < STAGED; u++) v[u] = at + u * BLOCK < n ? m.w[at + u * BLOCK] : 0;
#pragma unroll
    for (int u = 0; u < STAGED; u++)
      if (at + u * BLOCK < n) w[at + u * BLOCK] = v[u];
  }
}

/* Each lane has all sums in the end. v: the row's first elements. */
template <int C>
__device__ inline void logits_of(const small_classifier &m, const float *w, const float *x, float (&v)[EACH],
                                 const float *bias, float (&z)[C]) {
  int classes = C == MOST_CLASSES ? m.classes : C;
#pragma unroll
  for (int n = 0; n < C; n++) z[n] = 0;
  for (int k = threadIdx.x % WARP; k < m.width; k += WARP * EACH) {
    if (k >= WARP * EACH) load_row(m, x, k, v);
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
      for (int n = 0; n < C; n++)
        if (k + i * WARP < m.width && n < classes) z[n] += v[i] * w[(k + i * WARP) * classes + n];
  }
  for (int d = WARP / 2; d > 0; d /= 2)
#pragma unroll
    for (int n = 0; n < C; n++) z[n] += __shfl_xor_sync(~0u, z[n], d);
#pragma unroll
  for (int n = 0; n < C; n++) z[n] = n < classes ? z[n] + bias[n] : -INFINITY;
}

/* z becomes its gradient; returns the loss. A label that there is not makes NaN, as TensorFlow's on a card. */
template <int C>
__device__ inline float entropy_of(const small_classifier &m, int64_t label, float each, float (&z)[C]) {
  int classes = C == MOST_CLASSES ? m.classes : C;
  float top = z[0], sum = 0, at = NAN;
#pragma unroll
  for (int n = 1; n < C; n++) top = fmaxf(top, z[n]);
#pragma unroll
  for (int n = 0; n < C; n++) {
    if (n == label) at = z[n];
    z[n] = n < classes ? __expf(z[n] - top) : 0;
    sum += z[n];
  }
  if (label < 0 || label >= classes) each = at = NAN;
  float factor = each / sum;
#pragma unroll
  for (int n = 0; n < C; n++) z[n] = z[n] * factor - (n == label ? each : 0);
  return logf(sum) - (at - top);
}

template <int C>
__device__ inline void back_of(const small_classifier &m, const float *w, const float *x, float (&v)[EACH],
                               const float (&z)[C], float *back) {
  int classes = C == MOST_CLASSES ? m.classes : C;
  for (int k = threadIdx.x % WARP; k < m.width; k += WARP * EACH) {
    if (m.width > WARP * EACH) load_row(m, x, k, v);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      float sum = 0;
      if (k + i * WARP >= m.width) continue;
#pragma unroll
      for (int n = 0; n < C; n++)
        if (n < classes) sum += z[n] * w[(k + i * WARP) * classes + n];
      back[k + i * WARP] = m.relu && !(v[i] > 0) ? 0 : sum;
    }
  }
}

/* The last block to come adds the losses, in an order that is always the same. */
__device__ inline void add_losses(const small_classifier &m) {
  __shared__ bool last;
  __shared__ float parts[ROWS];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(m.done, 1) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  float sum = 0;
  for (int i = threadIdx.x; i < m.rows; i += BLOCK) sum += __ldcg(m.loss + i);
  for (int d = WARP / 2; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  *m.mean = (parts[0] + parts[1] + parts[2] + parts[3]) / m.rows;
  *m.done = 0;
}

/* All that comes from memory is asked for at once: x, the label and what it counts for, weights. C: at most so many
 * classes, or as many. */
template <class L, int C> __device__ inline void classify(const small_classifier &m, float *w, float *bias) {
  int classes = C == MOST_CLASSES ? m.classes : C, lane = threadIdx.x % WARP;
  int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / WARP, read = row < m.rows ? row : 0;
  const float *x = m.x + read * m.width;
  float v[EACH], each = m.rows ? m.each[read] : 0;
  int64_t label = m.rows ? ((const L *)m.labels)[read] : 0;
  if (m.rows) load_row(m, x, lane, v);
  if (threadIdx.x < classes) bias[threadIdx.x] = m.bias[threadIdx.x];
  stage_weights(m, w, m.width * classes);
  __syncthreads();
  if (row < m.rows) {
    float z[C];
    logits_of<C>(m, w, x, v, bias, z);
    float loss = entropy_of<C>(m, label, each, z);
    if (lane == 0) m.loss[row] = loss;
#pragma unroll
    for (int n = 0; n < C; n++)
      if (n < classes && n == lane) m.grad[row * classes + n] = z[n];
    back_of<C>(m, w, x, v, z, m.back + row * m.width);
  }
  add_losses(m);
}

/* Ten classes, as digits have, are known beforehand. */
template <class L> __device__ inline void classify_any(const small_classifier &m) {
  __shared__ float w[MOST_WEIGHTS], bias[MOST_CLASSES];
  if (m.classes == 10) classify<L, 10>(m, w, bias);
  else classify<L, MOST_CLASSES>(m, w, bias);
}

extern "C" __global__ void __launch_bounds__(BLOCK) small_classifier_i32(small_classifier m) { classify_any<i32>(m); }
extern "C" __global__ void __launch_bounds__(BLOCK) small_classifier_i64(small_classifier m) { classify_any<i64>(m); }
