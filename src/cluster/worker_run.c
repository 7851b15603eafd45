/* One run of a registered graph: its plans side by side, with one rendezvous, one cancellation, one status. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/machine.h"
#include "cluster/listing.h"
#include "cluster/worker.h"
#include "rpc/loop.h"

/* What is too long for a thread of the network where another core is free: computing on it, or a whole run. Where none
 * is, computing for as long as a run. */
enum { SLOW_HERE_NS = 100000, SLOW_NS = 2000000 };

static void finish(void *arg, shoal_status s) {
  struct graph_run *r = arg;
  struct worker *w = r->session->worker;
  struct step *step = &r->run.step;
  int64_t now = clock_ns();
  if (now - r->started > SLOW_NS && machine_has_idle_cores(now)) atomic_store(&r->graph->slow, true);
  pthread_mutex_lock(&w->lock);
  LIST_REMOVE(w->runs, r);
  pthread_cond_broadcast(&w->idle);
  pthread_mutex_unlock(&w->lock);
  if (r->bound) step_rendezvous_unbind(step->rendezvous);
  rendezvous_unref(step->rendezvous);
  plan_set_end(&r->graph->set, &r->run);
  if (step->stats && strcmp(w->task, r->session->task)) step_stats_rename(step->stats, w->task, r->session->task);
  worker_graph_unref(r->graph);
  worker_session_unref(r->session);
  r->done(r->arg, s);
}

void worker_run_start(struct graph_run *r) {
  struct worker_graph *g = r->graph;
  struct worker *w = r->session->worker;
  struct step *step = &r->run.step;
  r->started = clock_ns();
  atomic_store_explicit(&w->last_run, r->started, memory_order_relaxed);
  atomic_fetch_add_explicit(&w->runs_started, 1, memory_order_relaxed);
  step->inter = w->inter;
  step->session = r->session->handle;
  step->site = g->spans ? &r->session->collectives.site : NULL;
  if (step->rendezvous) rendezvous_ref(step->rendezvous);
  else if (g->meets) step->rendezvous = steps_get(w->steps, step->id);
  shoal_status taken = NULL;
  if (step->rendezvous)
    taken =
        step_rendezvous_bind(step->rendezvous, &r->session->names, atomic_load(&r->session->connection), step->stats);
  r->bound = step->rendezvous && !taken;
  pthread_mutex_lock(&w->lock);
  LIST_ADD(w->runs, r);
  pthread_mutex_unlock(&w->lock);
  if (taken) {
    finish(r, taken);
    return;
  }
  if (atomic_exchange(&g->slow, false)) rpc_loop_hand_over();
  fast_hold();
  if (!step->rendezvous || g->spans) fast_flush(); /* others wait for what is held, and we for them or not at all */
  plan_set_launch(&g->set, &r->run, finish, r);
  fast_release();
  int64_t now = clock_ns();
  if (now - r->started > (machine_has_idle_cores(now) ? SLOW_HERE_NS : SLOW_NS)) atomic_store(&g->slow, true);
  join_part(&r->run.join, NULL);
}

void worker_describe(struct worker *w, struct text *out) {
  pthread_mutex_lock(&w->lock);
  text_addf(out, "%zu worker sessions\n", w->sessions.n);
  int64_t now = clock_ns();
  void *value;
  struct listing sessions = {.out = out}, runs = {.out = out};
  for (size_t i = 0; strmap_next(&w->sessions, &i, NULL, &value) && listing_line(&sessions);) {
    struct worker_session *s = value;
    pthread_mutex_lock(&s->lock);
    text_addf(out, " session %" PRId64 ": %zu registered graphs\n", s->number, s->graphs.n);
    pthread_mutex_unlock(&s->lock);
  }
  for (struct graph_run *r = w->runs; r && listing_line(&runs); r = r->next)
    text_addf(out, "  step %" PRId64 ": running graph %s of session %" PRId64 " since %.1f s\n",
              listing_step(r->run.step.id), r->graph->handle, r->session->number, (double)(now - r->started) * 1e-9);
  pthread_mutex_unlock(&w->lock);
  if (sessions.full || runs.full)
    text_addf(out, " ... and more: %" PRId64 " steps are under way\n", limits_used(w->limits, LIMIT_STEPS));
  steps_describe(w->steps, out);
}
