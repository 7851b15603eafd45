/* Softmax with a mask and its gradient on a GPU, one kernel each (graph/rewrite_fuse_softmax.c), beside the CPU's
 * single ops: rows that a warp holds, that a block holds, and that are too long or odd for either. Without a card on
 * the soft device. */
#include "gpu_case.h"

struct result {
  shoal_tensor *y, *dx;
  bool fused;
};

static bool has(const shoal_bytes *in, const char *text) { return memmem(in->data, in->size, text, strlen(text)); }

static shoal_tensor *numbers(int rank, const int64_t *dims, int salt) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, rank, dims, &t));
  for (int64_t i = 0; i < shoal_tensor_elements(t); i++)
    ((float *)shoal_tensor_data(t))[i] = (float)((i * 7919 + salt * 131) % 1009) / 252 - 2;
  return t;
}

/* What is fed has a shape of its own: here it is known. */
static shoal_out shaped(shoal_graph *g, shoal_out x, shoal_dtype type, shoal_dims dims) {
  int32_t to[SHOAL_MAX_RANK];
  for (int i = 0; i < dims.rank; i++) to[i] = (int32_t)dims.at[i];
  return shoal_cast(g, shoal_reshape(g, x, shoal_constant_ints(g, SHOAL_SHAPE(dims.rank), to)), type);
}

/* y = softmax(x + mask), and the gradient of sum(y * w) by x. */
static struct result run(const char *device, shoal_dtype type, const int64_t dims[3]) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *x = numbers(3, dims, 1), *mask = numbers(2, dims + 1, 2), *w = numbers(3, dims, 3);
  struct result r;
  shoal_bytes trace = {0};
  shoal_push_device(g, device);
  shoal_dims shape = {3, dims}, mask_shape = {2, dims + 1};
  shoal_out px = shoal_placeholder(g, SHOAL_FLOAT32, shape, "x");
  shoal_out pm = shoal_placeholder(g, SHOAL_FLOAT32, mask_shape, "mask");
  shoal_out pw = shoal_placeholder(g, SHOAL_FLOAT32, shape, "w");
  shoal_out x3 = shaped(g, px, type, shape), m2 = shaped(g, pm, type, mask_shape);
  shoal_out y = shoal_softmax(g, shoal_add_v2(g, x3, m2));
  shoal_out sum = shoal_reduce_sum(g, shoal_mul(g, y, shaped(g, pw, type, shape)));
  shoal_gradient dx;
  shoal_gradients(g, &sum, 1, &px, 1, NULL, &dx);
  shoal_out wide = shoal_cast(g, y, SHOAL_FLOAT32);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true), &s));
  char names[5][128];
  const shoal_out outs[] = {px, pm, pw, wide, dx.values};
  const char *at[5];
  for (int i = 0; i < 5; i++) {
    snprintf(names[i], sizeof names[i], "%s:%d", shoal_op_name(outs[i].node), outs[i].index);
    at[i] = names[i];
  }
  shoal_run_options o = {.trace_level = 3};
  shoal_tensor *feeds[] = {x, mask, w}, *fetched[2];
  ASSERT_OK(shoal_session_run(s, &o, at, feeds, 3, at + 3, fetched, 2, NULL, 0, &trace));
  r = (struct result){fetched[0], fetched[1], has(&trace, "= _MaskedSoftmax(") && has(&trace, "= _SoftmaxGrad(")};
  shoal_bytes_free(&trace);
  for (int i = 0; i < 3; i++) shoal_tensor_unref(feeds[i]);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  return r;
}

static void hold_one(const shoal_tensor *want, const shoal_tensor *have, shoal_dtype t, int64_t columns) {
  const float *a = shoal_tensor_const_data(want), *b = shoal_tensor_const_data(have);
  for (int64_t i = 0; i < shoal_tensor_elements(want); i++)
    if (!(fabs((double)a[i] - (double)b[i]) <= tolerance(t) * (0.2 + fabs((double)a[i]))))
      fail_msg("rows of %d: element %d is %g, not %g", (int)columns, (int)i, (double)b[i], (double)a[i]);
}

static void rows(void **state) {
  static const int64_t dims[][3] = {{3, 5, 8},    {2, 7, 64},   {2, 3, 1024}, {1, 9, 1032},
                                    {2, 2, 8192}, {2, 2, 8200}, {3, 5, 13}};
  static const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_FLOAT16, SHOAL_BFLOAT16};
  for (size_t i = 0; i < COUNT_OF(dims); i++)
    for (size_t t = 0; t < COUNT_OF(types); t++) {
      struct result cpu = run(devices[0], types[t], dims[i]), gpu = run(devices[1], types[t], dims[i]);
      hold_one(cpu.y, gpu.y, types[t], dims[i][2]);
      hold_one(cpu.dx, gpu.dx, types[t], dims[i][2]);
      assert_false(cpu.fused);
      if (dims[i][2] <= 8192 && dims[i][2] % 8 == 0) assert_true(gpu.fused);
      shoal_tensor_unref(cpu.y);
      shoal_tensor_unref(cpu.dx);
      shoal_tensor_unref(gpu.y);
      shoal_tensor_unref(gpu.dx);
    }
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
