/* A vector times a matrix, float and double. When C has a few columns instead of a few rows, the transposed
 * product is the same with the roles exchanged. The matrix is walked as it lies in memory: along k (dot
 * products with eight partial sums) or across it (rows added up, a strip of columns at a time). */
#include "math/gemv.h"

#include <string.h>

#include "base/mem.h"
#include "math/gemm_epilogue.h"
#include "tensor/buffer.h"

enum { FEW = 3, STRIP = 512, LANES = 8 };

bool gemv_suits(const struct gemm *g) {
  bool typed = g->a.type == g->b.type && g->a.type == g->type && (g->type == SHOAL_FLOAT32 || g->type == SHOAL_FLOAT64);
  return typed && !g->a.pack && !g->b.pack && MIN(g->m, g->n) <= FEW;
}

struct gemv_job {
  const struct gemm *g;
  bool flipped; /* the vectors are columns of B and the matrix is A */
  bool k_runs;  /* k lies contiguous in the matrix */
  const void *matrix;
  int64_t ld, n; /* the matrix gives n sums for each vector */
  const void *x; /* one vector, contiguous */
  int64_t which; /* its row, or column, in C */
};

#define T float
#define NAME run_float
#include "math/gemv_loops.inc"
#define T double
#define NAME run_double
#include "math/gemv_loops.inc"

shoal_status gemv_run(struct pool *pool, const struct gemm *g) {
  struct gemv_job j = {.g = g, .flipped = g->m > g->n};
  const struct gemm_operand *vectors = j.flipped ? &g->b : &g->a, *matrix = j.flipped ? &g->a : &g->b;
  int64_t count = j.flipped ? g->n : g->m;
  j.n = j.flipped ? g->m : g->n;
  j.matrix = matrix->data;
  j.ld = matrix->ld;
  j.k_runs = j.flipped ? !matrix->trans : matrix->trans;
  bool contiguous = j.flipped ? vectors->trans : !vectors->trans; /* k lies contiguous in the vectors */
  size_t es = dtype_size(g->type);
  struct buffer *copy = NULL;
  if (!contiguous) TRY(buffer_new((size_t)g->k * es, &copy));
  int64_t grain = MAX(STRIP, (int64_t)(1 << 17) / g->k / STRIP * STRIP);
  for (int64_t v = 0; v < count; v++) {
    j.which = v;
    if (contiguous) {
      j.x = (const char *)vectors->data + (size_t)(v * vectors->ld) * es;
    } else {
      for (int64_t p = 0; p < g->k; p++)
        memcpy((char *)copy->data + (size_t)p * es, (const char *)vectors->data + (size_t)(p * vectors->ld + v) * es,
               es);
      j.x = copy->data;
    }
    pool_for(pool, j.n, grain, g->type == SHOAL_FLOAT32 ? run_float : run_double, &j);
  }
  buffer_unref(copy);
  return NULL;
}
