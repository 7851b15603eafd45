/* MapDefun: a function over the first dimension of its arguments, the results stacked. The calls come one after another
 * on a thread of their own: what one of them waits for may need the threads that run nodes. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "data/data_thread.h"
#include "ops/data/dataset_state.h"

struct defun_state {
  struct dataset_state s;
  int n_args; /* inputs that are mapped over; those after them are captured */
};

static shoal_status init(struct kernel_init *ki, void *state) {
  struct defun_state *s = state;
  int first;
  TRY(dataset_state_init(ki, &s->s));
  node_in_range(ki->node, "arguments", &first, &s->n_args);
  return NULL;
}

static shoal_status check(const struct kernel_ctx *ctx, int64_t *rows) {
  const struct defun_state *s = ctx->state;
  if (function_args(s->s.f) != ctx->kernel->n_in || function_rets(s->s.f) != ctx->kernel->n_out)
    return INVALID("The function takes %d values and returns %d, not %d and %d", function_args(s->s.f),
                   function_rets(s->s.f), ctx->kernel->n_in, ctx->kernel->n_out);
  for (int i = 0; i < s->n_args; i++) {
    const struct tensor *t = ctx_in(ctx, i);
    if (t->rank == 0) return INVALID("All inputs must have rank at least 1. Input %d has a rank of 0", i);
    if (i && t->dims[0] != *rows)
      return INVALID("All inputs must have the same dimension 0. Input %d has leading dimension %" PRId64
                     ", while all previous inputs have leading dimension %" PRId64,
                     i, t->dims[0], *rows);
    *rows = t->dims[0];
  }
  return NULL;
}

/* Row `row` of output i; the output is made with the first. */
static shoal_status put(struct kernel_ctx *ctx, int i, int64_t row, int64_t rows, const struct tensor *value) {
  struct tensor *out = &ctx->out[i];
  const struct shape *want = &((const struct defun_state *)ctx->state)->s.spec.shapes[i];
  struct shape shape = tensor_shape(value), all = {.rank = value->rank + 1, .dims = {rows}};
  if (!shape_compatible(want, &shape))
    return INVALID("Output %d of the function has shape %s, which is not compatible with %s", i, shape_str(&shape),
                   shape_str(want));
  if (!row) {
    if (all.rank > SHOAL_MAX_RANK) return INVALID("An output of rank %d is not supported", all.rank);
    for (int k = 0; k < value->rank; k++) all.dims[k + 1] = value->dims[k];
    TRY(ctx_out(ctx, i, &all, &out));
  }
  bool fits = out->rank == value->rank + 1;
  for (int k = 0; fits && k < value->rank; k++) fits = out->dims[k + 1] == value->dims[k];
  if (!fits) return INVALID("Output %d of the function has not the same shape in every call", i);
  shoal_dtype type = (shoal_dtype)value->dtype;
  elements_copy(type, (char *)out->data + (size_t)(row * value->n) * dtype_size(type), value->data, value->n);
  return NULL;
}

/* No calls: the shapes are those that were declared. */
static shoal_status give_nothing(struct kernel_ctx *ctx) {
  const struct element_spec *spec = &((const struct defun_state *)ctx->state)->s.spec;
  for (int i = 0; i < ctx->kernel->n_out; i++) {
    struct shape s = {.rank = spec->shapes[i].rank + 1};
    struct tensor *out;
    if (s.rank < 1 || s.rank > SHOAL_MAX_RANK || !shape_known(&spec->shapes[i]))
      return INVALID("Output %d of no calls would be of unknown shape", i);
    for (int k = 1; k < s.rank; k++) s.dims[k] = spec->shapes[i].dims[k - 1];
    TRY(ctx_out(ctx, i, &s, &out));
  }
  return NULL;
}

static shoal_status map(struct kernel_ctx *ctx) {
  const struct defun_state *s = ctx->state;
  int n_in = ctx->kernel->n_in, n_out = ctx->kernel->n_out;
  int64_t rows = 0;
  TRY(check(ctx, &rows));
  if (!rows) return give_nothing(ctx);
  struct tensor *args = mem_zalloc((size_t)MAX(n_in, 1), sizeof *args);
  struct tensor *rets = mem_zalloc((size_t)MAX(n_out, 1), sizeof *rets);
  shoal_status bad = NULL;
  for (int64_t row = 0; row < rows && !bad; row++) {
    for (int i = 0; i < n_in && !bad; i++) {
      const struct tensor *t = ctx_in(ctx, i);
      if (i >= s->n_args) {
        tensor_ref(&args[i], t);
        continue;
      }
      bad = tensor_new_dims(&args[i], (shoal_dtype)t->dtype, t->rank - 1, t->dims + 1);
      size_t bytes = bad ? 0 : (size_t)args[i].n * dtype_size((shoal_dtype)t->dtype);
      if (!bad)
        elements_copy((shoal_dtype)t->dtype, args[i].data, (const char *)t->data + (size_t)row * bytes, args[i].n);
    }
    if (!bad) bad = function_call_sync(s->s.f, ctx->step, args, n_in, rets, n_out);
    tensors_release(args, n_in);
    for (int i = 0; i < n_out && !bad; i++) bad = put(ctx, i, row, rows, &rets[i]);
    tensors_release(rets, n_out);
  }
  free(args);
  free(rets);
  return bad;
}

static void run(void *arg) { ctx_done(arg, map(arg)); }

static void start(struct kernel_ctx *ctx) {
  shoal_status s = data_thread_start(run, ctx);
  if (s) ctx_done(ctx, s);
}

static shoal_status shape(struct shape_ctx *c) {
  const struct attr *shapes;
  int64_t rows = c->node->n_in && c->in[0].rank > 0 ? c->in[0].dims[0] : -1;
  TRY(node_get_list(c->node, "output_shapes", ATTR_SHAPE, &shapes));
  for (size_t i = 0; i < shapes->list.n && (int)i < c->node->n_out; i++) {
    const struct shape *s = shapes->list.at[i].shape;
    if (s->rank < 0 || s->rank == SHOAL_MAX_RANK) continue;
    struct shape all = {.rank = s->rank + 1, .dims = {rows}};
    for (int k = 0; k < s->rank; k++) all.dims[k + 1] = s->dims[k];
    c->out[i] = all;
  }
  return NULL;
}

static const struct kernel_def kernels[] = {{.device = "CPU",
                                             .state_size = sizeof(struct defun_state),
                                             .init = init,
                                             .release = dataset_state_release,
                                             .start = start},
                                            {0}};

static const struct op_row rows[] = {
    {.name = "MapDefun",
     .in = "arguments: Targuments, captured_inputs: Tcaptured",
     .out = "output: output_types",
     .attrs = "Targuments: list(type) >= 1; Tcaptured: list(type) >= 0 = []; " DATASET_SPEC
              "; f: func; max_intra_op_parallelism: int = 1",
     .flags = OP_NO_GRADIENT,
     .shape = shape,
     .kernels = kernels},
};
OP_FAMILY(map_defun, rows);
