/* What a card has no kernel of its own for, and is asked to do by name: the CPU's kernels, over the host's memory
 * (src/runtime/kernel_lent.c). See gpu_case.h. */
#include "gpu_case.h"

#define TWO_INTS(op_) \
  { .op = op_, .n_in = 2, .in = {D(7, 13), BELOW(9, INT32, 7, 13)}, .types = DT(INT32) }

static void numbers_of_the_host(void **state) {
  static const struct gpu_case cases[] = {
      TWO_INTS("AddV2"),
      TWO_INTS("Sub"),
      TWO_INTS("Mul"),
      TWO_INTS("Maximum"),
      TWO_INTS("Less"),
      {.op = "Sum", .n_in = 2, .in = {D(7, 13), INT(INT32, 1)}, .types = DT(INT32)},
      {.op = "Cumsum", .n_in = 2, .in = {D(7, 13), INT(INT32, 0)}, .types = DT(INT32)},
      {.op = "ClipByValue", .n_in = 3, .in = {D(7, 13), SCALAR, SCALAR}, .types = DT(INT32)},
      {.op = "GatherV2", .n_in = 3, .in = {D(9, 5), BELOW(9, INT32, 31), INT(INT32, 0)}, .types = DT(INT32)},
      {.op = "Bincount", .n_in = 3, .in = {BELOW(9, INT32, 40), INT(INT32, 9), D(40)}, .types = DT(FLOAT32)},
  };
  TRY_ALL(cases);
}

static void along_1(shoal_builder *b) { shoal_build_int(b, "seq_dim", 1); }

static void functions_and_matrices(void **state) {
  static const struct gpu_case cases[] = {
      TWO("Atan2", .types = DT(FLOAT32) | DT(FLOAT64)),
      ONE("Lgamma", POSITIVE, .types = DT(FLOAT32) | DT(FLOAT64)),
      ONE("Digamma", POSITIVE, .types = DT(FLOAT32) | DT(FLOAT64), .slack = 4),
      {.op = "MatrixDeterminant", .n_in = 1, .in = {D(3, 4, 4)}, .types = DT(FLOAT64), .slack = 16},
      {.op = "MatrixInverse", .n_in = 1, .in = {D(5, 5)}, .types = DT(FLOAT64), .slack = 64},
      {.op = "ScatterNd", .n_in = 3, .in = {BELOW(6, INT32, 3, 1), D(3), INTS(INT32, 6)}, .types = DT(FLOAT32)},
      {.op = "ReverseSequence",
       .n_in = 2,
       .in = {D(3, 7), INTS(INT64, 2, 7, 1)},
       .types = DT(FLOAT32),
       .attrs = along_1},
  };
  TRY_ALL(cases);
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_of_the_host), cmocka_unit_test(functions_and_matrices)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
