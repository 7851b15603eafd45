/* Tasks that meet in every step stop in one step, and wait for each other at the end.
 *
 * A task that left by itself would leave the others waiting for it. So what a task was told (SIGTERM) goes around with
 * every step, as the largest of all tasks' answers: all read the same one, in the same step. At the end all meet once
 * more, without a step, and the chief saves, for which it may need the others' servers. They stay until it has: if it
 * is lost before that, all are to be run again, and go on from the last checkpoint. When all have met behind that
 * nothing can be lost any more; so that all know, they meet a last time. */
#include "base/log.h"
#include "base/stop.h"
#include "strategy/strategy.h"

struct meet {
  struct shoal_strategy *strategy;
  struct poll stop;  /* was anybody told to? */
  struct poll end;   /* asked last */
  struct poll go;    /* behind that */
  struct poll alike; /* asked first */
  int fetch;
};

/* ---- one question to all ---- */

struct poll poll_build(struct shoal_graph *g, struct shoal_strategy *s, const char *name, int key) {
  struct poll p;
  graph_push_scope(g, name);
  graph_push_control(g, NULL, -1);
  strategy_push_device(g, s, 0);
  p.fed = shoal_placeholder(g, SHOAL_INT32, SHOAL_SCALAR, "answer");
  p.most = reduce_member(g, s, GROUP_FIRSTS, key, SHOAL_REDUCE_MAX, p.fed);
  graph_pop_device(g);
  graph_pop_control(g);
  graph_pop_scope(g);
  return p;
}

/* Keys go by the place among the session's such hooks: the same in all tasks. */
void poll_build_feed(struct shoal_graph *g, struct shoal_strategy *s, const char *before, const char *in_each,
                     struct poll polls[2]) {
  int first = FIRST_FEED_KEY + 2 * s->feeds++;
  polls[0] = poll_build(g, s, before, first);
  polls[1] = poll_build(g, s, in_each, first + 1);
}

shoal_status poll_feed(const struct poll *p, shoal_run_context *c, int answer) {
  shoal_tensor *t;
  TRY(shoal_tensor_from(SHOAL_INT32, 0, NULL, &(int32_t){answer}, sizeof(int32_t), &t));
  shoal_context_feed(c, p->fed, t);
  shoal_tensor_unref(t);
  return NULL;
}

shoal_status poll_run(const struct poll *p, shoal_session *session, int answer, int32_t *most) {
  shoal_tensor *t;
  TRY(shoal_tensor_from(SHOAL_INT32, 0, NULL, &(int32_t){answer}, sizeof(int32_t), &t));
  shoal_status e = shoal_session_step(session, SHOAL_FEED(p->fed, t), SHOAL_FETCH(p->most, most), NULL);
  shoal_tensor_unref(t);
  return e;
}

/* ---- the hook ---- */

static shoal_status begin(void *state, shoal_graph *g) {
  struct meet *m = state;
  m->stop = poll_build(g, m->strategy, "told_to_stop", STOP_KEY);
  m->end = poll_build(g, m->strategy, "at_the_end", END_KEY);
  return NULL;
}

static shoal_status before_run(void *state, shoal_run_context *c) {
  struct meet *m = state;
  m->fetch = shoal_context_fetch(c, m->stop.most);
  return poll_feed(&m->stop, c, stop_told());
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
static shoal_status wait_for_all(const struct poll *p, shoal_session *session) {
  int32_t nothing;
  shoal_status e = poll_run(p, session, 0, &nothing);
  if (e && !status_is_lost_task(e)) return e;
  shoal_status_free(e);
  return NULL;
}

static shoal_status end(void *state, shoal_session *session) {
  struct meet *m = state;
  return wait_for_all(&m->end, session);
}

shoal_hook meet_hook(struct shoal_strategy *s) {
  struct meet *m = mem_zalloc(1, sizeof *m);
  m->strategy = s;
  return (shoal_hook){m, .begin = begin, .before_run = before_run, .after_run = after_run, .end = end, .free = free};
}

/* ---- staying ---- */

static shoal_status stay_begin(void *state, shoal_graph *g) {
  struct meet *m = state;
  m->strategy->feeds = 0; /* this hook is a session's first */
  m->end = poll_build(g, m->strategy, "stay", STAY_KEY);
  m->go = poll_build(g, m->strategy, "go", GO_KEY);
  m->alike = agree_build_session(g, m->strategy);
  return NULL;
}

static shoal_status stay_created(void *state, const shoal_created *c) {
  struct meet *m = state;
  return agree_on_session(m->strategy, &m->alike, c->session);
}

/* Nobody is beyond the first of these before all have come to it: who is lost there was lost before. The chief does not
 * mind: it has saved. */
static shoal_status stay_end(void *state, shoal_session *session) {
  struct meet *m = state;
  int32_t nothing;
  shoal_status e = poll_run(&m->end, session, 0, &nothing);
  if (!e) return wait_for_all(&m->go, session);
  if (!status_is_lost_task(e)) return e;
  if (!m->strategy->rules.is_chief) return status_prefix(e, "a task was lost before the chief had saved: ");
  shoal_status_free(e);
  return NULL;
}

shoal_hook stay_hook(struct shoal_strategy *s) {
  struct meet *m = mem_zalloc(1, sizeof *m);
  m->strategy = s;
  return (shoal_hook){m, .begin = stay_begin, .after_create = stay_created, .end = stay_end, .free = free};
}
