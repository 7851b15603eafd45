/* Synchronous training as TensorFlow's SyncReplicasOptimizer does it.
 *
 * On the parameter servers, shared by name among all workers:
 *   NAME:0/grad_accum   an accumulator beside each variable: adds up gradients that are not older than its step
 *   sync_token_q        a queue of steps: who takes a token may compute a gradient for that step
 * Each worker: gradients into the accumulators, take a token, keep its number in sync_rep_local_step. The chief: take
 * the mean out of every accumulator as soon as enough gradients are in, apply it, put tokens for the next step.
 *
 * What TensorFlow's does not do: (1) a worker that took a token and then died, or ran out of data, leaves its step one
 * gradient short for ever. Here a token is a lease. A worker that ends puts it back; and when a step takes too long,
 * the chief puts as many tokens as gradients are missing, for those who wait for one. If their first owners turn up
 * after all, the step has gradients to spare, as with backup workers. (2) When the chief ends, the others wait for ever
 * for their next token. Here it goes on applying as long as gradients come, then closes the queue: who waits is told
 * that the input ended. A chief that finds the queue closed by the run before makes a new one. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/optimizer.h"
#include "train/step_request.h"
#include "base/stop.h"
#include "train/sync.h"
#include "train/variables.h"

enum { LINGER_MS = 1000, REOPEN_MS = 30000, LOOK_MS = 100 };

static bool check(const shoal_sync_options *o) { return o->replicas_to_aggregate >= 1; }

struct gathering {
  shoal_sync_replicas *s;
  struct shoal_graph *g;
  VEC(struct shoal_node *) applied;     /* this worker's gradients are in */
  VEC(struct shoal_node *) initialized; /* the accumulators know the step */
  VEC(shoal_out) counts;
  shoal_gradient *means; /* [n] */
};

static shoal_out accumulator(struct shoal_graph *g, shoal_var v, shoal_out values, bool sparse) {
  char *shared = mem_printf("%s:0/grad_accum", v.handle.node->name);
  struct shape shape = sparse ? shape_scalar() : out_shape(v.value);
  struct build b = build_begin(g, sparse ? "SparseConditionalAccumulator" : "ResourceConditionalAccumulator",
                               sparse ? "sparse_conditional_accumulator" : "conditional_accumulator");
  build_attr_type(&b, "dtype", out_type(values));
  build_attr_shape(&b, "shape", &shape);
  build_attr_string(&b, "shared_name", shared);
  free(shared);
  return build_end_out(&b);
}

static struct shoal_node *put_gradient(struct gathering *w, shoal_out acc, const shoal_gradient *gr) {
  struct shoal_graph *g = w->g;
  bool sparse = gr->indices.node;
  struct build b = build_begin(g, sparse ? "SparseAccumulatorApplyGradient" : "ResourceAccumulatorApplyGradient", NULL);
  build_in(&b, acc);
  build_in(&b, w->s->local_step.value);
  if (sparse) {
    build_in(&b, build_cast(g, gr->indices, SHOAL_INT64));
    build_in(&b, gr->values);
    build_in(&b, gr->dense_shape.node ? build_cast(g, gr->dense_shape, SHOAL_INT64)
                                      : build_const_ints(g, SHOAL_INT64, NULL, 0));
    build_attr_bool(&b, "has_known_shape", gr->dense_shape.node != NULL);
  } else {
    build_in(&b, gr->values);
  }
  return build_end(&b);
}

static shoal_gradient take_mean(struct gathering *w, shoal_out acc, shoal_dtype dtype, bool sparse) {
  struct build b =
      build_begin(w->g, sparse ? "SparseAccumulatorTakeGradient" : "ResourceAccumulatorTakeGradient", NULL);
  build_in(&b, acc);
  build_in(&b, build_const_int(w->g, SHOAL_INT32, w->s->o.replicas_to_aggregate));
  build_attr_type(&b, "dtype", dtype);
  struct shoal_node *n = build_end(&b);
  if (!sparse) return (shoal_gradient){.values = node_out(n, 0)};
  return (shoal_gradient){node_out(n, 1), node_out(n, 0), node_out(n, 2)};
}

static void gather_one(struct gathering *w, shoal_var v, const shoal_gradient *gr, int i) {
  struct shoal_graph *g = w->g;
  bool sparse = gr->indices.node;
  sync_push_device_of(g, v.handle.node);
  shoal_out acc = accumulator(g, v, gr->values, sparse);
  vec_push(&w->applied, put_gradient(w, acc, gr));
  w->means[i] = take_mean(w, acc, out_type(gr->values), sparse);
  vec_push(&w->counts, build_op1(g, sparse ? "AccumulatorNumAccumulated" : "ResourceAccumulatorNumAccumulated", acc));
  struct build b =
      build_begin(g, sparse ? "AccumulatorSetGlobalStep" : "ResourceAccumulatorSetGlobalStep", "SetGlobalStep");
  build_in(&b, acc);
  build_in(&b, w->s->step.value);
  vec_push(&w->initialized, build_end(&b));
  graph_pop_device(g);
}

/* Is this worker's gradient going to be dropped? Asked when it is ready. */
static struct shoal_node *count_stale(shoal_sync_replicas *s, const shoal_gradient *grads, int n) {
  struct shoal_graph *g = s->g;
  VEC(struct shoal_node *) ready = {0};
  for (int i = 0; i < n; i++)
    if (grads[i].values.node) vec_push(&ready, grads[i].values.node);
  graph_push_control(g, ready.at, (int)ready.n);
  graph_push_colocation(g, s->step.handle.node);
  shoal_out now = variable_read_op(g, s->step.handle, out_type(s->step.value), NULL);
  graph_pop_colocation(g);
  graph_pop_control(g);
  vec_release(&ready);
  graph_push_colocation(g, s->stale.handle.node);
  struct build b = build_begin(g, "AssignAddVariableOp", NULL);
  build_in(&b, s->stale.handle);
  build_in(&b, build_cast(g, build_op2(g, "Less", s->local_step.value, now), SHOAL_INT64));
  struct shoal_node *counted = build_end(&b);
  graph_pop_colocation(g);
  return counted;
}

static shoal_out tokens(struct shoal_graph *g, shoal_out count, shoal_out step) {
  struct build b = build_begin(g, "Fill", NULL);
  build_in(&b, count);
  build_in(&b, step);
  return build_end_out(&b);
}

static struct shoal_node *put_tokens(shoal_sync_replicas *s, shoal_out queue, shoal_out count) {
  struct shoal_graph *g = s->g;
  shoal_out all = tokens(g, count, variable_read_op(g, s->step.handle, out_type(s->step.value), NULL));
  return sync_enqueue(g, queue, &all, 1, true).node;
}

/* [the fewest gradients in an accumulator, tokens in the queue, global step] */
static shoal_out look_at(shoal_sync_replicas *s, shoal_out queue, const shoal_out *counts, int n) {
  struct shoal_graph *g = s->g;
  struct build p = build_begin(g, "Pack", NULL);
  build_in_list(&p, counts, n);
  shoal_out fewest = build_op2(g, "Min", build_end_out(&p), build_const_ints(g, SHOAL_INT32, (const int64_t[]){0}, 1));
  struct build q = build_begin(g, "Pack", NULL);
  build_in(&q, build_cast(g, fewest, SHOAL_INT64));
  build_in(&q, build_cast(g, build_op1(g, "QueueSizeV2", queue), SHOAL_INT64));
  build_in(&q, build_cast(g, variable_read_op(g, s->step.handle, out_type(s->step.value), NULL), SHOAL_INT64));
  return build_end_out(&q);
}

static struct shoal_node *close_queue(struct shoal_graph *g, shoal_out queue) {
  struct build b = build_begin(g, "QueueCloseV2", NULL);
  build_in(&b, queue);
  return build_end(&b);
}

static void build_queue_ops(shoal_sync_replicas *s, struct gathering *w, struct shoal_node *update) {
  struct shoal_graph *g = s->g;
  shoal_dtype type = out_type(s->step.value);
  struct shape scalar = shape_scalar();
  int per_step = s->o.total_replicas > s->o.replicas_to_aggregate ? s->o.total_replicas : s->o.replicas_to_aggregate;
  shoal_out queue = sync_queue(g, "sync_token_q", &type, &scalar, 1);

  graph_push_control(g, w->applied.at, (int)w->applied.n);
  struct shoal_node *taken = sync_dequeue(g, queue, &type, 1);
  graph_pop_control(g);
  s->train = taken ? shoal_variable_assign(g, s->local_step, node_out(taken, 0)) : NULL;

  graph_push_control(g, &update, 1);
  s->chief_op = put_tokens(s, queue, build_const_ints(g, SHOAL_INT32, (const int64_t[]){per_step}, 1));
  graph_pop_control(g);
  int needed = s->o.replicas_to_aggregate - s->o.total_replicas;
  int first = s->o.init_tokens > 0 ? s->o.init_tokens : s->o.init_tokens < 0 ? needed : s->o.replicas_to_aggregate;
  if (first < needed)
    graph_fail(g, INVALID("Too few tokens to finish the first step: %d (given) vs %d (needed)", first, needed));
  first = first > 0 ? first : 0;
  s->init_tokens = put_tokens(s, queue, build_const_ints(g, SHOAL_INT32, (const int64_t[]){first}, 1));
  s->give_back = put_tokens(s, queue, build_const_ints(g, SHOAL_INT32, (const int64_t[]){1}, 1));
  s->more_fed = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(1), "sync_replicas_more");
  s->more = put_tokens(s, queue, s->more_fed);
  s->situation = look_at(s, queue, w->counts.at, (int)w->counts.n);
  s->tokens_closed = build_op1(g, "QueueIsClosedV2", queue);
  s->close_tokens = close_queue(g, queue);
  struct build b = build_begin(g, "DestroyResourceOp", NULL);
  build_in(&b, queue);
  s->destroy_tokens = build_end(&b);

  shoal_var beats = variable_unsaved(g, "sync_rep_chief_beats", build_const_int(g, SHOAL_INT64, 0));
  if (!beats.handle.node) return;
  s->chief_beats = beats.value;
  s->chief_beat_init = variable_initializer(g, beats);
  s->chief_beat = variable_update_op(g, "AssignAdd", beats.handle, build_const_int(g, SHOAL_INT64, 1));
}

static shoal_op *build(shoal_sync_replicas *s, const shoal_var *vars, const shoal_gradient *grads, int n) {
  struct shoal_graph *g = s->g;
  shoal_dtype type = out_type(s->step.value);
  struct gathering w = {.s = s, .g = g, .means = mem_zalloc((size_t)n + 1, sizeof *w.means)};
  s->local_step = shoal_variable_local(g, "sync_rep_local_step", build_const_int(g, type, 0));
  s->stale = shoal_variable_local(g, "sync_rep_stale", build_const_int(g, SHOAL_INT64, 0));
  s->local_init = shoal_variable_assign(g, s->local_step, s->step.value);
  graph_push_scope(g, "sync_replicas");
  for (int i = 0; i < n && !graph_error(g); i++)
    if (grads[i].values.node) gather_one(&w, vars[i], &grads[i], i);
  graph_pop_scope(g);
  vec_push(&w.applied, count_stale(s, grads, n));
  vec_push(&w.initialized, s->local_init);
  sync_push_device_of(g, s->step.handle.node);
  graph_push_scope_root(g);
  struct shoal_node *update = shoal_apply_gradients(g, s->optimizer, vars, w.means, n, s->step);
  if (!graph_error(g)) build_queue_ops(s, &w, update);
  graph_pop_scope(g);
  graph_pop_device(g);
  s->chief_init = shoal_group(g, w.initialized.at, (int)w.initialized.n, "sync_replicas_chief_init");
  vec_release(&w.applied);
  vec_release(&w.initialized);
  vec_release(&w.counts);
  free(w.means);
  return s->train;
}

/* ---- running ---- */

static shoal_status apply_once(void *arg, shoal_session *own, bool *worked) {
  shoal_sync_replicas *s = arg;
  return session_run_op(own, s->chief_op);
}

/* A step waits: as many tokens as gradients are missing and no token is there for. */
static void renew(void *arg, shoal_session *own) {
  shoal_sync_replicas *s = arg;
  shoal_tensor *now = NULL, *count = NULL;
  shoal_status e = shoal_session_step(own, SHOAL_NO_FEEDS, SHOAL_FETCH(s->situation, &now), NULL);
  if (!e) {
    const int64_t *at = shoal_tensor_const_data(now);
    int64_t missing = s->o.replicas_to_aggregate - at[0] - at[1];
    int32_t n = (int32_t)(missing > 0 ? missing : 0);
    if (n > 0) {
      LOGW("step %lld waits for %d gradients: handing out %d tokens anew", (long long)at[2],
           (int)(s->o.replicas_to_aggregate - at[0]), (int)n);
      e = shoal_tensor_from(SHOAL_INT32, 1, (const int64_t[]){1}, &n, sizeof n, &count);
      if (!e) e = shoal_session_step(own, SHOAL_FEED(s->more_fed, count), SHOAL_NO_FETCHES, s->more);
    }
    shoal_tensor_unref(now);
    if (count) shoal_tensor_unref(count);
  }
  shoal_status_free(e); /* a lost task: the stepping thread reports it */
}

/* Is the token queue closed, by the end of a run on these servers? Then it is so for good: the chief does away with it.
 * In a session of its own, since sessions keep the queue they have once seen. */
static shoal_status look_at_queue(shoal_sync_replicas *s, const shoal_created *c, bool *closed) {
  shoal_session *once;
  TRY(shoal_session_open(c->graph, c->options, &once));
  shoal_status e = shoal_session_step(once, SHOAL_NO_FEEDS, SHOAL_FETCH(s->tokens_closed, closed), NULL);
  if (!e && *closed && s->is_chief) e = session_run_op(once, s->destroy_tokens);
  shoal_status_free(shoal_session_close(once));
  return e;
}

/* Others wait until the chief has done so. */
static shoal_status wait_for_queue(shoal_sync_replicas *s, const shoal_created *c) {
  int64_t limit = clock_ns() + (int64_t)REOPEN_MS * 1000000;
  for (bool closed = false;;) {
    TRY(look_at_queue(s, c, &closed));
    if (!closed || s->is_chief) return NULL;
    if (clock_ns() > limit || stop_told())
      return STATUS(SHOAL_FAILED_PRECONDITION,
                    "The synchronous training on these servers has ended, and no chief has begun another");
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
  }
}

static shoal_status created(shoal_sync_replicas *s, const shoal_created *c) {
  TRY(wait_for_queue(s, c));
  if (!s->is_chief) {
    TRY(session_run_op(c->session, s->local_init));
    return sync_beat_start(&(struct sync_beat_options){.created = c,
                                                       .last = s->give_back,
                                                       .lease_ms = s->o.lease_ms,
                                                       .step_began = &s->step_began,
                                                       .step = s->step.value,
                                                       .chief_beats = s->chief_beats},
                           &s->beat);
  }
  TRY(session_run_op(c->session, s->chief_beat_init));
  TRY(sync_beat_start(&(struct sync_beat_options){.created = c, .op = s->chief_beat, .lease_ms = s->o.lease_ms},
                      &s->beat));
  struct sync_runner_options o = {
      .created = c, .arg = s, .step = apply_once, .stalled = renew, .lease_ms = s->o.lease_ms};
  TRY(session_run_op(c->session, s->chief_init));
  /* A chief that comes back finds tokens in the queue and in the others' hands; if it does not, it renews them. */
  if (c->made != SHOAL_MADE_REJOINED) TRY(session_run_op(c->session, s->init_tokens));
  return sync_runner_start(&o, &s->runner);
}

static shoal_status end(shoal_sync_replicas *s, shoal_session *session) {
  TRY(session_run_op(session, s->give_back));
  if (!s->is_chief || !s->runner) return NULL;
  sync_runner_linger(s->runner, LINGER_MS);
  return session_run_op(session, s->close_tokens);
}

const struct sync_mode sync_tokens = {.name = "tokens", .check = check, .build = build, .created = created, .end = end};
