/* A product that leads back to a GELU, with the GELU's gradient in it (graph/rewrite_fuse_gelu_grad.c), beside single
 * ops. The card alone has such a product: without one this tries what stands in for it. */
#include "gpu_case.h"

enum { MIDDLE = 24 };

static bool has(const shoal_bytes *in, const char *text) { return memmem(in->data, in->size, text, strlen(text)); }

static shoal_out numbers(shoal_graph *g, shoal_dtype type, int64_t rows, int64_t columns) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){rows, columns}, &t));
  for (int64_t i = 0; i < rows * columns; i++) ((float *)shoal_tensor_data(t))[i] = (float)number(-2, 2);
  shoal_out o = shoal_cast(g, shoal_constant(g, t), type);
  shoal_tensor_unref(t);
  return o;
}

/* The gradient of sum(gelu(x) * w * by) by x; x is known when it runs, so that nothing is computed beforehand. */
static shoal_tensor *gradient(shoal_dtype type, int64_t rows, int64_t wide, const char *off, bool *fused) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *fed, *out;
  shoal_bytes trace = {0};
  shoal_gradient dx;
  seed = 1;
  shoal_push_device(g, devices[1]);
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){rows, wide}, &fed));
  for (int64_t i = 0; i < rows * wide; i++) ((float *)shoal_tensor_data(fed))[i] = (float)number(-3, 3);
  shoal_out in = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(rows, wide), "x");
  shoal_out dims = shoal_constant_ints(g, SHOAL_SHAPE(2), (int32_t[]){(int32_t)rows, (int32_t)wide});
  shoal_out x = shoal_cast(g, shoal_reshape(g, in, dims), type);
  shoal_out y = shoal_mat_mul(g, shoal_gelu(g, x), numbers(g, type, wide, MIDDLE));
  shoal_out sum = shoal_reduce_sum(g, shoal_mul(g, y, numbers(g, type, rows, MIDDLE)));
  shoal_gradients(g, &sum, 1, &in, 1, NULL, &dx);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(
      g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true, .rewrites_off = off), &s));
  char name[128];
  snprintf(name, sizeof name, "%s:%d", shoal_op_name(dx.values.node), dx.values.index);
  const char *feeds[] = {"x:0"}, *fetches[] = {name};
  shoal_run_options o = {.trace_level = 3};
  ASSERT_OK(shoal_session_run(s, &o, feeds, &fed, 1, fetches, &out, 1, NULL, 0, &trace));
  *fused = has(&trace, "= _MatMulGeluGrad(");
  shoal_bytes_free(&trace);
  shoal_tensor_unref(fed);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  return out;
}

static void try_one(shoal_dtype type, int64_t rows, int64_t wide, bool may) {
  bool fused;
  shoal_tensor *want = gradient(type, rows, wide, "all", &fused);
  assert_false(fused);
  shoal_tensor *have = gradient(type, rows, wide, NULL, &fused);
  if (cuda_api(NULL)) assert_int_equal(fused, may);
  const float *a = shoal_tensor_const_data(want), *b = shoal_tensor_const_data(have);
  for (int64_t i = 0; i < rows * wide; i++)
    if (!(fabs((double)a[i] - (double)b[i]) <= 3 * tolerance(type) * (1 + fabs((double)a[i]))))
      fail_msg("%d by %d: element %d is %g, not %g", (int)rows, (int)wide, (int)i, (double)b[i], (double)a[i]);
  shoal_tensor_unref(want);
  shoal_tensor_unref(have);
}

static void products(void **state) {
  try_one(SHOAL_BFLOAT16, 64, 128, true);
  try_one(SHOAL_BFLOAT16, 3, 40, true);
  try_one(SHOAL_FLOAT16, 17, 72, true);
  try_one(SHOAL_BFLOAT16, 5, 13, false);
  try_one(SHOAL_FLOAT32, 16, 32, false);
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(products)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
