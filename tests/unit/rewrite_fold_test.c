/* Constants found before a step is compiled: src/graph/rewrite_fold.c. */
#include "unit.h"

#include <shoal/shoal.h>

/* Ones like what is fed, or like the mean of what is made of it: the first of them, and whether they were left to be
 * made in the step. */
static float ones_like(bool mean, bool *made) {
  static const char op[] = "\022\010OnesLike"; /* NodeDef's op, with its tag and length */
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *w, *x, *y;
  shoal_bytes parts = {0};
  const char *feed = "x:0";
  shoal_out in = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 2), "x");
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){2, 1}, &w));
  shoal_out of = mean ? shoal_reduce_mean(g, shoal_mat_mul(g, in, shoal_constant(g, w))) : in;
  const char *fetch = shoal_op_name(shoal_ones_like(g, of).node);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){3, 2}, &x));
  shoal_run_options o = {.output_partition_graphs = true};
  ASSERT_OK(shoal_session_run(s, &o, &feed, &x, 1, &fetch, &y, 1, NULL, 0, &parts));
  *made = memmem(parts.data, parts.size, op, sizeof op - 1) != NULL;
  float first = *(const float *)shoal_tensor_const_data(y);
  shoal_bytes_free(&parts);
  shoal_tensor_unref(w);
  shoal_tensor_unref(x);
  shoal_tensor_unref(y);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  return first;
}

static void ones_of_a_known_shape_are_constants(void **state) {
  bool made;
  assert_float_equal(ones_like(true, &made), 1, 0);
  assert_false(made);
  assert_float_equal(ones_like(false, &made), 1, 0);
  assert_true(made);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ones_of_a_known_shape_are_constants)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
