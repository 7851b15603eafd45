/* Sets of plans; see plan_set.h. */
#include "runtime/plan_set.h"

#include <stdlib.h>

#include "base/mem.h"
#include "graph/partition.h"

/* ---- compiling ---- */

static int place_of(void *arg, const char *device) {
  const struct plan_places *p = arg;
  return p->place_of(p->arg, device);
}

static uint64_t incarnation_of(void *arg, const char *device) {
  const struct plan_places *p = arg;
  int i = p->place_of(p->arg, device);
  return i < 0 ? 0 : p->devices[i]->incarnation;
}

shoal_status plan_places_cut(struct plan_places *p, struct shoal_graph *g, struct shoal_graph **parts) {
  struct partition_options o = {.place_of = place_of,
                                .n_places = p->n_devices,
                                .incarnation = incarnation_of,
                                .arg = p,
                                .next_name = p->next_name};
  return graph_partition(g, &o, parts);
}

shoal_status plan_set_add(struct plan_set *set, const struct plan_places *p, int device, const struct shoal_graph *g) {
  struct plan_options o = {.device = p->devices[device],
                           .resources = p->resources[device],
                           .functions = p->functions,
                           .step = p->steps,
                           .kernels = p->kernels};
  if (!set->plans) set->plans = mem_zalloc((size_t)p->n_devices, sizeof *set->plans);
  TRY(plan_compile(g, &o, &set->plans[set->n]));
  set->n++;
  return NULL;
}

shoal_status plan_set_compile(struct plan_set *set, struct plan_places *p, struct shoal_graph *g,
                              struct shoal_graph **parts) {
  TRY(plan_places_cut(p, g, parts));
  for (int i = 0; i < p->n_devices; i++)
    if (parts[i]) TRY(plan_set_add(set, p, i, parts[i]));
  return NULL;
}

void plan_set_release(struct plan_set *set) {
  for (int i = 0; i < set->n; i++) plan_unref(set->plans[i]);
  resource_mgr_unref(set->spare);
  free(set->plans);
}

bool plan_set_is_alone(const struct plan_set *set) { return set->n == 1 && plan_is_alone(set->plans[0]); }

/* ---- running ---- */

/* Whoever waits for a value of this step learns why there will be none. */
static void plan_ended(void *arg, shoal_status s) {
  struct set_run *r = arg;
  if (s) {
    bool others = join_has_others(&r->join);
    if (r->step.rendezvous) {
      shoal_status why = status_copy(s);
      rendezvous_abort(r->step.rendezvous, others ? status_mark_derived(why) : why);
    }
    if (others) cancel_start(r->step.cancel, status_mark_derived(status_copy(s)));
  }
  join_part(&r->join, s);
}

struct plan_launch {
  struct set_run *run;
  struct plan *plan;
};

static void launch(void *arg) {
  struct plan_launch l = *(struct plan_launch *)arg;
  free(arg);
  plan_run(l.plan, &l.run->step, plan_ended, l.run);
}

/* Most steps make nothing that lives as long as they do, so their manager serves again: the steady state of a step
 * takes no memory. */
static struct resource_mgr *take_resources(struct plan_set *set) {
  struct resource_mgr *m = atomic_exchange(&set->spare, NULL);
  return m ? m : resource_mgr_new("step");
}

void plan_set_end(struct plan_set *set, struct set_run *r) {
  INVARIANT(2, !join_has_others(&r->join));
  struct resource_mgr *m = r->step.step_resources;
  if (m && resource_mgr_unused(m)) m = atomic_exchange(&set->spare, m);
  resource_mgr_unref(m);
}

void plan_set_launch(struct plan_set *set, struct set_run *r, void (*next)(void *arg, shoal_status s), void *arg) {
  r->step.step_resources = take_resources(set);
  r->step.waits = true;
  r->step.late = &r->late;
  atomic_init(&r->late, NULL);
  r->step.meeting = &r->meeting;
  atomic_init(&r->meeting, NULL);
  plan_set_start(set, r, next, arg);
}

void plan_set_start(struct plan_set *set, struct set_run *r, void (*next)(void *arg, shoal_status s), void *arg) {
  join_init(&r->join, (size_t)set->n + 1, next, arg);
  for (int i = 0; i + 1 < set->n; i++) {
    struct plan_launch *l = mem_alloc(sizeof *l);
    *l = (struct plan_launch){r, set->plans[i]};
    if (r->step.inter) pool_submit(r->step.inter, launch, l);
    else launch(l);
  }
  if (set->n) plan_run(set->plans[set->n - 1], &r->step, plan_ended, r);
}
