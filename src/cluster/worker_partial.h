/* Partial runs as a worker sees them: a master drives one step of a partition by several RunGraph calls, each with some
 * of the values that go in and some of those that come out. The step runs from the first call on; only the last one
 * waits for its end. (Our own master runs partial steps in one RunGraph; TensorFlow's does it so.) */
#ifndef CLUSTER_WORKER_PARTIAL_H
#define CLUSTER_WORKER_PARTIAL_H

#include "cluster/worker.h"

/* The step's run, started if this is the first call for it; a reference. session and graph get references of their
 * own. RESOURCE_EXHAUSTED when there are too many, INVALID_ARGUMENT when the step is another session's. */
shoal_status partial_run_join(struct worker *w, int64_t step, struct worker_session *session,
                              struct worker_graph *graph, struct rendezvous *rendezvous, struct partial_run **out);
void partial_run_unref(struct partial_run *p);
/* The last call: done gets a copy of the run's error when it has ended, perhaps at once; and the step is forgotten. A
 * second last call is FAILED_PRECONDITION. */
void partial_run_finish(struct partial_run *p, void (*done)(void *arg, shoal_status s), void *arg);
void partial_run_cancel(struct partial_run *p, shoal_status why);
/* The step is cleaned up: a run that still goes on is cancelled. */
void partial_run_forget(struct worker *w, int64_t step);
/* For stopping: cancels all and waits for their end. */
void partial_runs_stop(struct worker *w);

#endif
