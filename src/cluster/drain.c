/* Going without taking a training run along: a task that holds variables of a run of Shoal's is told to stop. It sets
 * the run's stop mark, which all its workers watch (train/run_marks.h), and stays until they are gone: the chief saves
 * a last checkpoint meanwhile. Without such a run there is nothing to wait for.
 *
 * And going with it: when the chief has marked the run as done, and nobody uses the task any more. A chief that crashed
 * leaves no such mark, and is waited for. */
#include <inttypes.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/server.h"
#include "runtime/mark_names.h"
#include "runtime/variable.h"

enum { DEFAULT_GRACE_MS = 25000, IDLE_MS = 2000, LOOK_MS = 50 };

/* A mark of this task: an int64 scalar with a value, to be unref'd with its lock let go; NULL: there is none. */
static struct variable *find_mark(struct worker *w, int device, const char *name) {
  struct resource *r;
  shoal_status s = resource_find(w->resources[device], "", &variable_type, name, &r);
  if (s) {
    shoal_status_free(s);
    return NULL;
  }
  struct variable *v = (struct variable *)r;
  pthread_rwlock_wrlock(&v->lock);
  if (v->dtype == SHOAL_INT64 && v->value.n == 1 && tensor_valid(&v->value)) return v;
  pthread_rwlock_unlock(&v->lock);
  resource_unref(r);
  return NULL;
}

static void leave_mark(struct variable *v) {
  pthread_rwlock_unlock(&v->lock);
  variable_unref(v);
}

/* Adds one to the stop mark; false when this task has none. */
static bool mark_stop(struct worker *w) {
  bool marked = false;
  for (int i = 0; i < w->n_devices; i++) {
    struct variable *v = find_mark(w, i, STOP_MARK);
    if (!v) continue;
    shoal_status s = variable_make_writable(v);
    if (!s) ++*T_DATA(&v->value, int64_t);
    marked = marked || !s;
    shoal_status_free(s);
    leave_mark(v);
  }
  return marked;
}

static bool marked_done(struct worker *w) {
  bool done = false;
  for (int i = 0; i < w->n_devices && !done; i++) {
    struct variable *v = find_mark(w, i, DONE_MARK);
    if (!v) continue;
    done = *T_DATA(&v->value, int64_t) != 0;
    leave_mark(v);
  }
  return done;
}

/* Workers that live look at the mark several times a second: a task that nobody runs anything on has none. */
static bool in_use(struct worker *w) {
  pthread_mutex_lock(&w->lock);
  bool sessions = w->sessions.n > 0 || w->legacy, running = w->runs != NULL;
  pthread_mutex_unlock(&w->lock);
  int64_t idle = clock_ns() - atomic_load(&w->last_run);
  return sessions && (running || idle < (int64_t)IDLE_MS * 1000000);
}

bool shoal_server_drain(shoal_server *s, int64_t grace_ms) {
  struct worker *w = s->worker;
  if (!in_use(w) || !mark_stop(w)) return false;
  atomic_store(&s->draining, true);
  LOGW("%s: told to stop: waiting for the training run on this task to save and end", s->task);
  int64_t limit = clock_ns() + (grace_ms > 0 ? grace_ms : DEFAULT_GRACE_MS) * 1000000;
  while (in_use(w) && clock_ns() < limit) nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
  return true;
}

bool server_run_is_done(struct shoal_server *s) { return marked_done(s->worker) && !in_use(s->worker); }
