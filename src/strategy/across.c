/* Values of all replicas, seen from outside of them: batches cut for them, results put together. */
#include <stdlib.h>

#include "graph/given.h"
#include "strategy/strategy.h"

/* ---- batches ---- */

/* How many rows each of n gets: a vector, computed in the step. */
static shoal_out row_counts(struct shoal_graph *g, shoal_out batch, int n) {
  int64_t *numbers = mem_zalloc((size_t)n, sizeof *numbers);
  for (int i = 0; i < n; i++) numbers[i] = i;
  const int64_t zero[] = {0}, one[] = {1};
  shoal_out rows = build_op3(g, "Slice", build_op1(g, "Shape", batch), build_const_ints(g, SHOAL_INT32, zero, 1),
                             build_const_ints(g, SHOAL_INT32, one, 1));
  shoal_out by = build_const_int(g, SHOAL_INT32, n), all = build_const_ints(g, SHOAL_INT32, numbers, n);
  shoal_out more = build_op2(g, "Less", all, build_op2(g, "FloorMod", rows, by));
  free(numbers);
  return build_op2(g, "AddV2", build_op2(g, "FloorDiv", rows, by), build_cast(g, more, SHOAL_INT32));
}

void shoal_strategy_split(shoal_graph *g, const shoal_strategy *s, shoal_out batch, shoal_out *out, int stride) {
  GRAPH_GIVEN(g, s);
  GRAPH_GIVEN(g, out);
  if (batch.node && out_shape(batch).rank == 0) {
    graph_fail(g, INVALID("shoal_strategy_split: '%s' is a scalar, and has no rows to be cut along", batch.node->name));
    return;
  }
  if (s->local == 1) {
    *out = batch;
    return;
  }
  strategy_push_device(g, s, 0);
  graph_push_scope(g, "split");
  struct build b = build_begin(g, "SplitV", NULL);
  build_in(&b, batch);
  build_in(&b, row_counts(g, batch, s->local));
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  build_attr_int(&b, "num_split", s->local);
  struct shoal_node *parts = build_end(&b);
  graph_pop_scope(g);
  graph_pop_device(g);
  for (int i = 0; i < s->local; i++) out[(ptrdiff_t)i * stride] = parts ? node_out(parts, i) : (shoal_out){0};
}

/* ---- results ---- */

shoal_out strategy_first_of(struct shoal_graph *g, const struct shoal_strategy *s, shoal_out *members) {
  struct build b = build_begin(g, "Identity", NULL);
  strategy_push_device(g, s, 0);
  build_in(&b, members[0]);
  for (int i = 1; i < s->local; i++) build_control(&b, members[i].node);
  shoal_out result = build_end_out(&b);
  graph_pop_device(g);
  free(members);
  return result;
}

shoal_out shoal_strategy_reduce(shoal_graph *g, shoal_strategy *s, shoal_reduction how, const shoal_out *values,
                                int stride) {
  GRAPH_GIVEN(g, s, (shoal_out){0});
  GRAPH_GIVEN(g, values, (shoal_out){0});
  shoal_out *members = mem_zalloc((size_t)s->local, sizeof *members);
  for (int i = 0; i < s->local; i++) {
    strategy_push_device(g, s, i);
    members[i] = reduce_member(g, s, GROUP_REPLICAS, s->next_key, how, values[(ptrdiff_t)i * stride]);
    graph_pop_device(g);
  }
  s->next_key++;
  return strategy_first_of(g, s, members);
}
