/* Signs of life in synchronous training; see sync.h.
 *
 * A worker whose step waits for a token waits for the chief, and would do so for ever under one that was killed and
 * does not come back. Its connections are to the parameter servers, which are well: so it is told there. The chief
 * counts beats beside the step counter; a chief of TensorFlow's does not, but its steps count. A worker looks only when
 * its own step takes long, so that in the usual course nobody is asked anything. */
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "runtime/session_ops.h"
#include "train/step_request.h"
#include "train/sync.h"

enum { PAUSE_MS = 100, LOOK_MS = 1000, SAY_MS = 5000, RUN_MS = 2000 };

/* ---- waiting for others, before the first step ---- */

void sync_wait_begin(struct sync_wait *w, const shoal_created *created, const char *what) {
  int64_t now = clock_ns();
  *w = (struct sync_wait){what, now, now + (int64_t)(MIN(created->max_wait_secs, 1e9) * 1e9), now};
}

shoal_status sync_wait_pause(struct sync_wait *w, int ms) {
  int64_t now = clock_ns();
  double waited = (double)(now - w->began) * 1e-9;
  if (stop_told()) return STATUS(SHOAL_CANCELLED, "told to stop while waiting for %s", w->what);
  if (now > w->deadline)
    return STATUS(SHOAL_DEADLINE_EXCEEDED, "the chief did not come: waited %.0f s for %s", waited, w->what);
  if (now - w->said > (int64_t)SAY_MS * 1000000) {
    LOGW("waiting for %.0f s: %s", waited, w->what);
    w->said = now;
  }
  if (ms) nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
  return NULL;
}

/* ---- beats, given and looked for ---- */

struct sync_beat {
  struct sync_beat_options o;
  pthread_t thread;
  atomic_bool stop;
  /* what was seen of the chief */
  int64_t step, beats, seen_ns, said_ns;
};

/* One number, in time; false: not now. */
static bool ask(struct sync_beat *b, shoal_out what, int64_t *out) {
  struct step_request s = {.options = {.timeout_ms = RUN_MS}};
  if (!what.node) return false;
  step_fetch(&s, what);
  shoal_status e = step_run(&s, b->o.created->session);
  if (!e) *out = (int64_t)tensor_number(s.values.at[0]);
  step_release(&s);
  bool ok = !e;
  shoal_status_free(e); /* when a parameter server is lost, the worker's own step finds out */
  return ok;
}

/* This worker's step takes long: is the chief there? The error when it has been away for too long. */
static shoal_status look_for_chief(struct sync_beat *b, int64_t step_began) {
  int64_t step = b->step, beats = b->beats, now;
  if (!ask(b, b->o.step, &step)) return NULL;
  ask(b, b->o.chief_beats, &beats);
  now = clock_ns();
  if (step != b->step || beats != b->beats || b->seen_ns < step_began) b->seen_ns = b->said_ns = now;
  b->step = step;
  b->beats = beats;
  double silent = (double)(now - b->seen_ns) * 1e-9;
  if (silent > b->o.created->max_wait_secs)
    return STATUS(SHOAL_DEADLINE_EXCEEDED,
                  "no token for the next step: the chief has given no sign of life for %.0f s, at step %" PRId64,
                  silent, step);
  if (now - b->said_ns > (int64_t)SAY_MS * 1000000) {
    LOGW("waiting for a token: the chief has given no sign of life for %.0f s, at step %" PRId64, silent, step);
    b->said_ns = now;
  }
  return NULL;
}

/* When a task is lost, the worker's own step finds out. */
static void run_quietly(const struct sync_beat *b, const shoal_op *op) {
  const char *name = shoal_op_name(op);
  shoal_run_options o = {.timeout_ms = RUN_MS};
  shoal_status_free(shoal_session_run(b->o.created->session, &o, NULL, NULL, 0, NULL, NULL, 0, &name, 1, NULL));
}

/* All steps are done, and the chief is silent. One of TensorFlow's leaves as soon as the last step is counted, which is
 * before the tokens of that step are there. */
static bool left_behind(const struct sync_beat *b) {
  int64_t last = b->o.created->stop_at_step;
  return b->o.last && last > 0 && b->step >= last && clock_ns() - b->seen_ns > LOOK_MS * INT64_C(1000000);
}

static void *beat(void *arg) {
  struct sync_beat *b = arg;
  int64_t patient_ms = MAX(LOOK_MS, MIN(b->o.lease_ms, SAY_MS)), beat_next = 0, look_next = 0;
  for (; !atomic_load(&b->stop); nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL)) {
    int64_t now = clock_ns(), began = b->o.step_began ? atomic_load(b->o.step_began) : 0;
    if (b->o.op && now >= beat_next) {
      beat_next = now + b->o.lease_ms * 1000000 / 8;
      run_quietly(b, b->o.op);
    }
    if (!began || now - began < patient_ms * 1000000 || now < look_next) continue;
    look_next = now + LOOK_MS * INT64_C(1000000);
    shoal_status e = look_for_chief(b, began);
    if (!e && left_behind(b)) run_quietly(b, b->o.last);
    if (!e) continue;
    shoal_coordinator_request_stop(b->o.created->coordinator, e); /* before the step fails: this is why */
    session_interrupt(b->o.created->session);
    return NULL;
  }
  return NULL;
}

shoal_status sync_beat_start(const struct sync_beat_options *o, struct sync_beat **out) {
  struct sync_beat *b = mem_zalloc(1, sizeof *b);
  b->o = *o;
  if (pthread_create(&b->thread, NULL, beat, b)) {
    free(b);
    return INTERNAL("no thread to beat");
  }
  *out = b;
  return NULL;
}

void sync_beat_stop(struct sync_beat *b) {
  if (!b) return;
  atomic_store(&b->stop, true);
  pthread_join(b->thread, NULL);
  free(b);
}
