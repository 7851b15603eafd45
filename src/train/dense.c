/* Dense layers over the last dimension of what has any rank: rows of all dimensions before it become those of one
 * product, and are put back behind it. Neither moves anything in memory. */
#include "base/options.h"
#include "graph/given.h"
#include "shoal/layers.h"
#include "train/layers.h"

/* ---- rows ---- */

int64_t layer_last_dim(struct shoal_graph *g, shoal_out x, int least, const char *layer) {
  struct shape s = out_shape(x);
  if (graph_error(g)) return 1;
  int64_t last = s.rank < least ? -1 : s.dims[s.rank - 1];
  if (last > 0) return last;
  graph_fail(g, INVALID("%s takes a tensor of rank %d or more whose last dimension is known; this one has %s", layer,
                        least, shape_str(&s)));
  return 1;
}

int64_t layer_check(struct shoal_graph *g, shoal_out x, int rank, const char *layer) {
  struct shape s = out_shape(x);
  if (graph_error(g)) return 1;
  if (s.rank == rank && s.dims[rank - 1] > 0) return s.dims[rank - 1];
  graph_fail(g, INVALID("%s takes a tensor of rank %d whose last dimension is known; this one has %s", layer, rank,
                        shape_str(&s)));
  return 1;
}

shoal_out layer_to_rows(struct shoal_graph *g, shoal_out x) {
  struct shape s = out_shape(x);
  if (graph_error(g) || s.rank == 2) return x;
  const int64_t dims[] = {-1, s.dims[s.rank - 1]};
  return build_op2(g, "Reshape", x, build_const_ints(g, SHOAL_INT32, dims, 2));
}

shoal_out layer_from_rows(struct shoal_graph *g, shoal_out y, shoal_out x) {
  struct shape s = out_shape(x), rows = out_shape(y);
  if (graph_error(g) || s.rank == 2) return y;
  int unknown = 0;
  for (int i = 0; i < s.rank - 1; i++) unknown += s.dims[i] < 0;
  if (unknown > 1) {
    graph_fail(g, INVALID("a layer takes a tensor with at most one unknown dimension; this one has %s", shape_str(&s)));
    return (shoal_out){0};
  }
  s.dims[s.rank - 1] = rows.dims[1];
  return build_op2(g, "Reshape", y, build_const_ints(g, SHOAL_INT32, s.dims, s.rank));
}

/* ---- the layer ---- */

static shoal_out make_kernel(shoal_graph *g, const shoal_dense_options *o, shoal_dtype dtype, int64_t in,
                             int64_t units) {
  int64_t dims[SHOAL_MAX_RANK];
  int rank = 0;
  while (rank < (int)o->leading) dims[rank++] = 1;
  dims[rank++] = in;
  dims[rank++] = units;
  shoal_dims shape = {rank, dims};
  shoal_dtype kept = layer_kept_type(dtype);
  shoal_out initial =
      o->stddev > 0 ? shoal_init_normal(g, kept, shape, 0, o->stddev) : shoal_init_glorot_uniform(g, kept, shape);
  shoal_out kernel = shoal_variable(g, o->kernel ? o->kernel : "kernel", initial).value;
  if (o->leading) kernel = build_op2(g, "Reshape", kernel, build_const_ints(g, SHOAL_INT32, dims + rank - 2, 2));
  return build_cast(g, kernel, dtype);
}

static shoal_out make_bias(shoal_graph *g, const shoal_dense_options *o, shoal_dtype dtype, int64_t units) {
  shoal_out zeros = shoal_init_zeros(g, layer_kept_type(dtype), SHOAL_SHAPE(units));
  return build_cast(g, shoal_variable(g, o->bias ? o->bias : "bias", zeros).value, dtype);
}

shoal_out shoal_dense_with(shoal_graph *g, shoal_out x, int64_t units, const char *name,
                           const shoal_dense_options *options) {
  shoal_dense_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_dense_options, no_bias, &o, options), (shoal_out){0});
  if (o.leading < 0 || o.leading > SHOAL_MAX_RANK - 2 || !(o.stddev >= 0))
    graph_fail(g, INVALID("shoal_dense_with: leading %lld, stddev %g", (long long)o.leading, o.stddev));
  int64_t in = layer_last_dim(g, x, 2, "shoal_dense_with");
  shoal_dtype dtype = out_type(x);
  shoal_push_scope(g, name ? name : "dense");
  shoal_out kernel = make_kernel(g, &o, dtype, in, units);
  shoal_out y = build_op2(g, "MatMul", layer_to_rows(g, x), kernel);
  if (!o.no_bias) y = build_op2(g, "BiasAdd", y, make_bias(g, &o, dtype, units));
  y = layer_from_rows(g, y, x);
  shoal_pop_scope(g);
  return y;
}
