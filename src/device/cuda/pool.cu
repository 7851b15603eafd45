/* Pooling: a thread to an element of what is written, so that gradients are sums in an order that the shape decides. */
#include "types.cuh"

struct pool_shape { /* as kernels_pool.c fills it */
  int64_t batch, depth, in[3], out[3], size[3], stride[3], pad[3];
  int32_t channels_first;
};
struct pool_place {
  int64_t image, channel, at[3];
};

/* Element i of a tensor with these spatial dimensions, in either order of channels. */
__device__ inline pool_place place_of(const pool_shape &s, const int64_t *dims, int64_t i) {
  pool_place p;
  if (!s.channels_first) {
    p.channel = i % s.depth;
    i /= s.depth;
  }
  for (int d = 2; d >= 0; d--) {
    p.at[d] = i % dims[d];
    i /= dims[d];
  }
  if (s.channels_first) {
    p.channel = i % s.depth;
    i /= s.depth;
  }
  p.image = i;
  return p;
}

__device__ inline int64_t index_of(const pool_shape &s, const int64_t *dims, const pool_place &p, int64_t a, int64_t b,
                                   int64_t c) {
  int64_t pixels = dims[0] * dims[1] * dims[2], pixel = (a * dims[1] + b) * dims[2] + c;
  return s.channels_first ? (p.image * s.depth + p.channel) * pixels + pixel
                          : (p.image * pixels + pixel) * s.depth + p.channel;
}

__device__ inline int64_t low(const pool_shape &s, int d, int64_t o) {
  return max((int64_t)0, o * s.stride[d] - s.pad[d]);
}
__device__ inline int64_t high(const pool_shape &s, int d, int64_t o) {
  return min(s.in[d], o * s.stride[d] - s.pad[d] + s.size[d]);
}
/* The windows that hold pixel i. */
__device__ inline int64_t first_window(const pool_shape &s, int d, int64_t i) {
  int64_t at = i + s.pad[d] - s.size[d] + 1;
  return at <= 0 ? 0 : (at + s.stride[d] - 1) / s.stride[d];
}
__device__ inline int64_t last_window(const pool_shape &s, int d, int64_t i) {
  return min(s.out[d] - 1, (i + s.pad[d]) / s.stride[d]);
}

#define EACH_PIXEL(s, o, a, b, c)                         \
  for (int64_t a = low(s, 0, o[0]); a < high(s, 0, o[0]); a++) \
    for (int64_t b = low(s, 1, o[1]); b < high(s, 1, o[1]); b++) \
      for (int64_t c = low(s, 2, o[2]); c < high(s, 2, o[2]); c++)
#define EACH_WINDOW(s, i, a, b, c)                                               \
  for (int64_t a = first_window(s, 0, i[0]); a <= last_window(s, 0, i[0]); a++)   \
    for (int64_t b = first_window(s, 1, i[1]); b <= last_window(s, 1, i[1]); b++) \
      for (int64_t c = first_window(s, 2, i[2]); c <= last_window(s, 2, i[2]); c++)

template <class T> struct lowest;
template <> struct lowest<f32> { static __device__ inline float of() { return -3.402823466e+38f; } };
template <> struct lowest<f64> { static __device__ inline double of() { return -1.7976931348623157e+308; } };
template <> struct lowest<f16> { static __device__ inline float of() { return -65504.0f; } };
template <> struct lowest<bf16> { static __device__ inline float of() { return -3.38953139e+38f; } };

/* As on the CPU the first element stays where no later one is larger: a NaN that comes first stays, others never
 * win. */
template <class T> __device__ inline void max_pool(const T *x, T *y, const pool_shape &s) {
  EACH_ELEMENT(i, s.batch * s.depth * s.out[0] * s.out[1] * s.out[2]) {
    pool_place p = place_of(s, s.out, i);
    typename computed<T>::type top = lowest<T>::of();
    bool first = true;
    EACH_PIXEL(s, p.at, a, b, c) {
      typename computed<T>::type v = load(x[index_of(s, s.in, p, a, b, c)]);
      if (first || v > top) top = v;
      first = false;
    }
    y[i] = stored<T>::of(top);
  }
}

/* Is the element at this pixel the one that its window takes? */
template <class T>
__device__ inline bool wins(const T *x, const pool_shape &s, const pool_place &p, const int64_t *o) {
  typename computed<T>::type me = load(x[index_of(s, s.in, p, p.at[0], p.at[1], p.at[2])]);
  bool first = true, before = true;
  EACH_PIXEL(s, o, a, b, c) {
    if (a == p.at[0] && b == p.at[1] && c == p.at[2]) {
      before = false;
    } else {
      typename computed<T>::type v = load(x[index_of(s, s.in, p, a, b, c)]);
      if (before ? (v != v ? first : !(me > v)) : v > me) return false;
    }
    first = false;
  }
  return true;
}

template <class T> __device__ inline void max_pool_grad(const T *x, const T *dy, T *dx, const pool_shape &s) {
  EACH_ELEMENT(i, s.batch * s.depth * s.in[0] * s.in[1] * s.in[2]) {
    pool_place p = place_of(s, s.in, i);
    typename computed<T>::type sum = 0;
    EACH_WINDOW(s, p.at, a, b, c) {
      int64_t o[3] = {a, b, c};
      if (wins(x, s, p, o)) sum += load(dy[index_of(s, s.out, p, a, b, c)]);
    }
    dx[i] = stored<T>::of(sum);
  }
}

/* Of the part of a window that is inside. */
__device__ inline int64_t count(const pool_shape &s, const int64_t *o) {
  int64_t n = 1;
  for (int d = 0; d < 3; d++) n *= high(s, d, o[d]) - low(s, d, o[d]);
  return n;
}

template <class T> __device__ inline void avg_pool(const T *x, T *y, const pool_shape &s) {
  typedef typename computed<T>::type C;
  EACH_ELEMENT(i, s.batch * s.depth * s.out[0] * s.out[1] * s.out[2]) {
    pool_place p = place_of(s, s.out, i);
    C sum = 0;
    EACH_PIXEL(s, p.at, a, b, c) sum += load(x[index_of(s, s.in, p, a, b, c)]);
    y[i] = stored<T>::of(sum / (C)count(s, p.at));
  }
}

template <class T> __device__ inline void avg_pool_grad(const T *dy, T *dx, const pool_shape &s) {
  typedef typename computed<T>::type C;
  EACH_ELEMENT(i, s.batch * s.depth * s.in[0] * s.in[1] * s.in[2]) {
    pool_place p = place_of(s, s.in, i);
    C sum = 0;
    EACH_WINDOW(s, p.at, a, b, c) {
      int64_t o[3] = {a, b, c};
      sum += load(dy[index_of(s, s.out, p, a, b, c)]) * ((C)1 / (C)count(s, o));
    }
    dx[i] = stored<T>::of(sum);
  }
}

#define POOL_OF(T, name)                                                                                \
  extern "C" __global__ void max_pool_##T(const T *x, T *y, pool_shape s) { max_pool(x, y, s); }        \
  extern "C" __global__ void max_pool_grad_##T(const T *x, const T *dy, T *dx, pool_shape s) {          \
    max_pool_grad(x, dy, dx, s);                                                                        \
  }                                                                                                     \
  extern "C" __global__ void avg_pool_##T(const T *x, T *y, pool_shape s) { avg_pool(x, y, s); }        \
  extern "C" __global__ void avg_pool_grad_##T(const T *dy, T *dx, pool_shape s) { avg_pool_grad(dy, dx, s); }
FLOATING(POOL_OF, pool)
