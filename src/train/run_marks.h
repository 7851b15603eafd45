/* What run_marks.c offers besides train_session.h: asking a run to stop, saying that it is done. */
#ifndef TRAIN_RUN_MARKS_H
#define TRAIN_RUN_MARKS_H

#include "shoal/session.h"

struct run_marks;

/* Makes sure that every task has its stop mark (tasks that were restarted have none), and that none says done. */
shoal_status run_marks_ready(struct run_marks *m, shoal_session *session);
/* How often this run was asked to stop, over all tasks. */
shoal_status run_marks_stops(struct run_marks *m, shoal_session *session, int64_t *sum);
shoal_status run_marks_request_stop(struct run_marks *m, shoal_session *session);
/* The chief has ended the training: parameter servers that wait for that may go. */
shoal_status run_marks_done(struct run_marks *m, shoal_session *session, bool done);

#endif
