/* A master: takes clients' sessions, keeps their graphs, and drives their steps over the workers of the cluster.
 *
 *   master.c          sessions: finding, extending, closing
 *   master_config.c   what a client's ConfigProto says
 *   master_create.c   making a session: meeting the tasks it may use
 *   master_compile.c  a signature (feeds, fetches, targets) made into registered partitions, once
 *   master_run.c      one step
 *   master_partial.c  partial runs
 *   master_service.c  MasterService on the wire, master_service_run.c those of its calls that run steps
 *
 * Nothing here waits: most of this is called by handlers, on threads that the network needs. What takes another task's
 * answer goes on when it comes (a function and its argument), what takes long computing goes on on the worker's
 * builders (a pool), one after another for each session's graph (its strand). */
#ifndef CLUSTER_MASTER_H
#define CLUSTER_MASTER_H

#include "base/inside.h"
#include "base/join.h"
#include "base/ref.h"
#include "base/strand.h"
#include "base/wire.h"
#include "cluster/collectives.h"
#include "cluster/home.h"
#include "cluster/limits.h"
#include "cluster/request_ids.h"
#include "cluster/worker_ops.h"
#include "graph/place.h"
#include "graph/prune.h"
#include "runtime/session_config.h"
#include "runtime/signatures.h"

/* What of its server a master uses, with the worker. */
struct master_options {
  const char *task;
  struct worker *home; /* see home.h */
  const struct cluster_spec *spec;
  struct peers *peers;
  struct pool *builders;
  struct limits *limits;
  struct request_ids *ids;
  int max_graph_nodes;  /* of one graph */
  bool client_clusters; /* may clients name tasks that are not in the cluster? */
  struct wire config;   /* a ConfigProto: sessions' own is laid over it */
};

struct master {
  struct master_options server;
  struct worker_link own; /* the worker of this process */
  int port;               /* that the server listens on */
  int64_t startup_timeout_ms;
  struct startup *startup; /* the server's; NULL: nobody to wait for */
  pthread_mutex_t lock;
  struct strmap sessions;     /* lock: handle -> struct master_session * */
  struct creation *creations; /* lock: sessions in the making */
  struct inside alive;        /* sessions that are not freed */
  int64_t made;               /* lock: sessions, ever */
  bool closing;               /* lock */
  struct cancel ending;       /* what is still asked of other tasks when the server has waited long enough */
};

/* What the options refer to must stay; the link is taken over. */
void master_init(struct master *m, const struct master_options *o, const struct worker_link *own);
/* Takes no more sessions, and closes those there are: waits, though not for tasks that do not answer. Not from a
 * handler. */
void master_close(struct master *m);
void master_release(struct master *m);

typedef void (*master_done)(void *arg, shoal_status s);

/* What a client's ConfigProto makes of a session. */
struct master_config {
  struct session_config said;
  bool isolated, propagated;
  struct cluster_spec spec; /* with propagated */
  char *leader;             /* of collectives, a task; NULL: as the servers have it */
  struct text bytes;        /* the whole message */
};
/* The client's laid over the server's. max_tasks: of a propagated cluster. */
shoal_status master_config_read(struct master_config *c, struct wire server, struct wire client, int64_t max_tasks);
void master_config_release(struct master_config *c);
/* Does a task pass any of the filters? Parts that either leaves open match anything. */
bool device_filters_pass(char *const *filters, size_t n, const char *job, int task);

struct master_device {
  const char *name; /* of the worker_link */
  const struct text *attributes;
  uint64_t incarnation;
  int worker;
};

struct step_run;

struct master_session {
  struct ref refs;
  struct master *master;
  struct account *account;  /* of the connection that opened it */
  size_t n_peers;           /* taken from it: tasks of a propagated cluster */
  size_t n_nodes, n_bytes;  /* strand: taken from it */
  atomic_ullong connection; /* over which it was last used */
  char *handle;             /* secret: whoever knows it may use the session */
  char *half;               /* what the workers are told instead: their halves' handle */
  int64_t number;           /* what it is called where others read it */
  int64_t began;            /* when it was opened */
  struct master_config config;
  char *task;                      /* this task's name in the session */
  VEC(struct worker_link) workers; /* this process first; unchanging once made */
  VEC(struct master_device) devices;
  VEC(struct place_device) places;
  struct strmap device_numbers; /* a device's name -> its place in both, + 1 */

  struct strand strand;      /* of what uses the graph */
  struct shoal_graph *graph; /* strand */
  int64_t version;           /* strand */
  bool unprepared;           /* strand: has nodes not yet lowered and placed */
  int64_t effort;            /* strand: what may yet be spent on lowering; anew when it has been done */
  int64_t next_name;         /* strand */

  struct signatures compiled; /* struct compiled */
  atomic_size_t n_callables;  /* taken from the account */
  pthread_mutex_t lock;
  struct strmap partials;                            /* lock: handle -> struct partial * */
  int64_t next_partial;                              /* lock */
  struct step_run *running;                          /* lock */
  bool closed;                                       /* lock */
  void (*idle)(struct master_session *s, void *arg); /* lock: called when no step runs any more, once */
  void *idle_arg;
  struct cancel ending; /* registrations end with the session */
};

/* A session in the making: every task that it may use is met first. What config and graph_def are in must stay until
 * done is called, once: with an error (consumed), or with the session's handle. */
struct creation;
typedef void (*creation_done)(void *arg, shoal_status s, const char *handle);
struct creation *creation_new(struct master *m, struct wire config, struct wire graph_def, const char *target,
                              struct rpc_origin from, int64_t deadline, creation_done done, void *arg);
/* The creation is there until done has returned. */
void creation_begin(struct creation *k);
/* Ends it soon; done gets why (consumed). */
void creation_cancel(struct creation *k, shoal_status why);
/* Cancels all there are, and waits for their end. */
void creations_stop(struct master *m);
struct master_session *master_session_new(struct master *m, struct account *account);
/* Adds to the session's graph: a task of its strand, or before anybody else knows of it. over: see base/effort.h. */
shoal_status master_session_import(struct master_session *s, struct wire graph_def, bool opens_session,
                                   bool (*over)(void *arg), void *arg);
/* Closes sessions whose clients have gone. */
void master_sweep(struct master *m, bool (*connected)(void *arg, uint64_t connection), void *arg);
/* Asks the workers to forget the session; next(arg, NULL) when they have, or cannot be asked. */
void master_delete_halves(struct master_session *s, master_done next, void *arg);
shoal_status master_find_session(struct master *m, const char *handle, struct master_session **out);
void master_session_ref(void *s);
void master_session_let_go(void *s); /* the same as unref, for strands */
void master_session_unref(struct master_session *s);
/* graph_def must stay until done. gone (stays too): set when nobody waits for it any more. */
void master_extend(struct master_session *s, struct wire graph_def, int64_t expected, const atomic_bool *gone,
                   void (*done)(void *arg, shoal_status s, int64_t version), void *arg);
/* Before it is closed: tells those whose steps it meets why it comes to no more of them. */
void master_give_up_session(struct master *m, const char *handle, const char *why);
/* Cancels steps; done when they have ended and the workers' halves are freed. */
void master_close_session(struct master *m, const char *handle, master_done done, void *arg);
/* Empties containers on the tasks that pass the filters, then closes all sessions. */
void master_reset(struct master *m, char *const *containers, int n, char *const *filters, int n_filters,
                  master_done done, void *arg);
void master_describe(struct master *m, struct text *out);

/* ---- compiled steps ---- */

struct compiled_part {
  int worker;
  char graph[17];
};

struct compiled {
  struct signature head;
  struct account *account; /* where it counts, with its nodes */
  size_t n_nodes;
  VEC(char *) feeds;   /* in the order of _Arg */
  VEC(char *) fetches; /* in the order of _Retval */
  VEC(struct compiled_part) parts;
  atomic_llong runs;
  struct text partition_graphs; /* RunMetadata.partition_graphs, when asked for */
  struct shoal_graph *pruned;   /* partial runs: for asking what a fetch needs */
  struct collective_survey collectives;
};

enum compile_flags {
  COMPILE_PARTIAL = 1, /* feeds and fetches meet in the rendezvous, one by one */
  COMPILE_GRAPHS = 2,  /* keep partition_graphs */
};
/* Whose request it is for: gone is set when the client waits no more; what nobody waits for is not gone on with. */
struct compile_client {
  const atomic_bool *gone;
  struct rpc_call *call; /* not answered yet; in its connection's line of requests it is gone on with */
};
/* Finds, and calls done at once; or makes, and calls it later, on a thread of the network: with an error (consumed) or
 * a reference. sig and client (NULL: none, and done does not take long) must stay until then. */
typedef void (*compile_done)(void *arg, shoal_status s, struct compiled *c);
void master_compile(struct master_session *s, const struct step_signature *sig, unsigned flags,
                    const struct compile_client *client, compile_done done, void *arg);
void compiled_unref(struct compiled *c);
/* The session's table of them. */
void master_compiled_init(struct master_session *s);
void master_compiled_release(struct master_session *s);

/* ---- steps ---- */

struct run_options {
  int64_t timeout_ms;
  bool trace, partition_graphs;
  int64_t collective_key; /* of the graphs that this one's steps meet; 0: found by what is in it */
};

/* Called once, from any thread: s (consumed) or the fetches' values ([n_fetches], owned by the run until the callee
 * returns) and the metadata. */
typedef void (*step_done)(void *arg, shoal_status s, const struct tensor *values, const struct text *metadata);

/* One run of a compiled step, not begun; a reference. args are taken over. At call_deadline the caller cancels; a
 * shorter time-out of the options or of the session is kept here. It may be cancelled from now on, and must be begun
 * once. */
struct step_run *step_run_new(struct master_session *s, struct compiled *c, const struct run_options *o,
                              int64_t call_deadline, struct tensor *args, step_done done, void *arg);
/* done may be called before this returns. */
void step_run_begin(struct step_run *r);
void step_run_cancel(struct step_run *r, shoal_status why);
void step_run_unref(struct step_run *r);
/* For closing: no step begins any more, those that run are cancelled with why (consumed); then(s, arg) when all have
 * ended. */
void step_runs_stop(struct master_session *s, shoal_status why, void (*then)(struct master_session *s, void *arg),
                    void *arg);
/* For partial runs: the step's rendezvous (kept by the run), and a client's ends of it. */
struct rendezvous *step_run_rendezvous(struct step_run *r);
struct cancel *step_run_cancellation(struct step_run *r);
/* When no more values will be asked for. */
void step_run_cleanup(struct step_run *r, struct master_session *s);

/* ---- partial runs ---- */

struct partial;
/* done gets an error or the handle. sig and client must stay until then, as for master_compile. */
void master_partial_setup(struct master_session *s, const struct step_signature *sig,
                          const struct compile_client *client,
                          void (*done)(void *arg, shoal_status s, const char *handle), void *arg);
/* A reference to the partial run of that name; NULL: there is none. */
struct partial *master_partial_find(struct master_session *s, const char *handle);
/* done gets the values in sig's order of fetches. */
void master_partial_run(struct partial *p, const struct step_signature *sig, struct tensor *feeds, step_done done,
                        void *arg);
/* Who waits for one of its calls has gone: the whole of it ends, as with TensorFlow's master. */
void master_partial_cancel(struct partial *p);
void partial_unref(struct partial *p);

#endif
