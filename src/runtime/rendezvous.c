/* The local rendezvous: a table of keys, each with values that nobody has asked for yet, or receivers that wait.
 *
 * One lock a rendezvous: a step has few transfers, and they are short. Values and waiters of a key are queues in
 * order of arrival. A waiter's callback runs on the sender's thread, after the lock is dropped. */
#include "runtime/rendezvous.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/strmap.h"

struct local;

struct item {
  struct item *prev, *next;
  bool queued;
  /* a value ... */
  struct tensor value;
  bool is_dead;
  /* ... or a waiter */
  rendezvous_done done;
  void *arg;
  struct cancel *cancel;
  struct cancel_hook hook;
  struct local *owner;
  char *key;
};

struct queue {
  struct item *head, *tail; /* all values, or all waiters */
};

struct local {
  struct rendezvous head;
  pthread_mutex_t lock;
  struct strmap table;  /* lock: key -> struct queue * */
  shoal_status aborted; /* lock */
};

static struct queue *queue_of(struct local *r, const char *key) {
  struct queue *q = strmap_get(&r->table, key);
  if (!q) {
    q = mem_zalloc(1, sizeof *q);
    strmap_put(&r->table, key, q);
  }
  return q;
}

static void append(struct queue *q, struct item *i) {
  i->next = NULL;
  i->prev = q->tail;
  i->queued = true;
  if (q->tail) q->tail->next = i;
  else q->head = i;
  q->tail = i;
}

static struct item *take(struct local *r, const char *key, struct queue *q, struct item *i) {
  if (i->prev) i->prev->next = i->next;
  else q->head = i->next;
  if (i->next) i->next->prev = i->prev;
  else q->tail = i->prev;
  i->queued = false;
  if (!q->head) {
    strmap_remove(&r->table, key);
    free(q);
  }
  return i;
}

static void item_free(struct item *i) {
  tensor_release(&i->value);
  free(i->key);
  free(i);
}

static void local_send(struct rendezvous *base, const char *key, uint64_t hash, struct tensor *value, bool is_dead,
                       shoal_status *s) {
  struct local *r = (struct local *)base;
  pthread_mutex_lock(&r->lock);
  if (r->aborted) {
    *s = status_copy(r->aborted);
    pthread_mutex_unlock(&r->lock);
    tensor_release(value);
    return;
  }
  struct queue *q = queue_of(r, key);
  if (!q->head || !q->head->done) {
    struct item *i = mem_zalloc(1, sizeof *i);
    tensor_move(&i->value, value);
    i->is_dead = is_dead;
    append(q, i);
    pthread_mutex_unlock(&r->lock);
    return;
  }
  struct item *w = take(r, key, q, q->head);
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
  struct queue *q = w->queued ? strmap_get(&r->table, w->key) : NULL; /* none after an abort */
  bool found = q != NULL;
  if (found) take(r, w->key, q, w);
  pthread_mutex_unlock(&r->lock);
  if (!found) return; /* being served */
  struct tensor none = tensor_none();
  w->done(w->arg, status_mark_derived(STATUS(SHOAL_CANCELLED, "RecvAsync is cancelled.")), &none, false);
  item_free(w);
}

static void local_recv(struct rendezvous *base, const char *key, uint64_t hash, struct cancel *cancel,
                       rendezvous_done done, void *arg) {
  struct local *r = (struct local *)base;
  struct tensor none = tensor_none();
  pthread_mutex_lock(&r->lock);
  if (r->aborted) {
    shoal_status s = status_copy(r->aborted);
    pthread_mutex_unlock(&r->lock);
    done(arg, s, &none, false);
    return;
  }
  struct queue *q = strmap_get(&r->table, key);
  if (q && !q->head->done) {
    struct item *i = take(r, key, q, q->head);
    pthread_mutex_unlock(&r->lock);
    done(arg, NULL, &i->value, i->is_dead);
    i->value.buffer = NULL; /* the callee owns it now */
    item_free(i);
    return;
  }
  struct item *w = mem_zalloc(1, sizeof *w);
  w->done = done;
  w->arg = arg;
  w->owner = r;
  w->key = mem_strdup(key);
  /* Registered under our lock, so that a sender that finds the waiter also finds its hook. */
  if (cancel && !cancel_register(cancel, &w->hook, waiter_cancelled, w)) {
    pthread_mutex_unlock(&r->lock);
    item_free(w);
    done(arg, status_mark_derived(STATUS(SHOAL_CANCELLED, "RecvAsync is cancelled.")), &none, false);
    return;
  }
  w->cancel = cancel;
  append(queue_of(r, key), w);
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
  struct strmap table = r->table;
  r->table = (struct strmap){0};
  pthread_mutex_unlock(&r->lock);
  void *value;
  for (size_t i = 0; strmap_next(&table, &i, NULL, &value);) {
    struct queue *q = value;
    for (struct item *w = q->head, *next; w; w = next) {
      next = w->next;
      struct tensor none = tensor_none();
      if (w->cancel) cancel_deregister(w->cancel, &w->hook);
      if (w->done) w->done(w->arg, status_copy(why), &none, false);
      item_free(w);
    }
    free(q);
  }
  strmap_release(&table);
}

static void local_free(struct rendezvous *base) {
  struct local *r = (struct local *)base;
  if (r->table.n) local_abort(base, STATUS(SHOAL_CANCELLED, "the step has ended"));
  strmap_release(&r->table);
  shoal_status_free(r->aborted);
  pthread_mutex_destroy(&r->lock);
  free(r);
}

static const struct rendezvous_ops local_ops = {
    .send = local_send, .recv = local_recv, .abort = local_abort, .free = local_free};

struct rendezvous *rendezvous_local_new(void) {
  struct local *r = mem_zalloc(1, sizeof *r);
  r->head.ops = &local_ops;
  atomic_init(&r->head.refs, 1);
  pthread_mutex_init(&r->lock, NULL);
  return &r->head;
}

bool rendezvous_local_is_empty(struct rendezvous *base) {
  struct local *r = (struct local *)base;
  pthread_mutex_lock(&r->lock);
  bool empty = r->table.n == 0;
  pthread_mutex_unlock(&r->lock);
  return empty;
}

void rendezvous_local_waiting(struct rendezvous *base, void (*fn)(void *, const char *), void *arg) {
  struct local *r = (struct local *)base;
  pthread_mutex_lock(&r->lock);
  const char *key;
  void *value;
  for (size_t i = 0; strmap_next(&r->table, &i, &key, &value);)
    if (((struct queue *)value)->head->done) fn(arg, key);
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
