/* Rows by index. Gathers read them. What writes them first sorts the indices, by row and then by place, so that each
 * row has one block that applies its updates in the order they were given: repeated indices, the same bits each time.
 *
 * The sort is by digits of 8 bits, least first: count in tiles, add up, place. An index that is out of range is skipped
 * by who writes; a gather has zeros there, as TensorFlow on a card. */
#include "types.cuh"

enum { TILE = 256, BINS = 256, SCAN_THREADS = 1024, WARP = 32 };

/* ---- gathers: rows are copied in units of as many bytes as fit ---- */

struct gather_of { /* as kernels_rows.c fills it */
  int64_t total, units; /* units in all, and of a row */
  int64_t n, outer, dim; /* indices in a batch entry, slices of params in one, rows of a slice */
};

template <class U, class I> __device__ inline void gather(const U *from, const I *index, U *to, const gather_of &g) {
  EACH_ELEMENT(i, g.total) {
    int64_t row = i / g.units, slice = row / g.n;
    int64_t at = (int64_t)index[slice / g.outer * g.n + row % g.n];
    U none = {};
    to[i] = at >= 0 && at < g.dim ? from[(slice * g.dim + at) * g.units + i % g.units] : none;
  }
}
#define GATHER_OF(U, bytes, I)                                                                             \
  extern "C" __global__ void gather_##bytes##_##I(const U *from, const I *index, U *to, gather_of g) {     \
    gather(from, index, to, g);                                                                            \
  }
#define GATHER(U, bytes) GATHER_OF(U, bytes, i32) GATHER_OF(U, bytes, i64)
GATHER(uint8_t, 1)
GATHER(uint16_t, 2)
GATHER(uint32_t, 4)
GATHER(uint64_t, 8)
GATHER(ulonglong2, 16)

/* ---- sorting ---- */

#define KEYS_OF(I)                                                                                         \
  extern "C" __global__ void rows_keys_##I(const I *index, uint32_t *keys, uint32_t *order, int64_t n,     \
                                           int64_t rows) {                                                 \
    EACH_ELEMENT(i, n) {                                                                                   \
      int64_t row = (int64_t)index[i];                                                                     \
      keys[i] = (uint32_t)(row >= 0 && row < rows ? row : rows);                                           \
      order[i] = (uint32_t)i;                                                                              \
    }                                                                                                      \
  }
KEYS_OF(i32)
KEYS_OF(i64)

/* counts is [bins][tiles]. */
extern "C" __global__ void rows_count(const uint32_t *keys, uint32_t *counts, int64_t n, int shift) {
  __shared__ uint32_t here[BINS];
  here[threadIdx.x] = 0;
  __syncthreads();
  int64_t i = blockIdx.x * (int64_t)TILE + threadIdx.x;
  if (i < n) atomicAdd(&here[keys[i] >> shift & (BINS - 1)], 1u);
  __syncthreads();
  counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = here[threadIdx.x];
}

/* Each becomes the sum of those before it: one block. */
extern "C" __global__ void rows_scan(uint32_t *counts, int64_t n) {
  __shared__ uint32_t parts[WARP];
  uint32_t before = 0;
  for (int64_t base = 0; base < n; base += SCAN_THREADS) {
    int64_t i = base + threadIdx.x;
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t own = i < n ? counts[i] : 0, sum = own;
    for (int d = 1; d < WARP; d *= 2) {
      uint32_t other = __shfl_up_sync(~0u, sum, d);
      if (lane >= d) sum += other;
    }
    if (lane == WARP - 1) parts[warp] = sum;
    __syncthreads();
    uint32_t left = 0, all = 0;
    for (int w = 0; w < SCAN_THREADS / WARP; w++) {
      if (w < warp) left += parts[w];
      all += parts[w];
    }
    if (i < n) counts[i] = before + left + sum - own;
    before += all;
    __syncthreads();
  }
}

/* Keys of one digit stay in their order. */
extern "C" __global__ void rows_place(const uint32_t *keys, const uint32_t *order, uint32_t *keys_to,
                                      uint32_t *order_to, const uint32_t *counts, int64_t n, int shift) {
  __shared__ uint32_t digits[TILE];
  int64_t i = blockIdx.x * (int64_t)TILE + threadIdx.x;
  uint32_t digit = i < n ? keys[i] >> shift & (BINS - 1) : BINS;
  digits[threadIdx.x] = digit;
  __syncthreads();
  if (i >= n) return;
  uint32_t at = counts[(int64_t)digit * gridDim.x + blockIdx.x];
  for (unsigned k = 0; k < threadIdx.x; k++) at += digits[k] == digit;
  keys_to[at] = keys[i];
  order_to[at] = order[i];
}

/* ---- updates: a block to a place in the sorted list, busy where a row begins ---- */

struct rows_sorted { /* as cuda_rows.h has it */
  const uint32_t *keys, *order;
  int64_t n, rows, width;
};

__device__ inline bool begins(const rows_sorted &s, int64_t p) {
  return s.keys[p] < s.rows && (p == 0 || s.keys[p - 1] != s.keys[p]);
}

#define ROWS_OF(T, name, expr)                                                                                   \
  extern "C" __global__ void rows_##name##_##T(T *to, const T *by, int64_t step, rows_sorted s) {                \
    int64_t p = blockIdx.x;                                                                                      \
    if (!begins(s, p)) return;                                                                                   \
    uint32_t row = s.keys[p];                                                                                    \
    for (int64_t c = threadIdx.x; c < s.width; c += blockDim.x) {                                                \
      typename computed<T>::type a = load(to[row * s.width + c]);                                                \
      for (int64_t q = p; q < s.n && s.keys[q] == row; q++) {                                                    \
        typename computed<T>::type b = load(by[step ? s.order[q] * s.width + c : 0]);                            \
        a = expr;                                                                                                \
      }                                                                                                          \
      to[row * s.width + c] = stored<T>::of(a);                                                                  \
    }                                                                                                            \
  }
WITH_INTEGERS(ROWS_OF, set, b)
WITH_INTEGERS(ROWS_OF, add, a + b)
WITH_INTEGERS(ROWS_OF, sub, a - b)
WITH_INTEGERS(ROWS_OF, mul, a *b)
WITH_INTEGERS(ROWS_OF, min, b != b || a > b ? b : a)
WITH_INTEGERS(ROWS_OF, max, b != b || a < b ? b : a)
