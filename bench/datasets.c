/* Walks datasets as fast as it can, for bench/datasets.py, which makes the files and runs tf.data beside it.
 *
 *   datasets CASE FILE PARALLEL
 *
 * CASE is parse, shuffle, map or stream. For each line of its input it walks the dataset once, and prints seconds, rows
 * and how much memory it ever had, in KB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "../examples/common.h"

enum { WIDTH = 32, BATCH = 128, ROWS = 50000, BUFFER = 10000, CALLS = 2000, NUMBERS = 2048, OPS = 40, STREAM = 10240 };

/* Records of Examples, in batches, parsed. */
static shoal_out parse(shoal_graph *g, const char *file, int64_t parallel) {
  const shoal_feature features[] = {{"x", SHOAL_FLOAT32, SHOAL_FEATURE_FIXED, SHOAL_SHAPE(WIDTH), {0}},
                                    {"name", SHOAL_STRING, SHOAL_FEATURE_FIXED, SHOAL_SCALAR, {0}},
                                    {"label", SHOAL_INT64, SHOAL_FEATURE_FIXED, SHOAL_SCALAR, {0}}};
  shoal_out d = shoal_dataset_tfrecord(g, shoal_constant_string(g, file), NULL);
  d = shoal_dataset_batch(g, d, BATCH, true);
  return shoal_dataset_parse_example(g, d, features, 3, SHOAL_OPTIONS(shoal_map_options, .parallel = parallel));
}

/* Rows in memory, shuffled and put together. */
static shoal_out shuffled(shoal_graph *g, const char *file, int64_t parallel) {
  const int64_t dims[] = {ROWS, WIDTH};
  shoal_tensor *t;
  check(shoal_tensor_new(SHOAL_FLOAT32, 2, dims, &t));
  shoal_out rows[2];
  rows[0] = shoal_constant(g, t);
  shoal_tensor_unref(t);
  check(shoal_tensor_new(SHOAL_INT64, 1, dims, &t));
  rows[1] = shoal_constant(g, t);
  shoal_tensor_unref(t);
  shoal_out d = shoal_dataset_shuffle(g, shoal_dataset_tensor_slices(g, rows, 2), BUFFER, 1, NULL);
  return shoal_dataset_batch(g, d, BATCH, true);
}

/* A function that computes, each op of it by one thread. */
static shoal_out map(shoal_graph *g, const char *file, int64_t parallel) {
  shoal_out d = shoal_dataset_range(g, 0, CALLS, 1), x;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  shoal_out shape = shoal_constant_ints(f, SHOAL_SHAPE(1), (const int32_t[]){NUMBERS});
  shoal_out v = shoal_fill(f, shape, shoal_cast(f, x, SHOAL_FLOAT32));
  for (int i = 0; i < OPS; i++) v = shoal_tanh(f, shoal_cumsum(f, v, shoal_constant_int(f, 0)));
  shoal_function_output(f, shoal_reduce_mean(f, v), NULL);
  return shoal_dataset_map(g, d, shoal_function_end(f), SHOAL_OPTIONS(shoal_map_options, .parallel = parallel));
}

/* A megabyte that the program makes. */
static shoal_status fill(void *arg, int64_t position, shoal_tensor **values) {
  const int64_t n = 1 << 18;
  if (position >= STREAM) return shoal_status_new(SHOAL_OUT_OF_RANGE, "no more");
  shoal_status s = shoal_tensor_new(SHOAL_FLOAT32, 1, &n, &values[0]);
  if (!s) memset(shoal_tensor_data(values[0]), (int)position & 63, (size_t)n * sizeof(float));
  return s;
}

/* 10 GB of them, shuffled, in batches, ahead. */
static shoal_out stream(shoal_graph *g, const char *file, int64_t parallel) {
  const shoal_dtype type = SHOAL_FLOAT32;
  const shoal_dims shape = SHOAL_SHAPE(1 << 18);
  shoal_out d = shoal_dataset_from_callback(g, fill, NULL, &type, &shape, 1);
  return shoal_dataset_prefetch(g, shoal_dataset_batch(g, shoal_dataset_shuffle(g, d, 32, 1, NULL), 8, true), 2);
}

static long peak_kb(void) {
  struct rusage r;
  getrusage(RUSAGE_SELF, &r);
  return r.ru_maxrss;
}

static int64_t walk(shoal_elements *e, int n) {
  shoal_tensor *values[SHOAL_MAX_COMPONENTS];
  shoal_status end;
  int64_t rows = 0;
  check(shoal_elements_rewind(e));
  while (!(end = shoal_elements_next(e, values))) {
    rows += shoal_tensor_rank(values[0]) ? shoal_tensor_dim(values[0], 0) : 1;
    for (int i = 0; i < n; i++) shoal_tensor_unref(values[i]);
  }
  if (shoal_status_code(end) != SHOAL_OUT_OF_RANGE) check(end);
  shoal_status_free(end);
  return rows;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  shoal_graph *g = shoal_graph_new();
  static const struct {
    const char *name;
    shoal_out (*make)(shoal_graph *g, const char *file, int64_t parallel);
  } cases[] = {{"parse", parse}, {"shuffle", shuffled}, {"map", map}, {"stream", stream}};
  size_t which = 0;
  while (which < 4 && strcmp(cases[which].name, argv[1]) != 0) which++;
  if (which == 4) return 2;
  shoal_out d = cases[which].make(g, argv[2], atol(argv[3]));
  if (shoal_report(g)) return 1;
  shoal_elements *e;
  check(shoal_elements_open(g, d, NULL, &e));
  int n = shoal_dataset_components(d, NULL);
  for (char line[64]; fgets(line, sizeof line, stdin);) {
    double start = seconds();
    int64_t rows = walk(e, n);
    printf("%.9f %lld %ld\n", seconds() - start, (long long)rows, peak_kb());
    fflush(stdout);
  }
  check(shoal_elements_close(e));
  shoal_graph_free(g);
  return 0;
}
