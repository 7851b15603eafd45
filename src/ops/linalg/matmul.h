/* MatMul's kernel, for products that have more fused into them. */
#ifndef OPS_LINALG_MATMUL_H
#define OPS_LINALG_MATMUL_H

#include "math/gemm.h"
#include "runtime/kernel.h"

struct matmul_state {
  bool trans_a, trans_b;
  bool conj;   /* adj_x, adj_y: conjugate as well */
  bool legacy; /* BatchMatMul: no broadcasting; MatMul: ranks must agree */
  bool sparse; /* SparseMatMul's errors */
  struct gemm_epilogue epilogue;
  bool bias, add;
};

shoal_status matmul_shape(struct shape_ctx *c);
shoal_status matmul_init(struct kernel_init *ki, void *state);
/* The rows and columns of the product; inputs 0 and 1 must be matrices, not batches of them. */
shoal_status matmul_sizes(const struct kernel_ctx *ctx, int64_t *m, int64_t *n);
/* Output 0 becomes the product of inputs 0 and 1, with an epilogue (NULL: none). */
shoal_status matmul_run_with(struct kernel_ctx *ctx, const struct gemm_epilogue *e);
/* The same, with input 2 as the bias. */
shoal_status matmul_run_biased(struct kernel_ctx *ctx, const struct gemm_epilogue *e);

#endif
