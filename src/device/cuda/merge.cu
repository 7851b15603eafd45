/* Values of several devices of one card, merged into one which each of them gets: what a collective of virtual devices,
 * or of processes on one card, computes.
 *
 * The order is that of pairs (collective/pairs.c): the first half, a power of two, and the rest, each so again; every
 * merge is rounded to the type. So the bits are the CPU's. Groups of up to eight are unrolled, with all that is read in
 * registers; it is read and written once, in pieces of 16 bytes where memory lies well. */
#include "types.cuh"

enum { MOST_MERGED = 64, LEVELS = 7, UNROLLED = 8 };
enum { ADD, MUL, MAX, MIN };

struct merge_of { /* as cuda_peers.c fills it */
  const void *in[MOST_MERGED];
  void *out[MOST_MERGED];
  int64_t n;
  int32_t n_in, n_out, merge, mean_of;
  bool packed;
};

template <class T> __device__ inline T merge_two(T x, T y, int how) {
  typename computed<T>::type a = load(x), b = load(y);
  switch (how) {
    case MUL: return stored<T>::of(a * b);
    case MAX: return b != b || a < b ? y : x;
    case MIN: return b != b || a > b ? y : x;
    default: return stored<T>::of(a + b);
  }
}

template <class T> __device__ inline T mean(T x, int of) {
  typedef typename computed<T>::type C;
  return of ? stored<T>::of(load(x) / (C)of) : x;
}

template <class T, int N> struct pairs_of {
  static __device__ inline T of(const T *x, int how) {
    enum { H = N > 4 ? 4 : N > 2 ? 2 : 1 }; /* the largest power of two that is less */
    return merge_two(pairs_of<T, H>::of(x, how), pairs_of<T, N - H>::of(x + H, how), how);
  }
};
template <class T> struct pairs_of<T, 1> {
  static __device__ inline T of(const T *x, int) { return x[0]; }
};

/* Any number: sums of 1, 2, 4, ... are merged as they become equal, and the rest from the last on. */
template <class T> __device__ inline T merge_many(const merge_of &m, int64_t i) {
  T sums[LEVELS + 1];
  int sizes[LEVELS + 1], n = 0;
  for (int k = 0; k < m.n_in; k++) {
    T x = ((const T *)m.in[k])[i];
    int size = 1;
    for (; n && sizes[n - 1] == size; size *= 2) x = merge_two(sums[--n], x, m.merge);
    sums[n] = x;
    sizes[n++] = size;
  }
  T x = sums[--n];
  while (n) x = merge_two(sums[--n], x, m.merge);
  return x;
}

template <class T> __device__ inline void merge_any(const merge_of &m) {
  EACH_ELEMENT(i, m.n) {
    T x = mean(merge_many<T>(m, i), m.mean_of);
    for (int o = 0; o < m.n_out; o++) ((T *)m.out[o])[i] = x;
  }
}

template <class T, int N, int V> __device__ inline void merge_at(const merge_of &m, int64_t at) {
  typedef pack_of<T, V> pack;
  pack all[N], sum;
  T x[N];
#pragma unroll
  for (int k = 0; k < N; k++) all[k] = *(const pack *)((const T *)m.in[k] + at);
#pragma unroll
  for (int v = 0; v < V; v++) {
#pragma unroll
    for (int k = 0; k < N; k++) x[k] = all[k].v[v];
    sum.v[v] = mean(pairs_of<T, N>::of(x, m.merge), m.mean_of);
  }
  for (int o = 0; o < m.n_out; o++) *(pack *)((T *)m.out[o] + at) = sum;
}

template <class T, int N> __device__ inline void merge_unrolled(const merge_of &m) {
  constexpr int V = PACK_BYTES / sizeof(T);
  int64_t packs = m.packed ? m.n / V : 0, rest = m.n - packs * V;
  EACH_ELEMENT(i, packs) merge_at<T, N, V>(m, i * V);
  EACH_ELEMENT(i, rest) merge_at<T, N, 1>(m, packs * V + i);
}

template <class T> __device__ inline void merge_all(const merge_of &m) {
  switch (m.n_in) {
    case 1: return merge_unrolled<T, 1>(m);
    case 2: return merge_unrolled<T, 2>(m);
    case 3: return merge_unrolled<T, 3>(m);
    case 4: return merge_unrolled<T, 4>(m);
    case 5: return merge_unrolled<T, 5>(m);
    case 6: return merge_unrolled<T, 6>(m);
    case 7: return merge_unrolled<T, 7>(m);
    case UNROLLED: return merge_unrolled<T, UNROLLED>(m);
    default: return merge_any<T>(m);
  }
}

#define MERGE(T, _) \
  extern "C" __global__ void merge_##T(merge_of m) { merge_all<T>(m); }
WITH_INTEGERS(MERGE, )
