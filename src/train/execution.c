/* Several steps in one run of a training session (steps_per_execution).
 *
 * Each is the step that the session would have run by itself, with the same feeds, one after another: so they leave the
 * same bits, random numbers included. What comes once for all of them is what stands around a step: hooks with what
 * they fetch, and in clusters the question whether anybody was told to stop, a collective. (Steps unrolled in the
 * graph, or a loop in it, would save the master's part as well, and could not be the same: a random op in a loop goes
 * on with its own numbers, and whoever reads a variable by a node from outside of the loop reads what it was before.)
 *
 * The program's feeds hold the batches of all steps, one behind the other. Steps that a lost task has not taken with it
 * are not run again: the next try goes on behind them. (Not so where tasks meet in every step, and all go back to the
 * checkpoint: one that was started again begins a whole run there, and so do the others.) */
#include "graph/graph.h"
#include "train/train_session.h"

/* ---- for hooks ---- */

int64_t shoal_context_steps(const shoal_run_context *c) { return c->steps; }

void shoal_context_limit_steps(shoal_run_context *c, int64_t most) { c->steps = MAX(MIN(c->steps, most), 1); }

void shoal_context_feed_at(shoal_run_context *c, int64_t at, shoal_out to, shoal_tensor *value) {
  vec_push(&c->each, (struct feed_at){at, {to, shoal_tensor_ref(value)}});
}

void execution_clear(shoal_run_context *c) {
  while (c->each.n) shoal_tensor_unref(vec_pop(&c->each).feed.value);
}

/* ---- one of the steps ---- */

/* One of n equal parts of what is fed; a single number is everybody's. */
static shoal_status cut(const shoal_feed *whole, int64_t part, int64_t n, shoal_tensor **out) {
  shoal_tensor *value = whole->value;
  struct tensor rows;
  if (!value || !whole->to.node || n == 1 || value->t.rank == 0) {
    *out = shoal_tensor_ref(value);
    return NULL;
  }
  int64_t all = value->t.dims[0], each = all / n;
  if (all % n)
    return INVALID("%s:%d is fed %lld rows, which do not divide into batches for %lld steps", whole->to.node->name,
                   whole->to.index, (long long)all, (long long)n);
  tensor_rows(&rows, &value->t, part * each, (part + 1) * each);
  *out = tensor_handle_take(&rows);
  return NULL;
}

/* The feeds of step `at` of this run: the program's part, what hooks feed in all, what they feed in this one. Parts are
 * left in `parts`. */
static shoal_status feed_one(shoal_run_context *c, int64_t at, const feed_list *all, struct step_request *to,
                             tensor_list *parts) {
  for (size_t i = 0; i < all->n; i++) {
    shoal_tensor *value = all->at[i].value;
    if ((int)i < c->own_feeds) {
      TRY(cut(&all->at[i], c->first + at, c->whole, &value));
      vec_push(parts, value);
    }
    TRY(step_feed(to, all->at[i].to, value));
  }
  for (size_t i = 0; i < c->each.n; i++)
    if (c->each.at[i].at == at) TRY(step_feed(to, c->each.at[i].feed.to, c->each.at[i].feed.value));
  return NULL;
}

/* All but the last fetch what the program does, since that may be what a step consists of; hooks see the last one. */
static void ask_as_program(const shoal_run_context *c, struct step_request *to) {
  for (int i = 0; i < c->own_fetches; i++) step_fetch(to, c->step.fetches.at[i]);
  for (size_t i = 0; i < c->step.targets.n; i++) step_target(to, c->step.targets.at[i]);
}

static shoal_status run_one(shoal_run_context *c, int64_t at, const feed_list *all) {
  bool last = at == c->steps - 1;
  struct step_request between = {0}, *step = last ? &c->step : &between;
  tensor_list parts = {0};
  vec_clear(&step->feeds);
  if (!last) ask_as_program(c, step);
  shoal_status e = feed_one(c, at, all, step, &parts);
  if (!e) e = step_run(step, c->session);
  vec_clear(&step->feeds);
  for (size_t i = 0; i < parts.n; i++) shoal_tensor_unref(parts.at[i]);
  vec_release(&parts);
  step_release(&between);
  return e;
}

shoal_status execution_run(shoal_run_context *c, int64_t *done) {
  if (c->whole == 1 && !c->each.n) return step_run(&c->step, c->session);
  feed_list all = {0};
  for (size_t i = 0; i < c->step.feeds.n; i++) vec_push(&all, c->step.feeds.at[i]);
  shoal_status e = NULL;
  for (int64_t at = 0; at < c->steps && !e; at++) {
    e = run_one(c, at, &all);
    if (!e) ++*done;
  }
  vec_release(&all);
  return e;
}
