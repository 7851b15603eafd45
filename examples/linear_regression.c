/* Fits y = 3x + 2 to noisy points by gradient descent. */
#include <math.h>

#include "common.h"

enum { POINTS = 200 };

int main(int argc, char **argv) {
  int64_t steps = 300;
  double learning_rate = 0.5;
  const char *device = NULL;
  const struct flag flags[] = {flag_number("train_steps", "how many", &steps, 1),
                               flag_real("learning_rate", "of gradient descent", &learning_rate), DEVICE_FLAG(device),
                               flags_end()};
  read_flags(argc, argv, "linear_regression: fits y = 3x + 2 to noisy points", flags);
  shoal_graph *g = shoal_graph_new();
  push_device(g, device);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(POINTS), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(POINTS), "y");
  shoal_var slope = shoal_variable(g, "slope", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SCALAR));
  shoal_var offset = shoal_variable(g, "offset", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SCALAR));
  shoal_out line = shoal_add_v2(g, shoal_mul(g, x, slope.value), offset.value);
  shoal_out loss = shoal_reduce_mean(g, shoal_squared_difference(g, line, y));
  shoal_op *train = shoal_minimize(g, shoal_sgd(learning_rate), loss, (shoal_var){0});
  shoal_op *init = shoal_initialize(g);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  float xs[POINTS], ys[POINTS];
  for (int i = 0; i < POINTS; i++) {
    xs[i] = (float)i / POINTS;
    ys[i] = 3 * xs[i] + 2 + 0.1f * sinf(37.0f * (float)i); /* noise, the same at every run */
  }
  shoal_tensor *xt, *yt;
  check(shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){POINTS}, xs, sizeof xs, &xt));
  check(shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){POINTS}, ys, sizeof ys, &yt));

  shoal_session *session;
  check(shoal_session_open(g, device_session(device), &session));
  check(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  for (int64_t i = 1; i <= steps; i++) {
    float l;
    check(shoal_session_step(session, SHOAL_FEED(x, xt, y, yt), SHOAL_FETCH(loss, &l), train));
    if (!isfinite(l)) {
      fprintf(stderr, "linear_regression: the loss is no number any more at step %lld: a smaller --learning_rate?\n",
              (long long)i);
      return 1;
    }
    if (i == 1 || i % 100 == 0) printf("step %3lld  loss %.5f\n", (long long)i, (double)l);
  }
  float a, b;
  check(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(slope.value, &a, offset.value, &b), NULL));
  printf("y = %.2f x + %.2f\n", (double)a, (double)b);

  check(shoal_session_close(session));
  shoal_tensor_unref(xt);
  shoal_tensor_unref(yt);
  shoal_graph_free(g);
  return 0;
}
