/* A GPU's kernels beside the CPU's: rows by index, sparse updates, random numbers. See gpu_case.h. */
#include "gpu_case.h"

#define PLAIN (DT_FLOATING | DT(INT64) | DT(UINT8) | DT(INT8) | DT(BOOL))

/* ---- gathers ---- */

static void batch_1(shoal_builder *b) { shoal_build_int(b, "batch_dims", 1); }

static void gathers(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "Gather", .n_in = 2, .in = {D(9, 5), BELOW(9, INT32, 31)}, .types = PLAIN},
      {.op = "GatherV2", .n_in = 3, .in = {D(9, 5), BELOW(9, INT64, 4, 7), INT(INT32, 0)}, .types = PLAIN},
      {.op = "GatherV2", .n_in = 3, .in = {D(9, 16), BELOW(9, INT32, 33), INT(INT32, 0)}, .types = PLAIN},
      {.op = "GatherV2", .n_in = 3, .in = {D(4, 9, 6), BELOW(9, INT32, 3, 5), INT(INT32, 1)}},
      {.op = "GatherV2", .n_in = 3, .in = {D(4, 9), BELOW(9, INT32, 7), INT(INT32, -1)}},
      {.op = "GatherV2", .n_in = 3, .in = {D(4, 9, 6), BELOW(9, INT32, 4, 5), INT(INT32, 1)}, .attrs = batch_1},
      {.op = "GatherV2", .n_in = 3, .in = {D(9, 5), BELOW(9, INT32, 0), INT(INT32, 0)}},
      {.op = "GatherV2", .n_in = 3, .in = {D(300, 700), BELOW(300, INT32, 1000), INT(INT32, 0)}},
      {.op = "GatherV2", .n_in = 3, .in = {D(9), INT(INT32, 4), INT(INT32, 0)}}};
  TRY_ALL(cases);
}

/* ---- sums by segment ---- */

static void segments(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "UnsortedSegmentSum",
       .n_in = 3,
       .in = {D(31, 5), BELOW(7, INT32, 31), INT(INT32, 7)},
       .types = DT_FLOATING | DT(INT64),
       .slack = 16},
      {.op = "UnsortedSegmentSum", .n_in = 3, .in = {D(700, 65), BELOW(300, INT64, 700), INT(INT32, 300)}, .slack = 16},
      {.op = "UnsortedSegmentSum",
       .n_in = 3,
       .in = {D(40, 20, 3), BELOW(70000, INT32, 40, 20), INT(INT32, 70000)},
       .slack = 4},
      {.op = "UnsortedSegmentSum",
       .n_in = 3,
       .in = {D(600), BELOW(1, INT32, 600), INT(INT32, 1)},
       .types = DT(FLOAT32) | DT(FLOAT64),
       .slack = 64},
      {.op = "UnsortedSegmentSum", .n_in = 3, .in = {D(4, 3), INTS(INT32, 1, -1, 0, 1), INT(INT32, 4)}, .slack = 4},
      {.op = "UnsortedSegmentSum", .n_in = 3, .in = {D(0, 3), BELOW(1, INT32, 0), INT(INT32, 4)}}};
  TRY_ALL(cases);
}

/* ---- masks, scans, the largest ---- */

static void axis_0(shoal_builder *b) { shoal_build_int(b, "axis", 0); }
static void backwards(shoal_builder *b) {
  shoal_build_bool(b, "reverse", true);
  shoal_build_bool(b, "exclusive", true);
}
static void five(shoal_builder *b) { shoal_build_int(b, "k", 5); }

static void arrays(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "OneHot", .n_in = 4, .in = {BELOW(12, INT64, 31), INT(INT32, 10), SCALAR, SCALAR}, .types = PLAIN},
      {.op = "OneHot", .n_in = 4, .in = {BELOW(12, INT32, 3, 7), INT(INT32, 10), SCALAR, SCALAR}, .attrs = axis_0},
      {.op = "OneHot", .n_in = 4, .in = {INTS(INT32, 0, -1, 3), INT(INT32, 3), SCALAR, SCALAR}},
      {.op = "OneHot", .n_in = 4, .in = {BELOW(12, INT32, 0), INT(INT32, 3), SCALAR, SCALAR}},
      {.op = "Cumsum", .n_in = 2, .in = {D(7, 131), INT(INT32, 1)}, .types = DT_FLOATING | DT(INT64), .slack = 16},
      {.op = "Cumsum", .n_in = 2, .in = {D(7, 131), INT(INT32, 0)}, .types = DT_FLOATING | DT(INT64), .slack = 4},
      {.op = "Cumsum", .n_in = 2, .in = {D(7, 131), INT(INT32, -1)}, .attrs = backwards, .slack = 16},
      {.op = "Cumsum", .n_in = 2, .in = {D(7, 13, 5), INT(INT32, 1)}, .attrs = backwards, .slack = 4},
      {.op = "Cumprod", .n_in = 2, .in = {D(7, 31), INT(INT32, 1)}, .low = 0.9, .high = 1.1, .slack = 16},
      {.op = "TopKV2",
       .n_in = 2,
       .in = {D(7, 131), INT(INT32, 9)},
       .types = DT_FLOATING | DT(INT32) | DT(INT64),
       .n_out = 2},
      {.op = "TopKV2", .n_in = 2, .in = {D(700), INT(INT32, 1)}, .n_out = 2},
      {.op = "TopKV2", .n_in = 2, .in = {D(3, 5), INT(INT32, 5)}, .n_out = 2},
      {.op = "TopK", .n_in = 1, .in = {D(3, 40)}, .attrs = five, .n_out = 2},
      {.op = "InTopKV2", .n_in = 3, .in = {D(31, 40), BELOW(40, INT32, 31), INT(INT32, 7)}, .types = DT(FLOAT32)},
      {.op = "InTopK", .n_in = 2, .in = {D(31, 40), BELOW(44, INT64, 31)}, .attrs = five, .types = DT(FLOAT32)}};
  TRY_ALL(cases);
}

static void padding(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "PadV2",
       .n_in = 3,
       .in = {D(3, 5), {2, {2, 2}, .type = SHOAL_INT32, .values = {1, 2, 0, 3}}, SCALAR},
       .types = PLAIN},
      {.op = "Pad", .n_in = 2, .in = {D(3, 5), {2, {2, 2}, .type = SHOAL_INT32, .values = {1, 2, 0, 3}}}}};
  TRY_ALL(cases);
}

/* ---- variables ---- */

struct gpu_rows_case {
  const char *op;
  int n_vars, n_before, n_after; /* numbers before the gradient (or rows), and behind the indices */
  bool indices_first;            /* before the rows */
  int64_t rows, width, n;
  int step; /* there is a global step, at the end */
};

struct gpu_rows_made {
  shoal_op *update[2];
  shoal_out values[2][4];
};

static shoal_out values_of(shoal_graph *g, shoal_dtype t, int64_t rows, int64_t width) {
  struct gpu_case c = {.in = {{2, {rows, width}}}, .low = 0.1, .high = 0.9};
  return constant(g, &c, 0, t);
}

static shoal_out places_of(shoal_graph *g, int64_t n, int64_t rows) {
  struct gpu_case c = {.in = {{1, {n}, .type = SHOAL_INT32, .limit = (int)rows}}};
  return constant(g, &c, 0, SHOAL_INT32);
}

static shoal_out number_of(shoal_graph *g, shoal_dtype t) {
  struct gpu_case c = {.in = {SCALAR}, .low = 0.1, .high = 0.4};
  return constant(g, &c, 0, t);
}

static void build_rows(shoal_graph *g, const struct gpu_rows_case *first, const struct gpu_rows_case *u, shoal_dtype t,
                       int device, struct gpu_rows_made *made) {
  shoal_var vars[4];
  char name[64];
  seed = 11;
  shoal_push_device(g, devices[device]);
  for (int i = 0; i < u->n_vars; i++) {
    snprintf(name, sizeof name, "v%d_%s_%d_%d", (int)(u - first), shoal_dtype_name(t), device, i);
    vars[i] = shoal_variable(g, name, values_of(g, t, u->rows, u->width));
  }
  shoal_builder *b = shoal_build(g, u->op, NULL);
  for (int i = 0; i < u->n_vars; i++) shoal_build_input(b, vars[i].handle);
  for (int i = 0; i < u->n_before; i++) shoal_build_input(b, number_of(g, t));
  shoal_out rows = values_of(g, t, u->n, u->width), places = places_of(g, u->n, u->rows);
  shoal_build_input(b, u->indices_first ? places : rows);
  shoal_build_input(b, u->indices_first ? rows : places);
  for (int i = 0; i < u->n_after; i++) shoal_build_input(b, number_of(g, t));
  if (u->step) {
    struct gpu_case step = {.in = {INT(INT64, 3)}};
    shoal_build_input(b, constant(g, &step, 0, SHOAL_INT64));
  }
  made->update[device] = shoal_build_end(b);
  shoal_pop_device(g);
  shoal_push_device(g, devices[0]);
  for (int i = 0; i < u->n_vars; i++)
    made->values[device][i] = shoal_cast(g, shoal_read_variable_op(g, vars[i].handle, t), SHOAL_FLOAT64);
  shoal_pop_device(g);
}

static void hold_rows(shoal_session *s, const struct gpu_rows_case *u, shoal_dtype t, struct gpu_rows_made *made) {
  const struct gpu_case of = {.op = u->op, .slack = 32};
  for (int k = 0; k < 2; k++)
    for (int d = 0; d < 2; d++) {
      shoal_status e = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, made->update[d]);
      if (e) print_error("%s of %s: ", u->op, shoal_dtype_name(t));
      ASSERT_OK(e);
    }
  hold_outputs(s, &of, t, u->n_vars, made->values[0], made->values[1]);
}

static void try_all_rows(const struct gpu_rows_case *all, int n) {
  static const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_FLOAT64, SHOAL_FLOAT16, SHOAL_BFLOAT16};
  struct gpu_rows_made *made = mem_zalloc((size_t)n * 4, sizeof *made);
  shoal_graph *g = shoal_graph_new();
  for (int i = 0; i < n; i++)
    for (int t = 0; t < 4; t++)
      for (int d = 0; d < 2; d++) build_rows(g, all, &all[i], types[t], d, &made[4 * i + t]);
  shoal_op *init = shoal_initialize(g);
  shoal_session *s = open_cases(g);
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  for (int i = 0; i < n; i++)
    for (int t = 0; t < 4; t++) hold_rows(s, &all[i], types[t], &made[4 * i + t]);
  free(made);
  close_cases(g, s);
}

static void scatters(void **state) {
  static const struct gpu_rows_case all[] = {
      {"ResourceScatterUpdate", 1, 0, 0, true, 9, 5, 31, 0},  {"ResourceScatterAdd", 1, 0, 0, true, 9, 5, 31, 0},
      {"ResourceScatterAdd", 1, 0, 0, true, 700, 70, 300, 0}, {"ResourceScatterSub", 1, 0, 0, true, 9, 5, 31, 0},
      {"ResourceScatterMul", 1, 0, 0, true, 9, 5, 11, 0},     {"ResourceScatterMin", 1, 0, 0, true, 9, 5, 31, 0},
      {"ResourceScatterMax", 1, 0, 0, true, 9, 5, 31, 0},     {"ResourceScatterAdd", 1, 0, 0, true, 9, 5, 0, 0}};
  try_all_rows(all, (int)(sizeof all / sizeof *all));
}

/* Indices that are given twice are applied twice, in order. */
static void sparse_updates(void **state) {
  static const struct gpu_rows_case all[] = {
      {"ResourceSparseApplyProximalGradientDescent", 1, 3, 0, false, 9, 5, 14, 0},
      {"ResourceSparseApplyMomentum", 2, 1, 1, false, 9, 5, 14, 0},
      {"ResourceSparseApplyKerasMomentum", 2, 1, 1, false, 9, 5, 14, 0},
      {"ResourceSparseApplyAdagrad", 2, 1, 0, false, 9, 5, 14, 0},
      {"ResourceSparseApplyAdagrad", 2, 1, 0, false, 900, 70, 300, 0},
      {"ResourceSparseApplyAdagradV2", 2, 2, 0, false, 9, 5, 14, 0},
      {"ResourceSparseApplyProximalAdagrad", 2, 3, 0, false, 9, 5, 14, 0},
      {"ResourceSparseApplyAdagradDA", 3, 0, 3, false, 9, 5, 14, 1},
      {"ResourceSparseApplyAdadelta", 3, 3, 0, false, 9, 5, 14, 0},
      {"ResourceSparseApplyRMSProp", 3, 4, 0, false, 9, 5, 14, 0},
      {"ResourceSparseApplyRMSProp", 3, 4, 0, false, 9, 5, 0, 0}};
  try_all_rows(all, (int)(sizeof all / sizeof *all));
}

static void build_rows_read(shoal_graph *g, shoal_dtype t, int device, shoal_out *out) {
  char name[32];
  seed = 13;
  shoal_push_device(g, devices[device]);
  snprintf(name, sizeof name, "table%d_%s", device, shoal_dtype_name(t));
  shoal_var table = shoal_variable(g, name, values_of(g, t, 40, 24));
  shoal_builder *b = shoal_build(g, "ResourceGather", NULL);
  shoal_build_input(b, table.handle);
  shoal_build_input(b, places_of(g, 77, 40));
  shoal_build_type(b, "dtype", t);
  shoal_out rows = shoal_build_end_out(b);
  shoal_pop_device(g);
  shoal_push_device(g, devices[0]);
  *out = shoal_cast(g, rows, SHOAL_FLOAT64);
  shoal_pop_device(g);
}

static void rows_of_variables(void **state) {
  static const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_FLOAT64, SHOAL_FLOAT16, SHOAL_BFLOAT16};
  const struct gpu_case of = {.op = "ResourceGather"};
  shoal_graph *g = shoal_graph_new();
  shoal_out out[4][2];
  for (int t = 0; t < 4; t++)
    for (int d = 0; d < 2; d++) build_rows_read(g, types[t], d, &out[t][d]);
  shoal_op *init = shoal_initialize(g);
  shoal_session *s = open_cases(g);
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  for (int t = 0; t < 4; t++) hold_outputs(s, &of, types[t], 1, &out[t][0], &out[t][1]);
  close_cases(g, s);
}

/* ---- random numbers ---- */

static void seeds(shoal_builder *b) {
  shoal_build_int(b, "seed", 5);
  shoal_build_int(b, "seed2", 77);
  shoal_build_type(b, "dtype", building);
}
static void int_seeds(shoal_builder *b) {
  shoal_build_int(b, "seed", 5);
  shoal_build_int(b, "seed2", 77);
}
static void stateless(shoal_builder *b) { shoal_build_type(b, "dtype", building); }

static void random_numbers(void **state) {
#define SEED INTS(INT64, 123456789, -5)
#define SEED32 INTS(INT32, 12, -5)
  static const struct gpu_case cases[] = {
      {.op = "RandomUniform", .n_in = 1, .in = {INTS(INT32, 7, 131)}, .attrs = seeds},
      {.op = "RandomStandardNormal", .n_in = 1, .in = {INTS(INT32, 7, 131)}, .attrs = seeds},
      {.op = "TruncatedNormal", .n_in = 1, .in = {INTS(INT32, 7, 131)}, .attrs = seeds},
      {.op = "RandomUniform", .n_in = 1, .in = {INTS(INT32, 0, 131)}, .attrs = seeds},
      {.op = "StatelessRandomUniform", .n_in = 2, .in = {INTS(INT32, 7, 131), SEED}, .attrs = stateless},
      {.op = "StatelessRandomUniform", .n_in = 2, .in = {INTS(INT32, 7, 131), SEED32}, .attrs = stateless},
      {.op = "StatelessRandomNormal", .n_in = 2, .in = {INTS(INT32, 3), SEED}, .attrs = stateless},
      {.op = "StatelessTruncatedNormal", .n_in = 2, .in = {INTS(INT32, 7, 131), SEED}, .attrs = stateless},
      {.op = "StatelessRandomUniformInt",
       .n_in = 4,
       .in = {INTS(INT32, 7, 131), SEED, INT(INT32, 3), INT(INT32, 1000)},
       .types = DT(INT32)},
      {.op = "StatelessRandomUniformInt",
       .n_in = 4,
       .in = {INTS(INT32, 7, 131), SEED, INT(INT64, 3), INT(INT64, 1000)},
       .types = DT(INT64)},
      {.op = "RandomUniformInt",
       .n_in = 3,
       .in = {INTS(INT32, 7, 131), INT(INT32, -3), INT(INT32, 1000)},
       .attrs = int_seeds,
       .types = DT(INT32)},
      {.op = "RandomUniformInt",
       .n_in = 3,
       .in = {INTS(INT32, 7, 131), INT(INT64, -3), INT(INT64, 1000)},
       .attrs = int_seeds,
       .types = DT(INT64)}};
  TRY_ALL(cases);
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gathers),           cmocka_unit_test(segments),      cmocka_unit_test(arrays),
      cmocka_unit_test(padding),           cmocka_unit_test(scatters),      cmocka_unit_test(sparse_updates),
      cmocka_unit_test(rows_of_variables), cmocka_unit_test(random_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
