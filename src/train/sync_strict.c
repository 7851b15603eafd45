/* Strict synchronous training: who takes part.
 *
 * A step needs one set of gradients of every worker. For one that is not there the chief puts a stand-in, zeros that do
 * not count; one that comes (back) is invited between two steps, when all its queues are empty, with a token for the
 * step that follows. So the number of tokens of a worker and the number of its sets always match, whatever happened
 * before.
 *
 * The chief's watching thread finds out who joined and who left, by sync_rep_members, and puts the first stand-in at
 * once, since the step under way waits for it. A worker that joins while the chief believes it there was restarted:
 * what it was before is gone. One that puts nothing for the time of a lease is taken for lost.
 *
 * Numbered, for the state of a worker (under the lock):
 *   1. active: nobody but the worker puts sets into its queues, and it has, or will get, exactly one token for each
 * step
 *   2. not active: stand-ins are put by the chief, tokens are thrown away by the chief */
#include "train/sync_strict.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/step.h"
#include "train/stop.h"
#include "train/train_session.h"

enum { IDLE_MS = 5, READY_MS = 20, TOKEN_MS = 2000 };

static bool check(const shoal_sync_options *o) {
  return o->total_replicas >= 1 && o->task >= 0 && o->task < o->total_replicas;
}

static void pause_ms(int ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL); }

/* ---- the chief ---- */

static shoal_status read_waiting(const struct strict_worker *w, shoal_session *own, int32_t out[2]) {
  shoal_tensor *t;
  TRY(shoal_session_step(own, SHOAL_NO_FEEDS, SHOAL_FETCH(w->waiting, &t), NULL));
  const int32_t *at = shoal_tensor_const_data(t);
  out[0] = at[0];
  out[1] = at[1];
  shoal_tensor_unref(t);
  return NULL;
}

/* Between two steps: empties its queues and gives it the step that comes. */
static shoal_status invite(struct strict_worker *w, shoal_session *own) {
  int32_t waiting[2];
  TRY(read_waiting(w, own, waiting));
  for (int i = 0; i < waiting[0]; i++) TRY(session_run_op(own, w->drop));
  for (int i = 0; i < waiting[1]; i++) TRY(session_run_op(own, w->drop_token));
  TRY(session_run_op(own, w->invite));
  w->active = true;
  w->handled = w->joins;
  return NULL;
}

/* Between two steps: makes sure that the next one does not wait for it. */
static shoal_status stand_in(struct strict_worker *w, shoal_session *own) {
  int32_t waiting[2];
  TRY(read_waiting(w, own, waiting));
  for (int i = 0; i < waiting[1]; i++) TRY(session_run_op(own, w->drop_token));
  return waiting[0] ? NULL : session_run_op(own, w->stand_in);
}

static bool wants_in(const struct strict_worker *w) { return w->joins > w->left && w->joins > w->handled; }

static shoal_status prepare(shoal_sync_replicas *s, shoal_session *own, int *active) {
  *active = 0;
  int wanting = 0;
  for (int i = 0; i < s->o.total_replicas; i++) {
    const struct strict_worker *w = &s->strict->workers[i];
    wanting += w->active || wants_in(w);
  }
  /* The first step waits for all, as long as a lease lasts. */
  bool all = wanting == s->o.total_replicas;
  if (!s->strict->begun && !all && clock_ns() - s->strict->began_ns < s->o.lease_ms * 1000000) return NULL;
  for (int i = 0; i < s->o.total_replicas; i++) {
    struct strict_worker *w = &s->strict->workers[i];
    if (!w->active && wants_in(w)) TRY(invite(w, own));
    *active += w->active;
  }
  for (int i = 0; i < s->o.total_replicas && *active; i++)
    if (!s->strict->workers[i].active) TRY(stand_in(&s->strict->workers[i], own));
  s->strict->begun = s->strict->begun || *active;
  return NULL;
}

static shoal_status step(void *arg, shoal_session *own, bool *worked) {
  shoal_sync_replicas *s = arg;
  int active;
  pthread_mutex_lock(&s->strict->lock);
  shoal_status e = prepare(s, own, &active);
  pthread_mutex_unlock(&s->strict->lock);
  TRY(e);
  if (active) return session_run_op(own, s->chief_op);
  *worked = false;
  pause_ms(IDLE_MS);
  return NULL;
}

static void lose(shoal_sync_replicas *s, int i, shoal_session *own, const char *why) {
  struct strict_worker *w = &s->strict->workers[i];
  LOGW("worker %d %s: its gradients are left out", i, why);
  w->active = false;
  shoal_status_free(session_run_op(own, w->stand_in)); /* a lost task: the stepping thread reports it */
}

/* Reads who joined and left. stalled: for how long nothing happened is too long; who has put nothing is lost. */
static void look(shoal_sync_replicas *s, shoal_session *own, bool stalled) {
  shoal_tensor *t = NULL;
  int64_t now = 0;
  shoal_status e =
      shoal_session_step(own, SHOAL_NO_FEEDS, SHOAL_FETCH(s->strict->members.value, &t, s->step.value, &now), NULL);
  int total = s->o.total_replicas;
  if (!e && shoal_tensor_elements(t) == 3 * (int64_t)total) {
    const int64_t *at = shoal_tensor_const_data(t);
    pthread_mutex_lock(&s->strict->lock);
    for (int i = 0; i < total; i++) {
      struct strict_worker *w = &s->strict->workers[i];
      w->joins = at[i];
      w->left = at[total + i];
      if (!w->active) continue;
      if (w->left >= w->handled) {
        w->handled = w->left;
        lose(s, i, own, "left");
      } else if (w->joins > w->handled) {
        lose(s, i, own, "was restarted");
      } else if (stalled && at[2 * total + i] <= now) {
        lose(s, i, own, "is lost");
      }
    }
    pthread_mutex_unlock(&s->strict->lock);
  }
  if (t) shoal_tensor_unref(t);
  shoal_status_free(e);
}

static void look_often(void *arg, shoal_session *own) { look(arg, own, false); }
static void look_when_stalled(void *arg, shoal_session *own) { look(arg, own, true); }

/* ---- every worker ---- */

/* Takes the token that the chief invites with; joins again if the chief has begun anew in between. */
static shoal_status wait_for_invitation(shoal_sync_replicas *s, shoal_session *session) {
  shoal_run_options o = {.timeout_ms = TOKEN_MS};
  const char *take = shoal_op_name(s->strict->take_token);
  for (;;) {
    shoal_status e = shoal_session_run(session, &o, NULL, NULL, 0, NULL, NULL, 0, &take, 1, NULL);
    if (shoal_status_code(e) != SHOAL_DEADLINE_EXCEEDED) return e;
    shoal_status_free(e);
    if (stop_told()) return STATUS(SHOAL_CANCELLED, "told to stop while waiting for the chief's invitation");
    shoal_tensor *t;
    TRY(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(s->strict->members.value, &t), NULL));
    const int64_t *at = shoal_tensor_const_data(t);
    bool known = shoal_tensor_elements(t) == 3 * (int64_t)s->o.total_replicas &&
                 at[s->o.task] > at[s->o.total_replicas + s->o.task];
    shoal_tensor_unref(t);
    if (!known) TRY(session_run_op(session, s->strict->join));
  }
}

static shoal_status start_chief(shoal_sync_replicas *s, const shoal_created *c) {
  if (s->o.task != 0) return INVALID("strict training: task 0 is the chief, this is %d", s->o.task);
  bool there = false;
  TRY(shoal_session_step(c->session, SHOAL_NO_FEEDS, SHOAL_FETCH(s->strict->members_there, &there), NULL));
  if (!there || c->made != SHOAL_MADE_REJOINED) TRY(session_run_op(c->session, s->strict->members_init));
  for (int i = 0; i < s->o.total_replicas; i++) {
    struct strict_worker *w = &s->strict->workers[i];
    w->active = false;
    w->joins = w->left = w->handled = 0;
  }
  s->strict->begun = false;
  s->strict->began_ns = clock_ns();
  struct sync_runner_options o = {.created = c,
                                  .arg = s,
                                  .step = step,
                                  .stalled = look_when_stalled,
                                  .looks = look_often,
                                  .lease_ms = s->o.lease_ms};
  return sync_runner_start(&o, &s->runner);
}

static shoal_status created(shoal_sync_replicas *s, const shoal_created *c) {
  if (s->is_chief) TRY(start_chief(s, c));
  for (bool there = false; !there;) {
    TRY(shoal_session_step(c->session, SHOAL_NO_FEEDS, SHOAL_FETCH(s->strict->members_there, &there), NULL));
    if (!there) pause_ms(READY_MS);
  }
  TRY(session_run_op(c->session, s->strict->join));
  return wait_for_invitation(s, c->session);
}

static bool runs_train(const shoal_sync_replicas *s, const shoal_run_context *c) {
  for (size_t i = 0; i < c->step.targets.n; i++)
    if (c->step.targets.at[i] == s->train) return true;
  return false;
}

static shoal_status before_run(shoal_sync_replicas *s, shoal_run_context *c) {
  s->strict->tag_fetch = s->strict->token_fetch = -1;
  if (!runs_train(s, c)) return NULL;
  s->strict->tag_fetch = shoal_context_fetch(c, s->strict->tag);
  s->strict->token_fetch = shoal_context_fetch(c, s->strict->token);
  return NULL;
}

/* A chief that was restarted does not know what this worker was doing, and may invite it to a step that it has worked
 * on already: that token is one too many. */
static shoal_status after_run(shoal_sync_replicas *s, shoal_run_context *c) {
  if (s->strict->tag_fetch < 0) return NULL;
  double tag = shoal_context_number(c, s->strict->tag_fetch), token = shoal_context_number(c, s->strict->token_fetch);
  return token <= tag ? wait_for_invitation(s, shoal_context_session(c)) : NULL;
}

static bool anyone_there(shoal_sync_replicas *s) {
  bool any = false;
  pthread_mutex_lock(&s->strict->lock);
  for (int i = 0; i < s->o.total_replicas; i++) any |= s->strict->workers[i].active || wants_in(&s->strict->workers[i]);
  pthread_mutex_unlock(&s->strict->lock);
  return any;
}

/* A chief stays until the others have left, or are lost. */
static shoal_status end(shoal_sync_replicas *s, shoal_session *session) {
  TRY(session_run_op(session, s->strict->leave));
  while (s->runner && anyone_there(s) && !sync_runner_failed(s->runner)) pause_ms(READY_MS);
  return NULL;
}

static void release(shoal_sync_replicas *s) {
  if (!s->strict) return;
  pthread_mutex_destroy(&s->strict->lock);
  free(s->strict->workers);
  free(s->strict);
}

const struct sync_mode sync_strict = {.name = "strict",
                                      .check = check,
                                      .build = strict_build,
                                      .created = created,
                                      .before_run = before_run,
                                      .after_run = after_run,
                                      .end = end,
                                      .release = release};
