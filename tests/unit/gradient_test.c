/* Gradients on small graphs, run in a local session; the larger comparison with TensorFlow is tests/interop. */
#include "unit.h"

#include <math.h>
#include <shoal/shoal.h>

#include "graph/gradient.h"
#include "runtime/kernel.h"

static shoal_out number(struct shoal_graph *g, float v) { return build_const_float(g, SHOAL_FLOAT32, v); }

static shoal_out vector(struct shoal_graph *g, const float *v, int n) {
  struct tensor t;
  ASSERT_OK(tensor_new_dims(&t, SHOAL_FLOAT32, 1, (const int64_t[]){n}));
  memcpy(t.data, v, (size_t)n * sizeof *v);
  shoal_out o = build_const(g, &t, NULL);
  tensor_release(&t);
  return o;
}

/* Runs the graph for one tensor. */
static shoal_tensor *value(struct shoal_graph *g, shoal_out o) {
  assert_non_null(o.node);
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, &(shoal_session_options){0}, &s));
  char name[256];
  snprintf(name, sizeof name, "%s:%d", o.node->name, o.index);
  shoal_tensor *t;
  ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, (const char *const[]){name}, &t, 1, NULL, 0, NULL));
  ASSERT_OK(shoal_session_close(s));
  return t;
}

static void assert_values(struct shoal_graph *g, shoal_out o, const float *want, int n) {
  shoal_tensor *t = value(g, o);
  assert_int_equal(shoal_tensor_elements(t), n);
  for (int i = 0; i < n; i++) assert_float_equal(((const float *)shoal_tensor_const_data(t))[i], want[i], 1e-5);
  shoal_tensor_unref(t);
}

static void paths_are_added_up(void **state) {
  struct shoal_graph *g = graph_new();
  shoal_out x = number(g, 3), y = build_op2(g, "AddV2", build_op2(g, "Mul", x, x), x);
  struct grad dx;
  ASSERT_OK(graph_gradients(g, &y, 1, NULL, &x, 1, NULL, 0, false, &dx));
  assert_values(g, dx.values, (float[]){7}, 1);
  assert_true(str_starts(dx.values.node->name, "gradients/"));
  graph_free(g);
}

static void what_does_not_depend_has_no_gradient(void **state) {
  struct shoal_graph *g = graph_new();
  shoal_out x[2] = {number(g, 3), number(g, 4)}, y = build_op2(g, "Mul", x[0], x[0]);
  struct grad dx[2];
  ASSERT_OK(graph_gradients(g, &y, 1, NULL, x, 2, NULL, 0, false, dx));
  assert_false(grad_none(dx[0]));
  assert_true(grad_none(dx[1]));
  shoal_out cut = build_op2(g, "Mul", build_op1(g, "StopGradient", x[0]), x[1]);
  ASSERT_OK(graph_gradients(g, &cut, 1, NULL, x, 2, NULL, 0, false, dx));
  assert_true(grad_none(dx[0]));
  assert_values(g, dx[1].values, (float[]){3}, 1);
  graph_free(g);
}

static void stops_and_weights(void **state) {
  struct shoal_graph *g = graph_new();
  shoal_out x = number(g, 2), mid = build_op2(g, "Mul", x, x), y = build_op2(g, "Mul", mid, x);
  struct grad dx, weight = grad_dense(number(g, 10));
  ASSERT_OK(graph_gradients(g, &y, 1, &weight, &x, 1, &mid, 1, false, &dx));
  assert_values(g, dx.values, (float[]){40}, 1); /* 10 * mid, mid itself taken as constant */
  ASSERT_OK(graph_gradients(g, &x, 1, NULL, &x, 1, NULL, 0, false, &dx));
  assert_values(g, dx.values, (float[]){1}, 1);
  graph_free(g);
}

static void broadcasting_is_undone(void **state) {
  struct shoal_graph *g = graph_new();
  shoal_out x = vector(g, (float[]){1, 2, 3}, 3), b = number(g, 5), y = build_op2(g, "Mul", x, b);
  struct grad dx;
  ASSERT_OK(graph_gradients(g, &y, 1, NULL, &b, 1, NULL, 0, false, &dx));
  assert_values(g, dx.values, (float[]){6}, 1);
  graph_free(g);
}

static void slices_stay_slices(void **state) {
  struct shoal_graph *g = graph_new();
  shoal_out x = vector(g, (float[]){1, 2, 3}, 3), axis = build_const_int(g, SHOAL_INT32, 0);
  shoal_out one = build_op3(g, "GatherV2", x, build_const_ints(g, SHOAL_INT32, (int64_t[]){0, 2}, 2), axis);
  shoal_out two = build_op3(g, "GatherV2", x, build_const_ints(g, SHOAL_INT64, (int64_t[]){2}, 1), axis);
  shoal_out y[2] = {build_op2(g, "Mul", one, one), two};
  struct grad dx;
  ASSERT_OK(graph_gradients(g, y, 2, NULL, &x, 1, NULL, 0, false, &dx));
  assert_true(grad_sparse(dx));
  assert_values(g, grad_densify(g, dx), (float[]){2, 0, 7}, 3);
  /* Beside a dense gradient the sum is dense. */
  shoal_out z[2] = {two, build_op2(g, "Mul", x, x)};
  ASSERT_OK(graph_gradients(g, z, 2, NULL, &x, 1, NULL, 0, false, &dx));
  assert_false(grad_sparse(dx));
  assert_values(g, dx.values, (float[]){2, 4, 7}, 3);
  graph_free(g);
}

static void colocation_follows_the_forward_node(void **state) {
  struct shoal_graph *g = graph_new();
  shoal_out x = number(g, 3), y = build_op2(g, "Mul", x, x);
  struct grad dx;
  ASSERT_OK(graph_gradients(g, &y, 1, NULL, &x, 1, NULL, 0, true, &dx));
  bool found = false;
  for (size_t i = 0; i < g->nodes.n; i++) {
    const struct attr *c = node_attr(g->nodes.at[i], "_class");
    found |= c && c->list.n == 1 && !strcmp(c->list.at[0].s.data, "loc:@Mul");
  }
  assert_true(found);
  graph_free(g);
}

/* What gradients compute of shapes stands with the op that they are of, and would keep that off devices which have no
 * kernel for it. */
static void shapes_serve_every_device(void **state) {
  const char *const ops[] = {"InvertPermutation",    "Shape", "ShapeN", "Size", "Rank", "ConcatOffset",
                             "BroadcastGradientArgs"};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
    const struct kernel_def *k = op_find(ops[i])->row->kernels;
    while (k->device && !(k->flags & KERNEL_ANYWHERE)) k++;
    if (!k->device) fail_msg("%s has no kernel that serves every device", ops[i]);
  }
}

static void axes_that_are_known(void **state) {
  struct shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 3, 3, 2), "x");
  shoal_out y = shoal_mean(g, x, shoal_constant_ints(g, SHOAL_SHAPE(2), (const int32_t[]){1, -2}));
  shoal_gradient dx;
  shoal_gradients(g, &y, 1, &x, 1, NULL, &dx);
  assert_null(shoal_graph_error(g));
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i]) assert_string_not_equal(g->nodes.at[i]->op->name, "DynamicStitch");
  shoal_session *s;
  shoal_tensor *in, *out;
  float ones[36] = {0};
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 4, (const int64_t[]){2, 3, 3, 2}, ones, sizeof ones, &in));
  ASSERT_OK(shoal_session_step(s, SHOAL_FEED(x, in), SHOAL_FETCH(dx.values, &out), NULL));
  assert_int_equal(shoal_tensor_elements(out), 36);
  for (int i = 0; i < 36; i++) assert_true(fabsf(((const float *)shoal_tensor_const_data(out))[i] - 1 / 9.0F) < 1e-6F);
  shoal_tensor_unref(in);
  shoal_tensor_unref(out);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

static void mistakes_are_named(void **state) {
  struct shoal_graph *g = graph_new(), *other = graph_new();
  shoal_out x = number(g, 3), z = number(other, 1), none = {0};
  struct grad dx;
  ASSERT_FAILS(graph_gradients(g, &none, 1, NULL, &x, 1, NULL, 0, false, &dx), SHOAL_INVALID_ARGUMENT, "y 0");
  ASSERT_FAILS(graph_gradients(g, &x, 1, NULL, &z, 1, NULL, 0, false, &dx), SHOAL_INVALID_ARGUMENT,
               "not a tensor of this");
  graph_free(g);
  graph_free(other);
}

static void clipping(void **state) {
  struct shoal_graph *g = graph_new();
  float three_four[2] = {3, 4};
  shoal_gradient d[1] = {{.values = vector(g, three_four, 2)}};
  shoal_clip_gradients_by_norm(g, d, 1, 1);
  assert_values(g, d[0].values, (float[]){.6f, .8f}, 2);
  d[0].values = vector(g, three_four, 2);
  shoal_clip_gradients_by_norm(g, d, 1, 10);
  assert_values(g, d[0].values, three_four, 2);
  d[0].values = vector(g, three_four, 2);
  shoal_clip_gradients_by_value(g, d, 1, -1, 3.5);
  assert_values(g, d[0].values, (float[]){3, 3.5f}, 2);
  shoal_gradient both[3] = {{.values = number(g, 3)}, {{0}}, {.values = number(g, 4)}};
  assert_values(g, shoal_clip_by_global_norm(g, both, 3, 1), (float[]){5}, 1);
  assert_values(g, both[2].values, (float[]){.8f}, 1);
  graph_free(g);
}

RUN_TESTS(cmocka_unit_test(paths_are_added_up), cmocka_unit_test(what_does_not_depend_has_no_gradient),
          cmocka_unit_test(stops_and_weights), cmocka_unit_test(broadcasting_is_undone),
          cmocka_unit_test(slices_stay_slices), cmocka_unit_test(colocation_follows_the_forward_node),
          cmocka_unit_test(mistakes_are_named), cmocka_unit_test(shapes_serve_every_device),
          cmocka_unit_test(axes_that_are_known), cmocka_unit_test(clipping))
