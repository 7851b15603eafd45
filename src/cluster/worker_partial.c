/* Partial runs of other masters; see worker_partial.h. */
#include "cluster/worker_partial.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"

struct partial_run {
  struct partial_run *next; /* worker->lock */
  bool listed;              /* worker->lock: it can be joined */
  atomic_int refs;          /* the table's, the run's, each call's */
  struct worker *worker;
  struct account *account; /* the session's */
  int64_t step;
  struct graph_run run;
  struct cancel cancel;
  struct rendezvous *rendezvous;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool ended;                              /* lock */
  shoal_status status;                     /* lock: how */
  void (*done)(void *arg, shoal_status s); /* lock: the last call's */
  void *arg;
};

void partial_run_unref(struct partial_run *p) {
  if (!p || atomic_fetch_sub(&p->refs, 1) != 1) return;
  account_give(p->account, LIMIT_PARTIAL_RUNS, 1);
  account_unref(p->account);
  rendezvous_unref(p->rendezvous);
  cancel_release(&p->cancel);
  shoal_status_free(p->status);
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->changed);
  free(p);
}

static void run_ended(void *arg, shoal_status s) {
  struct partial_run *p = arg;
  pthread_mutex_lock(&p->lock);
  p->ended = true;
  p->status = s;
  void (*done)(void *, shoal_status) = p->done;
  shoal_status copy = s ? status_copy(s) : NULL;
  pthread_cond_broadcast(&p->changed);
  pthread_mutex_unlock(&p->lock);
  if (done) done(p->arg, copy);
  else shoal_status_free(copy);
  partial_run_unref(p);
}

static struct partial_run *partial_new(struct worker *w, int64_t step, struct worker_session *session,
                                       struct worker_graph *graph, struct rendezvous *rendezvous) {
  struct partial_run *p = mem_zalloc(1, sizeof *p);
  atomic_init(&p->refs, 3); /* the table's, the run's, the caller's */
  p->worker = w;
  p->step = step;
  p->rendezvous = rendezvous_ref(rendezvous);
  cancel_init(&p->cancel);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->changed, NULL);
  atomic_fetch_add(&session->refs, 1);
  atomic_fetch_add(&graph->refs, 1);
  p->run = (struct graph_run){
      .run.step = {.id = step, .cancel = &p->cancel, .deadline = DEADLINE_NEVER, .rendezvous = rendezvous},
      .session = session,
      .graph = graph,
      .done = run_ended,
      .arg = p};
  return p;
}

shoal_status partial_run_join(struct worker *w, int64_t step, struct worker_session *session,
                              struct worker_graph *graph, struct rendezvous *rendezvous, struct partial_run **out) {
  shoal_status s = NULL;
  pthread_mutex_lock(&w->lock);
  struct partial_run *p = w->partials;
  while (p && p->step != step) p = p->next;
  bool fresh = !p;
  if (p && (p->run.session != session || p->run.graph != graph)) {
    s = INVALID("step %" PRId64 " is a partial run of another session, or of another graph", step);
  } else if (p) {
    atomic_fetch_add(&p->refs, 1);
  } else if (!(s = account_take(session->account, LIMIT_PARTIAL_RUNS, 1))) {
    p = partial_new(w, step, session, graph, rendezvous);
    p->account = account_ref(session->account);
    p->listed = true;
    p->next = w->partials;
    w->partials = p;
  }
  pthread_mutex_unlock(&w->lock);
  TRY(s);
  *out = p;
  if (fresh) worker_run_start(&p->run);
  return NULL;
}

/* Takes p out of the table, with its reference; false when it was not there. Call with the worker's lock held. */
static bool unlist(struct worker *w, struct partial_run *p) {
  if (!p->listed) return false;
  struct partial_run **at = &w->partials;
  while (*at != p) at = &(*at)->next;
  *at = p->next;
  p->listed = false;
  return true;
}

void partial_run_finish(struct partial_run *p, void (*done)(void *arg, shoal_status s), void *arg) {
  pthread_mutex_lock(&p->worker->lock);
  bool first = unlist(p->worker, p);
  pthread_mutex_unlock(&p->worker->lock);
  if (!first) {
    done(arg, STATUS(SHOAL_FAILED_PRECONDITION, "the partial run of step %" PRId64 " has had its last call", p->step));
    return;
  }
  pthread_mutex_lock(&p->lock);
  bool ended = p->ended;
  shoal_status s = ended && p->status ? status_copy(p->status) : NULL;
  if (!ended) {
    p->done = done;
    p->arg = arg;
  }
  pthread_mutex_unlock(&p->lock);
  if (ended) done(arg, s);
  partial_run_unref(p);
}

void partial_run_cancel(struct partial_run *p, shoal_status why) {
  rendezvous_abort(p->rendezvous, status_copy(why));
  cancel_start(&p->cancel, why);
}

void partial_run_forget(struct worker *w, int64_t step) {
  pthread_mutex_lock(&w->lock);
  struct partial_run *p = w->partials;
  while (p && p->step != step) p = p->next;
  if (p) unlist(w, p);
  pthread_mutex_unlock(&w->lock);
  if (!p) return;
  partial_run_cancel(p, STATUS(SHOAL_CANCELLED, "step %" PRId64 " was cleaned up", step));
  partial_run_unref(p);
}

void partial_runs_stop(struct worker *w) {
  for (;;) {
    pthread_mutex_lock(&w->lock);
    struct partial_run *p = w->partials;
    if (p) unlist(w, p);
    pthread_mutex_unlock(&w->lock);
    if (!p) return;
    partial_run_cancel(p, STATUS(SHOAL_CANCELLED, "%s is stopping", w->task));
    pthread_mutex_lock(&p->lock);
    while (!p->ended) pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    partial_run_unref(p);
  }
}
