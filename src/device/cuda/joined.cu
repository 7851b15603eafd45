/* Updates of many variables, and the squares of many gradients, in one launch: a block finds by its number which of
 * them it is for, and which piece. Variables are float32; gradients may be of half precision, which is told piece by
 * piece. */
#include "training.cuh"

enum { JOINED_ITEMS = 72, JOINED_VARS = 3, PIECE = 4096, EACH = 4, THREADS = 256, WARP = 32 };
enum { FROM_F32, FROM_BF16, FROM_F16 };

struct joined_item { /* these as kernels_joined.c fills them */
  void *x[JOINED_VARS];
  const void *g;
  int64_t n;
  uint32_t first; /* block */
  uint8_t kind, packed, shrinks;
};
struct joined_memory {
  joined_item item[JOINED_ITEMS];
  const void *scalars[UPDATE_SCALARS];
  const float *scale, *shrink; /* NULL: none */
  int32_t n_items, n_scalars;
  bool nesterov;
};
static_assert(sizeof(joined_memory) <= 4096, "what a kernel is given has room");

/* The last one that begins at this block or before. */
template <class M> __device__ inline int item_of(const M &m) {
  int low = 0, high = m.n_items - 1;
  while (low < high) {
    int half = (low + high + 1) / 2;
    if (m.item[half].first <= blockIdx.x) low = half;
    else high = half - 1;
  }
  return low;
}

template <class T> __device__ inline void load_four(const T *from, bool packed, int n, float *to) {
  if (packed && n == EACH) {
    pack_of<T, EACH> q = *(const pack_of<T, EACH> *)from;
    for (int k = 0; k < EACH; k++) to[k] = load(q.v[k]);
  } else {
    for (int k = 0; k < EACH; k++) to[k] = k < n ? load(from[k]) : 0;
  }
}

__device__ inline void load_gradient(const void *g, int kind, bool packed, int64_t at, int n, float *to) {
  if (kind == FROM_BF16) load_four((const bf16 *)g + at, packed, n, to);
  else if (kind == FROM_F16) load_four((const f16 *)g + at, packed, n, to);
  else load_four((const f32 *)g + at, packed, n, to);
}

__device__ inline void store_four(float *to, bool packed, int n, const float *from) {
  if (packed && n == EACH) *(float4 *)to = make_float4(from[0], from[1], from[2], from[3]);
  else
    for (int k = 0; k < n; k++) to[k] = from[k];
}

typedef void (*rule_of)(void *const *x, const void *g, int64_t n, const update_numbers *h);

/* Four elements: all that is known of them, their update, and back. */
template <int VARS, rule_of RULE>
__device__ inline void update_four(const joined_item &t, int64_t at, int n, float scale, float shrink,
                                   const update_numbers &h) {
  float v[VARS][EACH], g[EACH];
  void *x[VARS];
  load_gradient(t.g, t.kind, t.packed, at, n, g);
  for (int i = 0; i < VARS; i++) {
    load_four((const float *)t.x[i] + at, t.packed, n, v[i]);
    x[i] = v[i];
  }
  for (int k = 0; k < EACH; k++) {
    g[k] *= scale;
    if (shrink != 0) v[0][k] -= __fmul_rn(v[0][k], shrink);
  }
  RULE(x, g, EACH, &h);
  for (int i = 0; i < VARS; i++) store_four((float *)t.x[i] + at, t.packed, n, v[i]);
}

template <int VARS, rule_of RULE> __device__ inline void update_piece(const joined_memory &m) {
  const joined_item &t = m.item[item_of(m)];
  update_numbers h = {{0}, 0, m.nesterov, true, false, false};
  for (int k = 0; k < UPDATE_SCALARS; k++)
    if (k < m.n_scalars) h.s[k] = (double)*(const float *)m.scalars[k];
  float scale = m.scale ? *m.scale : 1, shrink = m.shrink && t.shrinks ? *m.shrink : 0;
  int64_t begin = (int64_t)(blockIdx.x - t.first) * PIECE;
  for (int64_t at = begin + threadIdx.x * EACH; at < begin + PIECE && at < t.n; at += THREADS * EACH)
    update_four<VARS, RULE>(t, at, t.n - at < EACH ? (int)(t.n - at) : EACH, scale, shrink, h);
}

#define JOINED_OF(name, vars) \
  extern "C" __global__ void joined_##name(joined_memory m) { update_piece<vars, rule_##name##_f32>(m); }
JOINED_OF(gradient_descent, 1)
JOINED_OF(momentum, 2)
JOINED_OF(keras_momentum, 2)
JOINED_OF(adam, 3)

/* ---- half the squares of all, piece by piece, then the sum of the pieces ---- */

enum { SQUARE_ITEMS = 144, SQUARE_PIECE = 16384 };
struct square_item {
  const void *g;
  int64_t n;
  uint32_t first;
  uint8_t kind, packed;
};
struct square_memory {
  square_item item[SQUARE_ITEMS];
  int32_t n_items;
};
static_assert(sizeof(square_memory) <= 4000, "what a kernel is given has room");

template <class C> __device__ inline C sum_block(C v) {
  __shared__ C parts[WARP];
  for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);
  if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = v;
  __syncthreads();
  v = threadIdx.x < blockDim.x / WARP ? parts[threadIdx.x] : (C)0;
  for (int d = WARP / 2; d > 0; d /= 2) v += __shfl_down_sync(~0u, v, d);
  return v;
}

extern "C" __global__ void joined_squares(square_memory m, float *parts) {
  const square_item &t = m.item[item_of(m)];
  int64_t begin = (int64_t)(blockIdx.x - t.first) * SQUARE_PIECE;
  float sum = 0;
  for (int64_t at = begin + threadIdx.x * EACH; at < begin + SQUARE_PIECE && at < t.n; at += THREADS * EACH) {
    float g[EACH];
    load_gradient(t.g, t.kind, t.packed, at, t.n - at < EACH ? (int)(t.n - at) : EACH, g);
    for (int k = 0; k < EACH; k++) sum += g[k] * g[k];
  }
  sum = sum_block(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

extern "C" __global__ void joined_sum(const float *parts, int64_t n, float *out) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += (double)parts[i];
  sum = sum_block(sum);
  if (threadIdx.x == 0) *out = (float)(sum / 2);
}
