/* A step whose collectives meet those of other masters' steps must have their number: values of a step are found by it.
 * TensorFlow's way, which its masters take too: the leader has the next number of every graph key, masters ask for it
 * once and count on by themselves, a step at a time; where a count has gone wrong they ask again. So they do after a
 * step that failed: a task that stood still may have missed the end of one that the others have, and would count one
 * behind them for ever. A leader whose own part of such a step has not ended still has its number: who knows that the
 * step has failed asks again after a moment. And who comes to a step when that has failed elsewhere takes its number,
 * to fail as well, once: else it would be a step ahead of the others, and not know why they begin anew. The leader says
 * so to those who have not heard. A count is of the leader that gave it: one that was started anew counts from another
 * number, and whoever has met it again, in a session made since, asks whether it is still the same. What a session has
 * seen of its tasks does not tell: the leader may have died while the session was being made. All of this is for
 * sessions that were there when the step failed, and for later ones while the failure stands (collective_failed.h):
 * else a later one is of a run that begins anew, and has the number after it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/moment.h"
#include "cluster/collectives.h"
#include "cluster/worker.h"
#include "proto/shoal.wire.h"
#include "proto/worker.wire.h"
#include "rpc/message.h"

enum { MOST_SEQUENCES = 1024 };
static const int64_t ID_BITS = (INT64_C(1) << 57) - 1;
static const int64_t UNKNOWN = -1;

/* Others tell of numbers that no step has. */
static int64_t after(int64_t id) { return (int64_t)(((uint64_t)id + 1) & (uint64_t)ID_BITS); }

struct step_sequence {
  int64_t next; /* or UNKNOWN */
  int64_t last; /* that a step of this task's master had; 0: none */
  int64_t well; /* the last of these that went well, and when it was begun */
  int64_t well_began;
  uint64_t leader; /* which incarnation of it gave the number; 0: that is not known, or we lead */
  int64_t asked;   /* when it was last asked for it, or whether it is still there */
  bool own;        /* steps of this task's master have it: others' questions do not push it out */
  bool leads;      /* this task counts */
};

/* With the lock held: the oldest that was only asked for, else the oldest. */
static void forget_one(struct collectives *c) {
  const char *key, *oldest = NULL;
  void *q;
  bool own = true;
  for (size_t i = 0; own && strmap_next(&c->sequences, &i, &key, &q);) {
    own = ((struct step_sequence *)q)->own;
    if (!own || !oldest) oldest = key;
  }
  char *name = mem_strdup(oldest);
  free(strmap_remove(&c->sequences, name));
  free(name);
}

/* With the lock held. */
static struct step_sequence *sequence_of(struct collectives *c, int64_t key) {
  char name[32];
  snprintf(name, sizeof name, "%" PRId64, key);
  struct step_sequence *q = strmap_get(&c->sequences, name);
  if (q) return q;
  if (c->sequences.n >= MOST_SEQUENCES) forget_one(c);
  q = mem_zalloc(1, sizeof *q);
  q->next = UNKNOWN;
  strmap_put(&c->sequences, name, q);
  return q;
}

/* With the lock held: a run that begins anew, after a step that failed, does not come to it. */
static void pass_over(struct collectives *c, struct step_sequence *q, int64_t began) {
  while (q->next != UNKNOWN && failed_steps_are_past(&c->failed, q->next, began)) q->next = after(q->next);
}

int64_t collective_sequence(struct collectives *c, int64_t key, int64_t began) {
  int64_t fresh;
  MUST(getrandom(&fresh, sizeof fresh, 0) == sizeof fresh);
  pthread_mutex_lock(&c->lock);
  struct step_sequence *q = sequence_of(c, key);
  if (q->next == UNKNOWN) q->next = fresh & ID_BITS;
  pass_over(c, q, began);
  int64_t next = q->next;
  pthread_mutex_unlock(&c->lock);
  return next;
}

int64_t collective_met(struct collectives *c, struct met_step step) {
  char name[32];
  snprintf(name, sizeof name, "%" PRId64, step.key);
  pthread_mutex_lock(&c->lock);
  const struct step_sequence *q = step.id ? strmap_get(&c->sequences, name) : NULL;
  int64_t began = q && q->well == step.id ? q->well_began : 0;
  pthread_mutex_unlock(&c->lock);
  return began;
}

void collective_step_over(struct worker *w, int64_t key, int64_t id, int64_t session, int64_t began,
                          shoal_status failed) {
  struct collectives *c = &w->collectives;
  /* Before it is counted: who is told of the next number is told why this one failed. */
  if (failed) collective_step_failed(w, key, id, session, failed);
  else failed_steps_met(&c->failed, id);
  pthread_mutex_lock(&c->lock);
  struct step_sequence *q = sequence_of(c, key);
  q->last = id;
  if (!failed) {
    c->met = (struct met_step){key, id};
    q->well = id;
    q->well_began = began;
  }
  bool counts = q->next == id && (q->leads || !failed), counted = q->leads && q->next == after(id);
  q->next = counts || counted ? after(id) : UNKNOWN;
  pthread_mutex_unlock(&c->lock);
}

bool collective_sequence_failed(struct collectives *c, int64_t key, int64_t id) {
  char name[32];
  snprintf(name, sizeof name, "%" PRId64, key);
  pthread_mutex_lock(&c->lock);
  struct step_sequence *q = strmap_get(&c->sequences, name);
  bool past = q && q->own && q->next != UNKNOWN && q->next != id;
  if (q && !q->own && q->next != UNKNOWN) q->next = after(id);
  pthread_mutex_unlock(&c->lock);
  return past;
}

/* ---- asking the leader ---- */

struct sequence_call {
  struct worker *worker;
  struct peer *leader; /* a reference */
  struct cancellable call;
  struct cancel *cancel; /* NULL: nobody does */
  struct moment again;
  int64_t deadline, key, last, began;
  struct met_step met;
  bool counted;  /* there was a number: is its leader still there? */
  int64_t asked; /* when */
  void (*done)(void *arg, shoal_status s, int64_t id);
  void *arg;
};

static void call_over(struct sequence_call *k, shoal_status s, int64_t id) {
  peer_unref(k->leader);
  k->done(k->arg, status_prefix(s, "The number of a step with collectives: "), id);
  free(k);
}

static void ask(struct sequence_call *k);

static shoal_status was_cancelled(void) {
  return status_mark_derived(STATUS(SHOAL_CANCELLED, "the step was cancelled"));
}

static void ask_again(void *arg, bool cancelled) {
  struct sequence_call *k = arg;
  if (cancelled) call_over(k, was_cancelled(), 0);
  else ask(k);
}

static void wait_a_moment(struct sequence_call *k) {
  enum { MOMENT_MS = 20 };
  if (clock_ns() > k->deadline)
    call_over(k, STATUS(SHOAL_DEADLINE_EXCEEDED, "the leader's own part of the last one, which failed, does not end"),
              0);
  else moment_wait(&k->again, k->cancel, MOMENT_MS, ask_again, k);
}

/* What is known of the leader that answered. True: it is the one that gave the number by which this task counts, and
 * that goes on (*next). A leader of TensorFlow's says nothing of itself: incarnation is 0 then. */
static bool is_same_leader(struct sequence_call *k, uint64_t incarnation, int64_t *next) {
  struct collectives *c = &k->worker->collectives;
  if (!incarnation) incarnation = peer_incarnation(k->leader);
  pthread_mutex_lock(&c->lock);
  struct step_sequence *q = sequence_of(c, k->key);
  bool same = k->counted && q->next != UNKNOWN && q->leader == incarnation;
  if (same) *next = q->next;
  else if (k->counted) q->next = UNKNOWN;
  q->leader = incarnation;
  q->asked = k->asked;
  pthread_mutex_unlock(&c->lock);
  return same;
}

static void answered(void *arg, shoal_status s, struct rpc_body *body) {
  struct sequence_call *k = arg;
  struct collectives *c = &k->worker->collectives;
  const void *data;
  size_t size;
  int64_t next = UNKNOWN;
  uint64_t incarnation = 0;
  bool hears = false;
  char *failed = NULL;
  cancellable_end(&k->call);
  if (!s) s = rpc_body_flat(body, &data, &size);
  if (!s) {
    struct wire w = wire_from(data, size);
    for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
      struct wire inside = wire_inside(&f);
      if (f.tag == GetStepSequenceExtra_hears) hears = f.value != 0;
      if (f.tag == GetStepSequenceExtra_incarnation) incarnation = f.value;
      if (f.tag == GetStepSequenceExtra_failed) free(failed), failed = mem_strndup((const char *)f.data, f.size);
      for (struct wire_field n; f.tag == GetStepSequenceResponse_step_sequence && wire_next(&inside, &n) == WIRE_FIELD;)
        if (n.tag == StepSequence_next_step_id) next = (int64_t)n.value & ID_BITS;
    }
    if (next == UNKNOWN) s = INTERNAL("the leader's answer has none");
  }
  if (!s && is_same_leader(k, incarnation, &next)) {
    free(failed);
    call_over(k, NULL, next);
    return;
  }
  if (!s && failed) {
    next = (next - 1) & ID_BITS;
    failed_steps_add(&c->failed, k->key, next, FAILED_MET, NULL,
                     status_mark_derived(STATUS(SHOAL_ABORTED, "%s", failed)));
  }
  bool early = !s && !failed && hears && failed_steps_has(&c->failed, next);
  free(failed);
  if (early) {
    /* What was heard of here before the session began may have come to the leader after: it is as past there. */
    if (failed_steps_are_past(&c->failed, next, k->began)) k->began = clock_ns();
    wait_a_moment(k);
    return;
  }
  if (!s) {
    pthread_mutex_lock(&c->lock);
    sequence_of(c, k->key)->next = next;
    pthread_mutex_unlock(&c->lock);
  }
  call_over(k, s, next);
}

static void ask(struct sequence_call *k) {
  struct text t = {0};
  k->asked = clock_ns();
  put_GetStepSequenceRequest_graph_key(&t, k->key);
  put_GetStepSequenceAsk_last(&t, k->last);
  put_GetStepSequenceAsk_up_ms(&t, (clock_ns() - k->began) / 1000000);
  put_GetStepSequenceAsk_met_key(&t, k->met.key);
  put_GetStepSequenceAsk_met_id(&t, k->met.id);
  struct task_question q = {.peer = k->leader,
                            .method = "/tensorflow.WorkerService/GetStepSequence",
                            .request = message_from_text(&t),
                            .deadline = k->deadline,
                            .flags = collectives_call_flags(&k->worker->collectives),
                            .what = "the number of a step with collectives",
                            .done = answered,
                            .arg = k};
  if (!cancellable_start(&k->call, k->cancel, "the step was cancelled", &q)) call_over(k, was_cancelled(), 0);
}

/* leader: NULL, it is us. */
static void number_by_leader(struct sequence_call *k) {
  if (k->leader) ask(k);
  else call_over(k, NULL, collective_sequence(&k->worker->collectives, k->key, k->began));
}

/* ---- asking whether a failure stands ---- */

struct stands_call {
  struct sequence_call *then; /* where it does not */
  struct peer *peer;          /* a reference */
  int64_t id;                 /* of the step that failed */
  bool of_session;            /* since the session began: one of its own, but for those who have been met since */
};

static void stands_over(struct stands_call *a, bool stands) {
  struct sequence_call *k = a->then;
  int64_t id = a->id;
  peer_unref(a->peer);
  free(a);
  if (stands) call_over(k, NULL, id); /* to fail as well */
  else number_by_leader(k);
}

static void stands_answered(void *arg, shoal_status s, struct rpc_body *body) {
  struct stands_call *a = arg;
  const void *data;
  size_t size;
  bool stands = false, met = false, answered = !s;
  cancellable_end(&a->then->call);
  if (!s) s = rpc_body_flat(body, &data, &size);
  if (!s) {
    struct wire w = wire_from(data, size);
    for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
      if (f.tag == StepStandsResponse_stands) stands = f.value != 0;
      else if (f.tag == StepStandsResponse_met) met = f.value != 0;
  }
  shoal_status_free(s); /* it is gone, or does not answer: whoever comes in its place begins anew */
  stands_over(a, answered && !met && (stands || a->of_session));
}

static void ask_whether_it_stands(struct sequence_call *k, struct peer *peer, int64_t id, bool of_session) {
  enum { PATIENCE_MS = 3000 };
  struct stands_call *a = mem_zalloc(1, sizeof *a);
  *a = (struct stands_call){k, peer, id, of_session};
  struct text t = {0};
  put_StepStandsRequest_step_id(&t, id);
  put_StepStandsRequest_task(&t, k->worker->task);
  put_StepStandsRequest_met_key(&t, k->met.key);
  put_StepStandsRequest_met_id(&t, k->met.id);
  struct task_question q = {.peer = peer,
                            .method = "/shoal.Server/StepStands",
                            .request = message_from_text(&t),
                            .deadline = deadline_after_ms(PATIENCE_MS),
                            .what = "whether a step that failed stands",
                            .done = stands_answered,
                            .arg = a};
  if (!cancellable_start(&k->call, k->cancel, "the step was cancelled", &q)) stands_over(a, false);
}

/* ---- the number of a step ---- */

struct peer *collectives_find_task(struct worker *w, const char *task) {
  struct device_spec d;
  shoal_status s = device_spec_parse(task, &d);
  const char *address = s || !d.has_job || !d.has_task ? NULL : cluster_spec_find(w->spec, d.job, d.task);
  shoal_status_free(s);
  return address ? peers_get(w->peers, task, address, true) : NULL;
}

/* With the lock held: what this task's master knows of it; UNKNOWN: the leader does. changed: when the leader was seen
 * to be another, now; 0: never, or it is us. *anew: a failure may have been missed. */
static int64_t count_on(struct collectives *c, struct step_sequence *q, int64_t changed, uint64_t now, int64_t began,
                        bool *anew) {
  bool first = !q->own, past = failed_steps_are_past(&c->failed, q->next, began);
  q->own = true;
  if (q->leader && changed > q->asked && now != q->leader) q->next = UNKNOWN; /* it counts anew */
  if (!q->leads && past) q->next = UNKNOWN;
  *anew = first || past || q->next == UNKNOWN;
  return past ? UNKNOWN : q->next;
}

void collective_next_step(struct worker *w, int64_t key, const char *named, int64_t began, struct cancel *cancel,
                          void (*done)(void *arg, shoal_status s, int64_t id), void *arg) {
  struct collectives *c = &w->collectives;
  char *leader = named ? mem_strdup(named) : collectives_leader(c, w->spec), *whom = NULL;
  bool own = !strcmp(leader, w->task), anew, of_session = false;
  struct peer *peer = own ? NULL : collectives_find_task(w, leader);
  int64_t changed = peer ? peer_changed(peer) : 0;
  uint64_t now = changed ? peer_incarnation(peer) : 0;
  failed_steps_go_on(&c->failed, key);
  pthread_mutex_lock(&c->lock);
  struct step_sequence *q = sequence_of(c, key);
  q->leads = own;
  int64_t next = count_on(c, q, changed, now, began, &anew), missed = UNKNOWN, last = q->last;
  bool asks = peer && next != UNKNOWN && began > q->asked;
  struct met_step met = c->met;
  pthread_mutex_unlock(&c->lock);
  if (anew) whom = failed_steps_missed(&c->failed, key, began, &missed, &of_session);
  if (missed != UNKNOWN && !whom) {
    next = missed;
    asks = false;
  }
  struct peer *failed = whom ? collectives_find_task(w, whom) : NULL;
  if (next != UNKNOWN && !failed && !asks) done(arg, NULL, next);
  else if (!own && !peer) done(arg, INVALID("The leader of collectives, %s, is not in this task's cluster", leader), 0);
  else {
    struct sequence_call *k = mem_zalloc(1, sizeof *k);
    *k = (struct sequence_call){.worker = w,
                                .leader = peer,
                                .cancel = cancel,
                                .deadline = clock_ns() + c->timeout_ns,
                                .key = key,
                                .last = last,
                                .began = began,
                                .met = met,
                                .counted = asks && !failed,
                                .done = done,
                                .arg = arg};
    if (failed) ask_whether_it_stands(k, failed, missed, of_session);
    else number_by_leader(k);
    peer = failed = NULL; /* whose references were taken over */
  }
  peer_unref(peer);
  peer_unref(failed);
  free(whom);
  free(leader);
}
