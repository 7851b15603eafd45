/* The tasks of a run stop together: who is told to stop tells the others, by the marks on their servers. */
#ifndef TRAIN_STOP_WATCH_H
#define TRAIN_STOP_WATCH_H

#include <stdatomic.h>

#include "shoal/coordinator.h"
#include "train/run_marks.h"

struct stop_watch {
  struct run_marks *marks; /* NULL: there is nobody else */
  shoal_session *session;
  shoal_coordinator *coordinator;
  int64_t before;        /* what the marks said when the session was made */
  atomic_bool announced; /* the other tasks know */
};
/* Watches with a thread of the coordinator, for as long as that runs. */
shoal_status stop_watch_start(struct stop_watch *w, struct run_marks *marks, shoal_session *session,
                              shoal_coordinator *c);
/* This process was told to stop, and has stopped training: makes sure that the others know; the chief waits until no
 * step of theirs comes any more, so that the last checkpoint is of one step for all. */
void stop_watch_settle(struct stop_watch *w, bool is_chief, shoal_out global_step, int64_t step_ns);

#endif
