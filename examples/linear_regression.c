/* Fits y = 3x + 2 to noisy points by gradient descent. */
#include <math.h>

#include "run.h"

enum { POINTS = 200, STEPS = 300 };

int main(void) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(POINTS), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(POINTS), "y");
  shoal_var slope = shoal_variable(g, "slope", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SCALAR));
  shoal_var offset = shoal_variable(g, "offset", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SCALAR));
  shoal_out line = shoal_add_v2(g, shoal_mul(g, x, slope.value), offset.value);
  shoal_out loss = shoal_reduce_mean(g, shoal_squared_difference(g, line, y));
  shoal_op *train = shoal_minimize(g, shoal_sgd(0.5), loss, (shoal_var){0});
  shoal_op *init = shoal_initialize(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  float xs[POINTS], ys[POINTS];
  for (int i = 0; i < POINTS; i++) {
    xs[i] = (float)i / POINTS;
    ys[i] = 3 * xs[i] + 2 + 0.1f * sinf(37.0f * (float)i); /* noise, the same at every run */
  }
  struct feed feeds[] = {{x, NULL}, {y, NULL}, {{0}, NULL}};
  check(shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){POINTS}, xs, sizeof xs, &feeds[0].value));
  check(shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){POINTS}, ys, sizeof ys, &feeds[1].value));

  shoal_session *session;
  check(shoal_session_open(g, NULL, &session));
  run(session, NULL, (shoal_out){0}, init);
  for (int i = 0; i <= STEPS; i++) {
    float l = run(session, feeds, loss, train);
    if (i % 100 == 0) printf("step %3d  loss %.5f\n", i, (double)l);
  }
  printf("y = %.2f x + %.2f\n", (double)run(session, NULL, slope.value, NULL),
         (double)run(session, NULL, offset.value, NULL));

  check(shoal_session_close(session));
  shoal_tensor_unref(feeds[0].value);
  shoal_tensor_unref(feeds[1].value);
  shoal_graph_free(g);
  return 0;
}
