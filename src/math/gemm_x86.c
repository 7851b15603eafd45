/* Micro-kernels for x86_64, each compiled for its instruction set and used only where the machine has it.
 *
 * float and double: AVX-512 or AVX2, a register of B's columns times a broadcast element of A. An element is broadcast
 * from wherever it lies, so for float there are kernels that take rows of A (struct gemm_rows) beside those that take
 * lanes side by side. bfloat16: AMX multiplies 16x32 with 32x16 tiles, four of them a step; AVX512-BF16 multiplies
 * pairs. An AMX kernel needs the system's leave to use tiles (base/cpu.c asks for it) and a tile configuration (once a
 * thread). */
#if defined(__x86_64__)
#include <immintrin.h>

#include "base/cpu.h"
#include "math/gemm_kernel.h"

static bool has_avx2(void) { return cpu_has(CPU_AVX2); }
static bool has_avx512(void) { return cpu_has(CPU_AVX512); }
static bool has_avx512_bf16(void) { return cpu_has(CPU_AVX512_BF16); }
static bool has_amx(void) { return cpu_has(CPU_AMX); }

#define ROWS 0
#define STRETCHES 0
#define LIE(x) x##_lanes
#include "math/gemm_x86_float.inc"
#define ROWS 1
#define STRETCHES 0
#define LIE(x) x##_rows
#include "math/gemm_x86_float.inc"
#define ROWS 0
#define STRETCHES 1
#define LIE(x) x##_stretches
#include "math/gemm_x86_float.inc"

#define ROWS 0
#define STRETCHES 0
#define ISA "avx512f"
#define T double
#define VEC __m512d
#define W 8
#define DO(x) _mm512_##x##_pd
#define PA 12
#define PB 2
#define NAME avx512_double
#define MR 12
#define NV 2
#include "math/gemm_x86_micro.inc"
#undef ISA
#undef T
#undef VEC
#undef W
#undef DO
#undef PA
#undef PB

#define ISA "avx2,fma"
#define T double
#define VEC __m256d
#define W 4
#define DO(x) _mm256_##x##_pd
#define PA 6
#define PB 2
#define NAME avx2_double
#define MR 6
#define NV 2
#include "math/gemm_x86_micro.inc"
#undef ISA
#undef T
#undef VEC
#undef W
#undef DO
#undef PA
#undef PB
#undef ROWS
#undef STRETCHES

/* Pairs of k: element i of a register holds both factors of a pair. */
__attribute__((target("avx512f,avx512bf16"))) static void avx512_bf16(int64_t n, const void *pa, const void *pb,
                                                                      void *pc, int64_t ldc, bool add) {
  enum { MR = 12 };
  const int32_t *a = pa;
  const char *b = pb;
  float *c = pc;
  __m512 s[MR][2];
  _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++) s[i][0] = s[i][1] = _mm512_setzero_ps();
  for (int64_t p = 0; p < n; p++, a += MR, b += 128) {
    __m512bh v0 = (__m512bh)_mm512_loadu_si512(b), v1 = (__m512bh)_mm512_loadu_si512(b + 64);
    _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++) {
      __m512bh x = (__m512bh)_mm512_set1_epi32(a[i]);
      s[i][0] = _mm512_dpbf16_ps(s[i][0], x, v0);
      s[i][1] = _mm512_dpbf16_ps(s[i][1], x, v1);
    }
  }
  _Pragma("GCC unroll 12") for (int i = 0; i < MR; i++) {
    float *r = c + i * ldc;
    _mm512_storeu_ps(r, add ? _mm512_add_ps(_mm512_loadu_ps(r), s[i][0]) : s[i][0]);
    _mm512_storeu_ps(r + 16, add ? _mm512_add_ps(_mm512_loadu_ps(r + 16), s[i][1]) : s[i][1]);
  }
}

/* What LDTILECFG reads. */
struct tile_config {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

__attribute__((target("amx-tile"))) static void configure_tiles(void) {
  static _Thread_local bool done;
  if (done) return;
  struct tile_config cfg = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    cfg.row_bytes[i] = 64;
    cfg.rows[i] = 16;
  }
  _tile_loadconfig(&cfg);
  done = true;
}

/* Tiles 0 to 3 hold the sums of a 32x32 block, 4 and 5 rows of A, 6 and 7 columns of B. A step is 32 of k. */
__attribute__((target("amx-tile,amx-bf16"))) static void amx_32x32(int64_t n, const void *pa, const void *pb, void *pc,
                                                                   int64_t ldc, bool add) {
  const char *a = pa, *b = pb;
  char *c = pc;
  size_t row = (size_t)ldc * 4;
  configure_tiles();
  if (add) {
    _tile_loadd(0, c, row);
    _tile_loadd(1, c + 64, row);
    _tile_loadd(2, c + 16 * row, row);
    _tile_loadd(3, c + 16 * row + 64, row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t p = 0; p < n; p++, a += 2048, b += 2048) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 128);
    _tile_loadd(7, b + 64, 128);
    _tile_loadd(5, a + 1024, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, row);
  _tile_stored(1, c + 64, row);
  _tile_stored(2, c + 16 * row, row);
  _tile_stored(3, c + 16 * row + 64, row);
}

const struct gemm_kernel gemm_kernels_x86[] = {
    {"avx512 float 12x32, rows", SHOAL_FLOAT32, SHOAL_FLOAT32, 12, 32, 1, 1, 1, 256, 192, 1, has_avx512,
     avx512_12x32_rows, avx512_edge_rows, 4, 16, GEMM_A_ROWS},
    {"avx512 float 12x32, stretches", SHOAL_FLOAT32, SHOAL_FLOAT32, 12, 32, 1, 1, 1, 256, 192, 1, has_avx512,
     avx512_12x32_stretches, avx512_edge_stretches, 4, 16, GEMM_B_STRETCHES},
    {"avx512 float 12x32", SHOAL_FLOAT32, SHOAL_FLOAT32, 12, 32, 1, 1, 1, 256, 192, 1, has_avx512, avx512_12x32_lanes,
     avx512_edge_lanes, 4, 16},
    {"avx2 float 6x16, rows", SHOAL_FLOAT32, SHOAL_FLOAT32, 6, 16, 1, 1, 1, 256, 144, 3, has_avx2, avx2_6x16_rows,
     avx2_edge_rows, 6, 8, GEMM_A_ROWS},
    {"avx2 float 6x16, stretches", SHOAL_FLOAT32, SHOAL_FLOAT32, 6, 16, 1, 1, 1, 256, 144, 3, has_avx2,
     avx2_6x16_stretches, avx2_edge_stretches, 6, 8, GEMM_B_STRETCHES},
    {"avx2 float 6x16", SHOAL_FLOAT32, SHOAL_FLOAT32, 6, 16, 1, 1, 1, 256, 144, 3, has_avx2, avx2_6x16_lanes,
     avx2_edge_lanes, 6, 8},
    {"avx512 double 12x16", SHOAL_FLOAT64, SHOAL_FLOAT64, 12, 16, 1, 1, 1, 192, 144, 1, has_avx512, avx512_double},
    {"avx2 double 6x8", SHOAL_FLOAT64, SHOAL_FLOAT64, 6, 8, 1, 1, 1, 256, 96, 3, has_avx2, avx2_double},
    {"amx bfloat16 32x32", SHOAL_BFLOAT16, SHOAL_FLOAT32, 32, 32, 32, 2, 32, 1024, 256, 1, has_amx, amx_32x32},
    {"avx512 bfloat16 12x32", SHOAL_BFLOAT16, SHOAL_FLOAT32, 12, 32, 2, 2, 2, 512, 192, 8, has_avx512_bf16,
     avx512_bf16},
    {0},
};
#else
typedef int gemm_x86_unused; /* a translation unit may not be empty */
#endif
