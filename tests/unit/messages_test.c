/* What a program is told of its mistakes at run time: under the names it gave, and with what to do. */
#include <shoal/shoal.h>

#include "unit.h"

static shoal_tensor *zeros(shoal_dtype dtype, int rank, const int64_t *dims) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(dtype, rank, dims, &t));
  return t;
}

#define FLOATS(...) \
  zeros(SHOAL_FLOAT32, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static shoal_session *open(shoal_graph *g) {
  shoal_session *s;
  if (shoal_report(g)) fail();
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  return s;
}

static void test_feeds(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 784), "images");
  shoal_out y = shoal_relu(g, x);
  shoal_session *s = open(g);
  shoal_tensor *narrow = FLOATS(5, 700), *right = FLOATS(5, 784), *flat = FLOATS(784), *result = NULL;
  shoal_tensor *ints = zeros(SHOAL_INT64, 2, (int64_t[]){5, 784});
  ASSERT_FAILS(shoal_session_step(s, SHOAL_FEED(x, narrow), SHOAL_FETCH(y, &result), NULL), SHOAL_INVALID_ARGUMENT,
               "Cannot feed value of shape [5,700] for Tensor 'images:0', which has shape [?,784]");
  ASSERT_FAILS(shoal_session_step(s, SHOAL_FEED(x, flat), SHOAL_FETCH(y, &result), NULL), SHOAL_INVALID_ARGUMENT,
               "'images:0'");
  ASSERT_FAILS(shoal_session_step(s, SHOAL_FEED(x, ints), SHOAL_FETCH(y, &result), NULL), SHOAL_INVALID_ARGUMENT,
               "a value of type int64 for Tensor 'images:0', which is of type float32");
  ASSERT_FAILS(shoal_session_step(s, SHOAL_FEED(x, right, x, right), SHOAL_FETCH(y, &result), NULL),
               SHOAL_INVALID_ARGUMENT, "images:0");
  /* By names: "images" and "images:0" are the same. */
  ASSERT_FAILS(shoal_session_run(s, NULL, (const char *[]){"images", "images:0"}, (shoal_tensor *[]){right, right}, 2,
                                 (const char *[]){"Relu"}, &result, 1, NULL, 0, NULL),
               SHOAL_INVALID_ARGUMENT, "images:0");
  ASSERT_FAILS(shoal_session_run(s, NULL, (const char *[]){"images:0"}, &ints, 1, (const char *[]){"Relu"}, &result, 1,
                                 NULL, 0, NULL),
               SHOAL_INVALID_ARGUMENT, "The value fed for images:0 is of type int64, not float");
  ASSERT_OK(shoal_session_step(s, SHOAL_FEED(x, right), SHOAL_FETCH(y, &result), NULL));
  shoal_tensor_unref(result);
  shoal_tensor_unref(narrow);
  shoal_tensor_unref(right);
  shoal_tensor_unref(flat);
  shoal_tensor_unref(ints);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* A shape that cannot be is a mistake where it stands, not first on a server. */
static void test_shapes(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, -2), "x");
  shoal_status e = shoal_graph_error(g); /* the graph's */
  assert_non_null(e);
  assert_int_equal(shoal_status_code(e), SHOAL_INVALID_ARGUMENT);
  assert_non_null(strstr(shoal_status_message(e), "dimension -2"));
  shoal_graph_free(g);
}

static void test_uninitialised(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_var v = shoal_variable(g, "weights", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SCALAR));
  shoal_session *s = open(g);
  float value;
  ASSERT_FAILS(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(v.value, &value), NULL), SHOAL_FAILED_PRECONDITION,
               "run the op that shoal_initialize(g) made");
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* A product, its bias and its activation run as one node: an error in it is told under the name of the one it is of. */
static void test_fused_product(void **state) {
  const shoal_dims any = {-1, NULL};
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, any, "x"), w = shoal_placeholder(g, SHOAL_FLOAT32, any, "w");
  shoal_out b = shoal_placeholder(g, SHOAL_FLOAT32, any, "b");
  shoal_push_scope(g, "mine");
  shoal_out y = shoal_relu(g, shoal_bias_add(g, shoal_mat_mul(g, x, w), b));
  shoal_out z = shoal_relu(g, shoal_bias_add(g, shoal_conv2d(g, x, w, (int64_t[]){1, 1, 1, 1}, 4, "SAME"), b));
  shoal_pop_scope(g);
  shoal_session *s = open(g);
  shoal_tensor *x57 = FLOATS(5, 7), *x56 = FLOATS(5, 6), *w63 = FLOATS(6, 3), *b3 = FLOATS(3), *b4 = FLOATS(4), *r;
  ASSERT_FAILS(shoal_session_step(s, SHOAL_FEED(x, x57, w, w63, b, b4), SHOAL_FETCH(y, &r), NULL),
               SHOAL_INVALID_ARGUMENT, "[[{{node mine/MatMul}}]]");
  ASSERT_FAILS(shoal_session_step(s, SHOAL_FEED(x, x56, w, w63, b, b4), SHOAL_FETCH(y, &r), NULL),
               SHOAL_INVALID_ARGUMENT, "[4] vs. [5,3]\n\t [[{{node mine/BiasAdd}}]]");
  shoal_tensor *images = FLOATS(1, 4, 4, 2), *filters = FLOATS(3, 3, 2, 3), *others = FLOATS(3, 3, 5, 3);
  ASSERT_FAILS(shoal_session_step(s, SHOAL_FEED(x, images, w, others, b, b3), SHOAL_FETCH(z, &r), NULL),
               SHOAL_INVALID_ARGUMENT, "[[{{node mine/Conv2D}}]]");
  ASSERT_FAILS(shoal_session_step(s, SHOAL_FEED(x, images, w, filters, b, b4), SHOAL_FETCH(z, &r), NULL),
               SHOAL_INVALID_ARGUMENT, "[[{{node mine/BiasAdd_1}}]]");
  shoal_tensor *all[] = {x57, x56, w63, b3, b4, images, filters, others};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) shoal_tensor_unref(all[i]);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* The graph, which has one mistake, is told of it in these words. */
static void mistaken(shoal_graph *g, const char *words) {
  shoal_status e = shoal_graph_error(g);
  assert_non_null(e);
  assert_int_equal(shoal_status_code(e), SHOAL_INVALID_ARGUMENT);
  if (!strstr(shoal_status_message(e), words)) fail_msg("%s", shoal_status_message(e));
  shoal_graph_free(g);
}

/* Inputs that are none: of another graph, or past an op's outputs. */
static void test_inputs(void **state) {
  shoal_graph *g = shoal_graph_new(), *other = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(2), "x");
  shoal_relu(g, (shoal_out){x.node, 5});
  mistaken(g, "input 0 of Relu 'Relu' is x:5, and x has 1 output");
  g = shoal_graph_new();
  shoal_relu(g, shoal_constant_float(other, 1));
  mistaken(g, "input 0 of Relu 'Relu' is Const:0 of another graph");
  g = shoal_graph_new();
  shoal_push_control(g, (shoal_op *[]){shoal_constant_float(other, 1).node}, 1);
  mistaken(g, "Const_1 is an op of another graph");
  g = shoal_graph_new();
  shoal_builder *b = shoal_build(g, "NoOp", NULL);
  shoal_build_control(b, shoal_constant_float(other, 1).node);
  shoal_build_end(b);
  mistaken(g, "Const_2 is an op of another graph");
  shoal_graph_free(other);
}

/* An attribute that the op has not would be one that has no effect. */
static void test_attributes(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_builder *b = shoal_build(g, "MatMul", "product");
  shoal_build_input(b, shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(2, 2), "x"));
  shoal_build_input(b, shoal_graph_out(g, "x"));
  shoal_build_bool(b, "transpose_bb", true);
  shoal_build_end(b);
  mistaken(g, "MatMul 'product': NodeDef mentions attr 'transpose_bb' not in Op<name=MatMul;");
  g = shoal_graph_new();
  b = shoal_build(g, "NoOp", NULL);
  for (int i = 0; i < 100; i++) shoal_build_int(b, "_again", i);
  shoal_build_end(b);
  mistaken(g, "attributes are given to NoOp");
}

/* What must have a name has none. */
static void test_no_name(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_push_scope(g, NULL);
  mistaken(g, "a scope without a name");
  g = shoal_graph_new();
  shoal_push_device(g, NULL);
  mistaken(g, "a device scope without a device");
  g = shoal_graph_new();
  shoal_variable(g, NULL, shoal_constant_float(g, 1));
  mistaken(g, "a variable without a name");
  g = shoal_graph_new(); /* layers have those of tf.layers */
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(1, 2, 2, 3), "x");
  shoal_dense(g, shoal_flatten(g, shoal_conv_layer(g, x, 2, 3, NULL)), 2, NULL);
  assert_null(shoal_graph_error(g));
  assert_non_null(shoal_graph_op(g, "dense/kernel"));
  assert_non_null(shoal_graph_op(g, "conv2d/bias"));
  shoal_minimize(g, (shoal_optimizer){0}, shoal_reduce_sum(g, shoal_graph_out(g, "dense/BiasAdd")),
                 shoal_global_step(g));
  mistaken(g, "an optimizer is made by a function such as shoal_sgd");
}

/* A mistyped part is none of a device's type; what TensorFlow has in this place stays. */
static void test_device_names(void **state) {
  const char *wrong[] = {"/tsk:0", "/job:ps/tsk:0", "/tsk", "/xla_cpu:0", "/*"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    shoal_graph *g = shoal_graph_new();
    shoal_push_device(g, wrong[i]);
    mistaken(g, "is none of job, replica, task, device, cpu and gpu");
  }
  const char *right[] = {"/cpu:0", "/Gpu:1", "/gpu", "/job:ps/task:1/cpu:*", "/device:TSK:0", "/device:*", "/", ""};
  for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
    shoal_graph *g = shoal_graph_new();
    shoal_push_device(g, right[i]);
    assert_null(shoal_graph_error(g));
    shoal_graph_free(g);
  }
}

/* Paths that nobody gave: of a variable of the environment that is not set, of a checkpoint that is not there. */
static void test_no_path(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_variable(g, "weights", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SCALAR));
  shoal_saver *saver = shoal_saver_new(g, NULL);
  shoal_session *s = open(g);
  char *none = shoal_latest_checkpoint(NULL);
  assert_null(none);
  ASSERT_FAILS(shoal_saver_restore(saver, s, none), SHOAL_NOT_FOUND, "there is no checkpoint to restore");
  shoal_events *events;
  ASSERT_FAILS(shoal_events_open(NULL, &events), SHOAL_INVALID_ARGUMENT, "NULL");
  shoal_tensor *t;
  ASSERT_FAILS(shoal_read_idx(NULL, &t), SHOAL_INVALID_ARGUMENT, "NULL");
  ASSERT_FAILS(shoal_load_ops(NULL), SHOAL_INVALID_ARGUMENT, "NULL");
  assert_null(shoal_graph_op(g, NULL));
  assert_null(shoal_graph_out(g, NULL).node);
  shoal_saver_free(saver);
  ASSERT_OK(shoal_session_close(s));
  shoal_constant_string(g, NULL);
  mistaken(g, "string 0 of a constant is NULL");
}

/* Feeds and fetches that were filled by hand. */
static void test_steps_of_nothing(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 1);
  shoal_session *s = open(g);
  shoal_async *a;
  shoal_feeds feeds = {NULL, 2}, no_feeds = SHOAL_NO_FEEDS;
  shoal_fetches fetches = {NULL, 2}, fewer = {NULL, -1}, nowhere = {&(shoal_fetch){.from = x}, 1};
  ASSERT_FAILS(shoal_session_step(s, feeds, SHOAL_NO_FETCHES, NULL), SHOAL_INVALID_ARGUMENT,
               "shoal_session_step: feeds.at is NULL");
  ASSERT_FAILS(shoal_session_step(s, no_feeds, fetches, NULL), SHOAL_INVALID_ARGUMENT, "fetches.at is NULL");
  ASSERT_FAILS(shoal_session_step(s, no_feeds, fewer, NULL), SHOAL_INVALID_ARGUMENT, "fetches.at is of -1 elements");
  ASSERT_FAILS(shoal_session_step(s, no_feeds, nowhere, NULL), SHOAL_INVALID_ARGUMENT, "fetches.at[0].to is NULL");
  ASSERT_FAILS(shoal_run_async(s, NULL, feeds, fetches, NULL, &a), SHOAL_INVALID_ARGUMENT,
               "shoal_run_async: feeds.at is NULL");
  ASSERT_FAILS(shoal_run_async(s, NULL, no_feeds, nowhere, NULL, &a), SHOAL_INVALID_ARGUMENT,
               "shoal_run_async: fetches.at[0].to is NULL");
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* One value does not fit its place: the others are not stored either. */
static void test_all_or_nothing_is_stored(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out one = shoal_constant_float(g, 1), two = shoal_constant_floats(g, SHOAL_SHAPE(2), (const float[]){1, 2});
  shoal_session *s = open(g);
  shoal_tensor *t = NULL;
  float first = 7, second = 8;
  const char *said = "it does not fit into one number";
  ASSERT_FAILS(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(one, &t, one, &first, two, &second), NULL),
               SHOAL_INVALID_ARGUMENT, said);
  shoal_async *a;
  ASSERT_OK(shoal_run_async(s, NULL, SHOAL_NO_FEEDS, SHOAL_FETCH(one, &t, one, &first, two, &second), NULL, &a));
  ASSERT_FAILS(shoal_async_wait(a), SHOAL_INVALID_ARGUMENT, said);
  shoal_async_free(a);
  assert_null(t);
  assert_true(first == 7 && second == 8);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* Arrays, callbacks and places for results that nobody gave: named, with the function. */
static void test_nothing_given(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 1);
  shoal_session *s = open(g);
  shoal_tensor *t;
  char *handle;
  int64_t callable;
  ASSERT_FAILS(shoal_session_open(g, NULL, NULL), SHOAL_INVALID_ARGUMENT, "shoal_session_open: out is NULL");
  ASSERT_FAILS(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, &t, 1, NULL, 0, NULL), SHOAL_INVALID_ARGUMENT,
               "shoal_session_run: fetch_names is NULL");
  ASSERT_FAILS(shoal_session_run(s, NULL, NULL, NULL, 0, (const char *[]){NULL}, &t, 1, NULL, 0, NULL),
               SHOAL_INVALID_ARGUMENT, "shoal_session_run: fetch_names[0] is NULL");
  ASSERT_FAILS(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, -1, NULL, 0, NULL), SHOAL_INVALID_ARGUMENT,
               "fetch_names is of -1 elements");
  ASSERT_FAILS(shoal_session_partial_setup(s, NULL, 0, NULL, 0, NULL, 1, &handle), SHOAL_INVALID_ARGUMENT,
               "targets is NULL");
  ASSERT_FAILS(shoal_session_make_callable(s, NULL, 1, NULL, 0, NULL, 0, &callable), SHOAL_INVALID_ARGUMENT,
               "shoal_session_make_callable: feed_names is NULL");
  ASSERT_FAILS(shoal_tensor_new(SHOAL_FLOAT32, 1, NULL, &t), SHOAL_INVALID_ARGUMENT, "shoal_tensor_new: dims is NULL");
  ASSERT_FAILS(shoal_graph_import(g, NULL, 8, NULL), SHOAL_INVALID_ARGUMENT, "shoal_graph_import: data is NULL");
  ASSERT_FAILS(shoal_graph_export(g, NULL), SHOAL_INVALID_ARGUMENT, "shoal_graph_export: out is NULL");
  shoal_coordinator *c = shoal_coordinator_new();
  ASSERT_FAILS(shoal_coordinator_start(c, NULL, NULL), SHOAL_INVALID_ARGUMENT, "shoal_coordinator_start: fn is NULL");
  shoal_coordinator_free(c);
  shoal_train_session *train;
  ASSERT_FAILS(shoal_train_session_open(g, SHOAL_OPTIONS(shoal_train_session_options, .n_hooks = 2), &train),
               SHOAL_INVALID_ARGUMENT, "options->hooks is NULL");
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);

  shoal_out result;
  shoal_gradient gradient;
  enum { CASES = 12 };
  const char *said[CASES] = {"shoal_while_loop: cond is NULL",
                             "shoal_cond: then is NULL",
                             "shoal_cond: results is NULL",
                             "shoal_gradients: xs is NULL",
                             "shoal_push_control: ops is NULL",
                             "shoal_group: ops is NULL",
                             "shoal_constant_floats: v is NULL",
                             "shoal_piecewise_constant: boundaries is NULL",
                             "shoal_partitioned_variable: partitioner is NULL",
                             "Pack 'p': a list of inputs is NULL",
                             "NoOp 'n': attribute _a is NULL",
                             "shoal_apply_gradients: vars is NULL"};
  for (int i = 0; i < CASES; i++) {
    g = shoal_graph_new();
    x = shoal_constant_float(g, 1);
    shoal_builder *b = i == 9 ? shoal_build(g, "Pack", "p") : i == 10 ? shoal_build(g, "NoOp", "n") : NULL;
    switch (i) {
      case 0: shoal_while_loop(g, NULL, NULL, NULL, &x, 1, NULL, &result); break;
      case 1: shoal_cond(g, x, NULL, NULL, NULL, 1, &result); break;
      case 2: shoal_cond(g, x, NULL, NULL, NULL, 1, NULL); break;
      case 3: shoal_gradients(g, &x, 1, NULL, 1, NULL, &gradient); break;
      case 4: shoal_push_control(g, NULL, 1); break;
      case 5: shoal_group(g, NULL, 1, "all"); break;
      case 6: shoal_constant_floats(g, SHOAL_SHAPE(2), NULL); break;
      case 7: shoal_piecewise_constant(g, x, NULL, (double[]){1, 2}, 1); break;
      case 8: shoal_partitioned_variable(g, "v", SHOAL_FLOAT32, SHOAL_SHAPE(2), NULL, NULL, NULL); break;
      case 9: shoal_build_inputs(b, NULL, 2); break;
      case 10: shoal_build_ints(b, "_a", NULL, 2); break;
      default: shoal_apply_gradients(g, shoal_sgd(1), NULL, NULL, 1, (shoal_var){0});
    }
    if (b) shoal_build_end(b);
    mistaken(g, said[i]);
  }
}

/* A hook that runs a step of its own says that it is it that asks. */
static void test_logging_at_end(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_global_step(g);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "x"), y = shoal_square(g, x);
  shoal_hook hook = shoal_logging_tensor_hook(&y, NULL, 1, 100, 0, true);
  shoal_train_session *s;
  ASSERT_OK(shoal_train_session_open(
      g, SHOAL_OPTIONS(shoal_train_session_options, .hooks = &hook, .n_hooks = 1, .no_signals = true), &s));
  ASSERT_FAILS(shoal_train_session_close(s), SHOAL_INVALID_ARGUMENT, "logged at the end, in a step without feeds");
  shoal_graph_free(g);
}

/* What was added to a graph after its session was made is not there yet. */
static void test_extend(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s = open(g);
  shoal_out x = shoal_constant_float(g, 1);
  float value;
  ASSERT_FAILS(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(x, &value), NULL), SHOAL_NOT_FOUND,
               "shoal_session_extend");
  ASSERT_FAILS(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, x.node), SHOAL_NOT_FOUND,
               "shoal_session_extend");
  ASSERT_OK(shoal_session_extend(s, g));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(x, &value), NULL));
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

RUN_TESTS(cmocka_unit_test(test_feeds), cmocka_unit_test(test_shapes), cmocka_unit_test(test_uninitialised),
          cmocka_unit_test(test_fused_product), cmocka_unit_test(test_inputs), cmocka_unit_test(test_attributes),
          cmocka_unit_test(test_no_name), cmocka_unit_test(test_device_names), cmocka_unit_test(test_no_path),
          cmocka_unit_test(test_steps_of_nothing), cmocka_unit_test(test_all_or_nothing_is_stored),
          cmocka_unit_test(test_nothing_given), cmocka_unit_test(test_logging_at_end), cmocka_unit_test(test_extend))
