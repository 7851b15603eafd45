/* Packing panels of 32 lanes by whole lines of the cache, with AVX-512.
 *
 * Of bfloat16 where lanes lie side by side: panels of B for AMX have pairs of k side by side, panels of A runs of 32 k,
 * a tile of 32 by 32 turned round. Both begin with pairs: the even lanes of two rows are the low halves of words, the
 * odd ones the high halves. And of words, floats or such pairs, where each lane's lie side by side: tiles of 16 by 16
 * turned round. */
#include <string.h>

#include "base/cpu.h"
#include "math/gemm_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

enum { LANES = 32, WORDS = 16 }; /* elements of 16 and of 32 bits of a register */

/* Words of both rows' elements, of even and of odd lanes. */
__attribute__((target("avx512f"))) static inline void pair_up(const uint16_t *x, int64_t ks, __m512i *even,
                                                              __m512i *odd) {
  __m512i first = _mm512_loadu_si512(x), second = _mm512_loadu_si512(x + ks);
  const __m512i low_half = _mm512_set1_epi32(0xffff);
  *even = _mm512_or_si512(_mm512_and_si512(first, low_half), _mm512_slli_epi32(second, 16));
  *odd = _mm512_or_si512(_mm512_srli_epi32(first, 16), _mm512_andnot_si512(low_half, second));
}

__attribute__((target("avx512f"))) static void pack_pairs(const uint16_t *x, int64_t ks, int64_t groups, uint16_t *y) {
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(WORDS / 2));
  for (int64_t q = 0; q < groups; q++, x += 2 * ks, y += 2 * LANES) {
    __m512i even, odd;
    pair_up(x, ks, &even, &odd);
    _mm512_storeu_si512(y, _mm512_permutex2var_epi32(even, low, odd));
    _mm512_storeu_si512(y + LANES, _mm512_permutex2var_epi32(even, high, odd));
  }
}

/* Row j of the result is column j of r: stored `step` elements apart. */
__attribute__((target("avx512f"))) static void transpose_words(__m512i r[WORDS], uint16_t *y, int64_t step) {
  __m512i s[WORDS];
  for (int i = 0; i < WORDS; i += 2) { /* pairs of rows by words */
    s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < WORDS; i += 4) /* fours of rows: r[i + c] has column c of each quarter */
    for (int c = 0; c < 2; c++) {
      r[i + 2 * c] = _mm512_unpacklo_epi64(s[i + c], s[i + 2 + c]);
      r[i + 2 * c + 1] = _mm512_unpackhi_epi64(s[i + c], s[i + 2 + c]);
    }
  for (int c = 0; c < 4; c++) { /* quarters of four such: columns c, c + 4, c + 8, c + 12 */
    __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88), b = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    __m512i d = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd), e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    _mm512_storeu_si512(y + c * step, _mm512_shuffle_i32x4(a, b, 0x88));
    _mm512_storeu_si512(y + (c + 4) * step, _mm512_shuffle_i32x4(d, e, 0x88));
    _mm512_storeu_si512(y + (c + 8) * step, _mm512_shuffle_i32x4(a, b, 0xdd));
    _mm512_storeu_si512(y + (c + 12) * step, _mm512_shuffle_i32x4(d, e, 0xdd));
  }
}

__attribute__((target("avx512f"))) static void pack_runs(const uint16_t *x, int64_t ks, int64_t groups, uint16_t *y) {
  for (int64_t q = 0; q < groups; q++, x += LANES * ks, y += LANES * LANES) {
    __m512i even[WORDS], odd[WORDS];
    for (int i = 0; i < WORDS; i++) pair_up(x + 2 * i * ks, ks, &even[i], &odd[i]);
    transpose_words(even, y, 2 * LANES);
    transpose_words(odd, y + LANES, 2 * LANES);
  }
}

__attribute__((target("avx512f"))) static void turn_words(const char *x, int64_t step, int64_t n, uint16_t *y) {
  for (int64_t p = 0; p + WORDS <= n; p += WORDS)
    for (int half = 0; half < 2; half++) {
      const char *from = x + half * WORDS * step + p * 4;
      __m512i r[WORDS];
      for (int i = 0; i < WORDS; i++) r[i] = _mm512_loadu_si512(from + i * step);
      transpose_words(r, y + p * 2 * LANES + half * 2 * WORDS, 2 * LANES);
    }
}

bool gemm_pack_turned(int width, int lanes, const void *x, int64_t step, int64_t n, void *out) {
  if (width != LANES || lanes != LANES || !cpu_has(CPU_AVX512)) return false;
  turn_words(x, step, n, out);
  for (int64_t p = n / WORDS * WORDS; p < n; p++)
    for (int i = 0; i < LANES; i++) memcpy((char *)out + (p * LANES + i) * 4, (const char *)x + i * step + p * 4, 4);
  return true;
}

bool gemm_pack_lines(int group, int width, int lanes, const uint16_t *x, int64_t ks, int64_t groups, uint16_t *y) {
  if (width != LANES || lanes != LANES || (group != 2 && group != LANES) || !cpu_has(CPU_AVX512)) return false;
  if (group == 2) pack_pairs(x, ks, groups, y);
  else pack_runs(x, ks, groups, y);
  return true;
}
#else
bool gemm_pack_turned(int width, int lanes, const void *x, int64_t step, int64_t n, void *out) { return false; }

bool gemm_pack_lines(int group, int width, int lanes, const uint16_t *x, int64_t ks, int64_t groups, uint16_t *y) {
  return false;
}
#endif
