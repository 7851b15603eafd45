/* Sessions: where graphs run. In this process (target ""), or on a cluster (target "grpc://host:port").
 *
 * A session may be used by many threads at once. Names: tensors are "op:index", ops are "op". */
#ifndef SHOAL_SESSION_H
#define SHOAL_SESSION_H

#include <shoal/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_session shoal_session;

/* Zero-filled is the default. */
typedef struct shoal_session_options {
  size_t size; /* shoal/options.h */
  const char *target; /* NULL or "": this process */
  const void *config; /* a serialized tensorflow.ConfigProto; the fields below are laid over it */
  size_t config_size;
  int cpu_devices; /* logical CPUs, /cpu:0 ...; 0: one. This and threads: of this process, servers have their own */
  int inter_op_threads; /* 0: one for each core */
  int intra_op_threads;
  bool allow_soft_placement;
  bool log_device_placement;
  int64_t operation_timeout_ms; /* for every run without a time-out of its own; 0: none */
  const char *rewrites_off;  /* names of graph rewrites not to do, comma-separated; "all" (all there is on a cluster) */
  int64_t create_timeout_ms; /* for a cluster's tasks to be there when the session is made; 0: none but the above */
  const char *const *device_filters; /* on a cluster: only tasks that one of these names take part, others need not be
                                      * there: "/job:ps", "/job:worker/task:0"; NULL at the end. NULL: all tasks */
  bool isolate_session_state;        /* on a cluster: variables and queues of its own, gone with the session */
  /* On a cluster: this client's certificate and key, and the authority that signs the servers'; PEM files. All three
   * NULL: those that SHOAL_TLS_CERT, SHOAL_TLS_KEY and SHOAL_TLS_CA name in the environment. */
  const char *tls_cert, *tls_key, *tls_ca;
  /* On a cluster: asked several times a second while the session is being made; once it says yes that ends with
   * CANCELLED. NULL: nobody is asked */
  bool (*give_up)(void);
} shoal_session_options;

typedef struct shoal_run_options {
  size_t size; /* shoal/options.h */
  int64_t timeout_ms; /* 0: none */
  int trace_level;    /* 0 none, 3 full: step stats in the metadata */
  bool output_partition_graphs;
  /* TensorFlow's number: -1, or a pool of the session. A local step begins on its caller's thread with any of them; a
   * server of TensorFlow's heeds it. */
  int inter_op_thread_pool;
} shoal_run_options;

/* The session takes what the graph has now; shoal_session_extend() takes what was added since. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_open(shoal_graph *g, const shoal_session_options *options,
                                                           shoal_session **out);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_extend(shoal_session *s, shoal_graph *g);
/* Ends the steps that other threads run, and those in the background (shoal/async.h), with CANCELLED; waits until every
 * call has left; frees the session. Once it has returned nothing may be asked of s. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_close(shoal_session *s);

/* Runs one step. fetches receives a new reference for each name. metadata (optional): a serialized
 * tensorflow.RunMetadata. options may be NULL. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_run(shoal_session *s, const shoal_run_options *options,
                                                          const char *const *feed_names, shoal_tensor *const *feeds,
                                                          int n_feeds, const char *const *fetch_names,
                                                          shoal_tensor **fetches, int n_fetches,
                                                          const char *const *targets, int n_targets,
                                                          shoal_bytes *metadata);

/* Partial runs: declare all feeds, fetches and targets, then run parts of the step one after another. The handle is for
 * the caller to free with free(); a step of which all fetches were fetched is over. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_partial_setup(shoal_session *s, const char *const *feed_names,
                                                                    int n_feeds, const char *const *fetch_names,
                                                                    int n_fetches, const char *const *targets,
                                                                    int n_targets, char **handle);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_partial_run(shoal_session *s, const char *handle,
                                                                  const char *const *feed_names,
                                                                  shoal_tensor *const *feeds, int n_feeds,
                                                                  const char *const *fetch_names,
                                                                  shoal_tensor **fetches, int n_fetches);

/* Callables: a step compiled once, run with feeds and fetches in a fixed order. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_make_callable(shoal_session *s, const char *const *feed_names,
                                                                    int n_feeds, const char *const *fetch_names,
                                                                    int n_fetches, const char *const *targets,
                                                                    int n_targets, int64_t *callable);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_run_callable(shoal_session *s, int64_t callable,
                                                                   const shoal_run_options *options,
                                                                   shoal_tensor *const *feeds, int n_feeds,
                                                                   shoal_tensor **fetches, int n_fetches,
                                                                   shoal_bytes *metadata);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_release_callable(shoal_session *s, int64_t callable);

/* Device names, one a line; for the caller to free with free(). */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_session_list_devices(shoal_session *s, char **names);

#ifdef __cplusplus
}
#endif
#endif
