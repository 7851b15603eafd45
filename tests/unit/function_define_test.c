/* Functions that are defined from C: calls, captures, control flow, gradients, datasets, and what is refused. */
#undef SHOAL_NO_PLACES
#include <shoal/shoal.h>

#include "unit.h"

static void good(shoal_graph *g) {
  if (shoal_graph_error(g)) fail_msg("%s", shoal_status_message(shoal_graph_error(g)));
}

static float value(shoal_graph *g, shoal_out o) {
  good(g);
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  float v = 0;
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(o, &v), NULL));
  ASSERT_OK(shoal_session_close(s));
  return v;
}

static shoal_out input(shoal_graph *f) { return shoal_function_input(f, SHOAL_FLOAT32, SHOAL_SCALAR, "x"); }

/* x * w */
static shoal_function *times(shoal_graph *g, const char *name, shoal_out w) {
  shoal_graph *f = shoal_function_begin(g, name);
  shoal_function_output(f, shoal_mul(f, input(f), w), "y");
  return shoal_function_end(f);
}

static void calls_capture_and_have_gradients(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 3), w = shoal_constant_float(g, 5), y[2];
  shoal_function *f = times(g, "Scale", w);
  const shoal_out *captures;
  assert_int_equal(shoal_function_captures(f, &captures), 1);
  assert_ptr_equal(captures[0].node, w.node);
  assert_string_equal(shoal_function_name(f), "Scale");
  assert_non_null(shoal_call(g, f, &x, 1, &y[0], 1));
  assert_non_null(shoal_call(g, f, &y[0], 1, &y[1], 1));
  assert_string_equal(shoal_op_type(y[0].node), "PartitionedCall");
  assert_int_equal(shoal_out_shape(y[1], (int64_t[SHOAL_MAX_RANK]){0}), 0);
  assert_float_equal(value(g, y[1]), 75, 0);
  shoal_gradient d[2];
  shoal_gradients(g, &y[1], 1, (shoal_out[]){x, w}, 2, NULL, d); /* x * w^2 */
  assert_float_equal(value(g, d[0].values), 25, 0);
  assert_float_equal(value(g, d[1].values), 30, 0);
  shoal_graph_free(g);
}

/* A function inside another captures what stands outside of both, through both. */
static void functions_nest(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 3), w = shoal_constant_float(g, 5), y;
  shoal_graph *f = shoal_function_begin(g, NULL);
  shoal_out in = input(f), inner = {0};
  shoal_function *scale = times(f, NULL, w);
  shoal_call(f, scale, &in, 1, &inner, 1);
  shoal_function_output(f, shoal_add_v2(f, inner, in), NULL);
  shoal_function_output(f, in, NULL);
  shoal_function *outer = shoal_function_end(f);
  good(g);
  assert_string_not_equal(shoal_function_name(outer), shoal_function_name(scale));
  shoal_out both[2];
  shoal_call(g, outer, &x, 1, both, 2);
  y = shoal_add_v2(g, both[0], both[1]);
  assert_float_equal(value(g, y), 21, 0);
  shoal_gradient d;
  shoal_gradients(g, &y, 1, &w, 1, NULL, &d);
  assert_float_equal(value(g, d.values), 3, 0);
  shoal_graph_free(g);
}

/* Gradients inside of a body, of something captured too. */
static void gradients_inside(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 3), w = shoal_constant_float(g, 5), d[2];
  shoal_function *scale = times(g, "scale", w);
  shoal_graph *f = shoal_function_begin(g, "gradients_of_square");
  shoal_out in = input(f), y = {0};
  shoal_call(f, scale, &in, 1, &y, 1);
  y = shoal_mul(f, y, y);
  shoal_gradient inside[2];
  shoal_gradients(f, &y, 1, (shoal_out[]){in, shoal_function_capture(f, w)}, 2, NULL, inside);
  for (int i = 0; i < 2; i++) shoal_function_output(f, inside[i].values, NULL);
  shoal_call(g, shoal_function_end(f), &x, 1, d, 2); /* (x w)^2 */
  assert_float_equal(value(g, d[0]), 150, 0);
  assert_float_equal(value(g, d[1]), 90, 0);
  shoal_graph_free(g);
}

static void branches(void **state) {
  for (int which = 0; which < 4; which++) {
    bool odd = which % 2;
    shoal_graph *g = shoal_graph_new();
    shoal_out x = shoal_constant_float(g, 3), a = shoal_constant_float(g, 5), b = shoal_constant_float(g, 7), y;
    const shoal_function *both[] = {times(g, "by_a", a), times(g, "by_b", b)};
    if (which < 2) shoal_call_if(g, shoal_constant_bool(g, !which), both[0], both[1], &x, 1, &y, 1);
    else shoal_call_case(g, shoal_constant_int(g, which - 2), both, 2, &x, 1, &y, 1);
    assert_string_equal(shoal_op_type(y.node), which < 2 ? "StatelessIf" : "StatelessCase");
    assert_float_equal(value(g, y), odd ? 21 : 15, 0);
    shoal_gradient d[3];
    shoal_gradients(g, &y, 1, (shoal_out[]){x, a, b}, 3, NULL, d);
    assert_float_equal(value(g, d[0].values), odd ? 7 : 5, 0);
    assert_float_equal(value(g, d[1].values), odd ? 0 : 3, 0);
    assert_float_equal(value(g, d[2].values), odd ? 3 : 0, 0);
    shoal_graph_free(g);
  }
}

/* x *= w while x < limit; both are captured, by one function each. */
static void loops(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 3), w = shoal_constant_float(g, 2), limit = shoal_constant_float(g, 40), y;
  shoal_graph *f = shoal_function_begin(g, "below");
  shoal_function_output(f, shoal_less(f, input(f), limit), "go_on");
  shoal_function *below = shoal_function_end(f);
  shoal_call_while(g, below, times(g, "double", w), &x, 1, &y); /* 3, 6, 12, 24, 48 */
  assert_float_equal(value(g, y), 48, 0);
  shoal_gradient d[2];
  shoal_gradients(g, &y, 1, (shoal_out[]){x, w}, 2, NULL, d); /* x w^4 */
  assert_float_equal(value(g, d[0].values), 16, 0);
  assert_float_equal(value(g, d[1].values), 96, 0);
  shoal_graph_free(g);
}

/* A gradient of its own, which is not the true one; through a second function and in a loop, too. */
static void own_gradients(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_constant_float(g, 3), y = x, z = x;
  shoal_function *scale = times(g, "scale", shoal_constant_float(g, 2));
  shoal_graph *f = shoal_function_begin(g, "scale_grad");
  input(f);
  shoal_out w = input(f), dy = input(f);
  shoal_function_output(f, shoal_mul(f, dy, shoal_constant_float(f, 10)), "dx");
  shoal_function_output(f, shoal_zeros_like(f, w), "dw");
  shoal_function_set_gradient(g, scale, shoal_function_end(f));
  f = shoal_function_begin(g, "twice");
  shoal_out in = input(f);
  shoal_call(f, scale, &in, 1, &in, 1);
  shoal_call(f, scale, &in, 1, &in, 1);
  shoal_function_output(f, in, NULL);
  shoal_call(g, shoal_function_end(f), &x, 1, &y, 1);
  f = shoal_function_begin(g, "small");
  shoal_function_output(f, shoal_less(f, input(f), shoal_constant_float(f, 20)), NULL);
  shoal_call_while(g, shoal_function_end(f), scale, &x, 1, &z); /* three rounds */
  shoal_gradient d[2];
  shoal_gradients(g, &y, 1, &x, 1, NULL, &d[0]);
  shoal_gradients(g, &z, 1, &x, 1, NULL, &d[1]);
  assert_float_equal(value(g, y), 12, 0);
  assert_float_equal(value(g, d[0].values), 100, 0);
  assert_float_equal(value(g, z), 24, 0);
  assert_float_equal(value(g, d[1].values), 1000, 0);
  /* SymbolicGradient asks the library as well. */
  shoal_out one = shoal_constant_float(g, 1);
  const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_FLOAT32};
  shoal_op *n = shoal_symbolic_gradient(g, (shoal_out[]){x, one, one}, 3, types, 2, "scale");
  assert_float_equal(value(g, (shoal_out){n, 0}), 10, 0);
  shoal_graph_free(g);
}

/* Effects happen, though nobody asks for a result of theirs. */
static void effects(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_var v = shoal_variable(g, "v", shoal_init_constant(g, SHOAL_FLOAT32, SHOAL_SCALAR, 1));
  shoal_op *init = shoal_initialize(g);
  shoal_graph *f = shoal_function_begin(g, "add_to_v");
  shoal_out x = input(f);
  shoal_assign_add_variable_op(f, v.handle, x);
  shoal_function_output(f, shoal_neg(f, x), NULL);
  shoal_function *add = shoal_function_end(f);
  shoal_out y, three = shoal_constant_float(g, 3);
  shoal_op *call = shoal_call(g, add, &three, 1, &y, 1);
  good(g);
  assert_string_equal(shoal_op_type(call), "StatefulPartitionedCall");
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  float a = 0, b = 0;
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(y, &a), NULL));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(v.value, &b), NULL));
  assert_float_equal(a, -3, 0);
  assert_float_equal(b, 4, 0);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* What is exported comes in again, gradients of their own and all, and goes out the same. */
static void they_travel(void **state) {
  shoal_graph *g = shoal_graph_new(), *again = shoal_graph_new();
  shoal_graph *f = shoal_function_begin(g, "f");
  shoal_function_set_bool(f, "_noinline", true);
  shoal_function_output(f, shoal_neg(f, input(f)), NULL);
  shoal_function *neg = shoal_function_end(f);
  f = shoal_function_begin(g, "df");
  input(f);
  shoal_function_output(f, input(f), NULL);
  shoal_function_set_gradient(g, neg, shoal_function_end(f));
  shoal_out x = shoal_constant_float(g, 3), y;
  shoal_call(g, neg, &x, 1, &y, 1);
  good(g);
  shoal_bytes a, b;
  ASSERT_OK(shoal_graph_export(g, &a));
  ASSERT_OK(shoal_graph_import(again, a.data, a.size, NULL));
  ASSERT_OK(shoal_graph_export(again, &b));
  assert_int_equal(a.size, b.size);
  assert_memory_equal(a.data, b.data, a.size);
  shoal_gradient d;
  shoal_out y2 = shoal_graph_out(again, shoal_op_name(y.node)), x2 = shoal_graph_out(again, shoal_op_name(x.node));
  shoal_gradients(again, &y2, 1, &x2, 1, NULL, &d);
  assert_float_equal(value(again, d.values), 1, 0);
  shoal_bytes_free(&a);
  shoal_bytes_free(&b);
  shoal_graph_free(g);
  shoal_graph_free(again);
}

/* ---- datasets ---- */

static int64_t next(shoal_session *s, shoal_out o) {
  int64_t v = 0;
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(o, &v), NULL));
  return v;
}

static void a_dataset_is_mapped(void **state) {
  shoal_graph *g = shoal_graph_new();
  const shoal_dtype type = SHOAL_INT64;
  const shoal_dims shape = SHOAL_SCALAR;
  shoal_out offset = shoal_constant_int64(g, 100);
  shoal_graph *f = shoal_function_begin(g, "square");
  shoal_out x = shoal_function_input(f, type, shape, "x");
  shoal_function_output(f, shoal_add_v2(f, shoal_mul(f, x, x), offset), "y");
  shoal_function *square = shoal_function_end(f);
  const shoal_out *captures;
  const shoal_dtype *types;
  const shoal_dims *shapes;
  int n = shoal_function_captures(square, &captures), m = shoal_function_outputs(square, &types, &shapes);
  shoal_out range = shoal_range_dataset(g, shoal_constant_int64(g, 2), shoal_constant_int64(g, 5),
                                        shoal_constant_int64(g, 1), &type, 1, &shape, 1);
  shoal_out mapped = shoal_map_dataset(g, range, captures, n, shoal_function_name(square), types, m, shapes, m);
  shoal_out it = shoal_iterator_v2(g, "", "", types, m, shapes, m);
  shoal_op *begin = shoal_make_iterator(g, mapped, it);
  shoal_out element = {shoal_iterator_get_next(g, it, types, m, shapes, m), 0};
  good(g);
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, begin));
  for (int64_t i = 2; i < 5; i++) assert_int_equal(next(s, element), i * i + 100);
  int64_t v;
  ASSERT_FAILS(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(element, &v), NULL), SHOAL_OUT_OF_RANGE, "");
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* A function that makes a dataset of each element, and one that adds all of them up: 0 + 0 1 + 0 1 2. */
static void datasets_are_joined_and_reduced(void **state) {
  shoal_graph *g = shoal_graph_new();
  const shoal_dtype type = SHOAL_INT64;
  const shoal_dims shape = SHOAL_SCALAR;
  shoal_graph *f = shoal_function_begin(g, "up_to");
  shoal_out x = shoal_function_input(f, type, shape, "x");
  shoal_out zero = shoal_constant_int64(f, 0), one = shoal_constant_int64(f, 1);
  shoal_function_output(f, shoal_range_dataset(f, zero, x, one, &type, 1, &shape, 1), "numbers");
  shoal_function *up_to = shoal_function_end(f);
  f = shoal_function_begin(g, "add");
  shoal_out sum = shoal_function_input(f, type, shape, "sum");
  shoal_function_output(f, shoal_add_v2(f, sum, shoal_function_input(f, type, shape, "x")), "sum");
  shoal_function *add = shoal_function_end(f);
  zero = shoal_constant_int64(g, 0), one = shoal_constant_int64(g, 1);
  shoal_out range = shoal_range_dataset(g, one, shoal_constant_int64(g, 4), one, &type, 1, &shape, 1);
  shoal_out all = shoal_flat_map_dataset(g, range, NULL, 0, shoal_function_name(up_to), &type, 1, &shape, 1);
  shoal_out result = {shoal_reduce_dataset(g, all, &zero, 1, NULL, 0, shoal_function_name(add), &type, 1, &shape, 1),
                      0};
  good(g);
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  assert_int_equal(next(s, result), 4);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* ---- mistakes ---- */

static void assert_mistake(shoal_graph *g, int line, const char *text) {
  shoal_status s = shoal_graph_error(g);
  assert_non_null(s);
  if (!strstr(shoal_status_message(s), text)) fail_msg("\"%s\", not \"%s\"", shoal_status_message(s), text);
  char where[512];
  snprintf(where, sizeof where, "%s:%d", __FILE__, line);
  assert_string_equal(shoal_status_where(s), where);
  shoal_graph_free(g);
}

/* The statement that follows, at one line, is a mistake of g's. */
#define MISTAKE(text, ...)           \
  do {                               \
    int line = __LINE__;             \
    __VA_ARGS__;                     \
    assert_mistake(g, line, (text)); \
  } while (0)

struct scene {
  shoal_graph *g, *f;
  shoal_out x, y[2];
  shoal_function *scale;
};

static struct scene scene(void) {
  struct scene s = {.g = shoal_graph_new()};
  s.x = shoal_constant_float(s.g, 3);
  s.scale = times(s.g, "scale", shoal_constant_float(s.g, 2));
  return s;
}

static void mistakes_of_calls(void **state) {
  struct scene s = scene(), other = scene();
  shoal_graph *g = s.g;
  MISTAKE("has 1 input, and is given 2", shoal_call(g, s.scale, (shoal_out[]){s.x, s.x}, 2, s.y, 1));
  s = scene(), g = s.g;
  MISTAKE("has 1 output, and 2 are asked for", shoal_call(g, s.scale, &s.x, 1, s.y, 2));
  assert_null(s.y[0].node);
  s = scene(), g = s.g;
  shoal_out i = shoal_constant_int(g, 1);
  MISTAKE("input 0 ('x') of function 'scale' is float32, and is given int32", shoal_call(g, s.scale, &i, 1, s.y, 1));
  s = scene(), g = s.g;
  shoal_out v = shoal_constant_floats(g, SHOAL_SHAPE(2), (float[]){1, 2});
  MISTAKE("has shape [], and is given [2]", shoal_call(g, s.scale, &v, 1, s.y, 1));
  s = scene(), g = s.g;
  MISTAKE("'scale' is of another graph", shoal_call(g, other.scale, &s.x, 1, s.y, 1));
  s = scene(), g = s.g;
  MISTAKE("of another graph", shoal_call(g, s.scale, &other.x, 1, s.y, 1));
  s = scene(), g = s.g;
  MISTAKE("no function is given", shoal_call(g, NULL, &s.x, 1, s.y, 1));
  s = scene(), g = s.g;
  MISTAKE("pred is float32, not bool", shoal_call_if(g, s.x, s.scale, s.scale, &s.x, 1, s.y, 1));
  s = scene(), g = s.g;
  MISTAKE("condition is float32, not bool", shoal_call_while(g, s.scale, s.scale, &s.x, 1, s.y));
  s = scene(), g = s.g;
  MISTAKE("the gradient of 'scale' has 3 inputs", shoal_function_set_gradient(g, s.scale, times(g, "no", s.x)));
  shoal_graph_free(other.g);
}

static void mistakes_of_bodies(void **state) {
  struct scene s = scene(), other = scene();
  shoal_graph *g = s.g, *f;
  MISTAKE("there is a function 'scale' already", shoal_function_begin(g, "scale"));
  s = scene(), g = s.g;
  MISTAKE("'MatMul', which is an op", shoal_function_begin(g, "MatMul"));
  s = scene(), g = s.g;
  MISTAKE("no function's body", shoal_function_input(g, SHOAL_FLOAT32, SHOAL_SCALAR, "x"));
  s = scene(), g = s.g;
  f = shoal_function_begin(g, "f");
  MISTAKE("dimension -2", shoal_function_input(f, SHOAL_FLOAT32, SHOAL_SHAPE(-2), "x"), shoal_function_end(f));
  s = scene(), g = s.g;
  f = shoal_function_begin(g, "f");
  shoal_variable(f, "v", shoal_init_zeros(f, SHOAL_FLOAT32, SHOAL_SCALAR));
  MISTAKE("variable 'v' is made inside function 'f'", shoal_function_end(f));
  s = scene(), g = s.g;
  f = shoal_function_begin(g, "f");
  shoal_placeholder(f, SHOAL_FLOAT32, SHOAL_SCALAR, "p");
  MISTAKE("use shoal_function_input", shoal_function_end(f));
  s = scene(), g = s.g;
  f = shoal_function_begin(g, "f");
  shoal_out x = input(f);
  const shoal_dtype type = SHOAL_FLOAT32;
  shoal_partitioned_call(f, &x, 1, &type, 1, "f");
  MISTAKE("function 'f' calls itself", shoal_function_end(f));
  s = scene(), g = s.g;
  f = shoal_function_begin(g, "f");
  shoal_function_output(f, s.x, NULL);
  MISTAKE("output 1 of function 'f' is Const:0", shoal_function_output(f, other.x, NULL), shoal_function_end(f));
  s = scene(), g = s.g;
  f = shoal_function_begin(g, "f");
  x = input(f);
  shoal_function_output(f, x, NULL);
  shoal_function_end(f);
  MISTAKE("of another graph", shoal_neg(g, x)); /* what is inside of a function stays there */
  s = scene(), g = s.g;
  f = shoal_function_begin(g, "f");
  shoal_function_end(f);
  MISTAKE("has ended", shoal_function_output(f, s.x, NULL));
  s = scene(), g = s.g;
  f = shoal_function_begin(g, "f");
  int line = __LINE__ + 1;
  shoal_mat_mul(f, input(f), s.x); /* told where it was made, once the function has ended */
  assert_null(shoal_graph_error(g));
  shoal_function_end(f);
  assert_mistake(g, line, "MatMul");
  shoal_graph_free(other.g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_capture_and_have_gradients),
      cmocka_unit_test(functions_nest),
      cmocka_unit_test(gradients_inside),
      cmocka_unit_test(branches),
      cmocka_unit_test(loops),
      cmocka_unit_test(own_gradients),
      cmocka_unit_test(effects),
      cmocka_unit_test(they_travel),
      cmocka_unit_test(a_dataset_is_mapped),
      cmocka_unit_test(datasets_are_joined_and_reduced),
      cmocka_unit_test(mistakes_of_calls),
      cmocka_unit_test(mistakes_of_bodies),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
