/* A task's part in coordination: that of its server.
 *
 * The leader has the service itself (coordination.h), in which its own task is always there. Every other task registers
 * with the leader, waits for the others, beats, and says when it leaves; where the leader is gone, restarted, or does
 * not know the task any more, it registers anew, for as long as it lives. Errors of other tasks, which the leader
 * tells, and the loss of the leader end the collectives that are under way: those that come later ask the leader who is
 * there. */
#ifndef CLUSTER_COORDINATION_AGENT_H
#define CLUSTER_COORDINATION_AGENT_H

#include "cluster/coordination.h"
#include "cluster/peer.h"
#include "rpc/server.h"

struct worker;
struct coordination_agent;

/* leader: a task of the worker's cluster, which may be this one. */
struct coordination_agent *coordination_agent_new(struct worker *w, struct peers *peers, const char *leader);
/* Begins to register: when the server can be called. */
void coordination_agent_start(struct coordination_agent *a);
/* Tells the leader that the task leaves; no call is under way afterwards. May wait for a second or two. */
void coordination_agent_stop(struct coordination_agent *a);
void coordination_agent_free(struct coordination_agent *a);
/* The service, where this task leads; NULL. */
struct coordination *coordination_agent_service(struct coordination_agent *a);
/* ReportErrorToTask. */
void coordination_agent_told(struct coordination_agent *a, struct rpc_call *call);

#endif
