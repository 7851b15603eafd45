/* The strict mode's two halves: its graph (sync_strict_graph.c), and who takes part (sync_strict.c). */
#ifndef TRAIN_SYNC_STRICT_H
#define TRAIN_SYNC_STRICT_H

#include "train/sync.h"

/* One worker, as the chief has it. */
struct strict_worker {
  shoal_op *stand_in;   /* puts zeros that do not count, where its gradients would be */
  shoal_op *drop_token; /* takes one token from its queue */
  shoal_op *drop;       /* takes one set of gradients from its queues */
  shoal_out waiting;    /* [sets of gradients, tokens] in its queues */
  shoal_op *invite;     /* puts a token for the current step */

  bool active;         /* its own gradients are waited for */
  int64_t joins, left; /* as last read */
  int64_t handled;     /* the join that made it active, or that it was lost after */
};

struct strict {
  /* sync_rep_members [3 * total]: how often each worker joined; the join after which it left; the step after the last
   * one it has put gradients for. */
  shoal_var members;
  shoal_out members_there, tag, token;
  shoal_op *members_init, *join, *leave, *take_token;
  int tag_fetch, token_fetch; /* of the running step */

  /* the chief's */
  struct strict_worker *workers; /* [total] */
  pthread_mutex_t lock;          /* workers' state: the stepping and the watching thread */
  bool begun;
  int64_t began_ns;
};

shoal_op *strict_build(shoal_sync_replicas *s, const shoal_var *vars, const shoal_gradient *grads, int n);

#endif
