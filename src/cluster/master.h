/* A master: takes clients' sessions, keeps their graphs, and drives their steps over the workers of the cluster.
 *
 *   master.c          sessions: making, finding, closing
 *   master_compile.c  a signature (feeds, fetches, targets) made into registered partitions, once
 *   master_run.c      one step
 *   master_partial.c  partial runs
 *   master_service.c  MasterService on the wire */
#ifndef CLUSTER_MASTER_H
#define CLUSTER_MASTER_H

#include "base/wire.h"
#include "cluster/roll_call.h"
#include "cluster/worker_ops.h"
#include "graph/place.h"
#include "graph/prune.h"

struct master {
  struct worker *worker; /* of this process */
  const struct cluster_spec *spec;
  struct peers *peers;
  struct request_ids *ids;
  int port; /* that the server listens on */
  int64_t startup_timeout_ms;
  struct startup *startup; /* the server's; NULL: nobody to wait for */
  pthread_mutex_t lock;
  struct strmap sessions; /* lock: handle -> struct master_session * */
  bool closing;           /* lock */
};

void master_init(struct master *m, struct worker *w, const struct cluster_spec *spec, struct peers *peers);
/* Takes no more sessions, and closes those there are. */
void master_close(struct master *m);
void master_release(struct master *m);

/* What of a ConfigProto a master heeds. */
struct master_config {
  VEC(char *) filters;
  bool soft_placement, log_placement, isolated, propagated;
  int64_t operation_timeout_ms; /* of steps that have no time-out of their own; 0: none */
  const char *rewrites_off;     /* "all" or NULL */
  int64_t cost_every;           /* graph_options.build_cost_model: metadata of every so many steps has a cost graph */
  struct cluster_spec spec;     /* with propagated */
  struct text bytes;            /* the whole message */
};

struct master_device {
  const char *name; /* of the worker_link */
  const struct text *attributes;
  uint64_t incarnation;
  int worker;
};

struct step_run;

struct master_session {
  atomic_int refs;
  struct master *master;
  char *handle;
  struct master_config config;
  char *task;                      /* this task's name in the session */
  VEC(struct worker_link) workers; /* [0]: this process; unchanging once made */
  VEC(struct master_device) devices;
  VEC(struct place_device) places;

  pthread_mutex_t graph_lock;
  struct graph *graph; /* graph_lock */
  int64_t version;     /* graph_lock */
  bool unprepared;     /* graph_lock: has nodes not yet lowered and placed */
  int64_t next_name;   /* graph_lock */

  pthread_mutex_t lock;
  pthread_cond_t idle;
  struct strmap compiled;           /* lock: signature -> struct compiled * */
  VEC(struct compiled *) callables; /* lock: by handle; NULL: released */
  struct strmap partials;           /* lock: handle -> struct partial * */
  int64_t next_partial;             /* lock */
  struct step_run *running;         /* lock */
  bool closed;                      /* lock */
};

/* Blocks until every task that the session may use has answered; deadline and cancel end it. */
shoal_status master_create_session(struct master *m, struct wire config, struct wire graph_def, const char *target,
                                   int64_t deadline, struct cancel *cancel, char handle[17]);
/* Its part that waits (master_meet.c). */
shoal_status master_meet_workers(struct master_session *s, int64_t deadline, struct cancel *cancel);
/* Are there other tasks to wait for? */
bool master_has_peers(const struct master *m);
shoal_status master_find_session(struct master *m, const char *handle, struct master_session **out);
void master_session_unref(struct master_session *s);
shoal_status master_extend(struct master_session *s, struct wire graph_def, int64_t expected, int64_t *version);
/* Cancels steps, waits for them, frees the workers' halves. */
shoal_status master_close_session(struct master *m, const char *handle);
shoal_status master_reset(struct master *m, char *const *containers, int n, char *const *filters, int n_filters);
void master_describe(struct master *m, struct text *out);

/* ---- compiled steps ---- */

struct compiled_part {
  int worker;
  char graph[17];
};

struct compiled {
  atomic_int refs;
  VEC(char *) feeds;   /* in the order of _Arg */
  VEC(char *) fetches; /* in the order of _Retval */
  VEC(struct compiled_part) parts;
  atomic_llong runs;
  struct text partition_graphs; /* RunMetadata.partition_graphs, when asked for */
  struct graph *pruned;         /* partial runs: for asking what a fetch needs */
};

enum compile_flags {
  COMPILE_PARTIAL = 1, /* feeds and fetches meet in the rendezvous, one by one */
  COMPILE_GRAPHS = 2,  /* keep partition_graphs */
};
/* Finds or makes; a reference. */
shoal_status master_compile(struct master_session *s, const struct step_signature *sig, unsigned flags,
                            struct compiled **out);
void compiled_unref(struct compiled *c);

/* ---- steps ---- */

struct run_options {
  int64_t timeout_ms;
  bool trace, partition_graphs;
};

/* Called once, from any thread: s (consumed) or the fetches' values ([n_fetches], owned by the run until the callee
 * returns) and the metadata. */
typedef void (*step_done)(void *arg, shoal_status s, const struct tensor *values, const struct text *metadata);

/* Runs a compiled step. args are taken over. The handle lets step_run_cancel end it; it is a reference. At
 * call_deadline the caller cancels; a shorter time-out of the options or of the session is kept here. */
void step_run_start(struct master_session *s, struct compiled *c, const struct run_options *o, int64_t call_deadline,
                    struct tensor *args, step_done done, void *arg, struct step_run **handle);
void step_run_cancel(struct step_run *r, shoal_status why);
void step_run_unref(struct step_run *r);
/* For closing: ends all and waits. */
void step_runs_stop(struct master_session *s);
/* For partial runs: the step's rendezvous (kept by the run), and a client's ends of it. */
struct rendezvous *step_run_rendezvous(struct step_run *r);
struct cancel *step_run_cancellation(struct step_run *r);
/* When no more values will be asked for. */
void step_run_cleanup(struct step_run *r, struct master_session *s);

/* ---- partial runs ---- */

struct partial;
shoal_status master_partial_setup(struct master_session *s, const struct step_signature *sig, char **handle);
/* done gets the values in sig's order of fetches. */
void master_partial_run(struct master_session *s, const char *handle, const struct step_signature *sig,
                        struct tensor *feeds, step_done done, void *arg);
void partial_free(struct partial *p);

#endif
