#include "cluster/collective_failed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "cluster/collectives.h"
#include "cluster/identity.h"
#include "cluster/request_parts.h"
#include "cluster/worker.h"
#include "cluster/worker_service.h"
#include "proto/shoal.wire.h"
#include "rpc/message.h"

/* Of a cause, in bytes; and how long one that was missed is of the steps that come. */
enum { LONGEST = 2000, FRESH_MS = 60000 };

void failed_steps_init(struct failed_steps *f) { pthread_mutex_init(&f->lock, NULL); }

void failed_steps_release(struct failed_steps *f) {
  for (size_t i = 0; i < FAILED_REMEMBERED; i++) {
    shoal_status_free(f->last[i].why);
    free(f->last[i].task);
  }
  pthread_mutex_destroy(&f->lock);
}

/* With the lock held. */
static struct failed_step *find(struct failed_steps *f, int64_t id) {
  for (unsigned i = 0; i < MIN(f->n, FAILED_REMEMBERED); i++)
    if (f->last[i].id == id) return &f->last[i];
  return NULL;
}

shoal_status failed_steps_enter(struct failed_steps *f, struct collective_guard *g) {
  pthread_mutex_lock(&f->lock);
  const struct failed_step *failed = find(f, g->step_id);
  shoal_status why = failed ? status_copy(failed->why) : NULL;
  g->prev = NULL;
  g->next = f->guards;
  if (g->next) g->next->prev = g;
  f->guards = g;
  g->entered = true;
  pthread_mutex_unlock(&f->lock);
  return why;
}

void failed_steps_leave(struct failed_steps *f, struct collective_guard *g) {
  if (!g->entered) return;
  pthread_mutex_lock(&f->lock);
  if (g->prev) g->prev->next = g->next;
  else f->guards = g->next;
  if (g->next) g->next->prev = g->prev;
  g->entered = false;
  pthread_mutex_unlock(&f->lock);
}

bool failed_steps_has(struct failed_steps *f, int64_t id) {
  pthread_mutex_lock(&f->lock);
  bool has = find(f, id) != NULL;
  pthread_mutex_unlock(&f->lock);
  return has;
}

unsigned failed_steps_count(struct failed_steps *f) {
  pthread_mutex_lock(&f->lock);
  unsigned n = f->n;
  pthread_mutex_unlock(&f->lock);
  return n;
}

bool failed_steps_are_past(struct failed_steps *f, int64_t id, int64_t began) {
  pthread_mutex_lock(&f->lock);
  const struct failed_step *at = find(f, id);
  bool past = at && (at->over || at->since < began);
  pthread_mutex_unlock(&f->lock);
  return past;
}

void failed_steps_met(struct failed_steps *f, int64_t id) {
  pthread_mutex_lock(&f->lock);
  struct failed_step *at = find(f, id);
  if (at) at->met = true;
  pthread_mutex_unlock(&f->lock);
}

char *failed_steps_missed(struct failed_steps *f, int64_t key, int64_t began, int64_t *id, bool *of_session) {
  const struct failed_step *last = NULL;
  pthread_mutex_lock(&f->lock);
  for (unsigned i = f->n - MIN(f->n, FAILED_REMEMBERED); i < f->n; i++) {
    struct failed_step *at = &f->last[i % FAILED_REMEMBERED];
    if (at->key != key || at->met) continue;
    at->met = true;
    if (clock_ns() - at->since < FRESH_MS * 1000000ll && (at->since >= began || at->task)) last = at;
  }
  if (last) *id = last->id;
  *of_session = last && last->since >= began;
  char *whom = last && last->task ? mem_strdup(last->task) : NULL;
  pthread_mutex_unlock(&f->lock);
  return whom;
}

void failed_steps_stand(struct failed_steps *f, int64_t id, int64_t session) {
  pthread_mutex_lock(&f->lock);
  struct failed_step *at = find(f, id);
  if (at) at->session = session;
  pthread_mutex_unlock(&f->lock);
}

void failed_steps_end_session(struct failed_steps *f, int64_t session) {
  pthread_mutex_lock(&f->lock);
  for (unsigned i = 0; i < MIN(f->n, FAILED_REMEMBERED); i++)
    if (f->last[i].session == session) f->last[i].session = 0;
  pthread_mutex_unlock(&f->lock);
}

void failed_steps_go_on(struct failed_steps *f, int64_t key) {
  pthread_mutex_lock(&f->lock);
  for (unsigned i = 0; i < MIN(f->n, FAILED_REMEMBERED); i++)
    if (f->last[i].key == key) f->last[i].session = 0;
  pthread_mutex_unlock(&f->lock);
}

bool failed_steps_stands(struct failed_steps *f, int64_t id) {
  pthread_mutex_lock(&f->lock);
  const struct failed_step *at = find(f, id);
  bool stands = at && at->session;
  pthread_mutex_unlock(&f->lock);
  return stands;
}

static int64_t fresh_since(int64_t since) { return MAX(since, clock_ns() - FRESH_MS * 1000000ll); }

char *failed_steps_why(struct failed_steps *f, int64_t id, int64_t since) {
  pthread_mutex_lock(&f->lock);
  const struct failed_step *at = find(f, id);
  bool recent = at && !at->over && at->since >= fresh_since(since);
  char *why = recent ? mem_strdup(shoal_status_message(at->why)) : NULL;
  pthread_mutex_unlock(&f->lock);
  return why;
}

char *failed_steps_since(struct failed_steps *f, int64_t key, int64_t since) {
  char *why = NULL;
  pthread_mutex_lock(&f->lock);
  int64_t first = fresh_since(since);
  for (unsigned i = 0; i < MIN(f->n, FAILED_REMEMBERED) && !why; i++)
    if (f->last[i].key == key && f->last[i].since >= first) why = mem_strdup(shoal_status_message(f->last[i].why));
  pthread_mutex_unlock(&f->lock);
  return why;
}

bool failed_steps_add(struct failed_steps *f, int64_t key, int64_t id, enum failed_how how, const char *task,
                      shoal_status why) {
  VEC(struct collective_guard *) waiting = {0};
  shoal_status forgotten = NULL;
  pthread_mutex_lock(&f->lock);
  struct failed_step *known = find(f, id);
  if (known) known->met = known->met || how != FAILED_MISSED;
  else {
    struct failed_step *at = &f->last[f->n++ % FAILED_REMEMBERED];
    forgotten = at->why;
    free(at->task);
    *at = (struct failed_step){.id = id,
                               .key = key,
                               .since = clock_ns(),
                               .met = how != FAILED_MISSED,
                               .over = how == FAILED_OVER,
                               .task = task ? mem_strdup(task) : NULL,
                               .why = status_copy(why)};
    for (struct collective_guard *g = f->guards; g; g = g->next) {
      if (g->step_id != id) continue;
      guard_ref(g);
      vec_push(&waiting, g);
    }
  }
  pthread_mutex_unlock(&f->lock);
  shoal_status_free(forgotten);
  for (size_t i = 0; i < waiting.n; i++) {
    guard_stop(waiting.at[i], status_copy(why));
    guard_unref(waiting.at[i]);
  }
  vec_release(&waiting);
  shoal_status_free(why);
  return !known;
}

/* ---- telling ---- */

static void heard(void *peer, shoal_status s, struct rpc_body *body) {
  shoal_status_free(s); /* it is none of ours, or gone */
  peer_unref(peer);
}

void collective_tell_all(struct worker *w, const char *method, void (*put)(struct text *to, const void *arg),
                         const void *arg, int64_t patience_ns, unsigned flags, const char *what) {
  for (size_t j = 0; j < w->spec->jobs.n; j++) {
    const struct cluster_job *job = &w->spec->jobs.at[j];
    for (size_t i = 0; i < job->tasks.n; i++) {
      char *task = mem_printf("/job:%s/replica:0/task:%d", job->name, job->tasks.at[i].index);
      if (strcmp(task, w->task)) {
        struct text t = {0};
        put(&t, arg);
        struct peer *peer = peers_get(w->peers, task, job->tasks.at[i].address, true);
        peer_start(peer, method, message_from_text(&t), clock_ns() + patience_ns, flags, 0, what, heard, peer, NULL);
      }
      free(task);
    }
  }
}

struct failed_telling {
  const struct worker *worker;
  int64_t key, id;
  const char *why;
  bool over;
};

static void put_failed(struct text *t, const void *arg) {
  const struct failed_telling *f = arg;
  put_StepFailedRequest_step_id(t, f->id);
  put_StepFailedRequest_graph_key(t, f->key);
  put_StepFailedRequest_task(t, f->worker->task);
  put_StepFailedRequest_why_n(t, f->why, strnlen(f->why, LONGEST));
  put_StepFailedRequest_over(t, f->over);
}

static void tell_all(const struct failed_telling *f, struct worker *w) {
  const int64_t patience_ns = 10000 * 1000000ll;
  collective_tell_all(w, "/shoal.Server/StepFailed", put_failed, f, patience_ns, 0, "that a step has failed");
}

static shoal_status failure(const char *task, int64_t id, const char *why) {
  return status_mark_derived(
      STATUS(SHOAL_ABORTED, "%s has failed in step %" PRId64 ", and does not come: %s", task, id, why));
}

/* Ends what waits in it here. why is consumed. */
static bool note(struct worker *w, int64_t key, int64_t id, enum failed_how how, const char *task, shoal_status why) {
  shoal_status told = status_copy(why);
  bool first = failed_steps_add(&w->collectives.failed, key, id, how, task, why);
  if (first) collective_questions_fail(&w->collectives, key, told);
  shoal_status_free(told);
  return first;
}

void collective_step_failed(struct worker *w, int64_t key, int64_t id, int64_t session, shoal_status why) {
  const char *text = shoal_status_message(why);
  char *cause = mem_strndup(text, strnlen(text, LONGEST));
  if (note(w, key, id, FAILED_MET, NULL, failure(w->task, id, cause))) {
    failed_steps_stand(&w->collectives.failed, id, session);
    tell_all(&(struct failed_telling){w, key, id, cause, false}, w);
  }
  free(cause);
}

void collective_step_given_up(struct worker *w, int64_t key, int64_t id, shoal_status why) {
  char *cause = mem_strdup(shoal_status_message(why));
  if (note(w, key, id, FAILED_OVER, NULL, why)) tell_all(&(struct failed_telling){w, key, id, cause, true}, w);
  free(cause);
}

/* ---- being told ---- */

void worker_service_step_failed(struct worker *w, struct rpc_call *c) {
  struct wire m;
  int64_t id = 0, key = 0;
  bool over = false;
  char *task = mem_strdup(""), *why = mem_strdup("");
  enum wire_step step = WIRE_END;
  struct text none = {0};
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && (step = wire_next(&m, &f)) == WIRE_FIELD;) {
    if (f.tag == StepFailedRequest_step_id) id = (int64_t)f.value;
    if (f.tag == StepFailedRequest_graph_key) key = (int64_t)f.value;
    if (f.tag == StepFailedRequest_over) over = f.value != 0;
    if (f.tag == StepFailedRequest_task) free(task), task = mem_strndup((const char *)f.data, MIN(f.size, LONGEST));
    if (f.tag == StepFailedRequest_why) free(why), why = mem_strndup((const char *)f.data, MIN(f.size, LONGEST));
  }
  if (!s && step == WIRE_BROKEN) s = INVALID("StepFailedRequest does not parse as a protocol buffer");
  if (!s) s = identity_check_task(c, task);
  if (!s) {
    bool past = collective_sequence_failed(&w->collectives, key, id);
    note(w, key, id, over ? FAILED_OVER : past ? FAILED_MET : FAILED_MISSED, task, failure(task, id, why));
  }
  rpc_call_answer(c, s, &none);
  free(task);
  free(why);
}

/* ---- being asked ---- */

void worker_service_step_stands(struct worker *w, struct rpc_call *c) {
  struct wire m;
  int64_t id = 0;
  struct met_step met = {0};
  char *task = mem_strdup("");
  enum wire_step step = WIRE_END;
  struct text t = {0};
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && (step = wire_next(&m, &f)) == WIRE_FIELD;) {
    if (f.tag == StepStandsRequest_step_id) id = (int64_t)f.value;
    if (f.tag == StepStandsRequest_met_key) met.key = (int64_t)f.value;
    if (f.tag == StepStandsRequest_met_id) met.id = (int64_t)f.value;
    if (f.tag == StepStandsRequest_task) free(task), task = mem_strndup((const char *)f.data, MIN(f.size, LONGEST));
  }
  if (!s && step == WIRE_BROKEN) s = INVALID("StepStandsRequest does not parse as a protocol buffer");
  if (!s) s = identity_check_task(c, task);
  if (!s) {
    struct collectives *own = &w->collectives;
    put_StepStandsResponse_stands(&t, failed_steps_stands(&own->failed, id));
    put_StepStandsResponse_met(&t, failed_steps_are_past(&own->failed, id, collective_met(own, met)));
  }
  rpc_call_answer(c, s, &t);
  free(task);
}
