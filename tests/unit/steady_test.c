/* The steady state of a training step with static shapes takes no memory: neither from the system for buffers nor from
 * malloc for anything else. Counted by standing in for malloc in this program. */
#include "unit.h"

#include <shoal/shoal.h>

#include "count_mallocs.h"

enum { STEPS = 100, MOST_WINDOWS = 200 };

struct model {
  shoal_out x, y, loss;
  shoal_op *train;
};

static struct model mlp(shoal_graph *g) {
  struct model m;
  m.x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(100, 784), "x");
  m.y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(100), "y");
  shoal_out h = shoal_relu(g, shoal_dense(g, m.x, 100, "hidden"));
  m.loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, shoal_dense(g, h, 10, "logits"), m.y));
  m.train = shoal_minimize(g, shoal_adam(0.001), m.loss, shoal_global_step(g));
  return m;
}

static struct model cnn(shoal_graph *g) {
  struct model m;
  m.x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(8, 28, 28, 1), "x");
  m.y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(8), "y");
  shoal_out h = shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, m.x, 8, 5, "conv")));
  m.loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, shoal_dense(g, shoal_flatten(g, h), 10, "logits"), m.y));
  m.train = shoal_minimize(g, shoal_momentum(0.01, 0.9), m.loss, shoal_global_step(g));
  return m;
}

static void check_steady(struct model (*build)(shoal_graph *g), int threads) {
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  struct model m = build(g);
  shoal_op *init = shoal_initialize(g);
  ASSERT_OK(status_copy(shoal_graph_error(g)));
  shoal_session *s;
  shoal_session_options o = {.inter_op_threads = threads, .intra_op_threads = threads};
  ASSERT_OK(shoal_session_open(g, &o, &s));
  const char *init_name = shoal_op_name(init);
  ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, &init_name, 1, NULL));

  shoal_tensor *feeds[2];
  int64_t dims[SHOAL_MAX_RANK];
  int rank = shoal_out_shape(m.x, dims);
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, rank, dims, &feeds[0]));
  ASSERT_OK(shoal_tensor_new(SHOAL_INT64, 1, dims, &feeds[1]));
  float *x = shoal_tensor_data(feeds[0]);
  for (int64_t i = 0; i < shoal_tensor_elements(feeds[0]); i++) x[i] = (float)(i % 17) / 17;
  for (int64_t i = 0; i < dims[0]; i++) ((int64_t *)shoal_tensor_data(feeds[1]))[i] = i % 10;
  int64_t callable;
  const char *train = shoal_op_name(m.train);
  ASSERT_OK(shoal_session_make_callable(s, (const char *[]){"x:0", "y:0"}, 2, NULL, 0, &train, 1, &callable));
  /* A thread takes its scratch memory when it first comes to work, which may be late: so windows of steps, until one
   * takes nothing. */
  long taken = -1;
  for (int window = 0; window < MOST_WINDOWS && taken; window++) {
    long before = allocations();
    for (int i = 0; i < STEPS; i++) ASSERT_OK(shoal_session_run_callable(s, callable, NULL, feeds, 2, NULL, 0, NULL));
    taken = allocations() - before;
  }
  if (taken) print_message("%ld allocations in the last %d steps\n", taken, STEPS);
  assert_int_equal(taken, 0);

  ASSERT_OK(shoal_session_close(s));
  shoal_tensor_unref(feeds[0]);
  shoal_tensor_unref(feeds[1]);
  shoal_graph_free(g);
}

static void mlp_one_thread(void **state) { check_steady(mlp, 1); }
static void mlp_two_threads(void **state) { check_steady(mlp, 2); }
static void cnn_one_thread(void **state) { check_steady(cnn, 1); }

RUN_TESTS(cmocka_unit_test(mlp_one_thread), cmocka_unit_test(mlp_two_threads), cmocka_unit_test(cnn_one_thread))
