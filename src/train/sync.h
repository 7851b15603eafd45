/* The parts of synchronous training: what the three modes share (sync.c), the chief's threads (sync_runner.c), one file
 * for each mode. */
#ifndef TRAIN_SYNC_H
#define TRAIN_SYNC_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/ref.h"
#include "base/vec.h"
#include "graph/builder.h"
#include "shoal/sync.h"

/* How long a chief that is told to stop stays for the others, who are told so, too. */
enum { SYNC_LEAVE_MS = 10000 };

/* ---- the chief's threads ---- */

/* One thread runs step over and over; another looks when it does not come forward. They have a session of their own, so
 * that closing it ends a step that waits for gradients which will never come. */
struct sync_runner;
struct sync_runner_options {
  const shoal_created *created;
  void *arg;
  shoal_status (*step)(void *arg, shoal_session *own,
                       bool *worked); /* worked: set to false when there was none to do */
  void (*stalled)(void *arg,
                  shoal_session *own);          /* (optional) called again and again while a step outlasts the lease */
  void (*looks)(void *arg, shoal_session *own); /* (optional) called ten times a second */
  int64_t lease_ms;
};
shoal_status sync_runner_start(const struct sync_runner_options *o, struct sync_runner **out);
/* Returns when no step was completed for so long, or soon after the process was told to stop. */
void sync_runner_linger(struct sync_runner *r, int64_t idle_ms);
/* Is there nothing more to expect of it? */
bool sync_runner_failed(struct sync_runner *r);
/* Ends the threads, also in the middle of a step; frees r. NULL: does nothing. */
void sync_runner_stop(struct sync_runner *r);

/* ---- signs of life (sync_beat.c) ---- */

/* A thread of every worker. It runs op a few times in the time of a lease, whatever the worker is doing: who does not
 * beat for a whole lease is dead. And while a step of the worker's takes long, it looks for signs of the chief's life:
 * says so when there are none, and after the time that tasks may be away ends the session with an error. When all steps
 * are done, a chief may have gone before it gave the last tokens: then the worker gives itself one. */
struct sync_beat;
struct sync_beat_options {
  const shoal_created *created;
  const shoal_op *op;   /* (optional) */
  const shoal_op *last; /* (optional): gives what this worker waits for, after the last step */
  int64_t lease_ms;
  const atomic_llong *step_began; /* clock_ns; 0: no step is under way. (optional): the chief is not looked for */
  shoal_out step, chief_beats;    /* what changes while the chief lives; beats are (optional) */
};
shoal_status sync_beat_start(const struct sync_beat_options *o, struct sync_beat **out);
void sync_beat_stop(struct sync_beat *b); /* NULL: does nothing */

/* Waiting for something that the chief does, outside of steps: pauses, says now and then what for, and is an error when
 * the process is told to stop or the time that tasks may be away is over. */
struct sync_wait {
  const char *what;
  int64_t began, deadline, said;
};
void sync_wait_begin(struct sync_wait *w, const shoal_created *created, const char *what);
shoal_status sync_wait_pause(struct sync_wait *w, int ms);

/* ---- modes ---- */

struct shoal_sync_replicas {
  struct shoal_graph *g;
  shoal_optimizer optimizer;
  shoal_sync_options o;
  struct ref refs;
  const struct sync_mode *mode;
  shoal_var step;
  shoal_op *train; /* NULL until built */
  bool is_chief, too_late;
  struct sync_runner *runner; /* the chief's, while there is a session */
  struct sync_beat *beat;     /* while there is a session */
  atomic_llong step_began;    /* clock_ns; 0: none is under way */
  shoal_out chief_beats;      /* tokens, strict */

  /* tokens */
  shoal_var local_step, stale;
  shoal_op *local_init, *chief_init, *init_tokens, *chief_op, *give_back, *close_tokens, *destroy_tokens;
  shoal_op *chief_beat, *chief_beat_init;
  shoal_out tokens_closed, situation /* [gradients there, tokens there, global step] */, more_fed;
  shoal_op *more; /* puts more_fed tokens */

  /* strict */
  struct strict *strict;

  /* bounded */
  struct bounded *bounded;
};

struct sync_mode {
  const char *name;
  bool (*check)(const shoal_sync_options *o); /* do the options make sense? */
  shoal_op *(*build)(shoal_sync_replicas *s, const shoal_var *vars, const shoal_gradient *grads, int n);
  shoal_status (*created)(shoal_sync_replicas *s, const shoal_created *c);
  /* (optional) in place of created and end, in a worker that finds all steps taken */
  shoal_status (*too_late)(shoal_sync_replicas *s, shoal_session *session);
  shoal_status (*before_run)(shoal_sync_replicas *s, shoal_run_context *c); /* (optional) */
  shoal_status (*end)(shoal_sync_replicas *s, shoal_session *session);
  void (*release)(shoal_sync_replicas *s); /* (optional) */
};
extern const struct sync_mode sync_tokens, sync_strict, sync_bounded;

/* Scope of the device that a node is on. */
void sync_push_device_of(struct shoal_graph *g, const struct shoal_node *n);
/* A queue that all workers know by this name, on the current device. */
shoal_out sync_queue(struct shoal_graph *g, const char *name, const shoal_dtype *types, const struct shape *shapes,
                     int n);
shoal_out sync_enqueue(struct shoal_graph *g, shoal_out queue, const shoal_out *values, int n, bool many);
struct shoal_node *sync_dequeue(struct shoal_graph *g, shoal_out queue, const shoal_dtype *types, int n);

#endif
