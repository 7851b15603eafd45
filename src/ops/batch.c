/* Batch, BatchFunction, Unbatch and UnbatchGrad: the calls of concurrent steps joined into batches, and taken apart.
 *
 * TensorFlow waits batch_timeout_micros for other steps' inputs to put beside a step's own; how many come is a matter
 * of luck, and none is a right answer. Here no call waits for another: every call is a batch of its own, padded to an
 * allowed size as TensorFlow pads, with an index that says so. What the ops promise of values, sizes and errors holds;
 * the gain in throughput that serving has from it does not. An Unbatch whose batch_index does not name its id would in
 * TensorFlow wait for the step that has it: here it fails at once, as there when nothing comes in time. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ops/array_util.h"
#include "runtime/function.h"

enum { MAX_SIZES = 1024 };

struct batch_state {
  int64_t max;
  bool splitting;
  int n_sizes;
  int64_t sizes[MAX_SIZES];
  _Atomic uint64_t ids;
  struct function *f;
  int n_batched; /* inputs that are: the rest is captured */
};

static shoal_status init(struct kernel_init *ki, void *state) {
  struct batch_state *st = state;
  TRY(node_get_int(ki->node, "max_batch_size", &st->max));
  TRY(node_get_ints(ki->node, "allowed_batch_sizes", st->sizes, MAX_SIZES, &st->n_sizes));
  if (node_attr(ki->node, "enable_large_batch_splitting"))
    TRY(node_get_bool(ki->node, "enable_large_batch_splitting", &st->splitting));
  for (int i = 1; i < st->n_sizes; i++)
    if (st->sizes[i] <= st->sizes[i - 1])
      return INVALID("allowed_batch_sizes entries must be monotonically increasing");
  if (st->n_sizes && !st->splitting && st->sizes[st->n_sizes - 1] != st->max)
    return INVALID("final entry in allowed_batch_sizes must equal max_batch_size");
  atomic_init(&st->ids, ki->random_seed);
  return NULL;
}

/* The rows that the first n inputs have in common. */
static shoal_status rows_of(const struct kernel_ctx *ctx, int n, int64_t *rows) {
  const struct batch_state *st = ctx->state;
  for (int i = 0; i < n; i++) {
    const struct tensor *t = ctx_in(ctx, i);
    if (t->rank == 0) return INVALID("Batching input tensors must have at least one dimension");
    if (i && t->dims[0] != *rows)
      return INVALID("Batching input tensors supplied in a given op invocation must have equal 0th-dimension size");
    *rows = t->dims[0];
  }
  if (*rows > st->max && !st->splitting)
    return INVALID("Task size %" PRId64 " is larger than maximum input batch size %" PRId64, *rows, st->max);
  return NULL;
}

/* ---- Batch ---- */

static int64_t padded_size(const struct batch_state *st, int64_t rows) {
  for (int i = 0; i < st->n_sizes; i++)
    if (st->sizes[i] >= rows) return st->sizes[i];
  return rows;
}

/* Output i is input i with its first row repeated behind it until there are `rows`. */
static shoal_status pad(struct kernel_ctx *ctx, int i, int64_t rows) {
  const struct tensor *t = ctx_in(ctx, i);
  int64_t have = t->dims[0];
  if (have == rows || have == 0) return ctx_forward(ctx, i, i, NULL);
  struct shape shape = tensor_shape(t);
  shape.dims[0] = rows;
  struct tensor *out;
  TRY(ctx_out(ctx, i, &shape, &out));
  shoal_dtype type = (shoal_dtype)t->dtype;
  int64_t row = t->n / have;
  size_t bytes = (size_t)row * dtype_size(type);
  elements_copy(type, out->data, t->data, t->n);
  for (int64_t k = have; k < rows; k++) elements_copy(type, (char *)out->data + (size_t)k * bytes, t->data, row);
  return NULL;
}

static shoal_status run_batch(struct kernel_ctx *ctx) {
  struct batch_state *st = ctx->state;
  int n = ctx->kernel->n_in;
  int64_t rows = 0;
  TRY(rows_of(ctx, n, &rows));
  for (int i = 0; i < n; i++) TRY(pad(ctx, i, padded_size(st, rows)));
  struct tensor *index, *id;
  TRY(ctx_out_dims(ctx, n, 2, (int64_t[]){1, 3}, &index));
  TRY(ctx_out_dims(ctx, n + 1, 0, NULL, &id));
  *T_DATA(id, int64_t) = (int64_t)(atomic_fetch_add(&st->ids, 1) & INT64_MAX);
  memcpy(index->data, (int64_t[]){*T_DATA(id, int64_t), 0, rows}, 3 * sizeof(int64_t));
  return NULL;
}

/* ---- BatchFunction ---- */

static shoal_status init_function(struct kernel_init *ki, void *state) {
  struct batch_state *st = state;
  const struct func_attr *f;
  TRY(init(ki, state));
  int first;
  node_in_range(ki->node, "in_tensors", &first, &st->n_batched);
  TRY(node_get_func(ki->node, "f", &f));
  return function_get(ki, f, &st->f);
}

static void finish(void *arg, shoal_status s, struct tensor *rets) {
  struct kernel_ctx *ctx = arg;
  for (int i = 0; !s && i < ctx->kernel->n_out; i++) ctx_set(ctx, i, &rets[i]);
  ctx_done(ctx, s);
}

static shoal_status check_function(const struct kernel_ctx *ctx) {
  const struct batch_state *st = ctx->state;
  int64_t rows = 0;
  if (function_rets(st->f) != ctx->kernel->n_out || function_args(st->f) != ctx->kernel->n_in)
    return INVALID("The function takes %d arguments and returns %d values, but the op has %d inputs and %d outputs",
                   function_args(st->f), function_rets(st->f), ctx->kernel->n_in, ctx->kernel->n_out);
  return rows_of(ctx, st->n_batched, &rows);
}

static void start_function(struct kernel_ctx *ctx) {
  const struct batch_state *st = ctx->state;
  shoal_status s = check_function(ctx);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  int n = ctx->kernel->n_in;
  struct tensor *args = mem_zalloc((size_t)n, sizeof *args);
  for (int i = 0; i < n; i++) tensor_move(&args[i], ctx_in(ctx, i));
  function_call(st->f, ctx->step, args, n, finish, ctx);
  free(args); /* the call keeps references of its own */
}

/* ---- Unbatch, UnbatchGrad ---- */

static shoal_status check_index(const struct tensor *index, const struct tensor *id) {
  if (id->rank) return INVALID("Input id should be scalar; Got: %s.", tensor_shape_str(id));
  if (index->rank != 2 || index->dims[1] != 3)
    return INVALID("Wrong shape for index tensor. Expected 1st dimension size to be 3 ; Got: %s.",
                   tensor_shape_str(index));
  return NULL;
}

static shoal_status run_unbatch(struct kernel_ctx *ctx) {
  const struct tensor *data = ctx_in(ctx, 0), *index = ctx_in(ctx, 1), *id = ctx_in(ctx, 2);
  if (data->rank == 0) return INVALID("Input batched_tensor must have at least one dimension");
  TRY(check_index(index, id));
  if (index->dims[0] > data->dims[0])
    return INVALID("Wrong shape for index tensor. Expected 0th dimension size to be no greater than %" PRId64
                   "; Got: %" PRId64 ".",
                   data->dims[0], index->dims[0]);
  int64_t begin = 0;
  for (int64_t i = 0; i < index->dims[0]; i++) {
    int64_t from = int_at(index, 3 * i + 1), to = int_at(index, 3 * i + 2);
    if (from < 0 || to < from || to - from > data->dims[0] - begin)
      return INVALID("batch_index has a part [%" PRId64 ", %" PRId64 ") that is not in the %" PRId64 " rows there are",
                     from, to, data->dims[0]);
    if (int_at(index, 3 * i) == int_at(id, 0)) {
      struct tensor part;
      tensor_rows(&part, data, begin, begin + to - from);
      ctx_set(ctx, 0, &part);
      return NULL;
    }
    begin += to - from;
  }
  return STATUS(SHOAL_DEADLINE_EXCEEDED, "Batched data did not arrive within timeout window.");
}

static shoal_status run_unbatch_grad(struct kernel_ctx *ctx) {
  const struct tensor *data = ctx_in(ctx, 0), *index = ctx_in(ctx, 1), *grad = ctx_in(ctx, 2), *id = ctx_in(ctx, 3);
  if (grad->rank == 0) return INVALID("Input grad must have at least one dimension");
  if (data->n == 0) { /* the rows were another's */
    struct shape none = tensor_shape(grad);
    none.dims[0] = 0;
    struct tensor *out;
    return ctx_out(ctx, 0, &none, &out);
  }
  if (index->n == 0) return INVALID("batch_index is empty while the tensor isn't.");
  TRY(check_index(index, id));
  if (index->dims[0] != 1 || int_at(index, 0) != int_at(id, 0))
    return STATUS(SHOAL_DEADLINE_EXCEEDED, "The gradients of other steps of this batch did not arrive.");
  return ctx_forward(ctx, 0, 2, NULL);
}

static shoal_status shape_batch(struct shape_ctx *c) {
  int n = c->node->n_in;
  for (int i = 0; i < n; i++) {
    c->out[i] = c->in[i];
    if (c->in[i].rank > 0) c->out[i].dims[0] = -1;
  }
  c->out[n] = shape_matrix(-1, 3);
  c->out[n + 1] = shape_scalar();
  return NULL;
}

static shoal_status shape_part(struct shape_ctx *c) {
  c->out[0] = c->in[c->node->n_in > 3 ? 2 : 0];
  if (c->out[0].rank > 0) c->out[0].dims[0] = -1;
  return NULL;
}

/* ---- rows ---- */

#define NAMES "container: string = ''; shared_name: string = ''"
static const struct op_row rows[] = {
    {.name = "Batch",
     .in = "in_tensors: T",
     .out = "batched_tensors: T, batch_index: int64, id: int64",
     .attrs = "num_batch_threads: int; max_batch_size: int; max_enqueued_batches: int = 10; batch_timeout_micros: int; "
              "allowed_batch_sizes: list(int) = []; grad_timeout_micros: int; " NAMES
              "; batching_queue: string = ''; T: list(type) >= 1",
     .flags = OP_NO_GRADIENT,
     .shape = shape_batch,
     .kernels =
         (const struct kernel_def[]){
             {.device = "CPU", .state_size = sizeof(struct batch_state), .init = init, .run = run_batch}, {0}}},
    {.name = "BatchFunction",
     .in = "in_tensors: Tin, captured_tensors: Tcaptured",
     .out = "out_tensors: Tout",
     .attrs = "f: func; num_batch_threads: int; max_batch_size: int; batch_timeout_micros: int; max_enqueued_batches: "
              "int = 10; allowed_batch_sizes: list(int) = []; " NAMES
              "; batching_queue: string = ''; low_priority_max_batch_size: int = 0; low_priority_batch_timeout_micros: "
              "int = 0; low_priority_allowed_batch_sizes: list(int) = []; low_priority_max_enqueued_batches: int = 0; "
              "Tin: list(type) >= 1; Tcaptured: list(type) >= 0; Tout: list(type) >= 1; enable_large_batch_splitting: "
              "bool = false",
     .flags = OP_NO_GRADIENT,
     .kernels = (const struct kernel_def[]){{.device = "CPU",
                                             .flags = KERNEL_EXPENSIVE,
                                             .state_size = sizeof(struct batch_state),
                                             .init = init_function,
                                             .start = start_function},
                                            {0}}},
    {.name = "Unbatch",
     .in = "batched_tensor: T, batch_index: int64, id: int64",
     .out = "unbatched_tensor: T",
     .attrs = "timeout_micros: int; " NAMES "; T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_part,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_unbatch}, {0}}},
    {.name = "UnbatchGrad",
     .in = "original_input: T, batch_index: int64, grad: T, id: int64",
     .out = "batched_grad: T",
     .attrs = NAMES "; T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_part,
     .kernels = (const struct kernel_def[]){{.device = "CPU", .run = run_unbatch_grad}, {0}}},
};
OP_FAMILY(batch, rows);
