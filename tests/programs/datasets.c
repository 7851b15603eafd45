/* Datasets of every kind, for tests/interop/dataset_api_test.py: makes the one of a name, writes its elements and its
 * graph.
 *
 *   datasets CASE FOLDER [SKIP]     files are read from FOLDER, the graph is written to FOLDER/graph.pb
 *
 * $MASTER is a server to walk it, instead of this process. With SKIP so many elements are skipped, as those that a run
 * had before it was interrupted are. Prints "begin OP", "next OUTPUT...", and a line for each element: "type dims:
 * values" for each component, set apart by tabs; strings in hexadecimal. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shoal/shoal.h>

static const char *folder;

static shoal_out in_folder(shoal_graph *g, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return shoal_constant_string(g, path);
}

static shoal_out numbers(shoal_graph *g, int64_t n) { return shoal_dataset_range(g, 0, n, 1); }

/* ---- sources ---- */

static void pair(shoal_graph *g, shoal_out *x) {
  x[0] = shoal_constant_floats(g, SHOAL_SHAPE(3, 2), (const float[]){1, 2, 3, 4, 5, 6});
  x[1] = shoal_constant_strings(g, (const char *const[]){"a", "", "ccc"}, 3);
}

static shoal_out tensors(shoal_graph *g) {
  shoal_out x[2];
  pair(g, x);
  return shoal_dataset_from_tensors(g, x, 2);
}

static shoal_out slices(shoal_graph *g) {
  shoal_out x[2];
  pair(g, x);
  return shoal_dataset_tensor_slices(g, x, 2);
}

static shoal_out range(shoal_graph *g) { return shoal_dataset_range(g, 10, -3, -4); }

/* Vectors of growing length, nine of them. */
static shoal_status fill(void *arg, int64_t position, shoal_tensor **values) {
  int64_t v[16];
  if (position >= 9) return shoal_status_new(SHOAL_OUT_OF_RANGE, "there are nine");
  for (int64_t i = 0; i < position; i++) v[i] = position * 10 + i;
  return shoal_tensor_from(SHOAL_INT64, 1, &position, v, (size_t)position * sizeof *v, &values[0]);
}

static shoal_out callback(shoal_graph *g) {
  const shoal_dtype type = SHOAL_INT64;
  const shoal_dims shape = SHOAL_SHAPE(-1);
  return shoal_dataset_from_callback(g, fill, NULL, &type, &shape, 1);
}

static shoal_out callback_batched(shoal_graph *g) { return shoal_dataset_padded_batch(g, callback(g), 4, NULL); }

static shoal_out idx(shoal_graph *g) {
  char images[4096], labels[4096];
  snprintf(images, sizeof images, "%s/images", folder);
  snprintf(labels, sizeof labels, "%s/labels.gz", folder);
  return shoal_dataset_idx(g, (const char *const[]){images, labels}, 2);
}

static shoal_out names_of(shoal_graph *g, int64_t seed) {
  char pattern[4096];
  snprintf(pattern, sizeof pattern, "%s/*.txt", folder);
  return shoal_dataset_files(g, pattern, seed);
}

static shoal_out files(shoal_graph *g) { return names_of(g, 5); }
static shoal_out lines(shoal_graph *g) { return shoal_dataset_text_lines(g, in_folder(g, "a.txt"), NULL); }

static shoal_out all_lines(shoal_graph *g) {
  char pattern[4096];
  snprintf(pattern, sizeof pattern, "%s/*.txt", folder);
  return shoal_dataset_text_lines(g, shoal_matching(g, pattern), NULL);
}

static shoal_out lines_gzip(shoal_graph *g) {
  return shoal_dataset_text_lines(g, in_folder(g, "lines.gz"),
                                  SHOAL_OPTIONS(shoal_file_options, .compression = "GZIP"));
}

static shoal_out csv(shoal_graph *g) {
  shoal_out columns[3];
  columns[0] = shoal_csv_required(g, SHOAL_INT64);
  columns[1] = shoal_constant_float(g, -1);
  columns[2] = shoal_constant_string(g, "none");
  return shoal_dataset_csv(g, in_folder(g, "table.csv"), columns, 3,
                           SHOAL_OPTIONS(shoal_csv_options, .header = true, .delimiter = ";", .na_value = "NA",
                                         .select = (const int64_t[]){0, 2, 3}, .n_select = 3));
}

static shoal_out tfrecord(shoal_graph *g) { return shoal_dataset_tfrecord(g, in_folder(g, "plain.tfrecord"), NULL); }
static shoal_out tfrecord_gzip(shoal_graph *g) {
  return shoal_dataset_tfrecord(g, in_folder(g, "gzip.tfrecord"),
                                SHOAL_OPTIONS(shoal_file_options, .compression = "GZIP"));
}
static shoal_out tfrecord_zlib(shoal_graph *g) {
  return shoal_dataset_tfrecord(g, in_folder(g, "zlib.tfrecord"),
                                SHOAL_OPTIONS(shoal_file_options, .compression = "ZLIB"));
}

/* ---- Examples ---- */

static shoal_out parse(shoal_graph *g, shoal_out d, bool alone, int64_t parallel) {
  const shoal_feature features[] = {
      {"label", SHOAL_INT64, SHOAL_FEATURE_FIXED, SHOAL_SCALAR, {0}},
      {"sparse", SHOAL_FLOAT32, SHOAL_FEATURE_SPARSE, SHOAL_SCALAR, {0}},
      {"x", SHOAL_FLOAT32, SHOAL_FEATURE_FIXED, SHOAL_SHAPE(2), {0}},
      {"name", SHOAL_STRING, SHOAL_FEATURE_FIXED, SHOAL_SCALAR, shoal_constant_string(g, "nobody")},
      {"tail", SHOAL_INT64, SHOAL_FEATURE_FIXED, SHOAL_SHAPE(-1), {0}},
      {"ragged", SHOAL_INT64, SHOAL_FEATURE_RAGGED, SHOAL_SCALAR, {0}},
  };
  return shoal_dataset_parse_example(g, d, features, alone ? 5 : 6,
                                     SHOAL_OPTIONS(shoal_map_options, .parallel = parallel));
}

static shoal_out examples(shoal_graph *g) { return shoal_dataset_tfrecord(g, in_folder(g, "examples.tfrecord"), NULL); }
static shoal_out parse_one(shoal_graph *g) { return parse(g, examples(g), true, 0); }
static shoal_out parse_batch(shoal_graph *g) {
  return parse(g, shoal_dataset_batch(g, examples(g), 3, false), false, 2);
}

/* ---- functions ---- */

/* x * x + captured, x % 3 == captured */
static shoal_function *square(shoal_graph *g, shoal_out d, shoal_out captured) {
  shoal_out x;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  shoal_function_output(f, shoal_add_v2(f, shoal_mul(f, x, x), captured), NULL);
  shoal_function_output(f, x, NULL);
  return shoal_function_end(f);
}

static shoal_out map_with(shoal_graph *g, int64_t parallel, bool unordered) {
  shoal_out d = numbers(g, 50);
  return shoal_dataset_map(g, d, square(g, d, shoal_constant_int64(g, 7)),
                           SHOAL_OPTIONS(shoal_map_options, .parallel = parallel, .unordered = unordered));
}

static shoal_out map(shoal_graph *g) { return map_with(g, 0, false); }
static shoal_out map_parallel(shoal_graph *g) { return map_with(g, 3, false); }
static shoal_out map_unordered(shoal_graph *g) { return map_with(g, SHOAL_AUTO, true); }

static shoal_out filter(shoal_graph *g) {
  shoal_out d = numbers(g, 20), x, two = shoal_constant_int64(g, 2);
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  shoal_function_output(f, shoal_equal(f, shoal_floor_mod(f, x, shoal_constant_int64(f, 3)), two), NULL);
  return shoal_dataset_filter(g, d, shoal_function_end(f));
}

/* The dataset of x, x + 100, ... of each x. */
static shoal_function *several(shoal_graph *g, shoal_out d) {
  shoal_out x, row;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  shoal_builder *b = shoal_build(f, "Range", NULL);
  shoal_build_input(b, x);
  shoal_build_input(b, shoal_add_v2(f, x, shoal_constant_int64(f, 350)));
  shoal_build_input(b, shoal_constant_int64(f, 100));
  row = shoal_build_end_out(b);
  shoal_function_output(f, shoal_dataset_tensor_slices(f, &row, 1), NULL);
  return shoal_function_end(f);
}

static shoal_out flat_map(shoal_graph *g) {
  shoal_out d = numbers(g, 5);
  return shoal_dataset_flat_map(g, d, several(g, d));
}

static shoal_out interleave(shoal_graph *g) {
  shoal_out d = numbers(g, 7);
  return shoal_dataset_interleave(g, d, several(g, d), SHOAL_OPTIONS(shoal_interleave_options, .cycle = 3, .block = 2));
}

/* Lines of all files, two files at a time. */
static shoal_out interleave_parallel(shoal_graph *g) {
  shoal_out d = names_of(g, SHOAL_IN_ORDER), file;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &file, 1);
  shoal_function_output(f, shoal_dataset_text_lines(f, file, NULL), NULL);
  return shoal_dataset_interleave(g, d, shoal_function_end(f),
                                  SHOAL_OPTIONS(shoal_interleave_options, .cycle = 2, .parallel = 2));
}

/* ---- batches ---- */

static shoal_out batch(shoal_graph *g) { return shoal_dataset_batch(g, slices(g), 2, false); }
static shoal_out batch_drop(shoal_graph *g) { return shoal_dataset_batch(g, slices(g), 2, true); }
static shoal_out unbatch(shoal_graph *g) { return shoal_dataset_unbatch(g, batch(g)); }

/* Vectors of x times x, beside x. */
static shoal_out triangle(shoal_graph *g, int64_t n) {
  shoal_out d = numbers(g, n), x;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  shoal_function_output(
      f, shoal_fill(f, shoal_reshape(f, x, shoal_constant_ints(f, SHOAL_SHAPE(1), (const int[]){1})), x), NULL);
  shoal_function_output(f, x, NULL);
  return shoal_dataset_map(g, d, shoal_function_end(f), NULL);
}

static shoal_out padded(shoal_graph *g) { return shoal_dataset_padded_batch(g, triangle(g, 7), 3, NULL); }

static shoal_out padded_to(shoal_graph *g) {
  shoal_out values[2] = {{0}};
  values[0] = shoal_constant_int64(g, -1);
  return shoal_dataset_padded_batch(
      g, triangle(g, 7), 3,
      SHOAL_OPTIONS(shoal_padded_options, .shapes = (const shoal_dims[]){SHOAL_SHAPE(8), SHOAL_SCALAR},
                    .values = values, .drop_remainder = true));
}

static shoal_out ragged(shoal_graph *g) { return shoal_dataset_ragged_batch(g, triangle(g, 7), 3, false); }

/* ---- order and number ---- */

static shoal_out shuffle(shoal_graph *g) { return shoal_dataset_shuffle(g, numbers(g, 40), 9, 42, NULL); }
static shoal_out shuffle_repeat(shoal_graph *g) { return shoal_dataset_repeat(g, shuffle(g), 3); }

static shoal_out shuffle_same(shoal_graph *g) {
  return shoal_dataset_repeat(
      g, shoal_dataset_shuffle(g, numbers(g, 12), 20, 0, SHOAL_OPTIONS(shoal_shuffle_options, .no_reshuffle = true)),
      2);
}

static shoal_out shuffle_graph_seed(shoal_graph *g) {
  shoal_set_random_seed(g, 77);
  return shuffle(g);
}

static shoal_out repeat(shoal_graph *g) { return shoal_dataset_repeat(g, numbers(g, 3), 3); }
static shoal_out take_skip(shoal_graph *g) {
  return shoal_dataset_take(g, shoal_dataset_skip(g, shoal_dataset_repeat(g, numbers(g, 30), -1), 25), 10);
}
static shoal_out shard(shoal_graph *g) { return shoal_dataset_shard(g, numbers(g, 11), 3, 1); }
static shoal_out concatenate(shoal_graph *g) { return shoal_dataset_concatenate(g, batch(g), batch_drop(g)); }
static shoal_out zip(shoal_graph *g) {
  shoal_out both[2];
  both[0] = numbers(g, 5);
  both[1] = slices(g);
  return shoal_dataset_zip(g, both, 2);
}
static shoal_out enumerate(shoal_graph *g) { return shoal_dataset_enumerate(g, slices(g), 4); }
static shoal_out prefetch(shoal_graph *g) { return shoal_dataset_prefetch(g, numbers(g, 9), 2); }
static shoal_out cache(shoal_graph *g) { return shoal_dataset_repeat(g, shoal_dataset_cache(g, shuffle(g), NULL), 2); }
static shoal_out cache_file(shoal_graph *g) {
  char path[4096];
  snprintf(path, sizeof path, "%s/cached", folder);
  return shoal_dataset_repeat(g, shoal_dataset_cache(g, numbers(g, 6), path), 2);
}

/* ---- datasets of datasets ---- */

static shoal_out window(shoal_graph *g) {
  shoal_out d =
      shoal_dataset_window(g, numbers(g, 14), 4, SHOAL_OPTIONS(shoal_window_options, .shift = 3, .stride = 2));
  d = shoal_dataset_take(g, d, 4);
  shoal_out w;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &w, 1);
  shoal_function_output(f, shoal_dataset_batch(f, w, 4, false), NULL);
  return shoal_dataset_flat_map(g, d, shoal_function_end(f));
}

static shoal_out group_by_window(shoal_graph *g) {
  shoal_out d = numbers(g, 20), x, key, w;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  shoal_function_output(f, shoal_floor_mod(f, x, shoal_constant_int64(f, 3)), NULL);
  shoal_function *by = shoal_function_end(f);
  f = shoal_dataset_window_function(g, d, NULL, &key, &w);
  shoal_function_output(f, shoal_dataset_batch(f, w, 4, false), NULL);
  return shoal_dataset_group_by_window(g, d, by, shoal_function_end(f), 4);
}

static shoal_out group_by_length(shoal_graph *g) {
  return shoal_dataset_group_by_length(g, triangle(g, 13),
                                       SHOAL_OPTIONS(shoal_length_options, .bounds = (const int64_t[]){3, 7},
                                                     .n_bounds = 2, .rows = (const int64_t[]){2, 3, 2}));
}

/* ---- in files ---- */

static void check(shoal_status s) {
  if (!s) return;
  shoal_status_print(s);
  exit(1);
}

/* By a session of its own, unless an earlier run has. */
static void save(const char *path) {
  shoal_graph *g = shoal_graph_new();
  shoal_op *all = shoal_dataset_save(g, slices(g), path, SHOAL_OPTIONS(shoal_saved_options, .compression = "GZIP"));
  shoal_session *s;
  if (shoal_report(g)) exit(1);
  check(shoal_session_open(g, NULL, &s));
  check(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, all));
  check(shoal_session_close(s));
  shoal_graph_free(g);
}

static shoal_out saved(shoal_graph *g) {
  const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_STRING};
  const shoal_dims shapes[] = {SHOAL_SHAPE(2), SHOAL_SCALAR};
  char path[4096];
  snprintf(path, sizeof path, "%s/saved", folder);
  if (access(path, F_OK)) save(path);
  return shoal_dataset_load(g, path, types, shapes, 2, SHOAL_OPTIONS(shoal_saved_options, .compression = "GZIP"));
}

static shoal_out snapshot(shoal_graph *g) {
  char path[4096];
  snprintf(path, sizeof path, "%s/snapshot", folder);
  return shoal_dataset_snapshot(g, slices(g), path, NULL);
}

/* ---- all of them ---- */

#define CASE(name) \
  { #name, name }
static const struct {
  const char *name;
  shoal_out (*make)(shoal_graph *g);
} cases[] = {
    CASE(tensors),
    CASE(slices),
    CASE(range),
    CASE(callback),
    CASE(callback_batched),
    CASE(idx),
    CASE(files),
    CASE(lines),
    CASE(all_lines),
    CASE(lines_gzip),
    CASE(csv),
    CASE(tfrecord),
    CASE(tfrecord_gzip),
    CASE(tfrecord_zlib),
    CASE(parse_one),
    CASE(parse_batch),
    CASE(map),
    CASE(map_parallel),
    CASE(map_unordered),
    CASE(filter),
    CASE(flat_map),
    CASE(interleave),
    CASE(interleave_parallel),
    CASE(batch),
    CASE(batch_drop),
    CASE(unbatch),
    CASE(padded),
    CASE(padded_to),
    CASE(ragged),
    CASE(shuffle),
    CASE(shuffle_repeat),
    CASE(shuffle_same),
    CASE(shuffle_graph_seed),
    CASE(repeat),
    CASE(take_skip),
    CASE(shard),
    CASE(concatenate),
    CASE(zip),
    CASE(enumerate),
    CASE(prefetch),
    CASE(cache),
    CASE(cache_file),
    CASE(window),
    CASE(group_by_window),
    CASE(group_by_length),
    CASE(saved),
    CASE(snapshot),
};

static shoal_out make(shoal_graph *g, const char *name) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (!strcmp(cases[i].name, name)) return cases[i].make(g);
  fprintf(stderr, "there is no case '%s'\n", name);
  exit(2);
}

/* ---- writing ---- */

static void print_string(const shoal_tensor *t, int64_t i) {
  size_t n;
  const char *s = shoal_tensor_string(t, i, &n);
  printf(" x");
  for (size_t k = 0; k < n; k++) printf("%02x", (unsigned char)s[k]);
}

static void print_value(const shoal_tensor *t, int64_t i) {
  const void *data = shoal_tensor_const_data(t);
  switch (shoal_tensor_dtype(t)) {
    case SHOAL_FLOAT32: printf(" %.9g", (double)((const float *)data)[i]); break;
    case SHOAL_INT64: printf(" %" PRId64, ((const int64_t *)data)[i]); break;
    case SHOAL_UINT8: printf(" %d", ((const uint8_t *)data)[i]); break;
    case SHOAL_INT16: printf(" %d", ((const int16_t *)data)[i]); break;
    default: printf(" ?");
  }
}

static void print_tensor(const shoal_tensor *t) {
  printf("%s", shoal_dtype_name(shoal_tensor_dtype(t)));
  for (int i = 0; i < shoal_tensor_rank(t); i++) printf(" %" PRId64, shoal_tensor_dim(t, i));
  printf(":");
  for (int64_t i = 0; i < shoal_tensor_elements(t); i++)
    if (shoal_tensor_dtype(t) == SHOAL_STRING) print_string(t, i);
    else print_value(t, i);
}

static void print_elements(shoal_graph *g, shoal_out d, int n) {
  shoal_elements *e;
  shoal_tensor *values[SHOAL_MAX_COMPONENTS];
  shoal_status end;
  check(shoal_elements_open(g, d, SHOAL_OPTIONS(shoal_session_options, .target = getenv("MASTER")), &e));
  while (!(end = shoal_elements_next(e, values)))
    for (int i = 0; i < n; i++) {
      print_tensor(values[i]);
      printf(i < n - 1 ? "\t" : "\n");
      shoal_tensor_unref(values[i]);
    }
  if (shoal_status_code(end) != SHOAL_OUT_OF_RANGE) check(end);
  shoal_status_free(end);
  check(shoal_elements_close(e));
}

static void write_graph(shoal_graph *g, shoal_out d, int n) {
  shoal_out next[SHOAL_MAX_COMPONENTS];
  shoal_op *begin = shoal_dataset_next(g, d, next, n, NULL);
  if (shoal_report(g)) exit(1);
  printf("begin %s\nnext", shoal_op_name(begin));
  for (int i = 0; i < n; i++) printf(" %s:%d", shoal_op_name(next[i].node), next[i].index);
  printf("\n");
  shoal_bytes bytes;
  char path[4096];
  snprintf(path, sizeof path, "%s/graph.pb", folder);
  check(shoal_graph_export(g, &bytes));
  FILE *to = fopen(path, "wb");
  if (!to || fwrite(bytes.data, 1, bytes.size, to) != bytes.size || fclose(to)) exit(1);
  shoal_bytes_free(&bytes);
}

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4) return 2;
  folder = argv[2];
  shoal_graph *g = shoal_graph_new();
  shoal_out d = make(g, argv[1]);
  if (argc == 4) d = shoal_dataset_skip(g, d, atol(argv[3]));
  if (shoal_report(g)) return 1;
  int n = shoal_dataset_components(d, NULL);
  write_graph(g, d, n);
  print_elements(g, d, n);
  shoal_graph_free(g);
  return 0;
}
