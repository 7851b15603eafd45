/* Elements of which some make a dataset of their own: windows, those of one key, those of about one length. */
#include "base/options.h"
#include "feed/order.h"
#include "graph/function_define.h"
#include "graph/given.h"
#include "shoal/layers.h"

static const shoal_out none;

shoal_out shoal_dataset_window(shoal_graph *g, shoal_out d, int64_t elements, const shoal_window_options *options) {
  shoal_window_options o = {0};
  struct feed_element e;
  struct shape scalar = shape_scalar();
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_window_options, drop_remainder, &o, options), none);
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  if (elements < 1 || o.shift < 0 || o.stride < 0)
    GRAPH_TRY(g,
              INVALID("%s: windows of %lld elements, shifted by %lld, with a stride of %lld", __func__,
                      (long long)elements, (long long)o.shift, (long long)o.stride),
              none);
  for (int i = 0; i < e.n; i++) {
    e.types[i] = SHOAL_VARIANT;
    e.shapes[i] = scalar;
  }
  struct build b = dataset_begin(g, "WindowDataset", d);
  build_in(&b, build_const_int(g, SHOAL_INT64, elements));
  build_in(&b, build_const_int(g, SHOAL_INT64, o.shift ? o.shift : elements));
  build_in(&b, build_const_int(g, SHOAL_INT64, o.stride ? o.stride : 1));
  build_in(&b, shoal_constant_bool(g, o.drop_remainder));
  return dataset_end(&b, &e);
}

/* ---- by key ---- */

static shoal_out group(shoal_graph *g, const char *caller, shoal_out d, const shoal_function *key,
                       const shoal_function *reduce, const shoal_function *size) {
  const struct {
    const char *attr, *types;
    const shoal_function *f;
  } parts[] = {{"key_func", "Tkey_func_other_arguments", key},
               {"reduce_func", "Treduce_func_other_arguments", reduce},
               {"window_size_func", "Twindow_size_func_other_arguments", size}};
  struct feed_element e, out;
  if (graph_error(g)) return none;
  GRAPH_TRY(g, element_of(caller, d, &e), none);
  GRAPH_TRY(g, function_gives(caller, key, SHOAL_INT64, NULL), none);
  GRAPH_TRY(g, function_gives(caller, reduce, SHOAL_DT_INVALID, &out), none);
  struct build b = dataset_begin(g, "GroupByWindowDataset", d);
  for (size_t i = 0; i < COUNT_OF(parts); i++) {
    build_captured(&b, parts[i].types, parts[i].f);
    build_attr(&b, parts[i].attr, attr_func(parts[i].f->name));
  }
  return dataset_end(&b, &out);
}

shoal_out shoal_dataset_group_by_window(shoal_graph *g, shoal_out d, const shoal_function *key,
                                        const shoal_function *reduce, int64_t elements) {
  if (elements < 1) GRAPH_TRY(g, INVALID("%s: windows of %lld elements", __func__, (long long)elements), none);
  shoal_graph *f = shoal_function_begin(g, NULL);
  shoal_function_input(f, SHOAL_INT64, SHOAL_SCALAR, "key");
  shoal_function_output(f, build_const_int(f, SHOAL_INT64, elements), "size");
  return group(g, __func__, d, key, reduce, shoal_function_end(f));
}

/* ---- by length ---- */

static shoal_status check_lengths(const char *caller, const shoal_length_options *o, const struct feed_element *e) {
  TRY(given_array(caller, "bounds", o->bounds, o->n_bounds));
  TRY(given_array(caller, "rows", o->rows, o->n_bounds + 1));
  for (int i = 1; i < o->n_bounds; i++)
    if (o->bounds[i] <= o->bounds[i - 1]) return INVALID("%s: bounds are to rise", caller);
  for (int i = 0; i <= o->n_bounds; i++)
    if (o->rows[i] < 1) return INVALID("%s: batches of %lld elements", caller, (long long)o->rows[i]);
  if (o->component < 0 || o->component >= e->n) return INVALID("%s: component %d of %d", caller, o->component, e->n);
  if (!e->shapes[o->component].rank) return INVALID("%s: component %d has no length", caller, o->component);
  return NULL;
}

/* How many bounds are not above the length. */
static const shoal_function *bucket_function(shoal_graph *g, shoal_out d, const shoal_length_options *o, int n) {
  shoal_out in[SHOAL_MAX_COMPONENTS];
  shoal_graph *f = shoal_dataset_function(g, d, NULL, in, n);
  struct build shape = build_begin(f, "Shape", NULL);
  build_in(&shape, in[o->component]);
  build_attr_type(&shape, "out_type", SHOAL_INT64);
  shoal_out first = build_const_int(f, SHOAL_INT32, 0);
  shoal_out length = build_op3(f, "GatherV2", build_end_out(&shape), first, first);
  shoal_out bounds = build_const_ints(f, SHOAL_INT64, o->bounds, o->n_bounds);
  shoal_out below = build_cast(f, build_op2(f, "LessEqual", bounds, length), SHOAL_INT64);
  shoal_function_output(f, build_op2(f, "Sum", below, first), "bucket");
  return shoal_function_end(f);
}

static shoal_out rows_of(shoal_graph *f, shoal_out bucket, const shoal_length_options *o) {
  shoal_out rows = build_const_ints(f, SHOAL_INT64, o->rows, o->n_bounds + 1);
  return build_op3(f, "GatherV2", rows, bucket, build_const_int(f, SHOAL_INT32, 0));
}

static const shoal_function *size_function(shoal_graph *g, const shoal_length_options *o) {
  shoal_graph *f = shoal_function_begin(g, NULL);
  shoal_out bucket = shoal_function_input(f, SHOAL_INT64, SHOAL_SCALAR, "bucket");
  shoal_function_output(f, rows_of(f, bucket, o), "size");
  return shoal_function_end(f);
}

static const shoal_function *batch_function(shoal_graph *g, const char *caller, shoal_out d,
                                            const shoal_length_options *o) {
  shoal_out bucket, window;
  struct feed_padding p = {o->shapes, o->values, o->drop_remainder};
  shoal_graph *f = shoal_dataset_window_function(g, d, NULL, &bucket, &window);
  shoal_function_output(f, feed_padded_batch(f, caller, window, rows_of(f, bucket, o), -1, &p), "batches");
  return shoal_function_end(f);
}

shoal_out shoal_dataset_group_by_length(shoal_graph *g, shoal_out d, const shoal_length_options *options) {
  shoal_length_options o = {0};
  struct feed_element e;
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_length_options, drop_remainder, &o, options), none);
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  GRAPH_TRY(g, check_lengths(__func__, &o, &e), none);
  const shoal_function *bucket = bucket_function(g, d, &o, e.n), *batch = batch_function(g, __func__, d, &o);
  return group(g, __func__, d, bucket, batch, size_function(g, &o));
}
