/* Queues. The state is a deque of elements (an array of tensors each) and two lists of attempts, in order of arrival.
 * Whatever changes calls flush(): it lets the first enqueue and the first dequeue attempt run until neither gets on,
 * collecting those that are finished; their callbacks run after the lock is dropped.
 *
 * An attempt for many takes elements as they come and holds them, so that a batch larger than the capacity can be
 * dequeued; should the queue close before it is complete, they go back to the front. The batch is put together
 * outside of the lock.
 *
 * Lock order: the queue's lock before a cancel's own (registering). A cancel calls hooks without its lock. */
#include "ops/state/queue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/text.h"

struct element {
  int64_t priority;
  uint64_t number;    /* of arrival: equal priorities leave in order */
  struct tensor at[]; /* [n] */
};

enum attempt_kind { TRY_ENQUEUE, TRY_ENQUEUE_MANY, TRY_CLOSE, TRY_DEQUEUE, TRY_DEQUEUE_MANY };

struct attempt {
  struct attempt *prev, *next;
  struct queue *q; /* a reference */
  enum attempt_kind kind;
  bool up_to, finished;
  int64_t wanted;            /* elements still to come or go */
  int64_t done_n;            /* enqueue: rows already in */
  struct tensor *tuple;      /* [n] what to enqueue */
  VEC(struct element *) got; /* what was dequeued so far */
  shoal_status status;
  struct cancel *cancel;
  struct cancel_hook hook;
  queue_done done;
  void *arg;
};

struct attempts {
  struct attempt *first, *last;
};

struct queue {
  struct resource head;
  char *name;
  struct queue_spec spec;
  pthread_mutex_t lock;
  struct element **ring;              /* lock: a deque in a ring; a heap in [0, n) for priorities */
  size_t begin, n, cap;               /* lock */
  uint64_t arrivals;                  /* lock */
  bool closed;                        /* lock */
  struct philox_stream random;        /* lock */
  struct attempts enqueues, dequeues; /* lock */
};

static void free_queue(struct resource *r);
const struct resource_type queue_type = {"N10tensorflow14QueueInterfaceE", "queue", free_queue};

/* ---- specification ---- */

static const char *const kind_names[] = {"FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue", "PriorityQueue"};

void queue_spec_release(struct queue_spec *s) {
  free(s->types);
  free(s->shapes);
  s->types = NULL;
  s->shapes = NULL;
}

void queue_spec_copy(struct queue_spec *to, const struct queue_spec *from) {
  *to = *from;
  to->types = mem_alloc((size_t)from->n * sizeof *to->types);
  memcpy(to->types, from->types, (size_t)from->n * sizeof *to->types);
  if (!from->shapes) return;
  to->shapes = mem_alloc((size_t)from->n * sizeof *to->shapes);
  memcpy(to->shapes, from->shapes, (size_t)from->n * sizeof *to->shapes);
}

shoal_status queue_spec_init(struct queue_spec *s, const struct shoal_node *n, enum queue_kind kind) {
  const struct attr *types, *shapes;
  int64_t capacity;
  *s = (struct queue_spec){.kind = kind};
  TRY(node_get_list(n, "component_types", ATTR_TYPE, &types));
  TRY(node_get_list(n, "shapes", ATTR_SHAPE, &shapes));
  TRY(node_get_int(n, "capacity", &capacity));
  s->capacity = capacity < 0 || capacity > INT32_MAX ? INT32_MAX : capacity;
  int extra = kind == QUEUE_PRIORITY;
  s->n = (int)types->list.n + extra;
  if (s->n == 0) return INVALID("Empty component types for queue %s", n->name);
  s->types = mem_zalloc((size_t)s->n, sizeof *s->types);
  if (extra) s->types[0] = SHOAL_INT64;
  for (size_t i = 0; i < types->list.n; i++) s->types[(int)i + extra] = (shoal_dtype)types->list.at[i].type;
  if (kind == QUEUE_PADDING && shapes->list.n != types->list.n)
    return INVALID("Shapes must be provided for all components, but received %zu dtypes and %zu shapes.", types->list.n,
                   shapes->list.n);
  if (shapes->list.n + (size_t)extra != (size_t)s->n && (shapes->list.n || extra))
    return INVALID("Different number of component types.  %d types, %zu shapes", s->n, shapes->list.n + (size_t)extra);
  if (shapes->list.n || extra) {
    s->shapes = mem_zalloc((size_t)s->n, sizeof *s->shapes);
    for (size_t i = 0; i < shapes->list.n; i++) {
      struct shape *to = &s->shapes[(int)i + extra];
      *to = *shapes->list.at[i].shape;
      if (kind == QUEUE_PADDING && to->rank < 0)
        return INVALID("Shapes of a PaddingFIFOQueue must have a known rank, component %zu has none", i);
      if (to->rank < 0) *to = shape_scalar();
      if (kind != QUEUE_PADDING && !shape_known(to)) return INVALID("Shape %s is not fully defined", shape_str(to));
    }
  }
  if (kind == QUEUE_SHUFFLE) {
    TRY(node_get_int(n, "min_after_dequeue", &s->min_after_dequeue));
    TRY(node_get_int(n, "seed", &s->seed));
    TRY(node_get_int(n, "seed2", &s->seed2));
    if (s->min_after_dequeue < 0) return INVALID("min_after_dequeue %" PRId64 " must be >= 0", s->min_after_dequeue);
    if (s->min_after_dequeue >= s->capacity)
      return INVALID("min_after_dequeue %" PRId64 " must be < capacity %" PRId64, s->min_after_dequeue, s->capacity);
  }
  return NULL;
}

static void print_types(const struct queue_spec *s, struct text *out) {
  text_addc(out, '[');
  for (int i = 0; i < s->n; i++) text_addf(out, "%s%s", i ? ", " : "", dtype_tf_name(s->types[i]));
  text_addc(out, ']');
}

static void print_shapes(const struct queue_spec *s, struct text *out) {
  text_addc(out, '[');
  for (int i = 0; s->shapes && i < s->n; i++) {
    if (i) text_adds(out, ", ");
    shape_print(&s->shapes[i], out);
  }
  text_addc(out, ']');
}

static bool same_shapes(const struct queue_spec *a, const struct queue_spec *b) {
  if (!a->shapes != !b->shapes) return false;
  for (int i = 0; a->shapes && i < a->n; i++)
    if (a->kind == QUEUE_PADDING ? !shape_compatible(&a->shapes[i], &b->shapes[i])
                                 : !shape_equal(&a->shapes[i], &b->shapes[i]))
      return false;
  return true;
}

shoal_status queue_matches(const struct queue *q, const struct queue_spec *want, const char *node, const char *op) {
  const struct queue_spec *have = &q->spec;
  if (have->kind != want->kind) return INVALID("Expected %s, found %s", kind_names[have->kind], op);
  if (have->capacity != want->capacity)
    return INVALID("Shared queue '%s' has capacity %" PRId64 " but requested capacity was %" PRId64, q->name,
                   have->capacity, want->capacity);
  if (have->kind == QUEUE_SHUFFLE && have->min_after_dequeue != want->min_after_dequeue)
    return INVALID("Shared queue '%s' has min_after_dequeue %" PRId64 " but requested min_after_dequeue was %" PRId64
                   ".",
                   q->name, have->min_after_dequeue, want->min_after_dequeue);
  if (have->kind == QUEUE_SHUFFLE && (have->seed != want->seed || have->seed2 != want->seed2) &&
      (want->seed || want->seed2))
    return INVALID("Shared queue '%s' has random seeds (%" PRId64 ", %" PRId64 ") but requested seeds are (%" PRId64
                   ", %" PRId64 ").",
                   q->name, have->seed, have->seed2, want->seed, want->seed2);
  bool types = have->n == want->n && !memcmp(have->types, want->types, (size_t)have->n * sizeof *have->types);
  if (types && same_shapes(have, want)) return NULL;
  struct text a = {0}, b = {0};
  const char *what = types ? "shapes" : "types";
  (types ? print_shapes : print_types)(have, &a);
  (types ? print_shapes : print_types)(want, &b);
  shoal_status s = INVALID("Shared queue '%s' has component %s %s but requested component %s were %s", q->name, what,
                           text_cstr(&a), what, text_cstr(&b));
  text_release(&a);
  text_release(&b);
  return s;
}

const struct queue_spec *queue_spec_of(const struct queue *q) { return &q->spec; }

struct queue *queue_new(const char *name, struct queue_spec *spec, uint64_t random_seed) {
  struct queue *q = mem_zalloc(1, sizeof *q);
  resource_init(&q->head, &queue_type);
  pthread_mutex_init(&q->lock, NULL);
  q->name = mem_strdup(name);
  q->spec = *spec;
  *spec = (struct queue_spec){0};
  bool drawn = !q->spec.seed && !q->spec.seed2;
  q->random = philox_stream(drawn ? philox_from_seeds(random_seed, ~random_seed)
                                  : philox_from_seeds((uint64_t)q->spec.seed, (uint64_t)q->spec.seed2));
  return q;
}

/* ---- elements ---- */

static void element_free(struct element *e, int n) {
  for (int i = 0; i < n; i++)
    if (tensor_valid(&e->at[i])) tensor_release(&e->at[i]);
  free(e);
}

static void free_queue(struct resource *r) {
  struct queue *q = (struct queue *)r; /* attempts hold references: there are none any more */
  for (size_t i = 0; i < q->n; i++) element_free(q->ring[(q->begin + i) % q->cap], q->spec.n);
  free(q->ring);
  pthread_mutex_destroy(&q->lock);
  free(q->name);
  queue_spec_release(&q->spec);
  free(q);
}

static struct element **at(struct queue *q, size_t i) { return &q->ring[(q->begin + i) % q->cap]; }

static void grow(struct queue *q) {
  if (q->n < q->cap) return;
  size_t cap = q->cap ? q->cap * 2 : 16;
  struct element **ring = mem_alloc(cap * sizeof *ring);
  for (size_t i = 0; i < q->n; i++) ring[i] = *at(q, i);
  free(q->ring);
  q->ring = ring;
  q->begin = 0;
  q->cap = cap;
}

static bool before(const struct element *a, const struct element *b) {
  return a->priority != b->priority ? a->priority < b->priority : a->number < b->number;
}

static void push(struct queue *q, struct element *e) {
  grow(q);
  size_t i = q->n++;
  *at(q, i) = e;
  if (q->spec.kind != QUEUE_PRIORITY) return;
  for (; i > 0 && before(e, *at(q, (i - 1) / 2)); i = (i - 1) / 2) *at(q, i) = *at(q, (i - 1) / 2);
  *at(q, i) = e;
}

static void push_front(struct queue *q, struct element *e) {
  if (q->spec.kind == QUEUE_PRIORITY) {
    push(q, e);
    return;
  }
  grow(q);
  q->begin = (q->begin + q->cap - 1) % q->cap;
  q->n++;
  *at(q, 0) = e;
}

static struct element *pop(struct queue *q) {
  if (q->spec.kind == QUEUE_SHUFFLE) {
    size_t i = philox_u32(&q->random) % q->n;
    struct element *e = *at(q, i);
    *at(q, i) = *at(q, --q->n);
    return e;
  }
  struct element *e = *at(q, 0);
  if (q->spec.kind != QUEUE_PRIORITY) {
    q->begin = (q->begin + 1) % q->cap;
    q->n--;
    return e;
  }
  struct element *last = *at(q, --q->n);
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < q->n; i = child) {
    if (child + 1 < q->n && before(*at(q, child + 1), *at(q, child))) child++;
    if (!before(*at(q, child), last)) break;
    *at(q, i) = *at(q, child);
  }
  if (q->n) *at(q, i) = last;
  return e;
}

/* A copy of row i of a batch. */
static shoal_status row_of(const struct tensor *batch, int64_t i, struct tensor *out) {
  int64_t run = batch->n / batch->dims[0];
  TRY(tensor_new_dims(out, (shoal_dtype)batch->dtype, batch->rank - 1, batch->dims + 1));
  elements_copy((shoal_dtype)batch->dtype, out->data,
                (const char *)batch->data + (size_t)(i * run) * dtype_size((shoal_dtype)batch->dtype), run);
  return NULL;
}

/* Puts the tuple, or its row, in. */
static shoal_status put(struct queue *q, const struct tensor *tuple, int64_t row) {
  struct element *e = mem_zalloc(1, sizeof *e + (size_t)q->spec.n * sizeof *e->at);
  for (int i = 0; i < q->spec.n; i++) {
    if (row < 0) {
      tensor_ref(&e->at[i], &tuple[i]);
      continue;
    }
    shoal_status s = row_of(&tuple[i], row, &e->at[i]);
    if (s) {
      element_free(e, q->spec.n);
      return s;
    }
  }
  if (q->spec.kind == QUEUE_PRIORITY) {
    if (e->at[0].rank != 0) {
      struct shape shape = tensor_shape(&e->at[0]);
      element_free(e, q->spec.n);
      return INVALID("Expected the priority element to be a scalar, but received shape: %s", shape_str(&shape));
    }
    e->priority = *T_DATA(&e->at[0], const int64_t);
  }
  e->number = q->arrivals++;
  push(q, e);
  return NULL;
}

/* ---- attempts ---- */

static void link_attempt(struct attempts *l, struct attempt *a) {
  a->prev = l->last;
  a->next = NULL;
  if (l->last) l->last->next = a;
  else l->first = a;
  l->last = a;
}

static void unlink_attempt(struct attempts *l, struct attempt *a) {
  if (a->prev) a->prev->next = a->next;
  else l->first = a->next;
  if (a->next) a->next->prev = a->prev;
  else l->last = a->prev;
}

static struct attempts *list_of(struct attempt *a) { return a->kind <= TRY_CLOSE ? &a->q->enqueues : &a->q->dequeues; }

/* What an attempt holds goes back where it came from. */
static void give_back(struct attempt *a) {
  while (a->got.n) push_front(a->q, vec_pop(&a->got));
}

enum result { NO_PROGRESS, PROGRESS, COMPLETE };

static const char *kind_name(const struct attempt *a) {
  /* A padding queue is a FIFO queue but for its batches, and so it names itself. */
  if (a->q->spec.kind == QUEUE_PADDING && a->kind != TRY_DEQUEUE_MANY) return kind_names[QUEUE_FIFO];
  return kind_names[a->q->spec.kind];
}

static enum result try_enqueue(struct attempt *a) {
  struct queue *q = a->q;
  if (a->kind == TRY_CLOSE) {
    if (q->closed) a->status = STATUS(SHOAL_CANCELLED, "Queue '%s' is already closed.", q->name);
    q->closed = true;
    return COMPLETE;
  }
  if (q->closed) {
    a->status = STATUS(SHOAL_CANCELLED, "%s '%s' is closed.", kind_name(a), q->name);
    return COMPLETE;
  }
  enum result result = NO_PROGRESS;
  while ((int64_t)q->n < q->spec.capacity) {
    a->status = put(q, a->tuple, a->kind == TRY_ENQUEUE ? -1 : a->done_n);
    a->done_n++;
    if (a->status || --a->wanted == 0) return COMPLETE;
    result = PROGRESS;
  }
  return result;
}

static void too_few(struct attempt *a) {
  a->status = STATUS(SHOAL_OUT_OF_RANGE,
                     "%s '%s' is closed and has insufficient elements (requested %" PRId64 ", current size %zu)",
                     kind_name(a), a->q->name, a->wanted, a->q->n);
}

static enum result try_dequeue(struct attempt *a) {
  struct queue *q = a->q;
  if (q->closed && (int64_t)q->n < a->wanted) {
    int64_t have = (int64_t)q->n, held = (int64_t)a->got.n;
    if (!a->up_to || have + held == 0) {
      if (a->up_to && q->enqueues.first) return PROGRESS; /* what waits to get in may still do */
      too_few(a);
      give_back(a);
      return COMPLETE;
    }
    a->wanted = have; /* all that is left, with what is held already */
    if (have == 0) return COMPLETE;
  }
  int64_t available = (int64_t)q->n;
  if (q->spec.kind == QUEUE_SHUFFLE && !q->closed) available -= q->spec.min_after_dequeue;
  /* A batch by priority is sorted as a whole: it is taken at once or not at all. */
  if (q->spec.kind == QUEUE_PRIORITY && available < a->wanted) return NO_PROGRESS;
  if (available <= 0) return NO_PROGRESS;
  for (; available > 0; available--) {
    vec_push(&a->got, pop(q));
    if (--a->wanted == 0) return COMPLETE;
  }
  return PROGRESS;
}

static bool run_first(struct queue *q, struct attempts *l, struct attempts *finished) {
  bool progress = false;
  while (l->first) {
    struct attempt *a = l->first;
    enum result r = l == &q->enqueues ? try_enqueue(a) : try_dequeue(a);
    if (r != COMPLETE) return progress || r == PROGRESS;
    progress = true;
    unlink_attempt(l, a);
    a->finished = true;
    link_attempt(finished, a);
  }
  return progress;
}

/* ---- batches ---- */

/* Copies element e into row i of a batch whose rows may be larger. */
static void copy_padded(const struct tensor *e, struct tensor *batch, int64_t i) {
  shoal_dtype dtype = (shoal_dtype)e->dtype;
  size_t size = dtype_size(dtype);
  int64_t run = batch->n / batch->dims[0];
  char *to = (char *)batch->data + (size_t)(i * run) * size;
  if (e->n == run || e->rank == 0) {
    elements_copy(dtype, to, e->data, e->n);
    return;
  }
  if (e->n == 0) return;
  int last = e->rank - 1;
  int64_t row = e->dims[last], rows = e->n / row;
  for (int64_t r = 0; r < rows; r++) { /* each innermost row of the element, at its place among the larger ones */
    int64_t place = 0, rest = r, stride = batch->dims[last + 1];
    for (int d = last - 1; d >= 0; d--) {
      place += rest % e->dims[d] * stride;
      rest /= e->dims[d];
      stride *= batch->dims[d + 1];
    }
    elements_copy(dtype, to + (size_t)place * size, (const char *)e->data + (size_t)(r * row) * size, row);
  }
}

static shoal_status batch_component(const struct attempt *a, int c, struct tensor *out) {
  const struct queue_spec *spec = &a->q->spec;
  struct shape shape = {.rank = spec->shapes[c].rank + 1, .dims = {(int64_t)a->got.n}};
  if (shape.rank > SHOAL_MAX_RANK) return INVALID("A batch of component %d would have too many dimensions", c);
  for (int d = 1; d < shape.rank; d++) {
    shape.dims[d] = MAX(spec->shapes[c].dims[d - 1], 0);
    for (size_t i = 0; spec->shapes[c].dims[d - 1] < 0 && i < a->got.n; i++)
      shape.dims[d] = MAX(shape.dims[d], a->got.at[i]->at[c].dims[d - 1]);
  }
  TRY(tensor_new(out, spec->types[c], &shape));
  if (spec->kind == QUEUE_PADDING) tensor_zero(out);
  for (size_t i = 0; i < a->got.n; i++) copy_padded(&a->got.at[i]->at[c], out, (int64_t)i);
  return NULL;
}

/* ---- finishing ---- */

static void finish(struct attempt *a) {
  INVARIANT(5, a->finished);
  struct queue *q = a->q;
  int n = q->spec.n;
  if (a->cancel) cancel_deregister(a->cancel, &a->hook);
  struct tensor *tuple = NULL;
  if (!a->status && a->kind == TRY_DEQUEUE) {
    tuple = a->got.at[0]->at;
  } else if (!a->status && a->kind == TRY_DEQUEUE_MANY) {
    tuple = mem_zalloc((size_t)n, sizeof *tuple);
    for (int i = 0; i < n && !a->status; i++) a->status = batch_component(a, i, &tuple[i]);
    if (a->status) {
      for (int i = 0; i < n; i++)
        if (tensor_valid(&tuple[i])) tensor_release(&tuple[i]);
      free(tuple);
      tuple = NULL;
    }
  }
  a->done(a->arg, a->status, tuple);
  if (tuple && a->kind == TRY_DEQUEUE) { /* the tensors are the callee's now */
    free(vec_pop(&a->got));
  } else {
    free(tuple);
  }
  for (size_t i = 0; i < a->got.n; i++) element_free(a->got.at[i], n);
  vec_release(&a->got);
  for (int i = 0; a->tuple && i < n; i++) tensor_release(&a->tuple[i]);
  free(a->tuple);
  free(a);
  resource_unref(&q->head);
}

static void finish_all(struct attempts *l) {
  while (l->first) {
    struct attempt *a = l->first;
    unlink_attempt(l, a);
    finish(a);
  }
}

/* Called with the lock held; drops it. */
static void flush_and_unlock(struct queue *q) {
  struct attempts finished = {0};
  bool changed;
  do {
    changed = run_first(q, &q->enqueues, &finished);
    bool waiting = q->enqueues.first != NULL;
    changed = run_first(q, &q->dequeues, &finished) && waiting;
  } while (changed);
  pthread_mutex_unlock(&q->lock);
  finish_all(&finished);
}

static shoal_status cancelled(const struct attempt *a) {
  return STATUS(SHOAL_CANCELLED, "%s operation was cancelled", a->kind <= TRY_CLOSE ? "Enqueue" : "Dequeue");
}

static void on_cancel(void *arg) {
  struct attempt *a = arg;
  struct queue *q = a->q;
  pthread_mutex_lock(&q->lock);
  if (a->finished) { /* somebody completes it just now, and waits for us to leave */
    pthread_mutex_unlock(&q->lock);
    return;
  }
  resource_ref(&q->head);
  a->finished = true;
  unlink_attempt(list_of(a), a);
  give_back(a);
  a->status = cancelled(a);
  pthread_mutex_unlock(&q->lock);
  finish(a);
  pthread_mutex_lock(&q->lock);
  flush_and_unlock(q);
  resource_unref(&q->head);
}

static void start(struct queue *q, struct attempt *a) {
  pthread_mutex_lock(&q->lock);
  link_attempt(list_of(a), a);
  if (a->cancel && !cancel_register(a->cancel, &a->hook, on_cancel, a)) {
    unlink_attempt(list_of(a), a);
    a->cancel = NULL;
    a->finished = true;
    a->status = cancelled(a);
    pthread_mutex_unlock(&q->lock);
    finish(a);
    return;
  }
  flush_and_unlock(q);
}

static struct attempt *attempt_new(struct queue *q, enum attempt_kind kind, int64_t wanted, struct cancel *cancel,
                                   queue_done done, void *arg) {
  struct attempt *a = mem_zalloc(1, sizeof *a);
  resource_ref(&q->head);
  a->q = q;
  a->kind = kind;
  a->wanted = wanted;
  a->cancel = cancel;
  a->done = done;
  a->arg = arg;
  return a;
}

/* ---- the interface ---- */

static shoal_status check_tuple(const struct queue *q, const struct tensor *const *tuple, int n, bool many) {
  const struct queue_spec *spec = &q->spec;
  if (n != spec->n) return INVALID("Wrong number of components in tuple. Expected %d, got %d", spec->n, n);
  for (int i = 0; i < n; i++)
    if ((shoal_dtype)tuple[i]->dtype != spec->types[i])
      return INVALID("Type mismatch in tuple component %d. Expected %s, got %s", i, dtype_tf_name(spec->types[i]),
                     dtype_tf_name(tuple[i]->dtype));
  for (int i = 0; i < n; i++) {
    struct shape have = tensor_shape(tuple[i]), want;
    if (many && have.rank < 1)
      return INVALID("Component %d must have at least one dimension to be enqueued in rows, but is a scalar", i);
    if (!spec->shapes) {
      if (many && have.dims[0] != tuple[0]->dims[0])
        return INVALID("All input tensors must have the same size in the 0th dimension. Component %d has %" PRId64
                       ", and should have %" PRId64,
                       i, have.dims[0], tuple[0]->dims[0]);
      continue;
    }
    want = spec->shapes[i];
    if (many) {
      if (want.rank == SHOAL_MAX_RANK) return INVALID("Component %d has too many dimensions", i);
      memmove(want.dims + 1, want.dims, (size_t)want.rank * sizeof *want.dims);
      want.dims[0] = tuple[0]->dims[0];
      want.rank++;
    }
    if (!shape_compatible(&want, &have))
      return INVALID("Shape mismatch in tuple component %d. Expected %s, got %s", i, shape_str(&want),
                     shape_str(&have));
  }
  return NULL;
}

void queue_enqueue(struct queue *q, const struct tensor *const *tuple, int n_tuple, bool many, struct cancel *cancel,
                   queue_done done, void *arg) {
  shoal_status s = check_tuple(q, tuple, n_tuple, many);
  if (s || (many && tuple[0]->dims[0] == 0)) {
    done(arg, s, NULL);
    return;
  }
  struct attempt *a =
      attempt_new(q, many ? TRY_ENQUEUE_MANY : TRY_ENQUEUE, many ? tuple[0]->dims[0] : 1, cancel, done, arg);
  a->tuple = mem_zalloc((size_t)n_tuple, sizeof *a->tuple);
  for (int i = 0; i < n_tuple; i++) tensor_ref(&a->tuple[i], tuple[i]);
  start(q, a);
}

void queue_dequeue(struct queue *q, struct cancel *cancel, queue_done done, void *arg) {
  start(q, attempt_new(q, TRY_DEQUEUE, 1, cancel, done, arg));
}

void queue_dequeue_many(struct queue *q, int64_t n, bool up_to, struct cancel *cancel, queue_done done, void *arg) {
  if (!q->spec.shapes) {
    done(arg,
         INVALID("%s's DequeueMany and DequeueUpTo require the components to have specified shapes.",
                 kind_names[q->spec.kind]),
         NULL);
    return;
  }
  struct attempt *a = attempt_new(q, TRY_DEQUEUE_MANY, n, cancel, done, arg);
  a->up_to = up_to;
  if (n > 0) {
    start(q, a);
    return;
  }
  a->cancel = NULL;
  a->finished = true; /* nothing was asked for */
  finish(a);
}

void queue_close(struct queue *q, bool cancel_pending, queue_done done, void *arg) {
  if (!cancel_pending) {
    start(q, attempt_new(q, TRY_CLOSE, 0, NULL, done, arg));
    return;
  }
  struct attempts pending = {0};
  pthread_mutex_lock(&q->lock);
  q->closed = true;
  while (q->enqueues.first) {
    struct attempt *a = q->enqueues.first;
    unlink_attempt(&q->enqueues, a);
    a->finished = true;
    if (a->kind != TRY_CLOSE) a->status = cancelled(a);
    link_attempt(&pending, a);
  }
  pthread_mutex_unlock(&q->lock);
  finish_all(&pending);
  pthread_mutex_lock(&q->lock);
  flush_and_unlock(q);
  done(arg, NULL, NULL);
}

bool queue_is_closed(struct queue *q) {
  pthread_mutex_lock(&q->lock);
  bool closed = q->closed;
  pthread_mutex_unlock(&q->lock);
  return closed;
}

int64_t queue_size(struct queue *q) {
  pthread_mutex_lock(&q->lock);
  int64_t n = (int64_t)q->n;
  pthread_mutex_unlock(&q->lock);
  return n;
}

int queue_waiting(struct queue *q) {
  int n = 0;
  pthread_mutex_lock(&q->lock);
  for (struct attempt *a = q->enqueues.first; a; a = a->next) n++;
  for (struct attempt *a = q->dequeues.first; a; a = a->next) n++;
  pthread_mutex_unlock(&q->lock);
  return n;
}
