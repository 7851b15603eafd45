/* Matrices in compressed rows (CSRSparseMatrix), as values in variants. One matrix, or a batch of them of one shape:
 *
 *   offset = batch_start[b] + row_start[b * (rows + 1) + r]    the first entry of row r of matrix b
 *   columns[offset...], values[offset...]                      its entries
 *
 * All of a matrix is checked where it comes from outside, so that the ops can follow it without looking. */
#ifndef OPS_SPARSE_CSR_H
#define OPS_SPARSE_CSR_H

#include "ops/array/array_util.h"

struct csr {
  struct variant head;
  shoal_dtype dtype;
  int rank; /* 2, or 3 with a batch */
  int64_t batch, rows, cols;
  struct tensor shape;                           /* int64 [rank] */
  struct tensor batch_start, row_start, columns; /* int32 [batch + 1], [batch * (rows + 1)], [entries] */
  struct tensor values;                          /* dtype [entries] */
};

/* The matrix of input i; it must hold values of dtype (0: any). */
shoal_status csr_in(const struct kernel_ctx *ctx, int i, shoal_dtype dtype, const struct csr **out);
/* Output 0 becomes the matrix, whose reference is taken over. */
shoal_status csr_out(struct kernel_ctx *ctx, struct csr *m);
/* A matrix with room for that many entries; the pointers are zero. */
shoal_status csr_new(shoal_dtype dtype, int rank, int64_t batch, int64_t rows, int64_t cols, int64_t entries,
                     struct csr **out);

static inline int64_t csr_entries(const struct csr *m) { return m->columns.n; }
static inline const int32_t *csr_rows(const struct csr *m, int64_t b) {
  return T_DATA(&m->row_start, const int32_t) + b * (m->rows + 1);
}
static inline int64_t csr_offset(const struct csr *m, int64_t b) { return T_DATA(&m->batch_start, const int32_t)[b]; }
/* Entry i as a complex number, whatever the type; and one put there. */
c128 csr_get(const struct tensor *values, int64_t i);
void csr_put(struct tensor *values, int64_t i, c128 v);

#define CSR_TYPES (DT(FLOAT32) | DT(FLOAT64) | DT_COMPLEX)

/* For gradients: a matrix as the three parts of a sparse tensor, where its entries are and what they are. */
struct shoal_node *csr_pattern(struct grad_ctx *c, shoal_out matrix, shoal_dtype type);

#endif
