/* Members that do not come to the leader.
 *
 * Who asks the leader for a group or an instance waits there for the others, and a task that was killed before it came
 * asks nobody: no call is under way to it that the peers' watch (peer.h) would end. So while anybody waits, the leader
 * looks from time to time, as that watch does: who is missed is asked for its status, and one that does not answer, or
 * was started anew, loses the group or the instance for all who wait. Everybody else's question is a call to the
 * leader, which is watched.
 *
 * Who is missed is known of an instance: its group is. Of a group it is not. There the tasks of the cluster that train
 * are asked of which no device has come; those that were never met are waited for, as everywhere. The group is lost
 * when without those that are gone it cannot be complete: a task that is in none of its places is missed by nobody.
 *
 * In a coordinated cluster tasks are watched by its service (coordination_agent.h): there people are told, and no
 * more. */
#ifndef CLUSTER_COLLECTIVE_MISSED_H
#define CLUSTER_COLLECTIVE_MISSED_H

#include <stdbool.h>

#include "base/alarm.h"

struct worker;

struct missed_watch { /* of one worker; collectives->lock, but for the alarm */
  struct alarm alarm;
  bool looks; /* the alarm is set, or a look is under way */
  bool again; /* somebody has begun to wait since that look began */
  bool over;
};

/* Somebody may have begun to wait in this task's tables. */
void collective_missed_watch(struct worker *w);
/* It looks no more; what is being asked is the peers' to end. */
void collective_missed_stop(struct worker *w);

#endif
