/* A moment's wait that no thread sits in, and that a cancellation may end: whichever comes first goes on, once.
 *
 * An alarm and a hook of a cancellation by themselves do not do: each would have to take the other back, and wait for
 * it while that one waits for the first. */
#ifndef BASE_MOMENT_H
#define BASE_MOMENT_H

#include "base/alarm.h"
#include "base/cancel.h"

struct moment { /* lives until `then` is called */
  struct alarm alarm;
  struct cancel *cancel;
  struct cancel_hook hook;
  atomic_int state;
  void (*then)(void *arg, bool cancelled);
  void *arg;
};

/* Calls then(arg, cancelled) in so many milliseconds, or as soon as cancel (NULL: nobody does) is started; it may be
 * before this returns. */
void moment_wait(struct moment *m, struct cancel *cancel, int64_t ms, void (*then)(void *arg, bool cancelled),
                 void *arg);

#endif
