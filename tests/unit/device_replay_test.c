/* What captured steps (runtime/replay.h) must not change: what is computed beside them, by what follows on them, and
 * with the memory that they have. On the soft device (src/device/soft). */
#include "unit.h"

#include <shoal/shoal.h>

#include "runtime/replay.h"

static const char *const cpu = "/device:CPU:0", *const gpu = "/device:GPU:0", *const other = "/device:GPU:1";

static shoal_out variable(shoal_graph *g, const char *name) {
  shoal_var_handle_op_options o = {sizeof o, .shared_name = name};
  return shoal_var_handle_op_with(g, SHOAL_FLOAT32, SHOAL_SCALAR, &o);
}

/* ---- several in a row, of which only a part is replayed ---- */

/* A sum over what somebody on `source` counts, and that count itself. */
struct sum {
  shoal_graph *g;
  shoal_session *s;
  shoal_out sum, count;
  shoal_op *init, *train;
};

static shoal_out sum_begin(struct sum *m, const char *source) {
  m->g = shoal_graph_new();
  shoal_push_device(m->g, gpu);
  shoal_out sum = variable(m->g, "sum");
  m->init = shoal_assign_variable_op(m->g, sum, shoal_constant_float(m->g, 0));
  m->sum = shoal_read_variable_op(m->g, sum, SHOAL_FLOAT32);
  shoal_pop_device(m->g);
  shoal_push_device(m->g, source);
  return sum;
}

static void sum_open(struct sum *m, shoal_out sum, shoal_out by) {
  shoal_pop_device(m->g);
  shoal_push_device(m->g, gpu);
  m->train = shoal_assign_add_variable_op(m->g, sum, by);
  shoal_pop_device(m->g);
  ASSERT_OK(shoal_graph_error(m->g));
  ASSERT_OK(shoal_session_open(m->g, NULL, &m->s));
  ASSERT_OK(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m->init));
}

static void sum_end(struct sum *m) {
  ASSERT_OK(shoal_session_close(m->s));
  shoal_graph_free(m->g);
}

/* A variable on `source` is counted up by one, and then added. */
static void make_counted(struct sum *m, const char *source) {
  shoal_out sum = sum_begin(m, source), count = variable(m->g, "count");
  shoal_op *zero = shoal_assign_variable_op(m->g, count, shoal_constant_float(m->g, 0));
  m->init = shoal_group(m->g, (shoal_op *[]){m->init, zero}, 2, "init");
  m->count = shoal_read_variable_op(m->g, count, SHOAL_FLOAT32);
  shoal_op *add = shoal_assign_add_variable_op(m->g, count, shoal_constant_float(m->g, 1));
  shoal_push_control(m->g, &add, 1);
  shoal_out by = shoal_read_variable_op(m->g, count, SHOAL_FLOAT32);
  shoal_pop_control(m->g);
  sum_open(m, sum, by);
}

/* The part that sends is made as often as the one that is replayed. */
static void parts_elsewhere_are_made_each_time(void **state) {
  enum { N = 100 };
  const char *const sources[] = {cpu, other};
  for (int i = 0; i < 2; i++) {
    struct sum m;
    float sum, count;
    make_counted(&m, sources[i]);
    ASSERT_OK(shoal_session_steps(m.s, N, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m.train));
    ASSERT_OK(shoal_session_step(m.s, SHOAL_NO_FEEDS, SHOAL_FETCH(m.sum, &sum, m.count, &count), NULL));
    assert_float_equal(count, N, 0);
    assert_float_equal(sum, N * (N + 1) / 2, 0);
    sum_end(&m);
  }
}

/* Nor is an element of a dataset taken twice. */
static void a_dataset_is_asked_each_time(void **state) {
  enum { N = 100 };
  struct sum m;
  shoal_out element[1], sum = sum_begin(&m, cpu);
  shoal_op *begin = shoal_dataset_next(m.g, shoal_dataset_range(m.g, 0, 1 << 20, 1), element, 1, NULL);
  sum_open(&m, sum, shoal_cast(m.g, element[0], SHOAL_FLOAT32));
  ASSERT_OK(shoal_session_step(m.s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, begin));
  int64_t before = replay_count(), next;
  float all;
  ASSERT_OK(shoal_session_steps(m.s, N, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m.train));
  assert_true(replay_count() > before);
  ASSERT_OK(shoal_session_step(m.s, SHOAL_NO_FEEDS, SHOAL_FETCH(m.sum, &all, element[0], &next), NULL));
  assert_float_equal(all, N * (N - 1) / 2, 0);
  assert_int_equal(next, N);
  sum_end(&m);
}

/* ---- a value of another shape where one of the same size was ---- */

static void turned_values_are_seen(void **state) {
  enum { RUNS = 20 };
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  shoal_tensor *wide, *high, *sums;
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 2, (int64_t[]){2, 3}, numbers, sizeof numbers, &wide));
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 2, (int64_t[]){3, 2}, numbers, sizeof numbers, &high));
  shoal_push_device(g, gpu);
  shoal_var_handle_op_options o = {sizeof o, .shared_name = "turned"};
  shoal_out v = shoal_var_handle_op_with(g, SHOAL_FLOAT32, (shoal_dims){-1, NULL}, &o);
  shoal_op *set_wide = shoal_assign_variable_op(g, v, shoal_constant(g, wide));
  shoal_op *set_high = shoal_assign_variable_op(g, v, shoal_constant(g, high));
  shoal_out twice =
      shoal_add_v2(g, shoal_read_variable_op(g, v, SHOAL_FLOAT32), shoal_read_variable_op(g, v, SHOAL_FLOAT32));
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  int64_t before = replay_count();
  for (int turn = 0; turn < 4; turn++) {
    ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, turn % 2 ? set_high : set_wide));
    for (int i = 0; i < RUNS; i++) {
      ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(twice, &sums), NULL));
      assert_int_equal(shoal_tensor_dim(sums, 0), turn % 2 ? 3 : 2);
      assert_float_equal(((const float *)shoal_tensor_data(sums))[5], 12, 0);
      shoal_tensor_unref(sums);
    }
  }
  assert_true(replay_count() > before);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  shoal_tensor_unref(wide);
  shoal_tensor_unref(high);
}

static int with_devices(void **state) {
  setenv("SHOAL_SOFT_GPUS", "2", 1);
  setenv("SHOAL_SOFT_QUEUES", "1", 1);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(parts_elsewhere_are_made_each_time),
                                     cmocka_unit_test(a_dataset_is_asked_each_time),
                                     cmocka_unit_test(turned_values_are_seen)};
  return cmocka_run_group_tests(tests, with_devices, NULL);
}
