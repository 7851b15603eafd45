/* MultiDeviceIterator: one walk over a dataset, whose elements go to several devices in turn, the first to the first.
 *
 * Each device (shard) has a buffer of at most max_buffer_size elements. Whoever asks for a shard's element walks on
 * until there is one; where that would overfill another shard's buffer, the request waits, without a thread, until that
 * shard has taken something. Requests run one after another on the iterator's line; what waits is under a lock, since
 * steps may be cancelled at any time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/stop.h"
#include "base/vec.h"
#include "ops/data/iterator.h"

enum { MAX_DEVICES = 1 << 12 };

struct element_slot { /* an element, or why there is none */
  struct tensor *t;
  shoal_status status;
};

struct shard_request {
  struct kernel_ctx *ctx;
  struct multi *of;     /* a reference */
  struct dataset *data; /* of Init; a reference */
  int64_t shard, incarnation, buffer;
  struct cancel_hook hook;
  struct shard_request *next; /* lock: of those that wait */
  bool waiting;               /* lock */
};

struct device_shard {
  VEC(struct element_slot) slots; /* oldest first */
};

struct multi {
  struct resource head;
  struct task_line *line;
  struct element_spec spec;
  /* used by tasks of the line alone: */
  struct data_iterator *at;
  int64_t incarnation, buffer;
  struct device_shard *shards; /* [n] */
  int n, turn;                 /* turn: the shard of the next element */
  bool ended;
  pthread_mutex_t lock;
  struct shard_request *waiting; /* lock: in order of arrival */
};

static void slot_free(struct element_slot *s, int n) {
  if (s->t) tensors_release(s->t, n);
  free(s->t);
  shoal_status_free(s->status);
}

static void drop_walk(struct multi *m) {
  for (int i = 0; i < m->n; i++) {
    for (size_t k = 0; k < m->shards[i].slots.n; k++) slot_free(&m->shards[i].slots.at[k], m->at->of->n);
    vec_clear(&m->shards[i].slots);
  }
  iterator_free(m->at);
  m->at = NULL;
  m->turn = 0;
  m->ended = false;
}

static void multi_free(struct resource *r) {
  struct multi *m = (struct multi *)r;
  task_line_free(m->line);
  drop_walk(m);
  for (int i = 0; i < m->n; i++) vec_release(&m->shards[i].slots);
  free(m->shards);
  element_spec_release(&m->spec);
  pthread_mutex_destroy(&m->lock);
  free(m);
}

static const struct resource_type multi_type = {"N10tensorflow4data12_GLOBAL__N_119MultiDeviceIteratorE",
                                                "multi-device iterator", multi_free};

/* ---- handles ---- */

struct multi_state {
  struct dataset_state data; /* first: dataset_state_init fills it */
  struct resource_name name;
  int n;
};

static shoal_status multi_init(struct kernel_init *ki, void *state) {
  struct multi_state *s = state;
  const struct attr *devices;
  TRY(dataset_state_init(ki, state));
  TRY(resource_name_init(&s->name, ki));
  TRY(node_get_list(ki->node, "devices", ATTR_STRING, &devices));
  if (devices->list.n > MAX_DEVICES) return INVALID("%zu devices are not supported", devices->list.n);
  s->n = (int)devices->list.n;
  return NULL;
}

static void multi_release(void *state) {
  resource_name_release(&((struct multi_state *)state)->name);
  dataset_state_release(state);
}

static shoal_status make_multi(void *arg, struct resource **out) {
  const struct multi_state *s = arg;
  struct multi *m = mem_zalloc(1, sizeof *m);
  resource_init(&m->head, &multi_type);
  m->line = task_line_new();
  m->spec = element_spec_copy(&s->data.spec);
  m->n = s->n;
  m->shards = mem_zalloc((size_t)s->n, sizeof *m->shards);
  pthread_mutex_init(&m->lock, NULL);
  *out = &m->head;
  return NULL;
}

static shoal_status named_run(struct kernel_ctx *ctx) {
  struct multi_state *s = ctx->state;
  struct resource *r;
  struct tensor t;
  TRY(resource_find_or_make(ctx->kernel->resources, s->name.container, &multi_type, s->name.name, make_multi, s, &r));
  const struct multi *m = (const struct multi *)r;
  shoal_status bad = element_spec_check(&m->spec, s->data.spec.n, s->data.spec.types, s->data.spec.shapes);
  if (!bad && m->n != s->n) bad = INVALID("The iterator is for %d devices, not for %d", m->n, s->n);
  resource_unref(r);
  TRY(bad);
  TRY(resource_handle_tensor(ctx->kernel->resources, ctx->kernel->device->name, s->name.container, s->name.name,
                             &multi_type, &t));
  ctx_set(ctx, 0, &t);
  return NULL;
}

static shoal_status anonymous_run(struct kernel_ctx *ctx) {
  struct resource *r;
  struct tensor t, *mark;
  TRY(make_multi(ctx->state, &r));
  TRY(resource_handle_anonymous(ctx->kernel->resources, ctx->kernel->device->name, "AnonymousMultiDeviceIterator",
                                &multi_type, r, &t));
  ctx_set(ctx, 0, &t);
  return ctx->kernel->n_out < 2 ? NULL : ctx_out_dims(ctx, 1, 0, NULL, &mark);
}

static shoal_status delete_run(struct kernel_ctx *ctx) {
  return resource_destroy(ctx->kernel->resources, ctx_in(ctx, 0), true);
}

static shoal_status to_string_run(struct kernel_ctx *ctx) { return handle_to_string(ctx, &multi_type); }

static shoal_status from_string_run(struct kernel_ctx *ctx) {
  const struct element_spec *want = &((const struct dataset_state *)ctx->state)->spec;
  struct resource *r;
  TRY(handle_from_string(ctx, &multi_type, &r));
  const struct element_spec *have = &((const struct multi *)r)->spec;
  shoal_status s = element_spec_check(want, have->n, have->types, have->shapes);
  resource_unref(r);
  return s;
}

/* ---- requests ---- */

static void request_end(struct shard_request *q, shoal_status s) {
  INVARIANT(5, !q->waiting);
  struct resource *r = &q->of->head;
  struct kernel_ctx *ctx = q->ctx;
  dataset_unref(q->data);
  free(q);
  resource_unref(r); /* before the step ends, and with it perhaps the session whose devices the elements come from */
  ctx_done(ctx, s);
}

/* Takes q out of those that wait, with the lock held; false when somebody else did. */
static bool unlink_locked(struct shard_request *q) {
  if (!q || !q->waiting) return false;
  struct shard_request **at = &q->of->waiting;
  while (*at != q) at = &(*at)->next;
  *at = q->next;
  q->waiting = false;
  return true;
}

static void cancelled(void *arg) {
  struct shard_request *q = arg;
  struct multi *m = q->of;
  pthread_mutex_lock(&m->lock);
  bool mine = unlink_locked(q);
  pthread_mutex_unlock(&m->lock);
  if (mine) request_end(q, cancel_reason(q->ctx->step->cancel));
}

static void wait(struct shard_request *q) {
  struct multi *m = q->of;
  pthread_mutex_lock(&m->lock);
  struct shard_request **at = &m->waiting;
  while (*at) at = &(*at)->next;
  *at = q;
  q->next = NULL;
  q->waiting = true;
  bool alive = cancel_register(q->ctx->step->cancel, &q->hook, cancelled, q);
  pthread_mutex_unlock(&m->lock);
  if (!alive) cancelled(q);
}

/* The first that waits for that shard (-1: for any), out of the list and ours; NULL: none. */
static struct shard_request *next_waiting(struct multi *m, int64_t shard) {
  pthread_mutex_lock(&m->lock);
  struct shard_request *q = m->waiting;
  while (q && shard >= 0 && q->shard != shard) q = q->next;
  unlink_locked(q);
  pthread_mutex_unlock(&m->lock);
  if (q) cancel_deregister(q->ctx->step->cancel, &q->hook); /* one that runs just now finds it gone */
  return q;
}

static void answer(struct shard_request *q, struct element_slot s, int n) {
  shoal_status status = s.status;
  s.status = NULL;
  if (!status) status = element_give(q->ctx, s.t, n);
  slot_free(&s, n);
  request_end(q, status);
}

static shoal_status at_end(void) { return STATUS(SHOAL_OUT_OF_RANGE, "End of sequence"); }

/* Everybody who waits is told that there will be nothing. */
static void tell_all(struct multi *m, shoal_status (*why)(void)) {
  for (struct shard_request *q; (q = next_waiting(m, -1));) request_end(q, why());
}

/* The next element for the shard in turn: to whoever waits for it, or into its buffer. False: it is full, or the step
 * that walks was cancelled. */
static bool walk_on(struct multi *m, struct data_ctx *ctx) {
  struct device_shard *to = &m->shards[m->turn];
  int n = m->at->of->n;
  struct shard_request *q = next_waiting(m, m->turn);
  if (!q && (int64_t)to->slots.n >= m->buffer) return false;
  struct element_slot s = {.t = mem_zalloc((size_t)MAX(n, 1), sizeof *s.t)};
  bool end = false;
  s.status = iterator_next(m->at, ctx, s.t, &end);
  if (s.status && data_ended(ctx)) {
    slot_free(&s, n);
    if (q) wait(q);
    if (stop_hurried()) tell_all(m, stop_why);
    return false;
  }
  if (end) {
    slot_free(&s, n);
    m->ended = true;
    if (q) request_end(q, at_end());
    tell_all(m, at_end);
    return true;
  }
  m->turn = (m->turn + 1) % m->n;
  if (q) answer(q, s, n);
  else vec_push(&to->slots, s);
  return true;
}

static struct element_slot take_first(struct device_shard *s) {
  struct element_slot first = s->slots.at[0];
  for (size_t i = 1; i < s->slots.n; i++) s->slots.at[i - 1] = s->slots.at[i];
  s->slots.n--;
  return first;
}

static void get(void *arg) {
  struct shard_request *q = arg;
  struct multi *m = q->of;
  struct data_ctx ctx = {.cancel = q->ctx->step->cancel};
  if (!m->at) {
    request_end(q, STATUS(SHOAL_FAILED_PRECONDITION, "The MultiDeviceIterator has not been initialized."));
    return;
  }
  if (q->incarnation != m->incarnation || q->shard < 0 || q->shard >= m->n) {
    request_end(q, q->incarnation != m->incarnation
                       ? INVALID("Invalid incarnation id. Provided: %" PRId64 "; Expected: %" PRId64, q->incarnation,
                                 m->incarnation)
                       : INVALID("Shard %" PRId64 " is not one of %d", q->shard, m->n));
    return;
  }
  struct device_shard *mine = &m->shards[q->shard];
  while (!mine->slots.n && !m->ended && walk_on(m, &ctx)) continue;
  if (mine->slots.n) {
    struct element_slot s = take_first(mine);
    /* There is room now for what others wait for, who gave up before this shard's buffer. q stays until that is done:
     * its step, whose cancellation counts, ends with it. */
    for (bool more = true; more && !m->ended;) {
      pthread_mutex_lock(&m->lock);
      struct shard_request *other = m->waiting;
      pthread_mutex_unlock(&m->lock);
      more = other && walk_on(m, &ctx);
    }
    answer(q, s, m->at->of->n);
  } else if (m->ended) {
    request_end(q, at_end());
  } else if (data_ended(&ctx)) {
    request_end(q, data_why_ended(&ctx));
  } else {
    wait(q);
  }
}

static shoal_status begun_anew(void) { return STATUS(SHOAL_CANCELLED, "The MultiDeviceIterator was initialized anew"); }

static void begin(void *arg) {
  struct shard_request *q = arg;
  struct multi *m = q->of;
  struct data_iterator *fresh;
  struct tensor *out;
  shoal_status s = element_spec_check(&m->spec, q->data->n, q->data->types, q->data->shapes);
  if (!s) s = ctx_out_dims(q->ctx, 0, 0, NULL, &out);
  if (!s) s = dataset_iterate(q->data, &fresh);
  if (!s) {
    tell_all(m, begun_anew);
    drop_walk(m);
    m->at = fresh;
    m->buffer = MAX(q->buffer, 1);
    *T_DATA(out, int64_t) = ++m->incarnation;
  }
  request_end(q, s);
}

/* Puts a request on the line of the iterator that input `handle` names. */
static void start_on(struct kernel_ctx *ctx, int handle, struct shard_request with, void (*fn)(void *)) {
  struct resource *r;
  shoal_status s = resource_from_handle(ctx->kernel->resources, ctx_in(ctx, handle), &multi_type, &r);
  if (s) {
    dataset_unref(with.data);
    ctx_done(ctx, s);
    return;
  }
  struct shard_request *q = mem_zalloc(1, sizeof *q);
  *q = with;
  q->ctx = ctx;
  q->of = (struct multi *)r;
  s = task_line_add(q->of->line, fn, q);
  if (s) request_end(q, s);
}

static void init_start(struct kernel_ctx *ctx) {
  struct shard_request with = {0};
  struct dataset *d;
  shoal_status s = dataset_in(ctx, 0, &d);
  if (!s) s = dataset_in_int(ctx, 2, "max_buffer_size", &with.buffer);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  with.data = dataset_ref(d);
  start_on(ctx, 1, with, begin);
}

static void get_start(struct kernel_ctx *ctx) {
  struct shard_request with = {0};
  shoal_status s = dataset_in_int(ctx, 1, "shard_num", &with.shard);
  if (!s) s = dataset_in_int(ctx, 2, "incarnation_id", &with.incarnation);
  if (s) ctx_done(ctx, s);
  else start_on(ctx, 0, with, get);
}

#define SPEC DATASET_SPEC
static const struct kernel_def named_kernels[] = {{.device = "CPU",
                                                   .state_size = sizeof(struct multi_state),
                                                   .init = multi_init,
                                                   .release = multi_release,
                                                   .run = named_run},
                                                  {0}};
static const struct kernel_def anonymous_kernels[] = {{.device = "CPU",
                                                       .state_size = sizeof(struct multi_state),
                                                       .init = multi_init,
                                                       .release = multi_release,
                                                       .run = anonymous_run},
                                                      {0}};

static const struct op_row rows[] = {
    {.name = "MultiDeviceIterator",
     .out = "handle: resource",
     .attrs = "devices: list(string) >= 1; shared_name: string; container: string; " SPEC,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = named_kernels},
    {.name = "AnonymousMultiDeviceIterator",
     .out = "handle: resource, deleter: variant",
     .attrs = "devices: list(string) >= 1; " SPEC,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = anonymous_kernels},
    {.name = "AnonymousMultiDeviceIteratorV3",
     .out = "handle: resource",
     .attrs = "devices: list(string) >= 1; " SPEC,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = anonymous_kernels},
    {.name = "MultiDeviceIteratorInit",
     .in = "dataset: variant, multi_device_iterator: resource, max_buffer_size: int64",
     .out = "incarnation_id: int64",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = DATASET_KERNELS(.start = init_start)},
    {.name = "MultiDeviceIteratorGetNextFromShard",
     .shape = dataset_element_shape,
     .in = "multi_device_iterator: resource, shard_num: int32, incarnation_id: int64",
     .out = "components: output_types",
     .attrs = SPEC,
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = DATASET_KERNELS(.start = get_start)},
    {.name = "MultiDeviceIteratorToStringHandle",
     .in = "multi_device_iterator: resource",
     .out = "string_handle: string",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = DATASET_KERNELS(.run = to_string_run)},
    {.name = "MultiDeviceIteratorFromStringHandle",
     .in = "string_handle: string",
     .out = "multi_device_iterator: resource",
     .attrs = "output_types: list(type) >= 0 = []; output_shapes: list(shape) >= 0 = []",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = DATASET_KERNELS(.run = from_string_run)},
    {.name = "DeleteMultiDeviceIterator",
     .in = "multi_device_iterator: resource, iterators: N * resource, deleter: variant",
     .attrs = "N: int >= 0",
     .flags = OP_STATEFUL | OP_NO_GRADIENT,
     .kernels = DATASET_KERNELS(.run = delete_run)},
};
OP_FAMILY(multi_device_iterator, rows);
