/* Lines of values set apart by commas, and what each column is. */
#include "base/options.h"
#include "feed/element.h"
#include "graph/given.h"
#include "shoal/layers.h"

static const shoal_out none;

shoal_out shoal_csv_required(shoal_graph *g, shoal_dtype dtype) {
  struct tensor t;
  GRAPH_TRY(g, tensor_new(&t, dtype, &(struct shape){.rank = 1}), none);
  shoal_out empty = build_const(g, &t, "required");
  tensor_release(&t);
  return empty;
}

static shoal_status check(const char *caller, const shoal_out *defaults, int n, const shoal_csv_options *o) {
  TRY(given_array(caller, "defaults", defaults, n));
  TRY(given_array(caller, "select", o->select, o->n_select));
  if (n < 1 || n > SHOAL_MAX_COMPONENTS)
    return INVALID("%s: %d columns; there are 1 to %d", caller, n, SHOAL_MAX_COMPONENTS);
  if (o->select && o->n_select != n)
    return INVALID("%s: %d columns are selected, and there are defaults for %d", caller, o->n_select, n);
  return NULL;
}

shoal_out shoal_dataset_csv(shoal_graph *g, shoal_out files, const shoal_out *defaults, int n,
                            const shoal_csv_options *options) {
  shoal_csv_options o = {0};
  struct feed_element e = {0};
  struct shape scalar = shape_scalar();
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_csv_options, n_select, &o, options), none);
  GRAPH_TRY(g, check(__func__, defaults, n, &o), none);
  for (int i = 0; i < n; i++) element_add(&e, out_type(defaults[i]), &scalar);
  struct build b = dataset_begin(g, "CSVDataset", files);
  build_in(&b, shoal_constant_string(g, o.compression ? o.compression : ""));
  build_in(&b, build_const_int(g, SHOAL_INT64, 4 << 20)); /* TensorFlow's buffer */
  build_in(&b, shoal_constant_bool(g, o.header));
  build_in(&b, shoal_constant_string(g, o.delimiter ? o.delimiter : ","));
  build_in(&b, shoal_constant_bool(g, !o.no_quotes));
  build_in(&b, shoal_constant_string(g, o.na_value ? o.na_value : ""));
  build_in(&b, build_const_ints(g, SHOAL_INT64, o.select, o.select ? o.n_select : 0));
  build_in_list(&b, defaults, n);
  return dataset_end(&b, &e);
}
