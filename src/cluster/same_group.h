/* Do the tasks of a group agree who is in it?
 *
 * Tasks that train together know each other by lists that people, or their scripts, gave to each. Where one has three
 * workers and another two, each waits for what the other never does. So a strategy tells its server which tasks are in
 * its group; a master that makes a session says so to those whom it asks for their devices, and they refuse it where
 * they have a strategy of another group, or find out when they make one. Both end with both lists.
 *
 * Names and numbers are compared, not addresses, by which tasks may know each other in many ways: these are shown where
 * a task that has asked us is not found. And nothing is compared of tasks without such a strategy, whose clusters may
 * differ as they like. */
#ifndef CLUSTER_SAME_GROUP_H
#define CLUSTER_SAME_GROUP_H

#include <pthread.h>

#include "base/status.h"
#include "base/strmap.h"

struct same_group { /* of one worker */
  pthread_mutex_t lock;
  char *own;            /* lock: as people read it; NULL: there is no strategy yet */
  struct strmap others; /* lock: a task -> what it said, struct other_group * */
};

void same_group_init(struct same_group *g);
void same_group_release(struct same_group *g);
/* The strategy's. */
void same_group_set(struct same_group *g, const char *own);
/* The caller frees it; NULL: there is no strategy. */
char *same_group_own(struct same_group *g);
/* Another task, of so many at most, has said what its is, and where that task is: INVALID_ARGUMENT, for that task,
 * where the group is not ours. */
shoal_status same_group_heard(struct same_group *g, const char *self, const char *task, const char *theirs,
                              const char *address, size_t most);
/* Where it is by its own list; the caller frees it. NULL: it has not said so. */
char *same_group_address(struct same_group *g, const char *task);
/* INVALID_ARGUMENT, for this task, where another has one that is not ours. */
shoal_status same_group_check(struct same_group *g, const char *self);

#endif
