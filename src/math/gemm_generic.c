/* Micro-kernels in plain C: right on every machine, and the only ones for integers and complex numbers. Integers
 * are summed as unsigned words, which wrap as TensorFlow's do without being undefined; narrow ones are summed
 * in 32 bits and cut when stored, which is the same modulo 2^8 or 2^16. */
#include "math/gemm_kernel.h"

#define REAL_KERNEL(name, type, MR, NR)                                                           \
  static void name(int64_t n, const void *pa, const void *pb, void *pc, int64_t ldc, bool add) {  \
    const type *a = pa, *b = pb;                                                                  \
    type *c = pc, acc[MR][NR] = {{0}};                                                            \
    for (int64_t p = 0; p < n; p++, a += MR, b += NR)                                             \
      for (int i = 0; i < MR; i++)                                                                \
        for (int j = 0; j < NR; j++) acc[i][j] += a[i] * b[j];                                    \
    for (int i = 0; i < MR; i++)                                                                  \
      for (int j = 0; j < NR; j++) c[i * ldc + j] = add ? c[i * ldc + j] + acc[i][j] : acc[i][j]; \
  }

REAL_KERNEL(micro_float, float, 4, 8)
REAL_KERNEL(micro_double, double, 4, 4)
REAL_KERNEL(micro_u32, uint32_t, 4, 8)
REAL_KERNEL(micro_u64, uint64_t, 4, 4)

/* Written out on parts: the language's own complex product checks for infinities element by element. */
#define COMPLEX_KERNEL(name, type, MR, NR)                                                       \
  static void name(int64_t n, const void *pa, const void *pb, void *pc, int64_t ldc, bool add) { \
    const type *a = pa, *b = pb;                                                                 \
    type *c = pc, re[MR][NR] = {{0}}, im[MR][NR] = {{0}};                                        \
    for (int64_t p = 0; p < n; p++, a += 2 * MR, b += 2 * NR)                                    \
      for (int i = 0; i < MR; i++)                                                               \
        for (int j = 0; j < NR; j++) {                                                           \
          re[i][j] += a[2 * i] * b[2 * j] - a[2 * i + 1] * b[2 * j + 1];                         \
          im[i][j] += a[2 * i] * b[2 * j + 1] + a[2 * i + 1] * b[2 * j];                         \
        }                                                                                        \
    for (int i = 0; i < MR; i++)                                                                 \
      for (int j = 0; j < NR; j++) {                                                             \
        type *z = c + 2 * (i * ldc + j);                                                         \
        z[0] = add ? z[0] + re[i][j] : re[i][j];                                                 \
        z[1] = add ? z[1] + im[i][j] : im[i][j];                                                 \
      }                                                                                          \
  }

COMPLEX_KERNEL(micro_c64, float, 4, 4)
COMPLEX_KERNEL(micro_c128, double, 2, 4)

const struct gemm_kernel gemm_kernels_generic[] = {
    {"c float 4x8", SHOAL_FLOAT32, SHOAL_FLOAT32, 4, 8, 1, 1, 1, 256, 64, 1, NULL, micro_float},
    {"c double 4x4", SHOAL_FLOAT64, SHOAL_FLOAT64, 4, 4, 1, 1, 1, 256, 64, 1, NULL, micro_double},
    {"c int32 4x8", SHOAL_UINT32, SHOAL_UINT32, 4, 8, 1, 1, 1, 256, 64, 1, NULL, micro_u32},
    {"c int64 4x4", SHOAL_UINT64, SHOAL_UINT64, 4, 4, 1, 1, 1, 256, 64, 1, NULL, micro_u64},
    {"c complex64 4x4", SHOAL_COMPLEX64, SHOAL_COMPLEX64, 4, 4, 1, 1, 1, 256, 64, 1, NULL, micro_c64},
    {"c complex128 2x4", SHOAL_COMPLEX128, SHOAL_COMPLEX128, 2, 4, 1, 1, 1, 256, 64, 1, NULL, micro_c128},
    {0},
};
