/* Device scopes whose device a function chooses. */
#include "unit.h"

#include <shoal/shoal.h>
#include <string.h>

#include "graph/graph.h"

static const char *by_type(void *arg, const shoal_op *op, const char *inner) {
  int *asked = arg;
  ++*asked;
  if (!strcmp(shoal_op_type(op), "Const")) return "/job:ps/task:1";
  assert_true(!*inner || !strcmp(inner, "/device:GPU:0"));
  return strcmp(shoal_op_type(op), "Neg") ? "/job:worker/device:CPU:0" : NULL;
}

/* tf.device(function): what it says is merged with the scopes around it and inside it. */
static void a_function_chooses_devices(void **state) {
  shoal_graph *g = shoal_graph_new();
  int asked = 0;
  shoal_push_device(g, "/task:3");
  shoal_push_device_fn(g, by_type, &asked);
  shoal_out x = shoal_constant_float(g, 1);
  shoal_out neg = shoal_neg(g, x);
  shoal_push_device(g, "/gpu:0");
  shoal_out sum = shoal_add(g, x, neg);
  shoal_pop_device(g);
  shoal_pop_device(g);
  shoal_out after = shoal_neg(g, x);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  assert_int_equal(asked, 3);
  const struct {
    shoal_out of;
    const char *device;
  } wanted[] = {{x, "/job:ps/task:1"}, {neg, "/task:3"}, {sum, "/job:worker/task:3/device:GPU:0"}, {after, "/task:3"}};
  for (int i = 0; i < 4; i++) assert_string_equal(wanted[i].of.node->device, wanted[i].device);
  shoal_push_device_fn(g, NULL, NULL);
  shoal_pop_device(g);
  ASSERT_FAILS(status_copy(shoal_graph_error(g)), SHOAL_INVALID_ARGUMENT, "fn is NULL");
  shoal_graph_free(g);
}

RUN_TESTS(cmocka_unit_test(a_function_chooses_devices))
