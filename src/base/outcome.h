/* How one thing has ended, for all who ask, before its end or after: the counterpart of a join (base/join.h), where one
 * asks for the ends of several.
 *
 *   outcome_await(&o, &w);      w.tell gets a copy of the error, at once or when the end comes
 *   outcome_end(&o, s);         once: everybody who waits is told, on this thread
 *
 * Nobody waits here; a thread that may has a latch told (base/latch.h). Those who ask live in their owners' memory, and
 * are their owners' again when they are told. */
#ifndef BASE_OUTCOME_H
#define BASE_OUTCOME_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

struct outcome_asker {
  struct outcome_asker *next;
  void (*tell)(struct outcome_asker *a, shoal_status s);
};

struct outcome {
  pthread_mutex_t lock;
  bool ended;                   /* lock */
  shoal_status status;          /* lock: how; unchanging once it has */
  struct outcome_asker *askers; /* lock: the last first */
};

static inline void outcome_init(struct outcome *o) {
  *o = (struct outcome){0};
  pthread_mutex_init(&o->lock, NULL);
}

static inline void outcome_release(struct outcome *o) {
  shoal_status_free(o->status);
  pthread_mutex_destroy(&o->lock);
}

static inline void outcome_tell(const struct outcome *o, struct outcome_asker *a) {
  a->tell(a, o->status ? status_copy(o->status) : NULL);
}

static inline void outcome_await(struct outcome *o, struct outcome_asker *a) {
  pthread_mutex_lock(&o->lock);
  bool ended = o->ended;
  a->next = o->askers;
  if (!ended) o->askers = a;
  pthread_mutex_unlock(&o->lock);
  if (ended) outcome_tell(o, a);
}

/* s is consumed. It must stay until this returns, whatever those do that are told. */
static inline void outcome_end(struct outcome *o, shoal_status s) {
  pthread_mutex_lock(&o->lock);
  INVARIANT(1, !o->ended);
  o->ended = true;
  o->status = s;
  struct outcome_asker *a = o->askers;
  o->askers = NULL;
  pthread_mutex_unlock(&o->lock);
  for (struct outcome_asker *next; a; a = next) {
    next = a->next;
    outcome_tell(o, a);
  }
}

#endif
