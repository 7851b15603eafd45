/* Bounded staleness: every worker applies its gradients at once, but before each step waits until it is at most
 * `staleness` steps ahead of the slowest.
 *
 * sync_rep_clocks, beside the step counter, has the number of steps of each worker, and then beats of each, which move
 * on while it lives. A worker reads it only when its bound is reached as far as it knows: the slowest can only have
 * come further since. One that is gone has a clock far beyond all others, so nobody waits for it: it sets that itself
 * when it ends, or comes when all steps are taken; when it was killed, whoever waits for it and sees its clock stand
 * still for the time of a lease does. One that finds itself gone was only slow, and starts again from where the slowest
 * is. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/step_request.h"
#include "base/stop.h"
#include "train/sync.h"
#include "train/variables.h"

static const int64_t gone = INT64_MAX / 2; /* and above */
enum { LOOK_MS = 2, READY_MS = 50 };

struct bounded {
  shoal_var clocks;
  shoal_out there;             /* initialised? */
  shoal_op *init, *beat, *set; /* set: clocks[set_task] = set_value */
  shoal_out set_task, set_value;
  int64_t own, slowest; /* as last seen */
  int64_t *seen;        /* [2 * total] clocks and beats */
  int64_t *since;       /* [total] when each beat was first seen */
};

static bool check(const shoal_sync_options *o) {
  return o->total_replicas >= 1 && o->task >= 0 && o->task < o->total_replicas && o->staleness >= 0;
}

static shoal_op *build(shoal_sync_replicas *s, const shoal_var *vars, const shoal_gradient *grads, int n) {
  struct shoal_graph *g = s->g;
  struct bounded *b = s->bounded = mem_zalloc(1, sizeof *b);
  size_t total = (size_t)s->o.total_replicas;
  b->seen = mem_zalloc(2 * total, sizeof *b->seen);
  b->since = mem_zalloc(total, sizeof *b->since);
  struct shoal_node *applied = shoal_apply_gradients(g, s->optimizer, vars, grads, n, s->step);
  graph_push_colocation(g, s->step.handle.node);
  b->clocks =
      variable_unsaved(g, "sync_rep_clocks", shoal_init_zeros(g, SHOAL_INT64, SHOAL_SHAPE(2 * s->o.total_replicas)));
  b->init = b->clocks.handle.node ? variable_initializer(g, b->clocks) : NULL;
  b->there = build_op1(g, "VarIsInitializedOp", b->clocks.handle);
  b->set_task = shoal_placeholder(g, SHOAL_INT32, SHOAL_SCALAR, "sync_rep_task");
  b->set_value = shoal_placeholder(g, SHOAL_INT64, SHOAL_SCALAR, "sync_rep_clock");
  b->set = build_op3(g, "ResourceScatterUpdate", b->clocks.handle, b->set_task, b->set_value).node;
  b->beat =
      build_op3(g, "ResourceScatterAdd", b->clocks.handle,
                build_const_int(g, SHOAL_INT32, s->o.total_replicas + s->o.task), build_const_int(g, SHOAL_INT64, 1))
          .node;
  graph_push_control(g, &applied, 1);
  shoal_op *train = build_op3(g, "ResourceScatterAdd", b->clocks.handle, build_const_int(g, SHOAL_INT32, s->o.task),
                              build_const_int(g, SHOAL_INT64, 1))
                        .node;
  graph_pop_control(g);
  graph_pop_colocation(g);
  return train;
}

static shoal_status set_clock(shoal_sync_replicas *s, shoal_session *session, int task, int64_t value) {
  shoal_tensor *t = NULL, *v = NULL;
  int32_t number = task;
  TRY(shoal_tensor_from(SHOAL_INT32, 0, NULL, &number, sizeof number, &t));
  shoal_status e = shoal_tensor_from(SHOAL_INT64, 0, NULL, &value, sizeof value, &v);
  if (!e)
    e = shoal_session_step(session, SHOAL_FEED(s->bounded->set_task, t, s->bounded->set_value, v), SHOAL_NO_FETCHES,
                           s->bounded->set);
  shoal_tensor_unref(t);
  if (v) shoal_tensor_unref(v);
  return e;
}

/* Reads the clocks: this worker's, and the slowest of the others that are there (this one's when there is none). */
static shoal_status read_clocks(shoal_sync_replicas *s, shoal_session *session) {
  struct bounded *b = s->bounded;
  shoal_tensor *t;
  TRY(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(b->clocks.value, &t), NULL));
  shoal_status e = NULL;
  int total = s->o.total_replicas;
  if (shoal_tensor_elements(t) != 2 * (int64_t)total) {
    e = STATUS(SHOAL_FAILED_PRECONDITION, "another job has %lld workers on these servers, not %d",
               (long long)shoal_tensor_elements(t) / 2, total);
  } else {
    const int64_t *at = shoal_tensor_const_data(t);
    int64_t now = clock_ns();
    b->own = at[s->o.task];
    b->slowest = gone;
    for (int i = 0; i < total; i++) {
      if (at[total + i] != b->seen[total + i] || !b->since[i]) b->since[i] = now;
      b->seen[i] = at[i];
      b->seen[total + i] = at[total + i];
      if (i != s->o.task && at[i] < b->slowest) b->slowest = at[i];
    }
    if (b->slowest >= gone) b->slowest = b->own;
  }
  shoal_tensor_unref(t);
  return e;
}

/* Takes part again from where the slowest is. */
static shoal_status join(shoal_sync_replicas *s, shoal_session *session) {
  struct bounded *b = s->bounded;
  int64_t from = b->slowest >= gone ? 0 : b->slowest;
  TRY(set_clock(s, session, s->o.task, from));
  b->own = from;
  return NULL;
}

static shoal_status created(shoal_sync_replicas *s, const shoal_created *c) {
  struct bounded *b = s->bounded;
  if (s->is_chief && c->made != SHOAL_MADE_REJOINED) TRY(session_run_op(c->session, b->init));
  struct sync_wait wait;
  sync_wait_begin(&wait, c, "the chief to make the workers' clocks");
  for (;;) {
    bool there = false;
    TRY(shoal_session_step(c->session, SHOAL_NO_FEEDS, SHOAL_FETCH(b->there, &there), NULL));
    if (there) break;
    TRY(sync_wait_pause(&wait, READY_MS));
  }
  for (int i = 0; i < s->o.total_replicas; i++) b->since[i] = 0;
  TRY(read_clocks(s, c->session));
  if (b->own >= gone) TRY(join(s, c->session));
  return sync_beat_start(&(struct sync_beat_options){.created = c, .op = b->beat, .lease_ms = s->o.lease_ms}, &s->beat);
}

/* Those who have not beaten for a lease, while this worker waited and looked, are gone. */
static shoal_status drop_lost(shoal_sync_replicas *s, shoal_session *session, int64_t waiting_since) {
  struct bounded *b = s->bounded;
  for (int i = 0; i < s->o.total_replicas; i++) {
    if (i == s->o.task || b->seen[i] >= gone || b->own - b->seen[i] <= s->o.staleness) continue;
    int64_t since = b->since[i] > waiting_since ? b->since[i] : waiting_since;
    if (clock_ns() - since < s->o.lease_ms * 1000000) continue;
    LOGW("worker %d is lost at step %lld: going on without it", i, (long long)b->seen[i]);
    TRY(set_clock(s, session, i, gone));
  }
  return NULL;
}

static shoal_status before_run(shoal_sync_replicas *s, shoal_run_context *c) {
  struct bounded *b = s->bounded;
  shoal_session *session = shoal_context_session(c);
  int64_t began = clock_ns();
  while (b->own - b->slowest > s->o.staleness || b->own >= gone) {
    TRY(read_clocks(s, session));
    if (b->own >= gone) TRY(join(s, session));
    if (b->own - b->slowest <= s->o.staleness || stop_told()) break;
    TRY(drop_lost(s, session, began));
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
  }
  b->own++;
  return NULL;
}

static shoal_status end(shoal_sync_replicas *s, shoal_session *session) {
  return set_clock(s, session, s->o.task, gone);
}

static void release(shoal_sync_replicas *s) {
  if (!s->bounded) return;
  free(s->bounded->seen);
  free(s->bounded->since);
  free(s->bounded);
}

const struct sync_mode sync_bounded = {.name = "bounded",
                                       .check = check,
                                       .build = build,
                                       .created = created,
                                       .too_late = end,
                                       .before_run = before_run,
                                       .end = end,
                                       .release = release};
