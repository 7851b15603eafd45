/* Batch and BatchFunction: the calls of concurrent steps joined into batches (batch_queue.h has how).
 *
 * Batch hands the batch to one of the steps, with an index of whose rows are where; what the graph makes of them,
 * Unbatch (unbatch.c) hands back. BatchFunction calls a function on the batch, and gives each call its rows of what
 * comes out. The attributes of a second priority are for calls that a server marks as less urgent: none of ours are. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/pool.h"
#include "graph/shape_fn.h"
#include "ops/state/batch_queue.h"

/* Batches that may wait, whatever max_enqueued_batches says: rows can be without bytes. */
enum { MAX_ENQUEUED = 1 << 16 };

struct batch_state {
  struct batch_options o;
  struct batch_kind kind;
  char *container, *name;
};

static shoal_status check_sizes(const struct batch_options *o) {
  for (int i = 1; i < o->n_sizes; i++)
    if (o->sizes[i] <= o->sizes[i - 1]) return INVALID("allowed_batch_sizes entries must be monotonically increasing");
  int64_t last = o->n_sizes ? o->sizes[o->n_sizes - 1] : o->max_input;
  if (!o->splitting && last != o->max_input)
    return INVALID("final entry in allowed_batch_sizes must equal max_batch_size");
  if (last > o->max_input)
    return INVALID("final entry in allowed_batch_sizes must be less than or equal to max_batch_size");
  if (o->max_input > INT32_MAX) return INVALID("max_batch_size must be less than 2^31: %" PRId64, o->max_input);
  if (o->n_sizes && o->sizes[0] < 1) return INVALID("allowed_batch_sizes entries must be greater than zero");
  return NULL;
}

static shoal_status init(struct kernel_init *ki, void *state) {
  struct batch_state *st = state;
  struct batch_options *o = &st->o;
  const char *queue;
  struct resource_name name;
  TRY(node_get_int(ki->node, "max_batch_size", &o->max_input));
  TRY(node_get_int(ki->node, "num_batch_threads", &o->threads));
  TRY(node_get_int(ki->node, "batch_timeout_micros", &o->timeout_micros));
  TRY(node_get_int(ki->node, "max_enqueued_batches", &o->max_enqueued));
  TRY(node_get_ints(ki->node, "allowed_batch_sizes", o->sizes, BATCH_MAX_SIZES, &o->n_sizes));
  TRY(node_get_string(ki->node, "batching_queue", &queue));
  if (node_attr(ki->node, "enable_large_batch_splitting"))
    TRY(node_get_bool(ki->node, "enable_large_batch_splitting", &o->splitting));
  TRY(check_sizes(o));
  if (o->threads < 1 && node_attr(ki->node, "f")) o->threads = cpu_count(); /* TensorFlow: as many as do well */
  if (o->threads < 1) return INVALID("num_batch_threads must be positive; was %" PRId64, o->threads);
  if (o->timeout_micros < 0)
    return INVALID("batch_timeout_micros must be non-negative; was %" PRId64, o->timeout_micros);
  o->max_enqueued = MIN(o->max_enqueued, MAX_ENQUEUED);
  o->max_rows = o->n_sizes ? o->sizes[o->n_sizes - 1] : o->max_input;
  st->kind.n_batched = ki->node->n_in;
  TRY(resource_name_init(&name, ki));
  st->container = mem_strdup(name.container);
  st->name = mem_printf("%s|%s", name.name, queue);
  resource_name_release(&name);
  return NULL;
}

static void release(void *state) {
  struct batch_state *st = state;
  free(st->container);
  free(st->name);
}

static shoal_status init_function(struct kernel_init *ki, void *state) {
  struct batch_state *st = state;
  const struct func_attr *f;
  TRY(init(ki, state));
  int first;
  node_in_range(ki->node, "in_tensors", &first, &st->kind.n_batched);
  TRY(node_get_func(ki->node, "f", &f));
  TRY(function_get(ki, f, &st->kind.f));
  st->kind.functions = ki->functions;
  st->kind.hash = function_runtime_hash(ki->functions, f->name);
  for (int i = 0; i < f->n_attrs; i++) st->kind.hash += attr_hash(&f->attrs[i].value, st->kind.hash);
  int n_args = function_args(st->kind.f), n_rets = function_rets(st->kind.f);
  if (n_rets != ki->node->n_out || n_args != ki->node->n_in)
    return INVALID("The function takes %d arguments and returns %d values, but the op has %d inputs and %d outputs",
                   n_args, n_rets, ki->node->n_in, ki->node->n_out);
  return NULL;
}

/* The rows that the batched inputs have in common. */
static shoal_status rows_of(const struct kernel_ctx *ctx, int64_t *rows) {
  const struct batch_state *st = ctx->state;
  for (int i = 0; i < st->kind.n_batched; i++) {
    const struct tensor *t = ctx_in(ctx, i);
    if (t->rank == 0) return INVALID("Batching input tensors must have at least one dimension");
    if (i && t->dims[0] != *rows)
      return INVALID("Batching input tensors supplied in a given op invocation must have equal 0th-dimension size");
    *rows = t->dims[0];
  }
  if (*rows > st->o.max_input)
    return INVALID("Task size %" PRId64 " is larger than maximum input batch size %" PRId64, *rows, st->o.max_input);
  return NULL;
}

/* TensorFlow's answer to a call without rows: every output is an empty vector. */
static shoal_status give_empty(struct kernel_ctx *ctx) {
  struct tensor *out;
  for (int i = 0; i < ctx->kernel->n_out; i++) TRY(ctx_out_dims(ctx, i, 1, (int64_t[]){0}, &out));
  return NULL;
}

static void start(struct kernel_ctx *ctx) {
  const struct batch_state *st = ctx->state;
  struct batch_queue *q = NULL;
  int64_t rows = 0;
  shoal_status s = rows_of(ctx, &rows);
  if (!s && !rows) s = give_empty(ctx);
  else if (!s) s = batch_queue_get(ctx->kernel->resources, st->container, st->name, &st->o, &q);
  if (!q) {
    ctx_done(ctx, s);
    return;
  }
  batch_queue_add(q, &st->kind, ctx, rows);
  batch_queue_unref(q);
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

/* ---- rows ---- */

#define NAMES "container: string = ''; shared_name: string = ''"
#define KERNEL(init_)                                                                                                 \
  (const struct kernel_def[]) {                                                                                       \
    {.device = "CPU", .state_size = sizeof(struct batch_state), .init = init_, .release = release, .start = start}, { \
      0                                                                                                               \
    }                                                                                                                 \
  }
static const struct op_row rows[] = {
    {.name = "Batch",
     .in = "in_tensors: T",
     .out = "batched_tensors: T, batch_index: int64, id: int64",
     .attrs = "num_batch_threads: int; max_batch_size: int; max_enqueued_batches: int = 10; batch_timeout_micros: int; "
              "allowed_batch_sizes: list(int) = []; grad_timeout_micros: int; " NAMES
              "; batching_queue: string = ''; T: list(type) >= 1",
     .flags = OP_NO_GRADIENT,
     .shape = shape_batch,
     .kernels = KERNEL(init)},
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
     .kernels = KERNEL(init_function)},
};
OP_FAMILY(batch, rows);
