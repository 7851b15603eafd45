/* Steps that failed in one task while others wait in their collectives.
 *
 * A member that does not come to a collective, since its part of the step has failed, is waited for in many places: in
 * memory that members share, for a message, for one of ours to be taken, at the leader for the others to ask. None of
 * these knows of the failure. So the master whose step it was tells all tasks of the cluster, those who have no part in
 * it too: before a group is known nobody can say who will be in it. Each ends what waits in that step, with the task,
 * the step and the cause, and remembers the step for those who come to it later. A task that fails because it was told
 * does not tell again: n tasks hear of a failure by n messages.
 *
 * Whose session begins later has heard of a failure that may be of its own run, whose first task was quick to fail, or
 * of a run before, which is over. The failure stands while the session that had it is open and has come to no later
 * step of those graphs. Only its own task knows that, and is asked, once (collective_steps.c): by then a client that
 * has closed its sessions and opens others has closed that one too. A task that does not answer has none.
 *
 * Nor does a failure stand for those who have been met since it was. A task that is started anew may be what a step of
 * the others failed for, just as its session was being made; they begin anew with it, and were it to come to that step
 * as well, to fail, they would be alone in the next one. So who asks says which of its steps was the last that went
 * well, and who is asked knows whether its own part of that one began after the failure.
 *
 * Steps that all parts have one master of need none of this: that one cancels them. TensorFlow's tasks neither tell nor
 * listen; they find what they ask us for aborted, at the leader too, and take part in no collectives then until they
 * are started again (collective_others.h). */
#ifndef CLUSTER_COLLECTIVE_FAILED_H
#define CLUSTER_COLLECTIVE_FAILED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct collective_guard;
struct text;
struct worker;

enum { FAILED_REMEMBERED = 64 };

struct failed_steps { /* of one worker */
  pthread_mutex_t lock;
  struct collective_guard *guards; /* lock: what is under way */
  struct failed_step {
    int64_t id, key;
    int64_t since;
    bool met;        /* this task's master has had its part of it, or need not */
    bool over;       /* of a session that was given up (collective_given_up.h): past for all later ones */
    char *task;      /* whose step failed; NULL: this task's, or that is not known */
    int64_t session; /* of this task's master, for which the failure stands; 0: none */
    shoal_status why;
  } last[FAILED_REMEMBERED]; /* lock: a ring */
  unsigned n;                /* lock: how many there ever were */
};

void failed_steps_init(struct failed_steps *f);
void failed_steps_release(struct failed_steps *f);
/* A guard of that step is ended when the step has failed, until it leaves; the reason, where it has before. */
shoal_status failed_steps_enter(struct failed_steps *f, struct collective_guard *g);
void failed_steps_leave(struct failed_steps *f, struct collective_guard *g);
/* For this task's master: it may have to come to it yet; it has had its part; nobody comes to it any more. */
enum failed_how { FAILED_MISSED, FAILED_MET, FAILED_OVER };
/* Ends what waits in the step, of graphs with that key, and remembers it; why is consumed. task: see above. False: it
 * was known. */
bool failed_steps_add(struct failed_steps *f, int64_t key, int64_t id, enum failed_how how, const char *task,
                      shoal_status why);
/* It stands for that session, until that one ends or comes to another step of its graphs. */
void failed_steps_stand(struct failed_steps *f, int64_t id, int64_t session);
void failed_steps_end_session(struct failed_steps *f, int64_t session);
void failed_steps_go_on(struct failed_steps *f, int64_t key);
bool failed_steps_stands(struct failed_steps *f, int64_t id);
/* This task's master has had its part of it after all. */
void failed_steps_met(struct failed_steps *f, int64_t id);
/* The last one of that key, not long ago, that this task's master had no part in, if there is any; once. Whom to ask
 * whether it stands, which the caller frees; NULL: nobody. *of_session: it has failed since the session began. */
char *failed_steps_missed(struct failed_steps *f, int64_t key, int64_t began, int64_t *id, bool *of_session);
bool failed_steps_has(struct failed_steps *f, int64_t id);
/* How many there ever were. */
unsigned failed_steps_count(struct failed_steps *f);
/* Has it failed before the session began, or in one that was given up? */
bool failed_steps_are_past(struct failed_steps *f, int64_t id, int64_t began);
/* Why, where it has since then and not long ago, and a later session may have to fail in it, too; the caller frees it.
 * NULL: it has not failed, as far as is known. */
char *failed_steps_why(struct failed_steps *f, int64_t id, int64_t since);
/* Why one of that key has, since then and not long ago; the caller frees it. NULL: none has. */
char *failed_steps_since(struct failed_steps *f, int64_t key, int64_t since);

/* A step of that session of this task's master, of graphs with that key, has failed: the others are told, unless they
 * told us. */
void collective_step_failed(struct worker *w, int64_t key, int64_t id, int64_t session, shoal_status why);
/* Likewise of one that is under way in a session which another task has given up; why is consumed. */
void collective_step_given_up(struct worker *w, int64_t key, int64_t id, shoal_status why);
/* A message to all other tasks of the cluster. put: writes it; flags, patience: of each call. */
void collective_tell_all(struct worker *w, const char *method, void (*put)(struct text *to, const void *arg),
                         const void *arg, int64_t patience_ns, unsigned flags, const char *what);

#endif
