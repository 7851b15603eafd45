/* A request whose answer its client may want no more. The handler has left a function for that moment, which uses what
 * goes with the answer: so an answer waits while it runs, unless it is given by that very function, and after an answer
 * it is not called. Both sides of the network's, gRPC's requests and the fast path's, have one in each request.
 *
 * Call these with the owner's lock held; idle is a condition of that lock. */
#ifndef RPC_UNWANTED_H
#define RPC_UNWANTED_H

#include <pthread.h>
#include <stdbool.h>

struct unwanted {
  void (*fn)(void *arg); /* NULL: nothing is to be done, or it has been */
  void *arg;
  bool answered;
  bool calling;     /* fn runs, on caller */
  pthread_t caller; /* while calling */
};

/* The client wants it no more. The lock is given back while fn runs. */
static inline void unwanted_tell(struct unwanted *u, pthread_mutex_t *lock, pthread_cond_t *idle) {
  void (*fn)(void *) = u->answered ? NULL : u->fn;
  u->fn = NULL;
  if (!fn) return;
  u->calling = true;
  u->caller = pthread_self();
  pthread_mutex_unlock(lock);
  fn(u->arg);
  pthread_mutex_lock(lock);
  u->calling = false;
  pthread_cond_broadcast(idle);
}

/* The answer is there. */
static inline void unwanted_answer(struct unwanted *u, pthread_mutex_t *lock, pthread_cond_t *idle) {
  u->answered = true;
  while (u->calling && !pthread_equal(u->caller, pthread_self())) pthread_cond_wait(idle, lock);
}

#endif
