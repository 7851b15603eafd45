/* See batch.h. */
#include "serving/batch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "runtime/run_cancel.h"
#include "tensor/tensor.h"

/* What filling up inner dimensions may make of the elements that were given: so many times as many, and a few more. */
enum { MOST_PADDING = 64, FEW_ELEMENTS = 1 << 20 };
/* How long a batch waits for a runner when its requests have no deadlines. */
enum { LONGEST_WAIT_S = 300 };

/* A request in a batch, on the stack of its thread. */
struct batch_task {
  struct query *query;
  int64_t rows;
  struct batch_task *next;
  shoal_status error; /* its own, once the batch is done */
  struct batcher *batcher;
  struct request_batch *batch; /* lock */
  bool gone;                   /* lock: nobody waits for it */
  struct cancel_hook hook;
};

struct request_batch {
  struct batch_task *tasks, **end; /* in the order they came; the first is the leader's */
  int64_t rows;
  int64_t opened;
  bool closed, done;
  int inside; /* tasks whose threads have not left */
  pthread_cond_t over;
  struct cancel cancel;       /* started when nobody waits for any of it */
  struct request_batch *next; /* of those that are open */
};

struct batcher {
  const struct batch_parameters *p;
  pthread_mutex_t lock;
  pthread_cond_t free;        /* a runner is free, or a batch is full */
  struct request_batch *open; /* lock */
  int64_t running;            /* lock */
  int64_t waiting;            /* lock: batches that have not begun to run */
};

struct batcher *batcher_new(const struct batch_parameters *p) {
  struct batcher *b = mem_zalloc(1, sizeof *b);
  b->p = p;
  pthread_mutex_init(&b->lock, NULL);
  cond_init(&b->free);
  return b;
}

void batcher_free(struct batcher *b) {
  if (!b) return;
  pthread_mutex_destroy(&b->lock);
  pthread_cond_destroy(&b->free);
  free(b);
}

/* ---- which requests go together ---- */

/* Rows of a request; 0: it is none for batches. */
static int64_t rows_of(const struct query *q) {
  int64_t rows = 0;
  for (int i = 0; i < q->signature->n_inputs; i++) {
    if (!q->values[i] || !q->values[i]->t.rank || q->values[i]->t.dims[0] < 1) return 0;
    if (i && q->values[i]->t.dims[0] != rows) return 0;
    rows = q->values[i]->t.dims[0];
  }
  return rows;
}

static bool same_shape(const struct batcher *b, const struct tensor *x, const struct tensor *y) {
  if (x->dtype != y->dtype || x->rank != y->rank) return false;
  for (int i = 1; i < x->rank && !b->p->pad; i++)
    if (x->dims[i] != y->dims[i]) return false;
  return true;
}

/* Is what an input is filled up to not far beyond what was given? Who has many columns and no rows of them, beside one
 * who has rows, would else have all that memory of them. */
static bool pads_little(const struct request_batch *open, const struct query *q, int64_t rows, int input) {
  const struct tensor *mine = &q->values[input]->t;
  int64_t dims[SHOAL_MAX_RANK], all = open->rows + rows, given = mine->n;
  memcpy(dims, mine->dims, sizeof dims);
  for (const struct batch_task *t = open->tasks; t; t = t->next) {
    const struct tensor *other = &t->query->values[input]->t;
    given += other->n;
    for (int i = 1; i < mine->rank; i++) dims[i] = MAX(dims[i], other->dims[i]);
  }
  for (int i = 1; i < mine->rank; i++)
    if (__builtin_mul_overflow(all, dims[i], &all)) return false;
  return all <= given * MOST_PADDING + FEW_ELEMENTS;
}

static bool fits(const struct batcher *b, const struct request_batch *open, const struct query *q, int64_t rows) {
  const struct query *first = open->tasks->query;
  if (first->signature != q->signature || first->n_outputs != q->n_outputs) return false;
  if (open->rows + rows > b->p->max_batch_size) return false;
  for (int i = 0; i < q->n_outputs; i++)
    if (first->outputs[i] != q->outputs[i]) return false;
  for (int i = 0; i < q->signature->n_inputs; i++)
    if (!same_shape(b, &first->values[i]->t, &q->values[i]->t) || (b->p->pad && !pads_little(open, q, rows, i)))
      return false;
  return true;
}

/* ---- joining ---- */

/* Copies a request's part to a place of the joined tensor, whose inner dimensions may be larger. */
static void copy_part(char *to, const struct tensor *whole, const char *from, const struct tensor *part, int dim) {
  size_t width = dtype_size((shoal_dtype)whole->dtype);
  int64_t step_to = 1, step_from = 1;
  for (int i = dim + 1; i < whole->rank; i++) step_to *= whole->dims[i], step_from *= part->dims[i];
  bool same = true;
  for (int i = dim + 1; i < whole->rank; i++) same = same && whole->dims[i] == part->dims[i];
  if (same) {
    elements_copy((shoal_dtype)whole->dtype, to, from, part->dims[dim] * step_from);
    return;
  }
  for (int64_t i = 0; i < part->dims[dim]; i++)
    copy_part(to + (size_t)(i * step_to) * width, whole, from + (size_t)(i * step_from) * width, part, dim + 1);
}

/* The size that a batch is filled up to. */
static int64_t padded(const struct batcher *b, int64_t rows) {
  for (size_t i = 0; i < b->p->allowed.n; i++)
    if (b->p->allowed.at[i] >= rows) return b->p->allowed.at[i];
  return rows;
}

static shoal_status join_input(const struct batcher *b, const struct request_batch *batch, int input,
                               shoal_tensor **out) {
  const struct tensor *first = &batch->tasks->query->values[input]->t;
  int64_t dims[SHOAL_MAX_RANK];
  bool uneven = false;
  memcpy(dims, first->dims, sizeof dims);
  for (const struct batch_task *t = batch->tasks; t; t = t->next)
    for (int i = 1; i < first->rank; i++) {
      int64_t d = t->query->values[input]->t.dims[i];
      uneven = uneven || d != dims[i];
      dims[i] = MAX(dims[i], d);
    }
  dims[0] = padded(b, batch->rows);
  struct tensor whole;
  TRY(tensor_new_dims(&whole, (shoal_dtype)first->dtype, first->rank, dims));
  if (uneven) tensor_zero(&whole);
  size_t row = (size_t)(whole.n / dims[0]) * dtype_size((shoal_dtype)whole.dtype);
  char *to = whole.data;
  for (const struct batch_task *t = batch->tasks; t; t = t->next) {
    copy_part(to, &whole, t->query->values[input]->t.data, &t->query->values[input]->t, 0);
    to += row * (size_t)t->rows;
  }
  for (int64_t i = batch->rows; i < dims[0]; i++, to += row) /* the first row again, which is sound */
    elements_copy((shoal_dtype)whole.dtype, to, whole.data, whole.n / dims[0]);
  *out = tensor_handle_take(&whole);
  return NULL;
}

static shoal_status split_output(const struct request_batch *batch, int64_t size, int output, const shoal_tensor *all) {
  const char *key = batch->tasks->query->outputs[output];
  if (!all->t.rank)
    return STATUS(SHOAL_FAILED_PRECONDITION, "Batched output tensor has 0 dimensions (output '%s')", key);
  if (all->t.dims[0] != size)
    return STATUS(
        SHOAL_FAILED_PRECONDITION,
        "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input "
        "tensors (output '%s': %" PRId64 ", not %" PRId64 ")",
        key, all->t.dims[0], size);
  int64_t at = 0;
  for (const struct batch_task *t = batch->tasks; t; t = t->next) {
    struct tensor part;
    tensor_rows(&part, &all->t, at, at + t->rows);
    t->query->answers[output] = tensor_handle_take(&part);
    at += t->rows;
  }
  return NULL;
}

/* ---- running ---- */

/* The latest of the requests' deadlines: who has less time is not waited for in vain. */
static int64_t deadline_of(const struct request_batch *batch) {
  int64_t deadline = 0;
  for (const struct batch_task *t = batch->tasks; t; t = t->next) deadline = MAX(deadline, t->query->deadline);
  return deadline;
}

static int64_t waits_until(const struct request_batch *batch) {
  return MIN(deadline_of(batch), batch->opened + (int64_t)LONGEST_WAIT_S * 1000000000);
}

static bool all_gone(const struct request_batch *batch) {
  for (const struct batch_task *t = batch->tasks; t; t = t->next)
    if (!t->gone) return false;
  return true;
}

static shoal_status gone(void) { return STATUS(SHOAL_CANCELLED, "nobody waits for the answer"); }

static shoal_status run(const struct batcher *b, struct request_batch *batch) {
  const struct query *first = batch->tasks->query;
  struct query all = {0};
  TRY(query_open(&all, servable_ref(first->servable),
                 (struct chars){first->signature->key, strlen(first->signature->key)}));
  shoal_status s = NULL;
  for (int i = 0; i < first->n_outputs; i++) all.outputs[i] = first->outputs[i];
  all.n_outputs = first->n_outputs;
  all.deadline = deadline_of(batch);
  for (int i = 0; i < first->signature->n_inputs && !s; i++) s = join_input(b, batch, i, &all.values[i]);
  run_cancel_set(&batch->cancel);
  if (!s)
    s = servable_ask(all.servable, all.signature, all.deadline, all.keys, all.values, all.signature->n_inputs,
                     all.outputs, all.answers, all.n_outputs);
  run_cancel_set(NULL);
  s = run_cancel_outcome(&batch->cancel, s);
  for (int i = 0; i < all.n_outputs && !s; i++) s = split_output(batch, padded(b, batch->rows), i, all.answers[i]);
  query_release(&all);
  return s;
}

/* One request's mistake is not the others': each is asked alone then. */
static void run_each(struct request_batch *batch, shoal_status (*alone)(struct query *q)) {
  for (struct batch_task *t = batch->tasks; t; t = t->next) {
    for (int i = 0; i < t->query->n_outputs; i++) {
      shoal_tensor_unref(t->query->answers[i]);
      t->query->answers[i] = NULL;
    }
    t->error = alone(t->query);
  }
}

/* refused: why it is not run; NULL: it is. */
static void run_all(const struct batcher *b, struct request_batch *batch, shoal_status refused,
                    shoal_status (*alone)(struct query *q)) {
  shoal_status s = refused                                                       ? refused
                   : batch->tasks->next || padded(b, batch->rows) != batch->rows ? run(b, batch)
                                                                                 : alone(batch->tasks->query);
  if (s && batch->tasks->next && shoal_status_code(s) == SHOAL_INVALID_ARGUMENT) {
    run_each(batch, alone);
  } else {
    for (struct batch_task *t = batch->tasks; t; t = t->next) t->error = status_copy(s);
  }
  shoal_status_free(s);
}

/* ---- batches ---- */

/* All of these: call with the lock held. */

static void close_batch(struct batcher *b, struct request_batch *batch) {
  if (batch->closed) return;
  struct request_batch **at = &b->open;
  while (*at != batch) at = &(*at)->next;
  *at = batch->next;
  batch->closed = true;
}

static struct request_batch *open_batch(struct batcher *b) {
  struct request_batch *batch = mem_zalloc(1, sizeof *batch);
  batch->end = &batch->tasks;
  batch->opened = clock_ns();
  batch->next = b->open;
  cond_init(&batch->over);
  cancel_init(&batch->cancel);
  b->open = batch;
  b->waiting++;
  return batch;
}

static void add_task(struct batcher *b, struct request_batch *batch, struct batch_task *t) {
  t->batch = batch;
  *batch->end = t;
  batch->end = &t->next;
  batch->rows += t->rows;
  batch->inside++;
  if (batch->rows < b->p->max_batch_size) return;
  close_batch(b, batch);
  pthread_cond_broadcast(&b->free);
}

static void leave(struct request_batch *batch) {
  if (--batch->inside) return;
  pthread_cond_destroy(&batch->over);
  cancel_release(&batch->cancel);
  free(batch);
}

/* Out of a batch that has not begun; not the leader's. */
static void take_out(struct request_batch *batch, struct batch_task *t) {
  struct batch_task **at = &batch->tasks;
  while (*at != t) at = &(*at)->next;
  *at = t->next;
  if (!*at) batch->end = at;
  batch->rows -= t->rows;
}

/* Why a batch that has waited is not run; NULL: it is. */
static shoal_status refusal(const struct batcher *b, const struct request_batch *batch) {
  if (all_gone(batch)) return gone();
  if (b->running < b->p->num_batch_threads || clock_ns() >= deadline_of(batch)) return NULL;
  return STATUS(SHOAL_UNAVAILABLE, "the batch has waited for %d s, and no thread was free to run it", LONGEST_WAIT_S);
}

static void lead(struct batcher *b, struct request_batch *batch, shoal_status (*alone)(struct query *q)) {
  int64_t until = MIN(batch->opened + b->p->batch_timeout_micros * 1000, batch->tasks->query->deadline);
  while (!batch->closed && !all_gone(batch) && clock_ns() < until && cond_wait_until(&b->free, &b->lock, until))
    continue;
  /* Once nobody waits for it any more it needs no runner: it is refused. */
  while (b->running >= b->p->num_batch_threads && !all_gone(batch) && clock_ns() < waits_until(batch))
    cond_wait_until(&b->free, &b->lock, waits_until(batch));
  shoal_status refused = refusal(b, batch);
  close_batch(b, batch);
  b->waiting--;
  b->running++;
  pthread_mutex_unlock(&b->lock);
  run_all(b, batch, refused, alone);
  pthread_mutex_lock(&b->lock);
  b->running--;
  batch->done = true;
  pthread_cond_broadcast(&b->free);
  pthread_cond_broadcast(&batch->over);
}

static struct request_batch *find_open(const struct batcher *b, const struct query *q, int64_t rows) {
  for (struct request_batch *batch = b->open; batch; batch = batch->next)
    if (fits(b, batch, q, rows)) return batch;
  return NULL;
}

/* Nobody waits for a task any more. */
static void on_gone(void *task) {
  struct batch_task *t = task;
  struct batcher *b = t->batcher;
  pthread_mutex_lock(&b->lock);
  t->gone = true;
  /* Of one that is done threads leave, and their tasks with them: it is not looked through any more. */
  bool all = t->batch && !t->batch->done && all_gone(t->batch);
  if (all) close_batch(b, t->batch); /* who came to it now would be cancelled with it */
  pthread_cond_broadcast(&b->free);
  if (t->batch) pthread_cond_broadcast(&t->batch->over);
  pthread_mutex_unlock(&b->lock);
  if (all) cancel_start(&t->batch->cancel, gone()); /* which its thread does not leave before we have */
}

/* Call with the lock held: t in a batch, to the end of it. */
static shoal_status go_with(struct batcher *b, struct batch_task *t, shoal_status (*alone)(struct query *q)) {
  struct request_batch *batch = find_open(b, t->query, t->rows);
  bool leads = !batch;
  if (t->gone) return gone();
  if (leads && b->waiting >= b->p->max_enqueued_batches && b->running >= b->p->num_batch_threads)
    return STATUS(SHOAL_UNAVAILABLE, "The batch scheduling queue to which this task was submitted is full");
  if (leads) batch = open_batch(b);
  add_task(b, batch, t);
  if (leads) lead(b, batch, alone);
  while (!batch->done && (batch->closed || !t->gone)) pthread_cond_wait(&batch->over, &b->lock);
  if (batch->done) return t->error;
  take_out(batch, t);
  return gone();
}

shoal_status batcher_run(struct batcher *b, struct query *q, shoal_status (*alone)(struct query *q)) {
  struct batch_task t = {.query = q, .rows = rows_of(q), .batcher = b};
  if (!t.rows || t.rows > b->p->max_batch_size) return alone(q);
  if (q->cancel && !cancel_register(q->cancel, &t.hook, on_gone, &t)) return gone();
  pthread_mutex_lock(&b->lock);
  shoal_status s = go_with(b, &t, alone);
  pthread_mutex_unlock(&b->lock);
  if (q->cancel) cancel_deregister(q->cancel, &t.hook);
  pthread_mutex_lock(&b->lock);
  if (t.batch) leave(t.batch);
  pthread_mutex_unlock(&b->lock);
  return s;
}
