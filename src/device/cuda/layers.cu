/* Layers of Transformers as one kernel each: GELU, layer normalisation, cross entropy with sparse labels; and their
 * gradients. All of them are bound by memory: each tensor is read or written once, 16 bytes at a time where it lies
 * well. */
#include "types.cuh"

enum { WARP = 32, WARPS = 8 };

template <class T> struct of_16 {
  enum { N = PACK_BYTES / sizeof(T) };
};

/* ---- GELU: x times sigmoid(x (slope + cube x^2)) ---- */

__device__ inline float gate(float u) { return 1.0f / (1.0f + __expf(-u)); }
__device__ inline double gate(double u) { return 1.0 / (1.0 + exp(-u)); }

template <class C> __device__ inline C gelu_of(C x) {
  const C slope = (C)1.5957691216057307, cube = slope * (C)0.044715;
  return x * gate(x * (slope + cube * x * x));
}
template <class C> __device__ inline C gelu_slope(C x) {
  const C slope = (C)1.5957691216057307, cube = slope * (C)0.044715;
  C square = cube * x * x, g = gate(x * (slope + square));
  return g + x * (g * (1 - g)) * (slope + 3 * square);
}

template <class T> __device__ inline void gelu_all(const T *in, T *out, int64_t n) {
  enum { N = of_16<T>::N };
  int64_t packs = is_packed(in, N) && is_packed(out, N) ? n / N : 0;
  EACH_ELEMENT(i, packs) {
    pack_of<T, N> x = ((const pack_of<T, N> *)in)[i];
    for (int k = 0; k < N; k++) x.v[k] = stored<T>::of(gelu_of(load(x.v[k])));
    ((pack_of<T, N> *)out)[i] = x;
  }
  EACH_ELEMENT(i, n - packs * N) out[packs * N + i] = stored<T>::of(gelu_of(load(in[packs * N + i])));
}

template <class T> __device__ inline void gelu_back(const T *in, const T *back, T *out, int64_t n) {
  enum { N = of_16<T>::N };
  int64_t packs = is_packed(in, N) && is_packed(back, N) && is_packed(out, N) ? n / N : 0;
  EACH_ELEMENT(i, packs) {
    pack_of<T, N> x = ((const pack_of<T, N> *)in)[i], dy = ((const pack_of<T, N> *)back)[i];
    for (int k = 0; k < N; k++) x.v[k] = stored<T>::of(load(dy.v[k]) * gelu_slope(load(x.v[k])));
    ((pack_of<T, N> *)out)[i] = x;
  }
  EACH_ELEMENT(i, n - packs * N) {
    int64_t at = packs * N + i;
    out[at] = stored<T>::of(load(back[at]) * gelu_slope(load(in[at])));
  }
}

#define GELU_OF(T, unused)                                                                                             \
  extern "C" __global__ void _ShoalGelu_##T(const T *in, T *out, int64_t n) { gelu_all(in, out, n); }                  \
  extern "C" __global__ void _ShoalGeluGrad_##T(const T *in, const T *back, T *out, int64_t n) {                       \
    gelu_back(in, back, out, n);                                                                                       \
  }
FLOATING(GELU_OF, 0)

/* ---- layer normalisation: a warp to a row ---- */

__device__ inline float warp_sum(float v) {
  for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

/* A lane's part of a row that is held: P packs, WARP packs apart. What is past the end is left alone. */
#define EACH_PACK(p, at) for (int p = 0, at = threadIdx.x % WARP * N; p < P && at < width; p++, at += WARP * N)
#define EACH_HELD(p, k, at) EACH_PACK(p, at) for (int k = 0; k < N; k++)

template <class T, int P> struct row_part {
  enum { N = of_16<T>::N };
  pack_of<T, N> v[P];
  __device__ inline void read(const T *row, int width) {
    EACH_PACK(p, at) v[p] = *(const pack_of<T, N> *)(row + at);
  }
  __device__ inline void write(T *row, int width) const {
    EACH_PACK(p, at) *(pack_of<T, N> *)(row + at) = v[p];
  }
  __device__ inline float at(int p, int k) const { return load(v[p].v[k]); }
  __device__ inline void put(int p, int k, float x) { v[p].v[k] = stored<T>::of(x); }
};

/* A row that is read later is asked for: it is in the second cache then. That takes no registers, of which a row on the
 * way back has all there are. */
template <class T, int P> __device__ inline void ask_for_row(const T *row, int width) {
  enum { N = of_16<T>::N };
  EACH_PACK(p, at) asm volatile("prefetch.global.L2 [%0];" ::"l"(row + at));
}

/* A pack's part of a row of numbers that all rows are multiplied by, or added to. It is read for each of them, from the
 * cache: in registers it would leave room for too few warps to keep the memory busy. */
template <int N> struct column_pack {
  float v[N];
  __device__ inline column_pack(const float *row, int at) {
    for (int k = 0; k < N; k += 4) *(pack_of<float, 4> *)&v[k] = *(const pack_of<float, 4> *)(row + at + k);
  }
};
#define EACH_COLUMN(i) for (int i = threadIdx.x % WARP; i < width; i += WARP)
#define EACH_ROW(row) \
  for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP; row < rows; row += (int64_t)gridDim.x * WARPS)

template <class T, int P>
__device__ inline void norm_held(const T *x, const float *scale, const float *offset, T *y, float *means, float *rstds,
                                 int64_t rows, int width, float epsilon) {
  enum { N = of_16<T>::N };
  EACH_ROW(row) {
    row_part<T, P> r;
    float sum = 0, squares = 0;
    r.read(x + row * width, width);
    EACH_HELD(p, k, at) sum += r.at(p, k);
    float mean = warp_sum(sum) / width;
    EACH_HELD(p, k, at) squares += (r.at(p, k) - mean) * (r.at(p, k) - mean);
    float rstd = rsqrtf(warp_sum(squares) / width + epsilon);
    EACH_PACK(p, at) {
      column_pack<N> by(scale, at), more(offset, at);
      for (int k = 0; k < N; k++) r.put(p, k, (r.at(p, k) - mean) * rstd * by.v[k] + more.v[k]);
    }
    r.write(y + row * width, width);
    if (threadIdx.x % WARP == 0) {
      means[row] = mean;
      rstds[row] = rstd;
    }
  }
}

template <class T>
__device__ inline void norm_any(const T *x, const float *scale, const float *offset, T *y, float *means, float *rstds,
                                int64_t rows, int width, float epsilon) {
  EACH_ROW(row) {
    const T *from = x + row * width;
    T *to = y + row * width;
    float sum = 0, squares = 0;
    EACH_COLUMN(i) sum += load(from[i]);
    float mean = warp_sum(sum) / width;
    EACH_COLUMN(i) squares += (load(from[i]) - mean) * (load(from[i]) - mean);
    float rstd = rsqrtf(warp_sum(squares) / width + epsilon);
    EACH_COLUMN(i) to[i] = stored<T>::of((load(from[i]) - mean) * rstd * scale[i] + offset[i]);
    if (threadIdx.x % WARP == 0) {
      means[row] = mean;
      rstds[row] = rstd;
    }
  }
}

#define NORM_ARGS(T)                                                                                      \
  (const T *x, const float *scale, const float *offset, T *y, float *mean, float *rstd, int64_t rows, int width, \
   float epsilon)
#define NORM_CALL (x, scale, offset, y, mean, rstd, rows, width, epsilon)
#define NORM_HELD(T, P) \
  extern "C" __global__ void __launch_bounds__(256) layer_norm_##P##_##T NORM_ARGS(T) { norm_held<T, P> NORM_CALL; }
#define NORM_ANY(T) \
  extern "C" __global__ void __launch_bounds__(256) layer_norm_0_##T NORM_ARGS(T) { norm_any<T> NORM_CALL; }

/* ---- its gradient: with h = (x - mean) rstd and n = dy scale, dx = rstd (n - mean(n) - h mean(n h)) ---- */

/* Each block has rows of its own (its piece), and leaves the sums of dy h and dy over them at parts[piece]. */
template <class T, int P>
__device__ inline void norm_back_held(const T *x, const float *scale, const float *means, const float *rstds,
                                      const T *dys, const T *added, T *dxs, float *parts, int64_t rows, int width) {
  enum { N = of_16<T>::N };
  __shared__ float joined[2 * P * WARP * N]; /* [2][width] */
  float of_scale[P][N] = {}, of_offset[P][N] = {};
  EACH_ROW(row) {
    row_part<T, P> r, dy;
    float mean = means[row], rstd = rstds[row], sum = 0, product = 0;
    r.read(x + row * width, width);
    dy.read(dys + row * width, width);
    int64_t next = row + (int64_t)gridDim.x * WARPS;
    if (next < rows) {
      ask_for_row<T, P>(x + next * width, width);
      ask_for_row<T, P>(dys + next * width, width);
      if (added) ask_for_row<T, P>(added + next * width, width);
    }
    EACH_PACK(p, at) {
      column_pack<N> by(scale, at);
      for (int k = 0; k < N; k++) {
        float h = (r.at(p, k) - mean) * rstd, d = dy.at(p, k), n = d * by.v[k];
        of_scale[p][k] += d * h;
        of_offset[p][k] += d;
        sum += n;
        product += n * h;
      }
    }
    sum = warp_sum(sum) / width;
    product = warp_sum(product) / width;
    EACH_PACK(p, at) {
      column_pack<N> by(scale, at);
      pack_of<T, N> more;
      if (added) more = *(const pack_of<T, N> *)(added + row * width + at);
      for (int k = 0; k < N; k++) {
        float h = (r.at(p, k) - mean) * rstd, d = rstd * (dy.at(p, k) * by.v[k] - sum - h * product);
        dy.put(p, k, added ? d + load(more.v[k]) : d);
      }
    }
    dy.write(dxs + row * width, width);
  }
  for (int w = 0; w < WARPS; w++) { /* one warp after the other: always in this order */
    if (threadIdx.x / WARP == w) EACH_HELD(p, k, at) {
        joined[at + k] = (w ? joined[at + k] : 0) + of_scale[p][k];
        joined[width + at + k] = (w ? joined[width + at + k] : 0) + of_offset[p][k];
      }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 2 * width; i += blockDim.x) parts[(int64_t)blockIdx.x * 2 * width + i] = joined[i];
}

template <class T>
__device__ inline void norm_back_any(const T *x, const float *scale, const float *means, const float *rstds,
                                     const T *dys, const T *added, T *dxs, int64_t rows, int width) {
  EACH_ROW(row) {
    const T *from = x + row * width, *dy = dys + row * width;
    float mean = means[row], rstd = rstds[row], sum = 0, product = 0;
    EACH_COLUMN(i) {
      float n = load(dy[i]) * scale[i];
      sum += n;
      product += n * ((load(from[i]) - mean) * rstd);
    }
    sum = warp_sum(sum) / width;
    product = warp_sum(product) / width;
    EACH_COLUMN(i) {
      float h = (load(from[i]) - mean) * rstd;
      float more = added ? (float)load(added[row * width + i]) : 0.0f;
      dxs[row * width + i] = stored<T>::of(rstd * (load(dy[i]) * scale[i] - sum - h * product) + more);
    }
  }
}

/* The sums over rows where they are not taken on the way: a thread to a column, a piece of `piece` rows to a row of
 * blocks. Before dx is written over dy. */
template <class T>
__device__ inline void norm_columns(const T *x, const float *means, const float *rstds, const T *dys, float *parts,
                                    int64_t rows, int width, int64_t piece) {
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  float of_scale = 0, of_offset = 0;
  if (column >= width) return;
  for (int64_t row = blockIdx.y * piece; row < rows && row < (blockIdx.y + 1) * piece; row++) {
    float dy = load(dys[row * width + column]);
    of_scale += dy * ((load(x[row * width + column]) - means[row]) * rstds[row]);
    of_offset += dy;
  }
  parts[(int64_t)blockIdx.y * 2 * width + column] = of_scale;
  parts[(int64_t)blockIdx.y * 2 * width + width + column] = of_offset;
}

/* Pieces joined: WARP columns to a block, WARPS threads to a column. */
extern "C" __global__ void layer_norm_finish(const float *parts, float *dscale, float *doffset, int pieces, int width) {
  __shared__ float some[WARPS][WARP];
  int lane = threadIdx.x % WARP, w = threadIdx.x / WARP, column = blockIdx.x * WARP + lane;
  float sum = 0;
  if (column < 2 * width)
    for (int p = w; p < pieces; p += WARPS) sum += parts[(int64_t)p * 2 * width + column];
  some[w][lane] = sum;
  __syncthreads();
  if (w || column >= 2 * width) return;
  for (int k = 1; k < WARPS; k++) sum += some[k][lane];
  if (column < width) dscale[column] = sum;
  else doffset[column - width] = sum;
}

#define BACK_HELD(T, P)                                                                                           \
  extern "C" __global__ void __launch_bounds__(256, 2) layer_norm_back_##P##_##T(                                    \
      const T *x, const float *scale, const float *mean, const float *rstd, const T *dy, const T *added, T *dx,   \
      float *parts, int64_t rows, int width) {                                                                    \
    norm_back_held<T, P>(x, scale, mean, rstd, dy, added, dx, parts, rows, width);                                \
  }
#define BACK_ANY(T)                                                                                             \
  extern "C" __global__ void __launch_bounds__(256) layer_norm_back_0_##T(                                      \
      const T *x, const float *scale, const float *mean, const float *rstd, const T *dy, const T *added, T *dx, \
      int64_t rows, int width) {                                                                                \
    norm_back_any<T>(x, scale, mean, rstd, dy, added, dx, rows, width);                                         \
  }                                                                                                             \
  extern "C" __global__ void __launch_bounds__(256) layer_norm_columns_##T(                                     \
      const T *x, const float *mean, const float *rstd, const T *dy, float *parts, int64_t rows, int width,     \
      int64_t piece) {                                                                                          \
    norm_columns<T>(x, mean, rstd, dy, parts, rows, width, piece);                                              \
  }
#define NORM_BOTH(T, P) NORM_HELD(T, P) BACK_HELD(T, P)
#define NORM_OF(T) NORM_BOTH(T, 1) NORM_BOTH(T, 2) NORM_BOTH(T, 3) NORM_BOTH(T, 4) NORM_ANY(T) BACK_ANY(T)
NORM_OF(f32)
NORM_BOTH(f32, 6)
NORM_BOTH(f32, 8)
NORM_OF(f16)
NORM_OF(bf16)

/* ---- cross entropy: a block to a row, which is read twice: the second time it is in the cache ---- */

struct softmax_sum { /* the largest, and the sum of exp(x - top) */
  float top, sum;
  __device__ inline void join(float t, float s) {
    float m = fmaxf(top, t);
    if (m == -INFINITY) return;
    sum = sum * __expf(top - m) + s * __expf(t - m);
    top = m;
  }
};

__device__ inline softmax_sum join_block(softmax_sum v) {
  __shared__ float tops[WARP], sums[WARP];
  for (int d = WARP / 2; d > 0; d /= 2)
    v.join(__shfl_xor_sync(~0u, v.top, d), __shfl_xor_sync(~0u, v.sum, d));
  if (threadIdx.x % WARP == 0) {
    tops[threadIdx.x / WARP] = v.top;
    sums[threadIdx.x / WARP] = v.sum;
  }
  __syncthreads();
  v.top = -INFINITY, v.sum = 0;
  for (int w = 0; w < blockDim.x / WARP; w++) v.join(tops[w], sums[w]);
  return v;
}

template <class T, int N> __device__ inline softmax_sum sum_row(const T *x, int n) {
  softmax_sum v = {-INFINITY, 0};
  for (int i = threadIdx.x; i < n / N; i += blockDim.x) {
    pack_of<T, N> p = ((const pack_of<T, N> *)x)[i];
    float top = load(p.v[0]), sum = 0;
    for (int k = 1; k < N; k++) top = fmaxf(top, load(p.v[k]));
    for (int k = 0; k < N; k++) sum += top == -INFINITY ? 0.0f : __expf((float)load(p.v[k]) - top);
    v.join(top, sum);
  }
  return join_block(v);
}

template <class T, int N>
__device__ inline void back_row(const T *x, T *dx, int n, int64_t label, softmax_sum v, float each) {
  float factor = each / v.sum;
  for (int i = n / N - 1 - threadIdx.x; i >= 0; i -= blockDim.x) {
    pack_of<T, N> p = ((const pack_of<T, N> *)x)[i];
    for (int k = 0; k < N; k++) {
      float q = __expf((float)load(p.v[k]) - v.top) * factor;
      p.v[k] = stored<T>::of(i * N + k == label ? q - each : q);
    }
    ((pack_of<T, N> *)dx)[i] = p;
  }
}

template <class T, int N>
__device__ inline void entropy_row(const T *x, int64_t label, float each, float *loss, T *dx, int n) {
  bool fits = label >= 0 && label < n; /* others are NaN, as TensorFlow's on a card */
  float at = fits ? (float)load(x[label]) : NAN;
  softmax_sum v = sum_row<T, N>(x, n);
  if (threadIdx.x == 0) *loss = logf(v.sum) - (at - v.top);
  back_row<T, N>(x, dx, n, label, v, fits ? each : NAN);
}

/* dx may be x: what a thread writes it has read itself, after all have read the row. */
#define ENTROPY_OF(T, L)                                                                                          \
  extern "C" __global__ void __launch_bounds__(1024) _ShoalCrossEntropy_##T##_##L(                                \
      const T *logits, const L *labels, const float *each, float *loss, T *back, int n) {                         \
    enum { N = of_16<T>::N };                                                                                     \
    int64_t row = blockIdx.x;                                                                                     \
    const T *x = logits + row * n;                                                                                \
    T *dx = back + row * n;                                                                                       \
    if (n % N == 0 && is_packed(logits, N) && is_packed(back, N))                                                 \
      entropy_row<T, N>(x, labels[row], each[row], loss + row, dx, n);                                            \
    else                                                                                                          \
      entropy_row<T, 1>(x, labels[row], each[row], loss + row, dx, n);                                            \
  }
#define ENTROPY(T) ENTROPY_OF(T, i32) ENTROPY_OF(T, i64)
ENTROPY(f32)
ENTROPY(f16)
ENTROPY(bf16)
