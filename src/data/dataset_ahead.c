/* Elements kept: prefetch runs its input ahead on a thread, cache remembers what the first walk gave. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/cond.h"
#include "base/file_root.h"
#include "base/mem.h"
#include "base/vec.h"
#include "data/data_thread.h"
#include "data/dataset.h"

/* ---- prefetch ---- */

enum { DEFAULT_BUFFER = 2, MAX_BUFFER = 1 << 20 };

struct ahead_slot {
  struct tensor *t; /* [n] */
  shoal_status status;
  bool end;
};

struct prefetch_iter {
  struct data_iterator head;
  int64_t buffer;
  pthread_t thread;
  bool running;
  const struct file_roots *files; /* of whoever started the thread */
  struct cancel cancel;
  pthread_mutex_t lock;
  pthread_cond_t change;
  VEC(struct ahead_slot) slots; /* lock: oldest first */
  bool stop, ended;             /* lock */
};

static void slot_free(struct ahead_slot *s, int n) {
  tensors_release(s->t, n);
  free(s->t);
  shoal_status_free(s->status);
}

static void *run_ahead(void *arg) {
  struct prefetch_iter *p = arg;
  file_roots_use(p->files);
  int n = p->head.of->n;
  struct data_ctx ctx = {.cancel = &p->cancel};
  for (bool over = false; !over;) {
    pthread_mutex_lock(&p->lock);
    while (!p->stop && (int64_t)p->slots.n >= p->buffer) pthread_cond_wait(&p->change, &p->lock);
    bool stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    if (stop) break;
    struct ahead_slot s = {.t = mem_zalloc((size_t)MAX(n, 1), sizeof *s.t)};
    s.status = iterator_next(p->head.in, &ctx, s.t, &s.end);
    over = s.end;
    pthread_mutex_lock(&p->lock);
    vec_push(&p->slots, s);
    if (over) p->ended = true;
    pthread_cond_broadcast(&p->change);
    pthread_mutex_unlock(&p->lock);
  }
  return NULL;
}

static void prefetch_iter_free(struct data_iterator *it) {
  struct prefetch_iter *p = (struct prefetch_iter *)it;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  pthread_cond_broadcast(&p->change);
  pthread_mutex_unlock(&p->lock);
  cancel_start(&p->cancel, NULL);
  if (p->running) {
    pthread_join(p->thread, NULL);
    data_threads_give(1);
  }
  for (size_t i = 0; i < p->slots.n; i++) slot_free(&p->slots.at[i], it->of->n);
  vec_release(&p->slots);
  cancel_release(&p->cancel);
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->change);
}

static shoal_status start_thread(struct prefetch_iter *p) {
  if (p->running) return NULL;
  struct data_iterator *in;
  TRY(iterator_input(&p->head, &in));
  p->files = file_roots_current();
  TRY(data_threads_take(1));
  int err = pthread_create(&p->thread, NULL, run_ahead, p);
  if (err) {
    data_threads_give(1);
    return ERRNO_STATUS(err, "a thread for a dataset");
  }
  p->running = true;
  return NULL;
}

static shoal_status prefetch_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct prefetch_iter *p = (struct prefetch_iter *)it;
  TRY(start_thread(p));
  pthread_mutex_lock(&p->lock);
  while (!p->slots.n && !p->ended && !data_ended(ctx)) {
    data_wait(&p->change, &p->lock);
  }
  struct ahead_slot s = {.end = true};
  bool got = p->slots.n > 0;
  if (got && !p->slots.at[0].end) {
    s = p->slots.at[0];
    for (size_t i = 1; i < p->slots.n; i++) p->slots.at[i - 1] = p->slots.at[i];
    p->slots.n--;
    pthread_cond_broadcast(&p->change);
  } /* the end stays, for whoever asks again */
  pthread_mutex_unlock(&p->lock);
  if (!got && data_ended(ctx)) return data_why_ended(ctx);
  *end = s.end;
  for (int i = 0; !s.end && !s.status && i < it->of->n; i++) tensor_move(&out[i], &s.t[i]);
  free(s.t);
  return s.status;
}

/* Before the thread runs, the next element is the input's. */
static shoal_status prefetch_skip(struct data_iterator *it, struct data_ctx *ctx, bool *end) {
  struct data_iterator *in;
  if (!((struct prefetch_iter *)it)->running) {
    TRY(iterator_input(it, &in));
    return iterator_skip(in, ctx, end);
  }
  struct tensor *t = mem_zalloc((size_t)MAX(it->of->n, 1), sizeof *t);
  shoal_status s = prefetch_next(it, ctx, t, end);
  tensors_release(t, it->of->n);
  free(t);
  return s;
}

static const struct data_iterator_type prefetch_iter_type = {sizeof(struct prefetch_iter), prefetch_next,
                                                             prefetch_iter_free, prefetch_skip};

struct data_iterator *iterator_prefetch(struct dataset *of, struct data_iterator *in, int64_t buffer) {
  struct prefetch_iter *p = (struct prefetch_iter *)iterator_new(&prefetch_iter_type, of);
  p->head.in = in;
  p->buffer = buffer > 0 ? MIN(buffer, MAX_BUFFER) : DEFAULT_BUFFER;
  cancel_init(&p->cancel);
  pthread_mutex_init(&p->lock, NULL);
  cond_init(&p->change);
  return &p->head;
}

struct ahead {
  struct dataset head;
  int64_t buffer;
  pthread_mutex_t lock;
  VEC(struct tensor) kept; /* lock: cache: all elements, once a walk has reached the end */
  bool whole;              /* lock */
};

static shoal_status prefetch_iterate(struct dataset *d, struct data_iterator **out) {
  int64_t buffer = ((struct ahead *)d)->buffer;
  if (buffer == 0) return dataset_iterate(d->inputs[0], out);
  *out = iterator_prefetch(d, NULL, buffer);
  return NULL;
}

static const struct dataset_type prefetch_type = {"Prefetch", prefetch_iterate, NULL, NULL};

struct dataset *dataset_prefetch(struct dataset *in, int64_t buffer) {
  struct ahead *d = (struct ahead *)dataset_new(sizeof *d, &prefetch_type, in->n, in->types, in->shapes, &in, 1);
  d->buffer = buffer;
  return &d->head;
}

/* ---- cache ---- */

struct cache_iter {
  struct data_iterator head;
  VEC(struct tensor) seen; /* while recording */
  int64_t at;
  bool decided, recording;
};

static void cache_iter_free(struct data_iterator *it) {
  struct cache_iter *c = (struct cache_iter *)it;
  tensors_release(c->seen.at, (int)c->seen.n);
  vec_release(&c->seen);
}

static shoal_status cache_next(struct data_iterator *it, struct data_ctx *ctx, struct tensor *out, bool *end) {
  struct cache_iter *c = (struct cache_iter *)it;
  struct ahead *d = (struct ahead *)it->of;
  int n = it->of->n;
  if (!c->decided) {
    pthread_mutex_lock(&d->lock);
    c->recording = !d->whole;
    pthread_mutex_unlock(&d->lock);
    c->decided = true;
  }
  if (!c->recording) { /* what is kept does not change any more */
    *end = n == 0 || c->at >= (int64_t)d->kept.n / n;
    for (int i = 0; !*end && i < n; i++) tensor_ref(&out[i], &d->kept.at[c->at * n + i]);
    c->at++;
    return NULL;
  }
  struct data_iterator *in;
  TRY(iterator_input(it, &in));
  TRY(iterator_next(in, ctx, out, end));
  for (int i = 0; !*end && i < n; i++) {
    struct tensor copy;
    tensor_ref(&copy, &out[i]);
    vec_push(&c->seen, copy);
  }
  if (!*end) return NULL;
  pthread_mutex_lock(&d->lock);
  if (!d->whole) {
    d->kept.at = c->seen.at;
    d->kept.n = c->seen.n;
    d->kept.cap = c->seen.cap;
    c->seen.at = NULL;
    c->seen.n = c->seen.cap = 0;
    d->whole = true;
  }
  pthread_mutex_unlock(&d->lock);
  return NULL;
}

static const struct data_iterator_type cache_iter_type = {sizeof(struct cache_iter), cache_next, cache_iter_free,
                                                          .begin = iterator_begin_later};

static shoal_status cache_iterate(struct dataset *d, struct data_iterator **out) {
  *out = iterator_new(&cache_iter_type, d);
  return NULL;
}

static void cache_free(struct dataset *d) {
  struct ahead *a = (struct ahead *)d;
  tensors_release(a->kept.at, (int)a->kept.n);
  vec_release(&a->kept);
  pthread_mutex_destroy(&a->lock);
}

static const struct dataset_type cache_type = {"Cache", cache_iterate, NULL, cache_free};

struct dataset *dataset_cache(struct dataset *in) {
  struct ahead *d = (struct ahead *)dataset_new(sizeof *d, &cache_type, in->n, in->types, in->shapes, &in, 1);
  pthread_mutex_init(&d->lock, NULL);
  return &d->head;
}
