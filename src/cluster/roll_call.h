/* Who of a cluster is there, and why the others are not.
 *
 * A server calls the roll when it starts, in the background, until everybody has answered once: whoever starts early
 * says for whom it waits. A master calls it while a session waits for tasks, for the causes. */
#ifndef CLUSTER_ROLL_CALL_H
#define CLUSTER_ROLL_CALL_H

#include <pthread.h>

#include "base/join.h"
#include "cluster/cluster_spec.h"
#include "rpc/channel.h"

struct roll_entry {
  char *task, *address;
  struct rpc_channel *channel;  /* a reference */
  struct rpc_pending *question; /* under way */
  bool here;
  shoal_status cause; /* why not, when last asked; NULL: not asked yet */
};

struct roll {
  VEC(struct roll_entry) all;
  struct join join; /* answers, and the asker */
  pthread_mutex_t lock;
  bool asking;                             /* lock: questions may be cancelled */
  void (*then)(void *arg, shoal_status s); /* when all have answered, or cannot */
  void *arg;
};

void roll_init(struct roll *r);
/* The channel's reference is taken over. */
void roll_add(struct roll *r, const char *task, const char *address, struct rpc_channel *channel);
void roll_release(struct roll *r);
/* Asks everybody who has not answered yet, side by side; then(arg, NULL) when it is known who is still missing, perhaps
 * before this returns. */
void roll_ask(struct roll *r, int64_t timeout_ms, void (*then)(void *arg, shoal_status s), void *arg);
/* What is being asked ends now. */
void roll_cancel(struct roll *r);
size_t roll_count_missing(const struct roll *r);
/* "/job:ps/replica:0/task:0 at 10.0.0.1:2222 (Connection refused), ...". */
void roll_missing(const struct roll *r, struct text *out);
/* A missing task that will not come however long one waits: its certificate will not do. The error names it. */
shoal_status roll_hopeless(const struct roll *r);

/* The start of a server, on a thread of its own. */
struct startup;
/* Calls late(arg, s) once if the cluster is not whole after timeout_ms (0: never; it only says whom it waits for); s
 * (consumed) lists the missing tasks. NULL when there is nobody to wait for. */
struct startup *startup_new(const struct cluster_spec *spec, const char *self, const struct rpc_tls *tls,
                            int64_t timeout_ms, void (*late)(void *arg, shoal_status s), void *arg);
/* The error that late() got, while the server ends because of it; NULL: it does not. The caller's to free. */
shoal_status startup_late(struct startup *s);
/* The cluster is at work: somebody opened a session here. It is over, unless it is to go on until all are there, as in
 * a coordinated cluster, whose tasks wait for each other in their sessions' steps. */
void startup_used(struct startup *s);
void startup_goes_on(struct startup *s);
void startup_over(struct startup *s);
void startup_free(struct startup *s);

#endif
