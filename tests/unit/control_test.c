/* Loops and conditionals built from C functions: values, gradients, what is brought in, what is refused. */
#include "unit.h"

#include "shoal/shoal.h"

/* Runs the graph for one float. */
static float value(shoal_graph *g, shoal_out o) {
  if (shoal_graph_error(g)) fail_msg("%s", shoal_status_message(shoal_graph_error(g)));
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  float v = 0;
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(o, &v), NULL));
  ASSERT_OK(shoal_session_close(s));
  return v;
}

/* ---- loops: vars are (i, x); x becomes x * w, `rounds` times ---- */

struct power {
  shoal_out w;
  int rounds;
};

static shoal_out below(shoal_graph *g, void *arg, const shoal_out *vars) {
  return shoal_less(g, vars[0], shoal_constant_int(g, ((struct power *)arg)->rounds));
}

static void multiply(shoal_graph *g, void *arg, const shoal_out *vars, shoal_out *next) {
  next[0] = shoal_add_v2(g, vars[0], shoal_constant_int(g, 1));
  next[1] = shoal_mul(g, vars[1], ((struct power *)arg)->w);
}

static shoal_out power(shoal_graph *g, shoal_out x, struct power *p) {
  shoal_out results[2];
  shoal_while_loop(g, below, multiply, p, (shoal_out[]){shoal_constant_int(g, 0), x}, 2, NULL, results);
  return results[1];
}

static void a_loop_runs_and_has_gradients(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 3), w = shoal_constant_float(g, 2);
  shoal_out y = power(g, x, &(struct power){w, 4}); /* x * w^4 */
  shoal_gradient d[2];
  shoal_gradients(g, &y, 1, (shoal_out[]){x, w}, 2, NULL, d);
  assert_float_equal(value(g, y), 48, 1e-5);
  assert_float_equal(value(g, d[0].values), 16, 1e-5);
  assert_float_equal(value(g, d[1].values), 3 * 4 * 8, 1e-4);
  assert_string_equal(shoal_op_name(shoal_graph_op(g, "while/Exit")), "while/Exit");
  shoal_graph_free(g);
}

static void no_round_is_one_too(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out y = power(g, shoal_constant_float(g, 3), &(struct power){shoal_constant_float(g, 2), 0});
  assert_float_equal(value(g, y), 3, 0);
  shoal_graph_free(g);
}

static void square_twice(shoal_graph *g, void *arg, const shoal_out *vars, shoal_out *next) {
  struct power inner = {((struct power *)arg)->w, 2};
  next[0] = shoal_add_v2(g, vars[0], shoal_constant_int(g, 1));
  next[1] = power(g, vars[1], &inner);
}

static void loops_nest(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out w = shoal_constant_float(g, 2), results[2];
  struct power outer = {w, 3};
  shoal_while_loop(g, below, square_twice, &outer, (shoal_out[]){shoal_constant_int(g, 0), shoal_constant_float(g, 1)},
                   2, NULL, results);
  shoal_gradient d;
  shoal_gradients(g, &results[1], 1, &w, 1, NULL, &d); /* w^6 */
  assert_float_equal(value(g, results[1]), 64, 1e-4);
  assert_float_equal(value(g, d.values), 6 * 32, 1e-3);
  shoal_graph_free(g);
}

/* A vector that becomes longer in every round needs its shape said. */
static void lengthen(shoal_graph *g, void *arg, const shoal_out *vars, shoal_out *next) {
  next[0] = shoal_add_v2(g, vars[0], shoal_constant_int(g, 1));
  next[1] = shoal_concat_v2(g, (shoal_out[]){vars[1], vars[1]}, 2, shoal_constant_int(g, 0));
}

static void shapes_are_invariants(void **state) {
  for (int said = 0; said < 2; said++) {
    shoal_graph *g = shoal_graph_new();
    shoal_out results[2], one = shoal_constant_floats(g, SHOAL_SHAPE(1), (float[]){1});
    shoal_dims shapes[] = {SHOAL_SCALAR, SHOAL_SHAPE(-1)};
    shoal_while_loop(g, below, lengthen, &(struct power){.rounds = 3}, (shoal_out[]){shoal_constant_int(g, 0), one}, 2,
                     &(shoal_loop_options){.shapes = said ? shapes : NULL}, results);
    if (said) {
      assert_float_equal(value(g, shoal_reduce_sum(g, results[1])), 8, 0);
    } else {
      assert_non_null(strstr(shoal_status_message(shoal_graph_error(g)), "is not an invariant for the loop"));
      assert_null(results[0].node);
    }
    shoal_graph_free(g);
  }
}

static void make_variable(shoal_graph *g, void *arg, const shoal_out *vars, shoal_out *next) {
  multiply(g, &(struct power){shoal_constant_float(g, 1), 0}, vars, next);
  shoal_variable(g, "inner", shoal_constant_float(g, 1));
}

static void forget(shoal_graph *g, void *arg, const shoal_out *vars, shoal_out *next) { next[0] = vars[0]; }

static void mistakes_are_named(void **state) {
  static const struct {
    shoal_while_body *body;
    const char *says;
  } cases[] = {{make_variable, "variable 'while/inner' is made inside a loop"},
               {forget, "result 1 of the loop's body was not set"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    shoal_graph *g = shoal_graph_new();
    shoal_out results[2];
    shoal_while_loop(g, below, cases[i].body, &(struct power){.rounds = 1},
                     (shoal_out[]){shoal_constant_int(g, 0), shoal_constant_float(g, 1)}, 2, NULL, results);
    assert_non_null(shoal_graph_error(g));
    if (!strstr(shoal_status_message(shoal_graph_error(g)), cases[i].says))
      fail_msg("%s", shoal_status_message(shoal_graph_error(g)));
    shoal_graph_free(g);
  }
}

/* ---- variables, control edges ---- */

static void add_to_variable(shoal_graph *g, void *arg, const shoal_out *vars, shoal_out *next) {
  shoal_var *v = arg;
  shoal_op *add = shoal_assign_add_variable_op(g, v->handle, shoal_constant_float(g, 2));
  shoal_push_control(g, &add, 1);
  next[0] = shoal_add_v2(g, vars[0], shoal_constant_int(g, 1));
  shoal_pop_control(g);
}

static shoal_out five(shoal_graph *g, void *arg, const shoal_out *vars) {
  return shoal_less(g, vars[0], shoal_constant_int(g, 5));
}

/* Everything made under a control scope runs after it, the loop's first round too. */
static void effects_happen_once_a_round(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_var v = shoal_variable(g, "v", shoal_constant_float(g, 1));
  shoal_op *ten = shoal_variable_assign(g, v, shoal_constant_float(g, 10));
  shoal_push_control(g, &ten, 1);
  shoal_out i, zero = shoal_constant_int(g, 0);
  shoal_while_loop(g, five, add_to_variable, &v, &zero, 1, NULL, &i);
  shoal_pop_control(g);
  shoal_op *init = shoal_initialize(g);
  assert_null(shoal_graph_error(g));
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  int32_t rounds;
  float sum;
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(i, &rounds), NULL));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(v.value, &sum), NULL));
  assert_int_equal(rounds, 5);
  assert_float_equal(sum, 20, 0);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* ---- conditionals ---- */

static void twice(shoal_graph *g, void *arg, shoal_out *results) {
  results[0] = shoal_mul(g, *(shoal_out *)arg, shoal_constant_float(g, 2));
  results[1] = shoal_constant_int(g, 1);
}

static void as_it_is(shoal_graph *g, void *arg, shoal_out *results) {
  results[0] = *(shoal_out *)arg;
  results[1] = shoal_constant_int(g, 2);
}

static void wrong_type(shoal_graph *g, void *arg, shoal_out *results) {
  results[0] = results[1] = shoal_constant_int(g, 2);
}

static void a_conditional_takes_one_branch(void **state) {
  for (int way = 0; way < 2; way++) {
    shoal_graph *g = shoal_graph_new();
    shoal_out x = shoal_constant_float(g, 5), results[2];
    shoal_cond(g, shoal_constant_bool(g, way), twice, as_it_is, &x, 2, results);
    shoal_gradient d;
    shoal_gradients(g, &results[0], 1, &x, 1, NULL, &d);
    assert_float_equal(value(g, results[0]), way ? 10 : 5, 0);
    assert_float_equal(value(g, results[1]), way ? 1 : 2, 0);
    assert_float_equal(value(g, d.values), way ? 2 : 1, 0);
    shoal_graph_free(g);
  }
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 5), results[2];
  shoal_cond(g, shoal_constant_bool(g, true), twice, wrong_type, &x, 2, results);
  assert_non_null(strstr(shoal_status_message(shoal_graph_error(g)),
                         "result 0 of the conditional is float32 where pred is true, int32 where it is false"));
  shoal_graph_free(g);
}

/* A conditional in a loop, with its gradient: x doubles in even rounds. */
static void maybe_twice(shoal_graph *g, void *arg, const shoal_out *vars, shoal_out *next) {
  shoal_out even = shoal_equal(g, shoal_mod(g, vars[0], shoal_constant_int(g, 2)), shoal_constant_int(g, 0)),
            results[2];
  shoal_out x = vars[1];
  shoal_cond(g, even, twice, as_it_is, &x, 2, results);
  next[0] = shoal_add_v2(g, vars[0], shoal_constant_int(g, 1));
  next[1] = results[0];
}

static void conditionals_in_loops(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 3), results[2];
  shoal_while_loop(g, below, maybe_twice, &(struct power){.rounds = 5}, (shoal_out[]){shoal_constant_int(g, 0), x}, 2,
                   NULL, results);
  shoal_gradient d;
  shoal_gradients(g, &results[1], 1, &x, 1, NULL, &d);
  assert_float_equal(value(g, results[1]), 24, 0);
  assert_float_equal(value(g, d.values), 8, 0);
  shoal_graph_free(g);
}

RUN_TESTS(cmocka_unit_test(a_loop_runs_and_has_gradients), cmocka_unit_test(no_round_is_one_too),
          cmocka_unit_test(loops_nest), cmocka_unit_test(shapes_are_invariants), cmocka_unit_test(mistakes_are_named),
          cmocka_unit_test(effects_happen_once_a_round), cmocka_unit_test(a_conditional_takes_one_branch),
          cmocka_unit_test(conditionals_in_loops))
