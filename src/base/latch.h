/* Waiting for things that end on their own: a join (base/join.h) for threads that may wait. A thread of the network may
 * only after it has handed over the lead (rpc_loop_hand_over). */
#ifndef BASE_LATCH_H
#define BASE_LATCH_H

#include "base/cond.h"
#include "base/status.h"

struct latch {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int left;            /* lock */
  shoal_status status; /* lock: the most telling error */
};

static inline void latch_init(struct latch *l, int n) {
  pthread_mutex_init(&l->lock, NULL);
  cond_init(&l->changed);
  l->left = n;
  l->status = NULL;
}

/* One of them has ended; s is consumed. */
static inline void latch_done(void *arg, shoal_status s) {
  struct latch *l = arg;
  pthread_mutex_lock(&l->lock);
  status_merge(&l->status, s);
  INVARIANT(1, l->left > 0);
  if (--l->left == 0) pthread_cond_broadcast(&l->changed);
  pthread_mutex_unlock(&l->lock);
}

/* False when the time passed first. */
static inline bool latch_wait_until(struct latch *l, int64_t deadline) {
  pthread_mutex_lock(&l->lock);
  while (l->left && cond_wait_until(&l->changed, &l->lock, deadline)) continue;
  bool done = l->left == 0;
  pthread_mutex_unlock(&l->lock);
  return done;
}

/* After a wait that saw the end of all; the error is the caller's. */
static inline shoal_status latch_release(struct latch *l) {
  pthread_mutex_destroy(&l->lock);
  pthread_cond_destroy(&l->changed);
  return l->status;
}

/* Waits for all, and releases. */
static inline shoal_status latch_finish(struct latch *l) {
  latch_wait_until(l, DEADLINE_NEVER);
  return latch_release(l);
}

#endif
