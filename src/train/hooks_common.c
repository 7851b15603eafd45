/* Timers and shared event files of hooks. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/vec.h"
#include "train/batches_used.h"
#include "train/hooks.h"
#include "train/train_session.h"

/* ---- timers ---- */

struct timer timer_every(int64_t steps, double secs, int64_t default_steps, double default_secs) {
  bool given = steps > 0 || secs > 0;
  return (struct timer){.steps = given ? steps : default_steps, .secs = given ? secs : default_secs, .last_step = -1};
}

bool timer_due(const struct timer *t, int64_t step) {
  if (t->last_step < 0) return true;
  if (step == t->last_step) return false;
  if (t->secs > 0 && (double)(clock_ns() - t->last_ns) >= t->secs * 1e9) return true;
  return t->steps > 0 && step >= t->last_step + t->steps;
}

void timer_set_off(struct timer *t, int64_t step, double *secs, int64_t *steps) {
  int64_t now = clock_ns();
  if (secs) *secs = t->last_step < 0 ? 0 : (double)(now - t->last_ns) * 1e-9;
  if (steps) *steps = t->last_step < 0 ? 0 : step - t->last_step;
  t->last_step = step;
  t->last_ns = now;
}

shoal_status hook_global_step(shoal_graph *g, const char *who, shoal_out *out) {
  *out = global_step_value(g);
  return out->node ? NULL : INVALID("Global step should be created to use %s (shoal_global_step).", who);
}

shoal_status hook_input_position(shoal_graph *g, const char *who, shoal_out *out) {
  TRY(hook_global_step(g, who, out));
  *out = batches_used_value(g, *out);
  return NULL;
}

/* ---- event files ---- */

struct shared_events {
  char *dir;
  struct shoal_events *w;
  int users;
};

static struct {
  pthread_mutex_t lock;
  VEC(struct shared_events) at; /* lock */
} files = {.lock = PTHREAD_MUTEX_INITIALIZER};

shoal_status events_shared_get(const char *dir, struct shoal_events **out) {
  enum { MAX_QUEUE = 100, FLUSH_MS = 5000 };
  shoal_status s = NULL;
  *out = NULL;
  pthread_mutex_lock(&files.lock);
  for (size_t i = 0; i < files.at.n && !*out; i++)
    if (!strcmp(files.at.at[i].dir, dir)) {
      files.at.at[i].users++;
      *out = files.at.at[i].w;
    }
  if (!*out) {
    s = event_writer_new(dir, "", MAX_QUEUE, FLUSH_MS, out);
    if (!s) vec_push(&files.at, (struct shared_events){mem_strdup(dir), *out, 1});
  }
  pthread_mutex_unlock(&files.lock);
  return status_prefix(s, "event files cannot be written: ");
}

void events_shared_release(struct shoal_events *w) {
  if (!w) return;
  pthread_mutex_lock(&files.lock);
  for (size_t i = 0; i < files.at.n; i++) {
    if (files.at.at[i].w != w || --files.at.at[i].users > 0) continue;
    event_writer_free(w);
    free(files.at.at[i].dir);
    files.at.at[i] = files.at.at[--files.at.n];
    break;
  }
  pthread_mutex_unlock(&files.lock);
}

void events_told(shoal_status s) {
  static atomic_bool told;
  if (s && !atomic_exchange(&told, true))
    LOGW("event files cannot be written, training goes on without: %s", shoal_status_message(s));
  shoal_status_free(s);
}
