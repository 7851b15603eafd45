/* Clusters: tasks that run graphs together. Each task runs one server, which takes sessions from clients (master) and
 * partitions of graphs from other tasks (worker); TensorFlow's own servers and clients may be on the other end of every
 * connection. A process may run several servers. */
#ifndef SHOAL_CLUSTER_H
#define SHOAL_CLUSTER_H

#include <shoal/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Who belongs to a cluster, and which of them this task is. */
typedef struct shoal_cluster shoal_cluster;
/* From host lists as the flags of most programs have them: "host:port,host:port"; NULL or "": none of that job. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_cluster_from_hosts(const char *ps, const char *workers, const char *job,
                                                                 int task, shoal_cluster **out);
/* The same with a job "chief", as Estimators have it. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_cluster_from_hosts_with_chief(const char *chief, const char *ps,
                                                                            const char *workers, const char *job,
                                                                            int task, shoal_cluster **out);
/* From TF_CONFIG: as JSON, or a file that holds it; NULL: the environment's. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_cluster_from_config(const char *tf_config, shoal_cluster **out);
SHOAL_API void shoal_cluster_free(shoal_cluster *c);
/* How many tasks a job has; the address of one, "host:port", or NULL. */
SHOAL_API int shoal_cluster_tasks(const shoal_cluster *c, const char *job);
SHOAL_API const char *shoal_cluster_address(const shoal_cluster *c, const char *job, int task);
/* This task. The chief is the task of the job "chief" or, where there is none, worker 0. */
SHOAL_API const char *shoal_cluster_job(const shoal_cluster *c);
SHOAL_API int shoal_cluster_task(const shoal_cluster *c);
SHOAL_API bool shoal_cluster_is_chief(const shoal_cluster *c);
/* {"ps": ["host:port"], ...}: what shoal_server_options wants. */
SHOAL_API const char *shoal_cluster_json(const shoal_cluster *c);

typedef struct shoal_server shoal_server;

/* The exit code that says: nothing is lost, run me again (sysexits' EX_TEMPFAIL). */
#define SHOAL_EXIT_RETRY 75

/* Zero-filled is the default. */
typedef struct shoal_server_options {
  size_t size;         /* shoal/options.h */
  const char *cluster; /* {"ps": ["host:port"], "worker": [...]} as JSON, or the name of a file that holds it */
  const char
      *tf_config;  /* instead: TensorFlow's TF_CONFIG, as JSON or a file; NULL, and cluster NULL: the environment's */
  const char *job; /* this task; NULL: from TF_CONFIG */
  int task;
  int cpu_devices;      /* logical CPUs, /cpu:0 ...; 0: one */
  int inter_op_threads; /* 0: one for each core */
  int intra_op_threads;
  bool insecure_bind_all;                  /* listen on all interfaces although nothing protects the connection */
  const char *tls_cert, *tls_key, *tls_ca; /* PEM files; all three: both ends of a connection are checked */
  const char *file_root;                   /* directories that ops may read and write, separated by ':'; NULL: all */
  int64_t peer_timeout_ms;    /* a task that does not answer for so long fails what waits for it; 0: 10 s */
  int64_t startup_timeout_ms; /* the cluster must be whole within this, else sessions that wait for it, and the server
                               * itself, end with the list of who is missing; 0: sessions alone, after 5 minutes;
                               * negative: it may take any time */
  int64_t exit_with_job_ms;   /* the server ends when sessions were here and all who opened them have been gone for so
                               * long; 0: it stays */
  const char *http_host;      /* where http_port listens; NULL: loopback */
  int http_port;              /* /healthz and /metrics, in plain HTTP; 0: none, -1: at any port that is free */
  int64_t max_request_bytes;  /* larger requests are refused unread; 0: 2 GiB */
  int64_t max_graph_nodes;    /* of one session's graph, of a partition; 0: 2,000,000 */
  int64_t max_sessions;       /* as master, and as worker; 0: 10,000 */
  int64_t max_steps;          /* under way at a time, as master, and parts of others' as worker; 0: 100,000 */
  int64_t max_callables;      /* of all sessions; 0: 100,000 */
  int64_t max_partial_runs;   /* under way at a time, of all sessions; 0: 10,000 */
  int64_t max_tensor_bytes;   /* of one tensor, for the whole process; 0: the machine's memory */
  bool allow_client_clusters; /* clients may name clusters (ConfigProto.cluster_def) with tasks that this one lacks:
                               * the server connects to whatever address they say */
  bool no_fast_path;          /* steps and tensors between Shoal's own tasks go by gRPC, as to others */
  const char *devices;        /* "GPU=2,CPU=4": so many of each type; NULL, and of types not named: all there are */
  const char
      *collective_group_leader;  /* the task that collectives between tasks are agreed upon with, the same for all:
                                  * "/job:worker/replica:0/task:0"; NULL: the chief, else the first worker */
  int64_t collective_timeout_ms; /* how long a collective waits for its other members; 0: 10 minutes */
  int64_t coordination_service;  /* 1: tasks of TensorFlow 2's MultiWorkerMirroredStrategy are in the cluster: the
                                  * group's leader has its coordination service, other tasks register with it */
  /* A serialized tensorflow.ConfigProto, as default_session_config of a ServerDef. What it says of devices
   * (device_count, gpu_options) and of threads is the server's, with the fields above laid over it; all of it stands
   * where its sessions' own says nothing else. */
  const void *config;
  size_t config_size;
} shoal_server_options;

SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_server_start(const shoal_server_options *options, shoal_server **out);
/* "grpc://host:port", for sessions; lives as long as the server. */
SHOAL_API const char *shoal_server_target(const shoal_server *s);
/* "/job:worker/replica:0/task:0". */
SHOAL_API const char *shoal_server_task(const shoal_server *s);
/* Returns when the server is told to stop: by shoal_server_quit, or by `shoal stop` from outside. */
SHOAL_API void shoal_server_join(shoal_server *s);
/* Lets shoal_server_join return. Safe in any thread. */
SHOAL_API void shoal_server_quit(shoal_server *s);
/* For a task that was told to go (SIGTERM): asks the training run that has variables here, if any, to save and stop,
 * and waits until it has, for at most grace_ms (0: 25 s). false: there is no such run. */
SHOAL_API bool shoal_server_drain(shoal_server *s, int64_t grace_ms);
/* For main: serves until it is told to stop, by shoal_server_quit, `shoal stop`, SIGTERM or SIGINT (after draining), or
 * until a run that has variables here is over: its chief's training session ended well, and nobody uses this server any
 * more. A chief that crashed is waited for, workers that have not come yet for ten seconds. Says how to exit: 0, or
 * SHOAL_EXIT_RETRY when a run was asked to stop. Stops s. */
SHOAL_API int shoal_server_serve(shoal_server *s);
/* Why the server ended by itself (the cluster was not whole within startup_timeout_ms); NULL: it did not. The caller
 * frees it. */
SHOAL_API shoal_status shoal_server_failure(shoal_server *s);
/* Ends running steps, closes the port, frees s. */
SHOAL_API void shoal_server_stop(shoal_server *s);
/* What the server is doing, for people: sessions, steps, and what each waits for. The caller frees it with free(). */
SHOAL_API char *shoal_server_status(shoal_server *s);

/* Asks another server, by its target, for the same; or to stop. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_server_remote_status(const char *target, int64_t timeout_ms, char **out);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_server_remote_stop(const char *target, int64_t timeout_ms);
/* The tasks of a cluster (JSON or file) in a table, a line for each; asked all at once. *table is for the caller to
 * free, also when tasks do not answer (UNAVAILABLE). */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_cluster_status(const char *cluster, int64_t timeout_ms, char **table);
/* Stops every task of a cluster (JSON or file, as above); the first error, after trying all. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_cluster_stop(const char *cluster, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
