/* Tasks of the coordination service; see coordination.h. The lock is held for a look at the tables; whoever is to be
 * told something, a caller that waits or another task, is told without it. */
#include "cluster/coordination.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "proto/coordination.wire.h"

enum { TICK_MS = 1000 };

shoal_status coordination_error(shoal_status s) { return status_mark_coordination(s); }

shoal_status coordination_error_read(int64_t code, const char *message) {
  bool known = code > SHOAL_OK && code <= SHOAL_UNAUTHENTICATED;
  return coordination_error(STATUS(known ? (shoal_code)code : SHOAL_UNKNOWN, "%.*s", COORDINATION_NAME, message));
}

void coordination_log(const char *who, shoal_status why) {
  enum { LINES = 20, WINDOW_S = 10 };
  static atomic_llong began;
  static atomic_int lines;
  int64_t now = clock_ns();
  if (now - atomic_load(&began) > WINDOW_S * 1000000000ll) {
    atomic_store(&began, now);
    atomic_store(&lines, 0);
  }
  int n = atomic_fetch_add(&lines, 1);
  if (n < LINES) LOGW("coordination: %s: %s", who, shoal_status_message(why));
  else if (n == LINES) LOGW("coordination: there is more of it, which is not written for %d s", WINDOW_S);
}

/* ---- values with an owner ---- */

shoal_status coordination_value_new(struct account *a, const char *key, const void *data, size_t n, size_t beside,
                                    struct coordination_value **out) {
  size_t of_key = strlen(key) + 1, charged = sizeof **out + of_key + n + beside;
  if (a) TRY(coordination_error(account_take(a, LIMIT_COORDINATION_BYTES, charged)));
  struct coordination_value *v = mem_try_alloc(sizeof *v + n + of_key);
  if (!v) {
    if (a) account_give(a, LIMIT_COORDINATION_BYTES, charged);
    return NO_MEMORY(charged, "a value of the coordination service");
  }
  *v = (struct coordination_value){
      .account = a ? account_ref(a) : NULL, .charged = charged, .key = v->bytes + n, .n = n};
  ref_init(&v->refs, 1);
  if (n) memcpy(v->bytes, data, n);
  memcpy(v->bytes + n, key, of_key);
  *out = v;
  return NULL;
}

struct coordination_value *coordination_value_ref(struct coordination_value *v) {
  ref_take(&v->refs);
  return v;
}

void coordination_value_unref(struct coordination_value *v) {
  if (!v || !ref_drop(&v->refs)) return;
  if (v->account) account_give(v->account, LIMIT_COORDINATION_BYTES, v->charged);
  account_unref(v->account);
  free(v);
}

/* ---- who waits ---- */

static void unlink_wait(struct coordination_wait *w) {
  if (!w->at) return;
  *w->at = w->next;
  if (w->next) w->next->at = w->at;
  w->at = NULL;
}

void coordination_tell(struct coordination_wait **told, struct coordination_wait *w, shoal_status s,
                       struct coordination_value *value) {
  unlink_wait(w);
  w->status = s;
  w->value = value;
  w->next = *told;
  *told = w;
}

bool coordination_link(struct coordination_wait **list, struct coordination_wait *w, struct coordination_wait **told) {
  if (w->given_up) {
    coordination_tell(told, w, STATUS(SHOAL_CANCELLED, "The caller has gone"), NULL);
    return false;
  }
  w->next = *list;
  if (w->next) w->next->at = &w->next;
  w->at = list;
  *list = w;
  return true;
}

void coordination_unlock(struct coordination *c, struct coordination_wait *told) {
  pthread_mutex_unlock(&c->lock);
  for (struct coordination_wait *next; told; told = next) {
    next = told->next;
    told->done(told, told->status, told->value);
  }
}

bool coordination_give_up(struct coordination *c, struct coordination_wait *w) {
  pthread_mutex_lock(&c->lock);
  bool waited = w->at != NULL;
  w->given_up = true;
  unlink_wait(w);
  if (waited && w->want) coordination_want_drop(c, w->want);
  if (waited && w->barrier) coordination_barrier_drop(c, w->barrier);
  pthread_mutex_unlock(&c->lock);
  return waited;
}

static shoal_status stopping(void) {
  return coordination_error(STATUS(SHOAL_CANCELLED, "Coordination service is shutting down"));
}

/* ---- making ---- */

static void tick(void *arg);

/* With the lock held, or before anybody has it. */
static void set_tick(struct coordination *c) {
  c->due = deadline_after_ms(TICK_MS);
  alarm_set(&c->tick, c->due, tick, c);
}

static void tick(void *arg) {
  struct coordination *c = arg;
  int64_t now = clock_ns();
  if (now - c->due > TICK_MS * 1000000ll) coordination_stood_still(c, now - c->due);
  coordination_look(c, now);
  pthread_mutex_lock(&c->lock);
  if (!c->stopped) set_tick(c);
  pthread_mutex_unlock(&c->lock);
}

bool coordination_has_job(const char *job) { return !strcmp(job, "chief") || !strcmp(job, "worker"); }

struct coordination *coordination_new(const struct coordination_options *o) {
  struct coordination *c = mem_zalloc(1, sizeof *c);
  c->incarnation = o->incarnation;
  c->report = o->report;
  c->left = o->left;
  c->arg = o->arg;
  c->self = -1;
  pthread_mutex_init(&c->lock, NULL);
  for (size_t i = 0; i < o->spec->jobs.n; i++) {
    const struct cluster_job *job = &o->spec->jobs.at[i];
    for (size_t k = 0; coordination_has_job(job->name) && k < job->tasks.n; k++)
      vec_push(&c->tasks, (struct coordinated_task){
                              .name = mem_printf("/job:%s/replica:0/task:%d", job->name, job->tasks.at[k].index),
                              .job = mem_strdup(job->name),
                              .id = job->tasks.at[k].index,
                              .state = TASK_DISCONNECTED});
  }
  for (size_t i = 0; i < c->tasks.n; i++) strmap_put(&c->by_name, c->tasks.at[i].name, &c->tasks.at[i]);
  struct coordinated_task *self = coordination_task(c, o->self);
  if (self) { /* it is there as long as the service is */
    c->self = (int)(self - c->tasks.at);
    self->state = TASK_CONNECTED;
    self->incarnation = o->incarnation;
    MUST(!coordination_value_new(NULL, "", o->devices, o->devices_size, 0, &self->devices));
  }
  set_tick(c);
  return c;
}

void coordination_stop(struct coordination *c) {
  struct coordination_wait *told = NULL;
  pthread_mutex_lock(&c->lock);
  c->stopped = true; /* from now on a tick that is under way sets no other */
  while (c->gatherers) coordination_tell(&told, c->gatherers, stopping(), NULL);
  coordination_forget_values(c, &told);
  coordination_forget_barriers(c, &told);
  coordination_unlock(c, told);
  alarm_clear(&c->tick);
}

void coordination_free(struct coordination *c) {
  if (!c) return;
  coordination_stop(c);
  for (size_t i = 0; i < c->tasks.n; i++) {
    struct coordinated_task *t = &c->tasks.at[i];
    shoal_status_free(t->error);
    shoal_status_free(t->unheard);
    coordination_value_unref(t->devices);
    free(t->name);
    free(t->job);
  }
  vec_release(&c->tasks);
  strmap_release(&c->by_name);
  coordination_value_unref(c->devices);
  pthread_mutex_destroy(&c->lock);
  free(c);
}

struct coordinated_task *coordination_task(struct coordination *c, const char *name) {
  return strmap_get(&c->by_name, name);
}

/* One that comes and goes: not the service's own. */
static struct coordinated_task *other_task(struct coordination *c, const char *name) {
  struct coordinated_task *t = coordination_task(c, name);
  return t && t - c->tasks.at != c->self ? t : NULL;
}

/* ---- errors ---- */

/* What is to be told to other tasks, without the lock. */
struct news {
  struct coordinated_task *source; /* NULL: there is none */
  shoal_status error;
  bool reported; /* by the source itself */
  VEC(const char *) to;
};

static void forget_devices(struct coordinated_task *t) {
  coordination_value_unref(t->devices);
  t->devices = NULL;
}

/* With the lock held: who was told of the task with the same list of devices hears of its error. */
static void tell_gathering(struct coordination *c, struct coordinated_task *t, struct news *news) {
  for (size_t i = 0; t->gathering && i < c->tasks.n; i++) {
    struct coordinated_task *u = &c->tasks.at[i];
    if (u == t || u->state != TASK_CONNECTED || u->gathering != t->gathering) continue;
    vec_push(&news->to, u->name);
    u->gathering = 0;
    if ((int)i != c->self) forget_devices(u); /* it is counted again when it waits for the others anew */
  }
  t->gathering = 0;
}

/* With the lock held: the task is lost to all who were told of it. error is taken over. */
static void lose(struct coordination *c, struct coordinated_task *t, shoal_status error, bool reported,
                 struct news *news, struct coordination_wait **told) {
  coordination_log(t->name, error);
  t->state = TASK_ERROR;
  t->gone = clock_ns();
  shoal_status_free(t->error);
  t->error = error;
  forget_devices(t);
  coordination_barriers_lose(c, t, "a task error", told);
  *news = (struct news){.source = t, .error = status_copy(error), .reported = reported};
  tell_gathering(c, t, news);
}

static void publish(struct coordination *c, struct news *n) {
  if (n->to.n) c->report(c->arg, n->to.at, n->to.n, n->source->name, n->error, n->reported);
  shoal_status_free(n->error);
  vec_release(&n->to);
}

shoal_status coordination_not_whole(void) {
  return coordination_error(
      STATUS(SHOAL_FAILED_PRECONDITION, "Not all tasks are there yet: nobody would be told of the error"));
}

/* ---- tasks ---- */

static void connect_task(struct coordinated_task *t, uint64_t incarnation) {
  shoal_status_free(t->error);
  t->error = NULL;
  t->state = TASK_CONNECTED;
  t->incarnation = incarnation;
  t->last_beat = clock_ns();
  t->gathering = t->gone = 0;
  shoal_status_free(t->unheard);
  t->unheard = NULL;
  forget_devices(t);
}

shoal_status coordination_register(struct coordination *c, const char *task, uint64_t incarnation) {
  struct coordination_wait *told = NULL;
  struct news news = {0};
  pthread_mutex_lock(&c->lock);
  struct coordinated_task *t = other_task(c, task);
  shoal_status s = c->stopped ? stopping() : NULL;
  if (!s && !t) s = coordination_error(INVALID("Unexpected task registered with task_name=%s", task));
  if (!s && t->state == TASK_CONNECTED && t->incarnation == incarnation) {
    t->last_beat = clock_ns(); /* it did not hear the answer */
  } else if (!s) {
    if (t->state == TASK_CONNECTED)
      lose(c, t,
           coordination_error(STATUS(SHOAL_ABORTED, "%s has come with another incarnation: it was restarted", task)),
           false, &news, &told);
    connect_task(t, incarnation);
    LOGI("coordination: %s is here, as %" PRIu64, task, incarnation);
  }
  coordination_unlock(c, told);
  publish(c, &news);
  return s;
}

shoal_status coordination_beat(struct coordination *c, const char *task, uint64_t incarnation) {
  pthread_mutex_lock(&c->lock);
  int64_t now = clock_ns();
  struct coordinated_task *t = coordination_task(c, task);
  shoal_status s = c->stopped ? stopping() : NULL;
  if (!s && !t) {
    s = coordination_error(INVALID("Unexpected heartbeat request from task: %s", task));
  } else if (!s && t->state == TASK_ERROR) {
    s = status_copy(t->error);
  } else if (!s && t->state == TASK_DISCONNECTED && now > t->grace_until) {
    s = coordination_error(
        INVALID("Task with task_name=%s must be registered before sending heartbeat messages", task));
  } else if (!s && t->incarnation != incarnation) {
    s = coordination_error(STATUS(SHOAL_ABORTED,
                                  "Incarnation ID mismatch: expecting %" PRIu64 " but got %" PRIu64
                                  ". This means the remote task has restarted.",
                                  t->incarnation, incarnation));
  } else if (!s) {
    t->last_beat = now;
    s = t->unheard;
    t->unheard = NULL;
  }
  pthread_mutex_unlock(&c->lock);
  return s;
}

void coordination_unheard(struct coordination *c, const char *task, shoal_status error) {
  pthread_mutex_lock(&c->lock);
  struct coordinated_task *t = other_task(c, task);
  /* Where it waits for the others anew it knows. */
  bool knows = !t || t->state != TASK_CONNECTED || t->gathering || t->devices;
  shoal_status unused = knows ? error : t->unheard;
  if (!knows) t->unheard = error;
  pthread_mutex_unlock(&c->lock);
  shoal_status_free(unused);
}

static bool all_are_here(const struct coordination *c) {
  for (size_t i = 0; i < c->tasks.n; i++)
    if (c->tasks.at[i].state != TASK_CONNECTED || !c->tasks.at[i].devices) return false;
  return true;
}

/* With the lock held: the devices of all become one list, for everybody who waits. */
static void complete(struct coordination *c, struct coordination_wait **told) {
  struct text all = {0};
  for (size_t i = 0; i < c->tasks.n; i++) text_add(&all, c->tasks.at[i].devices->bytes, c->tasks.at[i].devices->n);
  coordination_value_unref(c->devices);
  c->devices = NULL;
  shoal_status s = coordination_value_new(NULL, "", all.at, all.n, 0, &c->devices);
  text_release(&all);
  if (!s) c->gathering++;
  for (size_t i = 0; !s && i < c->tasks.n; i++) c->tasks.at[i].gathering = c->gathering;
  while (c->gatherers)
    coordination_tell(told, c->gatherers, status_copy(s), s ? NULL : coordination_value_ref(c->devices));
  shoal_status_free(s);
}

void coordination_gather(struct coordination *c, const char *task, struct wire devices, struct account *a,
                         struct coordination_wait *w) {
  struct coordination_wait *told = NULL;
  struct coordination_value *own = NULL;
  shoal_status s = coordination_value_new(a, "", devices.at, wire_left(&devices), 0, &own);
  pthread_mutex_lock(&c->lock);
  struct coordinated_task *t = other_task(c, task);
  if (!s && c->stopped) s = stopping();
  if (!s && (!t || t->state != TASK_CONNECTED))
    s = coordination_error(INVALID("Task with task_name=%s must be registered before it waits for the others", task));
  if (s) {
    coordination_tell(&told, w, s, NULL);
  } else if (t->gathering) { /* it did not hear the answer */
    coordination_tell(&told, w, NULL, coordination_value_ref(c->devices));
  } else {
    struct coordination_value *before = t->devices;
    t->devices = own;
    own = before;
    w->deadline = deadline_after_ms(GATHERING_TIMEOUT_MS);
    coordination_link(&c->gatherers, w, &told);
    if (all_are_here(c)) complete(c, &told);
  }
  coordination_unlock(c, told);
  coordination_value_unref(own);
}

shoal_status coordination_disconnect(struct coordination *c, const char *task) {
  struct coordination_wait *told = NULL;
  bool known = false;
  pthread_mutex_lock(&c->lock);
  struct coordinated_task *t = other_task(c, task);
  shoal_status s = NULL;
  if (!t) {
    s = coordination_error(INVALID("Unexpected disconnect request with task_name=%s", task));
  } else if (t->state == TASK_DISCONNECTED) {
    s = coordination_error(STATUS(SHOAL_FAILED_PRECONDITION, "The task is already disconnected: %s", task));
  } else {
    shoal_status_free(t->error);
    t->error = NULL;
    t->state = TASK_DISCONNECTED;
    t->grace_until = deadline_after_ms(HEARTBEAT_TIMEOUT_MS);
    t->gone = clock_ns();
    known = t->gathering;
    t->gathering = 0;
    forget_devices(t);
    coordination_barriers_lose(c, t, "a disconnected task", &told);
    LOGI("coordination: %s has left", task);
  }
  coordination_unlock(c, told);
  if (known && c->left) c->left(c->arg, task);
  return s;
}

shoal_status coordination_fail(struct coordination *c, const char *task, shoal_status error) {
  struct coordination_wait *told = NULL;
  struct news news = {0};
  shoal_status s = NULL;
  pthread_mutex_lock(&c->lock);
  struct coordinated_task *t = other_task(c, task);
  if (!t) s = coordination_error(INVALID("Unexpected request from task %s", task));
  else if (t->state != TASK_CONNECTED)
    s = coordination_error(STATUS(SHOAL_FAILED_PRECONDITION, "The task is not connected or already has an error."));
  if (s) shoal_status_free(error);
  else lose(c, t, coordination_error(error), true, &news, &told);
  coordination_unlock(c, told);
  publish(c, &news);
  return s;
}

shoal_status coordination_fail_self(struct coordination *c, shoal_status error) {
  struct coordination_wait *told = NULL;
  struct news news = {.error = coordination_error(error), .reported = true};
  pthread_mutex_lock(&c->lock);
  struct coordinated_task *self = c->self < 0 ? NULL : &c->tasks.at[c->self];
  bool known = self && self->gathering;
  if (known) {
    news.source = self;
    coordination_barriers_lose(c, self, "a task error", &told);
    tell_gathering(c, self, &news);
  }
  coordination_unlock(c, told);
  publish(c, &news);
  return known ? NULL : coordination_not_whole();
}

static void put_task(struct text *out, const struct coordinated_task *t) {
  put_CoordinatedTask_job_name(out, t->job);
  put_CoordinatedTask_task_id(out, t->id);
}

shoal_status coordination_state(struct coordination *c, const char *task, struct text *out) {
  shoal_status s = NULL;
  pthread_mutex_lock(&c->lock);
  const struct coordinated_task *t = coordination_task(c, task);
  if (!t) {
    s = coordination_error(INVALID("Unexpected task in a question about states: %s", task));
  } else {
    size_t at = begin_CoordinatedTaskStateInfo_task(out);
    put_task(out, t);
    wire_end(out, at);
    put_CoordinatedTaskStateInfo_state(out, t->state);
    if (t->error) {
      put_CoordinatedTaskStateInfo_error_code(out, shoal_status_code(t->error));
      struct text message = {0};
      text_add_utf8(&message, shoal_status_message(t->error), strlen(shoal_status_message(t->error)));
      put_CoordinatedTaskStateInfo_error_message(out, text_cstr(&message));
      text_release(&message);
      size_t payload = begin_CoordinatedTaskStateInfo_error_payload(out);
      size_t source = begin_CoordinationServiceError_source_task(out);
      put_task(out, t);
      wire_end(out, source);
      wire_end(out, payload);
    }
  }
  pthread_mutex_unlock(&c->lock);
  return s;
}

/* With the lock held: one that has not beaten for too long; NULL: none. */
static struct coordinated_task *find_stale(struct coordination *c, int64_t now) {
  for (size_t i = 0; i < c->tasks.n; i++) {
    struct coordinated_task *t = &c->tasks.at[i];
    if ((int)i != c->self && t->state == TASK_CONNECTED && now - t->last_beat > HEARTBEAT_TIMEOUT_MS * 1000000ll)
      return t;
  }
  return NULL;
}

/* With the lock held: who of the tasks is missing, a few of them. */
static shoal_status missing(const struct coordination *c) {
  enum { NAMED = 20 };
  struct text who = {0};
  int n = 0;
  for (size_t i = 0; i < c->tasks.n && n < NAMED; i++)
    if (c->tasks.at[i].state != TASK_CONNECTED || !c->tasks.at[i].devices)
      text_addf(&who, "%s%s", n++ ? ", " : "", c->tasks.at[i].name);
  shoal_status s = STATUS(SHOAL_DEADLINE_EXCEEDED, "These tasks have not come: %s", text_cstr(&who));
  text_release(&who);
  return coordination_error(s);
}

void coordination_stood_still(struct coordination *c, int64_t ns) {
  pthread_mutex_lock(&c->lock);
  for (size_t i = 0; i < c->tasks.n; i++) c->tasks.at[i].last_beat += ns;
  pthread_mutex_unlock(&c->lock);
}

/* With the lock held: a task that was here, has gone and has not come again for too long; NULL: none. */
static struct coordinated_task *find_gone(struct coordination *c, int64_t now) {
  for (size_t i = 0; i < c->tasks.n; i++) {
    struct coordinated_task *t = &c->tasks.at[i];
    if (t->gone && now - t->gone > COME_AGAIN_MS * 1000000ll) return t;
  }
  return NULL;
}

static shoal_status not_come_again(const struct coordinated_task *t) {
  const char *why = t->error ? shoal_status_message(t->error) : "It has left.";
  return coordination_error(STATUS(SHOAL_UNAVAILABLE, "Task %s was here, has gone and has not come again in %d s: %s",
                                   t->name, COME_AGAIN_MS / 1000, why));
}

/* Those who wait for all tasks, this server's among them, are told of one that has gone. */
static void tell_of_gone(struct coordination *c, int64_t now) {
  for (struct coordinated_task *t; pthread_mutex_lock(&c->lock), t = find_gone(c, now);) {
    struct coordination_wait *told = NULL;
    struct news news = {.source = t, .error = not_come_again(t)};
    t->gone = 0;
    while (c->gatherers) coordination_tell(&told, c->gatherers, status_copy(news.error), NULL);
    if (c->self >= 0 && !c->tasks.at[c->self].gathering) vec_push(&news.to, c->tasks.at[c->self].name);
    coordination_unlock(c, told);
    publish(c, &news);
  }
  pthread_mutex_unlock(&c->lock);
}

void coordination_look(struct coordination *c, int64_t now) {
  struct coordination_wait *told = NULL;
  pthread_mutex_lock(&c->lock);
  coordination_barriers_look(c, now, &told);
  shoal_status late = NULL; /* the same for all */
  for (struct coordination_wait *w = c->gatherers, *next; w; w = next) {
    next = w->next;
    if (now < w->deadline) continue;
    if (!late) late = missing(c);
    coordination_tell(&told, w, status_copy(late), NULL);
  }
  coordination_unlock(c, told);
  shoal_status_free(late);
  for (struct coordinated_task *t; pthread_mutex_lock(&c->lock), t = find_stale(c, now);) {
    struct news news = {0};
    told = NULL;
    lose(c, t,
         coordination_error(STATUS(SHOAL_UNAVAILABLE,
                                   "Task %s heartbeat timeout. This indicates that the remote task has failed, "
                                   "got preempted, or crashed unexpectedly.",
                                   t->name)),
         false, &news, &told);
    coordination_unlock(c, told);
    publish(c, &news);
  }
  pthread_mutex_unlock(&c->lock);
  tell_of_gone(c, now);
}
