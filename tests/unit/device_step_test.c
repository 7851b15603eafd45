/* Steps on a device whose memory is not the host's, as a whole: how they begin, wait and end. On the soft device
 * (src/device/soft). */
#include "unit.h"

#include <shoal/shoal.h>

static int count(const shoal_bytes *in, const char *text) {
  int n = 0;
  const char *at = in->data, *end = at + in->size;
  for (; (at = memmem(at, (size_t)(end - at), text, strlen(text))); at++) n++;
  return n;
}

/* Fed and fetched: one plan, in which nobody sends or receives, and whose end alone waits. */
static void feeds_and_fetches_are_where_they_are_used(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *x, *y;
  shoal_bytes trace = {0};
  const char *feed = "x:0";
  shoal_push_device(g, "/device:GPU:0");
  shoal_out in = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(2), "x");
  const char *fetch = shoal_op_name(shoal_add_v2(g, in, in).node);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = "all"), &s));
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 1, (int64_t[]){2}, (float[]){1, 2}, 8, &x));
  shoal_run_options o = {.trace_level = 3, .output_partition_graphs = true};
  ASSERT_OK(shoal_session_run(s, &o, &feed, &x, 1, &fetch, &y, 1, NULL, 0, &trace));
  const float *values = shoal_tensor_const_data(y);
  assert_float_equal(values[0], 2, 0);
  assert_float_equal(values[1], 4, 0);
  assert_int_equal(count(&trace, "_Recv"), 0);
  assert_int_equal(count(&trace, "_Send"), 0);
  assert_int_equal(count(&trace, "_to_host = _ToHostAtEnd"), 1);
  shoal_bytes_free(&trace);
  shoal_tensor_unref(x);
  shoal_tensor_unref(y);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

int main(void) {
  setenv("SHOAL_SOFT_GPUS", "1", 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(feeds_and_fetches_are_where_they_are_used)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
