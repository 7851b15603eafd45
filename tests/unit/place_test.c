/* Placement in a large cluster: every node where it asked to be, found without looking at every device for it. */
#include "unit.h"

#include "base/clock.h"
#include "device/device.h"
#include "graph/place_why.h"
#include "runtime/kernel.h"
#include "runtime/kernel_why.h"

enum { TASKS = 1000, EACH = 8, DEVICES = TASKS * EACH, NODES = 10000 };

static struct place_device *make_devices(void) {
  struct place_device *d = mem_zalloc(DEVICES, sizeof *d);
  for (int i = 0; i < DEVICES; i++) {
    d[i].name =
        mem_printf("/job:worker/replica:0/task:%d/device:%s:%d", i / EACH, i % EACH < 4 ? "CPU" : "GPU", i % EACH % 4);
    ASSERT_OK(device_spec_parse(d[i].name, &d[i].spec));
  }
  return d;
}

static void free_devices(struct place_device *d) {
  for (int i = 0; i < DEVICES; i++) free((char *)d[i].name);
  free(d);
}

static struct shoal_node *add(struct shoal_graph *g, int i, const char *device) {
  char name[32];
  snprintf(name, sizeof name, "n%d", i);
  struct shoal_node *n;
  ASSERT_OK(graph_add(g, name, op_find("NoOp"), NULL, 0, NULL, 0, &n));
  graph_set_device(n, device);
  return n;
}

static void every_node_is_where_it_asked(void **state) {
  struct place_device *d = make_devices();
  struct shoal_graph *g = graph_new();
  for (int i = 0; i < NODES; i++) {
    char device[128];
    int task = (int)(i * 7919ll % TASKS);
    if (i % 4 == 0) snprintf(device, sizeof device, "/job:worker/task:%d", task);
    else if (i % 4 == 1) snprintf(device, sizeof device, "/job:worker/replica:0/task:%d/device:CPU:%d", task, i % 3);
    else if (i % 4 == 2) snprintf(device, sizeof device, "/job:worker/task:%d/device:GPU:*", task);
    else snprintf(device, sizeof device, "/device:CPU:%d", i % 3);
    add(g, i, device);
  }
  graph_find(g, "n3")->assigned = mem_strdup(d[4711].name);
  struct place_options o = {.devices = d,
                            .n_devices = DEVICES,
                            .own_task = "/job:worker/replica:0/task:500",
                            .priority = device_type_priority};
  int64_t start = clock_ns();
  ASSERT_OK(graph_place(g, &o));
  print_message("%d nodes on %d devices: %.3f s\n", NODES, DEVICES, (double)(clock_ns() - start) * 1e-9);
  for (int i = 0; i < NODES; i++) {
    const struct shoal_node *n = g->nodes.at[i];
    struct device_spec want, have;
    ASSERT_OK(device_spec_parse(n->device, &want));
    ASSERT_OK(device_spec_parse(n->assigned, &have));
    if (i == 3) assert_string_equal(n->assigned, d[4711].name);
    else assert_true(device_spec_matches(&want, &have));
    if (i % 4 == 0) assert_string_equal(have.type, "GPU");      /* the best of the task */
    if (i % 4 == 3 && i != 3) assert_int_equal(have.task, 500); /* its own task before others */
  }
  graph_free(g);
  free_devices(d);
}

static void what_is_not_there_is_named(void **state) {
  struct place_device *d = make_devices();
  struct place_options o = {.devices = d, .n_devices = DEVICES, .own_task = "/job:worker/replica:0/task:0"};
  static const char *const missing[] = {"/job:worker/task:1000", "/job:ps/task:0", "/device:CPU:9", "/job:ps"};
  for (size_t i = 0; i < COUNT_OF(missing); i++) {
    struct shoal_graph *g = graph_new();
    add(g, 0, missing[i]);
    shoal_status s = graph_place(g, &o);
    assert_int_equal(shoal_status_code(s), SHOAL_INVALID_ARGUMENT);
    assert_non_null(strstr(shoal_status_message(s), "{{node n0}} was explicitly assigned to"));
    assert_non_null(strstr(shoal_status_message(s), " and 7900 more"));
    shoal_status_free(s);
    graph_free(g);
  }
  free_devices(d);
}

static void soft_placement_stays_on_the_task(void **state) {
  struct place_device *d = make_devices();
  struct shoal_graph *g = graph_new();
  add(g, 0, "/job:worker/task:77/device:CPU:9");
  struct place_options o = {.devices = d, .n_devices = DEVICES, .allow_soft_placement = true};
  ASSERT_OK(graph_place(g, &o));
  assert_int_equal(strncmp(graph_find(g, "n0")->assigned, "/job:worker/replica:0/task:77/", 30), 0);
  graph_free(g);
  free_devices(d);
}

static void why_is(const struct shoal_graph *g, const struct place_options *o, const char *name, const char *want) {
  char *why = place_why(graph_find(g, name), o);
  if (want) assert_string_equal(why, want);
  else assert_null(why);
  free(why);
}

/* What keeps a node from the better device: a kernel that is not there, or its own request. The CPU's alone are here
 * but for the type GPU that stands in. */
static void it_is_told_why(void **state) {
  setenv("SHOAL_SOFT_GPUS", "1", 1);
  struct place_device d[2] = {{.name = "/job:localhost/replica:0/task:0/device:CPU:0"},
                              {.name = "/job:localhost/replica:0/task:0/device:GPU:0"}};
  for (int i = 0; i < 2; i++) ASSERT_OK(device_spec_parse(d[i].name, &d[i].spec));
  struct shoal_graph *g = graph_new();
  add(g, 0, "/device:CPU:0");
  add(g, 1, "");
  struct shoal_node *queue;
  struct named_attr *types = mem_alloc(sizeof *types);
  *types = (struct named_attr){mem_strdup("component_types"), attr_list(ATTR_TYPE)};
  attr_list_add(&types->value, attr_type(SHOAL_FLOAT32));
  ASSERT_OK(graph_add(g, "queue", op_find("FIFOQueueV2"), NULL, 0, types, 1, &queue));
  struct place_options o = {.devices = d,
                            .n_devices = 2,
                            .log = true,
                            .has_kernel = kernel_supports,
                            .why_no_kernel = kernel_why_none,
                            .priority = device_type_priority};
  ASSERT_OK(graph_place(g, &o));
  why_is(g, &o, "n0", "CPU was asked for");
  why_is(g, &o, "n1", NULL);
  why_is(g, &o, "queue", "there is no kernel for GPU");
  graph_free(g);
}

static bool is_cpu(const struct shoal_node *n, const char *device_type) { return !strcmp(device_type, "CPU"); }
static bool is_any(const struct shoal_node *n, const char *device_type) { return true; }

/* Who asks for a type gets a kernel that nothing else is placed there for; who does not, or may be elsewhere, does not.
 */
static void kernels_for_who_asks(void **state) {
  struct place_device *d = make_devices();
  struct place_options o = {.devices = d,
                            .n_devices = DEVICES,
                            .own_task = "/job:worker/replica:0/task:0",
                            .has_kernel = is_cpu,
                            .priority = device_type_priority};
  static const char *const asked[] = {"/device:GPU:1", ""}, *const want[2][2] = {{"GPU:1", "CPU:0"},
                                                                                 {"CPU:0", "CPU:0"}};
  for (int soft = 0; soft < 2; soft++) {
    struct shoal_graph *g = graph_new();
    for (int i = 0; i < 2; i++) add(g, i, asked[i]);
    o.allow_soft_placement = soft;
    o.has_if_asked = is_any;
    ASSERT_OK(graph_place(g, &o));
    for (int i = 0; i < 2; i++) {
      const char *have = strrchr(graph_find(g, i ? "n1" : "n0")->assigned, '/');
      assert_string_equal(have + strlen("/device:"), want[soft][i]);
    }
    graph_free(g);
  }
  struct shoal_graph *g = graph_new();
  add(g, 0, asked[0]);
  o.allow_soft_placement = false;
  o.has_if_asked = NULL;
  shoal_status s = graph_place(g, &o);
  assert_int_equal(shoal_status_code(s), SHOAL_INVALID_ARGUMENT);
  shoal_status_free(s);
  graph_free(g);
  free_devices(d);
}

static bool no_queue(const struct shoal_node *n, const char *device_type) {
  return !strcmp(device_type, "CPU") || !op_is(n->op, "FIFOQueueV2");
}

/* Of a group that is refused the op is named that has no kernel, wherever it is in it. */
static void what_lacks_a_kernel_is_named(void **state) {
  struct place_device *d = make_devices();
  struct shoal_graph *g = graph_new();
  struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
  struct shoal_node *queue;
  add(g, 0, "/device:GPU:0");
  attrs[0] = (struct named_attr){mem_strdup("component_types"), attr_list(ATTR_TYPE)};
  attr_list_add(&attrs[0].value, attr_type(SHOAL_FLOAT32));
  attrs[1] = (struct named_attr){mem_strdup("_class"), attr_list(ATTR_STRING)};
  attr_list_add(&attrs[1].value, attr_string("loc:@n0", strlen("loc:@n0")));
  ASSERT_OK(graph_add(g, "queue", op_find("FIFOQueueV2"), NULL, 0, attrs, 2, &queue));
  struct place_options o = {.devices = d, .n_devices = DEVICES, .has_kernel = no_queue};
  ASSERT_FAILS(graph_place(g, &o), SHOAL_INVALID_ARGUMENT,
               "no supported kernel for GPU devices is available for {{node queue}} (op FIFOQueueV2)");
  graph_free(g);
  free_devices(d);
}

RUN_TESTS(cmocka_unit_test(it_is_told_why), cmocka_unit_test(what_lacks_a_kernel_is_named),
          cmocka_unit_test(kernels_for_who_asks), cmocka_unit_test(every_node_is_where_it_asked),
          cmocka_unit_test(what_is_not_there_is_named), cmocka_unit_test(soft_placement_stays_on_the_task))
