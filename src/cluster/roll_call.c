/* The roll call; see roll_call.h. Channels used for it alone are dropped as soon as their task has answered: a large
 * cluster's parameter servers would otherwise all hold connections to each other. */
#include "cluster/roll_call.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/latch.h"
#include "base/log.h"
#include "cluster/identity.h"
#include "rpc/loop.h"

void roll_init(struct roll *r) {
  *r = (struct roll){0};
  pthread_mutex_init(&r->lock, NULL);
}

void roll_add(struct roll *r, const char *task, const char *address, struct rpc_channel *channel) {
  vec_push(&r->all, (struct roll_entry){.task = mem_strdup(task), .address = mem_strdup(address), .channel = channel});
}

static void drop_channel(struct roll_entry *e) {
  rpc_channel_unref(e->channel);
  e->channel = NULL;
}

void roll_release(struct roll *r) {
  for (size_t i = 0; i < r->all.n; i++) {
    struct roll_entry *e = &r->all.at[i];
    drop_channel(e);
    shoal_status_free(e->cause);
    free(e->task);
    free(e->address);
  }
  vec_release(&r->all);
  pthread_mutex_destroy(&r->lock);
}

static void all_answered(void *arg, shoal_status none) {
  struct roll *r = arg;
  pthread_mutex_lock(&r->lock);
  r->asking = false;
  pthread_mutex_unlock(&r->lock);
  for (size_t i = 0; i < r->all.n; i++) {
    struct roll_entry *e = &r->all.at[i];
    rpc_pending_unref(e->question);
    e->question = NULL;
    if (e->here) drop_channel(e);
  }
  r->then(r->arg, NULL);
}

struct roll_question {
  struct roll *roll;
  size_t index;
};

static void answered(void *arg, shoal_status s, struct rpc_body *body) {
  struct roll_question q = *(struct roll_question *)arg;
  free(arg);
  struct roll_entry *e = &q.roll->all.at[q.index];
  shoal_status_free(e->cause);
  e->cause = s;
  e->here = !s;
  join_part(&q.roll->join, NULL);
}

void roll_ask(struct roll *r, int64_t timeout_ms, void (*then)(void *arg, shoal_status s), void *arg) {
  r->then = then;
  r->arg = arg;
  join_init(&r->join, roll_count_missing(r) + 1, all_answered, r);
  pthread_mutex_lock(&r->lock);
  r->asking = true;
  pthread_mutex_unlock(&r->lock);
  int64_t deadline = deadline_after_ms(timeout_ms);
  for (size_t i = 0; i < r->all.n; i++) {
    struct roll_entry *e = &r->all.at[i];
    if (e->here) continue;
    struct roll_question *q = mem_alloc(sizeof *q);
    *q = (struct roll_question){r, i};
    struct rpc_pending *question = NULL;
    rpc_start(e->channel, "/tensorflow.WorkerService/GetStatus", NULL, deadline, 0, answered, q, &question);
    pthread_mutex_lock(&r->lock);
    e->question = question;
    pthread_mutex_unlock(&r->lock);
  }
  join_part(&r->join, NULL);
}

void roll_cancel(struct roll *r) {
  pthread_mutex_lock(&r->lock);
  for (size_t i = 0; r->asking && i < r->all.n; i++)
    if (r->all.at[i].question) rpc_cancel(r->all.at[i].question, STATUS(SHOAL_CANCELLED, "nobody waits any more"));
  pthread_mutex_unlock(&r->lock);
}

size_t roll_count_missing(const struct roll *r) {
  size_t missing = 0;
  for (size_t i = 0; i < r->all.n; i++) missing += !r->all.at[i].here;
  return missing;
}

void roll_missing(const struct roll *r, struct text *out) {
  static const char noise[] = "failed to connect to all addresses; last error: ";
  for (size_t i = 0; i < r->all.n; i++) {
    const struct roll_entry *e = &r->all.at[i];
    if (e->here) continue;
    const char *why = e->cause ? shoal_status_message(e->cause) : "not asked yet";
    if (shoal_status_code(e->cause) == SHOAL_DEADLINE_EXCEEDED) why = "no answer: stopped, overloaded or unreachable";
    if (str_starts(why, noise)) why += strlen(noise);
    text_addf(out, "%s%s at %s (%s)", out->n ? ", " : "", e->task, e->address, why);
  }
}

shoal_status roll_hopeless(const struct roll *r) {
  for (size_t i = 0; i < r->all.n; i++) {
    const struct roll_entry *e = &r->all.at[i];
    if (!e->here && shoal_status_code(e->cause) == SHOAL_UNAUTHENTICATED)
      return STATUS(SHOAL_UNAUTHENTICATED, "%s at %s: %s", e->task, e->address, shoal_status_message(e->cause));
  }
  return NULL;
}

/* ---- the start of a server ---- */

enum { FIRST_MS = 500, EVERY_MS = 1000, TELL_MS = 5000, OFTEN_MS = 60000, SELDOM_MS = 60000, ANSWER_MS = 2000 };

struct startup {
  struct roll roll; /* the thread's; others may cancel what it asks */
  int64_t timeout_ms;
  void (*late)(void *arg, shoal_status s);
  void *arg;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool over;        /* lock */
  bool goes_on;     /* lock: while sessions are used */
  shoal_status why; /* lock: it was not whole in time */
};

static bool pause_until(struct startup *s, int64_t when) {
  pthread_mutex_lock(&s->lock);
  while (!s->over && cond_wait_until(&s->changed, &s->lock, when)) continue;
  bool over = s->over;
  pthread_mutex_unlock(&s->lock);
  return !over;
}

/* How many are missing now. The thread is the server's own: it may wait. */
static size_t ask_and_wait(struct startup *s) {
  struct latch l;
  latch_init(&l, 1);
  roll_ask(&s->roll, s->timeout_ms ? MIN(ANSWER_MS, s->timeout_ms) : ANSWER_MS, latch_done, &l);
  rpc_loop_hand_over();
  shoal_status_free(latch_finish(&l));
  return roll_count_missing(&s->roll);
}

static void give_up(struct startup *s, shoal_status why) {
  pthread_mutex_lock(&s->lock);
  bool over = s->over;
  if (!over) s->why = status_copy(why);
  pthread_mutex_unlock(&s->lock);
  if (over) shoal_status_free(why);
  else s->late(s->arg, why);
}

shoal_status startup_late(struct startup *s) {
  if (!s) return NULL;
  pthread_mutex_lock(&s->lock);
  shoal_status why = s->why ? status_copy(s->why) : NULL;
  pthread_mutex_unlock(&s->lock);
  return why;
}

static void *call_roll(void *arg) {
  struct startup *s = arg;
  pthread_setname_np(pthread_self(), "shoal-start");
  int64_t start = clock_ns(), told = start, limit = deadline_after_ms(s->timeout_ms);
  for (int64_t next = start + FIRST_MS * 1000000ll; pause_until(s, MIN(next, limit));) {
    size_t missing = ask_and_wait(s);
    int64_t now = clock_ns(), since = (now - start) / 1000000;
    struct text who = {0};
    if (!missing) break;
    roll_missing(&s->roll, &who);
    if (now >= limit) {
      give_up(s, STATUS(SHOAL_DEADLINE_EXCEEDED,
                        "the cluster is not whole after --startup_timeout (%" PRId64 " s). Missing: %s",
                        s->timeout_ms / 1000, text_cstr(&who)));
      text_release(&who);
      break;
    }
    if (now - told >= (since < OFTEN_MS ? TELL_MS : SELDOM_MS) * 1000000ll) {
      LOGW("waiting since %" PRId64 " s for %s", since / 1000, text_cstr(&who));
      told = now;
    }
    text_release(&who);
    next = now + EVERY_MS * 1000000ll;
  }
  return NULL;
}

struct startup *startup_new(const struct cluster_spec *spec, const char *self, const struct rpc_tls *tls,
                            int64_t timeout_ms, void (*late)(void *arg, shoal_status s), void *arg) {
  struct startup *s = mem_zalloc(1, sizeof *s);
  roll_init(&s->roll);
  for (size_t i = 0; i < spec->jobs.n; i++)
    for (size_t k = 0; k < spec->jobs.at[i].tasks.n; k++) {
      const struct cluster_task *t = &spec->jobs.at[i].tasks.at[k];
      char *task = mem_printf("/job:%s/replica:0/task:%d", spec->jobs.at[i].name, t->index);
      char *name = identity_of_task(task);
      if (strcmp(task, self) != 0) roll_add(&s->roll, task, t->address, rpc_channel_new(t->address, tls, name));
      free(name);
      free(task);
    }
  s->timeout_ms = timeout_ms;
  s->late = late;
  s->arg = arg;
  pthread_mutex_init(&s->lock, NULL);
  cond_init(&s->changed);
  if (s->roll.all.n && pthread_create(&s->thread, NULL, call_roll, s) == 0) return s;
  roll_release(&s->roll);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->changed);
  free(s);
  return NULL;
}

void startup_goes_on(struct startup *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  s->goes_on = true;
  pthread_mutex_unlock(&s->lock);
}

void startup_used(struct startup *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  bool goes_on = s->goes_on;
  pthread_mutex_unlock(&s->lock);
  if (!goes_on) startup_over(s);
}

void startup_over(struct startup *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  s->over = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
  roll_cancel(&s->roll);
}

void startup_free(struct startup *s) {
  if (!s) return;
  startup_over(s);
  pthread_join(s->thread, NULL);
  shoal_status_free(s->why);
  roll_release(&s->roll);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->changed);
  free(s);
}
