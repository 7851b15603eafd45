/* The strict mode's two halves: its graph (sync_strict_graph.c), and who takes part (sync_strict.c). */
#ifndef TRAIN_SYNC_STRICT_H
#define TRAIN_SYNC_STRICT_H

#include "train/sync.h"

/* sync_rep_members has five numbers for each worker, at [what * total + task]. */
enum member {
  MEMBER_JOINS,   /* how often it joined */
  MEMBER_LEFT,    /* the join after which it left */
  MEMBER_ARRIVED, /* the step after the last one it has put gradients for; 0 when it has just joined */
  MEMBER_HOLDS,   /* the token it took last; -1 when it has just joined */
  MEMBER_BEATS,   /* moves on while it lives */
  MEMBER_NUMBERS
};

/* One worker, as the chief has it. */
struct strict_worker {
  shoal_op *stand_in;   /* puts zeros that do not count, where its gradients would be */
  shoal_op *drop;       /* takes one set of gradients from its queues */
  shoal_op *drop_token; /* takes one token from its queue */
  shoal_op *invite;     /* puts a token for the current step */
  shoal_out waiting;    /* [sets of gradients, tokens] in its queues */

  bool active;            /* its own gradients are waited for */
  bool alive;             /* it beats */
  int64_t joins, left;    /* as last read */
  int64_t handled;        /* the join that it was invited for, or left after */
  int quiet;              /* looks in a row that found it waiting for a token */
  int64_t beats, beat_ns; /* as last read, and when they last moved on */
};

struct strict {
  shoal_var members;
  shoal_out members_there;
  shoal_op *members_init, *join, *leave, *beat, *take_token;

  /* the chief's */
  shoal_out active_fed;          /* int32 [total]: 1 for those who get a token after the step */
  struct strict_worker *workers; /* [total] */
  pthread_mutex_t lock;          /* workers' state: the stepping and the watching thread */
  bool begun;
  int64_t began_ns;
  int vacant; /* the worker whose place in the step under way is left open; -1: none */
};

shoal_op *strict_build(shoal_sync_replicas *s, const shoal_var *vars, const shoal_gradient *grads, int n);

#endif
