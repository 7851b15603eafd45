/* Supervisors: what tf.train.Supervisor is. A program that runs its own steps gets a session on a model that is ready,
 * and threads that save, count and summarise by the clock. Newer programs take shoal/train_session.h.
 *
 *   shoal_supervisor *sv;
 *   shoal_supervisor_new(g, &(shoal_supervisor_options){.is_chief = task == 0, .logdir = "out"}, &sv);
 *   shoal_supervisor_managed_session(sv, shoal_server_target(server), NULL, &session);
 *   while (!shoal_supervisor_should_stop(sv)) shoal_session_step(session, ...);
 *   shoal_supervisor_stop(sv); */
#ifndef SHOAL_SUPERVISOR_H
#define SHOAL_SUPERVISOR_H

#include <shoal/train_session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_supervisor shoal_supervisor;

/* Zero-filled is the default. */
typedef struct shoal_supervisor_options {
  size_t size; /* shoal/options.h */
  bool is_chief;
  const char *logdir;              /* checkpoints and event files; NULL: none */
  const shoal_scaffold *scaffold;  /* how the model is made ready, what to save, what to summarise */
  double save_model_secs;          /* 0: 600; below 0: never */
  double save_summaries_secs;      /* 0: 120; below 0: never */
  const char *checkpoint_basename; /* NULL: "model.ckpt" */
  const shoal_queue_runner *queue_runners;
  int n_queue_runners;
  double max_wait_secs;   /* for the model to be ready; 0: 300 for the servers, 7200 once they were there */
  double stop_grace_secs; /* 0: 120 */
  bool no_signals;        /* SIGTERM and SIGINT are the program's own business */
  size_t queue_runner_size; /* sizeof(shoal_queue_runner), where what came after 0.1 is used: shoal/options.h */
} shoal_supervisor_options;

/* Adds to the graph what it needs. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_supervisor_new(shoal_graph *g, const shoal_supervisor_options *options,
                                                             shoal_supervisor **out);

/* A session on the target ("" for this process): the chief initialises the model or restores the newest checkpoint, the
 * others wait for it. The supervisor closes it. Again after a task was lost (ABORTED, UNAVAILABLE). */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_supervisor_prepare_or_wait(shoal_supervisor *sv, const char *target,
                                                                         const shoal_session_options *options,
                                                                         shoal_session **session);
/* The chief's threads: checkpoints, summaries, the step counter; writes the graph. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_supervisor_start_standard_services(shoal_supervisor *sv);
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_supervisor_start_queue_runners(shoal_supervisor *sv);
/* The three above in one. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_supervisor_managed_session(shoal_supervisor *sv, const char *target,
                                                                         const shoal_session_options *options,
                                                                         shoal_session **session);

/* A thread that calls fn every so many seconds until the end, or until it returns an error. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_supervisor_loop(shoal_supervisor *sv, double seconds,
                                                              shoal_status (*fn)(void *arg), void *arg);
/* Writes a summary that the program computed (a string scalar); step below 0: the step counter's value. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_supervisor_summary_computed(shoal_supervisor *sv,
                                                                          const shoal_tensor *summary, int64_t step);

SHOAL_API bool shoal_supervisor_should_stop(shoal_supervisor *sv);
/* error (or NULL) is taken over; OUT_OF_RANGE is a clean end. */
SHOAL_API void shoal_supervisor_request_stop(shoal_supervisor *sv, shoal_status error);
SHOAL_API shoal_coordinator *shoal_supervisor_coordinator(shoal_supervisor *sv);
SHOAL_API shoal_saver *shoal_supervisor_saver(shoal_supervisor *sv); /* NULL: none */
/* Stops the threads, saves a last time (the chief, unless an error was the reason), closes the session, frees sv;
 * returns the error that stopped it. */
SHOAL_API SHOAL_MUST_CHECK shoal_status shoal_supervisor_stop(shoal_supervisor *sv);

#ifdef __cplusplus
}
#endif
#endif
