/* Making sessions on models that are ready; see train_session.h.
 *
 * TensorFlow's SessionManager closes the session and waits 30 seconds between two looks at a model that is not ready;
 * looking costs one small step, so here the same session looks ten times a second. A chief of TensorFlow's that comes
 * back restores the checkpoint over variables that are alive; ours leaves them alone when they are of its own run. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/wire.h"
#include "runtime/session_ops.h"
#include "train/claim.h"
#include "train/run_marks.h"
#include "train/train_session.h"

/* STARTUP_WAIT: for servers at the start, as a server's own --startup_timeout has it; who is not there by then, in a
 * run that begins or one that has ended, does not come. A run under way waits much longer for what it has lost, and for
 * its chief to make the model: as TensorFlow does. */
enum { LOOK_MS = 100, SAY_MS = 5000, STARTUP_WAIT = 300, DEFAULT_WAIT = 7200 };
/* For one try to make a session: a quarter of the time waited so far. */
enum { CREATE_MS = 5000, CREATE_MOST_MS = 20000 };

bool status_is_lost_task(shoal_status s) {
  shoal_code c = shoal_status_code(s);
  return c == SHOAL_ABORTED || c == SHOAL_UNAVAILABLE;
}

void session_manager_release(struct session_manager *m) {
  free(m->target);
  free(m->config);
  free(m->checkpoint_dir);
  free(m->restored);
  claim_free(m->claim);
  run_marks_free(m->marks);
}

double session_manager_max_wait(const struct session_manager *m) {
  return m->max_wait_secs > 0 ? m->max_wait_secs : DEFAULT_WAIT;
}

/* ---- ready? ---- */

/* NULL when op gives an empty vector; else what is in it, for the caller to free. */
static shoal_status look(shoal_session *s, shoal_out op, const char *prefix, char **missing) {
  enum { SHOWN = 8 };
  *missing = NULL;
  if (!op.node) return NULL;
  shoal_tensor *names;
  TRY(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(op, &names), NULL));
  int64_t n = shoal_tensor_elements(names);
  struct text t = {0};
  if (n) text_addf(&t, "%s: ", prefix);
  for (int64_t i = 0; i < n && i < SHOWN && shoal_tensor_dtype(names) == SHOAL_STRING; i++) {
    size_t size;
    const char *at = shoal_tensor_string(names, i, &size);
    text_addf(&t, "%s%.*s", i ? ", " : "", (int)size, at);
  }
  if (n > SHOWN) text_addf(&t, " and %" PRId64 " more", n - SHOWN);
  if (n) *missing = text_take(&t);
  shoal_tensor_unref(names);
  return NULL;
}

/* Runs the local init op when the model is ready for it, and looks whether all is ready then. */
static shoal_status make_local(struct session_manager *m, shoal_session *s, char **missing) {
  const shoal_scaffold *f = &m->scaffold->use;
  TRY(look(s, f->ready_for_local_init_op, "Variables not initialized", missing));
  if (*missing) return NULL;
  TRY(session_run_op(s, f->local_init_op));
  return look(s, f->ready_op, "Variables not initialized", missing);
}

/* ---- the chief ---- */

static shoal_status initialise(struct session_manager *m, shoal_session *s) {
  const shoal_scaffold *f = &m->scaffold->use;
  if (f->init_op) TRY(shoal_session_step(s, f->init_feed, SHOAL_NO_FETCHES, f->init_op));
  return f->init_fn ? f->init_fn(f->init_arg, s) : NULL;
}

static shoal_status restore(struct session_manager *m, shoal_session *s, bool *restored) {
  *restored = false;
  if (!m->checkpoint_dir || !m->scaffold->use.saver) return NULL;
  char *latest = shoal_latest_checkpoint(m->checkpoint_dir);
  if (!latest) return NULL;
  shoal_status e = shoal_saver_restore(m->scaffold->use.saver, s, latest);
  *restored = !e;
  if (shoal_status_code(e) == SHOAL_DATA_LOSS || shoal_status_code(e) == SHOAL_OUT_OF_RANGE)
    e = status_prefix(
        e, "the newest checkpoint is damaged (%s/checkpoint may name an older one in its place): ", m->checkpoint_dir);
  if (e) free(latest);
  else m->restored = latest;
  return e;
}

/* Is the model there already, and ours? */
static shoal_status alive(struct session_manager *m, shoal_session *s, bool *yes) {
  char *missing = NULL;
  *yes = false;
  if (!m->marks || !m->scaffold->use.ready_for_local_init_op.node) return NULL;
  TRY(look(s, m->scaffold->use.ready_for_local_init_op, "", &missing));
  *yes = !missing && run_marks_same_run(m->marks, s, m->checkpoint_dir);
  free(missing);
  return NULL;
}

static shoal_status prepare(struct session_manager *m, shoal_session *s, shoal_made *made) {
  bool found = false, restored = false;
  free(m->restored);
  m->restored = NULL;
  TRY(alive(m, s, &found));
  if (!found) TRY(restore(m, s, &restored));
  if (!found && !restored) TRY(initialise(m, s));
  *made = found ? SHOAL_MADE_REJOINED : restored ? SHOAL_MADE_RESTORED : SHOAL_MADE_INITIALIZED;
  char *missing;
  TRY(make_local(m, s, &missing));
  if (missing) {
    shoal_status e = STATUS(SHOAL_FAILED_PRECONDITION, "Init operations did not make model ready. %s", missing);
    free(missing);
    return e;
  }
  if (!m->marks) return NULL;
  if (!found) TRY(run_marks_begin(m->marks, s, m->checkpoint_dir));
  return run_marks_ready(m->marks, s);
}

/* ---- waiting ---- */

struct wait {
  int64_t began, say_next;
  char *before; /* why the try before the last came to nothing; NULL: there was none */
};

static bool told_to_stop(const struct session_manager *m) { return m->give_up && m->give_up(); }

/* How long this wait may take in all; longer once the servers have been there. */
static double patience(const struct session_manager *m) {
  return m->max_wait_secs <= 0 && !m->met ? STARTUP_WAIT : session_manager_max_wait(m);
}
static int64_t deadline(const struct session_manager *m, const struct wait *w) {
  return w->began + (int64_t)(MIN(patience(m), 1e9) * 1e9);
}

/* For a line of a log, what an error begins with: its first line, and where that only says whose error it is ("From
 * /job:worker/replica:0/task:0:") the ones behind it, too. For the caller to free. */
static char *begin_of(const char *message) {
  struct text t = {0};
  for (bool more = true; more;) {
    size_t n = strcspn(message, "\n");
    more = n && message[n - 1] == ':' && message[n];
    text_add(&t, message, n);
    if (more) text_addc(&t, ' ');
    message += n + more;
  }
  return text_take(&t);
}

/* One pause; false when there is no time left. Now and then says why. */
static bool pause_for(struct session_manager *m, struct wait *w, const char *why) {
  int64_t now = clock_ns();
  if (now >= deadline(m, w) || told_to_stop(m)) return false;
  if (now >= w->say_next) {
    char *begin = begin_of(why);
    LOGW("%s: waiting for %.0f s: %s; gives up after %.0f s", *m->target ? m->target : "session",
         (double)(now - w->began) * 1e-9, begin, patience(m));
    free(begin);
    w->say_next = now + (int64_t)SAY_MS * 1000000;
  }
  nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
  return true;
}

/* A worker that is not the chief: until the chief has made the model ready, in this session. *missing stays NULL when
 * it is. */
static shoal_status wait_ready(struct session_manager *m, shoal_session *s, struct wait *w, char **missing) {
  for (;;) {
    TRY(make_local(m, s, missing));
    if (!*missing) return NULL;
    char *what = *missing;
    *missing = mem_printf("%s; the chief, which initialises or restores them, has not done so yet", what);
    free(what);
    if (!pause_for(m, w, *missing)) return NULL;
    free(*missing);
  }
}

/* While the model is made ready or waited for: who is told to stop does not wait for steps that others do not answer.
 */
struct breaker {
  shoal_coordinator *threads;
  bool (*give_up)(void);
  shoal_session *session;
  bool says;   /* while it waits: the others meet us in the steps that make the model ready */
  bool broken; /* to be read after the join */
};

static shoal_status break_off(void *arg) {
  struct breaker *b = arg;
  int64_t began = clock_ns(), say_next = began + (int64_t)SAY_MS * 1000000;
  while (!shoal_coordinator_wait_for_stop(b->threads, LOOK_MS * 1e-3)) {
    if (b->says && clock_ns() >= say_next) {
      LOGW("waiting for %.0f s: the model is being initialised, restored or looked for, with all tasks that take part",
           (double)(clock_ns() - began) * 1e-9);
      say_next += (int64_t)SAY_MS * 1000000;
    }
    if (b->give_up()) {
      b->broken = true;
      session_interrupt(b->session);
      return NULL;
    }
  }
  return NULL;
}

static shoal_status make_ready(struct session_manager *m, shoal_session *s, struct wait *w, shoal_made *made,
                               char **missing) {
  struct breaker b = {shoal_coordinator_new(), m->give_up, s, !m->marks && *m->target, false};
  shoal_status e = m->give_up ? shoal_coordinator_start(b.threads, break_off, &b) : NULL;
  if (!e) e = m->is_chief ? prepare(m, s, made) : wait_ready(m, s, w, missing);
  shoal_coordinator_request_stop(b.threads, NULL);
  shoal_status_free(shoal_coordinator_join(b.threads, 0));
  shoal_coordinator_free(b.threads);
  if (!b.broken || *missing) return e;
  shoal_status_free(e);
  return STATUS(SHOAL_CANCELLED, "%s, and was broken off",
                m->is_chief ? "the model was being initialised or restored" : "the chief's model was being looked for");
}

static shoal_status attempt(struct session_manager *m, struct wait *w, shoal_session **out, shoal_made *made,
                            char **missing) {
  shoal_session_options o = m->session;
  o.target = m->target;
  o.give_up = m->give_up;
  if (!o.create_timeout_ms) {
    int64_t now = clock_ns(), quarter = (now - w->began) / 4000000;
    o.create_timeout_ms = MIN(MAX(quarter, CREATE_MS), CREATE_MOST_MS);
    o.create_timeout_ms = MAX(MIN(o.create_timeout_ms, (deadline(m, w) - now) / 1000000), 100);
  }
  shoal_session *s;
  shoal_status e = shoal_session_open(m->graph, &o, &s);
  if (shoal_status_code(e) == SHOAL_DEADLINE_EXCEEDED) { /* a task is not up yet: as good as lost */
    shoal_status other = STATUS(SHOAL_UNAVAILABLE, "the session was not made within %.0f s: %s",
                                (double)o.create_timeout_ms * 1e-3, shoal_status_message(e));
    shoal_status_free(e);
    e = other;
  }
  TRY(e);
  m->met = true;
  *made = SHOAL_MADE_WAITED;
  e = make_ready(m, s, w, made, missing);
  if (!e && !*missing) {
    *out = s;
    return NULL;
  }
  /* Else all are told the same, and none may hear of another's end before. */
  bool goes_on = !e || status_is_lost_task(e);
  shoal_status_free(goes_on ? session_give_up(s, e ? shoal_status_message(e) : *missing) : shoal_session_close(s));
  return e;
}

shoal_status session_manager_create(struct session_manager *m, shoal_session **out, shoal_made *made) {
  int64_t now = clock_ns();
  struct wait w = {now, now + (int64_t)SAY_MS * 1000000, NULL};
  for (;;) {
    char *missing = NULL;
    *out = NULL;
    shoal_status e = attempt(m, &w, out, made, &missing);
    bool over = (!e && *out) || (e && !status_is_lost_task(e) && !told_to_stop(m));
    if (over) {
      free(missing);
      free(w.before);
      return e;
    }
    const char *why = e ? shoal_status_message(e) : missing;
    if (pause_for(m, &w, why)) {
      free(w.before);
      w.before = begin_of(why);
      free(missing);
      shoal_status_free(e);
      continue;
    }
    shoal_status late =
        told_to_stop(m)
            ? STATUS(SHOAL_CANCELLED, "told to stop while waiting for a session, since %.0f s: %s%s%s",
                     (double)(clock_ns() - w.began) * 1e-9, why, w.before ? "; before that: " : "",
                     w.before ? w.before : "")
            : STATUS(SHOAL_DEADLINE_EXCEEDED, "Session was not ready after waiting %.0f secs%s: %s", patience(m),
                     m->met ? "" : " for its servers, which were never all there (has the run ended?)", why);
    free(missing);
    free(w.before);
    shoal_status_free(e);
    return late;
  }
}
