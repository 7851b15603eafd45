/* Partial runs: a step whose feeds come, and whose fetches are asked for, in several calls. The step runs from the
 * set-up on; its feeds and fetches meet in the rendezvous. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/outcome.h"
#include "base/ref.h"
#include "cluster/master.h"
#include "cluster/step_rendezvous.h"
#include "runtime/partial.h"

struct partial {
  struct ref refs; /* the session's table's, the run's, and each call's */
  struct master_session *session;
  struct compiled *compiled;
  char *handle;
  struct step_run *run;
  struct partial_marks marks; /* session->lock */
  struct outcome outcome;     /* of all partitions */
};

/* One RunStep of a partial run. */
struct step_call {
  struct outcome_asker asker; /* first */
  struct partial *partial;    /* a reference */
  struct partial_call exchange;
  step_done done;
  void *arg;
  bool is_last;
  shoal_status status;
};

void partial_unref(struct partial *p) {
  if (!ref_drop(&p->refs)) return;
  account_give(p->session->account, LIMIT_PARTIAL_RUNS, 1);
  step_run_cleanup(p->run, p->session);
  compiled_unref(p->compiled);
  step_run_unref(p->run);
  outcome_release(&p->outcome);
  partial_marks_release(&p->marks);
  free(p->handle);
  free(p);
}

static void call_answer(struct step_call *c) {
  struct text none = {0};
  partial_unref(c->partial); /* before the answer, which lets go of the session */
  c->done(c->arg, c->status, c->exchange.values, &none);
  partial_call_release(&c->exchange);
  free(c);
}

/* The step has ended, as err says: so has the call, and with it the partial run. */
static void last_call(struct outcome_asker *a, shoal_status err) {
  struct step_call *c = (struct step_call *)a;
  struct partial *p = c->partial;
  struct master_session *s = p->session;
  status_merge(&c->status, err);
  pthread_mutex_lock(&s->lock);
  bool listed = strmap_get(&s->partials, p->handle) == p;
  if (listed) strmap_remove(&s->partials, p->handle);
  pthread_mutex_unlock(&s->lock);
  if (listed) partial_unref(p);
  call_answer(c);
}

/* All partitions have ended. */
static void run_ended(void *arg, shoal_status err, const struct tensor *values, const struct text *metadata) {
  struct partial *p = arg;
  outcome_end(&p->outcome, err);
  partial_unref(p);
}

struct setup {
  struct master_session *session;
  const struct compile_client *client;
  void (*done)(void *arg, shoal_status s, const char *handle);
  void *arg;
};

static void begin(void *arg, shoal_status err, struct compiled *c) {
  struct setup k = *(struct setup *)arg;
  struct master_session *s = k.session;
  free(arg);
  if (!err && atomic_load(k.client->gone)) { /* nobody would know its handle */
    compiled_unref(c);
    err = STATUS(SHOAL_CANCELLED, "the client has gone");
  }
  if (err) {
    account_give(s->account, LIMIT_PARTIAL_RUNS, 1);
    k.done(k.arg, err, NULL);
    return;
  }
  struct partial *p = mem_zalloc(1, sizeof *p);
  ref_init(&p->refs, 3); /* the table's, the run's, and ours */
  p->session = s;
  p->compiled = c;
  partial_marks_init(&p->marks, c->pruned, c->feeds.at, (int)c->feeds.n, c->fetches.at, (int)c->fetches.n);
  outcome_init(&p->outcome);
  p->run = step_run_new(s, c, &(struct run_options){0}, DEADLINE_NEVER, NULL, run_ended, p);
  pthread_mutex_lock(&s->lock);
  p->handle = mem_printf("%lld", (long long)s->next_partial++);
  strmap_put(&s->partials, p->handle, p);
  pthread_mutex_unlock(&s->lock);
  step_run_begin(p->run);
  char *handle = mem_strdup(p->handle);
  partial_unref(p); /* before the answer, which lets go of the session */
  k.done(k.arg, NULL, handle);
  free(handle);
}

void master_partial_setup(struct master_session *s, const struct step_signature *sig,
                          const struct compile_client *client,
                          void (*done)(void *arg, shoal_status s, const char *handle), void *arg) {
  shoal_status full = account_take(s->account, LIMIT_PARTIAL_RUNS, 1);
  if (full) {
    done(arg, full, NULL);
    return;
  }
  struct setup *k = mem_alloc(sizeof *k);
  *k = (struct setup){s, client, done, arg};
  master_compile(s, sig, COMPILE_PARTIAL, client, begin, k);
}

/* Its values are there, or cannot come. */
static void call_end(void *arg, shoal_status failed) {
  struct step_call *c = arg;
  struct partial *p = c->partial;
  c->status = failed;
  if (!c->is_last && !failed) {
    call_answer(c);
    return;
  }
  /* Everything was asked for, or something failed: the step ends here. */
  if (c->status) step_run_cancel(p->run, status_copy(c->status));
  c->asker.tell = last_call;
  outcome_await(&p->outcome, &c->asker);
}

struct partial *master_partial_find(struct master_session *s, const char *handle) {
  pthread_mutex_lock(&s->lock);
  struct partial *p = strmap_get(&s->partials, handle);
  if (p) ref_take(&p->refs);
  pthread_mutex_unlock(&s->lock);
  return p;
}

void master_partial_cancel(struct partial *p) {
  step_run_cancel(p->run, STATUS(SHOAL_CANCELLED, "the client has gone"));
}

void master_partial_run(struct partial *p, const struct step_signature *sig, struct tensor *feeds, step_done done,
                        void *arg) {
  struct master_session *s = p->session;
  bool all = false;
  pthread_mutex_lock(&s->lock);
  shoal_status err = partial_marks_take(&p->marks, sig, &all);
  if (!err) ref_take(&p->refs);
  pthread_mutex_unlock(&s->lock);
  if (err) {
    for (int i = 0; i < sig->n_feeds; i++) tensor_release(&feeds[i]);
    struct text none = {0};
    done(arg, err, NULL, &none);
    return;
  }
  struct step_call *c = mem_zalloc(1, sizeof *c);
  c->partial = p;
  c->done = done;
  c->arg = arg;
  c->is_last = all;
  struct partial_end end = {.rendezvous = step_run_rendezvous(p->run),
                            .recv = step_rendezvous_recv_local,
                            .cancel = step_run_cancellation(p->run),
                            .device = s->devices.at[0].name,
                            .incarnation = s->devices.at[0].incarnation};
  partial_call_begin(&c->exchange, &end, sig, feeds, call_end, c);
}
