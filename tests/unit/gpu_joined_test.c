/* Updates of all variables in one pass on a GPU (graph/rewrite_join_updates.c) beside the CPU's, one by one: clipped by
 * their common norm, with weights that decay and some that do not, gradients of half precision. Without a card on the
 * soft device. On the CPU itself those that are clipped are one pass too, with the bits of the single ops. */
#include "gpu_case.h"

enum { MANY = 80, STEPS = 4 };

/* The soft device holds all of their locks at once, and ThreadSanitizer's finder of deadlocks ends where a thread holds
 * more than 64. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "detect_deadlocks=0"; }

/* Odd sizes, empty and one among them, and one of several pieces. */
static int64_t size_of(int i) { return i == 3 ? 0 : i == 5 ? 70001 : i % 7 == 0 ? 1 : 4 * i + i % 5; }

struct model {
  shoal_graph *g;
  shoal_session *s;
  shoal_var vars[MANY];
  shoal_out norm;
  shoal_op *train;
};

/* Each variable is drawn to a vector of its own, every other one by way of bfloat16. */
static shoal_out loss_of(shoal_graph *g, shoal_var v, int i) {
  shoal_out x = i % 2 ? shoal_cast(g, shoal_cast(g, v.value, SHOAL_BFLOAT16), SHOAL_FLOAT32) : v.value;
  shoal_out off = shoal_sub(g, x, shoal_constant_float(g, (float)(i % 11) / 11));
  return shoal_reduce_sum(g, shoal_square(g, off));
}

static void model_new(struct model *m, const char *device, shoal_optimizer by, bool clipped, const char *off) {
  static bool no_decay[MANY];
  shoal_graph *g = m->g = shoal_graph_new();
  shoal_gradient grads[MANY];
  shoal_out losses[MANY];
  shoal_push_device(g, device);
  for (int i = 0; i < MANY; i++) {
    char name[16];
    snprintf(name, sizeof name, "v%d", i);
    shoal_out first = shoal_init_constant(g, SHOAL_FLOAT32, SHOAL_SHAPE(size_of(i)), (double)(i % 3) - 0.7);
    m->vars[i] = shoal_variable(g, name, first);
    losses[i] = loss_of(g, m->vars[i], i);
    no_decay[i] = i % 3 == 0;
  }
  shoal_out loss = shoal_add_n(g, losses, MANY);
  shoal_var vars[MANY];
  int n = shoal_compute_gradients(g, loss, vars, grads, MANY);
  m->norm = clipped ? shoal_clip_by_global_norm(g, grads, n, 0.5) : loss;
  m->train = shoal_apply_gradients_with(g, by, vars, grads, n, shoal_global_step(g),
                                        SHOAL_OPTIONS(shoal_apply_options, .no_decay = no_decay));
  shoal_op *init = shoal_initialize(g);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(
      g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true, .rewrites_off = off), &m->s));
  ASSERT_OK(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
}

static void model_free(struct model *m) {
  ASSERT_OK(shoal_session_close(m->s));
  shoal_graph_free(m->g);
}

static void same_values(struct model *a, struct model *b, float within) {
  for (int i = 0; i < MANY; i++) {
    shoal_tensor *x, *y;
    ASSERT_OK(shoal_session_step(a->s, SHOAL_NO_FEEDS, SHOAL_FETCH(a->vars[i].value, &x), NULL));
    ASSERT_OK(shoal_session_step(b->s, SHOAL_NO_FEEDS, SHOAL_FETCH(b->vars[i].value, &y), NULL));
    const float *p = shoal_tensor_const_data(x), *q = shoal_tensor_const_data(y);
    for (int64_t k = 0; k < size_of(i); k++)
      if (fabsf(p[k] - q[k]) > within * (1 + fabsf(p[k])))
        fail_msg("variable %d: element %d is %g, not %g", i, (int)k, (double)q[k], (double)p[k]);
    shoal_tensor_unref(x);
    shoal_tensor_unref(y);
  }
}

static int count(const shoal_bytes *in, const char *text) {
  int n = 0;
  const char *at = in->data, *end = at + in->size;
  for (; (at = memmem(at, (size_t)(end - at), text, strlen(text))); at++) n++;
  return n;
}

static bool has(const shoal_bytes *in, const char *text) { return count(in, text) > 0; }

/* What the step consists of. */
static void is_joined(struct model *m, const char *op, int norms, int others) {
  shoal_bytes trace = {0};
  shoal_run_options o = {.trace_level = 3, .output_partition_graphs = true};
  const char *train = shoal_op_name(m->train);
  ASSERT_OK(shoal_session_run(m->s, &o, NULL, NULL, 0, NULL, NULL, 0, &train, 1, &trace));
  char told[64];
  snprintf(told, sizeof told, "= %s(", op);
  assert_int_equal(count(&trace, "= _JoinedUpdates("), 1); /* those that decay, and wait for it, with the others */
  assert_int_equal(count(&trace, "= _L2Losses("), norms);
  assert_false(has(&trace, told));
  assert_int_equal(count(&trace, "= L2Loss("), others);
  assert_false(has(&trace, "= AssignSubVariableOp("));
  shoal_bytes_free(&trace);
}

static void try_one(shoal_optimizer by, const char *op, bool clipped) {
  struct model cpu, gpu;
  model_new(&cpu, devices[0], by, clipped, "all");
  model_new(&gpu, devices[1], by, clipped, NULL);
  for (int i = 0; i < STEPS; i++) {
    float want, have;
    ASSERT_OK(shoal_session_step(cpu.s, SHOAL_NO_FEEDS, SHOAL_FETCH(cpu.norm, &want), cpu.train));
    ASSERT_OK(shoal_session_step(gpu.s, SHOAL_NO_FEEDS, SHOAL_FETCH(gpu.norm, &have), gpu.train));
    assert_float_equal(want, have, 1e-4f * want);
  }
  same_values(&cpu, &gpu, 2e-5f);
  is_joined(&gpu, op, clipped, 0);
  model_free(&cpu);
  model_free(&gpu);
}

static void bits_on_the_cpu(shoal_optimizer by, const char *op) {
  struct model single, joined;
  model_new(&single, devices[0], by, true, "join_updates");
  model_new(&joined, devices[0], by, true, NULL);
  for (int i = 0; i < STEPS; i++) {
    float want, have;
    ASSERT_OK(shoal_session_step(single.s, SHOAL_NO_FEEDS, SHOAL_FETCH(single.norm, &want), single.train));
    ASSERT_OK(shoal_session_step(joined.s, SHOAL_NO_FEEDS, SHOAL_FETCH(joined.norm, &have), joined.train));
    assert_memory_equal(&want, &have, sizeof want);
  }
  same_values(&single, &joined, 0);
  is_joined(&joined, op, MANY / 2, MANY / 2); /* norms of half precision, and of others */
  model_free(&single);
  model_free(&joined);
}

static void same_bits_on_the_cpu(void **state) {
  bits_on_the_cpu(shoal_adamw(0.01, 0.1), "ResourceApplyAdam");
  bits_on_the_cpu(shoal_momentum(0.01, 0.9), "ResourceApplyMomentum");
  bits_on_the_cpu(shoal_sgd(0.01), "ResourceApplyGradientDescent");
}

/* Nothing scales them: each may begin while gradients of others are still computed. */
static void unclipped_on_the_cpu(void **state) {
  struct model m;
  model_new(&m, devices[0], shoal_adam(0.01), false, NULL);
  shoal_bytes trace = {0};
  shoal_run_options o = {.trace_level = 3, .output_partition_graphs = true};
  const char *train = shoal_op_name(m.train);
  ASSERT_OK(shoal_session_run(m.s, &o, NULL, NULL, 0, NULL, NULL, 0, &train, 1, &trace));
  assert_false(has(&trace, "= _JoinedUpdates("));
  shoal_bytes_free(&trace);
  model_free(&m);
}

static void adam(void **state) {
  try_one(shoal_adamw(0.01, 0.1), "ResourceApplyAdam", true);
  try_one(shoal_adam(0.01), "ResourceApplyAdam", false);
}

static void momentum(void **state) { try_one(shoal_momentum(0.01, 0.9), "ResourceApplyMomentum", true); }

static void descent(void **state) { try_one(shoal_sgd(0.01), "ResourceApplyGradientDescent", true); }

/* A variable that something else changes in the same step shrinks where it did before. */
static void another_change_keeps_the_decay_apart(void **state) {
  shoal_tensor *values[2];
  for (int d = 0; d < 2; d++) {
    shoal_graph *g = shoal_graph_new();
    shoal_session *s;
    shoal_var vars[2];
    shoal_gradient grads[2];
    shoal_push_device(g, devices[d]);
    shoal_var a = shoal_variable(g, "a", shoal_constant_float(g, 3));
    shoal_var b = shoal_variable(g, "b", shoal_constant_float(g, 5));
    shoal_out loss = shoal_mul(g, a.value, b.value);
    int n = shoal_compute_gradients(g, loss, vars, grads, 2);
    shoal_op *train = shoal_apply_gradients(g, shoal_adamw(0.1, 0.5), vars, grads, n, shoal_global_step(g));
    shoal_push_control(g, &train, 1);
    shoal_op *more = shoal_assign_add_variable_op(g, a.handle, shoal_constant_float(g, 1));
    shoal_pop_control(g);
    shoal_op *init = shoal_initialize(g);
    shoal_pop_device(g);
    ASSERT_OK(shoal_graph_error(g));
    ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true), &s));
    ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
    for (int i = 0; i < 3; i++) ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, more));
    ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(a.value, &values[d]), NULL));
    ASSERT_OK(shoal_session_close(s));
    shoal_graph_free(g);
  }
  assert_float_equal(*(const float *)shoal_tensor_const_data(values[0]),
                     *(const float *)shoal_tensor_const_data(values[1]), 1e-5);
  for (int d = 0; d < 2; d++) shoal_tensor_unref(values[d]);
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(adam),
                                     cmocka_unit_test(momentum),
                                     cmocka_unit_test(descent),
                                     cmocka_unit_test(another_change_keeps_the_decay_apart),
                                     cmocka_unit_test(same_bits_on_the_cpu),
                                     cmocka_unit_test(unclipped_on_the_cpu)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
