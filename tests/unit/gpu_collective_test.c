/* What devices of one card compute together, in its memory (collective/device_exchange.c): virtual GPUs beside as many
 * logical CPUs, bit for bit. */
#include "gpu_case.h"
#include "proto/config.wire.h"

enum { MOST_DEVICES = 9, ODD = 1027 };

struct kind {
  const char *op, *merge, *final; /* NULL: it merges nothing */
  uint32_t types;
};
#define NUMBERS (DT_FLOATING | DT(INT32) | DT(INT64))
static const struct kind kinds[] = {{"CollectiveReduce", "Add", "Id", NUMBERS},
                                    {"CollectiveReduce", "Add", "Div", NUMBERS},
                                    {"CollectiveReduce", "Mul", "Id", NUMBERS},
                                    {"CollectiveReduce", "Max", "Id", NUMBERS},
                                    {"CollectiveReduce", "Min", "Id", NUMBERS},
                                    {"CollectiveReduceScatterV2", "Add", "Div", DT(FLOAT32) | DT(BFLOAT16)},
                                    {"CollectiveAllToAllV2", NULL, NULL, DT(FLOAT32) | DT(INT64)},
                                    {"CollectiveGather", NULL, NULL, DT(FLOAT32) | DT(FLOAT64)},
                                    {"CollectiveBcastSend", NULL, NULL, DT(FLOAT32) | DT(INT64)}};

static bool is(const struct kind *k, const char *text) { return strstr(k->op, text); }

/* What member i of n brings. */
static shoal_out brought(shoal_graph *g, const char *device, const struct kind *k, shoal_dtype t, int n, int i) {
  int64_t dims[] = {is(k, "AllToAll") ? n : 2 * n, ODD};
  shoal_tensor *v;
  seed = (uint32_t)(17 * i + n);
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT64, 2, dims, &v));
  for (int64_t e = 0; e < shoal_tensor_elements(v); e++) ((double *)shoal_tensor_data(v))[e] = number(-9, 9);
  shoal_push_device(g, devices[0]);
  shoal_out x = shoal_cast(g, shoal_constant(g, v), t);
  shoal_pop_device(g);
  shoal_tensor_unref(v);
  if (!(DT_FLOATING >> t & 1)) return x;
  shoal_push_device(g, device); /* memory that the result may take the place of */
  x = shoal_neg(g, x);
  shoal_pop_device(g);
  return x;
}

static void add_keys(shoal_graph *g, shoal_builder *b, const struct kind *k, int n, int key) {
  int32_t keys[] = {n, n, key};
  for (int i = 0; i < 3 && is(k, "V2"); i++) shoal_build_input(b, shoal_constant_int(g, keys[i]));
  if (is(k, "V2")) return;
  shoal_build_int(b, "group_size", n);
  shoal_build_int(b, "group_key", n);
  shoal_build_int(b, "instance_key", key);
}

static shoal_out member(shoal_graph *g, const char *type, const struct kind *k, shoal_dtype t, int n, int i, int key) {
  char device[32];
  snprintf(device, sizeof device, "/device:%s:%d", type, i);
  bool receives = is(k, "Bcast") && i != n / 2;
  shoal_push_device(g, devices[0]);
  shoal_out x = receives ? (shoal_out){0} : brought(g, device, k, t, n, i);
  shoal_builder *b = shoal_build(g, receives ? "CollectiveBcastRecv" : k->op, NULL);
  if (!receives) shoal_build_input(b, x);
  add_keys(g, b, k, n, key);
  shoal_build_type(b, "T", t);
  if (k->merge) shoal_build_string(b, "merge_op", k->merge);
  if (k->merge) shoal_build_string(b, "final_op", k->final);
  if (!strcmp(k->op, "CollectiveReduce")) shoal_build_ints(b, "subdiv_offsets", (int64_t[]){0}, 1);
  int64_t rows = is(k, "Gather") ? 2 * n * n : 2 * n;
  if (is(k, "Gather") || is(k, "Bcast")) shoal_build_shape(b, "shape", 2, (int64_t[]){rows, ODD});
  shoal_build_device(b, device);
  shoal_out y = shoal_build_end_out(b);
  shoal_pop_device(g);
  return y;
}

static void compare(const struct kind *k, shoal_dtype t, int n, shoal_tensor *const *want, shoal_tensor *const *have) {
  for (int i = 0; i < n; i++) {
    size_t size = shoal_tensor_bytes(want[i]);
    assert_int_equal(size, shoal_tensor_bytes(have[i]));
    if (!memcmp(shoal_tensor_const_data(want[i]), shoal_tensor_const_data(have[i]), size)) continue;
    print_error("%s %s of %d in %s: member %d has other bits\n", k->op, k->merge ? k->merge : "", n,
                shoal_dtype_name(t), i);
    wrong++;
  }
}

static void run_members(shoal_session *s, const shoal_out *out, int n, shoal_tensor **values) {
  char names[MOST_DEVICES][64];
  const char *fetches[MOST_DEVICES];
  for (int i = 0; i < n; i++) {
    snprintf(names[i], sizeof names[i], "%s:0", shoal_op_name(out[i].node));
    fetches[i] = names[i];
  }
  ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, fetches, values, (size_t)n, NULL, 0, NULL));
}

/* Each case, twice: memory is used again. */
static void try_group(int n, const char *cards) {
  enum { CASES = sizeof kinds / sizeof *kinds, TYPES = 32 };
  static shoal_out out[CASES][TYPES][2][MOST_DEVICES];
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  int key = 1;
  if (cards) setenv("SHOAL_VIRTUAL_DEVICES", cards, 1);
  wrong = 0;
  for (int k = 0; k < CASES; k++)
    for (int t = 1; t < TYPES; t++)
      for (int d = 0; d < 2 && kinds[k].types >> t & 1; d++, key++)
        for (int i = 0; i < n; i++)
          out[k][t][d][i] = member(g, d ? "GPU" : "CPU", &kinds[k], (shoal_dtype)t, n, i, key);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = "all", .cpu_devices = n), &s));
  for (int k = 0; k < 2 * CASES; k++)
    for (int t = 1; t < TYPES; t++) {
      shoal_tensor *values[2][MOST_DEVICES];
      if (!(kinds[k / 2].types >> t & 1)) continue;
      for (int d = 0; d < 2; d++) run_members(s, out[k / 2][t][d], n, values[d]);
      compare(&kinds[k / 2], (shoal_dtype)t, n, values[0], values[1]);
      for (int d = 0; d < 2; d++)
        for (int i = 0; i < n; i++) shoal_tensor_unref(values[d][i]);
    }
  unsetenv("SHOAL_VIRTUAL_DEVICES");
  close_cases(g, s);
}

static void two(void **state) { try_group(2, "64+64"); }
static void three(void **state) { try_group(3, "64+64+64"); }
static void five(void **state) { try_group(5, "64+64+64+64+64"); }
static void nine(void **state) { try_group(9, "64+64+64+64+64+64+64+64+64"); } /* more than are unrolled */

/* Each a card of its own: values are copied from one to the other. */
static void on_two_cards(void **state) {
  if (cuda_card_count() == 1) return;
  if (!cuda_card_count()) setenv("SHOAL_SOFT_GPUS", "2", 1);
  try_group(2, NULL);
}

/* By the type's library, where a session asks for it: NCCL on cards, which wants each rank on one of its own. With one
 * card that is a group of one. Small whole numbers: a library adds in an order of its own. */
static void by_a_library(void **state) {
  int n = cuda_card_count() ? MIN(cuda_card_count(), 4) : 2;
  if (!cuda_card_count()) setenv("SHOAL_SOFT_GPUS", "2", 1);
  struct text config = {0};
  size_t experimental = begin_ConfigProto_experimental(&config);
  put_ConfigProto_Experimental_collective_nccl(&config, true);
  wire_end(&config, experimental);
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_out out[4];
  for (int i = 0; i < n; i++) {
    char device[32];
    snprintf(device, sizeof device, "/device:GPU:%d", i);
    shoal_push_device(g, device);
    shoal_out x =
        shoal_fill(g, shoal_constant_ints(g, SHOAL_SHAPE(1), (int32_t[]){ODD}), shoal_constant_float(g, (float)i));
    out[i] = shoal_collective_reduce(g, x, n, 1, 1, "Add", "Id", (int64_t[]){0}, 1);
    shoal_pop_device(g);
  }
  ASSERT_OK(shoal_graph_error(g));
  shoal_status e =
      shoal_session_open(g,
                         SHOAL_OPTIONS(shoal_session_options, .rewrites_off = "all", .allow_soft_placement = true,
                                       .config = config.at, .config_size = config.n),
                         &s);
  text_release(&config);
  if (shoal_status_code(e) == SHOAL_UNIMPLEMENTED) {
    print_message("# not tried: %s\n", shoal_status_message(e));
    shoal_status_free(e);
    shoal_graph_free(g);
    return;
  }
  ASSERT_OK(e);
  for (int k = 0; k < 3; k++) {
    shoal_tensor *values[MOST_DEVICES];
    run_members(s, out, n, values);
    for (int i = 0; i < n; i++) {
      const float *v = shoal_tensor_const_data(values[i]);
      for (int j = 0; j < ODD; j++) assert_true(v[j] == (float)(n * (n - 1) / 2));
      shoal_tensor_unref(values[i]);
    }
  }
  wrong = 0;
  close_cases(g, s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(two),          cmocka_unit_test(three),
                                     cmocka_unit_test(five),         cmocka_unit_test(nine),
                                     cmocka_unit_test(on_two_cards), cmocka_unit_test(by_a_library)};
  if (!gpu_here()) return 1;
  return cmocka_run_group_tests_name("gpu_collective", tests, NULL, NULL);
}
