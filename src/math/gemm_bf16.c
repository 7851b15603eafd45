/* The bfloat16 micro-kernel for aarch64: BFMMLA multiplies a 2x4 with a 4x2 matrix at once, so panels are grouped by
 * four steps of k, and sums stand in 2x2 squares until stored.
 *
 * The build compiles this file alone with the bf16 extension; nothing in it runs where the machine has none. */
#if defined(__aarch64__)
#include <arm_neon.h>

#include "math/gemm_kernel.h"

/* Rows 2i, 2i+1 and columns 2j, 2j+1 are in s[i][j]. */
void gemm_micro_bf16(int64_t n, const void *pa, const void *pb, void *pc, int64_t ldc, bool add) {
  const bfloat16_t *a = pa, *b = pb;
  float *c = pc;
  float32x4_t s[4][4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) s[i][j] = vdupq_n_f32(0);
  for (int64_t p = 0; p < n; p++, a += 32, b += 32) {
    bfloat16x8_t a0 = vld1q_bf16(a), a1 = vld1q_bf16(a + 8), a2 = vld1q_bf16(a + 16), a3 = vld1q_bf16(a + 24);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      bfloat16x8_t bv = vld1q_bf16(b + 8 * j);
      s[0][j] = vbfmmlaq_f32(s[0][j], a0, bv);
      s[1][j] = vbfmmlaq_f32(s[1][j], a1, bv);
      s[2][j] = vbfmmlaq_f32(s[2][j], a2, bv);
      s[3][j] = vbfmmlaq_f32(s[3][j], a3, bv);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
    for (int j = 0; j < 2; j++) {
      float32x4_t x = s[i][2 * j], y = s[i][2 * j + 1];
      float32x4_t top = vcombine_f32(vget_low_f32(x), vget_low_f32(y));
      float32x4_t low = vcombine_f32(vget_high_f32(x), vget_high_f32(y));
      float *r = c + 2 * i * ldc + 4 * j;
      vst1q_f32(r, add ? vaddq_f32(vld1q_f32(r), top) : top);
      vst1q_f32(r + ldc, add ? vaddq_f32(vld1q_f32(r + ldc), low) : low);
    }
}
#endif
