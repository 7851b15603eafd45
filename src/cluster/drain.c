/* Going without taking a training run along: a task that holds variables of a run of Shoal's is told to stop. It sets
 * the run's stop mark, which all its workers watch (train/run_marks.h), and stays until they are gone: the chief saves
 * a last checkpoint meanwhile. Without such a run there is nothing to wait for.
 *
 * And going with it: when the chief has marked the run as done, and nobody uses the task any more. A chief that crashed
 * leaves no such mark, and is waited for; so are, for a while, workers that have not come yet (job_end.c). */
#include <inttypes.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "cluster/server.h"
#include "runtime/mark_names.h"
#include "runtime/variable.h"

enum { DEFAULT_GRACE_MS = 25000, IDLE_MS = 2000, LOOK_MS = 50 };

/* A mark of this task; NULL: there is none. */
static struct variable *find_mark(struct worker *w, int device, const char *name) {
  struct resource *r;
  shoal_status s = resource_find(w->resources[device], "", &variable_type, name, &r);
  shoal_status_free(s);
  return s ? NULL : (struct variable *)r;
}

/* The number, in host memory; and the value it was read from, unless NULL. The device is waited for without the
 * variable's lock, which work of its own may want. False: there is no number. */
static bool read_mark(struct variable *v, struct tensor *number, struct tensor *value) {
  struct tensor now;
  variable_read(v, &now);
  shoal_status s = NULL;
  bool good = tensor_valid(&now) && now.dtype == SHOAL_INT64 && now.n == 1;
  if (good) good = !(s = device_to_host(&now, number));
  shoal_status_free(s);
  if (good && value) tensor_move(value, &now);
  else tensor_release(&now);
  return good;
}

/* Call with the lock held for writing. */
static bool is_in_host_memory(const struct variable *v) {
  return tensor_valid(&v->value) && v->value.dtype == SHOAL_INT64 && v->value.n == 1 && !v->value.buffer->device;
}

static bool count_here(struct variable *v) {
  pthread_rwlock_wrlock(&v->lock);
  bool here = is_in_host_memory(v);
  shoal_status s = here ? variable_make_writable(v) : NULL;
  if (here && !s) ++*T_DATA(&v->value, int64_t);
  pthread_rwlock_unlock(&v->lock);
  shoal_status_free(s);
  return here && !s;
}

/* A mark in a device's memory: its number is fetched, and one more put in the place of what was fetched; false when
 * that is another value by now. */
static bool count_there(struct variable *v) {
  struct tensor number, was, there = tensor_none();
  if (!read_mark(v, &number, &was)) return false;
  struct device *d = was.buffer->device;
  bool same = false;
  shoal_status s = d ? NULL : INTERNAL("it is in host memory by now");
  if (!s) ++*T_DATA(&number, int64_t);
  if (!s) s = d->type->ops->from_host(d, v->name, &number, &there);
  if (!s) {
    pthread_rwlock_wrlock(&v->lock);
    same = v->value.buffer == was.buffer;
    if (same) {
      struct tensor old = v->value;
      v->value = there;
      there = old;
    }
    pthread_rwlock_unlock(&v->lock);
  }
  shoal_status_free(s);
  tensor_release(&there);
  tensor_release(&was);
  tensor_release(&number);
  return same;
}

/* Adds one to the stop mark; false when this task has none. */
static bool mark_stop(struct worker *w) {
  enum { TRIES = 10 }; /* others may count, too */
  bool marked = false;
  for (int i = 0; i < w->n_devices; i++) {
    struct variable *v = find_mark(w, i, STOP_MARK);
    bool counted = false;
    for (int k = 0; v && k < TRIES && !counted; k++) counted = count_here(v) || count_there(v);
    marked |= counted;
    if (v) variable_unref(v);
  }
  return marked;
}

static bool marked_done(struct worker *w) {
  bool done = false;
  for (int i = 0; i < w->n_devices && !done; i++) {
    struct variable *v = find_mark(w, i, DONE_MARK);
    struct tensor number;
    if (v && read_mark(v, &number, NULL)) {
      done = *T_DATA(&number, int64_t) != 0;
      tensor_release(&number);
    }
    if (v) variable_unref(v);
  }
  return done;
}

/* Workers that live look at the mark several times a second: a task that nobody runs anything on has none. */
static bool in_use(struct shoal_server *s) {
  struct worker *w = s->worker;
  pthread_mutex_lock(&w->lock);
  bool sessions = w->sessions.n > 0 || w->legacy, running = w->runs != NULL;
  pthread_mutex_unlock(&w->lock);
  int64_t last_run = atomic_load(&w->last_run), last_opened = atomic_load(&s->last_opened);
  int64_t idle = clock_ns() - MAX(last_run, last_opened);
  return sessions && (running || idle < (int64_t)IDLE_MS * 1000000);
}

bool shoal_server_drain(shoal_server *s, int64_t grace_ms) {
  struct worker *w = s->worker;
  if (!in_use(s) || !mark_stop(w)) return false;
  atomic_store(&s->draining, true);
  LOGW("%s: told to stop: waiting for the training run on this task to save and end", s->task);
  int64_t limit = clock_ns() + (grace_ms > 0 ? grace_ms : DEFAULT_GRACE_MS) * 1000000;
  while (in_use(s) && clock_ns() < limit) nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
  return true;
}

bool server_run_is_done(struct shoal_server *s, struct job_watch *w) {
  bool busy = !marked_done(s->worker) || in_use(s);
  return !server_waits_for_late(s, busy, w) && !busy;
}
