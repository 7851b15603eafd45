/* The end of several things that end on their own: a counter, the most telling of their errors, and what happens
 * next.
 *
 *   join_init(&j, n + 1, next, arg);
 *   for (...) start(..., join_part, &j);      each part may end at once, on this very thread
 *   join_part(&j, NULL);                      the starter is a part too: only now may all be over
 *
 * Nobody waits: whoever ends last calls next(arg, status). What a thread may wait for is a latch (base/latch.h). */
#ifndef BASE_JOIN_H
#define BASE_JOIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

struct join {
  atomic_int left;
  pthread_mutex_t lock;
  shoal_status status; /* lock */
  void (*next)(void *arg, shoal_status s);
  void *arg;
};

static inline void join_init(struct join *j, size_t parts, void (*next)(void *arg, shoal_status s), void *arg) {
  atomic_init(&j->left, (int)parts);
  pthread_mutex_init(&j->lock, NULL);
  j->status = NULL;
  j->next = next;
  j->arg = arg;
}

/* One part has ended; s is consumed. After its last part nothing but join_enter may be asked of it. */
static inline void join_part(void *join, shoal_status s) {
  struct join *j = join;
  if (s) {
    pthread_mutex_lock(&j->lock);
    status_merge(&j->status, s);
    pthread_mutex_unlock(&j->lock);
  }
  int left = atomic_fetch_sub(&j->left, 1);
  INVARIANT(1, left > 0);
  if (left != 1) return;
  pthread_mutex_destroy(&j->lock);
  j->next(j->arg, j->status);
}

/* Are there parts beside the one that asks? */
static inline bool join_has_others(const struct join *j) { return atomic_load(&j->left) > 1; }

/* The starter's part, where nobody else is left: true, with the outcome in *s, and next is not called. */
static inline bool join_ended_here(struct join *j, shoal_status *s) {
  if (join_has_others(j)) return false;
  pthread_mutex_destroy(&j->lock);
  *s = j->status;
  return true;
}

/* One part more, for what may come at any time (a cancellation); false when all have ended. */
static inline bool join_enter(struct join *j) {
  int left = atomic_load(&j->left);
  while (left > 0 && !atomic_compare_exchange_weak(&j->left, &left, left + 1)) continue;
  return left > 0;
}

#endif
