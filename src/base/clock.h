/* Time: a monotonic clock for deadlines and durations, the wall clock for what people read. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* A deadline is a value of clock_ns(); this one never comes. */
#define DEADLINE_NEVER INT64_MAX

static inline int64_t clock_ns(void) {
  struct timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static inline int64_t wall_micros(void) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static inline int64_t wall_nanos(void) {
  struct timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ms from now; 0 or less is never, and so is what no clock will see. */
static inline int64_t deadline_after_ms(int64_t ms) {
  int64_t now = clock_ns();
  return ms <= 0 || ms > (DEADLINE_NEVER - now) / 1000000 ? DEADLINE_NEVER : now + ms * 1000000;
}

#endif
