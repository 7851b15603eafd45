/* Elements put together and taken apart again. */
#include <string.h>

#include "base/options.h"
#include "feed/order.h"
#include "graph/given.h"
#include "shoal/layers.h"

static const shoal_out none;

static shoal_status check_rows(const char *caller, int64_t rows) {
  return rows > 0 ? NULL : INVALID("%s: a batch of %lld elements", caller, (long long)rows);
}

static void batch_shapes(struct feed_element *e, int64_t rows, bool drop) {
  for (int i = 0; i < e->n; i++) e->shapes[i] = shape_batched(&e->shapes[i], drop ? rows : -1);
}

shoal_out shoal_dataset_batch(shoal_graph *g, shoal_out d, int64_t rows, bool drop_remainder) {
  struct feed_element e;
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  GRAPH_TRY(g, check_rows(__func__, rows), none);
  batch_shapes(&e, rows, drop_remainder);
  struct build b = dataset_begin(g, "BatchDatasetV2", d);
  build_in(&b, build_const_int(g, SHOAL_INT64, rows));
  build_in(&b, shoal_constant_bool(g, drop_remainder));
  return dataset_end(&b, &e);
}

shoal_out shoal_dataset_unbatch(shoal_graph *g, shoal_out d) {
  struct feed_element e;
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  for (int i = 0; i < e.n; i++) {
    if (e.shapes[i].rank == 0) GRAPH_TRY(g, INVALID("%s: component %d has no rows", __func__, i), none);
    e.shapes[i] = shape_row(&e.shapes[i]);
  }
  struct build b = dataset_begin(g, "UnbatchDataset", d);
  return dataset_end(&b, &e);
}

/* ---- padded ---- */

/* What component i is padded to: as asked for, or all that is known of it. */
static shoal_status padded_shape(const char *caller, const struct feed_padding *p, int i, const struct shape *have,
                                 struct shape *out) {
  *out = *have;
  if (p->shapes) TRY(element_shape(p->shapes[i], out));
  if (out->rank < 0)
    return INVALID("%s: how many dimensions component %d has is not known: say which shape it is to have", caller, i);
  if (have->rank >= 0 && have->rank != out->rank)
    return INVALID("%s: component %d has %d dimensions, and is to be padded to %d", caller, i, have->rank, out->rank);
  return NULL;
}

static shoal_out zero_of(struct shoal_graph *g, shoal_dtype type) {
  if (type == SHOAL_STRING) return shoal_constant_string(g, "");
  return type == SHOAL_BOOL ? shoal_constant_bool(g, false) : shoal_constant_of(g, type, 0);
}

shoal_out feed_padded_batch(struct shoal_graph *g, const char *caller, shoal_out d, shoal_out rows, int64_t known,
                            const struct feed_padding *p) {
  struct feed_element e;
  struct shape to[SHOAL_MAX_COMPONENTS];
  GRAPH_TRY(g, element_of(caller, d, &e), none);
  for (int i = 0; i < e.n; i++) GRAPH_TRY(g, padded_shape(caller, p, i, &e.shapes[i], &to[i]), none);
  struct build b = dataset_begin(g, "PaddedBatchDatasetV2", d);
  build_in(&b, rows);
  for (int i = 0; i < e.n; i++) build_in(&b, build_const_ints(g, SHOAL_INT64, to[i].dims, to[i].rank));
  for (int i = 0; i < e.n; i++) build_in(&b, p->values && p->values[i].node ? p->values[i] : zero_of(g, e.types[i]));
  build_in(&b, shoal_constant_bool(g, p->drop_remainder));
  build_attr_int(&b, "N", e.n);
  memcpy(e.shapes, to, (size_t)e.n * sizeof *to);
  batch_shapes(&e, known, p->drop_remainder);
  build_attr_types(&b, "Toutput_types", e.types, e.n);
  return dataset_end_shapes(&b, &e);
}

shoal_out shoal_dataset_padded_batch(shoal_graph *g, shoal_out d, int64_t rows, const shoal_padded_options *options) {
  shoal_padded_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_padded_options, drop_remainder, &o, options), none);
  GRAPH_TRY(g, check_rows(__func__, rows), none);
  struct feed_padding p = {o.shapes, o.values, o.drop_remainder};
  return feed_padded_batch(g, __func__, d, build_const_int(g, SHOAL_INT64, rows), rows, &p);
}

/* ---- ragged ----
 *
 * Each tensor travels through the batch as a variant, and what comes out is taken apart: as tf.data does it. */

static shoal_out to_variant(struct shoal_graph *f, shoal_out x) {
  struct build b = build_begin(f, "RaggedTensorToVariant", NULL);
  build_in(&b, x);
  build_attr_int(&b, "RAGGED_RANK", 0);
  build_attr_bool(&b, "batched_input", false);
  return build_end_out(&b);
}

static void from_variant(struct shoal_graph *f, shoal_out x, shoal_dtype type) {
  struct build b = build_begin(f, "RaggedTensorFromVariant", NULL);
  build_in(&b, x);
  build_attr_int(&b, "input_ragged_rank", 0);
  build_attr_int(&b, "output_ragged_rank", 1);
  build_attr_type(&b, "Tvalues", type);
  struct shoal_node *n = build_end(&b);
  shoal_function_output(f, node_out(n, 1), "values");
  shoal_function_output(f, node_out(n, 0), "row_splits");
}

shoal_out shoal_dataset_ragged_batch(shoal_graph *g, shoal_out d, int64_t rows, bool drop_remainder) {
  struct feed_element e;
  shoal_out in[SHOAL_MAX_COMPONENTS];
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  GRAPH_TRY(g, check_rows(__func__, rows), none);
  shoal_graph *f = shoal_dataset_function(g, d, NULL, in, e.n);
  for (int i = 0; i < e.n; i++) shoal_function_output(f, e.shapes[i].rank ? to_variant(f, in[i]) : in[i], NULL);
  d = shoal_dataset_map(g, d, shoal_function_end(f), NULL);
  d = shoal_dataset_batch(g, d, rows, drop_remainder);
  f = shoal_dataset_function(g, d, NULL, in, e.n);
  for (int i = 0; i < e.n; i++)
    if (e.shapes[i].rank) from_variant(f, in[i], e.types[i]);
    else shoal_function_output(f, in[i], NULL);
  return shoal_dataset_map(g, d, shoal_function_end(f), NULL);
}
