#include "cluster/collective_guard.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cluster/collectives.h"

struct collectives_end *collectives_end_new(void) {
  struct collectives_end *e = mem_zalloc(1, sizeof *e);
  ref_init(&e->refs, 1);
  cancel_init(&e->cancel);
  return e;
}

void collectives_end_unref(struct collectives_end *e) {
  if (!e || !ref_drop(&e->refs)) return;
  cancel_release(&e->cancel);
  free(e);
}

/* A reference; NULL: nothing but its step ends a collective. */
static struct collectives_end *end_of_now(struct collectives *c) {
  if (!c->coordinated) return NULL;
  pthread_mutex_lock(&c->lock);
  struct collectives_end *e = c->end;
  ref_take(&e->refs);
  pthread_mutex_unlock(&c->lock);
  return e;
}

void guard_init(struct collective_guard *g, struct collectives *c, double timeout_s,
                shoal_status (*late)(struct collective_guard *g), void (*release)(struct collective_guard *g)) {
  double given_s = MIN(timeout_s, 1e9);
  *g = (struct collective_guard){.late = late, .release = release};
  ref_init(&g->refs, 1);
  cancel_init(&g->cancel);
  g->deadline = clock_ns() + (given_s > 0 ? (int64_t)(given_s * 1e9) : c->timeout_ns);
}

void guard_ref(struct collective_guard *g) { ref_take(&g->refs); }

void guard_unref(struct collective_guard *g) {
  if (!ref_drop(&g->refs)) return;
  cancel_release(&g->cancel);
  collectives_end_unref(g->end);
  g->release(g);
}

void guard_stop(struct collective_guard *g, shoal_status why) {
  guard_ref(g);
  cancel_start(&g->cancel, why);
  guard_unref(g);
}

static shoal_status cancelled(void) { return status_mark_derived(STATUS(SHOAL_CANCELLED, "it was cancelled")); }

static void on_cancel(void *arg) { guard_stop(arg, cancelled()); }

static void on_end(void *arg) {
  struct collective_guard *g = arg;
  guard_stop(g, cancel_reason(&g->end->cancel));
}

static void on_time_out(void *arg) {
  struct collective_guard *g = arg;
  guard_stop(g, g->late(g));
}

bool guard_begin(struct collective_guard *g, struct collectives *c, struct cancel *step, int64_t step_id) {
  if (step && !cancel_register(step, &g->hook, on_cancel, g)) {
    cancel_start(&g->cancel, cancelled());
    return false;
  }
  g->step = step;
  alarm_set(&g->alarm, g->deadline + LEADER_FIRST_MS * 1000000ll, on_time_out, g);
  g->step_id = step_id;
  shoal_status failed = failed_steps_enter(&c->failed, g);
  if (failed) guard_stop(g, failed);
  g->end = end_of_now(c);
  if (g->end && !cancel_register(&g->end->cancel, &g->end_hook, on_end, g)) on_end(g);
  return !cancel_started(&g->cancel);
}

void guard_end(struct collective_guard *g, struct collectives *c) {
  failed_steps_leave(&c->failed, g);
  if (g->step) cancel_deregister(g->step, &g->hook);
  if (g->end) cancel_deregister(&g->end->cancel, &g->end_hook);
  alarm_clear(&g->alarm);
}
