/* What a master has of the process it is in, beside the worker there. That one it sees as it sees every other, by its
 * table (cluster/worker_ops.h); but whichever workers compute a step, it is given its number here, a client's feeds and
 * fetches meet it here, and what is the same everywhere is computed here. */
#ifndef CLUSTER_HOME_H
#define CLUSTER_HOME_H

#include "cluster/worker_ops.h"

/* Numbers of steps that meet steps of other masters: collectives.h. */
void home_next_step(struct worker *home, int64_t key, const char *leader, int64_t began, struct cancel *cancel,
                    void (*done)(void *arg, shoal_status s, int64_t id), void *arg);
/* An error where others have given up the session. */
shoal_status home_step_begins(struct worker *home, int64_t key, int64_t id, int64_t session);
void home_step_over(struct worker *home, int64_t key, int64_t id, int64_t session, int64_t began, shoal_status failed);
void home_session_given_up(struct worker *home, int64_t session, const char *why);
void home_session_over(struct worker *home, int64_t session);
/* The tasks of this one's strategy: same_group.h. The caller frees it. */
char *home_group(struct worker *home);
shoal_status home_check_group(struct worker *home);
/* Where this task is by its list, and where another one with a strategy is by that one's own (the caller frees it);
 * NULL: that is not known. */
const char *home_address(const struct worker *home);
char *home_heard_address(struct worker *home, const char *task);
/* A step's rendezvous, where a client's feeds and fetches meet it; a reference. Whoever asked for it ends it. */
struct rendezvous *home_rendezvous(struct worker *home, int64_t step_id);
void home_end_rendezvous(struct worker *home, int64_t step_id);
/* Computes a node now. */
shoal_status home_evaluate(struct worker *home, const struct shoal_node *n, const struct tensor *const *in,
                           struct cancel *cancel, struct tensor *out);

#endif
