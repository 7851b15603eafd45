/* The largest of each window of Relu(x + bias), and the way back to x and bias, in one pass each: of windows that stand
 * side by side. Where a window's largest is takes a byte; what is between is never stored. A pass by itself each, they
 * went through memory eleven times. */
#include "types.cuh"

enum { BLOCK = 256, NONE = 255, APART = BLOCK + 8 };

struct relu_pool_shape { /* as kernels_relu_pool.c fills it */
  int64_t windows; /* back: with those that are not whole */
  int32_t in[2], out[2], size[2], pad[2], depth;
  int32_t down, across; /* back: windows of an image */
  int32_t groups;       /* back: packs of channels that a block has */
};

/* ---- forward ---- */

template <int V, class T> struct largest_of {
  typename computed<T>::type top[V];
  pack_of<u8, V> at;
  bool first;

  /* What comes first stays, if it is no number too, until something larger comes. */
  __device__ inline void see(const pack_of<T, V> &x, const pack_of<T, V> &bias, int place) {
#pragma unroll
    for (int k = 0; k < V; k++) {
      typename computed<T>::type v = load(stored<T>::of(load(x.v[k]) + load(bias.v[k])));
      if (v <= 0) v = 0;
      if (!first && !(v > top[k])) continue;
      top[k] = v;
      at.v[k] = (u8)place;
    }
    first = false;
  }
};

/* I is what places are counted in. */
template <int V, class I, class T>
__device__ inline void forward(const T *x, const T *bias, T *y, u8 *where, const relu_pool_shape &s) {
  typedef pack_of<T, V> pack;
  I groups = (I)(s.depth / V);
  EACH_ELEMENT(i, s.windows * groups) {
    I at = (I)i / groups, channel = (I)i % groups * V;
    int ox = (int)(at % (I)s.out[1]), oy = (int)(at / (I)s.out[1] % (I)s.out[0]);
    int top = oy * s.size[0] - s.pad[0], left = ox * s.size[1] - s.pad[1];
    const T *image = x + (int64_t)(at / (I)s.out[1] / (I)s.out[0]) * s.in[0] * s.in[1] * s.depth + channel;
    pack with = *(const pack *)(bias + channel), out;
    largest_of<V, T> l;
    l.first = true;
    if (s.size[0] == 2 && s.size[1] == 2 && top >= 0 && left >= 0 && top + 1 < s.in[0] && left + 1 < s.in[1]) {
      pack got[4];
#pragma unroll
      for (int k = 0; k < 4; k++)
        got[k] = *(const pack *)(image + ((int64_t)(top + k / 2) * s.in[1] + left + k % 2) * s.depth);
#pragma unroll
      for (int k = 0; k < 4; k++) l.see(got[k], with, k);
    } else {
      for (int a = max(top, 0); a < min(top + s.size[0], s.in[0]); a++)
        for (int b = max(left, 0); b < min(left + s.size[1], s.in[1]); b++)
          l.see(*(const pack *)(image + ((int64_t)a * s.in[1] + b) * s.depth), with, (a - top) * s.size[1] + b - left);
    }
#pragma unroll
    for (int k = 0; k < V; k++) {
      out.v[k] = stored<T>::of(l.top[k]);
      if (!(l.top[k] > 0)) l.at.v[k] = NONE;
    }
    *(pack *)(y + i * V) = out;
    *(pack_of<u8, V> *)(where + i * V) = l.at;
  }
}

/* ---- back ---- */

/* All pixels of one window are written; what came in is added to the sums. */
template <int V, class T>
__device__ inline void back_window(const u8 *where, const T *dy, T *dx, const relu_pool_shape &s, int64_t i,
                                   int32_t channel, typename computed<T>::type (&sum)[V]) {
  typedef pack_of<T, V> pack;
  int ox = (int)(i % s.across), oy = (int)(i / s.across % s.down);
  int top = oy * s.size[0] - s.pad[0], left = ox * s.size[1] - s.pad[1];
  int64_t image = i / s.across / s.down, from = ((image * s.out[0] + oy) * s.out[1] + ox) * s.depth + channel;
  T *to = dx + image * s.in[0] * s.in[1] * s.depth + channel;
  pack d;
  pack_of<u8, V> at;
  bool there = oy < s.out[0] && ox < s.out[1];
  if (there) {
    d = *(const pack *)(dy + from);
    at = *(const pack_of<u8, V> *)(where + from);
  }
#pragma unroll
  for (int k = 0; k < V; k++) {
    if (!there) at.v[k] = NONE;
    if (at.v[k] != NONE) sum[k] += load(d.v[k]);
  }
  for (int a = 0; a < s.size[0]; a++)
    for (int b = 0; b < s.size[1]; b++) {
      int line = top + a, column = left + b, place = a * s.size[1] + b;
      pack out;
      if (line < 0 || line >= s.in[0] || column < 0 || column >= s.in[1]) continue;
#pragma unroll
      for (int k = 0; k < V; k++) out.v[k] = at.v[k] == place ? d.v[k] : stored<T>::of(0.f);
      *(pack *)(to + ((int64_t)line * s.in[1] + column) * s.depth) = out;
    }
}

/* The last block to come adds what all have, in an order that is always the same. parts: [blocks, depth]. */
template <class T, class C>
__device__ inline void join_blocks(const C *parts, T *sums, uint32_t *done, int32_t depth, int32_t first, int32_t n,
                                   C *room) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(done, 1u) + 1 == gridDim.x;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  int32_t slices = BLOCK / n, in = threadIdx.x % n, slice = threadIdx.x / n;
  C sum = 0;
  if (slice < slices)
#pragma unroll 8
    for (uint32_t i = slice; i < gridDim.x; i += slices) sum += __ldcg(parts + (int64_t)i * depth + first + in);
  room[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) *done = 0;
  if (slice) return;
  for (int32_t i = 1; i < slices; i++) sum += room[i * n + in];
  sums[first + in] = stored<T>::of(sum);
}

/* A block has so many packs of channels, in y, and every so many windows. */
template <int V, class T>
__device__ inline void back(const u8 *where, const T *dy, T *dx, T *sums, void *room_of_parts, uint32_t *done,
                            const relu_pool_shape &s) {
  typedef typename computed<T>::type C;
  __shared__ C room[V * APART];
  C *parts = (C *)room_of_parts, sum[V] = {};
  int32_t lanes = BLOCK / s.groups, q = threadIdx.x % s.groups, lane = threadIdx.x / s.groups;
  int32_t first = blockIdx.y * s.groups * V, n = min(s.groups * V, s.depth - first), channel = first + q * V;
  if (lane < lanes && channel < s.depth)
    for (int64_t i = blockIdx.x * (int64_t)lanes + lane; i < s.windows; i += (int64_t)gridDim.x * lanes)
      back_window<V>(where, dy, dx, s, i, channel, sum);
#pragma unroll
  for (int k = 0; k < V; k++) room[k * APART + threadIdx.x] = sum[k];
  __syncthreads();
  for (int32_t e = threadIdx.x; e < n; e += BLOCK) {
    const C *from = room + e % V * APART + e / V;
    C v = 0;
#pragma unroll 8
    for (int32_t i = 0; i < lanes; i++) v += from[i * s.groups];
    parts[(int64_t)blockIdx.x * s.depth + first + e] = v;
  }
  join_blocks(parts, sums, done + blockIdx.y, s.depth, first, n, room);
}

/* NAME_one_TYPE, and NAME_wide_TYPE: 16 bytes of channels. */
#define RELU_POOL_OF(T, how, V, I)                                                                               \
  extern "C" __global__ void __launch_bounds__(BLOCK)                                                            \
      relu_pool_##how##_##T(const T *x, const T *bias, T *y, u8 *where, relu_pool_shape s) {                           \
    forward<V, I>(x, bias, y, where, s);                                                                         \
  }                                                                                                              \
  extern "C" __global__ void __launch_bounds__(BLOCK) relu_pool_back_##how##_##T(                                \
      const u8 *where, const T *dy, T *dx, T *sums, void *parts, uint32_t *done, relu_pool_shape s) {                  \
    back<V>(where, dy, dx, sums, parts, done, s);                                                                \
  }
#define RELU_POOL(T, _) RELU_POOL_OF(T, one, 1, int64_t) RELU_POOL_OF(T, wide, (PACK_BYTES / sizeof(T)), uint32_t)
FLOATING(RELU_POOL, )
