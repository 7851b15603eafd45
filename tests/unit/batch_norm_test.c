/* Batch normalisation: its formula, its moving averages, and that replicas of a strategy do what one does on the whole
 * batch, gradients included. */
#include "unit.h"

#include <math.h>

#include <shoal/shoal.h>

enum { ROWS = 11, IN = 3, HIDDEN = 4, STEPS = 5, MOST = 3 };
static const char *const saved[] = {"a/kernel",           "a/bias",   "bn/gamma", "bn/beta", "bn/moving_mean",
                                    "bn/moving_variance", "b/kernel", "b/bias"};
enum { SAVED = 8, OUT = 2 };

static shoal_tensor *numbers(int rows, int columns, int salt) {
  float v[ROWS * IN];
  const int64_t dims[] = {rows, columns};
  shoal_tensor *t;
  for (int i = 0; i < rows * columns; i++) v[i] = (float)((i * 37 + salt * 11) % 20) / 10.0F - 0.3F;
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 2, dims, v, (size_t)(rows * columns) * sizeof *v, &t));
  return t;
}

static shoal_tensor *truth(bool v) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_from(SHOAL_BOOL, 0, NULL, &v, sizeof v, &t));
  return t;
}

/* ---- the formula ---- */

static void check_moments(const float *x, const float *y, const float *mean, const float *variance) {
  for (int c = 0; c < IN; c++) {
    double sum = 0, squares = 0;
    for (int i = 0; i < ROWS; i++) sum += (double)x[i * IN + c];
    double m = sum / ROWS;
    for (int i = 0; i < ROWS; i++) squares += pow((double)x[i * IN + c] - m, 2);
    double v = squares / ROWS;
    for (int i = 0; i < ROWS; i++)
      assert_true(fabs(((double)x[i * IN + c] - m) / sqrt(v + 0.5) - (double)y[i * IN + c]) < 1e-6);
    assert_true(fabs((double)mean[c] - 0.25 * m) < 1e-6 && fabs((double)variance[c] - (0.75 + 0.25 * v)) < 1e-6);
  }
}

static void training_and_not(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, IN), "x");
  shoal_out training = shoal_placeholder(g, SHOAL_BOOL, SHOAL_SCALAR, "training");
  const shoal_batch_norm_options *options = SHOAL_OPTIONS(shoal_batch_norm_options, .momentum = 0.75, .epsilon = 0.5);
  shoal_out y = shoal_batch_norm(g, x, training, NULL, options);
  shoal_out mean = shoal_graph_out(g, "batch_normalization/moving_mean/Read/ReadVariableOp"),
            variance = shoal_graph_out(g, "batch_normalization/moving_variance/Read/ReadVariableOp");
  assert_int_equal(shoal_variables(g, false, NULL, 0), 4);
  assert_int_equal(shoal_variables(g, true, NULL, 0), 2);
  shoal_op *init = shoal_initialize(g);
  if (shoal_report(g)) fail();
  shoal_session *s;
  shoal_tensor *in = numbers(ROWS, IN, 1), *yes = truth(true), *no = truth(false), *none = numbers(0, IN, 1), *out, *m,
               *v;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  /* Averages of (0, 1): y is nearly x, and nothing moves. Neither does it when there is no row. */
  ASSERT_OK(shoal_session_step(s, SHOAL_FEED(x, in, training, no), SHOAL_FETCH(y, &out), NULL));
  const float *before = shoal_tensor_const_data(in), *after = shoal_tensor_const_data(out);
  for (int i = 0; i < ROWS * IN; i++) assert_true(fabsf(before[i] / sqrtf(1.5F) - after[i]) < 1e-6F);
  shoal_tensor_unref(out);
  ASSERT_OK(shoal_session_step(s, SHOAL_FEED(x, none, training, yes), SHOAL_FETCH(y, &out), NULL));
  assert_int_equal(shoal_tensor_elements(out), 0);
  shoal_tensor_unref(out);
  ASSERT_OK(shoal_session_step(s, SHOAL_FEED(x, in, training, yes), SHOAL_FETCH(y, &out), NULL));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(mean, &m, variance, &v), NULL));
  check_moments(before, shoal_tensor_const_data(out), shoal_tensor_const_data(m), shoal_tensor_const_data(v));
  shoal_tensor *all[] = {in, yes, no, none, out, m, v};
  for (int i = 0; i < 7; i++) shoal_tensor_unref(all[i]);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* ---- replicas ---- */

static shoal_op *step(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  const shoal_out *training = arg;
  shoal_out h = shoal_dense(g, in[0], HIDDEN, "a");
  h = shoal_tanh(g, shoal_batch_norm(g, h, *training, "bn", SHOAL_OPTIONS(shoal_batch_norm_options, .momentum = 0.9)));
  shoal_out y = shoal_dense(g, h, 1, "b");
  out[0] = y;
  shoal_out loss = shoal_replica_average_loss(r, shoal_square(g, shoal_sub(g, y, in[1])));
  out[1] = loss;
  return shoal_minimize(g, shoal_sgd(0.2), loss, shoal_global_step(g));
}

struct result {
  float weights[SAVED][IN * HIDDEN], loss[STEPS], inferred[ROWS];
};

static void keep(shoal_session *s, shoal_out from, float *to, int most) {
  shoal_tensor *t;
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(from, &t), NULL));
  assert_true(shoal_tensor_elements(t) <= most);
  memcpy(to, shoal_tensor_const_data(t), (size_t)shoal_tensor_elements(t) * sizeof *to);
  shoal_tensor_unref(t);
}

/* All replicas' copies have the first one's bits. */
static void keep_weights(shoal_graph *g, shoal_session *s, int n, struct result *to) {
  for (int i = 0; i < SAVED; i++)
    for (int k = 0; k < n; k++) {
      char name[96];
      float copy[IN * HIDDEN] = {0};
      if (k) snprintf(name, sizeof name, "%s/replica_%d/Read/ReadVariableOp", saved[i], k);
      else snprintf(name, sizeof name, "%s/Read/ReadVariableOp", saved[i]);
      keep(s, shoal_graph_out(g, name), k ? copy : to->weights[i], IN * HIDDEN);
      if (k) assert_memory_equal(copy, to->weights[i], sizeof copy);
    }
}

static void train(shoal_strategy *strategy, struct result *to) {
  int n = shoal_strategy_local_replicas(strategy);
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 5);
  shoal_out in[2 * MOST], out[OUT * MOST], x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, IN), "x"),
                                           y = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 1), "y"),
                                           training = shoal_placeholder(g, SHOAL_BOOL, SHOAL_SCALAR, "training");
  shoal_strategy_split(g, strategy, x, in, 2);
  shoal_strategy_split(g, strategy, y, in + 1, 2);
  shoal_op *op = shoal_strategy_run(g, strategy, step, &training, in, 2, out, OUT);
  shoal_out loss = shoal_strategy_reduce(g, strategy, SHOAL_REDUCE_MEAN, out + 1, OUT);
  shoal_out whole = n > 1 ? shoal_concat_v2(g, (shoal_out[]){out[0], out[OUT], n > 2 ? out[2 * OUT] : out[0]},
                                            n > 2 ? 3 : 2, shoal_constant_int(g, 0))
                          : out[0];
  if (shoal_report(g)) fail();
  shoal_status error = NULL;
  shoal_tensor *yes = truth(true), *no = truth(false), *xs = numbers(ROWS, IN, 1), *ys = numbers(ROWS, 1, 2), *t;
  memset(to, 0, sizeof *to);
  SHOAL_TRAIN_SESSION(s, g, .no_signals = true, .status = &error, .strategy = strategy) {
    for (int i = 0; i < STEPS; i++)
      assert_true(shoal_run(s, SHOAL_FEED(x, xs, y, ys, training, yes), SHOAL_FETCH(loss, &to->loss[i]), op));
    shoal_session *raw = shoal_train_session_raw(s);
    keep_weights(g, raw, n, to);
    ASSERT_OK(shoal_session_step(raw, SHOAL_FEED(x, xs, y, ys, training, no), SHOAL_FETCH(whole, &t), NULL));
    assert_int_equal(shoal_tensor_elements(t), ROWS);
    memcpy(to->inferred, shoal_tensor_const_data(t), sizeof to->inferred);
    shoal_tensor_unref(t);
  }
  ASSERT_OK(error);
  shoal_tensor *all[] = {yes, no, xs, ys};
  for (int i = 0; i < 4; i++) shoal_tensor_unref(all[i]);
  shoal_graph_free(g);
  shoal_strategy_free(strategy);
}

static void replicas_are_the_whole_batch(void **state) {
  struct result one, many, again;
  shoal_strategy *s;
  ASSERT_OK(shoal_strategy_new_one_device(NULL, NULL, &s));
  train(s, &one);
  assert_true(one.loss[STEPS - 1] < one.loss[0]);
  for (int n = 2; n <= MOST; n++) {
    ASSERT_OK(shoal_strategy_new_mirrored(NULL, n, NULL, &s));
    train(s, &many);
    const float *a = (const float *)&one, *b = (const float *)&many;
    for (size_t i = 0; i < sizeof one / sizeof *a; i++)
      if (!(fabsf(a[i] - b[i]) <= 2e-6F * (1 + fabsf(a[i]))))
        fail_msg("%d replicas, number %zu: %.9g and %.9g", n, i, (double)a[i], (double)b[i]);
    ASSERT_OK(shoal_strategy_new_mirrored(NULL, n, NULL, &s));
    train(s, &again);
    assert_memory_equal(&many, &again, sizeof many);
  }
}

/* ---- mistakes ---- */

static void expect(shoal_graph *g, const char *part) {
  assert_non_null(shoal_graph_error(g));
  const char *message = shoal_status_message(shoal_graph_error(g));
  if (!strstr(message, part)) fail_msg("'%s' is not in: %s", part, message);
  shoal_graph_free(g);
}

static void mistakes(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_batch_norm(g, shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, -1), "x"), shoal_constant_bool(g, true), NULL,
                   NULL);
  expect(g, "whose last dimension is known");
  g = shoal_graph_new();
  shoal_batch_norm(g, shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 2), "x"), shoal_constant_int(g, 1), NULL,
                   NULL);
  expect(g, "training is one bool");
  g = shoal_graph_new();
  shoal_batch_norm(g, shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 2), "x"), shoal_constant_bool(g, false), NULL,
                   SHOAL_OPTIONS(shoal_batch_norm_options, .momentum = 1.5));
  expect(g, "momentum 1.5");
}

/* The gradient of a sum over replicas needs the others: it is there in a replica, and nowhere else. */
static shoal_op *sums(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  const shoal_reduction *how = arg;
  out[0] = shoal_constant_float(g, (float)shoal_replica_id(r) + 1);
  out[1] = shoal_replica_reduce(r, *how, shoal_square(g, out[0]));
  shoal_out loss = shoal_mul(g, out[0], out[1]);
  shoal_gradient d = {0};
  shoal_gradients(g, &loss, 1, &out[0], 1, NULL, &d);
  out[2] = d.values;
  return NULL;
}

static void gradients_of_sums(void **state) {
  for (int i = 0; i < 3; i++) {
    const shoal_reduction hows[] = {SHOAL_REDUCE_SUM, SHOAL_REDUCE_MEAN, SHOAL_REDUCE_MAX};
    shoal_reduction how = hows[i];
    shoal_strategy *s;
    shoal_graph *g = shoal_graph_new();
    shoal_out out[2 * 3];
    ASSERT_OK(shoal_strategy_new_mirrored(NULL, 2, NULL, &s));
    shoal_strategy_run(g, s, sums, &how, NULL, 0, out, 3);
    if (how == SHOAL_REDUCE_MAX) expect(g, "a sum or mean over the replicas");
    else {
      /* losses a (a^2 + b^2) and b (a^2 + b^2) with a 1, b 2: d/da of both is 5 + 2 a (a + b), of a mean half of it. */
      shoal_session *session;
      if (shoal_report(g)) fail();
      ASSERT_OK(shoal_session_open(g, &(shoal_session_options){.cpu_devices = 2}, &session));
      float a, b, part = how == SHOAL_REDUCE_SUM ? 1 : 0.5F;
      ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(out[2], &a), NULL));
      ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(out[5], &b), NULL));
      if (a != 11 * part || b != 17 * part) fail_msg("%g and %g", (double)a, (double)b);
      ASSERT_OK(shoal_session_close(session));
      shoal_gradient d;
      shoal_gradients(g, &out[1], 1, &out[0], 1, NULL, &d);
      expect(g, "inside of its replica");
    }
    shoal_strategy_free(s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(training_and_not),
      cmocka_unit_test(replicas_are_the_whole_batch),
      cmocka_unit_test(mistakes),
      cmocka_unit_test(gradients_of_sums),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
