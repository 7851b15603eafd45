/* Queues of batches.
 *
 * Threads come and go: a queue that has a batch has up to `threads` of them, each of which waits for the oldest batch
 * to be ready, works on it and looks for the next; a queue with nothing in it has none. Rejected: threads that a queue
 * keeps, as TensorFlow's do. Anyone can make queues, and threads are counted.
 *
 * A call whose step is cancelled is answered at once if it still waits, and its rows are left out; if it is being
 * worked on, the answer comes when that ends, since the step is what keeps alive all that a function needs. A batch
 * that nobody waits for any more is broken off.
 *
 * Calls are joined when the one's rows could be the other's: same function, same types and shapes of a row, and the
 * same captured values. TensorFlow takes the captured values of the last call for all, and fails all calls of a batch
 * whose shapes differ. */
#include "ops/state/batch_queue.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cond.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/vec.h"
#include "data/data_thread.h"

struct batched_call {
  struct kernel_ctx *ctx; /* lock: NULL once it is answered, or about to be, by who took it */
  struct batch_queue *q;
  struct batch_kind kind; /* functions: a reference */
  struct tensor *in;      /* [n_in] */
  int n_in, n_out, depth;
  int64_t rows, id;
  int n_parts, left;   /* lock: parts not through yet */
  int running;         /* lock: parts in batches that are worked on */
  bool cancelled;      /* lock */
  struct tensor *outs; /* lock: [n_parts][n_out] */
  shoal_status status; /* lock: the first error */
  struct cancel_hook hook;
  struct ref refs; /* of its parts, and of who has the ctx */
};

struct part { /* of a call, in a batch */
  struct batched_call *call;
  int number; /* among the call's */
  int64_t first, rows;
};

struct joined_batch {
  struct joined_batch *next;
  VEC(struct part) parts;
  int64_t rows;
  int64_t due;          /* clock_ns(): ready then at the latest */
  struct cancel cancel; /* of the call of the function */
  int pins;             /* lock: of those who break it off */
};

struct batch_queue {
  struct resource head;
  struct batch_options o;
  pthread_mutex_t lock;
  pthread_cond_t change;
  struct joined_batch *first, *last; /* lock: that wait */
  int64_t n;                         /* lock: how many */
  struct joined_batch *running;      /* lock */
  int64_t threads, busy;             /* lock: all, and those that work on a batch */
  uint64_t ids;                      /* lock */
};

/* ---- calls ---- */

static void call_unref(struct batched_call *c) {
  if (!ref_drop(&c->refs)) return;
  for (int i = 0; i < c->n_in; i++) tensor_release(&c->in[i]);
  for (int i = 0; c->outs && i < c->n_parts * c->n_out; i++) tensor_release(&c->outs[i]);
  function_runtime_unref(c->kind.functions);
  shoal_status_free(c->status);
  free(c->outs);
  free(c->in);
  free(c);
}

/* Whoever gets the ctx answers it. With the lock. */
static struct kernel_ctx *take_ctx(struct batched_call *c) {
  struct kernel_ctx *ctx = c->ctx;
  c->ctx = NULL;
  return ctx;
}

static void answer(struct batched_call *c, struct kernel_ctx *ctx, shoal_status s) {
  INVARIANT(5, ctx && !c->ctx);
  cancel_deregister(ctx->step->cancel, &c->hook);
  function_runtime_unref(c->kind.functions); /* while the step, and all behind it, is there */
  c->kind.functions = NULL;
  ctx_done(ctx, s);
  call_unref(c);
}

static bool waits(const struct batched_call *c) { return c->ctx && !c->cancelled; }

static bool wanted(const struct joined_batch *b) {
  for (size_t i = 0; i < b->parts.n; i++)
    if (waits(b->parts.at[i].call)) return true;
  return false;
}

static void batch_free(struct joined_batch *b) {
  for (size_t i = 0; i < b->parts.n; i++) call_unref(b->parts.at[i].call);
  vec_release(&b->parts);
  cancel_release(&b->cancel);
  free(b);
}

/* Leaves out the parts of calls that nobody waits for. With the lock. */
static void leave_out(struct joined_batch *b) {
  size_t n = 0;
  for (size_t i = 0; i < b->parts.n; i++) {
    struct part p = b->parts.at[i];
    if (waits(p.call)) {
      b->parts.at[n++] = p;
    } else {
      b->rows -= p.rows;
      call_unref(p.call);
    }
  }
  b->parts.n = n;
}

/* The same for the batches that wait; those with nothing left go. */
static void leave_out_all(struct batch_queue *q) {
  q->last = NULL;
  for (struct joined_batch **at = &q->first, *b; (b = *at);) {
    leave_out(b);
    if (b->parts.n) {
      q->last = b;
      at = &b->next;
    } else {
      *at = b->next;
      q->n--;
      batch_free(b);
    }
  }
}

static shoal_status cancelled(const struct kernel_ctx *ctx) {
  return STATUS(SHOAL_CANCELLED, "%s operation was cancelled", ctx->kernel->op->name);
}

/* Breaks off batches that nobody waits for. With the lock, which it lets go of meanwhile: what a batch is doing may end
 * on this thread. */
static void break_off(struct batch_queue *q) {
  for (struct joined_batch *b = q->running; b; b = b->next) {
    if (wanted(b) || cancel_started(&b->cancel)) continue;
    b->pins++;
    pthread_mutex_unlock(&q->lock);
    cancel_start(&b->cancel, NULL);
    pthread_mutex_lock(&q->lock);
    b->pins--;
  }
  pthread_cond_broadcast(&q->change);
}

static void on_cancel(void *arg) {
  struct batched_call *c = arg;
  struct batch_queue *q = c->q;
  pthread_mutex_lock(&q->lock);
  c->cancelled = true;
  struct kernel_ctx *ctx = c->running ? NULL : take_ctx(c);
  resource_ref(&q->head); /* c may go as soon as it is answered, and with it whoever holds q */
  leave_out_all(q);
  break_off(q);
  pthread_mutex_unlock(&q->lock);
  if (ctx) answer(c, ctx, cancelled(ctx));
  resource_unref(&q->head);
}

static struct batched_call *call_new(struct batch_queue *q, const struct batch_kind *kind, struct kernel_ctx *ctx,
                                     int64_t rows) {
  struct batched_call *c = mem_zalloc(1, sizeof *c);
  *c = (struct batched_call){.ctx = ctx,
                             .q = q,
                             .kind = *kind,
                             .n_in = ctx->kernel->n_in,
                             .n_out = ctx->kernel->n_out,
                             .depth = ctx->step->depth,
                             .rows = rows};
  if (kind->functions) function_runtime_ref(kind->functions);
  c->in = mem_zalloc((size_t)c->n_in, sizeof *c->in);
  for (int i = 0; i < c->n_in; i++) tensor_ref(&c->in[i], ctx_in(ctx, i));
  ref_init(&c->refs, 1);
  return c;
}

/* ---- joining ---- */

static bool same_handle(const struct tensor *a, const struct tensor *b) {
  const struct resource_handle *x = resource_handle_of(a), *y = resource_handle_of(b);
  return x && y && a->n == 1 && !strcmp(x->container, y->container) && !strcmp(x->name, y->name) &&
         !strcmp(x->type_name, y->type_name);
}

/* Values of steps that read the same variable are the same memory. */
static bool same_captured(const struct tensor *a, const struct tensor *b) {
  enum { LOOKED_AT = 4096 };
  if (a->dtype != b->dtype || a->rank != b->rank || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims))
    return false;
  if (a->data == b->data) return true;
  if (a->dtype == SHOAL_RESOURCE) return same_handle(a, b);
  size_t bytes = (size_t)a->n * dtype_size(a->dtype);
  return dtype_plain(a->dtype) && bytes <= LOOKED_AT && !memcmp(a->data, b->data, bytes);
}

static bool fits(const struct joined_batch *b, const struct batched_call *c) {
  const struct batched_call *other = b->parts.at[0].call;
  if (other->kind.hash != c->kind.hash || !other->kind.f != !c->kind.f || other->n_in != c->n_in ||
      other->n_out != c->n_out || other->kind.n_batched != c->kind.n_batched)
    return false;
  for (int i = 0; i < c->n_in; i++) {
    const struct tensor *x = &c->in[i], *y = &other->in[i];
    if (i >= c->kind.n_batched && !same_captured(x, y)) return false;
    if (i < c->kind.n_batched && (x->dtype != y->dtype || x->rank != y->rank ||
                                  memcmp(x->dims + 1, y->dims + 1, (size_t)(x->rank - 1) * sizeof *x->dims)))
      return false;
  }
  return true;
}

static void put_part(struct joined_batch *b, struct batched_call *c, int64_t first, int64_t rows) {
  ref_take(&c->refs);
  vec_push(&b->parts, (struct part){c, c->n_parts++, first, rows});
  b->rows += rows;
}

static struct joined_batch *begin_batch(struct batch_queue *q) {
  struct joined_batch *b = mem_zalloc(1, sizeof *b);
  int64_t wait;
  cancel_init(&b->cancel);
  b->due = mul_overflows(q->o.timeout_micros, 1000, &wait) || wait > INT64_MAX / 2 ? INT64_MAX : clock_ns() + wait;
  if (q->last) q->last->next = b;
  else q->first = b;
  q->last = b;
  q->n++;
  return b;
}

/* With the lock. Nothing has changed when it fails. */
static shoal_status enqueue(struct batch_queue *q, struct batched_call *c) {
  int64_t max = q->o.max_rows, in_last = 0, first = 0;
  if (q->last && fits(q->last, c)) in_last = max - q->last->rows;
  if (!q->o.splitting && in_last < c->rows) in_last = 0;
  int64_t beyond = MAX(c->rows - in_last, 0), more = (beyond + max - 1) / max;
  if (q->n + more > MAX(q->o.max_enqueued, 1))
    return STATUS(SHOAL_UNAVAILABLE,
                  "The batch scheduling queue to which this task was submitted is full; currently %" PRId64
                  " batches enqueued and max_enqueued_batches is %" PRId64,
                  q->n, q->o.max_enqueued);
  if (in_last) {
    first = MIN(in_last, c->rows);
    put_part(q->last, c, 0, first);
  }
  for (int64_t rows; first < c->rows; first += rows) {
    rows = MIN(max, c->rows - first);
    put_part(begin_batch(q), c, first, rows);
  }
  c->left = c->n_parts;
  c->id = (int64_t)(q->ids++ & INT64_MAX);
  return NULL;
}

/* ---- working on a batch ---- */

shoal_status batch_join(const struct tensor *parts, int n, int64_t rows, struct tensor *out) {
  int64_t have = 0, at = 0;
  for (int i = 0; i < n; i++) have += parts[i].dims[0];
  if (n == 1 && have >= rows) {
    tensor_ref(out, &parts[0]);
    return NULL;
  }
  shoal_dtype type = (shoal_dtype)parts[0].dtype;
  struct shape shape = tensor_shape(&parts[0]);
  shape.dims[0] = MAX(rows, have);
  TRY(tensor_new(out, type, &shape));
  int64_t row = out->dims[0] ? out->n / out->dims[0] : 0;
  size_t bytes = (size_t)row * dtype_size(type);
  for (int i = 0; i < n; at += parts[i].dims[0], i++)
    elements_copy(type, (char *)out->data + (size_t)at * bytes, parts[i].data, parts[i].n);
  for (; row && at < out->dims[0]; at++) elements_copy(type, (char *)out->data + (size_t)at * bytes, out->data, row);
  return NULL;
}

static int64_t padded(const struct batch_options *o, int64_t rows) {
  for (int i = 0; i < o->n_sizes; i++)
    if (o->sizes[i] >= rows) return o->sizes[i];
  return rows;
}

/* Input i of all parts, padded. */
static shoal_status join_input(const struct batch_queue *q, const struct joined_batch *b, int i, struct tensor *out) {
  struct tensor *parts = mem_zalloc(b->parts.n, sizeof *parts);
  for (size_t k = 0; k < b->parts.n; k++) {
    const struct part *p = &b->parts.at[k];
    tensor_rows(&parts[k], &p->call->in[i], p->first, p->first + p->rows);
  }
  shoal_status s = batch_join(parts, (int)b->parts.n, padded(&q->o, b->rows), out);
  for (size_t k = 0; k < b->parts.n; k++) tensor_release(&parts[k]);
  free(parts);
  return s;
}

/* Batch: the last call gets all rows and says whose they are, the others get none. */
static shoal_status give_batch(const struct batch_queue *q, const struct joined_batch *b, struct kernel_ctx *ctx) {
  int n = ctx->kernel->n_in;
  for (int i = 0; i < n; i++) {
    struct tensor t;
    TRY(join_input(q, b, i, &t));
    ctx_set(ctx, i, &t);
  }
  struct tensor *index;
  TRY(ctx_out_dims(ctx, n, 2, (int64_t[]){(int64_t)b->parts.n, 3}, &index));
  int64_t *at = T_DATA(index, int64_t), row = 0;
  for (size_t i = 0; i < b->parts.n; i++, at += 3) {
    const struct part *p = &b->parts.at[i];
    memcpy(at, (int64_t[]){p->call->id, row, row + p->rows}, 3 * sizeof *at);
    row += p->rows;
  }
  return NULL;
}

static shoal_status give_nothing(struct kernel_ctx *ctx) {
  int n = ctx->kernel->n_in;
  struct tensor *out;
  for (int i = 0; i < n; i++) {
    struct shape none = tensor_shape(ctx_in(ctx, i));
    none.dims[0] = 0;
    TRY(ctx_out(ctx, i, &none, &out));
  }
  return ctx_out_dims(ctx, n, 2, (int64_t[]){0, 3}, &out);
}

static void hand_out(struct batch_queue *q, struct joined_batch *b) {
  struct kernel_ctx **all = mem_zalloc(b->parts.n, sizeof *all);
  size_t n = 0; /* (nobody else takes the ctx of a call that is worked on) */
  pthread_mutex_lock(&q->lock);
  for (; n < b->parts.n; n++) all[n] = take_ctx(b->parts.at[n].call);
  pthread_mutex_unlock(&q->lock);
  shoal_status s = give_batch(q, b, all[n - 1]);
  for (size_t i = 0; i < n; i++) {
    struct tensor *id;
    shoal_status mine = s ? status_copy(s) : i + 1 < n ? give_nothing(all[i]) : NULL;
    if (!mine) mine = ctx_out_dims(all[i], all[i]->kernel->n_in + 1, 0, NULL, &id);
    if (!mine) *T_DATA(id, int64_t) = b->parts.at[i].call->id;
    answer(b->parts.at[i].call, all[i], mine);
  }
  shoal_status_free(s);
  free(all);
}

static shoal_status check_output(const struct tensor *t, int64_t rows) {
  if (!t->rank) return STATUS(SHOAL_FAILED_PRECONDITION, "Batched output tensor has 0 dimensions");
  if (t->dims[0] == rows) return NULL;
  return STATUS(SHOAL_FAILED_PRECONDITION,
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input "
                "tensors");
}

/* What the function makes of the batch: rets [n_out]. */
static shoal_status call_function(struct batch_queue *q, struct joined_batch *b, struct tensor *rets) {
  const struct batched_call *c = b->parts.at[b->parts.n - 1].call;
  struct tensor *args = mem_zalloc((size_t)c->n_in, sizeof *args);
  shoal_status s = NULL;
  for (int i = 0; !s && i < c->n_in; i++) {
    if (i < c->kind.n_batched) s = join_input(q, b, i, &args[i]);
    else tensor_ref(&args[i], &c->in[i]);
  }
  struct step step = {.cancel = &b->cancel,
                      .step_resources = resource_mgr_new("batch"),
                      .deadline = DEADLINE_NEVER,
                      .session = "",
                      .depth = c->depth + 1};
  if (!s) s = function_call_sync(c->kind.f, &step, args, c->n_in, rets, c->n_out);
  resource_mgr_unref(step.step_resources);
  for (int i = 0; i < c->n_in; i++) tensor_release(&args[i]);
  free(args);
  for (int i = 0; !s && i < c->n_out; i++) s = check_output(&rets[i], padded(&q->o, b->rows));
  return s;
}

/* All parts of the call are there; with its ctx. */
static shoal_status join_outputs(struct batched_call *c, struct kernel_ctx *ctx) {
  struct tensor *parts = mem_zalloc((size_t)c->n_parts, sizeof *parts);
  shoal_status s = c->status;
  c->status = NULL;
  for (int i = 0; !s && i < c->n_out; i++) {
    struct tensor t;
    bool same = true;
    for (int k = 0; k < c->n_parts; k++) {
      tensor_move(&parts[k], &c->outs[k * c->n_out + i]);
      same &= parts[k].dtype == parts[0].dtype && parts[k].rank == parts[0].rank &&
              !memcmp(parts[k].dims + 1, parts[0].dims + 1, (size_t)(parts[0].rank - 1) * sizeof *parts->dims);
    }
    if (!same) s = INVALID("Output %d of the function has another type or shape for another part of the input", i);
    if (!s) s = batch_join(parts, c->n_parts, 0, &t);
    if (!s) ctx_set(ctx, i, &t);
  }
  free(parts); /* the tensors are outs' */
  return s;
}

static void compute(struct batch_queue *q, struct joined_batch *b) {
  int n_out = b->parts.at[0].call->n_out;
  struct tensor *rets = mem_zalloc((size_t)n_out, sizeof *rets);
  shoal_status s = call_function(q, b, rets);
  int64_t row = 0;
  for (size_t i = 0; i < b->parts.n; row += b->parts.at[i].rows, i++) {
    struct part *p = &b->parts.at[i];
    struct batched_call *c = p->call;
    pthread_mutex_lock(&q->lock);
    if (!c->outs) c->outs = mem_zalloc((size_t)c->n_parts * (size_t)n_out, sizeof *c->outs);
    for (int k = 0; !s && k < n_out; k++) tensor_rows(&c->outs[p->number * n_out + k], &rets[k], row, row + p->rows);
    if (s && !c->status) c->status = status_copy(s);
    c->left--;
    c->running--;
    bool gone = c->cancelled;
    struct kernel_ctx *ctx = c->left && (!gone || c->running) ? NULL : take_ctx(c);
    pthread_mutex_unlock(&q->lock);
    if (ctx) answer(c, ctx, gone ? cancelled(ctx) : join_outputs(c, ctx));
  }
  shoal_status_free(s);
  for (int i = 0; i < n_out; i++) tensor_release(&rets[i]);
  free(rets);
}

/* ---- threads ---- */

/* The oldest batch when it is ready; NULL: there is none yet, or none at all. With the lock. */
static struct joined_batch *take_ready(struct batch_queue *q) {
  struct joined_batch *b = q->first;
  if (!b || (!b->next && b->rows < q->o.max_rows && clock_ns() < b->due)) return NULL;
  q->first = b->next;
  if (!q->first) q->last = NULL;
  q->n--;
  return b;
}

/* With the lock. */
static void begin_work(struct batch_queue *q, struct joined_batch *b) {
  for (size_t i = 0; i < b->parts.n; i++) b->parts.at[i].call->running++;
  b->next = q->running;
  q->running = b;
  q->busy++;
}

static void end_work(struct batch_queue *q, struct joined_batch *b) {
  struct joined_batch **at = &q->running;
  while (b->pins) pthread_cond_wait(&q->change, &q->lock);
  while (*at != b) at = &(*at)->next;
  *at = b->next;
  q->busy--;
}

static void work(void *arg) {
  struct batch_queue *q = arg;
  pthread_mutex_lock(&q->lock);
  while (q->first) {
    struct joined_batch *b = take_ready(q);
    if (!b) {
      cond_wait_until(&q->change, &q->lock, q->first->due);
      continue;
    }
    begin_work(q, b);
    pthread_mutex_unlock(&q->lock);
    if (b->parts.at[0].call->kind.f) compute(q, b);
    else hand_out(q, b);
    pthread_mutex_lock(&q->lock);
    end_work(q, b);
    pthread_mutex_unlock(&q->lock);
    batch_free(b);
    pthread_mutex_lock(&q->lock);
  }
  q->threads--;
  pthread_mutex_unlock(&q->lock);
  batch_queue_unref(q);
}

/* With the lock. */
static shoal_status add_thread(struct batch_queue *q) {
  resource_ref(&q->head);
  shoal_status s = data_thread_start(work, q);
  if (s) resource_unref(&q->head); /* the caller has one, too */
  else q->threads++;
  return s;
}

void batch_queue_add(struct batch_queue *q, const struct batch_kind *kind, struct kernel_ctx *ctx, int64_t rows) {
  struct batched_call *c = call_new(q, kind, ctx, rows);
  shoal_status s = NULL;
  pthread_mutex_lock(&q->lock);
  if (!cancel_register(ctx->step->cancel, &c->hook, on_cancel, c)) s = cancel_reason(ctx->step->cancel);
  bool registered = !s;
  if (!s && !q->threads) s = add_thread(q); /* where there is none, nothing waits */
  if (!s) s = enqueue(q, c);
  if (s) take_ctx(c);
  else if (q->threads - q->busy < q->n && q->threads < q->o.threads) shoal_status_free(add_thread(q));
  pthread_cond_broadcast(&q->change);
  pthread_mutex_unlock(&q->lock);
  if (s && registered) answer(c, ctx, s);
  else if (s) ctx_done(ctx, s), call_unref(c);
}

/* ---- the resource ---- */

static void queue_free(struct resource *r) {
  struct batch_queue *q = (struct batch_queue *)r;
  pthread_mutex_destroy(&q->lock);
  pthread_cond_destroy(&q->change);
  free(q);
}

static const struct resource_type queue_type = {"N10tensorflow13BatchResourceE", "batches", queue_free};

static shoal_status queue_make(void *arg, struct resource **out) {
  struct batch_queue *q = mem_zalloc(1, sizeof *q);
  resource_init(&q->head, &queue_type);
  q->o = *(const struct batch_options *)arg;
  pthread_mutex_init(&q->lock, NULL);
  cond_init(&q->change);
  q->ids = (uint64_t)wall_nanos() << 16; /* what one queue calls by an id another should not */
  *out = &q->head;
  return NULL;
}

shoal_status batch_queue_get(struct resource_mgr *m, const char *container, const char *name,
                             const struct batch_options *o, struct batch_queue **out) {
  struct resource *r;
  TRY(resource_find_or_make(m, container, &queue_type, name, queue_make, (void *)(uintptr_t)o, &r));
  *out = (struct batch_queue *)r;
  return NULL;
}

void batch_queue_unref(struct batch_queue *q) { resource_unref(&q->head); }
