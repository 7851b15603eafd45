/* Batch normalisation with a sum and Relu behind it: as one node it gives what its parts give, forward and backward, on
 * the CPU and on a GPU; a card, or the soft device that stands in. */
#include "gpu_case.h"

enum { BATCH = 3, SIDE = 5, MOST_CHANNELS = 40, RESULTS = 6 };
static const char *const results[RESULTS] = {
    "the result",        "the gradient of the input", "that of the other addend",
    "that of the scale", "that of the offset",        "the moving variance"};

struct norm_net {
  shoal_dtype type;
  int64_t channels;
  bool sum;
  bool twice; /* the other addend is a normalisation too, and the result is read twice: its gradient is a sum */
};

/* None of the results is so near to zero that rounding decides what Relu lets through, of float32. */
static shoal_out numbers(shoal_graph *g, const struct norm_net *n, int salt) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 4, (int64_t[]){BATCH, SIDE, SIDE, n->channels}, &t));
  static const int64_t primes[] = {1009, 1039, 941, 1013};
  float *x = shoal_tensor_data(t);
  for (int64_t i = 0; i < shoal_tensor_elements(t); i++)
    x[i] = (float)((i * 7919 + salt * 131) % primes[salt]) / 300 - 1.5f;
  shoal_out v = shoal_variable(g, salt == 1 ? "x" : salt == 2 ? "side" : "weight", shoal_constant(g, t)).value;
  shoal_tensor_unref(t);
  return shoal_cast(g, v, n->type);
}

static shoal_out norm(shoal_graph *g, shoal_out x, const char *name) {
  return shoal_batch_norm(g, x, shoal_constant_bool(g, true), name,
                          SHOAL_OPTIONS(shoal_batch_norm_options, .momentum = 0.5, .epsilon = 1e-3, .fused = true));
}

/* What is fetched, as float32. */
static void build_net(shoal_graph *g, const struct norm_net *n, shoal_out out[RESULTS]) {
  shoal_out x = numbers(g, n, 1), side = numbers(g, n, 2), weight = numbers(g, n, 3), h = norm(g, x, "bn");
  shoal_out gamma = shoal_graph_out(g, "bn/gamma/Read/ReadVariableOp"),
            beta = shoal_graph_out(g, "bn/beta/Read/ReadVariableOp");
  if (n->sum) h = shoal_add_v2(g, h, n->twice ? norm(g, side, "beside") : side);
  shoal_out y = shoal_relu(g, h), wrt[] = {x, side, gamma, beta};
  const shoal_out losses[] = {shoal_mul(g, y, weight), shoal_mul(g, y, x)};
  shoal_gradient grads[4];
  shoal_gradients(g, losses, n->twice ? 2 : 1, wrt, 4, NULL, grads);
  out[0] = shoal_cast(g, y, SHOAL_FLOAT32);
  for (int i = 0; i < 4; i++)
    out[1 + i] = grads[i].values.node ? shoal_cast(g, grads[i].values, SHOAL_FLOAT32) : shoal_constant_float(g, 0);
  out[5] = shoal_graph_out(g, "bn/moving_variance/Read/ReadVariableOp");
}

static bool names(const shoal_bytes *parts, const char *op) {
  char text[64];
  int n = snprintf(text, sizeof text, "\022%c%s", (int)strlen(op), op); /* NodeDef's op, with its tag and length */
  return memmem(parts->data, parts->size, text, (size_t)n) != NULL;
}

static void check_fused(const struct norm_net *n, const shoal_bytes *parts, bool fused, bool on_gpu) {
  assert_int_equal(names(parts, "AssignSubVariableOp"), !fused || !on_gpu); /* averages are the normalisation's there */
  assert_int_equal(names(parts, "_FusedBatchNormEx"), fused);
  assert_int_equal(names(parts, "FusedBatchNormV3"), !fused || n->twice); /* and not besides */
  assert_int_equal(names(parts, "_BatchNormReluGrad"), fused && !n->twice);
  assert_int_equal(names(parts, "_BatchNormReluGradOfSum"), fused && n->twice);
  assert_int_equal(names(parts, "ReluGrad"), !fused);
}

static void run_net(const struct norm_net *n, const char *device, const char *off, shoal_tensor *got[RESULTS]) {
  shoal_graph *g = shoal_graph_new();
  shoal_out out[RESULTS];
  const char *fetches[RESULTS];
  shoal_session *s;
  shoal_bytes parts = {0};
  shoal_run_options o = {.output_partition_graphs = true};
  shoal_push_device(g, device);
  build_net(g, n, out);
  shoal_op *init = shoal_initialize(g);
  shoal_pop_device(g);
  if (shoal_report(g)) fail();
  for (int i = 0; i < RESULTS; i++) fetches[i] = shoal_op_name(out[i].node);
  ASSERT_OK(shoal_session_open(
      g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true, .rewrites_off = off), &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  ASSERT_OK(shoal_session_run(s, &o, NULL, NULL, 0, fetches, got, RESULTS - 1, NULL, 0, &parts));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(out[5], &got[5]), NULL));
  check_fused(n, &parts, !off, device == devices[1]);
  shoal_bytes_free(&parts);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* A sum that is nearly nothing may be above zero or not, by how it was rounded: of half-precision numbers a few may
 * differ by all of their gradient, and their channels by a little. */
static void compare(const struct norm_net *n, const char *where, shoal_tensor *const *want, shoal_tensor *const *have) {
  for (int i = 0; i < RESULTS; i++) {
    const float *w = shoal_tensor_const_data(want[i]), *h = shoal_tensor_const_data(have[i]);
    int64_t count = shoal_tensor_elements(want[i]), differ = 0, few = i < 3 ? count / 50 : count / 4;
    assert_int_equal(count, shoal_tensor_elements(have[i]));
    double most = n->type == SHOAL_FLOAT32 ? 8 * tolerance(n->type) : tolerance(SHOAL_BFLOAT16) * (i < 3 ? 2 : 8);
    for (int64_t k = 0; k < count; k++)
      if (!(fabs((double)w[k] - (double)h[k]) <= most * (1 + fabs((double)w[k])))) {
        differ++;
        if (n->type == SHOAL_FLOAT32 || differ > few)
          fail_msg("%s of %s, %d channels%s, %s: element %d is %g, not %g", results[i], shoal_dtype_name(n->type),
                   (int)n->channels, n->sum ? ", with a sum" : "", where, (int)k, (double)h[k], (double)w[k]);
      }
  }
}

static void release(shoal_tensor **t) {
  for (int i = 0; i < RESULTS; i++) shoal_tensor_unref(t[i]);
}

static void one_node_does_what_its_parts_do(void **state) {
  static const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_BFLOAT16, SHOAL_FLOAT16};
  for (int i = 0; i < 18; i++) {
    struct norm_net n = {types[i % 3], i / 3 % 2 ? 5 : MOST_CHANNELS, i / 6 > 0, i / 6 > 1};
    shoal_tensor *want[RESULTS], *have[RESULTS];
    run_net(&n, devices[0], "fuse_norm,fuse_elementwise", want);
    for (int d = 0; d < 2; d++) {
      run_net(&n, devices[d], NULL, have);
      compare(&n, devices[d], want, have);
      release(have);
    }
    release(want);
  }
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(one_node_does_what_its_parts_do)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
