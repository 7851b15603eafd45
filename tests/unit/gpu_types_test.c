/* A GPU's kernels beside the CPU's: the types, and the older forms of ops, that the other tests of kernels leave out.
 * See gpu_case.h; gpu_tried_test.c finds what none of them tries. */
#include "gpu_case.h"

#define OTHERS (DT(BOOL) | DT(INT32) | DT(INT64) | DT(INT8) | DT(UINT8))
#define NUMBERS (DT(INT32) | DT(INT64) | DT(INT8) | DT(UINT8))
#define WHOLE(op_, ...) TWO(op_, .types = DT(INT64), .low = -9, .high = 9, __VA_ARGS__)
#define WHOLE_ONE(op_, ...) ONE(op_, .types = DT(INT64), .low = -9, .high = 9, __VA_ARGS__)
#define COMPARED(op_, types_) TWO(op_, .types = types_, .low = 0, .high = 4)

static void whole_numbers(void **state) {
  static const struct gpu_case cases[] = {
      WHOLE("Add"),
      WHOLE("AddV2"),
      WHOLE("Sub"),
      WHOLE("Mul"),
      WHOLE("Maximum"),
      WHOLE("Minimum"),
      WHOLE("SquaredDifference"),
      WHOLE_ONE("Abs"),
      WHOLE_ONE("Neg"),
      WHOLE_ONE("Square"),
      WHOLE_ONE("OnesLike"),
      {.op = "AddN", .n_in = 3, .in = {D(9, 9), D(9, 9), D(9, 9)}, .types = DT(INT64), .low = -9, .high = 9},
      {.op = "BiasAdd", .n_in = 2, .in = {D(7, 131), D(131)}, .types = DT(INT64), .low = -9, .high = 9},
      {.op = "BiasAddV1", .n_in = 2, .in = {D(7, 131), D(131)}, .types = DT_FLOATING | DT(INT64), .low = -9, .high = 9},
      {.op = "ClipByValue",
       .n_in = 3,
       .in = {D(7, 131), INT(INT64, -3), INT(INT64, 4)},
       .types = DT(INT64),
       .low = -9,
       .high = 9},
      {.op = "Cumprod", .n_in = 2, .in = {D(7, 9), INT(INT32, 1)}, .types = DT(INT64), .low = -3, .high = 4}};
  TRY_ALL(cases);
}

static void compared(void **state) {
  static const struct gpu_case cases[] = {
      COMPARED("Equal", OTHERS),
      COMPARED("NotEqual", OTHERS),
      COMPARED("Less", NUMBERS),
      COMPARED("LessEqual", NUMBERS),
      COMPARED("Greater", NUMBERS),
      COMPARED("GreaterEqual", NUMBERS),
      {.op = "LogicalAnd", .n_in = 2, .in = {BELOW(2, BOOL, 7, 131), BELOW(2, BOOL, 7, 131)}, .types = DT(BOOL)},
      {.op = "LogicalOr", .n_in = 2, .in = {BELOW(2, BOOL, 7, 131), BELOW(2, BOOL, 131)}, .types = DT(BOOL)},
      {.op = "LogicalNot", .n_in = 1, .in = {BELOW(2, BOOL, 7, 131)}, .types = DT(BOOL)}};
  TRY_ALL(cases);
}

static void to_float(shoal_builder *b) { shoal_build_type(b, "DstT", SHOAL_FLOAT32); }
static void to_whole(shoal_builder *b) { shoal_build_type(b, "DstT", SHOAL_INT64); }

static void moved(void **state) {
  static const struct gpu_case cases[] = {
      ONE("ZerosLike", .types = OTHERS),
      ONE("Cast", .types = OTHERS, .low = 0, .high = 9, .attrs = to_float),
      ONE("Cast", .types = OTHERS, .low = 0, .high = 9, .attrs = to_whole),
      {.op = "Select", .n_in = 3, .in = {BELOW(2, BOOL, 7), D(7, 5), D(7, 5)}, .types = OTHERS, .low = 0, .high = 9},
      {.op = "SelectV2", .n_in = 3, .in = {BELOW(2, BOOL, 7, 1), D(5), D(7, 5)}, .types = OTHERS, .low = 0, .high = 9},
      {.op = "BroadcastTo", .n_in = 2, .in = {D(6, 1), INTS(INT32, 6, 48)}, .types = OTHERS, .low = 0, .high = 9},
      {.op = "Fill", .n_in = 2, .in = {INTS(INT32, 7, 13), SCALAR}, .types = OTHERS | DT_FLOATING, .low = 0, .high = 9},
      {.op = "OneHot",
       .n_in = 4,
       .in = {BELOW(12, INT32, 3, 7), INT(INT32, 10), SCALAR, SCALAR},
       .types = DT(INT32),
       .low = 0,
       .high = 9},
      {.op = "PadV2",
       .n_in = 3,
       .in = {D(3, 5), {2, {2, 2}, .type = SHOAL_INT32, .values = {1, 2, 0, 3}}, SCALAR},
       .types = DT(INT32),
       .low = 0,
       .high = 9}};
  TRY_ALL(cases);
}

static void five(shoal_builder *b) { shoal_build_int(b, "k", 5); }

#define SELECTED (DT_FLOATING | DT(INT32) | DT(INT64))
#define ARG(op_)                                                                                                \
  {.op = op_, .n_in = 1, .in = {D(7, 131)}, .n_axes = 1, .axes = {1}, .scalar = true, .types = SELECTED},       \
      {.op = op_, .n_in = 1, .in = {D(7, 131)}, .n_axes = 1, .axes = {0}, .scalar = true, .types = SELECTED}, { \
    .op = op_, .n_in = 1, .in = {D(3, 40, 6)}, .n_axes = 1, .axes = {1}, .scalar = true, .types = SELECTED      \
  }

static void selected(void **state) {
  static const struct gpu_case cases[] = {
      ARG("ArgMax"),
      ARG("ArgMin"),
      {.op = "TopK",
       .n_in = 1,
       .in = {D(3, 40)},
       .attrs = five,
       .n_out = 2,
       .types = DT(INT32) | DT(INT64),
       .low = -900,
       .high = 900},
      {.op = "InTopK", .n_in = 2, .in = {D(31, 40), BELOW(44, INT32, 31)}, .attrs = five, .types = DT(FLOAT32)},
      {.op = "InTopKV2", .n_in = 3, .in = {D(31, 40), BELOW(40, INT64, 31), INT(INT64, 7)}, .types = DT(FLOAT32)},
      {.op = "SparseSoftmaxCrossEntropyWithLogits",
       .n_in = 2,
       .in = {D(31, 40), BELOW(40, INT64, 31)},
       .n_out = 2,
       .slack = 8}};
  TRY_ALL(cases);
}

static void list(shoal_builder *b, const char *attr, int64_t d, int64_t h, int64_t w) {
  shoal_build_ints(b, attr, (int64_t[]){1, d, h, w, 1}, 5);
}
static void pool_3d(shoal_builder *b) {
  list(b, "ksize", 2, 3, 2);
  list(b, "strides", 1, 2, 2);
  shoal_build_string(b, "padding", "SAME");
}
static void valid(shoal_builder *b) { shoal_build_string(b, "padding", "VALID"); }

#define NORM_TYPES (DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16))
#define V(n) BELOW(3, FLOAT32, n)
#define IMAGE D(3, 4, 5, 16)
#define NORM(op_, types_)                                                                                     \
  {                                                                                                           \
    .op = op_, .n_in = 5, .in = {IMAGE, V(16), V(16), V(16), V(16)}, .types = types_, .n_out = 3, .slack = 8, \
    .low = 3, .high = 6                                                                                       \
  }
#define NORM_GRAD(op_, types_) \
  { .op = op_, .n_in = 5, .in = {IMAGE, IMAGE, V(16), V(16), V(16)}, .types = types_, .n_out = 3, .slack = 32 }

static void older_forms(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "BatchMatMul", .n_in = 2, .in = {D(4, 5, 6), D(4, 6, 7)}, TF32},
      {.op = "MaxPoolGradV2",
       .n_in = 5,
       .in = {D(2, 9, 8, 5), D(2, 4, 4, 5), D(2, 4, 4, 5), INTS(INT32, 1, 3, 2, 1), INTS(INT32, 1, 2, 2, 1)},
       .attrs = valid},
      {.op = "MaxPool3D", .n_in = 1, .in = {D(2, 5, 9, 8, 3)}, .types = NORM_TYPES, .attrs = pool_3d},
      {.op = "AvgPool3D", .n_in = 1, .in = {D(2, 5, 9, 8, 3)}, .attrs = pool_3d, .slack = 2},
      {.op = "AvgPool3DGrad",
       .n_in = 2,
       .in = {INTS(INT32, 2, 5, 9, 8, 3), D(2, 5, 5, 4, 3)},
       .attrs = pool_3d,
       .slack = 2},
      NORM("FusedBatchNorm", DT(FLOAT32)),
      NORM("FusedBatchNormV2", NORM_TYPES),
      NORM_GRAD("FusedBatchNormGrad", DT(FLOAT32)),
      NORM_GRAD("FusedBatchNormGradV2", NORM_TYPES)};
  TRY_ALL(cases);
}

/* ---- random numbers by key and counter ---- */

static void stateless(shoal_builder *b) { shoal_build_type(b, "dtype", building); }
#define COUNTED INTS(INT32, 7, 131), INTS(UINT64, 12345), INTS(UINT64, 3, 9), INT(INT32, 1)

static void random_numbers(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "StatelessRandomUniformV2", .n_in = 4, .in = {COUNTED}, .attrs = stateless},
      {.op = "StatelessRandomNormalV2", .n_in = 4, .in = {COUNTED}, .attrs = stateless},
      {.op = "StatelessTruncatedNormalV2", .n_in = 4, .in = {COUNTED}, .attrs = stateless},
      {.op = "StatelessRandomUniformIntV2",
       .n_in = 6,
       .in = {COUNTED, INT(INT32, 3), INT(INT32, 1000)},
       .types = DT(INT32)},
      {.op = "StatelessRandomUniformIntV2",
       .n_in = 6,
       .in = {COUNTED, INT(INT64, 3), INT(INT64, 1000)},
       .types = DT(INT64)}};
  TRY_ALL(cases);
}

/* ---- updates: by resources, and by references ---- */

enum rows { DENSE, ROWS_FIRST, INDICES_FIRST };
enum more { PLAIN, WITH_STEP, WITH_POWER, SMALL_MEAN };

struct update_case {
  const char *op;
  int n_vars, n_before, n_after; /* numbers before the gradient (or rows), and behind it, or the indices */
  enum rows rows;
  enum more more; /* a global step at the end; a last number below 0; a second variable of small numbers */
  uint32_t types; /* 0: the floating ones */
};

struct updated {
  shoal_op *update[2];
  shoal_out values[2][4];
};

static struct {
  shoal_op *at[4096];
  int n;
} inits; /* of references */

static shoal_out numbers(shoal_graph *g, shoal_dtype t, int rank, int64_t rows, double low, double high) {
  bool whole = !(DT_FLOATING >> t & 1);
  struct gpu_case c = {.in = {{rank, {rows, 5}}}, .low = whole ? 1 : low, .high = whole ? 5 : high};
  return constant(g, &c, 0, t);
}

static shoal_out indices(shoal_graph *g, int64_t n, int64_t rows) {
  struct gpu_case c = {.in = {{1, {n}, .type = SHOAL_INT32, .limit = (int)rows}}};
  return constant(g, &c, 0, SHOAL_INT32);
}

/* A variable's handle, or a reference to it; and its value. */
static shoal_out variable(shoal_graph *g, const char *name, bool resource, shoal_out first, shoal_out *value) {
  if (resource) {
    shoal_var v = shoal_variable(g, name, first);
    *value = shoal_read_variable_op(g, v.handle, shoal_out_dtype(first));
    return v.handle;
  }
  shoal_builder *b = shoal_build(g, "VariableV2", name);
  shoal_build_type(b, "dtype", shoal_out_dtype(first));
  shoal_build_shape(b, "shape", 2, (int64_t[]){9, 5});
  shoal_out ref = shoal_build_end_out(b);
  b = shoal_build(g, "Assign", NULL);
  shoal_build_input(b, ref);
  shoal_build_input(b, first);
  inits.at[inits.n++] = shoal_build_end(b);
  *value = shoal_identity(g, ref);
  return ref;
}

static void build_update(shoal_graph *g, const struct update_case *u, int number_of, shoal_dtype t, int device,
                         struct updated *made) {
  bool resource = !strncmp(u->op, "Resource", 8) || strstr(u->op, "VariableOp");
  shoal_out handles[4], values[4];
  char name[64];
  seed = 7;
  shoal_push_device(g, devices[device]);
  for (int i = 0; i < u->n_vars; i++) {
    bool small = i == 1 && u->more == SMALL_MEAN;
    snprintf(name, sizeof name, "u%d_%s_%d_%d", number_of, shoal_dtype_name(t), device, i);
    handles[i] = variable(g, name, resource, numbers(g, t, 2, 9, small ? 0.01 : 0.1, small ? 0.05 : 0.9), &values[i]);
  }
  shoal_builder *b = shoal_build(g, u->op, NULL);
  for (int i = 0; i < u->n_vars; i++) shoal_build_input(b, handles[i]);
  for (int i = 0; i < u->n_before; i++) shoal_build_input(b, numbers(g, t, 0, 0, 0.1, 0.4));
  if (u->rows == INDICES_FIRST) shoal_build_input(b, indices(g, 14, 9));
  shoal_build_input(b, numbers(g, t, 2, u->rows ? 14 : 9, 0.1, 0.9));
  if (u->rows == ROWS_FIRST) shoal_build_input(b, indices(g, 14, 9));
  for (int i = 0; i < u->n_after; i++) {
    bool power = i == u->n_after - 1 && u->more == WITH_POWER;
    shoal_build_input(b, numbers(g, t, 0, 0, power ? -0.5 : 0.1, power ? -0.4 : 0.4));
  }
  struct gpu_case step = {.in = {INT(INT64, 3)}};
  if (u->more == WITH_STEP) shoal_build_input(b, constant(g, &step, 0, SHOAL_INT64));
  made->update[device] = shoal_build_end(b);
  shoal_pop_device(g);
  shoal_push_device(g, devices[0]);
  for (int i = 0; i < u->n_vars; i++) made->values[device][i] = shoal_cast(g, values[i], SHOAL_FLOAT64);
  shoal_pop_device(g);
}

static void hold_update(shoal_session *s, const struct update_case *u, shoal_dtype t, struct updated *made) {
  const struct gpu_case of = {.op = u->op, .slack = 32};
  for (int k = 0; k < 2; k++)
    for (int d = 0; d < 2; d++) {
      shoal_status e = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, made->update[d]);
      if (e) print_error("%s of %s: ", u->op, shoal_dtype_name(t));
      ASSERT_OK(e);
    }
  hold_outputs(s, &of, t, u->n_vars, made->values[0], made->values[1]);
}

static uint32_t types_of(const struct update_case *u) { return u->types ? u->types : DT_FLOATING; }

static void try_updates(const struct update_case *all, int n) {
  struct updated *made = mem_zalloc((size_t)n * 32, sizeof *made);
  shoal_graph *g = shoal_graph_new();
  inits.n = 0;
  for (int i = 0; i < n; i++)
    for (int t = 1; t < 32; t++)
      for (int d = 0; d < 2 && types_of(&all[i]) >> t & 1; d++)
        build_update(g, &all[i], i, (shoal_dtype)t, d, &made[32 * i + t]);
  shoal_op *init = shoal_initialize(g), *refs = shoal_group(g, inits.at, inits.n, "references");
  shoal_session *s = open_cases(g);
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, refs));
  for (int i = 0; i < n; i++)
    for (int t = 1; t < 32; t++)
      if (types_of(&all[i]) >> t & 1) hold_update(s, &all[i], (shoal_dtype)t, &made[32 * i + t]);
  free(made);
  close_cases(g, s);
}
#define TRY_UPDATES(all) try_updates(all, (int)(sizeof(all) / sizeof *(all)))

#define COUNTS (DT_FLOATING | DT(INT32) | DT(INT64))

static void dense_updates(void **state) {
  static const struct update_case all[] = {{"ApplyGradientDescent", 1, 1, 0, DENSE},
                                           {"ApplyMomentum", 2, 1, 1, DENSE},
                                           {"ApplyAdagrad", 2, 1, 0, DENSE},
                                           {"ApplyAdagradV2", 2, 2, 0, DENSE},
                                           {"ApplyAdadelta", 3, 3, 0, DENSE},
                                           {"ApplyRMSProp", 3, 4, 0, DENSE},
                                           {"ApplyAdam", 3, 6, 0, DENSE},
                                           {"ApplyAdaMax", 3, 5, 0, DENSE},
                                           {"ApplyProximalGradientDescent", 1, 3, 0, DENSE},
                                           {"ApplyProximalAdagrad", 2, 3, 0, DENSE},
                                           {"ApplyAddSign", 2, 4, 0, DENSE},
                                           {"ApplyPowerSign", 2, 4, 0, DENSE},
                                           {"ApplyCenteredRMSProp", 4, 4, 0, DENSE, SMALL_MEAN},
                                           {"ResourceApplyCenteredRMSProp", 4, 4, 0, DENSE, SMALL_MEAN},
                                           {"ApplyAdagradDA", 3, 0, 3, DENSE, WITH_STEP},
                                           {"ResourceApplyAdagradDA", 3, 0, 3, DENSE, WITH_STEP},
                                           {"ApplyFtrl", 3, 0, 4, DENSE, WITH_POWER},
                                           {"ResourceApplyFtrl", 3, 0, 4, DENSE, WITH_POWER},
                                           {"ApplyFtrlV2", 3, 0, 5, DENSE, WITH_POWER},
                                           {"ResourceApplyFtrlV2", 3, 0, 5, DENSE, WITH_POWER},
                                           {"AssignAdd", 1, 0, 0, DENSE, PLAIN, COUNTS},
                                           {"AssignSub", 1, 0, 0, DENSE, PLAIN, COUNTS},
                                           {"AssignAddVariableOp", 1, 0, 0, DENSE, PLAIN, COUNTS},
                                           {"AssignSubVariableOp", 1, 0, 0, DENSE, PLAIN, COUNTS}};
  TRY_UPDATES(all);
}

static void sparse_updates(void **state) {
  static const struct update_case all[] = {{"SparseApplyMomentum", 2, 1, 1, ROWS_FIRST},
                                           {"SparseApplyAdagrad", 2, 1, 0, ROWS_FIRST},
                                           {"SparseApplyAdagradV2", 2, 2, 0, ROWS_FIRST},
                                           {"SparseApplyAdadelta", 3, 3, 0, ROWS_FIRST},
                                           {"SparseApplyRMSProp", 3, 4, 0, ROWS_FIRST},
                                           {"SparseApplyProximalGradientDescent", 1, 3, 0, ROWS_FIRST},
                                           {"SparseApplyProximalAdagrad", 2, 3, 0, ROWS_FIRST},
                                           {"SparseApplyAdagradDA", 3, 0, 3, ROWS_FIRST, WITH_STEP},
                                           {"SparseApplyCenteredRMSProp", 4, 4, 0, ROWS_FIRST, SMALL_MEAN},
                                           {"ResourceSparseApplyCenteredRMSProp", 4, 4, 0, ROWS_FIRST, SMALL_MEAN},
                                           {"SparseApplyFtrl", 3, 0, 4, ROWS_FIRST, WITH_POWER},
                                           {"ResourceSparseApplyFtrl", 3, 0, 4, ROWS_FIRST, WITH_POWER},
                                           {"SparseApplyFtrlV2", 3, 0, 5, ROWS_FIRST, WITH_POWER},
                                           {"ResourceSparseApplyFtrlV2", 3, 0, 5, ROWS_FIRST, WITH_POWER}};
  TRY_UPDATES(all);
}

#define SCATTER(name)                                             \
  {"Scatter" name, 1, 0, 0, INDICES_FIRST, PLAIN, COUNTS}, {      \
    "ResourceScatter" name, 1, 0, 0, INDICES_FIRST, PLAIN, COUNTS \
  }

static void scatters(void **state) {
  static const struct update_case all[] = {SCATTER("Update"), SCATTER("Add"), SCATTER("Sub"),
                                           SCATTER("Mul"),    SCATTER("Min"), SCATTER("Max")};
  TRY_UPDATES(all);
}

/* ---- rows of variables of other types ---- */

static void rows_of_variables(void **state) {
  static const shoal_dtype types[] = {SHOAL_BOOL, SHOAL_INT32, SHOAL_INT64, SHOAL_INT8, SHOAL_UINT8};
  enum { N = sizeof types / sizeof *types };
  const struct gpu_case of = {.op = "ResourceGather"};
  shoal_graph *g = shoal_graph_new();
  shoal_out out[N][2];
  for (int t = 0; t < N; t++)
    for (int d = 0; d < 2; d++) {
      char name[32];
      seed = 13;
      snprintf(name, sizeof name, "table%d_%d", t, d);
      shoal_push_device(g, devices[d]);
      shoal_var table = shoal_variable(g, name, numbers(g, types[t], 2, 40, 0, 0));
      shoal_builder *b = shoal_build(g, "ResourceGather", NULL);
      shoal_build_input(b, table.handle);
      shoal_build_input(b, indices(g, 77, 40));
      shoal_build_type(b, "dtype", types[t]);
      shoal_out rows = shoal_build_end_out(b);
      shoal_pop_device(g);
      shoal_push_device(g, devices[0]);
      out[t][d] = shoal_cast(g, rows, SHOAL_FLOAT64);
      shoal_pop_device(g);
    }
  shoal_op *init = shoal_initialize(g);
  shoal_session *s = open_cases(g);
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  for (int t = 0; t < N; t++) hold_outputs(s, &of, types[t], 1, &out[t][0], &out[t][1]);
  close_cases(g, s);
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(whole_numbers), cmocka_unit_test(compared),
                                     cmocka_unit_test(moved),         cmocka_unit_test(selected),
                                     cmocka_unit_test(older_forms),   cmocka_unit_test(random_numbers),
                                     cmocka_unit_test(dense_updates), cmocka_unit_test(sparse_updates),
                                     cmocka_unit_test(scatters),      cmocka_unit_test(rows_of_variables)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
