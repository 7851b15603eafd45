/* A short list, searched from its end: what is due is nearly always one of the last steps. See owed.h. */
#include "cluster/owed.h"

#include "base/cond.h"
#include "base/log.h"
#include "base/mem.h"

enum { LOOK_MS = 50 }; /* how often to see who is still connected */

void owed_init(struct owed *o) {
  pthread_mutex_init(&o->lock, NULL);
  cond_init(&o->less);
}

void owed_release(struct owed *o) {
  pthread_mutex_destroy(&o->lock);
  pthread_cond_destroy(&o->less);
}

static struct owed_step *find(struct owed *o, int64_t step) {
  for (size_t i = o->n; i-- > 0;)
    if (o->steps[i].id == step) return &o->steps[i];
  return NULL;
}

void owed_begin(struct owed *o, int64_t step, uint64_t connection) {
  pthread_mutex_lock(&o->lock);
  struct owed_step *e = find(o, step);
  if (!e) {
    e = &o->steps[o->n < OWED_MOST ? o->n++ : o->oldest++ % OWED_MOST];
    *e = (struct owed_step){.id = step};
  }
  e->connection = connection;
  e->running++;
  pthread_mutex_unlock(&o->lock);
}

void owed_ended(struct owed *o, int64_t step) {
  pthread_mutex_lock(&o->lock);
  struct owed_step *e = find(o, step);
  if (e && e->running) e->running--;
  pthread_cond_broadcast(&o->less);
  pthread_mutex_unlock(&o->lock);
}

void owed_paid(struct owed *o, int64_t step) {
  pthread_mutex_lock(&o->lock);
  struct owed_step *e = find(o, step);
  if (e) *e = o->steps[--o->n];
  pthread_cond_broadcast(&o->less);
  pthread_mutex_unlock(&o->lock);
}

static size_t count(struct owed *o, bool (*connected)(void *arg, uint64_t connection), void *arg, bool running) {
  uint64_t connections[OWED_MOST];
  size_t n = 0, due = 0;
  pthread_mutex_lock(&o->lock);
  for (size_t i = 0; i < o->n; i++)
    if (running || !o->steps[i].running) connections[n++] = o->steps[i].connection;
  pthread_mutex_unlock(&o->lock);
  for (size_t i = 0; i < n; i++) due += connected(arg, connections[i]);
  return due;
}

size_t owed_linger(struct owed *o, bool (*connected)(void *arg, uint64_t connection), void *arg, int64_t running_ms,
                   int64_t most_ms) {
  int64_t now = clock_ns(), only_ended = now + running_ms * 1000000, last = now + most_ms * 1000000;
  size_t due = count(o, connected, arg, true), left = due;
  if (due) LOGI("waiting a moment: masters have yet to tidy up %zu of the steps they ran here", due);
  while (left && now < last) {
    pthread_mutex_lock(&o->lock);
    if (o->n) cond_wait_until(&o->less, &o->lock, MIN(last, now + LOOK_MS * 1000000));
    pthread_mutex_unlock(&o->lock);
    now = clock_ns();
    left = count(o, connected, arg, now < only_ended);
  }
  return due;
}
