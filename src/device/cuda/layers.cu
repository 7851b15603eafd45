/* Layers of Transformers as one kernel each: GELU, layer normalisation, cross entropy with sparse labels; and their
 * gradients. All of them are bound by memory: each tensor is read or written once, 16 bytes at a time where it lies
 * well. */
#include "shared.cuh"
#include "types.cuh"

enum { WARP = 32, WARPS = 8, BACK_WARPS = 4 };

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

/* What a row's gradient is made of, in shared memory, where it comes while the row before is worked on. A lane reads
 * what it has copied itself, so that it waits for nobody. */
template <class T, int P> struct norm_inputs {
  typedef pack_of<T, of_16<T>::N> lanes[WARP];
  lanes x[P], dy[P], added[P];
  static __device__ inline void copy(lanes *to, const T *row, int width) {
    enum { N = of_16<T>::N };
    EACH_PACK(p, at) copy_16(&to[p][threadIdx.x % WARP], row + at, true);
  }
  __device__ inline void get(const T *xs, const T *dys, const T *more, int64_t row, int width) {
    copy(x, xs + row * width, width);
    copy(dy, dys + row * width, width);
    if (more) copy(added, more + row * width, width);
  }
};

/* Each block has rows of its own (its piece), and leaves the sums of dy h and dy over them at parts[piece]. */
template <class T, int P>
__device__ inline void norm_back_held(const T *x, const float *scale, const float *means, const float *rstds,
                                      const T *dys, const T *added, T *dxs, float *parts, int64_t rows, int width) {
  enum { N = of_16<T>::N };
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, turn = 0;
  int64_t row = (int64_t)blockIdx.x * BACK_WARPS + warp, step = (int64_t)gridDim.x * BACK_WARPS;
  norm_inputs<T, P> *held = (norm_inputs<T, P> *)shared_room() + 2 * warp;
  float of_scale[P][N] = {}, of_offset[P][N] = {};
  if (row < rows) held[0].get(x, dys, added, row, width);
  end_group();
  for (; row < rows; row += step, turn = !turn) {
    if (row + step < rows) held[!turn].get(x, dys, added, row + step, width);
    end_group();
    float mean = means[row], rstd = rstds[row], sum = 0, product = 0;
    row_part<T, P> r, dy;
    wait_groups<1>();
    EACH_PACK(p, at) {
      column_pack<N> by(scale, at);
      r.v[p] = held[turn].x[p][lane];
      dy.v[p] = held[turn].dy[p][lane];
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
      if (added) more = held[turn].added[p][lane];
      for (int k = 0; k < N; k++) {
        float h = (r.at(p, k) - mean) * rstd, d = rstd * (dy.at(p, k) * by.v[k] - sum - h * product);
        dy.put(p, k, added ? d + load(more.v[k]) : d);
      }
    }
    dy.write(dxs + row * width, width);
  }
  __syncthreads();
  float *joined = (float *)shared_room(); /* [2][width] */
  for (int w = 0; w < BACK_WARPS; w++) {  /* one warp after the other: always in this order */
    if (warp == w) EACH_HELD(p, k, at) {
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
  extern "C" __global__ void __launch_bounds__(BACK_WARPS *WARP, P *of_16<T>::N > 24 ? 3 : 4)                          \
  layer_norm_back_##P##_##T(                                                                                      \
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

/* ---- cross entropy: a block to a row, which is read twice: the second time it is in shared memory, or in the cache
 * where it is too long ---- */

/* exp(x - top). Logits in half precision are known to no more digits than the shorter form has. */
template <class T> struct exp_below {
  float shift;
  __device__ inline exp_below(float top) : shift(top * LOG2E) {}
  __device__ inline float of(float x) const { return two_to(x * LOG2E - shift); }
};
template <> struct exp_below<f32> {
  float top;
  __device__ inline exp_below(float top_) : top(top_) {}
  __device__ inline float of(float x) const { return two_to((x - top) * LOG2E); }
};

#define LOWEST (-3.402823466e38f) /* not -inf: the distance to it is a number */
struct softmax_sum { /* the largest, and the sum of exp(x - top) */
  float top, sum;
  __device__ inline void raise(float t) {
    if (t <= top) return;
    sum *= exp_below<f32>(t).of(top);
    top = t;
  }
  __device__ inline void join(softmax_sum v) {
    float m = fmaxf(top, v.top);
    raise(m);
    v.raise(m);
    sum += v.sum;
  }
};

__device__ inline softmax_sum join_block(softmax_sum v) {
  __shared__ softmax_sum parts[WARP];
  for (int d = WARP / 2; d > 0; d /= 2)
    v.join({__shfl_xor_sync(~0u, v.top, d), __shfl_xor_sync(~0u, v.sum, d)});
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = v;
  __syncthreads();
  v = parts[0];
  for (int w = 1; w < blockDim.x / WARP; w++) v.join(parts[w]);
  return v;
}

template <class T, int N> __device__ inline softmax_sum sum_row(const T *x, int n) {
  softmax_sum v = {LOWEST, 0};
  for (int i = threadIdx.x; i < n / N; i += blockDim.x) {
    pack_of<T, N> p = ((const pack_of<T, N> *)x)[i];
    float top = load(p.v[0]);
    for (int k = 1; k < N; k++) top = fmaxf(top, load(p.v[k]));
    v.raise(top);
    exp_below<T> e(v.top);
    for (int k = 0; k < N; k++) v.sum += e.of(load(p.v[k]));
  }
  return join_block(v);
}

template <class T, int N>
__device__ inline void back_row(const T *x, T *dx, int n, int64_t label, softmax_sum v, float each) {
  float factor = each / v.sum;
  exp_below<T> e(v.top);
  int at = (int)(label / N);
  for (int i = n / N - 1 - threadIdx.x; i >= 0; i -= blockDim.x) {
    pack_of<T, N> p = ((const pack_of<T, N> *)x)[i];
    float q[N];
    for (int k = 0; k < N; k++) q[k] = e.of(load(p.v[k])) * factor;
    if (i == at)
      for (int k = 0; k < N; k++) q[k] -= k == label % N ? each : 0;
    for (int k = 0; k < N; k++) p.v[k] = stored<T>::of(q[k]);
    ((pack_of<T, N> *)dx)[i] = p;
  }
}

/* A thread has copied what it reads first; what others have is there behind a barrier. */
template <class T, int N> __device__ inline const T *hold_row(const T *x, int n) {
  T *row = (T *)shared_room();
  for (int i = threadIdx.x; i < n / N; i += blockDim.x) copy_16(row + i * N, x + i * N, true);
  end_group();
  wait_groups<0>();
  return row;
}

template <class T, int N, bool HELD>
__device__ inline void entropy_row(const T *x, int64_t label, float each, float *loss, T *dx, int n) {
  bool fits = label >= 0 && label < n; /* others are NaN, as TensorFlow's on a card */
  float at = fits ? (float)load(x[label]) : NAN;
  const T *row = HELD ? hold_row<T, N>(x, n) : x;
  softmax_sum v = sum_row<T, N>(row, n);
  if (threadIdx.x == 0) *loss = logf(v.sum) - (at - v.top);
  back_row<T, N>(row, dx, n, fits ? label : 0, v, fits ? each : NAN);
}

/* dx may be x: what a thread writes it has read itself, after all have read the row. held: shared memory has room for
 * it, and it lies well. */
#define ENTROPY_OF(T, L)                                                                                          \
  extern "C" __global__ void __launch_bounds__(1024) _ShoalCrossEntropy_##T##_##L(                                \
      const T *logits, const L *labels, const float *each, float *loss, T *back, int n, int held) {               \
    enum { N = of_16<T>::N };                                                                                     \
    int64_t row = blockIdx.x;                                                                                     \
    const T *x = logits + row * n;                                                                                \
    T *dx = back + row * n;                                                                                       \
    if (held)                                                                                                     \
      entropy_row<T, N, true>(x, labels[row], each[row], loss + row, dx, n);                                      \
    else if (n % N == 0 && is_packed(logits, N) && is_packed(back, N))                                            \
      entropy_row<T, N, false>(x, labels[row], each[row], loss + row, dx, n);                                     \
    else                                                                                                          \
      entropy_row<T, 1, false>(x, labels[row], each[row], loss + row, dx, n);                                     \
  }
#define ENTROPY(T) ENTROPY_OF(T, i32) ENTROPY_OF(T, i64)
ENTROPY(f32)
ENTROPY(f16)
ENTROPY(bf16)
