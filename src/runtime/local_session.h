/* The local session from inside: local_session.c opens, runs and closes, local_partial.c has its partial runs. */
#ifndef RUNTIME_LOCAL_SESSION_H
#define RUNTIME_LOCAL_SESSION_H

#include <pthread.h>

#include "base/strmap.h"
#include "runtime/local_step.h"
#include "runtime/session_ops.h"
#include "runtime/signatures.h"

struct local_session {
  shoal_session head;
  pthread_mutex_t graph_lock;
  struct shoal_graph *graph; /* graph_lock: as given and extended; nodes are placed */
  bool placed;               /* graph_lock */
  struct signatures steps;   /* struct local_step */
  pthread_mutex_t lock;
  struct strmap partials; /* lock: handle -> struct local_partial * */
  int64_t next_partial;   /* lock */
  struct local_env env;
  struct pool *own_inter, *own_intra;
  bool soft, log;
  int64_t timeout_ms;
  int inter_pools; /* those that a step may name; all are env.inter */
  atomic_int_fast64_t next_step;
  pthread_mutex_t runs_lock;
  pthread_cond_t runs_idle; /* a run that was interrupted is its own again */
  struct local_run *runs; /* runs_lock */
  bool closed;            /* runs_lock */
};

static inline struct local_session *local_session_of(shoal_session *s) { return (struct local_session *)s; }

/* A new reference to the step for a signature, compiled now if this is the first time. */
shoal_status local_session_step(struct local_session *s, const struct step_signature *sig, enum feed_style style,
                                struct local_step **out);
/* Among those that run; not any more. CANCELLED when the session is closed. */
shoal_status local_session_enter(struct local_session *s, struct local_run *r);
void local_session_leave(struct local_session *s, struct local_run *r);

shoal_status local_partial_setup(shoal_session *s, const struct step_signature *sig, char **handle);
shoal_status local_partial_run(shoal_session *s, const char *handle, const struct step_signature *sig,
                               shoal_tensor *const *feeds, shoal_tensor **fetches);
/* Cancels all there are, and waits for their end. */
void local_partials_stop(struct local_session *s);

#endif
