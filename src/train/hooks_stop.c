/* Hooks that end or hold training, or do something at its end: StopAtStep, NanTensor, GlobalStepWaiter, FinalOps. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "graph/graph.h"
#include "train/hooks.h"
#include "train/step_request.h"
#include "train/train_session.h"

/* ---- StopAtStep ---- */

struct stop_at {
  int64_t num_steps, last_step;
  int64_t seen; /* what the step before fetched */
  shoal_out global_step;
  int fetch;
};

static shoal_status stop_begin(void *state, shoal_graph *g) {
  struct stop_at *s = state;
  if ((s->num_steps > 0) == (s->last_step > 0))
    return INVALID("StopAtStep takes one of num_steps and last_step; given were %" PRId64 " and %" PRId64, s->num_steps,
                   s->last_step);
  return hook_global_step(g, "StopAtStepHook", &s->global_step);
}

static shoal_status stop_created(void *state, const shoal_created *c) {
  struct stop_at *s = state;
  if (s->last_step <= 0) s->last_step = c->global_step + s->num_steps;
  s->seen = c->global_step;
  return NULL;
}

static shoal_status stop_before(void *state, shoal_run_context *c) {
  struct stop_at *s = state;
  int64_t now;
  s->fetch = shoal_context_fetch(c, s->global_step);
  if (shoal_context_steps(c) == 1) return NULL;
  TRY(session_get_int(shoal_context_session(c), s->global_step, &now));
  shoal_context_limit_steps(c, s->last_step - now);
  return NULL;
}

/* What the step fetched may be from before its own update, and from before those of others meanwhile: the counter is
 * read again from where twice what is counted between two steps of this worker would reach the end. */
static shoal_status stop_after(void *state, shoal_run_context *c) {
  struct stop_at *s = state;
  int64_t step, fetched = (int64_t)shoal_context_number(c, s->fetch), stride = MAX(fetched - s->seen, 1);
  s->seen = fetched;
  if (fetched + 2 * stride < s->last_step) return NULL;
  TRY(session_get_int(shoal_context_session(c), s->global_step, &step));
  if (step >= s->last_step) shoal_context_request_stop(c);
  return NULL;
}

shoal_hook shoal_stop_at_step_hook(int64_t num_steps, int64_t last_step) {
  struct stop_at *s = mem_zalloc(1, sizeof *s);
  *s = (struct stop_at){.num_steps = num_steps, .last_step = last_step};
  return (shoal_hook){s,
                      .begin = stop_begin,
                      .after_create = stop_created,
                      .before_run = stop_before,
                      .after_run = stop_after,
                      .free = free};
}

/* ---- NanTensor ---- */

struct nan_hook {
  shoal_out loss, global_step; /* global_step.node NULL: the graph counts none */
  bool fail;
  int fetch, step_fetch;
};

static shoal_status nan_begin(void *state, shoal_graph *g) {
  ((struct nan_hook *)state)->global_step = global_step_value(g);
  return NULL;
}

static shoal_status nan_before(void *state, shoal_run_context *c) {
  struct nan_hook *s = state;
  s->fetch = shoal_context_fetch(c, s->loss);
  if (s->global_step.node) s->step_fetch = shoal_context_fetch(c, s->global_step);
  return NULL;
}

static shoal_status nan_after(void *state, shoal_run_context *c) {
  struct nan_hook *s = state;
  const shoal_tensor *t = shoal_context_value(c, s->fetch);
  if (!isnan(tensor_number(t))) return NULL;
  char at[48] = "";
  if (s->global_step.node)
    snprintf(at, sizeof at, " at step %" PRId64, (int64_t)shoal_context_number(c, s->step_fetch));
  if (s->fail)
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "NaN loss during training. (%s%s; a smaller learning rate, or clipped gradients, may help)",
                  s->loss.node->name, at);
  LOGW("NaN loss, training ends here (%s%s)", s->loss.node->name, at);
  shoal_context_request_stop(c);
  return NULL;
}

shoal_hook shoal_nan_tensor_hook(shoal_out loss, bool fail_on_nan) {
  struct nan_hook *s = mem_zalloc(1, sizeof *s);
  *s = (struct nan_hook){.loss = loss, .fail = fail_on_nan};
  return (shoal_hook){s, .begin = nan_begin, .before_run = nan_before, .after_run = nan_after, .free = free};
}

/* ---- GlobalStepWaiter ---- */

struct stop_waiter {
  int64_t until;
  shoal_out global_step;
  bool passed;
};

static shoal_status waiter_begin(void *state, shoal_graph *g) {
  struct stop_waiter *s = state;
  return hook_global_step(g, "GlobalStepWaiterHook", &s->global_step);
}

static shoal_status waiter_before(void *state, shoal_run_context *c) {
  enum { LOOK_MS = 100, SAY_S = 5 };
  struct stop_waiter *s = state;
  int64_t say = clock_ns() + (int64_t)SAY_S * 1000000000, step = 0;
  while (!s->passed && s->until > 0) {
    TRY(session_get_int(shoal_context_session(c), s->global_step, &step));
    s->passed = step >= s->until;
    if (s->passed || stop_told()) break;
    if (clock_ns() >= say) {
      LOGW("waiting for step %" PRId64 " before the first step; the others are at %" PRId64, s->until, step);
      say += (int64_t)SAY_S * 1000000000;
    }
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
  }
  return NULL;
}

shoal_hook shoal_global_step_waiter_hook(int64_t wait_until_step) {
  struct stop_waiter *s = mem_zalloc(1, sizeof *s);
  s->until = wait_until_step;
  return (shoal_hook){s, .begin = waiter_begin, .before_run = waiter_before, .free = free};
}

/* ---- FinalOps ---- */

struct final {
  shoal_fetch *fetches;
  int n;
  shoal_op *target;
};

static shoal_status final_end(void *state, shoal_session *session) {
  struct final *s = state;
  return shoal_session_step(session, SHOAL_NO_FEEDS, (shoal_fetches){s->fetches, s->n}, s->target);
}

static void final_free(void *state) {
  free(((struct final *)state)->fetches);
  free(state);
}

shoal_hook shoal_final_ops_hook(shoal_fetches fetches, shoal_op *target) {
  struct final *s = mem_zalloc(1, sizeof *s);
  *s = (struct final){mem_zalloc((size_t)fetches.n + 1, sizeof *s->fetches), fetches.n, target};
  if (fetches.n) memcpy(s->fetches, fetches.at, (size_t)fetches.n * sizeof *s->fetches);
  return (shoal_hook){s, .end = final_end, .free = final_free};
}
