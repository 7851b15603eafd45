/* Values that are written where a concatenation wants them: which are, and that what comes out is the same. */
#include "unit.h"

#include <math.h>

#include <shoal/shoal.h>

#include "device/device.h"
#include "graph/builder.h"
#include "runtime/plan.h"
#include "runtime/plan_internal.h"

enum { LINE = 16, SHORT = 3, ODD = 5 }; /* floats of a line of the cache; of others */

struct setup {
  struct pool *intra;
  struct device *device;
  struct resource_mgr *resources;
  struct plan *plan;
};

static void set_up(struct setup *s, const struct shoal_graph *g) {
  s->intra = pool_new(1, "intra");
  ASSERT_OK(device_new("CPU", "/job:a/replica:0/task:0", 0, s->intra, &s->device));
  s->resources = resource_mgr_new(NULL);
  ASSERT_OK(plan_compile(g, &(struct plan_options){.device = s->device, .resources = s->resources}, &s->plan));
}

static void take_down(struct setup *s) {
  plan_unref(s->plan);
  resource_mgr_close(s->resources);
  device_free(s->device);
  pool_free(s->intra);
}

static void note(void *arg, shoal_status s) { *(shoal_status *)arg = s; }

static void run(struct setup *s, struct tensor *rets, int n) {
  struct step step = {.deadline = DEADLINE_NEVER, .session = "", .rets = rets, .n_rets = n};
  shoal_status told = NULL;
  plan_run(s->plan, &step, note, &told); /* it waits for nothing */
  ASSERT_OK(told);
}

static shoal_out numbers(shoal_graph *g, shoal_dims shape, int n, float first) {
  float v[LINE];
  for (int i = 0; i < n; i++) v[i] = first + (float)i;
  return shoal_constant_floats(g, shape, v);
}

static void ret(shoal_graph *g, int i, shoal_out value) {
  struct build b = build_begin(g, "_Retval", NULL);
  build_in(&b, value);
  build_attr_int(&b, "index", i);
  build_end(&b);
}

static void parts_are_made_in_their_places(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = numbers(g, SHOAL_SHAPE(LINE), LINE, 1), rows = numbers(g, SHOAL_SHAPE(2, LINE / 2), LINE, 50);
  shoal_out read_twice = shoal_square(g, x);
  const shoal_out parts[] = {
      shoal_square(g, x),
      shoal_reshape(g, shoal_neg(g, rows), shoal_constant_ints(g, SHOAL_SHAPE(1), (const int32_t[]){LINE})),
      shoal_neg(g, numbers(g, SHOAL_SHAPE(SHORT), SHORT, 7)),
      shoal_neg(g, numbers(g, SHOAL_SHAPE(ODD), ODD, 9)), /* would begin inside of a line */
      read_twice};
  struct build b = build_begin(g, "ConcatV2", NULL);
  build_in_list(&b, parts, 5);
  build_in(&b, shoal_constant_int(g, 0));
  ret(g, 0, build_end_out(&b));
  ret(g, 1, read_twice);
  ASSERT_OK(status_copy(shoal_graph_error(g)));
  struct setup s;
  set_up(&s, g);
  assert_int_equal(s.plan->n_wholes, 1);
  assert_int_equal(s.plan->n_places, 4); /* three parts, and the whole */
  for (int round = 0; round < 3; round++) {
    struct tensor rets[2] = {{0}};
    run(&s, rets, 2);
    assert_int_equal(rets[0].n, 3 * LINE + SHORT + ODD);
    assert_true(tensor_writable(&rets[0])); /* no part holds it any more */
    const float *y = rets[0].data;
    for (int i = 0; i < LINE; i++) {
      assert_true(y[i] == (float)((1 + i) * (1 + i)) && y[LINE + i] == -(float)(50 + i));
      assert_true(y[2 * LINE + SHORT + ODD + i] == y[i]);
    }
    for (int i = 0; i < SHORT; i++) assert_true(y[2 * LINE + i] == -(float)(7 + i));
    for (int i = 0; i < ODD; i++) assert_true(y[2 * LINE + SHORT + i] == -(float)(9 + i));
    for (int i = 0; i < 2; i++) tensor_release(&rets[i]);
  }
  take_down(&s);
  shoal_graph_free(g);
}

/* A part that is forwarded, and not made, is copied; one that is none of a line's multiple too. */
static void what_is_elsewhere_is_copied(void **state) {
  shoal_graph *g = shoal_graph_new();
  const shoal_out parts[] = {shoal_identity(g, numbers(g, SHOAL_SHAPE(LINE), LINE, 1)),
                             shoal_neg(g, numbers(g, SHOAL_SHAPE(LINE), LINE, 1))};
  struct build b = build_begin(g, "ConcatV2", NULL);
  build_in_list(&b, parts, 2);
  build_in(&b, shoal_constant_int(g, 0));
  ret(g, 0, build_end_out(&b));
  ASSERT_OK(status_copy(shoal_graph_error(g)));
  struct setup s;
  set_up(&s, g);
  struct tensor y = {0};
  run(&s, &y, 1);
  for (int i = 0; i < LINE; i++)
    assert_true(((float *)y.data)[i] == (float)(1 + i) && ((float *)y.data)[LINE + i] == -(float)(1 + i));
  tensor_release(&y);
  take_down(&s);
  shoal_graph_free(g);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_made_in_their_places),
                                     cmocka_unit_test(what_is_elsewhere_is_copied)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
