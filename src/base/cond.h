/* Conditions that are waited for until a deadline: by the monotonic clock, which nobody sets. */
#ifndef BASE_COND_H
#define BASE_COND_H

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"

static inline void cond_init(pthread_cond_t *c) {
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(c, &attr);
  pthread_condattr_destroy(&attr);
}

/* Call with the lock held. deadline: a value of clock_ns(), or DEADLINE_NEVER. False when it has passed; true says
 * nothing, as ever: look at what was waited for. */
static inline bool cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, int64_t deadline) {
  if (deadline == DEADLINE_NEVER) return pthread_cond_wait(c, lock) == 0;
  struct timespec until = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
  return pthread_cond_timedwait(c, lock, &until) == 0;
}

#endif
