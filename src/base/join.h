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

/* One part has ended; s is consumed. The join is not to be used after its last part. */
static inline void join_part(void *join, shoal_status s) {
  struct join *j = join;
  if (s) {
    pthread_mutex_lock(&j->lock);
    status_merge(&j->status, s);
    pthread_mutex_unlock(&j->lock);
  }
  if (atomic_fetch_sub(&j->left, 1) != 1) return;
  pthread_mutex_destroy(&j->lock);
  j->next(j->arg, j->status);
}

#endif
