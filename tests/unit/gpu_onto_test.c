/* A product with its bias, added to something (graph/rewrite_fuse_residual.c), on a GPU beside the CPU's single ops: to
 * what has its shape, and to what is spread. The card alone has such a product. */
#include "gpu_case.h"

enum { BATCH = 3, TIME = 5, IN = 24, OUT = 16 };

static bool has(const shoal_bytes *in, const char *text) { return memmem(in->data, in->size, text, strlen(text)); }

static shoal_tensor *numbers(int rank, const int64_t *dims) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, rank, dims, &t));
  for (int64_t i = 0; i < shoal_tensor_elements(t); i++) ((float *)shoal_tensor_data(t))[i] = (float)number(-1, 1);
  return t;
}

static shoal_out read_as(shoal_graph *g, const char *name, shoal_dtype type) {
  return shoal_cast(g, shoal_placeholder(g, SHOAL_FLOAT32, (shoal_dims){-1, NULL}, name), type);
}

/* onto + reshape(x w + bias), or the other way round. */
static shoal_tensor *run(const char *device, shoal_dtype type, int rank, const int64_t *dims, bool first, bool *fused) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_bytes trace = {0};
  seed = 1;
  shoal_push_device(g, device);
  shoal_out x = read_as(g, "x", type), w = read_as(g, "w", type), b = read_as(g, "b", type), h = read_as(g, "h", type);
  shoal_out y = shoal_bias_add(g, shoal_mat_mul(g, x, w), b);
  y = shoal_reshape(g, y, shoal_constant_ints(g, SHOAL_SHAPE(3), (int32_t[]){BATCH, TIME, OUT}));
  y = shoal_cast(g, first ? shoal_add_v2(g, h, y) : shoal_add_v2(g, y, h), SHOAL_FLOAT32);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true), &s));
  shoal_tensor *fed[] = {numbers(2, (int64_t[]){BATCH * TIME, IN}), numbers(2, (int64_t[]){IN, OUT}),
                         numbers(1, (int64_t[]){OUT}), numbers(rank, dims)};
  shoal_tensor *out;
  char name[128];
  snprintf(name, sizeof name, "%s:0", shoal_op_name(y.node));
  const char *feeds[] = {"x:0", "w:0", "b:0", "h:0"}, *fetches[] = {name};
  shoal_run_options o = {.trace_level = 3};
  ASSERT_OK(shoal_session_run(s, &o, feeds, fed, 4, fetches, &out, 1, NULL, 0, &trace));
  *fused = has(&trace, "= _MatMulOnto(");
  shoal_bytes_free(&trace);
  for (int i = 0; i < 4; i++) shoal_tensor_unref(fed[i]);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  return out;
}

static void try_one(shoal_dtype type, int rank, const int64_t *dims, bool first) {
  bool fused;
  shoal_tensor *want = run(devices[0], type, rank, dims, first, &fused);
  assert_false(fused);
  shoal_tensor *have = run(devices[1], type, rank, dims, first, &fused);
  if (cuda_api(NULL) && type != SHOAL_FLOAT16) assert_true(fused); /* fuse_bias leaves float16 alone */
  assert_int_equal(shoal_tensor_elements(want), shoal_tensor_elements(have));
  const float *a = shoal_tensor_const_data(want), *b = shoal_tensor_const_data(have);
  double most = type == SHOAL_FLOAT32 ? 5e-3 : 2 * tolerance(type); /* float32 is multiplied in TF32 */
  for (int64_t i = 0; i < shoal_tensor_elements(want); i++)
    if (!(fabs((double)a[i] - (double)b[i]) <= most * (1 + fabs((double)a[i]))))
      fail_msg("rank %d: element %d is %g, not %g", rank, (int)i, (double)b[i], (double)a[i]);
  shoal_tensor_unref(want);
  shoal_tensor_unref(have);
}

static void products(void **state) {
  static const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_BFLOAT16, SHOAL_FLOAT16};
  for (size_t t = 0; t < COUNT_OF(types); t++) {
    try_one(types[t], 3, (int64_t[]){BATCH, TIME, OUT}, true);
    try_one(types[t], 3, (int64_t[]){BATCH, TIME, OUT}, false);
    try_one(types[t], 2, (int64_t[]){TIME, OUT}, true);
    try_one(types[t], 3, (int64_t[]){1, 1, OUT}, false);
    try_one(types[t], 4, (int64_t[]){2, BATCH, TIME, OUT}, true);
    try_one(types[t], 0, NULL, true);
  }
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(products)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
