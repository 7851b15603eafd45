/* Gather, GatherV2, GatherNd: rows by index. Indices are checked in one pass first; the copies that follow are
 * plain memcpy of rows, shared among threads, and run at the speed of memory. */
#include <string.h>

#include "ops/array/gather.h"

/* ---- Gather along an axis ---- */

struct gather_work {
  shoal_dtype dtype;
  char *to;
  const char *from;
  const int64_t *wide; /* one of these is the indices */
  const int32_t *narrow;
  const struct tensor *indices; /* of other types */
  int64_t n;                    /* indices in a batch entry */
  int64_t outer;                /* slices of params in a batch entry */
  int64_t dim;                  /* size of the gathered dimension */
  int64_t inner;                /* elements of a row */
  size_t bytes;                 /* of a row */
};

/* Row r of the output is [batch, outer, index]. */
static void gather_piece(void *arg, int64_t begin, int64_t end) {
  const struct gather_work *g = arg;
  size_t bytes = g->bytes;
  bool plain = dtype_plain(g->dtype);
  int64_t slice = begin / g->n, at = begin % g->n;
  char *to = g->to + (size_t)begin * bytes;
  while (begin < end) {
    int64_t stop = MIN(g->n, at + end - begin);
    const char *base = g->from + (size_t)(slice * g->dim) * bytes;
    int64_t first = slice / g->outer * g->n;
    begin += stop - at;
#define COPY(index, copy)                                          \
  for (; at < stop; at++, to += bytes) {                           \
    const char *from = base + (size_t)(index)[first + at] * bytes; \
    copy;                                                          \
  }
#define COPY_BY_SIZE(index)              \
  if (bytes == 4) {                      \
    COPY(index, memcpy(to, from, 4))     \
  } else if (bytes == 8) {               \
    COPY(index, memcpy(to, from, 8))     \
  } else {                               \
    COPY(index, memcpy(to, from, bytes)) \
  }
    if (!plain) {
      for (; at < stop; at++, to += bytes)
        elements_copy(g->dtype, to, base + (size_t)int_at(g->indices, first + at) * bytes, g->inner);
    } else if (g->narrow) {
      COPY_BY_SIZE(g->narrow)
    } else if (g->wide) {
      COPY_BY_SIZE(g->wide)
    } else {
      for (; at < stop; at++, to += bytes) memcpy(to, base + (size_t)int_at(g->indices, first + at) * bytes, bytes);
    }
    at = 0;
    slice++;
  }
}

static shoal_status check_indices(const struct tensor *indices, int64_t dim) {
  int64_t bad = -1;
  if (indices->dtype == SHOAL_INT32) {
    const int32_t *x = indices->data;
    for (int64_t i = 0; i < indices->n && bad < 0; i++)
      if ((uint64_t)(int64_t)x[i] >= (uint64_t)dim) bad = i;
  } else {
    for (int64_t i = 0; i < indices->n && bad < 0; i++)
      if ((uint64_t)int_at(indices, i) >= (uint64_t)dim) bad = i;
  }
  if (bad < 0) return NULL;
  return INVALID("indices%s = %" PRId64 " is not in [0, %" PRId64 ")",
                 indices->rank ? place_str(indices->rank, indices->dims, bad) : "", int_at(indices, bad), dim);
}

static shoal_status check_batch(const struct tensor *params, const struct tensor *indices, int64_t axis,
                                int64_t *batch) {
  if (*batch == 0) return NULL;
  if (*batch < -indices->rank || *batch > indices->rank)
    return INVALID("Expected batch_dims in the range [%d, %d], but got %" PRId64, -indices->rank, indices->rank,
                   *batch);
  if (*batch < 0) *batch += indices->rank;
  if (*batch >= params->rank)
    return INVALID("batch_dims (%" PRId64 ") must be less than rank(params) (%d).", *batch, params->rank);
  if (axis < *batch)
    return INVALID("batch_dims (%" PRId64 ") must be less than or equal to axis (%" PRId64 ").", *batch, axis);
  for (int i = 0; i < *batch; i++)
    if (params->dims[i] != indices->dims[i])
      return INVALID("params.shape[%d]: %" PRId64 " should be equal to indices.shape[%d]: %" PRId64, i,
                     params->dims[i], i, indices->dims[i]);
  return NULL;
}

shoal_status gather_sizes_find(const struct tensor *params, const struct tensor *indices, int64_t axis, int64_t batch,
                               struct gather_sizes *out) {
  struct shape *s = &out->out;
  if (params->rank < 1) return INVALID("params must be at least 1 dimensional");
  if (axis < -params->rank || axis >= params->rank)
    return INVALID("Expected axis in the range [%d, %d), but got %" PRId64, -params->rank, params->rank, axis);
  if (axis < 0) axis += params->rank;
  TRY(check_batch(params, indices, axis, &batch));
  if (axis + indices->rank - batch + params->rank - axis - 1 > SHOAL_MAX_RANK)
    return INVALID("The result of a gather has at most %d dimensions", SHOAL_MAX_RANK);
  *s = (struct shape){0};
  for (int i = 0; i < axis; i++) s->dims[s->rank++] = params->dims[i];
  for (int i = (int)batch; i < indices->rank; i++) s->dims[s->rank++] = indices->dims[i];
  for (int i = (int)axis + 1; i < params->rank; i++) s->dims[s->rank++] = params->dims[i];
  out->n = dims_product(indices->dims, (int)batch, indices->rank);
  out->outer = dims_product(params->dims, (int)batch, (int)axis);
  out->dim = params->dims[axis];
  out->inner = dims_product(params->dims, (int)axis + 1, params->rank);
  return NULL;
}

static shoal_status gather(struct kernel_ctx *ctx, int64_t axis, int64_t batch) {
  const struct tensor *params = ctx_in(ctx, 0), *indices = ctx_in(ctx, 1);
  struct gather_sizes sizes;
  struct tensor *y;
  TRY(gather_sizes_find(params, indices, axis, batch, &sizes));
  TRY(check_indices(indices, sizes.dim));
  TRY(ctx_out(ctx, 0, &sizes.out, &y));
  if (!y->n) return NULL;
  struct gather_work g = {.dtype = (shoal_dtype)params->dtype,
                          .to = y->data,
                          .from = params->data,
                          .indices = indices,
                          .n = sizes.n,
                          .outer = sizes.outer,
                          .dim = sizes.dim,
                          .inner = sizes.inner};
  if (indices->dtype == SHOAL_INT32) g.narrow = indices->data;
  else if (indices->dtype == SHOAL_INT64) g.wide = indices->data;
  g.bytes = (size_t)g.inner * dtype_size(g.dtype);
  pool_for(ctx_pool(ctx), y->n / g.inner, copy_grain((int64_t)g.bytes), gather_piece, &g);
  return NULL;
}

static shoal_status gather_run(struct kernel_ctx *ctx) { return gather(ctx, 0, 0); }

struct gather_state {
  int64_t batch;
};

static shoal_status gather_v2_init(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "batch_dims", &((struct gather_state *)state)->batch);
}

static shoal_status gather_v2_run(struct kernel_ctx *ctx) {
  const struct tensor *axis = ctx_in(ctx, 2);
  if (axis->rank != 0) return INVALID("axis must be scalar");
  return gather(ctx, int_at(axis, 0), ((struct gather_state *)ctx->state)->batch);
}

static shoal_status gather_shape(struct shape_ctx *c) {
  const struct shape *p = &c->in[0], *i = &c->in[1];
  int64_t axis = 0, batch = 0;
  bool v2 = c->node->n_in == 3;
  if (v2) TRY(node_get_int(c->node, "batch_dims", &batch));
  if (p->rank < 0 || i->rank < 0) return NULL;
  if (batch < 0) batch += i->rank;
  if (p->rank < 1 || batch < 0 || batch > i->rank || batch > p->rank - 1) {
    if (p->rank < 1) return INVALID("Shape must be at least rank 1 but is rank 0");
    return INVALID("batch_dims is out of range for params of rank %d and indices of rank %d", p->rank, i->rank);
  }
  int rank = p->rank + i->rank - (int)batch - 1;
  if (rank > SHOAL_MAX_RANK) return NULL;
  if (v2 && !shape_in_int(c, 2, &axis)) {
    c->out[0] = shape_unknown_of_rank(rank);
    return NULL;
  }
  if (axis < 0) axis += p->rank;
  if (axis < 0 || axis >= p->rank)
    return INVALID("Shape must be at least rank %" PRId64 " but is rank %d", axis + 1, p->rank);
  struct shape *s = &c->out[0];
  s->rank = 0;
  for (int k = 0; k < axis; k++) s->dims[s->rank++] = k < batch && p->dims[k] < 0 ? i->dims[k] : p->dims[k];
  for (int k = (int)batch; k < i->rank; k++) s->dims[s->rank++] = i->dims[k];
  for (int k = (int)axis + 1; k < p->rank; k++) s->dims[s->rank++] = p->dims[k];
  return NULL;
}

/* Rows 0: the gradient is the rows themselves, with their indices. */
static void gather_grad_rows(struct grad_ctx *c) {
  shoal_out params = gin(c, 0), indices = gin(c, 1), dy = grad_dy(c, 0);
  shoal_out shape = array_shape(c->g, params, SHOAL_INT32);
  int64_t flat = -1;
  if (out_shape(indices).rank != 1) {
    shoal_out count = array_expand(c->g, build_op1(c->g, "Size", indices), 0);
    shoal_out parts[2] = {count, array_part(c->g, shape, 1, INT32_MAX)};
    dy = array_reshape(c->g, dy, array_concat(c->g, parts, 2, 0));
  }
  indices = array_reshape(c->g, indices, build_const_ints(c->g, SHOAL_INT32, &flat, 1));
  grad_set_slices(c, 0, dy, indices, shape);
}

/* Any axis, with batch dimensions: the gathered dimension comes first (after one that stands for the batch), the
 * rows are added up where they came from, and everything goes back to its place. */
static shoal_status gather_grad_axis(struct grad_ctx *c, int64_t axis, int64_t batch) {
  struct shoal_graph *g = c->g;
  shoal_out params = gin(c, 0), indices = gin(c, 1), dy = grad_dy(c, 0);
  struct shape p = out_shape(params), ix = out_shape(indices);
  if (p.rank < 0 || ix.rank < 0)
    return UNIMPLEMENTED("The gradient of %s (%s) needs the ranks of its inputs", c->node->name, c->node->op->name);
  if (axis < 0) axis += p.rank;
  if (batch < 0) batch += ix.rank;
  int a = (int)axis, b = (int)batch, outer = a - b, inner = p.rank - a - 1;
  shoal_out shape = array_shape(g, params, SHOAL_INT32), one = build_const_int(g, SHOAL_INT32, 1);
  int64_t flat = -1, zero = 0;
  shoal_out minus = build_const_ints(g, SHOAL_INT32, &flat, 1), zeros = build_const_ints(g, SHOAL_INT32, &zero, 1);
  shoal_out dim = array_at(g, shape, a), entries = build_op2(g, "Prod", array_part(g, shape, 0, b), zeros);
  if (b == 0) entries = one;
  shoal_out entries1 = array_expand(g, entries, 0), dim1 = array_expand(g, dim, 0);
  shoal_out outer_shape = array_part(g, shape, b, a), inner_shape = array_part(g, shape, a + 1, INT32_MAX);
  /* [entries, outer..., n, inner...] -> [entries, n, outer..., inner...] */
  shoal_out count = build_op2(g, "Prod", array_part(g, array_shape(g, indices, SHOAL_INT32), b, INT32_MAX), zeros);
  shoal_out parts[5] = {entries1, outer_shape, array_expand(g, count, 0), inner_shape};
  shoal_out v = array_reshape(g, dy, array_concat(g, parts, 4, 0));
  int64_t perm[SHOAL_MAX_RANK + 2], back[SHOAL_MAX_RANK + 2];
  int rank = 1 + outer + 1 + inner;
  perm[0] = 0;
  perm[1] = 1 + outer;
  for (int i = 0; i < outer; i++) perm[2 + i] = 1 + i;
  for (int i = 0; i < inner; i++) perm[2 + outer + i] = 2 + outer + i;
  for (int i = 0; i < rank; i++) back[perm[i]] = i;
  if (outer) v = array_transpose(g, v, build_const_ints(g, SHOAL_INT32, perm, rank));
  shoal_out rows[3] = {minus, outer_shape, inner_shape};
  v = array_reshape(g, v, array_concat(g, rows, 3, 0));
  /* Entry e's indices are moved on by e times the size of the dimension. */
  shoal_dtype it = out_type(indices);
  shoal_out ids = array_reshape(g, indices, minus);
  if (b) {
    shoal_out steps = build_op2(g, "Mul", build_op3(g, "Range", build_const_int(g, SHOAL_INT32, 0), entries, one), dim);
    shoal_out grid[2] = {entries1, minus};
    ids = build_op2(g, "AddV2", array_reshape(g, indices, array_concat(g, grid, 2, 0)),
                    array_expand(g, build_cast(g, steps, it), 1));
    ids = array_reshape(g, ids, minus);
  }
  v = build_op3(g, "UnsortedSegmentSum", v, ids, build_op2(g, "Mul", entries, dim));
  shoal_out whole[4] = {entries1, dim1, outer_shape, inner_shape};
  v = array_reshape(g, v, array_concat(g, whole, 4, 0));
  if (outer) v = array_transpose(g, v, build_const_ints(g, SHOAL_INT32, back, rank));
  grad_set(c, 0, array_reshape(g, v, shape));
  return NULL;
}

static shoal_status gather_grad(struct grad_ctx *c) {
  gather_grad_rows(c);
  return NULL;
}

static shoal_status gather_v2_grad(struct grad_ctx *c) {
  int64_t axis, batch;
  TRY(node_get_int(c->node, "batch_dims", &batch));
  if (!array_const_int(gin(c, 2), &axis))
    return UNIMPLEMENTED("The gradient of %s (GatherV2) needs a constant axis", c->node->name);
  if (axis == 0 && batch == 0) {
    gather_grad_rows(c);
    return NULL;
  }
  return gather_grad_axis(c, axis, batch);
}

static const struct kernel_def gather_kernels[] = {{.device = "CPU", .run = gather_run}, {0}};
static const struct kernel_def gather_v2_kernels[] = {{.device = "CPU",
                                                       .state_size = sizeof(struct gather_state),
                                                       .init = gather_v2_init,
                                                       .run = gather_v2_run,
                                                       .host_in = 4},
                                                      {0}};

/* ---- GatherNd ---- */

struct gather_nd {
  shoal_dtype dtype;
  char *to;
  const char *from;
  const struct tensor *indices;
  int depth;
  int64_t strides[SHOAL_MAX_RANK]; /* in rows */
  int64_t inner;
  size_t bytes;
};

static void gather_nd_piece(void *arg, int64_t begin, int64_t end) {
  const struct gather_nd *g = arg;
  bool plain = dtype_plain(g->dtype);
  for (int64_t i = begin; i < end; i++) {
    int64_t row = 0;
    for (int k = 0; k < g->depth; k++) row += int_at(g->indices, i * g->depth + k) * g->strides[k];
    const char *from = g->from + (size_t)row * g->bytes;
    char *to = g->to + (size_t)i * g->bytes;
    if (plain) memcpy(to, from, g->bytes);
    else elements_copy(g->dtype, to, from, g->inner);
  }
}

static shoal_status gather_nd_run(struct kernel_ctx *ctx) {
  const struct tensor *params = ctx_in(ctx, 0), *ix = ctx_in(ctx, 1);
  if (params->rank < 1) return INVALID("params must be at least a vector");
  if (ix->rank < 1) return INVALID("indices must be at least a vector");
  int64_t depth = ix->dims[ix->rank - 1];
  if (depth > params->rank)
    return INVALID("index innermost dimension length must be <= params rank; saw: %" PRId64 " vs. %d", depth,
                   params->rank);
  int64_t n = dims_product(ix->dims, 0, ix->rank - 1);
  if (n > 0 && params->n == 0 && dims_product(params->dims, 0, (int)depth) == 0)
    return INVALID("Requested more than 0 entries, but params is empty.  Params shape: %s", tensor_shape_str(params));
  struct shape s = {0};
  if (ix->rank - 1 + params->rank - depth > SHOAL_MAX_RANK)
    return INVALID("The result of a gather has at most %d dimensions", SHOAL_MAX_RANK);
  for (int i = 0; i < ix->rank - 1; i++) s.dims[s.rank++] = ix->dims[i];
  for (int i = (int)depth; i < params->rank; i++) s.dims[s.rank++] = params->dims[i];
  for (int64_t i = 0; i < n; i++)
    for (int k = 0; k < depth; k++)
      if ((uint64_t)int_at(ix, i * depth + k) >= (uint64_t)params->dims[k])
        return INVALID("indices%s = %s does not index into param shape %s, node name: %s",
                       place_str(ix->rank - 1, ix->dims, i), ints_str(ix, i * depth, depth, ", "),
                       tensor_shape_str(params), ctx->kernel->name);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  struct gather_nd g = {
      .dtype = (shoal_dtype)params->dtype, .to = y->data, .from = params->data, .indices = ix, .depth = (int)depth};
  g.inner = dims_product(params->dims, g.depth, params->rank);
  g.bytes = (size_t)g.inner * dtype_size(g.dtype);
  for (int k = 0; k < g.depth; k++) g.strides[k] = dims_product(params->dims, k + 1, g.depth);
  pool_for(ctx_pool(ctx), n, copy_grain((int64_t)g.bytes + 16 * depth), gather_nd_piece, &g);
  return NULL;
}

static shoal_status gather_nd_shape(struct shape_ctx *c) {
  const struct shape *p = &c->in[0], *ix = &c->in[1];
  if (p->rank < 0 || ix->rank < 0) return NULL;
  if (ix->rank < 1) return INVALID("Shape must be at least rank 1 but is rank 0");
  int64_t depth = ix->dims[ix->rank - 1];
  if (depth < 0) return NULL;
  if (depth > p->rank)
    return INVALID("indices.shape[-1] must be <= params.rank, but saw indices shape: %s and params shape: %s",
                   shape_str(ix), shape_str(p));
  if (ix->rank - 1 + p->rank - depth > SHOAL_MAX_RANK) return NULL;
  struct shape *s = &c->out[0];
  s->rank = 0;
  for (int i = 0; i < ix->rank - 1; i++) s->dims[s->rank++] = ix->dims[i];
  for (int i = (int)depth; i < p->rank; i++) s->dims[s->rank++] = p->dims[i];
  return NULL;
}

static shoal_status gather_nd_grad(struct grad_ctx *c) {
  shoal_out params = gin(c, 0), ix = gin(c, 1), dy = grad_dy(c, 0);
  shoal_out shape = array_shape(c->g, params, out_type(ix) == SHOAL_INT64 ? SHOAL_INT64 : SHOAL_INT32);
  struct shape is = out_shape(ix);
  if (is.rank == 2 && is.dims[1] == 1) {
    int64_t flat = -1;
    grad_set_slices(c, 0, dy, array_reshape(c->g, ix, build_const_ints(c->g, SHOAL_INT32, &flat, 1)), shape);
    return NULL;
  }
  if (out_type(ix) == SHOAL_INT16) ix = build_cast(c->g, ix, SHOAL_INT32);
  grad_set(c, 0, build_op3(c->g, "ScatterNd", ix, dy, shape));
  return NULL;
}

static const struct kernel_def gather_nd_kernels[] = {{.device = "CPU", .run = gather_nd_run}, {0}};

static const struct op_row rows[] = {
    {.name = "Gather",
     .in = "params: Tparams, indices: Tindices",
     .out = "output: Tparams",
     .attrs = "validate_indices: bool = true; Tparams: type; Tindices: {int32, int64}",
     .shape = gather_shape,
     .grad = gather_grad,
     .kernels = gather_kernels},
    {.name = "GatherV2",
     .in = "params: Tparams, indices: Tindices, axis: Taxis",
     .out = "output: Tparams",
     .attrs = "batch_dims: int = 0; Tparams: type; Tindices: {int16, int32, int64}; Taxis: {int32, int64}",
     .shape = gather_shape,
     .grad = gather_v2_grad,
     .kernels = gather_v2_kernels},
    {.name = "GatherNd",
     .in = "params: Tparams, indices: Tindices",
     .out = "output: Tparams",
     .attrs = "Tparams: type; Tindices: {int16, int32, int64}",
     .shape = gather_nd_shape,
     .grad = gather_nd_grad,
     .kernels = gather_nd_kernels},
};
OP_FAMILY(gather, rows);
