#include "cluster/no_part.h"

#include "base/cond.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"

/* STAY_MS: for tasks that are started a little later. */
enum { STAY_MS = 10000, LOOK_MS = 100, READ_MS = 200 };

void no_part_init(struct no_part *n) {
  *n = (struct no_part){0};
  pthread_mutex_init(&n->lock, NULL);
  cond_init(&n->heard);
}

void no_part_release(struct no_part *n) {
  shoal_status_free(n->why);
  strmap_release(&n->told);
  pthread_mutex_destroy(&n->lock);
  pthread_cond_destroy(&n->heard);
}

shoal_status no_part_why(struct no_part *n, const char *asker) {
  pthread_mutex_lock(&n->lock);
  shoal_status why = n->why ? status_copy(n->why) : NULL;
  if (why) strmap_put(&n->told, asker, n);
  if (why) pthread_cond_broadcast(&n->heard);
  pthread_mutex_unlock(&n->lock);
  return why;
}

void no_part_set(struct no_part *n, shoal_status why) {
  pthread_mutex_lock(&n->lock);
  shoal_status_free(n->why);
  n->why = why ? status_copy(why) : NULL;
  strmap_release(&n->told);
  n->told = (struct strmap){0};
  pthread_mutex_unlock(&n->lock);
}

void no_part_wait(struct no_part *n, size_t others, const char *task) {
  int64_t end = deadline_after_ms(STAY_MS);
  LOGW("%s: staying until the other tasks have heard that it takes no part: there are %zu", task, others);
  pthread_mutex_lock(&n->lock);
  while (n->told.n < others && !stop_told() && clock_ns() < end)
    cond_wait_until(&n->heard, &n->lock, MIN(end, deadline_after_ms(LOOK_MS)));
  /* The answer is on its way to the last. */
  for (int64_t read = deadline_after_ms(READ_MS); !stop_told() && clock_ns() < read;)
    cond_wait_until(&n->heard, &n->lock, read);
  pthread_mutex_unlock(&n->lock);
}
