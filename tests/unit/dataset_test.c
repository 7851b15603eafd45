/* Datasets in C: iterators that sessions begin, places that checkpoints keep, elements without a graph, mistakes. (What
 * each transformation gives: tests/interop/dataset_api_test.py.) */
#include "unit.h"

#include <semaphore.h>
#include <time.h>
#include <zlib.h>

#include <shoal/shoal.h>

#include "data/callback.h"
#include "data/record.h"
#include "folder.h"
#include "graph/builder.h"

enum { EXAMPLES = 103, BATCH = 4, STEPS = 25 };

/* Squares of shuffled numbers, in batches. */
static shoal_out squares(shoal_graph *g) {
  shoal_out d = shoal_dataset_shuffle(g, shoal_dataset_range(g, 0, EXAMPLES, 1), 20, 3, NULL), x;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  shoal_function_output(f, shoal_cast(f, shoal_mul(f, x, x), SHOAL_FLOAT32), NULL);
  d = shoal_dataset_map(g, d, shoal_function_end(f), SHOAL_OPTIONS(shoal_map_options, .parallel = 2));
  return shoal_dataset_prefetch(g, shoal_dataset_batch(g, d, BATCH, true), 2);
}

/* v = v / 2 + the mean of the batch: depends on the order of everything. */
static float run(const char *dir, int64_t last, int64_t *steps) {
  shoal_graph *g = shoal_graph_new();
  shoal_out batch;
  shoal_var v = shoal_variable(g, "v", shoal_constant_float(g, 0)), step = shoal_global_step(g);
  assert_non_null(shoal_dataset_next(g, squares(g), &batch, 1, SHOAL_OPTIONS(shoal_next_options, .saved = true)));
  shoal_out half = shoal_mul(g, v.value, shoal_constant_float(g, 0.5f));
  shoal_op *assign = shoal_variable_assign(g, v, shoal_add_v2(g, half, shoal_reduce_mean(g, batch)));
  shoal_push_control(g, &assign, 1);
  shoal_op *train = shoal_assign_add_variable_op(g, step.handle, shoal_constant_int64(g, 1));
  shoal_pop_control(g);
  float value = 0;
  shoal_status error = NULL;
  if (shoal_report(g)) fail();
  SHOAL_TRAIN_SESSION(s, g, .checkpoint_dir = dir, .stop_at_step = last, .no_signals = true, .status = &error) {
    while (!shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train);
    ASSERT_OK(shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS,
                                 SHOAL_FETCH(v.value, &value, step.value, steps), NULL));
  }
  ASSERT_OK(error);
  shoal_graph_free(g);
  return value;
}

static void a_run_in_pieces_sees_what_one_run_does(void **state) {
  char *whole = in_dir("whole"), *pieces = in_dir("pieces");
  int64_t steps;
  float expected = run(whole, STEPS, &steps), got = 0;
  assert_int_equal(steps, STEPS);
  for (int64_t last = 7; last < STEPS + 7; last += 7) got = run(pieces, last < STEPS ? last : STEPS, &steps);
  assert_true(expected == got);
  /* All that is there: 25 whole batches; the end of the data ends the training. */
  assert_true(run(pieces, 0, &steps) == got);
  assert_int_equal(steps, EXAMPLES / BATCH);
  free(whole);
  free(pieces);
}

static shoal_status count(void *arg, int64_t position, shoal_tensor **values) {
  ++*(int *)arg;
  if (position >= 10) return shoal_status_new(SHOAL_OUT_OF_RANGE, "no more");
  return shoal_tensor_from(SHOAL_INT64, 0, NULL, &position, sizeof position, &values[0]);
}

static int64_t number(shoal_elements *e) {
  shoal_tensor *t;
  ASSERT_OK(shoal_elements_next(e, &t));
  int64_t v = *(const int64_t *)shoal_tensor_const_data(t);
  shoal_tensor_unref(t);
  return v;
}

static void skipped_elements_are_not_made(void **state) {
  const shoal_dtype type = SHOAL_INT64;
  const shoal_dims shape = SHOAL_SCALAR;
  shoal_graph *g = shoal_graph_new();
  shoal_elements *e;
  shoal_tensor *t;
  int calls = 0;
  shoal_out d = shoal_dataset_from_callback(g, count, &calls, &type, &shape, 1);
  ASSERT_OK(shoal_elements_open(g, shoal_dataset_skip(g, d, 7), NULL, &e));
  for (int round = 0; round < 2; round++) {
    for (int64_t i = 7; i < 10; i++) assert_int_equal(number(e), i);
    ASSERT_FAILS(shoal_elements_next(e, &t), SHOAL_OUT_OF_RANGE, "");
    assert_int_equal(calls, 4 * (round + 1));
    ASSERT_OK(shoal_elements_rewind(e));
  }
  ASSERT_OK(shoal_elements_close(e));
  shoal_graph_free(g);
}

static shoal_status wrong(void *arg, int64_t position, shoal_tensor **values) {
  return position ? NULL : shoal_tensor_from(SHOAL_INT64, 0, NULL, &position, sizeof position, &values[0]);
}

static void what_callbacks_give_is_checked(void **state) {
  const shoal_dtype type = SHOAL_FLOAT32, right = SHOAL_INT64;
  const shoal_dims shape = SHOAL_SCALAR;
  shoal_graph *g = shoal_graph_new();
  shoal_elements *e;
  shoal_tensor *t;
  ASSERT_OK(shoal_elements_open(g, shoal_dataset_from_callback(g, wrong, NULL, &type, &shape, 1), NULL, &e));
  ASSERT_FAILS(shoal_elements_next(e, &t), SHOAL_INVALID_ARGUMENT, "gave int64");
  ASSERT_OK(shoal_elements_close(e));
  ASSERT_OK(shoal_elements_open(g, shoal_dataset_from_callback(g, wrong, NULL, &right, &shape, 1), NULL, &e));
  assert_int_equal(number(e), 0);
  ASSERT_FAILS(shoal_elements_next(e, &t), SHOAL_INVALID_ARGUMENT, "left component 0 empty");
  ASSERT_OK(shoal_elements_close(e));
  shoal_graph_free(g);
}

/* ---- order ---- */

/* Element 0 waits until another was given. */
static shoal_status slow_first(void *arg, int64_t position, shoal_tensor **values) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 20;
  if (!position) sem_timedwait(arg, &end);
  return shoal_tensor_from(SHOAL_INT64, 0, NULL, &position, sizeof position, &values[0]);
}

static shoal_out map_slow_first(shoal_graph *g, sem_t *given) {
  const shoal_dtype type = SHOAL_INT64;
  shoal_out d = shoal_dataset_range(g, 0, 6, 1), x;
  shoal_graph *f = shoal_dataset_function(g, d, NULL, &x, 1);
  struct build b = build_begin(f, "_Callback", NULL);
  build_in(&b, x);
  build_attr_int(&b, "number", callback_add((struct callback){slow_first, given}));
  build_attr_types(&b, "output_types", &type, 1);
  struct attr shapes = attr_list(ATTR_SHAPE);
  attr_list_add(&shapes, attr_shape(&(struct shape){.rank = 0}));
  build_attr(&b, "output_shapes", shapes);
  shoal_function_output(f, build_end_out(&b), NULL);
  return shoal_dataset_map(g, d, shoal_function_end(f),
                           SHOAL_OPTIONS(shoal_map_options, .parallel = 2, .unordered = true));
}

static void none_waits_for_a_slow_one(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_elements *e;
  shoal_tensor *t;
  sem_t given;
  int64_t sum = 0;
  sem_init(&given, 0, 0);
  ASSERT_OK(shoal_elements_open(g, map_slow_first(g, &given), NULL, &e));
  assert_int_not_equal(number(e), 0);
  sem_post(&given);
  for (int i = 0; i < 5; i++) sum += number(e);
  assert_true(sum >= 10 && sum < 15); /* 0 to 5, without the first that came */
  ASSERT_FAILS(shoal_elements_next(e, &t), SHOAL_OUT_OF_RANGE, "");
  ASSERT_OK(shoal_elements_close(e));
  sem_destroy(&given);
  shoal_graph_free(g);
}

/* ---- damaged files ---- */

/* Four records of five bytes, of which byte `bad` of the file is another. */
static void write_records(const char *path, enum record_compression c, long bad) {
  struct record_writer w;
  ASSERT_OK(record_writer_open(&w, path, c));
  for (int i = 0; i < 4; i++) ASSERT_OK(record_write(&w, "12345", 5));
  ASSERT_OK(record_writer_close(&w));
  if (bad < 0) return;
  FILE *f = fopen(path, "r+b");
  fseek(f, bad, SEEK_SET);
  int was = fgetc(f);
  fseek(f, bad, SEEK_SET);
  fputc(was ^ 1, f);
  fclose(f);
}

static int count_elements(shoal_elements *e, shoal_status *end) {
  shoal_tensor *t;
  int n = 0;
  for (; !(*end = shoal_elements_next(e, &t)); n++) shoal_tensor_unref(t);
  return n;
}

static int read_from(const char *path, int64_t skip, const char *compression, shoal_status *end) {
  shoal_graph *g = shoal_graph_new();
  shoal_elements *e;
  shoal_out d = shoal_dataset_tfrecord(g, shoal_constant_string(g, path),
                                       SHOAL_OPTIONS(shoal_file_options, .compression = compression));
  ASSERT_OK(shoal_elements_open(g, shoal_dataset_skip(g, d, skip), NULL, &e));
  int n = count_elements(e, end);
  ASSERT_OK(shoal_elements_close(e));
  shoal_graph_free(g);
  return n;
}

static void damaged_records_are_named(void **state) {
  enum { RECORD = 12 + 5 + 4 };
  char *path = in_dir("records");
  shoal_status end;
  write_records(path, RECORD_PLAIN, 2 * RECORD + 13);
  assert_int_equal(read_from(path, 0, NULL, &end), 2);
  assert_non_null(strstr(shoal_status_message(end), path));
  ASSERT_FAILS(end, SHOAL_DATA_LOSS, "corrupted record at 42");
  /* What is skipped is not looked into; but where the next one begins must be sure. */
  assert_int_equal(read_from(path, 3, NULL, &end), 1);
  ASSERT_FAILS(end, SHOAL_OUT_OF_RANGE, "");
  write_records(path, RECORD_PLAIN, 2 * RECORD + 1);
  assert_int_equal(read_from(path, 3, NULL, &end), 0);
  ASSERT_FAILS(end, SHOAL_DATA_LOSS, "corrupted record at 42");
  write_records(path, RECORD_ZLIB, -1);
  for (int skip = 0; skip < 6; skip++) {
    assert_int_equal(read_from(path, skip, "ZLIB", &end), skip < 4 ? 4 - skip : 0);
    ASSERT_FAILS(end, SHOAL_OUT_OF_RANGE, "");
  }
  free(path);
}

static void an_idx_file_cut_short_is_no_end(void **state) {
  const unsigned char rows[] = {0, 0, 0x08, 2, 0, 0, 0, 3, 0, 0, 0, 2, 1, 2, 3, 4};
  char *path = in_dir("cut.idx");
  gzFile f = gzopen(path, "wb");
  assert_int_equal(gzwrite(f, rows, sizeof rows), sizeof rows);
  gzclose(f);
  shoal_graph *g = shoal_graph_new();
  shoal_elements *e;
  shoal_status end;
  ASSERT_OK(shoal_elements_open(g, shoal_dataset_idx(g, (const char *const *)&path, 1), NULL, &e));
  assert_int_equal(count_elements(e, &end), 2);
  ASSERT_FAILS(end, SHOAL_FAILED_PRECONDITION, "3");
  ASSERT_OK(shoal_elements_close(e));
  shoal_graph_free(g);
  free(path);
}

/* ---- shared work ---- */

static shoal_out three_numbers(shoal_graph *g, shoal_out item, void *arg) { return shoal_dataset_range(g, 0, 3, 1); }

/* What was trained on is noted after the updates themselves: the group that names them is on the worker. */
static void work_is_noted_after_updates(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out in;
  shoal_work *w = shoal_work_new(g, SHOAL_OPTIONS(shoal_work_options, .items = 2, .dataset = three_numbers), &in, 1);
  shoal_var step = shoal_global_step(g);
  shoal_op *add = shoal_assign_add_variable_op(g, step.handle, in);
  shoal_op *inner = shoal_group(g, &add, 1, "inner"), *train = shoal_group(g, &inner, 1, "train");
  if (shoal_report(g)) fail();
  shoal_hook hook = shoal_work_hook(w, train);
  struct shoal_node *advance = graph_find(g, "ResourceScatterAdd");
  assert_non_null(advance);
  assert_int_equal(advance->control.n, 1);
  assert_ptr_equal(advance->control.at[0], add);
  hook.free(hook.state);
  shoal_graph_free(g);
}

/* ---- mistakes ---- */

static void refuse(shoal_graph *g, const char *part) {
  assert_non_null(shoal_graph_error(g));
  if (!strstr(shoal_status_message(shoal_graph_error(g)), part))
    fail_msg("'%s' is not in: %s", part, shoal_status_message(shoal_graph_error(g)));
  shoal_graph_free(g);
}

/* A function of one int64, that gives it as a float. */
static shoal_function *to_float(shoal_graph *g) {
  shoal_graph *f = shoal_function_begin(g, NULL);
  shoal_out x = shoal_function_input(f, SHOAL_INT64, SHOAL_SCALAR, NULL);
  shoal_function_output(f, shoal_cast(f, x, SHOAL_FLOAT32), NULL);
  return shoal_function_end(f);
}

static shoal_out floats(shoal_graph *g) {
  shoal_out x = shoal_constant_floats(g, SHOAL_SHAPE(2), (const float[]){1, 2});
  return shoal_dataset_tensor_slices(g, &x, 1);
}

static void mistakes(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_dataset_take(g, shoal_constant_float(g, 1), 3);
  refuse(g, "shoal_dataset_take: 'Const' is no dataset");
  g = shoal_graph_new();
  shoal_dataset_map(g, floats(g), to_float(g), NULL);
  refuse(g, "is of type int64, and that component of float32");
  g = shoal_graph_new();
  shoal_dataset_filter(g, shoal_dataset_range(g, 0, 9, 1), to_float(g));
  refuse(g, "is to return one bool");
  g = shoal_graph_new();
  shoal_dataset_flat_map(g, shoal_dataset_range(g, 0, 9, 1), to_float(g));
  refuse(g, "is to return one dataset");
  g = shoal_graph_new();
  shoal_dataset_map(g, floats(g), NULL, NULL);
  refuse(g, "shoal_dataset_map: f is NULL");
  g = shoal_graph_new();
  shoal_dataset_concatenate(g, floats(g), shoal_dataset_range(g, 0, 9, 1));
  refuse(g, "component 0 is of type float32, and of int64");
  g = shoal_graph_new();
  shoal_dataset_unbatch(g, floats(g));
  refuse(g, "component 0 has no rows");
  g = shoal_graph_new();
  shoal_dataset_batch(g, floats(g), 0, false);
  refuse(g, "a batch of 0 elements");
  g = shoal_graph_new();
  shoal_out two[2];
  shoal_dataset_next(g, floats(g), two, 2, NULL);
  refuse(g, "has 1 components, and there are 2 places");
  g = shoal_graph_new();
  for (int worker = 0; worker < 2; worker++)
    shoal_dataset_next(g, floats(g), two, 1, SHOAL_OPTIONS(shoal_next_options, .saved = true, .worker = worker));
  assert_null(shoal_graph_error(g));
  shoal_dataset_next(g, floats(g), two, 1, SHOAL_OPTIONS(shoal_next_options, .saved = true, .worker = 1));
  refuse(g, "the place of worker 1 is that of another iterator");
  g = shoal_graph_new();
  shoal_dataset_function(g, floats(g), NULL, two, 2);
  refuse(g, "have 1 components, and there is room for 2");
}

static void more_mistakes(void **state) {
  shoal_graph *g = shoal_graph_new();
  const char *nowhere = "/nowhere/at/all";
  shoal_dataset_idx(g, &nowhere, 1);
  refuse(g, "/nowhere/at/all");
  g = shoal_graph_new();
  shoal_feature feature = {"x", SHOAL_FLOAT64, SHOAL_FEATURE_FIXED, SHOAL_SCALAR, {0}};
  shoal_dataset_parse_example(g, shoal_dataset_text_lines(g, shoal_constant_string(g, "f"), NULL), &feature, 1, NULL);
  refuse(g, "Examples hold float32, int64 and strings");
  g = shoal_graph_new();
  shoal_dataset_parse_example(g, floats(g), &feature, 1, NULL);
  refuse(g, "are to be strings");
  g = shoal_graph_new();
  shoal_dataset_shard(g, floats(g), 3, 3);
  refuse(g, "shard 3 of 3");
  g = shoal_graph_new();
  shoal_dataset_group_by_length(g, floats(g), SHOAL_OPTIONS(shoal_length_options, .rows = (const int64_t[]){1}));
  refuse(g, "component 0 has no length");
  assert_int_equal(shoal_dataset_components((shoal_out){0}, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_run_in_pieces_sees_what_one_run_does),
      cmocka_unit_test(skipped_elements_are_not_made),
      cmocka_unit_test(what_callbacks_give_is_checked),
      cmocka_unit_test(none_waits_for_a_slow_one),
      cmocka_unit_test(damaged_records_are_named),
      cmocka_unit_test(an_idx_file_cut_short_is_no_end),
      cmocka_unit_test(work_is_noted_after_updates),
      cmocka_unit_test(mistakes),
      cmocka_unit_test(more_mistakes),
  };
  return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
