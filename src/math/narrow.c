/* Rounding to bfloat16: to the nearest, ties to even; NaN stays NaN.
 *
 * Every product, activation and normalisation of a model in bfloat16 ends here. AVX-512 has an instruction that keeps
 * the low halves of sixteen words; of the plain loop a compiler that may use no more than AVX-512's foundation makes
 * shorter vectors and shuffles, and it took a tenth of a language model's step. AVX512-BF16 has one for the rounding
 * itself, which makes zeros of what is subnormal: vectors with such a number go the other way. */
#include "math/narrow.h"

#include "base/cpu.h"
#include "base/vector.h"

VECTOR_CLONES static void round_plain(const float *from, bf16 *to, int64_t n) {
  LOOP_FREE for (int64_t i = 0; i < n; i++) to[i] = bf16_from_float(from[i]);
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f"))) static void round_avx512(const float *from, bf16 *to, int64_t n) {
  const __m512i one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff), quiet = _mm512_set1_epi32(0x40);
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), infinity = _mm512_set1_epi32(0x7f800000);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512i u = _mm512_loadu_si512(from + i), high = _mm512_srli_epi32(u, 16);
    __m512i up = _mm512_add_epi32(half, _mm512_and_si512(high, one));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, up), 16);
    __mmask16 nan = _mm512_cmpgt_epu32_mask(_mm512_and_si512(u, magnitude), infinity);
    rounded = _mm512_mask_or_epi32(rounded, nan, high, quiet);
    _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm512_cvtepi32_epi16(rounded));
  }
  for (; i < n; i++) to[i] = bf16_from_float(from[i]);
}

__attribute__((target("avx512f,avx512dq,avx512bf16"))) static void round_avx512_bf16(const float *from, bf16 *to,
                                                                                     int64_t n) {
  enum { AT_ONCE = 32, SUBNORMAL = 0x20 };
  int64_t i = 0;
  for (; i + AT_ONCE <= n; i += AT_ONCE) {
    __m512 low = _mm512_loadu_ps(from + i), high = _mm512_loadu_ps(from + i + 16);
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    if (_mm512_fpclass_ps_mask(low, SUBNORMAL) | _mm512_fpclass_ps_mask(high, SUBNORMAL))
      round_avx512(from + i, to + i, AT_ONCE);
    else _mm512_storeu_si512(to + i, both);
  }
  round_avx512(from + i, to + i, n - i);
}
#endif

void bf16_from_floats(const float *from, bf16 *to, int64_t n) {
#if defined(__x86_64__)
  if (cpu_has(CPU_AVX512_BF16)) {
    round_avx512_bf16(from, to, n);
    return;
  }
  if (cpu_has(CPU_AVX512)) {
    round_avx512(from, to, n);
    return;
  }
#endif
  round_plain(from, to, n);
}
