/* A worker as a master sees it: in this process, or behind a connection. The master knows only this table. */
#ifndef CLUSTER_WORKER_OPS_H
#define CLUSTER_WORKER_OPS_H

#include "base/wire.h"
#include "cluster/worker.h"

typedef void (*worker_done)(void *arg, shoal_status s);

/* A device as GetStatus told it. */
struct remote_device {
  char *name, *type;
  uint64_t incarnation;
  struct text attributes; /* the DeviceAttributes message, with `name` in it */
};

/* One partition's part in a step: filled in by the caller, who keeps it until done. */
struct part_run {
  const char *session, *graph; /* handles */
  int64_t step_id, deadline;
  struct cancel *cancel;
  const struct tensor *args; /* local workers only */
  int n_args;
  struct tensor *rets;
  int n_rets;
  struct step_stats *stats; /* local: where spans go; remote: non-NULL asks for them */
  bool trace;
  struct rendezvous *rendezvous; /* local: partial runs hold it already */
  worker_done done;
  void *arg;
  void *owner; /* the caller's */
  /* results */
  struct text step_stats; /* remote: a StepStats message */
  bool cleans_up;         /* the worker forgets the step by itself, if all went well */
  /* the implementation's */
  struct worker_run local;
  struct peer *peer;
  struct peer_call *call;
  struct cancel_hook hook;
  pthread_mutex_t lock;
  bool cancelled, hooked;
};

struct worker_link;

struct worker_ops {
  /* None of these waits: done is called, once, when the worker has answered or cannot. cancel (may be NULL; must stay
   * until then) ends it early. */
  /* Fills devices; the worker has until the deadline to come up. */
  void (*get_status)(struct worker_link *w, int64_t deadline, struct cancel *cancel, worker_done done, void *arg);
  void (*create_session)(struct worker_link *w, const struct worker_session_options *o, int64_t deadline,
                         struct cancel *cancel, worker_done done, void *arg);
  void (*delete_session)(struct worker_link *w, const char *session, struct cancel *cancel, worker_done done,
                         void *arg);
  /* handle: 17 bytes. */
  void (*register_graph)(struct worker_link *w, const char *session, struct shoal_graph *g, const struct text *config,
                         char *handle, struct cancel *cancel, worker_done done, void *arg);
  void (*deregister_graph)(struct worker_link *w, const char *session, const char *handle);
  void (*run_graph)(struct worker_link *w, struct part_run *r);
  void (*cleanup_graph)(struct worker_link *w, int64_t step_id);
  /* Transfers are logged from here on; or no longer, and what was logged of the step is added to stats (optional) as
   * StepStats. TensorFlow's workers tell of transfers in this way only, ours in the answer to RunGraph. */
  void (*log_transfers)(struct worker_link *w, bool on, int64_t step_id, int64_t deadline, struct text *stats,
                        worker_done done, void *arg);
  void (*cleanup_all)(struct worker_link *w, char *const *containers, int n, struct cancel *cancel, worker_done done,
                      void *arg);
};

struct worker_link {
  const struct worker_ops *ops;
  char *task; /* its name in the session */
  struct worker *local;
  struct peer *peer;
  VEC(struct remote_device) devices; /* after get_status */
};

/* DebugOptions, of a step or of a partition: UNIMPLEMENTED when they watch tensors. */
shoal_status debug_options_check(struct wire w);

void worker_link_local(struct worker_link *w, struct worker *local, const char *task);
/* The peer's reference is taken over. */
void worker_link_remote(struct worker_link *w, struct peer *peer, const char *task);
void worker_link_release(struct worker_link *w);

#endif
