/* Small dense layers on a GPU (graph/rewrite_fuse_dense.c): a classifier's last layer with its losses and the way back
 * as one node, the gradients of all layers as another, beside the CPU's single ops. Without a card on the soft device.
 */
#include "gpu_case.h"

enum { STEPS = 5 };

struct sizes {
  int64_t rows, in, hidden, classes;
  shoal_dtype labels;
  bool deep, relu, fused; /* fused: the card has a kernel for the classifier */
};

struct model {
  shoal_graph *g;
  shoal_session *s;
  shoal_out loss;
  shoal_op *train;
  shoal_var vars[8];
  int n_vars;
};

static shoal_tensor *numbers(shoal_dtype type, int64_t rows, int64_t columns, int64_t below) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(type, columns ? 2 : 1, (int64_t[]){rows, columns}, &t));
  for (int64_t i = 0; i < shoal_tensor_elements(t); i++)
    if (type == SHOAL_FLOAT32) ((float *)shoal_tensor_data(t))[i] = (float)number(-1, 1);
    else if (type == SHOAL_INT32) ((int32_t *)shoal_tensor_data(t))[i] = (int32_t)number(0, (double)below);
    else ((int64_t *)shoal_tensor_data(t))[i] = (int64_t)number(0, (double)below);
  return t;
}

static shoal_out constant_of(shoal_graph *g, shoal_tensor *t) {
  shoal_out o = shoal_constant(g, t);
  shoal_tensor_unref(t);
  return o;
}

static void model_new(struct model *m, const char *device, shoal_optimizer by, const struct sizes *z, const char *off) {
  shoal_graph *g = m->g = shoal_graph_new();
  shoal_gradient grads[8];
  seed = 7;
  shoal_set_random_seed(g, 3);
  shoal_push_device(g, device);
  shoal_out x = constant_of(g, numbers(SHOAL_FLOAT32, z->rows, z->in, 0));
  shoal_out y = constant_of(g, numbers(z->labels, z->rows, 0, z->classes));
  shoal_out h = shoal_dense(g, x, z->hidden, "hidden");
  if (z->deep) h = shoal_dense(g, shoal_relu(g, h), z->hidden, "second");
  h = z->relu ? shoal_relu(g, h) : shoal_tanh(g, h);
  m->loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, shoal_dense(g, h, z->classes, "logits"), y));
  m->n_vars = shoal_compute_gradients(g, m->loss, m->vars, grads, 8);
  m->train = shoal_apply_gradients(g, by, m->vars, grads, m->n_vars, (shoal_var){0});
  shoal_op *init = shoal_initialize(g);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(
      g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true, .rewrites_off = off), &m->s));
  ASSERT_OK(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
}

static void same_values(struct model *a, struct model *b) {
  for (int i = 0; i < a->n_vars; i++) {
    shoal_tensor *x, *y;
    ASSERT_OK(shoal_session_step(a->s, SHOAL_NO_FEEDS, SHOAL_FETCH(a->vars[i].value, &x), NULL));
    ASSERT_OK(shoal_session_step(b->s, SHOAL_NO_FEEDS, SHOAL_FETCH(b->vars[i].value, &y), NULL));
    const float *p = shoal_tensor_const_data(x), *q = shoal_tensor_const_data(y);
    double most = 4e-3 * largest(p, shoal_tensor_elements(x)); /* the first product may be taken in TF32 */
    for (int64_t k = 0; k < shoal_tensor_elements(x); k++)
      if (!(fabs((double)p[k] - (double)q[k]) <= most))
        fail_msg("variable %d: element %d is %g, not %g", i, (int)k, (double)q[k], (double)p[k]);
    shoal_tensor_unref(x);
    shoal_tensor_unref(y);
  }
}

/* Of a step on the GPU. */
static bool consists_of(struct model *m, const char *node) {
  shoal_bytes trace = {0};
  shoal_run_options o = {.trace_level = 3, .output_partition_graphs = true};
  const char *train = shoal_op_name(m->train);
  ASSERT_OK(shoal_session_run(m->s, &o, NULL, NULL, 0, NULL, NULL, 0, &train, 1, &trace));
  bool has = memmem(trace.data, trace.size, node, strlen(node));
  shoal_bytes_free(&trace);
  return has;
}

static void model_free(struct model *m) {
  ASSERT_OK(shoal_session_close(m->s));
  shoal_graph_free(m->g);
}

static void try_one(shoal_optimizer by, const struct sizes *z) {
  struct model cpu, gpu;
  model_new(&cpu, devices[0], by, z, "all");
  model_new(&gpu, devices[1], by, z, NULL);
  for (int i = 0; i < STEPS; i++) {
    float want, have;
    ASSERT_OK(shoal_session_step(cpu.s, SHOAL_NO_FEEDS, SHOAL_FETCH(cpu.loss, &want), cpu.train));
    ASSERT_OK(shoal_session_step(gpu.s, SHOAL_NO_FEEDS, SHOAL_FETCH(gpu.loss, &have), gpu.train));
    assert_float_equal(want, have, 4e-3f * (1 + want));
  }
  same_values(&cpu, &gpu);
  assert_false(consists_of(&cpu, "= _Dense"));
  assert_true(consists_of(&gpu, "= _DenseGrads("));
  assert_false(consists_of(&gpu, "= BiasAddGrad("));
  if (z->fused || !cuda_api(NULL)) {
    assert_true(consists_of(&gpu, "= _DenseCrossEntropy("));
    assert_false(consists_of(&gpu, "= _ShoalCrossEntropy("));
    assert_int_equal(consists_of(&gpu, "= ReluGrad("), z->deep);
  } else {
    assert_false(consists_of(&gpu, "= _DenseCrossEntropy("));
  }
  model_free(&cpu);
  model_free(&gpu);
}

/* As in the bench; odd sizes; one row, one of everything; too many classes; too many weights. */
static const struct sizes all[] = {
    {100, 784, 100, 10, SHOAL_INT64, false, true, true}, {37, 19, 33, 7, SHOAL_INT32, false, true, true},
    {37, 19, 33, 7, SHOAL_INT32, true, true, true},      {5, 40, 70, 16, SHOAL_INT64, false, false, true},
    {1, 1, 1, 2, SHOAL_INT64, true, false, true},        {64, 33, 50, 17, SHOAL_INT64, false, true, false},
    {9, 20, 900, 10, SHOAL_INT32, false, true, false}};

static void descent(void **state) {
  for (size_t i = 0; i < COUNT_OF(all); i++) try_one(shoal_sgd(0.05), &all[i]);
}

static void adam(void **state) {
  for (size_t i = 0; i < 3; i++) try_one(shoal_adam(0.002), &all[i]);
}

/* Losses that are fetched one by one, and not trained by, are what they were. */
static void losses_by_rows(void **state) {
  shoal_tensor *rows[2];
  for (int d = 0; d < 2; d++) {
    shoal_graph *g = shoal_graph_new();
    shoal_session *s;
    seed = 5;
    shoal_set_random_seed(g, 3);
    shoal_push_device(g, devices[d]);
    shoal_out x = constant_of(g, numbers(SHOAL_FLOAT32, 11, 8, 0)), y = constant_of(g, numbers(SHOAL_INT64, 11, 0, 5));
    shoal_out h = shoal_relu(g, shoal_dense(g, x, 9, "hidden"));
    shoal_out each = shoal_sparse_softmax_xent(g, shoal_dense(g, h, 5, "logits"), y);
    shoal_op *train = shoal_minimize(g, shoal_sgd(0.1), shoal_reduce_sum(g, each), (shoal_var){0});
    shoal_op *init = shoal_initialize(g);
    shoal_pop_device(g);
    ASSERT_OK(shoal_graph_error(g));
    ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true), &s));
    ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
    for (int i = 0; i < STEPS; i++) {
      if (i) shoal_tensor_unref(rows[d]);
      ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(each, &rows[d]), train));
    }
    ASSERT_OK(shoal_session_close(s));
    shoal_graph_free(g);
  }
  const float *a = shoal_tensor_const_data(rows[0]), *b = shoal_tensor_const_data(rows[1]);
  for (int i = 0; i < 11; i++) assert_float_equal(a[i], b[i], 4e-3f * (1 + a[i]));
  shoal_tensor_unref(rows[0]);
  shoal_tensor_unref(rows[1]);
}

/* Infinite numbers go into sums as they do on the CPU, and what is no number stays none. Element 0 of x is multiplied
 * by numbers of either sign, and element 1 by both kinds of infinity. */
static void infinities(void **state) {
  enum { ROWS = 21, IN = 9, OUT = 6 };
  shoal_tensor *made[2][2];
  for (int d = 0; d < 2; d++) {
    shoal_graph *g = shoal_graph_new();
    shoal_session *s;
    seed = 11;
    shoal_tensor *x = numbers(SHOAL_FLOAT32, ROWS, IN, 0), *dy = numbers(SHOAL_FLOAT32, ROWS, OUT, 0);
    float *at = shoal_tensor_data(x), *back = shoal_tensor_data(dy);
    at[3 * IN] = INFINITY;
    at[4 * IN + 1] = INFINITY;
    at[5 * IN + 1] = -INFINITY;
    at[6 * IN + 2] = NAN;
    for (int i = 0; i < OUT; i++) {
      back[3 * OUT + i] = i % 2 ? 1 : -0.3f; /* 1 has no low part */
      back[4 * OUT + i] = back[5 * OUT + i] = 0.7f;
    }
    back[7 * OUT + 5] = -INFINITY; /* in every sum of the last column */
    shoal_push_device(g, devices[d]);
    shoal_var vars[] = {shoal_variable(g, "w", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(IN, OUT))),
                        shoal_variable(g, "b", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(OUT)))};
    shoal_out values = constant_of(g, x), by = constant_of(g, dy);
    shoal_builder *sums = shoal_build(g, "BiasAddGrad", NULL), *product = shoal_build(g, "MatMul", NULL);
    shoal_build_input(sums, by);
    shoal_build_input(product, values);
    shoal_build_input(product, by);
    shoal_build_bool(product, "transpose_a", true);
    shoal_gradient grads[] = {{.values = shoal_build_end_out(product)}, {.values = shoal_build_end_out(sums)}};
    shoal_op *train = shoal_apply_gradients(g, shoal_sgd(1), vars, grads, 2, (shoal_var){0});
    shoal_op *init = shoal_initialize(g);
    shoal_pop_device(g);
    ASSERT_OK(shoal_graph_error(g));
    ASSERT_OK(shoal_session_open(
        g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = d ? "fold" : "all", .allow_soft_placement = true), &s));
    ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
    ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train));
    for (int i = 0; i < 2; i++)
      ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(vars[i].value, &made[d][i]), NULL));
    struct model m = {.s = s, .train = train};
    assert_int_equal(consists_of(&m, "= _DenseGrads("), d);
    ASSERT_OK(shoal_session_close(s));
    shoal_graph_free(g);
  }
  for (int i = 0; i < 2; i++) {
    const float *want = shoal_tensor_const_data(made[0][i]), *have = shoal_tensor_const_data(made[1][i]);
    if (i == 0) assert_true(isinf(want[0]) && isinf(want[1]) && isnan(want[OUT]) && isnan(want[2 * OUT]));
    for (int64_t k = 0; k < shoal_tensor_elements(made[0][i]); k++)
      if (isfinite(want[k]) ? !(fabsf(want[k] - have[k]) <= 4e-3f * (1 + fabsf(want[k])))
          : isnan(want[k])  ? !isnan(have[k])
                            : want[k] != have[k])
        fail_msg("%s: element %d is %g, not %g", i ? "sums" : "products", (int)k, (double)have[k], (double)want[k]);
    shoal_tensor_unref(made[0][i]);
    shoal_tensor_unref(made[1][i]);
  }
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(descent), cmocka_unit_test(adam),
                                     cmocka_unit_test(losses_by_rows), cmocka_unit_test(infinities)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
