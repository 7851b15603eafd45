/* SparseFillEmptyRows and RaggedFillEmptyRows, which give every row at least one entry, and their gradients. Both are
 * one routine: the sparse form has `rank` coordinates for each entry of which the first is the row, the ragged form
 * the row alone. */
#include <stdlib.h>
#include <string.h>

#include "ops/sparse/sparse.h"
#include "ops/state/state.h"

/* The entries as both forms have them. */
struct entries {
  const struct tensor *indices, *values, *filler;
  int64_t n, rows, rank;
};

static shoal_status check_rows(const struct entries *e) {
  if (e->filler->rank) return INVALID("default_value must be a scalar, saw: %s", tensor_shape_str(e->filler));
  if (e->rows < 0) return INVALID("dense_shape[0] must not be negative: %" PRId64, e->rows);
  if (e->rows == 0 && e->n)
    return INVALID("Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = %" PRId64, e->n);
  for (int64_t i = 0; i < e->n; i++) {
    int64_t r = int_at(e->indices, i * e->rank);
    if (r < 0) return INVALID("indices(%" PRId64 ", 0) is invalid: %" PRId64 " < 0", i, r);
    if (r >= e->rows) return INVALID("indices(%" PRId64 ", 0) is invalid: %" PRId64 " >= %" PRId64, i, r, e->rows);
  }
  return NULL;
}

static shoal_status sparse_entries(struct kernel_ctx *ctx, struct entries *e) {
  const struct tensor *ix = ctx_in(ctx, 0), *v = ctx_in(ctx, 1), *shape = ctx_in(ctx, 2);
  if (shape->rank != 1) return INVALID("dense_shape must be a vector, saw: %s", tensor_shape_str(shape));
  if (ix->rank != 2) return INVALID("indices must be a matrix, saw: %s", tensor_shape_str(ix));
  if (v->rank != 1) return INVALID("values must be a vector, saw: %s", tensor_shape_str(v));
  if (ix->dims[0] != v->n)
    return INVALID("The length of `values` (%" PRId64 ") must match the first dimension of `indices` (%" PRId64 ").",
                   v->n, ix->dims[0]);
  if (ix->dims[1] != shape->n)
    return INVALID("The length of `dense_shape` (%" PRId64 ") must match the second dimension of `indices` (%" PRId64
                   ").",
                   shape->n, ix->dims[1]);
  if (shape->n == 0) return INVALID("Dense shape cannot be empty.");
  *e = (struct entries){ix, v, ctx_in(ctx, 3), v->n, int_at(shape, 0), shape->n};
  return NULL;
}

static shoal_status ragged_entries(struct kernel_ctx *ctx, struct entries *e) {
  const struct tensor *rows = ctx_in(ctx, 0), *v = ctx_in(ctx, 1), *n = ctx_in(ctx, 2);
  if (n->rank) return INVALID("nrows must be a scalar, saw: %s", tensor_shape_str(n));
  if (rows->rank != 1) return INVALID("value_rowids must be a vector, saw: %s", tensor_shape_str(rows));
  if (v->rank != 1) return INVALID("values must be a vector, saw: %s", tensor_shape_str(v));
  if (rows->n != v->n)
    return INVALID("The length of `values` (%" PRId64 ") must match the first dimension of `value_rowids` (%" PRId64
                   ").",
                   v->n, rows->n);
  *e = (struct entries){rows, v, ctx_in(ctx, 3), v->n, int_at(n, 0), 1};
  return NULL;
}

static void copy_one(const struct tensor *from, int64_t i, struct tensor *to, int64_t k) {
  shoal_dtype t = (shoal_dtype)from->dtype;
  size_t size = dtype_size(t);
  elements_copy(t, (char *)to->data + (size_t)k * size, (const char *)from->data + (size_t)i * size, 1);
}

/* at[row]: where the row's next entry goes. */
static void place(const struct entries *e, int64_t *at, const bool *empty, int64_t *ix, struct tensor *v,
                  int64_t *back) {
  for (int64_t r = 0; r < e->rows; r++) {
    if (!empty[r]) continue;
    for (int64_t k = 0; k < e->rank; k++) ix[at[r] * e->rank + k] = k ? 0 : r;
    copy_one(e->filler, 0, v, at[r]);
  }
  for (int64_t i = 0; i < e->n; i++) {
    int64_t p = at[int_at(e->indices, i * e->rank)]++;
    for (int64_t k = 0; k < e->rank; k++) ix[p * e->rank + k] = int_at(e->indices, i * e->rank + k);
    copy_one(e->values, i, v, p);
    back[i] = p;
  }
}

static shoal_status fill(struct kernel_ctx *ctx, const struct entries *e) {
  TRY(check_rows(e));
  struct shape per_row = shape_vector(e->rows), per_entry = shape_vector(e->n);
  struct tensor *empty, *back, *ix, *v, next;
  TRY(ctx_out(ctx, 2, &per_row, &empty));
  TRY(ctx_out(ctx, 3, &per_entry, &back));
  TRY(ctx_temp(ctx, SHOAL_INT64, &per_row, &next));
  tensor_zero(&next);
  int64_t *at = next.data, total = 0;
  for (int64_t i = 0; i < e->n; i++) at[int_at(e->indices, i * e->rank)]++;
  for (int64_t r = 0; r < e->rows; r++) {
    T_DATA(empty, bool)[r] = at[r] == 0;
    int64_t n = MAX(at[r], 1);
    at[r] = total;
    total += n;
  }
  /* Without rows TensorFlow's indices are a matrix in both forms. */
  int64_t dims[] = {total, e->rank};
  shoal_status bad = ctx_out_dims(ctx, 0, e->indices->rank == 2 || e->rows == 0 ? 2 : 1, dims, &ix);
  if (!bad) bad = ctx_out_dims(ctx, 1, 1, dims, &v);
  if (!bad) place(e, at, empty->data, ix->data, v, back->data);
  tensor_release(&next);
  return bad;
}

static shoal_status run_sparse(struct kernel_ctx *ctx) {
  struct entries e;
  TRY(sparse_entries(ctx, &e));
  return fill(ctx, &e);
}

static shoal_status run_ragged(struct kernel_ctx *ctx) {
  struct entries e;
  TRY(ragged_entries(ctx, &e));
  return fill(ctx, &e);
}

static shoal_status shape_sparse(struct shape_ctx *c) {
  const struct tensor *shape = c->values[2];
  int64_t n = c->in[0].rank == 2 ? c->in[0].dims[0] : -1;
  c->out[0] = shape_matrix(-1, c->in[0].rank == 2 ? c->in[0].dims[1] : -1);
  c->out[1] = shape_vector(-1);
  c->out[2] = shape_vector(shape && shape->n ? MAX(-1, int_at(shape, 0)) : -1);
  c->out[3] = shape_vector(n);
  return NULL;
}

static shoal_status shape_ragged(struct shape_ctx *c) {
  int64_t rows = -1;
  shape_in_int(c, 2, &rows);
  if (rows > 0) c->out[0] = shape_vector(-1);
  c->out[1] = shape_vector(-1);
  c->out[2] = shape_vector(MAX(-1, rows));
  c->out[3] = c->in[0].rank == 1 ? c->in[0] : shape_vector(-1);
  return NULL;
}

/* ---- gradients ---- */

static shoal_status grad(struct grad_ctx *c) {
  bool sparse = op_is(c->node->op, "SparseFillEmptyRows");
  struct build b = build_begin(c->g, sparse ? "SparseFillEmptyRowsGrad" : "RaggedFillEmptyRowsGrad", NULL);
  build_in(&b, gout(c, 3));
  build_in(&b, grad_dy(c, 1));
  struct shoal_node *n = build_end(&b);
  grad_set(c, 1, node_out(n, 0));
  grad_set(c, 3, node_out(n, 1));
  return NULL;
}

static shoal_status scatter(const struct tensor *back, const struct tensor *dy, struct tensor *dv, struct tensor *dd,
                            bool *used) {
  shoal_dtype t = (shoal_dtype)dy->dtype;
  size_t size = dtype_size(t);
  for (int64_t i = 0; i < back->n; i++) {
    int64_t p = int_at(back, i);
    if (p < 0 || p >= dy->n)
      return INVALID("Elements in reverse index must be in [0, %" PRId64 ") but got %" PRId64, dy->n, p);
    memcpy((char *)dv->data + (size_t)i * size, (const char *)dy->data + (size_t)p * size, size);
    used[p] = true;
  }
  update_fn add = update_find(UPDATE_ADD, t);
  for (int64_t p = 0; p < dy->n; p++)
    if (!used[p]) add(t, dd->data, (const char *)dy->data + (size_t)p * size, 1);
  return NULL;
}

static shoal_status run_grad(struct kernel_ctx *ctx) {
  const struct tensor *back = ctx_in(ctx, 0), *dy = ctx_in(ctx, 1);
  if (back->rank != 1) return INVALID("reverse_index_map must be a vector, saw: %s", tensor_shape_str(back));
  if (dy->rank != 1) return INVALID("grad_values must be a vector, saw: %s", tensor_shape_str(dy));
  struct shape s = tensor_shape(back), all = tensor_shape(dy);
  struct tensor *dv, *dd, used;
  TRY(ctx_out(ctx, 0, &s, &dv));
  TRY(ctx_out_dims(ctx, 1, 0, NULL, &dd));
  tensor_zero(dd);
  TRY(ctx_temp(ctx, SHOAL_BOOL, &all, &used));
  tensor_zero(&used);
  shoal_status bad = scatter(back, dy, dv, dd, used.data);
  tensor_release(&used);
  return bad;
}

static shoal_status shape_grad(struct shape_ctx *c) {
  c->out[0] = c->in[0];
  c->out[1] = shape_scalar();
  return NULL;
}

static const struct kernel_def sparse_kernels[] = {{.device = "CPU", .run = run_sparse}, {0}};
static const struct kernel_def ragged_kernels[] = {{.device = "CPU", .run = run_ragged, .host_in = 4}, {0}};
static const struct kernel_def grad_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT_NUMBER, .run = run_grad}, {0}};
#define GRAD                                                                                                      \
  .in = "reverse_index_map: int64, grad_values: T", .out = "d_values: T, d_default_value: T", .attrs = "T: type", \
  .shape = shape_grad, .kernels = grad_kernels

static const struct op_row rows[] = {
    {.name = "SparseFillEmptyRows",
     .in = "indices: int64, values: T, dense_shape: int64, default_value: T",
     .out = "output_indices: int64, output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
     .attrs = "T: type",
     .shape = shape_sparse,
     .grad = grad,
     .kernels = sparse_kernels},
    {.name = "RaggedFillEmptyRows",
     .in = "value_rowids: int64, values: T, nrows: int64, default_value: T",
     .out = "output_value_rowids: int64, output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
     .attrs = "T: type",
     .shape = shape_ragged,
     .grad = grad,
     .kernels = ragged_kernels},
    {.name = "SparseFillEmptyRowsGrad", GRAD},
    {.name = "RaggedFillEmptyRowsGrad", GRAD},
};
OP_FAMILY(fill_empty_rows, rows);
