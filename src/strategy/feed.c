/* Batches by the step counter, which all tasks share, until those of all tasks have ended.
 *
 * A task asks for the batch behind the one it feeds, and tells the others in the step whether there is one: so all know
 * in the last step with data that it is the last, and none is run without any. What was asked for ahead is fed next. */
#include <string.h>

#include "strategy/strategy.h"
#include "train/hooks.h"
#include "train/step_request.h"

struct feed {
  struct shoal_strategy *strategy;
  shoal_out *to;
  int n;
  shoal_input_fill *fill;
  void *arg;
  shoal_out used;          /* batches before this session */
  struct poll any_more[2]; /* has anybody a batch at the beginning; has anybody one after this? */
  int64_t position;
  shoal_tensor **now, **ahead;   /* [n] batches of this position and the next; [0] NULL: there is none */
  shoal_status no_now, no_ahead; /* why they could not be made: an error of the step that would use them */
  bool over;                     /* nobody has a batch of this position */
  int fetch;
};

static void drop(struct feed *f, shoal_tensor **values) {
  for (int i = 0; i < f->n; i++) {
    shoal_tensor_unref(values[i]);
    values[i] = NULL;
  }
}

static shoal_status begin(void *state, shoal_graph *g) {
  struct feed *f = state;
  if (!f->fill) return INVALID("shoal_strategy_input_hook: fill is NULL");
  if (f->n < 1 || !f->to) return INVALID("shoal_strategy_input_hook: there is nothing to feed");
  poll_build_feed(g, f->strategy, "any_batch", "more_batches", f->any_more);
  return hook_input_position(g, "shoal_strategy_input_hook", &f->used);
}

/* The batch of a position; that there is none is no error. */
static shoal_status get(struct feed *f, int64_t position, shoal_tensor **values) {
  drop(f, values);
  shoal_status e = f->fill(f->arg, position, values);
  if (!e && !values[0])
    e = INVALID("shoal_strategy_input_hook: fill made no batch of position %lld", (long long)position);
  if (shoal_status_code(e) != SHOAL_OUT_OF_RANGE) return e;
  shoal_status_free(e);
  drop(f, values);
  return NULL;
}

static void forget_errors(struct feed *f) {
  shoal_status_free(f->no_now);
  shoal_status_free(f->no_ahead);
  f->no_now = f->no_ahead = NULL;
}

static shoal_status after_create(void *state, const shoal_created *c) {
  struct feed *f = state;
  int32_t any;
  forget_errors(f);
  TRY(session_get_int(c->session, f->used, &f->position));
  TRY(get(f, f->position, f->now));
  f->no_ahead = get(f, f->position + 1, f->ahead);
  TRY(poll_run(&f->any_more[0], c->session, f->now[0] != NULL, &any));
  f->over = !any;
  return NULL;
}

/* No rows of what a place is for. */
static shoal_status make_empty(shoal_out to, shoal_tensor **out) {
  struct shape shape = out_shape(to);
  if (shape.rank < 1) return INVALID("'%s' gets batches: its shape must be known but for the rows", to.node->name);
  shape.dims[0] = 0;
  for (int i = 1; i < shape.rank; i++)
    if (shape.dims[i] < 0) return INVALID("'%s' gets batches: its shape must be known but for the rows", to.node->name);
  return shoal_tensor_new(out_type(to), shape.rank, shape.dims, out);
}

static shoal_status before_run(void *state, shoal_run_context *c) {
  struct feed *f = state;
  if (f->over) return STATUS(SHOAL_OUT_OF_RANGE, "the batches of all tasks have ended");
  shoal_status e = f->no_now;
  f->no_now = NULL;
  TRY(e);
  shoal_context_limit_steps(c, 1); /* whether there is another one, tasks tell each other in every step */
  for (int i = 0; i < f->n; i++) {
    if (!f->now[i]) TRY(make_empty(f->to[i], &f->now[i]));
    shoal_context_feed(c, f->to[i], f->now[i]);
  }
  f->fetch = shoal_context_fetch(c, f->any_more[1].most);
  return poll_feed(&f->any_more[1], c, f->ahead[0] || f->no_ahead);
}

static shoal_status after_run(void *state, shoal_run_context *c) {
  struct feed *f = state;
  shoal_tensor **used = f->now;
  f->over = shoal_context_number(c, f->fetch) <= 0;
  if (f->over) shoal_context_request_stop(c);
  f->now = f->ahead;
  f->ahead = used;
  f->no_now = f->no_ahead;
  f->no_ahead = NULL;
  f->position++;
  drop(f, f->ahead);
  if (f->now[0] && !f->no_now) f->no_ahead = get(f, f->position + 1, f->ahead);
  return NULL;
}

static void release(void *state) {
  struct feed *f = state;
  drop(f, f->now);
  drop(f, f->ahead);
  forget_errors(f);
  free(f->now);
  free(f->ahead);
  free(f->to);
  free(f);
}

shoal_hook shoal_strategy_input_hook(shoal_strategy *s, const shoal_out *to, int n, shoal_input_fill *fill, void *arg) {
  struct feed *f = mem_zalloc(1, sizeof *f);
  *f = (struct feed){.strategy = s, .n = to && n > 0 ? n : 0, .fill = fill, .arg = arg};
  f->to = mem_zalloc((size_t)f->n + 1, sizeof *f->to);
  f->now = mem_zalloc((size_t)f->n + 1, sizeof *f->now);
  f->ahead = mem_zalloc((size_t)f->n + 1, sizeof *f->ahead);
  if (f->n) memcpy(f->to, to, (size_t)f->n * sizeof *to);
  return (shoal_hook){f,
                      .begin = begin,
                      .after_create = after_create,
                      .before_run = before_run,
                      .after_run = after_run,
                      .free = release};
}
