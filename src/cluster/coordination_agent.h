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
/* The leading task's name. */
const char *coordination_agent_leader(const struct coordination_agent *a);
/* A call to the leader's service, which may be our own: waits for the leader to be there, and for its answer. The
 * request is taken over; body NULL: nobody reads what it says. */
shoal_status coordination_agent_ask(struct coordination_agent *a, const char *method, struct text *request,
                                    int64_t timeout_ms, struct rpc_body *body);
/* Tells the leader, and by it all others, that this task has failed; error is taken over. FAILED_PRECONDITION while not
 * all tasks are there. */
shoal_status coordination_agent_fail(struct coordination_agent *a, shoal_status error, int64_t timeout_ms);
/* What we were last told of another task's error, and have not been asked for; the caller frees it. */
shoal_status coordination_agent_news(struct coordination_agent *a);
/* ReportErrorToTask. */
void coordination_agent_told(struct coordination_agent *a, struct rpc_call *call);

#endif
