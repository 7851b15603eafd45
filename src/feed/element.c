/* What datasets' elements are; see feed/element.h. */
#include "feed/element.h"

#include <string.h>

static const struct attr *list_of(const struct shoal_node *n, const char *name, enum attr_kind of) {
  const struct attr *a = node_attr(n, name);
  return a && a->kind == ATTR_LIST && a->of == of ? a : NULL;
}

static bool from_attrs(const struct attr *types, const struct attr *shapes, struct feed_element *out) {
  if (!types || !shapes || types->list.n != shapes->list.n || types->list.n > SHOAL_MAX_COMPONENTS) return false;
  out->n = (int)types->list.n;
  for (int i = 0; i < out->n; i++) {
    out->types[i] = (shoal_dtype)types->list.at[i].type;
    out->shapes[i] = *shapes->list.at[i].shape;
  }
  return true;
}

static bool gives_strings(const struct shoal_node *n) {
  static const char *const ops[] = {"TextLineDataset", "TFRecordDataset", "TFRecordDatasetV2",
                                    "FixedLengthRecordDataset", "FixedLengthRecordDatasetV2"};
  for (size_t i = 0; i < COUNT_OF(ops); i++)
    if (op_is(n->op, ops[i])) return true;
  return false;
}

static bool described(const struct shoal_node *n, struct feed_element *out) {
  const struct attr *types = list_of(n, "output_types", ATTR_TYPE);
  if (!types) types = list_of(n, "Toutput_types", ATTR_TYPE);
  return from_attrs(types, list_of(n, "output_shapes", ATTR_SHAPE), out) ||
         from_attrs(list_of(n, "_dataset_types", ATTR_TYPE), list_of(n, "_dataset_shapes", ATTR_SHAPE), out);
}

shoal_status element_of(const char *caller, shoal_out d, struct feed_element *out) {
  *out = (struct feed_element){0};
  if (d.node && out_type(d) == SHOAL_VARIANT) {
    if (described(d.node, out)) return NULL;
    struct shape scalar = shape_scalar();
    if (gives_strings(d.node) && element_add(out, SHOAL_STRING, &scalar)) return NULL;
  }
  return INVALID("%s: '%s' is no dataset", caller, d.node ? d.node->name : "(none)");
}

bool element_add(struct feed_element *e, shoal_dtype type, const struct shape *shape) {
  if (e->n == SHOAL_MAX_COMPONENTS) return false;
  e->types[e->n] = type;
  e->shapes[e->n++] = *shape;
  return true;
}

/* Is component i of d's elements there? */
static bool has(shoal_out d, int i, struct feed_element *all) {
  shoal_status none = element_of("", d, all);
  bool there = !none && i < all->n;
  shoal_status_free(none);
  return there;
}

bool element_nested(shoal_out d, int i, struct feed_element *out) {
  struct feed_element all;
  /* Ops that pass elements on have them from their first input. */
  while (has(d, i, &all) && all.types[i] == SHOAL_VARIANT && d.node->n_in) {
    bool here = op_is(d.node->op, "WindowDataset");
    d = d.node->in[0];
    if (!here) continue;
    *out = (struct feed_element){0};
    return has(d, i, &all) && element_add(out, all.types[i], &all.shapes[i]);
  }
  return false;
}

static struct attr types_attr(const struct feed_element *e) {
  struct attr list = attr_list(ATTR_TYPE);
  for (int i = 0; i < e->n; i++) attr_list_add(&list, attr_type(e->types[i]));
  return list;
}

static struct attr shapes_attr(const struct feed_element *e) {
  struct attr list = attr_list(ATTR_SHAPE);
  for (int i = 0; i < e->n; i++) attr_list_add(&list, attr_shape(&e->shapes[i]));
  return list;
}

void element_mark(struct shoal_node *node, const struct feed_element *e) {
  if (!node) return;
  node_set_attr(node, "_dataset_types", types_attr(e));
  node_set_attr(node, "_dataset_shapes", shapes_attr(e));
}

shoal_status element_shape(shoal_dims dims, struct shape *out) {
  if (dims.rank > SHOAL_MAX_RANK) return INVALID("a shape has at most %d dimensions", SHOAL_MAX_RANK);
  if (dims.rank > 0 && !dims.at) return INVALID("the dimensions of a shape are NULL");
  *out = dims.rank < 0 ? shape_unknown() : (struct shape){.rank = dims.rank};
  for (int i = 0; i < dims.rank; i++) {
    if (dims.at[i] < -1) return INVALID("a shape cannot have a dimension %lld", (long long)dims.at[i]);
    out->dims[i] = dims.at[i];
  }
  return NULL;
}

struct shape shape_batched(const struct shape *s, int64_t rows) {
  if (s->rank < 0 || s->rank == SHOAL_MAX_RANK) return shape_unknown();
  struct shape b = {.rank = s->rank + 1};
  b.dims[0] = rows;
  for (int i = 0; i < s->rank; i++) b.dims[i + 1] = s->dims[i];
  return b;
}

struct shape shape_row(const struct shape *s) {
  if (s->rank < 1) return shape_unknown();
  struct shape r = {.rank = s->rank - 1};
  for (int i = 0; i < r.rank; i++) r.dims[i] = s->dims[i + 1];
  return r;
}

struct build dataset_begin(struct shoal_graph *g, const char *op, shoal_out in) {
  struct build b = build_begin(g, op, NULL);
  build_in(&b, in);
  return b;
}

shoal_out dataset_end(struct build *b, const struct feed_element *e) {
  build_attr(b, "output_types", types_attr(e));
  return dataset_end_shapes(b, e);
}

shoal_out dataset_end_shapes(struct build *b, const struct feed_element *e) {
  build_attr(b, "output_shapes", shapes_attr(e));
  return build_end_out(b);
}

int shoal_dataset_components(shoal_out d, shoal_dtype *types) {
  struct feed_element e;
  shoal_status none = element_of("", d, &e);
  if (!none && types) memcpy(types, e.types, (size_t)e.n * sizeof *types);
  int n = none ? 0 : e.n;
  shoal_status_free(none);
  return n;
}
