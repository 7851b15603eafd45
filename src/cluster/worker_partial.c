/* Partial runs of other masters; see worker_partial.h. */
#include "cluster/worker_partial.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/latch.h"
#include "base/outcome.h"
#include "base/ref.h"

struct partial_run {
  struct partial_run *next; /* worker->lock */
  bool listed;              /* worker->lock: it can be joined */
  struct ref refs;          /* the table's, the run's, each call's */
  struct worker *worker;
  struct account *account; /* the session's */
  int64_t step;
  struct graph_run run;
  struct cancel cancel;
  struct rendezvous *rendezvous;
  struct outcome outcome;
  struct outcome_asker last; /* the last call */
  void (*done)(void *arg, shoal_status s);
  void *arg;
};

void partial_run_unref(struct partial_run *p) {
  if (!p || !ref_drop(&p->refs)) return;
  account_give(p->account, LIMIT_PARTIAL_RUNS, 1);
  account_unref(p->account);
  rendezvous_unref(p->rendezvous);
  cancel_release(&p->cancel);
  outcome_release(&p->outcome);
  free(p);
}

static void run_ended(void *arg, shoal_status s) {
  struct partial_run *p = arg;
  outcome_end(&p->outcome, s);
  partial_run_unref(p);
}

static struct partial_run *partial_new(struct worker *w, int64_t step, struct worker_session *session,
                                       struct worker_graph *graph, struct rendezvous *rendezvous) {
  struct partial_run *p = mem_zalloc(1, sizeof *p);
  ref_init(&p->refs, 3); /* the table's, the run's, the caller's */
  p->worker = w;
  p->step = step;
  p->rendezvous = rendezvous_ref(rendezvous);
  cancel_init(&p->cancel);
  outcome_init(&p->outcome);
  ref_take(&session->refs);
  ref_take(&graph->refs);
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
    ref_take(&p->refs);
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

static void tell_last(struct outcome_asker *a, shoal_status s) {
  struct partial_run *p = (struct partial_run *)((char *)a - offsetof(struct partial_run, last));
  p->done(p->arg, s);
}

void partial_run_finish(struct partial_run *p, void (*done)(void *arg, shoal_status s), void *arg) {
  pthread_mutex_lock(&p->worker->lock);
  bool first = unlist(p->worker, p);
  pthread_mutex_unlock(&p->worker->lock);
  if (!first) {
    done(arg, STATUS(SHOAL_FAILED_PRECONDITION, "the partial run of step %" PRId64 " has had its last call", p->step));
    return;
  }
  p->done = done;
  p->arg = arg;
  p->last.tell = tell_last;
  outcome_await(&p->outcome, &p->last);
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

struct stopping {
  struct outcome_asker asker; /* first */
  struct latch ended;
};

static void tell_stopping(struct outcome_asker *a, shoal_status s) {
  shoal_status_free(s);
  latch_done(&((struct stopping *)a)->ended, NULL);
}

static void await_end(struct partial_run *p) {
  struct stopping w = {.asker.tell = tell_stopping};
  latch_init(&w.ended, 1);
  outcome_await(&p->outcome, &w.asker);
  latch_finish(&w.ended);
}

void partial_runs_stop(struct worker *w) {
  for (;;) {
    pthread_mutex_lock(&w->lock);
    struct partial_run *p = w->partials;
    if (p) unlist(w, p);
    pthread_mutex_unlock(&w->lock);
    if (!p) return;
    partial_run_cancel(p, STATUS(SHOAL_CANCELLED, "%s is stopping", w->task));
    await_end(p);
    partial_run_unref(p);
  }
}
