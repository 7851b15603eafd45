/* Rows by index on a card: Gather and its kin, Scatter and its kin on variables, UnsortedSegmentSum (rows.cu).
 *
 * Indices are in the card's memory, and the host does not wait for them: one that is out of range is zeros in a gather,
 * and skipped where something is written, as with TensorFlow on a card. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda_rows.h"
#include "ops/array/gather.h"
#include "ops/math/segment.h"
#include "ops/state/variable_rows.h"
#include "runtime/variable_copy.h"
#include "runtime/variable_notes.h"

/* ---- gathers ---- */

enum { UNITS = 5 }; /* 1, 2, 4, 8, 16 bytes */
struct cuda_gather {
  CUfunction f[UNITS];
  int64_t batch;
};
struct cuda_gather_of { /* as rows.cu has it */
  int64_t total, units, n, outer, dim;
};

static shoal_status gather_init(struct kernel_init *ki, void *state) {
  struct cuda_gather *st = state;
  char name[16];
  if (node_attr(ki->node, "batch_dims")) TRY(node_get_int(ki->node, "batch_dims", &st->batch));
  for (int i = 0; i < UNITS; i++) {
    snprintf(name, sizeof name, "gather_%d", 1 << i);
    TRY(cuda_function(cuda_of(ki->device), "rows", name, dtype_base(ki->kernel->in_types[1]), 0, &st->f[i]));
  }
  return NULL;
}

/* The largest unit that rows are made of, and that both begin at. */
static int unit_of(int64_t bytes, uintptr_t addresses) {
  int i = UNITS - 1;
  while (i && ((bytes | (int64_t)addresses) & ((1 << i) - 1))) i--;
  return i;
}

static shoal_status gather(struct kernel_ctx *ctx, const struct tensor *params, int64_t axis, int64_t batch) {
  const struct cuda_gather *st = ctx->state;
  const struct tensor *indices = ctx_in(ctx, 1);
  struct gather_sizes g;
  struct tensor *y;
  TRY(gather_sizes_find(params, indices, axis, batch, &g));
  TRY(ctx_out(ctx, 0, &g.out, &y));
  if (!y->n) return NULL;
  int64_t bytes = g.inner * (int64_t)dtype_size((shoal_dtype)params->dtype);
  int unit = unit_of(bytes, (uintptr_t)params->data | (uintptr_t)y->data);
  struct cuda_gather_of of = {(int64_t)tensor_bytes(y) >> unit, bytes >> unit, g.n, g.outer, g.dim};
  return cuda_run_on(ctx, st->f[unit], cuda_blocks(cuda_ctx(ctx), of.total), 1, CUDA_BLOCK,
                     (void *[]){(void *)&params->data, (void *)&indices->data, &y->data, &of}, 3,
                     (const struct tensor *[]){params, indices, y});
}

static shoal_status gather_run(struct kernel_ctx *ctx) { return gather(ctx, ctx_in(ctx, 0), 0, 0); }

static shoal_status gather_v2_run(struct kernel_ctx *ctx) {
  const struct cuda_gather *st = ctx->state;
  if (ctx_in(ctx, 2)->rank != 0) return INVALID("axis must be scalar");
  return gather(ctx, ctx_in(ctx, 0), int_at(ctx_in(ctx, 2), 0), st->batch);
}

static shoal_status gather_value(struct kernel_ctx *ctx, const struct variable *v) {
  const struct cuda_gather *st = ctx->state;
  int64_t batch = st->batch < 0 ? st->batch + ctx_in(ctx, 1)->rank : st->batch;
  if (!tensor_valid(&v->value))
    return STATUS(SHOAL_FAILED_PRECONDITION, "Attempting to use uninitialized value %s", v->name);
  if ((shoal_dtype)v->value.dtype != ctx_out_type(ctx, 0))
    return INVALID("Trying to read variable with wrong dtype. Expected %s got %s", dtype_tf_name(ctx_out_type(ctx, 0)),
                   dtype_tf_name(v->value.dtype));
  return gather(ctx, &v->value, batch, batch);
}

/* What changes the variable later is queued later. */
static shoal_status resource_gather_run(struct kernel_ctx *ctx) {
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 0), &variable_type, &r));
  struct variable *v = (struct variable *)r;
  pthread_rwlock_rdlock(&v->lock);
  variable_note(v, false);
  shoal_status s = gather_value(ctx, v);
  pthread_rwlock_unlock(&v->lock);
  resource_unref(r);
  return s;
}

/* ---- updates ---- */

struct cuda_row_update {
  CUfunction f;
  struct cuda_sorter sorter;
};

static shoal_status update_init(struct kernel_init *ki, void *state) {
  static const char *const ops[][2] = {{"Update", "rows_set"}, {"Add", "rows_add"}, {"Sub", "rows_sub"},
                                       {"Mul", "rows_mul"},    {"Min", "rows_min"}, {"Max", "rows_max"},
                                       {"Sum", "rows_add"}};
  struct cuda_row_update *st = state;
  const char *op = ki->node->op->name, *name = NULL;
  int updates = strstr(op, "Scatter") ? 2 : 0;
  for (size_t i = 0; i < sizeof ops / sizeof ops[0] && !name; i++)
    if (!strcmp(op + strlen(op) - strlen(ops[i][0]), ops[i][0])) name = ops[i][1];
  TRY(cuda_sorter_init(cuda_of(ki->device), dtype_base(ki->kernel->in_types[1]), &st->sorter));
  return cuda_function(cuda_of(ki->device), "rows", name, dtype_base(ki->kernel->in_types[updates]), 0, &st->f);
}

/* Rows of `to` by those of `by`: step 0 is one number for all. */
static shoal_status update_rows(struct kernel_ctx *ctx, const struct tensor *to, const struct tensor *by, int64_t rows,
                                int64_t width, int64_t step) {
  const struct cuda_row_update *st = ctx->state;
  struct cuda_sorting sorting;
  if (!ctx_in(ctx, 1)->n || !rows || !width) return NULL;
  TRY(cuda_sort(ctx, &st->sorter, ctx_in(ctx, 1), rows, width, &sorting));
  shoal_status s = cuda_run_on(ctx, st->f, (unsigned)sorting.s.n, 1, cuda_row_threads(width),
                               (void *[]){(void *)&to->data, (void *)&by->data, &step, &sorting.s}, 2,
                               (const struct tensor *[]){to, by});
  cuda_sorting_release(&sorting);
  return s;
}

static shoal_status scatter_locked(struct kernel_ctx *ctx, struct variable *v) {
  const struct tensor *by = ctx_in(ctx, 2);
  TRY(scatter_check(v, ctx_in(ctx, 1), by));
  TRY(variable_make_writable_in(v, ctx->kernel->device));
  int64_t rows = v->value.dims[0], width = rows ? v->value.n / rows : 0;
  return update_rows(ctx, &v->value, by, rows, width, by->n == ctx_in(ctx, 1)->n * width && by->rank);
}

static shoal_status scatter_run(struct kernel_ctx *ctx) {
  struct state_vars vars;
  TRY(state_vars_get(ctx, 1, NULL, &vars));
  state_vars_lock(&vars);
  shoal_status s = scatter_locked(ctx, vars.v[0]);
  if (!s) state_forward_ref(ctx, vars.v[0]);
  state_vars_release(&vars);
  return s;
}

/* ---- UnsortedSegmentSum: rows added to zeros ---- */

static shoal_status segment_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *ids = ctx_in(ctx, 1), *num = ctx_in(ctx, 2);
  struct device *d = ctx->kernel->device;
  struct shape shape;
  struct tensor *y;
  TRY(unsorted_segment_shape(x, ids, num, &shape));
  TRY(ctx_out(ctx, 0, &shape, &y));
  d->type->ops->zero(d, y);
  if (!y->n || !x->n) return NULL;
  return update_rows(ctx, y, x, shape.dims[0], dims_product(shape.dims, 1, shape.rank), 1);
}

/* ---- the table ---- */

#define INDICES (DT(INT32) | DT(INT64))
#define GATHERED (CUDA_PLAIN & ~DT(INT32)) /* sizes and places are the host's */
#define KERNEL(id, attr, types_, state_, init_, run_, ...)                     \
  static const struct kernel_def id[] = {{.device = "GPU",                     \
                                          .type_attr = attr,                   \
                                          .types = types_,                     \
                                          .type_attr2 = "Tindices",            \
                                          .types2 = INDICES,                   \
                                          .state_size = sizeof(struct state_), \
                                          .init = init_,                       \
                                          .run = run_,                         \
                                          __VA_ARGS__},                        \
                                         {0}};
KERNEL(gather_v1, "Tparams", GATHERED, cuda_gather, gather_init, gather_run)
KERNEL(gather_v2, "Tparams", GATHERED, cuda_gather, gather_init, gather_v2_run, .host_in = 4)
KERNEL(resource_gather, "dtype", CUDA_PLAIN, cuda_gather, gather_init, resource_gather_run, .flags = KERNEL_REPLAYS)
KERNEL(scatter_ref, "T", CUDA_NUMBERS, cuda_row_update, update_init, scatter_run, .flags = KERNEL_REPLAYS)
KERNEL(scatter_resource, "dtype", CUDA_NUMBERS, cuda_row_update, update_init, scatter_run, .flags = KERNEL_REPLAYS)
KERNEL(segment, "T", CUDA_ARITHMETIC, cuda_row_update, update_init, segment_run, .host_in = 4)

#define BOTH(op) \
  {op, scatter_ref}, { "Resource" op, scatter_resource }
const struct device_kernels cuda_rows_kernels[] = {{"Gather", gather_v1},
                                                   {"GatherV2", gather_v2},
                                                   {"ResourceGather", resource_gather},
                                                   BOTH("ScatterUpdate"),
                                                   BOTH("ScatterAdd"),
                                                   BOTH("ScatterSub"),
                                                   BOTH("ScatterMul"),
                                                   BOTH("ScatterMin"),
                                                   BOTH("ScatterMax"),
                                                   {"UnsortedSegmentSum", segment},
                                                   {0}};
