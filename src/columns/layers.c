/* Columns as layers: side by side for a network, as a weighted sum for a linear model, as sequences. Variables have the
 * names that TensorFlow's input_layer, linear_model and Estimators give them: SCOPE/COLUMN/embedding_weights,
 * SCOPE/COLUMN/weights, SCOPE/bias_weights. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "columns/transform.h"
#include "graph/given.h"

static const shoal_out none;

/* ---- variables ---- */

/* Scopes have letters, digits and _.- alone. */
static void push_column_scope(struct shoal_graph *g, const char *name) {
  char *scope = mem_strdup(name);
  for (char *at = scope; *at; at++)
    if (!isalnum((unsigned char)*at) && !strchr("_.-", *at)) *at = '_';
  graph_push_scope(g, scope);
  free(scope);
}

static shoal_out zeros(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg) {
  return shoal_init_zeros(g, dtype, shape);
}
static shoal_out drawn(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg) {
  return shoal_init_truncated_normal(g, dtype, shape, 0, *(const double *)arg);
}

/* In parts where there is a partitioner, else whole; for the caller to free. */
static shoal_partitioned make_variable(struct transform *t, const char *name, shoal_dims shape, bool untrained,
                                       shoal_part_init *init, void *arg) {
  if (t->partitioner && !untrained)
    return shoal_partitioned_variable(t->g, name, SHOAL_FLOAT32, shape, t->partitioner, init, arg);
  shoal_partitioned whole = {.parts = mem_zalloc(1, sizeof(shoal_var)), .n = 1};
  shoal_out initial = init(t->g, SHOAL_FLOAT32, shape, arg);
  whole.parts[0] = untrained ? shoal_variable_untrained(t->g, name, initial) : shoal_variable(t->g, name, initial);
  return whole;
}

static shoal_partitioned make_table(struct transform *t, const struct shoal_column *c) {
  double stddev = c->stddev;
  return make_variable(t, "embedding_weights", SHOAL_SHAPE(c->buckets, c->dimension), c->untrained, drawn, &stddev);
}

static shoal_out embedded(struct transform *t, const struct shoal_column *c) {
  struct column_ids ids = transform_ids(t, c->of[0]);
  if (graph_error(t->g)) return none;
  if (!c->table) {
    push_column_scope(t->g, c->name);
    shoal_partitioned own = make_table(t, c);
    shoal_out rows = ids_lookup(t->g, &own, ids, c->combiner, c->max_norm);
    graph_pop_scope(t->g);
    shoal_partitioned_free(&own);
    return rows;
  }
  size_t i = 0;
  while (i < t->tables.n && strcmp(t->tables.at[i].name, c->table)) i++;
  if (i == t->tables.n) {
    push_column_scope(t->g, c->table);
    vec_push(&t->tables, (struct made_table){c->table, make_table(t, c)});
    graph_pop_scope(t->g);
  }
  return ids_lookup(t->g, &t->tables.at[i].table, ids, c->combiner, c->max_norm);
}

/* ---- one column ---- */

static shoal_out range_marks(struct transform *t, const struct shoal_column *c) {
  struct build b = build_begin(t->g, "OneHot", NULL);
  build_in(&b, transform_buckets(t, c));
  build_in(&b, build_const_int(t->g, SHOAL_INT32, c->n_bounds + 1));
  build_in(&b, build_const_float(t->g, SHOAL_FLOAT32, 1));
  build_in(&b, build_const_float(t->g, SHOAL_FLOAT32, 0));
  return build_end_out(&b);
}

static shoal_out dense_column(struct transform *t, const struct shoal_column *c) {
  int64_t width = c->elements;
  shoal_out x = none;
  if (column_is_sequence(c))
    graph_fail(t->g, INVALID("%s: '%s' is a sequence: shoal_sequence_input_layer takes those", t->caller, c->name));
  else if (c->kind == COLUMN_NUMERIC) return transform_numeric(t, c);
  else if (c->kind == COLUMN_EMBEDDING) return embedded(t, c);
  else if (c->kind == COLUMN_INDICATOR) x = ids_count(t->g, transform_ids(t, c->of[0]), width);
  else if (c->kind == COLUMN_BUCKETIZED) {
    x = range_marks(t, c);
    width = c->buckets;
  } else
    graph_fail(t->g, INVALID("%s: '%s' is %s: it is to be in an indicator or an embedding column", t->caller, c->name,
                             column_kind_name(c)));
  return graph_error(t->g) ? none : reshaped(t->g, x, (const int64_t[]){-1, width}, 2);
}

/* What every layer begins with. */
static shoal_status begin(struct transform *t, const shoal_column_layer_options *given, shoal_column_layer_options *o,
                          const shoal_column *const *columns, int n_columns, const struct shoal_column ***sorted) {
  TRY(OPTIONS_TAKE(shoal_column_layer_options, combiner, o, given));
  TRY(given_array(t->caller, "features", t->features, t->n));
  for (int i = 0; i < t->n; i++)
    if (!t->features[i].name || !t->features[i].values.node)
      return INVALID("%s: feature %d has no %s", t->caller, i, t->features[i].name ? "values" : "name");
  t->partitioner = o->partitioner;
  return columns_sorted(t->caller, columns, n_columns, sorted);
}

shoal_out shoal_input_layer(shoal_graph *g, const shoal_named_feature *features, int n,
                            const shoal_column *const *columns, int n_columns,
                            const shoal_column_layer_options *options) {
  shoal_column_layer_options o = {0};
  struct transform t = {.g = g, .caller = __func__, .features = features, .n = n};
  const struct shoal_column **sorted;
  GRAPH_TRY(g, begin(&t, options, &o, columns, n_columns, &sorted), none);
  shoal_out *parts = mem_zalloc((size_t)n_columns, sizeof *parts), all = none;
  graph_push_scope(g, o.scope ? o.scope : "input_layer");
  for (int i = 0; i < n_columns && !graph_error(g); i++) parts[i] = dense_column(&t, sorted[i]);
  if (!graph_error(g)) all = n_columns > 1 ? vectors_joined(g, parts, n_columns, 1) : parts[0];
  graph_pop_scope(g);
  free(parts);
  free(sorted);
  transform_release(&t);
  return all;
}

/* ---- linear models ---- */

static shoal_out weighted_sum(struct transform *t, const struct shoal_column *c, int64_t units, const char *combiner) {
  bool ids = column_is_category(c) && c->kind != COLUMN_SEQUENCE;
  shoal_out x = none, sum = none;
  struct column_ids category = {0};
  if (ids) category = transform_ids(t, c);
  else if (c->kind == COLUMN_SEQUENCE || c->kind == COLUMN_FEATURE)
    graph_fail(t->g, INVALID("%s: '%s' is %s", t->caller, c->name, column_kind_name(c)));
  else x = dense_column(t, c);
  if (graph_error(t->g)) return none;
  push_column_scope(t->g, c->name);
  shoal_partitioned w =
      make_variable(t, "weights", SHOAL_SHAPE(ids ? c->buckets : c->elements, units), false, zeros, NULL);
  if (ids) sum = ids_lookup(t->g, &w, category, combiner, 0);
  else sum = build_op2(t->g, "MatMul", x, shoal_partitioned_value(t->g, &w));
  shoal_partitioned_free(&w);
  graph_pop_scope(t->g);
  return sum;
}

static shoal_out with_bias(struct transform *t, const shoal_out *sums, int n, int64_t units) {
  shoal_out sum = sums[0];
  if (n > 1) {
    struct build b = build_begin(t->g, "AddN", NULL);
    build_in_list(&b, sums, n);
    build_attr_int(&b, "N", n);
    sum = build_end_out(&b);
  }
  shoal_partitioned bias = make_variable(t, "bias_weights", SHOAL_SHAPE(units), false, zeros, NULL);
  sum = build_op2(t->g, "BiasAdd", sum, shoal_partitioned_value(t->g, &bias));
  shoal_partitioned_free(&bias);
  return sum;
}

shoal_out shoal_linear_model(shoal_graph *g, const shoal_named_feature *features, int n,
                             const shoal_column *const *columns, int n_columns,
                             const shoal_column_layer_options *options) {
  shoal_column_layer_options o = {0};
  struct transform t = {.g = g, .caller = __func__, .features = features, .n = n};
  const struct shoal_column **sorted;
  GRAPH_TRY(g, begin(&t, options, &o, columns, n_columns, &sorted), none);
  const char *combiner = column_combiner(o.combiner ? o.combiner : "sum");
  int64_t units = o.units ? o.units : 1;
  if (units < 1 || !combiner)
    graph_fail(
        g, INVALID("%s: %lld units, combiner \"%s\"", __func__, (long long)units, combiner ? combiner : o.combiner));
  shoal_out *sums = mem_zalloc((size_t)n_columns, sizeof *sums), all = none;
  graph_push_scope(g, o.scope ? o.scope : "linear_model");
  for (int i = 0; i < n_columns && !graph_error(g); i++) sums[i] = weighted_sum(&t, sorted[i], units, combiner);
  if (!graph_error(g)) all = with_bias(&t, sums, n_columns, units);
  graph_pop_scope(g);
  free(sums);
  free(sorted);
  transform_release(&t);
  return all;
}

/* ---- sequences ---- */

/* [batch, time, elements], and how many of each row's times there are. */
static shoal_out numeric_sequence(struct transform *t, const struct shoal_column *c, shoal_out *lengths) {
  struct shoal_graph *g = t->g;
  shoal_named_feature f = transform_feature(t, c->key);
  if (graph_error(g)) return none;
  if (!f.indices.node) {
    graph_fail(g, INVALID("%s: column '%s' takes a sparse feature; '%s' is dense", t->caller, c->name, c->key));
    return none;
  }
  shoal_out values = c->normalizer ? c->normalizer(g, f.values, c->arg) : f.values;
  struct build b = build_begin(g, "SparseToDense", NULL);
  build_in(&b, f.indices);
  build_in(&b, f.dense_shape);
  build_in(&b, values);
  build_in(&b, shoal_constant_of(g, out_type(values), c->default_value));
  const shoal_out shape[] = {vector_part(g, f.dense_shape, 0, 1),
                             build_const_ints(g, SHOAL_INT64, (const int64_t[]){-1, c->elements}, 2)};
  *lengths = ids_lengths(g, f.indices, f.dense_shape, c->elements);
  return build_cast(g, build_op2(g, "Reshape", build_end_out(&b), vectors_joined(g, shape, 2, 0)), SHOAL_FLOAT32);
}

static shoal_out sequence_column(struct transform *t, const struct shoal_column *c, shoal_out *lengths) {
  if (!column_is_sequence(c) || c->kind == COLUMN_SEQUENCE) {
    graph_fail(t->g, INVALID("%s: '%s' is %s; numeric sequences are wanted, and embedding and indicator columns of "
                             "sequences",
                             t->caller, c->name, column_kind_name(c)));
    return none;
  }
  if (c->kind == COLUMN_SEQUENCE_NUMERIC) return numeric_sequence(t, c, lengths);
  struct column_ids ids = transform_ids(t, c->of[0]);
  if (graph_error(t->g)) return none;
  *lengths = ids_lengths(t->g, ids.indices, ids.dense_shape, 1);
  return c->kind == COLUMN_EMBEDDING ? embedded(t, c) : ids_count(t->g, ids, c->elements);
}

/* The first one's, once all were found to be the same. */
static shoal_out same_lengths(struct shoal_graph *g, const shoal_out *lengths, int n) {
  if (n == 1) return lengths[0];
  VEC(shoal_op *) checks = {0};
  for (int i = 1; i < n; i++) {
    struct build b = build_begin(g, "Assert", NULL);
    build_in(&b, build_op2(g, "All", build_op2(g, "Equal", lengths[0], lengths[i]),
                           build_const_ints(g, SHOAL_INT32, (const int64_t[]){0}, 1)));
    const shoal_out told[] = {shoal_constant_string(g, "sequences of one example have other lengths:"), lengths[0],
                              lengths[i]};
    build_in_list(&b, told, 3);
    struct attr types = attr_list(ATTR_TYPE);
    for (int k = 0; k < 3; k++) attr_list_add(&types, attr_type(out_type(told[k])));
    build_attr(&b, "T", types);
    vec_push(&checks, build_end(&b));
  }
  graph_push_control(g, checks.at, (int)checks.n);
  shoal_out same = build_op1(g, "Identity", lengths[0]);
  graph_pop_control(g);
  vec_release(&checks);
  return same;
}

shoal_out shoal_sequence_input_layer(shoal_graph *g, const shoal_named_feature *features, int n,
                                     const shoal_column *const *columns, int n_columns,
                                     const shoal_column_layer_options *options, shoal_out *lengths) {
  shoal_column_layer_options o = {0};
  struct transform t = {.g = g, .caller = __func__, .features = features, .n = n};
  const struct shoal_column **sorted;
  GRAPH_TRY(g, begin(&t, options, &o, columns, n_columns, &sorted), none);
  shoal_out *parts = mem_zalloc((size_t)n_columns, sizeof *parts), all = none;
  shoal_out *counts = mem_zalloc((size_t)n_columns, sizeof *counts);
  graph_push_scope(g, o.scope ? o.scope : "sequence_input_layer");
  for (int i = 0; i < n_columns && !graph_error(g); i++) parts[i] = sequence_column(&t, sorted[i], &counts[i]);
  if (!graph_error(g)) all = n_columns > 1 ? vectors_joined(g, parts, n_columns, 2) : parts[0];
  if (!graph_error(g) && lengths) *lengths = same_lengths(g, counts, n_columns);
  graph_pop_scope(g);
  free(parts);
  free(counts);
  free(sorted);
  transform_release(&t);
  return all;
}
