/* A device whose memory is full says so: which op asked, on which device, and who has the most; and a card that has
 * less than a program was promised. Then there is room again. */
#include "gpu_case.h"

#define MEGABYTE ((int64_t)1 << 20)

/* So many bytes of float32 on the GPU. */
static shoal_op *filled(shoal_graph *g, const char *name, int64_t bytes, shoal_op *after) {
  shoal_tensor *size;
  ASSERT_OK(shoal_tensor_from(SHOAL_INT64, 1, (int64_t[]){1}, (int64_t[]){bytes / 4}, sizeof(int64_t), &size));
  shoal_push_device(g, devices[0]);
  shoal_out n = shoal_constant(g, size), value = shoal_constant_float(g, 4);
  shoal_pop_device(g);
  shoal_tensor_unref(size);
  shoal_builder *b = shoal_build(g, "Fill", name);
  shoal_build_input(b, n);
  shoal_build_input(b, value);
  if (after) shoal_build_control(b, after);
  shoal_build_device(b, devices[1]);
  return shoal_build_end(b);
}

static shoal_session *open_on(shoal_graph *g, const char *memory) {
  shoal_session *s;
  ASSERT_OK(shoal_graph_error(g));
  setenv("SHOAL_VIRTUAL_DEVICES", memory, 1);
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = "all"), &s));
  unsetenv("SHOAL_VIRTUAL_DEVICES");
  return s;
}

static shoal_status run(shoal_session *s, const char *node) {
  return shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, &node, 1, NULL);
}

static void assert_says(shoal_status e, int n, const char *const *words) {
  assert_int_equal(shoal_status_code(e), SHOAL_RESOURCE_EXHAUSTED);
  for (int i = 0; i < n; i++)
    if (!strstr(shoal_status_message(e), words[i]))
      fail_msg("\"%s\" is not said: %s", words[i], shoal_status_message(e));
  shoal_status_free(e);
}

static void no_room_names_the_op_and_the_largest(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_op *a = filled(g, "a", 24 * MEGABYTE, NULL), *b = filled(g, "b", 8 * MEGABYTE, a);
  shoal_op *large = filled(g, "large", 104 * MEGABYTE, b);
  shoal_builder *last = shoal_build(g, "ConcatV2", "last"); /* what has a and b until large was asked for */
  shoal_push_device(g, devices[0]);
  shoal_out axis = shoal_constant_int(g, 0);
  shoal_pop_device(g);
  shoal_build_inputs(last, (shoal_out[]){{a, 0}, {b, 0}, {large, 0}}, 3);
  shoal_build_input(last, axis);
  shoal_build_device(last, devices[1]);
  shoal_build_end(last);
  shoal_session *s = open_on(g, "128"); /* of which a card's library has some */
  for (int i = 0; i < 3; i++) {
    assert_says(run(s, "last"), 6,
                (const char *const[]){"OOM when allocating a tensor of 109051904 bytes on ",
                                      "/device:GPU:0: ", " of 134217728 bytes are in use; most by ",
                                      "a (25165824 bytes)", "b (8388608 bytes)", "{{node large}}"});
    ASSERT_OK(run(s, "b"));
  }
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* More than any card has, though the account allows it. */
static void the_driver_has_no_more(void **state) {
  if (!cuda_card_count()) return;
  shoal_graph *g = shoal_graph_new();
  filled(g, "a", 24 * MEGABYTE, NULL);
  filled(g, "large", 3 * MEGABYTE * MEGABYTE, NULL);
  shoal_session *s = open_on(g, "4000000");
  for (int i = 0; i < 2; i++) {
    assert_says(run(s, "large"), 3,
                (const char *const[]){"OOM when allocating a tensor of 3298534883328 bytes on ",
                                      "the driver has no more", "{{node large}}"});
    ASSERT_OK(run(s, "a"));
  }
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(no_room_names_the_op_and_the_largest),
                                     cmocka_unit_test(the_driver_has_no_more)};
  if (!gpu_here()) return 1;
  return cmocka_run_group_tests_name("gpu_memory", tests, NULL, NULL);
}
