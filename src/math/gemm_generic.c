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

#define T float
#define NAME micro_c64
#define MR 4
#define NR 4
#include "math/gemm_complex_micro.inc"
#define T double
#define NAME micro_c128
#define MR 2
#define NR 4
#include "math/gemm_complex_micro.inc"

const struct gemm_kernel gemm_kernels_generic[] = {
    {"c float 4x8", SHOAL_FLOAT32, SHOAL_FLOAT32, 4, 8, 1, 1, 1, 256, 64, 1, NULL, micro_float},
    {"c double 4x4", SHOAL_FLOAT64, SHOAL_FLOAT64, 4, 4, 1, 1, 1, 256, 64, 1, NULL, micro_double},
    {"c int32 4x8", SHOAL_UINT32, SHOAL_UINT32, 4, 8, 1, 1, 1, 256, 64, 1, NULL, micro_u32},
    {"c int64 4x4", SHOAL_UINT64, SHOAL_UINT64, 4, 4, 1, 1, 1, 256, 64, 1, NULL, micro_u64},
    {"c complex64 4x4", SHOAL_COMPLEX64, SHOAL_COMPLEX64, 4, 4, 1, 1, 1, 256, 64, 1, NULL, micro_c64},
    {"c complex128 2x4", SHOAL_COMPLEX128, SHOAL_COMPLEX128, 2, 4, 1, 1, 1, 256, 64, 1, NULL, micro_c128},
    {0},
};
