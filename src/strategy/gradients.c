/* Gradients of all replicas become one, before they are applied.
 *
 * They are put together in buckets, since many small collectives cost more than one, and from the last variable to the
 * first, since backward computes them in that order: a bucket is on its way while others are still being computed. A
 * sum of each element is in the same order wherever it stands, so buckets do not change a bit (docs/algorithms.md; but
 * for groups with TensorFlow's tasks in them).
 *
 * What becomes of a bucket is one of two things: all replicas get its sum, here; or each its own piece, and variables
 * are made whole again after they were changed (shards.c). */
#include <string.h>

#include "graph/gradient.h"
#include "strategy/strategy.h"
#include "train/pieces.h"

int64_t variable_elements(shoal_var v) {
  struct shape shape = out_shape(v.value);
  int64_t n = 0;
  shoal_status_free(shape_elements(&shape, &n)); /* it is a variable's: there is such a number */
  return n;
}

struct shoal_node *cut_list(struct shoal_graph *g, shoal_out whole, const int64_t *lengths, int n, int axis) {
  struct build b = build_begin(g, "SplitV", NULL);
  build_in(&b, whole);
  build_in(&b, build_const_ints(g, SHOAL_INT64, lengths, n));
  build_in(&b, build_const_int(g, SHOAL_INT32, axis));
  build_attr_int(&b, "num_split", n);
  return build_end(&b);
}

/* Messages of gradients: in the type that was asked for. */
static shoal_out sum_gradients(struct shoal_replica *r, shoal_out value) {
  static const char hint[] = "shoal:bf16";
  struct shoal_strategy *s = r->strategy;
  shoal_out member = reduce_member(r->maker.g, s, GROUP_REPLICAS, r->key++, s->gradients, value);
  if (member.node && s->messages && s->replicas > 1 && out_type(value) == SHOAL_FLOAT32)
    node_set_attr(member.node, "communication_hint", attr_string(hint, strlen(hint)));
  return member;
}

static void reduce_together(struct shoal_replica *r, const struct gradient_bucket *k, struct replica_gradients *all) {
  struct shoal_graph *g = r->maker.g;
  int n = (int)k->which.n;
  shoal_out *parts = mem_zalloc((size_t)n, sizeof *parts);
  int64_t *lengths = mem_zalloc((size_t)n, sizeof *lengths);
  for (int i = 0; i < n; i++) {
    int at = k->which.at[i];
    lengths[i] = variable_elements(all->vars[at]);
    parts[i] = out_shape(all->vars[at].value).rank == 1 ? all->grads[at].values : flat_of(g, all->grads[at].values);
  }
  shoal_out sum = sum_gradients(r, flat_join(g, parts, n, 0));
  struct shoal_node *pieces = cut_list(g, sum, lengths, n, 0);
  for (int i = 0; pieces && i < n; i++) {
    struct shape shape = out_shape(all->vars[k->which.at[i]].value);
    shoal_out piece = node_out(pieces, i);
    all->grads[k->which.at[i]].values = shape.rank == 1 ? piece : flat_shaped(g, piece, &shape);
  }
  free(parts);
  free(lengths);
}

static void reduce_bucket(struct shoal_replica *r, const struct gradient_bucket *k, struct replica_gradients *all) {
  if (k->which.n == 1) {
    shoal_gradient *only = &all->grads[k->which.at[0]];
    only->values = sum_gradients(r, only->values);
  } else reduce_together(r, k, all);
}

/* Rows of all replicas, one after another. */
static void reduce_sparse(struct shoal_replica *r, shoal_gradient *gr) {
  struct shoal_graph *g = r->maker.g;
  shoal_out lengths = gather_lengths(r, gr->indices);
  gr->indices = gather_values(g, r->strategy, r->key++, gr->indices, lengths);
  gr->values = gather_values(g, r->strategy, r->key++, gr->values, lengths);
  if (r->strategy->gradients == SHOAL_REDUCE_MEAN)
    gr->values = build_op2(g, "RealDiv", gr->values, build_const_float(g, out_type(gr->values), r->strategy->replicas));
}

static void flush(struct shoal_replica *r, struct gradient_bucket *k, struct replica_gradients *all) {
  if (!k->which.n) return;
  if (!strategy_shards(r->strategy)) reduce_bucket(r, k, all);
  else shard_bucket(r, k, all);
  k->which.n = 0;
  k->bytes = 0;
}

/* Is it of another kind than what is in the bucket, or too much for it? A pack of TensorFlow's is full when it has more
 * than it should. */
static bool is_full(const struct shoal_strategy *s, const struct gradient_bucket *k,
                    const struct replica_gradients *all, shoal_dtype dtype, int64_t bytes) {
  bool other = k->which.n && out_type(all->grads[k->which.at[0]].values) != dtype;
  if (other || s->tensorflow == SHOAL_TENSORFLOW_EACH) return true;
  if (s->tensorflow) return s->bucket_bytes && k->bytes > s->bucket_bytes;
  return k->bytes + bytes > s->bucket_bytes;
}

void reduce_gradients(struct variable_maker *m, const shoal_var *vars, shoal_gradient *grads, shoal_var *changed,
                      int n) {
  struct shoal_replica *r = (struct shoal_replica *)m;
  struct replica_gradients all = {vars, grads, changed};
  struct gradient_bucket k = {0};
  if (r->strategy->replicas == 1) return;
  r->strategy->keras_rate = m->rate;
  r->strategy->keras_has_state = m->keeps;
  graph_push_scope(m->g, "reduce");
  for (int i = n; i-- > 0 && !graph_error(m->g);) {
    if (!grads[i].values.node) continue;
    if (grads[i].indices.node) {
      reduce_sparse(r, &grads[i]);
      if (strategy_shards(r->strategy) && m->moves_all) shard_rows(r, i, &all);
      else if (strategy_shards(r->strategy) && m->keeps) shard_looked_up(r, i, &all);
      continue;
    }
    shoal_dtype dtype = out_type(grads[i].values);
    int64_t bytes = variable_elements(vars[i]) * (int64_t)dtype_size(dtype);
    if (is_full(r->strategy, &k, &all, dtype, bytes)) flush(r, &k, &all);
    vec_push(&k.which, i);
    k.bytes += bytes;
  }
  if (!graph_error(m->g)) flush(r, &k, &all);
  graph_pop_scope(m->g);
  vec_release(&k.which);
}
