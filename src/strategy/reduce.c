/* Values of all replicas become one: by collective ops, one on each replica's device, which meet by their keys.
 *
 * The ops are those of TensorFlow's first generation, whose keys are attributes: masters of several tasks tell by them
 * which of their steps belong together. Gathering has no fixed shape, and is of the second.
 * Those of gradients are in gradients.c. */
#include "graph/gradient.h"
#include "strategy/tensorflow.h"

/* ---- one member ---- */

static const struct {
  const char *merge, *final;
} reductions[] = {[SHOAL_REDUCE_MEAN] = {"Add", "Div"},
                  [SHOAL_REDUCE_SUM] = {"Add", "Id"},
                  [SHOAL_REDUCE_MIN] = {"Min", "Id"},
                  [SHOAL_REDUCE_MAX] = {"Max", "Id"}};

static bool check_reduction(struct shoal_graph *g, shoal_reduction how) {
  bool known = (int)how >= 0 && (size_t)how < COUNT_OF(reductions);
  if (!known) graph_fail(g, INVALID("%d is no reduction", (int)how));
  return known;
}

shoal_out reduce_member(struct shoal_graph *g, struct shoal_strategy *s, int group, int key, shoal_reduction how,
                        shoal_out value) {
  if (!check_reduction(g, how)) return (shoal_out){0};
  int members = group == GROUP_REPLICAS ? s->replicas : s->tasks;
  if (strategy_with_tensorflow(s)) return tensorflow_reduce(g, s, key, how, value);
  struct build b = build_begin(g, members > 1 ? "CollectiveReduce" : "Identity", NULL);
  build_in(&b, value);
  if (members > 1) {
    build_attr_int(&b, "group_size", members);
    build_attr_int(&b, "group_key", group);
    build_attr_int(&b, "instance_key", key);
    build_attr_string(&b, "merge_op", reductions[how].merge);
    build_attr_string(&b, "final_op", reductions[how].final);
    build_attr_ints(&b, "subdiv_offsets", (const int64_t[]){0}, 1);
  }
  return build_end_out(&b);
}

void strategy_add_keys(struct build *b, struct shoal_graph *g, const struct shoal_strategy *s, int key) {
  build_in(b, build_const_int(g, SHOAL_INT32, s->replicas));
  build_in(b, build_const_int(g, SHOAL_INT32, GROUP_REPLICAS));
  build_in(b, build_const_int(g, SHOAL_INT32, key));
}

shoal_out scatter_member(struct shoal_graph *g, const struct shoal_strategy *s, int key, shoal_reduction how,
                         shoal_out value) {
  struct build b = build_begin(g, "CollectiveReduceScatterV2", NULL);
  build_in(&b, value);
  strategy_add_keys(&b, g, s, key);
  build_attr_string(&b, "merge_op", reductions[how].merge);
  build_attr_string(&b, "final_op", reductions[how].final);
  return build_end_out(&b);
}

/* ---- in a replica ---- */

shoal_out replica_join(shoal_replica *r, shoal_out member) {
  if (r->strategy->replicas == 1) return member;
  shoal_out result = build_op1(r->maker.g, "Identity", member);
  if (result.node) vec_push(&r->joints, (struct joint){member.node, result.node});
  return result;
}

shoal_out shoal_replica_reduce(shoal_replica *r, shoal_reduction how, shoal_out value) {
  shoal_out member = reduce_member(r->maker.g, r->strategy, GROUP_REPLICAS, r->key++, how, value);
  if (member.node && op_is(member.node->op, "CollectiveReduce") &&
      (how == SHOAL_REDUCE_SUM || how == SHOAL_REDUCE_MEAN))
    node_set_attr(member.node, ACROSS_ATTR, attr_bool(true));
  return replica_join(r, member);
}

static struct shoal_replica *replica_of(struct across *a) {
  return (shoal_replica *)((char *)a - offsetof(struct shoal_replica, across));
}

shoal_out reduce_across(struct across *a, shoal_out value) {
  return shoal_replica_reduce(replica_of(a), SHOAL_REDUCE_SUM, value);
}

/* TensorFlow's workers do not ask this: there each replica has its own answer. */
shoal_out all_across(struct across *a, shoal_out is) {
  struct shoal_replica *r = replica_of(a);
  if (r->strategy->replicas == 1 || strategy_with_tensorflow(r->strategy)) return is;
  shoal_out fails = build_cast(a->g, build_op1(a->g, "LogicalNot", is), SHOAL_FLOAT32);
  shoal_out sum = shoal_replica_reduce(r, SHOAL_REDUCE_SUM, fails);
  return build_op2(a->g, "Equal", sum, build_const_float(a->g, SHOAL_FLOAT32, 0));
}
