/* Where datasets begin: tensors, numbers, files. */
#include <stdlib.h>

#include "base/options.h"
#include "feed/element.h"
#include "feed/order.h"
#include "graph/given.h"
#include "shoal/layers.h"

static const shoal_out none;

static shoal_out text(struct shoal_graph *g, const char *s) { return shoal_constant_string(g, s ? s : ""); }

/* ---- tensors and numbers ---- */

static shoal_status components_of(const char *caller, const shoal_out *in, int n, struct feed_element *e) {
  TRY(given_array(caller, "components", in, n));
  if (n < 1 || n > SHOAL_MAX_COMPONENTS)
    return INVALID("%s: %d components; there are 1 to %d", caller, n, SHOAL_MAX_COMPONENTS);
  e->n = 0;
  for (int i = 0; i < n; i++) {
    struct shape s = out_shape(in[i]);
    element_add(e, out_type(in[i]), &s);
  }
  return NULL;
}

shoal_out shoal_dataset_from_tensors(shoal_graph *g, const shoal_out *components, int n) {
  struct feed_element e;
  GRAPH_TRY(g, components_of(__func__, components, n, &e), none);
  struct build b = build_begin(g, "TensorDataset", NULL);
  build_in_list(&b, components, n);
  return dataset_end_shapes(&b, &e);
}

shoal_out shoal_dataset_tensor_slices(shoal_graph *g, const shoal_out *components, int n) {
  struct feed_element e;
  GRAPH_TRY(g, components_of(__func__, components, n, &e), none);
  for (int i = 0; i < n; i++) {
    if (e.shapes[i].rank == 0 && !graph_error(g))
      GRAPH_TRY(g, INVALID("%s: component %d ('%s') has no rows", __func__, i, components[i].node->name), none);
    e.shapes[i] = shape_row(&e.shapes[i]);
  }
  struct build b = build_begin(g, "TensorSliceDataset", NULL);
  build_in_list(&b, components, n);
  return dataset_end_shapes(&b, &e);
}

shoal_out shoal_dataset_range(shoal_graph *g, int64_t start, int64_t stop, int64_t step) {
  struct feed_element e = {.n = 1, .types = {SHOAL_INT64}};
  struct build b = dataset_begin(g, "RangeDataset", build_const_int(g, SHOAL_INT64, start));
  build_in(&b, build_const_int(g, SHOAL_INT64, stop));
  build_in(&b, build_const_int(g, SHOAL_INT64, step));
  return dataset_end(&b, &e);
}

/* ---- names of files ---- */

/* As list_files of tf.data has it: no match is a mistake, found when it runs. */
shoal_out shoal_matching(shoal_graph *g, const char *pattern) {
  GRAPH_GIVEN(g, pattern, none);
  graph_push_scope(g, "matching");
  shoal_out names = build_op1(g, "MatchingFiles", text(g, pattern));
  struct build size = build_begin(g, "Size", NULL);
  build_in(&size, names);
  build_attr_type(&size, "out_type", SHOAL_INT64);
  shoal_out some = build_op2(g, "Greater", build_end_out(&size), build_const_int(g, SHOAL_INT64, 0));
  char *message = mem_printf("No files matched pattern: %s", pattern);
  struct build check = build_begin(g, "Assert", NULL);
  build_in(&check, some);
  build_in(&check, text(g, message));
  struct shoal_node *checked = build_end(&check);
  free(message);
  struct build b = build_begin(g, "Identity", NULL);
  build_in(&b, names);
  if (checked) build_control(&b, checked);
  shoal_out found = build_end_out(&b);
  graph_pop_scope(g);
  return found;
}

shoal_out shoal_dataset_files(shoal_graph *g, const char *pattern, int64_t seed) {
  shoal_out names = shoal_matching(g, pattern);
  struct feed_element e = {.n = 1, .types = {SHOAL_STRING}};
  struct build b = dataset_begin(g, "TensorSliceDataset", names);
  build_attr_bool(&b, "is_files", true);
  shoal_out d = dataset_end_shapes(&b, &e);
  if (seed == SHOAL_IN_ORDER) return d;
  struct build size = build_begin(g, "Size", NULL);
  build_in(&size, names);
  build_attr_type(&size, "out_type", SHOAL_INT64);
  return feed_shuffle(g, d, &e, build_end_out(&size), seed, true);
}

/* ---- files of strings ---- */

static shoal_out of_files(shoal_graph *g, const char *op, shoal_out files, const shoal_file_options *options,
                          int64_t buffer) {
  shoal_file_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_file_options, buffer, &o, options), none);
  struct build b = dataset_begin(g, op, files);
  build_in(&b, text(g, o.compression));
  build_in(&b, build_const_int(g, SHOAL_INT64, o.buffer ? o.buffer : buffer));
  return build_end_out(&b);
}

shoal_out shoal_dataset_text_lines(shoal_graph *g, shoal_out files, const shoal_file_options *options) {
  return of_files(g, "TextLineDataset", files, options, 256 << 10);
}

shoal_out shoal_dataset_tfrecord(shoal_graph *g, shoal_out files, const shoal_file_options *options) {
  return of_files(g, "TFRecordDataset", files, options, 256 << 10);
}
