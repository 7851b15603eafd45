/* Barriers: values come in by key, component by component; what is complete goes to a queue ordered by when its key was
 * first seen, and leaves in batches. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ops/state/queue.h"

struct incomplete {
  int64_t index;
  struct tensor at[]; /* [n] components; invalid: not yet in */
};

struct barrier {
  struct resource head;
  char *name;
  int n;               /* components */
  struct queue *ready; /* of (index, key, components...) */
  pthread_mutex_t lock;
  struct strmap keys;     /* lock: key (see key_text) -> struct incomplete * */
  int64_t next_index;     /* lock */
  bool closed, cancelled; /* lock */
};

static void free_incomplete(struct incomplete *e, int n) {
  for (int i = 0; i < n; i++)
    if (tensor_valid(&e->at[i])) tensor_release(&e->at[i]);
  free(e);
}

static void clear(struct barrier *b) {
  void *e;
  for (size_t i = 0; strmap_next(&b->keys, &i, NULL, &e);) free_incomplete(e, b->n);
  strmap_release(&b->keys);
}

static void free_barrier(struct resource *r) {
  struct barrier *b = (struct barrier *)r;
  clear(b);
  resource_unref((struct resource *)b->ready);
  pthread_mutex_destroy(&b->lock);
  free(b->name);
  free(b);
}

static const struct resource_type barrier_type = {"N10tensorflow7barrier7BarrierE", "barrier", free_barrier};

/* ---- making ---- */

struct barrier_maker {
  struct state_maker m;
  struct queue_spec spec; /* of the ready queue */
};

static shoal_status maker_init(struct kernel_init *ki, void *state) {
  struct barrier_maker *st = state;
  const struct attr *types, *shapes;
  int64_t capacity;
  TRY(node_get_list(ki->node, "component_types", ATTR_TYPE, &types));
  TRY(node_get_list(ki->node, "shapes", ATTR_SHAPE, &shapes));
  TRY(node_get_int(ki->node, "capacity", &capacity));
  if (capacity != -1)
    return INVALID(
        "Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to enforce a limited "
        "capacity.");
  if (shapes->list.n != types->list.n)
    return INVALID("All of the component shapes must be specified: there are %zu types and %zu shapes", types->list.n,
                   shapes->list.n);
  struct queue_spec *s = &st->spec;
  *s = (struct queue_spec){.kind = QUEUE_PRIORITY, .n = (int)types->list.n + 2, .capacity = INT32_MAX};
  s->types = mem_zalloc((size_t)s->n, sizeof *s->types);
  s->shapes = mem_zalloc((size_t)s->n, sizeof *s->shapes);
  s->types[0] = SHOAL_INT64;
  s->types[1] = SHOAL_STRING;
  for (size_t i = 0; i < types->list.n; i++) {
    s->types[i + 2] = (shoal_dtype)types->list.at[i].type;
    s->shapes[i + 2] = *shapes->list.at[i].shape;
    if (s->shapes[i + 2].rank < 0) s->shapes[i + 2] = shape_scalar(); /* as TensorFlow reads "unknown" here */
    int64_t n;
    TRY(shape_elements(&s->shapes[i + 2], &n));
    if (n < 1)
      return INVALID("The shape of component %zu must be fully known and not empty, but is %s", i,
                     shape_str(&s->shapes[i + 2]));
  }
  return state_maker_init(&st->m, ki, &barrier_type, true);
}

static void maker_release(void *state) {
  struct barrier_maker *st = state;
  state_maker_release(&st->m);
  queue_spec_release(&st->spec);
}

static shoal_status make(void *arg, struct resource **out) {
  struct barrier_maker *st = arg;
  struct queue_spec spec;
  queue_spec_copy(&spec, &st->spec);
  struct barrier *b = mem_zalloc(1, sizeof *b);
  resource_init(&b->head, &barrier_type);
  b->name = mem_strdup(st->m.name);
  b->n = st->spec.n - 2;
  char *queue_name = mem_printf("%s_queue", b->name);
  b->ready = queue_new(queue_name, &spec, 0);
  free(queue_name);
  pthread_mutex_init(&b->lock, NULL);
  b->next_index = INT64_MIN;
  *out = &b->head;
  return NULL;
}

static shoal_status maker_run(struct kernel_ctx *ctx) {
  struct barrier_maker *st = ctx->state;
  struct resource *r;
  TRY(state_maker_run(&st->m, ctx, make, st, &r));
  shoal_status s = queue_matches(((struct barrier *)r)->ready, &st->spec, ctx->kernel->name, "Barrier");
  resource_unref(r);
  return s;
}

/* ---- putting in ---- */

/* Keys are bytes; the map's are texts. */
static char *key_text(const struct str *key) {
  if (!memchr(str_data(key), 0, key->size)) return mem_strndup(str_data(key), key->size);
  struct text t = {0};
  text_adds(&t, "\1hex:");
  for (size_t i = 0; i < key->size; i++) text_addf(&t, "%02x", (unsigned char)str_data(key)[i]);
  return text_take(&t);
}

struct ready_elements {
  VEC(struct incomplete *) elements;
  VEC(const struct str *) keys;
};

static shoal_status insert_one(struct barrier *b, const struct str *key, const struct tensor *values, int64_t i,
                               int64_t component, struct ready_elements *ready, bool *fresh) {
  char *text = key_text(key);
  struct incomplete *e = strmap_get(&b->keys, text);
  shoal_status s = NULL;
  if (!e && b->closed) {
    s = STATUS(SHOAL_CANCELLED,
               "Barrier %s is closed, but attempted to insert a brand new key: %s.  Pending enqueues cancelled: %d.  "
               "Insertion "
               "index: %" PRId64 ".  Number of incomplete keys: %zu.",
               b->name, text, b->cancelled, i, b->keys.n);
  } else if (e && tensor_valid(&e->at[component])) {
    s = INVALID("Key %s already has a value for component %" PRId64 " in barrier %s", text, component, b->name);
  } else {
    if (!e) {
      e = mem_zalloc(1, sizeof *e + (size_t)b->n * sizeof *e->at);
      e->index = b->next_index;
      strmap_put(&b->keys, text, e);
      *fresh = true;
    }
    int64_t run = values->n / values->dims[0];
    s = tensor_new_dims(&e->at[component], (shoal_dtype)values->dtype, values->rank - 1, values->dims + 1);
    if (s) e->at[component] = tensor_none();
    else
      elements_copy((shoal_dtype)values->dtype, e->at[component].data,
                    (const char *)values->data + (size_t)(i * run) * dtype_size((shoal_dtype)values->dtype), run);
    bool complete = !s;
    for (int c = 0; c < b->n && complete; c++) complete = tensor_valid(&e->at[c]);
    if (complete) {
      strmap_remove(&b->keys, text);
      vec_push(&ready->elements, e);
      vec_push(&ready->keys, key);
    }
  }
  free(text);
  return s;
}

static void enqueued(void *arg, shoal_status s, struct tensor *tuple) { *(shoal_status *)arg = s; }

/* The queue is unbounded: enqueueing is done when this returns. */
static void enqueue_ready(struct barrier *b, struct ready_elements *ready, shoal_status *s) {
  for (size_t i = 0; i < ready->elements.n; i++) {
    struct incomplete *e = ready->elements.at[i];
    struct tensor index = tensor_none(), key = tensor_none();
    shoal_status one = tensor_new_scalar(&index, SHOAL_INT64);
    if (!one) one = tensor_new_scalar(&key, SHOAL_STRING);
    if (!one) {
      *T_DATA(&index, int64_t) = e->index;
      str_set(key.data, str_data(ready->keys.at[i]), ready->keys.at[i]->size);
      const struct tensor **tuple = mem_zalloc((size_t)b->n + 2, sizeof *tuple);
      tuple[0] = &index;
      tuple[1] = &key;
      for (int c = 0; c < b->n; c++) tuple[c + 2] = &e->at[c];
      queue_enqueue(b->ready, tuple, b->n + 2, false, NULL, enqueued, &one);
      free(tuple);
    }
    if (one && !*s) *s = one;
    else shoal_status_free(one);
    if (tensor_valid(&index)) tensor_release(&index);
    if (tensor_valid(&key)) tensor_release(&key);
    free_incomplete(e, b->n);
  }
  vec_release(&ready->elements);
  vec_release(&ready->keys);
}

static void ignore(void *arg, shoal_status s, struct tensor *tuple) { shoal_status_free(s); }

struct insert {
  int64_t component;
};

static shoal_status insert_init(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "component_index", &((struct insert *)state)->component);
}

static shoal_status check_insert(const struct barrier *b, int64_t component, const struct tensor *keys,
                                 const struct tensor *values) {
  struct shape vs = tensor_shape(values), ks = tensor_shape(keys);
  if (component < 0 || component >= b->n)
    return INVALID("The component ID is out of range %" PRId64 " > num_components (= %d)", component, b->n);
  if (keys->rank != 1) return INVALID("keys must be a vector, but received shape: %s", shape_str(&ks));
  shoal_dtype want = queue_spec_of(b->ready)->types[component + 2];
  if ((shoal_dtype)values->dtype != want)
    return INVALID("Signature mismatch, have: %s expected: %s", dtype_tf_name(values->dtype), dtype_tf_name(want));
  if (values->rank < 1 || values->dims[0] != keys->n)
    return INVALID("The values of %" PRId64 " keys must have as many rows, but their shape is %s", keys->n,
                   shape_str(&vs));
  if (keys->n && !values->n)
    return INVALID("Tensors with no elements are not supported %s: received shape %s", b->name, shape_str(&vs));
  const struct shape *shape = &queue_spec_of(b->ready)->shapes[component + 2];
  struct shape row = {.rank = vs.rank - 1};
  for (int d = 0; d < row.rank; d++) row.dims[d] = vs.dims[d + 1];
  if (!shape_compatible(shape, &row))
    return INVALID("Shape mismatch in tuple component %" PRId64 ". Expected %s, got %s", component + 2,
                   shape_str(shape), shape_str(&row));
  return NULL;
}

static shoal_status insert_run(struct kernel_ctx *ctx) {
  const struct tensor *keys = ctx_in(ctx, 1), *values = ctx_in(ctx, 2);
  int64_t component = ((struct insert *)ctx->state)->component;
  struct resource *r;
  TRY(state_from_handle(ctx, 0, &barrier_type, &r));
  struct barrier *b = (struct barrier *)r;
  struct ready_elements ready = {0};
  bool fresh = false, drained;
  shoal_status s = check_insert(b, component, keys, values);
  pthread_mutex_lock(&b->lock);
  if (!s && b->closed && (b->cancelled || (keys->n && !b->keys.n)))
    s = STATUS(SHOAL_CANCELLED,
               "Barrier %s is closed.  Pending enqueues cancelled: %d.  Number of new insertions: %" PRId64
               ".  Number of incomplete keys: %zu.",
               b->name, b->cancelled, keys->n, b->keys.n);
  for (int64_t i = 0; i < keys->n && !s; i++)
    s = insert_one(b, &T_DATA(keys, const struct str)[i], values, i, component, &ready, &fresh);
  if (fresh) b->next_index++;
  enqueue_ready(b, &ready, &s);
  drained = b->closed && !b->keys.n;
  pthread_mutex_unlock(&b->lock);
  if (drained) queue_close(b->ready, false, ignore, NULL); /* whoever waits for more waits in vain */
  resource_unref(r);
  return s;
}

/* ---- taking out ---- */

struct barrier_take {
  bool small_batch;
};

static shoal_status take_init(struct kernel_init *ki, void *state) {
  int64_t timeout;
  TRY(node_get_int(ki->node, "timeout_ms", &timeout));
  if (timeout != -1) return INVALID("Timeout not supported yet.");
  return node_get_bool(ki->node, "allow_small_batch", &((struct barrier_take *)state)->small_batch);
}

static void taken(void *arg, shoal_status s, struct tensor *tuple) {
  struct kernel_ctx *ctx = arg;
  for (int i = 0; tuple && i < ctx->kernel->n_out; i++) ctx_set(ctx, i, &tuple[i]);
  ctx_done(ctx, s);
}

static shoal_status check_take(struct kernel_ctx *ctx, struct barrier *b, int64_t *n) {
  const struct queue_spec *spec = queue_spec_of(b->ready);
  struct barrier_take *st = ctx->state;
  bool same = ctx->kernel->n_out == spec->n;
  for (int i = 0; same && i < spec->n; i++) same = ctx_out_type(ctx, i) == spec->types[i];
  if (!same) return INVALID("Signature mismatch: the barrier has other component types than %s", ctx->kernel->name);
  TRY(ctx_check_scalar(ctx, 1, "num_elements"));
  *n = *T_DATA(ctx_in(ctx, 1), const int32_t);
  if (*n < 0) return INVALID("BarrierTakeMany requested %" PRId64 " < 0 elements", *n);
  pthread_mutex_lock(&b->lock);
  bool closed = b->closed;
  int64_t available = queue_size(b->ready), pending = (int64_t)b->keys.n;
  pthread_mutex_unlock(&b->lock);
  if (!closed) return NULL;
  if (st->small_batch) *n = MIN(*n, available);
  else available += pending;
  if (available < MAX(*n, 1))
    return STATUS(SHOAL_OUT_OF_RANGE,
                  "Barrier '%s' is closed and has insufficient elements (requested %" PRId64 ", total size %" PRId64
                  ")",
                  b->name, *n, available);
  return NULL;
}

static void take_start(struct kernel_ctx *ctx) {
  struct resource *r;
  int64_t n;
  shoal_status s = state_from_handle(ctx, 0, &barrier_type, &r);
  if (s) {
    ctx_done(ctx, s);
    return;
  }
  struct barrier *b = (struct barrier *)r;
  s = check_take(ctx, b, &n);
  if (s) ctx_done(ctx, s);
  else queue_dequeue_many(b->ready, n, ((struct barrier_take *)ctx->state)->small_batch, ctx->step->cancel, taken, ctx);
  resource_unref(r);
}

/* ---- closing and asking ---- */

struct barrier_close {
  bool cancel_pending;
};

static shoal_status close_init(struct kernel_init *ki, void *state) {
  return node_get_bool(ki->node, "cancel_pending_enqueues", &((struct barrier_close *)state)->cancel_pending);
}

static shoal_status close_run(struct kernel_ctx *ctx) {
  bool cancel = ((struct barrier_close *)ctx->state)->cancel_pending, drained = false;
  struct resource *r;
  TRY(state_from_handle(ctx, 0, &barrier_type, &r));
  struct barrier *b = (struct barrier *)r;
  shoal_status s = NULL;
  pthread_mutex_lock(&b->lock);
  if (b->closed && (b->cancelled || !cancel)) {
    s = STATUS(SHOAL_CANCELLED, "Barrier '%s' is already closed.", b->name);
  } else {
    b->closed = true;
    b->cancelled = cancel;
    if (cancel) clear(b);
    drained = !b->keys.n;
  }
  pthread_mutex_unlock(&b->lock);
  if (drained) queue_close(b->ready, cancel, ignore, NULL);
  resource_unref(r);
  return s;
}

static shoal_status size_run(struct kernel_ctx *ctx) {
  struct tensor *out;
  struct resource *r;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &out));
  TRY(state_from_handle(ctx, 0, &barrier_type, &r));
  struct barrier *b = (struct barrier *)r;
  pthread_mutex_lock(&b->lock);
  *T_DATA(out, int32_t) =
      op_is(ctx->kernel->op, "BarrierReadySize") ? (int32_t)queue_size(b->ready) : (int32_t)b->keys.n;
  pthread_mutex_unlock(&b->lock);
  resource_unref(r);
  return NULL;
}

/* ---- rows ---- */

#define KERNEL(id, ...) static const struct kernel_def id[] = {{.device = "CPU", __VA_ARGS__}, {0}}
KERNEL(maker_kernels, .state_size = sizeof(struct barrier_maker), .init = maker_init, .release = maker_release,
       .run = maker_run);
KERNEL(insert_kernels, .state_size = sizeof(struct insert), .init = insert_init, .run = insert_run);
KERNEL(take_kernels, .state_size = sizeof(struct barrier_take), .init = take_init, .start = take_start);
KERNEL(close_kernels, .state_size = sizeof(struct barrier_close), .init = close_init, .run = close_run);
KERNEL(size_kernels, .run = size_run);

static const struct op_row rows[] = {
    {.name = "Barrier",
     .out = "handle: Ref(string)",
     .attrs =
         "component_types: list(type) >= 1; shapes: list(shape) >= 0 = []; capacity: int = -1; container: string = ''; "
         "shared_name: string = ''",
     .flags = OP_STATEFUL,
     .shape = shape_handle_v1,
     .kernels = maker_kernels},
    {.name = "BarrierInsertMany",
     .in = "handle: Ref(string), keys: string, values: T",
     .attrs = "T: type; component_index: int",
     .kernels = insert_kernels},
    {.name = "BarrierTakeMany",
     .in = "handle: Ref(string), num_elements: int32",
     .out = "indices: int64, keys: string, values: component_types",
     .attrs = "component_types: list(type) >= 1; allow_small_batch: bool = false; wait_for_incomplete: bool = false; "
              "timeout_ms: int = -1",
     .kernels = take_kernels},
    {.name = "BarrierClose",
     .in = "handle: Ref(string)",
     .attrs = "cancel_pending_enqueues: bool = false",
     .kernels = close_kernels},
    {.name = "BarrierReadySize",
     .in = "handle: Ref(string)",
     .out = "size: int32",
     .shape = shape_scalar_out,
     .kernels = size_kernels},
    {.name = "BarrierIncompleteSize",
     .in = "handle: Ref(string)",
     .out = "size: int32",
     .shape = shape_scalar_out,
     .kernels = size_kernels},
};
OP_FAMILY(barrier, rows);
