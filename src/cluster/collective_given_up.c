#include "cluster/collective_given_up.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/vec.h"
#include "cluster/collective_failed.h"
#include "cluster/identity.h"
#include "cluster/request_parts.h"
#include "cluster/worker.h"
#include "cluster/worker_service.h"
#include "proto/shoal.wire.h"

enum { LONGEST = 2000 }; /* of a cause, in bytes */

struct met_step_under_way {
  int64_t key, id;
};

struct met_session {
  struct met_session *prev, *next;
  int64_t session;
  int64_t key, id; /* its first step */
  VEC(struct met_step_under_way) under_way;
  shoal_status over; /* who has given it up, and why; NULL: nobody */
};

void met_sessions_init(struct met_sessions *m) { pthread_mutex_init(&m->lock, NULL); }

static void free_session(struct met_session *s) {
  vec_release(&s->under_way);
  shoal_status_free(s->over);
  free(s);
}

void met_sessions_release(struct met_sessions *m) {
  for (struct met_session *s = m->first, *next; s; s = next) {
    next = s->next;
    free_session(s);
  }
  pthread_mutex_destroy(&m->lock);
}

/* With the lock held. */
static struct met_session *find(struct met_sessions *m, int64_t session) {
  struct met_session *s = m->first;
  while (s && s->session != session) s = s->next;
  return s;
}

shoal_status met_session_step(struct met_sessions *m, int64_t session, int64_t key, int64_t id) {
  pthread_mutex_lock(&m->lock);
  struct met_session *s = find(m, session);
  if (!s) {
    s = mem_zalloc(1, sizeof *s);
    *s = (struct met_session){.session = session, .key = key, .id = id};
    LIST_ADD(m->first, s);
  }
  shoal_status over = s->over ? status_copy(s->over) : NULL;
  if (!over) vec_push(&s->under_way, ((struct met_step_under_way){key, id}));
  pthread_mutex_unlock(&m->lock);
  return over;
}

void met_session_step_over(struct met_sessions *m, int64_t session, int64_t id) {
  pthread_mutex_lock(&m->lock);
  struct met_session *s = find(m, session);
  for (size_t i = s ? s->under_way.n : 0; i-- > 0;)
    if (s->under_way.at[i].id == id) s->under_way.at[i] = vec_pop(&s->under_way);
  pthread_mutex_unlock(&m->lock);
}

void met_session_over(struct met_sessions *m, int64_t session) {
  pthread_mutex_lock(&m->lock);
  struct met_session *s = find(m, session);
  if (s) LIST_REMOVE(m->first, s);
  pthread_mutex_unlock(&m->lock);
  if (s) free_session(s);
}

/* ---- telling ---- */

struct giving_up {
  const char *task;
  int64_t key, id;
  const char *why;
};

static void put_given_up(struct text *t, const void *arg) {
  const struct giving_up *g = arg;
  put_SessionGivenUpRequest_graph_key(t, g->key);
  put_SessionGivenUpRequest_step_id(t, g->id);
  put_SessionGivenUpRequest_task(t, g->task);
  put_SessionGivenUpRequest_why_n(t, g->why, strnlen(g->why, LONGEST));
}

void met_session_give_up(struct worker *w, int64_t session, const char *why) {
  struct met_sessions *m = &w->collectives.sessions;
  struct giving_up g = {.task = w->task, .why = why};
  pthread_mutex_lock(&m->lock);
  const struct met_session *s = find(m, session);
  bool tells = s && !s->over;
  if (tells) {
    g.key = s->key;
    g.id = s->id;
  }
  pthread_mutex_unlock(&m->lock);
  if (tells)
    collective_tell_all(w, "/shoal.Server/SessionGivenUp", put_given_up, &g, w->collectives.timeout_ns,
                        PEER_UNWATCHED | RPC_WAIT_FOR_READY, "that a session was given up");
}

/* ---- being told ---- */

void met_session_given_up(struct worker *w, int64_t key, int64_t id, const char *task, const char *text) {
  struct met_sessions *m = &w->collectives.sessions;
  VEC(struct met_step_under_way) ends = {0};
  shoal_status why =
      STATUS(SHOAL_ABORTED, "%s has given up the session in which it met this task, and does not come: %s", task, text);
  pthread_mutex_lock(&m->lock);
  for (struct met_session *s = m->first; s; s = s->next) {
    if (s->key != key || s->id != id || s->over) continue;
    s->over = status_copy(why);
    for (size_t i = 0; i < s->under_way.n; i++) vec_push(&ends, s->under_way.at[i]);
  }
  pthread_mutex_unlock(&m->lock);
  for (size_t i = 0; i < ends.n; i++)
    collective_step_given_up(w, ends.at[i].key, ends.at[i].id, status_mark_derived(status_copy(why)));
  vec_release(&ends);
  shoal_status_free(why);
}

void worker_service_session_given_up(struct worker *w, struct rpc_call *c) {
  struct wire m;
  struct giving_up g = {0};
  char *task = mem_strdup(""), *why = mem_strdup("");
  enum wire_step step = WIRE_END;
  struct text none = {0};
  shoal_status s = request_read(c, &m);
  for (struct wire_field f; !s && (step = wire_next(&m, &f)) == WIRE_FIELD;) {
    if (f.tag == SessionGivenUpRequest_graph_key) g.key = (int64_t)f.value;
    if (f.tag == SessionGivenUpRequest_step_id) g.id = (int64_t)f.value;
    if (f.tag == SessionGivenUpRequest_task) free(task), task = mem_strndup((const char *)f.data, MIN(f.size, LONGEST));
    if (f.tag == SessionGivenUpRequest_why) free(why), why = mem_strndup((const char *)f.data, MIN(f.size, LONGEST));
  }
  if (!s && step == WIRE_BROKEN) s = INVALID("SessionGivenUpRequest does not parse as a protocol buffer");
  if (!s) s = identity_check_task(c, task);
  if (!s) met_session_given_up(w, g.key, g.id, task, why);
  rpc_call_answer(c, s, &none);
  free(task);
  free(why);
}
