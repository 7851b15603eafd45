/* The chief's threads in synchronous training; see sync.h.
 *
 * A queue runner would do for the first thread; but a runner that waits for gradients can be ended only by closing its
 * session, and a training session closes its own only after its threads have ended. Hence a second session. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "runtime/session_ops.h"
#include "train/step_request.h"
#include "train/sync.h"

enum { LOOK_MS = 100 };

struct sync_runner {
  struct sync_runner_options o;
  shoal_coordinator *coordinator;
  shoal_session *own;
  pthread_t stepper, watcher;
  atomic_bool stop;
  atomic_llong steps;
  atomic_llong progress_ns; /* when the last step was completed */
  atomic_llong longest_ns;  /* what steps took lately; fades */
};

static int64_t lease_ns(struct sync_runner *r) {
  int64_t asked = r->o.lease_ms * 1000000, seen = 4 * atomic_load(&r->longest_ns);
  return asked > seen ? asked : seen;
}

static void *run_steps(void *arg) {
  struct sync_runner *r = arg;
  while (!atomic_load(&r->stop)) {
    int64_t began = clock_ns();
    bool worked = true;
    shoal_status e = r->o.step(r->o.arg, r->own, &worked);
    int64_t now = clock_ns(), took = now - began, before = atomic_load(&r->longest_ns);
    if (e) {
      if (atomic_load(&r->stop)) {
        shoal_status_free(e);
      } else { /* this worker may itself wait for a token that will not come */
        shoal_coordinator_request_stop(r->coordinator, e);
        session_interrupt(r->o.created->session);
      }
      break;
    }
    if (!worked) continue;
    /* The first step waits for everybody to begin: it says nothing of the others. */
    if (atomic_fetch_add(&r->steps, 1) > 0) {
      int64_t faded = before - before / 64;
      atomic_store(&r->longest_ns, took > faded ? took : faded);
    }
    atomic_store(&r->progress_ns, now);
  }
  return NULL;
}

static void *watch(void *arg) {
  struct sync_runner *r = arg;
  int64_t patience = 0; /* since the last remedy */
  while (!atomic_load(&r->stop)) {
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    if (r->o.looks && !atomic_load(&r->stop)) r->o.looks(r->o.arg, r->own);
    int64_t since = atomic_load(&r->progress_ns), now = clock_ns();
    if (patience > since) since = patience;
    if (!r->o.stalled || now - since < lease_ns(r) || atomic_load(&r->stop)) continue;
    r->o.stalled(r->o.arg, r->own);
    patience = clock_ns();
  }
  return NULL;
}

shoal_status sync_runner_start(const struct sync_runner_options *o, struct sync_runner **out) {
  const shoal_session_options *made = o->created->options;
  if (!made->target || !*made->target)
    return STATUS(SHOAL_FAILED_PRECONDITION,
                  "Synchronous training needs a cluster: the session's target is this process alone");
  struct sync_runner *r = mem_zalloc(1, sizeof *r);
  r->o = *o;
  r->coordinator = o->created->coordinator;
  r->progress_ns = clock_ns();
  shoal_status e = shoal_session_open(o->created->graph, made, &r->own);
  if (!e && pthread_create(&r->stepper, NULL, run_steps, r)) e = INTERNAL("no thread for synchronous steps");
  if (!e && pthread_create(&r->watcher, NULL, watch, r)) {
    atomic_store(&r->stop, true);
    e = INTERNAL("no thread to watch synchronous steps");
    shoal_status_free(shoal_session_close(r->own));
    r->own = NULL;
    pthread_join(r->stepper, NULL);
  }
  if (e) {
    if (r->own) shoal_status_free(shoal_session_close(r->own));
    free(r);
    return e;
  }
  *out = r;
  return NULL;
}

bool sync_runner_failed(struct sync_runner *r) { return shoal_coordinator_should_stop(r->coordinator); }

void sync_runner_linger(struct sync_runner *r, int64_t idle_ms) {
  int64_t began = clock_ns();
  for (;;) {
    int64_t idle = idle_ms * 1000000, seen = 3 * atomic_load(&r->longest_ns), since = atomic_load(&r->progress_ns);
    if (since < began) since = began;
    if (clock_ns() - since > (idle > seen ? idle : seen) || sync_runner_failed(r)) return;
    if (stop_told() && clock_ns() - began > SYNC_LEAVE_MS * INT64_C(1000000)) return;
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
  }
}

void sync_runner_stop(struct sync_runner *r) {
  if (!r) return;
  atomic_store(&r->stop, true);
  pthread_join(r->watcher, NULL);
  shoal_status_free(shoal_session_close(r->own)); /* ends the step that waits */
  pthread_join(r->stepper, NULL);
  free(r);
}
