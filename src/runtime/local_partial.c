/* Partial runs of local sessions: the step runs from the set-up on, calls meet it in its rendezvous (partial.h) and
 * wait there. Calls of one run may come from several threads; the one that brings its end takes it out of the table. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/ref.h"
#include "runtime/local_session.h"
#include "runtime/partial.h"
#include "runtime/run_cancel.h"

struct local_partial {
  struct local_run run;
  struct partial_marks marks; /* the session's lock */
  struct ref refs;            /* the table's, and each call's */
};

static void partial_free(struct local_partial *p) {
  partial_marks_release(&p->marks);
  local_run_release(&p->run);
  free(p);
}

static void partial_unref(struct local_partial *p) {
  if (ref_drop(&p->refs)) partial_free(p);
}

shoal_status local_partial_setup(shoal_session *base, const struct step_signature *sig, char **handle) {
  struct local_session *s = local_session_of(base);
  struct local_step *step;
  TRY(local_session_step(s, sig, FEED_WIRES, &step));
  struct local_partial *p = mem_zalloc(1, sizeof *p);
  ref_init(&p->refs, 1);
  local_run_init(&p->run, &s->env, step, atomic_fetch_add(&s->next_step, 1), DEADLINE_NEVER);
  if (!p->run.run.step.rendezvous) p->run.run.step.rendezvous = rendezvous_local_new();
  partial_marks_init(&p->marks, step->graph, step->feeds, step->n_feeds, step->fetches, step->n_fetches);
  local_step_unref(step);
  shoal_status status = local_session_enter(s, &p->run);
  if (status) {
    partial_free(p);
    return status;
  }
  local_run_start(&p->run);
  pthread_mutex_lock(&s->lock);
  *handle = mem_printf("%lld", (long long)s->next_partial++);
  strmap_put(&s->partials, *handle, p);
  pthread_mutex_unlock(&s->lock);
  return NULL;
}

/* Ends the step, unless another call is about to. */
static shoal_status partial_finish(struct local_session *s, const char *handle, struct local_partial *p, bool cancel) {
  pthread_mutex_lock(&s->lock);
  bool listed = strmap_get(&s->partials, handle) == p;
  if (listed) strmap_remove(&s->partials, handle);
  pthread_mutex_unlock(&s->lock);
  if (cancel) cancel_start(&p->run.cancel, NULL);
  if (!listed) return NULL;
  shoal_status status = local_run_wait(&p->run);
  local_session_leave(s, &p->run);
  partial_unref(p);
  return status;
}

static void receive(struct rendezvous *r, const char *key, struct cancel *cancel, rendezvous_done done, void *arg) {
  rendezvous_recv(r, key, rendezvous_hash(key), cancel, done, arg);
}

/* Feeds and fetches; the values are the caller's. */
static shoal_status exchange(struct local_session *s, struct local_partial *p, const struct step_signature *sig,
                             shoal_tensor *const *feeds, shoal_tensor **fetches) {
  const struct device *d = s->env.places.devices[0];
  struct partial_end end = {.rendezvous = p->run.run.step.rendezvous,
                            .recv = receive,
                            .cancel = &p->run.cancel,
                            .device = d->name,
                            .incarnation = d->incarnation};
  struct tensor *values = mem_zalloc((size_t)sig->n_feeds, sizeof *values);
  for (int i = 0; i < sig->n_feeds; i++) tensor_ref(&values[i], &feeds[i]->t);
  struct partial_call call;
  struct latch come;
  latch_init(&come, 1);
  partial_call_begin(&call, &end, sig, values, latch_done, &come);
  shoal_status status = run_cancel_outcome(&p->run.cancel, latch_finish(&come));
  for (int i = 0; !status && i < sig->n_fetches; i++) fetches[i] = tensor_handle_take(&call.values[i]);
  partial_call_release(&call);
  free(values);
  return status;
}

shoal_status local_partial_run(shoal_session *base, const char *handle, const struct step_signature *sig,
                               shoal_tensor *const *feeds, shoal_tensor **fetches) {
  struct local_session *s = local_session_of(base);
  bool all = false;
  for (int i = 0; i < sig->n_fetches; i++) fetches[i] = NULL;
  for (int i = 0; i < sig->n_feeds; i++)
    if (!feeds[i]) return INVALID("The tensor returned for feed %s was NULL", sig->feeds[i]);
  pthread_mutex_lock(&s->lock);
  struct local_partial *p = strmap_get(&s->partials, handle);
  shoal_status status =
      p ? partial_marks_take(&p->marks, sig, &all) : INVALID("Must run 'setup' before performing partial runs!");
  if (!status) ref_take(&p->refs);
  pthread_mutex_unlock(&s->lock);
  TRY(status);
  status = exchange(s, p, sig, feeds, fetches);
  if (all || status) status_merge(&status, partial_finish(s, handle, p, status != NULL));
  partial_unref(p);
  for (int i = 0; status && i < sig->n_fetches; i++) {
    shoal_tensor_unref(fetches[i]);
    fetches[i] = NULL;
  }
  return status;
}

void local_partials_stop(struct local_session *s) {
  const char *handle;
  void *p;
  for (size_t i = 0; s->partials.n && strmap_next(&s->partials, &i, &handle, &p); i = 0) {
    char *copy = mem_strdup(handle);
    shoal_status_free(partial_finish(s, copy, p, true));
    free(copy);
  }
}
