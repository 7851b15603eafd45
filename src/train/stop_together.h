/* The tasks of a run stop together: who is told to stop tells the others, by the marks on their servers. */
#ifndef TRAIN_STOP_TOGETHER_H
#define TRAIN_STOP_TOGETHER_H

#include <stdatomic.h>

#include "shoal/coordinator.h"
#include "train/run_marks.h"

struct stop_together {
  struct run_marks *marks; /* NULL: there is nobody else, or all meet in every step, and tell each other there */
  bool meets;              /* they do */
  shoal_session *session;
  shoal_coordinator *coordinator;
  bool is_chief;
  int64_t before;          /* what the marks said when the session was made */
  atomic_bool announced;   /* the other tasks know */
  atomic_llong step_since; /* when the step under way began; 0: none */
  atomic_llong step_usual; /* how long the one before took */
};
/* Watches with a thread of the coordinator, for as long as that runs. */
shoal_status stop_together_start(struct stop_together *w, struct run_marks *marks, shoal_session *session,
                                 shoal_coordinator *c, bool is_chief);
/* A step begins (since: clock_ns; the one before took usual_ns), or has ended (0). One that goes on for long after the
 * process was told to stop is without input from then on (stop_hurry); one that still goes on, as when it waits for a
 * chief that has gone, is ended, and the session with it, unless the process is alone. */
void stop_together_step(struct stop_together *w, int64_t since, int64_t usual_ns);
/* This process was told to stop, and has stopped training: makes sure that the others know; the chief waits until no
 * step of theirs comes any more, so that the last checkpoint is of one step for all. */
void stop_together_settle(struct stop_together *w, shoal_out global_step, int64_t step_ns);

#endif
