/* Datasets in files: saved as a whole, loaded again, and snapshots, which are written on the first walk.
 *
 * The ops take functions: which shard an element goes to (always the first here), and how the shards' datasets become
 * one (one after the other). So what one process saved is loaded in its order, and TensorFlow's tf.data.Dataset.load
 * reads it, too, where it is told the elements' types (element_spec): it writes those to a file of its own. */
#include "base/options.h"
#include "feed/order.h"
#include "graph/function_define.h"
#include "graph/given.h"
#include "shoal/layers.h"

static const shoal_out none;

/* All elements go to shard 0. */
static const shoal_function *one_shard(shoal_graph *g, shoal_out d, int n) {
  shoal_out in[SHOAL_MAX_COMPONENTS];
  shoal_graph *f = shoal_dataset_function(g, d, NULL, in, n);
  shoal_function_output(f, build_const_int(f, SHOAL_INT64, 0), "shard");
  return shoal_function_end(f);
}

/* A dataset, unchanged. */
static const shoal_function *itself(shoal_graph *g, const struct feed_element *e) {
  shoal_graph *f = shoal_function_begin(g, NULL);
  shoal_out d = shoal_function_input(f, SHOAL_VARIANT, SHOAL_SCALAR, "shard");
  element_mark(d.node, e);
  shoal_function_output(f, d, "elements");
  return shoal_function_end(f);
}

/* Of a dataset of the shards' datasets: the elements of all. */
static const shoal_function *one_by_one(shoal_graph *g, const struct feed_element *e) {
  struct feed_element shard = {0};
  struct shape scalar = shape_scalar();
  element_add(&shard, SHOAL_VARIANT, &scalar);
  shoal_graph *f = shoal_function_begin(g, NULL);
  shoal_out shards = shoal_function_input(f, SHOAL_VARIANT, SHOAL_SCALAR, "shards");
  element_mark(shards.node, &shard);
  shoal_function_output(f, shoal_dataset_flat_map(f, shards, itself(f, e)), "elements");
  return shoal_function_end(f);
}

static void build_function(struct build *b, const char *attr, const char *types, const shoal_function *f) {
  build_captured(b, types, f);
  build_attr(b, attr, attr_func(f->name));
}

static shoal_status take(const char *caller, const char *path, const shoal_saved_options *given,
                         shoal_saved_options *o) {
  if (!path || !*path) return INVALID("%s: path is %s", caller, path ? "empty" : "NULL");
  TRY(OPTIONS_TAKE(shoal_saved_options, compression, o, given));
  if (!o->compression) o->compression = "";
  return NULL;
}

shoal_op *shoal_dataset_save(shoal_graph *g, shoal_out d, const char *path, const shoal_saved_options *options) {
  shoal_saved_options o = {0};
  struct feed_element e;
  GRAPH_TRY(g, take(__func__, path, options, &o), NULL);
  GRAPH_TRY(g, element_of(__func__, d, &e), NULL);
  const shoal_function *shard = one_shard(g, d, e.n);
  if (graph_error(g)) return NULL;
  struct build b = dataset_begin(g, "SaveDataset", d);
  build_in(&b, shoal_constant_string(g, path));
  build_function(&b, "shard_func", "Tshard_func_args", shard);
  build_attr_bool(&b, "use_shard_func", false);
  build_attr_string(&b, "compression", o.compression);
  return build_end(&b);
}

static shoal_status described(const char *caller, const shoal_dtype *types, const shoal_dims *shapes, int n,
                              struct feed_element *e) {
  *e = (struct feed_element){0};
  if (n < 1 || n > SHOAL_MAX_COMPONENTS)
    return INVALID("%s: %d components; there are 1 to %d", caller, n, SHOAL_MAX_COMPONENTS);
  TRY(given_array(caller, "types", types, n));
  TRY(given_array(caller, "shapes", shapes, n));
  for (int i = 0; i < n; i++) {
    struct shape s;
    TRY(element_shape(shapes[i], &s));
    element_add(e, types[i], &s);
  }
  return NULL;
}

shoal_out shoal_dataset_load(shoal_graph *g, const char *path, const shoal_dtype *types, const shoal_dims *shapes,
                             int n, const shoal_saved_options *options) {
  shoal_saved_options o = {0};
  struct feed_element e;
  GRAPH_TRY(g, take(__func__, path, options, &o), none);
  GRAPH_TRY(g, described(__func__, types, shapes, n, &e), none);
  const shoal_function *reader = one_by_one(g, &e);
  if (graph_error(g)) return none;
  struct build b = dataset_begin(g, "LoadDataset", shoal_constant_string(g, path));
  build_function(&b, "reader_func", "Treader_func_args", reader);
  build_attr_string(&b, "compression", o.compression);
  return dataset_end(&b, &e);
}

shoal_out shoal_dataset_snapshot(shoal_graph *g, shoal_out d, const char *path, const shoal_saved_options *options) {
  shoal_saved_options o = {0};
  struct feed_element e;
  GRAPH_TRY(g, take(__func__, path, options, &o), none);
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  const shoal_function *reader = one_by_one(g, &e), *shard = one_shard(g, d, e.n);
  if (graph_error(g)) return none;
  struct build b = dataset_begin(g, "SnapshotDatasetV2", d);
  build_in(&b, shoal_constant_string(g, path));
  build_function(&b, "reader_func", "Treader_func_args", reader);
  build_function(&b, "shard_func", "Tshard_func_args", shard);
  build_attr_string(&b, "compression", o.compression);
  return dataset_end(&b, &e);
}
