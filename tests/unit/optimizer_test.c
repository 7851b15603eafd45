/* Optimizers as graph builders: against the formulas, and sparse against dense.
 *
 * The formulas are written out here once more, in double precision and one element at a time. Sparse updates are
 * compared with dense ones of the same gradient where every row is touched (rows twice over, so that adding up shows).
 */
#include "unit.h"

#include <math.h>

#include <shoal/shoal.h>

enum { STEPS = 6 };

struct model {
  shoal_graph *g;
  shoal_session *s;
  shoal_op *train;
  shoal_out value;
};

static void open_session(struct model *m) {
  shoal_op *init = shoal_initialize(m->g);
  if (shoal_graph_error(m->g)) shoal_report(m->g);
  assert_null(shoal_graph_error(m->g));
  ASSERT_OK(shoal_session_open(m->g, NULL, &m->s));
  const char *name = shoal_op_name(init);
  ASSERT_OK(shoal_session_run(m->s, NULL, NULL, NULL, 0, NULL, NULL, 0, &name, 1, NULL));
}

static void close_session(struct model *m) {
  ASSERT_OK(shoal_session_close(m->s));
  shoal_graph_free(m->g);
}

static void train_and_read(struct model *m, float *out, size_t n) {
  const char *train = shoal_op_name(m->train);
  ASSERT_OK(shoal_session_run(m->s, NULL, NULL, NULL, 0, NULL, NULL, 0, &train, 1, NULL));
  char name[128];
  snprintf(name, sizeof name, "%s:0", shoal_op_name(m->value.node));
  shoal_tensor *t;
  ASSERT_OK(shoal_session_run(m->s, NULL, NULL, NULL, 0, (const char *[]){name}, &t, 1, NULL, 0, NULL));
  assert_int_equal(shoal_tensor_elements(t), n);
  memcpy(out, shoal_tensor_const_data(t), n * sizeof *out);
  shoal_tensor_unref(t);
}

/* ---- against the formulas: loss = (v - 3)^2 from v = 1 ---- */

struct state {
  double v, a, b; /* the variable and its slots */
  int step;
};

static void sgd_rule(struct state *s, double d) { s->v -= 0.1 * d; }
static void momentum_rule(struct state *s, double d) {
  s->a = 0.9 * s->a + d;
  s->v -= 0.1 * s->a;
}
static void nesterov_rule(struct state *s, double d) {
  s->a = 0.9 * s->a + d;
  s->v -= 0.1 * d + 0.1 * 0.9 * s->a;
}
static void adam_rule(struct state *s, double d) {
  s->a = 0.9 * s->a + 0.1 * d;
  s->b = 0.999 * s->b + 0.001 * d * d;
  double rate = 0.1 * sqrt(1 - pow(0.999, s->step)) / (1 - pow(0.9, s->step));
  s->v -= rate * s->a / (sqrt(s->b) + 1e-8);
}
static void adagrad_rule(struct state *s, double d) {
  s->a += d * d + (s->step == 1 ? 0.1 : 0);
  s->v -= 0.1 * d / sqrt(s->a);
}
static void adadelta_rule(struct state *s, double d) {
  s->a = 0.95 * s->a + 0.05 * d * d;
  double change = sqrt(s->b + 1e-8) / sqrt(s->a + 1e-8) * d;
  s->b = 0.95 * s->b + 0.05 * change * change;
  s->v -= 0.1 * change;
}
static void rmsprop_rule(struct state *s, double d) {
  if (s->step == 1) s->a = 1;
  s->a = 0.9 * s->a + 0.1 * d * d;
  s->v -= 0.1 * d / sqrt(s->a + 1e-10);
}
static void ftrl_rule(struct state *s, double d) {
  if (s->step == 1) s->a = 0.1;
  double next = s->a + d * d;
  s->b += d - (sqrt(next) - sqrt(s->a)) / 0.1 * s->v;
  s->v = -s->b / (sqrt(next) / 0.1);
  s->a = next;
}

static void check_rule(shoal_optimizer o, void (*rule)(struct state *, double)) {
  struct model m = {.g = shoal_graph_new()};
  shoal_var v = shoal_variable(m.g, "v", shoal_constant_float(m.g, 1));
  shoal_out loss = shoal_square(m.g, shoal_sub(m.g, v.value, shoal_constant_float(m.g, 3)));
  m.train = shoal_minimize(m.g, o, loss, shoal_global_step(m.g));
  m.value = v.value;
  open_session(&m);
  struct state s = {.v = 1};
  for (int i = 0; i < STEPS; i++) {
    float got;
    s.step++;
    rule(&s, 2 * (s.v - 3));
    train_and_read(&m, &got, 1);
    if (fabs(got - s.v) > 2e-5 * fmax(1, fabs(s.v)))
      fail_msg("step %d: %.7g, the formula gives %.7g", i + 1, (double)got, s.v);
  }
  char name[] = "global_step/Read/ReadVariableOp:0";
  const char *fetch = name;
  shoal_tensor *count;
  ASSERT_OK(shoal_session_run(m.s, NULL, NULL, NULL, 0, &fetch, &count, 1, NULL, 0, NULL));
  assert_int_equal(*(const int64_t *)shoal_tensor_const_data(count), STEPS);
  shoal_tensor_unref(count);
  close_session(&m);
}

static void formulas(void **state) {
  check_rule(shoal_sgd(0.1), sgd_rule);
  check_rule(shoal_momentum(0.1, 0.9), momentum_rule);
  check_rule(shoal_nesterov(0.1, 0.9), nesterov_rule);
  check_rule(shoal_adam(0.1), adam_rule);
  check_rule(shoal_adagrad(0.1), adagrad_rule);
  check_rule(shoal_adadelta(0.1), adadelta_rule);
  check_rule(shoal_rmsprop(0.1), rmsprop_rule);
  check_rule(shoal_ftrl(0.1), ftrl_rule);
}

/* ---- sparse against dense ---- */

enum { ROWS = 4, WIDTH = 3, LOOKUPS = 6 };

static struct model lookup(shoal_optimizer o, bool sparse) {
  static const float start[ROWS * WIDTH] = {0.1f, 0.2f, 0.3f, -0.1f, 0.5f, 0.9f, 1, -1, 0.4f, 0.7f, 0.6f, -0.5f};
  static const int32_t rows[LOOKUPS] = {0, 2, 1, 2, 3, 0};
  static float one_hot[LOOKUPS * ROWS];
  for (int i = 0; i < LOOKUPS; i++) one_hot[i * ROWS + rows[i]] = 1;
  struct model m = {.g = shoal_graph_new()};
  shoal_var table = shoal_variable(m.g, "table", shoal_constant_floats(m.g, SHOAL_SHAPE(ROWS, WIDTH), start));
  shoal_out got;
  if (sparse)
    got = shoal_gather_v2(m.g, table.value, shoal_constant_ints(m.g, SHOAL_SHAPE(LOOKUPS), rows),
                          shoal_constant_int(m.g, 0));
  else got = shoal_mat_mul(m.g, shoal_constant_floats(m.g, SHOAL_SHAPE(LOOKUPS, ROWS), one_hot), table.value);
  shoal_out loss = shoal_reduce_sum(m.g, shoal_square(m.g, shoal_sub(m.g, got, shoal_constant_float(m.g, 2))));
  m.train = shoal_minimize(m.g, o, loss, (shoal_var){0});
  m.value = table.value;
  open_session(&m);
  return m;
}

static void sparse_is_dense(void **state) {
  const shoal_optimizer all[] = {shoal_sgd(0.05),     shoal_momentum(0.05, 0.9), shoal_nesterov(0.05, 0.9),
                                 shoal_adam(0.05),    shoal_adagrad(0.05),       shoal_adadelta(0.5),
                                 shoal_rmsprop(0.05), shoal_ftrl(0.05)};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    struct model a = lookup(all[k], true), b = lookup(all[k], false);
    for (int i = 0; i < STEPS; i++) {
      float x[ROWS * WIDTH], y[ROWS * WIDTH];
      train_and_read(&a, x, ROWS * WIDTH);
      train_and_read(&b, y, ROWS * WIDTH);
      for (int j = 0; j < ROWS * WIDTH; j++)
        if (fabsf(x[j] - y[j]) > 1e-5f) fail_msg("optimizer %zu, step %d: %g and %g", k, i, (double)x[j], (double)y[j]);
    }
    close_session(&a);
    close_session(&b);
  }
}

/* ---- mistakes ---- */

static void a_loss_without_variables(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_op *train = shoal_minimize(g, shoal_sgd(1), shoal_constant_float(g, 1), (shoal_var){0});
  assert_null(train);
  assert_int_equal(shoal_status_code(shoal_graph_error(g)), SHOAL_INVALID_ARGUMENT);
  shoal_graph_free(g);
}

static void the_first_mistake_sticks(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, -1), "x");
  shoal_out y = shoal_dense(g, x, 10, "layer");
  shoal_minimize(g, shoal_sgd(1), shoal_reduce_mean(g, shoal_relu(g, y)), shoal_global_step(g));
  shoal_initialize(g);
  assert_non_null(strstr(shoal_status_message(shoal_graph_error(g)), "shoal_dense"));
  shoal_graph_free(g);
}

static void names_that_are_taken(void **state) {
  struct model m = {.g = shoal_graph_new()};
  shoal_out x = shoal_constant_floats(m.g, SHOAL_SHAPE(1, 2), (const float[]){1, 2});
  shoal_out a = shoal_dense(m.g, x, 2, "same"), b = shoal_dense(m.g, a, 2, "same");
  m.train = shoal_minimize(m.g, shoal_adam(0.1), shoal_reduce_sum(m.g, b), (shoal_var){0});
  assert_int_equal(shoal_variables(m.g, true, NULL, 0), 4);
  m.value = shoal_reduce_sum(m.g, b);
  open_session(&m);
  float before, after;
  train_and_read(&m, &before, 1);
  train_and_read(&m, &after, 1);
  assert_true(after < before);
  close_session(&m);
}

RUN_TESTS(cmocka_unit_test(formulas), cmocka_unit_test(sparse_is_dense), cmocka_unit_test(a_loss_without_variables),
          cmocka_unit_test(the_first_mistake_sticks), cmocka_unit_test(names_that_are_taken))
