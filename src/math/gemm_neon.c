/* Micro-kernels for aarch64: 4x20 and 8x8 for float, 8x4 for double. Sixteen registers of sums are just enough to hide
 * the latency of four multiply-add pipes, and leave the compiler room: larger tiles (8x12 and 4x24 were tried) spill
 * inside the loop and lose a tenth of the peak for float, half of it for bfloat16. The long flat tile keeps its panel
 * of B in the first-level cache and reads little of A for its work, which then may come from the second level. */
#if defined(__aarch64__)
#include <arm_neon.h>

#include "base/cpu.h"
#include "math/gemm_kernel.h"

static bool has_bf16(void) { return cpu_has(CPU_BF16); }

#define ROW8(i, av, l)                           \
  c##i##0 = vfmaq_laneq_f32(c##i##0, b0, av, l); \
  c##i##1 = vfmaq_laneq_f32(c##i##1, b1, av, l);
#define ZERO8(i) float32x4_t c##i##0 = vdupq_n_f32(0), c##i##1 = c##i##0;
#define STORE8(i)                                     \
  {                                                   \
    float *r = c + i * ldc;                           \
    if (add) {                                        \
      c##i##0 = vaddq_f32(vld1q_f32(r), c##i##0);     \
      c##i##1 = vaddq_f32(vld1q_f32(r + 4), c##i##1); \
    }                                                 \
    vst1q_f32(r, c##i##0);                            \
    vst1q_f32(r + 4, c##i##1);                        \
  }

static void micro_8x8(int64_t n, const void *pa, const void *pb, void *pc, int64_t ldc, bool add) {
  const float *a = pa, *b = pb;
  float *c = pc;
  ZERO8(0)
  ZERO8(1) ZERO8(2) ZERO8(3) ZERO8(4) ZERO8(5) ZERO8(6) ZERO8(7) for (int64_t p = 0; p < n; p++, a += 8, b += 8) {
    float32x4_t a0 = vld1q_f32(a), a1 = vld1q_f32(a + 4), b0 = vld1q_f32(b), b1 = vld1q_f32(b + 4);
    ROW8(0, a0, 0)
    ROW8(1, a0, 1) ROW8(2, a0, 2) ROW8(3, a0, 3) ROW8(4, a1, 0) ROW8(5, a1, 1) ROW8(6, a1, 2) ROW8(7, a1, 3)
  }
  STORE8(0) STORE8(1) STORE8(2) STORE8(3) STORE8(4) STORE8(5) STORE8(6) STORE8(7)
}

#define NAME micro_4x20
#define NV 5
#include "math/gemm_neon_flat.inc"
#define NAME micro_4x16
#define NV 4
#include "math/gemm_neon_flat.inc"
#define NAME micro_4x12
#define NV 3
#include "math/gemm_neon_flat.inc"
#define NAME micro_4x8
#define NV 2
#include "math/gemm_neon_flat.inc"
#define NAME micro_4x4
#define NV 1
#include "math/gemm_neon_flat.inc"

static void edge_4x20(int64_t n, const void *a, const void *b, void *c, int64_t ldc, int rows, int cols) {
  static void (*const by_width[])(int64_t, const void *, const void *, void *, int64_t, bool) = {
      micro_4x4, micro_4x8, micro_4x12, micro_4x16, micro_4x20};
  by_width[(cols - 1) / 4](n, a, b, c, ldc, false);
}

static void micro_double(int64_t n, const void *pa, const void *pb, void *pc, int64_t ldc, bool add) {
  const double *a = pa, *b = pb;
  double *c = pc;
  float64x2_t s[8][2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) s[i][0] = s[i][1] = vdupq_n_f64(0);
  for (int64_t p = 0; p < n; p++, a += 8, b += 4) {
    float64x2_t b0 = vld1q_f64(b), b1 = vld1q_f64(b + 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      float64x2_t av = vld1q_f64(a + 2 * i);
      s[2 * i][0] = vfmaq_laneq_f64(s[2 * i][0], b0, av, 0);
      s[2 * i][1] = vfmaq_laneq_f64(s[2 * i][1], b1, av, 0);
      s[2 * i + 1][0] = vfmaq_laneq_f64(s[2 * i + 1][0], b0, av, 1);
      s[2 * i + 1][1] = vfmaq_laneq_f64(s[2 * i + 1][1], b1, av, 1);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) {
    double *r = c + i * ldc;
    vst1q_f64(r, add ? vaddq_f64(vld1q_f64(r), s[i][0]) : s[i][0]);
    vst1q_f64(r + 2, add ? vaddq_f64(vld1q_f64(r + 2), s[i][1]) : s[i][1]);
  }
}

const struct gemm_kernel gemm_kernels_neon[] = {
    {"neon float 4x20", SHOAL_FLOAT32, SHOAL_FLOAT32, 4, 20, 1, 1, 1, 400, 128, 1, NULL, micro_4x20, edge_4x20, 4, 4},
    {"neon float 8x8", SHOAL_FLOAT32, SHOAL_FLOAT32, 8, 8, 1, 1, 1, 512, 128, 1.06f, NULL, micro_8x8},
    {"neon double 8x4", SHOAL_FLOAT64, SHOAL_FLOAT64, 8, 4, 1, 1, 1, 384, 96, 1, NULL, micro_double},
    {"bfmmla 8x8", SHOAL_BFLOAT16, SHOAL_FLOAT32, 8, 8, 4, 4, 4, 1024, 128, 1, has_bf16, gemm_micro_bf16},
    {0},
};
#else
typedef int gemm_neon_unused; /* a translation unit may not be empty */
#endif
