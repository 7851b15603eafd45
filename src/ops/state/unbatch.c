/* Unbatch and UnbatchGrad: the rows of a batch handed back to the steps that they came from, and their gradients to the
 * step that had the batch (ops/state/batch.c).
 *
 * Each op has a place where values lie under the ids of calls until the step of that call takes them: parts of a batch
 * for Unbatch, gradients for UnbatchGrad. Steps wait there without a thread. What nobody comes for is dropped, by time
 * or by number: steps fail. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ops/array/array_util.h"
#include "ops/state/batch_queue.h"
#include "ops/state/wait_list.h"

enum { MAX_KEPT = 4096 };

struct kept_rows {
  int64_t id, until; /* clock_ns() */
  struct tensor value;
};

struct exchange {
  struct resource head;
  struct wait_list waits;
  VEC(struct kept_rows) kept; /* waits.lock: oldest first */
};

static void exchange_free(struct resource *r) {
  struct exchange *e = (struct exchange *)r;
  for (size_t i = 0; i < e->kept.n; i++) tensor_release(&e->kept.at[i].value);
  vec_release(&e->kept);
  wait_list_release(&e->waits);
  free(e);
}

static const struct resource_type parts_type = {"N10tensorflow15UnbatchResourceE", "unbatching", exchange_free};
static const struct resource_type grads_type = {"N10tensorflow19UnbatchGradResourceE", "unbatching", exchange_free};

static shoal_status exchange_make(void *type, struct resource **out) {
  struct exchange *e = mem_zalloc(1, sizeof *e);
  resource_init(&e->head, type);
  wait_list_init(&e->waits);
  *out = &e->head;
  return NULL;
}

/* ---- what is kept; all with the lock ---- */

static struct kept_rows *find(struct exchange *e, int64_t id) {
  for (size_t i = 0; i < e->kept.n; i++)
    if (e->kept.at[i].id == id) return &e->kept.at[i];
  return NULL;
}

static void drop(struct exchange *e, struct kept_rows *k) {
  tensor_release(&k->value);
  size_t at = (size_t)(k - e->kept.at);
  memmove(k, k + 1, (e->kept.n - at - 1) * sizeof *k);
  e->kept.n--;
}

/* Keeps value, whose reference is taken over. */
static void keep(struct exchange *e, int64_t id, int64_t until, struct tensor *value) {
  int64_t now = clock_ns();
  for (size_t i = e->kept.n; i-- > 0;)
    if (e->kept.at[i].until < now) drop(e, &e->kept.at[i]);
  if (e->kept.n >= MAX_KEPT) drop(e, &e->kept.at[0]);
  struct kept_rows k = {.id = id, .until = until};
  tensor_move(&k.value, value);
  vec_push(&e->kept, k);
}

/* ---- state ---- */

struct unbatch_state {
  struct resource_name name;
  int64_t timeout; /* ns */
};

static shoal_status init(struct kernel_init *ki, void *state) {
  struct unbatch_state *st = state;
  st->timeout = INT64_MAX / 2;
  if (node_attr(ki->node, "timeout_micros")) {
    int64_t micros;
    TRY(node_get_int(ki->node, "timeout_micros", &micros));
    if (micros < st->timeout / 1000) st->timeout = MAX(micros, 0) * 1000;
  }
  return resource_name_init(&st->name, ki);
}

static void release(void *state) { resource_name_release(&((struct unbatch_state *)state)->name); }

static shoal_status get_exchange(const struct kernel_ctx *ctx, const struct resource_type *type,
                                 struct exchange **out) {
  const struct unbatch_state *st = ctx->state;
  struct resource *r;
  TRY(resource_find_or_make(ctx->kernel->resources, st->name.container, type, st->name.name, exchange_make,
                            (void *)(uintptr_t)type, &r));
  *out = (struct exchange *)r;
  return NULL;
}

static shoal_status check_index(const struct tensor *index, const struct tensor *id) {
  if (id->rank) return INVALID("Input id should be scalar; Got: %s.", tensor_shape_str(id));
  if (index->rank != 2 || index->dims[1] != 3)
    return INVALID("Wrong shape for index tensor. Expected 1st dimension size to be 3 ; Got: %s.",
                   tensor_shape_str(index));
  return NULL;
}

/* ---- Unbatch ---- */

static shoal_status check_parts(const struct tensor *data, const struct tensor *index) {
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
    begin += to - from;
  }
  return NULL;
}

/* The parts of the batch that this step has, for those whose they are. */
static shoal_status keep_parts(struct kernel_ctx *ctx, struct exchange *e, int64_t until) {
  const struct tensor *data = ctx_in(ctx, 0), *index = ctx_in(ctx, 1);
  int64_t begin = 0;
  shoal_status s = NULL;
  pthread_mutex_lock(&e->waits.lock);
  for (int64_t i = 0; !s && i < index->dims[0]; i++) {
    int64_t rows = int_at(index, 3 * i + 2) - int_at(index, 3 * i + 1);
    if (find(e, int_at(index, 3 * i)))
      s = STATUS(SHOAL_ALREADY_EXISTS, "Multiple tensors returned for same batch key.");
    struct tensor part;
    if (s) break;
    tensor_rows(&part, data, begin, begin + rows);
    keep(e, int_at(index, 3 * i), until, &part);
    begin += rows;
  }
  pthread_mutex_unlock(&e->waits.lock);
  return s;
}

static bool take_part(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  struct exchange *e = (struct exchange *)r;
  struct kept_rows *k = find(e, int_at(ctx_in(ctx, 2), 0));
  if (!k) return false;
  struct tensor t;
  tensor_ref(&t, &k->value);
  drop(e, k);
  if (t.dtype == ctx_out_type(ctx, 0)) {
    ctx_set(ctx, 0, &t);
    return true;
  }
  tensor_release(&t);
  *s = INVALID("The rows that came back are of another type than was asked for");
  return true;
}

static shoal_status begin_unbatch(struct kernel_ctx *ctx, int64_t until, struct exchange **e) {
  if (ctx_in(ctx, 0)->rank == 0) return INVALID("Input batched_tensor must have at least one dimension");
  TRY(check_index(ctx_in(ctx, 1), ctx_in(ctx, 2)));
  TRY(check_parts(ctx_in(ctx, 0), ctx_in(ctx, 1)));
  TRY(get_exchange(ctx, &parts_type, e));
  return keep_parts(ctx, *e, until);
}

static void unbatch_start(struct kernel_ctx *ctx) {
  const struct unbatch_state *st = ctx->state;
  int64_t until = clock_ns() + st->timeout;
  struct exchange *e = NULL;
  shoal_status s = begin_unbatch(ctx, until, &e);
  if (s) ctx_done(ctx, s);
  else
    wait_start_until(&e->waits, &e->head, ctx, take_part, until, "Batched data did not arrive within timeout window.");
  if (e) resource_unref(&e->head);
}

/* ---- UnbatchGrad ---- */

/* The gradients of all calls of the batch, as soon as they are there, in its order. */
static bool take_grads(struct kernel_ctx *ctx, struct resource *r, shoal_status *s) {
  struct exchange *e = (struct exchange *)r;
  const struct tensor *index = ctx_in(ctx, 1);
  int n = (int)index->dims[0];
  for (int i = 0; i < n; i++)
    if (!find(e, int_at(index, 3 * i))) return false;
  struct tensor *parts = mem_zalloc((size_t)n, sizeof *parts), out;
  for (int i = 0; i < n; i++) {
    const struct tensor *t = &find(e, int_at(index, 3 * i))->value;
    bool same = t->dtype == ctx_out_type(ctx, 0) && t->rank == ctx_in(ctx, 2)->rank &&
                !memcmp(t->dims + 1, ctx_in(ctx, 2)->dims + 1, (size_t)(t->rank - 1) * sizeof *t->dims);
    if (!same && !*s) *s = INVALID("The gradients of a batch must differ in nothing but their number of rows");
    tensor_ref(&parts[i], t);
  }
  if (!*s) *s = batch_join(parts, n, 0, &out);
  if (!*s) ctx_set(ctx, 0, &out);
  for (int i = 0; i < n; i++) {
    struct kept_rows *k = find(e, int_at(index, 3 * i)); /* (the index may name one twice) */
    if (k) drop(e, k);
    tensor_release(&parts[i]);
  }
  free(parts);
  return true;
}

static shoal_status keep_grad(const struct kernel_ctx *ctx, struct exchange *e) {
  int64_t id = int_at(ctx_in(ctx, 3), 0);
  shoal_status s = NULL;
  pthread_mutex_lock(&e->waits.lock);
  if (find(e, id)) {
    s = INVALID("Two runs with the same batch key.");
  } else {
    struct tensor t;
    tensor_ref(&t, ctx_in(ctx, 2));
    keep(e, id, INT64_MAX, &t);
  }
  pthread_mutex_unlock(&e->waits.lock);
  return s;
}

static shoal_status begin_grad(struct kernel_ctx *ctx, struct exchange **e) {
  const struct tensor *data = ctx_in(ctx, 0), *index = ctx_in(ctx, 1), *grad = ctx_in(ctx, 2), *id = ctx_in(ctx, 3);
  if (grad->rank == 0) return INVALID("Input grad must have at least one dimension");
  if (id->rank) return INVALID("Input id should be scalar; Got: %s.", tensor_shape_str(id));
  if (data->n && index->n == 0) return INVALID("batch_index is empty while the tensor isn't.");
  if (data->n) TRY(check_index(index, id));
  if (data->n && index->dims[0] > MAX_KEPT)
    return INVALID("batch_index has %" PRId64 " parts; gradients are kept of %d", index->dims[0], MAX_KEPT);
  TRY(get_exchange(ctx, &grads_type, e));
  return keep_grad(ctx, *e);
}

static void grad_start(struct kernel_ctx *ctx) {
  struct exchange *e = NULL;
  shoal_status s = begin_grad(ctx, &e);
  if (s) {
    ctx_done(ctx, s);
  } else if (ctx_in(ctx, 0)->n) {
    wait_start(&e->waits, &e->head, ctx, take_grads);
  } else { /* the rows were another's, who gets their gradient */
    struct shape none = tensor_shape(ctx_in(ctx, 2));
    none.dims[0] = 0;
    struct tensor *out;
    wait_changed(&e->waits);
    ctx_done(ctx, ctx_out(ctx, 0, &none, &out));
  }
  if (e) resource_unref(&e->head);
}

static shoal_status shape_part(struct shape_ctx *c) {
  c->out[0] = c->in[c->node->n_in > 3 ? 2 : 0];
  if (c->out[0].rank > 0) c->out[0].dims[0] = -1;
  return NULL;
}

/* ---- rows ---- */

#define NAMES "container: string = ''; shared_name: string = ''"
#define KERNEL(start_)                                                                                                \
  (const struct kernel_def[]) {                                                                                       \
    {.device = "CPU", .state_size = sizeof(struct unbatch_state), .init = init, .release = release, .start = start_}, \
    {                                                                                                                 \
      0                                                                                                               \
    }                                                                                                                 \
  }
static const struct op_row rows[] = {
    {.name = "Unbatch",
     .in = "batched_tensor: T, batch_index: int64, id: int64",
     .out = "unbatched_tensor: T",
     .attrs = "timeout_micros: int; " NAMES "; T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_part,
     .kernels = KERNEL(unbatch_start)},
    {.name = "UnbatchGrad",
     .in = "original_input: T, batch_index: int64, grad: T, id: int64",
     .out = "batched_grad: T",
     .attrs = NAMES "; T: type",
     .flags = OP_NO_GRADIENT,
     .shape = shape_part,
     .kernels = KERNEL(grad_start)},
};
OP_FAMILY(unbatch, rows);
