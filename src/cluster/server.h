/* A server inside Shoal: the task's worker, its master, and the port both listen on. The public half is
 * shoal/cluster.h. */
#ifndef CLUSTER_SERVER_H
#define CLUSTER_SERVER_H

#include "cluster/master.h"
#include "cluster/worker.h"
#include "rpc/loop.h"
#include "rpc/http1/pages.h"
#include "rpc/server.h"
#include "shoal/cluster.h"

struct shoal_server {
  struct cluster_spec spec;
  char *task;              /* "/job:worker/replica:0/task:0" */
  char *target;            /* "grpc://host:port" */
  char *collective_leader; /* task; NULL: by the cluster's description */
  struct rpc_tls *tls;
  struct text config;       /* the server's own ConfigProto; empty: none */
  struct file_roots *files; /* --file_root; NULL: ops may open anything */
  struct peers *peers;
  struct worker *worker;
  struct coordination_agent *coordination; /* NULL: there is none */
  struct master master;
  struct rpc_server *rpc;
  struct pages *pages; /* NULL: none */
  struct startup *startup; /* whom we wait for; NULL: nobody */
  int64_t started;
  int64_t exit_with_job_ms;         /* 0: it stays */
  atomic_int_fast64_t last_opened;  /* when somebody last asked for a session, or was seen to have one; 0: never */
  atomic_int_fast64_t last_changed; /* when somebody last opened or closed one */
  atomic_bool draining;             /* told to stop, and waiting for a run to save: /healthz says so */
  pthread_mutex_t lock;
  pthread_cond_t quitting;
  bool quit;            /* lock */
  bool job_over;        /* lock: it ended with its job */
  shoal_status failure; /* lock: why it ended by itself */
};

/* The methods of every server: handlers take a struct shoal_server. */
const struct rpc_method *server_methods(int *n);
/* One call to another server, by its target or address; certificates are the environment's. body may be NULL. */
shoal_status server_ask(const char *target, const char *method, int64_t timeout_ms, struct rpc_body *body);
enum status_form {
  STATUS_TEXT,  /* what each server says of itself, for people */
  STATUS_TABLE, /* a line for each, and what they wait for */
  STATUS_JSON,
};
/* Servers by their targets, or the tasks of a cluster (JSON or file), asked all at once; *out is the caller's, also
 * when some do not answer (UNAVAILABLE). It may be NULL on an error. A table leaves out what there is no room for (in
 * columns; 0: no limit). cluster_status.c. */
shoal_status server_status(const char *const *targets, size_t n, int64_t timeout_ms, enum status_form form, int room,
                           char **out);
shoal_status cluster_status(const char *cluster, int64_t timeout_ms, enum status_form form, int room, char **out);
/* Adds the numbers for the cluster's table to the answer of /shoal.Server/Status (cluster_status.c). */
void server_status_numbers(struct shoal_server *s, struct text *out);
/* A call works with the server, and opens (1) or closes (-1) a session, or neither (0); job_end.c. */
void server_used(struct shoal_server *s, struct rpc_call *c, int opens);
/* What one who watches for the end keeps from one look to the next; 0: not so. */
struct job_watch {
  int64_t gone_since; /* all who had sessions */
  int64_t late_since; /* ... and others have not come yet */
};
/* With exit_with_job_ms: has everybody been gone for that long? */
bool server_job_over(struct shoal_server *s, struct job_watch *w);
/* All who came have ended, unless the server is in use: is it to stay for tasks that have not come yet? They have ten
 * seconds, which is said. */
bool server_waits_for_late(struct shoal_server *s, bool in_use, struct job_watch *w);
/* Has the chief of a run of Shoal's ended it, and is nobody left here? drain.c. */
bool server_run_is_done(struct shoal_server *s, struct job_watch *w);
/* Before it goes: stays until all have heard which collectives did not fit. last_words.c. */
void server_last_words(struct shoal_server *s);

#endif
