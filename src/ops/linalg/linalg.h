/* Linear algebra on batches of matrices: what the driver (linalg.c) and the routines for one matrix (linalg_one.inc,
 * made for each type by linalg_types.c) share. */
#ifndef OPS_LINALG_LINALG_H
#define OPS_LINALG_LINALG_H

#include "runtime/kernel.h"

enum { LINALG_MAX_ARGS = 4 };

enum linalg_op {
  LINALG_CHOLESKY,
  LINALG_CHOLESKY_GRAD,
  LINALG_INVERSE,
  LINALG_DETERMINANT,
  LINALG_LOG_DETERMINANT,
  LINALG_SOLVE,
  LINALG_TRIANGULAR_SOLVE,
  LINALG_LEAST_SQUARES,
  LINALG_QR,
  LINALG_SVD,
  LINALG_SELF_ADJOINT_EIG,
  LINALG_EIG,
  LINALG_LU,
  LINALG_EXPONENTIAL,
  LINALG_LOGARITHM,
  LINALG_SQUARE_ROOT,
  LINALG_BANDED_SOLVE,
  LINALG_TRIDIAGONAL_SOLVE,
  LINALG_TRIDIAGONAL_MULTIPLY,
  LINALG_OPS,
};

/* One node's task: sizes are those of a single matrix. Matrices lie by rows, as tensors do. */
struct linalg {
  enum linalg_op op;
  int rows, cols, rhs; /* of input 0; columns of the right-hand side */
  bool adjoint, lower, vectors, full, fast, pivoting, perturb, wide_index;
  bool together; /* SelfAdjointEig: values and vectors in one matrix */
  double regularizer;
};

/* Works on one matrix of each argument; in[] is read-only, out[] is filled. */
typedef shoal_status (*linalg_fn)(const struct linalg *k, const void *const *in, void *const *out);

/* Indexed by op; NULL where the type has none. */
extern const linalg_fn linalg_f32[LINALG_OPS], linalg_f64[LINALG_OPS], linalg_c64[LINALG_OPS], linalg_c128[LINALG_OPS];

/* Gradients: linalg_grad.c. */
struct grad_ctx;
shoal_status linalg_cholesky_grad(struct grad_ctx *c);
shoal_status linalg_inverse_grad(struct grad_ctx *c);
shoal_status linalg_determinant_grad(struct grad_ctx *c);
shoal_status linalg_log_determinant_grad(struct grad_ctx *c);
shoal_status linalg_solve_grad(struct grad_ctx *c);
shoal_status linalg_triangular_solve_grad(struct grad_ctx *c);
shoal_status linalg_least_squares_grad(struct grad_ctx *c);
shoal_status linalg_qr_grad(struct grad_ctx *c);
shoal_status linalg_svd_grad(struct grad_ctx *c);
shoal_status linalg_self_adjoint_eig_grad(struct grad_ctx *c);
shoal_status linalg_eig_grad(struct grad_ctx *c);
shoal_status linalg_square_root_grad(struct grad_ctx *c);
shoal_status linalg_banded_solve_grad(struct grad_ctx *c);
shoal_status linalg_tridiagonal_multiply_grad(struct grad_ctx *c);
shoal_status linalg_tridiagonal_solve_grad(struct grad_ctx *c);

#endif
