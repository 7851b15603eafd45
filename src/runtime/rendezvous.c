/* The local rendezvous: a table by key of values that nobody has asked for yet and of receivers that wait.
 *
 * One lock a rendezvous: a step has few transfers, and they are short. A bucket's items stand in order of arrival, so
 * the first with a key is the one whose turn it is; all that stand under one key are values, or all are waiters. An
 * item holds its key itself, and its hash is made once for each kernel: a transfer is one allocation, and a step with a
 * few hundred of them needs no other table than the one it begins with. A waiter's callback runs on the sender's
 * thread, after the lock is dropped. */
#include "runtime/rendezvous.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/mem.h"

enum { FEW = 64, CROWDED = 4, GROWTH = 8 }; /* buckets at first; items for each before there are GROWTH times as many */

struct local;

struct item {
  struct item *prev, *next; /* of its bucket */
  uint64_t hash;
  bool queued;
  bool is_dead;
  struct tensor value;
  rendezvous_done done; /* NULL: it is a value; else a waiter */
  void *arg;
  struct cancel *cancel;
  struct cancel_hook hook;
  struct local *owner;
  char key[];
};

struct bucket {
  struct item *first, *last;
};

struct local {
  struct rendezvous head;
  pthread_mutex_t lock;
  struct bucket *buckets; /* lock: [cap], a power of two */
  size_t cap, n;          /* lock */
  shoal_status aborted;   /* lock */
  bool ended;             /* lock: its step was cleaned up, without anybody waiting */
  int64_t step;           /* lock: which, when it is ended */
  struct bucket few[FEW];
};

/* ---- the table; call with the lock held ---- */

static struct bucket *bucket_of(struct local *r, uint64_t hash) { return &r->buckets[hash & (r->cap - 1)]; }

/* The first of the key's, or NULL. */
static struct item *find(struct local *r, const char *key, uint64_t hash) {
  struct item *i = bucket_of(r, hash)->first;
  while (i && (i->hash != hash || strcmp(i->key, key) != 0)) i = i->next;
  return i;
}

static void append(struct bucket *b, struct item *i) {
  i->next = NULL;
  i->prev = b->last;
  if (b->last) b->last->next = i;
  else b->first = i;
  b->last = i;
}

static void grow(struct local *r) {
  size_t was = r->cap;
  struct bucket *old = r->buckets;
  r->cap *= GROWTH;
  r->buckets = mem_zalloc(r->cap, sizeof *r->buckets);
  for (size_t k = 0; k < was; k++)
    for (struct item *i = old[k].first, *next; i; i = next) {
      next = i->next;
      append(bucket_of(r, i->hash), i);
    }
  if (old != r->few) free(old);
}

static void put(struct local *r, struct item *i) {
  if (r->n >= CROWDED * r->cap) grow(r);
  append(bucket_of(r, i->hash), i);
  i->queued = true;
  r->n++;
}

static void take(struct local *r, struct item *i) {
  INVARIANT(5, i->queued && r->n);
  struct bucket *b = bucket_of(r, i->hash);
  if (i->prev) i->prev->next = i->next;
  else b->first = i->next;
  if (i->next) i->next->prev = i->prev;
  else b->last = i->prev;
  i->queued = false;
  r->n--;
}

/* ---- sending and receiving ---- */

static struct item *item_new(const char *key, uint64_t hash) {
  size_t n = strlen(key) + 1;
  struct item *i = block_zalloc(sizeof *i + n);
  i->hash = hash;
  memcpy(i->key, key, n);
  return i;
}

static void item_free(struct item *i) {
  tensor_release(&i->value);
  block_free(i);
}

/* Why nothing passes any more; NULL: it does. Call with the lock held. */
static shoal_status reason(const struct local *r) {
  if (LIKELY(!r->aborted && !r->ended)) return NULL;
  return r->aborted ? status_copy(r->aborted) : status_mark_derived(STATUS(SHOAL_ABORTED, "Cleanup %" PRId64, r->step));
}

static void local_send(struct rendezvous *base, const char *key, uint64_t hash, struct tensor *value, bool is_dead,
                       shoal_status *s) {
  struct local *r = (struct local *)base;
  pthread_mutex_lock(&r->lock);
  if ((*s = reason(r))) {
    pthread_mutex_unlock(&r->lock);
    tensor_release(value);
    return;
  }
  struct item *w = find(r, key, hash);
  if (!w || !w->done) {
    struct item *i = item_new(key, hash);
    tensor_move(&i->value, value);
    i->is_dead = is_dead;
    put(r, i);
    pthread_mutex_unlock(&r->lock);
    return;
  }
  take(r, w);
  pthread_mutex_unlock(&r->lock);
  /* Once out of the table the waiter is ours, unless its cancellation runs right now and finds it gone. */
  if (w->cancel) cancel_deregister(w->cancel, &w->hook);
  w->done(w->arg, NULL, value, is_dead);
  item_free(w);
}

static void waiter_cancelled(void *arg) {
  struct item *w = arg;
  struct local *r = w->owner;
  pthread_mutex_lock(&r->lock);
  bool found = w->queued;
  if (found) take(r, w);
  pthread_mutex_unlock(&r->lock);
  if (!found) return; /* being served, or aborted */
  struct tensor none = tensor_none();
  w->done(w->arg, status_mark_derived(STATUS(SHOAL_CANCELLED, "RecvAsync is cancelled.")), &none, false);
  item_free(w);
}

static void local_recv(struct rendezvous *base, const char *key, uint64_t hash, struct cancel *cancel,
                       rendezvous_done done, void *arg) {
  struct local *r = (struct local *)base;
  struct tensor none = tensor_none();
  pthread_mutex_lock(&r->lock);
  shoal_status s = reason(r);
  if (s) {
    pthread_mutex_unlock(&r->lock);
    done(arg, s, &none, false);
    return;
  }
  struct item *i = find(r, key, hash);
  if (i && !i->done) {
    take(r, i);
    pthread_mutex_unlock(&r->lock);
    done(arg, NULL, &i->value, i->is_dead);
    i->value.buffer = NULL; /* the callee owns it now */
    item_free(i);
    return;
  }
  struct item *w = item_new(key, hash);
  w->done = done;
  w->arg = arg;
  w->owner = r;
  /* Registered under our lock, so that a sender that finds the waiter also finds its hook. */
  if (cancel && !cancel_register(cancel, &w->hook, waiter_cancelled, w)) {
    pthread_mutex_unlock(&r->lock);
    item_free(w);
    done(arg, status_mark_derived(STATUS(SHOAL_CANCELLED, "RecvAsync is cancelled.")), &none, false);
    return;
  }
  w->cancel = cancel;
  put(r, w);
  pthread_mutex_unlock(&r->lock);
}

static void local_abort(struct rendezvous *base, shoal_status why) {
  struct local *r = (struct local *)base;
  pthread_mutex_lock(&r->lock);
  if (r->aborted) {
    pthread_mutex_unlock(&r->lock);
    shoal_status_free(why);
    return;
  }
  r->aborted = why;
  struct bucket all = {0};
  for (size_t k = 0; r->n && k < r->cap; k++)
    for (struct item *i; (i = r->buckets[k].first);) {
      take(r, i);
      append(&all, i);
    }
  pthread_mutex_unlock(&r->lock);
  for (struct item *w = all.first, *next; w; w = next) {
    next = w->next;
    struct tensor none = tensor_none();
    if (w->cancel) cancel_deregister(w->cancel, &w->hook);
    if (w->done) w->done(w->arg, status_copy(why), &none, false);
    item_free(w);
  }
}

void rendezvous_local_end(struct rendezvous *base, int64_t step) {
  struct local *r = (struct local *)base;
  pthread_mutex_lock(&r->lock);
  bool waits = r->n != 0;
  if (!waits) { /* nearly always: then the reason is made when somebody asks */
    r->ended = true;
    r->step = step;
  }
  pthread_mutex_unlock(&r->lock);
  if (waits) local_abort(base, status_mark_derived(STATUS(SHOAL_ABORTED, "Cleanup %" PRId64, step)));
}

static void local_free(struct rendezvous *base) {
  struct local *r = (struct local *)base;
  if (r->n) local_abort(base, STATUS(SHOAL_CANCELLED, "the step has ended"));
  if (r->buckets != r->few) free(r->buckets);
  shoal_status_free(r->aborted);
  pthread_mutex_destroy(&r->lock);
  block_free(r);
}

static const struct rendezvous_ops local_ops = {
    .send = local_send, .recv = local_recv, .abort = local_abort, .free = local_free};

struct rendezvous *rendezvous_local_new(void) {
  struct local *r = block_zalloc(sizeof *r);
  r->head.ops = &local_ops;
  r->buckets = r->few;
  r->cap = FEW;
  ref_init(&r->head.refs, 1);
  pthread_mutex_init(&r->lock, NULL);
  return &r->head;
}

bool rendezvous_local_is_empty(struct rendezvous *base) {
  struct local *r = (struct local *)base;
  pthread_mutex_lock(&r->lock);
  bool empty = r->n == 0;
  pthread_mutex_unlock(&r->lock);
  return empty;
}

void rendezvous_local_waiting(struct rendezvous *base, bool (*fn)(void *, const char *), void *arg) {
  struct local *r = (struct local *)base;
  bool more = true;
  pthread_mutex_lock(&r->lock);
  for (size_t k = 0; r->n && k < r->cap && more; k++)
    for (const struct item *i = r->buckets[k].first; i && more; i = i->next)
      if (i->done) more = fn(arg, i->key);
  pthread_mutex_unlock(&r->lock);
}

/* ---- keys ---- */

shoal_status rendezvous_key_parse(const char *text, struct rendezvous_key *out) {
  const char *part[5];
  size_t n[5];
  const char *at = text;
  for (int i = 0; i < 5; i++) {
    const char *end = i < 4 ? strchr(at, ';') : at + strlen(at);
    if (!end) return INVALID("Invalid  rendezvous key: %s", text);
    part[i] = at;
    n[i] = (size_t)(end - at);
    at = end + 1;
  }
  char *end;
  *out = (struct rendezvous_key){
      .src = part[0], .src_n = n[0], .dst = part[2], .dst_n = n[2], .edge = part[3], .edge_n = n[3]};
  out->incarnation = strtoull(part[1], &end, 16);
  if (end != part[1] + n[1] || !n[1]) return INVALID("Invalid  rendezvous key: %s", text);
  out->frame = strtoull(part[4], &end, 10);
  if (end == part[4] || *end != ':') return INVALID("Invalid  rendezvous key: %s", text);
  const char *iter = end + 1;
  out->iter = strtoull(iter, &end, 10);
  if (end == iter || *end) return INVALID("Invalid  rendezvous key: %s", text);
  return NULL;
}

char *rendezvous_key_make(const char *src, uint64_t incarnation, const char *dst, const char *edge, uint64_t frame,
                          uint64_t iter) {
  return mem_printf("%s;%016" PRIx64 ";%s;%s;%" PRIu64 ":%" PRIu64, src, incarnation, dst, edge, frame, iter);
}
