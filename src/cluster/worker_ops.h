/* A worker as a master sees it: in this process, or behind a connection. The master knows only this table, whole for
 * either kind; what its own process has beside a worker is in cluster/home.h. */
#ifndef CLUSTER_WORKER_OPS_H
#define CLUSTER_WORKER_OPS_H

#include "base/vec.h"
#include "base/wire.h"
#include "cluster/cancellable.h"
#include "cluster/cluster_spec.h"
#include "cluster/roll_call.h"
#include "rpc/address.h"
#include "runtime/plan_set.h"

struct worker;
struct worker_graph;
struct worker_session;
typedef void (*worker_done)(void *arg, shoal_status s);

/* A device as GetStatus told it. */
struct remote_device {
  char *name, *type;
  uint64_t incarnation;
  struct text attributes; /* the DeviceAttributes message, with `name` in it */
};

/* A worker's half of a session. */
struct worker_session_options {
  const char *handle;
  bool isolated;
  const char *master;
  int64_t master_incarnation;
  const char *job; /* with a propagated cluster: what this task is called in it; NULL: none */
  int task;
  const struct cluster_spec *spec; /* the propagated cluster; NULL: none */
  const char *leader;              /* of collectives, a task as its name was given; NULL: the cluster's */
  bool remote;                     /* opened by another task: it counts, on that connection */
  struct rpc_origin from;
};

/* A partition to be registered. */
struct graph_registration {
  const char *session; /* its half's handle */
  struct shoal_graph *graph;
  const struct text *config; /* the session's ConfigProto, for workers elsewhere */
  bool as_is;                /* what it says of rewrites: none */
  int64_t collective_key;    /* of collectives in the graph it is part of; 0: there are none */
  char *handle;              /* out: 17 bytes */
};

/* One run of a registered graph, the part of one worker in a step. The caller fills in the first half, and keeps all of
 * it until done. */
struct graph_run {
  /* Of the step: id, cancel, deadline; args and rets, which stay in this process; stats (NULL: not traced), where spans
   * of this process go; rendezvous, where the caller has it (NULL: it is found when needed). The worker adds the rest.
   */
  struct set_run run;
  const char *session_handle, *graph_handle;
  worker_done done;
  void *arg;
  /* results */
  struct text step_stats; /* of a worker elsewhere: a StepStats message */
  bool cleans_up;         /* the worker forgets the step by itself, if all went well */
  bool leaves_step;       /* it uses the caller's rendezvous: whoever has that ends the step there */
  /* a worker's of this process */
  struct graph_run *prev, *next;  /* worker->lock */
  struct worker_session *session; /* references */
  struct worker_graph *graph;
  int64_t started;
  bool bound; /* to the step's rendezvous */
  /* a worker's elsewhere */
  struct peer *peer;
  struct cancellable call;
};

struct worker_link;

/* A master's task, and of its strategy, if it has one, the group and its own address (same_group.h); NULL: none. */
struct status_asker {
  const char *task, *group, *address;
};

struct worker_ops {
  /* None of these waits: done is called, once, when the worker has answered or cannot. cancel (may be NULL; must stay
   * until then) ends it early. */
  /* Fills devices; the worker has until the deadline to come up. */
  void (*get_status)(struct worker_link *w, const struct status_asker *asker, int64_t deadline, struct cancel *cancel,
                     worker_done done, void *arg);
  void (*create_session)(struct worker_link *w, const struct worker_session_options *o, int64_t deadline,
                         struct cancel *cancel, worker_done done, void *arg);
  void (*delete_session)(struct worker_link *w, const char *session, struct cancel *cancel, worker_done done,
                         void *arg);
  /* r itself need not stay. */
  void (*register_graph)(struct worker_link *w, const struct graph_registration *r, struct cancel *cancel,
                         worker_done done, void *arg);
  void (*deregister_graph)(struct worker_link *w, const char *session, const char *handle);
  void (*run_graph)(struct worker_link *w, struct graph_run *r);
  void (*cleanup_graph)(struct worker_link *w, int64_t step_id);
  /* Transfers are logged from here on; or no longer, and what was logged of the step is added to stats (optional) as
   * StepStats. TensorFlow's workers tell of transfers in this way only, ours in the answer to RunGraph. */
  void (*log_transfers)(struct worker_link *w, bool on, int64_t step_id, int64_t deadline, struct text *stats,
                        worker_done done, void *arg);
  void (*cleanup_all)(struct worker_link *w, char *const *containers, int n, struct cancel *cancel, worker_done done,
                      void *arg);
  /* Enters the task in a roll, where it may be missing. */
  void (*enroll)(const struct worker_link *w, struct roll *roll);
};

struct worker_link {
  const struct worker_ops *ops;
  char *task;                        /* its name in the session */
  VEC(struct remote_device) devices; /* after get_status */
  /* the implementation's: one of these */
  struct worker *local;
  struct peer *peer;
};

/* DebugOptions, of a step or of a partition: UNIMPLEMENTED when they watch tensors. */
shoal_status debug_options_check(struct wire w);

void worker_link_local(struct worker_link *w, struct worker *local, const char *task);
/* The peer's reference is taken over. */
void worker_link_remote(struct worker_link *w, struct peer *peer, const char *task);
/* Another link to a worker in this process, by another name. */
void worker_link_again(struct worker_link *w, const struct worker_link *of, const char *task);
void worker_link_release(struct worker_link *w);

#endif
