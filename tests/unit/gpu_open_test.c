/* A card is opened when something is first computed there, and not by sessions that have it and do not use it. Without
 * a card on the soft device, of which it can only be told that nobody opens a card for it. */
#include "gpu_case.h"

#include "device/cuda/cuda.h"

static float sum_on(const char *device) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  float out;
  shoal_push_device(g, device);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(), "x");
  shoal_out y = shoal_add_v2(g, x, shoal_constant_float(g, 2));
  shoal_pop_device(g);
  shoal_tensor *x_value;
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &(float){40}, sizeof(float), &x_value));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true), &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_FEED(x, x_value), SHOAL_FETCH(y, &out), NULL));
  ASSERT_OK(shoal_session_close(s));
  shoal_tensor_unref(x_value);
  shoal_graph_free(g);
  return out;
}

static void when_first_used(void **state) {
  bool card = cuda_api(NULL) != NULL;
  assert_float_equal(sum_on(devices[0]), 42, 0);
  assert_int_equal(cuda_opened(), 0);
  assert_float_equal(sum_on(devices[1]), 42, 0);
  assert_int_equal(cuda_opened(), card);
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(when_first_used)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
