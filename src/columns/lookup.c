/* What ids become: rows of a table, combined, or counts. As tf.nn.safe_embedding_lookup_sparse has it: ids below 0 are
 * left out, and where nothing is left the row is zero. Each row of the table is asked for once however often it is in
 * the batch: parameter servers send, and get gradients of, distinct rows. */
#include "columns/transform.h"

#include <string.h>

#include "train/variables.h"

static const shoal_out none;

static shoal_out int64_of(struct shoal_graph *g, int64_t v) { return build_const_int(g, SHOAL_INT64, v); }

/* Those of which `keep` says true. */
static struct column_ids retained(struct shoal_graph *g, struct column_ids ids, shoal_out keep) {
  shoal_out at = reshaped(g, build_op1(g, "Where", keep), (const int64_t[]){-1}, 1);
  shoal_out zero = build_const_int(g, SHOAL_INT32, 0);
  ids.indices = build_op3(g, "GatherV2", ids.indices, at, zero);
  ids.values = build_op3(g, "GatherV2", ids.values, at, zero);
  if (ids.weights.node) ids.weights = build_op3(g, "GatherV2", ids.weights, at, zero);
  return ids;
}

/* Rows without any id get id 0 with weight 1; *empty tells which. */
static struct column_ids filled(struct shoal_graph *g, struct column_ids ids, shoal_out *empty) {
  shoal_out indices = ids.indices, fill[2] = {int64_of(g, 0), {0}}, *to[2] = {&ids.values, &ids.weights};
  for (int i = 0; i < (ids.weights.node ? 2 : 1); i++) {
    if (i) fill[1] = build_const_float(g, SHOAL_FLOAT32, 1);
    struct build b = build_begin(g, "SparseFillEmptyRows", NULL);
    build_in(&b, indices);
    build_in(&b, *to[i]);
    build_in(&b, ids.dense_shape);
    build_in(&b, fill[i]);
    struct shoal_node *n = build_end(&b);
    if (!n) return ids;
    ids.indices = node_out(n, 0);
    *to[i] = node_out(n, 1);
    *empty = node_out(n, 2);
  }
  return ids;
}

/* [batch, time, places] to [batch * time, places]. */
static struct column_ids flattened(struct shoal_graph *g, struct column_ids ids) {
  shoal_out rows = vector_product(g, vector_part(g, ids.dense_shape, 0, 2));
  shoal_out places = vector_part(g, ids.dense_shape, 2, 1);
  return ids_reshaped(g, ids, rows, places);
}

/* Rows scaled so that their norm is at most this. */
static shoal_out clipped(struct shoal_graph *g, shoal_out rows, double norm) {
  struct build b = build_begin(g, "Sum", NULL);
  build_in(&b, build_op1(g, "Square", rows));
  build_in(&b, build_const_ints(g, SHOAL_INT32, (const int64_t[]){1}, 1));
  build_attr_bool(&b, "keep_dims", true);
  shoal_out most = build_const_float(g, SHOAL_FLOAT32, norm), length = build_op1(g, "Sqrt", build_end_out(&b));
  return build_op2(g, "RealDiv", build_op2(g, "Mul", rows, most), build_op2(g, "Maximum", length, most));
}

static shoal_out segment_sum(struct shoal_graph *g, shoal_out x, shoal_out segments) {
  return build_op2(g, "SegmentSum", x, segments);
}

/* rows: distinct ones; which: the row of each id. */
static shoal_out combined(struct shoal_graph *g, shoal_out rows, shoal_out which, shoal_out segments, shoal_out weights,
                          const char *combiner) {
  if (!weights.node) {
    const char *op = !strcmp(combiner, "sum")    ? "SparseSegmentSum"
                     : !strcmp(combiner, "mean") ? "SparseSegmentMean"
                                                 : "SparseSegmentSqrtN";
    return build_op3(g, op, rows, which, segments);
  }
  shoal_out each = build_op3(g, "GatherV2", rows, which, build_const_int(g, SHOAL_INT32, 0));
  shoal_out w = reshaped(g, weights, (const int64_t[]){-1, 1}, 2);
  shoal_out sum = segment_sum(g, build_op2(g, "Mul", each, w), segments);
  if (!strcmp(combiner, "sum")) return sum;
  if (!strcmp(combiner, "mean")) return build_op2(g, "RealDiv", sum, segment_sum(g, w, segments));
  return build_op2(g, "RealDiv", sum, build_op1(g, "Sqrt", segment_sum(g, build_op1(g, "Square", w), segments)));
}

/* In a replica whose gradients are reduced with others', they must be of one shape in all: a product with 1 makes them
 * dense, since each replica's batch has another number of distinct rows. */
static shoal_out table_rows(struct shoal_graph *g, const shoal_partitioned *table, shoal_out ids) {
  const struct variable_maker *m = variable_maker_on(g);
  if (!m || !m->reduce) return shoal_embedding_lookup(g, table->parts, table->n, ids, "div");
  shoal_out all = build_op2(g, "Mul", shoal_partitioned_value(g, table), build_const_float(g, SHOAL_FLOAT32, 1));
  return build_op3(g, "GatherV2", all, ids, build_const_int(g, SHOAL_INT32, 0));
}

shoal_out ids_lookup(struct shoal_graph *g, const shoal_partitioned *table, struct column_ids ids, const char *combiner,
                     double max_norm) {
  if (graph_error(g) || !table->n) return none;
  shoal_out shape = ids.dense_shape, empty = none;
  int64_t width = out_shape(table->parts[0].value).dims[1];
  bool sequence = ids.sequence;
  if (sequence) ids = flattened(g, ids);
  ids = retained(g, ids, build_op2(g, "GreaterEqual", ids.values, int64_of(g, 0)));
  if (ids.weights.node && strcmp(combiner, "sum"))
    ids = retained(g, ids, build_op2(g, "Greater", ids.weights, build_const_float(g, SHOAL_FLOAT32, 0)));
  ids = filled(g, ids, &empty);
  struct build b = build_begin(g, "Unique", NULL);
  build_in(&b, ids.values);
  struct shoal_node *unique = build_end(&b);
  if (!unique) return none;
  shoal_out rows = table_rows(g, table, node_out(unique, 0));
  if (max_norm > 0) rows = clipped(g, rows, max_norm);
  shoal_out segments = build_cast(g, column_at(g, ids.indices, 0), SHOAL_INT32);
  shoal_out found = combined(g, rows, node_out(unique, 1), segments, ids.weights, combiner);
  shoal_out zero = build_op1(g, "ZerosLike", found);
  found = build_op3(g, "SelectV2", reshaped(g, empty, (const int64_t[]){-1, 1}, 2), zero, found);
  if (!sequence) return reshaped(g, found, (const int64_t[]){-1, width}, 2);
  const shoal_out back[] = {build_cast(g, vector_part(g, shape, 0, 2), SHOAL_INT32),
                            build_const_ints(g, SHOAL_INT32, &width, 1)};
  return build_op2(g, "Reshape", found, vectors_joined(g, back, 2, 0));
}

/* ---- counts ---- */

static shoal_out one_hot(struct shoal_graph *g, shoal_out ids, int64_t depth) {
  struct build b = build_begin(g, "OneHot", NULL);
  build_in(&b, ids);
  build_in(&b, build_const_int(g, SHOAL_INT32, depth));
  build_in(&b, build_const_float(g, SHOAL_FLOAT32, 1));
  build_in(&b, build_const_float(g, SHOAL_FLOAT32, 0));
  return build_end_out(&b);
}

/* Weights of the same id in the same row are added. */
static shoal_out weights_count(struct shoal_graph *g, struct column_ids ids, int64_t buckets) {
  shoal_out inside = build_op2(g, "LogicalAnd", build_op2(g, "GreaterEqual", ids.values, int64_of(g, 0)),
                               build_op2(g, "Less", ids.values, int64_of(g, buckets)));
  ids = retained(g, ids, inside);
  struct build p = build_begin(g, "Pack", NULL);
  build_in(&p, column_at(g, ids.indices, 0));
  build_in(&p, ids.values);
  build_attr_int(&p, "N", 2);
  build_attr_int(&p, "axis", 1);
  const shoal_out shape[] = {vector_part(g, ids.dense_shape, 0, 1), build_const_ints(g, SHOAL_INT64, &buckets, 1)};
  return build_op3(g, "ScatterNd", build_end_out(&p), ids.weights, vectors_joined(g, shape, 2, 0));
}

shoal_out ids_count(struct shoal_graph *g, struct column_ids ids, int64_t buckets) {
  if (graph_error(g)) return none;
  if (ids.weights.node && ids.sequence) {
    graph_fail(g, UNIMPLEMENTED("an indicator column of a sequence with weights"));
    return none;
  }
  if (ids.weights.node) return weights_count(g, ids, buckets);
  struct build b = build_begin(g, "SparseToDense", NULL);
  build_in(&b, ids.indices);
  build_in(&b, ids.dense_shape);
  build_in(&b, ids.values);
  build_in(&b, int64_of(g, -1));
  return build_op2(g, "Sum", one_hot(g, build_end_out(&b), buckets),
                   build_const_ints(g, SHOAL_INT32, (const int64_t[]){-2}, 1));
}

shoal_out ids_lengths(struct shoal_graph *g, shoal_out indices, shoal_out dense_shape, int64_t group) {
  shoal_out last = build_op2(g, "AddV2", column_at(g, indices, 1), int64_of(g, 1));
  shoal_out most = build_op2(g, "SegmentMax", last, column_at(g, indices, 0));
  if (group > 1)
    most = build_op2(g, "FloorDiv", build_op2(g, "AddV2", most, int64_of(g, group - 1)), int64_of(g, group));
  shoal_out missing = build_op2(g, "Sub", vector_part(g, dense_shape, 0, 1), shape_as_int64(g, most));
  const shoal_out parts[] = {most, build_op2(g, "Fill", missing, int64_of(g, 0))};
  return vectors_joined(g, parts, 2, 0);
}
