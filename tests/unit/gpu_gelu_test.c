/* A product with a GELU behind it (graph/rewrite_fuse_gelu.c), and one that leads back to a GELU, with the GELU's
 * gradient in it (graph/rewrite_fuse_gelu_grad.c), beside single ops: on the CPU, and on a card or what stands in for
 * one. */
#include "gpu_case.h"

enum { MIDDLE = 24 };

static bool has(const shoal_bytes *in, const char *text) { return memmem(in->data, in->size, text, strlen(text)); }

static shoal_tensor *numbers(int64_t rows, int64_t columns) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){rows, columns}, &t));
  for (int64_t i = 0; i < rows * columns; i++) ((float *)shoal_tensor_data(t))[i] = (float)number(-2, 2);
  return t;
}

/* Fed, so that nothing is computed beforehand, and of a known shape. */
static shoal_out fed_as(shoal_graph *g, const char *name, shoal_dtype type, int64_t rows, int64_t columns,
                        shoal_out *fed) {
  *fed = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(rows, columns), name);
  shoal_out dims = shoal_constant_ints(g, SHOAL_SHAPE(2), (int32_t[]){(int32_t)rows, (int32_t)columns});
  return shoal_cast(g, shoal_reshape(g, *fed, dims), type);
}

/* The gradient of sum(gelu(x) * w * by) by x. */
static shoal_tensor *gradient(const char *device, shoal_dtype type, int64_t rows, int64_t wide, const char *off,
                              bool *fused) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *out[2];
  shoal_bytes trace = {0};
  shoal_gradient dx;
  seed = 1;
  shoal_tensor *fed[] = {numbers(rows, wide), numbers(wide, MIDDLE), numbers(rows, MIDDLE)};
  shoal_push_device(g, device);
  shoal_out in, w, by, x = fed_as(g, "x", type, rows, wide, &in);
  shoal_out y = shoal_mat_mul(g, shoal_gelu(g, x), fed_as(g, "w", type, wide, MIDDLE, &w));
  shoal_out sum = shoal_reduce_sum(g, shoal_mul(g, y, fed_as(g, "by", type, rows, MIDDLE, &by)));
  shoal_gradients(g, &sum, 1, &in, 1, NULL, &dx);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(
      g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true, .rewrites_off = off), &s));
  char names[2][128]; /* the sum too: without the way there the way back is no layer's */
  snprintf(names[0], sizeof names[0], "%s:%d", shoal_op_name(dx.values.node), dx.values.index);
  snprintf(names[1], sizeof names[1], "%s:%d", shoal_op_name(sum.node), sum.index);
  const char *feeds[] = {"x:0", "w:0", "by:0"}, *fetches[] = {names[0], names[1]};
  shoal_run_options o = {.trace_level = 3};
  ASSERT_OK(shoal_session_run(s, &o, feeds, fed, 3, fetches, out, 2, NULL, 0, &trace));
  *fused = has(&trace, "= _MatMulGeluGrad(");
  shoal_bytes_free(&trace);
  for (int i = 0; i < 3; i++) shoal_tensor_unref(fed[i]);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  shoal_tensor_unref(out[1]);
  return out[0];
}

/* What two ways to compute may differ by: cards multiply floats in TF32. */
static double between(const char *device, shoal_dtype type) {
  return tolerance(device == devices[1] && type == SHOAL_FLOAT32 ? SHOAL_FLOAT16 : type);
}

/* on_card: is it one node there? On the CPU all are. */
static void try_on(const char *device, shoal_dtype type, int64_t rows, int64_t wide, bool on_card) {
  bool fused;
  shoal_tensor *want = gradient(device, type, rows, wide, "all", &fused);
  assert_false(fused);
  shoal_tensor *have = gradient(device, type, rows, wide, NULL, &fused);
  if (device == devices[0]) assert_true(fused);
  else if (cuda_api(NULL)) assert_int_equal(fused, on_card);
  const float *a = shoal_tensor_const_data(want), *b = shoal_tensor_const_data(have);
  double top = largest(a, rows * wide); /* what is small is the rest of larger numbers, which single ops round */
  for (int64_t i = 0; i < rows * wide; i++)
    if (!(fabs((double)a[i] - (double)b[i]) <= between(device, type) * (1 + top)))
      fail_msg("%d by %d: element %d is %g, not %g", (int)rows, (int)wide, (int)i, (double)b[i], (double)a[i]);
  shoal_tensor_unref(want);
  shoal_tensor_unref(have);
}

static void try_one(shoal_dtype type, int64_t rows, int64_t wide, bool on_card) {
  for (int d = 0; d < 2; d++) try_on(devices[d], type, rows, wide, on_card);
}

/* gelu(x w + bias), the gradient of its sum by x, and x w + bias. */
static void there_and_back(const char *device, shoal_dtype type, int64_t rows, int64_t wide, const char *off,
                           bool *fused, shoal_tensor *out[3]) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_bytes trace = {0};
  shoal_gradient dx;
  seed = 1;
  shoal_tensor *fed[] = {numbers(rows, MIDDLE), numbers(MIDDLE, wide), numbers(1, wide)};
  shoal_push_device(g, device);
  shoal_out in, w, b, x = fed_as(g, "x", type, rows, MIDDLE, &in);
  shoal_out product = shoal_mat_mul(g, x, fed_as(g, "w", type, MIDDLE, wide, &w));
  shoal_out flat = shoal_constant_ints(g, SHOAL_SHAPE(1), (int32_t[]){(int32_t)wide});
  shoal_out bias = shoal_reshape(g, fed_as(g, "b", type, 1, wide, &b), flat);
  shoal_out before = shoal_bias_add(g, product, bias), y = shoal_gelu(g, before), sum = shoal_reduce_sum(g, y);
  shoal_gradients(g, &sum, 1, &in, 1, NULL, &dx);
  shoal_out fetched[] = {shoal_cast(g, y, SHOAL_FLOAT32), dx.values, shoal_cast(g, before, SHOAL_FLOAT32)};
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(
      g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true, .rewrites_off = off), &s));
  char names[3][128];
  for (int i = 0; i < 3; i++)
    snprintf(names[i], sizeof names[i], "%s:%d", shoal_op_name(fetched[i].node), fetched[i].index);
  const char *feeds[] = {"x:0", "w:0", "b:0"}, *fetches[] = {names[0], names[1], names[2]};
  shoal_run_options o = {.trace_level = 3};
  ASSERT_OK(shoal_session_run(s, &o, feeds, fed, 3, fetches, out, 3, NULL, 0, &trace));
  *fused = has(&trace, "= _MatMulGelu(");
  shoal_bytes_free(&trace);
  for (int i = 0; i < 3; i++) shoal_tensor_unref(fed[i]);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

static void forward_on(const char *device, shoal_dtype type, int64_t rows, int64_t wide, bool on_card) {
  shoal_tensor *want[3], *have[3];
  bool fused;
  there_and_back(device, type, rows, wide, "all", &fused, want);
  assert_false(fused);
  there_and_back(device, type, rows, wide, NULL, &fused, have);
  if (device == devices[0]) assert_true(fused);
  else if (cuda_api(NULL)) assert_int_equal(fused, on_card);
  for (int k = 0; k < 3; k++) {
    const float *a = shoal_tensor_const_data(want[k]), *b = shoal_tensor_const_data(have[k]);
    double top = largest(a, shoal_tensor_elements(want[k]));
    for (int64_t i = 0; i < shoal_tensor_elements(want[k]); i++)
      if (!(fabs((double)a[i] - (double)b[i]) <= 2 * between(device, type) * (1 + top)))
        fail_msg("%d by %d: element %d is %g, not %g", (int)rows, (int)wide, (int)i, (double)b[i], (double)a[i]);
    shoal_tensor_unref(want[k]);
    shoal_tensor_unref(have[k]);
  }
}

static void try_forward(shoal_dtype type, int64_t rows, int64_t wide, bool on_card) {
  for (int d = 0; d < 2; d++) forward_on(devices[d], type, rows, wide, on_card);
}

static void forward(void **state) {
  try_forward(SHOAL_BFLOAT16, 64, 128, true);
  try_forward(SHOAL_BFLOAT16, 3, 40, true);
  try_forward(SHOAL_BFLOAT16, 5, 13, false);
  try_forward(SHOAL_BFLOAT16, 130, 1600, true);
  try_forward(SHOAL_FLOAT32, 33, 45, false);
}

static void products(void **state) {
  try_one(SHOAL_BFLOAT16, 64, 128, true);
  try_one(SHOAL_BFLOAT16, 3, 40, true);
  try_one(SHOAL_FLOAT16, 17, 72, true);
  try_one(SHOAL_BFLOAT16, 5, 13, false);
  try_one(SHOAL_BFLOAT16, 130, 1600, true);
  try_one(SHOAL_FLOAT32, 16, 32, false);
  try_one(SHOAL_FLOAT32, 2, 1100, false);
}

/* One behind another: each reads what the other has become. */
static void chains(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_gradient dx;
  shoal_out in, at[3], sum;
  seed = 1;
  shoal_tensor *fed[] = {numbers(16, 32), numbers(32, 32), numbers(32, 32), numbers(16, 32)}, *out[2];
  shoal_push_device(g, devices[1]);
  shoal_out x = fed_as(g, "x", SHOAL_BFLOAT16, 16, 32, &in);
  shoal_out y = shoal_gelu(g, shoal_gelu(g, x));
  y = shoal_gelu(g, shoal_mat_mul(g, y, fed_as(g, "v", SHOAL_BFLOAT16, 32, 32, &at[0])));
  y = shoal_gelu(g, shoal_mat_mul(g, y, fed_as(g, "w", SHOAL_BFLOAT16, 32, 32, &at[1])));
  sum = shoal_reduce_sum(g, shoal_mul(g, y, fed_as(g, "by", SHOAL_BFLOAT16, 16, 32, &at[2])));
  shoal_gradients(g, &sum, 1, &in, 1, NULL, &dx);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true), &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_FEED(in, fed[0], at[0], fed[1], at[1], fed[2], at[2], fed[3]),
                               SHOAL_FETCH(dx.values, &out[0], sum, &out[1]), NULL));
  for (int i = 0; i < 4; i++) shoal_tensor_unref(fed[i]);
  for (int i = 0; i < 2; i++) shoal_tensor_unref(out[i]);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

static shoal_tensor *shaped(int rank, const int64_t *dims) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, rank, dims, &t));
  for (int64_t i = 0; i < shoal_tensor_elements(t); i++) ((float *)shoal_tensor_data(t))[i] = (float)number(-2, 2);
  return t;
}

/* What turns out to be many matrices has its bias, too; on the CPU, whose MatMul takes them. */
static void batches(void **state) {
  shoal_tensor *out[2];
  for (int fused = 0; fused < 2; fused++) {
    shoal_graph *g = shoal_graph_new();
    shoal_session *s;
    shoal_out in[3];
    seed = 1;
    shoal_tensor *fed[] = {shaped(3, (int64_t[]){2, 3, 4}), shaped(3, (int64_t[]){2, 4, 5}), shaped(1, (int64_t[]){5})};
    shoal_push_device(g, devices[0]);
    for (int i = 0; i < 3; i++) in[i] = shoal_placeholder(g, SHOAL_FLOAT32, (shoal_dims){.rank = -1}, NULL);
    shoal_out y = shoal_bias_add(g, shoal_mat_mul(g, in[0], in[1]), in[2]);
    shoal_pop_device(g);
    ASSERT_OK(shoal_graph_error(g));
    ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = fused ? NULL : "all"), &s));
    ASSERT_OK(shoal_session_step(s, SHOAL_FEED(in[0], fed[0], in[1], fed[1], in[2], fed[2]),
                                 SHOAL_FETCH(y, &out[fused]), NULL));
    for (int i = 0; i < 3; i++) shoal_tensor_unref(fed[i]);
    ASSERT_OK(shoal_session_close(s));
    shoal_graph_free(g);
  }
  const float *want = shoal_tensor_const_data(out[0]), *have = shoal_tensor_const_data(out[1]);
  assert_int_equal(shoal_tensor_elements(out[1]), 30);
  for (int i = 0; i < 30; i++) assert_true(fabsf(want[i] - have[i]) < 1e-4f);
  for (int i = 0; i < 2; i++) shoal_tensor_unref(out[i]);
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(products), cmocka_unit_test(forward), cmocka_unit_test(chains),
                                     cmocka_unit_test(batches)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
