/* Rows of a variable by index, queued as a card does it (soft_queued.c): ResourceGather and ResourceScatterAdd of
 * float32 by int32. An index out of range is zeros, or skipped, as on a card. */
#include <string.h>

#include "base/mem.h"
#include "device/soft/soft.h"
#include "device/soft/soft_borrow.h"
#include "ops/state/state.h"
#include "runtime/variable_copy.h"
#include "runtime/variable_notes.h"

struct soft_rows {
  struct soft_work head;
  float *table, *rows; /* one is read, the other written */
  const int32_t *index;
  int64_t n, width, limit;
};

static void gather(struct soft_work *w) {
  const struct soft_rows *r = (struct soft_rows *)w;
  for (int64_t i = 0; i < r->n * r->width; i++) {
    int64_t row = r->index[i / r->width];
    r->rows[i] = row >= 0 && row < r->limit ? r->table[row * r->width + i % r->width] : 0;
  }
}

static void scatter(struct soft_work *w) {
  const struct soft_rows *r = (struct soft_rows *)w;
  for (int64_t i = 0; i < r->n * r->width; i++) {
    int64_t row = r->index[i / r->width];
    if (row >= 0 && row < r->limit) r->table[row * r->width + i % r->width] += r->rows[i];
  }
}

/* Work over rows of a value, which is the caller's to lock. */
static struct soft_rows *rows_new(const struct tensor *table, const struct tensor *index, const struct tensor *rows) {
  struct soft_rows *r = mem_zalloc(1, sizeof *r);
  r->table = soft_data(table);
  r->index = soft_data(index);
  r->rows = soft_data(rows);
  r->n = index->n;
  r->limit = table->dims[0];
  r->width = r->limit ? table->n / r->limit : 0;
  soft_work_reads(&r->head, index);
  return r;
}

static shoal_status gather_locked(struct kernel_ctx *ctx, const struct variable *v) {
  const struct tensor *index = ctx_in(ctx, 1);
  struct shape shape = tensor_shape(index);
  struct tensor *y;
  if (!tensor_valid(&v->value) || v->value.rank < 1) return INVALID("%s has no rows", v->name);
  for (int i = 1; i < v->value.rank; i++) shape.dims[shape.rank++] = v->value.dims[i];
  TRY(ctx_out(ctx, 0, &shape, &y));
  struct soft_rows *r = rows_new(&v->value, index, y);
  r->head.run = gather;
  soft_work_reads(&r->head, &v->value);
  soft_work_writes(&r->head, y);
  soft_queue(ctx->kernel->device, &r->head);
  return NULL;
}

static shoal_status gather_run(struct kernel_ctx *ctx) {
  struct resource *r;
  TRY(resource_from_handle(ctx->kernel->resources, ctx_in(ctx, 0), &variable_type, &r));
  struct variable *v = (struct variable *)r;
  pthread_rwlock_rdlock(&v->lock);
  variable_note(v, false);
  shoal_status s = gather_locked(ctx, v);
  pthread_rwlock_unlock(&v->lock);
  resource_unref(r);
  return s;
}

static shoal_status scatter_locked(struct kernel_ctx *ctx, struct variable *v) {
  const struct tensor *index = ctx_in(ctx, 1), *by = ctx_in(ctx, 2);
  if (!tensor_valid(&v->value) || v->value.rank < 1) return INVALID("%s has no rows", v->name);
  TRY(variable_make_writable_in(v, ctx->kernel->device));
  struct soft_rows *r = rows_new(&v->value, index, by);
  r->head.run = scatter;
  soft_work_reads(&r->head, by);
  soft_work_writes(&r->head, &v->value);
  soft_queue(ctx->kernel->device, &r->head);
  return NULL;
}

static shoal_status scatter_run(struct kernel_ctx *ctx) { return soft_change(ctx, scatter_locked); }

#define ROWS(id, run_)                                       \
  const struct kernel_def id[] = {{.device = "GPU",          \
                                   .type_attr = "dtype",     \
                                   .types = DT(FLOAT32),     \
                                   .type_attr2 = "Tindices", \
                                   .types2 = DT(INT32),      \
                                   .flags = KERNEL_REPLAYS,  \
                                   .run = run_},             \
                                  {0}}
ROWS(soft_gather, gather_run);
ROWS(soft_scatter_add, scatter_run);
