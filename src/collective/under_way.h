/* Collectives of one session that are under way in its task. A device has one part in an instance: two at a time, of
 * one step and one iteration, would take each other's messages, or the group would wait for a member that is there
 * twice. So the second is refused, with the names of both nodes, and its step, which ends by it, tells the others. One
 * after the other they may come. */
#ifndef COLLECTIVE_UNDER_WAY_H
#define COLLECTIVE_UNDER_WAY_H

#include <pthread.h>

#include "base/status.h"

struct collective_member;

enum { UNDER_WAY_LISTS = 256 };

struct under_way {
  pthread_mutex_t lock;
  struct collective_member *lists[UNDER_WAY_LISTS]; /* lock */
};

void under_way_init(struct under_way *u);
/* Nothing is. */
void under_way_release(struct under_way *u);
shoal_status under_way_enter(struct under_way *u, struct collective_member *m);
/* If it has entered. */
void under_way_leave(struct under_way *u, struct collective_member *m);

#endif
