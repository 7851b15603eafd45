/* Replicas of a model in one graph.
 *
 * The function that makes a replica is called once for each, under the device that it has. All but the first have a
 * name scope of their own, as in TensorFlow, so that the first one's names are those of a model without a strategy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/given.h"
#include "strategy/tensorflow.h"

int shoal_replica_id(const shoal_replica *r) { return r->strategy->first + r->index; }
int shoal_replica_count(const shoal_replica *r) { return r->strategy->replicas; }

static struct variable_maker maker_of(struct shoal_graph *g, int replica) {
  return (struct variable_maker){
      g, replica, mirrored_take, mirrored_give, mirrored_here, reduce_gradients, shards_slot, shards_spread,
  };
}

/* ---- one replica after another ---- */

void replica_build(struct shoal_replica *r) {
  struct shoal_graph *g = r->maker.g;
  char scope[32];
  snprintf(scope, sizeof scope, "replica_%d", r->index);
  variable_maker_begin(&r->maker, "shoal_strategy_run");
  across_begin(&r->across);
  strategy_push_device(g, r->strategy, r->index);
  if (r->index) graph_push_scope(g, scope);
  r->op = r->fn(g, r, r->in, r->out, r->arg);
  if (r->index) graph_pop_scope(g);
  graph_pop_device(g);
  across_end();
  variable_maker_end(&r->maker, "shoal_strategy_run");
  if (r->index) variable_all_taken(g, r->run->firsts.n, r->next);
  if (r->index) variable_all_taken(g, r->run->owns.n, r->next_own);
}

/* Who has one replica's result waits for the collectives of all: else the others, which nobody needs, would not run,
 * and it would wait for them in vain. */
static void tie(struct shoal_graph *g, const struct shoal_replica *all, int n) {
  for (int i = 1; i < n; i++)
    if (all[i].joints.n != all[0].joints.n || all[i].key != all[0].key) {
      if (!graph_error(g))
        graph_fail(g,
                   INVALID("replica %d reduces or gathers %d values, and the first one %d: every replica must do the "
                           "same, in the same order",
                           i, all[i].key - all[i].strategy->next_key, all[0].key - all[0].strategy->next_key));
      return;
    }
  for (size_t k = 0; k < all[0].joints.n; k++)
    for (int i = 0; i < n; i++)
      for (int other = 0; other < n; other++)
        if (other != i) graph_add_control(all[i].joints.at[k].result, all[other].joints.at[k].op);
}

static shoal_op *group_all(struct shoal_graph *g, const struct shoal_replica *all, int n) {
  VEC(shoal_op *) parts = {0};
  for (int i = 0; i < n; i++) {
    if (all[i].op) vec_push(&parts, all[i].op);
    for (size_t k = 0; k < all[i].joints.n; k++) vec_push(&parts, all[i].joints.at[k].op);
  }
  strategy_push_device(g, all[0].strategy, 0);
  shoal_op *step = shoal_group(g, parts.at, (int)parts.n, "replicas");
  graph_pop_device(g);
  vec_release(&parts);
  return step;
}

shoal_op *shoal_strategy_run(shoal_graph *g, shoal_strategy *s, shoal_replica_fn *fn, void *arg, const shoal_out *in,
                             int n_in, shoal_out *out, int n_out) {
  GRAPH_GIVEN(g, s, NULL);
  GRAPH_GIVEN(g, fn, NULL);
  GRAPH_GIVEN_ARRAY(g, in, n_in, NULL);
  GRAPH_GIVEN_ARRAY(g, out, n_out, NULL);
  if (graph_error(g)) return NULL;
  bool in_scope = variable_maker_on(g) == &s->scope;
  if (variable_maker_on(g) && !in_scope) {
    graph_fail(g, INVALID("%s: a sharing, or another replica, is on; they do not nest", __func__));
    return NULL;
  }
  if (in_scope) variable_maker_end(&s->scope, __func__);
  struct replica_run run = {.replicas = mem_zalloc((size_t)s->local, sizeof *run.replicas)};
  for (int i = 0; i < s->local; i++)
    run.replicas[i] = (struct shoal_replica){
        .maker = maker_of(g, i),
        .across = {.g = g, .copy = s->first + i, .draws = s->draws, .sum = reduce_across, .all = all_across},
        .run = &run,
        .strategy = s,
        .index = i,
        .key = s->next_key,
        .fn = fn,
        .arg = arg,
        .in = n_in > 0 ? in + (ptrdiff_t)i * n_in : NULL,
        .out = n_out > 0 ? out + (ptrdiff_t)i * n_out : NULL};
  replicas_build(&run, s->local);
  tie(g, run.replicas, s->local);
  shoal_op *step = graph_error(g) ? NULL : group_all(g, run.replicas, s->local);
  s->next_key = MAX(s->next_key, run.replicas[0].key);
  s->draws = run.replicas[0].across.draws;
  agree_on_applied(s, &run.replicas[0].maker);
  for (int i = 0; i < s->local; i++) {
    vec_release(&run.replicas[i].joints);
    shards_forget(&run.replicas[i]);
  }
  vec_release(&run.slots);
  vec_release(&run.firsts);
  vec_release(&run.owns);
  vec_release(&run.gathered);
  free(run.replicas);
  initial_send(g, s);
  shards_taken(g, s);
  keras_after_weights(g, s);
  agree(g, s);
  if (in_scope) variable_maker_begin(&s->scope, __func__);
  return step;
}

/* ---- the scope ---- */

static struct shoal_strategy *strategy_of(struct variable_maker *m) {
  return (struct shoal_strategy *)((char *)m - offsetof(struct shoal_strategy, scope));
}

static bool scope_take(struct variable_maker *m, const char *name, shoal_out initial, int flags, shoal_var *out) {
  return initial_take(m->g, strategy_of(m), name, initial, flags, out);
}

static void scope_give(struct variable_maker *m, shoal_var v, int flags) { initial_give(strategy_of(m), v, flags); }

void shoal_push_strategy(shoal_graph *g, shoal_strategy *s) {
  GRAPH_GIVEN(g, s);
  s->scope = (struct variable_maker){.g = g, .replica = -1, .take = scope_take, .give = scope_give};
  variable_maker_begin(&s->scope, __func__);
  strategy_push_device(g, s, 0);
}

void shoal_pop_strategy(shoal_graph *g, shoal_strategy *s) {
  GRAPH_GIVEN(g, s);
  graph_pop_device(g);
  s->scope.g = g;
  variable_maker_end(&s->scope, __func__);
  initial_send(g, s);
  agree(g, s);
}
