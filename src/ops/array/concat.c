/* Joining and taking apart: Concat, Pack and their inverses Split, Unpack. All see tensors as [outer, row]: a
 * concatenation's row is the inputs' rows side by side. Splits of the first dimension share the input's buffer. */
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/array/strided.h"

/* ---- joining rows ---- */

struct concat_job {
  shoal_dtype dtype;
  size_t size;
  int n;
  const struct tensor *const *in;
  int64_t outer, row;
  char *to;
};

static void join_piece(void *arg, int64_t begin, int64_t end) {
  const struct concat_job *j = arg;
  bool plain = dtype_plain(j->dtype);
  for (int64_t r = begin; r < end; r++) {
    char *to = j->to + (size_t)(r * j->row) * j->size;
    for (int i = 0; i < j->n; i++) {
      size_t len = (size_t)(j->in[i]->n / j->outer), bytes = len * j->size;
      const char *from = (const char *)j->in[i]->data + (size_t)r * bytes;
      if (!bytes) continue;
      if (!plain) elements_copy(j->dtype, to, from, (int64_t)len);
      else if (to != from) memcpy(to, from, bytes); /* else it was made there: runtime/placed_outputs.c */
      to += bytes;
    }
  }
}

/* Of one row: an input that is there already, or is too short to be copied by several threads. */
static bool put_list(const struct concat_job *j, int i, int64_t at, const struct tensor *y) {
  char *to = j->to + (size_t)at * j->size;
  size_t bytes = (size_t)j->in[i]->n * j->size;
  if (j->outer != 1 || y->buffer->device || !dtype_plain(j->dtype)) return false;
  bool there = to == j->in[i]->data;
  if (!there && bytes >= COPY_GRAIN) return false;
  if (!there) memcpy(to, j->in[i]->data, bytes);
  return true;
}

static shoal_status join_rows(struct kernel_ctx *ctx, struct concat_job *j, struct tensor *y) {
  if (j->row == 0 || j->outer == 0) return NULL;
  int64_t bytes = j->row * (int64_t)j->size;
  if (bytes < COPY_GRAIN && !y->buffer->device) {
    pool_for(ctx_pool(ctx), j->outer, copy_grain(bytes), join_piece, j);
    return NULL;
  }
  int64_t at = 0;
  for (int i = 0; i < j->n; at += j->in[i++]->n / j->outer) {
    int64_t len = j->in[i]->n / j->outer;
    struct strided s = {0};
    if (!len || put_list(j, i, at, y)) continue;
    strided_add(&s, j->outer, j->row, len);
    strided_add(&s, len, 1, 1);
    TRY(ctx_copy_view(ctx, &s, y, at, j->in[i], 0));
  }
  return NULL;
}

/* ---- Concat, ConcatV2 ---- */

/* The result, of shape s: for each index of the dimensions before `axis`, the inputs' parts one after the other. */
static shoal_status join(struct kernel_ctx *ctx, const struct shape *s, int axis, const struct tensor *const *in,
                         int n) {
  struct tensor *y;
  TRY(ctx_out(ctx, 0, s, &y));
  if (!y->n) return NULL;
  struct concat_job j = {.dtype = (shoal_dtype)y->dtype,
                         .size = dtype_size((shoal_dtype)y->dtype),
                         .n = n,
                         .in = in,
                         .outer = dims_product(s->dims, 0, axis),
                         .to = y->data};
  j.row = y->n / j.outer;
  return join_rows(ctx, &j, y);
}

static shoal_status concat(struct kernel_ctx *ctx, int first, int axis_in, const char *axis_name) {
  const struct tensor *axis_t = ctx_in(ctx, axis_in);
  int n = ctx->kernel->n_in - 1;
  const struct tensor *const *in = ctx->in + first;
  if (axis_t->n != 1 || axis_t->rank > 1)
    return INVALID("%s tensor should be a scalar integer, but got shape %s", axis_name, tensor_shape_str(axis_t));
  int64_t axis = int_at(axis_t, 0);
  int rank = in[0]->rank;
  if (rank == 0) return INVALID("ConcatOp : Can't concatenate scalars (use tf.stack instead)");
  if (axis < -rank || axis >= rank)
    return INVALID("ConcatOp : Expected concatenating dimensions in the range [%d, %d), but got %" PRId64, -rank, rank,
                   axis);
  if (axis < 0) axis += rank;
  struct shape s = tensor_shape(in[0]);
  int filled = 0, filled_at = 0;
  for (int i = 0; i < n; i++) {
    if (in[i]->rank != rank)
      return INVALID("ConcatOp : Ranks of all input tensors should match: shape[0] = %s vs. shape[%d] = %s",
                     tensor_shape_str(in[0]), i, tensor_shape_str(in[i]));
    for (int k = 0; k < rank; k++)
      if (k != axis && in[i]->dims[k] != s.dims[k])
        return INVALID("ConcatOp : Dimension %d in both shapes must be equal: shape[0] = %s vs. shape[%d] = %s", k,
                       tensor_shape_str(in[0]), i, tensor_shape_str(in[i]));
    if (i && __builtin_add_overflow(s.dims[axis], in[i]->dims[axis], &s.dims[axis]))
      return INVALID("ConcatOp : the sum of the sizes is too large");
    if (in[i]->n) filled++, filled_at = i;
  }
  if (filled == 1) return ctx_forward(ctx, 0, first + filled_at, NULL);
  return join(ctx, &s, (int)axis, in, n);
}

static shoal_status concat_run(struct kernel_ctx *ctx) { return concat(ctx, 1, 0, "concat_dim"); }
static shoal_status concat_v2_run(struct kernel_ctx *ctx) { return concat(ctx, 0, ctx->kernel->n_in - 1, "axis"); }

static bool is_v2(const struct shoal_node *n) { return op_is(n->op, "ConcatV2"); }

static shoal_status concat_shape(struct shape_ctx *c) {
  int n = c->node->n_in - 1, first = is_v2(c->node) ? 0 : 1, axis_in = is_v2(c->node) ? n : 0;
  const struct shape *in = c->in + first;
  int64_t axis;
  int rank = -1;
  for (int i = 0; i < n; i++) {
    if (in[i].rank < 0) continue;
    if (rank < 0) rank = in[i].rank;
    else if (rank != in[i].rank)
      return INVALID("Shapes must be equal rank, but are %d and %d. From merging shape %d with other shapes.", rank,
                     in[i].rank, i);
  }
  if (rank < 0) return NULL;
  if (rank == 0) return INVALID("Can't concatenate scalars (use tf.stack instead)");
  if (!shape_in_int(c, axis_in, &axis)) {
    c->out[0] = shape_unknown_of_rank(rank);
    return NULL;
  }
  if (axis < -rank || axis >= rank)
    return INVALID("ConcatOp : Expected concatenating dimensions in the range [%d, %d), but got %" PRId64, -rank, rank,
                   axis);
  if (axis < 0) axis += rank;
  struct shape s = shape_unknown_of_rank(rank);
  int64_t sum = 0;
  for (int i = 0; i < n; i++) {
    if (in[i].rank < 0) {
      sum = -1;
      continue;
    }
    struct shape part = in[i];
    if (part.dims[axis] < 0 || sum < 0) sum = -1;
    else if (__builtin_add_overflow(sum, part.dims[axis], &sum)) return INVALID("Concatenated size is too large");
    part.dims[axis] = -1;
    TRY(shape_merge(&s, &part, &s));
  }
  s.dims[axis] = sum;
  c->out[0] = s;
  return NULL;
}

static shoal_status concat_grad(struct grad_ctx *c) {
  int n = c->node->n_in - 1, first = is_v2(c->node) ? 0 : 1, axis_in = is_v2(c->node) ? n : 0;
  shoal_out dy = grad_dy(c, 0), axis = gin(c, axis_in);
  if (n == 1) {
    grad_set(c, first, dy);
    return NULL;
  }
  struct build b = build_begin(c->g, "ShapeN", NULL);
  for (int i = 0; i < n; i++) build_in(&b, gin(c, first + i));
  struct shoal_node *shapes = build_end(&b);
  b = build_begin(c->g, "ConcatOffset", NULL);
  build_in(&b, build_cast(c->g, axis, SHOAL_INT32));
  for (int i = 0; i < n; i++) build_in(&b, node_out(shapes, i));
  struct shoal_node *offsets = build_end(&b);
  for (int i = 0; i < n; i++) grad_set(c, first + i, array_slice(c->g, dy, node_out(offsets, i), node_out(shapes, i)));
  return NULL;
}

KERNELS_ANYWHERE(concat_kernels, 1, .run = concat_run);
KERNELS_ANYWHERE(concat_v2_kernels, 2, .run = concat_v2_run);

/* ---- ConcatOffset ---- */

static void print_values(const struct tensor *t, struct text *out) {
  text_addc(out, '[');
  for (int64_t i = 0; i < t->n; i++) text_addf(out, "%s%" PRId64, i ? " " : "", int_at(t, i));
  text_addc(out, ']');
}

static shoal_status offset_run(struct kernel_ctx *ctx) {
  const struct tensor *axis_t = ctx_in(ctx, 0), *s0 = ctx_in(ctx, 1);
  if (axis_t->rank != 0)
    return INVALID("Concat dim tensor should be a scalar integer, but got shape %s", tensor_shape_str(axis_t));
  int64_t axis = int_at(axis_t, 0), rank = s0->n, at = 0;
  for (int i = 1; i < ctx->kernel->n_in; i++)
    if (ctx_in(ctx, i)->rank != 1)
      return INVALID("input %d should be a vector, but got shape %s", i - 1, tensor_shape_str(ctx_in(ctx, i)));
  if (axis < -rank || axis >= rank) return INVALID("Concat dim is out of range: %" PRId64 " vs. %" PRId64, axis, rank);
  if (axis < 0) axis += rank;
  for (int i = 1; i < ctx->kernel->n_in; i++) {
    const struct tensor *s = ctx_in(ctx, i);
    if (s->n != rank)
      return INVALID("input %d should contain %" PRId64 " elements, but got %" PRId64, i - 1, rank, s->n);
    struct tensor *y;
    struct shape vector = shape_vector(rank);
    TRY(ctx_out(ctx, i - 1, &vector, &y));
    for (int64_t k = 0; k < rank; k++) {
      int_put(y, k, k == axis ? at : 0);
      if (k == axis || int_at(s, k) == int_at(s0, k)) continue;
      struct text a = {0}, b = {0};
      print_values(s, &a);
      print_values(s0, &b);
      shoal_status bad = INVALID("All dimensions except %" PRId64
                                 " must match. Input %d has shape %s and doesn't match input 0 with shape %s.",
                                 axis, i - 1, text_cstr(&a), text_cstr(&b));
      text_release(&a);
      text_release(&b);
      return bad;
    }
    at += int_at(s, axis);
  }
  return NULL;
}

static shoal_status offset_shape(struct shape_ctx *c) {
  for (int i = 1; i < c->node->n_in; i++) TRY(shape_in_rank(c, i, 1, &c->out[i - 1]));
  return NULL;
}

static const struct kernel_def offset_kernels[] = {{.device = "CPU",
                                                    .flags = KERNEL_CHEAP | KERNEL_ANYWHERE,
                                                    .run = offset_run,
                                                    .host_in = UINT32_MAX,
                                                    .host_out = UINT32_MAX},
                                                   {0}};

/* ---- Split, SplitV ---- */

/* Output k is `count` of the axis from `at` on. */
static shoal_status take_part(struct kernel_ctx *ctx, int x_in, int k, int axis, int64_t at, int64_t count,
                              const struct shape *shape) {
  const struct tensor *x = ctx_in(ctx, x_in);
  int64_t outer = dims_product(x->dims, 0, axis), inner = dims_product(x->dims, axis + 1, x->rank);
  if (outer == 1) {
    ctx_forward_part(ctx, k, x_in, at * inner, shape);
    return NULL;
  }
  struct tensor *y;
  TRY(ctx_out(ctx, k, shape, &y));
  struct strided s = {0};
  strided_add(&s, outer, count * inner, x->dims[axis] * inner);
  strided_add(&s, count * inner, 1, 1);
  return y->n ? ctx_copy_view(ctx, &s, y, 0, x, at * inner) : NULL;
}

static shoal_status split_axis(int64_t axis, int rank, int *out) {
  if (axis < -rank || axis >= rank)
    return INVALID("-input rank(-%d) <= split_dim < input rank (%d), but got %" PRId64, rank, rank, axis);
  *out = (int)(axis < 0 ? axis + rank : axis);
  return NULL;
}

static shoal_status split_run(struct kernel_ctx *ctx) {
  const struct tensor *axis_t = ctx_in(ctx, 0), *x = ctx_in(ctx, 1);
  int n = ctx->kernel->n_out, axis;
  if (axis_t->rank != 0) return INVALID("split_dim must be a scalar but has rank %d", axis_t->rank);
  TRY(split_axis(int_at(axis_t, 0), x->rank, &axis));
  if (x->dims[axis] % n)
    return INVALID(
        "Number of ways to split should evenly divide the split dimension, but got split_dim %d (size = "
        "%" PRId64 ") and num_split %d",
        axis, x->dims[axis], n);
  if (n == 1) return ctx_forward(ctx, 0, 1, NULL);
  struct shape s = tensor_shape(x);
  int64_t each = s.dims[axis] /= n;
  for (int k = 0; k < n; k++) TRY(take_part(ctx, 1, k, axis, k * each, each, &s));
  return NULL;
}

static shoal_status split_shape(struct shape_ctx *c) {
  int64_t axis_v;
  int axis, n = c->node->n_out;
  struct shape s = c->in[1];
  if (s.rank < 0) return NULL;
  if (shape_in_int(c, 0, &axis_v)) {
    TRY(split_axis(axis_v, s.rank, &axis));
    if (s.dims[axis] >= 0) {
      if (s.dims[axis] % n)
        return INVALID("Dimension size must be evenly divisible by %d but is %" PRId64, n, s.dims[axis]);
      s.dims[axis] /= n;
    }
  } else if (n > 1) {
    s = shape_unknown_of_rank(s.rank);
  }
  for (int i = 0; i < n; i++) c->out[i] = s;
  return NULL;
}

/* The size given as -1, from the rest; all sizes checked. */
static shoal_status split_sizes(const struct tensor *sizes, int n, int64_t total, int64_t *missing) {
  if (sizes->rank != 1 || sizes->n != n)
    return INVALID("size of the split_tensor must be 1-D and have the same elements as outputs got %d -D and %" PRId64
                   " elements",
                   sizes->rank, sizes->n);
  int64_t sum = 0;
  bool open = false;
  for (int i = 0; i < n; i++) {
    int64_t v = int_at(sizes, i);
    if (v == -1) {
      if (open) return INVALID("There can only be one -1 in the input.");
      open = true;
    } else if (v < 0) {
      return INVALID("Split size at index %d must be >= 0. Got: %" PRId64, i, v);
    } else if (__builtin_add_overflow(sum, v, &sum)) {
      return INVALID("Split sizes are too large");
    }
  }
  if (open ? sum > total : sum != total)
    return INVALID(
        "Determined shape must either match input shape along split_dim exactly if fully specified, or be "
        "less than the size of the input along split_dim if not fully specified.  Got: %" PRId64,
        sum);
  *missing = total - sum;
  return NULL;
}

static shoal_status split_v_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *sizes = ctx_in(ctx, 1), *axis_t = ctx_in(ctx, 2);
  int n = ctx->kernel->n_out, axis;
  int64_t missing, at = 0;
  if (axis_t->n != 1) return INVALID("split_dim_tensor must have exactly one element.");
  TRY(split_axis(int_at(axis_t, 0), x->rank, &axis));
  TRY(split_sizes(sizes, n, x->dims[axis], &missing));
  struct shape s = tensor_shape(x);
  for (int k = 0; k < n; k++) {
    int64_t count = int_at(sizes, k);
    s.dims[axis] = count = count < 0 ? missing : count;
    TRY(take_part(ctx, 0, k, axis, at, count, &s));
    at += count;
  }
  return NULL;
}

static shoal_status split_v_shape(struct shape_ctx *c) {
  int64_t axis_v, missing;
  int axis, n = c->node->n_out;
  struct shape s = c->in[0];
  if (s.rank < 0) return NULL;
  if (!shape_in_int(c, 2, &axis_v)) {
    for (int i = 0; i < n; i++) c->out[i] = shape_unknown_of_rank(s.rank);
    return NULL;
  }
  TRY(split_axis(axis_v, s.rank, &axis));
  int64_t total = s.dims[axis];
  if (c->values[1] && total >= 0) TRY(split_sizes(c->values[1], n, total, &missing));
  for (int i = 0; i < n; i++) {
    int64_t v = c->values[1] && c->values[1]->rank == 1 && c->values[1]->n == n ? int_at(c->values[1], i) : -1;
    s.dims[axis] = v >= 0 ? v : c->values[1] && total >= 0 ? missing : n == 1 ? total : -1;
    c->out[i] = s;
  }
  return NULL;
}

static shoal_status split_grad(struct grad_ctx *c) {
  bool v = op_is(c->node->op, "SplitV");
  int n = c->node->n_out;
  if (n == 1) {
    grad_set(c, v ? 0 : 1, grad_dy(c, 0));
    return NULL;
  }
  struct build b = build_begin(c->g, "ConcatV2", NULL);
  for (int i = 0; i < n; i++) build_in(&b, grad_dy(c, i));
  build_in(&b, gin(c, v ? 2 : 0));
  grad_set(c, v ? 0 : 1, build_end_out(&b));
  return NULL;
}

KERNELS_ANYWHERE(split_kernels, 1, .run = split_run);
KERNELS_ANYWHERE(split_v_kernels, 6, .run = split_v_run);

/* ---- Pack, Unpack ---- */

struct axis_state {
  int64_t axis;
};

static shoal_status axis_init(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "axis", &((struct axis_state *)state)->axis);
}

static shoal_status pack_axis(int64_t axis, int rank, int *out) {
  if (axis < -rank || axis >= rank) return INVALID("axis = %" PRId64 " not in [%d, %d)", axis, -rank, rank);
  *out = (int)(axis < 0 ? axis + rank : axis);
  return NULL;
}

static void insert_dim(struct shape *s, int axis, int64_t dim) {
  for (int i = s->rank++; i > axis; i--) s->dims[i] = s->dims[i - 1];
  s->dims[axis] = dim;
}

static void remove_dim(struct shape *s, int axis) {
  s->rank--;
  for (int i = axis; i < s->rank; i++) s->dims[i] = s->dims[i + 1];
}

static shoal_status pack_run(struct kernel_ctx *ctx) {
  int n = ctx->kernel->n_in, axis;
  const struct tensor *const *in = ctx->in;
  struct shape s = tensor_shape(in[0]);
  TRY(pack_axis(((struct axis_state *)ctx->state)->axis, s.rank + 1, &axis));
  if (s.rank == SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
  for (int i = 1; i < n; i++)
    if (!tensor_same_shape(in[0], in[i]))
      return INVALID("Shapes of all inputs must match: values[0].shape = %s != values[%d].shape = %s", shape_str(&s), i,
                     tensor_shape_str(in[i]));
  insert_dim(&s, axis, n);
  if (n == 1) return ctx_forward(ctx, 0, 0, &s);
  return join(ctx, &s, axis, in, n);
}

static shoal_status pack_shape(struct shape_ctx *c) {
  struct shape s = c->in[0];
  int64_t axis_v;
  int axis;
  for (int i = 1; i < c->node->n_in; i++) TRY(shape_merge(&s, &c->in[i], &s));
  if (s.rank < 0 || s.rank == SHOAL_MAX_RANK) return NULL;
  TRY(node_get_int(c->node, "axis", &axis_v));
  TRY(pack_axis(axis_v, s.rank + 1, &axis));
  insert_dim(&s, axis, c->node->n_in);
  c->out[0] = s;
  return NULL;
}

static shoal_status pack_grad(struct grad_ctx *c) {
  int64_t axis;
  TRY(node_get_int(c->node, "axis", &axis));
  struct build b = build_begin(c->g, "Unpack", NULL);
  build_in(&b, grad_dy(c, 0));
  build_attr_int(&b, "num", c->node->n_in);
  build_attr_int(&b, "axis", axis);
  struct shoal_node *parts = build_end(&b);
  for (int i = 0; i < c->node->n_in; i++) grad_set(c, i, node_out(parts, i));
  return NULL;
}

static shoal_status unpack_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  int n = ctx->kernel->n_out, axis;
  TRY(pack_axis(((struct axis_state *)ctx->state)->axis, x->rank, &axis));
  if (x->dims[axis] != n)
    return INVALID("Input shape axis %d must equal %d, got shape %s", axis, n, tensor_shape_str(x));
  struct shape s = tensor_shape(x);
  remove_dim(&s, axis);
  for (int k = 0; k < n; k++) TRY(take_part(ctx, 0, k, axis, k, 1, &s));
  return NULL;
}

static shoal_status unpack_shape(struct shape_ctx *c) {
  struct shape s = c->in[0];
  int64_t axis_v;
  int axis, n = c->node->n_out;
  if (s.rank < 0) return NULL;
  TRY(node_get_int(c->node, "axis", &axis_v));
  TRY(pack_axis(axis_v, s.rank, &axis));
  if (s.dims[axis] >= 0 && s.dims[axis] != n) return INVALID("Dimension must be %d but is %" PRId64, n, s.dims[axis]);
  remove_dim(&s, axis);
  for (int i = 0; i < n; i++) c->out[i] = s;
  return NULL;
}

static shoal_status unpack_grad(struct grad_ctx *c) {
  int64_t axis;
  TRY(node_get_int(c->node, "axis", &axis));
  if (c->node->n_out == 0) return NULL;
  struct build b = build_begin(c->g, "Pack", NULL);
  for (int i = 0; i < c->node->n_out; i++) build_in(&b, grad_dy(c, i));
  build_attr_int(&b, "axis", axis);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

KERNELS_ANYWHERE(pack_kernels, 0, .state_size = sizeof(struct axis_state), .init = axis_init, .run = pack_run);
KERNELS_ANYWHERE(unpack_kernels, 0, .state_size = sizeof(struct axis_state), .init = axis_init, .run = unpack_run);

/* ---- ParallelConcat: inputs of one row each, joined ---- */

static shoal_status parallel_run(struct kernel_ctx *ctx) {
  int n = ctx->kernel->n_in;
  struct shape s = tensor_shape(ctx_in(ctx, 0));
  if (s.rank == 0 || s.dims[0] != 1) return INVALID("Size of first dimension must be 1.");
  for (int i = 1; i < n; i++)
    if (!tensor_same_shape(ctx_in(ctx, 0), ctx_in(ctx, i)))
      return INVALID("All input shapes must be the same: %s and %s", shape_str(&s), tensor_shape_str(ctx_in(ctx, i)));
  s.dims[0] = n;
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  struct concat_job j = {.dtype = (shoal_dtype)y->dtype,
                         .size = dtype_size((shoal_dtype)y->dtype),
                         .n = n,
                         .in = ctx->in,
                         .outer = 1,
                         .row = y->n,
                         .to = y->data};
  return join_rows(ctx, &j, y);
}

static const struct kernel_def parallel_kernels[] = {{.device = "CPU", .run = parallel_run}, {0}};

static const struct op_row rows[] = {
    {.name = "Concat",
     .in = "concat_dim: int32, values: N * T",
     .out = "output: T",
     .attrs = "N: int >= 2; T: type",
     .shape = concat_shape,
     .grad = concat_grad,
     .kernels = concat_kernels},
    {.name = "ConcatV2",
     .in = "values: N * T, axis: Tidx",
     .out = "output: T",
     .attrs = "N: int >= 2; T: type; Tidx: {int32, int64} = int32",
     .shape = concat_shape,
     .grad = concat_grad,
     .kernels = concat_v2_kernels},
    {.name = "ConcatOffset",
     .in = "concat_dim: int32, shape: N * shape_type",
     .out = "offset: N * shape_type",
     .attrs = "N: int >= 2; shape_type: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = offset_shape,
     .kernels = offset_kernels},
    {.name = "ParallelConcat",
     .in = "values: N * T",
     .out = "output: T",
     .attrs = "N: int >= 1; T: type; shape: shape",
     .shape = shape_explicit,
     .kernels = parallel_kernels},
    {.name = "Split",
     .in = "split_dim: int32, value: T",
     .out = "output: num_split * T",
     .attrs = "num_split: int >= 1; T: type",
     .shape = split_shape,
     .grad = split_grad,
     .kernels = split_kernels},
    {.name = "SplitV",
     .in = "value: T, size_splits: Tlen, split_dim: int32",
     .out = "output: num_split * T",
     .attrs = "num_split: int >= 1; T: type; Tlen: {int8, int32, int64} = int64",
     .shape = split_v_shape,
     .grad = split_grad,
     .kernels = split_v_kernels},
    {.name = "Pack",
     .in = "values: N * T",
     .out = "output: T",
     .attrs = "N: int >= 1; T: type; axis: int = 0",
     .shape = pack_shape,
     .grad = pack_grad,
     .kernels = pack_kernels},
    {.name = "Unpack",
     .in = "value: T",
     .out = "output: num * T",
     .attrs = "num: int >= 0; T: type; axis: int = 0",
     .shape = unpack_shape,
     .grad = unpack_grad,
     .kernels = unpack_kernels},
};
OP_FAMILY(concat, rows);
