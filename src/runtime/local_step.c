/* Compiling and running steps on the devices of this process. */
#include "runtime/local_step.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/plan_rewrite.h"
#include "runtime/step_ends.h"
#include "runtime/run_cancel.h"

/* ---- compiling ---- */

static int place_of(void *arg, const char *device) {
  const struct local_env *env = arg;
  for (int i = 0; i < env->places.n_devices; i++)
    if (!strcmp(env->places.devices[i]->name, device)) return i;
  return -1;
}

void local_env_init(struct local_env *env) {
  env->places.place_of = place_of;
  env->places.arg = env;
  env->places.next_name = &env->next_name;
  env->places.steps = true;
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

/* ---- plans ---- */

static shoal_status compile_plans(struct local_env *env, struct local_step *s) {
  int n = env->places.n_devices, used = 0;
  s->parts = mem_zalloc((size_t)n, sizeof *s->parts);
  shoal_status status = plan_set_compile(&s->set, &env->places, s->graph, s->parts);
  for (int i = 0; i < n; i++) {
    struct shoal_graph *part = s->parts[i];
    s->parts[i] = NULL;
    if (part) s->parts[used++] = part;
  }
  s->n_parts = used;
  return status;
}

shoal_status local_step_compile(struct local_env *env, const struct shoal_graph *placed,
                                const struct step_signature *sig, enum feed_style style, struct local_step **out) {
  struct local_step *s = mem_zalloc(1, sizeof *s);
  ref_init(&s->head.refs, 1);
  struct prune_options po = {
      .style = style, .device = env->places.devices[0]->name, .incarnation = env->places.devices[0]->incarnation};
  shoal_status status = graph_prune(placed, sig, &po, &s->graph);
  if (!status) {
    s->n_feeds = sig->n_feeds;
    s->n_fetches = sig->n_fetches;
    s->feeds = copy_names(sig->feeds, sig->n_feeds);
    s->fetches = copy_names(sig->fetches, sig->n_fetches);
    find_feed_types(s, placed);
    if (style == FEED_ARGS) step_ends_follow(&env->places, s->graph);
    struct plan_options host = {.device = env->places.devices[0], .resources = env->places.resources[0]};
    status = plan_rewrite_step(s->graph, env->rewrites_off, &host);
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
  if (!s || !ref_drop(&s->head.refs)) return;
  plan_set_release(&s->set);
  for (int i = 0; i < s->n_feeds; i++) free(s->feeds[i]);
  for (int i = 0; i < s->n_fetches; i++) free(s->fetches[i]);
  for (int i = 0; i < s->n_parts; i++) graph_free(s->parts[i]);
  graph_free(s->graph);
  free(s->parts);
  free(s->feeds);
  free(s->fetches);
  free(s->feed_types);
  free(s);
}

/* ---- running ---- */

void local_run_init(struct local_run *r, struct local_env *env, struct local_step *s, int64_t id, int64_t deadline) {
  *r = (struct local_run){.of = s};
  signature_ref(&s->head);
  cancel_init(&r->cancel);
  r->run.step = (struct step){.id = id,
                              .cancel = &r->cancel,
                              .inter = env->inter,
                              .deadline = deadline,
                              .session = "",
                              .rendezvous = plan_set_is_alone(&s->set) ? NULL : rendezvous_local_new()};
}

void local_run_start(struct local_run *r) { plan_set_launch(&r->of->set, &r->run, latch_done, &r->ended); }

/* A step that ends behind its deadline is late, whatever it ended with: it may have computed on this thread. */
shoal_status local_run_wait(struct local_run *r) {
  static const char why[] = "Timed out waiting for notification";
  int64_t deadline = r->run.step.deadline;
  shoal_status s;
  if (!join_ended_here(&r->run.join, &s)) { /* nearly all have */
    latch_init(&r->ended, 1);
    join_part(&r->run.join, NULL);
    if (!latch_wait_until(&r->ended, deadline)) cancel_start(&r->cancel, STATUS(SHOAL_DEADLINE_EXCEEDED, why));
    s = latch_finish(&r->ended);
  }
  if (LIKELY(deadline == DEADLINE_NEVER) || clock_ns() < deadline) return run_cancel_outcome(&r->cancel, s);
  shoal_status_free(s); /* what cancelled ops say is only a consequence */
  return STATUS(SHOAL_DEADLINE_EXCEEDED, why);
}

void local_run_release(struct local_run *r) {
  rendezvous_unref(r->run.step.rendezvous);
  plan_set_end(&r->of->set, &r->run);
  cancel_release(&r->cancel);
  local_step_unref(r->of);
}
