/* Positions in the input: a run in pieces sees the batches, and the random numbers, of a run in one. */
#include "unit.h"

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

RUN_TESTS(cmocka_unit_test(every_epoch_is_a_permutation), cmocka_unit_test(fed_batches_go_on),
          cmocka_unit_test(datasets_go_on))
