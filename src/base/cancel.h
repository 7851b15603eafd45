/* Cancellation: one object a step (or a call), which anyone may trigger once and which calls back all who
 * registered. The registration lives in the caller's memory: nothing is allocated. */
#ifndef BASE_CANCEL_H
#define BASE_CANCEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct cancel_hook {
  void (*fn)(void *arg);
  void *arg;
  struct cancel_hook *prev, *next; /* guarded by the cancel's lock */
  bool linked;
};

struct cancel {
  atomic_bool started;
  pthread_mutex_t lock;
  pthread_cond_t idle;
  struct cancel_hook *hooks;   /* lock */
  struct cancel_hook *calling; /* lock: the hook being called right now */
  pthread_t caller;
  shoal_status why; /* lock: the first reason; NULL until started */
};

void cancel_init(struct cancel *c);
void cancel_release(struct cancel *c);
/* Triggers once; why (consumed, may be NULL for a plain CANCELLED) is kept as the reason. Hooks are called on
 * this thread, outside the lock. Later calls free their reason and do nothing. */
void cancel_start(struct cancel *c, shoal_status why);
static inline bool cancel_started(const struct cancel *c) {
  return atomic_load_explicit(&((struct cancel *)(uintptr_t)c)->started, memory_order_acquire);
}
/* A copy of the reason; NULL when not triggered. */
shoal_status cancel_reason(struct cancel *c);
/* False when already triggered: then the hook is not registered and not called. */
bool cancel_register(struct cancel *c, struct cancel_hook *h, void (*fn)(void *), void *arg);
/* True when the hook was removed before being called. Otherwise it was called, or waits until the call that
 * runs on another thread has ended; never waits when called from the hook itself. */
bool cancel_deregister(struct cancel *c, struct cancel_hook *h);

#endif
