/* Philox 4x32-10. philox_blocks works on LANES counters side by side, in vectors of four that every processor of
 * the two families has. Left to itself the compiler makes vectors too, but one at a time, and waits for each
 * multiplication: a third of the speed. */
#include "base/philox.h"

#include <stdbool.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { VECTORS = 4, LANES = 4 * VECTORS, ROUNDS = 10 };
#define MUL0 0xd2511f53u
#define MUL1 0xcd9e8d57u
#define WEYL0 0x9e3779b9u
#define WEYL1 0xbb67ae85u

/* Four numbers side by side. */
typedef uint32_t u32x4 __attribute__((vector_size(16)));

/* Both halves of the 64-bit products x * m. */
#if defined(__aarch64__)
static inline void multiply(u32x4 x, uint32_t m, u32x4 *hi, u32x4 *lo) {
  uint32x4_t a = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32((uint32x4_t)x), m));
  uint32x4_t b = vreinterpretq_u32_u64(vmull_high_n_u32((uint32x4_t)x, m));
  *lo = (u32x4)vuzp1q_u32(a, b);
  *hi = (u32x4)vuzp2q_u32(a, b);
}
#elif defined(__x86_64__)
static inline void multiply(u32x4 x, uint32_t m, u32x4 *hi, u32x4 *lo) {
  __m128i k = _mm_set1_epi32((int)m);
  __m128i even = _mm_mul_epu32((__m128i)x, k), odd = _mm_mul_epu32(_mm_srli_epi64((__m128i)x, 32), k);
  __m128i a = _mm_unpacklo_epi32(even, odd), b = _mm_unpackhi_epi32(even, odd); /* l0 l1 h0 h1, l2 l3 h2 h3 */
  *lo = (u32x4)_mm_unpacklo_epi64(a, b);
  *hi = (u32x4)_mm_unpackhi_epi64(a, b);
}
#else
static inline void multiply(u32x4 x, uint32_t m, u32x4 *hi, u32x4 *lo) {
  for (int i = 0; i < 4; i++) {
    uint64_t p = (uint64_t)x[i] * m;
    (*hi)[i] = (uint32_t)(p >> 32);
    (*lo)[i] = (uint32_t)p;
  }
}
#endif

void philox_skip(struct philox *p, uint64_t n) {
  uint64_t lo = (uint64_t)p->counter[0] | (uint64_t)p->counter[1] << 32;
  uint64_t hi = (uint64_t)p->counter[2] | (uint64_t)p->counter[3] << 32;
  uint64_t sum = lo + n;
  hi += sum < lo;
  p->counter[0] = (uint32_t)sum;
  p->counter[1] = (uint32_t)(sum >> 32);
  p->counter[2] = (uint32_t)hi;
  p->counter[3] = (uint32_t)(hi >> 32);
}

void philox_next(struct philox *p, uint32_t out[4]) {
  uint32_t c0 = p->counter[0], c1 = p->counter[1], c2 = p->counter[2], c3 = p->counter[3];
  uint32_t k0 = p->key[0], k1 = p->key[1];
  for (int r = 0; r < ROUNDS; r++) {
    uint64_t a = (uint64_t)MUL0 * c0, b = (uint64_t)MUL1 * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)b;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)a;
    k0 += WEYL0;
    k1 += WEYL1;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
  philox_skip(p, 1);
}

/* LANES blocks. The vectors are independent of each other: a processor works on all of them at once. */
static void many(const struct philox *p, uint32_t *restrict out) {
  u32x4 c0[VECTORS], c1[VECTORS], c2[VECTORS], c3[VECTORS];
  bool carries = p->counter[0] > UINT32_MAX - LANES;
  for (int v = 0; v < VECTORS; v++) {
    uint32_t first = p->counter[0] + (uint32_t)v * 4;
    c0[v] = (u32x4){first, first + 1, first + 2, first + 3};
    c1[v] = (u32x4){0} + p->counter[1];
    c2[v] = (u32x4){0} + p->counter[2];
    c3[v] = (u32x4){0} + p->counter[3];
  }
  for (int i = 0; carries && i < LANES; i++) {
    struct philox at = *p;
    philox_skip(&at, (uint64_t)i);
    c1[i / 4][i % 4] = at.counter[1];
    c2[i / 4][i % 4] = at.counter[2];
    c3[i / 4][i % 4] = at.counter[3];
  }
  uint32_t k0 = p->key[0], k1 = p->key[1];
  for (int r = 0; r < ROUNDS; r++) {
    for (int v = 0; v < VECTORS; v++) {
      u32x4 a_hi, a_lo, b_hi, b_lo;
      multiply(c0[v], MUL0, &a_hi, &a_lo);
      multiply(c2[v], MUL1, &b_hi, &b_lo);
      c0[v] = b_hi ^ c1[v] ^ k0;
      c1[v] = b_lo;
      c2[v] = a_hi ^ c3[v] ^ k1;
      c3[v] = a_lo;
    }
    k0 += WEYL0;
    k1 += WEYL1;
  }
  for (int v = 0; v < VECTORS; v++)
    for (int i = 0; i < 4; i++) {
      u32x4 block = {c0[v][i], c1[v][i], c2[v][i], c3[v][i]};
      memcpy(out + 16 * v + 4 * i, &block, 16);
    }
}

void philox_blocks(struct philox *p, uint32_t *out, size_t n) {
  for (; n >= LANES; n -= LANES, out += 4 * LANES) {
    many(p, out);
    philox_skip(p, LANES);
  }
  for (; n; n--, out += 4) philox_next(p, out);
}

struct philox philox_from_pair(uint64_t seed0, uint64_t seed1) {
  struct philox p = {{(uint32_t)seed0, (uint32_t)(seed0 >> 32), (uint32_t)seed1, (uint32_t)(seed1 >> 32)},
                     {0x3ec8f720u, 0x02461e29u}};
  uint32_t mix[4];
  philox_next(&p, mix);
  return (struct philox){{0, 0, mix[2], mix[3]}, {mix[0], mix[1]}};
}
