/* A step whose collectives meet those of other masters' steps must have their number: values of a step are found by it.
 * TensorFlow's way, which its masters take too: the leader has the next number of every graph key, masters ask for it
 * once and count on by themselves, a step at a time; where a count has gone wrong they ask again. So they do after a
 * step that failed: a task that stood still may have missed the end of one that the others have, and would count one
 * behind them for ever. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "cluster/collectives.h"
#include "cluster/worker.h"
#include "proto/worker.wire.h"
#include "rpc/message.h"

enum { MOST_SEQUENCES = 1024 };
static const int64_t ID_BITS = (INT64_C(1) << 57) - 1;
static const int64_t UNKNOWN = -1;

struct step_sequence {
  int64_t next;    /* or UNKNOWN */
  uint64_t leader; /* which incarnation of it counted so far; 0: that was not known, or we lead */
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

int64_t collective_sequence(struct collectives *c, int64_t key) {
  int64_t fresh;
  MUST(getrandom(&fresh, sizeof fresh, 0) == sizeof fresh);
  pthread_mutex_lock(&c->lock);
  struct step_sequence *q = sequence_of(c, key);
  if (q->next == UNKNOWN) q->next = fresh & ID_BITS;
  int64_t next = q->next;
  pthread_mutex_unlock(&c->lock);
  return next;
}

void collective_step_over(struct worker *w, int64_t key, int64_t id, bool failed) {
  struct collectives *c = &w->collectives;
  pthread_mutex_lock(&c->lock);
  struct step_sequence *q = sequence_of(c, key);
  bool counts = q->next == id && (q->leads || !failed);
  q->next = counts ? (id + 1) & ID_BITS : UNKNOWN;
  pthread_mutex_unlock(&c->lock);
}

/* ---- asking the leader ---- */

struct sequence_call {
  struct worker *worker;
  struct peer *leader; /* a reference */
  struct cancellable call;
  int64_t key;
  void (*done)(void *arg, shoal_status s, int64_t id);
  void *arg;
};

static void call_over(struct sequence_call *k, shoal_status s, int64_t id) {
  peer_unref(k->leader);
  k->done(k->arg, status_prefix(s, "The number of a step with collectives: "), id);
  free(k);
}

static void answered(void *arg, shoal_status s, struct rpc_body *body) {
  struct sequence_call *k = arg;
  const void *data;
  size_t size;
  int64_t next = UNKNOWN;
  cancellable_end(&k->call);
  if (!s) s = rpc_body_flat(body, &data, &size);
  if (!s) {
    struct wire w = wire_from(data, size);
    for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
      struct wire inside = wire_inside(&f);
      for (struct wire_field n; f.tag == GetStepSequenceResponse_step_sequence && wire_next(&inside, &n) == WIRE_FIELD;)
        if (n.tag == StepSequence_next_step_id) next = (int64_t)n.value & ID_BITS;
    }
    if (next == UNKNOWN) s = INTERNAL("the leader's answer has none");
  }
  if (!s) {
    struct collectives *c = &k->worker->collectives;
    pthread_mutex_lock(&c->lock);
    sequence_of(c, k->key)->next = next;
    pthread_mutex_unlock(&c->lock);
  }
  call_over(k, s, next);
}

static struct peer *find_leader(struct worker *w, const char *leader) {
  struct device_spec d;
  shoal_status s = device_spec_parse(leader, &d);
  const char *address = s || !d.has_job || !d.has_task ? NULL : cluster_spec_find(w->spec, d.job, d.task);
  shoal_status_free(s);
  return address ? peers_get(w->peers, leader, address, true) : NULL;
}

static void ask(struct worker *w, int64_t key, struct peer *leader, struct cancel *cancel,
                void (*done)(void *arg, shoal_status s, int64_t id), void *arg) {
  static const char why[] = "the step was cancelled";
  struct sequence_call *k = mem_zalloc(1, sizeof *k);
  *k = (struct sequence_call){.worker = w, .leader = leader, .key = key, .done = done, .arg = arg};
  struct text t = {0};
  put_GetStepSequenceRequest_graph_key(&t, key);
  if (!cancellable_begin(&k->call, cancel, why)) {
    text_release(&t);
    call_over(k, status_mark_derived(STATUS(SHOAL_CANCELLED, "%s", why)), 0);
    return;
  }
  peer_start(leader, "/tensorflow.WorkerService/GetStepSequence", message_from_text(&t),
             clock_ns() + w->collectives.timeout_ns, collectives_call_flags(&w->collectives), 0,
             "the number of a step with collectives", answered, k, &k->call.call);
  cancellable_begun(&k->call);
}

void collective_next_step(struct worker *w, int64_t key, const char *named, struct cancel *cancel,
                          void (*done)(void *arg, shoal_status s, int64_t id), void *arg) {
  struct collectives *c = &w->collectives;
  char *leader = named ? mem_strdup(named) : collectives_leader(c, w->spec);
  bool own = !strcmp(leader, w->task);
  struct peer *peer = own ? NULL : find_leader(w, leader);
  uint64_t now = peer ? peer_incarnation(peer) : 0;
  int64_t next;
  pthread_mutex_lock(&c->lock);
  struct step_sequence *q = sequence_of(c, key);
  q->own = true;
  q->leads = own;
  if (now && q->leader && q->leader != now) q->next = UNKNOWN; /* it was restarted, and counts anew */
  if (now) q->leader = now;
  next = q->next;
  pthread_mutex_unlock(&c->lock);
  if (own && next == UNKNOWN) next = collective_sequence(c, key);
  if (next == UNKNOWN && peer) {
    ask(w, key, peer, cancel, done, arg);
    peer = NULL; /* whose reference was taken over */
  } else if (next != UNKNOWN) done(arg, NULL, next);
  else done(arg, INVALID("The leader of collectives, %s, is not in this task's cluster", leader), 0);
  peer_unref(peer);
  free(leader);
}
