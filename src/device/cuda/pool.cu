/* Pooling: a thread to an element of what is written, so that gradients are sums in an order that the shape decides.
 * Max pooling's gradient first finds the place in each window that the window takes, then gathers by pixel. */
#include "types.cuh"

struct pool_shape { /* as kernels_pool.c fills it */
  int64_t batch, depth, in[3], out[3], size[3], stride[3], pad[3];
  int32_t channels_first;
};

/* A thread serves V neighbouring channels: one, or, channels last, 16 bytes of them. I is what places are counted
 * in. */
template <class I> struct pool_place {
  I image, channel, at[3];
};

/* Group i of a tensor with these spatial dimensions, in either order of channels. */
template <int V, class I> __device__ inline pool_place<I> place_of(const pool_shape &s, const int64_t *dims, I i) {
  pool_place<I> p;
  I across = (I)(s.depth / V);
  if (!s.channels_first) {
    p.channel = i % across * V;
    i /= across;
  }
  for (int d = 2; d >= 0; d--) {
    p.at[d] = i % (I)dims[d];
    i /= (I)dims[d];
  }
  if (s.channels_first) {
    p.channel = i % across * V;
    i /= across;
  }
  p.image = i;
  return p;
}

template <class I>
__device__ inline int64_t index_of(const pool_shape &s, const int64_t *dims, const pool_place<I> &p, int a, int b,
                                   int c) {
  int64_t pixels = dims[0] * dims[1] * dims[2], pixel = ((int64_t)a * dims[1] + b) * dims[2] + c;
  return s.channels_first ? ((int64_t)p.image * s.depth + p.channel) * pixels + pixel
                          : ((int64_t)p.image * pixels + pixel) * s.depth + p.channel;
}

template <int V, class T, class I>
__device__ inline pack_of<T, V> read(const T *x, const pool_shape &s, const int64_t *dims, const pool_place<I> &p,
                                     int a, int b, int c) {
  return *(const pack_of<T, V> *)(x + index_of(s, dims, p, a, b, c));
}

__device__ inline int low(const pool_shape &s, int d, int64_t o) {
  return (int)max((int64_t)0, o * s.stride[d] - s.pad[d]);
}
__device__ inline int high(const pool_shape &s, int d, int64_t o) {
  return (int)min(s.in[d], o * s.stride[d] - s.pad[d] + s.size[d]);
}
/* The windows that hold pixel i. */
__device__ inline int first_window(const pool_shape &s, int d, int64_t i) {
  int at = (int)(i + s.pad[d] - s.size[d] + 1), stride = (int)s.stride[d];
  return at <= 0 ? 0 : (at + stride - 1) / stride;
}
__device__ inline int last_window(const pool_shape &s, int d, int64_t i) {
  return min((int)s.out[d] - 1, (int)(i + s.pad[d]) / (int)s.stride[d]);
}

struct pool_box { /* from and to, in each dimension */
  int from[3], to[3];
};
template <class I> __device__ inline pool_box pixels_of(const pool_shape &s, const I *o) {
  pool_box b;
  for (int d = 0; d < 3; d++) {
    b.from[d] = low(s, d, o[d]);
    b.to[d] = high(s, d, o[d]);
  }
  return b;
}
template <class I> __device__ inline pool_box windows_of(const pool_shape &s, const I *i) {
  pool_box b;
  for (int d = 0; d < 3; d++) {
    b.from[d] = first_window(s, d, i[d]);
    b.to[d] = last_window(s, d, i[d]) + 1;
  }
  return b;
}
/* Lines of a box, and from one pixel of a line to the next. */
#define EACH_LINE(box, a, b)                        \
  for (int a = (box).from[0]; a < (box).to[0]; a++) \
    for (int b = (box).from[1]; b < (box).to[1]; b++)
__device__ inline int64_t pixel_step(const pool_shape &s) { return s.channels_first ? 1 : s.depth; }
#define EACH_IN(box, a, b, c)                          \
  for (int a = (box).from[0]; a < (box).to[0]; a++)    \
    for (int b = (box).from[1]; b < (box).to[1]; b++)  \
      for (int c = (box).from[2]; c < (box).to[2]; c++)

template <class T> struct lowest;
template <> struct lowest<f32> { static __device__ inline float of() { return -3.402823466e+38f; } };
template <> struct lowest<f64> { static __device__ inline double of() { return -1.7976931348623157e+308; } };
template <> struct lowest<f16> { static __device__ inline float of() { return -65504.0f; } };
template <> struct lowest<bf16> { static __device__ inline float of() { return -3.38953139e+38f; } };

__device__ inline int64_t groups_of(const pool_shape &s, const int64_t *dims, int v) {
  return s.batch * (s.depth / v) * dims[0] * dims[1] * dims[2];
}

/* As on the CPU the first element stays where no later one is larger: a NaN that comes first stays, others never
 * win. */
template <int V, class I, class T> __device__ inline void max_pool(const T *x, T *y, const pool_shape &s) {
  EACH_ELEMENT(i, groups_of(s, s.out, V)) {
    pool_place<I> p = place_of<V>(s, s.out, (I)i);
    pool_box w = pixels_of(s, p.at);
    typename computed<T>::type top[V];
    pack_of<T, V> out;
    bool first = true;
    for (int k = 0; k < V; k++) top[k] = lowest<T>::of();
    EACH_LINE(w, a, b) {
      const T *at = x + index_of(s, s.in, p, a, b, w.from[2]);
      for (int c = w.from[2]; c < w.to[2]; c++, at += pixel_step(s)) {
        pack_of<T, V> v = *(const pack_of<T, V> *)at;
        for (int k = 0; k < V; k++)
          if (first || load(v.v[k]) > top[k]) top[k] = load(v.v[k]);
        first = false;
      }
    }
    for (int k = 0; k < V; k++) out.v[k] = stored<T>::of(top[k]);
    *(pack_of<T, V> *)(y + index_of(s, s.out, p, p.at[0], p.at[1], p.at[2])) = out;
  }
}

/* Where in its window, padding counted, a pixel is. */
__device__ inline int place_in(const pool_shape &s, const int *o, const int *at) {
  int place = 0;
  for (int d = 0; d < 3; d++) place = place * (int)s.size[d] + at[d] - (o[d] * (int)s.stride[d] - (int)s.pad[d]);
  return place;
}

/* As max_pool, but for what is found; nothing in a window that lies outside. W is as wide as windows are large. */
template <int V, class I, class T, class W>
__device__ inline void max_where(const T *x, W *where, const pool_shape &s) {
  EACH_ELEMENT(i, groups_of(s, s.out, V)) {
    pool_place<I> p = place_of<V>(s, s.out, (I)i);
    pool_box w = pixels_of(s, p.at);
    int o[3] = {(int)p.at[0], (int)p.at[1], (int)p.at[2]};
    typename computed<T>::type top[V];
    pack_of<W, V> out;
    bool first = true;
    for (int k = 0; k < V; k++) out.v[k] = (W)-1;
    EACH_LINE(w, a, b) {
      int begin[3] = {a, b, w.from[2]}, place = place_in(s, o, begin);
      const T *at = x + index_of(s, s.in, p, a, b, w.from[2]);
      for (int c = w.from[2]; c < w.to[2]; c++, at += pixel_step(s), place++) {
        pack_of<T, V> v = *(const pack_of<T, V> *)at;
        for (int k = 0; k < V; k++)
          if (first || load(v.v[k]) > top[k]) {
            top[k] = load(v.v[k]);
            out.v[k] = (W)place;
          }
        first = false;
      }
    }
    *(pack_of<W, V> *)(where + index_of(s, s.out, p, o[0], o[1], o[2])) = out;
  }
}

template <int V, class I, class T, class W>
__device__ inline void max_back(const W *where, const T *dy, T *dx, const pool_shape &s) {
  EACH_ELEMENT(i, groups_of(s, s.in, V)) {
    pool_place<I> p = place_of<V>(s, s.in, (I)i);
    int at[3] = {(int)p.at[0], (int)p.at[1], (int)p.at[2]};
    pool_box all = windows_of(s, p.at);
    typename computed<T>::type sum[V];
    pack_of<T, V> out;
    for (int k = 0; k < V; k++) sum[k] = 0;
    EACH_IN(all, a, b, c) {
      int o[3] = {a, b, c};
      W place = (W)place_in(s, o, at);
      pack_of<W, V> taken = read<V>(where, s, s.out, p, a, b, c);
      pack_of<T, V> d = read<V>(dy, s, s.out, p, a, b, c);
      for (int k = 0; k < V; k++)
        if (taken.v[k] == place) sum[k] += load(d.v[k]);
    }
    for (int k = 0; k < V; k++) out.v[k] = stored<T>::of(sum[k]);
    *(pack_of<T, V> *)(dx + index_of(s, s.in, p, at[0], at[1], at[2])) = out;
  }
}

/* 16 bytes as they lie in memory: taken apart, each element has a register of its own. */
template <int V, class T> __device__ inline pack_of<T, V> apart(const uint4 &bytes) {
  pack_of<T, V> p;
  static_assert(sizeof p == sizeof bytes, "a pack is 16 bytes");
  memcpy(&p, &bytes, sizeof p);
  return p;
}

/* The same for flat images, channels last, and windows that lie over a pixel two by two at most: a block to a line,
 * where it knows its windows' rows, and all that a pixel may need is asked for before it is used. */
template <int V, class T, class W>
__device__ inline void max_back_line(const W *where, const T *dy, T *dx, const pool_shape &s) {
  int across = (int)s.depth / V, columns = (int)s.in[2], depth = (int)s.depth;
  int row = (int)(blockIdx.x % (unsigned)s.in[1]);
  int above = first_window(s, 1, row), below = last_window(s, 1, row), wide = (int)s.out[2];
  int size = (int)s.size[2], stride = (int)s.stride[2], pad = (int)s.pad[2];
  int64_t image = blockIdx.x / (unsigned)s.in[1] * s.out[1] * s.out[2] * s.depth;
  for (int i = threadIdx.x; i < columns * across; i += blockDim.x) {
    int column = i / across, channel = i % across * V, left = first_window(s, 2, column);
    int right = last_window(s, 2, column);
    typename computed<T>::type sum[V];
    pack_of<W, V> taken[4];
    pack_of<T, V> out;
    uint4 d[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      int b = above + k / 2, c = left + k % 2;
      int64_t from = image + ((int64_t)b * wide + c) * depth + channel;
      if (b > below || c > right) continue;
      taken[k] = *(const pack_of<W, V> *)(where + from);
      d[k] = *(const uint4 *)(dy + from);
    }
    for (int v = 0; v < V; v++) sum[v] = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      int b = above + k / 2, c = left + k % 2;
      if (b > below || c > right) continue;
      W place = (W)((row - (b * (int)s.stride[1] - (int)s.pad[1])) * size + column - (c * stride - pad));
      pack_of<T, V> back = apart<V, T>(d[k]);
      for (int v = 0; v < V; v++)
        if (taken[k].v[v] == place) sum[v] += load(back.v[v]);
    }
    for (int v = 0; v < V; v++) out.v[v] = stored<T>::of(sum[v]);
    *(pack_of<T, V> *)(dx + ((int64_t)blockIdx.x * columns + column) * depth + channel) = out;
  }
}

/* Windows of 3 x 3 over flat images, channels last: a block to a line of windows. */
template <int V, class T> __device__ inline void max_line(const T *x, T *y, const pool_shape &s) {
  enum { SIZE = 3 };
  int across = (int)s.depth / V, depth = (int)s.depth, columns = (int)s.out[2], wide = (int)s.in[2];
  int top = (int)(blockIdx.x % (unsigned)s.out[1]) * (int)s.stride[1] - (int)s.pad[1], high = (int)s.in[1];
  int64_t image = blockIdx.x / (unsigned)s.out[1] * s.in[1] * s.in[2] * s.depth;
  for (int i = threadIdx.x; i < columns * across; i += blockDim.x) {
    int column = i / across, channel = i % across * V, left = column * (int)s.stride[2] - (int)s.pad[2];
    uint4 got[SIZE * SIZE];
    pack_of<T, V> out;
    typename computed<T>::type best[V];
    bool first = true;
#pragma unroll
    for (int k = 0; k < SIZE * SIZE; k++) {
      int a = top + k / SIZE, b = left + k % SIZE;
      if (a >= 0 && a < high && b >= 0 && b < wide)
        got[k] = *(const uint4 *)(x + image + ((int64_t)a * wide + b) * depth + channel);
    }
    for (int v = 0; v < V; v++) best[v] = lowest<T>::of();
#pragma unroll
    for (int k = 0; k < SIZE * SIZE; k++) {
      int a = top + k / SIZE, b = left + k % SIZE;
      if (a < 0 || a >= high || b < 0 || b >= wide) continue;
      pack_of<T, V> p = apart<V, T>(got[k]);
      for (int v = 0; v < V; v++)
        if (first || load(p.v[v]) > best[v]) best[v] = load(p.v[v]);
      first = false;
    }
    for (int v = 0; v < V; v++) out.v[v] = stored<T>::of(best[v]);
    *(pack_of<T, V> *)(y + ((int64_t)blockIdx.x * columns + column) * depth + channel) = out;
  }
}

/* Of the part of a window that is inside. */
__device__ inline int count(const pool_box &w) {
  return (w.to[0] - w.from[0]) * (w.to[1] - w.from[1]) * (w.to[2] - w.from[2]);
}

template <int V, class I, class T> __device__ inline void avg_pool(const T *x, T *y, const pool_shape &s) {
  typedef typename computed<T>::type C;
  EACH_ELEMENT(i, groups_of(s, s.out, V)) {
    pool_place<I> p = place_of<V>(s, s.out, (I)i);
    pool_box w = pixels_of(s, p.at);
    pack_of<T, V> out;
    C sum[V];
    for (int k = 0; k < V; k++) sum[k] = 0;
    EACH_LINE(w, a, b) {
      const T *at = x + index_of(s, s.in, p, a, b, w.from[2]);
      for (int c = w.from[2]; c < w.to[2]; c++, at += pixel_step(s)) {
        pack_of<T, V> v = *(const pack_of<T, V> *)at;
        for (int k = 0; k < V; k++) sum[k] += load(v.v[k]);
      }
    }
    for (int k = 0; k < V; k++) out.v[k] = stored<T>::of(sum[k] / (C)count(w));
    *(pack_of<T, V> *)(y + index_of(s, s.out, p, p.at[0], p.at[1], p.at[2])) = out;
  }
}

template <int V, class I, class T> __device__ inline void avg_pool_grad(const T *dy, T *dx, const pool_shape &s) {
  typedef typename computed<T>::type C;
  EACH_ELEMENT(i, groups_of(s, s.in, V)) {
    pool_place<I> p = place_of<V>(s, s.in, (I)i);
    pool_box all = windows_of(s, p.at);
    pack_of<T, V> out;
    C sum[V];
    for (int k = 0; k < V; k++) sum[k] = 0;
    EACH_IN(all, a, b, c) {
      int o[3] = {a, b, c};
      pack_of<T, V> d = read<V>(dy, s, s.out, p, a, b, c);
      C share = (C)1 / (C)count(pixels_of(s, o));
      for (int k = 0; k < V; k++) sum[k] += load(d.v[k]) * share;
    }
    for (int k = 0; k < V; k++) out.v[k] = stored<T>::of(sum[k]);
    *(pack_of<T, V> *)(dx + index_of(s, s.in, p, p.at[0], p.at[1], p.at[2])) = out;
  }
}

/* NAME_one_TYPE, and NAME_wide_TYPE: 16 bytes of channels, of which there are fewer than 2^32. */
#define POOL_OF(T, how, V, I)                                                                                       \
  extern "C" __global__ void max_pool_##how##_##T(const T *x, T *y, pool_shape s) { max_pool<V, I>(x, y, s); }      \
  extern "C" __global__ void avg_pool_##how##_##T(const T *x, T *y, pool_shape s) { avg_pool<V, I>(x, y, s); }      \
  extern "C" __global__ void avg_pool_grad_##how##_##T(const T *dy, T *dx, pool_shape s) {                          \
    avg_pool_grad<V, I>(dy, dx, s);                                                                                 \
  }
#define MAX_BACK_OF(T, how, V, I, W)                                                               \
  extern "C" __global__ void max_where_##how##_##T##_##W(const T *x, W *where, pool_shape s) {     \
    max_where<V, I>(x, where, s);                                                                  \
  }                                                                                                \
  extern "C" __global__ void max_back_##how##_##T##_##W(const W *where, const T *dy, T *dx, pool_shape s) { \
    max_back<V, I>(where, dy, dx, s);                                                              \
  }
#define MAX_BACK(T, how, V, I) MAX_BACK_OF(T, how, V, I, u8) MAX_BACK_OF(T, how, V, I, i32)
#define POOL(T)                                                                              \
  POOL_OF(T, one, 1, int64_t) POOL_OF(T, wide, (PACK_BYTES / sizeof(T)), uint32_t)           \
  MAX_BACK(T, one, 1, int64_t) MAX_BACK(T, wide, (PACK_BYTES / sizeof(T)), uint32_t)
#define MAX_LINES(T, _)                                                                                        \
  extern "C" __global__ void max_back_line_##T(const u8 *where, const T *dy, T *dx, pool_shape s) {            \
    max_back_line<PACK_BYTES / sizeof(T)>(where, dy, dx, s);                                                   \
  }                                                                                                            \
  extern "C" __global__ void max_line_##T(const T *x, T *y, pool_shape s) {                                    \
    max_line<PACK_BYTES / sizeof(T)>(x, y, s);                                                 \
  }
FLOATING(MAX_LINES, )
POOL(f32)
POOL(f64)
POOL(f16)
POOL(bf16)
