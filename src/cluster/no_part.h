/* A task that knows, before it has a session, that it cannot do its part of what the tasks of its cluster do together:
 * a device of its strategy is not there. The others' sessions want all tasks, and would wait for this one, or for what
 * it never comes to. So their masters, which ask it for its devices or for its half of a session, get the reason in
 * place of an answer, and end with it; and the task stays for a moment, until all have asked. */
#ifndef CLUSTER_NO_PART_H
#define CLUSTER_NO_PART_H

#include <pthread.h>

#include "base/status.h"
#include "base/strmap.h"

struct no_part { /* of one worker */
  pthread_mutex_t lock;
  pthread_cond_t heard;
  shoal_status why;   /* lock; NULL: it takes part */
  struct strmap told; /* lock: the tasks that were */
};

void no_part_init(struct no_part *n);
void no_part_release(struct no_part *n);
/* What that task is told that asks for this one; NULL: it takes part. */
shoal_status no_part_why(struct no_part *n, const char *asker);
/* It does, or does not (why is copied). */
void no_part_set(struct no_part *n, shoal_status why);
/* Until so many tasks have been told, the process was told to stop, or that takes too long. task: whose it is. */
void no_part_wait(struct no_part *n, size_t others, const char *task);

#endif
