/* A GPU's kernels beside the CPU's: elementwise ops, reductions, products, softmax, views, updates. See gpu_case.h. */
#include "gpu_case.h"

static const shoal_dtype floating[] = {SHOAL_FLOAT32, SHOAL_FLOAT64, SHOAL_FLOAT16, SHOAL_BFLOAT16};

static void leak(shoal_builder *b) { shoal_build_float(b, "alpha", 0.3f); }

static void unary(void **state) {
  static const struct gpu_case cases[] = {ONE("Relu"),
                                          ONE("Relu6", .low = -3, .high = 9),
                                          ONE("Elu"),
                                          ONE("Softplus"),
                                          ONE("Softsign"),
                                          ONE("Sigmoid"),
                                          ONE("Tanh"),
                                          ONE("Exp"),
                                          ONE("Expm1"),
                                          ONE("Log", POSITIVE),
                                          ONE("Log1p", POSITIVE),
                                          ONE("Sqrt", POSITIVE),
                                          ONE("Rsqrt", POSITIVE),
                                          ONE("Sin"),
                                          ONE("Cos"),
                                          ONE("Erf"),
                                          ONE("Floor"),
                                          ONE("Ceil"),
                                          ONE("Rint"),
                                          ONE("Round"),
                                          ONE("Reciprocal", POSITIVE),
                                          ONE("Inv", POSITIVE),
                                          ONE("Sign"),
                                          ONE("Selu"),
                                          ONE("Erfc"),
                                          ONE("Sinh"),
                                          ONE("Cosh"),
                                          ONE("Tan", .low = -1, .high = 1),
                                          ONE("Asin", .low = -0.9, .high = 0.9),
                                          ONE("Acos", .low = -0.9, .high = 0.9),
                                          ONE("Atan"),
                                          ONE("IsNan"),
                                          ONE("IsInf"),
                                          ONE("IsFinite"),
                                          ONE("LeakyRelu", .attrs = leak),
                                          ONE("Neg"),
                                          ONE("Square"),
                                          ONE("Abs"),
                                          ONE("OnesLike"),
                                          ONE("ZerosLike"),
                                          {.op = "Relu", .n_in = 1, .in = {SCALAR}},
                                          {.op = "Relu", .n_in = 1, .in = {D(0, 3)}},
                                          {.op = "Exp", .n_in = 1, .in = {D(3000, 700)}}};
  TRY_ALL(cases);
}

static void gradients(void **state) {
  static const struct gpu_case cases[] = {TWO("ReluGrad"),
                                          TWO("Relu6Grad", .low = -3, .high = 9),
                                          TWO("EluGrad"),
                                          TWO("SeluGrad"),
                                          TWO("LeakyReluGrad", .attrs = leak),
                                          TWO("SoftplusGrad"),
                                          TWO("SoftsignGrad"),
                                          TWO("SigmoidGrad"),
                                          TWO("TanhGrad"),
                                          TWO("SqrtGrad", POSITIVE),
                                          TWO("RsqrtGrad", POSITIVE, .slack = 4),
                                          TWO("ReciprocalGrad", POSITIVE, .slack = 4),
                                          TWO("InvGrad", POSITIVE, .slack = 4)};
  TRY_ALL(cases);
}

#define SPREAD(op_, ...)                                                                   \
  TWO(op_, __VA_ARGS__), {.op = op_, .n_in = 2, .in = {D(5, 1, 9), D(4, 1)}, __VA_ARGS__}, \
      {.op = op_, .n_in = 2, .in = {SCALAR, D(33)}, __VA_ARGS__},                          \
      {.op = op_, .n_in = 2, .in = {D(6, 5, 16), D(16)}, __VA_ARGS__},                     \
      {.op = op_, .n_in = 2, .in = {D(6, 5, 1), D(6, 1, 32)}, __VA_ARGS__}, {              \
    .op = op_, .n_in = 2, .in = {D(2, 3, 4, 5), D(3, 1, 5)}, __VA_ARGS__                   \
  }

static void binary(void **state) {
  static const struct gpu_case cases[] = {SPREAD("Add"),
                                          SPREAD("AddV2"),
                                          SPREAD("Sub"),
                                          SPREAD("Mul"),
                                          SPREAD("Maximum"),
                                          SPREAD("Minimum"),
                                          SPREAD("SquaredDifference"),
                                          SPREAD("RealDiv", POSITIVE),
                                          SPREAD("Div", POSITIVE),
                                          SPREAD("DivNoNan", POSITIVE),
                                          SPREAD("MulNoNan"),
                                          SPREAD("Pow", POSITIVE, .slack = 4),
                                          SPREAD("FloorDiv", POSITIVE),
                                          SPREAD("FloorMod", POSITIVE, .slack = 1e5), /* near a multiple: all of it */
                                          SPREAD("Xdivy", POSITIVE),
                                          SPREAD("Xlogy", POSITIVE),
                                          SPREAD("Equal"),
                                          SPREAD("NotEqual"),
                                          SPREAD("Less"),
                                          SPREAD("LessEqual"),
                                          SPREAD("Greater"),
                                          SPREAD("GreaterEqual"),
                                          {.op = "AddN", .n_in = 4, .in = {D(9, 9), D(9, 9), D(9, 9), D(9, 9)}}};
  TRY_ALL(cases);
}

/* Conditions, bounds, and reductions of what is true. */
static void choices(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "Select", .n_in = 3, .in = {BELOW(2, BOOL, 7, 5), D(7, 5), D(7, 5)}},
      {.op = "Select", .n_in = 3, .in = {BELOW(2, BOOL, 7), D(7, 5), D(7, 5)}},
      {.op = "Select", .n_in = 3, .in = {INT(BOOL, 1), D(7, 5), D(7, 5)}},
      {.op = "SelectV2", .n_in = 3, .in = {BELOW(2, BOOL, 7, 1), D(5), D(7, 5)}},
      {.op = "SelectV2", .n_in = 3, .in = {BELOW(2, BOOL, 6, 1, 32), D(5, 32), SCALAR}},
      {.op = "SelectV2", .n_in = 3, .in = {BELOW(2, BOOL, 64), D(64), D(64)}},
      {.op = "BroadcastTo", .n_in = 2, .in = {D(6, 1), INTS(INT32, 6, 48)}},
      {.op = "BroadcastTo", .n_in = 2, .in = {D(5, 1, 32), INTS(INT32, 5, 7, 32)}},
      {.op = "BroadcastTo", .n_in = 2, .in = {D(5, 1, 3), INTS(INT32, 2, 5, 7, 3)}},
      {.op = "BroadcastTo", .n_in = 2, .in = {SCALAR, INTS(INT32, 64)}},
      {.op = "ClipByValue", .n_in = 3, .in = {D(7, 131), INT(FLOAT32, -0.5), INT(FLOAT32, 1)}, .types = DT(FLOAT32)},
      {.op = "ClipByValue", .n_in = 3, .in = {D(7, 131), D(7, 131), D(7, 131)}},
      {.op = "All", .n_in = 1, .in = {BELOW(9, BOOL, 70, 13)}, .n_axes = 1, .axes = {1}, .types = DT(BOOL)},
      {.op = "Any", .n_in = 1, .in = {BELOW(2, BOOL, 70, 3)}, .n_axes = 1, .axes = {1}, .types = DT(BOOL)},
      {.op = "All", .n_in = 1, .in = {BELOW(2, BOOL, 5, 9000)}, .n_axes = 2, .axes = {0, 1}, .types = DT(BOOL)},
      {.op = "Any", .n_in = 1, .in = {BELOW(2, BOOL, 3, 40, 6)}, .n_axes = 1, .axes = {1}, .types = DT(BOOL)}};
  TRY_ALL(cases);
}

static void keep(shoal_builder *b) { shoal_build_bool(b, "keep_dims", true); }

#define AXES(n, ...) .n_axes = n, .axes = {__VA_ARGS__}
#define REDUCE(op_, ...)                                                                         \
  {.op = op_, .n_in = 1, .in = {D(7, 131)}, AXES(1, 1), __VA_ARGS__},                            \
      {.op = op_, .n_in = 1, .in = {D(7, 131)}, AXES(1, 0), __VA_ARGS__},                        \
      {.op = op_, .n_in = 1, .in = {D(7, 131)}, AXES(2, 0, 1), __VA_ARGS__},                     \
      {.op = op_, .n_in = 1, .in = {D(3, 5, 40, 6)}, AXES(2, 0, 2), .attrs = keep, __VA_ARGS__}, \
      {.op = op_, .n_in = 1, .in = {D(3, 5, 40, 6)}, AXES(2, 1, -1), __VA_ARGS__},               \
      {.op = op_, .n_in = 1, .in = {D(2, 0, 3)}, AXES(1, 0), __VA_ARGS__}, {                     \
    .op = op_, .n_in = 1, .in = {D(4, 3)}, AXES(1, 1), __VA_ARGS__                               \
  }

static void reductions(void **state) {
  static const struct gpu_case cases[] = {
      REDUCE("Sum", .slack = 8),
      REDUCE("Mean"),
      REDUCE("Max"),
      REDUCE("Min"),
      REDUCE("Prod", .low = 0.99, .high = 1.01, .slack = 8),
      {.op = "Sum", .n_in = 1, .in = {D(200000)}, AXES(1, 0), .low = 0.4, .high = 0.6, .slack = 4},
      {.op = "Sum", .n_in = 1, .in = {D(9000, 70)}, AXES(1, 0), .low = 0.4, .high = 0.6, .slack = 4},
      {.op = "Mean", .n_in = 1, .in = {D(9000, 70)}, AXES(2, 0, 1), .low = 0.4, .high = 0.6, .slack = 4},
      {.op = "Max", .n_in = 1, .in = {D(3, 40000)}, AXES(1, 1)},
      {.op = "Sum", .n_in = 1, .in = {D(9000, 64)}, AXES(1, 0), .low = 0.4, .high = 0.6, .slack = 4},
      {.op = "Max", .n_in = 1, .in = {D(3, 700, 520)}, AXES(1, 1)},
      {.op = "Mean", .n_in = 1, .in = {D(5, 60, 16)}, AXES(1, 1)},
      {.op = "Sum", .n_in = 1, .in = {D(70, 8)}, AXES(1, 0), .slack = 4},
      {.op = "Sum", .n_in = 1, .in = {D(70000, 3, 2)}, AXES(1, 1), .types = DT(FLOAT32), .slack = 4},
      {.op = "L2Loss", .n_in = 1, .in = {D(300, 70)}, .slack = 4},
      {.op = "L2Loss", .n_in = 1, .in = {D(3)}}};
  TRY_ALL(cases);
}

static void trans_a(shoal_builder *b) { shoal_build_bool(b, "transpose_a", true); }
static void trans_b(shoal_builder *b) { shoal_build_bool(b, "transpose_b", true); }
static void adj_y(shoal_builder *b) { shoal_build_bool(b, "adj_y", true); }

static void products(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "MatMul", .n_in = 2, .in = {D(17, 33), D(33, 9)}, TF32},
      {.op = "MatMul", .n_in = 2, .in = {D(33, 17), D(33, 9)}, TF32, .attrs = trans_a},
      {.op = "MatMul", .n_in = 2, .in = {D(17, 33), D(9, 33)}, TF32, .attrs = trans_b},
      {.op = "MatMul", .n_in = 2, .in = {D(100, 784), D(784, 128)}, TF32, .low = -0.5, .high = 0.5},
      {.op = "MatMul", .n_in = 2, .in = {D(3, 0), D(0, 4)}},
      {.op = "BatchMatMulV2", .n_in = 2, .in = {D(4, 5, 6), D(4, 6, 7)}, TF32},
      {.op = "BatchMatMulV2", .n_in = 2, .in = {D(2, 3, 5, 6), D(3, 6, 7)}, TF32},
      {.op = "BatchMatMulV2", .n_in = 2, .in = {D(2, 1, 5, 6), D(3, 7, 6)}, TF32, .attrs = adj_y}};
  TRY_ALL(cases);
}

static void channels_first(shoal_builder *b) { shoal_build_string(b, "data_format", "NCHW"); }

static void biases(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "BiasAdd", .n_in = 2, .in = {D(7, 5, 131), D(131)}},
      {.op = "BiasAddGrad", .n_in = 1, .in = {D(700, 33)}, .slack = 16},
      {.op = "BiasAddGrad", .n_in = 1, .in = {D(7, 5, 131)}, .slack = 4},
      {.op = "BiasAdd", .n_in = 2, .in = {D(3, 5, 7, 9), D(5)}, .attrs = channels_first},
      {.op = "BiasAddGrad", .n_in = 1, .in = {D(3, 5, 7, 9)}, .attrs = channels_first, .slack = 4},
      {.op = "BiasAddGrad", .n_in = 1, .in = {D(0, 5, 7, 9)}, .attrs = channels_first}};
  TRY_ALL(cases);
}

static void softmax(void **state) {
  static const struct gpu_case cases[] = {
      ONE("Softmax"),
      ONE("LogSoftmax"),
      {.op = "Softmax", .n_in = 1, .in = {D(3, 5, 5000)}},
      {.op = "LogSoftmax", .n_in = 1, .in = {D(3, 10)}},
      {.op = "SoftmaxCrossEntropyWithLogits",
       .n_in = 2,
       .in = {D(7, 131), D(7, 131)},
       POSITIVE,
       .n_out = 2,
       .slack = 8},
      {.op = "SoftmaxCrossEntropyWithLogits", .n_in = 2, .in = {D(7, 10), D(1, 10)}, POSITIVE, .n_out = 2, .slack = 8}};
  TRY_ALL(cases);
}

static void axis_1(shoal_builder *b) { shoal_build_int(b, "axis", 1); }

#define PLACES(n, ...) .n_axes = n, .axes = {__VA_ARGS__}
static void moving(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "Transpose", .n_in = 1, .in = {D(7, 131)}, PLACES(2, 1, 0)},
      {.op = "Transpose", .n_in = 1, .in = {D(3, 4, 5)}, PLACES(3, 2, 0, 1)},
      {.op = "Transpose", .n_in = 1, .in = {D(70, 48)}, PLACES(2, 1, 0)},
      {.op = "Transpose", .n_in = 1, .in = {D(3, 40, 35)}, PLACES(3, 0, 2, 1)},
      {.op = "Transpose", .n_in = 1, .in = {D(6, 4, 16)}, PLACES(3, 1, 0, 2)},
      {.op = "ConcatV2", .n_in = 2, .in = {D(3, 16), D(3, 8)}, PLACES(1, 1), .scalar = true},
      {.op = "Tile", .n_in = 1, .in = {D(3, 5)}, PLACES(2, 2, 3)},
      {.op = "ReverseV2", .n_in = 1, .in = {D(3, 5, 7)}, PLACES(2, 0, 2)},
      {.op = "Pack", .n_in = 3, .in = {D(3, 5), D(3, 5), D(3, 5)}, .attrs = axis_1},
      {.op = "ConcatV2", .n_in = 3, .in = {D(3, 5), D(3, 2), D(3, 9)}, PLACES(1, 1), .scalar = true},
      {.op = "ConcatV2", .n_in = 2, .in = {D(3, 5), D(2, 5)}, PLACES(1, 0), .scalar = true}};
  TRY_ALL(cases);
}

/* The middle of a matrix, and a product of lines that begin at an odd place. */
static void build_parts(shoal_graph *g, shoal_dtype t, int device, shoal_out *out) {
  struct gpu_case whole = {.in = {D(9, 11)}}, at = {PLACES(2, 2, 3)}, size = {PLACES(2, 5, 7)};
  struct gpu_case first = {PLACES(2, 3, 0)}, lines = {PLACES(2, 5, 11)};
  seed = 3;
  shoal_push_device(g, devices[device]);
  shoal_out x = constant(g, &whole, 0, t);
  shoal_out part = shoal_slice(g, x, axes_of(g, &at), axes_of(g, &size));
  shoal_out odd = shoal_slice(g, x, axes_of(g, &first), axes_of(g, &lines)); /* no copy */
  shoal_builder *b = shoal_build(g, "MatMul", NULL);
  shoal_build_input(b, odd);
  shoal_build_input(b, odd);
  shoal_build_bool(b, "transpose_b", true);
  shoal_out product = shoal_build_end_out(b);
  shoal_pop_device(g);
  shoal_push_device(g, devices[0]);
  out[0] = shoal_cast(g, part, SHOAL_FLOAT64);
  out[1] = shoal_cast(g, product, SHOAL_FLOAT64);
  shoal_pop_device(g);
}

static void parts(void **state) {
  const struct gpu_case of = {.op = "Slice", TF32};
  shoal_graph *g = shoal_graph_new();
  shoal_out out[4][2][2];
  for (int t = 0; t < 4; t++)
    for (int d = 0; d < 2; d++) build_parts(g, floating[t], d, out[t][d]);
  shoal_session *s = open_cases(g);
  for (int t = 0; t < 4; t++) hold_outputs(s, &of, floating[t], 2, out[t][0], out[t][1]);
  close_cases(g, s);
}

/* ---- updates of variables ---- */

struct gpu_update {
  const char *op;
  int n_vars, n_before, n_after; /* numbers before and after the gradient */
};

/* The updates' results: the variable and its slots, after three of them, as float64 on the CPU. */
static void build_update(shoal_graph *g, const struct gpu_update *u, shoal_dtype t, int device, shoal_op **updates,
                         shoal_out *values) {
  shoal_var vars[4];
  char name[128];
  struct gpu_case numbers = {.n_in = 1, .in = {D(37, 5)}, .low = 0.1, .high = 0.9}, one = {.low = 0.1, .high = 0.4};
  seed = 7;
  shoal_push_device(g, devices[device]);
  for (int i = 0; i < u->n_vars; i++) {
    snprintf(name, sizeof name, "%s_%s_%d_%d", u->op, shoal_dtype_name(t), device, i);
    vars[i] = shoal_variable(g, name, constant(g, &numbers, 0, t));
  }
  shoal_builder *b = shoal_build(g, u->op, NULL);
  for (int i = 0; i < u->n_vars; i++) shoal_build_input(b, vars[i].handle);
  for (int i = 0; i < u->n_before; i++) shoal_build_input(b, constant(g, &one, 0, t));
  shoal_build_input(b, constant(g, &numbers, 0, t));
  for (int i = 0; i < u->n_after; i++) shoal_build_input(b, constant(g, &one, 0, t));
  updates[device] = shoal_build_end(b);
  shoal_pop_device(g);
  shoal_push_device(g, devices[0]);
  for (int i = 0; i < u->n_vars; i++)
    values[i] = shoal_cast(g, shoal_read_variable_op(g, vars[i].handle, t), SHOAL_FLOAT64);
  shoal_pop_device(g);
}

struct gpu_updated {
  shoal_op *updates[2];
  shoal_out values[2][4];
};

static void hold_update(shoal_session *s, const struct gpu_update *u, shoal_dtype t, struct gpu_updated *k) {
  const struct gpu_case of = {.op = u->op, .slack = 16};
  for (int i = 0; i < 3; i++)
    for (int d = 0; d < 2; d++) ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, k->updates[d]));
  hold_outputs(s, &of, t, u->n_vars, k->values[0], k->values[1]);
}

static void updates(void **state) {
  static const struct gpu_update all[] = {{"ResourceApplyGradientDescent", 1, 1, 0},
                                          {"ResourceApplyMomentum", 2, 1, 1},
                                          {"ResourceApplyKerasMomentum", 2, 1, 1},
                                          {"ResourceApplyAdagrad", 2, 1, 0},
                                          {"ResourceApplyAdagradV2", 2, 2, 0},
                                          {"ResourceApplyAdadelta", 3, 3, 0},
                                          {"ResourceApplyRMSProp", 3, 4, 0},
                                          {"ResourceApplyAdam", 3, 6, 0},
                                          {"ResourceApplyAdamWithAmsgrad", 4, 6, 0},
                                          {"ResourceApplyAdaMax", 3, 5, 0},
                                          {"ResourceApplyProximalGradientDescent", 1, 3, 0},
                                          {"ResourceApplyProximalAdagrad", 2, 3, 0},
                                          {"ResourceApplyAddSign", 2, 4, 0},
                                          {"ResourceApplyPowerSign", 2, 4, 0},
                                          {"AssignAddVariableOp", 1, 0, 0},
                                          {"AssignSubVariableOp", 1, 0, 0}};
  enum { N = sizeof all / sizeof *all };
  static struct gpu_updated made[N][4];
  shoal_graph *g = shoal_graph_new();
  for (int i = 0; i < N; i++)
    for (int t = 0; t < 4; t++)
      for (int d = 0; d < 2; d++) build_update(g, &all[i], floating[t], d, made[i][t].updates, made[i][t].values[d]);
  shoal_op *init = shoal_initialize(g);
  shoal_session *s = open_cases(g);
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  for (int i = 0; i < N; i++)
    for (int t = 0; t < 4; t++) hold_update(s, &all[i], floating[t], &made[i][t]);
  close_cases(g, s);
}

/* ---- a model ---- */

/* A small network learns the same on both: 30 steps of Adam. */
static double train(const char *device) {
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 3);
  shoal_push_device(g, devices[0]);
  struct gpu_case data = {.in = {D(64, 20), D(64, 3)}, .low = 0, .high = 1};
  seed = 5;
  shoal_out x = constant(g, &data, 0, SHOAL_FLOAT32), y = constant(g, &data, 1, SHOAL_FLOAT32);
  shoal_pop_device(g);
  shoal_push_device(g, device);
  shoal_out h = shoal_relu(g, shoal_dense(g, x, 32, "hidden"));
  shoal_out off = shoal_sub(g, shoal_dense(g, h, 3, "out"), y);
  shoal_out loss = shoal_reduce_mean(g, shoal_mul(g, off, off));
  shoal_op *step = shoal_minimize(g, shoal_adam(0.01), loss, (shoal_var){0});
  shoal_pop_device(g);
  shoal_op *init = shoal_initialize(g);
  shoal_session *s;
  float l = 0;
  ASSERT_OK(shoal_graph_error(g));
  shoal_session_options o = {.allow_soft_placement = true};
  ASSERT_OK(shoal_session_open(g, &o, &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  for (int i = 0; i < 30; i++) ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(loss, &l), step));
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  return (double)l;
}

static void a_model_learns_the_same(void **state) {
  double cpu = train(devices[0]), gpu = train(devices[1]);
  assert_true(fabs(cpu - gpu) <= 1e-3 * (1 + fabs(cpu)));
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unary),   cmocka_unit_test(gradients),  cmocka_unit_test(binary),
      cmocka_unit_test(choices), cmocka_unit_test(reductions), cmocka_unit_test(products),
      cmocka_unit_test(biases),  cmocka_unit_test(softmax),    cmocka_unit_test(moving),
      cmocka_unit_test(parts),   cmocka_unit_test(updates),    cmocka_unit_test(a_model_learns_the_same)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
