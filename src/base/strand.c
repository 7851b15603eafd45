/* Strands; see strand.h. A list and a flag: the thread that finds the list empty lowers the flag, whoever raises it
 * submits. One submission runs one task, so that a long list does not keep a thread of the pool from others. */
#include "base/strand.h"

#include <stddef.h>

void strand_init(struct strand *s, struct pool *pool, void (*hold)(void *), void (*let_go)(void *), void *owner) {
  *s = (struct strand){.pool = pool, .hold = hold, .let_go = let_go, .owner = owner};
  s->last = &s->first;
  pthread_mutex_init(&s->lock, NULL);
}

void strand_release(struct strand *s) { pthread_mutex_destroy(&s->lock); }

static void turn(void *arg) {
  struct strand *s = arg;
  pthread_mutex_lock(&s->lock);
  struct strand_task *t = s->first;
  s->first = t->next;
  if (!s->first) s->last = &s->first;
  pthread_mutex_unlock(&s->lock);
  t->fn(t);
  pthread_mutex_lock(&s->lock);
  bool more = s->first != NULL;
  s->busy = more;
  pthread_mutex_unlock(&s->lock);
  if (more) pool_submit(s->pool, turn, s);
  else s->let_go(s->owner); /* which may free the strand */
}

void strand_run(struct strand *s, struct strand_task *t) {
  t->next = NULL;
  pthread_mutex_lock(&s->lock);
  *s->last = t;
  s->last = &t->next;
  bool idle = !s->busy;
  s->busy = true;
  if (idle) s->hold(s->owner);
  pthread_mutex_unlock(&s->lock);
  if (idle) pool_submit(s->pool, turn, s);
}
