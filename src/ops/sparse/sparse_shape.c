/* Sparse tensors rearranged: SparseReshape, SparseReorder, SparseConcat, SparseSplit, SparseSlice. */
#include <stdlib.h>
#include <string.h>

#include "ops/sparse/sparse.h"
#include "ops/state/state.h"

static void copy_value(const struct sparse *s, int64_t i, struct tensor *to, int64_t k) {
  shoal_dtype t = (shoal_dtype)s->values->dtype;
  elements_copy(t, (char *)to->data + (size_t)k * dtype_size(t), sparse_value(s, i), 1);
}

/* ---- SparseReshape ---- */

static shoal_status new_shape(const struct tensor *want, int64_t dense, const struct tensor *old, int64_t *dims) {
  int open = -1;
  int64_t product = 1;
  for (int k = 0; k < want->n; k++) {
    dims[k] = int_at(want, k);
    if (dims[k] == -1) {
      if (open >= 0) return INVALID("only one output dimension may be -1, not both %d and %d", open, k);
      open = k;
      dims[k] = 1;
    } else if (dims[k] < 0) {
      return INVALID("size %d must be non-negative, not %" PRId64, k, dims[k]);
    } else if (mul_overflows(product, dims[k], &product)) {
      return INVALID("The requested shape has more elements than fit in 63 bits");
    }
  }
  if (open >= 0) {
    if (product == 0)
      return INVALID(
          "reshape cannot infer the missing input size for an empty tensor unless all "
          "specified input sizes are non-zero");
    dims[open] = dense / product;
    if (dims[open] * product != dense)
      return INVALID("Input to reshape is a SparseTensor with %" PRId64
                     " dense values, but the requested shape requires a multiple of %" PRId64
                     ". input_shape=%s output_shape=%s",
                     dense, product, ints_str(old, 0, old->n, ","), ints_str(want, 0, want->n, ","));
    product = dense;
  }
  if (product != dense)
    return INVALID("Input to reshape is a tensor with %" PRId64 " dense values, but the requested shape has %" PRId64
                   ". input_shape=%s output_shape=%s",
                   dense, product, ints_str(old, 0, old->n, ","), ints_str(want, 0, want->n, ","));
  return NULL;
}

static shoal_status reshape_run(struct kernel_ctx *ctx) {
  const struct tensor *ix = ctx_in(ctx, 0), *old = ctx_in(ctx, 1), *want = ctx_in(ctx, 2);
  if (ix->rank != 2) return INVALID("Input must be a matrix.");
  if (old->rank != 1) return INVALID("Input shape should be a vector but received shape %s", tensor_shape_str(old));
  if (want->rank != 1) return INVALID("Target shape should be a vector but received shape %s", tensor_shape_str(want));
  if (ix->dims[1] != old->n) return INVALID("Input tensor rank must match input shape length.");
  if (old->n > SHOAL_MAX_RANK || want->n > SHOAL_MAX_RANK)
    return INVALID("Sparse tensors of more than %d dimensions are not supported", SHOAL_MAX_RANK);
  int64_t from[SHOAL_MAX_RANK], to[SHOAL_MAX_RANK], dense;
  int a = (int)old->n, b = (int)want->n;
  TRY(sparse_dims(old, from, &dense));
  TRY(new_shape(want, dense, old, to));
  struct shape matrix = shape_matrix(ix->dims[0], b), vector = shape_vector(b);
  struct tensor *out, *shape;
  TRY(ctx_out(ctx, 0, &matrix, &out));
  TRY(ctx_out(ctx, 1, &vector, &shape));
  for (int k = 0; k < b; k++) int_put(shape, k, to[k]);
  const int64_t *x = ix->data;
  int64_t *y = out->data;
  for (int64_t i = 0; i < ix->dims[0]; i++) {
    uint64_t at = 0; /* wraps for indices outside of the shape, as hostile as they like */
    for (int k = 0; k < a; k++) at = at * (uint64_t)from[k] + (uint64_t)x[i * a + k];
    int64_t rest = (int64_t)at;
    for (int k = b; k-- > 0;) {
      int64_t d = to[k];
      y[i * b + k] = k == 0 ? rest : d ? rest % d : 0;
      rest = d ? rest / d : 0;
    }
  }
  return NULL;
}

static shoal_status reshape_shape(struct shape_ctx *c) {
  struct shape m, old, want;
  TRY(shape_in_rank(c, 0, 2, &m));
  TRY(shape_in_rank(c, 1, 1, &old));
  TRY(shape_in_rank(c, 2, 1, &want));
  int64_t rank = want.rank == 1 ? want.dims[0] : -1;
  c->out[0] = shape_matrix(m.rank == 2 ? m.dims[0] : -1, rank);
  c->out[1] = shape_vector(rank);
  return NULL;
}

static const struct kernel_def reshape_kernels[] = {{.device = "CPU", .run = reshape_run}, {0}};

/* ---- SparseReorder ---- */

static shoal_status reorder_run(struct kernel_ctx *ctx) {
  struct sparse s;
  TRY(sparse_get(ctx, 0, &s));
  int64_t dims[SHOAL_MAX_RANK], dense;
  TRY(sparse_dims(s.shape, dims, &dense));
  struct tensor *ix, *v;
  TRY(sparse_out(ctx, 0, s.n, s.rank, &ix, &v, NULL));
  int64_t *order = sparse_order(s.indices->data, s.n, s.rank);
  if (!order) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory to sort %" PRId64 " entries", s.n);
  size_t row = (size_t)s.rank * sizeof(int64_t);
  for (int64_t i = 0; i < s.n; i++) {
    if (row) memcpy((char *)ix->data + (size_t)i * row, (const char *)s.indices->data + (size_t)order[i] * row, row);
    copy_value(&s, order[i], v, i);
  }
  free(order);
  return NULL;
}

static shoal_status reorder_shape(struct shape_ctx *c) {
  c->out[0] = c->in[0];
  c->out[1] = c->in[1];
  return NULL;
}

/* The positions are sorted along; turned round they say where each gradient goes. */
static shoal_status reorder_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out count = build_op1(g, "Size", gin(c, 1));
  shoal_out places =
      build_op3(g, "Range", build_const_int(g, SHOAL_INT32, 0), count, build_const_int(g, SHOAL_INT32, 1));
  struct shoal_node *n;
  struct build b = build_begin(g, "SparseReorder", NULL);
  build_in(&b, gin(c, 0));
  build_in(&b, places);
  build_in(&b, gin(c, 2));
  n = build_end(&b);
  shoal_out back = build_op1(g, "InvertPermutation", node_out(n, 1));
  grad_set(c, 1, array_gather(g, grad_dy(c, 1), back, 0));
  return NULL;
}

static const struct kernel_def reorder_kernels[] = {{.device = "CPU", .run = reorder_run}, {0}};

/* ---- SparseConcat ---- */

struct concat_state {
  int64_t axis;
};

static shoal_status concat_init(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "concat_dim", &((struct concat_state *)state)->axis);
}

static shoal_status concat_get(struct kernel_ctx *ctx, int n, int i, struct sparse *s) {
  *s = (struct sparse){ctx_in(ctx, i), ctx_in(ctx, n + i), ctx_in(ctx, 2 * n + i)};
  if (s->indices->rank != 2)
    return INVALID("Input indices should be a matrix but received shape %s at position %d",
                   tensor_shape_str(s->indices), i);
  if (s->values->rank != 1)
    return INVALID("Input values should be a vector but received shape %s at position %d", tensor_shape_str(s->values),
                   i);
  if (s->shape->rank != 1)
    return INVALID("Input shapes should be a vector but received shape %s at position %d", tensor_shape_str(s->shape),
                   i);
  if (s->indices->dims[0] != s->values->n)
    return INVALID("indices and values rows (indexing dimension) must match. (indices = %" PRId64 ", values = %" PRId64
                   ")",
                   s->indices->dims[0], s->values->n);
  return sparse_check(s);
}

static shoal_status concat_run(struct kernel_ctx *ctx) {
  int n = ctx->kernel->n_in / 3;
  int64_t axis = ((struct concat_state *)ctx->state)->axis, total = 0, dims[SHOAL_MAX_RANK], dense;
  struct sparse first = {0}, s;
  for (int i = 0; i < n; i++) {
    const struct tensor *shape = ctx_in(ctx, 2 * n + i), *shape0 = ctx_in(ctx, 2 * n);
    if (shape->rank == 1 && shape0->rank == 1 && shape->n != shape0->n)
      return INVALID("Ranks of all input tensors must match: expected %" PRId64 " but got %" PRId64 " at position %d",
                     shape0->n, shape->n, i);
    TRY(concat_get(ctx, n, i, &s));
    if (i == 0) {
      first = s;
      if (axis < -first.rank || axis >= first.rank)
        return INVALID("Concat dimension must be in range [%d, %d), got %" PRId64, -first.rank, first.rank, axis);
      if (axis < 0) axis += first.rank;
      TRY(sparse_dims(s.shape, dims, &dense));
    }
    for (int k = 0; i && k < s.rank; k++) {
      int64_t d = int_at(s.shape, k);
      if (d < 0) return INVALID("Dimension %" PRId64 " must be >= 0", d);
      if (k == axis) {
        if (__builtin_add_overflow(dims[k], d, &dims[k])) return INVALID("The concatenated size is too large");
      } else if (d != dims[k]) {
        return INVALID("Input shapes must match: expected %" PRId64 " for dimension %d but got %" PRId64
                       " at position %d",
                       dims[k], k, d, i);
      }
    }
    total += s.n;
  }
  struct tensor *ix, *v, *shape, joined, values;
  TRY(sparse_out(ctx, 0, total, first.rank, &ix, &v, &shape));
  for (int k = 0; k < first.rank; k++) int_put(shape, k, dims[k]);
  TRY(tensor_new_dims(&joined, SHOAL_INT64, 2, (int64_t[]){total, first.rank}));
  shoal_status bad = tensor_new_dims(&values, (shoal_dtype)v->dtype, 1, &total);
  if (bad) {
    tensor_release(&joined);
    return bad;
  }
  int64_t at = 0, offset = 0, *to = joined.data;
  for (int i = 0; i < n && !bad; i++) {
    bad = concat_get(ctx, n, i, &s);
    for (int64_t e = 0; !bad && e < s.n; e++, at++) {
      for (int k = 0; k < s.rank; k++) to[at * s.rank + k] = sparse_index(&s, e, k) + (k == axis ? offset : 0);
      copy_value(&s, e, &values, at);
    }
    offset += int_at(s.shape, axis);
  }
  int64_t *order = bad ? NULL : sparse_order(joined.data, total, first.rank);
  if (!bad && !order) bad = STATUS(SHOAL_RESOURCE_EXHAUSTED, "No memory to sort %" PRId64 " entries", total);
  shoal_dtype t = (shoal_dtype)v->dtype;
  for (int64_t i = 0; !bad && i < total; i++) {
    memcpy(T_DATA(ix, int64_t) + i * first.rank, to + order[i] * first.rank, (size_t)first.rank * sizeof *to);
    elements_copy(t, (char *)v->data + (size_t)i * dtype_size(t),
                  (char *)values.data + (size_t)order[i] * dtype_size(t), 1);
  }
  free(order);
  tensor_release(&joined);
  tensor_release(&values);
  return bad;
}

static shoal_status concat_shape(struct shape_ctx *c) {
  int n = c->node->n_in / 3;
  int64_t rank = -1, total = 0;
  for (int i = 0; i < n; i++) {
    const struct shape *ix = &c->in[i];
    if (ix->rank == 2 && ix->dims[1] >= 0) rank = ix->dims[1];
    total = total < 0 || ix->rank != 2 || ix->dims[0] < 0 ? -1 : total + ix->dims[0];
  }
  sparse_out_shapes(c, 0, total, rank);
  return NULL;
}

static const struct kernel_def concat_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct concat_state), .init = concat_init, .run = concat_run}, {0}};

/* ---- SparseSplit ---- */

/* The first `longer` parts have one more than each. */
static int64_t part_of(int64_t v, int64_t each, int64_t longer) {
  return v < longer * (each + 1) ? v / (each + 1) : (v - longer) / each;
}

static shoal_status split_run(struct kernel_ctx *ctx) {
  const struct tensor *axis_t = ctx_in(ctx, 0);
  struct sparse s;
  int n = ctx->kernel->n_out / 3;
  if (axis_t->rank) return INVALID("Input axis should be a scalar but received shape %s", tensor_shape_str(axis_t));
  TRY(sparse_get(ctx, 1, &s));
  int64_t axis = int_at(axis_t, 0), dims[SHOAL_MAX_RANK], dense;
  TRY(sparse_dims(s.shape, dims, &dense));
  if (axis < -s.rank || axis >= s.rank)
    return INVALID("Input axis should be in range [%d, %d), got %" PRId64, -s.rank, s.rank, axis);
  if (axis < 0) axis += s.rank;
  int64_t size = dims[axis], each = size / n, longer = size % n;
  if (n < 1 || n > size)
    return INVALID("Input num_split should be between 1 and the splitting dimension size (%" PRId64 "), got %d", size,
                   n);
  TRY(sparse_in_bounds(&s));
  int64_t *counts = mem_zalloc((size_t)n, sizeof *counts);
  for (int64_t i = 0; i < s.n; i++) counts[part_of(sparse_index(&s, i, (int)axis), each, longer)]++;
  shoal_status bad = NULL;
  for (int p = 0; p < n && !bad; p++) {
    struct shape matrix = shape_matrix(counts[p], s.rank), vector = shape_vector(counts[p]),
                 rank = shape_vector(s.rank);
    struct tensor *t;
    bad = ctx_out(ctx, p, &matrix, &t);
    if (!bad) bad = ctx_out(ctx, n + p, &vector, &t);
    if (!bad) bad = ctx_out(ctx, 2 * n + p, &rank, &t);
    for (int k = 0; !bad && k < s.rank; k++) int_put(t, k, k == axis ? each + (p < longer) : dims[k]);
    counts[p] = 0;
  }
  for (int64_t i = 0; !bad && i < s.n; i++) {
    int64_t v = sparse_index(&s, i, (int)axis), p = part_of(v, each, longer), start = p * each + MIN(p, longer);
    struct tensor *ix = &ctx->out[p];
    for (int k = 0; k < s.rank; k++)
      T_DATA(ix, int64_t)[counts[p] * s.rank + k] = sparse_index(&s, i, k) - (k == axis ? start : 0);
    copy_value(&s, i, &ctx->out[n + p], counts[p]++);
  }
  free(counts);
  return bad;
}

static shoal_status split_shape(struct shape_ctx *c) {
  int n = c->node->n_out / 3;
  int64_t rank = sparse_in_rank(c, 1);
  for (int p = 0; p < n; p++) {
    c->out[p] = shape_matrix(-1, rank);
    c->out[n + p] = shape_vector(-1);
    c->out[2 * n + p] = shape_vector(rank);
  }
  return NULL;
}

static const struct kernel_def split_kernels[] = {{.device = "CPU", .run = split_run}, {0}};

/* ---- SparseSlice ---- */

static bool slice_has(const struct sparse *s, int64_t i, const struct tensor *start, const struct tensor *size) {
  for (int k = 0; k < s->rank; k++) {
    int64_t v = sparse_index(s, i, k), b = int_at(start, k), n = int_at(size, k), end;
    if (__builtin_add_overflow(b, n, &end)) end = INT64_MAX;
    if (v < b || v >= end) return false;
  }
  return true;
}

static shoal_status slice_run(struct kernel_ctx *ctx) {
  struct sparse s;
  const struct tensor *start = ctx_in(ctx, 3), *size = ctx_in(ctx, 4);
  TRY(sparse_get(ctx, 0, &s));
  int64_t dims[SHOAL_MAX_RANK], dense, n = 0;
  TRY(sparse_dims(s.shape, dims, &dense));
  if (start->rank != 1) return INVALID("Input start should be a vector but received shape %s", tensor_shape_str(start));
  if (size->rank != 1) return INVALID("Input size should be a vector but received shape %s", tensor_shape_str(size));
  if (start->n != s.rank)
    return INVALID("Expected start to be a vector of length %d but got length %" PRId64, s.rank, start->n);
  if (size->n != s.rank)
    return INVALID("Expected size to be a vector of length %d but got length %" PRId64, s.rank, size->n);
  for (int k = 0; k < s.rank; k++)
    if (int_at(size, k) < 0) return INVALID("Expected a non-negative size, got %" PRId64, int_at(size, k));
  for (int64_t i = 0; i < s.n; i++) n += slice_has(&s, i, start, size);
  struct tensor *ix, *v, *shape;
  TRY(sparse_out(ctx, 0, n, s.rank, &ix, &v, &shape));
  for (int k = 0; k < s.rank; k++) {
    int64_t b = int_at(start, k), left;
    if (__builtin_sub_overflow(dims[k], b, &left)) left = INT64_MAX;
    int_put(shape, k, MAX(0, MIN(int_at(size, k), b < dims[k] ? left : 0)));
  }
  for (int64_t i = 0, at = 0; i < s.n; i++) {
    if (!slice_has(&s, i, start, size)) continue;
    for (int k = 0; k < s.rank; k++) T_DATA(ix, int64_t)[at * s.rank + k] = sparse_index(&s, i, k) - int_at(start, k);
    copy_value(&s, i, v, at++);
  }
  return NULL;
}

static shoal_status slice_shape(struct shape_ctx *c) {
  sparse_out_shapes(c, 0, -1, sparse_in_rank(c, 0));
  return NULL;
}

static shoal_status slice_grad(struct grad_ctx *c) {
  struct build b = build_begin(c->g, "SparseSliceGrad", NULL);
  build_in(&b, grad_dy(c, 1));
  build_in(&b, gin(c, 0));
  build_in(&b, gin(c, 3));
  build_in(&b, gout(c, 0));
  grad_set(c, 1, build_end_out(&b));
  return NULL;
}

static shoal_status slice_grad_run(struct kernel_ctx *ctx) {
  const struct tensor *dy = ctx_in(ctx, 0), *in = ctx_in(ctx, 1), *start = ctx_in(ctx, 2), *out = ctx_in(ctx, 3);
  if (in->rank != 2 || out->rank != 2)
    return INVALID("Input and output indices should be matrices, got shapes: %s and %s", tensor_shape_str(in),
                   tensor_shape_str(out));
  if (dy->rank != 1) return INVALID("Input backprop_val_grad should be a vector, got shape: %s", tensor_shape_str(dy));
  if (start->rank != 1) return INVALID("Input start should be a vector but received shape %s", tensor_shape_str(start));
  if (in->dims[1] != out->dims[1])
    return INVALID("The input and output should have the same ndims: got: %" PRId64 " and %" PRId64, in->dims[1],
                   out->dims[1]);
  if (in->dims[1] != start->n)
    return INVALID("The input_start length should be equal to ndims: got: %" PRId64 " and %" PRId64, start->n,
                   in->dims[1]);
  if (out->dims[0] > in->dims[0])
    return INVALID("# rows of output_indices should be not greater than of input_indices, got %" PRId64 " and %" PRId64,
                   out->dims[0], in->dims[0]);
  if (dy->n != out->dims[0])
    return INVALID("# elements of backprop_val_grad and rows of sum_indices should match, got %" PRId64 " and %" PRId64,
                   dy->n, out->dims[0]);
  struct shape vector = shape_vector(in->dims[0]);
  struct tensor *dx;
  TRY(ctx_out(ctx, 0, &vector, &dx));
  tensor_zero(dx);
  int rank = (int)in->dims[1];
  size_t size = dtype_size((shoal_dtype)dy->dtype);
  const int64_t *a = in->data, *b = out->data;
  int64_t j = 0;
  for (int64_t i = 0; i < in->dims[0] && j < dy->n; i++) {
    bool same = true;
    for (int k = 0; k < rank; k++) same &= a[i * rank + k] == b[j * rank + k] + int_at(start, k);
    if (same) memcpy((char *)dx->data + (size_t)i * size, (const char *)dy->data + (size_t)j++ * size, size);
  }
  if (j < dy->n)
    return INVALID("Elements of backprop_val_grad aren't all propagated. Num elements:%" PRId64 ", used: %" PRId64,
                   dy->n, j);
  return NULL;
}

static shoal_status slice_grad_shape(struct shape_ctx *c) {
  c->out[0] = shape_vector(c->in[1].rank == 2 ? c->in[1].dims[0] : -1);
  return NULL;
}

static const struct kernel_def slice_kernels[] = {{.device = "CPU", .run = slice_run}, {0}};
static const struct kernel_def slice_grad_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT_PLAIN, .run = slice_grad_run}, {0}};

static const struct op_row rows[] = {
    {.name = "SparseReshape",
     .in = "input_indices: int64, input_shape: int64, new_shape: int64",
     .out = "output_indices: int64, output_shape: int64",
     .flags = OP_NO_GRADIENT,
     .shape = reshape_shape,
     .kernels = reshape_kernels},
    {.name = "SparseReorder",
     .in = "input_indices: int64, input_values: T, input_shape: int64",
     .out = "output_indices: int64, output_values: T",
     .attrs = "T: type",
     .shape = reorder_shape,
     .grad = reorder_grad,
     .kernels = reorder_kernels},
    {.name = "SparseConcat",
     .in = "indices: N * int64, values: N * T, shapes: N * int64",
     .out = "output_indices: int64, output_values: T, output_shape: int64",
     .attrs = "concat_dim: int; N: int >= 2; T: type",
     .flags = OP_NO_GRADIENT,
     .shape = concat_shape,
     .kernels = concat_kernels},
    {.name = "SparseSplit",
     .in = "split_dim: int64, indices: int64, values: T, shape: int64",
     .out = "output_indices: num_split * int64, output_values: num_split * T, output_shape: num_split * int64",
     .attrs = "num_split: int >= 1; T: type",
     .flags = OP_NO_GRADIENT,
     .shape = split_shape,
     .kernels = split_kernels},
    {.name = "SparseSlice",
     .in = "indices: int64, values: T, shape: int64, start: int64, size: int64",
     .out = "output_indices: int64, output_values: T, output_shape: int64",
     .attrs = "T: type",
     .shape = slice_shape,
     .grad = slice_grad,
     .kernels = slice_kernels},
    {.name = "SparseSliceGrad",
     .in = "backprop_val_grad: T, input_indices: int64, input_start: int64, output_indices: int64",
     .out = "val_grad: T",
     .attrs = "T: {numbertype}",
     .shape = slice_grad_shape,
     .kernels = slice_grad_kernels},
};
OP_FAMILY(sparse_shape, rows);
