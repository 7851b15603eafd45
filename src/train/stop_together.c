/* Stopping together; see stop_together.h. */
#include "train/stop_together.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "runtime/session_ops.h"
#include "train/step_request.h"

/* For a step after the process was told to stop. A chief has the last checkpoint to write, and its step may wait until
 * a token of a worker that died is handed out anew. Where all meet in every step, that of whoever is the last to come
 * is the chief's too. */
enum { STEP_MS = 5000, CHIEF_STEP_MS = 15000 };
/* For its input alone, of which nothing is lost: the step that takes an element is what counts it. Where all meet, a
 * step that fails here fails everywhere, and has its time. */
enum { INPUT_MS = 2000 };
enum { WATCH_MS = 250, SETTLE_MS = 1000, SETTLE_LIMIT_MS = 15000, CHECK_MS = 50 };

static void announce(struct stop_together *w) {
  if (!w->marks || atomic_exchange(&w->announced, true)) return;
  shoal_status e = run_marks_request_stop(w->marks, w->session);
  if (e) LOGW("the other tasks could not be told to stop: %s", shoal_status_message(e));
  shoal_status_free(e);
}

void stop_together_step(struct stop_together *w, int64_t since, int64_t usual_ns) {
  if (since) atomic_store(&w->step_usual, usual_ns);
  atomic_store(&w->step_since, since);
}

/* Has the step under way lasted longer after the stop, which came at told_ns, than it may? */
static bool outlasts(const struct stop_together *w, int64_t told_ns, int64_t least_ms) {
  int64_t began = atomic_load(&w->step_since);
  int64_t patience = MAX(least_ms * 1000000, 3 * atomic_load(&w->step_usual));
  return began && clock_ns() - MAX(began, told_ns) >= patience;
}

static shoal_status given_up(const struct stop_together *w) {
  return STATUS(SHOAL_CANCELLED, "told to stop; a step that was waiting for %.0f s was given up",
                (double)(clock_ns() - atomic_load(&w->step_since)) * 1e-9);
}

static shoal_status watch(void *arg) {
  struct stop_together *w = arg;
  int64_t told_ns = 0;
  while (!shoal_coordinator_wait_for_stop(w->coordinator, WATCH_MS * 1e-3)) {
    if (stop_told()) {
      if (!told_ns) told_ns = clock_ns();
      announce(w);
      bool alone = !w->marks && !w->meets;
      if (outlasts(w, told_ns, w->meets ? CHIEF_STEP_MS : INPUT_MS)) stop_hurry();
      if (alone || !outlasts(w, told_ns, w->is_chief || w->meets ? CHIEF_STEP_MS : STEP_MS)) continue;
      shoal_coordinator_request_stop(w->coordinator, given_up(w)); /* before the step fails: this is why */
      session_interrupt(w->session);
      return NULL;
    }
    if (!w->marks) continue;
    int64_t stops;
    shoal_status e = run_marks_stops(w->marks, w->session, &stops);
    if (!e && stops > w->before) {
      LOGW("another task was told to stop: stopping");
      atomic_store(&w->announced, true);
      stop_tell();
    }
    shoal_status_free(e); /* a lost task: the next step finds out */
  }
  return NULL;
}

shoal_status stop_together_start(struct stop_together *w, struct run_marks *marks, shoal_session *session,
                                 shoal_coordinator *c, bool is_chief) {
  w->marks = marks;
  w->session = session;
  w->coordinator = c;
  w->is_chief = is_chief;
  if (marks) TRY(run_marks_stops(marks, session, &w->before));
  return shoal_coordinator_start(c, watch, w);
}

void stop_together_settle(struct stop_together *w, shoal_out global_step, int64_t step_ns) {
  if (!w->marks) return;
  announce(w);
  if (!w->is_chief || !global_step.node) return;
  int64_t quiet = MAX((int64_t)SETTLE_MS * 1000000, 2 * step_ns), now = clock_ns();
  int64_t limit = now + (int64_t)SETTLE_LIMIT_MS * 1000000, changed = now, last = -1;
  while (now - changed < quiet && now < limit) {
    int64_t step;
    shoal_status e = session_get_int(w->session, global_step, &step);
    if (e) {
      shoal_status_free(e); /* the save will tell */
      return;
    }
    now = clock_ns();
    if (step != last) changed = now;
    last = step;
    nanosleep(&(struct timespec){.tv_nsec = CHECK_MS * 1000000}, NULL);
  }
}
