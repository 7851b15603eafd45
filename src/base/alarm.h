/* Alarms: a call at a moment to come, from one thread that all share and that starts with the first alarm. For waits
 * that no thread sits in. The alarm lives in the caller's memory: nothing is allocated. */
#ifndef BASE_ALARM_H
#define BASE_ALARM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct alarm {
  void (*_Atomic fn)(void *arg); /* NULL until it is set; who clears one looks without the lock */
  void *arg;
  int64_t at; /* clock_ns() */
  /* Guarded by the clockwork's lock: later ones, siblings, and the sibling before (the first child's: its parent). */
  struct alarm *child, *next, *prev;
  bool linked;
};

/* Calls fn(arg) at or after the moment `at`, holding no lock; fn must be short. */
void alarm_set(struct alarm *a, int64_t at, void (*fn)(void *), void *arg);
/* Afterwards fn is not running and will not be called (unless this is called from fn itself, which never waits). For
 * an alarm that was set, or is all zeros. */
void alarm_clear(struct alarm *a);

#endif
