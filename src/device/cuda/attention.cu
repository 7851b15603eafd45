/* Attention without its scores in memory: heads of 64 in half precision, by blocks of 64 queries and 64 keys.
 *
 * Forward, a group of four warps has 64 queries, 16 rows of them a warp, and goes over the keys: scores, their
 * exponentials against the largest so far, and the mean of values, which is scaled anew where a larger one comes. What
 * is left for the way back is the logarithm of each row's sum. There scores are computed once more, in two kernels: one
 * has 64 keys and goes over the queries, for the gradients of keys and values, one has 64 queries and goes over the
 * keys. One kernel that does both would save two products of seven, but would have to add to the queries' gradients
 * from many blocks in any order: then no two steps would have the same bits.
 *
 * Tiles are copied to shared memory while the one before is worked on. Rows there are 8 pieces of 16 bytes; piece c of
 * row r stands at c ^ r % 8, so that eight rows of a column are in different banks. */
#include "mma.cuh"

enum { WARP = 32, GROUP = 4 * WARP, ROWS = 64, DEPTH = 64, PIECES = DEPTH / 8, STEPS = DEPTH / 16 };

struct attention { /* as kernels_attention.c has it */
  int32_t batch, heads, queries, keys;
  int64_t q_step, k_step, v_step, y_step; /* elements from one time to the next */
  float scale;
  int32_t causal; /* query i sees keys up to i + keys - queries */
};

template <class T> struct tile {
  T at[ROWS * DEPTH];
  __device__ inline const T *piece(int row, int c) const { return at + (row * PIECES + (c ^ (row & 7))) * 8; }
  __device__ inline T *piece(int row, int c) { return at + (row * PIECES + (c ^ (row & 7))) * 8; }
  /* Rows from `first` on; those past n are zeros. (Where a block begins is the same for all threads, and where a thread
   * reads from there the same for all blocks.) */
  __device__ inline void copy(const T *from, int64_t step, int first, int n) {
    enum { AT_ONCE = GROUP / PIECES };
    int row = threadIdx.x / PIECES, c = threadIdx.x % PIECES, there = row * (int)step + c * 8;
    const T *block = from + first * step;
#pragma unroll
    for (int i = 0; i < ROWS; i += AT_ONCE)
      copy_16(piece(row, c) + i * DEPTH, block + there + i * (int)step, first + i + row < n);
  }
  /* As A: 16 rows from `row` on, columns of step k. */
  __device__ inline void as_a(uint32_t (&a)[4], int row, int k) const {
    int lane = threadIdx.x % WARP;
    load_four(a, piece(row + lane % 16, 2 * k + lane / 16));
  }
  /* As B, turned: its rows are columns n to n + 15 of B, its columns of step k the rows. Two B. */
  __device__ inline void as_b_rows(uint32_t (&b)[4], int n, int k) const {
    int lane = threadIdx.x % WARP;
    load_four(b, piece(n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
  }
  /* As B: rows of step k, columns 16 n to 16 n + 15. Two B. */
  __device__ inline void as_b(uint32_t (&b)[4], int k, int n) const {
    int lane = threadIdx.x % WARP;
    load_four_turned(b, piece(16 * k + lane % 16, 2 * n + lane / 16));
  }
};

/* 16 rows of a warp times 64 columns. */
struct strip {
  float v[8][4];
  __device__ inline void clear() {
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
      for (int k = 0; k < 4; k++) v[i][k] = 0;
  }
};

/* 16 rows of a warp, 64 columns, as the A of products. */
template <class T> struct rows_a {
  uint32_t v[STEPS][4];
  __device__ inline rows_a(const strip &s) {
#pragma unroll
    for (int k = 0; k < STEPS; k++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float *pair = s.v[2 * k + i / 2] + i % 2 * 2;
        v[k][i] = mma<T>::two(pair[0], pair[1]);
      }
  }
  __device__ inline rows_a(const tile<T> &t) {
#pragma unroll
    for (int k = 0; k < STEPS; k++) t.as_a(v[k], threadIdx.x / WARP * 16, k);
  }
};

/* s = a t', with t as [64][DEPTH]. This and `times` stand between begin_products and end_products, and s is settled
 * before it is looked at. */
template <class T> __device__ inline void times_rows(strip &s, const rows_a<T> &a, const tile<T> &t) {
#ifdef MMA_BY_GROUPS
  uint64_t b = describe_tile(t.at);
#pragma unroll
  for (int k = 0; k < STEPS; k++) group_mma<T>::columns(s.v, a.v[k], b + k * DESCRIBED_COLUMNS, k > 0);
#else
  s.clear();
#pragma unroll
  for (int k = 0; k < STEPS; k++)
#pragma unroll
    for (int n = 0; n < 4; n++) {
      uint32_t b[4];
      t.as_b_rows(b, 16 * n, k);
      mma<T>::add(s.v[2 * n], a.v[k], b[0], b[1]);
      mma<T>::add(s.v[2 * n + 1], a.v[k], b[2], b[3]);
    }
#endif
}

/* The same of a tile's 64 rows, which are left where they lie. */
template <class T> __device__ inline void times_rows(strip &s, const tile<T> &a, const tile<T> &t) {
#ifdef MMA_BY_GROUPS
  uint64_t of_a = describe_tile(a.at), b = describe_tile(t.at);
#pragma unroll
  for (int k = 0; k < STEPS; k++)
    group_mma<T>::columns(s.v, of_a + k * DESCRIBED_COLUMNS, b + k * DESCRIBED_COLUMNS, k > 0);
#else
  times_rows(s, rows_a<T>(a), t);
#endif
}

/* out += s t, with t as [64][DEPTH] */
template <class T> __device__ inline void times(strip &out, const rows_a<T> &s, const tile<T> &t) {
#ifdef MMA_BY_GROUPS
  uint64_t b = describe_tile(t.at);
#pragma unroll
  for (int k = 0; k < STEPS; k++) group_mma<T>::rows(out.v, s.v[k], b + k * DESCRIBED_ROWS, true);
#else
#pragma unroll
  for (int k = 0; k < STEPS; k++)
#pragma unroll
    for (int n = 0; n < 4; n++) {
      uint32_t b[4];
      t.as_b(b, k, n);
      mma<T>::add(out.v[2 * n], s.v[k], b[0], b[1]);
      mma<T>::add(out.v[2 * n + 1], s.v[k], b[2], b[3]);
    }
#endif
}

template <class T>
__device__ inline void put(T *to, int64_t step, int first, int n, const strip &s, float factor0, float factor1) {
  int lane = threadIdx.x % WARP, row = first + threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int column = i * 8 + lane % 4 * 2;
    if (row < n)
      *(uint32_t *)(to + row * step + column) = mma<T>::two(s.v[i][0] * factor0, s.v[i][1] * factor0);
    if (row + 8 < n)
      *(uint32_t *)(to + (row + 8) * step + column) = mma<T>::two(s.v[i][2] * factor1, s.v[i][3] * factor1);
  }
}

__device__ inline float four_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
  return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}
__device__ inline float four_sum(float v) {
  v += __shfl_xor_sync(~0u, v, 1);
  return v + __shfl_xor_sync(~0u, v, 2);
}

/* Which head of which example, and which block of rows: the longest first. */
struct head_place {
  int b, h, block;
  __device__ inline head_place(const attention &s, int blocks, bool last_first) {
    int i = blockIdx.x % blocks, of = blockIdx.x / blocks;
    b = of / s.heads, h = of % s.heads;
    block = last_first ? blocks - 1 - i : i;
  }
};
template <class T> __device__ inline T *head(T *of, const attention &s, const head_place &p, int rows, int64_t step) {
  return of + (int64_t)p.b * rows * step + p.h * DEPTH;
}
/* The first key that query i does not see. */
__device__ inline int keys_seen(const attention &s, int i) {
  int end = s.causal ? i + 1 + s.keys - s.queries : s.keys;
  return end < s.keys ? end : s.keys;
}

/* ---- forward ---- */

template <class T>
__device__ inline void forward(const attention &s, const T *q, const T *k, const T *v, T *y, float *sums) {
  tile<T> *keys = (tile<T> *)shared_room(), *values = keys + 2, *queries = values + 2;
  head_place p(s, (s.queries + ROWS - 1) / ROWS, s.causal);
  int first = p.block * ROWS, lane = threadIdx.x % WARP, row0 = first + threadIdx.x / WARP * 16 + lane / 4;
  int row1 = row0 + 8;
  k = head(k, s, p, s.keys, s.k_step);
  v = head(v, s, p, s.keys, s.v_step);
  queries->copy(head(q, s, p, s.queries, s.q_step), s.q_step, first, s.queries);
  keys[0].copy(k, s.k_step, 0, s.keys);
  values[0].copy(v, s.v_step, 0, s.keys);
  end_group();
  int n = (keys_seen(s, min(first + ROWS, s.queries) - 1) + ROWS - 1) / ROWS;
  int whole = keys_seen(s, first) / ROWS; /* blocks that every query here sees all of */
  float top0 = -INFINITY, top1 = -INFINITY, sum0 = 0, sum1 = 0, scale = s.scale * LOG2E;
  strip out;
  out.clear();
  for (int i = 0; i < n; i++) {
    wait_groups<0>();
    show_products();
    __syncthreads();
    if (i + 1 < n) {
      keys[(i + 1) % 2].copy(k, s.k_step, (i + 1) * ROWS, s.keys);
      values[(i + 1) % 2].copy(v, s.v_step, (i + 1) * ROWS, s.keys);
    }
    end_group();
    strip scores;
    begin_products();
    times_rows(scores, *queries, keys[i % 2]);
    end_products();
    wait_products<0>();
    settle(scores.v);
    if (i >= whole)
#pragma unroll
      for (int c = 0; c < 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          int key = i * ROWS + c * 8 + lane % 4 * 2 + e % 2;
          if (key >= keys_seen(s, e < 2 ? row0 : row1)) scores.v[c][e] = -INFINITY;
        }
    float new0 = top0, new1 = top1;
#pragma unroll
    for (int c = 0; c < 8; c++) {
      new0 = fmaxf(new0, fmaxf(scores.v[c][0], scores.v[c][1]));
      new1 = fmaxf(new1, fmaxf(scores.v[c][2], scores.v[c][3]));
    }
    new0 = four_max(new0), new1 = four_max(new1);
    /* A row that sees nothing yet has no largest. */
    float shift0 = new0 == -INFINITY ? 0 : new0 * scale, shift1 = new1 == -INFINITY ? 0 : new1 * scale;
    float down0 = two_to(top0 * scale - shift0), down1 = two_to(top1 * scale - shift1);
    bool larger = top0 != new0 || top1 != new1;
    top0 = new0, top1 = new1;
    sum0 *= down0, sum1 *= down1;
    if (__any_sync(~0u, larger))
#pragma unroll
      for (int c = 0; c < 8; c++)
        out.v[c][0] *= down0, out.v[c][1] *= down0, out.v[c][2] *= down1, out.v[c][3] *= down1;
#pragma unroll
    for (int c = 0; c < 8; c++) {
#pragma unroll
      for (int e = 0; e < 4; e++) scores.v[c][e] = two_to(scores.v[c][e] * scale - (e < 2 ? shift0 : shift1));
      sum0 += scores.v[c][0] + scores.v[c][1];
      sum1 += scores.v[c][2] + scores.v[c][3];
    }
    rows_a<T> weights(scores);
    begin_products();
    times(out, weights, values[i % 2]);
    end_products();
    wait_products<0>();
    settle(out.v);
  }
  sum0 = four_sum(sum0), sum1 = four_sum(sum1);
  put(head(y, s, p, s.queries, s.y_step), s.y_step, first, s.queries, out, sum0 > 0 ? 1 / sum0 : 0,
      sum1 > 0 ? 1 / sum1 : 0);
  sums += ((int64_t)p.b * s.heads + p.h) * s.queries;
  if (lane % 4 == 0 && row0 < s.queries) sums[row0] = top0 * s.scale + logf(sum0);
  if (lane % 4 == 0 && row1 < s.queries) sums[row1] = top1 * s.scale + logf(sum1);
}

/* ---- back ---- */

/* Of each query the sum of y dy: eight threads to it. */
template <class T> __device__ inline void products(const attention &s, const T *y, const T *dy, float *sums) {
  int64_t n = (int64_t)s.batch * s.queries * s.heads * PIECES;
  EACH_ELEMENT(i, n) {
    int64_t at = i / PIECES;
    int h = at % s.heads;
    int64_t row = at / s.heads, b = row / s.queries, t = row % s.queries;
    int64_t from = row * s.y_step + h * DEPTH + i % PIECES * 8;
    pack_of<T, 8> u = *(const pack_of<T, 8> *)(y + from), w = *(const pack_of<T, 8> *)(dy + from);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) sum += load(u.v[k]) * load(w.v[k]);
    unsigned eight = 0xffu << (threadIdx.x % WARP & ~7u);
    for (int d = 1; d < 8; d *= 2) sum += __shfl_xor_sync(eight, sum, d);
    if (i % PIECES == 0) sums[(b * s.heads + h) * s.queries + t] = sum;
  }
}

/* Two numbers of each query of a block, its logarithm of sums (base 2) and its sum of y dy: a thread has one. */
struct query_lines {
  float at[2][ROWS];
  __device__ inline void put(float mine) { at[0][threadIdx.x] = mine; }
  static __device__ inline float get(const float *sums, const float *deltas, int first, int n) {
    int i = first + threadIdx.x % ROWS;
    if (i >= n) return 0;
    return threadIdx.x < ROWS ? sums[i] * LOG2E : deltas[i];
  }
};

/* 64 keys: their gradients, and those of their values. All products are turned: rows are keys, columns queries. */
template <class T>
__device__ inline void back_keys(const attention &s, const T *q, const T *k, const T *v, const T *dy,
                                 const float *sums, const float *deltas, T *dk, T *dv) {
  __shared__ query_lines lines[2];
  tile<T> *queries = (tile<T> *)shared_room(), *grads = queries + 2, *keys = grads + 2, *values = keys + 1;
  head_place p(s, (s.keys + ROWS - 1) / ROWS, false);
  int first = p.block * ROWS, lane = threadIdx.x % WARP, key0 = first + threadIdx.x / WARP * 16 + lane / 4;
  q = head(q, s, p, s.queries, s.q_step);
  dy = head(dy, s, p, s.queries, s.y_step);
  sums += ((int64_t)p.b * s.heads + p.h) * s.queries;
  deltas += ((int64_t)p.b * s.heads + p.h) * s.queries;
  keys->copy(head(k, s, p, s.keys, s.k_step), s.k_step, first, s.keys);
  values->copy(head(v, s, p, s.keys, s.v_step), s.v_step, first, s.keys);
  int begin = s.causal ? max(0, first - (s.keys - s.queries)) / ROWS : 0, n = (s.queries + ROWS - 1) / ROWS;
  queries[0].copy(q, s.q_step, begin * ROWS, s.queries);
  grads[0].copy(dy, s.y_step, begin * ROWS, s.queries);
  end_group();
  float line = query_lines::get(sums, deltas, begin * ROWS, s.queries);
  strip of_keys, of_values;
  of_keys.clear();
  of_values.clear();
  float scale = s.scale * LOG2E;
  for (int i = begin; i < n; i++) {
    int now = (i - begin) % 2;
    lines[now].put(line);
    wait_groups<0>();
    show_products();
    __syncthreads();
    if (i + 1 < n) {
      queries[!now].copy(q, s.q_step, (i + 1) * ROWS, s.queries);
      grads[!now].copy(dy, s.y_step, (i + 1) * ROWS, s.queries);
      line = query_lines::get(sums, deltas, (i + 1) * ROWS, s.queries);
    }
    end_group();
    bool whole = first + ROWS <= keys_seen(s, i * ROWS) && (i + 1) * ROWS <= s.queries;
    strip weights, grad;
    begin_products();
    times_rows(weights, *keys, queries[now]);
    end_products();
    times_rows(grad, *values, grads[now]);
    end_products();
    wait_products<1>();
    settle(weights.v);
    if (!whole)
#pragma unroll
      for (int c = 0; c < 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          int at = i * ROWS + c * 8 + lane % 4 * 2 + e % 2;
          if (at >= s.queries || key0 + e / 2 * 8 >= keys_seen(s, at)) weights.v[c][e] = -INFINITY;
        }
    const float *of = lines[now].at[0] + lane % 4 * 2, *less = lines[now].at[1] + lane % 4 * 2;
#pragma unroll
    for (int c = 0; c < 8; c++) {
      float2 two = *(const float2 *)(of + c * 8);
#pragma unroll
      for (int e = 0; e < 4; e++) weights.v[c][e] = two_to(weights.v[c][e] * scale - (e % 2 ? two.y : two.x));
    }
    rows_a<T> w(weights);
    wait_products<0>();
    settle(grad.v);
#pragma unroll
    for (int c = 0; c < 8; c++) {
      float2 two = *(const float2 *)(less + c * 8);
#pragma unroll
      for (int e = 0; e < 4; e++) grad.v[c][e] = weights.v[c][e] * (grad.v[c][e] - (e % 2 ? two.y : two.x));
    }
    rows_a<T> g(grad);
    begin_products();
    times(of_values, w, grads[now]);
    times(of_keys, g, queries[now]);
    end_products();
    wait_products<0>();
    settle(of_values.v);
    settle(of_keys.v);
  }
  put(head(dk, s, p, s.keys, s.k_step), s.k_step, first, s.keys, of_keys, s.scale, s.scale);
  put(head(dv, s, p, s.keys, s.v_step), s.v_step, first, s.keys, of_values, 1.0f, 1.0f);
}

/* 64 queries: their gradients. */
template <class T>
__device__ inline void back_queries(const attention &s, const T *q, const T *k, const T *v, const T *dy,
                                    const float *sums, const float *deltas, T *dq) {
  tile<T> *keys = (tile<T> *)shared_room(), *values = keys + 2, *queries = values + 2, *grads = queries + 1;
  head_place p(s, (s.queries + ROWS - 1) / ROWS, s.causal);
  int first = p.block * ROWS, lane = threadIdx.x % WARP, row0 = first + threadIdx.x / WARP * 16 + lane / 4;
  int row1 = row0 + 8;
  k = head(k, s, p, s.keys, s.k_step);
  v = head(v, s, p, s.keys, s.v_step);
  sums += ((int64_t)p.b * s.heads + p.h) * s.queries;
  deltas += ((int64_t)p.b * s.heads + p.h) * s.queries;
  queries->copy(head(q, s, p, s.queries, s.q_step), s.q_step, first, s.queries);
  grads->copy(head(dy, s, p, s.queries, s.y_step), s.y_step, first, s.queries);
  keys[0].copy(k, s.k_step, 0, s.keys);
  values[0].copy(v, s.v_step, 0, s.keys);
  end_group();
  float sum0 = row0 < s.queries ? sums[row0] * LOG2E : 0, sum1 = row1 < s.queries ? sums[row1] * LOG2E : 0;
  float delta0 = row0 < s.queries ? deltas[row0] : 0, delta1 = row1 < s.queries ? deltas[row1] : 0;
  int n = (keys_seen(s, min(first + ROWS, s.queries) - 1) + ROWS - 1) / ROWS;
  int whole = keys_seen(s, first) / ROWS;
  float scale = s.scale * LOG2E;
  strip out;
  out.clear();
  for (int i = 0; i < n; i++) {
    wait_groups<0>();
    show_products();
    __syncthreads();
    if (i + 1 < n) {
      keys[(i + 1) % 2].copy(k, s.k_step, (i + 1) * ROWS, s.keys);
      values[(i + 1) % 2].copy(v, s.v_step, (i + 1) * ROWS, s.keys);
    }
    end_group();
    strip weights, grad;
    begin_products();
    times_rows(weights, *queries, keys[i % 2]);
    end_products();
    times_rows(grad, *grads, values[i % 2]);
    end_products();
    wait_products<1>();
    settle(weights.v);
    if (i >= whole)
#pragma unroll
      for (int c = 0; c < 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          int key = i * ROWS + c * 8 + lane % 4 * 2 + e % 2;
          if (key >= keys_seen(s, e < 2 ? row0 : row1)) weights.v[c][e] = -INFINITY;
        }
#pragma unroll
    for (int c = 0; c < 8; c++)
#pragma unroll
      for (int e = 0; e < 4; e++) weights.v[c][e] = two_to(weights.v[c][e] * scale - (e < 2 ? sum0 : sum1));
    wait_products<0>();
    settle(grad.v);
#pragma unroll
    for (int c = 0; c < 8; c++)
#pragma unroll
      for (int e = 0; e < 4; e++) grad.v[c][e] = weights.v[c][e] * (grad.v[c][e] - (e < 2 ? delta0 : delta1));
    rows_a<T> g(grad);
    begin_products();
    times(out, g, keys[i % 2]);
    end_products();
    wait_products<0>();
    settle(out.v);
  }
  put(head(dq, s, p, s.queries, s.q_step), s.q_step, first, s.queries, out, s.scale, s.scale);
}

#define ATTENTION_OF(T)                                                                                              \
  extern "C" __global__ void __launch_bounds__(GROUP)                                                                \
      attention_##T(attention s, const T *q, const T *k, const T *v, T *y, float *sums) {                            \
    forward<T>(s, q, k, v, y, sums);                                                                                 \
  }                                                                                                                  \
  extern "C" __global__ void attention_products_##T(attention s, const T *y, const T *dy, float *sums) {             \
    products<T>(s, y, dy, sums);                                                                                     \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(GROUP, 3)                                                             \
      attention_back_keys_##T(attention s, const T *q, const T *k, const T *v, const T *dy, const float *sums,       \
                              const float *deltas, T *dk, T *dv) {                                                   \
    back_keys<T>(s, q, k, v, dy, sums, deltas, dk, dv);                                                              \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(GROUP)                                                                \
      attention_back_queries_##T(attention s, const T *q, const T *k, const T *v, const T *dy, const float *sums,    \
                                 const float *deltas, T *dq) {                                                       \
    back_queries<T>(s, q, k, v, dy, sums, deltas, dq);                                                               \
  }
ATTENTION_OF(f16)
ATTENTION_OF(bf16)
