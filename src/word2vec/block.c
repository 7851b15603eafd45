/* Which kernels there are: block.inc, compiled for each instruction set. The build lets the compiler join products and
 * sums in this file; elsewhere it may not. */
#include "word2vec/block.h"

#include <stdint.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"

#define NO_TSAN __attribute__((no_sanitize("thread")))

/* 1 / (1 + exp(-x)), to some 2e-7: 2^n by the exponent's bits, the rest by a polynomial. No branches, for vectors. */
static inline __attribute__((always_inline)) float sigmoid(float x) {
  const float round = 12582912.0f; /* 1.5 * 2^23: adding it leaves whole numbers */
  x = x > -30 ? x : -30;           /* as is what is no number */
  x = x < 30 ? x : 30;
  float t = x * -1.442695041f;
  float whole = (t + round) - round, f = t - whole;
  float e = 1.0f + f * (0.69314718f + f * (0.24022651f + f * (0.055504109f + f * (0.0096181291f + f * 0.0013333558f))));
  int32_t bits = ((int32_t)whole + 127) << 23;
  float power;
  memcpy(&power, &bits, sizeof power);
  return 1.0f / (1.0f + e * power);
}

#if defined(__x86_64__)
#define W 16
#define TARGET __attribute__((target("avx512f,avx2,fma")))
#define IN(x) x##_avx512
#include "word2vec/block.inc"
#define W 8
#define TARGET __attribute__((target("avx2,fma")))
#define IN(x) x##_avx2
#include "word2vec/block.inc"
static bool has_avx512(void) { return cpu_has(CPU_AVX512); }
static bool has_avx2(void) { return cpu_has(CPU_AVX2); }
#endif

/* 128 bits: NEON, SSE, or what the compiler makes of them. */
#define W 4
#define TARGET
#define IN(x) x##_plain
#include "word2vec/block.inc"

const struct block_kernel block_kernels[] = {
#if defined(__x86_64__)
    {"avx512", has_avx512, step_avx512, mean_avx512, spread_avx512},
    {"avx2", has_avx2, step_avx2, mean_avx2, spread_avx2},
#endif
    {"plain", NULL, step_plain, mean_plain, spread_plain},
};
const int n_block_kernels = COUNT_OF(block_kernels);

const struct block_kernel *block_kernel(void) {
  const struct block_kernel *k = block_kernels;
  while (k->has && !k->has()) k++;
  return k;
}
