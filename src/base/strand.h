/* Tasks on one object, one after another, on the threads of a pool.
 *
 * What a lock would do if one could wait for it: whoever wants something of the object leaves a task and goes. A task
 * runs to its end on a thread of the pool before the next begins; between two tasks of a strand other strands get their
 * turn. The object is held (by the functions given) from the first task to the end of the last. */
#ifndef BASE_STRAND_H
#define BASE_STRAND_H

#include <pthread.h>
#include <stdbool.h>

#include "base/pool.h"

struct strand_task {
  void (*fn)(struct strand_task *t); /* may free t */
  struct strand_task *next;          /* the strand's lock */
};

struct strand {
  pthread_mutex_t lock;
  struct pool *pool;
  struct strand_task *first, **last; /* lock */
  bool busy;                         /* lock: a thread of the pool has it, or will */
  void (*hold)(void *owner);
  void (*let_go)(void *owner);
  void *owner;
};

void strand_init(struct strand *s, struct pool *pool, void (*hold)(void *), void (*let_go)(void *), void *owner);
/* There are no tasks. */
void strand_release(struct strand *s);
/* From any thread; t is the strand's until its function is called. */
void strand_run(struct strand *s, struct strand_task *t);

#endif
