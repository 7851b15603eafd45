/* Rows of variables: scatter updates and gathers, by index (Scatter*, ResourceScatter*, ResourceGather) and by
 * coordinates (ScatterNd*, ResourceScatterNd*, ResourceGatherNd).
 *
 * All scatters end in one loop: for each update, a place in the variable (in elements) and a run of elements that is
 * combined into it. Indices are checked before anything is changed. Updates of one place are applied in the order of
 * the indices; on several threads each thread owns a part of the places, never a part of the updates, so the
 * result does not depend on the number of threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/gradient.h"
#include "ops/state/variable_rows.h"

/* Rows lie far apart: those AHEAD are asked for while one is worked on. */
enum { AHEAD = 6, AHEAD_BYTES = 512 };
enum { SHARDS = 16, PARALLEL_MIN = 1 << 17, PARALLEL_MIN_RUN = 16 };

struct rows_loop {
  update_fn fn;
  shoal_dtype dtype;
  size_t size;
  char *to;
  const char *by;
  const int64_t *place; /* [n] the run's number in the variable */
  int64_t n, run;       /* updates; elements of each */
  int64_t by_stride;    /* elements from one update to the next; 0: one row for all */
};

static void ask_for(const char *row, size_t bytes) {
  for (size_t at = 0; at < bytes && at < AHEAD_BYTES; at += 64) __builtin_prefetch(row + at);
}

static void rows_all(const struct rows_loop *l) {
  size_t bytes = (size_t)l->run * l->size;
  for (int64_t i = 0; i < l->n; i++) {
    if (i + AHEAD < l->n) ask_for(l->to + (size_t)l->place[i + AHEAD] * bytes, bytes);
    l->fn(l->dtype, l->to + (size_t)(l->place[i] * l->run) * l->size, l->by + (size_t)(i * l->by_stride) * l->size,
          l->run);
  }
}

static void rows_shards(void *arg, int64_t begin, int64_t end) {
  const struct rows_loop *l = arg;
  for (int64_t i = 0; i < l->n; i++) {
    int64_t shard = l->place[i] % SHARDS;
    if (shard < begin || shard >= end) continue;
    l->fn(l->dtype, l->to + (size_t)(l->place[i] * l->run) * l->size, l->by + (size_t)(i * l->by_stride) * l->size,
          l->run);
  }
}

static void rows_run(struct pool *p, struct rows_loop *l) {
  if (l->run < PARALLEL_MIN_RUN || l->n * l->run < PARALLEL_MIN) rows_all(l);
  else pool_for(p, SHARDS, 1, rows_shards, l);
}

/* One update row for all places, from a scalar. */
static shoal_status spread(struct kernel_ctx *ctx, const struct tensor *scalar, int64_t run, struct tensor *out) {
  struct shape shape = shape_vector(run);
  TRY(ctx_temp(ctx, (shoal_dtype)scalar->dtype, &shape, out));
  size_t size = dtype_size((shoal_dtype)scalar->dtype);
  for (int64_t i = 0; i < run; i++)
    elements_copy((shoal_dtype)scalar->dtype, (char *)out->data + (size_t)i * size, scalar->data, 1);
  return NULL;
}

static bool has_zero(const struct tensor *t) {
  size_t size = dtype_size((shoal_dtype)t->dtype);
  for (int64_t i = 0; i < t->n; i++) {
    static const char zeros[16];
    if (memcmp((const char *)t->data + (size_t)i * size, zeros, size) == 0) return true;
  }
  return false;
}

static shoal_status no_kernel(const struct kernel_ctx *ctx, shoal_dtype dtype) {
  return UNIMPLEMENTED("%s has no CPU kernel for type %s", ctx->kernel->op->name, dtype_tf_name(dtype));
}

/* What both kinds of scatter share once places are known. Called with the variable locked. */
static shoal_status apply(struct kernel_ctx *ctx, enum update op, struct variable *v, const int64_t *place, int64_t n,
                          int64_t run) {
  const struct tensor *by = ctx_in(ctx, 2);
  shoal_dtype dtype = (shoal_dtype)v->value.dtype;
  struct rows_loop l = {.fn = update_find(op, dtype),
                        .dtype = dtype,
                        .size = dtype_size(dtype),
                        .by = by->data,
                        .place = place,
                        .n = n,
                        .run = run,
                        .by_stride = run};
  if (!l.fn) return no_kernel(ctx, dtype);
  if (op == UPDATE_DIV && dtype_integer(dtype) && has_zero(by)) return INVALID("updates must not contain 0");
  TRY(state_sparse_access(ctx, 0, v));
  l.to = v->value.data;
  if (n == 0 || run == 0) return NULL;
  struct tensor row = tensor_none();
  if (by->rank == 0 && by->n != n * run) {
    TRY(spread(ctx, by, run, &row));
    l.by = row.data;
    l.by_stride = 0;
  }
  rows_run(ctx_pool(ctx), &l);
  if (tensor_valid(&row)) tensor_release(&row);
  return NULL;
}

static shoal_status check_value(const struct variable *v, const struct tensor *updates) {
  if (!tensor_valid(&v->value))
    return STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value %s", v->name);
  if (v->value.dtype != updates->dtype)
    return INVALID("DType of variable handle and updates does not match: %s and %s", dtype_tf_name(v->value.dtype),
                   dtype_tf_name(updates->dtype));
  return NULL;
}

/* Room for the place of each of n indices. */
static shoal_status places_new(struct kernel_ctx *ctx, int64_t n, struct tensor *out) {
  struct shape shape = shape_vector(n);
  return ctx_temp(ctx, SHOAL_INT64, &shape, out);
}

/* ---- by index ---- */

static bool scatter_shapes_fit(const struct tensor *params, const struct tensor *indices,
                               const struct tensor *updates) {
  if (updates->rank == 0) return true;
  if (updates->rank != indices->rank + params->rank - 1) return false;
  for (int i = 0; i < indices->rank; i++)
    if (updates->dims[i] != indices->dims[i]) return false;
  for (int i = 1; i < params->rank; i++)
    if (params->dims[i] != updates->dims[indices->rank + i - 1]) return false;
  return true;
}

shoal_status scatter_check(const struct variable *v, const struct tensor *indices, const struct tensor *updates) {
  const struct tensor *params = &v->value;
  TRY(check_value(v, updates));
  struct shape ps = tensor_shape(params), is = tensor_shape(indices), us = tensor_shape(updates);
  if (params->rank < 1) return INVALID("params must be at least 1-D, got shape %s", shape_str(&ps));
  if (!scatter_shapes_fit(params, indices, updates))
    return INVALID(
        "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape "
        "%s, indices.shape %s, params.shape %s",
        shape_str(&us), shape_str(&is), shape_str(&ps));
  return NULL;
}

static shoal_status scatter_locked(struct kernel_ctx *ctx, enum update op, struct variable *v) {
  const struct tensor *indices = ctx_in(ctx, 1), *params = &v->value;
  TRY(scatter_check(v, indices, ctx_in(ctx, 2)));
  int64_t run = params->dims[0] ? params->n / params->dims[0] : 0;
  struct tensor places;
  TRY(places_new(ctx, indices->n, &places));
  int64_t *place = places.data;
  shoal_status s = NULL;
  for (int64_t i = 0; i < indices->n && !s; i++) {
    place[i] = index_at(indices, i);
    if (place[i] < 0 || place[i] >= params->dims[0])
      s = INVALID("indices%s = %" PRId64 " is not in [0, %" PRId64 ")", index_place(indices, i), place[i],
                  params->dims[0]);
  }
  if (!s) s = apply(ctx, op, v, place, indices->n, run);
  tensor_release(&places);
  return s;
}

/* ---- by coordinates ---- */

/* Checks shapes; the number of coordinates in each index in *depth, of indices in *n. */
static shoal_status nd_check(const struct tensor *params, const struct tensor *indices, const struct tensor *updates,
                             int64_t *depth, int64_t *n) {
  struct shape ps = tensor_shape(params), is = tensor_shape(indices), us = tensor_shape(updates);
  if (params->rank < 1) return INVALID("Output must be at least 1-D, got shape: %s", shape_str(&ps));
  if (params->n == 0 && indices->n > 0)
    return INVALID("Indices and updates specified for empty output.  indices shape: %s", shape_str(&is));
  *depth = indices->rank > 0 ? indices->dims[indices->rank - 1] : 1;
  int outer = indices->rank > 0 ? indices->rank - 1 : 0;
  int64_t outer_n = 1;
  for (int i = 0; i < outer; i++) outer_n *= indices->dims[i];
  *n = outer_n;
  if (updates->rank < outer)
    return INVALID("updates must be at least as deep as indices: updates[shape=%s], indices[shape=%s]", shape_str(&us),
                   shape_str(&is));
  for (int i = 0; i < outer; i++)
    if (updates->dims[i] != indices->dims[i])
      return INVALID("Dimensions [0,%d) of indices[shape=%s] = %" PRId64
                     " must match dimensions [0,%d) of "
                     "updates[shape=%s] = %" PRId64,
                     outer, shape_str(&is), indices->dims[i], outer, shape_str(&us), updates->dims[i]);
  bool fits = *depth <= params->rank && updates->rank == outer + params->rank - *depth;
  for (int64_t i = *depth; fits && i < params->rank; i++) fits = params->dims[i] == updates->dims[outer + i - *depth];
  if (!fits)
    return INVALID("Dimensions [%" PRId64 ",%d) of input[shape=%s] must match dimensions [%" PRId64
                   ",%d) of "
                   "updates[shape=%s]",
                   *depth, params->rank, shape_str(&ps), *depth, updates->rank, shape_str(&us));
  return NULL;
}

/* The place of each of n indices, in runs; -1 in *bad, or the first that is out of range. */
static void nd_places(const struct tensor *params, const struct tensor *indices, int64_t depth, int64_t n,
                      int64_t *place, int64_t *bad) {
  *bad = -1;
  for (int64_t i = 0; i < n; i++) {
    int64_t at = 0;
    for (int64_t d = 0; d < depth; d++) {
      int64_t x = index_at(indices, i * depth + d);
      if (x < 0 || x >= params->dims[d]) {
        *bad = i;
        return;
      }
      at = at * params->dims[d] + x;
    }
    place[i] = at;
  }
}

static int64_t run_after(const struct tensor *params, int64_t depth) {
  int64_t run = 1;
  for (int64_t i = depth; i < params->rank; i++) run *= params->dims[i];
  return run;
}

/* "[1]" of the leading dimensions of indices, for index number i. */
static const char *nd_place_str(const struct tensor *indices, int64_t i) {
  struct tensor outer = *indices;
  outer.rank = (uint8_t)(indices->rank > 0 ? indices->rank - 1 : 0);
  return index_place(&outer, i);
}

static shoal_status scatter_nd_locked(struct kernel_ctx *ctx, enum update op, struct variable *v) {
  const struct tensor *indices = ctx_in(ctx, 1), *params = &v->value;
  int64_t depth, n, bad;
  TRY(check_value(v, ctx_in(ctx, 2)));
  TRY(nd_check(params, indices, ctx_in(ctx, 2), &depth, &n));
  struct tensor places;
  TRY(places_new(ctx, n, &places));
  int64_t *place = places.data;
  nd_places(params, indices, depth, n, place, &bad);
  shoal_status s = NULL;
  if (bad >= 0) {
    struct shape ps = tensor_shape(params);
    s = INVALID("indices%s = %s does not index into shape %s", nd_place_str(indices, bad),
                index_values(indices, bad * depth, depth), shape_str(&ps));
  } else {
    s = apply(ctx, op, v, place, n, run_after(params, depth));
  }
  tensor_release(&places);
  return s;
}

static shoal_status scatter_any(struct kernel_ctx *ctx, enum update op,
                                shoal_status (*locked)(struct kernel_ctx *, enum update, struct variable *)) {
  struct state_vars vars;
  TRY(state_vars_get(ctx, 1, NULL, &vars));
  state_vars_lock(&vars);
  shoal_status s = locked(ctx, op, vars.v[0]);
  if (!s) state_forward_ref(ctx, vars.v[0]);
  state_vars_release(&vars);
  return s;
}

/* ---- gathering ---- */

struct row_gather_state {
  int64_t batch_dims;
};

static shoal_status gather_init(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "batch_dims", &((struct row_gather_state *)state)->batch_dims);
}

struct copy_loop {
  shoal_dtype dtype;
  size_t size;
  const char *from;
  char *to;
  const int64_t *place;
  int64_t run;
};

static void copy_runs(void *arg, int64_t begin, int64_t end) {
  const struct copy_loop *l = arg;
  size_t bytes = (size_t)l->run * l->size;
  if (dtype_plain(l->dtype)) {
    for (int64_t i = begin; i < end; i++) {
      if (i + AHEAD < end) ask_for(l->from + (size_t)l->place[i + AHEAD] * bytes, bytes);
      memcpy(l->to + (size_t)i * bytes, l->from + (size_t)l->place[i] * bytes, bytes);
    }
  } else {
    for (int64_t i = begin; i < end; i++)
      elements_copy(l->dtype, l->to + (size_t)i * bytes, l->from + (size_t)l->place[i] * bytes, l->run);
  }
}

static void copy_all(struct kernel_ctx *ctx, const struct tensor *params, struct tensor *out, const int64_t *place,
                     int64_t n, int64_t run) {
  if (n == 0 || run == 0) return;
  struct copy_loop l = {
      (shoal_dtype)params->dtype, dtype_size((shoal_dtype)params->dtype), params->data, out->data, place, run};
  pool_for(n * run < PARALLEL_MIN ? NULL : ctx_pool(ctx), n, MAX(1, 32768 / run), copy_runs, &l);
}

static shoal_status gather_locked(struct kernel_ctx *ctx, const struct tensor *params) {
  const struct tensor *indices = ctx_in(ctx, 1);
  int64_t b = ((struct row_gather_state *)ctx->state)->batch_dims;
  struct shape ps = tensor_shape(params);
  if (params->rank < 1) return INVALID("params must be at least 1 dimensional");
  if (b < 0) b += indices->rank;
  if (b < 0 || b > indices->rank) return INVALID("batch_dims must be in [0, %d], but is %" PRId64, indices->rank, b);
  if (params->rank <= b)
    return INVALID("params must have at least %" PRId64 " (batch_dims) dimensions but it has shape %s", b,
                   shape_str(&ps));
  struct shape os = {.rank = 0};
  int64_t batches = 1;
  for (int i = 0; i < b; i++) {
    if (params->dims[i] != indices->dims[i])
      return INVALID("params.shape[%d]: %" PRId64 " should be equal to indices.shape[%d]: %" PRId64, i, params->dims[i],
                     i, indices->dims[i]);
    os.dims[os.rank++] = params->dims[i];
    batches *= params->dims[i];
  }
  if (indices->rank + params->rank - 1 - b > SHOAL_MAX_RANK)
    return INVALID("The result would have too many dimensions");
  for (int i = (int)b; i < indices->rank; i++) os.dims[os.rank++] = indices->dims[i];
  for (int i = (int)b + 1; i < params->rank; i++) os.dims[os.rank++] = params->dims[i];
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &os, &out));
  int64_t limit = params->dims[b], run = run_after(params, b + 1), per = batches ? indices->n / batches : 0;
  struct tensor places;
  TRY(places_new(ctx, indices->n, &places));
  int64_t *place = places.data;
  shoal_status s = NULL;
  for (int64_t i = 0; i < indices->n && !s; i++) {
    int64_t x = index_at(indices, i);
    if (x < 0 || x >= limit)
      s = INVALID("indices%s = %" PRId64 " is not in [0, %" PRId64 ")", index_place(indices, i), x, limit);
    place[i] = i / per * limit + x;
  }
  if (!s) copy_all(ctx, params, out, place, indices->n, run);
  tensor_release(&places);
  return s;
}

static shoal_status gather_nd_locked(struct kernel_ctx *ctx, const struct tensor *params) {
  const struct tensor *indices = ctx_in(ctx, 1);
  struct shape ps = tensor_shape(params), os = {.rank = 0};
  if (params->rank < 1) return INVALID("params must be at least a vector");
  if (indices->rank < 1) return INVALID("indices must be at least a vector");
  int64_t depth = indices->dims[indices->rank - 1], n = 1, bad;
  if (depth > params->rank)
    return INVALID("index innermost dimension length must be <= params rank; saw: %" PRId64 " vs. %d", depth,
                   params->rank);
  if (indices->rank - 1 + params->rank - depth > SHOAL_MAX_RANK)
    return INVALID("The result would have too many dimensions");
  for (int i = 0; i + 1 < indices->rank; i++) n *= os.dims[os.rank++] = indices->dims[i];
  for (int64_t i = depth; i < params->rank; i++) os.dims[os.rank++] = params->dims[i];
  if (params->n == 0 && n > 0 && run_after(params, depth) > 0)
    return INVALID("Requested more than 0 entries, but params is empty.  Params shape: %s", shape_str(&ps));
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &os, &out));
  struct tensor places;
  TRY(places_new(ctx, n, &places));
  int64_t *place = places.data;
  nd_places(params, indices, depth, n, place, &bad);
  shoal_status s = NULL;
  if (bad >= 0)
    s = INVALID("indices%s = %s does not index into param shape %s, node name: %s", nd_place_str(indices, bad),
                index_values(indices, bad * depth, depth), shape_str(&ps), ctx->kernel->name);
  else copy_all(ctx, params, out, place, n, run_after(params, depth));
  tensor_release(&places);
  return s;
}

/* The variable stays locked for reading while its rows are copied: an update of other rows waits, but never has to
 * copy the table because of us. */
static shoal_status gather_any(struct kernel_ctx *ctx,
                               shoal_status (*locked)(struct kernel_ctx *, const struct tensor *)) {
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 0), &variable_type, &r));
  struct variable *v = (struct variable *)r;
  pthread_rwlock_rdlock(&v->lock);
  shoal_status s;
  if (!tensor_valid(&v->value))
    s = STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value %s", v->name);
  else if ((shoal_dtype)v->value.dtype != ctx_out_type(ctx, 0))
    s = INVALID("Trying to read variable with wrong dtype. Expected %s got %s", dtype_tf_name(ctx_out_type(ctx, 0)),
                dtype_tf_name(v->value.dtype));
  else s = locked(ctx, &v->value);
  pthread_rwlock_unlock(&v->lock);
  resource_unref(r);
  return s;
}
static shoal_status gather_run(struct kernel_ctx *ctx) { return gather_any(ctx, gather_locked); }
static shoal_status gather_nd_run(struct kernel_ctx *ctx) { return gather_any(ctx, gather_nd_locked); }

/* ---- gradients ---- */

/* The shape that the variable behind input 0 was declared with. */
static struct shape declared_shape(const struct grad_ctx *c) {
  struct shape shape = shape_unknown();
  const struct shoal_node *handle = gin(c, 0).node;
  if (op_is(handle->op, "VarHandleOp")) shoal_status_free(node_get_shape(handle, "shape", &shape));
  return shape;
}

static shoal_out variable_shape(struct grad_ctx *c, shoal_dtype type) {
  struct shape shape = declared_shape(c);
  if (shape_known(&shape)) return build_const_ints(c->g, type, shape.dims, shape.rank);
  struct build b = build_begin(c->g, "VariableShape", NULL);
  build_in(&b, gin(c, 0));
  build_attr_type(&b, "out_type", type);
  return build_end_out(&b);
}

/* [size, the dimensions of a row] */
static shoal_out rows_shape(struct shoal_graph *g, shoal_out size, shoal_out shape) {
  struct build b = build_begin(g, "StridedSlice", NULL);
  build_in(&b, shape);
  build_in(&b, build_const_ints(g, SHOAL_INT32, (int64_t[]){1}, 1));
  build_in(&b, build_const_ints(g, SHOAL_INT32, (int64_t[]){0}, 1));
  build_in(&b, build_const_ints(g, SHOAL_INT32, (int64_t[]){1}, 1));
  build_attr_int(&b, "end_mask", 1);
  shoal_out rest = build_end_out(&b);
  b = build_begin(g, "ConcatV2", NULL);
  build_in_list(&b, (shoal_out[]){size, rest}, 2);
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  return build_end_out(&b);
}

/* The rows that were read, as slices of the variable. How many there are is left open where their shape is known:
 * nothing need then be counted, nor copied between a card and the host. */
static shoal_status grad_resource_gather(struct grad_ctx *c) {
  int64_t batch_dims, elements = 0;
  TRY(node_get_int(c->node, "batch_dims", &batch_dims));
  if (batch_dims != 0) return UNIMPLEMENTED("The gradient of ResourceGather with batch_dims is not supported");
  struct shoal_graph *g = c->g;
  struct shape declared = declared_shape(c);
  shoal_out shape = variable_shape(c, SHOAL_INT32), indices = gin(c, 1), size, rows;
  if (shape_known(&declared)) TRY(shape_elements(&declared, &elements));
  if (elements > 0 && declared.rank > 0) {
    size = build_const_ints(g, SHOAL_INT32, (int64_t[]){-1}, 1);
    declared.dims[0] = -1;
    rows = build_const_ints(g, SHOAL_INT32, declared.dims, declared.rank);
  } else {
    size = build_op2(g, "ExpandDims", build_op1(g, "Size", indices), build_const_int(g, SHOAL_INT32, 0));
    rows = rows_shape(g, size, shape);
  }
  shoal_out values = build_op2(g, "Reshape", grad_dy(c, 0), rows);
  grad_set_slices(c, 0, values, build_op2(g, "Reshape", indices, size), shape);
  return NULL;
}

static shoal_status grad_resource_gather_nd(struct grad_ctx *c) {
  shoal_out shape = variable_shape(c, out_type(gin(c, 1)));
  grad_set(c, 0, build_op3(c->g, "ScatterNd", gin(c, 1), grad_dy(c, 0), shape));
  return NULL;
}

/* ---- shapes ---- */

static shoal_status shape_gather(struct shape_ctx *c) {
  const struct shape *p = &c->handle_in[0], *i = &c->in[1];
  int64_t b;
  TRY(node_get_int(c->node, "batch_dims", &b));
  if (p->rank < 1 || i->rank < 0 || b < 0 || b > i->rank || b >= p->rank || i->rank + p->rank - 1 - b > SHOAL_MAX_RANK)
    return NULL;
  struct shape o = {.rank = 0};
  for (int d = 0; d < i->rank; d++) o.dims[o.rank++] = i->dims[d];
  for (int d = (int)b + 1; d < p->rank; d++) o.dims[o.rank++] = p->dims[d];
  c->out[0] = o;
  return NULL;
}

static shoal_status shape_gather_nd(struct shape_ctx *c) {
  const struct shape *p = &c->handle_in[0], *i = &c->in[1];
  if (p->rank < 0 || i->rank < 1 || i->dims[i->rank - 1] < 0) return NULL;
  int64_t depth = i->dims[i->rank - 1];
  if (depth > p->rank)
    return INVALID("indices.shape[-1] must be <= params.rank, but saw indices shape: %s and params shape: %s",
                   shape_str(i), shape_str(p));
  if (i->rank - 1 + p->rank - depth > SHOAL_MAX_RANK) return NULL;
  struct shape o = {.rank = 0};
  for (int d = 0; d + 1 < i->rank; d++) o.dims[o.rank++] = i->dims[d];
  for (int64_t d = depth; d < p->rank; d++) o.dims[o.rank++] = p->dims[d];
  c->out[0] = o;
  return NULL;
}

/* ---- rows ---- */

#define KERNEL(id, ...) static const struct kernel_def id[] = {{.device = "CPU", .borrowable = true, __VA_ARGS__}, {0}}
#define SCATTER_RUN(op, OP)                                                                                       \
  static shoal_status scatter_##op##_run(struct kernel_ctx *ctx) { return scatter_any(ctx, OP, scatter_locked); } \
  static shoal_status scatter_nd_##op##_run(struct kernel_ctx *ctx) {                                             \
    return scatter_any(ctx, OP, scatter_nd_locked);                                                               \
  }                                                                                                               \
  KERNEL(scatter_##op, .run = scatter_##op##_run);                                                                \
  KERNEL(scatter_nd_##op, .run = scatter_nd_##op##_run);
SCATTER_RUN(update, UPDATE_SET)
SCATTER_RUN(add, UPDATE_ADD)
SCATTER_RUN(sub, UPDATE_SUB)
SCATTER_RUN(min, UPDATE_MIN)
SCATTER_RUN(max, UPDATE_MAX)
static shoal_status scatter_mul_run(struct kernel_ctx *ctx) { return scatter_any(ctx, UPDATE_MUL, scatter_locked); }
static shoal_status scatter_div_run(struct kernel_ctx *ctx) { return scatter_any(ctx, UPDATE_DIV, scatter_locked); }
KERNEL(scatter_mul, .run = scatter_mul_run);
KERNEL(scatter_div, .run = scatter_div_run);
KERNEL(gather_kernels, .state_size = sizeof(struct row_gather_state), .init = gather_init, .run = gather_run);
KERNEL(gather_nd_kernels, .run = gather_nd_run);

#define REF(op_, types_, lock, kernels_)                                                                    \
  {                                                                                                         \
    .name = op_, .in = "ref: Ref(T), indices: Tindices, updates: T", .out = "output_ref: Ref(T)",           \
    .attrs = "T: " types_ "; Tindices: {int32, int64}; use_locking: bool = " lock, .flags = OP_NO_GRADIENT, \
    .shape = shape_unchanged, .kernels = kernels_                                                           \
  }
#define RESOURCE(op_, types_, kernels_)                                                               \
  {                                                                                                   \
    .name = op_, .in = "resource: resource, indices: Tindices, updates: dtype",                       \
    .attrs = "dtype: " types_ "; Tindices: {int32, int64}", .flags = OP_STATEFUL, .kernels = kernels_ \
  }
#define RESOURCE_ND(op_, kernels_)                                                                                    \
  {                                                                                                                   \
    .name = op_, .in = "ref: resource, indices: Tindices, updates: T",                                                \
    .attrs = "T: type; Tindices: {int32, int64}; use_locking: bool = true", .flags = OP_STATEFUL, .kernels = kernels_ \
  }
#define MINMAX "{half, bfloat16, float, double, int32, int64}"
static const struct op_row rows[] = {
    REF("ScatterUpdate", "type", "true", scatter_update),
    REF("ScatterAdd", "{numbertype}", "false", scatter_add),
    REF("ScatterSub", "{numbertype}", "false", scatter_sub),
    REF("ScatterMul", "{numbertype}", "false", scatter_mul),
    REF("ScatterDiv", "{numbertype}", "false", scatter_div),
    REF("ScatterMin", MINMAX, "false", scatter_min),
    REF("ScatterMax", MINMAX, "false", scatter_max),
    REF("ScatterNdUpdate", "type", "true", scatter_nd_update),
    REF("ScatterNdAdd", "{numbertype}", "false", scatter_nd_add),
    REF("ScatterNdSub", "{numbertype}", "false", scatter_nd_sub),
    REF("ScatterNdMin", "{numbertype}", "false", scatter_nd_min),
    REF("ScatterNdMax", "{numbertype}", "false", scatter_nd_max),
    RESOURCE("ResourceScatterUpdate", "type", scatter_update),
    RESOURCE("ResourceScatterAdd", "{numbertype}", scatter_add),
    RESOURCE("ResourceScatterSub", "{numbertype}", scatter_sub),
    RESOURCE("ResourceScatterMul", "{numbertype}", scatter_mul),
    RESOURCE("ResourceScatterDiv", "{numbertype}", scatter_div),
    RESOURCE("ResourceScatterMin", "{numbertype}", scatter_min),
    RESOURCE("ResourceScatterMax", "{numbertype}", scatter_max),
    RESOURCE_ND("ResourceScatterNdUpdate", scatter_nd_update),
    RESOURCE_ND("ResourceScatterNdAdd", scatter_nd_add),
    RESOURCE_ND("ResourceScatterNdSub", scatter_nd_sub),
    RESOURCE_ND("ResourceScatterNdMin", scatter_nd_min),
    RESOURCE_ND("ResourceScatterNdMax", scatter_nd_max),
    {.name = "ResourceGather",
     .in = "resource: resource, indices: Tindices",
     .out = "output: dtype",
     .attrs = "batch_dims: int = 0; validate_indices: bool = true; dtype: type; Tindices: {int32, int64}",
     .flags = OP_STATEFUL,
     .shape = shape_gather,
     .grad = grad_resource_gather,
     .kernels = gather_kernels},
    {.name = "ResourceGatherNd",
     .in = "resource: resource, indices: Tindices",
     .out = "output: dtype",
     .attrs = "dtype: type; Tindices: {int32, int64}",
     .flags = OP_STATEFUL,
     .shape = shape_gather_nd,
     .grad = grad_resource_gather_nd,
     .kernels = gather_nd_kernels},
};
OP_FAMILY(variable_rows, rows);
