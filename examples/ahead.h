/* What a step is fed, made by a thread while the step before runs.
 *
 * Steps have numbers, and what is fed follows from the number: so the next one is known before it is asked for. When
 * another is asked for (a run that goes on from a checkpoint), what was made is dropped. */
#ifndef EXAMPLES_AHEAD_H
#define EXAMPLES_AHEAD_H

#include <pthread.h>

#include "common.h"

enum { AHEAD_VALUES = 2 };

/* Makes the tensors of a step. It may run on another thread: what goes wrong is kept, and told by who takes them. */
typedef void ahead_make(void *arg, int64_t step, shoal_tensor **values);

struct ahead {
  ahead_make *make;
  void *arg;
  bool running;
  pthread_t thread;
  int64_t step;
  shoal_tensor *values[AHEAD_VALUES]; /* the thread's, until it is joined */
};

static inline void *ahead_run(void *arg) {
  struct ahead *a = (struct ahead *)arg;
  a->make(a->arg, a->step, a->values);
  return NULL;
}

static inline void ahead_begin(struct ahead *a, int64_t step) {
  a->step = step;
  a->running = !pthread_create(&a->thread, NULL, ahead_run, a); /* without one it is made when it is asked for */
}

static inline void ahead_drop(struct ahead *a) {
  for (int i = 0; i < AHEAD_VALUES; i++) {
    shoal_tensor_unref(a->values[i]);
    a->values[i] = NULL;
  }
}

/* Waits for the thread. */
static inline void ahead_wait(struct ahead *a) {
  if (a->running) pthread_join(a->thread, NULL);
  a->running = false;
}

/* The tensors of a step, for the caller to unref. */
static inline void ahead_take(struct ahead *a, int64_t step, shoal_tensor **values) {
  ahead_wait(a);
  if (a->step != step) ahead_drop(a);
  if (!a->values[0]) a->make(a->arg, step, a->values);
  for (int i = 0; i < AHEAD_VALUES; i++) {
    values[i] = a->values[i];
    a->values[i] = NULL;
  }
}

static inline void ahead_end(struct ahead *a) {
  ahead_wait(a);
  ahead_drop(a);
}

#endif
