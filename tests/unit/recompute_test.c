/* Layers that are computed once more on the way back: the same losses, to the last bit where nothing is fused (rewrites
 * find other nodes to join, which round otherwise), in less memory. How much less is asked of the soft device, whose
 * account of memory is given a limit (device/memory.h). */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shoal/ops.h>
#include <shoal/shoal.h>

enum { LAYERS = 20, WIDTH = 32, BATCH = 1024, STEPS = 3 };

struct model {
  shoal_graph *g;
  shoal_out loss;
  shoal_op *train, *init;
};

static shoal_out layer(shoal_graph *g, shoal_out h, int i, bool dropout) {
  char name[32];
  snprintf(name, sizeof name, "layer%d", i);
  shoal_out wide = shoal_tanh(g, shoal_dense(g, shoal_layer_norm(g, h, name, NULL), 2 * WIDTH, name));
  if (dropout) wide = shoal_dropout(g, wide, 0.1, NULL);
  snprintf(name, sizeof name, "back%d", i);
  return shoal_add_v2(g, h, shoal_dense(g, wide, WIDTH, name));
}

static struct model build(const char *device, bool recompute, bool dropout) {
  struct model m = {.g = shoal_graph_new()};
  static float x[BATCH * WIDTH];
  for (int i = 0; i < BATCH * WIDTH; i++) x[i] = (float)(i * 7 % 101) / 101 - 0.5f;
  shoal_set_random_seed(m.g, 7);
  shoal_push_device(m.g, device);
  shoal_out h = shoal_constant_floats(m.g, SHOAL_SHAPE(BATCH, WIDTH), x);
  for (int i = 0; i < LAYERS; i++) {
    if (recompute) shoal_push_recompute(m.g);
    h = layer(m.g, h, i, dropout);
    if (recompute) shoal_pop_recompute(m.g);
  }
  m.loss = shoal_reduce_mean(m.g, shoal_square(m.g, h));
  m.train = shoal_minimize(m.g, shoal_momentum(0.01, 0.9), m.loss, shoal_global_step(m.g));
  shoal_pop_device(m.g);
  m.init = shoal_initialize(m.g);
  ASSERT_OK(shoal_graph_error(m.g));
  return m;
}

static shoal_status train(const struct model *m, const char *rewrites_off, float *losses) {
  shoal_session *s;
  shoal_status e = shoal_session_open(m->g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = rewrites_off), &s);
  if (e) return e;
  e = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m->init);
  for (int i = 0; !e && i < STEPS; i++)
    e = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(m->loss, &losses[i]), m->train);
  shoal_status closed = shoal_session_close(s);
  if (e) shoal_status_free(closed);
  return e ? e : closed;
}

static void losses_are_the_same(void **state) {
  for (int way = 0; way < 4; way++) {
    float losses[2][STEPS];
    bool dropout = way & 1, plain = way & 2;
    for (int k = 0; k < 2; k++) {
      struct model m = build("/device:CPU:0", k, dropout);
      assert_int_equal(shoal_graph_op(m.g, "gradients/recomputed/Tanh_1") != NULL, k);
      ASSERT_OK(train(&m, plain ? "all" : NULL, losses[k]));
      shoal_graph_free(m.g);
    }
    if (plain) assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    for (int i = 0; i < STEPS; i++) assert_float_equal(losses[0][i], losses[1][i], 1e-5 * losses[0][i]);
    assert_true(losses[0][STEPS - 1] < losses[0][0]);
  }
}

static bool fits_once(bool recompute, int megabytes) {
  char text[32];
  float losses[STEPS];
  snprintf(text, sizeof text, "%d", megabytes);
  setenv("SHOAL_VIRTUAL_DEVICES", text, 1);
  struct model m = build("/device:GPU:0", recompute, false);
  shoal_status e = train(&m, "join_gradients", losses); /* which keeps what all small layers have read */
  if (e) assert_int_equal(shoal_status_code(e), SHOAL_RESOURCE_EXHAUSTED);
  shoal_status_free(e);
  shoal_graph_free(m.g);
  unsetenv("SHOAL_VIRTUAL_DEVICES");
  return !e;
}

/* Of so many megabytes of a device: do they do? Threads may come to what they free in another order. */
static bool fits(bool recompute, int megabytes) {
  for (int tries = 0; tries < 3; tries++)
    if (fits_once(recompute, megabytes)) return true;
  return false;
}

static int least(bool recompute) {
  int low = 2, high = 64;
  assert_true(fits(recompute, high));
  while (high - low > 1) {
    int mid = (low + high) / 2;
    if (fits(recompute, mid)) high = mid;
    else low = mid;
  }
  return high;
}

static void memory_is_less(void **state) {
  int kept = least(false), again = least(true);
  print_message("# %d layers: %d MB of the device, %d with layers computed again\n", LAYERS, kept, again);
  assert_true(again * 10 < kept * 7);
}

static void closed_but_not_opened(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_pop_recompute(g);
  assert_int_equal(shoal_status_code(shoal_graph_error(g)), SHOAL_INVALID_ARGUMENT);
  shoal_graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_the_same), cmocka_unit_test(memory_is_less),
                                     cmocka_unit_test(closed_but_not_opened)};
  setenv("SHOAL_SOFT_GPUS", "1", 1);
  setenv("SHOAL_REPLAY", "0", 1); /* a capture has memory of its own */
  return cmocka_run_group_tests(tests, NULL, NULL);
}
