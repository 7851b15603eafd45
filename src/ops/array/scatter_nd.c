/* Scattering into new tensors: ScatterNd and the TensorScatter family, which write slices of `updates` at the places
 * that rows of `indices` name. (Scatters into variables are in variable_rows.c.) Updates of one place are applied
 * in order, so the last one wins, or sums are the same on every machine. */
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/state/state.h"

static void add_bools(shoal_dtype dtype, void *to, const void *by, int64_t n) {
  bool *t = to;
  const bool *b = by;
  for (int64_t i = 0; i < n; i++) t[i] = t[i] || b[i];
}

static void add_strings(shoal_dtype dtype, void *to, const void *by, int64_t n) {
  struct str *t = to;
  const struct str *b = by;
  for (int64_t i = 0; i < n; i++) {
    struct text both = {0};
    text_add(&both, str_data(&t[i]), t[i].size);
    text_add(&both, str_data(&b[i]), b[i].size);
    str_set(&t[i], text_cstr(&both), both.n);
    text_release(&both);
  }
}

static update_fn find(enum update op, shoal_dtype dtype) {
  if (op == UPDATE_ADD && dtype == SHOAL_BOOL) return add_bools;
  if (op == UPDATE_ADD && dtype == SHOAL_STRING) return add_strings;
  return update_find(op, dtype);
}

/* updates.shape must be indices.shape[:-1] + out.shape[depth:]. */
static shoal_status check_shapes(const struct shape *out, const struct tensor *ix, const struct tensor *up) {
  if (ix->rank < 1) return INVALID("Indices shape must have rank at least one. Found:%s", tensor_shape_str(ix));
  int outer = ix->rank - 1;
  int64_t depth = ix->dims[outer];
  bool fits = up->rank >= outer && depth <= out->rank && up->rank - outer == out->rank - depth;
  for (int i = 0; i < outer && i < up->rank; i++)
    if (ix->dims[i] != up->dims[i])
      return INVALID("Dimensions [0,%d) of indices[shape=%s] must match dimensions [0,%d) of updates[shape=%s]", outer,
                     tensor_shape_str(ix), outer, tensor_shape_str(up));
  for (int i = outer; fits && i < up->rank; i++) fits = up->dims[i] == out->dims[depth + i - outer];
  if (!fits)
    return INVALID("Dimensions [%" PRId64 ",%d) of input[shape=%s] must match dimensions [%d,%d) of updates[shape=%s]",
                   depth, out->rank, shape_str(out), outer, up->rank, tensor_shape_str(up));
  return NULL;
}

/* Applies fn to every slice of *y that ix names. */
static shoal_status scatter(struct kernel_ctx *ctx, update_fn fn, struct tensor *y, const struct tensor *ix,
                            const struct tensor *up) {
  int64_t depth = ix->dims[ix->rank - 1], n = dims_product(ix->dims, 0, ix->rank - 1);
  if (!n || !up->n) return NULL;
  struct tensor rows;
  TRY(tensor_new_dims(&rows, SHOAL_INT64, 1, &n));
  for (int64_t i = 0; i < n; i++) {
    int64_t row = 0;
    for (int k = 0; k < depth; k++) {
      int64_t v = int_at(ix, i * depth + k);
      if ((uint64_t)v >= (uint64_t)y->dims[k]) {
        tensor_release(&rows);
        return INVALID("indices%s = %s does not index into shape %s", place_str(ix->rank - 1, ix->dims, i),
                       ints_str(ix, i * depth, depth, ", "), tensor_shape_str(y));
      }
      row = row * y->dims[k] + v;
    }
    T_DATA(&rows, int64_t)[i] = row;
  }
  struct row_update u = {.dtype = (shoal_dtype)y->dtype,
                         .fn = fn,
                         .to = y->data,
                         .by = up->data,
                         .ids = &rows,
                         .n = n,
                         .rows = dims_product(y->dims, 0, (int)depth),
                         .width = dims_product(y->dims, (int)depth, y->rank)};
  rows_update(ctx_pool(ctx), &u);
  tensor_release(&rows);
  return NULL;
}

/* ---- ScatterNd ---- */

static shoal_status scatter_nd_run(struct kernel_ctx *ctx) {
  const struct tensor *ix = ctx_in(ctx, 0), *up = ctx_in(ctx, 1), *dims = ctx_in(ctx, 2);
  if (dims->rank != 1) return INVALID("Shape must be a vector");
  if (ix->rank < 1) return INVALID("Indices shape must have rank at least one. Found:%s", tensor_shape_str(ix));
  if (up->rank < 1) return INVALID("Updates shape must have rank at least one. Found:%s", tensor_shape_str(up));
  struct shape s;
  int64_t n;
  TRY(shape_from_values(dims, &s));
  TRY(shape_elements(&s, &n));
  if (n == 0 && ix->n && up->n)
    return INVALID("Indices and updates specified for empty output.  indices shape: %s", tensor_shape_str(ix));
  TRY(check_shapes(&s, ix, up));
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  tensor_zero(y);
  return scatter(ctx, find(UPDATE_ADD, (shoal_dtype)y->dtype), y, ix, up);
}

static shoal_status scatter_nd_shape(struct shape_ctx *c) { return shape_in_value(c, 2, &c->out[0]); }

static shoal_status scatter_nd_grad(struct grad_ctx *c) {
  grad_set(c, 1, build_op2(c->g, "GatherNd", grad_dy(c, 0), gin(c, 0)));
  return NULL;
}

#define SCATTER_TYPES (DT_NUMBER | DT(BOOL) | DT(STRING))
static const struct kernel_def scatter_nd_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = SCATTER_TYPES, .run = scatter_nd_run, .host_in = 4}, {0}};

/* ---- TensorScatter* ---- */

static shoal_status tensor_scatter(struct kernel_ctx *ctx, enum update op) {
  const struct tensor *ix = ctx_in(ctx, 1), *up = ctx_in(ctx, 2);
  struct shape s = tensor_shape(ctx_in(ctx, 0));
  int64_t n;
  TRY(shape_elements(&s, &n));
  if (ix->rank < 1) return INVALID("Indices shape must have rank at least one. Found:%s", tensor_shape_str(ix));
  if (up->rank < 1) return INVALID("Updates shape must have rank at least one. Found:%s", tensor_shape_str(up));
  if (n == 0 && ix->n && up->n) return INVALID("Indices and updates specified for empty output shape");
  TRY(check_shapes(&s, ix, up));
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  const struct tensor *x = ctx_in(ctx, 0);
  if (y->data != x->data) elements_copy_parallel(ctx_pool(ctx), (shoal_dtype)x->dtype, y->data, x->data, x->n);
  return scatter(ctx, find(op, (shoal_dtype)y->dtype), y, ix, up);
}

static shoal_status set_run(struct kernel_ctx *ctx) { return tensor_scatter(ctx, UPDATE_SET); }
static shoal_status add_run(struct kernel_ctx *ctx) { return tensor_scatter(ctx, UPDATE_ADD); }
static shoal_status sub_run(struct kernel_ctx *ctx) { return tensor_scatter(ctx, UPDATE_SUB); }
static shoal_status min_run(struct kernel_ctx *ctx) { return tensor_scatter(ctx, UPDATE_MIN); }
static shoal_status max_run(struct kernel_ctx *ctx) { return tensor_scatter(ctx, UPDATE_MAX); }

/* tensor: dy with the places that were overwritten set to 0; updates: dy at those places. */
static shoal_status update_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), ix = gin(c, 1);
  grad_set(c, 0, build_op3(c->g, "TensorScatterUpdate", dy, ix, array_zeros_like(c->g, gin(c, 2))));
  grad_set(c, 2, build_op2(c->g, "GatherNd", dy, ix));
  return NULL;
}

static shoal_status add_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  grad_set(c, 0, dy);
  grad_set(c, 2, build_op2(c->g, "GatherNd", dy, gin(c, 1)));
  return NULL;
}

static shoal_status sub_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  grad_set(c, 0, dy);
  grad_set(c, 2, build_op1(c->g, "Neg", build_op2(c->g, "GatherNd", dy, gin(c, 1))));
  return NULL;
}

/* What was chosen gets the gradient; where several were equal, each gets an equal share. */
static shoal_status extreme_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out dy = grad_dy(c, 0), x = gin(c, 0), ix = gin(c, 1), up = gin(c, 2), y = gout(c, 0);
  shoal_dtype t = out_type(dy);
  shoal_out kept = build_cast(g, build_op2(g, "Equal", x, y), t);
  shoal_out taken = build_cast(g, build_op2(g, "Equal", up, build_op2(g, "GatherNd", y, ix)), t);
  shoal_out count = build_op3(g, "TensorScatterAdd", kept, ix, taken);
  shoal_out share = build_op2(g, "RealDiv", dy, build_op2(g, "Maximum", count, build_const_float(g, t, 1)));
  grad_set(c, 0, build_op2(g, "Mul", kept, share));
  grad_set(c, 2, build_op2(g, "Mul", taken, build_op2(g, "GatherNd", share, ix)));
  return NULL;
}

static const struct kernel_def update_kernels[] = {{.device = "CPU", .run = set_run}, {0}};
static const struct kernel_def add_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = SCATTER_TYPES, .run = add_run}, {0}};
static const struct kernel_def sub_kernels[] = {{.device = "CPU", .type_attr = "T", .types = DT_NUMBER, .run = sub_run},
                                                {0}};
static const struct kernel_def min_kernels[] = {{.device = "CPU", .type_attr = "T", .types = DT_REAL, .run = min_run},
                                                {0}};
static const struct kernel_def max_kernels[] = {{.device = "CPU", .type_attr = "T", .types = DT_REAL, .run = max_run},
                                                {0}};

static const struct op_row rows[] = {
    {.name = "ScatterNd",
     .in = "indices: Tindices, updates: T, shape: Tindices",
     .out = "output: T",
     .attrs = "T: type; Tindices: {int16, int32, int64}",
     .shape = scatter_nd_shape,
     .grad = scatter_nd_grad,
     .kernels = scatter_nd_kernels},
    {.name = "ScatterNdNonAliasingAdd",
     .in = "input: T, indices: Tindices, updates: T",
     .out = "output: T",
     .attrs = "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
              "qint16, quint16, uint16, complex128, half, uint32, uint64, bool}; Tindices: {int32, int64}",
     .shape = shape_unchanged,
     .grad = add_grad,
     .kernels = add_kernels},
    {.name = "TensorScatterUpdate",
     .in = "tensor: T, indices: Tindices, updates: T",
     .out = "output: T",
     .attrs = "T: type; Tindices: {int16, int32, int64, uint16}",
     .shape = shape_unchanged,
     .grad = update_grad,
     .kernels = update_kernels},
    {.name = "TensorScatterAdd",
     .in = "tensor: T, indices: Tindices, updates: T",
     .out = "output: T",
     .attrs = "T: type; Tindices: {int32, int64}",
     .shape = shape_unchanged,
     .grad = add_grad,
     .kernels = add_kernels},
    {.name = "TensorScatterSub",
     .in = "tensor: T, indices: Tindices, updates: T",
     .out = "output: T",
     .attrs = "T: type; Tindices: {int32, int64}",
     .shape = shape_unchanged,
     .grad = sub_grad,
     .kernels = sub_kernels},
    {.name = "TensorScatterMin",
     .in = "tensor: T, indices: Tindices, updates: T",
     .out = "output: T",
     .attrs = "T: type; Tindices: {int32, int64}",
     .shape = shape_unchanged,
     .grad = extreme_grad,
     .kernels = min_kernels},
    {.name = "TensorScatterMax",
     .in = "tensor: T, indices: Tindices, updates: T",
     .out = "output: T",
     .attrs = "T: type; Tindices: {int32, int64}",
     .shape = shape_unchanged,
     .grad = extreme_grad,
     .kernels = max_kernels},
};
OP_FAMILY(scatter_nd, rows);
