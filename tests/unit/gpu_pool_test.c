/* Bias, Relu and max pooling, and the way back through them, as one node each on a GPU (graph/rewrite_fuse_pool.c),
 * beside the CPU's single ops. Without a card on the soft device. */
#include "gpu_case.h"

/* ---- the ops that they are made of ---- */

struct windows {
  int64_t batch, high, wide, depth, rows, columns;
  const char *padding;
  bool apart, back; /* windows are side by side; there is a gradient */
};

static shoal_tensor *numbers(int rank, const int64_t *dims, int salt) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, rank, dims, &t));
  float *x = shoal_tensor_data(t);
  for (int64_t i = 0; i < shoal_tensor_elements(t); i++)
    x[i] = (float)((i * 7919 + salt * 131) % 13 - 6) / 4; /* ties */
  return t;
}

static shoal_out constant_of(shoal_graph *g, shoal_tensor *t) {
  shoal_out o = shoal_constant(g, t);
  shoal_tensor_unref(t);
  return o;
}

static shoal_out read_as(shoal_graph *g, shoal_out x, shoal_dtype type) {
  return shoal_out_dtype(x) == type ? x : shoal_cast(g, x, type);
}

static shoal_out node(shoal_graph *g, const char *op, const struct windows *w, int n, const shoal_out *in) {
  shoal_builder *b = shoal_build(g, op, NULL);
  for (int i = 0; i < n; i++) shoal_build_input(b, in[i]);
  if (!w) return shoal_build_end_out(b);
  shoal_build_ints(b, "ksize", (int64_t[]){1, w->rows, w->columns, 1}, 4);
  shoal_build_ints(b, "strides", (int64_t[]){1, w->rows, w->columns - !w->apart, 1}, 4);
  shoal_build_string(b, "padding", w->padding);
  return shoal_build_end_out(b);
}

/* How many windows there are: side by side, or one less apart. */
static int64_t windows_of(const struct windows *w, int64_t in, int64_t size, int64_t apart) {
  return !strcmp(w->padding, "SAME") ? (in + apart - 1) / apart : (in - size) / apart + 1;
}

enum { MADE = 3 }; /* the largest, the gradient, its sums */
struct pooled {
  shoal_tensor *made[MADE];
  bool fused, fused_back;
};

static bool has(const shoal_bytes *trace, const char *text) {
  return memmem(trace->data, trace->size, text, strlen(text)) != NULL;
}

static void run_pooled(const struct windows *w, shoal_dtype type, int device, struct pooled *out) {
  const int64_t image[] = {w->batch, w->high, w->wide, w->depth};
  const int64_t result[] = {w->batch, windows_of(w, w->high, w->rows, w->rows),
                            windows_of(w, w->wide, w->columns, w->columns - !w->apart), w->depth};
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_push_device(g, devices[device]);
  shoal_out x = constant_of(g, numbers(4, image, 1)), bias = constant_of(g, numbers(1, &w->depth, 2));
  shoal_out dy = constant_of(g, numbers(4, result, 3));
  shoal_out of = read_as(g, x, type), led = read_as(g, dy, type);
  shoal_out relu = shoal_relu(g, shoal_bias_add(g, of, read_as(g, bias, type)));
  shoal_out y = node(g, "MaxPool", w, 1, &relu);
  shoal_out back = node(g, "MaxPoolGrad", w, 3, (shoal_out[]){relu, y, led});
  shoal_out dx = node(g, "ReluGrad", NULL, 2, (shoal_out[]){back, relu});
  shoal_out sums = node(g, "BiasAddGrad", NULL, 1, &dx);
  shoal_out made[MADE] = {read_as(g, y, SHOAL_FLOAT32), read_as(g, dx, SHOAL_FLOAT32), read_as(g, sums, SHOAL_FLOAT32)};
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(
      g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true, .rewrites_off = device ? "fold" : "all"),
      &s));
  shoal_bytes trace = {0};
  shoal_run_options o = {.trace_level = 3, .output_partition_graphs = true};
  char names[MADE][128];
  for (int i = 0; i < MADE; i++) snprintf(names[i], sizeof names[i], "%s:0", shoal_op_name(made[i].node));
  ASSERT_OK(shoal_session_run(s, &o, NULL, NULL, 0, (const char *const[]){names[0], names[1], names[2]}, out->made,
                              w->back ? MADE : 1, NULL, 0, &trace));
  out->fused = has(&trace, "= _BiasReluPool(");
  out->fused_back = has(&trace, "= _BiasReluPoolGrad(");
  shoal_bytes_free(&trace);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

static void hold_made(const struct windows *w, shoal_dtype type, int i, const shoal_tensor *want,
                      const shoal_tensor *have) {
  const float *a = shoal_tensor_const_data(want), *b = shoal_tensor_const_data(have);
  double most = i < 2 ? 0 : tolerance(type) * 8;
  assert_int_equal(shoal_tensor_elements(want), shoal_tensor_elements(have));
  for (int64_t k = 0; k < shoal_tensor_elements(want); k++)
    if (!(fabs((double)a[k] - (double)b[k]) <= most * (1 + fabs((double)a[k]))))
      fail_msg("%s, %dx%d of %dx%dx%d: element %d of output %d is %g, not %g", shoal_dtype_name(type), (int)w->rows,
               (int)w->columns, (int)w->high, (int)w->wide, (int)w->depth, (int)k, i, (double)b[k], (double)a[k]);
}

/* As in a CNN; odd sizes, of which VALID leaves lines out and SAME pads them; before the first line too; windows as
 * large as the image, and of one pixel; more channels than a block serves; no pictures; windows that lie over one
 * another, which stay single ops; no gradient. */
static const struct windows all[] = {
    {5, 28, 28, 16, 2, 2, "VALID", true, true}, {3, 9, 7, 12, 2, 2, "VALID", true, true},
    {3, 9, 7, 16, 2, 2, "SAME", true, true},    {3, 7, 10, 5, 3, 3, "SAME", true, true},
    {2, 6, 5, 8, 6, 5, "VALID", true, true},    {2, 4, 3, 3, 1, 1, "SAME", true, true},
    {2, 6, 7, 600, 3, 2, "SAME", true, true},   {0, 6, 6, 4, 2, 2, "VALID", true, true},
    {3, 9, 9, 8, 2, 3, "VALID", false, true},   {3, 8, 8, 8, 2, 2, "SAME", true, false}};

static void pooled(void **state) {
  static const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_FLOAT64, SHOAL_FLOAT16, SHOAL_BFLOAT16};
  for (size_t i = 0; i < COUNT_OF(all); i++)
    for (size_t t = 0; t < COUNT_OF(types); t++) {
      const struct windows *w = &all[i];
      struct pooled cpu, gpu;
      run_pooled(w, types[t], 0, &cpu);
      run_pooled(w, types[t], 1, &gpu);
      assert_false(cpu.fused || cpu.fused_back);
      assert_int_equal(gpu.fused, w->apart);
      assert_int_equal(gpu.fused_back, w->apart && w->back);
      for (int k = 0; k < (w->back ? MADE : 1); k++) {
        hold_made(w, types[t], k, cpu.made[k], gpu.made[k]);
        shoal_tensor_unref(cpu.made[k]);
        shoal_tensor_unref(gpu.made[k]);
      }
    }
}

/* ---- a network ---- */

enum { BATCH = 6, SIDE = 12, CLASSES = 7, STEPS = 4 };

static void train(int device, float *losses, bool *whole) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *images = numbers(4, (int64_t[]){BATCH, SIDE, SIDE, 1}, 4), *labels;
  ASSERT_OK(shoal_tensor_new(SHOAL_INT32, 1, (int64_t[]){BATCH}, &labels));
  for (int i = 0; i < BATCH; i++) ((int32_t *)shoal_tensor_data(labels))[i] = i % CLASSES;
  shoal_set_random_seed(g, 5);
  shoal_push_device(g, devices[device]);
  shoal_out h = shoal_constant(g, images);
  h = shoal_relu(g, shoal_conv_layer(g, h, 4, 3, "conv0"));
  h = shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, h, 8, 3, "conv1")));
  h = shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, h, 12, 3, "conv2")));
  shoal_out logits = shoal_dense(g, shoal_flatten(g, h), CLASSES, "logits");
  shoal_out loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, shoal_constant(g, labels)));
  shoal_op *step = shoal_minimize(g, shoal_sgd(0.05), loss, (shoal_var){0}), *init = shoal_initialize(g);
  shoal_pop_device(g);
  shoal_tensor_unref(images);
  shoal_tensor_unref(labels);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(
      g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true, .rewrites_off = device ? NULL : "all"),
      &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  for (int i = 0; i < STEPS; i++) ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(loss, &losses[i]), step));
  shoal_bytes trace = {0};
  shoal_run_options o = {.trace_level = 3, .output_partition_graphs = true};
  const char *name = shoal_op_name(step);
  ASSERT_OK(shoal_session_run(s, &o, NULL, NULL, 0, NULL, NULL, 0, &name, 1, &trace));
  *whole = has(&trace, "= _FusedConv2D(") && has(&trace, "= _BiasReluPool(") && has(&trace, "= _BiasReluPoolGrad(") &&
           !has(&trace, "= MaxPool(") && !has(&trace, "= MaxPoolGrad(");
  shoal_bytes_free(&trace);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

static void network(void **state) {
  float want[STEPS], have[STEPS];
  bool whole;
  train(0, want, &whole);
  assert_false(whole);
  train(1, have, &whole);
  assert_true(whole);
  for (int i = 0; i < STEPS; i++) assert_float_equal(want[i], have[i], 1e-2f * (1 + want[i]));
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(pooled), cmocka_unit_test(network)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
