/* Dropout, as tf.nn.dropout draws it: what is kept is where a uniform number is at least the rate.
 *
 * Numbers of a random op depend on how many steps its session has run: a run that goes on from a checkpoint draws
 * others than the one that was not interrupted. With a seed of the step they are a function of it, and of which
 * dropout of the graph it is: the number of nodes before it, the same whenever a program builds its graph; in a copy
 * of a model its place among those of the copy, and which copy it is (graph/across.h). */
#include "base/options.h"
#include "graph/across.h"
#include "graph/given.h"
#include "shoal/layers.h"
#include "train/layers.h"

/* Of x's shape, in [0, 1). */
static shoal_out by_op(struct shoal_graph *g, shoal_out shape, shoal_dtype dtype) {
  int64_t seed, seed2;
  graph_next_seeds(g, &seed, &seed2);
  struct build b = build_begin(g, "RandomUniform", NULL);
  build_in(&b, shape);
  build_attr_int(&b, "seed", seed);
  build_attr_int(&b, "seed2", seed2);
  build_attr_type(&b, "dtype", dtype);
  return build_end_out(&b);
}

static shoal_out by_seed(struct shoal_graph *g, shoal_out shape, shoal_dtype dtype, shoal_out seed) {
  struct across *a = across_on(g);
  const int64_t own[] = {a ? across_layer(a) : g->n_nodes, 0};
  shoal_out shift = build_const_ints(g, SHOAL_INT64, own, 2);
  struct build b = build_begin(g, "StatelessRandomUniform", NULL);
  build_in(&b, shape);
  build_in(&b, build_op2(g, "AddV2", build_cast(g, seed, SHOAL_INT64), shift));
  build_attr_type(&b, "dtype", dtype);
  return build_end_out(&b);
}

/* A constant where it is known. */
static shoal_out shape_of(struct shoal_graph *g, shoal_out x) {
  struct shape s = out_shape(x);
  bool known = s.rank >= 0;
  for (int i = 0; i < s.rank; i++) known = known && s.dims[i] >= 0;
  return known ? build_const_ints(g, SHOAL_INT32, s.dims, s.rank) : build_op1(g, "Shape", x);
}

shoal_out shoal_dropout(shoal_graph *g, shoal_out x, double rate, const shoal_dropout_options *options) {
  shoal_dropout_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_dropout_options, seed, &o, options), (shoal_out){0});
  if (!(rate >= 0 && rate < 1))
    GRAPH_TRY(g, INVALID("shoal_dropout: rate %g; it is at least 0 and below 1", rate), (shoal_out){0});
  if (graph_error(g) || rate == 0) return x;
  shoal_dtype dtype = out_type(x), drawn = layer_kept_type(dtype);
  graph_push_scope(g, "dropout");
  shoal_out shape = shape_of(g, x), u = o.seed.node ? by_seed(g, shape, drawn, o.seed) : by_op(g, shape, drawn);
  shoal_out kept = build_op2(g, "GreaterEqual", u, build_const_float(g, drawn, rate));
  shoal_out grown = build_op2(g, "Mul", x, build_const_float(g, dtype, 1 / (1 - rate)));
  shoal_out y = build_op2(g, "Mul", grown, build_cast(g, kept, dtype));
  graph_pop_scope(g);
  return y;
}
