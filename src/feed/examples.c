/* Serialized tf.Examples into tensors. */
#include "base/options.h"
#include "feed/order.h"
#include "graph/given.h"
#include "shoal/layers.h"

static const shoal_out none;

enum { KINDS = SHOAL_FEATURE_SPARSE + 1 };

/* Features sorted by kind, as ParseExampleV2 takes them. */
struct sorted {
  const shoal_feature *at[KINDS][SHOAL_MAX_COMPONENTS];
  int n[KINDS];
};

static shoal_status check(const char *caller, const shoal_feature *f) {
  if (!f->name) return INVALID("%s: the name of a feature is NULL", caller);
  if ((int)f->kind < 0 || (int)f->kind >= KINDS)
    return INVALID("%s: '%s' is of kind %d", caller, f->name, (int)f->kind);
  if (f->dtype != SHOAL_FLOAT32 && f->dtype != SHOAL_INT64 && f->dtype != SHOAL_STRING)
    return INVALID("%s: '%s' is of type %s; Examples hold float32, int64 and strings", caller, f->name,
                   shoal_dtype_name(f->dtype));
  struct shape s;
  TRY(element_shape(f->shape, &s));
  return s.rank >= 0 ? NULL : INVALID("%s: the shape of '%s' is not known", caller, f->name);
}

static shoal_status sort(const char *caller, const shoal_feature *features, int n, struct sorted *s) {
  int components = 0;
  *s = (struct sorted){0};
  TRY(given_array(caller, "features", features, n));
  for (int i = 0; i < n; i++) {
    TRY(check(caller, &features[i]));
    components += 1 + (int)features[i].kind;
    if (components > SHOAL_MAX_COMPONENTS) return INVALID("%s: more than %d components", caller, SHOAL_MAX_COMPONENTS);
    s->at[features[i].kind][s->n[features[i].kind]++] = &features[i];
  }
  return components ? NULL : INVALID("%s: no feature is asked for", caller);
}

static shoal_out keys(shoal_graph *g, const struct sorted *s, shoal_feature_kind kind) {
  const char *names[SHOAL_MAX_COMPONENTS];
  for (int i = 0; i < s->n[kind]; i++) names[i] = s->at[kind][i]->name;
  return shoal_constant_strings(g, names, s->n[kind]);
}

static void build_types(struct build *b, const char *attr, const struct sorted *s, shoal_feature_kind kind) {
  shoal_dtype types[SHOAL_MAX_COMPONENTS];
  for (int i = 0; i < s->n[kind]; i++) types[i] = s->at[kind][i]->dtype;
  build_attr_types(b, attr, types, s->n[kind]);
}

static void build_shapes(struct build *b, const struct sorted *s) {
  struct attr list = attr_list(ATTR_SHAPE);
  for (int i = 0; i < s->n[SHOAL_FEATURE_FIXED]; i++) {
    struct shape shape;
    shoal_status_free(element_shape(s->at[SHOAL_FEATURE_FIXED][i]->shape, &shape));
    attr_list_add(&list, attr_shape(&shape));
  }
  build_attr(b, "dense_shapes", list);
}

/* No value: an empty vector, which is a shape no feature has; where a dimension varies, what it is padded with. */
static shoal_out default_of(shoal_graph *g, const shoal_feature *f) {
  if (f->default_value.node) return f->default_value;
  if (f->shape.rank > 0 && f->shape.at[0] < 0)
    return f->dtype == SHOAL_STRING ? shoal_constant_string(g, "") : shoal_constant_of(g, f->dtype, 0);
  return shoal_csv_required(g, f->dtype);
}

static struct shoal_node *build_parse(shoal_graph *g, shoal_out serialized, const struct sorted *s) {
  int sparse = s->n[SHOAL_FEATURE_SPARSE], ragged = s->n[SHOAL_FEATURE_RAGGED];
  struct build b = build_begin(g, "ParseExampleV2", NULL);
  build_in(&b, serialized);
  build_in(&b, shoal_constant_strings(g, NULL, 0)); /* names, for messages */
  build_in(&b, keys(g, s, SHOAL_FEATURE_SPARSE));
  build_in(&b, keys(g, s, SHOAL_FEATURE_FIXED));
  build_in(&b, keys(g, s, SHOAL_FEATURE_RAGGED));
  for (int i = 0; i < s->n[SHOAL_FEATURE_FIXED]; i++) build_in(&b, default_of(g, s->at[SHOAL_FEATURE_FIXED][i]));
  build_attr_int(&b, "num_sparse", sparse);
  build_types(&b, "Tdense", s, SHOAL_FEATURE_FIXED);
  build_types(&b, "sparse_types", s, SHOAL_FEATURE_SPARSE);
  build_types(&b, "ragged_value_types", s, SHOAL_FEATURE_RAGGED);
  shoal_dtype splits[SHOAL_MAX_COMPONENTS];
  for (int i = 0; i < ragged; i++) splits[i] = SHOAL_INT64;
  build_attr_types(&b, "ragged_split_types", splits, ragged);
  build_shapes(&b, s);
  return build_end(&b);
}

/* Outputs come by kind: indices, values and shapes of all sparse ones, dense values, ragged values, ragged splits. */
static int collect(struct shoal_node *parsed, const struct sorted *s, const shoal_feature *features, int n,
                   shoal_out *out) {
  int sparse = s->n[SHOAL_FEATURE_SPARSE], fixed = s->n[SHOAL_FEATURE_FIXED], ragged = s->n[SHOAL_FEATURE_RAGGED];
  int used[KINDS] = {0}, made = 0;
  for (int i = 0; i < n; i++) {
    int k = used[features[i].kind]++;
    if (features[i].kind == SHOAL_FEATURE_FIXED) {
      out[made++] = node_out(parsed, 3 * sparse + k);
    } else if (features[i].kind == SHOAL_FEATURE_RAGGED) {
      out[made++] = node_out(parsed, 3 * sparse + fixed + k);
      out[made++] = node_out(parsed, 3 * sparse + fixed + ragged + k);
    } else {
      for (int part = 0; part < 3; part++) out[made++] = node_out(parsed, part * sparse + k);
    }
  }
  return made;
}

int shoal_parse_example_features(shoal_graph *g, shoal_out serialized, const shoal_feature *features, int n,
                                 shoal_out *out) {
  struct sorted s;
  GRAPH_GIVEN(g, out, 0);
  GRAPH_TRY(g, sort(__func__, features, n, &s), 0);
  struct shoal_node *parsed = build_parse(g, serialized, &s);
  return parsed ? collect(parsed, &s, features, n, out) : 0;
}

shoal_out shoal_dataset_parse_example(shoal_graph *g, shoal_out d, const shoal_feature *features, int n,
                                      const shoal_map_options *options) {
  struct feed_element e;
  shoal_out serialized, out[SHOAL_MAX_COMPONENTS];
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  if (e.n != 1 || e.types[0] != SHOAL_STRING)
    GRAPH_TRY(g, INVALID("%s: elements of '%s' are to be strings", __func__, d.node->name), none);
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &serialized, 1);
  int made = shoal_parse_example_features(f, serialized, features, n, out);
  for (int i = 0; i < made; i++) shoal_function_output(f, out[i], NULL);
  return shoal_dataset_map(g, d, shoal_function_end(f), options);
}
