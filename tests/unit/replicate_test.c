/* Copies of a model that share variables, towers whose gradients are averaged, and mistakes that are told at once. */
#include "unit.h"

#include <math.h>

#include <shoal/shoal.h>

enum { TOWERS = 3, ROWS = 4, IN = 2 };

static void numbers(float *v, int n, int salt) {
  for (int i = 0; i < n; i++) v[i] = (float)((i * 37 + salt * 11) % 20) / 10.0F - 1.0F;
}

/* mean((x w)^2) over the rows of x, with w made here */
static shoal_out tower(shoal_graph *g, shoal_out x) {
  float start[IN] = {0.5F, -0.25F};
  shoal_var w = shoal_variable(g, "w", shoal_constant_floats(g, SHOAL_SHAPE(IN, 1), start));
  return shoal_reduce_mean(g, shoal_square(g, shoal_mat_mul(g, x, w.value)));
}

static void train_and_read(shoal_graph *g, shoal_op *train, float *out) {
  shoal_var w;
  assert_int_equal(shoal_variables(g, true, &w, 1), 1);
  shoal_op *init = shoal_initialize(g);
  if (shoal_report(g)) fail();
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, &(shoal_session_options){.cpu_devices = TOWERS}, &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  for (int i = 0; i < 3; i++) ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train));
  shoal_tensor *t;
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(w.value, &t), NULL));
  memcpy(out, shoal_tensor_const_data(t), IN * sizeof *out);
  shoal_tensor_unref(t);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* Three towers on devices of their own do what one does on all rows. */
static void towers_are_the_whole_batch(void **state) {
  float x[TOWERS * ROWS * IN], whole[IN], parts[IN];
  numbers(x, TOWERS * ROWS * IN, 1);
  shoal_graph *g = shoal_graph_new();
  shoal_out loss = tower(g, shoal_constant_floats(g, SHOAL_SHAPE(TOWERS * ROWS, IN), x));
  train_and_read(g, shoal_minimize(g, shoal_momentum(0.1, 0.9), loss, shoal_global_step(g)), whole);

  g = shoal_graph_new();
  shoal_gradient grads[TOWERS], mean;
  shoal_var w = {0};
  shoal_sharing *sharing = shoal_sharing_new();
  for (int t = 0; t < TOWERS; t++) {
    char device[24];
    snprintf(device, sizeof device, "/cpu:%d", t);
    shoal_push_device(g, device);
    shoal_sharing_begin(g, sharing);
    shoal_out own = tower(g, shoal_constant_floats(g, SHOAL_SHAPE(ROWS, IN), x + t * ROWS * IN));
    shoal_sharing_end(g, sharing);
    assert_int_equal(shoal_compute_gradients(g, own, &w, &grads[t], 1), 1);
    shoal_pop_device(g);
  }
  shoal_sharing_free(sharing);
  shoal_average_gradients(g, grads, TOWERS, 1, &mean);
  train_and_read(g, shoal_apply_gradients(g, shoal_momentum(0.1, 0.9), &w, &mean, 1, shoal_global_step(g)), parts);
  for (int i = 0; i < IN; i++) assert_true(fabsf(whole[i] - parts[i]) < 1e-5F);
}

static void expect_error(shoal_graph *g, const char *part) {
  shoal_status e = shoal_graph_error(g);
  assert_non_null(e);
  if (!strstr(shoal_status_message(e), part)) fail_msg("'%s' is not in: %s", part, shoal_status_message(e));
  shoal_graph_free(g);
}

static void copies_must_be_alike(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_sharing *s = shoal_sharing_new();
  for (int i = 0; i < 2; i++) {
    shoal_sharing_begin(g, s);
    shoal_variable(g, "v", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(2 + i)));
    shoal_sharing_end(g, s);
  }
  expect_error(g, "its place in the first copy");
  shoal_sharing_free(s);

  g = shoal_graph_new();
  s = shoal_sharing_new();
  for (int i = 0; i < 2; i++) {
    shoal_sharing_begin(g, s);
    for (int k = 0; k <= i; k++) shoal_variable(g, "v", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SCALAR));
    shoal_sharing_end(g, s);
  }
  expect_error(g, "more variables than the first");
  shoal_sharing_free(s);
}

static shoal_out zeros(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *unused) {
  return shoal_init_zeros(g, dtype, shape);
}

static void mistakes_are_told(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_var v = shoal_variable(g, "v", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(4, 2)));
  shoal_embedding_lookup(g, &v, 1, shoal_constant_int(g, 1), "hash");
  expect_error(g, "Unrecognized partition strategy: hash");

  g = shoal_graph_new();
  shoal_partitioner p = shoal_fixed_partitioner(2, 3);
  shoal_partitioned parts = shoal_partitioned_variable(g, "v", SHOAL_FLOAT32, SHOAL_SHAPE(4, 2), &p, zeros, NULL);
  assert_int_equal(parts.n, 0);
  expect_error(g, "cannot be cut along axis 3");

  g = shoal_graph_new();
  shoal_minimize_accumulated(g, shoal_sgd(0.1), shoal_constant_float(g, 1), shoal_global_step(g), 0);
  expect_error(g, "over 0 micro-batches");

  g = shoal_graph_new();
  shoal_exponential_decay(g, 0.1, shoal_global_step(g).value, 0, 0.9, false);
  expect_error(g, "0 steps");

  g = shoal_graph_new();
  shoal_sync_replicas *s = shoal_sync_replicas_new(
      g, shoal_sgd(0.1), &(shoal_sync_options){.mode = SHOAL_SYNC_STRICT, .total_replicas = 2, .task = 2});
  shoal_sync_replicas_free(s);
  expect_error(g, "do not go together");

  g = shoal_graph_new();
  shoal_pipeline_minimize(g, &(shoal_pipeline){.n_stages = 1}, shoal_constant_float(g, 1), shoal_constant_float(g, 1),
                          shoal_sgd(0.1), shoal_global_step(g), NULL);
  expect_error(g, "0 micro-batches");
}

/* Synchronous training without a cluster says so instead of waiting for ever. */
static void sync_needs_a_cluster(void **state) {
  shoal_graph *g = shoal_graph_new();
  float x[ROWS * IN];
  numbers(x, ROWS * IN, 2);
  shoal_sync_replicas *sync =
      shoal_sync_replicas_new(g, shoal_sgd(0.1), &(shoal_sync_options){.replicas_to_aggregate = 1});
  shoal_op *train =
      shoal_sync_minimize(sync, tower(g, shoal_constant_floats(g, SHOAL_SHAPE(ROWS, IN), x)), shoal_global_step(g));
  assert_non_null(train);
  shoal_hook hook = shoal_sync_hook(sync, true);
  shoal_train_session *s;
  shoal_status e =
      shoal_train_session_open(g, &(shoal_train_session_options){.hooks = &hook, .n_hooks = 1, .no_signals = true}, &s);
  assert_non_null(e);
  assert_non_null(strstr(shoal_status_message(e), "needs a cluster"));
  shoal_status_free(e);
  shoal_sync_replicas_free(sync);
  shoal_graph_free(g);
}

static int64_t rows_by_two(void *arg, shoal_dtype dtype, shoal_dims shape) {
  assert_int_equal(dtype, SHOAL_FLOAT32);
  return shape.at[0] / *(int *)arg;
}

/* How many parts there are a program's function may say. */
static void parts_by_a_function(void **state) {
  shoal_graph *g = shoal_graph_new();
  int rows = 2;
  shoal_partitioning how = {.size = sizeof how, .count = rows_by_two, .count_arg = &rows, .init = zeros};
  shoal_partitioned p = shoal_partitioned_variable_with(g, "v", SHOAL_FLOAT32, SHOAL_SHAPE(7, 4), &how);
  int64_t dims[SHOAL_MAX_RANK];
  assert_int_equal(p.n, 3);
  for (int i = 0; i < p.n; i++) {
    assert_int_equal(shoal_out_shape(p.parts[i].value, dims), 2);
    assert_int_equal(dims[0], i ? 2 : 3);
  }
  shoal_partitioned_free(&p);
  how.partitioner.axis = 1; /* seven parts of four columns */
  rows = 1;
  shoal_partitioned_variable_with(g, "u", SHOAL_FLOAT32, SHOAL_SHAPE(7, 4), &how);
  expect_error(g, "cannot be cut along axis 1 of 2");
  g = shoal_graph_new();
  how.init = NULL;
  shoal_partitioned_variable_with(g, "u", SHOAL_FLOAT32, SHOAL_SHAPE(7, 4), &how);
  expect_error(g, "init is NULL");
}

/* Rows of a table in parts have the width of the table, which a layer needs. */
static void rows_of_parts_have_a_shape(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_partitioner two = shoal_fixed_partitioner(2, 0);
  shoal_partitioned table =
      shoal_partitioned_variable(g, "table", SHOAL_FLOAT32, SHOAL_SHAPE(10, 4), &two, zeros, NULL);
  shoal_out ids = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1, 3), "ids");
  int64_t dims[SHOAL_MAX_RANK];
  assert_int_equal(shoal_out_shape(shoal_embedding_lookup(g, table.parts, table.n, ids, "div"), dims), 3);
  assert_int_equal(dims[0], -1);
  assert_int_equal(dims[1], 3);
  assert_int_equal(dims[2], 4);
  shoal_out some = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "some");
  shoal_dense(g, shoal_embedding_lookup(g, table.parts, table.n, some, "mod"), 2, "layer");
  if (shoal_report(g)) fail();
  shoal_partitioned_free(&table);
  shoal_graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(towers_are_the_whole_batch), cmocka_unit_test(copies_must_be_alike),
      cmocka_unit_test(mistakes_are_told),          cmocka_unit_test(sync_needs_a_cluster),
      cmocka_unit_test(parts_by_a_function),        cmocka_unit_test(rows_of_parts_have_a_shape)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
