/* What Examples must have for some columns, and parsed features under their names again. */
#include <stdlib.h>
#include <string.h>

#include "columns/column.h"
#include "graph/given.h"

struct spec {
  struct shoal_graph *g;
  shoal_feature *at;
  int n, max;
};

static shoal_out default_of(struct shoal_graph *g, const struct shoal_column *c) {
  if (!c->has_default) return (shoal_out){0};
  return build_op2(g, "Fill", build_const_ints(g, SHOAL_INT32, c->dims, c->rank),
                   shoal_constant_of(g, c->dtype, c->default_value));
}

/* Examples have no other types; what is narrower comes as the wider. */
static shoal_dtype kept_type(shoal_dtype t) {
  return t == SHOAL_FLOAT64 ? SHOAL_FLOAT32 : t == SHOAL_INT32 ? SHOAL_INT64 : t;
}

static shoal_status same_feature(const shoal_feature *a, const shoal_feature *b) {
  bool same = a->dtype == b->dtype && a->kind == b->kind && a->shape.rank == b->shape.rank;
  for (int i = 0; same && i < a->shape.rank; i++) same = a->shape.at[i] == b->shape.at[i];
  return same ? NULL : INVALID("columns disagree about what feature '%s' is in Examples", a->name);
}

static shoal_status add(struct spec *s, const struct shoal_column *c, shoal_feature_kind kind) {
  shoal_feature f = {.name = c->key, .dtype = kept_type(c->dtype), .kind = kind};
  if (kind == SHOAL_FEATURE_FIXED) f.shape = (shoal_dims){c->rank, c->dims};
  static const int64_t one[] = {1};
  if (kind == SHOAL_FEATURE_FIXED && !c->rank) f.shape = (shoal_dims){1, one}; /* TensorFlow's numeric columns: (1,) */
  for (int i = 0; i < s->n && i < s->max; i++)
    if (!strcmp(s->at[i].name, f.name)) return same_feature(&s->at[i], &f);
  if (kind == SHOAL_FEATURE_FIXED && c->has_default) {
    f.default_value = default_of(s->g, c);
    if (!c->rank)
      f.default_value = build_op2(s->g, "Reshape", f.default_value, build_const_ints(s->g, SHOAL_INT32, one, 1));
  }
  if (s->n < s->max) s->at[s->n] = f;
  s->n++;
  return NULL;
}

static shoal_status collect(struct spec *s, const struct shoal_column *c) {
  for (int i = 0; i < c->n_of; i++) TRY(collect(s, c->of[i]));
  if (!c->key) return NULL;
  return add(s, c, c->kind == COLUMN_NUMERIC ? SHOAL_FEATURE_FIXED : SHOAL_FEATURE_SPARSE);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const shoal_feature *)a)->name, ((const shoal_feature *)b)->name);
}

int shoal_columns_parse_spec(shoal_graph *g, const shoal_column *const *columns, int n, shoal_feature *out, int max) {
  struct spec s = {g, out, 0, out ? MAX(max, 0) : 0};
  GRAPH_TRY(g, columns_check(__func__, columns, n), 0);
  for (int i = 0; i < n; i++) GRAPH_TRY(g, collect(&s, columns[i]), 0);
  if (out) qsort(out, (size_t)MIN(s.n, s.max), sizeof *out, by_name);
  return graph_error(g) ? 0 : s.n;
}

int shoal_features_of(shoal_graph *g, const shoal_feature *features, int n, const shoal_out *components,
                      shoal_named_feature *out) {
  GRAPH_GIVEN_ARRAY(g, features, n, 0);
  GRAPH_GIVEN_ARRAY(g, components, n, 0);
  GRAPH_GIVEN_ARRAY(g, out, n, 0);
  int used = 0;
  for (int i = 0; i < n; i++) {
    out[i] = (shoal_named_feature){.name = features[i].name};
    if (features[i].kind == SHOAL_FEATURE_SPARSE) {
      out[i].indices = components[used++];
      out[i].values = components[used++];
      out[i].dense_shape = components[used++];
    } else if (features[i].kind == SHOAL_FEATURE_FIXED) {
      out[i].values = components[used++];
    } else {
      graph_fail(g, INVALID("%s: '%s' is ragged; columns take dense and sparse features", __func__, features[i].name));
      return 0;
    }
  }
  return used;
}
