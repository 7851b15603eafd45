/* Cancellation: hooks in a list, called one by one with the lock dropped. */
#include "base/cancel.h"

#include <stdint.h>

#include "base/going_on.h"
#include "base/list.h"

__thread struct going_on going_on;

void cancel_init(struct cancel *c) {
  *c = (struct cancel){0};
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->idle, NULL);
}

void cancel_release(struct cancel *c) {
  INVARIANT(8, !c->hooks && !c->calling);
  shoal_status_free(c->why);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->idle);
}

static void unlink_hook(struct cancel *c, struct cancel_hook *h) {
  LIST_REMOVE(c->hooks, h);
  h->linked = false;
}

void cancel_start(struct cancel *c, shoal_status why) {
  pthread_mutex_lock(&c->lock);
  if (atomic_load(&c->started)) {
    pthread_mutex_unlock(&c->lock);
    shoal_status_free(why);
    return;
  }
  c->why = why ? why : STATUS(SHOAL_CANCELLED, "Step was cancelled");
  atomic_store_explicit(&c->started, true, memory_order_release);
  c->caller = pthread_self();
  const struct cancel *before = going_on.cancelling;
  going_on.cancelling = c;
  while (c->hooks) {
    struct cancel_hook *h = c->hooks;
    unlink_hook(c, h);
    void (*fn)(void *) = h->fn;
    void *arg = h->arg;
    c->calling = h;
    pthread_mutex_unlock(&c->lock);
    fn(arg); /* may free h */
    pthread_mutex_lock(&c->lock);
    c->calling = NULL;
    pthread_cond_broadcast(&c->idle);
  }
  pthread_mutex_unlock(&c->lock);
  going_on.cancelling = before;
}

shoal_status cancel_reason(struct cancel *c) {
  if (!cancel_started(c)) return NULL;
  pthread_mutex_lock(&c->lock);
  shoal_status s = status_copy(c->why);
  pthread_mutex_unlock(&c->lock);
  return s;
}

bool cancel_register(struct cancel *c, struct cancel_hook *h, void (*fn)(void *), void *arg) {
  pthread_mutex_lock(&c->lock);
  bool fresh = !atomic_load(&c->started);
  *h = (struct cancel_hook){.fn = fn, .arg = arg};
  if (fresh) {
    h->linked = true;
    LIST_ADD(c->hooks, h);
  }
  pthread_mutex_unlock(&c->lock);
  return fresh;
}

bool cancel_deregister(struct cancel *c, struct cancel_hook *h) {
  pthread_mutex_lock(&c->lock);
  bool removed = h->linked;
  if (removed) unlink_hook(c, h);
  while (!removed && c->calling == h && !pthread_equal(c->caller, pthread_self()))
    pthread_cond_wait(&c->idle, &c->lock);
  pthread_mutex_unlock(&c->lock);
  return removed;
}
