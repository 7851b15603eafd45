/* The session in this process: a graph of its own, devices of its own, steps compiled once per signature.
 *
 * Many threads may run steps at once. A run by names finds its compiled step by a key made of the names; a callable
 * holds it directly. */
#include "runtime/local_session.h"

#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/latch.h"
#include "base/list.h"
#include "base/mem.h"
#include "graph/lower.h"
#include "graph/place.h"
#include "runtime/kernel_why.h"
#include "runtime/plan_rewrite.h"
#include "runtime/replay.h"
#include "runtime/run_cancel.h"
#include "runtime/run_metadata.h"
#include "runtime/session_config.h"
#include "runtime/step_stats.h"

#define TASK "/job:localhost/replica:0/task:0"
enum { MOST_STEPS = 2000 };

/* Threads that all sessions share unless they ask for their own number. */
static struct {
  pthread_once_t once;
  struct pool *inter, *intra;
} shared = {.once = PTHREAD_ONCE_INIT};

static void make_shared(void) {
  shared.inter = pool_new(0, "inter");
  shared.intra = pool_new(0, "intra");
}

/* ---- opening ---- */

/* The ConfigProto's settings, with the options laid over them. */
static shoal_status read_config(const shoal_session_options *o, struct session_config *c) {
  *c = (struct session_config){0};
  shoal_status s = session_config_read(c, wire_from(o->config_size ? o->config : "", o->config_size));
  session_config_release(c); /* filters are for clusters */
  TRY(s);
  if (o->cpu_devices) session_config_ask(c, device_type_host(), o->cpu_devices);
  if (o->inter_op_threads) c->inter_threads = o->inter_op_threads;
  if (o->intra_op_threads) c->intra_threads = o->intra_op_threads;
  if (o->operation_timeout_ms) c->operation_timeout_ms = o->operation_timeout_ms;
  c->soft_placement |= o->allow_soft_placement;
  c->log_placement |= o->log_device_placement;
  return session_config_check(c);
}

static const struct session_ops local_ops;

static void drop_step(struct signature *step) { local_step_unref((struct local_step *)step); }

static void forget_step(void *none, struct signature *step) { drop_step(step); }

shoal_status local_session_open(struct shoal_graph *g, const shoal_session_options *o, shoal_session **out) {
  struct session_config set;
  TRY(read_config(o, &set));
  pthread_once(&shared.once, make_shared);
  struct local_session *s = mem_zalloc(1, sizeof *s);
  session_init(&s->head, &local_ops);
  pthread_mutex_init(&s->graph_lock, NULL);
  pthread_mutex_init(&s->lock, NULL);
  signatures_init(&s->steps, MOST_STEPS, forget_step, NULL);
  pthread_mutex_init(&s->runs_lock, NULL);
  pthread_cond_init(&s->runs_idle, NULL);
  s->graph = graph_copy(g, NULL);
  s->own_inter = set.inter_threads > 0 ? pool_new(set.inter_threads, "inter") : NULL;
  s->own_intra = set.intra_threads > 0 ? pool_new(set.intra_threads, "intra") : NULL;
  s->soft = set.soft_placement;
  s->log = set.log_placement;
  s->timeout_ms = set.operation_timeout_ms;
  s->inter_pools = MAX(set.inter_pools, 1);
  atomic_init(&s->next_step, 1);
  struct local_env *env = &s->env;
  local_env_init(env);
  env->inter = s->own_inter ? s->own_inter : shared.inter;
  struct plan_places *p = &env->places;
  p->devices = devices_new(TASK, set.devices, set.n_devices, &set.device_options,
                           s->own_intra ? s->own_intra : shared.intra, &p->n_devices);
  p->resources = mem_zalloc((size_t)p->n_devices, sizeof *p->resources);
  for (int i = 0; i < p->n_devices; i++) p->resources[i] = resource_mgr_new("localhost");
  p->functions = function_runtime_new(s->graph);
  const char *off = o->rewrites_off ? o->rewrites_off : plan_rewrites_off(set.as_is);
  env->rewrites_off = off ? mem_strdup(off) : NULL;
  function_runtime_place(p->functions, p->devices, NULL, p->resources, p->n_devices, off);
  p->kernels = kernel_cache_new();
  *out = &s->head;
  return NULL;
}

/* New nodes are added to the session's own graph; those it has stay as they are. */
static shoal_status local_extend(shoal_session *base, struct shoal_graph *g) {
  struct local_session *s = local_session_of(base);
  pthread_mutex_lock(&s->graph_lock);
  shoal_status status = graph_add_new(s->graph, g);
  if (!status) status = function_runtime_add(s->env.places.functions, g);
  s->placed = false;
  pthread_mutex_unlock(&s->graph_lock);
  return status;
}

/* ---- running steps ---- */

shoal_status local_session_enter(struct local_session *s, struct local_run *r) {
  pthread_mutex_lock(&s->runs_lock);
  shoal_status status = s->closed ? STATUS(SHOAL_CANCELLED, "Session has been closed.") : NULL;
  if (!status) LIST_ADD(s->runs, r);
  pthread_mutex_unlock(&s->runs_lock);
  return status;
}

void local_session_leave(struct local_session *s, struct local_run *r) {
  pthread_mutex_lock(&s->runs_lock);
  while (r->in_use) pthread_cond_wait(&s->runs_idle, &s->runs_lock);
  LIST_REMOVE(s->runs, r);
  pthread_mutex_unlock(&s->runs_lock);
}

static shoal_status place_graph(struct local_session *s) {
  if (s->placed) return NULL;
  TRY(graph_try_lower(s->graph)); /* plain nodes can be placed, rewritten and traced one by one */
  struct place_device *devices = mem_zalloc((size_t)s->env.places.n_devices, sizeof *devices);
  for (int i = 0; i < s->env.places.n_devices; i++) {
    devices[i].name = s->env.places.devices[i]->name;
    shoal_status_free(device_spec_parse(devices[i].name, &devices[i].spec));
  }
  struct place_options o = {.devices = devices,
                            .n_devices = s->env.places.n_devices,
                            .own_task = TASK,
                            .allow_soft_placement = s->soft,
                            .log = s->log,
                            .has_kernel = kernel_supports,
                            .has_if_asked = kernel_supports_if_asked,
                            .why_no_kernel = kernel_why_none,
                            .priority = device_type_priority};
  shoal_status status = graph_place(s->graph, &o);
  free(devices);
  s->placed = !status;
  return status;
}

struct step_wait {
  struct signature_asker asker;
  struct latch latch;
  struct signature *made;
};

static void step_made(struct signature_asker *a, shoal_status err, struct signature *made) {
  struct step_wait *w = (struct step_wait *)a;
  w->made = made;
  latch_done(&w->latch, err);
}

/* All are told before the graph can be extended: who has extended it gets no outcome of before. */
static void compile(struct local_session *s, const struct step_signature *sig, enum feed_style style,
                    struct signature_work *work) {
  struct local_step *made = NULL;
  pthread_mutex_lock(&s->graph_lock);
  shoal_status status = place_graph(s);
  if (!status) status = local_step_compile(&s->env, s->graph, sig, style, &made);
  signatures_end(&s->steps, work, made ? &made->head : NULL, status);
  pthread_mutex_unlock(&s->graph_lock);
}

shoal_status local_session_step(struct local_session *s, const struct step_signature *sig, enum feed_style style,
                                struct local_step **out) {
  char *key = signature_key(style == FEED_WIRES ? 'w' : 'a', sig);
  struct signature *found = NULL;
  shoal_status status = NULL;
  if (signatures_find(&s->steps, key, NULL, NULL, &found) != SIGNATURE_KEPT) {
    struct step_wait wait = {.asker.tell = step_made};
    struct signature_work work;
    latch_init(&wait.latch, 1);
    enum signature_state state = signatures_find(&s->steps, key, &work, &wait.asker, &found);
    if (state == SIGNATURE_KEPT) step_made(&wait.asker, NULL, found);
    if (state == SIGNATURE_ABSENT) compile(s, sig, style, &work);
    status = latch_finish(&wait.latch);
    found = wait.made;
  }
  block_free(key);
  *out = (struct local_step *)found;
  return status;
}

static shoal_status check_feeds(const struct local_step *step, shoal_tensor *const *feeds) {
  for (int i = 0; i < step->n_feeds; i++) {
    if (!feeds[i]) return INVALID("The tensor returned for feed %s was NULL", step->feeds[i]);
    if (feeds[i]->t.dtype != step->feed_types[i])
      return INVALID("The value fed for %s is of type %s, not %s", step->feeds[i], dtype_tf_name(feeds[i]->t.dtype),
                     dtype_tf_name(step->feed_types[i]));
  }
  return NULL;
}

static void cancel_run(void *run) { cancel_start(&((struct local_run *)run)->cancel, run_cancel_status()); }

static shoal_status run_step(struct local_session *s, struct local_step *step, const shoal_run_options *o,
                             shoal_tensor *const *feeds, shoal_tensor **fetches, shoal_bytes *metadata) {
  TRY(check_feeds(step, feeds));
  if (o && (o->inter_op_thread_pool < -1 || o->inter_op_thread_pool >= s->inter_pools))
    return INVALID("Invalid inter_op_thread_pool: %d", o->inter_op_thread_pool);
  int64_t timeout = o && o->timeout_ms > 0 ? o->timeout_ms : s->timeout_ms;
  struct local_run r;
  local_run_init(&r, &s->env, step, atomic_fetch_add(&s->next_step, 1), deadline_after_ms(timeout));
  enum { INLINE = 16 };
  struct tensor space[INLINE];
  int n = step->n_feeds + step->n_fetches;
  struct tensor *values = n > INLINE ? mem_alloc((size_t)n * sizeof *values) : space;
  for (int i = 0; i < step->n_feeds; i++) tensor_move(&values[i], &feeds[i]->t);
  for (int i = 0; i < step->n_fetches; i++) values[step->n_feeds + i] = tensor_none();
  r.run.step.args = values;
  r.run.step.n_args = step->n_feeds;
  r.run.step.rets = values + step->n_feeds;
  r.run.step.n_rets = step->n_fetches;
  r.run.step.here = true;
  int64_t *more = replay_more_take();
  if (plan_set_is_alone(&step->set)) r.run.step.more = more;
  if (metadata && o && o->trace_level > 0) r.run.step.stats = step_stats_new(true);
  shoal_status status = local_session_enter(s, &r);
  if (!status) {
    struct run_cancel_link link;
    run_cancel_link(&link, cancel_run, &r);
    local_run_start(&r);
    status = local_run_wait(&r);
    run_cancel_unlink(&link);
    local_session_leave(s, &r);
  }
  for (int i = 0; i < step->n_fetches; i++) {
    struct tensor *t = &r.run.step.rets[i];
    if (!status && !tensor_valid(t)) status = INVALID("Retval[%d] does not have value", i);
    if (status) tensor_release(t);
    else fetches[i] = tensor_handle_take(t);
  }
  if (status)
    for (int i = 0; i < step->n_fetches; i++) fetches[i] = NULL;
  if (!status && metadata) {
    bool parts = o && o->output_partition_graphs;
    status = run_metadata_encode(r.run.step.stats, parts ? step->parts : NULL, parts ? step->n_parts : 0, metadata);
  }
  step_stats_free(r.run.step.stats);
  if (values != space) free(values);
  local_run_release(&r);
  return status;
}

static shoal_status local_run_by_names(shoal_session *base, const shoal_run_options *o,
                                       const struct step_signature *sig, shoal_tensor *const *feeds,
                                       shoal_tensor **fetches, shoal_bytes *metadata) {
  struct local_session *s = local_session_of(base);
  struct local_step *step;
  TRY(local_session_step(s, sig, FEED_ARGS, &step));
  shoal_status status = run_step(s, step, o, feeds, fetches, metadata);
  local_step_unref(step);
  return status;
}

/* ---- callables ---- */

static shoal_status local_make_callable(shoal_session *base, const struct step_signature *sig, int64_t *callable) {
  struct local_session *s = local_session_of(base);
  struct local_step *step;
  TRY(local_session_step(s, sig, FEED_ARGS, &step));
  *callable = signatures_hold(&s->steps, &step->head, NULL, 0);
  return NULL;
}

static shoal_status local_run_callable(shoal_session *base, int64_t callable, const shoal_run_options *o,
                                       shoal_tensor *const *feeds, int n_feeds, shoal_tensor **fetches, int n_fetches,
                                       shoal_bytes *metadata) {
  struct local_session *s = local_session_of(base);
  struct local_step *step = (struct local_step *)signatures_held(&s->steps, callable, NULL);
  if (!step) return INVALID("No such callable handle: %lld", (long long)callable);
  shoal_status status = NULL;
  if (n_feeds != step->n_feeds || n_fetches != step->n_fetches)
    status = INVALID("Expected %d feed tensors and %d fetches, but got %d and %d", step->n_feeds, step->n_fetches,
                     n_feeds, n_fetches);
  if (!status) status = run_step(s, step, o, feeds, fetches, metadata);
  local_step_unref(step);
  return status;
}

static shoal_status local_release_callable(shoal_session *base, int64_t callable) {
  struct local_step *step = (struct local_step *)signatures_let_go(&local_session_of(base)->steps, callable);
  if (!step) return INVALID("No such callable handle: %lld", (long long)callable);
  local_step_unref(step);
  return NULL;
}

/* ---- the rest ---- */

static shoal_status local_list_devices(shoal_session *base, char **names) {
  struct local_session *s = local_session_of(base);
  struct text t = {0};
  for (int i = 0; i < s->env.places.n_devices; i++) {
    const struct device *d = s->env.places.devices[i];
    session_device_line(&t, &(shoal_device){d->name, d->type->name, d->memory_limit, d->incarnation});
  }
  *names = text_take(&t);
  return NULL;
}

/* Call with runs_lock held. */
static struct local_run *next_to_interrupt(struct local_session *s) {
  struct local_run *r = s->runs;
  while (r && r->interrupted) r = r->next;
  return r;
}

static void local_interrupt(shoal_session *base) {
  struct local_session *s = local_session_of(base);
  pthread_mutex_lock(&s->runs_lock);
  s->closed = true;
  /* Without the lock: what waited goes on, on this thread, for as long as it takes. */
  for (struct local_run *r; (r = next_to_interrupt(s));) {
    r->interrupted = r->in_use = true;
    pthread_mutex_unlock(&s->runs_lock);
    cancel_start(&r->cancel, run_closed_status());
    pthread_mutex_lock(&s->runs_lock);
    r->in_use = false;
    pthread_cond_broadcast(&s->runs_idle);
  }
  pthread_mutex_unlock(&s->runs_lock);
}

static shoal_status local_end(shoal_session *base) {
  local_interrupt(base);
  return NULL;
}

static void local_free(shoal_session *base) {
  struct local_session *s = local_session_of(base);
  local_partials_stop(s);
  INVARIANT(10, !s->runs); /* all calls have left, and partial runs were the rest */
  signatures_release(&s->steps, drop_step);
  strmap_release(&s->partials);
  function_runtime_unref(s->env.places.functions);
  kernel_cache_free(s->env.places.kernels);
  for (int i = 0; i < s->env.places.n_devices; i++) {
    resource_mgr_close(s->env.places.resources[i]);
    device_free(s->env.places.devices[i]);
  }
  free(s->env.places.resources);
  free(s->env.places.devices);
  free((char *)(uintptr_t)s->env.rewrites_off);
  pool_free(s->own_inter);
  pool_free(s->own_intra);
  graph_free(s->graph);
  pthread_mutex_destroy(&s->graph_lock);
  pthread_mutex_destroy(&s->lock);
  pthread_mutex_destroy(&s->runs_lock);
  pthread_cond_destroy(&s->runs_idle);
  free(s);
}

static const struct session_ops local_ops = {
    .extend = local_extend,
    .end = local_end,
    .free = local_free,
    .interrupt = local_interrupt,
    .run = local_run_by_names,
    .partial_setup = local_partial_setup,
    .partial_run = local_partial_run,
    .make_callable = local_make_callable,
    .run_callable = local_run_callable,
    .release_callable = local_release_callable,
    .list_devices = local_list_devices,
};
