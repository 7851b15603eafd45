/* Sessions whose steps meet those of other masters' sessions, and that one of these gives up.
 *
 * A client that trains with others closes its session and makes another when anything in it fails: a step of its own,
 * as a checkpoint that reaches for a task that stands still, or one with collectives before it has a number. The
 * others, whose steps did not fail, would come to the next step of their sessions and wait there, while the new session
 * waits for theirs in the step that all begin with. So who gives a session up says so (CloseSessionExtra), and its
 * master tells all tasks. Each ends what is under way in its session of the same group, and takes no more of its steps,
 * with the task and the cause: all begin anew together.
 *
 * Which session is meant is said by the first step with collectives that it had: no other session of that task, and
 * none that has begun since, had its part of that one. So a word that comes late does no harm, and a client that closes
 * a session as it likes gives up nothing. A task that stands still hears of it when it goes on: the call waits for it
 * as long as collectives do.
 *
 * A step that ends so is failed in the others as well (collective_failed.h), to have its number gone by; but sessions
 * made since, which were there before it failed, have no part in it. */
#ifndef CLUSTER_COLLECTIVE_GIVEN_UP_H
#define CLUSTER_COLLECTIVE_GIVEN_UP_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"

struct worker;

struct met_sessions { /* of one worker */
  pthread_mutex_t lock;
  struct met_session *first; /* lock */
};

void met_sessions_init(struct met_sessions *m);
void met_sessions_release(struct met_sessions *m);
/* A step of that session of this task's master begins, in which it meets others: an error where one of these has given
 * the session up. */
shoal_status met_session_step(struct met_sessions *m, int64_t session, int64_t key, int64_t id);
void met_session_step_over(struct met_sessions *m, int64_t session, int64_t id);
/* The session has ended. */
void met_session_over(struct met_sessions *m, int64_t session);
/* Its client gives it up: the others are told, unless one of them has. */
void met_session_give_up(struct worker *w, int64_t session, const char *why);
/* Another task's client has given up its session that began with that step: ends what is under way in the one of this
 * task that began with it, if there is one. */
void met_session_given_up(struct worker *w, int64_t key, int64_t id, const char *task, const char *why);

#endif
