/* Strict synchronous training: who takes part.
 *
 * A step needs one set of gradients of every worker. For one that is not there the chief puts a stand-in, zeros that do
 * not count, and no token after the step. So sooner or later such a worker waits for a token, if it lives at all: then,
 * between two steps, its queues are emptied and it is invited with a token for the step that follows. That holds for
 * one that has just joined, for one that was slow and given up, and for all of them when the chief was restarted and
 * does not know what they were doing.
 *
 * The chief's watching thread finds out who joined, left and waits, by sync_rep_members, and puts the first stand-in at
 * once, since the step under way waits for it. A worker that joins while the chief believes it there was restarted:
 * what it was before is gone. One that puts nothing for the time of a lease is taken for lost.
 *
 * The last one to go gets no stand-in: a step of stand-ins alone would move the step counter (and an optimizer's
 * averages) on after training has ended. Its place stays open, and the step waits; the end of the chief's session ends
 * it, or, should somebody come after all, a stand-in does.
 *
 * Numbered, for the state of a worker (under the lock):
 *   1. active: nobody but the worker puts sets into its queues; and there is exactly one of these: a token for this
 *      step in its queue, one in its hands, a set for this step in its queues
 *   2. not active: the chief puts stand-ins, and no tokens */
#include "train/sync_strict.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/step_request.h"
#include "base/stop.h"

enum { IDLE_MS = 5, READY_MS = 20, TOKEN_MS = 2000, QUIET_LOOKS = 3 };

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
  return waiting[0] ? NULL : session_run_op(own, w->stand_in);
}

static bool wants_in(const struct strict_worker *w) { return w->joins > w->left; }
static bool may_come(const struct strict_worker *w) { return wants_in(w) && w->quiet >= QUIET_LOOKS; }

static shoal_status prepare(shoal_sync_replicas *s, shoal_session *own, int *active) {
  *active = 0;
  s->strict->vacant = -1;
  int wanting = 0;
  for (int i = 0; i < s->o.total_replicas; i++) {
    const struct strict_worker *w = &s->strict->workers[i];
    wanting += w->active || may_come(w);
  }
  /* The first step waits for all, as long as a lease lasts. */
  bool all = wanting == s->o.total_replicas;
  if (!s->strict->begun && !all && clock_ns() - s->strict->began_ns < s->o.lease_ms * 1000000) return NULL;
  for (int i = 0; i < s->o.total_replicas; i++) {
    struct strict_worker *w = &s->strict->workers[i];
    if (!w->active && may_come(w)) TRY(invite(w, own));
    *active += w->active;
  }
  for (int i = 0; i < s->o.total_replicas && *active; i++)
    if (!s->strict->workers[i].active) TRY(stand_in(&s->strict->workers[i], own));
  s->strict->begun = s->strict->begun || *active;
  return NULL;
}

/* Those who are active now get a token afterwards. Who is lost in the middle gets one, too, and finds it when it is
 * only slow; that does no harm, since its next set is for a step that has passed. */
static shoal_status run_step(shoal_sync_replicas *s, shoal_session *own) {
  int32_t *active = mem_zalloc((size_t)s->o.total_replicas, sizeof *active);
  pthread_mutex_lock(&s->strict->lock);
  for (int i = 0; i < s->o.total_replicas; i++) active[i] = s->strict->workers[i].active;
  pthread_mutex_unlock(&s->strict->lock);
  shoal_tensor *t = NULL;
  int64_t total = s->o.total_replicas;
  shoal_status e = shoal_tensor_from(SHOAL_INT32, 1, &total, active, (size_t)total * sizeof *active, &t);
  if (!e) e = shoal_session_step(own, SHOAL_FEED(s->strict->active_fed, t), SHOAL_NO_FETCHES, s->chief_op);
  if (t) shoal_tensor_unref(t);
  free(active);
  return e;
}

static shoal_status step(void *arg, shoal_session *own, bool *worked) {
  shoal_sync_replicas *s = arg;
  int active;
  pthread_mutex_lock(&s->strict->lock);
  shoal_status e = prepare(s, own, &active);
  pthread_mutex_unlock(&s->strict->lock);
  TRY(e);
  if (active) return run_step(s, own);
  *worked = false;
  pause_ms(IDLE_MS);
  return NULL;
}

static bool anyone_active(const shoal_sync_replicas *s) {
  bool any = false;
  for (int i = 0; i < s->o.total_replicas; i++) any |= s->strict->workers[i].active;
  return any;
}

/* A lost task fails here, too: the stepping thread reports it. */
static void put_stand_in(shoal_sync_replicas *s, int i, shoal_session *own) {
  shoal_status_free(session_run_op(own, s->strict->workers[i].stand_in));
}

/* why: NULL when it left by itself. */
static void lose(shoal_sync_replicas *s, int i, shoal_session *own, const char *why) {
  struct strict_worker *w = &s->strict->workers[i];
  if (why) LOGW("worker %d %s: its gradients are left out", i, why);
  w->active = false;
  if (anyone_active(s)) put_stand_in(s, i, own);
  else s->strict->vacant = i;
}

/* Somebody waits to be invited while a step waits for nobody: it must end first. */
static void fill_vacancy(shoal_sync_replicas *s, shoal_session *own) {
  int vacant = s->strict->vacant;
  bool wanted = false;
  for (int i = 0; i < s->o.total_replicas; i++) wanted |= may_come(&s->strict->workers[i]);
  if (vacant < 0 || !wanted) return;
  put_stand_in(s, vacant, own);
  s->strict->vacant = -1;
}

/* What the members say of one worker. */
static void look_at_one(shoal_sync_replicas *s, int i, const int64_t *members, shoal_session *own) {
  int total = s->o.total_replicas;
  struct strict_worker *w = &s->strict->workers[i];
  int64_t arrived = members[MEMBER_ARRIVED * total + i], holds = members[MEMBER_HOLDS * total + i];
  int64_t beats = members[MEMBER_BEATS * total + i], now = clock_ns();
  w->joins = members[MEMBER_JOINS * total + i];
  w->left = members[MEMBER_LEFT * total + i];
  if (beats != w->beats || !w->beat_ns) w->beat_ns = now;
  w->beats = beats;
  bool alive = w->alive = now - w->beat_ns < s->o.lease_ms * 1000000;
  if (w->active) {
    w->quiet = 0;
    if (w->left >= w->handled) lose(s, i, own, NULL);
    else if (w->joins > w->handled) lose(s, i, own, "was restarted");
    else if (!alive) lose(s, i, own, "is lost");
  }
  if (w->active) return;
  /* One that has just joined waits for certain; another may have taken a token and not said so yet. */
  if (arrived != holds + 1 || !alive) w->quiet = 0;
  else w->quiet = holds < 0 ? QUIET_LOOKS : w->quiet + 1;
}

static void look(void *arg, shoal_session *own) {
  shoal_sync_replicas *s = arg;
  shoal_tensor *t = NULL;
  shoal_status e = shoal_session_step(own, SHOAL_NO_FEEDS, SHOAL_FETCH(s->strict->members.value, &t), NULL);
  if (!e && shoal_tensor_elements(t) == MEMBER_NUMBERS * (int64_t)s->o.total_replicas) {
    pthread_mutex_lock(&s->strict->lock);
    for (int i = 0; i < s->o.total_replicas; i++) look_at_one(s, i, shoal_tensor_const_data(t), own);
    fill_vacancy(s, own);
    pthread_mutex_unlock(&s->strict->lock);
  }
  if (t) shoal_tensor_unref(t);
  shoal_status_free(e); /* a lost task: the stepping thread reports it */
}

/* ---- every worker ---- */

/* Takes the token that the chief invites with; joins again if the chief has begun anew in between. */
static shoal_status wait_for_invitation(shoal_sync_replicas *s, const shoal_created *c) {
  shoal_session *session = c->session;
  shoal_run_options o = {.timeout_ms = TOKEN_MS};
  struct sync_wait wait;
  sync_wait_begin(&wait, c, "the chief's invitation");
  const char *take = shoal_op_name(s->strict->take_token);
  for (;;) {
    shoal_status e = shoal_session_run(session, &o, NULL, NULL, 0, NULL, NULL, 0, &take, 1, NULL);
    if (shoal_status_code(e) != SHOAL_DEADLINE_EXCEEDED) return e;
    shoal_status_free(e);
    TRY(sync_wait_pause(&wait, 0));
    shoal_tensor *t;
    TRY(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(s->strict->members.value, &t), NULL));
    const int64_t *at = shoal_tensor_const_data(t);
    int total = s->o.total_replicas;
    bool known = shoal_tensor_elements(t) == MEMBER_NUMBERS * (int64_t)total &&
                 at[MEMBER_JOINS * total + s->o.task] > at[MEMBER_LEFT * total + s->o.task];
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
    w->quiet = 0;
    w->alive = false;
    w->beat_ns = 0;
  }
  s->strict->begun = false;
  s->strict->vacant = -1;
  s->strict->began_ns = clock_ns();
  struct sync_runner_options o = {.created = c, .arg = s, .step = step, .looks = look, .lease_ms = s->o.lease_ms};
  return sync_runner_start(&o, &s->runner);
}

static shoal_status created(shoal_sync_replicas *s, const shoal_created *c) {
  if (s->is_chief) TRY(start_chief(s, c));
  struct sync_wait wait;
  sync_wait_begin(&wait, c, "the chief to make the list of workers");
  for (bool there = false; !there;) {
    TRY(shoal_session_step(c->session, SHOAL_NO_FEEDS, SHOAL_FETCH(s->strict->members_there, &there), NULL));
    if (!there) TRY(sync_wait_pause(&wait, READY_MS));
  }
  TRY(session_run_op(c->session, s->strict->join));
  TRY(sync_beat_start(&(struct sync_beat_options){.created = c,
                                                  .op = s->strict->beat,
                                                  .lease_ms = s->o.lease_ms,
                                                  .step_began = s->is_chief ? NULL : &s->step_began,
                                                  .step = s->step.value,
                                                  .chief_beats = s->chief_beats},
                      &s->beat));
  return wait_for_invitation(s, c);
}

static bool anyone_there(shoal_sync_replicas *s) {
  bool any = false;
  pthread_mutex_lock(&s->strict->lock);
  for (int i = 0; i < s->o.total_replicas; i++) {
    const struct strict_worker *w = &s->strict->workers[i];
    any |= w->active || (wants_in(w) && w->alive);
  }
  pthread_mutex_unlock(&s->strict->lock);
  return any;
}

/* A chief stays until the others have left, or are lost; when it is told to stop, for as long as they may take to. */
static shoal_status end(shoal_sync_replicas *s, shoal_session *session) {
  TRY(session_run_op(session, s->strict->leave));
  int64_t told = 0;
  while (s->runner && anyone_there(s) && !sync_runner_failed(s->runner)) {
    if (!told && stop_told()) told = clock_ns();
    if (told && clock_ns() - told > SYNC_LEAVE_MS * INT64_C(1000000)) break;
    pause_ms(READY_MS);
  }
  return NULL;
}

static void release(shoal_sync_replicas *s) {
  if (!s->strict) return;
  pthread_mutex_destroy(&s->strict->lock);
  free(s->strict->workers);
  free(s->strict);
}

const struct sync_mode sync_strict = {
    .name = "strict", .check = check, .build = strict_build, .created = created, .end = end, .release = release};
