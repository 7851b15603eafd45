/* Gradients of linear algebra ops, as graphs over the same ops. */
#include <limits.h>

#include "ops/array/array_util.h"
#include "ops/math/grad_help.h"
#include "ops/linalg/linalg.h"

static shoal_out matmul(struct grad_ctx *c, shoal_out a, bool adj_a, shoal_out b, bool adj_b) {
  struct build m = build_begin(c->g, "BatchMatMulV2", NULL);
  build_in(&m, a);
  build_in(&m, b);
  build_attr_bool(&m, "adj_x", adj_a);
  build_attr_bool(&m, "adj_y", adj_b);
  return build_end_out(&m);
}

/* The last two dimensions exchanged; conjugated too. */
static shoal_out adjoint(struct grad_ctx *c, shoal_out x) {
  struct shape s = out_shape(x);
  shoal_out perm;
  if (s.rank >= 2) {
    int64_t order[SHOAL_MAX_RANK];
    for (int i = 0; i < s.rank; i++) order[i] = i;
    order[s.rank - 1] = s.rank - 2;
    order[s.rank - 2] = s.rank - 1;
    perm = build_const_ints(c->g, SHOAL_INT32, order, s.rank);
  } else {
    shoal_out rank = array_rank(c->g, x), one = build_const_int(c->g, SHOAL_INT32, 1);
    shoal_out batch = build_op3(c->g, "Range", build_const_int(c->g, SHOAL_INT32, 0),
                                g_sub(c, rank, build_const_int(c->g, SHOAL_INT32, 2)), one);
    shoal_out last = g_sub(c, rank, build_const_ints(c->g, SHOAL_INT32, (int64_t[]){1, 2}, 2));
    perm = array_concat(c->g, (shoal_out[]){batch, last}, 2, 0);
  }
  return g_conj(c, array_transpose(c->g, x, perm));
}

static shoal_out with_bools(struct grad_ctx *c, const char *op, shoal_out a, shoal_out b, const char *name1, bool v1,
                            const char *name2, bool v2) {
  struct build n = build_begin(c->g, op, NULL);
  build_in(&n, a);
  if (b.node) build_in(&n, b);
  build_attr_bool(&n, name1, v1);
  if (name2) build_attr_bool(&n, name2, v2);
  return build_end_out(&n);
}

static shoal_out inverse(struct grad_ctx *c, shoal_out a, bool adj) {
  return with_bools(c, "MatrixInverse", a, (shoal_out){0}, "adjoint", adj, NULL, false);
}
static shoal_out triangular_solve(struct grad_ctx *c, shoal_out a, shoal_out b, bool lower, bool adj) {
  return with_bools(c, "MatrixTriangularSolve", a, b, "lower", lower, "adjoint", adj);
}

/* The lower (or upper) triangle with the diagonal. */
static shoal_out triangle(struct grad_ctx *c, shoal_out a, bool lower) {
  return build_op3(c->g, "MatrixBandPart", a, build_const_int(c->g, SHOAL_INT64, lower ? -1 : 0),
                   build_const_int(c->g, SHOAL_INT64, lower ? 0 : -1));
}

static shoal_out halve_diagonal(struct grad_ctx *c, shoal_out a) {
  return g_op2(c, "MatrixSetDiag", a, g_scale(c, g_op(c, "MatrixDiagPart", a), 0.5));
}

/* x with two dimensions of size 1 at its end. */
static shoal_out as_matrices(struct grad_ctx *c, shoal_out x) {
  return array_expand(c->g, array_expand(c->g, x, -1), -1);
}

static shoal_status flag(struct grad_ctx *c, const char *name, bool *out) { return node_get_bool(c->node, name, out); }

/* L^-H (phi(L^H dL)) L^-1 made self-adjoint; phi: lower triangle, half the diagonal. */
shoal_status linalg_cholesky_grad(struct grad_ctx *c) {
  shoal_out l = gout(c, 0), middle = triangle(c, halve_diagonal(c, matmul(c, l, true, grad_dy(c, 0), false)), true);
  shoal_out left = triangular_solve(c, l, middle, true, true);                    /* L^-H phi */
  shoal_out a = adjoint(c, triangular_solve(c, l, adjoint(c, left), true, true)); /* (L^-H X^H)^H = X L^-1 */
  grad_set(c, 0, g_scale(c, g_add(c, a, adjoint(c, a)), 0.5));
  return NULL;
}

shoal_status linalg_inverse_grad(struct grad_ctx *c) {
  bool adj;
  TRY(flag(c, "adjoint", &adj));
  shoal_out y = gout(c, 0), dy = grad_dy(c, 0);
  /* With adjoint the output is A^-H: the gradient of A is the adjoint of that of A^H. */
  shoal_out d = g_neg(c, matmul(c, y, true, matmul(c, dy, false, y, true), false));
  grad_set(c, 0, adj ? adjoint(c, d) : d);
  return NULL;
}

shoal_status linalg_determinant_grad(struct grad_ctx *c) {
  shoal_out scale = g_mul(c, grad_dy(c, 0), gout(c, 0));
  if (dtype_complex(out_type(scale))) scale = g_mul(c, grad_dy(c, 0), g_conj(c, gout(c, 0)));
  grad_set(c, 0, g_mul(c, as_matrices(c, scale), inverse(c, gin(c, 0), true)));
  return NULL;
}

shoal_status linalg_log_determinant_grad(struct grad_ctx *c) {
  grad_set(c, 0, g_mul(c, as_matrices(c, grad_dy(c, 1)), inverse(c, gin(c, 0), true)));
  return NULL;
}

shoal_status linalg_solve_grad(struct grad_ctx *c) {
  bool adj;
  TRY(flag(c, "adjoint", &adj));
  shoal_out x = gout(c, 0);
  shoal_out gb = with_bools(c, "MatrixSolve", gin(c, 0), grad_dy(c, 0), "adjoint", !adj, NULL, false);
  grad_set(c, 0, g_neg(c, adj ? matmul(c, x, false, gb, true) : matmul(c, gb, false, x, true)));
  grad_set(c, 1, gb);
  return NULL;
}

shoal_status linalg_triangular_solve_grad(struct grad_ctx *c) {
  bool adj, lower;
  TRY(flag(c, "adjoint", &adj));
  TRY(flag(c, "lower", &lower));
  shoal_out x = gout(c, 0), gb = triangular_solve(c, gin(c, 0), grad_dy(c, 0), lower, !adj);
  shoal_out ga = g_neg(c, adj ? matmul(c, x, false, gb, true) : matmul(c, gb, false, x, true));
  ga = triangle(c, ga, lower);
  /* Only the batches were broadcast: each gradient against its own shape. */
  grad_set(c, 0, grad_unbroadcast(c->g, ga, gin(c, 0), ga, 0));
  grad_set(c, 1, grad_unbroadcast(c->g, gb, gin(c, 1), gb, 0));
  return NULL;
}

/* (A^H A + l I)^-1 b by its Cholesky factor, or with A A^H. */
static shoal_out regularized_factor(struct grad_ctx *c, shoal_out a, shoal_out l2, bool first_kind) {
  shoal_out g = matmul(c, a, first_kind, a, !first_kind);
  shoal_out d = g_op(c, "MatrixDiagPart", g);
  return g_op(c, "Cholesky", g_op2(c, "MatrixSetDiag", g, g_add(c, d, l2)));
}
static shoal_out factor_solve(struct grad_ctx *c, shoal_out factor, shoal_out b) {
  return triangular_solve(c, factor, triangular_solve(c, factor, b, true, false), true, true);
}

shoal_status linalg_least_squares_grad(struct grad_ctx *c) {
  bool fast;
  TRY(flag(c, "fast", &fast));
  if (!fast) return INVALID("Gradient not defined for fast=False");
  shoal_out a = gin(c, 0), b = gin(c, 1), x = gout(c, 0), dy = grad_dy(c, 0);
  struct shape s = out_shape(a);
  if (s.rank < 2 || s.dims[s.rank - 2] < 0 || s.dims[s.rank - 1] < 0)
    return UNIMPLEMENTED("The gradient of %s needs a matrix of known size", c->node->op->name);
  shoal_out l2 = build_cast(c->g, gin(c, 2), out_type(a));
  bool tall = s.dims[s.rank - 2] >= s.dims[s.rank - 1];
  shoal_out factor = regularized_factor(c, a, l2, tall);
  if (tall) {
    shoal_out z = factor_solve(c, factor, dy), xz = matmul(c, x, false, z, true);
    shoal_out both = g_add(c, xz, adjoint(c, xz));
    grad_set(c, 0, g_sub(c, matmul(c, b, false, z, true), matmul(c, a, false, both, false)));
    grad_set(c, 1, matmul(c, a, false, z, false));
    return NULL;
  }
  shoal_out gb = factor_solve(c, factor, matmul(c, a, false, dy, false)), t = factor_solve(c, factor, b);
  shoal_out a1 = g_neg(c, matmul(c, gb, false, matmul(c, t, true, a, false), false));
  shoal_out a2 = matmul(c, t, false, g_sub(c, dy, matmul(c, a, true, gb, false)), true);
  grad_set(c, 0, g_add(c, a1, a2));
  grad_set(c, 1, gb);
  return NULL;
}

/* x R^-H for upper triangular R. */
static shoal_out solve_right(struct grad_ctx *c, shoal_out x, shoal_out r) {
  return adjoint(c, triangular_solve(c, r, adjoint(c, x), false, false));
}

shoal_status linalg_qr_grad(struct grad_ctx *c) {
  shoal_out q = gout(c, 0), r = gout(c, 1);
  struct shape s = out_shape(r);
  if (dtype_complex(out_type(q)))
    return UNIMPLEMENTED("QrGrad not implemented for dtype: %s", dtype_tf_name(out_type(q)));
  if (s.rank < 2 || s.dims[s.rank - 2] < 0 || s.dims[s.rank - 1] < 0)
    return UNIMPLEMENTED("QrGrad not implemented with dynamic shapes.");
  if (s.dims[s.rank - 2] != s.dims[s.rank - 1])
    return UNIMPLEMENTED("QrGrad not implemented when ncols > nrows or full_matrices is true and ncols != nrows.");
  shoal_out dq = grad_dy(c, 0), dr = grad_dy(c, 1);
  shoal_out qdq = matmul(c, q, true, dq, false), rdr = matmul(c, r, false, dr, true);
  shoal_out odd = g_add(c, g_sub(c, qdq, adjoint(c, qdq)), g_sub(c, rdr, adjoint(c, rdr)));
  shoal_out a = matmul(c, q, false, g_add(c, dr, solve_right(c, triangle(c, odd, true), r)), false);
  shoal_out b = solve_right(c, g_sub(c, dq, matmul(c, q, false, qdq, false)), r);
  grad_set(c, 0, g_add(c, a, b));
  return NULL;
}

/* 1 / (v_j - v_i) off the diagonal, 0 on it. */
static shoal_out differences(struct grad_ctx *c, shoal_out v, bool safe) {
  shoal_out d = g_sub(c, array_expand(c->g, v, -2), array_expand(c->g, v, -1));
  shoal_out inv = safe ? g_op2(c, "DivNoNan", g_num(c, d, 1), d) : g_op(c, "Reciprocal", d);
  return g_op2(c, "MatrixSetDiag", inv, g_zeros_like(c, v));
}

shoal_status linalg_svd_grad(struct grad_ctx *c) {
  bool vectors, full;
  TRY(flag(c, "compute_uv", &vectors));
  TRY(flag(c, "full_matrices", &full));
  shoal_out a = gin(c, 0), ds = g_op(c, "MatrixDiag", grad_dy(c, 0));
  if (!vectors) {
    struct build n = build_begin(c->g, "Svd", NULL);
    build_in(&n, a);
    struct shoal_node *svd = build_end(&n);
    if (!svd) return NULL;
    grad_set(c, 0, matmul(c, node_out(svd, 1), false, matmul(c, ds, false, node_out(svd, 2), true), false));
    return NULL;
  }
  if (dtype_complex(out_type(a))) return UNIMPLEMENTED("The gradient of Svd is not supported for complex matrices");
  struct shape shape = out_shape(a);
  if (shape.rank < 2 || shape.dims[shape.rank - 2] < 0 || shape.dims[shape.rank - 1] < 0)
    return UNIMPLEMENTED("SVD gradient has not been implemented for input with unknown inner matrix shape.");
  int64_t m = shape.dims[shape.rank - 2], n = shape.dims[shape.rank - 1];
  if (full && m != n) return UNIMPLEMENTED("svd gradient is not implemented for full matrices that are not square");
  shoal_out s = gout(c, 0), u = gout(c, 1), v = gout(c, 2), du = grad_dy(c, 1), dv = grad_dy(c, 2);
  bool turned = m > n; /* then for the transpose, which has u and v exchanged */
  if (turned) {
    shoal_out t = u;
    u = v;
    v = t;
    t = du;
    du = dv;
    dv = t;
  }
  shoal_out s_mat = g_op(c, "MatrixDiag", s), f = differences(c, g_square(c, s), true);
  shoal_out fu = g_mul(c, f, matmul(c, u, true, du, false)), fv = g_mul(c, f, matmul(c, v, true, dv, false));
  shoal_out core = g_add(c, ds, matmul(c, g_add(c, fu, adjoint(c, fu)), false, s_mat, false));
  core = g_add(c, core, matmul(c, s_mat, false, g_add(c, fv, adjoint(c, fv)), false));
  shoal_out d = matmul(c, u, false, matmul(c, core, false, v, true), false);
  if (m != n) {
    shoal_out gvt = adjoint(c, dv), inv = g_op(c, "MatrixDiag", g_op2(c, "DivNoNan", g_num(c, s, 1), s));
    shoal_out rest = g_sub(c, gvt, matmul(c, matmul(c, gvt, false, v, false), false, v, true));
    d = g_add(c, d, matmul(c, matmul(c, u, false, inv, false), false, rest, false));
  }
  grad_set(c, 0, turned ? adjoint(c, d) : d);
  return NULL;
}

shoal_status linalg_self_adjoint_eig_grad(struct grad_ctx *c) {
  bool vectors;
  TRY(flag(c, "compute_v", &vectors));
  shoal_out de = g_op(c, "MatrixDiag", grad_dy(c, 0)), v, inner = de;
  if (vectors) {
    v = gout(c, 1);
    inner = g_add(c, de, g_mul(c, differences(c, gout(c, 0), false), matmul(c, v, true, grad_dy(c, 1), false)));
  } else {
    struct build n = build_begin(c->g, "SelfAdjointEigV2", NULL);
    build_in(&n, gin(c, 0));
    struct shoal_node *eig = build_end(&n);
    if (!eig) return NULL;
    v = node_out(eig, 1);
  }
  shoal_out a = matmul(c, v, false, matmul(c, inner, false, v, true), false);
  /* Only the lower triangle is read. */
  grad_set(c, 0, halve_diagonal(c, triangle(c, g_add(c, a, adjoint(c, a)), true)));
  return NULL;
}

/* v diag(de) v^-1 for the values alone; the vectors' part as in Boeddeker et al., "On the Computation of Complex-valued
 * Gradients" (4.77), for distinct eigenvalues. Vectors have unit length: what would change it is taken out. */
shoal_status linalg_eig_grad(struct grad_ctx *c) {
  bool vectors;
  TRY(flag(c, "compute_v", &vectors));
  shoal_out v, inner = g_op(c, "MatrixDiag", grad_dy(c, 0));
  if (vectors) {
    v = gout(c, 1);
    shoal_out along = matmul(c, v, true, grad_dy(c, 1), false);
    struct build n = build_begin(c->g, "Real", NULL);
    build_in(&n, g_op(c, "MatrixDiagPart", along));
    build_attr_type(&n, "Tout", out_type(along) == SHOAL_COMPLEX128 ? SHOAL_FLOAT64 : SHOAL_FLOAT32);
    shoal_out real = build_cast(c->g, build_end_out(&n), out_type(along));
    shoal_out length = matmul(c, matmul(c, v, true, v, false), false, g_op(c, "MatrixDiag", real), false);
    inner = g_add(c, inner, g_mul(c, g_conj(c, differences(c, gout(c, 0), false)), g_sub(c, along, length)));
  } else {
    struct build n = build_begin(c->g, "Eig", NULL);
    build_in(&n, gin(c, 0));
    build_attr_type(&n, "Tout", out_type(gout(c, 0)));
    struct shoal_node *eig = build_end(&n);
    if (!eig) return NULL;
    v = node_out(eig, 1);
  }
  shoal_out vt = adjoint(c, v);
  grad_set(c, 0,
           build_cast(c->g, g_op2(c, "MatrixSolve", vt, matmul(c, inner, false, vt, false)), out_type(gin(c, 0))));
  return NULL;
}

/* With R R = A: R^H X + X R^H = dR is linear in X; as one system of m * m unknowns, its matrix is a sum of two
 * Kronecker products. */
shoal_status linalg_square_root_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out r = gout(c, 0), turned = g_conj(c, adjoint(c, r));
  shoal_out one = g_op2(c, "MatrixSetDiag", g_zeros_like(c, r), g_op(c, "OnesLike", g_op(c, "MatrixDiagPart", r)));
  shoal_out left =
      g_mul(c, array_expand(g, array_expand(g, turned, -1), -3), array_expand(g, array_expand(g, one, -2), -4));
  shoal_out right =
      g_mul(c, array_expand(g, array_expand(g, one, -1), -3), array_expand(g, array_expand(g, r, -2), -4));
  shoal_out shape = array_shape(g, r, SHOAL_INT32), m = array_part(g, shape, -1, INT_MAX);
  shoal_out batch = array_part(g, shape, 0, -2), all = g_mul(c, m, m);
  shoal_out unit = build_const_ints(g, SHOAL_INT32, (int64_t[]){1}, 1);
  shoal_out system = array_reshape(g, g_add(c, left, right), array_concat(g, (shoal_out[]){batch, all, all}, 3, 0));
  shoal_out dy = array_reshape(g, grad_dy(c, 0), array_concat(g, (shoal_out[]){batch, all, unit}, 3, 0));
  grad_set(c, 0, array_reshape(g, g_op2(c, "MatrixSolve", system, dy), shape));
  return NULL;
}

/* ---- bands ---- */

shoal_status linalg_banded_solve_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  bool adj, lower;
  TRY(flag(c, "adjoint", &adj));
  TRY(flag(c, "lower", &lower));
  shoal_out a = gin(c, 0), x = gout(c, 0);
  shoal_out gb = with_bools(c, "BandedTriangularSolve", a, grad_dy(c, 0), "lower", lower, "adjoint", !adj);
  shoal_out ga = g_neg(c, adj ? matmul(c, x, false, gb, true) : matmul(c, gb, false, x, true));
  shoal_out zero = build_const_ints(g, SHOAL_INT32, (int64_t[]){0}, 1);
  shoal_out last = g_sub(c, array_part(g, array_shape(g, a, SHOAL_INT32), -2, -1), g_op(c, "OnesLike", zero));
  struct build b = build_begin(g, "MatrixDiagPartV3", NULL);
  build_in(&b, ga);
  build_in(&b, array_concat(g, lower ? (shoal_out[]){g_neg(c, last), zero} : (shoal_out[]){zero, last}, 2, 0));
  build_in(&b, build_const_float(g, out_type(ga), 0));
  build_attr_string(&b, "align", "LEFT_RIGHT");
  ga = build_end_out(&b);
  struct shape bands = out_shape(a);
  if (bands.rank >= 2 && bands.dims[bands.rank - 2] == 1) ga = array_expand(g, ga, -2); /* one band comes as a vector */
  grad_set(c, 0, grad_unbroadcast(g, ga, a, ga, 0));
  grad_set(c, 1, grad_unbroadcast(g, gb, gin(c, 1), gb, 0));
  return NULL;
}

/* Rows moved up by one (or down), a row of zeros behind (or before): the product with a matrix that has ones beside its
 * diagonal. like: a diagonal, [..., 1, m]. */
static shoal_out shift(struct grad_ctx *c, shoal_out rows, shoal_out like, bool up) {
  shoal_out ones = g_op(c, "OnesLike", like), zeros = g_zeros_like(c, like);
  struct build b = build_begin(c->g, "TridiagonalMatMul", NULL);
  build_in(&b, up ? ones : zeros);
  build_in(&b, zeros);
  build_in(&b, up ? zeros : ones);
  build_in(&b, rows);
  return build_end_out(&b);
}

/* The sum over the last dimension, as a diagonal. */
static shoal_out diagonal_sum(struct grad_ctx *c, shoal_out x) {
  return array_expand(c->g, array_sum(c->g, x, build_const_ints(c->g, SHOAL_INT32, (int64_t[]){-1}, 1), false), -2);
}

shoal_status linalg_tridiagonal_multiply_grad(struct grad_ctx *c) {
  shoal_out like = gin(c, 1), dy = grad_dy(c, 0), x = g_conj(c, gin(c, 3));
  shoal_out above = g_mul(c, adjoint(c, gin(c, 0)), dy), at = g_mul(c, adjoint(c, like), dy);
  shoal_out below = g_mul(c, adjoint(c, gin(c, 2)), dy);
  grad_set(c, 0, diagonal_sum(c, g_mul(c, shift(c, x, like, true), dy)));
  grad_set(c, 1, diagonal_sum(c, g_mul(c, x, dy)));
  grad_set(c, 2, diagonal_sum(c, g_mul(c, shift(c, x, like, false), dy)));
  grad_set(c, 3, g_add(c, g_add(c, shift(c, above, like, false), at), shift(c, below, like, true)));
  return NULL;
}

/* The transposed system gives the right side's gradient; nothing is conjugated, as in TensorFlow. */
shoal_status linalg_tridiagonal_solve_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  bool pivoting, perturb;
  TRY(flag(c, "partial_pivoting", &pivoting));
  TRY(flag(c, "perturb_singular", &perturb));
  struct build b = build_begin(g, "Split", NULL);
  build_in(&b, build_const_int(g, SHOAL_INT32, -2));
  build_in(&b, gin(c, 0));
  build_attr_int(&b, "num_split", 3);
  struct shoal_node *diagonals = build_end(&b);
  if (!diagonals) return NULL;
  shoal_out above = node_out(diagonals, 0), at = node_out(diagonals, 1), below = node_out(diagonals, 2);
  shoal_out up = adjoint(c, shift(c, adjoint(c, below), at, true)),
            down = adjoint(c, shift(c, adjoint(c, above), at, false));
  shoal_out transposed = array_concat(g, (shoal_out[]){up, at, down}, 3, -2);
  shoal_out gb = with_bools(c, "TridiagonalSolve", transposed, grad_dy(c, 0), "partial_pivoting", pivoting,
                            "perturb_singular", perturb);
  shoal_out x = gout(c, 0);
  shoal_out sums[3] = {diagonal_sum(c, g_mul(c, gb, shift(c, x, at, true))), diagonal_sum(c, g_mul(c, gb, x)),
                       diagonal_sum(c, g_mul(c, gb, shift(c, x, at, false)))};
  grad_set(c, 0, g_neg(c, array_concat(g, sums, 3, -2)));
  grad_set(c, 1, gb);
  return NULL;
}
