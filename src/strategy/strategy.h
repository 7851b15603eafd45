/* The parts of strategies (shoal/strategy.h).
 *
 *   strategy.c   the kinds there are: devices, numbers
 *   replicas.c   replicas of a model in one graph, each on its device
 *   merge.c      how they wait for each other while they are built
 *   mirrored.c   what their variables are
 *   initial.c    where their initial values come from, when other tasks have replicas
 *   agree.c      whether all tasks run the same program
 *   meet.c       how tasks stop and end together
 *   on_read.c    variables that are one only when they are read
 *   feed.c       batches of tasks that have not the same number of them
 *   dataset.c    batches of datasets
 *   reduce.c     how values of all become one, in them
 *   gather.c     how they come one after another
 *   gradients.c  the same of gradients, in buckets
 *   tensorflow.c collectives with TensorFlow's workers
 *   keras.c      and with Keras' fit
 *   shards.c     the optimizer's state shared out over them
 *   across.c     the same from outside of them
 *
 * Replicas are built one after another by the same function, so the n-th collective of one belongs to the n-th of every
 * other: it has the same key, and no list is needed of who meets whom. Between tasks that holds as well, since all run
 * the same program. */
#ifndef STRATEGY_STRATEGY_H
#define STRATEGY_STRATEGY_H

#include <semaphore.h>

#include "base/device_name.h"
#include "graph/across.h"
#include "graph/aside.h"
#include "shoal/strategy.h"
#include "train/train_session.h"
#include "train/variables.h"

/* Keys of groups: the same in all tasks of a cluster, and no others than these. */
enum { GROUP_REPLICAS = 1, GROUP_FIRSTS }; /* all replicas; the first of each task */
/* Keys of collectives: of replicas they count from 1, of initial values from FIRST_INITIAL_KEY, so many of a strategy,
 * of hooks that feed from FIRST_FEED_KEY, two of each in a session. */
enum {
  KEYS_OF_ONE = 1 << 16,
  FIRST_INITIAL_KEY = 1 << 24,
  STOP_KEY = 1 << 25,
  END_KEY,
  STAY_KEY,
  AGREE_KEY,
  ALIKE_KEY,
  GO_KEY,
  FIRST_FEED_KEY
};

struct shoal_strategy {
  struct session_rules rules; /* first */
  shoal_reduction gradients;
  shoal_dtype messages; /* of gradients; 0: as they are */
  bool shard_state;
  shoal_tensorflow tensorflow;
  int64_t bucket_bytes;
  int replicas, local, first;         /* in all tasks; in this one; the number of its first */
  int tasks;                          /* that have replicas */
  int ps_tasks;                       /* parameter servers, which have the variables; 0: replicas have */
  char **devices;                     /* [local] */
  struct device_spec task_device;     /* of a task of a cluster: the first of them */
  int next_key, next_initial;         /* keys of collectives: never used twice, also in another graph */
  struct draws draws;                 /* of a replica, in all runs */
  int feeds;                          /* hooks of the session that is being made that ask whether there are batches */
  VEC(shoal_var) unsent;              /* variables of the chief that no node sends to the other tasks yet */
  VEC(struct shoal_node *) emptied;   /* of slots that were taken from where the chief put them: shards.c */
  const struct shoal_graph *facts_of; /* the graph in which tasks compare themselves: agree.c */
  struct shoal_node *facts, *compared;
  VEC(struct shoal_node *) after_it; /* collectives that are to come after that, and do not wait for it yet */
  uint64_t initial_hash, applied_hash;
  int64_t accumulated; /* batches to a step */
  /* With TensorFlow's workers: the graph that has the step's first key, and how many initial values have keys. */
  const struct shoal_graph *keys_of;
  shoal_out first_key;
  int initial_values;
  /* Beside Keras' fit: keras.c */
  int keras_slots;
  int64_t keras_steps;
  double keras_rate; /* the learning rate; 0: none was told, or no number */
  bool keras_has_state;
  shoal_var keras_metric[2];
  VEC(shoal_var) weights;      /* whose slots are not taken yet */
  struct variable_maker scope; /* while it is pushed */
};

/* Gradients that are reduced together. */
struct gradient_bucket {
  VEC(int) which; /* by their place */
  int64_t bytes;
};

/* One whose variables are to be made whole again. */
struct shard_bucket {
  int *which;
  int n;
};

/* A table of which the rows that were looked up are changed, each by the replica that has its slots: shard_rows.c. */
enum { MOST_ROW_SLOTS = 3 };
struct row_slot {
  shoal_var whole, rows;    /* the replica's piece; the rows of it that are changed */
  struct shoal_node *ready; /* gives those their values */
};
struct row_shard {
  int which;                       /* variable, by its place */
  const struct shoal_node *handle; /* of the variable that has the own rows */
  struct shape piece;              /* of the slots */
  shoal_out rows, like;            /* the numbers of all rows that were looked up, each once; their gradients */
  shoal_out own, at;               /* which of those are this replica's; their places in its piece */
  struct row_slot slots[MOST_ROW_SLOTS];
  int n_slots;
};

/* What is applied: struct variable_maker. */
struct replica_gradients {
  const shoal_var *vars;
  shoal_gradient *grads;
  shoal_var *changed;
};

/* A collective of one replica, and what stands for its result. */
struct joint {
  struct shoal_node *op, *result;
};

struct shoal_replica {
  struct variable_maker maker;
  struct across across;
  struct replica_run *run;
  struct shoal_strategy *strategy;
  int index;        /* of this task's */
  size_t next;      /* which of the run's variables it makes next; of all but the first */
  size_t next_own;  /* of those that are one when they are read */
  size_t next_slot; /* of those that are shared out */
  size_t next_gather;
  int key; /* of its next collective */
  VEC(struct joint) joints;
  VEC(struct shard_bucket) shards; /* changed, and not whole yet */
  VEC(struct row_shard) rows;      /* the same */

  /* How it is built. */
  shoal_replica_fn *fn;
  void *arg;
  const shoal_out *in;
  shoal_out *out;
  shoal_op *op;              /* what the function returned */
  struct merge_call *merges; /* what it waits for; NULL: it has ended */
  sem_t turn;                /* where it waits to go on */
};

/* What a replica brings to shoal_replica_merge_call. */
struct merge_call {
  shoal_merge_fn *fn;
  void *arg;
  const shoal_out *in;
  shoal_out *out;
  int n_in, n_out;
};

/* One call of shoal_strategy_run. */
struct replica_run {
  VEC(shoal_var) firsts;          /* variables of the first replica, in the order it made them */
  VEC(shoal_var) owns;            /* of those that are one when they are read */
  VEC(struct shoal_node *) slots; /* that are shared out, by the nodes that keep their names */
  VEC(int64_t) gathered;          /* rows that the first replica gathers, in the order it does; -1: not known */
  struct shoal_replica *replicas;
  struct graph_depth depth; /* of the scopes around the run */
  sem_t back;               /* where the run waits for the replica whose turn it is */
};

/* Is there a model in other tasks, too; and does its initial value come from one of them? */
static inline bool strategy_meets(const struct shoal_strategy *s) { return s->rules.meet != NULL; }
static inline bool strategy_receives(const struct shoal_strategy *s) { return strategy_meets(s) && !s->rules.is_chief; }
/* Has each replica a share of the optimizer's state? */
static inline bool strategy_shards(const struct shoal_strategy *s) { return s->shard_state && s->replicas > 1; }
/* The device scope of a replica, for shoal_pop_device. */
void strategy_push_device(struct shoal_graph *g, const struct shoal_strategy *s, int index);

/* ---- initial.c ---- */

/* A variable of the first replica, where initial values come from the chief; false: it is made as all are. */
bool initial_take(struct shoal_graph *g, struct shoal_strategy *s, const char *name, shoal_out initial, int flags,
                  shoal_var *out);
/* Such a variable was made at the chief. */
void initial_give(struct shoal_strategy *s, shoal_var v, int flags);
/* What was made since the last call is sent with the local variables' initialisation. */
void initial_send(struct shoal_graph *g, struct shoal_strategy *s);
/* The value that a variable of this task's first replica begins with, for copies that begin in the same step. */
shoal_out initial_value(struct shoal_graph *g, const struct shoal_strategy *s, shoal_var v);

/* ---- meet.c, agree.c, feed.c ---- */

/* The largest of what all tasks feed, one collective of their first replicas. */
struct poll {
  shoal_out fed, most;
};

/* A value that the chief sends, or another task receives, by that op. */
void agree_on_initial(struct shoal_strategy *s, shoal_out value, struct shoal_node *op);
/* The graph has grown: what tasks compare is what it is made of now. */
void agree(struct shoal_graph *g, struct shoal_strategy *s);
/* The error that tasks differ, in words of those who write programs; any other stays as it is. */
shoal_status agree_explain(shoal_status e);
/* What a replica has applied its gradients by: any one's, since all do the same. */
void agree_on_applied(struct shoal_strategy *s, const struct variable_maker *m);
/* Do the tasks' training sessions do the same? In a step of its own. */
struct poll agree_build_session(struct shoal_graph *g, struct shoal_strategy *s);
shoal_status agree_on_session(const struct shoal_strategy *s, const struct poll *p, shoal_session *session);

/* Of an int32. */
struct poll poll_build(struct shoal_graph *g, struct shoal_strategy *s, const char *name, int key);
/* For a hook of the session that is being made: two questions, one before the first step and one in each. */
void poll_build_feed(struct shoal_graph *g, struct shoal_strategy *s, const char *before, const char *in_each,
                     struct poll polls[2]);
/* In a step of its own. */
shoal_status poll_run(const struct poll *p, shoal_session *session, int answer, int32_t *most);
/* In a step that a hook adds to. */
shoal_status poll_feed(const struct poll *p, shoal_run_context *c, int answer);

shoal_hook meet_hook(struct shoal_strategy *s);
/* Nobody goes before the chief has saved. */
shoal_hook stay_hook(struct shoal_strategy *s);

/* ---- merge.c ---- */

/* Builds all replicas of a run, whose fields are set. */
void replicas_build(struct replica_run *run, int n);
/* Of one replica: replicas.c. */
void replica_build(struct shoal_replica *r);

/* ---- mirrored.c ---- */

/* Functions of a replica's maker. */
bool mirrored_take(struct variable_maker *m, const char *name, shoal_out initial, int flags, shoal_var *out);
void mirrored_give(struct variable_maker *m, shoal_var v, int flags);
shoal_var mirrored_here(struct variable_maker *m, shoal_var v);

/* ---- reduce.c ---- */

/* One member of a reduction, over all replicas or over the first ones of tasks, where the device scope says; the
 * instance has that key. */
shoal_out reduce_member(struct shoal_graph *g, struct shoal_strategy *s, int group, int key, shoal_reduction how,
                        shoal_out value);
/* value has a row for each rank, of which a replica gets the sum of its own. */
shoal_out scatter_member(struct shoal_graph *g, const struct shoal_strategy *s, int key, shoal_reduction how,
                         shoal_out value);
/* What layers and gradients ask for in a replica. */
shoal_out reduce_across(struct across *a, shoal_out value);
shoal_out all_across(struct across *a, shoal_out is);
/* For ops of the second generation. */
void strategy_add_keys(struct build *b, struct shoal_graph *g, const struct shoal_strategy *s, int key);
/* The result is used through a node that can be made to wait for the others' (replicas.c): who fetches one replica's
 * runs all of them. */
shoal_out replica_join(shoal_replica *r, shoal_out member);

/* ---- across.c ---- */

/* The first replica's, once all members of this task have run; members is freed. */
shoal_out strategy_first_of(struct shoal_graph *g, const struct shoal_strategy *s, shoal_out *members);

/* ---- gather.c ---- */

/* Values of one shape in all replicas. */
shoal_out gather_member(struct shoal_graph *g, const struct shoal_strategy *s, int key, shoal_out value);
/* In a replica: how many rows each has of the values that all are about to gather, by a collective of its own; node
 * NULL: they have the same number, which was known before. */
shoal_out gather_lengths(struct shoal_replica *r, shoal_out value);
/* lengths: the same. */
shoal_out gather_values(struct shoal_graph *g, const struct shoal_strategy *s, int key, shoal_out value,
                        shoal_out lengths);

/* ---- gradients.c ---- */

/* Of a replica's maker. */
void reduce_gradients(struct variable_maker *m, const shoal_var *vars, shoal_gradient *grads, shoal_var *changed,
                      int n);
int64_t variable_elements(shoal_var v);
/* Pieces of these lengths, one after another along an axis. */
struct shoal_node *cut_list(struct shoal_graph *g, shoal_out whole, const int64_t *lengths, int n, int axis);

/* ---- shards.c ---- */

void shard_bucket(struct shoal_replica *r, const struct gradient_bucket *k, struct replica_gradients *all);
/* Of a variable whose gradient, of all replicas, is rows: those of the own piece. */
void shard_rows(struct shoal_replica *r, int which, struct replica_gradients *all);
/* Of a replica's maker. */
bool shards_slot(struct variable_maker *m, shoal_var v, const char *under, const char *name, double fill,
                 shoal_var *out);
void shards_spread(struct variable_maker *m, const shoal_var *vars, const shoal_var *changed, struct shoal_node **done,
                   int n);
void shards_forget(struct shoal_replica *r);
int shard_rank(const struct shoal_replica *r);
/* rows: a variable that stands for this replica's piece, of that shape, of v. */
void shard_name_piece(struct shoal_replica *r, shoal_var v, shoal_var rows, const struct shape *shape);
/* A handle without what else belongs to a variable. */
struct shoal_node *handle_alone(struct shoal_graph *g, const char *name, shoal_dtype dtype, const struct shape *shape);

/* ---- shard_rows.c ---- */

/* Of a variable whose gradient, of all replicas, is rows, under an optimizer that changes no others. */
void shard_looked_up(struct shoal_replica *r, int which, struct replica_gradients *all);
/* NULL: v is none of their variables. */
struct row_shard *row_shard_of(struct shoal_replica *r, shoal_var v);
/* What is changed in place of this replica's piece of a slot. */
shoal_var row_shard_slot(struct shoal_replica *r, struct row_shard *s, shoal_var slot);
/* After *done has changed them; it becomes what has put all rows where they belong. */
void row_shard_spread(struct shoal_replica *r, const struct row_shard *s, shoal_var v, shoal_var rows,
                      struct shoal_node **done);
/* What the chief gave to slots that were made since the last call is given up once it was taken. */
void shards_taken(struct shoal_graph *g, struct shoal_strategy *s);

#endif
