/* Steps by outputs: the internal half of shoal/step.h. */
#ifndef TRAIN_STEP_REQUEST_H
#define TRAIN_STEP_REQUEST_H

#include "base/status.h"
#include "base/vec.h"
#include "shoal/step.h"

/* What one step feeds, fetches and runs, gathered from several askers. Values fetched belong to it. */
struct step_request {
  VEC(shoal_feed) feeds; /* values are not owned */
  VEC(shoal_out) fetches;
  VEC(shoal_tensor *) values; /* [fetches.n] after the run */
  VEC(const shoal_op *) targets;
  shoal_run_options options;
  shoal_bytes metadata; /* when options ask for a trace */
};
/* The number of the fetch; one that is there already is found again. */
int step_fetch(struct step_request *s, shoal_out what);
void step_target(struct step_request *s, const shoal_op *op);
shoal_status step_feed(struct step_request *s, shoal_out to, shoal_tensor *value);
shoal_status step_run(struct step_request *s, shoal_session *session);
/* Forgets everything but the memory. */
void step_clear(struct step_request *s);
void step_release(struct step_request *s);

/* What a function of the API, `func`, was given; after the run, what it fetched goes where it says: all of it, or,
 * where a value does not fit its place, nothing. */
shoal_status step_ask(struct step_request *s, const char *func, shoal_feeds feeds, shoal_fetches fetches,
                      const shoal_op *target);
shoal_status step_store(struct step_request *s, shoal_fetches fetches);
/* Element 0 of a numeric tensor; NaN when there is none. */
double tensor_number(const shoal_tensor *t);
/* Runs one op, or fetches one scalar integer: what session managers and hooks do all the time. */
shoal_status session_run_op(shoal_session *s, const shoal_op *op);
shoal_status session_get_int(shoal_session *s, shoal_out what, int64_t *out);

#endif
