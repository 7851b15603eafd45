/* One run of a registered graph: its plans side by side, with one rendezvous, one cancellation, one status. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/worker.h"
#include "rpc/loop.h"

/* What is too long for a thread of the network: computing on it, or a whole run. */
enum { SLOW_HERE_NS = 100000, SLOW_NS = 2000000 };

static void finish(struct worker_run *r) {
  struct worker *w = r->session->worker;
  if (clock_ns() - r->started > SLOW_NS) atomic_store(&r->graph->slow, true);
  pthread_mutex_lock(&w->lock);
  if (r->prev) r->prev->next = r->next;
  else w->runs = r->next;
  if (r->next) r->next->prev = r->prev;
  pthread_cond_broadcast(&w->idle);
  pthread_mutex_unlock(&w->lock);
  if (r->bound) {
    /* Whoever still waits for a value of this step learns why there will be none. */
    if (r->status) rendezvous_abort(r->step.rendezvous, status_copy(r->status));
    step_rendezvous_unbind(r->step.rendezvous);
  }
  rendezvous_unref(r->step.rendezvous);
  resource_mgr_unref(r->step.step_resources);
  if (r->stats && strcmp(w->task, r->session->task)) step_stats_rename(r->stats, w->task, r->session->task);
  pthread_mutex_destroy(&r->lock);
  r->done(r->arg, r->status);
}

static void plan_done(void *arg, shoal_status s) {
  struct worker_run *r = arg;
  if (s) {
    if (atomic_load(&r->left) > 1) {
      /* Other devices wait for values that will not come. */
      if (r->step.rendezvous) rendezvous_abort(r->step.rendezvous, status_mark_derived(status_copy(s)));
      cancel_start(r->cancel, status_mark_derived(status_copy(s)));
    }
    pthread_mutex_lock(&r->lock);
    status_merge(&r->status, s);
    pthread_mutex_unlock(&r->lock);
  }
  if (atomic_fetch_sub(&r->left, 1) == 1) finish(r);
}

struct launch {
  struct worker_run *run;
  struct plan *plan;
};

static void launch(void *arg) {
  struct launch l = *(struct launch *)arg;
  free(arg);
  plan_run(l.plan, &l.run->step, plan_done, l.run);
}

void worker_run_start(struct worker_run *r) {
  struct worker *w = r->session->worker;
  struct worker_graph *g = r->graph;
  r->started = clock_ns();
  atomic_store_explicit(&w->last_run, r->started, memory_order_relaxed);
  atomic_fetch_add_explicit(&w->runs_started, 1, memory_order_relaxed);
  r->step = (struct step){.id = r->step_id,
                          .cancel = r->cancel,
                          .step_resources = resource_mgr_new(NULL),
                          .inter = w->inter,
                          .deadline = r->deadline,
                          .stats = r->stats,
                          .session = r->session->handle,
                          .args = r->args,
                          .n_args = r->n_args,
                          .rets = r->rets,
                          .n_rets = r->n_rets};
  if (r->rendezvous) r->step.rendezvous = rendezvous_ref(r->rendezvous);
  else if (g->meets) r->step.rendezvous = steps_get(w->steps, r->step_id);
  pthread_mutex_init(&r->lock, NULL);
  r->status = NULL;
  if (r->step.rendezvous)
    r->status =
        step_rendezvous_bind(r->step.rendezvous, &r->session->names, atomic_load(&r->session->connection), r->stats);
  r->bound = r->step.rendezvous && !r->status;
  atomic_init(&r->left, g->n_plans + 1);
  pthread_mutex_lock(&w->lock);
  r->prev = NULL;
  r->next = w->runs;
  if (r->next) r->next->prev = r;
  w->runs = r;
  pthread_mutex_unlock(&w->lock);
  if (r->status) {
    finish(r);
    return;
  }
  for (int i = 0; i + 1 < g->n_plans; i++) {
    struct launch *l = mem_alloc(sizeof *l); /* other devices' plans on threads of their own, the last here */
    *l = (struct launch){r, g->plans[i]};
    pool_submit(w->inter, launch, l);
  }
  if (atomic_exchange(&g->slow, false)) rpc_loop_hand_over();
  fast_hold();
  if (!r->step.rendezvous) fast_flush(); /* this part does not meet others, who may wait for what is held */
  if (g->n_plans) plan_run(g->plans[g->n_plans - 1], &r->step, plan_done, r);
  fast_release();
  if (clock_ns() - r->started > SLOW_HERE_NS) atomic_store(&g->slow, true);
  plan_done(r, NULL);
}

void worker_describe(struct worker *w, struct text *out) {
  pthread_mutex_lock(&w->lock);
  text_addf(out, "%zu worker sessions\n", w->sessions.n);
  int64_t now = clock_ns();
  void *value;
  for (size_t i = 0; strmap_next(&w->sessions, &i, NULL, &value);) {
    struct worker_session *s = value;
    pthread_mutex_lock(&s->lock);
    text_addf(out, " session %" PRId64 ": %zu registered graphs\n", s->number, s->graphs.n);
    pthread_mutex_unlock(&s->lock);
  }
  for (struct worker_run *r = w->runs; r; r = r->next)
    text_addf(out, "  step %" PRId64 ": running graph %s of session %" PRId64 " since %.1f s\n", r->step_id,
              r->graph->handle, r->session->number, (double)(now - r->started) * 1e-9);
  pthread_mutex_unlock(&w->lock);
  steps_describe(w->steps, out);
}
