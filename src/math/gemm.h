/* Matrix products on the CPU: C = act(scale * (A B) + bias), row-major, the one engine behind MatMul, Einsum,
 * convolutions and recurrent cells.
 *
 * An operand is a strided matrix, or a function that packs panels of one that is never built (a convolution's
 * patches). Each element of C is summed in an order that depends on K alone, so results do not depend on the
 * number of threads or on where an element stands in a tile. */
#ifndef MATH_GEMM_H
#define MATH_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "tensor/dtype.h"

enum gemm_act {
  GEMM_NONE,
  GEMM_RELU,
  GEMM_RELU6,
  GEMM_ELU,
  GEMM_LEAKY_RELU,
  GEMM_TANH,
  GEMM_SIGMOID,
  GEMM_GELU_EXACT,
  GEMM_GELU_APPROXIMATE,
  GEMM_SWISH,
};

/* How a panel is laid out: `width` lanes (rows of A, columns of B) side by side for each group of `group` steps
 * of k: element (lane, k) stands at (k / group) * width * group + lane * group + k % group. The number of steps
 * is a multiple of `round` (itself one of group). So panels lie as lanes; others are made of what they find. */
enum gemm_lie { GEMM_LANES, GEMM_A_ROWS, GEMM_B_STRETCHES };
struct gemm_panel {
  int width, group, round;
  shoal_dtype type; /* of packed elements */
  enum gemm_lie lie;
};

/* A panel of float whose lanes are wherever their steps lie contiguous: in the matrix itself, or copied into own. Lanes
 * past the last have some row too. */
enum { GEMM_ROWS = 16, GEMM_ROW = 256 + 16 }; /* lanes at most; steps at most, and a line: or all share a few sets */
struct gemm_rows {
  const float *at[GEMM_ROWS];
  _Alignas(64) float own[][GEMM_ROW];
};

/* A panel of B, of float, that lies in the matrix as lanes do, in stretches of n steps, `step` elements apart. k: the
 * first of them, in the panel; what is in no stretch is zero. */
struct gemm_stretch {
  const float *at;
  int32_t k, n;
};
struct gemm_stretches {
  int64_t step;
  int n;
  struct gemm_stretch at[];
};

struct gemm_operand {
  const void *data;
  shoal_dtype type;
  int64_t ld; /* elements between rows as they stand in memory */
  bool trans; /* the matrix is stored transposed: of A, not k lies contiguous but the lanes */
  bool conj;  /* complex: take the conjugate */
  /* (optional) Packs lanes [lane, lane + lanes) and k in [k, k + n) into panels from dst on, `step` bytes apart; what
   * is missing of the last panel's width, and of n up to a multiple of round, is set to zero. `data` and `ld` are then
   * its own. */
  void (*pack)(const struct gemm_operand *o, const struct gemm_panel *panel, int64_t lane, int64_t lanes, int64_t k,
               int64_t n, void *dst, size_t step);
  const void *arg; /* for pack */
  int64_t run;     /* for pack of A: k lies contiguous in stretches of so many; 0: in none worth while */
  bool stretches;  /* for pack of B: its panels may be struct gemm_stretches */
};

/* What happens to a sum before it is stored. Vectors have N elements of the accumulator's type (float for float,
 * half and bfloat16; double for double); NULL: none. */
struct gemm_epilogue {
  const void *scale, *bias;
  const void *add; /* a matrix like C, added after the bias */
  int64_t ld_add;
  enum gemm_act act;
  float alpha; /* of LeakyRelu */
  /* (optional; where sums are kept in float) The last step: n of them, of a row, from column j0 on, before they are
   * rounded. Each element comes once, from any thread. */
  void (*last)(const void *arg, float *sums, int64_t row, int64_t j0, int64_t n);
  const void *arg; /* for last */
};

struct gemm {
  int64_t m, n, k;
  struct gemm_operand a, b; /* m x k, k x n */
  void *c;
  shoal_dtype type; /* of C; that of A and B, or float for half and bfloat16 operands */
  int64_t ldc;
  bool accumulate; /* C += A B; only without an epilogue, and C of the accumulator's type */
  const struct gemm_epilogue *epilogue;
};

/* All of TensorFlow's matmul types. RESOURCE_EXHAUSTED when there is no room to pack. pool may be NULL. */
shoal_status gemm_run(struct pool *pool, const struct gemm *g);
/* Many products of one shape: `count` of them, operands and results at the pointers given. */
shoal_status gemm_batch(struct pool *pool, const struct gemm *g, int64_t count, const void *const *a,
                        const void *const *b, void *const *c);
/* The type sums are kept in. */
shoal_dtype gemm_acc_type(shoal_dtype t);
/* For pack functions: packs, into one panel, a strided block whose lane i, step p is at data[i * lane_stride + p *
 * k_stride]. */
void gemm_pack_block(const struct gemm_panel *panel, const void *data, shoal_dtype type, int64_t lane_stride,
                     int64_t k_stride, bool conj, int lanes, int64_t n, void *dst);
/* May rows of a panel stay where they are, so far apart? Those a power of two apart fall on the same few sets of the
 * first-level cache. */
bool gemm_rows_may_stay(int64_t step);
/* The name of the kernel a product of this type and size would use: for benchmarks and status pages. */
const char *gemm_kernel_name(shoal_dtype type, int64_t m, int64_t n);
/* Applies an activation to n values in place. */
void gemm_activate(float *x, int64_t n, enum gemm_act act, float alpha);
void gemm_activate_double(double *x, int64_t n, enum gemm_act act, double alpha);
/* By TensorFlow's name ("Relu", "GeluExact", ...); false when unknown. */
bool gemm_act_from_name(const char *name, enum gemm_act *out);

#endif
