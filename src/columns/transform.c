/* From features to ids and numbers, op by op as TensorFlow's columns do it: what is missing in a dense feature ("" or
 * -1) is left out, integers are hashed as their digits, crosses are of what their parts give. */
#include "columns/transform.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const shoal_out none;

void transform_release(struct transform *t) {
  vec_release(&t->made);
  for (size_t i = 0; i < t->tables.n; i++) shoal_partitioned_free(&t->tables.at[i].table);
  vec_release(&t->tables);
}

/* ---- small things ---- */

shoal_out reshaped(struct shoal_graph *g, shoal_out x, const int64_t *dims, int n) {
  return build_op2(g, "Reshape", x, build_const_ints(g, SHOAL_INT32, dims, n));
}

shoal_out vector_product(struct shoal_graph *g, shoal_out v) {
  shoal_out all = build_op2(g, "Prod", v, build_const_ints(g, SHOAL_INT32, (const int64_t[]){0}, 1));
  return reshaped(g, all, (const int64_t[]){1}, 1);
}

struct column_ids ids_reshaped(struct shoal_graph *g, struct column_ids ids, shoal_out first, shoal_out then) {
  const shoal_out parts[] = {first, then};
  struct build b = build_begin(g, "SparseReshape", NULL);
  build_in(&b, ids.indices);
  build_in(&b, ids.dense_shape);
  build_in(&b, vectors_joined(g, parts, 2, 0));
  struct shoal_node *n = build_end(&b);
  if (!n) return ids;
  ids.indices = node_out(n, 0);
  ids.dense_shape = node_out(n, 1);
  return ids;
}

shoal_out shape_as_int64(struct shoal_graph *g, shoal_out x) {
  struct build b = build_begin(g, "Shape", NULL);
  build_in(&b, x);
  build_attr_type(&b, "out_type", SHOAL_INT64);
  return build_end_out(&b);
}

shoal_out column_at(struct shoal_graph *g, shoal_out matrix, int i) {
  return build_op3(g, "GatherV2", matrix, build_const_int(g, SHOAL_INT32, i), build_const_int(g, SHOAL_INT32, 1));
}

shoal_out vector_part(struct shoal_graph *g, shoal_out v, int64_t begin, int64_t size) {
  return build_op3(g, "Slice", v, build_const_ints(g, SHOAL_INT32, &begin, 1),
                   build_const_ints(g, SHOAL_INT32, &size, 1));
}

shoal_out vectors_joined(struct shoal_graph *g, const shoal_out *v, int n, int axis) {
  struct build b = build_begin(g, "ConcatV2", NULL);
  for (int i = 0; i < n; i++) build_in(&b, v[i]);
  build_in(&b, build_const_int(g, SHOAL_INT32, axis));
  return build_end_out(&b);
}

/* ---- features ---- */

static shoal_status no_feature(const struct transform *t, const char *key) {
  struct text known = {0};
  for (int i = 0; i < t->n && i < 20; i++) text_addf(&known, "%s%s", i ? ", " : "", t->features[i].name);
  char *names = text_take(&known);
  shoal_status e = INVALID("%s: feature '%s' is not among those given: %s", t->caller, key, t->n ? names : "(none)");
  free(names);
  return e;
}

shoal_named_feature transform_feature(struct transform *t, const char *key) {
  for (int i = 0; i < t->n; i++)
    if (t->features[i].name && !strcmp(t->features[i].name, key)) {
      shoal_named_feature f = t->features[i];
      struct shape s = out_shape(f.values);
      if (f.indices.node || graph_error(t->g)) return f;
      if (s.rank < 1)
        graph_fail(t->g,
                   INVALID("%s: feature '%s' has the shape %s; a batch is wanted", t->caller, key, shape_str(&s)));
      if (s.rank == 1) f.values = build_op2(t->g, "ExpandDims", f.values, build_const_int(t->g, SHOAL_INT32, -1));
      return f;
    }
  graph_fail(t->g, no_feature(t, key));
  return (shoal_named_feature){0};
}

static bool is_integer(shoal_dtype t) {
  return t == SHOAL_INT64 || t == SHOAL_INT32 || t == SHOAL_INT16 || t == SHOAL_INT8;
}

static bool check_type(struct transform *t, const struct shoal_column *c, shoal_dtype got, bool right,
                       const char *wanted) {
  if (!graph_error(t->g) && !right)
    graph_fail(t->g, INVALID("%s: column '%s' wants %s; feature '%s' is of type %s", t->caller, c->name, wanted, c->key,
                             shoal_dtype_name(got)));
  return !graph_error(t->g);
}

/* Dense ones lose what stands for nothing. */
static struct column_ids as_sparse(struct transform *t, shoal_named_feature f, bool weights) {
  struct shoal_graph *g = t->g;
  if (f.indices.node || graph_error(g)) return (struct column_ids){f.indices, f.values, f.dense_shape, none, false};
  shoal_dtype type = out_type(f.values);
  shoal_out nothing = type == SHOAL_STRING ? shoal_constant_string(g, "")
                                           : shoal_constant_of(g, type, weights || !is_integer(type) ? 0 : -1);
  shoal_out indices = build_op1(g, "Where", build_op2(g, "NotEqual", f.values, nothing));
  return (struct column_ids){indices, build_op2(g, "GatherNd", f.values, indices), shape_as_int64(g, f.values), none,
                             false};
}

shoal_out transform_numeric(struct transform *t, const struct shoal_column *c) {
  struct shoal_graph *g = t->g;
  shoal_named_feature f = transform_feature(t, c->key);
  if (graph_error(g)) return none;
  if (f.indices.node) {
    graph_fail(g, INVALID("%s: numeric column '%s' takes a dense feature; '%s' is sparse", t->caller, c->name, c->key));
    return none;
  }
  shoal_dtype type = out_type(f.values);
  if (!check_type(t, c, type, type != SHOAL_STRING && type != SHOAL_BOOL, "numbers")) return none;
  struct shape s = out_shape(f.values);
  int64_t row = 1;
  for (int i = 1; i < s.rank; i++) row = row < 0 || s.dims[i] < 0 ? -1 : row * s.dims[i];
  if (row >= 0 && row != c->elements)
    graph_fail(g, INVALID("%s: column '%s' wants %lld numbers of each example; feature '%s' has the shape %s",
                          t->caller, c->name, (long long)c->elements, c->key, shape_str(&s)));
  shoal_out x = c->normalizer && !graph_error(g) ? c->normalizer(g, f.values, c->arg) : f.values;
  if (!graph_error(g) && !x.node)
    graph_fail(g, INVALID("%s: the normalizer of '%s' gives nothing", t->caller, c->name));
  return reshaped(g, build_cast(g, x, SHOAL_FLOAT32), (const int64_t[]){-1, c->elements}, 2);
}

shoal_out transform_buckets(struct transform *t, const struct shoal_column *c) {
  struct attr list = attr_list(ATTR_FLOAT);
  for (int i = 0; i < c->n_bounds; i++) attr_list_add(&list, attr_float(c->bounds[i]));
  shoal_out x = transform_numeric(t, c->of[0]);
  struct build b = build_begin(t->g, "Bucketize", NULL);
  build_in(&b, x);
  build_attr(&b, "boundaries", list);
  return build_end_out(&b);
}

/* ---- ids ---- */

/* The ranges of place i are behind those of the places before it. */
static struct column_ids bucketized_ids(struct transform *t, const struct shoal_column *c) {
  struct shoal_graph *g = t->g;
  shoal_out buckets = build_cast(g, transform_buckets(t, c), SHOAL_INT64);
  int64_t places = c->of[0]->elements;
  int64_t *from = mem_zalloc((size_t)places, sizeof *from);
  for (int64_t i = 0; i < places; i++) from[i] = i * (c->n_bounds + 1);
  shoal_out ids =
      places > 1 ? build_op2(g, "AddV2", buckets, build_const_ints(g, SHOAL_INT64, from, (int)places)) : buckets;
  free(from);
  shoal_out all = build_op2(g, "GreaterEqual", buckets, build_const_int(g, SHOAL_INT64, 0));
  return (struct column_ids){build_op1(g, "Where", all), reshaped(g, ids, (const int64_t[]){-1}, 1),
                             shape_as_int64(g, buckets), none, false};
}

static shoal_out hashed(struct shoal_graph *g, shoal_out words, int64_t buckets) {
  if (out_type(words) != SHOAL_STRING) words = build_op1(g, "AsString", words);
  struct build b = build_begin(g, "StringToHashBucketFast", NULL);
  build_in(&b, words);
  build_attr_int(&b, "num_buckets", buckets);
  return build_end_out(&b);
}

static shoal_out make_table(struct shoal_graph *g, const struct shoal_column *c) {
  struct build b = build_begin(g, "HashTableV2", "hash_table");
  build_attr_type(&b, "key_dtype", c->dtype);
  build_attr_type(&b, "value_dtype", SHOAL_INT64);
  struct shoal_node *table = build_end(&b);
  if (!table) return none;
  node_set_attr(table, "shared_name", attr_string(table->name, strlen(table->name)));
  return node_out(table, 0);
}

/* Training sessions, and whoever runs local initialization, find it by its op. */
static void initialize_table(struct shoal_graph *g, const struct shoal_column *c, shoal_out table) {
  if (c->path) {
    struct build b = build_begin(g, "InitializeTableFromTextFileV2", NULL);
    build_in(&b, table);
    build_in(&b, shoal_constant_string(g, c->path));
    build_attr_int(&b, "key_index", -2);   /* the whole line */
    build_attr_int(&b, "value_index", -1); /* its number */
    build_attr_int(&b, "vocab_size", c->n_words);
    build_end(&b);
    return;
  }
  int64_t *ids = mem_zalloc((size_t)c->n_words, sizeof *ids);
  for (int64_t i = 0; i < c->n_words; i++) ids[i] = i;
  shoal_out keys = c->words ? shoal_constant_strings(g, (const char *const *)c->words, (int)c->n_words)
                            : build_const_ints(g, SHOAL_INT64, c->numbers, (int)c->n_words);
  build_op3(g, "InitializeTableV2", table, keys, build_const_ints(g, SHOAL_INT64, ids, (int)c->n_words));
  free(ids);
}

static shoal_out vocabulary_ids(struct transform *t, const struct shoal_column *c, shoal_out words) {
  struct shoal_graph *g = t->g;
  if (out_type(words) != SHOAL_STRING) words = build_cast(g, words, SHOAL_INT64);
  graph_push_scope(g, "lookup");
  shoal_out table = make_table(g, c);
  initialize_table(g, c, table);
  shoal_out ids = build_op3(g, "LookupTableFindV2", table, words, build_const_int(g, SHOAL_INT64, c->default_id));
  if (c->oov_buckets) {
    shoal_out others =
        build_op2(g, "AddV2", hashed(g, words, c->oov_buckets), build_const_int(g, SHOAL_INT64, c->n_words));
    ids = build_op3(g, "SelectV2", build_op2(g, "NotEqual", ids, build_const_int(g, SHOAL_INT64, -1)), ids, others);
  }
  graph_pop_scope(g);
  return ids;
}

static shoal_out identity_ids(struct transform *t, const struct shoal_column *c, shoal_out values) {
  struct shoal_graph *g = t->g;
  shoal_out ids = build_cast(g, values, SHOAL_INT64);
  if (c->default_id < 0) return ids;
  shoal_out outside = build_op2(g, "LogicalOr", build_op2(g, "Less", ids, build_const_int(g, SHOAL_INT64, 0)),
                                build_op2(g, "GreaterEqual", ids, build_const_int(g, SHOAL_INT64, c->buckets)));
  return build_op3(g, "SelectV2", outside, build_const_int(g, SHOAL_INT64, c->default_id), ids);
}

/* Vocabularies, hashed and identity columns: of one feature each. */
static struct column_ids feature_ids(struct transform *t, const struct shoal_column *c) {
  shoal_named_feature f = transform_feature(t, c->key);
  shoal_dtype type = out_type(f.values);
  bool words = c->dtype == SHOAL_STRING;
  if (!check_type(t, c, type, words ? type == SHOAL_STRING : is_integer(type), words ? "strings" : "integers"))
    return (struct column_ids){0};
  struct column_ids ids = as_sparse(t, f, false);
  if (c->kind == COLUMN_VOCABULARY) ids.values = vocabulary_ids(t, c, ids.values);
  else if (c->kind == COLUMN_HASHED) ids.values = hashed(t->g, ids.values, c->buckets);
  else ids.values = identity_ids(t, c, ids.values);
  return ids;
}

/* ---- crosses ---- */

struct cross_parts {
  VEC(shoal_out) indices, values, shapes, dense;
};

static shoal_out word_or_int64(struct shoal_graph *g, shoal_out x) {
  return out_type(x) == SHOAL_STRING ? x : build_cast(g, x, SHOAL_INT64);
}

/* Crosses inside are taken apart. */
static void gather_parts(struct transform *t, const struct shoal_column *c, struct cross_parts *x) {
  for (int i = 0; i < c->n_of && !graph_error(t->g); i++) {
    const struct shoal_column *of = c->of[i];
    if (of->kind == COLUMN_CROSSED) {
      gather_parts(t, of, x);
      continue;
    }
    struct column_ids ids;
    if (of->kind == COLUMN_FEATURE) {
      shoal_named_feature f = transform_feature(t, of->key);
      shoal_dtype type = out_type(f.values);
      if (!check_type(t, of, type, type == SHOAL_STRING || is_integer(type), "strings or integers")) return;
      if (!f.indices.node) {
        vec_push(&x->dense, word_or_int64(t->g, f.values));
        continue;
      }
      ids = (struct column_ids){f.indices, f.values, f.dense_shape, none, false};
    } else {
      ids = transform_ids(t, of);
    }
    vec_push(&x->indices, ids.indices);
    vec_push(&x->values, word_or_int64(t->g, ids.values));
    vec_push(&x->shapes, ids.dense_shape);
  }
}

static void build_cross_types(struct build *b, const char *attr, const shoal_out *values, size_t n, bool *integers) {
  struct attr list = attr_list(ATTR_TYPE);
  for (size_t i = 0; i < n; i++) {
    attr_list_add(&list, attr_type(out_type(values[i])));
    *integers |= out_type(values[i]) != SHOAL_STRING;
  }
  build_attr(b, attr, list);
}

static struct column_ids crossed_ids(struct transform *t, const struct shoal_column *c) {
  struct cross_parts x = {0};
  gather_parts(t, c, &x);
  struct build b = build_begin(t->g, "SparseCross", NULL);
  build_in_list(&b, x.indices.at, (int)x.indices.n);
  build_in_list(&b, x.values.at, (int)x.values.n);
  build_in_list(&b, x.shapes.at, (int)x.shapes.n);
  build_in_list(&b, x.dense.at, (int)x.dense.n);
  bool integers = false;
  build_attr_int(&b, "N", (int64_t)x.indices.n);
  build_attr_bool(&b, "hashed_output", true);
  build_attr_int(&b, "num_buckets", c->buckets);
  build_attr_int(&b, "hash_key", (int64_t)c->hash_key);
  build_cross_types(&b, "sparse_types", x.values.at, x.values.n, &integers);
  build_cross_types(&b, "dense_types", x.dense.at, x.dense.n, &integers);
  build_attr_type(&b, "out_type", SHOAL_INT64);
  build_attr_type(&b, "internal_type", integers ? SHOAL_INT64 : SHOAL_STRING);
  struct shoal_node *n = build_end(&b);
  vec_release(&x.indices);
  vec_release(&x.values);
  vec_release(&x.shapes);
  vec_release(&x.dense);
  if (!n) return (struct column_ids){0};
  return (struct column_ids){node_out(n, 0), node_out(n, 1), node_out(n, 2), none, false};
}

/* ---- weights, sequences ---- */

static struct column_ids weighted_ids(struct transform *t, const struct shoal_column *c) {
  struct column_ids ids = transform_ids(t, c->of[0]);
  shoal_named_feature f = transform_feature(t, c->key);
  shoal_dtype type = out_type(f.values);
  if (!check_type(t, c, type, type != SHOAL_STRING && type != SHOAL_BOOL, "numbers as weights")) return ids;
  ids.weights = build_cast(t->g, as_sparse(t, f, true).values, SHOAL_FLOAT32);
  return ids;
}

/* [batch, time, ...] to [batch, time, places]. */
static struct column_ids sequence_ids(struct transform *t, const struct shoal_column *c) {
  struct shoal_graph *g = t->g;
  struct column_ids ids = transform_ids(t, c->of[0]);
  if (graph_error(g)) return ids;
  shoal_out places = vector_product(g, vector_part(g, ids.dense_shape, 2, -1));
  shoal_out times = vector_part(g, ids.dense_shape, 0, 2);
  ids.sequence = true;
  return ids_reshaped(g, ids, times, places);
}

static struct column_ids make_ids(struct transform *t, const struct shoal_column *c) {
  switch (c->kind) {
    case COLUMN_BUCKETIZED: return bucketized_ids(t, c);
    case COLUMN_CROSSED: return crossed_ids(t, c);
    case COLUMN_WEIGHTED: return weighted_ids(t, c);
    case COLUMN_SEQUENCE: return sequence_ids(t, c);
    default: return feature_ids(t, c);
  }
}

struct column_ids transform_ids(struct transform *t, const struct shoal_column *c) {
  for (size_t i = 0; i < t->made.n; i++)
    if (t->made.at[i].of == c) return t->made.at[i].ids;
  struct column_ids ids = make_ids(t, c);
  if (!graph_error(t->g)) vec_push(&t->made, (struct made_ids){c, ids});
  return ids;
}
