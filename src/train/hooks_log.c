/* Hooks that talk to people: LoggingTensor, progress. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/options.h"
#include "base/text.h"
#include "graph/graph.h"
#include "tensor/summarize.h"
#include "train/hooks.h"
#include "train/progress.h"
#include "train/step_request.h"

/* ---- LoggingTensor ---- */

struct logging {
  shoal_out *tensors;
  char **names;
  int n;
  struct timer timer;
  bool at_end;
  int *fetches;
  int64_t steps; /* of this process */
  bool requested;
  int64_t last_ns;
};

static void put_value(struct text *t, const shoal_tensor *v) {
  enum { SHOWN = 6 };
  if (!v) text_adds(t, "nothing");
  else if (v->t.n == 1 && !isnan(tensor_number(v))) text_addf(t, "%.9g", tensor_number(v));
  else tensor_summarize(&v->t, SHOWN, false, t);
}

static void print(struct logging *s, const struct step_request *step, const shoal_run_context *c) {
  struct text t = {0};
  for (int i = 0; i < s->n; i++) {
    text_addf(&t, "%s%s = ", i ? ", " : "", s->names[i]);
    put_value(&t, step ? step->values.at[s->fetches[i]] : shoal_context_value(c, s->fetches[i]));
  }
  int64_t now = clock_ns();
  if (s->last_ns) text_addf(&t, " (%.3f sec)", (double)(now - s->last_ns) * 1e-9);
  s->last_ns = now;
  fprintf(stderr, "%s\n", text_cstr(&t));
  text_release(&t);
}

static shoal_status logging_before(void *state, shoal_run_context *c) {
  struct logging *s = state;
  s->requested = timer_due(&s->timer, s->steps) && (s->timer.steps > 0 || s->timer.secs > 0);
  for (int i = 0; i < s->n && s->requested; i++) s->fetches[i] = shoal_context_fetch(c, s->tensors[i]);
  return NULL;
}

static shoal_status logging_after(void *state, shoal_run_context *c) {
  struct logging *s = state;
  if (s->requested) {
    timer_set_off(&s->timer, s->steps, NULL, NULL);
    print(s, NULL, c);
  }
  s->steps += shoal_context_steps(c);
  return NULL;
}

static shoal_status logging_end(void *state, shoal_session *session) {
  struct logging *s = state;
  if (!s->at_end) return NULL;
  struct step_request step = {0};
  for (int i = 0; i < s->n; i++) s->fetches[i] = step_fetch(&step, s->tensors[i]);
  shoal_status e = step_run(&step, session);
  if (!e) print(s, &step, NULL);
  step_release(&step);
  return status_prefix(e, "tensors cannot be logged at the end, in a step without feeds: ");
}

static void logging_free(void *state) {
  struct logging *s = state;
  for (int i = 0; i < s->n; i++) free(s->names[i]);
  free(s->names);
  free(s->tensors);
  free(s->fetches);
  free(s);
}

shoal_hook shoal_logging_tensor_hook(const shoal_out *tensors, const char *const *names, int n, int64_t every_steps,
                                     double every_secs, bool at_end) {
  struct logging *s = mem_zalloc(1, sizeof *s);
  *s = (struct logging){.n = n, .at_end = at_end, .timer = timer_every(every_steps, every_secs, at_end ? 0 : 100, 0)};
  s->tensors = mem_zalloc((size_t)n + 1, sizeof *s->tensors);
  s->names = mem_zalloc((size_t)n + 1, sizeof *s->names);
  s->fetches = mem_zalloc((size_t)n + 1, sizeof *s->fetches);
  for (int i = 0; i < n; i++) {
    if (tensors) s->tensors[i] = tensors[i];
    const char *node = s->tensors[i].node ? s->tensors[i].node->name : "nothing";
    s->names[i] = mem_strdup(names && names[i] ? names[i] : node);
  }
  return (shoal_hook){s, .before_run = logging_before, .after_run = logging_after, .end = logging_end,
                      .free = logging_free};
}

/* ---- progress ---- */

struct progress {
  shoal_progress what;
  char *label;
  shoal_out global_step;
  int step_fetch, loss_fetch;
  int64_t began_ns, next_ns, shown_ns; /* the first session's; when the next line is due; when the last was shown */
  int64_t own, shown_own;              /* steps of this worker */
  int64_t last_step, shown_step;       /* of all workers; -1: not known */
  struct progress_rate rate;           /* of all workers */
  double loss;                         /* smoothed */
  double staleness;                    /* smoothed */
  bool terminal, told;                 /* told: that the loss is no number any more */
  shoal_status refused;                /* why the options are none; NULL: they are good */
};

static shoal_status progress_begin(void *state, shoal_graph *g) {
  struct progress *s = state;
  if (s->refused) return status_copy(s->refused);
  return hook_global_step(g, "progress", &s->global_step);
}

static shoal_status progress_created(void *state, const shoal_created *c) {
  struct progress *s = state;
  s->last_step = -1;
  s->shown_ns = clock_ns();
  if (!s->began_ns) s->began_ns = s->shown_ns;
  s->shown_own = s->own;
  s->shown_step = c->global_step;
  return NULL;
}

static shoal_status progress_before(void *state, shoal_run_context *c) {
  struct progress *s = state;
  s->step_fetch = shoal_context_fetch(c, s->global_step);
  if (s->what.loss.node) s->loss_fetch = shoal_context_fetch(c, s->what.loss);
  return NULL;
}

/* The last line is about the whole run. */
static void show(struct progress *s, int64_t now, bool last) {
  double secs = (double)(now - s->shown_ns) * 1e-9, all = (double)(now - s->began_ns) * 1e-9;
  progress_rate_add(&s->rate, s->last_step - s->shown_step, secs);
  struct progress_line l = {.step = s->last_step,
                            .last = s->what.last_step,
                            .has_loss = s->what.loss.node && s->own,
                            .loss = s->loss,
                            .examples_per_sec = -1,
                            .eta_secs = -1,
                            .staleness = s->staleness};
  if (s->label) snprintf(l.task, sizeof l.task, "%s", s->label);
  double steps = (double)(last ? s->own : s->own - s->shown_own), over = last ? all : secs;
  if (s->what.examples_per_step > 0 && over > 0) l.examples_per_sec = steps * (double)s->what.examples_per_step / over;
  if (!last && l.last > l.step) l.eta_secs = progress_rate_eta(&s->rate, l.last - l.step);
  struct text t = {0};
  if (s->terminal) text_adds(&t, "\r");
  progress_put(&t, &l);
  fprintf(stderr, s->terminal ? "%s\033[K%s" : "%s%s", text_cstr(&t), !s->terminal || last ? "\n" : "");
  text_release(&t);
  s->shown_ns = now;
  s->shown_own = s->own;
  s->shown_step = s->last_step;
  s->next_ns = now + (int64_t)(s->what.every_secs * 1e9);
}

static shoal_status progress_after(void *state, shoal_run_context *c) {
  const double keep = 0.98;
  struct progress *s = state;
  int64_t step = (int64_t)shoal_context_number(c, s->step_fetch);
  double loss = s->what.loss.node ? shoal_context_number(c, s->loss_fetch) : 0;
  s->loss = s->own ? keep * s->loss + (1 - keep) * loss : loss;
  /* Between two runs of one worker the counter goes on by their steps; what is more, others did. */
  int64_t others = MAX(step - s->last_step - shoal_context_steps(c), 0);
  if (s->last_step >= 0) s->staleness = keep * s->staleness + (1 - keep) * (double)others;
  s->last_step = step;
  s->own += shoal_context_steps(c);
  if (!isfinite(loss) && !s->told) {
    s->told = true;
    progress_say(s->label,
                 "the loss is %g at step %" PRId64 ": a smaller learning rate, or clipped gradients, may help", loss,
                 step);
  }
  int64_t now = clock_ns();
  if (now >= s->next_ns) show(s, now, false);
  return NULL;
}

static shoal_status progress_end(void *state, shoal_session *session) {
  struct progress *s = state;
  if (!s->own) return NULL; /* nothing was trained */
  TRY(session_get_int(session, s->global_step, &s->last_step));
  show(s, clock_ns(), true);
  return NULL;
}

static void progress_free(void *state) {
  shoal_status_free(((struct progress *)state)->refused);
  free(((struct progress *)state)->label);
  free(state);
}

shoal_hook shoal_progress_hook(const shoal_progress *p) {
  struct progress *s = mem_zalloc(1, sizeof *s);
  s->refused = OPTIONS_TAKE(shoal_progress, every_secs, &s->what, p);
  s->label = s->what.label ? mem_strdup(s->what.label) : NULL;
  if (s->what.every_secs <= 0) s->what.every_secs = 1;
  s->next_ns = clock_ns() + (int64_t)(s->what.every_secs * 1e9);
  s->terminal = isatty(STDERR_FILENO);
  return (shoal_hook){s,
                      .begin = progress_begin,
                      .after_create = progress_created,
                      .before_run = progress_before,
                      .after_run = progress_after,
                      .end = progress_end,
                      .free = progress_free};
}
