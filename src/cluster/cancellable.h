/* A call to another task that a cancellation may end: at any time, also before it has begun and while it is ending.
 *
 *   if (!cancellable_start(&c, cancel, why, &question)) ...   it was cancelled already: nothing is begun
 *   done: cancellable_end(&c);                                first of all: the hook is gone, and so is the call
 *
 * Other calls than peer_start's stand between cancellable_begin (false: as above) and cancellable_begun.
 *
 * The lock is held between begin and begun, so that whoever cancels finds the call, and its end waits for its
 * beginning. The call is cancelled outside the lock: it may end there and then, and take this with it. */
#ifndef CLUSTER_CANCELLABLE_H
#define CLUSTER_CANCELLABLE_H

#include "base/cancel.h"
#include "cluster/peer.h"

struct cancellable {
  struct cancel *cancel; /* NULL: nobody does */
  struct cancel_hook hook;
  const char *why; /* what the call is told */
  pthread_mutex_t lock;
  struct peer_call *call; /* lock */
  bool cancelled;         /* lock */
};

/* As peer_start has them. */
struct task_question {
  struct peer *peer;
  const char *method;
  struct rpc_message *request; /* taken over */
  int64_t deadline;
  unsigned flags;
  int64_t step;
  const char *what;
  rpc_done done;
  void *arg;
};

/* False: it was cancelled already, and done is not called. */
bool cancellable_start(struct cancellable *c, struct cancel *cancel, const char *why, const struct task_question *q);
bool cancellable_begin(struct cancellable *c, struct cancel *cancel, const char *why);
void cancellable_begun(struct cancellable *c);
void cancellable_end(struct cancellable *c);

#endif
