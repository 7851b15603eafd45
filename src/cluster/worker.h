/* A worker: runs registered partitions of graphs on this task's devices.
 *
 * The worker service (worker_service.c) and this task's own master reach it through the same calls; worker_ops.h is
 * the table that makes it and a worker elsewhere look alike. */
#ifndef CLUSTER_WORKER_H
#define CLUSTER_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/cancel.h"
#include "base/ref.h"
#include "base/strmap.h"
#include "cluster/cluster_spec.h"
#include "cluster/collectives.h"
#include "cluster/limits.h"
#include "cluster/owed.h"
#include "cluster/peer.h"
#include "cluster/request_ids.h"
#include "cluster/no_part.h"
#include "cluster/same_group.h"
#include "cluster/step_rendezvous.h"
#include "cluster/worker_ops.h"
#include "device/device.h"
#include "graph/graph.h"
#include "rpc/fast/fast.h"
#include "runtime/step_stats.h"

struct partial_run;

struct worker {
  char *task;                      /* "/job:worker/replica:0/task:1" */
  const struct cluster_spec *spec; /* the server's */
  struct peers *peers;             /* the server's */
  struct pool *inter, *intra;
  struct pool *builders; /* what takes long before there is a step: graphs are imported, cut and compiled there */
  struct device **devices;
  char **key_starts;               /* [n_devices] "NAME;INCARNATION;": how keys of values made here begin */
  struct resource_mgr **resources; /* [n_devices], shared by sessions that are not isolated */
  int n_devices;
  struct steps *steps;
  struct owed owed;         /* what other masters have yet to say of them */
  struct fast_server *fast; /* NULL: no fast path is offered */
  struct request_ids *ids;
  struct collectives collectives;
  struct no_part no_part;
  struct same_group group;
  pthread_mutex_t lock;
  pthread_cond_t idle;
  struct strmap sessions;        /* lock: handle -> struct worker_session * */
  struct worker_session *legacy; /* lock: for masters that create none */
  int64_t made;                  /* lock: sessions, ever */
  struct strmap absent;          /* lock: names of tasks that train and have not come here yet; absent.c */
  struct graph_run *runs;        /* lock: running now */
  struct partial_run *partials;  /* lock: worker_partial.h */
  atomic_int_fast64_t last_run;  /* when one was last started (clock_ns) */
  atomic_llong runs_started;
  /* The master keeps to these too. */
  int max_graph_nodes; /* of one graph */
  struct limits *limits;
  bool client_clusters; /* may clients name tasks that are not in the cluster? */
};

struct worker_options {
  const char *task;
  const struct cluster_spec *spec;
  struct peers *peers;
  const struct device_count *devices; /* asked for; of other types, what there is */
  int n_devices;
  const struct device_options *device_options;
  int inter_threads, intra_threads;
  const struct file_roots *files; /* what ops may open; NULL: anything */
  int64_t max_graph_nodes, max_sessions, max_steps, max_callables, max_partial_runs; /* 0: the defaults */
  bool client_clusters;
  const char *collective_leader; /* a task; NULL: by the cluster's description */
  int64_t collective_timeout_ms; /* 0: the default */
  bool shares_memory;            /* with tasks of this host, for collectives */
};
enum { DEFAULT_GRAPH_NODES = 2000000 };
struct worker *worker_new(const struct worker_options *o);
/* Nothing may be running. */
void worker_free(struct worker *w);

/* ---- sessions ---- */

struct worker_session {
  struct ref refs;
  struct worker *worker;
  struct account *account;  /* of who opened it; NULL: this task's own master */
  size_t n_peers;           /* taken from it */
  atomic_ullong connection; /* over which it was last used */
  atomic_int_fast64_t last_used;
  char *handle;             /* secret: whoever knows it may use the session */
  int64_t number;           /* what it is called where others read it */
  char *task;               /* this task's name in the session: the worker's, unless a cluster was propagated */
  struct cluster_spec spec; /* propagated; empty: the worker's */
  char *leader;             /* of collectives; NULL: the worker's */
  char **device_names;      /* [n_devices], in the session's terms */
  bool isolated;
  struct resource_mgr **resources; /* [n_devices] */
  struct kernel_cache *kernels;
  char *master; /* the task of the master that made it, "" unknown */
  int64_t master_incarnation;
  struct step_names names;
  struct session_collectives collectives;
  pthread_mutex_t lock;
  struct strmap graphs; /* lock: handle -> struct worker_graph * */
  struct strmap peers;  /* lock: task's name -> struct peer *, a reference */
  int64_t next_graph;   /* lock */
};

/* Making a handle twice is fine. Sessions that an earlier incarnation of the same master made are dropped. */
shoal_status worker_create_session(struct worker *w, const struct worker_session_options *o);
/* An unknown handle is fine. */
void worker_delete_session(struct worker *w, const char *handle);
/* Drops sessions whose masters have gone. */
void worker_sweep(struct worker *w, bool (*connected)(void *arg, uint64_t connection), void *arg);
/* A reference. called: the master has created sessions; otherwise the legacy session is meant. */
shoal_status worker_find_session(struct worker *w, const char *handle, bool called, struct worker_session **out);
void worker_session_unref(struct worker_session *s);

/* ---- who has not come yet: absent.c ---- */

/* All tasks of the cluster that train, but this one. */
void worker_expect(struct worker *w, const struct cluster_spec *c);
/* With the worker's lock held: a master of that task has opened a session here. */
void worker_came(struct worker *w, const char *task);
/* The graph is registered: tasks that it exchanges values with are here. */
void worker_graph_came(struct worker *w, const struct shoal_graph *g);
/* Is anybody missing? who (optional): their names are added. */
bool worker_absent(struct worker *w, struct text *who);

/* ---- graphs ---- */

struct worker_graph {
  struct ref refs;
  char *handle;
  struct plan_set set;
  struct shoal_graph *kept; /* what they were made of, or NULL. Constants are shared with the plans. */
  struct function_runtime *functions;
  bool meets;              /* has _Send or _Recv, or spans tasks: needs the step's rendezvous */
  bool spans;              /* groups of its collectives may have members in other tasks */
  struct account *account; /* it counts there, with its nodes; NULL: this task's own master keeps account */
  size_t n_nodes, n_bytes;
  atomic_bool slow; /* the last run took long: the next one lets another thread serve the network meanwhile */
};
struct worker_graph_options {
  size_t bytes; /* of the GraphDef it came in */
  bool keep;    /* the graph is taken over, and kept for masters that ask for partition graphs */
  bool as_is;   /* without rewrites */
};
/* Compiles a copy of g, all of whose nodes are on this task; a new reference in *out. */
shoal_status worker_register_graph(struct worker_session *s, struct shoal_graph *g,
                                   const struct worker_graph_options *o, struct worker_graph **out);
/* RunGraphResponse.partition_graph, one for each device. */
shoal_status worker_graph_export(struct worker_session *s, const struct worker_graph *g, struct text *out);
shoal_status worker_deregister_graph(struct worker_session *s, const char *handle);
shoal_status worker_find_graph(struct worker_session *s, const char *handle, struct worker_graph **out);
void worker_graph_unref(struct worker_graph *g);

/* ---- running ---- */

/* r->session and r->graph are set, references that are taken over. */
void worker_run_start(struct graph_run *r);

/* Empties containers of all devices ("" is the default one). */
void worker_cleanup_all(struct worker *w, char *const *containers, int n);
/* The device that a rendezvous key's source names, when it is this task's; NULL otherwise. */
struct device *worker_device(const struct worker *w, const char *name, size_t n);
/* A DeviceAttributes message for device i, under the name given. */
void worker_device_attributes(const struct worker *w, int i, const char *name, struct text *out);
void worker_describe(struct worker *w, struct text *out);

#endif
