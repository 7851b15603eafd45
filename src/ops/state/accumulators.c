/* ops/state: what lives between nodes or steps: variables and their updates, queues, tables, lists, batches. */

/* Conditional accumulators: gradients come in with the step they were computed at, stale ones are dropped, and whoever
 * takes waits until enough have come. The backbone of synchronous training by parameter servers.
 *
 * A dense accumulator holds one tensor; the first gradient is referred to, not copied, and copied only if somebody
 * else still holds it when the second comes. A sparse one holds rows sorted by index, each with the number of
 * gradients that touched it; adding is a merge. Who takes waits in a list (wait_list.h), in order of arrival. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ops/state/wait_list.h"

struct accumulator {
  struct resource head;
  struct wait_list takes; /* and the lock */
  shoal_dtype dtype;
  struct shape shape;
  bool sparse, mean;
  int64_t global_step; /* lock */
  int32_t count;       /* lock: gradients in the sum */
  struct tensor sum;   /* lock: dense value, or the rows [n, ...] */
  int64_t *indices;    /* lock: sparse, of each row */
  int32_t *touched;    /* lock: sparse, gradients in each row */
  int64_t n_rows;      /* lock */
};

static void clear(struct accumulator *a) {
  if (tensor_valid(&a->sum)) tensor_release(&a->sum);
  free(a->indices);
  free(a->touched);
  a->indices = NULL;
  a->touched = NULL;
  a->n_rows = 0;
  a->count = 0;
}

static void free_accumulator(struct resource *r) {
  struct accumulator *a = (struct accumulator *)r;
  clear(a);
  wait_list_release(&a->takes);
  free(a);
}

static const struct resource_type accumulator_type = {"N10tensorflow26ConditionalAccumulatorBaseE", "accumulator",
                                                      free_accumulator};

/* ---- making ---- */

struct accumulator_maker {
  struct state_maker m;
  shoal_dtype dtype;
  struct shape shape;
  bool sparse, mean;
};

static shoal_status maker_init(struct kernel_init *ki, void *state) {
  struct accumulator_maker *st = state;
  const char *reduction;
  TRY(node_get_type(ki->node, "dtype", &st->dtype));
  TRY(node_get_shape(ki->node, "shape", &st->shape));
  TRY(node_get_string(ki->node, "reduction_type", &reduction));
  st->mean = strcmp(reduction, "MEAN") == 0;
  st->sparse = strstr(ki->node->op->name, "Sparse") != NULL;
  return state_maker_init(&st->m, ki, &accumulator_type, true);
}

static void maker_release(void *state) { state_maker_release(&((struct accumulator_maker *)state)->m); }

static shoal_status make(void *arg, struct resource **out) {
  struct accumulator_maker *st = arg;
  struct accumulator *a = mem_zalloc(1, sizeof *a);
  resource_init(&a->head, &accumulator_type);
  wait_list_init(&a->takes);
  a->takes.in_order = true;
  a->takes.what = "TakeGrad";
  a->dtype = st->dtype;
  a->shape = st->shape;
  a->sparse = st->sparse;
  a->mean = st->mean;
  *out = &a->head;
  return NULL;
}

static shoal_status maker_run(struct kernel_ctx *ctx) {
  struct accumulator_maker *st = ctx->state;
  return state_maker_run(&st->m, ctx, make, st, NULL);
}

static shoal_status find(struct kernel_ctx *ctx, struct accumulator **out) {
  struct resource *r;
  TRY(state_from_handle(ctx, 0, &accumulator_type, &r));
  *out = (struct accumulator *)r;
  return NULL;
}

static shoal_status check_kind(const struct kernel_ctx *ctx, const struct accumulator *a, bool sparse,
                               shoal_dtype dtype) {
  if (a->sparse != sparse)
    return INVALID("%s needs a %s accumulator", ctx->kernel->op->name, sparse ? "sparse" : "dense");
  if (a->dtype != dtype)
    return INVALID("Signature mismatch, have: %s expected: %s", dtype_tf_name(dtype), dtype_tf_name(a->dtype));
  return NULL;
}

/* ---- arithmetic ---- */

enum { DIVISORS = 256 };
struct division {
  update_fn fn;
  shoal_dtype dtype;
  size_t size;
  char *x;
  union {
    c128 align;
    char bytes[DIVISORS * sizeof(c128)];
  } by; /* the divisor, DIVISORS times */
};

static void divide_piece(void *arg, int64_t begin, int64_t end) {
  struct division *d = arg;
  for (int64_t i = begin; i < end; i += DIVISORS)
    d->fn(d->dtype, d->x + (size_t)i * d->size, d->by.bytes, MIN(DIVISORS, end - i));
}

/* x[i] /= count. */
static void divide(struct pool *pool, shoal_dtype dtype, void *x, int64_t n, int32_t count) {
  if (count == 1) return;
  struct division d = {.fn = update_find(UPDATE_DIV, dtype), .dtype = dtype, .size = dtype_size(dtype), .x = x};
  for (int i = 0; i < DIVISORS; i++) {
    void *at = d.by.bytes + (size_t)i * d.size;
    switch (dtype) {
      case SHOAL_FLOAT16: *(f16 *)at = f16_from_float((float)count); break;
      case SHOAL_BFLOAT16: *(bf16 *)at = bf16_from_float((float)count); break;
      case SHOAL_FLOAT32: *(float *)at = (float)count; break;
      case SHOAL_FLOAT64: *(double *)at = count; break;
      case SHOAL_COMPLEX64: *(c64 *)at = (float)count; break;
      case SHOAL_COMPLEX128: *(c128 *)at = count; break;
      default: memcpy(at, &(int64_t){count}, d.size); break; /* little-endian integers */
    }
  }
  pool_for(pool, n, 128 * DIVISORS, divide_piece, &d);
}

static shoal_status add_dense(struct kernel_ctx *ctx, struct accumulator *a, const struct tensor *g) {
  struct shape have = tensor_shape(g);
  if (a->count > 0 && !tensor_same_shape(&a->sum, g)) {
    struct shape want = tensor_shape(&a->sum);
    return INVALID("Shape mismatch: expected %s, got %s", shape_str(&want), shape_str(&have));
  }
  if (!shape_compatible(&a->shape, &have))
    return INVALID("Shape mismatch: expected %s, got %s", shape_str(&a->shape), shape_str(&have));
  if (a->count == 0) {
    tensor_ref(&a->sum, g);
  } else {
    if (!tensor_writable(&a->sum)) {
      struct tensor own;
      TRY(tensor_copy(&own, &a->sum));
      tensor_release(&a->sum);
      tensor_move(&a->sum, &own);
    }
    update_run(ctx_pool(ctx), update_find(UPDATE_ADD, a->dtype), a->dtype, a->sum.data, g->data, g->n);
  }
  a->count++;
  return NULL;
}

static shoal_status check_slices(const struct accumulator *a, const struct tensor *indices, const struct tensor *values,
                                 const struct tensor *dense_shape) {
  struct shape is = tensor_shape(indices);
  int rank = MAX(a->shape.rank, 0);
  if (indices->rank != 1) return INVALID("Input indices should be vector but received shape: %s", shape_str(&is));
  if (values->rank < 1) return INVALID("Values cannot be 0-dimensional.");
  if (values->dims[0] != indices->n)
    return INVALID("Expected %" PRId64 " non-empty input values, got %" PRId64, indices->n, values->dims[0]);
  if (dense_shape) {
    if (rank > dense_shape->n)
      return INVALID("Shape mismatch: expected shape rank at least %d, got %" PRId64, rank, dense_shape->n);
    for (int i = 0; i < rank; i++)
      if (a->shape.dims[i] >= 0 && a->shape.dims[i] != index_at(dense_shape, i))
        return INVALID("Shape mismatch: expected shape dim %d to be %" PRId64 ", got %" PRId64, i, a->shape.dims[i],
                       index_at(dense_shape, i));
  }
  for (int64_t i = 0; rank > 0 && a->shape.dims[0] >= 0 && i < indices->n; i++)
    if (index_at(indices, i) >= a->shape.dims[0] || index_at(indices, i) < 0)
      return INVALID("Shape mismatch: index of slice %" PRId64 " exceeded limits of shape; index is %" PRId64
                     " exceeded %" PRId64,
                     i, index_at(indices, i), a->shape.dims[0]);
  if (a->count > 0) {
    if (a->sum.rank != values->rank)
      return INVALID("Shape mismatch: expected values rank %d, got %d", a->sum.rank, values->rank);
    for (int i = 1; i < values->rank; i++)
      if (a->sum.dims[i] != values->dims[i])
        return INVALID("Shape mismatch: expected values dim %d to be %" PRId64 ", got %" PRId64, i, a->sum.dims[i],
                       values->dims[i]);
    return NULL;
  }
  if (rank > values->rank)
    return INVALID("Shape mismatch: expected values rank at least %d, got %d", rank, values->rank);
  for (int i = 1; i < rank; i++)
    if (a->shape.dims[i] >= 0 && a->shape.dims[i] != values->dims[i])
      return INVALID("Shape mismatch: expected values dim %d to be %" PRId64 ", got %" PRId64, i, a->shape.dims[i],
                     values->dims[i]);
  return NULL;
}

/* Both lists of rows are taken to be sorted: they are merged as such. */
static shoal_status add_sparse(struct kernel_ctx *ctx, struct accumulator *a, const struct tensor *indices,
                               const struct tensor *values) {
  int64_t n = indices->n, old = a->count ? a->n_rows : 0, total = 0, i = 0, j = 0;
  int64_t *merged = mem_zalloc((size_t)(n + old + 1), sizeof *merged);
  int32_t *touched = mem_zalloc((size_t)(n + old + 1), sizeof *touched);
  int64_t(*from)[2] =
      mem_zalloc((size_t)(n + old + 1), sizeof *from); /* row of the sum, row of the gradient; -1: none */
  while (i < old || j < n) {
    int64_t x = i < old ? a->indices[i] : 0, y = j < n ? index_at(indices, j) : 0;
    bool take_old = i < old && (j == n || x <= y), take_new = j < n && (i == old || y <= x);
    merged[total] = take_old ? x : y;
    touched[total] = (take_old ? a->touched[i] : 0) + (take_new ? 1 : 0);
    from[total][0] = take_old ? i++ : -1;
    from[total][1] = take_new ? j++ : -1;
    total++;
  }
  int64_t run = 1;
  struct shape shape = tensor_shape(values);
  for (int d = 1; d < shape.rank; d++) run *= shape.dims[d];
  shape.dims[0] = total;
  struct tensor sum;
  shoal_status s = tensor_new(&sum, a->dtype, &shape);
  if (s) {
    free(merged);
    free(touched);
    free(from);
    return s;
  }
  size_t bytes = (size_t)run * dtype_size(a->dtype);
  update_fn add = update_find(UPDATE_ADD, a->dtype);
  for (int64_t k = 0; k < total && bytes; k++) {
    char *to = (char *)sum.data + (size_t)k * bytes;
    const char *g = (const char *)values->data + (size_t)MAX(from[k][1], 0) * bytes;
    if (from[k][0] < 0) {
      memcpy(to, g, bytes);
      continue;
    }
    memcpy(to, (const char *)a->sum.data + (size_t)from[k][0] * bytes, bytes);
    if (from[k][1] >= 0) add(a->dtype, to, g, run);
  }
  free(from);
  int32_t count = a->count;
  clear(a);
  a->count = count + 1;
  a->indices = merged;
  a->touched = touched;
  a->n_rows = total;
  tensor_move(&a->sum, &sum);
  return NULL;
}

/* ---- taking ---- */

/* Called with the lock held and enough in. */
static shoal_status hand_out(struct accumulator *a, struct kernel_ctx *ctx) {
  struct pool *pool = ctx_pool(ctx);
  int value = a->sparse ? 1 : 0;
  if (a->sparse) {
    struct tensor *indices, *shape;
    TRY(ctx_out_dims(ctx, 0, 1, &a->n_rows, &indices));
    TRY(ctx_out_dims(ctx, 2, 1, (int64_t[]){a->sum.rank}, &shape));
    if (a->n_rows) memcpy(indices->data, a->indices, (size_t)a->n_rows * sizeof *a->indices);
    for (int d = 0; d < a->sum.rank; d++) T_DATA(shape, int64_t)[d] = a->sum.dims[d];
    T_DATA(shape, int64_t)[0] = a->shape.rank > 0 ? a->shape.dims[0] : -1;
    size_t bytes = a->n_rows ? tensor_bytes(&a->sum) / (size_t)a->n_rows : 0;
    for (int64_t i = 0; a->mean && i < a->n_rows; i++)
      divide(pool, a->dtype, (char *)a->sum.data + (size_t)i * bytes, a->sum.n / a->n_rows, a->touched[i]);
  } else if (a->mean) {
    divide(pool, a->dtype, a->sum.data, a->sum.n, a->count);
  }
  struct tensor out;
  tensor_ref(&out, &a->sum);
  ctx_set(ctx, value, &out);
  clear(a);
  a->global_step++;
  return NULL;
}

static bool try_take(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  struct accumulator *a = (struct accumulator *)r;
  if (a->count < *T_DATA(ctx_in(ctx, 1), const int32_t)) return false;
  *s = hand_out(a, ctx);
  return true;
}

static void take_start(struct kernel_ctx *ctx) {
  struct accumulator *a;
  const struct tensor *required = ctx_in(ctx, 1);
  shoal_status s = find(ctx, &a);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  bool sparse = strstr(ctx->kernel->op->name, "Sparse") != NULL;
  s = check_kind(ctx, a, sparse, ctx_out_type(ctx, sparse ? 1 : 0));
  if (!s && required->rank != 0) {
    struct shape shape = tensor_shape(required);
    s = INVALID("Argument num_required must be scalar, but had bad shape %s", shape_str(&shape));
  }
  if (!s && *T_DATA(required, const int32_t) <= 0)
    s = INVALID("Argument num_required must be positive, but was %d", *T_DATA(required, const int32_t));
  if (s) ctx_done(ctx, s);
  else wait_start(&a->takes, &a->head, ctx, try_take);
  resource_unref(&a->head);
}

/* ---- the other ops ---- */

struct apply {
  bool sparse, known_shape;
};

static shoal_status apply_init(struct kernel_init *ki, void *state) {
  struct apply *st = state;
  st->sparse = strstr(ki->node->op->name, "Sparse") != NULL;
  return st->sparse ? node_get_bool(ki->node, "has_known_shape", &st->known_shape) : NULL;
}

static shoal_status apply_run(struct kernel_ctx *ctx) {
  struct apply *st = ctx->state;
  const struct tensor *step = ctx_in(ctx, 1);
  if (step->rank != 0) {
    struct shape shape = tensor_shape(step);
    return INVALID("Argument local_step must be scalar, but had bad shape %s", shape_str(&shape));
  }
  struct accumulator *a;
  TRY(find(ctx, &a));
  shoal_status s = check_kind(ctx, a, st->sparse, ctx_in_type(ctx, st->sparse ? 3 : 2));
  if (s) {
    resource_unref(&a->head);
    return s;
  }
  pthread_mutex_lock(&a->takes.lock);
  if (*T_DATA(step, const int64_t) >= a->global_step) {
    if (st->sparse) {
      s = check_slices(a, ctx_in(ctx, 2), ctx_in(ctx, 3), st->known_shape ? ctx_in(ctx, 4) : NULL);
      if (!s) s = add_sparse(ctx, a, ctx_in(ctx, 2), ctx_in(ctx, 3));
    } else {
      s = add_dense(ctx, a, ctx_in(ctx, 2));
    }
  }
  wait_changed_and_unlock(&a->takes);
  resource_unref(&a->head);
  return s;
}

static shoal_status count_run(struct kernel_ctx *ctx) {
  struct tensor *out;
  struct accumulator *a;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  TRY(find(ctx, &a));
  pthread_mutex_lock(&a->takes.lock);
  *T_DATA(out, int32_t) = a->count;
  pthread_mutex_unlock(&a->takes.lock);
  resource_unref(&a->head);
  return NULL;
}

static shoal_status set_step_run(struct kernel_ctx *ctx) {
  const struct tensor *step = ctx_in(ctx, 1);
  if (step->rank != 0) {
    struct shape shape = tensor_shape(step);
    return INVALID("Argument num_required must be scalar, but had bad shape %s", shape_str(&shape));
  }
  struct accumulator *a;
  TRY(find(ctx, &a));
  pthread_mutex_lock(&a->takes.lock);
  int64_t now = *T_DATA(step, const int64_t);
  if (now < a->global_step) LOGW("An accumulator's step goes back from %" PRId64 " to %" PRId64, a->global_step, now);
  a->global_step = now;
  pthread_mutex_unlock(&a->takes.lock);
  resource_unref(&a->head);
  return NULL;
}

/* ---- rows ---- */

#define KERNEL(id, ...) static const struct kernel_def id[] = {{.device = "CPU", __VA_ARGS__}, {0}}
KERNEL(maker_kernels, .type_attr = "dtype", .types = DT_NUMBER, .state_size = sizeof(struct accumulator_maker),
       .init = maker_init, .release = maker_release, .run = maker_run);
KERNEL(apply_kernels, .type_attr = "dtype", .types = DT_NUMBER, .state_size = sizeof(struct apply), .init = apply_init,
       .run = apply_run);
KERNEL(take_kernels, .type_attr = "dtype", .types = DT_NUMBER, .start = take_start);
KERNEL(count_kernels, .run = count_run);
KERNEL(set_step_kernels, .run = set_step_run);

#define MAKE_ATTRS                                                                        \
  "dtype: {numbertype}; shape: shape; container: string = ''; shared_name: string = ''; " \
  "reduction_type: {'MEAN', 'SUM'} = 'MEAN'"
#define MAKE(op, out_, shape_) \
  { .name = op, .out = out_, .attrs = MAKE_ATTRS, .flags = OP_STATEFUL, .shape = shape_, .kernels = maker_kernels }
#define USE(prefix, handle, flags_)                                                                      \
  {.name = prefix "AccumulatorApplyGradient",                                                            \
   .in = handle ", local_step: int64, gradient: dtype",                                                  \
   .attrs = "dtype: {numbertype}",                                                                       \
   .flags = flags_,                                                                                      \
   .kernels = apply_kernels},                                                                            \
      {.name = prefix "AccumulatorTakeGradient",                                                         \
       .in = handle ", num_required: int32",                                                             \
       .out = "average: dtype",                                                                          \
       .attrs = "dtype: {numbertype}",                                                                   \
       .flags = flags_,                                                                                  \
       .kernels = take_kernels},                                                                         \
      {.name = prefix "AccumulatorNumAccumulated",                                                       \
       .in = handle,                                                                                     \
       .out = "num_accumulated: int32",                                                                  \
       .flags = flags_,                                                                                  \
       .shape = shape_scalar_out,                                                                        \
       .kernels = count_kernels},                                                                        \
  {                                                                                                      \
    .name = prefix "AccumulatorSetGlobalStep", .in = handle ", new_global_step: int64", .flags = flags_, \
    .kernels = set_step_kernels                                                                          \
  }
static const struct op_row rows[] = {
    MAKE("ConditionalAccumulator", "handle: Ref(string)", shape_handle_v1),
    MAKE("SparseConditionalAccumulator", "handle: Ref(string)", shape_handle_v1),
    MAKE("ResourceConditionalAccumulator", "handle: resource", shape_scalar_out),
    USE("", "handle: Ref(string)", 0),
    USE("Resource", "handle: resource", OP_STATEFUL),
    {.name = "SparseAccumulatorApplyGradient",
     .in = "handle: Ref(string), local_step: int64, gradient_indices: int64, gradient_values: dtype, "
           "gradient_shape: int64",
     .attrs = "dtype: {numbertype}; has_known_shape: bool",
     .kernels = apply_kernels},
    {.name = "SparseAccumulatorTakeGradient",
     .in = "handle: Ref(string), num_required: int32",
     .out = "indices: int64, values: dtype, shape: int64",
     .attrs = "dtype: {numbertype}",
     .kernels = take_kernels},
};
OP_FAMILY(accumulators, rows);
