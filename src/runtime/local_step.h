/* Steps in one process: a signature compiled into plans for the local devices, and one run of it. Used by the local
 * session. */
#ifndef RUNTIME_LOCAL_STEP_H
#define RUNTIME_LOCAL_STEP_H

#include "base/latch.h"
#include "graph/prune.h"
#include "runtime/plan_set.h"
#include "runtime/signatures.h"
#include "shoal/session.h"

/* What steps need of the process: devices with their resources, threads, functions, kernels with state. */
struct local_env {
  struct plan_places places;
  struct pool *inter;
  const char *rewrites_off;
  int64_t next_name;
};

/* Its places know devices by their own names; the rest is to be filled in. */
void local_env_init(struct local_env *env);

struct local_step {
  struct signature head;
  struct plan_set set;
  struct shoal_graph *graph;  /* pruned, before it was cut: for partial runs and for showing */
  struct shoal_graph **parts; /* [n_parts] */
  int n_parts;
  int n_feeds, n_fetches;
  char **feeds, **fetches;
  uint8_t *feed_types; /* [n_feeds] */
};

/* placed: the session's graph with every node assigned. */
shoal_status local_step_compile(struct local_env *env, const struct shoal_graph *placed,
                                const struct step_signature *sig, enum feed_style style, struct local_step **out);
void local_step_unref(struct local_step *s);

/* One run of a step. Lives until both the plans have ended and its starter is done with it. */
struct local_run {
  struct set_run run;
  struct cancel cancel;
  struct local_step *of;
  struct latch ended;            /* from its start on */
  struct local_run *prev, *next; /* the session's list of running steps */
  bool interrupted, in_use;      /* the session's runs_lock: it has been cancelled; it is being, and has to stay */
};

void local_run_init(struct local_run *r, struct local_env *env, struct local_step *s, int64_t id, int64_t deadline);
/* Starts all plans; straight ones may end before this returns. */
void local_run_start(struct local_run *r);
/* Waits for the end (or the deadline, which cancels), once; gives the error, if any. */
shoal_status local_run_wait(struct local_run *r);
void local_run_release(struct local_run *r);

#endif
