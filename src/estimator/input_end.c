/* The input of tasks that train in step with each other: all end together.
 *
 * A step in which one task's input has ended would fail there, while the others wait in it for that task's gradients.
 * So a batch leaves the graph in a step of its own and is fed; a task asks for the batch behind the one it feeds, and
 * tells the others in the step whether there is one. Where the input of one task ends, that was the last step of all.
 * What others still have is left: they could go on beside empty batches (strategy/feed.c), but a model's loss is the
 * mean over its batch in most cases, and an empty one has none. */
#include <stdlib.h>
#include <string.h>

#include "estimator/estimator.h"
#include "strategy/strategy.h"
#include "train/step_request.h"

struct common_end {
  shoal_strategy *strategy;
  shoal_out *from, *to; /* [n] */
  int n;
  shoal_session *session;
  struct poll none_last[2];    /* has anybody no batch at the beginning; none after this one? */
  shoal_tensor **now, **ahead; /* [n]; [0] NULL: there is none */
  bool over;
  int fetch;
};

static void drop(const struct common_end *t, shoal_tensor **values) {
  for (int i = 0; i < t->n; i++) {
    shoal_tensor_unref(values[i]);
    values[i] = NULL;
  }
}

/* The next batch; that there is none is no error. */
static shoal_status take(struct common_end *t, shoal_tensor **values) {
  struct step_request r = {0};
  drop(t, values);
  for (int i = 0; i < t->n; i++) step_fetch(&r, t->from[i]);
  shoal_status e = step_run(&r, t->session);
  for (int i = 0; i < t->n && !e; i++) values[i] = shoal_tensor_ref(r.values.at[step_fetch(&r, t->from[i])]);
  step_release(&r);
  if (shoal_status_code(e) != SHOAL_OUT_OF_RANGE) return e;
  shoal_status_free(e);
  return NULL;
}

static shoal_status begin(void *state, shoal_graph *g) {
  struct common_end *t = state;
  poll_build_feed(g, t->strategy, "no_batch", "last_batch", t->none_last);
  return NULL;
}

static shoal_status after_create(void *state, const shoal_created *c) {
  struct common_end *t = state;
  int32_t none;
  t->session = c->session;
  TRY(take(t, t->now));
  drop(t, t->ahead);
  if (t->now[0]) TRY(take(t, t->ahead));
  TRY(poll_run(&t->none_last[0], c->session, !t->now[0], &none));
  t->over = none;
  return NULL;
}

static shoal_status before_run(void *state, shoal_run_context *c) {
  struct common_end *t = state;
  if (t->over) return STATUS(SHOAL_OUT_OF_RANGE, "the input of a task has ended");
  shoal_context_limit_steps(c, 1);
  for (int i = 0; i < t->n; i++) shoal_context_feed(c, t->to[i], t->now[i]);
  t->fetch = shoal_context_fetch(c, t->none_last[1].most);
  return poll_feed(&t->none_last[1], c, !t->ahead[0]);
}

static shoal_status after_run(void *state, shoal_run_context *c) {
  struct common_end *t = state;
  shoal_tensor **used = t->now;
  t->over = shoal_context_number(c, t->fetch) > 0;
  t->now = t->ahead;
  t->ahead = used;
  drop(t, t->ahead);
  if (!t->over) return take(t, t->ahead);
  shoal_context_request_stop(c);
  return NULL;
}

static void release(void *state) {
  struct common_end *t = state;
  drop(t, t->now);
  drop(t, t->ahead);
  free(t->now);
  free(t->ahead);
  free(t->from);
  free(t->to);
  free(t);
}

shoal_hook input_common_end(struct shoal_graph *g, shoal_strategy *s, shoal_out *values, int n) {
  struct common_end *t = mem_zalloc(1, sizeof *t);
  *t = (struct common_end){.strategy = s, .n = n};
  t->from = mem_zalloc((size_t)n, sizeof *t->from);
  t->to = mem_zalloc((size_t)n, sizeof *t->to);
  t->now = mem_zalloc((size_t)n, sizeof *t->now);
  t->ahead = mem_zalloc((size_t)n, sizeof *t->ahead);
  graph_push_scope(g, "input");
  graph_push_control(g, NULL, -1);
  for (int i = 0; i < n && !graph_error(g); i++) {
    struct shape shape = out_shape(values[i]);
    t->from[i] = values[i];
    t->to[i] = values[i] = shoal_placeholder(g, out_type(values[i]), (shoal_dims){shape.rank, shape.dims}, "batch");
  }
  graph_pop_control(g);
  graph_pop_scope(g);
  return (shoal_hook){t,
                      .begin = begin,
                      .after_create = after_create,
                      .before_run = before_run,
                      .after_run = after_run,
                      .free = release};
}
