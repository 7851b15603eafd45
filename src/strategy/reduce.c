/* Values of all replicas become one: by collective ops, one on each replica's device, which meet by their keys.
 *
 * The ops are those of TensorFlow's first generation, whose keys are attributes: masters of several tasks tell by them
 * which of their steps belong together. Gathering has no fixed shape, and is of the second.
 *
 * Gradients are put together in buckets, since many small collectives cost more than one, and from the last variable to
 * the first, since backward computes them in that order: a bucket is on its way while others are still being computed.
 * A sum of each element is in the same order wherever it stands, so buckets do not change a bit (docs/algorithms.md;
 * but for groups with TensorFlow's tasks in them). */
#include <string.h>

#include "graph/gradient.h"
#include "strategy/strategy.h"

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

shoal_out reduce_member(struct shoal_graph *g, const struct shoal_strategy *s, int group, int key, shoal_reduction how,
                        shoal_out value) {
  if (!check_reduction(g, how)) return (shoal_out){0};
  int members = group == GROUP_REPLICAS ? s->replicas : s->tasks;
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

shoal_out gather_member(struct shoal_graph *g, const struct shoal_strategy *s, int key, shoal_out value) {
  struct build b = build_begin(g, s->replicas > 1 ? "CollectiveGatherV2" : "Identity", NULL);
  build_in(&b, value);
  if (s->replicas > 1) {
    build_in(&b, build_const_int(g, SHOAL_INT32, s->replicas));
    build_in(&b, build_const_int(g, SHOAL_INT32, GROUP_REPLICAS));
    build_in(&b, build_const_int(g, SHOAL_INT32, key));
  }
  return build_end_out(&b);
}

/* ---- in a replica ---- */

/* The result is used through a node that can be made to wait for the others' (replicas.c): who fetches one replica's
 * runs all of them. */
static shoal_out join(shoal_replica *r, shoal_out member) {
  if (r->strategy->replicas == 1) return member;
  shoal_out result = build_op1(r->maker.g, "Identity", member);
  if (result.node) vec_push(&r->joints, (struct joint){member.node, result.node});
  return result;
}

shoal_out shoal_replica_reduce(shoal_replica *r, shoal_reduction how, shoal_out value) {
  shoal_out member = reduce_member(r->maker.g, r->strategy, GROUP_REPLICAS, r->key++, how, value);
  if (member.node && r->strategy->replicas > 1 && (how == SHOAL_REDUCE_SUM || how == SHOAL_REDUCE_MEAN))
    node_set_attr(member.node, ACROSS_ATTR, attr_bool(true));
  return join(r, member);
}

shoal_out reduce_across(struct across *a, shoal_out value) {
  return shoal_replica_reduce((shoal_replica *)((char *)a - offsetof(struct shoal_replica, across)), SHOAL_REDUCE_SUM,
                              value);
}

shoal_out shoal_replica_gather(shoal_replica *r, shoal_out value) {
  return join(r, gather_member(r->maker.g, r->strategy, r->key++, value));
}

/* ---- gradients ---- */

struct gradient_bucket {
  VEC(int) which; /* gradients, by their place */
  int64_t bytes;
};

/* The gradient of a variable of that shape, as a list of its elements; most biases are one. */
static shoal_out flat(struct shoal_graph *g, shoal_out x, const struct shape *shape) {
  if (shape->rank == 1) return x;
  return build_op2(g, "Reshape", x, build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1}, 1));
}

static shoal_out unflat(struct shoal_graph *g, shoal_out x, const struct shape *shape) {
  if (shape->rank == 1) return x;
  return build_op2(g, "Reshape", x, build_const_ints(g, SHOAL_INT64, shape->dims, shape->rank));
}

static shoal_out concat(struct shoal_graph *g, const shoal_out *parts, int n) {
  struct build b = build_begin(g, "ConcatV2", NULL);
  build_in_list(&b, parts, n);
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  return build_end_out(&b);
}

/* The other way: pieces of these lengths. */
static struct shoal_node *cut(struct shoal_graph *g, shoal_out whole, const int64_t *lengths, int n) {
  struct build b = build_begin(g, "SplitV", NULL);
  build_in(&b, whole);
  build_in(&b, build_const_ints(g, SHOAL_INT64, lengths, n));
  build_in(&b, build_const_int(g, SHOAL_INT32, 0));
  build_attr_int(&b, "num_split", n);
  return build_end(&b);
}

/* Messages of gradients: in the type that was asked for. */
static shoal_out sum_gradients(struct shoal_replica *r, shoal_out value) {
  static const char hint[] = "shoal:bf16";
  const struct shoal_strategy *s = r->strategy;
  shoal_out member = reduce_member(r->maker.g, s, GROUP_REPLICAS, r->key++, s->gradients, value);
  if (member.node && s->messages && s->replicas > 1 && out_type(value) == SHOAL_FLOAT32)
    node_set_attr(member.node, "communication_hint", attr_string(hint, strlen(hint)));
  return member;
}

static void reduce_together(struct shoal_replica *r, const shoal_var *vars, shoal_gradient *grads,
                            const struct gradient_bucket *k) {
  struct shoal_graph *g = r->maker.g;
  int n = (int)k->which.n;
  shoal_out *parts = mem_zalloc((size_t)n, sizeof *parts);
  int64_t *lengths = mem_zalloc((size_t)n, sizeof *lengths);
  for (int i = 0; i < n; i++) {
    struct shape shape = out_shape(vars[k->which.at[i]].value);
    shoal_status_free(shape_elements(&shape, &lengths[i])); /* it is a variable's: there is such a number */
    parts[i] = flat(g, grads[k->which.at[i]].values, &shape);
  }
  shoal_out sum = sum_gradients(r, concat(g, parts, n));
  struct shoal_node *pieces = cut(g, sum, lengths, n);
  for (int i = 0; pieces && i < n; i++) {
    struct shape shape = out_shape(vars[k->which.at[i]].value);
    grads[k->which.at[i]].values = unflat(g, node_out(pieces, i), &shape);
  }
  free(parts);
  free(lengths);
}

static void flush(struct shoal_replica *r, const shoal_var *vars, shoal_gradient *grads, struct gradient_bucket *k) {
  if (k->which.n == 1) {
    shoal_gradient *only = &grads[k->which.at[0]];
    only->values = sum_gradients(r, only->values);
  } else if (k->which.n) reduce_together(r, vars, grads, k);
  vec_clear(&k->which);
  k->bytes = 0;
}

/* Rows of all replicas, one after another. */
static void reduce_sparse(struct shoal_replica *r, shoal_gradient *gr) {
  struct shoal_graph *g = r->maker.g;
  gr->indices = gather_member(g, r->strategy, r->key++, gr->indices);
  gr->values = gather_member(g, r->strategy, r->key++, gr->values);
  if (r->strategy->gradients == SHOAL_REDUCE_MEAN)
    gr->values = build_op2(g, "RealDiv", gr->values, build_const_float(g, out_type(gr->values), r->strategy->replicas));
}

void reduce_gradients(struct variable_maker *m, const shoal_var *vars, shoal_gradient *grads, int n) {
  struct shoal_replica *r = (struct shoal_replica *)m;
  struct gradient_bucket k = {0};
  if (r->strategy->replicas == 1) return;
  graph_push_scope(m->g, "reduce");
  for (int i = n; i-- > 0 && !graph_error(m->g);) {
    if (!grads[i].values.node) continue;
    if (grads[i].indices.node) {
      reduce_sparse(r, &grads[i]);
      continue;
    }
    struct shape shape = out_shape(vars[i].value);
    shoal_dtype dtype = out_type(grads[i].values);
    int64_t elements = 0;
    shoal_status_free(shape_elements(&shape, &elements));
    int64_t bytes = elements * (int64_t)dtype_size(dtype);
    bool other = k.which.n && out_type(grads[k.which.at[0]].values) != dtype;
    if (other || k.bytes + bytes > r->strategy->bucket_bytes) flush(r, vars, grads, &k);
    vec_push(&k.which, i);
    k.bytes += bytes;
  }
  if (!graph_error(m->g)) flush(r, vars, grads, &k);
  graph_pop_scope(m->g);
  vec_release(&k.which);
}
