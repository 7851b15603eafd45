/* Every macro of the public API, and every way the README and the tutorial use one, in C++. tests/unit/docs_test.py
 * compiles this with g++ and clang++, as C++20, and runs it. */
#include <shoal/shoal.h>

#include <cstdio>
#include <cstring>

static int failures = 0;

static void expect(bool ok, const char *what) {
  std::printf("%s - %s\n", ok ? "ok" : "not ok", what);
  failures += !ok;
}

static void expect_ok(shoal_status s, const char *what) {
  if (s) std::printf("# %s\n", shoal_status_message(s));
  expect(!s, what);
  shoal_status_free(s);
}

static void shapes(shoal_graph *g) {
  size_t units = 7;
  int64_t dims[SHOAL_MAX_RANK];
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, units, 3), "shaped");
  expect(shoal_out_shape(x, dims) == 3 && dims[0] == -1 && dims[1] == 7 && dims[2] == 3, "SHOAL_SHAPE in a call");
  auto kept = SHOAL_SHAPE(2, 5);
  x = shoal_placeholder(g, SHOAL_FLOAT32, kept, "kept");
  expect(shoal_out_shape(x, dims) == 2 && dims[1] == 5, "SHOAL_SHAPE in a variable");
  x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "scalar");
  expect(shoal_out_shape(x, dims) == 0, "SHOAL_SCALAR");
}

static shoal_tensor *number(float v) {
  shoal_tensor *t = nullptr;
  shoal_status_free(shoal_tensor_from(SHOAL_FLOAT32, 0, nullptr, &v, sizeof v, &t));
  return t;
}

static void steps(shoal_graph *g) {
  shoal_out a = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "a");
  shoal_out b = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "b");
  shoal_out sum = shoal_add_v2(g, a, b);
  shoal_mat_mul_options transposed = SHOAL_MAT_MUL_DEFAULTS;
  transposed.transpose_b = true;
  shoal_out row = shoal_constant_of(g, SHOAL_FLOAT32, 3);
  row = shoal_expand_dims(g, shoal_expand_dims(g, row, shoal_constant_int(g, 0)), shoal_constant_int(g, 0));
  shoal_out product = shoal_mat_mul_with(g, row, row, &transposed);
  const int32_t ids[] = {4};
  shoal_unique_outs unique = shoal_unique(g, shoal_constant_ints(g, SHOAL_SHAPE(1), ids));
  expect(!shoal_report(g), "a graph without mistakes");
  shoal_session *s = nullptr;
  expect_ok(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .intra_op_threads = 1), &s), "SHOAL_OPTIONS");
  shoal_tensor *three = number(3), *four = number(4), *whole = nullptr;
  float f = 0;
  double d = 0;
  int32_t i = 0;
  int64_t l = 0;
  bool yes = false;
  expect_ok(shoal_session_step(s, SHOAL_FEED(a, three, b, four),
                               SHOAL_FETCH(sum, &f, sum, &d, sum, &i, sum, &l, sum, &yes, sum, &whole), nullptr),
            "SHOAL_FEED, SHOAL_FETCH");
  expect(f == 7 && d == 7 && i == 7 && l == 7 && yes && whole && shoal_tensor_elements(whole) == 1, "what was fetched");
  expect_ok(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(product, &f, unique.y, &i), nullptr), "SHOAL_NO_FEEDS");
  expect(f == 9 && i == 4, "ops with options, and with several outputs");
  expect_ok(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, shoal_graph_op(g, "Const")), "SHOAL_NO_FETCHES");
  shoal_tensor_unref(whole);
  shoal_tensor_unref(three);
  shoal_tensor_unref(four);
  expect_ok(shoal_session_close(s), "the end of a session");
}

static void training() {
  shoal_graph *g = shoal_graph_new();
  shoal_var w = shoal_variable(g, "w", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SCALAR));
  shoal_out loss = shoal_squared_difference(g, w.value, shoal_constant_float(g, 5));
  shoal_op *train = shoal_minimize(g, shoal_sgd(0.25), loss, shoal_global_step(g));
  shoal_status error = nullptr;
  float last = 1;
  shoal_hook hooks[] = {shoal_nan_tensor_hook(loss, true)};
  SHOAL_TRAIN_SESSION(s, g, .stop_at_step = 20, .hooks = hooks, .n_hooks = 1, .no_signals = true, .status = &error) {
    while (!shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(loss, &last), train);
    expect(shoal_train_session_raw(s) != nullptr, "SHOAL_TRAIN_SESSION");
  }
  expect(last < 0.01f, "what was trained");
  expect(shoal_train_exit(error) == 0, "the end of training");
  shoal_graph_free(g);
}

int main() {
  shoal_graph *g = shoal_graph_new();
  shapes(g);
  steps(g);
  shoal_graph_free(g);
  training();
  expect(SHOAL_EXIT_RETRY == 75 && std::strlen(SHOAL_VERSION) > 0, "numbers");
  return failures != 0;
}
