/* Embeddings: rows of tables for words and for places, and a table's rows as the weights of the last layer.
 *
 * Rows are gathered from the variable itself, not from its value, so that the gradient is of the rows that were asked
 * for. Where the same table makes the logits, that gradient is dense, and the sum of both is. Tables stay float32
 * beside half-precision activations: of a gather the result is rounded, of a product the table. */
#include "graph/given.h"
#include "shoal/layers.h"
#include "shoal/replicate.h"
#include "train/layers.h"

shoal_out shoal_embedding(shoal_graph *g, shoal_var table, shoal_out ids, shoal_dtype dtype) {
  shoal_out rows = shoal_embedding_lookup(g, &table, 1, ids, "div");
  return graph_error(g) ? rows : build_cast(g, rows, dtype);
}

/* The first n rows; all of them where there are no more. */
static shoal_out first_rows(struct shoal_graph *g, shoal_out table, int64_t n) {
  struct shape s = out_shape(table);
  if (s.dims[0] == n) return table;
  const int64_t size[] = {n, s.dims[1]};
  return build_op3(g, "Slice", table, build_const_ints(g, SHOAL_INT32, (const int64_t[]){0, 0}, 2),
                   build_const_ints(g, SHOAL_INT32, size, 2));
}

shoal_out shoal_position_embedding(shoal_graph *g, shoal_out x, shoal_var table) {
  struct shape s = out_shape(x), t = out_shape(table.value);
  if (graph_error(g)) return (shoal_out){0};
  if (s.rank != 3 || s.dims[1] < 0 || t.rank != 2 || s.dims[1] > t.dims[0] || s.dims[2] != t.dims[1]) {
    graph_fail(g, INVALID("shoal_position_embedding takes [batch, time, width] and a table of at least as many rows as "
                          "time has, which is known; these are %s and %s",
                          shape_str(&s), shape_str(&t)));
    return (shoal_out){0};
  }
  return build_op2(g, "AddV2", x, build_cast(g, first_rows(g, table.value, s.dims[1]), out_type(x)));
}

shoal_out shoal_embedding_logits(shoal_graph *g, shoal_out x, shoal_var table) {
  layer_last_dim(g, x, 2, "shoal_embedding_logits");
  if (graph_error(g)) return (shoal_out){0};
  struct build b = build_begin(g, "MatMul", NULL);
  build_in(&b, layer_to_rows(g, x));
  build_in(&b, build_cast(g, table.value, out_type(x)));
  build_attr_bool(&b, "transpose_b", true);
  return layer_from_rows(g, build_end_out(&b), x);
}
