/* Synchronous training: what the modes share. See shoal/sync.h for what they do, sync_tokens.c, sync_strict.c and
 * sync_bounded.c for how. */
#include "train/sync.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "graph/given.h"
#include "train/optimizer.h"

enum { MAX_REPLICAS = 10000 };

static const struct sync_mode *const modes[] = {
    [SHOAL_SYNC_TOKENS] = &sync_tokens, [SHOAL_SYNC_STRICT] = &sync_strict, [SHOAL_SYNC_BOUNDED] = &sync_bounded};

shoal_sync_replicas *shoal_sync_replicas_new(shoal_graph *g, shoal_optimizer optimizer,
                                             const shoal_sync_options *options) {
  shoal_sync_replicas *s = mem_zalloc(1, sizeof *s);
  s->g = g;
  s->optimizer = optimizer;
  shoal_status e = OPTIONS_TAKE(shoal_sync_options, init_tokens, &s->o, options);
  if (e) graph_fail(g, e);
  ref_init(&s->refs, 1);
  if (!s->o.total_replicas) s->o.total_replicas = s->o.replicas_to_aggregate;
  if (!s->o.lease_ms) s->o.lease_ms = 10000;
  if ((unsigned)s->o.mode >= sizeof modes / sizeof *modes) {
    graph_fail(g, INVALID("synchronous training: there is no mode %d", (int)s->o.mode));
    s->o.mode = SHOAL_SYNC_TOKENS;
  }
  s->mode = modes[s->o.mode];
  if ((s->o.total_replicas < 1 || s->o.total_replicas > MAX_REPLICAS || s->o.lease_ms < 0 || !s->mode->check(&s->o)) &&
      !graph_error(g))
    graph_fail(g, INVALID("synchronous training (%s): %d replicas, %d to aggregate, task %d, staleness %d do not go "
                          "together",
                          s->mode->name, s->o.total_replicas, s->o.replicas_to_aggregate, s->o.task, s->o.staleness));
  return s;
}

void shoal_sync_replicas_free(shoal_sync_replicas *s) {
  if (!s || !ref_drop(&s->refs)) return;
  sync_beat_stop(s->beat);
  sync_runner_stop(s->runner);
  if (s->mode->release) s->mode->release(s);
  free(s);
}

shoal_op *shoal_sync_apply_gradients(shoal_sync_replicas *s, const shoal_var *vars, const shoal_gradient *grads, int n,
                                     shoal_var step) {
  GRAPH_GIVEN_ARRAY(s->g, vars, n, NULL);
  GRAPH_GIVEN_ARRAY(s->g, grads, n, NULL);
  struct shoal_graph *g = s->g;
  if (!graph_error(g)) {
    int have = 0;
    for (int i = 0; i < n; i++) have += grads[i].values.node != NULL;
    if (!have) graph_fail(g, INVALID("Must supply at least one variable with a gradient"));
    else if (!step.handle.node) graph_fail(g, INVALID("Global step is required to check staleness"));
    else if (s->train) graph_fail(g, INVALID("shoal_sync_replicas: gradients are applied already"));
  }
  if (graph_error(g)) return NULL;
  s->step = step;
  s->train = s->mode->build(s, vars, grads, n);
  return graph_error(g) ? NULL : s->train;
}

shoal_op *shoal_sync_minimize(shoal_sync_replicas *s, shoal_out loss, shoal_var step) {
  struct gradients all = gradients_of(s->g, loss);
  shoal_op *train = shoal_sync_apply_gradients(s, all.vars, all.grads, all.n, step);
  gradients_release(&all);
  return train;
}

shoal_out shoal_sync_stale(const shoal_sync_replicas *s) { return s->stale.value; }
shoal_op *shoal_sync_local_init_op(const shoal_sync_replicas *s) { return s->local_init; }
shoal_op *shoal_sync_chief_init_op(const shoal_sync_replicas *s) { return s->chief_init; }
shoal_op *shoal_sync_init_tokens_op(const shoal_sync_replicas *s) { return s->init_tokens; }
shoal_op *shoal_sync_chief_op(const shoal_sync_replicas *s) { return s->chief_op; }

/* ---- the hook ---- */

static shoal_status begin(void *state, shoal_graph *g) {
  shoal_sync_replicas *s = state;
  if (g != s->g) return INVALID("shoal_sync_hook: the session's graph is not the one it was made for");
  if (!s->train) return INVALID("shoal_sync_apply_gradients must be called before the hook is used");
  return NULL;
}

/* A worker may come so late that the others have taken all steps: there is nobody left to be in step with. The servers
 * may be going already, so what it has to tell the others it tells as best it can. */
static shoal_status after_create(void *state, const shoal_created *created) {
  shoal_sync_replicas *s = state;
  atomic_store(&s->step_began, 0);
  s->too_late = !s->is_chief && created->stop_at_step > 0 && created->global_step >= created->stop_at_step;
  if (!s->too_late) return s->mode->created(s, created);
  LOGW("the training is at step %lld already, and was to end at %lld: nothing is left to do",
       (long long)created->global_step, (long long)created->stop_at_step);
  if (s->mode->too_late) shoal_status_free(s->mode->too_late(s, created->session));
  shoal_coordinator_request_stop(created->coordinator, NULL);
  return NULL;
}

static shoal_status before_run(void *state, shoal_run_context *context) {
  shoal_sync_replicas *s = state;
  if (s->mode->before_run) TRY(s->mode->before_run(s, context));
  atomic_store(&s->step_began, clock_ns());
  return NULL;
}

static shoal_status after_run(void *state, shoal_run_context *context) {
  shoal_sync_replicas *s = state;
  atomic_store(&s->step_began, 0);
  return NULL;
}

static shoal_status end(void *state, shoal_session *session) {
  shoal_sync_replicas *s = state;
  return s->too_late ? NULL : s->mode->end(s, session);
}

static void before_close(void *state) {
  shoal_sync_replicas *s = state;
  sync_beat_stop(s->beat);
  sync_runner_stop(s->runner);
  s->beat = NULL;
  s->runner = NULL;
}

static void release(void *state) { shoal_sync_replicas_free(state); }

shoal_hook shoal_sync_hook(shoal_sync_replicas *s, bool is_chief) {
  ref_take(&s->refs);
  s->is_chief = is_chief;
  return (shoal_hook){.state = s,
                      .begin = begin,
                      .after_create = after_create,
                      .before_run = before_run,
                      .after_run = after_run,
                      .end = end,
                      .before_close = before_close,
                      .free = release};
}

/* ---- pieces of graphs ---- */

static const char *anywhere(void *arg, const struct shoal_node *n, const struct device_spec *inner) { return NULL; }

void sync_push_device_of(struct shoal_graph *g, const struct shoal_node *n) {
  /* The device "" would shut out the scopes around; what is nowhere in particular takes them. */
  if (*n->device) graph_push_device(g, n->device);
  else graph_push_device_fn(g, anywhere, NULL, NULL);
}

shoal_out sync_queue(struct shoal_graph *g, const char *name, const shoal_dtype *types, const struct shape *shapes,
                     int n) {
  struct build b = build_begin(g, "FIFOQueueV2", name);
  build_attr_types(&b, "component_types", types, n);
  struct attr list = attr_list(ATTR_SHAPE);
  for (int i = 0; shapes && i < n; i++) attr_list_add(&list, attr_shape(&shapes[i]));
  build_attr(&b, "shapes", list);
  build_attr_int(&b, "capacity", -1);
  build_attr_string(&b, "shared_name", name);
  return build_end_out(&b);
}

shoal_out sync_enqueue(struct shoal_graph *g, shoal_out queue, const shoal_out *values, int n, bool many) {
  struct build b = build_begin(g, many ? "QueueEnqueueManyV2" : "QueueEnqueueV2", NULL);
  build_in(&b, queue);
  build_in_list(&b, values, n);
  return node_out(build_end(&b), 0);
}

struct shoal_node *sync_dequeue(struct shoal_graph *g, shoal_out queue, const shoal_dtype *types, int n) {
  struct build b = build_begin(g, "QueueDequeueV2", NULL);
  build_in(&b, queue);
  build_attr_types(&b, "component_types", types, n);
  return build_end(&b);
}
