/* What this machine's processor has beyond the base instruction set: looked up once, asked by whoever has code for it.
 *
 * SHOAL_CPU=LIST in the environment pretends that the machine has at most what is listed ("avx2,sse4.2"; "plain" is
 * nothing), or all but what is listed with a minus ("-amx,-avx512"): each variant of a kernel can be run on a machine
 * that has better (`make kernels`), and one that misbehaves on some machine can be left out there. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>

enum cpu_feature {
  CPU_CRC32,       /* aarch64: crc32 */
  CPU_BF16,        /* aarch64: bf16 */
  CPU_SSE42,       /* x86_64: sse4.2 */
  CPU_AVX2,        /* x86_64: avx2, with fma */
  CPU_AVX512,      /* x86_64: avx512 */
  CPU_AVX512_BF16, /* x86_64: avx512_bf16 */
  CPU_AMX,         /* x86_64: amx, its tiles and bfloat16; the system has given its leave */
  CPU_FEATURES
};

bool cpu_has(enum cpu_feature f);
/* As SHOAL_CPU has it: "avx2". */
const char *cpu_feature_name(enum cpu_feature f);

#endif
