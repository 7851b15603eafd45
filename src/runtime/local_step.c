/* Compiling and running steps on the devices of this process. */
#include "runtime/local_step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/late_reads.h"
#include "graph/partition.h"
#include "graph/rewrite.h"

/* ---- compiling ---- */

static int place_of(void *arg, const char *device) {
  const struct local_env *env = arg;
  for (int i = 0; i < env->n_devices; i++)
    if (!strcmp(env->devices[i]->name, device)) return i;
  return -1;
}

static uint64_t incarnation_of(void *arg, const char *device) {
  const struct local_env *env = arg;
  int i = place_of(arg, device);
  return i < 0 ? 0 : env->devices[i]->incarnation;
}

static char **copy_names(const char *const *names, int n) {
  char **copy = mem_zalloc((size_t)n, sizeof *copy);
  for (int i = 0; i < n; i++) copy[i] = mem_strdup(names[i]);
  return copy;
}

static void find_feed_types(struct local_step *s, const struct shoal_graph *placed) {
  s->feed_types = mem_zalloc((size_t)s->n_feeds, 1);
  for (int i = 0; i < s->n_feeds; i++) {
    char name[4096];
    int index;
    if (!tensor_name_parse(s->feeds[i], name, sizeof name, &index)) continue;
    struct shoal_node *n = graph_find(placed, name);
    s->feed_types[i] = (uint8_t)dtype_base(n->out_types[index]);
  }
}

static shoal_status compile_plans(struct local_env *env, struct local_step *s) {
  struct partition_options o = {.place_of = place_of,
                                .n_places = env->n_devices,
                                .incarnation = incarnation_of,
                                .arg = env,
                                .next_name = &env->next_name};
  s->parts = mem_zalloc((size_t)env->n_devices, sizeof *s->parts);
  TRY(graph_partition(s->graph, &o, s->parts));
  s->plans = mem_zalloc((size_t)env->n_devices, sizeof *s->plans);
  for (int i = 0; i < env->n_devices; i++) {
    if (!s->parts[i]) continue;
    struct plan_options po = {.device = env->devices[i],
                              .resources = env->resources[i],
                              .functions = env->functions,
                              .kernels = env->kernels};
    TRY(plan_compile(s->parts[i], &po, &s->plans[s->n_plans]));
    s->n_plans++;
  }
  s->parts = mem_realloc(s->parts, (size_t)env->n_devices + 1, sizeof *s->parts);
  s->parts[env->n_devices] = NULL;
  for (int i = 0, n = 0; i < env->n_devices; i++)
    if (s->parts[i]) {
      struct shoal_graph *part = s->parts[i];
      s->parts[i] = NULL;
      s->parts[n++] = part;
    }
  return NULL;
}

static shoal_status evaluate(void *arg, const struct shoal_node *n, const struct tensor *const *in,
                             struct tensor *out) {
  struct local_env *env = arg;
  struct plan_options o = {.device = env->devices[0], .resources = env->resources[0]};
  return plan_evaluate(&o, n, in, NULL, out);
}

shoal_status local_step_compile(struct local_env *env, const struct shoal_graph *placed,
                                const struct step_signature *sig, enum feed_style style, struct local_step **out) {
  struct local_step *s = mem_zalloc(1, sizeof *s);
  atomic_init(&s->head.refs, 1);
  struct prune_options po = {
      .style = style, .device = env->devices[0]->name, .incarnation = env->devices[0]->incarnation};
  shoal_status status = graph_prune(placed, sig, &po, &s->graph);
  if (!status) {
    s->n_feeds = sig->n_feeds;
    s->n_fetches = sig->n_fetches;
    s->feeds = copy_names(sig->feeds, sig->n_feeds);
    s->fetches = copy_names(sig->fetches, sig->n_fetches);
    find_feed_types(s, placed);
    struct rewrite_options ro = {.off = env->rewrites_off,
                                 .evaluate = evaluate,
                                 .arg = env,
                                 .elementwise = kernel_is_elementwise,
                                 .own_ops = true};
    status = graph_rewrite(s->graph, &ro);
    if (!status) graph_late_reads(s->graph);
    if (!status) status = compile_plans(env, s);
  }
  if (status) {
    local_step_unref(s);
    return status;
  }
  *out = s;
  return NULL;
}

void local_step_unref(struct local_step *s) {
  if (!s || atomic_fetch_sub(&s->head.refs, 1) != 1) return;
  for (int i = 0; i < s->n_plans; i++) plan_unref(s->plans[i]);
  resource_mgr_unref(s->spare);
  for (int i = 0; i < s->n_feeds; i++) free(s->feeds[i]);
  for (int i = 0; i < s->n_fetches; i++) free(s->fetches[i]);
  for (int i = 0; s->parts && i < s->n_plans; i++) graph_free(s->parts[i]);
  graph_free(s->graph);
  free(s->plans);
  free(s->parts);
  free(s->feeds);
  free(s->fetches);
  free(s->feed_types);
  free(s);
}

/* ---- running ---- */

/* Most steps make nothing that lives as long as they do, so their manager serves again: the steady state of a step
 * takes no memory. */
static struct resource_mgr *take_resources(struct local_step *s) {
  struct resource_mgr *m = atomic_exchange(&s->spare, NULL);
  return m ? m : resource_mgr_new("step");
}

static void put_resources(struct local_step *s, struct resource_mgr *m) {
  if (resource_mgr_unused(m)) m = atomic_exchange(&s->spare, m);
  resource_mgr_unref(m);
}

void local_run_init(struct local_run *r, struct local_env *env, struct local_step *s, int64_t id, int64_t deadline) {
  *r = (struct local_run){.of = s};
  signature_ref(&s->head);
  cancel_init(&r->cancel);
  pthread_mutex_init(&r->lock, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&r->cond, &monotonic);
  pthread_condattr_destroy(&monotonic);
  bool alone = s->n_plans == 1 && plan_is_straight(s->plans[0]);
  r->step = (struct step){.id = id,
                          .cancel = &r->cancel,
                          .inter = env->inter,
                          .deadline = deadline,
                          .session = "",
                          .rendezvous = alone ? NULL : rendezvous_local_new(),
                          .step_resources = take_resources(s)};
}

static void plan_ended(void *arg, shoal_status s) {
  struct local_run *r = arg;
  if (s) {
    if (r->step.rendezvous) rendezvous_abort(r->step.rendezvous, status_copy(s));
    cancel_start(&r->cancel, status_mark_derived(status_copy(s)));
  }
  pthread_mutex_lock(&r->lock);
  status_merge(&r->status, s);
  if (--r->running == 0) pthread_cond_broadcast(&r->cond);
  pthread_mutex_unlock(&r->lock);
}

struct launch {
  struct local_run *run;
  struct plan *plan;
};

static void launch(void *arg) {
  struct launch l = *(struct launch *)arg;
  free(arg);
  plan_run(l.plan, &l.run->step, plan_ended, l.run);
}

void local_run_start(struct local_run *r) {
  int n = r->of->n_plans;
  r->running = n;
  for (int i = 0; i + 1 < n; i++) { /* the others on threads of their own, the last here */
    struct launch *l = mem_alloc(sizeof *l);
    *l = (struct launch){r, r->of->plans[i]};
    if (r->step.inter) pool_submit(r->step.inter, launch, l);
    else launch(l);
  }
  if (n) plan_run(r->of->plans[n - 1], &r->step, plan_ended, r);
}

shoal_status local_run_wait(struct local_run *r) {
  pthread_mutex_lock(&r->lock);
  bool timed_out = false;
  while (r->running) {
    if (r->step.deadline == DEADLINE_NEVER || timed_out) {
      pthread_cond_wait(&r->cond, &r->lock);
      continue;
    }
    struct timespec ts = {r->step.deadline / 1000000000, r->step.deadline % 1000000000};
    if (pthread_cond_timedwait(&r->cond, &r->lock, &ts) != ETIMEDOUT || !r->running) continue;
    timed_out = true;
    pthread_mutex_unlock(&r->lock);
    cancel_start(&r->cancel, STATUS(SHOAL_DEADLINE_EXCEEDED, "Timed out waiting for notification"));
    pthread_mutex_lock(&r->lock);
  }
  shoal_status s = r->status;
  r->status = NULL;
  pthread_mutex_unlock(&r->lock);
  if (s && timed_out) { /* what the cancelled ops say is only a consequence */
    shoal_status_free(s);
    s = STATUS(SHOAL_DEADLINE_EXCEEDED, "Timed out waiting for notification");
  }
  return s;
}

void local_run_release(struct local_run *r) {
  rendezvous_unref(r->step.rendezvous);
  put_resources(r->of, r->step.step_resources);
  shoal_status_free(r->status);
  pthread_mutex_destroy(&r->lock);
  pthread_cond_destroy(&r->cond);
  cancel_release(&r->cancel);
  local_step_unref(r->of);
}
