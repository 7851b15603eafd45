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

#define GEMV(name, type)                                                                  \
  static void name(void *arg, int64_t begin, int64_t end) {                               \
    const struct gemv_job *j = arg;                                                       \
    const struct gemm *g = j->g;                                                          \
    const type *x = j->x, *m = j->matrix;                                                 \
    type y[STRIP];                                                                        \
    for (int64_t at = begin; at < end; at += STRIP) {                                     \
      int64_t n = MIN(STRIP, end - at), k = g->k;                                         \
      if (j->k_runs) {                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                 \
          const type *row = m + (at + i) * j->ld;                                         \
          type s[LANES] = {0}, sum = 0;                                                   \
          int64_t p = 0;                                                                  \
          for (; p + LANES <= k; p += LANES)                                              \
            for (int l = 0; l < LANES; l++) s[l] += row[p + l] * x[p + l];                \
          for (; p < k; p++) sum += row[p] * x[p];                                        \
          y[i] = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7])) + sum; \
        }                                                                                 \
      } else {                                                                            \
        memset(y, 0, sizeof y);                                                           \
        for (int64_t p = 0; p < k; p++) {                                                 \
          const type *row = m + p * j->ld + at, v = x[p];                                 \
          for (int64_t i = 0; i < n; i++) y[i] += row[i] * v;                             \
        }                                                                                 \
      }                                                                                   \
      type *c = g->c;                                                                     \
      if (!j->flipped) {                                                                  \
        if (g->accumulate)                                                                \
          for (int64_t i = 0; i < n; i++) y[i] += c[j->which * g->ldc + at + i];          \
        gemm_finish_row(g, y, j->which, at, n);                                           \
      } else {                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                 \
          if (g->accumulate) y[i] += c[(at + i) * g->ldc + j->which];                     \
          gemm_finish_row(g, y + i, at + i, j->which, 1);                                 \
        }                                                                                 \
      }                                                                                   \
    }                                                                                     \
  }

GEMV(run_float, float)
GEMV(run_double, double)

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
