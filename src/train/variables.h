/* Variables of a graph, as optimizers and savers want them. */
#ifndef TRAIN_VARIABLES_H
#define TRAIN_VARIABLES_H

#include "graph/builder.h"
#include "shoal/layers.h"

/* A node that reads the variable now (after the control scope's ops). */
shoal_out variable_read_op(struct shoal_graph *g, shoal_out handle, shoal_dtype dtype, const char *name);
/* Is it one of TensorFlow 1's references? */
bool variable_is_ref(shoal_out handle);
/* op: "Assign", "AssignAdd" or "AssignSub". */
struct shoal_node *variable_update_op(struct shoal_graph *g, const char *op, shoal_out handle, shoal_out value);
/* The op for this kind of variable, from the other's name: "ResourceApplyAdam" is "ApplyAdam" for references. */
const char *variable_op_name(shoal_out handle, const char *resource_op);
/* A bool: is it initialised? */
shoal_out variable_there_op(struct shoal_graph *g, shoal_out handle);
/* By its name; handle.node NULL: there is none. */
shoal_var variable_find(const struct shoal_graph *g, const char *name);
/* A variable that workers share but no checkpoint holds; neither shoal_initialize nor shoal_initialize_local knows it:
 * who made it initialises it. */
shoal_var variable_unsaved(struct shoal_graph *g, const char *name, shoal_out initial);
/* An untrained one whose first dimension may change: checkpoints may hold fewer rows than its initial value has. */
shoal_var variable_growing(struct shoal_graph *g, const char *name, shoal_out initial);
/* What gives it its initial value. */
shoal_op *variable_initializer(const struct shoal_graph *g, shoal_var v);

/* Under which name a checkpoint has it, and which part of the tensor there it is: "" for all of it, else TensorFlow's
 * slice specification "10 4 0,5:0,4" (full shape, then start and length for each dimension). Savers go by these. */
const char *variable_save_name(shoal_var v);
const char *variable_save_slice(shoal_var v);
void variable_set_slice(shoal_var v, const char *name, const char *slice);
/* What is restored into it from a checkpoint that does not have it, as one from before there was this variable: the
 * value of that name. NULL: such a checkpoint is of another model. */
const char *variable_stand_in(shoal_var v);
void variable_set_stand_in(shoal_var v, const char *name);

/* What a variable is, beside its value; attributes of its node keep it. */
enum { VARIABLE_TRAINABLE = 1, VARIABLE_LOCAL = 2, VARIABLE_UNSAVED = 4, VARIABLE_GROWS = 8 };
/* Makes one, whatever maker is on. */
shoal_var variable_make(struct shoal_graph *g, const char *name, shoal_out initial, int flags);
/* Marks it as the copy that replica has of another, NAME/replica_1; 0 is the one that is saved, and has no mark. */
void variable_set_replica(shoal_var v, int replica);
char *variable_replica_name(const struct shoal_node *first, int replica);

/* While a model is built in copies, somebody else says what a new variable is: copies that share theirs (sharing.c), or
 * replicas with a copy each (strategy/). A graph is built by one thread, so the maker that is on is known to the
 * thread; they do not nest. */
struct variable_maker {
  struct shoal_graph *g;
  int replica; /* shoal_variables tells of this one's; -1: of those that are saved */
  /* The variable to use instead of a new one; false: a new one is made, and given. */
  bool (*take)(struct variable_maker *m, const char *name, shoal_out initial, int flags, shoal_var *out);
  void (*give)(struct variable_maker *m, shoal_var v, int flags);
  /* (optional) What is here instead of a variable that was found by its name. */
  shoal_var (*here)(struct variable_maker *m, shoal_var v);
  /* (optional) Makes gradients of this copy those of all, before they are applied to changed[i]: vars[i], or in its
   * place a piece of it, whose gradient grads[i] is then. */
  void (*reduce)(struct variable_maker *m, const shoal_var *vars, struct shoal_gradient *grads, shoal_var *changed,
                 int n);
  /* Where pieces are: a slot of one, with `fill` everywhere, whose whole is called UNDER VARIABLE / NAME; false: v is
   * none. And makes whole variables of what was changed by done[i] (or NULL), which becomes what does so. */
  bool (*slot)(struct variable_maker *m, shoal_var v, const char *under, const char *name, double fill, shoal_var *out);
  void (*spread)(struct variable_maker *m, const shoal_var *vars, const shoal_var *changed, struct shoal_node **done,
                 int n);
  double rate;    /* said to `reduce`: the learning rate; 0: it is no number */
  bool keeps;     /* the same: the optimizer has slots */
  bool moves_all; /* the same: gradients that are rows change whole variables all the same, as Adam's do */
  /* Said of what this copy has applied gradients by: a fingerprint of optimizers, which is the same in every process
   * that does the same, and over how many batches they were accumulated. */
  uint64_t applied;
  int64_t accumulated;
};
/* NULL: none. */
struct variable_maker *variable_maker_on(const struct shoal_graph *g);
/* who: the function that is called, for the error when another is on. */
void variable_maker_begin(struct variable_maker *m, const char *who);
void variable_maker_end(struct variable_maker *m, const char *who);
/* For makers whose copies have the same variables in the same order: is the one that is asked for like made[next]? The
 * graph gets the error. And at the end of a copy: were all asked for? */
bool variable_is_next(struct shoal_graph *g, const shoal_var *made, size_t n, size_t next, const char *name,
                      shoal_out initial);
void variable_all_taken(struct shoal_graph *g, size_t n, size_t next);

#endif
