/* Random numbers, the same as the CPU's: a thread makes a group of four (two of 8 bytes) from one block of the
 * generator, or for the truncated normal, which rejects, from the 256 blocks that are the group's. See philox.h and
 * random_fill.c. */
#include "types.cuh"

struct random_source { /* as kernels_random.c fills it */
  uint32_t counter[4], key[2];
  const void *seeds; /* a pair on the card that counter and key are drawn from; NULL: they are as they stand */
  int32_t wide;      /* the pair is of 64 bits */
};
struct random_block {
  uint32_t v[4];
};

__device__ inline random_block philox(const uint32_t *counter, const uint32_t *key) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
  for (int r = 0; r < 10; r++) {
    uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)a;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

struct random_stream {
  uint32_t counter[4], key[2];
  __device__ inline random_stream(const random_source &s) {
    for (int i = 0; i < 4; i++) counter[i] = s.counter[i];
    for (int i = 0; i < 2; i++) key[i] = s.key[i];
    if (!s.seeds) return;
    uint64_t pair[2];
    for (int i = 0; i < 2; i++)
      pair[i] = s.wide ? ((const uint64_t *)s.seeds)[i] : (uint64_t)(int64_t)((const int32_t *)s.seeds)[i];
    uint32_t from[4] = {(uint32_t)pair[0], (uint32_t)(pair[0] >> 32), (uint32_t)pair[1], (uint32_t)(pair[1] >> 32)};
    uint32_t by[2] = {0x3ec8f720u, 0x02461e29u};
    random_block mix = philox(from, by);
    counter[0] = counter[1] = 0;
    counter[2] = mix.v[2];
    counter[3] = mix.v[3];
    key[0] = mix.v[0];
    key[1] = mix.v[1];
  }
  __device__ inline void skip(uint64_t n) {
    uint64_t low = counter[0] | (uint64_t)counter[1] << 32, high = counter[2] | (uint64_t)counter[3] << 32;
    uint64_t sum = low + n;
    high += sum < low;
    counter[0] = (uint32_t)sum;
    counter[1] = (uint32_t)(sum >> 32);
    counter[2] = (uint32_t)high;
    counter[3] = (uint32_t)(high >> 32);
  }
  __device__ inline random_block next() {
    random_block b = philox(counter, key);
    skip(1);
    return b;
  }
};

/* Bits to a number in [0, 1): the mantissa of a number in [1, 2). */
__device__ inline float unit_float(uint32_t x) { return __uint_as_float(127u << 23 | (x & 0x7fffffu)) - 1.0f; }
__device__ inline double unit_double(uint32_t x0, uint32_t x1) {
  return __longlong_as_double((long long)((uint64_t)1023 << 52 | (uint64_t)(x0 & 0xfffffu) << 32 | x1)) - 1.0;
}

/* A group of a type: how many, and what a block is made into. */
template <class T> struct random_group {
  enum { N = 4 };
  static __device__ inline void uniform(const random_block &b, float *out);
  static __device__ inline void normal(const random_block &b, float *out) {
    for (int i = 0; i < 4; i += 2) {
      float u = fmaxf(unit_float(b.v[i]), 1e-7f), r = sqrtf(-2.0f * logf(u)), s, c;
      float angle = (float)(2.0 * 3.14159265358979323846 * (double)unit_float(b.v[i + 1]));
      sincosf(angle, &s, &c);
      out[i] = s * r;
      out[i + 1] = c * r;
    }
  }
};
template <> __device__ inline void random_group<f32>::uniform(const random_block &b, float *out) {
  for (int i = 0; i < 4; i++) out[i] = unit_float(b.v[i]);
}
template <> __device__ inline void random_group<f16>::uniform(const random_block &b, float *out) {
  for (int i = 0; i < 4; i++) out[i] = (float)(b.v[i] & 0x3ffu) / 1024.0f;
}
template <> __device__ inline void random_group<bf16>::uniform(const random_block &b, float *out) {
  for (int i = 0; i < 4; i++) out[i] = (float)(b.v[i] & 0x7fu) / 128.0f;
}
template <> struct random_group<f64> {
  enum { N = 2 };
  static __device__ inline void uniform(const random_block &b, double *out) {
    out[0] = unit_double(b.v[0], b.v[1]);
    out[1] = unit_double(b.v[2], b.v[3]);
  }
  static __device__ inline void normal(const random_block &b, double *out) {
    double u = fmax(unit_double(b.v[0], b.v[1]), 1e-7), r = sqrt(-2.0 * log(u)), s, c;
    sincos(2.0 * 3.14159265358979323846 * unit_double(b.v[2], b.v[3]), &s, &c);
    out[0] = s * r;
    out[1] = c * r;
  }
};

#define FILL_OF(T, kind)                                                                        \
  extern "C" __global__ void random_##kind##_##T(T *out, int64_t n, random_source source) {     \
    enum { N = random_group<T>::N };                                                                   \
    EACH_ELEMENT(g, (n + N - 1) / N) {                                                          \
      typename computed<T>::type v[N];                                                          \
      random_stream s(source);                                                                  \
      s.skip((uint64_t)g);                                                                      \
      random_group<T>::kind(s.next(), v);                                                              \
      for (int i = 0; i < N && g * N + i < n; i++) out[g * N + i] = stored<T>::of(v[i]);        \
    }                                                                                           \
  }
FLOATING(FILL_OF, uniform)
FLOATING(FILL_OF, normal)

/* Normal numbers, without what is past two deviations. */
template <class T> __device__ inline void truncated(T *out, int64_t n, const random_source &source) {
  enum { N = random_group<T>::N, BLOCKS = 256 };
  EACH_ELEMENT(g, (n + N - 1) / N) {
    random_stream s(source);
    s.skip((uint64_t)g * BLOCKS * N / 4);
    int64_t made = 0, want = n - g * N < N ? n - g * N : N;
    while (made < want) {
      typename computed<T>::type v[N];
      random_group<T>::normal(s.next(), v);
      for (int i = 0; i < N && made < want; i++)
        if (v[i] < 2 && v[i] > -2) out[g * N + made++] = stored<T>::of(v[i]);
    }
  }
}
#define TRUNCATED_OF(T, kind) \
  extern "C" __global__ void random_##kind##_##T(T *out, int64_t n, random_source s) { truncated(out, n, s); }
FLOATING(TRUNCATED_OF, truncated)

/* low + x mod range, or with a range of 0 all bits. */
extern "C" __global__ void random_ints_i32(uint32_t *out, int64_t n, random_source source, uint64_t low,
                                           uint64_t range) {
  EACH_ELEMENT(g, (n + 3) / 4) {
    random_stream s(source);
    s.skip((uint64_t)g);
    random_block b = s.next();
    for (int i = 0; i < 4 && g * 4 + i < n; i++)
      out[g * 4 + i] = range ? (uint32_t)low + b.v[i] % (uint32_t)range : b.v[i];
  }
}
extern "C" __global__ void random_ints_i64(uint64_t *out, int64_t n, random_source source, uint64_t low,
                                           uint64_t range) {
  EACH_ELEMENT(g, (n + 1) / 2) {
    random_stream s(source);
    s.skip((uint64_t)g);
    random_block b = s.next();
    for (int i = 0; i < 2 && g * 2 + i < n; i++) {
      uint64_t v = b.v[2 * i] | (uint64_t)b.v[2 * i + 1] << 32;
      out[g * 2 + i] = range ? low + v % range : v;
    }
  }
}
