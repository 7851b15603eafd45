/* Hooks: what happens around the steps of a training session (shoal/train_session.h), with the meaning that
 * TensorFlow's SessionRunHook has. A hook may feed and fetch more in each step, look at what came out, and ask for the
 * end.
 *
 * Order: begin once, before the session (it may add to the graph); after_create whenever a session was made, also
 * after a failure; before_run and after_run around each step; end once, unless training ended with an error;
 * before_close for each session; free. */
#ifndef SHOAL_HOOKS_H
#define SHOAL_HOOKS_H

#include <shoal/coordinator.h>
#include <shoal/saver.h>
#include <shoal/step.h>
#include <shoal/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the model came to be ready. */
typedef enum shoal_made {
  SHOAL_MADE_INITIALIZED, /* this chief gave all variables their initial values */
  SHOAL_MADE_RESTORED,    /* this chief read a checkpoint */
  SHOAL_MADE_REJOINED,    /* this chief found its run alive, and left it as it was */
  SHOAL_MADE_WAITED,      /* the chief, another task, made it ready */
} shoal_made;

typedef struct shoal_created {
  shoal_session *session; /* valid until the next after_create, or end */
  shoal_coordinator *coordinator;
  shoal_graph *graph;
  bool is_chief;
  shoal_made made;
  const char *checkpoint;               /* that was restored; NULL: none */
  int64_t global_step;                  /* -1: the graph has none */
  int64_t stop_at_step;                 /* of the training session; 0: none */
  const shoal_session_options *options; /* what the session was made with: for a second one beside it */
  double max_wait_secs;                 /* for other tasks, as the training session was told */
} shoal_created;

/* One step, for hooks. */
typedef struct shoal_run_context shoal_run_context;

typedef struct shoal_hook {
  void *state;
  /* All optional. */
  shoal_status (*begin)(void *state, shoal_graph *g);
  shoal_status (*after_create)(void *state, const shoal_created *created);
  shoal_status (*before_run)(void *state, shoal_run_context *step);
  shoal_status (*after_run)(void *state, shoal_run_context *step);
  shoal_status (*end)(void *state, shoal_session *session);
  void (*before_close)(void *state); /* the session is about to be closed: whatever still uses it must end first */
  void (*free)(void *state);
} shoal_hook;

/* A hook of one's own by a struct that can grow: shoal_hook itself keeps the layout it has. */
typedef struct shoal_hook_functions {
  size_t size;      /* shoal/options.h */
  const char *name; /* is said with the hook's errors; NULL: nothing is */
  void *state;
  /* All optional, as in shoal_hook. */
  shoal_status (*begin)(void *state, shoal_graph *g);
  shoal_status (*after_create)(void *state, const shoal_created *created);
  shoal_status (*before_run)(void *state, shoal_run_context *step);
  shoal_status (*after_run)(void *state, shoal_run_context *step);
  shoal_status (*end)(void *state, shoal_session *session);
  void (*before_close)(void *state);
  void (*free)(void *state);
} shoal_hook_functions;
/* The name is copied. */
SHOAL_API shoal_hook shoal_hook_of(const shoal_hook_functions *f);

/* In before_run. A fetch returns a number by which after_run gets the value. A feed takes a reference of its own;
 * feeding what the program or another hook feeds is an error of the step. */
SHOAL_API int shoal_context_fetch(shoal_run_context *step, shoal_out what);
SHOAL_API void shoal_context_target(shoal_run_context *step, shoal_op *op);
SHOAL_API void shoal_context_feed(shoal_run_context *step, shoal_out to, shoal_tensor *value);
/* Of a training session with steps_per_execution: how many steps this run has, which a hook may lessen (there is at
 * least one); and a feed for one of them, from 0. What shoal_context_feed feeds is fed in all of them, targets run in
 * all; fetches and traces are of the last. In after_run: how many there were. */
SHOAL_API int64_t shoal_context_steps(const shoal_run_context *step);
SHOAL_API void shoal_context_limit_steps(shoal_run_context *step, int64_t most);
SHOAL_API void shoal_context_feed_at(shoal_run_context *step, int64_t at, shoal_out to, shoal_tensor *value);
/* Collects step stats and (optionally) partition graphs for this step: shoal_context_metadata. */
SHOAL_API void shoal_context_trace(shoal_run_context *step);
/* In after_run: the value fetched; the step keeps it. */
SHOAL_API const shoal_tensor *shoal_context_value(const shoal_run_context *step, int fetch);
/* The same as a number: element 0 of a numeric tensor. */
SHOAL_API double shoal_context_number(const shoal_run_context *step, int fetch);
/* A serialized RunMetadata when some hook asked for a trace, size 0 else; the step keeps it. */
SHOAL_API shoal_bytes shoal_context_metadata(const shoal_run_context *step);
/* At any time. */
SHOAL_API shoal_session *shoal_context_session(const shoal_run_context *step);
SHOAL_API void shoal_context_request_stop(shoal_run_context *step);
SHOAL_API bool shoal_context_stop_requested(const shoal_run_context *step);

/* ---- the hooks there are ----
 * The session takes over what it is given and frees it. "every": whichever of steps and seconds is above 0; both 0
 * takes a default that is named. */

/* Stops after num_steps more steps, or at last_step: the other is 0. */
SHOAL_API shoal_hook shoal_stop_at_step_hook(int64_t num_steps, int64_t last_step);

/* Saves a checkpoint at the start, then every so often (default 600 s), and at the end; and writes the graph. The saver
 * (NULL: one of its own over all variables) stays the caller's. */
SHOAL_API shoal_hook shoal_checkpoint_saver_hook(const char *dir, int64_t save_steps, double save_secs,
                                                 shoal_saver *saver);

/* Writes global_step/sec to event files in dir, every so often (default 100 steps). dir NULL: logs it only. */
SHOAL_API shoal_hook shoal_step_counter_hook(int64_t every_steps, double every_secs, const char *dir);

/* Writes the value of summary (a string scalar; node NULL: all summaries of the graph) every so often (default 100
 * steps). */
SHOAL_API shoal_hook shoal_summary_saver_hook(int64_t save_steps, double save_secs, const char *dir, shoal_out summary);

/* Prints tensors on standard error every so often (default 100 steps), at_end: once more at the end, in a step of their
 * own, which has no feeds. names: what to call them, or NULL. */
SHOAL_API shoal_hook shoal_logging_tensor_hook(const shoal_out *tensors, const char *const *names, int n,
                                               int64_t every_steps, double every_secs, bool at_end);

/* Ends training when loss is not a number: with an error, or cleanly. */
SHOAL_API shoal_hook shoal_nan_tensor_hook(shoal_out loss, bool fail_on_nan);

/* Holds the first step of this worker until the others have come so far. */
SHOAL_API shoal_hook shoal_global_step_waiter_hook(int64_t wait_until_step);

/* Runs once more at the end of training: fetches are stored where they point to, target (or NULL) is run. */
SHOAL_API shoal_hook shoal_final_ops_hook(shoal_fetches fetches, shoal_op *target);

/* Traces a step every so often (default 1000 steps): DIR/timeline-STEP.json for chrome://tracing, and the run metadata
 * as an event. */
SHOAL_API shoal_hook shoal_profiler_hook(int64_t save_steps, double save_secs, const char *dir);

/* One line on standard error, about once a second: step, loss, examples/s, time left, staleness (how many steps of
 * other workers were applied between two of this worker's). On a terminal the line stays in its place. `shoal launch`
 * reads these lines: a program that prints others gets no bar. A training session with progress also says what it
 * restored and saved, how many steps were lost with a task, and how to go on after it was told to stop. */
typedef struct shoal_progress {
  size_t size; /* shoal/options.h */
  const char *label;         /* before the line: "worker 1"; NULL: none */
  shoal_out loss;            /* node NULL: none */
  int64_t examples_per_step; /* of this worker; 0: not shown */
  int64_t last_step;         /* for the time left; 0: not shown */
  double every_secs;         /* 0: 1 */
} shoal_progress;
SHOAL_API shoal_hook shoal_progress_hook(const shoal_progress *p);

#ifdef __cplusplus
}
#endif
#endif
