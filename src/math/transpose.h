/* Small transpositions in registers, for packing: with the vector instructions every machine of the kind has. */
#ifndef MATH_TRANSPOSE_H
#define MATH_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

#if defined(__aarch64__)
#include <arm_neon.h>

/* o[j * step + i] = row i's element j, i and j below 4; elements of 32 bits. */
static inline void transpose_4x4(const void *r0, const void *r1, const void *r2, const void *r3, void *o,
                                 int64_t step) {
  uint32x4_t a = vld1q_u32(r0), b = vld1q_u32(r1), c = vld1q_u32(r2), d = vld1q_u32(r3);
  uint32x4_t ac0 = vzip1q_u32(a, c), ac1 = vzip2q_u32(a, c), bd0 = vzip1q_u32(b, d), bd1 = vzip2q_u32(b, d);
  uint32_t *to = o;
  vst1q_u32(to, vzip1q_u32(ac0, bd0));
  vst1q_u32(to + step, vzip2q_u32(ac0, bd0));
  vst1q_u32(to + 2 * step, vzip1q_u32(ac1, bd1));
  vst1q_u32(to + 3 * step, vzip2q_u32(ac1, bd1));
}
/* o[j * step + i] = x[i * stride + j], i and j below 8; elements of 16 bits. */
static inline void transpose_8x8(const uint16_t *x, int64_t stride, uint16_t *o, int64_t step) {
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) o[j * step + i] = x[i * stride + j];
}
/* o[2 * i] = x[i], o[2 * i + 1] = y[i], i below 8; elements of 16 bits. */
static inline void interleave_8(const uint16_t *x, const uint16_t *y, uint16_t *o) {
  uint16x8x2_t v = {{vld1q_u16(x), vld1q_u16(y)}};
  vst2q_u16(o, v);
}

#elif defined(__x86_64__)
#include <emmintrin.h>

static inline void transpose_4x4(const void *r0, const void *r1, const void *r2, const void *r3, void *o,
                                 int64_t step) {
  __m128i a = _mm_loadu_si128(r0), b = _mm_loadu_si128(r1), c = _mm_loadu_si128(r2), d = _mm_loadu_si128(r3);
  __m128i ab0 = _mm_unpacklo_epi32(a, b), ab1 = _mm_unpackhi_epi32(a, b);
  __m128i cd0 = _mm_unpacklo_epi32(c, d), cd1 = _mm_unpackhi_epi32(c, d);
  uint32_t *to = o;
  _mm_storeu_si128((__m128i *)to, _mm_unpacklo_epi64(ab0, cd0));
  _mm_storeu_si128((__m128i *)(to + step), _mm_unpackhi_epi64(ab0, cd0));
  _mm_storeu_si128((__m128i *)(to + 2 * step), _mm_unpacklo_epi64(ab1, cd1));
  _mm_storeu_si128((__m128i *)(to + 3 * step), _mm_unpackhi_epi64(ab1, cd1));
}
static inline void transpose_8x8(const uint16_t *x, int64_t stride, uint16_t *o, int64_t step) {
  __m128i r[8], s[8];
  for (int i = 0; i < 8; i++) r[i] = _mm_loadu_si128((const __m128i *)(x + i * stride));
  for (int i = 0; i < 4; i++) { /* pairs of rows by 16 bits */
    s[2 * i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
    s[2 * i + 1] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; i++) { /* fours of rows by 32 bits */
    r[4 * i] = _mm_unpacklo_epi32(s[4 * i], s[4 * i + 2]);
    r[4 * i + 1] = _mm_unpackhi_epi32(s[4 * i], s[4 * i + 2]);
    r[4 * i + 2] = _mm_unpacklo_epi32(s[4 * i + 1], s[4 * i + 3]);
    r[4 * i + 3] = _mm_unpackhi_epi32(s[4 * i + 1], s[4 * i + 3]);
  }
  for (int i = 0; i < 4; i++) { /* all eight by 64 bits */
    _mm_storeu_si128((__m128i *)(o + 2 * i * step), _mm_unpacklo_epi64(r[i], r[i + 4]));
    _mm_storeu_si128((__m128i *)(o + (2 * i + 1) * step), _mm_unpackhi_epi64(r[i], r[i + 4]));
  }
}
static inline void interleave_8(const uint16_t *x, const uint16_t *y, uint16_t *o) {
  __m128i a = _mm_loadu_si128((const __m128i *)x), b = _mm_loadu_si128((const __m128i *)y);
  _mm_storeu_si128((__m128i *)o, _mm_unpacklo_epi16(a, b));
  _mm_storeu_si128((__m128i *)(o + 8), _mm_unpackhi_epi16(a, b));
}

#else
static inline void transpose_4x4(const void *r0, const void *r1, const void *r2, const void *r3, void *o,
                                 int64_t step) {
  const void *rows[4] = {r0, r1, r2, r3};
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) memcpy((uint32_t *)o + j * step + i, (const uint32_t *)rows[i] + j, 4);
}
static inline void transpose_8x8(const uint16_t *x, int64_t stride, uint16_t *o, int64_t step) {
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) o[j * step + i] = x[i * stride + j];
}
static inline void interleave_8(const uint16_t *x, const uint16_t *y, uint16_t *o) {
  for (int i = 0; i < 8; i++) {
    o[2 * i] = x[i];
    o[2 * i + 1] = y[i];
  }
}
#endif

/* o[j * step + i] = row i's element j, i below 4 and j below n. */
static inline void interleave_4_rows(const float *r0, const float *r1, const float *r2, const float *r3, int64_t n,
                                     float *o, int64_t step) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4, o += 4 * step) transpose_4x4(r0 + j, r1 + j, r2 + j, r3 + j, o, step);
  for (; j < n; j++, o += step) {
    o[0] = r0[j];
    o[1] = r1[j];
    o[2] = r2[j];
    o[3] = r3[j];
  }
}

#endif
