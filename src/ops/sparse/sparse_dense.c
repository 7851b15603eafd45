/* Sparse tensors meeting dense ones: SparseToDense, SparseTensorDenseMatMul, SparseTensorDenseAdd, and the
 * elementwise SparseDenseCwise ops, which broadcast the dense side to the sparse one. */
#include <complex.h>
#include <string.h>

#include "ops/nn/nn_util.h"
#include "ops/sparse/sparse.h"
#include "ops/state/state.h"

/* ---- SparseToDense ---- */

struct to_dense_state {
  bool validate;
};

static shoal_status to_dense_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "validate_indices", &((struct to_dense_state *)state)->validate);
}

/* Sorted, not repeated, inside. */
static shoal_status check_order(const struct tensor *ix, int64_t n, int rank, const struct shape *s) {
  for (int64_t i = 0; i < n; i++) {
    bool inside = true;
    int order = i ? 0 : 1;
    for (int k = 0; k < rank; k++) {
      int64_t v = int_at(ix, i * rank + k);
      inside &= v >= 0 && v < s->dims[k];
      if (!order) {
        int64_t before = int_at(ix, (i - 1) * rank + k);
        order = v > before ? 1 : v < before ? -1 : 0;
      }
    }
    const char *at = ints_str(ix, i * rank, rank, ",");
    if (!inside)
      return INVALID("indices[%" PRId64 "] = %s is out of bounds: need 0 <= index < %s", i, at, shape_str(s));
    if (order < 0)
      return INVALID("indices[%" PRId64
                     "] = %s is out of order. Many sparse ops require sorted indices.\n    Use "
                     "`tf.sparse.reorder` to create a correctly ordered copy.\n\n",
                     i, at);
    if (order == 0) return INVALID("indices[%" PRId64 "] = %s is repeated", i, at);
  }
  return NULL;
}

static shoal_status to_dense_run(struct kernel_ctx *ctx) {
  const struct tensor *ix = ctx_in(ctx, 0), *dims = ctx_in(ctx, 1), *v = ctx_in(ctx, 2), *dflt = ctx_in(ctx, 3);
  if (ix->rank > 2)
    return INVALID("sparse_indices should be a scalar, vector, or matrix, got shape %s", tensor_shape_str(ix));
  int64_t n = ix->rank ? ix->dims[0] : 1, rank = ix->rank == 2 ? ix->dims[1] : 1;
  if (dims->rank != 1) return INVALID("output_shape must be rank 1, got shape %s", tensor_shape_str(dims));
  if (dims->n != rank)
    return INVALID("output_shape has incorrect number of elements: %" PRId64 " should be: %" PRId64, dims->n, rank);
  struct shape s;
  TRY(tensor_get_shape(dims, false, &s));
  if (v->rank > 1 || (v->rank == 1 && v->n != n))
    return INVALID("sparse_values has incorrect shape %s, should be [] or [%" PRId64 "]", tensor_shape_str(v), n);
  if (dflt->rank) return INVALID("default_value should be a scalar.");
  if (((struct to_dense_state *)ctx->state)->validate) TRY(check_order(ix, n, (int)rank, &s));
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  shoal_dtype t = (shoal_dtype)y->dtype;
  size_t size = dtype_size(t);
  elements_fill(ctx_pool(ctx), t, y->data, dflt->data, y->n);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = 0;
    for (int k = 0; k < rank; k++) {
      int64_t p = int_at(ix, i * rank + k);
      if (p < 0 || p >= s.dims[k]) return INVALID("Indices are not valid (out of bounds).  Shape: %s", shape_str(&s));
      at = at * s.dims[k] + p;
    }
    elements_copy(t, (char *)y->data + (size_t)at * size, (const char *)v->data + (v->rank ? (size_t)i * size : 0), 1);
  }
  return NULL;
}

static shoal_status to_dense_shape(struct shape_ctx *c) { return shape_in_value(c, 1, &c->out[0]); }

static shoal_status to_dense_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), values = build_op2(c->g, "GatherNd", dy, gin(c, 0));
  grad_set(c, 2, values);
  grad_set(c, 3, build_op2(c->g, "Sub", array_sum_all(c->g, dy), array_sum_all(c->g, values)));
  return NULL;
}

static const struct kernel_def to_dense_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct to_dense_state), .init = to_dense_init, .run = to_dense_run}, {0}};

/* ---- SparseTensorDenseMatMul ---- */

struct sparse_matmul_state {
  bool adjoint_a, adjoint_b;
};

static shoal_status matmul_get(const struct shoal_node *n, struct sparse_matmul_state *st) {
  TRY(node_get_bool(n, "adjoint_a", &st->adjoint_a));
  return node_get_bool(n, "adjoint_b", &st->adjoint_b);
}

static shoal_status matmul_init(struct kernel_init *ki, void *state) { return matmul_get(ki->node, state); }

struct matmul {
  const struct sparse_matmul_state *st;
  const struct tensor *ix, *v, *b;
  struct tensor *y;
  int64_t cols; /* of the product */
};

#define T float
#define NAME matmul_float
#define CONJ(x) (x)
#include "ops/sparse/sparse_dense_matmul.inc"
#define T double
#define NAME matmul_double
#define CONJ(x) (x)
#include "ops/sparse/sparse_dense_matmul.inc"
#define T uint32_t /* which wraps */
#define NAME matmul_int32
#define CONJ(x) (x)
#include "ops/sparse/sparse_dense_matmul.inc"
#define T c64
#define NAME matmul_c64
#define CONJ(x) conjf(x)
#include "ops/sparse/sparse_dense_matmul.inc"
#define T c128
#define NAME matmul_c128
#define CONJ(x) conj(x)
#include "ops/sparse/sparse_dense_matmul.inc"

/* The short floating types are multiplied and added up as floats. */
static shoal_status as_float(const struct tensor *t, struct tensor *out) {
  struct shape s = tensor_shape(t);
  TRY(tensor_new(out, SHOAL_FLOAT32, &s));
  nn_to_float((shoal_dtype)t->dtype, t->data, out->data, t->n);
  return NULL;
}

static void multiply(struct pool *pool, struct matmul *m, int64_t rows) {
  void (*fn)(void *, int64_t, int64_t);
  switch (m->v->dtype) {
    case SHOAL_FLOAT32: fn = matmul_float; break;
    case SHOAL_FLOAT64: fn = matmul_double; break;
    case SHOAL_INT32: fn = matmul_int32; break;
    case SHOAL_COMPLEX64: fn = matmul_c64; break;
    default: fn = matmul_c128;
  }
  tensor_zero(m->y);
  int64_t parts = m->cols < 4 ? 1 : MIN(pool_threads(pool), m->v->n * m->cols / (COPY_GRAIN / 8) + 1);
  if (parts > 1) pool_for(pool, rows, (rows + parts - 1) / parts, fn, m);
  else fn(m, 0, rows);
}

static shoal_status multiply_short(struct pool *pool, const struct matmul *m, int64_t rows) {
  struct tensor v = {0}, b = {0}, y = {0};
  struct shape s = tensor_shape(m->y);
  shoal_status e = as_float(m->v, &v);
  if (!e) e = as_float(m->b, &b);
  if (!e) e = tensor_new(&y, SHOAL_FLOAT32, &s);
  if (!e) {
    struct matmul f = {.st = m->st, .ix = m->ix, .v = &v, .b = &b, .y = &y, .cols = m->cols};
    multiply(pool, &f, rows);
    nn_from_float((shoal_dtype)m->y->dtype, y.data, m->y->data, y.n);
  }
  tensor_release(&v);
  tensor_release(&b);
  tensor_release(&y);
  return e;
}

static shoal_status matmul_run(struct kernel_ctx *ctx) {
  const struct tensor *ix = ctx_in(ctx, 0), *v = ctx_in(ctx, 1), *as = ctx_in(ctx, 2), *b = ctx_in(ctx, 3);
  const struct sparse_matmul_state *st = ctx->state;
  if (b->rank != 2) return INVALID("Tensor 'b' is not a matrix");
  if (as->rank != 1) return INVALID("Tensor 'a_shape' is not a vector");
  if (as->n != 2) return INVALID("Tensor 'a_shape' must have 2 elements");
  if (v->rank != 1) return INVALID("Tensor 'a_values' is not a vector");
  if (ix->rank != 2) return INVALID("Tensor 'a_indices' is not a matrix");
  if (ix->dims[0] != v->n) return INVALID("Number of rows of a_indices does not match number of entries in a_values");
  if (ix->dims[1] != as->n)
    return INVALID("Number of columns of a_indices does not match number of entries in a_shape");
  int64_t a0 = int_at(as, 0), a1 = int_at(as, 1), outer = st->adjoint_a ? a1 : a0, inner = st->adjoint_a ? a0 : a1;
  if (a0 < 0 || a1 < 0) return INVALID("a_shape must not be negative: [%" PRId64 ", %" PRId64 "]", a0, a1);
  int64_t b_inner = st->adjoint_b ? b->dims[1] : b->dims[0], cols = st->adjoint_b ? b->dims[0] : b->dims[1];
  if (b_inner != inner)
    return INVALID("Cannot multiply A and B because inner dimension does not match: %" PRId64 " vs. %" PRId64
                   ".  Did you forget a transpose?  Dimensions of A: [%" PRId64 ", %" PRId64 ").  Dimensions of B: %s",
                   inner, b_inner, a0, a1, tensor_shape_str(b));
  for (int64_t i = 0; i < v->n; i++) {
    int64_t m = int_at(ix, 2 * i + (st->adjoint_a ? 1 : 0)), k = int_at(ix, 2 * i + (st->adjoint_a ? 0 : 1));
    if (k < 0 || k >= inner)
      return INVALID("k (%" PRId64 ") from index[%" PRId64 ",%d] out of bounds (>=%" PRId64 ")", k, i,
                     st->adjoint_a ? 0 : 1, inner);
    if (m < 0 || m >= outer)
      return INVALID("m (%" PRId64 ") from index[%" PRId64 ",%d] out of bounds (>=%" PRId64 ")", m, i,
                     st->adjoint_a ? 1 : 0, outer);
  }
  struct shape s = shape_matrix(outer, cols);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n || !v->n) {
    tensor_zero(y);
    return NULL;
  }
  struct matmul m = {.st = st, .ix = ix, .v = v, .b = b, .y = y, .cols = cols};
  if (dtype_size((shoal_dtype)v->dtype) == 2) return multiply_short(ctx_pool(ctx), &m, outer);
  multiply(ctx_pool(ctx), &m, outer);
  return NULL;
}

static shoal_status matmul_shape(struct shape_ctx *c) {
  struct sparse_matmul_state st;
  struct shape b;
  TRY(matmul_get(c->node, &st));
  TRY(shape_in_rank(c, 3, 2, &b));
  const struct tensor *as = c->values[2];
  int64_t rows = as && as->n == 2 ? int_at(as, st.adjoint_a ? 1 : 0) : -1;
  c->out[0] = shape_matrix(rows, b.rank == 2 ? b.dims[st.adjoint_b ? 0 : 1] : -1);
  return NULL;
}

static shoal_out column(struct shoal_graph *g, shoal_out indices, int k) {
  int64_t begin[2] = {0, k}, size[2] = {-1, 1}, flat = -1;
  shoal_out part =
      array_slice(g, indices, build_const_ints(g, SHOAL_INT32, begin, 2), build_const_ints(g, SHOAL_INT32, size, 2));
  return array_reshape(g, part, build_const_ints(g, SHOAL_INT32, &flat, 1));
}

static shoal_out adjoint(struct shoal_graph *g, shoal_out x) {
  int64_t perm[2] = {1, 0};
  return build_op2(g, dtype_complex(out_type(x)) ? "ConjugateTranspose" : "Transpose", x,
                   build_const_ints(g, SHOAL_INT32, perm, 2));
}

static shoal_status matmul_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  struct sparse_matmul_state st;
  TRY(matmul_get(c->node, &st));
  shoal_out dy = grad_dy(c, 0), ix = gin(c, 0), b = gin(c, 3);
  bool is_complex = dtype_complex(out_type(dy));
  struct build n = build_begin(g, "SparseTensorDenseMatMul", NULL);
  for (int i = 0; i < 3; i++) build_in(&n, gin(c, i));
  build_in(&n, dy);
  build_attr_bool(&n, "adjoint_a", !st.adjoint_a);
  shoal_out db = build_end_out(&n);
  grad_set(c, 3, st.adjoint_b ? adjoint(g, db) : db);
  shoal_out rows = column(g, ix, st.adjoint_a ? 1 : 0), cols = column(g, ix, st.adjoint_a ? 0 : 1);
  shoal_out parts_a = array_gather(g, dy, rows, 0);
  shoal_out parts_b = array_gather(g, st.adjoint_b ? adjoint(g, b) : b, cols, 0);
  if (is_complex) parts_b = build_op1(g, "Conj", parts_b);
  shoal_out da = array_sum(g, build_op2(g, "Mul", parts_a, parts_b), build_const_int(g, SHOAL_INT32, 1), false);
  if (is_complex && st.adjoint_a) da = build_op1(g, "Conj", da);
  grad_set(c, 1, da);
  return NULL;
}

static const struct kernel_def matmul_kernels[] = {{.device = "CPU",
                                                    .type_attr = "T",
                                                    .types = DT_FLOATING | DT(INT32) | DT_COMPLEX,
                                                    .state_size = sizeof(struct sparse_matmul_state),
                                                    .init = matmul_init,
                                                    .run = matmul_run},
                                                   {0}};

/* ---- SparseTensorDenseAdd ---- */

static shoal_status dense_add_run(struct kernel_ctx *ctx) {
  const struct tensor *ix = ctx_in(ctx, 0), *v = ctx_in(ctx, 1), *as = ctx_in(ctx, 2), *b = ctx_in(ctx, 3);
  if (ix->rank != 2) return INVALID("Input a_indices should be a matrix but received shape: %s", tensor_shape_str(ix));
  if (v->rank != 1 || as->rank != 1)
    return INVALID("Inputs a_values and a_shape should be vectors but received shapes: %s and %s", tensor_shape_str(v),
                   tensor_shape_str(as));
  if (ix->dims[0] != v->n || ix->dims[1] != as->n)
    return INVALID("Dimensions %" PRId64 " and %" PRId64 " are not compatible",
                   ix->dims[0] != v->n ? v->n : ix->dims[1], ix->dims[0] != v->n ? ix->dims[0] : as->n);
  if (as->n != b->rank)
    return INVALID("Two operands have different ranks; received: %" PRId64 " and %d", as->n, b->rank);
  for (int i = 0; i < b->rank; i++)
    if (int_at(as, i) != b->dims[i])
      return INVALID("Dimension %d does not equal (no broadcasting is supported): sparse side %" PRId64
                     " vs dense side %" PRId64,
                     i, int_at(as, i), b->dims[i]);
  for (int64_t i = 0; i < v->n; i++)
    for (int k = 0; k < b->rank; k++) {
      int64_t at = int_at(ix, i * b->rank + k);
      if (at < 0 || at >= b->dims[k])
        return INVALID("Sparse tensor has an invalid index on dimension %d: a_indices(%" PRId64 ",%d) = %" PRId64
                       ", dense tensor shape: %s",
                       k, i, k, at, tensor_shape_str(b));
    }
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 3, &y));
  if (y->data != b->data) elements_copy_parallel(ctx_pool(ctx), (shoal_dtype)b->dtype, y->data, b->data, b->n);
  shoal_dtype t = (shoal_dtype)y->dtype;
  update_fn add = update_find(UPDATE_ADD, t);
  size_t size = dtype_size(t);
  for (int64_t i = 0; i < v->n; i++) {
    int64_t at = 0;
    for (int k = 0; k < y->rank; k++) at = at * y->dims[k] + int_at(ix, i * y->rank + k);
    add(t, (char *)y->data + (size_t)at * size, (const char *)v->data + (size_t)i * size, 1);
  }
  return NULL;
}

static shoal_status dense_add_shape(struct shape_ctx *c) {
  c->out[0] = c->in[3];
  return NULL;
}

static shoal_status dense_add_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  grad_set(c, 1, build_op2(c->g, "GatherNd", dy, gin(c, 0)));
  grad_set(c, 3, dy);
  return NULL;
}

static const struct kernel_def dense_add_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT_NUMBER, .run = dense_add_run}, {0}};

/* ---- SparseDenseCwise ---- */

static shoal_status cwise(struct kernel_ctx *ctx, enum update op) {
  struct sparse s;
  const struct tensor *d = ctx_in(ctx, 3), *v = ctx_in(ctx, 1), *ix = ctx_in(ctx, 0), *ss = ctx_in(ctx, 2);
  if (ix->rank != 2) return INVALID("Input sp_indices should be a matrix but received shape: %s", tensor_shape_str(ix));
  if (v->rank != 1 || ss->rank != 1)
    return INVALID("Inputs sp_values and sp_shape should be vectors but received shapes: %s and %s",
                   tensor_shape_str(v), tensor_shape_str(ss));
  if (ix->dims[0] != v->n)
    return INVALID("The first dimension of values and indices should match. (%" PRId64 " vs. %" PRId64 ")", v->n,
                   ix->dims[0]);
  if (ss->n < 1 || d->rank < 1)
    return INVALID("shape argument must have at least one element, got shapes %s and %s", tensor_shape_str(ss),
                   tensor_shape_str(d));
  TRY(sparse_get(ctx, 0, &s));
  bool fits = d->rank <= s.rank;
  for (int k = 0; fits && k < d->rank; k++) {
    int64_t want = int_at(ss, s.rank - d->rank + k);
    fits = d->dims[k] == want || d->dims[k] == 1;
  }
  if (!fits)
    return INVALID("SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: %s vs. %s",
                   ints_str(ss, 0, ss->n, ","), tensor_shape_str(d));
  for (int64_t i = 0; i < s.n; i++)
    for (int k = 0; k < s.rank; k++)
      if (sparse_index(&s, i, k) < 0 || sparse_index(&s, i, k) >= int_at(ss, k))
        return INVALID("Provided indices are out-of-bounds w.r.t. dense side with broadcasted shape");
  struct tensor *y;
  struct shape vector = shape_vector(s.n);
  TRY(ctx_out(ctx, 0, &vector, &y));
  shoal_dtype t = (shoal_dtype)v->dtype;
  size_t size = dtype_size(t);
  update_fn fn = update_find(op, t);
  if (s.n) memcpy(y->data, v->data, (size_t)s.n * size);
  for (int64_t i = 0; i < s.n; i++) {
    int64_t at = 0;
    for (int k = 0; k < d->rank; k++) {
      int64_t p = d->dims[k] == 1 ? 0 : sparse_index(&s, i, s.rank - d->rank + k);
      at = at * d->dims[k] + p;
    }
    const char *by = (const char *)d->data + (size_t)at * size;
    if (op == UPDATE_DIV && dtype_integer(t)) {
      bool zero = true;
      for (size_t k = 0; k < size; k++) zero &= by[k] == 0;
      if (zero) return INVALID("SparseDenseCwiseDiv cannot divide by zero, but zero is passed in.");
    }
    fn(t, (char *)y->data + (size_t)i * size, by, 1);
  }
  return NULL;
}

static shoal_status cwise_add_run(struct kernel_ctx *ctx) { return cwise(ctx, UPDATE_ADD); }
static shoal_status cwise_mul_run(struct kernel_ctx *ctx) { return cwise(ctx, UPDATE_MUL); }
static shoal_status cwise_div_run(struct kernel_ctx *ctx) { return cwise(ctx, UPDATE_DIV); }

static shoal_status cwise_shape(struct shape_ctx *c) {
  c->out[0] = shape_vector(c->in[0].rank == 2 ? c->in[0].dims[0] : -1);
  return NULL;
}

/* The dense side's elements beside each sparse value, and where they are in it. */
static shoal_out beside(struct grad_ctx *c, shoal_out *scaled) {
  struct shoal_graph *g = c->g;
  shoal_out x = gin(c, 3), ix = gin(c, 0), shape = gin(c, 2);
  shoal_out dims = array_shape(g, x, SHOAL_INT64);
  /* A dense side of lower rank is seen with leading dimensions of 1. */
  shoal_out extra = build_op2(g, "Sub", build_op1(g, "Size", shape), array_rank(g, x));
  shoal_out lead = build_op2(g, "Fill", array_expand(g, extra, 0), build_const_int(g, SHOAL_INT64, 1));
  shoal_out parts[2] = {lead, dims};
  shoal_out full = array_concat(g, parts, 2, 0);
  *scaled = build_op2(g, "FloorDiv", ix, build_op2(g, "FloorDiv", shape, full));
  return build_op2(g, "GatherNd", array_reshape(g, x, full), *scaled);
}

static shoal_status cwise_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  bool mul = op_is(c->node->op, "SparseDenseCwiseMul");
  shoal_out dy = grad_dy(c, 0), values = gin(c, 1), x = gin(c, 3), scaled, dense_values = beside(c, &scaled), dv, dd;
  if (mul) {
    dv = build_op2(g, "Mul", dy, dense_values);
    dd = build_op2(g, "Mul", dy, values);
  } else {
    dv = build_op2(g, "RealDiv", dy, dense_values);
    dd = build_op1(g, "Neg", build_op2(g, "Mul", dv, build_op2(g, "RealDiv", values, dense_values)));
  }
  grad_set(c, 1, dv);
  shoal_out extra = build_op2(g, "Sub", build_op1(g, "Size", gin(c, 2)), array_rank(g, x));
  shoal_out lead = build_op2(g, "Fill", array_expand(g, extra, 0), build_const_int(g, SHOAL_INT64, 1));
  shoal_out parts[2] = {lead, array_shape(g, x, SHOAL_INT64)};
  grad_set(c, 3, array_reshape_like(g, build_op3(g, "ScatterNd", scaled, dd, array_concat(g, parts, 2, 0)), x));
  return NULL;
}

#define CWISE(name)                                   \
  static const struct kernel_def name##_kernels[] = { \
      {.device = "CPU", .type_attr = "T", .types = DT_NUMBER, .run = name##_run}, {0}}
CWISE(cwise_add);
CWISE(cwise_mul);
CWISE(cwise_div);

static const struct op_row rows[] = {
    {.name = "SparseToDense",
     .in = "sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T",
     .out = "dense: T",
     .attrs = "validate_indices: bool = true; T: type; Tindices: {int32, int64}",
     .shape = to_dense_shape,
     .grad = to_dense_grad,
     .kernels = to_dense_kernels},
    {.name = "SparseTensorDenseMatMul",
     .in = "a_indices: Tindices, a_values: T, a_shape: int64, b: T",
     .out = "product: T",
     .attrs = "T: type; Tindices: {int32, int64} = int64; adjoint_a: bool = false; adjoint_b: bool = false",
     .shape = matmul_shape,
     .grad = matmul_grad,
     .kernels = matmul_kernels},
    {.name = "SparseTensorDenseAdd",
     .in = "a_indices: Tindices, a_values: T, a_shape: Tindices, b: T",
     .out = "output: T",
     .attrs = "T: {numbertype}; Tindices: {int32, int64}",
     .shape = dense_add_shape,
     .grad = dense_add_grad,
     .kernels = dense_add_kernels},
    {.name = "SparseDenseCwiseAdd",
     .in = "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T",
     .out = "output: T",
     .attrs = "T: {numbertype}",
     .shape = cwise_shape,
     .kernels = cwise_add_kernels},
    {.name = "SparseDenseCwiseMul",
     .in = "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T",
     .out = "output: T",
     .attrs = "T: {numbertype}",
     .shape = cwise_shape,
     .grad = cwise_grad,
     .kernels = cwise_mul_kernels},
    {.name = "SparseDenseCwiseDiv",
     .in = "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T",
     .out = "output: T",
     .attrs = "T: {numbertype}",
     .shape = cwise_shape,
     .grad = cwise_grad,
     .kernels = cwise_div_kernels},
};
OP_FAMILY(sparse_dense, rows);
