/* Functions of elements: what begins them, and the datasets that call them. */
#include "base/options.h"
#include "feed/order.h"
#include "graph/function_define.h"
#include "graph/given.h"

static const shoal_out none;

/* ---- bodies ---- */

shoal_graph *shoal_dataset_function(shoal_graph *g, shoal_out d, const char *name, shoal_out *in, int n) {
  struct feed_element e = {0};
  shoal_status bad = in || n <= 0 ? element_of(__func__, d, &e) : INVALID("%s: in is NULL", __func__);
  if (!bad && n != e.n)
    bad = INVALID("%s: elements of '%s' have %d components, and there is room for %d", __func__, d.node->name, e.n, n);
  if (bad) graph_fail(g, bad);
  shoal_graph *f = shoal_function_begin(g, name);
  for (int i = 0; i < n && in; i++) {
    struct feed_element inside;
    shoal_dims shape = {e.shapes[i].rank, e.shapes[i].dims};
    in[i] = bad ? none : shoal_function_input(f, e.types[i], shape, NULL);
    if (!bad && element_nested(d, i, &inside)) element_mark(in[i].node, &inside);
  }
  return f;
}

shoal_graph *shoal_dataset_window_function(shoal_graph *g, shoal_out d, const char *name, shoal_out *key,
                                           shoal_out *window) {
  struct feed_element e = {0};
  shoal_status bad = key && window ? element_of(__func__, d, &e) : INVALID("%s: key or window is NULL", __func__);
  if (bad) graph_fail(g, bad);
  shoal_graph *f = shoal_function_begin(g, name);
  if (key) *key = shoal_function_input(f, SHOAL_INT64, SHOAL_SCALAR, "key");
  if (window) *window = shoal_function_input(f, SHOAL_VARIANT, SHOAL_SCALAR, "window");
  if (window) element_mark(window->node, &e);
  return f;
}

/* ---- what functions give ---- */

void build_captured(struct build *b, const char *types_attr, const shoal_function *f) {
  const shoal_out *captured;
  struct attr types = attr_list(ATTR_TYPE);
  int n = shoal_function_captures(f, &captured);
  build_in_list(b, captured, n);
  for (int i = 0; i < n; i++) attr_list_add(&types, attr_type(out_type(captured[i])));
  build_attr(b, types_attr, types);
}

static shoal_status outputs_of(const char *caller, const shoal_function *f, struct feed_element *e) {
  const shoal_dtype *types;
  const shoal_dims *shapes;
  if (!f) return INVALID("%s: f is NULL", caller);
  int n = shoal_function_outputs(f, &types, &shapes);
  if (n < 1 || n > SHOAL_MAX_COMPONENTS)
    return INVALID("%s: '%s' has %d outputs; there are 1 to %d", caller, f->name, n, SHOAL_MAX_COMPONENTS);
  e->n = 0;
  for (int i = 0; i < n; i++) {
    struct shape s;
    TRY(element_shape(shapes[i], &s));
    element_add(e, types[i], &s);
  }
  return NULL;
}

shoal_status function_gives(const char *caller, const shoal_function *f, shoal_dtype type, struct feed_element *e) {
  struct feed_element all;
  TRY(outputs_of(caller, f, &all));
  bool dataset = type == SHOAL_DT_INVALID;
  if (all.n != 1 || all.types[0] != (dataset ? SHOAL_VARIANT : type))
    return INVALID("%s: '%s' is to return one %s", caller, f->name, dataset ? "dataset" : shoal_dtype_name(type));
  return dataset ? element_of(caller, f->outputs.at[0].from, e) : NULL;
}

/* Does f take d's elements? */
static shoal_status takes(const char *caller, const shoal_function *f, const struct feed_element *e) {
  if (!f) return INVALID("%s: f is NULL", caller);
  if ((int)f->inputs.n != e->n)
    return INVALID("%s: '%s' has %zu inputs, and elements have %d components", caller, f->name, f->inputs.n, e->n);
  for (int i = 0; i < e->n; i++) {
    shoal_dtype type = out_type(node_out(f->inputs.at[i], 0));
    if (type != e->types[i])
      return INVALID("%s: input %d of '%s' is of type %s, and that component of %s", caller, i, f->name,
                     shoal_dtype_name(type), shoal_dtype_name(e->types[i]));
  }
  return NULL;
}

/* ---- datasets ---- */

static void build_function(struct build *b, const char *attr, const shoal_function *f) {
  build_attr(b, attr, attr_func(f->name));
}

/* What f's call is about: d's elements in, others out. NULL functions come after a mistake that the graph knows. */
static shoal_status check(shoal_graph *g, const char *caller, shoal_out d, const shoal_function *f) {
  struct feed_element in;
  if (graph_error(g)) return status_copy(graph_error(g));
  TRY(element_of(caller, d, &in));
  return takes(caller, f, &in);
}

shoal_out shoal_dataset_map(shoal_graph *g, shoal_out d, const shoal_function *f, const shoal_map_options *options) {
  shoal_map_options o = {0};
  struct feed_element out;
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_map_options, unordered, &o, options), none);
  GRAPH_TRY(g, check(g, __func__, d, f), none);
  GRAPH_TRY(g, outputs_of(__func__, f, &out), none);
  if (o.parallel < SHOAL_AUTO) GRAPH_TRY(g, INVALID("%s: %lld calls at a time", __func__, (long long)o.parallel), none);
  struct build b = dataset_begin(g, o.parallel ? "ParallelMapDatasetV2" : "MapDataset", d);
  build_captured(&b, "Targuments", f);
  if (o.parallel) build_in(&b, build_const_int(g, SHOAL_INT64, o.parallel));
  if (o.parallel) build_attr_string(&b, "deterministic", o.unordered ? "false" : "true");
  build_function(&b, "f", f);
  build_attr_bool(&b, "preserve_cardinality", true);
  return dataset_end(&b, &out);
}

shoal_out shoal_dataset_filter(shoal_graph *g, shoal_out d, const shoal_function *f) {
  struct feed_element e;
  GRAPH_TRY(g, check(g, __func__, d, f), none);
  GRAPH_TRY(g, function_gives(__func__, f, SHOAL_BOOL, NULL), none);
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  struct build b = dataset_begin(g, "FilterDataset", d);
  build_captured(&b, "Targuments", f);
  build_function(&b, "predicate", f);
  return dataset_end(&b, &e);
}

shoal_out shoal_dataset_flat_map(shoal_graph *g, shoal_out d, const shoal_function *f) {
  struct feed_element e;
  GRAPH_TRY(g, check(g, __func__, d, f), none);
  GRAPH_TRY(g, function_gives(__func__, f, SHOAL_DT_INVALID, &e), none);
  struct build b = dataset_begin(g, "FlatMapDataset", d);
  build_captured(&b, "Targuments", f);
  build_function(&b, "f", f);
  return dataset_end(&b, &e);
}

static shoal_out build_interleave(shoal_graph *g, shoal_out d, const shoal_function *f,
                                  const shoal_interleave_options *o, const struct feed_element *e) {
  struct build b = dataset_begin(g, o->parallel ? "ParallelInterleaveDatasetV4" : "InterleaveDataset", d);
  build_captured(&b, "Targuments", f);
  build_in(&b, build_const_int(g, SHOAL_INT64, o->cycle ? o->cycle : SHOAL_AUTO));
  build_in(&b, build_const_int(g, SHOAL_INT64, o->block ? o->block : 1));
  if (o->parallel) {
    build_in(&b, build_const_int(g, SHOAL_INT64, SHOAL_AUTO)); /* buffer_output_elements */
    build_in(&b, build_const_int(g, SHOAL_INT64, SHOAL_AUTO)); /* prefetch_input_elements */
    build_in(&b, build_const_int(g, SHOAL_INT64, o->parallel));
    build_attr_string(&b, "deterministic", o->unordered ? "false" : "true");
  }
  build_function(&b, "f", f);
  return dataset_end(&b, e);
}

shoal_out shoal_dataset_interleave(shoal_graph *g, shoal_out d, const shoal_function *f,
                                   const shoal_interleave_options *options) {
  shoal_interleave_options o = {0};
  struct feed_element e;
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_interleave_options, unordered, &o, options), none);
  GRAPH_TRY(g, check(g, __func__, d, f), none);
  GRAPH_TRY(g, function_gives(__func__, f, SHOAL_DT_INVALID, &e), none);
  if (o.cycle < SHOAL_AUTO || o.block < 0 || o.parallel < SHOAL_AUTO)
    GRAPH_TRY(g,
              INVALID("%s: a cycle of %lld, blocks of %lld, %lld at a time", __func__, (long long)o.cycle,
                      (long long)o.block, (long long)o.parallel),
              none);
  return build_interleave(g, d, f, &o, &e);
}
