/* Variables of replicas.
 *
 * The first replica's variables are the ones that a program without a strategy would have: they have its names, and are
 * initialised, saved and restored as those are. Another replica's copy, NAME/replica_1, is a local variable whose
 * initial value is the first one's value: so whatever makes a session's local variables ready, after the model was
 * initialised or restored, makes all copies the same, whether a checkpoint was written by one replica or by ten.
 *
 * Copies are found by the order in which the function makes its variables (as sharing.c has it), slots of optimizers
 * included. */
#include <stdlib.h>
#include <string.h>

#include "strategy/strategy.h"

static struct shoal_replica *replica_of(struct variable_maker *m) { return (struct shoal_replica *)m; }

static bool is_trainable(shoal_var v) {
  const struct attr *a = node_attr(v.handle.node, "_trainable");
  return a && a->kind == ATTR_BOOL && a->b;
}

/* This replica's copy, made if it is not there yet. */
static shoal_var copy_of(struct shoal_replica *r, shoal_var first) {
  struct shoal_graph *g = r->maker.g;
  if (!r->index || !first.handle.node) return first;
  char *name = variable_replica_name(first.handle.node, r->index);
  shoal_var v = variable_find(g, name);
  if (!v.handle.node) {
    graph_push_scope_root(g);
    strategy_push_device(g, r->strategy, r->index);
    v = variable_make(g, name, initial_value(g, r->strategy, first),
                      VARIABLE_LOCAL | (is_trainable(first) ? VARIABLE_TRAINABLE : 0));
    variable_set_replica(v, r->index);
    graph_pop_device(g);
    graph_pop_scope(g);
  }
  free(name);
  return v;
}

/* What the first replica made at this place, where that is how it was asked for. */
shoal_var mirrored_here(struct variable_maker *m, shoal_var v) {
  struct shoal_replica *r = replica_of(m);
  const struct replica_run *run = r->run;
  if (r->index && r->next < run->firsts.n && run->firsts.at[r->next].handle.node == v.handle.node) r->next++;
  return copy_of(r, v);
}

bool mirrored_take(struct variable_maker *m, const char *name, shoal_out initial, int flags, shoal_var *out) {
  struct shoal_replica *r = replica_of(m);
  const struct replica_run *run = r->run;
  if (flags & (VARIABLE_LOCAL | VARIABLE_UNSAVED)) return false;
  if (!r->index) {
    bool taken = initial_take(m->g, r->strategy, name, initial, flags, out);
    if (taken) vec_push(&r->run->firsts, *out);
    return taken;
  }
  *out = (shoal_var){0};
  if (variable_is_next(m->g, run->firsts.at, run->firsts.n, r->next, name, initial))
    *out = copy_of(r, run->firsts.at[r->next++]);
  return true;
}

void mirrored_give(struct variable_maker *m, shoal_var v, int flags) {
  struct shoal_replica *r = replica_of(m);
  if (r->index || flags & (VARIABLE_LOCAL | VARIABLE_UNSAVED)) return;
  vec_push(&r->run->firsts, v);
  initial_give(r->strategy, v, flags);
}

shoal_var shoal_replica_variable(shoal_replica *r, shoal_var v) { return copy_of(r, v); }
