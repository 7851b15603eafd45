/* Collectives among devices of several tasks.
 *
 *   collectives.c         a member's way: it asks the group's leader who is in it (CompleteGroup) and what the instance
 *                         is (CompleteInstance), and runs its program
 *   collective_wire.c     the transport of those programs: messages are values of the step's rendezvous, so they travel
 *                         as all values between tasks do (shared memory, TCP, gRPC), are watched, cancelled and counted
 *                         as they are, and go with their step. TensorFlow's tasks are asked, and ask, by RecvBuf
 *   collective_memory.c   groups whose tasks are on one host: no messages, but memory that they share
 *   collective_parcels.c  small ones between hosts, several in one message
 *   collective_party.c    those of either that a step comes to together
 *   collective_known.c    what a session knows of groups and instances
 *   collective_guard.c    what ends them early
 *   collective_failed.c   that a step has failed in another task
 *   collective_given_up.c that a session was given up by another task
 *   collective_others.c   what became of TensorFlow's tasks after that
 *   collective_missed.c   members that do not come to the leader
 *   collective_service.c  what other tasks ask: CompleteGroup, CompleteInstance, GetStepSequence of the leader; RecvBuf
 *                         is worker_service_run.c's, beside RecvTensor
 *   collective_steps.c    steps of several masters that meet have one number, which the leader gives
 *   collective_graph.c    which graphs these are
 *   collective_order.c    in which order a graph comes to them
 *
 * One task leads: that of --collective_group_leader, else the chief, else the first worker; in a session whose
 * ConfigProto names another (experimental.collective_group_leader), that one. Among Shoal's tasks alone a
 * group takes the cheapest algorithm that adds in the order of pairs (collective/schedule.h): the result has the same
 * bits whatever the tasks and the transport. With a task of TensorFlow's in it a group does as that does, ring and
 * tree.
 *
 * What is known of groups and instances is kept with the session, and forgotten when one of them fails: the next step
 * asks again. */
#ifndef CLUSTER_COLLECTIVES_H
#define CLUSTER_COLLECTIVES_H

#include "base/strmap.h"
#include "cluster/cancellable.h"
#include "cluster/cluster_spec.h"
#include "cluster/collective_failed.h"
#include "cluster/collective_given_up.h"
#include "cluster/collective_guard.h"
#include "cluster/collective_memory.h"
#include "cluster/collective_missed.h"
#include "cluster/collective_party.h"
#include "collective/group.h"
#include "collective/leader.h"
#include "collective/run.h"
#include "collective/site.h"
#include "graph/graph.h"
#include "runtime/step.h"

struct worker;
struct worker_session;

enum { MASTERS_REMEMBERED = 64 };

/* A step with collectives between tasks that went well in this task's master; id 0: there is none. */
struct met_step {
  int64_t key, id;
};

struct collectives { /* of one worker */
  char *leader;      /* the task, as --collective_group_leader said; NULL: by the cluster's description */
  int64_t timeout_ns;
  struct leader *tables; /* in case that it is us */
  struct missed_watch missed;
  struct collective_memory *memory;
  atomic_int_fast64_t in_memory, in_windows, by_messages; /* how many were begun */
  atomic_int_fast64_t parties;                            /* how often, of those in memory and in parcels */
  pthread_mutex_t lock;
  struct strmap sequences; /* lock: a graph key -> struct step_sequence * */
  struct met_step met;     /* lock: the last one */
  struct told_refusal {
    char *leader; /* a task; NULL: none was told yet */
    int64_t when;
  } refusal; /* lock: the last one that another task told of a group of three or more */
  struct failed_steps failed;
  struct met_sessions sessions;
  struct question *questions; /* lock: of other tasks, that wait here */
  struct counting_master {    /* TensorFlow's, that have numbers of steps from here, and by which connection */
    uint64_t connection;
    int64_t key, since;
  } masters[MASTERS_REMEMBERED]; /* lock: a ring */
  unsigned n_masters;            /* lock: how many there ever were */
  atomic_bool named;             /* a session here names this task as its leader */
  bool coordinated;              /* groups with TensorFlow's tasks in them are of its version 2: see STEP_OF_ALL */
  struct collectives_end *end;   /* lock: of those that begin now; with coordinated */
};

/* TensorFlow 2's programs run no steps that have a number: messages of their collectives are all of step 0, and every
 * run of a collective has an instance key of its own. */
enum { STEP_OF_ALL = 0 };

enum { COLLECTIVE_TIMEOUT_MS = 600000 };
/* How much longer than a leader's patience an asker has, so that the leader's answer, which says who is missing, comes
 * first. */
enum { LEADER_FIRST_MS = 1000 };

/* shares: in groups on one host by way of memory, where that can be. */
void collectives_init(struct collectives *c, const char *leader, int64_t timeout_ms, bool shares);
void collectives_release(struct collectives *c);
/* The cluster has a coordination service: collectives with TensorFlow's tasks are those of its version 2. */
void collectives_coordinate(struct collectives *c);
/* Flags of calls to the leader: one of a coordinated cluster may not be up yet, and is watched by the agent. */
unsigned collectives_call_flags(const struct collectives *c);
/* All that are under way between tasks end with why, which is taken over. */
void collectives_break(struct collectives *c, shoal_status why);
/* A leader's name in full, of a task of the cluster; it may be written as people and TensorFlow's programs do,
 * "/job:worker/task:0". option: what it was said by. *out is the caller's. */
shoal_status collectives_check_leader(const char *option, const char *given, const struct cluster_spec *spec,
                                      char **out);
/* Which task has told this one lately that its collectives do not fit, in a group that others may not have come to yet;
 * the caller frees it. NULL: none has. */
char *collectives_refused_by(struct collectives *c);
/* The leader of a cluster; the caller frees it. */
char *collectives_leader(const struct collectives *c, const struct cluster_spec *spec);

/* A session's half: the site of its steps. */
struct session_collectives {
  struct collective_site site;
  struct worker_session *session;
  pthread_mutex_t lock;
  struct strmap groups;             /* lock: key -> struct collective_group * */
  struct known_instance *instances; /* lock: a table, [instance_room], n_instances of them there */
  size_t n_instances, instance_room;
};
void session_collectives_init(struct session_collectives *c, struct worker_session *s);
void session_collectives_release(struct session_collectives *c);

/* Ends a member: with an error, which is taken over, what is known of the group may have changed, and is forgotten. */
void collectives_tell(struct session_collectives *c, struct collective_member *m, shoal_status s, struct tensor *out);
/* A member whose output is made, and is taken over. */
void collectives_by_messages(struct session_collectives *c, struct step *step, struct collective_member *m,
                             struct tensor *out);
/* That it took too long to wait for that device; NULL: for nobody in particular. */
shoal_status collectives_late(const char *who);
/* n: elements of the output. source: of a broadcast. */
struct schedule_request collectives_request(const struct collective_member *m, const struct collective_group *g,
                                            int rank, int source, int64_t n);

/* ---- collective_known.c ---- */

/* The member's device in the session's terms; the caller frees it. */
char *collectives_device(const struct session_collectives *c, const struct collective_member *m);
/* A reference; NULL: none is known. */
struct collective_group *collectives_known_group(struct session_collectives *c, const struct collective_member *m);
/* The member's rank; -1: it is none of that group as it is known, or claims another. */
int collectives_rank(const struct session_collectives *c, const struct collective_group *g,
                     const struct collective_member *m);
void collectives_know_group(struct session_collectives *c, struct collective_group *g);
bool collectives_known_instance(struct session_collectives *c, const struct collective_member *m, int rank,
                                int *source);
void collectives_know_instance(struct session_collectives *c, const struct collective_member *m, int source);
/* Of a broadcast: the source alone has something to send. */
bool collectives_plays_its_part(const struct collective_member *m, int rank, int source);
/* Something of a group may have changed. */
void collectives_forget(struct session_collectives *c, int group_key);

/* ---- collective_service.c ---- */

/* A step of graphs with that key has failed: TensorFlow's tasks that have its number, and wait here, are told why
 * (which stays the caller's). */
void collective_questions_fail(struct collectives *c, int64_t key, shoal_status why);

/* ---- collective_graph.c ---- */

struct collective_survey {
  bool any;    /* are there collectives? */
  bool whole;  /* all members of their groups are in this graph */
  int64_t key; /* TensorFlow's name for graphs whose steps meet: the same wherever the same instances are; 0: none */
  /* Owned: INTERNAL where a group has more members than its size, or several sizes; INVALID_ARGUMENT where it is larger
   * than all devices of its type there are. Where the groups are not whole here other clients' steps wait for this one,
   * and end with it: it is to fail when it has its number. */
  shoal_status wrong;
};
/* How many devices of a type a cluster has. */
struct device_census {
  int (*count)(const struct device_census *c, const char *type);
};
/* there NULL: that is not known. */
struct collective_survey collective_survey(const struct shoal_graph *g, const struct device_census *there);
/* A collective's keys, where they are known before it runs. */
bool collective_keys(const struct shoal_node *n, int64_t *group, int64_t *instance);
/* Branches and loops: where one is, not all nodes of the graph need run. */
bool collective_may_be_dead(const struct shoal_node *n);

/* ---- collective_order.c ---- */

/* Of a task's graph: members are given what they hold back (collective/orders.h). */
void collective_order(struct shoal_graph *g);

/* ---- collective_steps.c ---- */

/* The number of the next step of graphs with that key; done is called with an error (consumed) or with it. leader: whom
 * the session names; NULL: the cluster's. began: when the session did: what failed before is its own as long as it
 * stands (collective_failed.h). */
void collective_next_step(struct worker *w, int64_t key, const char *leader, int64_t began, struct cancel *cancel,
                          void (*done)(void *arg, shoal_status s, int64_t id), void *arg);
/* The step has ended, of that session of this task's master, which began it then: the next has another number. failed
 * (NULL: it went well; it stays the caller's) is told to the other tasks. */
void collective_step_over(struct worker *w, int64_t key, int64_t id, int64_t session, int64_t began,
                          shoal_status failed);
/* When this task's master began its part of a step that went well in another's; 0: it is not its last one of that key,
 * or did not go well. */
int64_t collective_met(struct collectives *c, struct met_step step);
/* Another task's has failed: a leader that has no such steps itself counts on. True: this task's master is past it. */
bool collective_sequence_failed(struct collectives *c, int64_t key, int64_t id);
/* As the leader: what the next number is, for a session that began then. */
int64_t collective_sequence(struct collectives *c, int64_t key, int64_t began);

/* A task of the worker's cluster, a reference; NULL: it is not in it. */
struct peer *collectives_find_task(struct worker *w, const char *task);

/* ---- collective_wire.c ---- */

struct collective_wire { /* of one member's run */
  struct collective_transport head;
  struct step *step;
  struct worker_session *session;
  int64_t step_id;               /* under which the members meet: the step's, or STEP_OF_ALL */
  struct rendezvous *rendezvous; /* that step's on this task: a function's step has another */
  const struct collective_group *group;
  int rank;
  struct cancel *cancel; /* ends all of it */
  atomic_int waits_for;  /* a rank, while something is received; -1 */
};
void collective_wire_init(struct collective_wire *w);
/* The key of a message; the caller frees it. */
char *collective_wire_key(const struct collective_group *g, const struct collective_id *id, int from, int to,
                          const int *label);
/* Asks a member for what it will never send: `done` is told UNAVAILABLE where it is gone or stopped, or, when the
 * cancel is started, that it is. */
void collective_wire_watch(struct collective_wire *w, const struct collective_id *id, int rank, struct cancel *cancel,
                           rendezvous_done done, void *arg);

#endif
