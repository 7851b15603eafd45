/* Coordinators and queue runners; see shoal/coordinator.h. */
#include "shoal/coordinator.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/given.h"
#include "base/options.h"
#include "base/mem.h"
#include "base/ref.h"
#include "base/status.h"
#include "train/step_request.h"

enum { DEFAULT_GRACE = 120 };

struct shoal_coordinator {
  pthread_mutex_t lock;
  pthread_cond_t changed; /* stop was requested, or a thread ended; on the monotonic clock */
  bool stop;              /* lock */
  shoal_status error;     /* lock */
  int running;            /* lock: threads that have not ended */
  struct ref refs;        /* the owner's, and every thread's: one that outlives its grace still finds us */
};

struct thread {
  shoal_coordinator *c;
  shoal_status (*fn)(void *arg);
  void *arg;
};

shoal_coordinator *shoal_coordinator_new(void) {
  shoal_coordinator *c = mem_zalloc(1, sizeof *c);
  pthread_mutex_init(&c->lock, NULL);
  cond_init(&c->changed);
  ref_init(&c->refs, 1);
  return c;
}

static void unref(shoal_coordinator *c) {
  if (!ref_drop(&c->refs)) return;
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->changed);
  shoal_status_free(c->error);
  free(c);
}

void shoal_coordinator_free(shoal_coordinator *c) {
  if (c) unref(c);
}

void shoal_coordinator_request_stop(shoal_coordinator *c, shoal_status error) {
  if (shoal_status_code(error) == SHOAL_OUT_OF_RANGE) { /* the input's end: a clean one */
    shoal_status_free(error);
    error = NULL;
  }
  pthread_mutex_lock(&c->lock);
  if (error && !c->error && !c->stop) {
    c->error = error;
    error = NULL;
  }
  c->stop = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  shoal_status_free(error);
}

static void *run_thread(void *arg) {
  struct thread t = *(struct thread *)arg;
  free(arg);
  shoal_status e = t.fn(t.arg);
  if (e) shoal_coordinator_request_stop(t.c, e);
  pthread_mutex_lock(&t.c->lock);
  t.c->running--;
  pthread_cond_broadcast(&t.c->changed);
  pthread_mutex_unlock(&t.c->lock);
  unref(t.c);
  return NULL;
}

shoal_status shoal_coordinator_start(shoal_coordinator *c, shoal_status (*fn)(void *arg), void *arg) {
  GIVEN(c);
  GIVEN(fn);
  struct thread *t = mem_zalloc(1, sizeof *t);
  *t = (struct thread){c, fn, arg};
  ref_take(&c->refs);
  pthread_mutex_lock(&c->lock);
  c->running++;
  pthread_mutex_unlock(&c->lock);
  pthread_t id;
  int err = pthread_create(&id, NULL, run_thread, t);
  if (!err) {
    pthread_detach(id);
    return NULL;
  }
  free(t);
  pthread_mutex_lock(&c->lock);
  c->running--;
  pthread_mutex_unlock(&c->lock);
  unref(c);
  return ERRNO_STATUS(err, "cannot start a thread");
}

bool shoal_coordinator_should_stop(shoal_coordinator *c) {
  pthread_mutex_lock(&c->lock);
  bool stop = c->stop;
  pthread_mutex_unlock(&c->lock);
  return stop;
}

static int64_t after(double seconds) {
  return seconds < 0 || seconds > 1e9 ? DEADLINE_NEVER : clock_ns() + (int64_t)(seconds * 1e9);
}

bool shoal_coordinator_wait_for_stop(shoal_coordinator *c, double seconds) {
  int64_t until = after(seconds);
  pthread_mutex_lock(&c->lock);
  while (!c->stop && cond_wait_until(&c->changed, &c->lock, until)) continue;
  bool stop = c->stop;
  pthread_mutex_unlock(&c->lock);
  return stop;
}

shoal_status shoal_coordinator_error(shoal_coordinator *c) {
  pthread_mutex_lock(&c->lock);
  shoal_status e = c->error ? status_copy(c->error) : NULL;
  pthread_mutex_unlock(&c->lock);
  return e;
}

shoal_status shoal_coordinator_join(shoal_coordinator *c, double grace_seconds) {
  shoal_status e = NULL;
  pthread_mutex_lock(&c->lock);
  while (c->running && !c->stop) cond_wait_until(&c->changed, &c->lock, DEADLINE_NEVER);
  int64_t until = after(grace_seconds > 0 ? grace_seconds : DEFAULT_GRACE);
  while (c->running && cond_wait_until(&c->changed, &c->lock, until)) continue;
  if (c->error) e = status_copy(c->error);
  else if (c->running)
    e = STATUS(SHOAL_DEADLINE_EXCEEDED, "Coordinator stopped with threads still running: %d of them", c->running);
  pthread_mutex_unlock(&c->lock);
  return e;
}

/* ---- queue runners ---- */

struct runner {
  shoal_queue_runner what;
  shoal_session *session;
  shoal_coordinator *c;
  pthread_mutex_t lock;
  int enqueuing; /* lock: threads that still enqueue */
  struct ref refs;
};

static void runner_unref(struct runner *r) {
  if (!ref_drop(&r->refs)) return;
  pthread_mutex_destroy(&r->lock);
  free(r);
}

static shoal_status fill(void *arg) {
  struct runner *r = arg;
  shoal_status e = NULL;
  while (!e && !shoal_coordinator_should_stop(r->c)) e = session_run_op(r->session, r->what.enqueue);
  pthread_mutex_lock(&r->lock);
  bool last = --r->enqueuing == 0;
  pthread_mutex_unlock(&r->lock);
  shoal_code code = shoal_status_code(e);
  bool ended = code == SHOAL_OUT_OF_RANGE || code == SHOAL_CANCELLED;
  if (ended) { /* the queue's consumers find out by what is left in it */
    shoal_status_free(e);
    e = NULL;
    if (last) shoal_status_free(session_run_op(r->session, r->what.close));
  }
  runner_unref(r);
  return e;
}

static shoal_status cancel_at_stop(void *arg) {
  struct runner *r = arg;
  shoal_coordinator_wait_for_stop(r->c, -1);
  shoal_status_free(session_run_op(r->session, r->what.cancel)); /* the session may be gone: all the better */
  runner_unref(r);
  return NULL;
}

static shoal_status start_one(struct runner *r, shoal_status (*fn)(void *arg)) {
  ref_take(&r->refs);
  shoal_status e = shoal_coordinator_start(r->c, fn, r);
  if (e) runner_unref(r);
  return e;
}

static shoal_status start_runner(const shoal_queue_runner *r, shoal_session *session, shoal_coordinator *c) {
  if (!r->enqueue) return INVALID("a queue runner needs an op to run");
  struct runner *own = mem_zalloc(1, sizeof *own);
  *own = (struct runner){.what = *r, .session = session, .c = c};
  ref_init(&own->refs, 1);
  pthread_mutex_init(&own->lock, NULL);
  int threads = MAX(r->threads, 1);
  own->enqueuing = threads;
  shoal_status e = NULL;
  for (int i = 0; i < threads && !e; i++) e = start_one(own, fill);
  if (!e && r->cancel) e = start_one(own, cancel_at_stop);
  runner_unref(own);
  return e;
}

shoal_status shoal_queue_runner_start(const shoal_queue_runner *r, shoal_session *session, shoal_coordinator *c) {
  GIVEN(r);
  return shoal_queue_runners_start(r, 1, 0, session, c);
}

shoal_status shoal_queue_runners_start(const shoal_queue_runner *runners, int n, size_t runner_size,
                                       shoal_session *session, shoal_coordinator *c) {
  GIVEN_ARRAY(runners, n);
  GIVEN(session);
  GIVEN(c);
  shoal_queue_runner *own;
  shoal_status e = OPTIONS_TAKE_ARRAY(shoal_queue_runner, cancel, &own, runners, n, runner_size);
  for (int i = 0; i < n && !e; i++) e = start_runner(&own[i], session, c);
  free(own);
  return e;
}
