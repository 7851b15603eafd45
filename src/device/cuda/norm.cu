/* Batch normalisation of a matrix [rows, channels], with Relu and a sum behind it. Statistics are taken in pieces of
 * rows, as means and sums of squared distances from them, which are joined in a fixed order: nothing is lost when the
 * mean is large. A thread serves V neighbouring channels with one load.
 *
 * All blocks go through memory side by side: a block has some rows next to each other, then those as many rows further
 * as all blocks have. What went through last is still in the card's cache; who comes next begins there, and goes the
 * other way. */
#include "types.cuh"

enum { WARP = 32, THREADS = 256 };

struct norm_rows { /* as kernels_norm.c fills it: a block has `columns` threads side by side, each of V channels */
  int64_t rows, channels;
  int32_t columns, pieces, down; /* down: from the last row to the first */
  int32_t longer, last, missing; /* pieces before `longer` have a group of rows more; `last` has fewer in its last */
  int64_t each;                  /* rows of the others */
};

__device__ inline int height_of(const norm_rows &r) { return THREADS / r.columns; }

/* How many rows a piece has: of groups of rows next to each other those of its turn. */
__device__ inline float rows_in(const norm_rows &r, int32_t piece) {
  int64_t n = r.each + (piece < r.longer ? height_of(r) : 0) - (piece == r.last ? r.missing : 0);
  return (float)n;
}

/* Where the parts of a piece are: [pieces][2][channels]. */
__device__ inline int64_t part_of(const norm_rows &r, int64_t piece, int which, int64_t channel) {
  return (piece * 2 + which) * r.channels + channel;
}

/* What a thread serves. */
struct norm_thread {
  int column, row;
  int64_t channel, first, step; /* rows: first, first + step, ... */
  __device__ inline norm_thread(const norm_rows &r, int v) {
    column = threadIdx.x % r.columns;
    row = threadIdx.x / r.columns;
    channel = (blockIdx.x * (int64_t)r.columns + column) * v;
    first = blockIdx.y * (int64_t)height_of(r) + row;
    step = (int64_t)r.pieces * height_of(r);
  }
};

/* Where element 0 of a thread's channels in its i-th row is. */
__device__ inline int64_t place_of(const norm_rows &r, const norm_thread &t, int64_t i) {
  return (r.down ? r.rows - 1 - i : i) * r.channels + t.channel;
}

/* get(place) of each row, and use(place, what was got); N rows are asked for before they are used. */
template <int N, class G, class F>
__device__ inline void sweep(const norm_rows &r, const norm_thread &t, G get, F use) {
  int64_t i = t.first;
  for (; i + (N - 1) * t.step < r.rows; i += N * t.step) {
    decltype(get(i)) got[N];
#pragma unroll
    for (int u = 0; u < N; u++) got[u] = get(place_of(r, t, i + u * t.step));
#pragma unroll
    for (int u = 0; u < N; u++) use(place_of(r, t, i + u * t.step), got[u]);
  }
  for (; i < r.rows; i += t.step) {
    decltype(get(i)) one = get(place_of(r, t, i));
    use(place_of(r, t, i), one);
  }
}

/* What was read stays as it lay in memory until it is used: taken apart, each element has a register of its own. */
template <int BYTES> struct norm_bytes;
template <> struct norm_bytes<16> { typedef uint4 type; };
template <> struct norm_bytes<4> { typedef uint32_t type; };
template <> struct norm_bytes<2> { typedef uint16_t type; };
template <class T, int V> struct norm_raw {
  typename norm_bytes<sizeof(T) * V>::type bits;
  __device__ inline pack_of<T, V> apart() const {
    pack_of<T, V> p;
    memcpy(&p, &bits, sizeof p);
    return p;
  }
};

template <int V, class T> __device__ inline norm_raw<T, V> read(const T *from, int64_t at) {
  return *(const norm_raw<T, V> *)(from + at);
}
template <int V, class T> __device__ inline void write(T *to, int64_t at, const pack_of<T, V> &p) {
  *(pack_of<T, V> *)(to + at) = p;
}

/* ---- sums ---- */

/* Adds up what the rows of a block have found: N sums of each of its columns, in those of its first row. */
template <int N> __device__ inline void add_rows(float (&sums)[N], const norm_thread &t, const norm_rows &r) {
  __shared__ float parts[N][THREADS];
#pragma unroll
  for (int k = 0; k < N; k++) parts[k][threadIdx.x] = sums[k];
  for (int half = height_of(r) / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t.row < half)
#pragma unroll
      for (int k = 0; k < N; k++) parts[k][threadIdx.x] += parts[k][threadIdx.x + half * r.columns];
  }
#pragma unroll
  for (int k = 0; k < N; k++) sums[k] = parts[k][threadIdx.x];
}

/* Means, then sums of squared distances from them, of a piece. What is added up are distances from its first row. */
template <class T, int V> __device__ inline void sum_rows(const T *x, float *out, const norm_rows &r) {
  norm_thread t(r, V);
  float first[V], sums[2 * V];
  for (int k = 0; k < V; k++) first[k] = sums[k] = sums[V + k] = 0;
  if (t.channel < r.channels) {
    pack_of<T, V> p = read<V>(x, place_of(r, t, t.first - t.row)).apart();
    for (int k = 0; k < V; k++) first[k] = load(p.v[k]);
    sweep<4>(
        r, t, [&](int64_t at) { return read<V>(x, at); },
        [&](int64_t at, const norm_raw<T, V> &raw) {
          pack_of<T, V> p = raw.apart();
          for (int k = 0; k < V; k++) {
            float v = load(p.v[k]) - first[k];
            sums[k] += v;
            sums[V + k] += v * v;
          }
        });
  }
  add_rows(sums, t, r);
  if (t.row || t.channel >= r.channels) return;
  float n = rows_in(r, blockIdx.y);
  for (int k = 0; k < V; k++) {
    float mean = sums[k] / n;
    out[part_of(r, blockIdx.y, 0, t.channel + k)] = first[k] + mean;
    out[part_of(r, blockIdx.y, 1, t.channel + k)] = fmaxf(sums[V + k] - sums[k] * mean, 0);
  }
}

/* What Relu lets through of a gradient: all of it (there is none), what the result says, the same of a sum, or what the
 * result would be of x, which saves reading it. */
enum norm_gate { OPEN, BY_Y, SUM_BY_Y, BY_X };
template <class T> struct norm_back { /* as kernels_norm.c fills it */
  const T *x, *dy, *more, *y;
  T *gated; /* by the result: what was let through */
  const float *mean, *scale, *variance, *offset;
  float epsilon;
};

/* Is y = (x - mean) * factor + offset, as apply() has it, above zero? */
template <class T> __device__ inline bool is_let(float centred, float factor, float offset) {
  return load(stored<T>::of(centred * factor + offset)) > 0;
}

template <class T, int V, int G> struct norm_got {
  norm_raw<T, V> x, dy, more, y;
};
/* What a gradient is made of at a place. */
template <class T, int V, int G> __device__ inline norm_got<T, V, G> get_back(const norm_back<T> &b, int64_t at) {
  norm_got<T, V, G> g;
  g.x = read<V>(b.x, at);
  g.dy = read<V>(b.dy, at);
  if (G == SUM_BY_Y) g.more = read<V>(b.more, at);
  if (G == BY_Y || G == SUM_BY_Y) g.y = read<V>(b.y, at);
  return g;
}

/* dy; gated by the result it is kept so. */
template <class T, int V, int G>
__device__ inline pack_of<T, V> gradient(const norm_back<T> &b, int64_t at, const norm_got<T, V, G> &g) {
  pack_of<T, V> d = g.dy.apart();
  if constexpr (G == BY_Y || G == SUM_BY_Y) {
    pack_of<T, V> y = g.y.apart(), more = G == SUM_BY_Y ? g.more.apart() : d;
    for (int k = 0; k < V; k++) {
      if (G == SUM_BY_Y) d.v[k] = stored<T>::of(load(d.v[k]) + load(more.v[k]));
      if (!(load(y.v[k]) > 0)) d.v[k] = stored<T>::of(0.f);
    }
    write<V>(b.gated, at, d);
  }
  return d;
}

/* Of a gradient: sums of dy, and of dy * (x - mean). */
template <class T, int V, int G>
__device__ inline void sum_back_rows(const norm_back<T> &b, float *out, const norm_rows &r) {
  norm_thread t(r, V);
  float sums[2 * V], centre[V], factor[V], offset[V];
  for (int k = 0; k < V; k++) {
    bool there = t.channel < r.channels;
    sums[k] = sums[V + k] = 0;
    centre[k] = there ? b.mean[t.channel + k] : 0;
    factor[k] = there && G == BY_X ? b.scale[t.channel + k] / sqrtf(b.variance[t.channel + k] + b.epsilon) : 0;
    offset[k] = there && G == BY_X ? b.offset[t.channel + k] : 0;
  }
  if (t.channel < r.channels) {
    sweep<2>(
        r, t, [&](int64_t at) { return get_back<T, V, G>(b, at); },
        [&](int64_t at, const norm_got<T, V, G> &g) {
          pack_of<T, V> x = g.x.apart(), d = gradient(b, at, g);
          for (int k = 0; k < V; k++) {
            float c = load(x.v[k]) - centre[k];
            float v = G != BY_X || is_let<T>(c, factor[k], offset[k]) ? load(d.v[k]) : 0;
            sums[k] += v;
            sums[V + k] += v * c;
          }
        });
  }
  add_rows(sums, t, r);
  if (t.row || t.channel >= r.channels) return;
  for (int k = 0; k < V; k++) {
    out[part_of(r, blockIdx.y, 0, t.channel + k)] = sums[k];
    out[part_of(r, blockIdx.y, 1, t.channel + k)] = sums[V + k];
  }
}

/* ---- from pieces to what is applied: a warp to a channel ---- */

struct norm_ends { /* as kernels_norm.c fills it */
  const float *parts, *scale, *offset, *old_mean, *old_variance, *mean, *variance;
  float *new_mean, *new_variance, *saved_mean, *saved_variance, *factor;
  float epsilon, blend;
  int32_t training;
};

/* The sum of what the lanes of a warp have, in all of them. */
__device__ inline float sum_lanes(float v) {
  for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

/* The mean of all pieces; then what each has around it. */
__device__ inline void join_pieces(const norm_ends &e, const norm_rows &r, int64_t channel, float *mean,
                                   float *squares) {
  float sum = 0, around = 0;
#pragma unroll 8
  for (int32_t p = threadIdx.x % WARP; p < r.pieces; p += WARP)
    sum += rows_in(r, p) * e.parts[part_of(r, p, 0, channel)];
  *mean = sum_lanes(sum) / (float)r.rows;
#pragma unroll 8
  for (int32_t p = threadIdx.x % WARP; p < r.pieces; p += WARP) {
    float apart = e.parts[part_of(r, p, 0, channel)] - *mean;
    around += e.parts[part_of(r, p, 1, channel)] + rows_in(r, p) * apart * apart;
  }
  *squares = sum_lanes(around);
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
  float mean = 0, squares = 0;
  if (e.training) join_pieces(e, r, c, &mean, &squares);
  if (threadIdx.x % WARP) return;
  if (!e.training) mean = e.old_mean[c];
  float variance = e.training ? squares / (float)r.rows : e.old_variance[c];
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
  float *dscale, *doffset, *factor, *nothing[2]; /* nothing: outputs that are zero */
  float epsilon;
  int32_t training;
};

extern "C" __global__ void norm_back_finish(norm_back_ends e, norm_rows r) {
  int64_t c = blockIdx.x * (int64_t)(blockDim.x / WARP) + threadIdx.x / WARP;
  if (c >= r.channels) return;
  float sum = 0, product = 0;
#pragma unroll 8
  for (int32_t p = threadIdx.x % WARP; p < r.pieces; p += WARP) {
    sum += e.parts[part_of(r, p, 0, c)];
    product += e.parts[part_of(r, p, 1, c)];
  }
  sum = sum_lanes(sum);
  product = sum_lanes(product);
  if (threadIdx.x % WARP) return;
  if (c == 0) *e.nothing[0] = *e.nothing[1] = 0;
  float variance = e.variance[c] + e.epsilon, inverse = 1 / sqrtf(variance);
  e.doffset[c] = sum;
  e.dscale[c] = product * inverse;
  e.factor[c] = e.scale[c] / sqrtf(variance); /* as norm_finish has it */
  e.factor[r.channels + c] = e.training ? sum / (float)r.rows : 0;
  e.factor[2 * r.channels + c] = e.training ? product / (float)r.rows / variance : 0;
}

/* ---- applied: a thread stays with its channels, and keeps what they need ---- */

enum norm_end { PLAIN, RELU, SIDE_RELU };
template <class T, int V> struct norm_pair {
  norm_raw<T, V> x, side;
};

/* y = (x - mean) * factor + offset; what stands behind it is the sum's, and Relu's. */
template <class T, int V, int E>
__device__ inline void apply(const T *x, const T *side, T *y, const float *mean, const float *factor,
                             const float *offset, const norm_rows &r) {
  norm_thread t(r, V);
  float m[V], f[V], o[V];
  if (t.channel >= r.channels) return;
  for (int k = 0; k < V; k++) {
    m[k] = mean[t.channel + k];
    f[k] = factor[t.channel + k];
    o[k] = offset[t.channel + k];
  }
  sweep<E == SIDE_RELU ? 2 : 4>(
      r, t,
      [&](int64_t at) {
        norm_pair<T, V> p;
        p.x = read<V>(x, at);
        if (E == SIDE_RELU) p.side = read<V>(side, at);
        return p;
      },
      [&](int64_t at, const norm_pair<T, V> &p) {
        pack_of<T, V> out = p.x.apart(), s = E == SIDE_RELU ? p.side.apart() : out;
        for (int k = 0; k < V; k++) {
          float v = (load(out.v[k]) - m[k]) * f[k] + o[k];
          if (E == SIDE_RELU) v += load(s.v[k]);
          out.v[k] = stored<T>::of(E != PLAIN && v < 0 ? 0 : v);
        }
        write<V>(y, at, out);
      });
}

/* dx = factor[0] * (dy - factor[1] - (x - mean) * factor[2]) */
template <class T, int V, int G>
__device__ inline void apply_back(const norm_back<T> &b, T *dx, const float *factor, const norm_rows &r) {
  norm_thread t(r, V);
  float m[V], f[V], o[V], s[V], offset[V];
  if (t.channel >= r.channels) return;
  for (int k = 0; k < V; k++) {
    m[k] = b.mean[t.channel + k];
    f[k] = factor[t.channel + k];
    o[k] = factor[r.channels + t.channel + k];
    s[k] = factor[2 * r.channels + t.channel + k];
    offset[k] = G == BY_X ? b.offset[t.channel + k] : 0;
  }
  sweep<2>(
      r, t, [&](int64_t at) { return get_back<T, V, G>(b, at); },
      [&](int64_t at, const norm_got<T, V, G> &g) {
        pack_of<T, V> out = g.x.apart(), d = g.dy.apart();
        for (int k = 0; k < V; k++) {
          float c = load(out.v[k]) - m[k], v = G != BY_X || is_let<T>(c, f[k], offset[k]) ? load(d.v[k]) : 0;
          out.v[k] = stored<T>::of(f[k] * (v - o[k] - c * s[k]));
        }
        write<V>(dx, at, out);
      });
}

#define FEW extern "C" __global__ void __launch_bounds__(THREADS, 2)
#define MANY extern "C" __global__ void __launch_bounds__(THREADS, 4)
#define NORM_APPLY_OF(T, how, V, name, E)                                                                    \
  MANY name##_##how##_##T(const T *x, const T *side, T *y, const float *mean, const float *factor,         \
                            const float *offset, norm_rows r) {                                              \
    apply<T, V, E>(x, side, y, mean, factor, offset, r);                                                     \
  }
#define NORM_OF(T, how, V)                                                                                   \
  MANY norm_sums_##how##_##T(const T *x, float *out, norm_rows r) { sum_rows<T, V>(x, out, r); }           \
  NORM_APPLY_OF(T, how, V, norm_apply, PLAIN)                                                                \
  NORM_APPLY_OF(T, how, V, norm_apply_relu, RELU)                                                            \
  NORM_APPLY_OF(T, how, V, norm_apply_side, SIDE_RELU)
#define NORM_BACK_SUMS_OF(T, how, V, name, G) \
  FEW name##_##how##_##T(norm_back<T> b, float *out, norm_rows r) { sum_back_rows<T, V, G>(b, out, r); }
#define NORM_BACK_APPLY_OF(T, how, V, name, G)                                                 \
  FEW name##_##how##_##T(norm_back<T> b, T *dx, const float *factor, norm_rows r) {         \
    apply_back<T, V, G>(b, dx, factor, r);                                                     \
  }
#define NORM_BACK_OF(T, how, V)                           \
  NORM_BACK_SUMS_OF(T, how, V, norm_back_sums, OPEN)      \
  NORM_BACK_SUMS_OF(T, how, V, norm_back_sums_relu, BY_X) \
  NORM_BACK_SUMS_OF(T, how, V, norm_back_sums_side, BY_Y) \
  NORM_BACK_SUMS_OF(T, how, V, norm_back_sums_sum, SUM_BY_Y) \
  NORM_BACK_APPLY_OF(T, how, V, norm_back_apply, OPEN)    \
  NORM_BACK_APPLY_OF(T, how, V, norm_back_apply_relu, BY_X)
#define NORM(T, how, V) NORM_OF(T, how, V) NORM_BACK_OF(T, how, V)
NORM(f32, one, 1)
NORM(f16, one, 1)
NORM(bf16, one, 1)
NORM(f32, wide, 4)
NORM(f16, wide, 8)
NORM(bf16, wide, 8)
