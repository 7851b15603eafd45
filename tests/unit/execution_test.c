/* Several steps in one run of a training session: the bits, counters and ends of single steps. */
#include "unit.h"

#include <shoal/shoal.h>

enum { ROWS = 6, IN = 3, STEPS = 12, EACH = 4 };

static shoal_tensor *numbers(int rows, int columns, int first) {
  float v[STEPS * ROWS * IN];
  const int64_t dims[] = {rows, columns};
  shoal_tensor *t;
  for (int i = 0; i < rows * columns; i++) v[i] = (float)(((first * columns + i) * 37) % 23) / 10.0F - 1.0F;
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 2, dims, v, (size_t)(rows * columns) * sizeof *v, &t));
  return t;
}

/* With random numbers that go on from step to step, and a single number that is fed. */
static shoal_op *step(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  const shoal_out *scale = arg;
  shoal_out noise = shoal_init_uniform(g, SHOAL_FLOAT32, SHOAL_SHAPE(4), 0, 1);
  shoal_out h = shoal_mul(g, shoal_tanh(g, shoal_dense(g, in[0], 4, "a")), noise);
  out[0] = shoal_mul(g, *scale, shoal_reduce_mean(g, shoal_square(g, shoal_sub(g, shoal_dense(g, h, 1, "b"), in[1]))));
  return shoal_minimize(g, shoal_adam(0.05), out[0], shoal_global_step(g));
}

struct model {
  shoal_graph *g;
  shoal_strategy *strategy;
  shoal_out x, y, scale, loss, kernel, counter;
  shoal_op *train;
};

static struct model build(void) {
  struct model m = {.g = shoal_graph_new()};
  shoal_out in[4], out[2];
  ASSERT_OK(shoal_strategy_new_mirrored(NULL, 2, NULL, &m.strategy));
  shoal_set_random_seed(m.g, 7);
  m.x = shoal_placeholder(m.g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, IN), "x");
  m.y = shoal_placeholder(m.g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 1), "y");
  m.scale = shoal_placeholder(m.g, SHOAL_FLOAT32, SHOAL_SCALAR, "scale");
  shoal_strategy_split(m.g, m.strategy, m.x, in, 2);
  shoal_strategy_split(m.g, m.strategy, m.y, in + 1, 2);
  m.train = shoal_strategy_run(m.g, m.strategy, step, &m.scale, in, 2, out, 1);
  m.loss = shoal_strategy_reduce(m.g, m.strategy, SHOAL_REDUCE_MEAN, out, 1);
  m.kernel = shoal_graph_out(m.g, "a/kernel/Read/ReadVariableOp");
  m.counter = shoal_global_step(m.g).value;
  if (shoal_report(m.g)) fail();
  return m;
}

static void unbuild(struct model *m) {
  shoal_graph_free(m->g);
  shoal_strategy_free(m->strategy);
}

/* What training leaves. */
struct left {
  float kernel[IN * 4], loss;
  int64_t counter;
};

static void keep(struct model *m, shoal_train_session *s, struct left *to) {
  shoal_tensor *t;
  ASSERT_OK(shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS,
                               SHOAL_FETCH(m->kernel, &t, m->counter, &to->counter), NULL));
  memcpy(to->kernel, shoal_tensor_const_data(t), sizeof to->kernel);
  shoal_tensor_unref(t);
}

/* Runs until the session stops, or all batches were used. */
static struct left train(int each, int64_t stop_at, int *runs) {
  struct model m = build();
  struct left left = {0};
  shoal_status error = NULL;
  shoal_tensor *scale;
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &(float){0.5F}, sizeof(float), &scale));
  *runs = 0;
  SHOAL_TRAIN_SESSION(s, m.g, .stop_at_step = stop_at, .no_signals = true, .status = &error, .strategy = m.strategy,
                      .steps_per_execution = each) {
    for (int i = 0; i < STEPS && !shoal_should_stop(s); i += each, ++*runs) {
      shoal_tensor *x = numbers(each * ROWS, IN, i * ROWS), *y = numbers(each * ROWS, 1, i * ROWS);
      assert_true(shoal_run(s, SHOAL_FEED(m.x, x, m.y, y, m.scale, scale), SHOAL_FETCH(m.loss, &left.loss), m.train));
      shoal_tensor_unref(x);
      shoal_tensor_unref(y);
    }
    keep(&m, s, &left);
  }
  ASSERT_OK(error);
  shoal_tensor_unref(scale);
  unbuild(&m);
  return left;
}

static void same(const struct left *a, const struct left *b, int64_t counter) {
  assert_int_equal(a->counter, counter);
  assert_int_equal(b->counter, counter);
  assert_memory_equal(a->kernel, b->kernel, sizeof a->kernel);
  assert_memory_equal(&a->loss, &b->loss, sizeof a->loss);
}

static void the_bits_of_single_steps(void **state) {
  int runs;
  struct left single = train(1, 0, &runs), several = train(EACH, 0, &runs), all;
  same(&single, &several, STEPS);
  assert_int_equal(runs, STEPS / EACH);
  all = train(STEPS, 0, &runs);
  same(&single, &all, STEPS);
}

/* The last run has fewer steps. */
static void ends_at_its_step(void **state) {
  int runs;
  struct left single = train(1, 10, &runs), several = train(EACH, 10, &runs);
  same(&single, &several, 10);
  assert_int_equal(runs, 3);
}

/* ---- input by the counter ---- */

static shoal_status fill(void *arg, int64_t position, shoal_tensor **values) {
  if (position >= *(int *)arg) return shoal_status_new(SHOAL_OUT_OF_RANGE, "no more");
  values[0] = numbers(ROWS, IN, (int)position * ROWS);
  values[1] = numbers(ROWS, 1, (int)position * ROWS);
  return shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &(float){0.5F}, sizeof(float), &values[2]);
}

static struct left train_fed(int each, int batches, bool by_strategy) {
  struct model m = build();
  struct left left = {0};
  shoal_status error = NULL;
  const shoal_out to[] = {m.x, m.y, m.scale};
  shoal_hook hook = by_strategy ? shoal_strategy_input_hook(m.strategy, to, 3, fill, &batches)
                                : shoal_input_hook((shoal_input){m.counter, NULL}, to, 3, fill, &batches);
  SHOAL_TRAIN_SESSION(s, m.g, .hooks = &hook, .n_hooks = 1, .no_signals = true, .status = &error,
                      .strategy = m.strategy, .steps_per_execution = each) {
    while (!shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(m.loss, &left.loss), m.train);
    keep(&m, s, &left);
  }
  ASSERT_OK(error);
  unbuild(&m);
  return left;
}

static void input_by_the_counter(void **state) {
  int runs;
  struct left single = train(1, 10, &runs), fed = train_fed(1, 10, false), several = train_fed(EACH, 10, false);
  same(&single, &fed, 10);
  same(&single, &several, 10);
  several = train_fed(EACH, 10, true);
  same(&single, &several, 10);
}

/* ---- hooks ---- */

struct seen {
  struct model *m;
  int befores, fetch;
  int64_t steps, at[8];
};

static shoal_status before(void *state, shoal_run_context *c) {
  struct seen *s = state;
  shoal_context_limit_steps(c, s->befores == 1 ? 2 : 100);
  s->fetch = shoal_context_fetch(c, s->m->counter);
  s->befores++;
  return NULL;
}

static shoal_status after(void *state, shoal_run_context *c) {
  struct seen *s = state;
  s->steps += shoal_context_steps(c);
  ASSERT_OK(shoal_session_step(shoal_context_session(c), SHOAL_NO_FEEDS,
                               SHOAL_FETCH(s->m->counter, &s->at[s->befores - 1]), NULL));
  return NULL;
}

static void hooks_see_runs(void **state) {
  struct model m = build();
  struct seen seen = {.m = &m};
  shoal_status error = NULL;
  int batches = 100;
  const shoal_out to[] = {m.x, m.y, m.scale};
  shoal_hook hooks[] = {{&seen, .before_run = before, .after_run = after},
                        shoal_input_hook((shoal_input){m.counter, NULL}, to, 3, fill, &batches)};
  SHOAL_TRAIN_SESSION(s, m.g, .hooks = hooks, .n_hooks = 2, .stop_at_step = 9, .no_signals = true, .status = &error,
                      .strategy = m.strategy, .steps_per_execution = EACH)
  while (!shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m.train);
  ASSERT_OK(error);
  assert_int_equal(seen.befores, 3);
  assert_int_equal(seen.steps, 9);
  assert_true(seen.at[0] == 4 && seen.at[1] == 6 && seen.at[2] == 9);
  unbuild(&m);
}

/* ---- mistakes ---- */

static void mistakes(void **state) {
  struct model m = build();
  shoal_status error = NULL;
  shoal_tensor *x = numbers(2 * EACH + 1, IN, 0), *y = numbers(2 * EACH, 1, 0);
  SHOAL_TRAIN_SESSION(s, m.g, .no_signals = true, .status = &error, .strategy = m.strategy, .steps_per_execution = EACH)
  assert_false(shoal_run(s, SHOAL_FEED(m.x, x, m.y, y), SHOAL_NO_FETCHES, m.train));
  ASSERT_FAILS(error, SHOAL_INVALID_ARGUMENT, "x:0 is fed 9 rows, which do not divide into batches for 4 steps");
  shoal_train_session *none = NULL;
  ASSERT_FAILS(
      shoal_train_session_open(
          m.g, SHOAL_OPTIONS(shoal_train_session_options, .no_signals = true, .steps_per_execution = -1), &none),
      SHOAL_INVALID_ARGUMENT, "steps_per_execution is -1");
  shoal_tensor_unref(x);
  shoal_tensor_unref(y);
  unbuild(&m);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_bits_of_single_steps),
      cmocka_unit_test(ends_at_its_step),
      cmocka_unit_test(input_by_the_counter),
      cmocka_unit_test(hooks_see_runs),
      cmocka_unit_test(mistakes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
