/* Attention with several heads, of single ops, in an order that does not vary (as layer_norm.c says why).
 *
 * Queries are scaled before the product: they are fewer than the scores. A mask is added to the scores. (It was thought
 * of selecting by a bool: that is one more pass over all scores on the way back, where a sum has none.) */
#include <math.h>

#include "base/options.h"
#include "graph/given.h"
#include "shoal/layers.h"
#include "train/layers.h"

/* ---- masks ---- */

/* Far below any score, but finite: a row with nothing to look at gets equal weights, no NaN. float16 has no more. */
static double hidden(shoal_dtype dtype) { return dtype == SHOAL_FLOAT16 ? -60000 : -1e9; }

shoal_out shoal_attention_mask(shoal_graph *g, shoal_dtype dtype, shoal_out may) {
  if (graph_error(g)) return (shoal_out){0};
  return build_op3(g, "SelectV2", may, build_const_float(g, dtype, 0), build_const_float(g, dtype, hidden(dtype)));
}

/* first, first + 1, ...: n of them, as a column or a row. */
static shoal_out counted(struct shoal_graph *g, int64_t first, int64_t n, bool column) {
  shoal_out range = build_op3(g, "Range", build_const_int(g, SHOAL_INT32, first),
                              build_const_int(g, SHOAL_INT32, first + n), build_const_int(g, SHOAL_INT32, 1));
  const int64_t dims[] = {column ? n : 1, column ? 1 : n};
  return build_op2(g, "Reshape", range, build_const_ints(g, SHOAL_INT32, dims, 2));
}

shoal_out shoal_causal_mask(shoal_graph *g, shoal_dtype dtype, int64_t queries, int64_t keys) {
  if (queries < 1 || keys < 1 || queries > INT32_MAX / 2 || keys > INT32_MAX / 2)
    GRAPH_TRY(g, INVALID("shoal_causal_mask: %lld queries, %lld keys", (long long)queries, (long long)keys),
              (shoal_out){0});
  graph_push_scope(g, "causal_mask");
  shoal_out query = counted(g, keys - queries, queries, true), key = counted(g, 0, keys, false);
  shoal_out mask = shoal_attention_mask(g, dtype, build_op2(g, "LessEqual", key, query));
  graph_pop_scope(g);
  return mask;
}

/* ---- heads ---- */

static shoal_out swap_heads(struct shoal_graph *g, shoal_out x) {
  return build_op2(g, "Transpose", x, build_const_ints(g, SHOAL_INT32, (const int64_t[]){0, 2, 1, 3}, 4));
}

/* [batch, time, width] to [batch, heads, time, width / heads]. */
static shoal_out split_heads(struct shoal_graph *g, shoal_out x, int64_t heads) {
  struct shape s = out_shape(x);
  const int64_t dims[] = {s.dims[0], s.dims[1], heads, s.dims[2] / heads};
  return swap_heads(g, build_op2(g, "Reshape", x, build_const_ints(g, SHOAL_INT32, dims, 4)));
}

static shoal_out join_heads(struct shoal_graph *g, shoal_out x, const struct shape *to) {
  return build_op2(g, "Reshape", swap_heads(g, x), build_const_ints(g, SHOAL_INT32, to->dims, 3));
}

static shoal_out product(struct shoal_graph *g, shoal_out a, shoal_out b, bool transpose_b) {
  struct build m = build_begin(g, "BatchMatMulV2", NULL);
  build_in(&m, a);
  build_in(&m, b);
  build_attr_bool(&m, "adj_y", transpose_b);
  return build_end_out(&m);
}

/* ---- attention ---- */

static bool fits(const struct shape *s, int64_t heads) {
  return s->rank == 3 && s->dims[1] > 0 && s->dims[2] > 0 && heads > 0 && s->dims[2] % heads == 0;
}

static shoal_status check(shoal_out queries, shoal_out keys, shoal_out values, int64_t heads) {
  struct shape q = out_shape(queries), k = out_shape(keys), v = out_shape(values);
  if (fits(&q, heads) && fits(&k, heads) && fits(&v, heads) && q.dims[2] == k.dims[2] && k.dims[1] == v.dims[1])
    return NULL;
  return INVALID(
      "shoal_attention of %lld heads takes [batch, time, width] with a known time and a width that is a "
      "multiple of the heads; queries are %s, keys %s, values %s",
      (long long)heads, shape_str(&q), shape_str(&k), shape_str(&v));
}

static shoal_out weigh(struct shoal_graph *g, shoal_out scores, const shoal_attention_options *o) {
  if (o->mask.node) scores = build_op2(g, "AddV2", scores, o->mask);
  shoal_out weights = build_op1(g, "Softmax", scores);
  return shoal_dropout(g, weights, o->dropout, SHOAL_OPTIONS(shoal_dropout_options, .seed = o->drop_seed));
}

shoal_out shoal_attention(shoal_graph *g, shoal_out queries, shoal_out keys, shoal_out values, int64_t heads,
                          const shoal_attention_options *options) {
  shoal_attention_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_attention_options, drop_seed, &o, options), (shoal_out){0});
  if (graph_error(g)) return (shoal_out){0};
  GRAPH_TRY(g, check(queries, keys, values, heads), (shoal_out){0});
  struct shape q = out_shape(queries), v = out_shape(values);
  double scale = 1 / sqrt((double)q.dims[2] / (double)heads);
  graph_push_scope(g, "attention");
  shoal_out scaled = build_op2(g, "Mul", queries, build_const_float(g, out_type(queries), scale));
  shoal_out k = split_heads(g, keys, heads), scores = product(g, split_heads(g, scaled, heads), k, true);
  shoal_out mixed = product(g, weigh(g, scores, &o), split_heads(g, values, heads), false);
  q.dims[2] = v.dims[2];
  shoal_out y = join_heads(g, mixed, &q);
  graph_pop_scope(g);
  return y;
}
