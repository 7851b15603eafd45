/* Micro-kernels: the innermost loops of gemm.c, one table for each instruction set.
 *
 * A micro-kernel multiplies a packed panel of A (mr lanes) with one of B (nr lanes) over n steps of `round` each, and
 * stores or adds the mr x nr sums into c, whose rows are ldc elements apart. Sums over k go in order, one
 * fused or unfused multiply-add a step. */
#ifndef MATH_GEMM_KERNEL_H
#define MATH_GEMM_KERNEL_H

#include "math/gemm.h"

enum { GEMM_MAX_TILE = 32 * 64 }; /* accumulators of the largest tile */

struct gemm_kernel {
  const char *name;
  shoal_dtype in, acc; /* packed elements; sums */
  int mr, nr;
  int group_a, group_b, round; /* of the panels; k comes in multiples of round */
  int kc, mc;                  /* block sizes that suit its caches: kc a multiple of round, mc of mr */
  float cost;                  /* time of a full tile against the best kernel of this kind, per element */
  bool (*usable)(void);        /* NULL: always */
  void (*micro)(int64_t n, const void *a, const void *b, void *c, int64_t ldc, bool add);
  /* (optional) The same for a tile of which only the first rows and cols count: spares work in steps of edge_m and
   * edge_n. Stores at least rows x cols sums; c has room for the whole tile. */
  void (*edge)(int64_t n, const void *a, const void *b, void *c, int64_t ldc, int rows, int cols);
  int edge_m, edge_n;
  enum gemm_lie lie;
};

/* The best kernel for operands of this type that may lie so, or as lanes, and a C of this size; NULL when gemm does not
 * take the type. */
const struct gemm_kernel *gemm_kernel_find(shoal_dtype type, int64_t m, int64_t n, enum gemm_lie lie);

/* The machine has it, and it gave right sums when it was tried. */
bool gemm_kernel_trusted(const struct gemm_kernel *k);

/* Panels of four lanes of float, whose lanes lie contiguous: many at a time, since a line of the cache holds four. */
bool gemm_packs_quads(const struct gemm_panel *p, shoal_dtype type);
/* lanes (a multiple of 16) from x on, n rows ks apart, into panels `step` elements apart. */
void gemm_pack_quads(const float *x, int64_t ks, int64_t lanes, int64_t n, float *y, size_t step);

/* Panels of bfloat16, of lanes that lie contiguous: `groups` groups of k, whose rows are ks apart. false: not such
 * ones, or not on this machine. */
bool gemm_pack_lines(int group, int width, int lanes, const uint16_t *x, int64_t ks, int64_t groups, uint16_t *y);

/* Panels of words, n of each lane, which lie side by side there; lanes are `step` bytes apart. false: likewise. */
bool gemm_pack_turned(int width, int lanes, const void *x, int64_t step, int64_t n, void *out);

/* Ended by a row without a name. */
extern const struct gemm_kernel gemm_kernels_generic[];
#if defined(__aarch64__)
extern const struct gemm_kernel gemm_kernels_neon[];
#endif
#if defined(__x86_64__)
extern const struct gemm_kernel gemm_kernels_x86[];
#endif

/* Of gemm_bf16.c, for the table in gemm_neon.c. */
void gemm_micro_bf16(int64_t n, const void *pa, const void *pb, void *pc, int64_t ldc, bool add);

#endif
