/* Training sessions: sessions that survive. What MonitoredTrainingSession is in TensorFlow, with the same meaning:
 *
 *   shoal_status error = NULL;
 *   SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = task == 0, .checkpoint_dir = "out", .stop_at_step = 20000,
 *                       .status = &error)
 *     while (!shoal_should_stop(s))
 *       shoal_run(s, SHOAL_FEED(x, images, y, labels), SHOAL_FETCH(loss, &l), train);
 *   return shoal_train_exit(error);
 *
 * The chief initialises the model, or restores the newest checkpoint; the others wait until it is ready. When a task is
 * lost (ABORTED, UNAVAILABLE), the session is made anew and the step is run again: if the variables are still there,
 * training goes on from them, else from the newest checkpoint. When the chief's session ends well, parameter servers
 * that are programs of this kind (shoal_server_serve) end, too. SIGTERM in any trainer, and in any of Shoal's servers
 * that hold variables, makes all workers stop, the chief save, and the programs exit with SHOAL_EXIT_RETRY. */
#ifndef SHOAL_TRAIN_SESSION_H
#define SHOAL_TRAIN_SESSION_H

#include <shoal/cluster.h>
#include <shoal/hooks.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_train_session shoal_train_session;
struct shoal_strategy; /* shoal/strategy.h */

/* How a model is made ready. Zero-filled: the graph's variables and nothing more. */
typedef struct shoal_scaffold {
  size_t size;       /* shoal/options.h */
  shoal_op *init_op; /* NULL: all variables get their initial values */
  shoal_feeds init_feed;
  shoal_status (*init_fn)(void *arg, shoal_session *session); /* after init_op; not when a checkpoint was restored */
  void *init_arg;
  shoal_op *local_init_op; /* NULL: local variables and tables. Run by every task, in every session */
  shoal_out ready_op;      /* a vector with the names of what is missing; empty: ready */
  shoal_out ready_for_local_init_op;
  shoal_saver *saver;   /* NULL: one over all variables */
  shoal_out summary_op; /* node NULL: all summaries of the graph */
} shoal_scaffold;

/* Zero-filled is the default. */
typedef struct shoal_train_session_options {
  size_t size;                /* shoal/options.h */
  const shoal_server *server; /* this task's own; or */
  const char *master;         /* the target of any; both NULL: this process alone, which is the chief */
  bool is_chief;
  const char *checkpoint_dir; /* NULL: nothing is saved */
  int64_t save_steps;         /* a checkpoint every so many steps, or seconds; both 0: 600 s; below 0: none */
  double save_secs;
  int64_t save_summaries_steps; /* both 0: 100 steps; below 0: none */
  double save_summaries_secs;
  int64_t log_step_count_steps; /* 0: 100; below 0: none */
  const char *log_dir;          /* for event files; NULL: checkpoint_dir */
  int64_t stop_at_step;         /* 0: when the input ends or a hook says so */
  const shoal_hook *hooks;      /* taken over, also when opening fails */
  int n_hooks;
  const shoal_scaffold *scaffold;
  const shoal_queue_runner *queue_runners; /* started with every session */
  int n_queue_runners;
  const shoal_progress *progress; /* NULL: no progress line */
  double max_wait_secs;           /* for the other tasks, at the start and after a failure; 0: 300 for the
                                   * servers at the start, 7200 otherwise */
  double stop_grace_secs;         /* for threads at the end; 0: 120 */
  bool no_signals;                /* SIGTERM and SIGINT are the program's own business: session->give_up ends waits */
  bool keep_cluster;              /* this is not the end of the job: parameter servers in shoal_server_serve stay */
  const shoal_session_options *session; /* NULL: the defaults. target is not looked at */
  shoal_status *status;                 /* where SHOAL_TRAIN_SESSION leaves the error; NULL: printed */
  struct shoal_strategy *strategy; /* says server and is_chief, and how many CPUs a session in this process has; NULL:
                                      none. It must outlive the session */
  size_t queue_runner_size;        /* sizeof(shoal_queue_runner), where what came after 0.1 is used: shoal/options.h */
  int64_t steps_per_execution;     /* so many steps in one run, with hooks around all of them; 0: one. A feed has the
                                      batches of all, cut along its first dimension in equal parts; a scalar is the same
                                      for all. Fetches are of the last step. Results are those of single steps, bit for
                                      bit */
} shoal_train_session_options;

SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_train_session_open(shoal_graph *g,
                                                                 const shoal_train_session_options *options,
                                                                 shoal_train_session **out);
/* One step with all hooks. target may be NULL. Recovers from lost tasks; OUT_OF_RANGE is the end of the input. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_train_session_run(shoal_train_session *s, shoal_feeds feeds,
                                                                shoal_fetches fetches, const shoal_op *target);
/* The same for loops: an error is kept for the end and stops the session. Did the step run? */
SHOAL_API bool shoal_run(shoal_train_session *s, shoal_feeds feeds, shoal_fetches fetches, const shoal_op *target);
SHOAL_API bool shoal_should_stop(shoal_train_session *s);
SHOAL_API void shoal_request_stop(shoal_train_session *s);
/* The error that is kept for the end, or NULL; the session keeps it. For what is worth doing only after training that
 * went well. */
SHOAL_API shoal_status shoal_train_session_error(const shoal_train_session *s);
/* The session underneath, for steps without hooks; it changes when a task was lost. */
SHOAL_API shoal_session *shoal_train_session_raw(shoal_train_session *s);
/* How the model became ready, and the step it was at, when the session was made last. */
SHOAL_API const shoal_created *shoal_train_session_created(const shoal_train_session *s);
/* Calls the hooks' end (unless an error was kept), saves a last time, closes, frees s; returns the kept error. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_train_session_close(shoal_train_session *s);

/* A session for one block. Leave the block at its end, not by break or return. */
#define SHOAL_TRAIN_SESSION(s, g, ...)                                                              \
  for (shoal_train_session *s =                                                                     \
           shoal_train_session_begin((g), SHOAL_OPTIONS(shoal_train_session_options, __VA_ARGS__)); \
       s; s = shoal_train_session_finish(s))
SHOAL_API shoal_train_session *shoal_train_session_begin(shoal_graph *g, const shoal_train_session_options *options);
SHOAL_API shoal_train_session *shoal_train_session_finish(shoal_train_session *s); /* NULL */

/* ---- stopping ---- */

/* Was this process, or a task it trains with, told to stop by SIGTERM or SIGINT? */
SHOAL_API bool shoal_preempted(void);
/* For main: prints the error, if any, frees it, and says how to exit: 0; SHOAL_EXIT_RETRY after SIGTERM or when tasks
 * were lost for good; 2 where TF_CONFIG, host lists or a server's options make no sense, and nothing was begun; 1. */
SHOAL_API int shoal_train_exit(shoal_status error);

#ifdef __cplusplus
}
#endif
#endif
