/* Waiting for things that end on their own: a join (base/join.h) for threads that may wait. A thread of the network may
 * only after it has handed over the lead (rpc_loop_hand_over). */
#ifndef BASE_LATCH_H
#define BASE_LATCH_H

#include <pthread.h>

#include "base/countdown.h"
#include "base/status.h"

struct latch {
  struct countdown left;
  pthread_mutex_t lock;
  shoal_status status; /* lock, until all have ended: the most telling error */
};

static inline void latch_init(struct latch *l, int n) {
  countdown_init(&l->left, n);
  pthread_mutex_init(&l->lock, NULL);
  l->status = NULL;
}

/* One of them has ended; s is consumed. */
static inline void latch_done(void *arg, shoal_status s) {
  struct latch *l = arg;
  if (s) {
    pthread_mutex_lock(&l->lock);
    status_merge(&l->status, s);
    pthread_mutex_unlock(&l->lock);
  }
  countdown_end(&l->left, 1);
}

/* False when the time passed first. */
static inline bool latch_wait_until(struct latch *l, int64_t deadline) {
  return countdown_wait_until(&l->left, deadline);
}

/* After a wait that saw the end of all; the error is the caller's. */
static inline shoal_status latch_release(struct latch *l) {
  pthread_mutex_destroy(&l->lock);
  return l->status;
}

/* Waits for all, and releases. */
static inline shoal_status latch_finish(struct latch *l) {
  latch_wait_until(l, DEADLINE_NEVER);
  return latch_release(l);
}

#endif
