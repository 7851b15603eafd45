/* Which elements come, how often, in which order; and what is kept of them. None of them changes an element. */
#include "feed/order.h"

#include "base/options.h"
#include "data/dataset.h"
#include "graph/given.h"
#include "shoal/layers.h"

static const shoal_out none;

/* An op that passes on elements of d, with numbers behind it. */
static shoal_out counted(shoal_graph *g, const char *caller, const char *op, shoal_out d, const int64_t *numbers,
                         int n) {
  struct feed_element e;
  GRAPH_TRY(g, element_of(caller, d, &e), none);
  struct build b = dataset_begin(g, op, d);
  for (int i = 0; i < n; i++) build_in(&b, build_const_int(g, SHOAL_INT64, numbers[i]));
  return dataset_end(&b, &e);
}

shoal_out shoal_dataset_repeat(shoal_graph *g, shoal_out d, int64_t times) {
  return counted(g, __func__, "RepeatDataset", d, &times, 1);
}

shoal_out shoal_dataset_take(shoal_graph *g, shoal_out d, int64_t n) {
  return counted(g, __func__, "TakeDataset", d, &n, 1);
}

shoal_out shoal_dataset_skip(shoal_graph *g, shoal_out d, int64_t n) {
  struct feed_element e;
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  return feed_skip(g, d, &e, build_const_int(g, SHOAL_INT64, n));
}

shoal_out shoal_dataset_prefetch(shoal_graph *g, shoal_out d, int64_t elements) {
  return counted(g, __func__, "PrefetchDataset", d, &elements, 1);
}

shoal_out shoal_dataset_shard(shoal_graph *g, shoal_out d, int64_t shards, int64_t index) {
  if (shards < 1 || index < 0 || index >= shards)
    GRAPH_TRY(g, INVALID("%s: shard %lld of %lld", __func__, (long long)index, (long long)shards), none);
  return counted(g, __func__, "ShardDataset", d, (const int64_t[]){shards, index}, 2);
}

shoal_out feed_skip(struct shoal_graph *g, shoal_out d, const struct feed_element *e, shoal_out count) {
  struct build b = dataset_begin(g, "SkipDataset", d);
  build_in(&b, count);
  build_attr_bool(&b, DATASET_SKIP_UNMADE, true);
  return dataset_end(&b, e);
}

/* ---- shuffle, cache ---- */

shoal_out feed_shuffle(struct shoal_graph *g, shoal_out d, const struct feed_element *e, shoal_out buffer, int64_t seed,
                       bool reshuffle) {
  int64_t seeds[2];
  if (seed == SHOAL_ANY_SEED) graph_next_seeds(g, &seeds[0], &seeds[1]);
  else graph_own_seeds(g, seed, &seeds[0], &seeds[1]);
  struct build b = dataset_begin(g, "ShuffleDataset", d);
  build_in(&b, buffer);
  for (int i = 0; i < 2; i++) build_in(&b, build_const_int(g, SHOAL_INT64, seeds[i]));
  build_attr_bool(&b, "reshuffle_each_iteration", reshuffle);
  return dataset_end(&b, e);
}

shoal_out shoal_dataset_shuffle(shoal_graph *g, shoal_out d, int64_t buffer, int64_t seed,
                                const shoal_shuffle_options *options) {
  shoal_shuffle_options o = {0};
  struct feed_element e;
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_shuffle_options, no_reshuffle, &o, options), none);
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  if (buffer < 1) GRAPH_TRY(g, INVALID("%s: a buffer of %lld elements", __func__, (long long)buffer), none);
  return feed_shuffle(g, d, &e, build_const_int(g, SHOAL_INT64, buffer), seed, !o.no_reshuffle);
}

shoal_out shoal_dataset_cache(shoal_graph *g, shoal_out d, const char *path) {
  struct feed_element e;
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  struct build b = dataset_begin(g, "CacheDataset", d);
  build_in(&b, shoal_constant_string(g, path ? path : ""));
  return dataset_end(&b, &e);
}

/* ---- several ---- */

/* What both shapes agree on. */
static struct shape common(const struct shape *a, const struct shape *b) {
  if (a->rank != b->rank) return shape_unknown();
  struct shape s = *a;
  for (int i = 0; i < s.rank; i++)
    if (a->dims[i] != b->dims[i]) s.dims[i] = -1;
  return s;
}

shoal_out shoal_dataset_concatenate(shoal_graph *g, shoal_out a, shoal_out b) {
  struct feed_element first, second;
  GRAPH_TRY(g, element_of(__func__, a, &first), none);
  GRAPH_TRY(g, element_of(__func__, b, &second), none);
  if (first.n != second.n)
    GRAPH_TRY(g, INVALID("%s: elements of %d and of %d components", __func__, first.n, second.n), none);
  for (int i = 0; i < first.n; i++) {
    if (first.types[i] != second.types[i])
      GRAPH_TRY(g,
                INVALID("%s: component %d is of type %s, and of %s", __func__, i, shoal_dtype_name(first.types[i]),
                        shoal_dtype_name(second.types[i])),
                none);
    first.shapes[i] = common(&first.shapes[i], &second.shapes[i]);
  }
  struct build both = dataset_begin(g, "ConcatenateDataset", a);
  build_in(&both, b);
  return dataset_end(&both, &first);
}

static shoal_status side_by_side(const char *caller, const shoal_out *datasets, int n, struct feed_element *all) {
  TRY(given_array(caller, "datasets", datasets, n));
  if (n < 1) return INVALID("%s: no dataset is given", caller);
  all->n = 0;
  for (int i = 0; i < n; i++) {
    struct feed_element e;
    TRY(element_of(caller, datasets[i], &e));
    for (int k = 0; k < e.n; k++)
      if (!element_add(all, e.types[k], &e.shapes[k]))
        return INVALID("%s: more than %d components", caller, SHOAL_MAX_COMPONENTS);
  }
  return NULL;
}

shoal_out shoal_dataset_zip(shoal_graph *g, const shoal_out *datasets, int n) {
  struct feed_element all;
  GRAPH_TRY(g, side_by_side(__func__, datasets, n, &all), none);
  struct build b = build_begin(g, "ZipDataset", NULL);
  build_in_list(&b, datasets, n);
  build_attr_int(&b, "N", n);
  return dataset_end(&b, &all);
}

shoal_out shoal_dataset_enumerate(shoal_graph *g, shoal_out d, int64_t start) {
  struct feed_element e;
  GRAPH_TRY(g, element_of(__func__, d, &e), none);
  shoal_out both[2];
  both[0] = shoal_dataset_range(g, start, INT64_MAX, 1);
  both[1] = d;
  return shoal_dataset_zip(g, both, 2);
}
