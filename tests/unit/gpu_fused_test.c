/* Products with a bias and an activation on a GPU beside the CPU's: one kernel where the card can, several where not.
 * Without a card on the soft device. */
#include <math.h>

#include "unit.h"

#include <shoal/ops.h>
#include <shoal/shoal.h>

#include "device/cuda/cuda_api.h"

enum { ROWS = 33, IN = 70, OUT = 24 };

static shoal_tensor *numbers(int64_t rows, int64_t columns, int salt) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, columns ? 2 : 1, (int64_t[]){rows, columns}, &t));
  float *x = shoal_tensor_data(t);
  for (int64_t i = 0; i < rows * (columns ? columns : 1); i++)
    x[i] = (float)((i * 7919 + salt * 131) % 101) / 101 - 0.5f;
  return t;
}

typedef shoal_out (*activation)(shoal_graph *g, shoal_out x);
static shoal_out none(shoal_graph *g, shoal_out x) { return shoal_identity(g, x); }

static shoal_out read_as(shoal_graph *g, shoal_out x, shoal_dtype type) {
  return shoal_out_dtype(x) == type ? x : shoal_cast(g, x, type);
}

/* The activation of x * w + bias, with x and w turned round before, or by the product. */
static shoal_tensor *run(const char *device, shoal_dtype type, activation act, bool turned) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *y, *x = turned ? numbers(IN, ROWS, 1) : numbers(ROWS, IN, 1), *w = numbers(IN, OUT, 2),
                   *b = numbers(OUT, 0, 3);
  shoal_push_device(g, device);
  shoal_out px = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, -1), "x");
  shoal_out pw = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, -1), "w");
  shoal_out pb = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1), "b");
  shoal_mat_mul_options o = {sizeof o, .transpose_a = turned};
  shoal_out product = shoal_mat_mul_with(g, read_as(g, px, type), read_as(g, pw, type), &o);
  shoal_out out = read_as(g, act(g, shoal_bias_add(g, product, read_as(g, pb, type))), SHOAL_FLOAT32);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .allow_soft_placement = true), &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_FEED(px, x, pw, w, pb, b), SHOAL_FETCH(out, &y), NULL));
  shoal_tensor_unref(x);
  shoal_tensor_unref(w);
  shoal_tensor_unref(b);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  return y;
}

/* Products of float32 may be taken with 10 bits behind the point; bfloat16 has 8. */
static void products_with_a_bias(void **state) {
  static const activation activations[] = {none, shoal_relu, shoal_tanh, shoal_sigmoid};
  for (int i = 0; i < 16; i++) {
    shoal_dtype type = i < 8 ? SHOAL_FLOAT32 : SHOAL_BFLOAT16;
    shoal_tensor *want = run("/device:CPU:0", type, activations[i / 2 % 4], i % 2);
    shoal_tensor *have = run("/device:GPU:0", type, activations[i / 2 % 4], i % 2);
    float most = i < 8 ? 5e-3f : 3e-2f;
    const float *a = shoal_tensor_const_data(want), *b = shoal_tensor_const_data(have);
    for (int k = 0; k < ROWS * OUT; k++)
      if (!(fabsf(a[k] - b[k]) <= most * (1 + fabsf(a[k]))))
        fail_msg("case %d: element %d is %g, not %g", i, k, (double)b[k], (double)a[k]);
    shoal_tensor_unref(want);
    shoal_tensor_unref(have);
  }
}

int main(void) {
  const char *why;
  if (!cuda_api(&why)) {
    if (getenv("SHOAL_NEEDS_GPU")) {
      print_error("%s\n", why);
      return 1;
    }
    setenv("SHOAL_SOFT_GPUS", "1", 1);
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_with_a_bias)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
