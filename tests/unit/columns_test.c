/* Feature columns as C programs have them: normalizers, and sets that keep the first mistake. (Values beside
 * TensorFlow's: tests/interop/columns_test.py.) */
#include "unit.h"

#include <string.h>

#include <shoal/shoal.h>

static shoal_out by_ten(shoal_graph *g, shoal_out x, void *arg) {
  ++*(int *)arg;
  return shoal_real_div(g, x, shoal_constant_float(g, 10));
}

static void a_normalizer_comes_first(void **state) {
  shoal_columns *c = shoal_columns_new();
  shoal_graph *g = shoal_graph_new();
  int calls = 0;
  const shoal_column *age =
      shoal_column_numeric(c, "age", SHOAL_OPTIONS(shoal_numeric_options, .normalizer = by_ten, .arg = &calls));
  const float bounds[] = {2.5F};
  const shoal_column *columns[] = {age, shoal_column_bucketized(c, age, bounds, 1)};
  const float ages[] = {20, 30};
  const shoal_named_feature in = {.name = "age", .values = shoal_constant_floats(g, SHOAL_SHAPE(2), ages)};
  shoal_out x = shoal_input_layer(g, &in, 1, columns, 2, NULL);
  assert_null(shoal_columns_error(c));
  ASSERT_OK(shoal_graph_error(g));
  assert_int_equal(calls, 2); /* once for each column that is made of it */
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  shoal_tensor *got;
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(x, &got), NULL));
  const float wanted[] = {2, 1, 0, 3, 0, 1};
  assert_int_equal(shoal_tensor_bytes(got), sizeof wanted);
  assert_memory_equal(shoal_tensor_const_data(got), wanted, sizeof wanted);
  shoal_tensor_unref(got);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  shoal_columns_free(c);
}

static void the_first_mistake_stays(void **state) {
  shoal_columns *c = shoal_columns_new(), *other = shoal_columns_new();
  shoal_graph *g = shoal_graph_new();
  const shoal_column *gone =
      shoal_column_vocabulary(c, "job", SHOAL_OPTIONS(shoal_vocabulary, .path = "/nowhere/words"));
  const shoal_column *marks = shoal_column_indicator(c, gone);
  shoal_column_identity(c, "n", 0, -1);
  assert_non_null(strstr(shoal_status_message(shoal_columns_error(c)), "/nowhere/words"));
  assert_int_equal(shoal_status_code(shoal_columns_error(c)), SHOAL_NOT_FOUND);
  assert_string_equal(shoal_column_name(marks), "job_indicator");
  assert_null(shoal_input_layer(g, NULL, 0, &marks, 1, NULL).node);
  assert_int_equal(shoal_status_code(shoal_graph_error(g)), SHOAL_NOT_FOUND);
  shoal_column_indicator(other, gone);
  assert_non_null(strstr(shoal_status_message(shoal_columns_error(other)), "another set"));
  shoal_graph_free(g);
  shoal_columns_free(c);
  shoal_columns_free(other);
}

static void a_word_has_one_id(void **state) {
  const char *const words[] = {"a", "b", "a"};
  const int64_t numbers[] = {7, -3, 5, -3};
  shoal_columns *c = shoal_columns_new(), *other = shoal_columns_new(), *fine = shoal_columns_new();
  shoal_column_vocabulary(c, "job", SHOAL_OPTIONS(shoal_vocabulary, .words = words, .n = 3));
  ASSERT_FAILS(status_copy(shoal_columns_error(c)), SHOAL_INVALID_ARGUMENT, "the vocabulary of 'job' has 'a' twice");
  shoal_column_vocabulary(other, "n", SHOAL_OPTIONS(shoal_vocabulary, .numbers = numbers, .n = 4));
  ASSERT_FAILS(status_copy(shoal_columns_error(other)), SHOAL_INVALID_ARGUMENT, "the vocabulary of 'n' has -3 twice");
  shoal_column_vocabulary(fine, "job", SHOAL_OPTIONS(shoal_vocabulary, .words = words, .n = 2));
  shoal_column_vocabulary(fine, "n", SHOAL_OPTIONS(shoal_vocabulary, .numbers = numbers, .n = 3));
  assert_null(shoal_columns_error(fine));
  shoal_columns_free(c);
  shoal_columns_free(other);
  shoal_columns_free(fine);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_normalizer_comes_first),
      cmocka_unit_test(the_first_mistake_stays),
      cmocka_unit_test(a_word_has_one_id),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
