/* Early stopping: the chief looks at what evaluations have found, now and then, and sets a variable once a rule says
 * so; every worker reads it with each step and stops when it is set. The variable has TensorFlow's name and is in
 * checkpoints: whoever evaluates the last one knows that there will be no other.
 *
 * Under a strategy each replica has a copy of the variable, and the chief sets its own. What is read with each step is
 * the sum over all copies, which all tasks get in the same step: so they stop after one and the same. */
#include "estimator/estimator.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/options.h"
#include "checkpoint/bundle.h"
#include "train/variables.h"

static const char stop_name[] = "signal_early_stopping/STOP";

struct early_stop {
  shoal_early_stopping o;
  char *dir, *metric;
  bool is_chief;
  shoal_out told; /* the variable's value, or over all replicas the sum of theirs */
  shoal_op *set;
  int64_t looked; /* at this time; 0: never */
  int fetch;
  bool stopped; /* by this chief */
};

/* What evaluations found. */
struct history {
  VEC(struct past_result {
    int64_t step;
    double value;
    size_t order; /* in which it was found */
  })
  all;
};

static void remember(void *arg, int64_t step, double value) {
  struct history *h = arg;
  vec_push(&h->all, (struct past_result){step, value, h->all.n});
}

static int by_step(const void *a, const void *b) {
  const struct past_result *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return x->order < y->order ? -1 : x->order > y->order;
}

/* As TensorFlow's hooks have it: by steps, each as it was found last, for a run may have gone back to an older
 * checkpoint; those before min_steps are no best of any. */
static bool is_over(const struct history *h, const shoal_early_stopping *o) {
  bool less = o->rule == SHOAL_STOP_NO_DECREASE || o->rule == SHOAL_STOP_BELOW;
  bool target = o->rule == SHOAL_STOP_BELOW || o->rule == SHOAL_STOP_ABOVE;
  const struct past_result *best = NULL;
  for (size_t i = 0; i < h->all.n; i++) {
    const struct past_result *f = &h->all.at[i];
    if (f->step < o->min_steps || (i + 1 < h->all.n && f[1].step == f->step)) continue;
    double than = target ? o->target : best ? best->value : NAN;
    bool better = less ? f->value < than : f->value > than;
    if (target && better) return true;
    if (!best || better) best = f;
    if (!target && f->step - best->step >= (o->patience ? o->patience : 1)) return true;
  }
  return false;
}

static shoal_status should_stop(struct early_stop *s, bool *stop) {
  struct history h = {0};
  shoal_status e = results_read(s->dir, s->metric, remember, &h);
  if (h.all.n) qsort(h.all.at, h.all.n, sizeof *h.all.at, by_step);
  *stop = !e && is_over(&h, &s->o);
  vec_release(&h.all);
  return e;
}

static shoal_status before_run(void *state, shoal_run_context *step) {
  struct early_stop *s = state;
  s->fetch = shoal_context_fetch(step, s->told);
  return NULL;
}

static bool is_time(struct early_stop *s) {
  int64_t now = clock_ns(), every = (int64_t)((s->o.every_secs > 0 ? s->o.every_secs : 60) * 1e9);
  if (s->o.every_secs >= 0 && s->looked && now < s->looked + every) return false;
  s->looked = now;
  return true;
}

/* The chief, too, stops with the step after it has set the variable: the last checkpoint is of another step than the
 * one that was evaluated, and has it. */
static shoal_status after_run(void *state, shoal_run_context *step) {
  struct early_stop *s = state;
  if (shoal_context_number(step, s->fetch) != 0) shoal_context_request_stop(step);
  if (!s->stopped && s->is_chief && is_time(s)) {
    TRY(should_stop(s, &s->stopped));
    if (s->stopped) TRY(shoal_session_step(shoal_context_session(step), SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, s->set));
  }
  return NULL;
}

static void stopping_free(void *state) {
  struct early_stop *s = state;
  free(s->dir);
  free(s->metric);
  free(s);
}

shoal_var early_stopping_variable(struct shoal_graph *g) {
  return shoal_variable_untrained(g, stop_name, shoal_constant_bool(g, false));
}

shoal_status early_stopping_add(struct shoal_graph *g, struct shoal_estimator *e, const shoal_early_stopping *given,
                                bool is_chief, shoal_var stop, shoal_out told, shoal_hook *hook) {
  struct early_stop *s = mem_zalloc(1, sizeof *s);
  shoal_status bad = OPTIONS_TAKE(shoal_early_stopping, every_secs, &s->o, given);
  if (!bad && ((int)s->o.rule < 0 || s->o.rule > SHOAL_STOP_ABOVE || s->o.patience < 0))
    bad = INVALID("early stopping: rule %d, patience %lld", (int)s->o.rule, (long long)s->o.patience);
  if (bad) {
    stopping_free(s);
    return bad;
  }
  s->is_chief = is_chief;
  s->dir = estimator_eval_dir(e, s->o.eval_name);
  s->metric = mem_strdup(s->o.metric ? s->o.metric : "loss");
  s->o.metric = s->o.eval_name = NULL;
  if (!graph_error(g)) {
    s->set = shoal_variable_assign(g, stop, shoal_constant_bool(g, true));
    s->told = told;
  }
  *hook = shoal_hook_of(SHOAL_OPTIONS(shoal_hook_functions, .name = "early stopping", .state = s,
                                      .before_run = before_run, .after_run = after_run, .free = stopping_free));
  return NULL;
}

bool early_stopped(const char *prefix) {
  struct bundle b;
  struct tensor t;
  bool stopped = false;
  shoal_status s = bundle_open(&b, prefix);
  if (!s) {
    s = bundle_read(&b, stop_name, sizeof stop_name - 1, &t);
    if (!s) {
      stopped = t.dtype == SHOAL_BOOL && tensor_bytes(&t) == 1 && *(const bool *)t.data;
      tensor_release(&t);
    }
    bundle_close(&b);
  }
  shoal_status_free(s);
  return stopped;
}
