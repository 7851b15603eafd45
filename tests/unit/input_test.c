/* Positions in the input: a run in pieces sees the batches, and the random numbers, of a run in one. */
#include "unit.h"

#include <math.h>
#include <unistd.h>

#include <shoal/shoal.h>

enum { EXAMPLES = 23, BATCH = 4, STEPS = 17 };

static void every_epoch_is_a_permutation(void **unused) {
  shoal_batches *b[3];
  for (int w = 0; w < 3; w++) ASSERT_OK(shoal_batches_new(EXAMPLES, BATCH, 7, w, 3, &b[w]));
  /* Five batches an epoch, which three workers take in turn: 15 batches are three epochs. */
  int seen[3][EXAMPLES] = {{0}};
  for (int number = 0; number < 15; number++) {
    const int64_t *rows = shoal_batches_at(b[number % 3], number / 3);
    for (int i = 0; i < BATCH; i++) seen[number / 5][rows[i]]++;
  }
  for (int e = 0; e < 3; e++) {
    int once = 0;
    for (int i = 0; i < EXAMPLES; i++) {
      assert_true(seen[e][i] <= 1);
      once += seen[e][i];
    }
    assert_int_equal(once, 5 * BATCH);
  }
  assert_memory_not_equal(seen[0], seen[1], sizeof seen[0]);
  /* Any position, in any order. */
  int64_t first[BATCH];
  memcpy(first, shoal_batches_at(b[0], 0), sizeof first);
  shoal_batches_at(b[0], 4);
  assert_memory_equal(first, shoal_batches_at(b[0], 0), sizeof first);
  for (int w = 0; w < 3; w++) shoal_batches_free(b[w]);
  shoal_batches *none;
  ASSERT_FAILS(shoal_batches_new(3, 4, 0, 0, 1, &none), SHOAL_INVALID_ARGUMENT, "3 examples in batches of 4");
  ASSERT_FAILS(shoal_batches_new(30, 4, 0, 2, 2, &none), SHOAL_INVALID_ARGUMENT, "worker 2 of 2");
}

static shoal_status fill(void *arg, int64_t position, shoal_tensor **values) {
  const int64_t *rows = shoal_batches_at(arg, position);
  float data[BATCH];
  for (int i = 0; i < BATCH; i++) data[i] = (float)rows[i];
  return shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){BATCH}, data, sizeof data, &values[0]);
}

/* v = 0.9 v + the mean of the batch + noise: depends on the order of everything. */
static shoal_op *follow(shoal_graph *g, shoal_var v, shoal_out batch, shoal_var step) {
  shoal_out shape = shoal_constant_ints(g, SHOAL_SHAPE(1), (int32_t[]){3});
  shoal_out noise = shoal_reduce_mean(g, shoal_stateless_random_uniform(g, shape, shoal_step_seed(g, step)));
  shoal_out next = shoal_add_v2(g, shoal_mul(g, v.value, shoal_constant_float(g, 0.9f)),
                                shoal_add_v2(g, shoal_reduce_mean(g, batch), noise));
  shoal_op *assign = shoal_variable_assign(g, v, next);
  shoal_push_control(g, &assign, 1);
  shoal_builder *b = shoal_build(g, "AssignAddVariableOp", NULL);
  shoal_build_input(b, step.handle);
  shoal_build_input(b, shoal_constant_int64(g, 1));
  shoal_op *count = shoal_build_end(b);
  shoal_pop_control(g);
  return count;
}

static float run_fed(const char *dir, int64_t last) {
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 5);
  shoal_batches *b;
  ASSERT_OK(shoal_batches_new(EXAMPLES, BATCH, 99, 0, 1, &b));
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(BATCH), "x");
  shoal_var v = shoal_variable(g, "v", shoal_constant_float(g, 0)), step = shoal_global_step(g);
  shoal_op *train = follow(g, v, x, step);
  shoal_input in = shoal_input_position(g, 0);
  float value = 0;
  int64_t position = 0;
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, g, .checkpoint_dir = dir, .stop_at_step = last, .status = &error,
                      .hooks = (shoal_hook[]){shoal_input_hook(in, &x, 1, fill, b)}, .n_hooks = 1) {
    while (!shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train);
    ASSERT_OK(shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS,
                                 SHOAL_FETCH(v.value, &value, in.position, &position), NULL));
  }
  ASSERT_OK(error);
  assert_int_equal(position, last);
  shoal_batches_free(b);
  shoal_graph_free(g);
  return value;
}

static void in_dirs(float (*run)(const char *dir, int64_t last)) {
  char whole[] = "/tmp/shoal-input-XXXXXX", pieces[] = "/tmp/shoal-input-XXXXXX", command[200];
  assert_true(mkdtemp(whole) && mkdtemp(pieces));
  float expected = run(whole, STEPS), got = 0;
  for (int last = 5; last < STEPS + 5; last += 5) got = run(pieces, last < STEPS ? last : STEPS);
  assert_true(expected == got);
  snprintf(command, sizeof command, "rm -rf '%s' '%s'", whole, pieces);
  assert_int_equal(system(command), 0);
}

static void fed_batches_go_on(void **unused) { in_dirs(run_fed); }

/* The same with a shuffled dataset in the graph, which skips what was seen. */
static float run_dataset(const char *dir, int64_t last) {
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 5);
  shoal_var v = shoal_variable(g, "v", shoal_constant_float(g, 0)), step = shoal_global_step(g);
  shoal_input in = shoal_input_position(g, 0);
  const shoal_dtype types[] = {SHOAL_INT64};
  const shoal_dims shapes[] = {SHOAL_SCALAR};
  shoal_out numbers[5];
  for (int i = 0; i < 5; i++) numbers[i] = shoal_constant_int64(g, (int64_t[]){0, 1000, 1, 50, 11}[i]);
  shoal_out d = shoal_range_dataset(g, numbers[0], numbers[1], numbers[2], types, 1, shapes, 1);
  d = shoal_shuffle_dataset(g, d, numbers[3], numbers[4], numbers[4], types, 1, shapes, 1);
  d = shoal_skip_dataset(g, d, in.position, types, 1, shapes, 1);
  shoal_out iterator = shoal_iterator_v2(g, "", "", types, 1, shapes, 1);
  shoal_op *make = shoal_make_iterator(g, d, iterator);
  shoal_op *next = shoal_iterator_get_next(g, iterator, types, 1, shapes, 1);
  shoal_out x = shoal_cast(g, (shoal_out){next, 0}, SHOAL_FLOAT32);
  shoal_op *train = shoal_group(g, (shoal_op *[]){follow(g, v, x, step), in.advance}, 2, "train");
  float value = 0;
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, g, .checkpoint_dir = dir, .stop_at_step = last, .status = &error,
                      .scaffold = &(shoal_scaffold){.local_init_op = make}) {
    while (!shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train);
    ASSERT_OK(shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS, SHOAL_FETCH(v.value, &value), NULL));
  }
  ASSERT_OK(error);
  shoal_graph_free(g);
  return value;
}

static void datasets_go_on(void **unused) { in_dirs(run_dataset); }

/* ---- steps that are no batches ---- */

enum { ROWS_OF_ALL = 96, ACCUMULATED_OVER = 3 };
enum counting { PLAIN, ACCUMULATED, SCALED };
enum source { HOOK, STRATEGY_HOOK, DATASET };

/* How a step counts, where its input comes from, how many replicas there are. */
struct way {
  enum counting counting;
  enum source source;
  int replicas;
  int64_t first; /* position that was asked for in the last session */
};

/* Numbers; with loss scaling there are some among them that leave a step out. */
static void all_rows(const struct way *w, float *rows) {
  for (int i = 0; i < ROWS_OF_ALL; i++) rows[i] = (float)(i * 37 % 20) / 10.0F;
  for (int i = 8; i < 16 && w->counting == SCALED; i++) rows[i] = INFINITY;
}

static shoal_status fill_rows(void *arg, int64_t position, shoal_tensor **values) {
  struct way *w = arg;
  float rows[ROWS_OF_ALL];
  if (w->first < 0) w->first = position;
  if (position >= ROWS_OF_ALL / BATCH) return shoal_status_new(SHOAL_OUT_OF_RANGE, "no more");
  all_rows(w, rows);
  return shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){BATCH}, rows + position * BATCH, sizeof(float) * BATCH,
                           &values[0]);
}

static shoal_op *learn(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  const struct way *w = arg;
  shoal_var v = shoal_variable(g, "v", shoal_constant_float(g, 0)), step = shoal_global_step(g);
  shoal_out loss = shoal_reduce_mean(g, shoal_square(g, shoal_sub(g, in[0], v.value)));
  out[0] = v.value;
  if (w->counting == ACCUMULATED) return shoal_minimize_accumulated(g, shoal_sgd(0.1), loss, step, ACCUMULATED_OVER);
  if (w->counting == SCALED) return shoal_minimize_scaled(g, shoal_sgd(0.1), loss, step, NULL);
  return shoal_minimize(g, shoal_sgd(0.1), loss, step);
}

static shoal_hook source_of(struct way *w, shoal_graph *g, shoal_strategy *s, shoal_out *x, shoal_out *in) {
  if (w->source == DATASET) {
    float rows[ROWS_OF_ALL];
    all_rows(w, rows);
    shoal_push_strategy(g, s);
    shoal_out all = shoal_constant_floats(g, SHOAL_SHAPE(ROWS_OF_ALL), rows);
    shoal_out batches = shoal_dataset_batch(g, shoal_dataset_tensor_slices(g, &all, 1), 2, true);
    shoal_pop_strategy(g, s);
    return shoal_strategy_dataset_hook(g, s, batches, SHOAL_SHARD_AUTO, in, 1);
  }
  *x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1), "x");
  shoal_strategy_split(g, s, *x, in, 1);
  if (w->source == STRATEGY_HOOK) return shoal_strategy_input_hook(s, x, 1, fill_rows, w);
  return (shoal_hook){0};
}

/* Until a step, or for so many runs; how many there were. */
static int learn_in(struct way *w, const char *dir, int64_t last, int most, float *value) {
  shoal_strategy *s;
  ASSERT_OK(shoal_strategy_new_mirrored(NULL, w->replicas, NULL, &s));
  shoal_graph *g = shoal_graph_new();
  shoal_out x, in[2], out[2];
  shoal_hook hook = source_of(w, g, s, &x, in);
  shoal_op *train = shoal_strategy_run(g, s, learn, w, in, 1, out, 1);
  if (w->source == HOOK) hook = shoal_input_hook((shoal_input){shoal_global_step(g).value, NULL}, &x, 1, fill_rows, w);
  if (shoal_report(g)) fail();
  shoal_status error = NULL;
  int runs = 0;
  w->first = -1;
  SHOAL_TRAIN_SESSION(t, g, .checkpoint_dir = dir, .stop_at_step = last, .hooks = &hook, .n_hooks = 1, .strategy = s,
                      .no_signals = true, .status = &error) {
    while (runs < most && !shoal_should_stop(t)) runs += shoal_run(t, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train);
    ASSERT_OK(shoal_session_step(shoal_train_session_raw(t), SHOAL_NO_FEEDS, SHOAL_FETCH(out[0], value), NULL));
  }
  ASSERT_OK(error);
  shoal_graph_free(g);
  shoal_strategy_free(s);
  return runs;
}

static void goes_on(struct way *w) {
  char whole[] = "/tmp/shoal-input-XXXXXX", pieces[] = "/tmp/shoal-input-XXXXXX", command[200];
  assert_true(mkdtemp(whole) && mkdtemp(pieces));
  float expected, got;
  int runs = learn_in(w, whole, 6, 100, &expected);
  assert_int_equal(runs > 6, w->counting != PLAIN);
  learn_in(w, pieces, 1, 100, &got);
  learn_in(w, pieces, 6, 4, &got); /* in the middle of a step */
  learn_in(w, pieces, 4, 100, &got);
  learn_in(w, pieces, 6, 100, &got);
  if (!(isfinite(got) && got == expected))
    fail_msg("counting %d, source %d, %d replicas: %.9g in one, %.9g in pieces", (int)w->counting, (int)w->source,
             w->replicas, (double)expected, (double)got);
  snprintf(command, sizeof command, "rm -rf '%s' '%s'", whole, pieces);
  assert_int_equal(system(command), 0);
}

static void input_goes_by_batches_not_steps(void **unused) {
  for (int counting = PLAIN; counting <= SCALED; counting++)
    for (int source = HOOK; source <= DATASET; source++)
      for (int replicas = 1; replicas <= 2; replicas++) goes_on(&(struct way){counting, source, replicas, -1});
}

/* A checkpoint of a run that did not accumulate has no number of batches, nor has one from before there was any. */
static void without_a_number_it_goes_by_steps(void **unused) {
  char dir[] = "/tmp/shoal-input-XXXXXX", command[200];
  assert_true(mkdtemp(dir) != NULL);
  struct way w = {PLAIN, HOOK, 1, -1};
  float value;
  int64_t used;
  assert_int_equal(learn_in(&w, dir, 4, 100, &value), 4);
  char *path = shoal_latest_checkpoint(dir);
  ASSERT_FAILS(shoal_checkpoint_int(path, "batches_used", &used), SHOAL_NOT_FOUND, "batches_used");
  free(path);
  w.counting = ACCUMULATED;
  assert_int_equal(learn_in(&w, dir, 5, 100, &value), ACCUMULATED_OVER);
  assert_int_equal(w.first, 4);
  path = shoal_latest_checkpoint(dir);
  ASSERT_OK(shoal_checkpoint_int(path, "batches_used", &used));
  assert_int_equal(used, 4 + ACCUMULATED_OVER);
  free(path);
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  assert_int_equal(system(command), 0);
}

RUN_TESTS(cmocka_unit_test(every_epoch_is_a_permutation), cmocka_unit_test(fed_batches_go_on),
          cmocka_unit_test(datasets_go_on), cmocka_unit_test(input_goes_by_batches_not_steps),
          cmocka_unit_test(without_a_number_it_goes_by_steps))
