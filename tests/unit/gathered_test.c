/* Parts of steps on a device that receive and send (runtime/gathered.h): captured between their receives and sends, or
 * left as they are. On the soft device. */
#include "unit.h"
#include "ports.h"

#include <math.h>
#include <shoal/shoal.h>

#include "runtime/replay.h"

static const char *cpu = "/device:CPU:0", *gpu = "/device:GPU:0";

/* A vector of n ones and a variable of one number, by which it is taken on the GPU. What is fed and what is fetched
 * passes the CPU, so that the GPU's part receives and sends. */
struct steps {
  shoal_graph *g;
  shoal_session *s;
  shoal_out x, out;
  shoal_op *train, *init;
};

static void on(struct steps *m, const char *device) {
  shoal_pop_device(m->g);
  shoal_push_device(m->g, device);
}

static void begin(struct steps *m) {
  *m = (struct steps){.g = shoal_graph_new()};
  shoal_push_device(m->g, cpu);
  m->x = shoal_placeholder(m->g, SHOAL_FLOAT32, SHOAL_SHAPE(-1), "x");
}

static void open_session(struct steps *m, const char *target) {
  shoal_pop_device(m->g);
  ASSERT_OK(shoal_graph_error(m->g));
  ASSERT_OK(
      shoal_session_open(m->g, SHOAL_OPTIONS(shoal_session_options, .target = target, .rewrites_off = "all"), &m->s));
  if (m->init) ASSERT_OK(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m->init));
}

static shoal_status run(struct steps *m, float value, int n, float *first) {
  shoal_tensor *x, *out = NULL;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 1, (int64_t[]){n}, &x));
  for (int i = 0; i < n; i++) ((float *)shoal_tensor_data(x))[i] = value;
  shoal_status s = shoal_session_step(m->s, SHOAL_FEED(m->x, x), SHOAL_FETCH(m->out, &out), m->train);
  if (!s && n) *first = *(const float *)shoal_tensor_const_data(out);
  shoal_tensor_unref(x);
  shoal_tensor_unref(out);
  return s;
}

static float value_of(struct steps *m, float x, int n) {
  float first = 0;
  ASSERT_OK(run(m, x, n, &first));
  return first;
}

static void end(struct steps *m) {
  ASSERT_OK(shoal_session_close(m->s));
  shoal_graph_free(m->g);
}

/* out = x * w, where w is counted up by one after it was read. */
static void make_counted(struct steps *m, const char *device) {
  shoal_graph *g = m->g;
  shoal_out x = shoal_neg(g, m->x);
  on(m, device);
  shoal_out w =
      shoal_var_handle_op_with(g, SHOAL_FLOAT32, SHOAL_SCALAR,
                               &(shoal_var_handle_op_options){sizeof(shoal_var_handle_op_options), .shared_name = "w"});
  m->init = shoal_assign_variable_op(g, w, shoal_constant_float(g, 0));
  shoal_out product = shoal_mul(g, x, shoal_read_variable_op(g, w, SHOAL_FLOAT32));
  shoal_push_control(g, &product.node, 1);
  m->train = shoal_assign_add_variable_op(g, w, shoal_constant_float(g, 1));
  shoal_pop_control(g);
  on(m, cpu);
  m->out = shoal_neg(g, product);
}

/* All but the first few are replayed, and those with other shapes are not. */
static void between_receives_and_sends(void **state) {
  struct steps m;
  begin(&m);
  make_counted(&m, gpu);
  open_session(&m, NULL);
  int64_t before = replay_count();
  for (int i = 0; i < 30; i++) assert_float_equal(value_of(&m, 3, i == 20 ? 7 : 5), 3 * i, 0);
  assert_int_equal(replay_count() - before, 25);
  end(&m);
}

/* A part without receives, and one whose end is waited for and not read. */
static void control_edges(void **state) {
  struct steps m;
  begin(&m);
  shoal_out seen = shoal_neg(m.g, m.x);
  on(&m, gpu);
  shoal_out w =
      shoal_var_handle_op_with(m.g, SHOAL_FLOAT32, SHOAL_SCALAR,
                               &(shoal_var_handle_op_options){sizeof(shoal_var_handle_op_options), .shared_name = "w"});
  m.init = shoal_assign_variable_op(m.g, w, shoal_constant_float(m.g, 0));
  shoal_push_control(m.g, &seen.node, 1);
  shoal_op *add = shoal_assign_add_variable_op(m.g, w, shoal_constant_float(m.g, 1));
  shoal_pop_control(m.g);
  shoal_push_control(m.g, &add, 1);
  shoal_out now = shoal_read_variable_op(m.g, w, SHOAL_FLOAT32);
  on(&m, cpu);
  m.out = shoal_neg(m.g, now);
  shoal_pop_control(m.g);
  open_session(&m, NULL);
  int64_t before = replay_count();
  for (int i = 0; i < 20; i++) assert_float_equal(value_of(&m, 3, 5), -(i + 1), 0);
  assert_int_equal(replay_count() - before, 16);
  end(&m);
}

/* The CPU makes of what the GPU sends what the GPU receives next: to wait for that first would be for ever. */
static void there_and_back(void **state) {
  struct steps m;
  begin(&m);
  shoal_out x = shoal_neg(m.g, m.x);
  on(&m, gpu);
  shoal_out twice = shoal_add_v2(m.g, x, x);
  on(&m, cpu);
  shoal_out back = shoal_neg(m.g, twice);
  on(&m, gpu);
  shoal_out four = shoal_add_v2(m.g, back, back);
  on(&m, cpu);
  m.out = shoal_neg(m.g, four);
  open_session(&m, NULL);
  int64_t before = replay_count();
  for (int i = 0; i < 10; i++) assert_float_equal(value_of(&m, (float)i, 5), -4 * i, 0);
  assert_int_equal(replay_count() - before, 0);
  end(&m);
}

/* A branch that is computed on the GPU, and taken at every other step: what the other steps receive is dead. What does
 * not hang on it is done all the same. */
static void dead_values(void **state) {
  struct steps m;
  begin(&m);
  shoal_graph *g = m.g;
  shoal_out zero = shoal_constant_int(g, 0);
  shoal_out positive = shoal_greater(g, shoal_max(g, m.x, zero), shoal_constant_float(g, 0));
  shoal_switch_outs way = shoal_switch(g, m.x, positive);
  on(&m, gpu);
  shoal_out w =
      shoal_var_handle_op_with(g, SHOAL_FLOAT32, SHOAL_SCALAR,
                               &(shoal_var_handle_op_options){sizeof(shoal_var_handle_op_options), .shared_name = "w"});
  m.init = shoal_assign_variable_op(g, w, shoal_constant_float(g, 0));
  shoal_out twice = shoal_add_v2(g, way.output_true, way.output_true);
  m.train = shoal_assign_add_variable_op(g, w, shoal_constant_float(g, 1));
  shoal_out count = shoal_read_variable_op(g, w, SHOAL_FLOAT32);
  on(&m, cpu);
  m.out = shoal_merge(g, (shoal_out[]){way.output_false, twice}, 2).output;
  open_session(&m, NULL);
  int64_t before = replay_count();
  for (int i = 0; i < 20; i++) assert_float_equal(value_of(&m, i % 2 ? 3 : -3, 5), (i % 2 ? 6 : -3), 0);
  assert_true(replay_count() > before);
  float n;
  ASSERT_OK(shoal_session_step(m.s, SHOAL_NO_FEEDS, SHOAL_FETCH(count, &n), NULL));
  assert_float_equal(n, 20, 0);
  end(&m);
}

/* What is computed elsewhere fails: the step has that error, and the next one is well. */
static void an_error_elsewhere(void **state) {
  struct steps m;
  begin(&m);
  shoal_out x = shoal_check_numerics(m.g, m.x, "of the test");
  on(&m, gpu);
  shoal_out twice = shoal_add_v2(m.g, x, x);
  on(&m, cpu);
  m.out = shoal_neg(m.g, twice);
  open_session(&m, NULL);
  for (int i = 0; i < 20; i++) {
    float first;
    shoal_status s = run(&m, i % 4 == 3 ? NAN : 2, 5, &first);
    assert_int_equal(shoal_status_code(s), i % 4 == 3 ? SHOAL_INVALID_ARGUMENT : SHOAL_OK);
    if (s) assert_non_null(strstr(shoal_status_message(s), "of the test"));
    else assert_float_equal(first, -4, 0);
    shoal_status_free(s);
  }
  end(&m);
}

/* What carries much is begun as it comes. */
static void much_is_left(void **state) {
  struct steps m;
  begin(&m);
  make_counted(&m, gpu);
  open_session(&m, NULL);
  int64_t before = replay_count();
  for (int i = 0; i < 10; i++) assert_float_equal(value_of(&m, 3, 1 << 20), 3 * i, 0);
  assert_int_equal(replay_count() - before, 0);
  end(&m);
}

/* As under TensorFlow's master: what is fed and fetched is at one task, the model on the GPU of another. */
static void on_another_task(void **state) {
  char cluster[96];
  shoal_server *servers[2];
  struct steps m;
  snprintf(cluster, sizeof cluster, "{\"worker\": [\"127.0.0.1:%d\", \"127.0.0.1:%d\"]}", free_port(), free_port());
  for (int i = 0; i < 2; i++)
    ASSERT_OK(shoal_server_start(&(shoal_server_options){.cluster = cluster, .job = "worker", .task = i}, &servers[i]));
  const char *was = cpu;
  cpu = "/job:worker/task:0/device:CPU:0";
  begin(&m);
  make_counted(&m, "/job:worker/task:1/device:GPU:0");
  open_session(&m, shoal_server_target(servers[0]));
  cpu = was;
  int64_t before = replay_count();
  for (int i = 0; i < 30; i++) assert_float_equal(value_of(&m, 3, 5), 3 * i, 0);
  assert_int_equal(replay_count() - before, 26);
  end(&m);
  for (int i = 0; i < 2; i++) shoal_server_stop(servers[i]);
}

int main(void) {
  setenv("SHOAL_SOFT_GPUS", "1", 1);
  setenv("SHOAL_SOFT_QUEUES", "1", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(between_receives_and_sends),
      cmocka_unit_test(control_edges),
      cmocka_unit_test(there_and_back),
      cmocka_unit_test(dead_values),
      cmocka_unit_test(an_error_elsewhere),
      cmocka_unit_test(much_is_left),
      cmocka_unit_test(on_another_task),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
