/* The coordination service of TensorFlow 2's strategies: a leader knows which tasks of a job are there, keeps small
 * values by key, lets tasks meet at barriers, and tells all of them when one has failed.
 *
 *   coordination.c           tasks: who has registered, beats, has left or failed; when all are there each is told of
 * all devices (WaitForAllTasks) coordination_values.c    values by key, and who waits for one coordination_barriers.c
 * barriers coordination_service.c   the same on the wire coordination_agent.c     a task's own part: it registers with
 * its leader, beats, and hears of errors
 *
 * Differences to TensorFlow's. There a task that fails, or comes with another incarnation, is lost until the leader is
 * restarted, and with it everybody. Here whoever has been told of the same list of devices (a gathering) hears of the
 * error, and the task may come again: when all are there, that is the next gathering. So a group works again without
 * the leader's end, and a task that has come again is not told of what happened to those before it. A barrier's outcome
 * is remembered for the last MOST_PASSED barriers, not for ever, and one at which nobody waits any more is forgotten:
 * who comes next makes it anew.
 *
 * Nobody waits in silence for a task that was lost. Those who were told of it hear of its end at once, and whoever did
 * not hear it (a call that failed) by its next beat. One that was here and has gone before all were told of each other
 * may come again: after COME_AGAIN_MS whoever waits for it is told. Who has left in order is no error; what waits for
 * it in the leader's tables of collectives is told (left).
 *
 * What strangers can fill: tasks are those of the cluster's description; values, barriers and what tasks tell of their
 * devices are bytes of --max_coordination_bytes, taken from the account of the connection that they came over: devices
 * until their task fails or leaves, barriers while somebody waits, values until they are deleted. Calls that wait are
 * calls under way (--max_calls), and what they wait by is held with their requests (--max_held_bytes). The leader's own
 * task is there as long as the service is, whatever anybody says in its name. */
#ifndef CLUSTER_COORDINATION_H
#define CLUSTER_COORDINATION_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/alarm.h"
#include "base/ref.h"
#include "base/status.h"
#include "base/status_marks.h"
#include "base/strmap.h"
#include "base/text.h"
#include "base/vec.h"
#include "base/wire.h"
#include "cluster/cluster_spec.h"
#include "cluster/limits.h"

enum {
  HEARTBEAT_TIMEOUT_MS = 10000,   /* a task that has not beaten for so long has failed; TensorFlow's default */
  GATHERING_TIMEOUT_MS = 3600000, /* how long a task waits for the others; TensorFlow's */
  COME_AGAIN_MS = 60000,          /* how long the others wait for one that was here and has gone */
  MOST_PASSED = 1024,             /* barriers whose outcome is remembered */
  COORDINATION_NAME = 4096,       /* bytes of a key, a barrier's id, a job's name, an error's text */
};

/* Bytes under a key, or a list of devices; counted, since answers that are on their way refer to it. */
struct coordination_value {
  struct ref refs;
  struct account *account; /* has been charged for it; NULL: nobody */
  size_t charged;
  const char *key;                         /* behind the bytes */
  uint64_t height;                         /* of its place in the tree of values: those under it have smaller ones */
  struct coordination_value *left, *right; /* the service's lock: smaller and larger keys */
  size_t n;
  char bytes[];
};
/* beside: bytes that are held with it, and counted. RESOURCE_EXHAUSTED, and nothing is made, when the account (NULL:
 * nobody's) has no room. */
shoal_status coordination_value_new(struct account *a, const char *key, const void *data, size_t n, size_t beside,
                                    struct coordination_value **out);
struct coordination_value *coordination_value_ref(struct coordination_value *v);
void coordination_value_unref(struct coordination_value *v);

struct coordination_barrier;
struct coordination_want;

/* A caller that waits for an answer; its own memory, until done is called or coordination_give_up has said that it will
 * not be. */
struct coordination_wait {
  /* Once, from any thread, with no lock held. s is to be taken over, and so is value (a reference; NULL: none). */
  void (*done)(struct coordination_wait *w, shoal_status s, struct coordination_value *value);
  /* the service's own; its lock */
  struct coordination_wait *next, **at; /* at: NULL: it waits for nothing */
  bool given_up;
  int64_t deadline;
  struct coordination_want *want; /* of a value */
  struct coordination_barrier *barrier;
  shoal_status status;
  struct coordination_value *value;
};

enum coordinated_state { TASK_DISCONNECTED = 2, TASK_CONNECTED, TASK_ERROR }; /* as on the wire */

struct coordinated_task {
  char *name; /* "/job:worker/replica:0/task:0" */
  char *job;
  int id;
  enum coordinated_state state;
  uint64_t incarnation;
  shoal_status error;                 /* of TASK_ERROR */
  int64_t last_beat, grace_until;     /* grace: a task that has left may still beat */
  struct coordination_value *devices; /* a DeviceInfo; NULL: it has not told */
  int64_t gathering;                  /* which it was told of; 0: none */
  int64_t gone;                       /* since when, while those who wait for it are to be told; 0: they are not */
  shoal_status unheard;               /* an error of another task that it was told of in vain: its next beat's answer */
};

typedef void coordination_report(void *arg, const char *const *tasks, size_t n, const char *source, shoal_status error,
                                 bool reported_by_source);

struct coordination {
  uint64_t incarnation;
  /* Tells tasks of another's error; with no lock held, error stays the caller's. */
  coordination_report *report;
  /* A task of the last gathering has left in order; with no lock held. NULL: nobody wants to know. */
  void (*left)(void *arg, const char *task);
  void *arg;
  int self; /* the task of this server */
  struct alarm tick;
  int64_t due; /* the tick */
  pthread_mutex_t lock;
  bool stopped;                        /* lock, as is all that follows */
  VEC(struct coordinated_task) tasks;  /* by job and number; their names do not change */
  struct strmap by_name;               /* the same */
  int64_t gathering;                   /* how many there were */
  struct coordination_value *devices;  /* of all tasks of the last one */
  struct coordination_wait *gatherers; /* wait for the next */
  struct coordination_value *values;   /* the tree's root; NULL: there are none */
  struct strmap wants;                 /* keys that are waited for: of struct coordination_want * */
  struct strmap barriers;              /* by id: those that are not passed, and the last that are */
  struct coordination_barrier *first_passed, *last_passed;
  int n_passed;
};

struct coordination_options {
  const struct cluster_spec *spec; /* jobs "chief" and "worker" are coordinated */
  const char *self;                /* task */
  uint64_t incarnation;            /* of the service, and of the own task */
  const void *devices;             /* DeviceInfo of the own task */
  size_t devices_size;
  coordination_report *report;
  void (*left)(void *arg, const char *task);
  void *arg;
};

struct coordination *coordination_new(const struct coordination_options *o);
/* Answers all that wait with an error, and whoever comes from now on. */
void coordination_stop(struct coordination *c);
void coordination_free(struct coordination *c);
/* Is the job one of those whose tasks are coordinated? */
bool coordination_has_job(const char *job);

/* ---- tasks; task: a name in full ---- */

shoal_status coordination_register(struct coordination *c, const char *task, uint64_t incarnation);
shoal_status coordination_beat(struct coordination *c, const char *task, uint64_t incarnation);
/* Tells of the task's devices (a DeviceInfo), and waits for those of all: the value. */
void coordination_gather(struct coordination *c, const char *task, struct wire devices, struct account *a,
                         struct coordination_wait *w);
shoal_status coordination_disconnect(struct coordination *c, const char *task);
/* The task says that it has failed. error is taken over. */
shoal_status coordination_fail(struct coordination *c, const char *task, shoal_status error);
/* The same of the service's own task, which stays; all others are told. FAILED_PRECONDITION while they are not all
 * there. */
shoal_status coordination_fail_self(struct coordination *c, shoal_status error);
shoal_status coordination_not_whole(void); /* that error */
/* An error that a task tells of: a code and its text. */
shoal_status coordination_error_read(int64_t code, const char *message);
/* The task did not hear what report told; error is taken over. */
void coordination_unheard(struct coordination *c, const char *task, shoal_status error);
/* Adds a CoordinatedTaskStateInfo's fields. */
shoal_status coordination_state(struct coordination *c, const char *task, struct text *out);
/* Looks for tasks that have not beaten, and for waits whose time is up; the tick's, and tests'. */
void coordination_look(struct coordination *c, int64_t now);
/* The service itself stood still for so long: nobody's beats are late by that. */
void coordination_stood_still(struct coordination *c, int64_t ns);
/* The caller has gone: true: done will not be called. */
bool coordination_give_up(struct coordination *c, struct coordination_wait *w);

/* ---- values ---- */

shoal_status coordination_insert(struct coordination *c, const char *key, const void *data, size_t n,
                                 struct account *a);
void coordination_get(struct coordination *c, const char *key, struct coordination_wait *w);
/* NOT_FOUND when there is none; a reference. */
shoal_status coordination_try_get(struct coordination *c, const char *key, struct coordination_value **out);
typedef VEC(struct coordination_value *) coordination_list;
/* Those under a directory, by key: references. Of a large one, what comes and goes meanwhile may be among them or not.
 */
void coordination_directory(struct coordination *c, const char *directory, coordination_list *out);
/* The key, and all under it. */
void coordination_delete(struct coordination *c, const char *key);

/* ---- barriers ---- */

/* among: names of tasks, n of them; 0: all. */
void coordination_barrier(struct coordination *c, const char *id, int64_t timeout_ms, const char *task,
                          char *const *among, size_t n, struct account *a, struct coordination_wait *w);
shoal_status coordination_cancel_barrier(struct coordination *c, const char *id, const char *task);

/* ---- among these files; with the lock held ---- */

/* NULL: there is none of that name. */
struct coordinated_task *coordination_task(struct coordination *c, const char *name);
/* w is answered when the lock is given up: by coordination_unlock with the list. s and value are taken over. */
void coordination_tell(struct coordination_wait **told, struct coordination_wait *w, shoal_status s,
                       struct coordination_value *value);
/* False: it was given up before, and is told. */
bool coordination_link(struct coordination_wait **list, struct coordination_wait *w, struct coordination_wait **told);
void coordination_unlock(struct coordination *c, struct coordination_wait *told);
/* A line of the log of what tasks say of each other; there is an end to such lines. */
void coordination_log(const char *who, shoal_status why);
shoal_status coordination_error(shoal_status s); /* marked as the service's own, as TensorFlow's are */
/* Nobody waits for the key, or at the barrier, any more, perhaps. */
void coordination_want_drop(struct coordination *c, struct coordination_want *want);
void coordination_barrier_drop(struct coordination *c, struct coordination_barrier *b);
void coordination_forget_values(struct coordination *c, struct coordination_wait **told);
/* A task has failed or left (how: "a task error"): barriers that wait for it fail. */
void coordination_barriers_lose(struct coordination *c, const struct coordinated_task *t, const char *how,
                                struct coordination_wait **told);
void coordination_barriers_look(struct coordination *c, int64_t now, struct coordination_wait **told);
void coordination_forget_barriers(struct coordination *c, struct coordination_wait **told);

#endif
