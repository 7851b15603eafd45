/* Hooks that write event files: StepCounter, SummarySaver. */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "train/hooks.h"
#include "graph/graph.h"
#include "train/step_request.h"
#include "train/train_session.h"

struct events_hook {
  char *dir; /* NULL: log only */
  struct timer timer;
  struct shoal_events *events;
  shoal_out global_step, summary;
  int step_fetch, summary_fetch;
  bool requested;    /* this step has a summary */
  int64_t next_step; /* what the next step will probably be; -1 before the first */
};

static struct events_hook *make(const char *dir, int64_t steps, double secs) {
  struct events_hook *s = mem_zalloc(1, sizeof *s);
  *s = (struct events_hook){
      .dir = dir ? mem_strdup(dir) : NULL, .timer = timer_every(steps, secs, 100, 0), .next_step = -1};
  return s;
}

static void release(void *state) {
  struct events_hook *s = state;
  events_shared_release(s->events);
  free(s->dir);
  free(s);
}

/* Steps that are counted again take the place of those that were lost with a task: what is written of them begins with
 * a mark (SessionLog START), at which TensorBoard drops what it has of later steps. */
static shoal_status begin_again(void *state, const shoal_created *c) {
  struct events_hook *s = state;
  if (c->made == SHOAL_MADE_REJOINED || c->made == SHOAL_MADE_WAITED) return NULL;
  s->next_step = s->timer.last_step = -1;
  return NULL;
}

/* ---- StepCounter ---- */

static shoal_status counter_begin(void *state, shoal_graph *g) {
  struct events_hook *s = state;
  TRY(hook_global_step(g, "StepCounterHook", &s->global_step));
  return s->dir ? events_shared_get(s->dir, &s->events) : NULL;
}

static shoal_status fetch_step(void *state, shoal_run_context *c) {
  struct events_hook *s = state;
  s->step_fetch = shoal_context_fetch(c, s->global_step);
  return NULL;
}

static shoal_status counter_after(void *state, shoal_run_context *c) {
  struct events_hook *s = state;
  int64_t step = (int64_t)shoal_context_number(c, s->step_fetch) + 1, steps;
  double secs;
  if (!timer_due(&s->timer, step)) return NULL;
  timer_set_off(&s->timer, step, &secs, &steps);
  if (secs <= 0 || steps <= 0) return NULL;
  LOGI("global_step/sec: %g", (double)steps / secs);
  if (s->events) events_told(event_write_scalar(s->events, step, "global_step/sec", (float)((double)steps / secs)));
  return NULL;
}

shoal_hook shoal_step_counter_hook(int64_t every_steps, double every_secs, const char *dir) {
  return (shoal_hook){make(dir, every_steps, every_secs), .begin = counter_begin,     .after_create = begin_again,
                      .before_run = fetch_step,           .after_run = counter_after, .free = release};
}

/* ---- SummarySaver ---- */

static shoal_status summary_begin(void *state, shoal_graph *g) {
  struct events_hook *s = state;
  TRY(hook_global_step(g, "SummarySaverHook", &s->global_step));
  if (!s->summary.node) s->summary = summaries_merged(g);
  return s->dir ? events_shared_get(s->dir, &s->events) : INVALID("a summary saver needs a directory");
}

/* Which step this one is, is known only afterwards: it is taken for the one after the last. */
static shoal_status summary_before(void *state, shoal_run_context *c) {
  struct events_hook *s = state;
  s->requested = s->next_step < 0 || timer_due(&s->timer, s->next_step);
  if (s->requested && s->summary.node) s->summary_fetch = shoal_context_fetch(c, s->summary);
  return fetch_step(state, c);
}

static shoal_status summary_after(void *state, shoal_run_context *c) {
  struct events_hook *s = state;
  int64_t step = (int64_t)shoal_context_number(c, s->step_fetch) + 1;
  bool first = s->next_step < 0;
  if (s->requested) TRY(session_get_int(shoal_context_session(c), s->global_step, &step));
  s->next_step = step + shoal_context_steps(c);
  if (first) events_told(event_write_session_log(s->events, step, 1, NULL));
  if (!s->requested) return NULL;
  timer_set_off(&s->timer, step, NULL, NULL);
  const shoal_tensor *value = s->summary.node ? shoal_context_value(c, s->summary_fetch) : NULL;
  if (!value) return NULL;
  if (shoal_tensor_dtype(value) != SHOAL_STRING) return INVALID("the summary %s is no string", s->summary.node->name);
  for (int64_t i = 0; i < shoal_tensor_elements(value); i++) {
    size_t n;
    const char *data = shoal_tensor_string(value, i, &n);
    events_told(event_write_summary(s->events, step, data, n));
  }
  return NULL;
}

static shoal_status flush(void *state, shoal_session *session) {
  struct events_hook *s = state;
  if (s->events) events_told(event_writer_flush(s->events));
  return NULL;
}

shoal_hook shoal_summary_saver_hook(int64_t save_steps, double save_secs, const char *dir, shoal_out summary) {
  struct events_hook *s = make(dir, save_steps, save_secs);
  s->summary = summary;
  return (shoal_hook){s,
                      .begin = summary_begin,
                      .after_create = begin_again,
                      .before_run = summary_before,
                      .after_run = summary_after,
                      .end = flush,
                      .free = release};
}
