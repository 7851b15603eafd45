/* Tasks that meet in every step stop in one step, and wait for each other at the end.
 *
 * A task that left by itself would leave the others waiting for it. So what a task was told (SIGTERM) goes around with
 * every step, as the largest of all tasks' answers: all read the same one, in the same step. At the end all meet once
 * more, without a step: only then nobody needs another's server any longer, and the chief saves. */
#include "base/log.h"
#include "base/stop.h"
#include "strategy/strategy.h"

struct meet {
  struct shoal_strategy *strategy;
  shoal_out fed, told; /* this task's answer; the largest of all */
  shoal_out end;       /* which all compute last */
  int fetch;
};

static shoal_status begin(void *state, shoal_graph *g) {
  struct meet *m = state;
  struct shoal_strategy *s = m->strategy;
  graph_push_scope(g, "meet");
  graph_push_control(g, NULL, -1);
  strategy_push_device(g, s, 0);
  m->fed = shoal_placeholder(g, SHOAL_INT32, SHOAL_SCALAR, "stop");
  m->told = reduce_member(g, s, GROUP_FIRSTS, STOP_KEY, SHOAL_REDUCE_MAX, m->fed);
  m->end = reduce_member(g, s, GROUP_FIRSTS, END_KEY, SHOAL_REDUCE_MAX, build_const_int(g, SHOAL_INT32, 0));
  graph_pop_device(g);
  graph_pop_control(g);
  graph_pop_scope(g);
  return NULL;
}

static shoal_status before_run(void *state, shoal_run_context *c) {
  struct meet *m = state;
  int32_t answer = stop_told();
  shoal_tensor *t;
  TRY(shoal_tensor_from(SHOAL_INT32, 0, NULL, &answer, sizeof answer, &t));
  shoal_context_feed(c, m->fed, t);
  shoal_tensor_unref(t);
  m->fetch = shoal_context_fetch(c, m->told);
  return NULL;
}

static shoal_status after_run(void *state, shoal_run_context *c) {
  struct meet *m = state;
  if (shoal_context_number(c, m->fetch) <= 0) return NULL;
  if (!stop_told()) LOGW("another task was told to stop: stopping");
  stop_tell();
  shoal_context_request_stop(c);
  return NULL;
}

/* Who has gone already had everything: that is no error. */
static shoal_status end(void *state, shoal_session *session) {
  struct meet *m = state;
  int32_t nothing;
  shoal_status e = shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(m->end, &nothing), NULL);
  if (e && !status_is_lost_task(e)) return e;
  shoal_status_free(e);
  return NULL;
}

shoal_hook meet_hook(struct shoal_strategy *s) {
  struct meet *m = mem_zalloc(1, sizeof *m);
  m->strategy = s;
  return (shoal_hook){m, .begin = begin, .before_run = before_run, .after_run = after_run, .end = end, .free = free};
}
