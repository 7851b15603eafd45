/* Variables that every replica has for itself and that are reduced when they are read, and losses of batches that have
 * not the same number of rows: what counts examples. */
#include <stdlib.h>

#include "graph/given.h"
#include "strategy/strategy.h"

static const char how_attr[] = "_aggregation";

shoal_var shoal_replica_on_read(shoal_replica *r, const char *name, shoal_out initial, shoal_reduction how) {
  struct shoal_graph *g = r->maker.g;
  struct replica_run *run = r->run;
  GRAPH_GIVEN(g, name, (shoal_var){0});
  if (!r->index) {
    shoal_var v = variable_make(g, name, initial, VARIABLE_LOCAL);
    if (v.handle.node) node_set_attr(v.handle.node, how_attr, attr_int(how));
    vec_push(&run->owns, v);
    return v;
  }
  if (!variable_is_next(g, run->owns.at, run->owns.n, r->next_own, name, initial)) return (shoal_var){0};
  char *own = variable_replica_name(run->owns.at[r->next_own++].handle.node, r->index);
  graph_push_scope_root(g);
  shoal_var v = variable_make(g, own, initial, VARIABLE_LOCAL);
  variable_set_replica(v, r->index);
  graph_pop_scope(g);
  free(own);
  return v;
}

/* A replica's own, by the first one's name. */
static shoal_out value_of(const struct shoal_graph *g, shoal_var first, int index) {
  if (!index) return first.value;
  char *name = variable_replica_name(first.handle.node, index);
  shoal_var v = variable_find(g, name);
  free(name);
  return v.value;
}

shoal_out shoal_strategy_read(shoal_graph *g, shoal_strategy *s, shoal_var v) {
  GRAPH_GIVEN(g, s, (shoal_out){0});
  const struct attr *how = v.handle.node ? node_attr(v.handle.node, how_attr) : NULL;
  if (!how || how->kind != ATTR_INT) {
    graph_fail(g,
               INVALID("shoal_strategy_read: '%s' is not a variable that shoal_replica_on_read made in a task's first "
                       "replica",
                       v.handle.node ? v.handle.node->name : "(none)"));
    return (shoal_out){0};
  }
  shoal_out *values = mem_zalloc((size_t)s->local, sizeof *values);
  for (int i = 0; i < s->local; i++) values[i] = value_of(g, v, i);
  shoal_out all = shoal_strategy_reduce(g, s, (shoal_reduction)how->i, values, 1);
  free(values);
  return all;
}

/* The sum of its losses by the number of all replicas' examples; times the number of replicas where the strategy takes
 * the mean. No gradient goes through the number. */
shoal_out shoal_replica_average_loss(shoal_replica *r, shoal_out losses) {
  struct shoal_graph *g = r->maker.g;
  shoal_dtype dtype = out_type(losses);
  graph_push_scope(g, "average_loss");
  shoal_out mine = build_cast(g, build_op1(g, "Size", losses), SHOAL_INT32);
  shoal_out all = shoal_replica_reduce(r, SHOAL_REDUCE_SUM, mine);
  shoal_out by = build_op1(g, "StopGradient", build_cast(g, all, dtype));
  shoal_out sum = shoal_reduce_sum(g, losses);
  if (r->strategy->gradients == SHOAL_REDUCE_MEAN && r->strategy->replicas > 1)
    sum = build_op2(g, "Mul", sum, build_const_float(g, dtype, r->strategy->replicas));
  shoal_out loss = build_op2(g, "DivNoNan", sum, by);
  graph_pop_scope(g);
  return loss;
}
