/* Functions on a device whose memory is not the host's: what is called there stays there, what cannot be there is
 * placed elsewhere, and values cross where they must. On the soft device. */
#include "unit.h"

#include <shoal/shoal.h>

#include "base/latch.h"
#include "base/mem.h"
#include "graph/graph.h"
#include "runtime/function.h"
#include "runtime/plan.h"
#include "runtime/run_metadata.h"
#include "runtime/step_stats.h"

#define FLOAT "type: DT_FLOAT "
#define ARG(name) "input_arg { name: '" name "' " FLOAT "} "
#define RET(name) "output_arg { name: '" name "' " FLOAT "} "
#define TYPE(key) "attr { key: '" key "' value { " FLOAT "} } "
#define TYPES(key, list) "attr { key: '" key "' value { list { " list "} } } "
#define FUNC(key, name) "attr { key: '" key "' value { func { name: '" name "' } } } "
#define CONST(name, value)                         \
  "node_def { name: '" name "' op: 'Const' " TYPE( \
      "dtype") "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: " value " } } } } "
#define OP(name, op, in, rest) "node_def { name: '" name "' op: '" op "' " in rest "} "
#define END(name, op, rest, i) \
  "node { name: '" name "' op: '" op "' " rest TYPE("T") "attr { key: 'index' value { i: " i " } } } "

#define VARIANT "type: DT_VARIANT "
#define RESOURCE "type: DT_RESOURCE "
#define HANDLE(name) "input_arg { name: '" name "' " RESOURCE "} "
#define THREE TYPES("Tin", RESOURCE RESOURCE FLOAT) TYPES("Tout", FLOAT)
#define OF_FLOATS "attr { key: 'element_dtype' value { " FLOAT "} } "
#define INTS(node, name, dims, value)                                                      \
  node " { name: '" name                                                                   \
       "' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' " \
       "value { tensor { dtype: DT_INT32 tensor_shape { " dims "} " value "} } } } "

/* less(n, a) = n < 10; next(n, a) = n + 1, a + a; twice(i, a) = a + a; both(a) = a + a + a; text(a) = a, by way of a
 * string; asks(a) = a + a, at CPU:0; known(a) = a + 2 * 2; few(n, l) = n < 10; push(n, l) = n + 1, l with n;
 * set(x, a): x := a; times(x, y) = x * y, of variables; down(x, y, n) = x * y, after it has called itself until n is 10
 */
static const char library[] =
    "library { "
    "function { signature { name: 'less' " ARG("n") ARG("a") "output_arg { name: 'r' type: DT_BOOL } } "
    "ret { key: 'r' value: 'c:z:0' } " CONST("ten", "10")
    OP("c", "Less", "input: 'n' input: 'ten:output:0' ", TYPE("T"))
    "} function { signature { name: 'next' " ARG("n") ARG("a") RET("m") RET("b") "} "
    "ret { key: 'm' value: 'plus:z:0' } ret { key: 'b' value: 'sum:z:0' } " CONST("one", "1")
    OP("plus", "AddV2", "input: 'n' input: 'one:output:0' ", TYPE("T"))
    OP("sum", "AddV2", "input: 'a' input: 'a' ", TYPE("T"))
    "} function { signature { name: 'twice' input_arg { name: 'i' type: DT_INT32 } " ARG("a") RET("r") "} "
    "ret { key: 'r' value: 'sum:z:0' } " OP("sum", "AddV2", "input: 'a' input: 'a' ", TYPE("T"))
    "} function { signature { name: 'both' " ARG("a") RET("r") "} "
    "ret { key: 'r' value: 'sum:z:0' } " OP("two", "AddV2", "input: 'a' input: 'a' ", TYPE("T"))
    OP("sum", "AddV2", "input: 'a' input: 'two:z:0' ", TYPE("T"))
    "} function { signature { name: 'text' " ARG("a") RET("r") "} "
    "ret { key: 'r' value: 'back:output:0' } " OP("sum", "AddV2", "input: 'a' input: 'a' ", TYPE("T"))
    OP("string", "AsString", "input: 'sum:z:0' ", TYPE("T"))
    OP("back", "StringToNumber", "input: 'string:output:0' ", TYPE("out_type"))
    "} function { signature { name: 'asks' " ARG("a") RET("r") "} "
    "ret { key: 'r' value: 'sum:z:0' } " OP("sum", "AddV2", "input: 'a' input: 'a' device: '/device:CPU:0' ", TYPE("T"))
    "} function { signature { name: 'known' " ARG("a") RET("r") "} "
    "ret { key: 'r' value: 'sum:z:0' } " CONST("two", "2")
    OP("square", "Mul", "input: 'two:output:0' input: 'two:output:0' ", TYPE("T"))
    OP("sum", "AddV2", "input: 'a' input: 'square:z:0' ", TYPE("T"))
    "} function { signature { name: 'few' " ARG("n") "input_arg { name: 'l' " VARIANT "} "
    "output_arg { name: 'r' type: DT_BOOL } } ret { key: 'r' value: 'c:z:0' } " CONST("ten", "10")
    OP("c", "Less", "input: 'n' input: 'ten:output:0' ", TYPE("T"))
    "} function { signature { name: 'push' " ARG("n") "input_arg { name: 'l' " VARIANT "} " RET("m")
    "output_arg { name: 'k' " VARIANT "} } "
    "ret { key: 'm' value: 'plus:z:0' } ret { key: 'k' value: 'more:output_handle:0' } " CONST("one", "1")
    OP("plus", "AddV2", "input: 'n' input: 'one:output:0' ", TYPE("T"))
    OP("more", "TensorListPushBack", "input: 'l' input: 'n' ", OF_FLOATS)
    "} function { signature { name: 'set' " HANDLE("x") ARG("a") RET("r") "} ret { key: 'r' value: 'now:value:0' } "
    OP("put", "AssignVariableOp", "input: 'x' input: 'a' ", TYPE("dtype"))
    OP("now", "ReadVariableOp", "input: 'x' input: '^put' ", TYPE("dtype"))
    "} function { signature { name: 'times' " HANDLE("x") HANDLE("y") RET("r") "} ret { key: 'r' value: 'xy:z:0' } "
    OP("a", "ReadVariableOp", "input: 'x' ", TYPE("dtype")) OP("b", "ReadVariableOp", "input: 'y' ", TYPE("dtype"))
    OP("xy", "Mul", "input: 'a:value:0' input: 'b:value:0' ", TYPE("T"))
    "} function { signature { name: 'down' " HANDLE("x") HANDLE("y") ARG("n") RET("r") "} "
    "ret { key: 'r' value: 'y_n:output:0' } " CONST("ten", "10")
    OP("c", "Less", "input: 'n' input: 'ten:output:0' ", TYPE("T"))
    OP("y_n", "If", "input: 'c:z:0' input: 'x' input: 'y' input: 'n' ",
       "attr { key: 'Tcond' value { type: DT_BOOL } } " THREE FUNC("then_branch", "deeper") FUNC("else_branch", "end"))
    "} function { signature { name: 'deeper' " HANDLE("x") HANDLE("y") ARG("n") RET("r") "} "
    "ret { key: 'r' value: 'call:output:0' } " CONST("one", "1")
    OP("plus", "AddV2", "input: 'n' input: 'one:output:0' ", TYPE("T"))
    OP("call", "StatefulPartitionedCall", "input: 'x' input: 'y' input: 'plus:z:0' ", THREE FUNC("f", "down"))
    "} function { signature { name: 'end' " HANDLE("x") HANDLE("y") ARG("n") RET("r") "} "
    "ret { key: 'r' value: 'call:output:0' } "
    OP("call", "StatefulPartitionedCall", "input: 'x' input: 'y' ",
       TYPES("Tin", RESOURCE RESOURCE) TYPES("Tout", FLOAT) FUNC("f", "times"))
    "} } ";

static const char task[] = "/job:localhost/replica:0/task:0";

struct place {
  struct pool *pool;
  struct device **devices; /* CPU:0, GPU:0 */
  int n;
  struct resource_mgr **resources;
};

static void place_init(struct place *p) {
  assert_int_equal(setenv("SHOAL_SOFT_GPUS", "1", 1), 0);
  p->pool = pool_new(2, "test");
  p->devices = devices_new(task, NULL, 0, NULL, p->pool, &p->n);
  assert_int_equal(p->n, 2);
  p->resources = mem_zalloc((size_t)p->n, sizeof *p->resources);
  for (int i = 0; i < p->n; i++) p->resources[i] = resource_mgr_new("localhost");
}

static void place_release(struct place *p) {
  for (int i = 0; i < p->n; i++) {
    resource_mgr_close(p->resources[i]);
    device_free(p->devices[i]);
  }
  free(p->resources);
  free(p->devices);
  pool_free(p->pool);
}

/* Runs a graph on one of the devices with x (and y, one more) as arguments: the first result, and where its nodes ran.
 */
static float run_without(const char *off, int device, const char *nodes, float x, shoal_bytes *trace) {
  struct place here;
  place_init(&here);
  struct shoal_graph *g = graph_new();
  ASSERT_OK(shoal_graph_import_text(g, library, strlen(library), NULL));
  ASSERT_OK(shoal_graph_import_text(g, nodes, strlen(nodes), NULL));
  struct function_runtime *functions = function_runtime_new(g);
  function_runtime_place(functions, here.devices, NULL, here.resources, here.n, off);
  struct plan_options o = {here.devices[device], here.resources[device], functions, NULL};
  struct plan *p;
  ASSERT_OK(plan_compile(g, &o, &p));
  graph_free(g);
  struct tensor in[2], out[2] = {{0}};
  for (int i = 0; i < 2; i++) {
    ASSERT_OK(tensor_new_scalar(&in[i], SHOAL_FLOAT32));
    *T_DATA(&in[i], float) = x + (float)i;
  }
  struct cancel cancel;
  cancel_init(&cancel);
  struct step step = {.cancel = &cancel,
                      .inter = here.pool,
                      .step_resources = resource_mgr_new("step"),
                      .deadline = DEADLINE_NEVER,
                      .session = "",
                      .stats = step_stats_new(true),
                      .args = in,
                      .n_args = 2,
                      .rets = out,
                      .n_rets = 2};
  struct latch ended;
  latch_init(&ended, 1);
  plan_run(p, &step, latch_done, &ended);
  ASSERT_OK(latch_finish(&ended));
  ASSERT_OK(run_metadata_encode(step.stats, NULL, 0, trace));
  float first = *T_DATA(&out[0], float);
  step_stats_free(step.stats);
  resource_mgr_unref(step.step_resources);
  for (int i = 0; i < 2; i++) {
    tensor_release(&in[i]);
    tensor_release(&out[i]);
  }
  plan_unref(p);
  function_runtime_unref(functions);
  cancel_release(&cancel);
  place_release(&here);
  return first;
}

static float run_at(int device, const char *nodes, float x, shoal_bytes *trace) {
  return run_without(NULL, device, nodes, x, trace);
}

/* Of a node: "NAME =". */
static int count(const shoal_bytes *in, const char *text) {
  int n = 0;
  const char *at = in->data, *end = at + in->size;
  for (; (at = memmem(at, (size_t)(end - at), text, strlen(text))); at++) n++;
  return n;
}

#define WHILE                                                                                           \
  "node { name: 'loop' op: 'While' input: 'n' input: 'a' " TYPES("T", FLOAT FLOAT) FUNC("cond", "less") \
      FUNC("body", "next") "} "
#define ENDS(value) END("n", "_Arg", "", "0") END("a", "_Arg", "", "1") value END("z", "_Retval", "input: 'y' ", "0")

/* What a loop carries goes to the device once and comes back once; the host sees the condition, and nothing else. */
static void a_loop_stays_on_its_device(void **state) {
  shoal_bytes trace = {0};
  float r =
      run_at(1, END("n", "_Arg", "", "0") END("a", "_Arg", "", "1") WHILE END("z", "_Retval", "input: 'loop:1' ", "0"),
             7, &trace);
  assert_float_equal(r, 64, 0); /* 8, doubled three times */
  assert_int_equal(count(&trace, "/device:CPU:0"), 0);
  assert_int_equal(count(&trace, "a/_to_device ="), 1);
  assert_int_equal(count(&trace, "loop/_to_host ="), 1);
  assert_int_equal(count(&trace, "sum/_to_host ="), 0);
  assert_int_equal(count(&trace, "c/_to_host ="), 4);
  shoal_bytes_free(&trace);
}

/* So do the elements of a list that it carries; the list itself is the host's. */
static void a_list_stays_on_its_device(void **state) {
  static const char nodes[] = END("n", "_Arg", "", "0") INTS("node", "scalar", "dim { size: 0 } ", "")
      INTS("node", "none", "", "int_val: -1 ") INTS("node", "two", "", "int_val: 2 ")
      "node { name: 'empty' op: 'EmptyTensorList' input: 'scalar' input: 'none' " OF_FLOATS
      "attr { key: 'shape_type' value { type: DT_INT32 } } } "
      "node { name: 'loop' op: 'While' input: 'n' input: 'empty' " TYPES("T", FLOAT VARIANT) FUNC("cond", "few")
      FUNC("body", "push") "} node { name: 'y' op: 'TensorListGetItem' input: 'loop:1' input: 'two' input: 'scalar' "
      OF_FLOATS "} " END("z", "_Retval", "input: 'y' ", "0");
  for (int device = 0; device < 2; device++) {
    shoal_bytes trace = {0};
    assert_float_equal(run_at(device, nodes, 7, &trace), 9, 0);
    assert_int_equal(count(&trace, "/device:CPU:0"), !device);
    assert_int_equal(count(&trace, "y/_to_host ="), device);
    assert_int_equal(count(&trace, "more/_to_host ="), 0);
    assert_int_equal(count(&trace, "loop/_to_host ="), 0);
    shoal_bytes_free(&trace);
  }
}

static void branches_and_counted_loops(void **state) {
  static const struct {
    const char *node;
    float result;
  } cases[] = {
      {"node { name: 'y' op: 'If' input: 'n' input: 'a' " TYPE("Tcond") TYPES("Tin", FLOAT) TYPES("Tout", FLOAT)
           FUNC("then_branch", "both") FUNC("else_branch", "asks") "} ",
       24},
      {"node { name: 'i' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { "
       "tensor { dtype: DT_INT32 tensor_shape { } int_val: 1 } } } } "
       "node { name: 'y' op: 'Case' input: 'i' input: 'a' " TYPES("Tin", FLOAT) TYPES(
           "Tout", FLOAT) "attr { key: 'branches' value { list { func { name: 'asks' } func { name: 'both' } } } } } ",
       24},
      {"node { name: 'i' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { "
       "tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 } } } } "
       "node { name: 'k' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { "
       "tensor { dtype: DT_INT32 tensor_shape { } int_val: 6 } } } } "
       "node { name: 'd' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } } attr { key: 'value' value { "
       "tensor { dtype: DT_INT32 tensor_shape { } int_val: 2 } } } } "
       "node { name: 'y' op: 'For' input: 'i' input: 'k' input: 'd' input: 'a' " TYPES("T", FLOAT)
           FUNC("body", "twice") "} ",
       64},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    shoal_bytes trace = {0};
    struct text t = {0};
    text_addf(&t, ENDS("%s"), cases[i].node);
    assert_float_equal(run_at(1, text_cstr(&t), 7, &trace), cases[i].result, 0);
    assert_int_equal(count(&trace, "/device:CPU:0"), 0);
    shoal_bytes_free(&trace);
    text_release(&t);
  }
}

#define CALL(f) \
  "node { name: 'y' op: 'PartitionedCall' input: 'a' " TYPES("Tin", FLOAT) TYPES("Tout", FLOAT) FUNC("f", f) "} "

/* Strings have no kernel there: they run on the CPU, and the sum before them where it was called. */
static void what_a_device_has_not_runs_elsewhere(void **state) {
  shoal_bytes trace = {0};
  assert_float_equal(run_at(1, ENDS(CALL("text")), 7, &trace), 16, 0);
  assert_int_equal(count(&trace, "/device:CPU:0"), 1);
  assert_int_equal(count(&trace, "/device:GPU:0"), 1);
  assert_int_equal(count(&trace, "sum/_to_host ="), 1);
  shoal_bytes_free(&trace);
}

/* A body's own request counts, wherever it is called. */
static void requests_inside_a_body_count(void **state) {
  shoal_bytes trace = {0};
  assert_float_equal(run_at(1, ENDS(CALL("asks")), 7, &trace), 16, 0);
  assert_int_equal(count(&trace, "/device:CPU:0"), 1);
  shoal_bytes_free(&trace);
  trace = (shoal_bytes){0};
  assert_float_equal(run_at(0, ENDS(CALL("asks")), 7, &trace), 16, 0);
  assert_int_equal(count(&trace, "/device:GPU:0"), 0);
  shoal_bytes_free(&trace);
}

/* Bodies are rewritten as steps are: what is known beforehand is computed once, chains are fused where the device can.
 */
static void bodies_are_rewritten(void **state) {
  for (int device = 0; device < 2; device++) {
    shoal_bytes trace = {0};
    assert_float_equal(run_at(device, ENDS(CALL("known")), 7, &trace), 12, 0);
    assert_int_equal(count(&trace, "= Mul("), 0);
    shoal_bytes_free(&trace);
    trace = (shoal_bytes){0};
    assert_float_equal(run_without("all", device, ENDS(CALL("known")), 7, &trace), 12, 0);
    assert_int_equal(count(&trace, "= Mul("), 1);
    shoal_bytes_free(&trace);
  }
  shoal_bytes trace = {0};
  assert_float_equal(run_at(0, ENDS(CALL("both")), 7, &trace), 24, 0);
  assert_int_equal(count(&trace, "= AddV2("), 0);
  shoal_bytes_free(&trace);
}

/* Calls a function on one of the devices; numbers are the host's on both sides. */
static float call_at(const struct place *here, struct function_runtime *functions, int device, const char *name,
                     const struct tensor *args, int n) {
  struct kernel_init ki = {
      .device = here->devices[device], .resources = here->resources[device], .functions = functions};
  struct function *f;
  struct tensor out;
  ASSERT_OK(function_get_with(&ki, &(struct func_attr){.name = (char *)name},
                              (struct function_memory){UINT32_MAX, UINT32_MAX}, &f));
  struct cancel cancel;
  cancel_init(&cancel);
  struct step step = {.cancel = &cancel,
                      .inter = here->pool,
                      .step_resources = resource_mgr_new("step"),
                      .deadline = DEADLINE_NEVER,
                      .session = ""};
  ASSERT_OK(function_call_sync(f, &step, args, n, &out, 1));
  float value = *T_DATA(&out, float);
  tensor_release(&out);
  resource_mgr_unref(step.step_resources);
  cancel_release(&cancel);
  return value;
}

/* Variables of two devices in one call, in every order, wherever that is made: each is read where it is. */
static void handles_of_two_devices(void **state) {
  struct place here;
  place_init(&here);
  struct shoal_graph *g = graph_new();
  ASSERT_OK(shoal_graph_import_text(g, library, strlen(library), NULL));
  struct function_runtime *functions = function_runtime_new(g);
  function_runtime_place(functions, here.devices, NULL, here.resources, here.n, NULL);
  graph_free(g);
  struct tensor handles[2], number;
  for (int i = 0; i < 2; i++) {
    ASSERT_OK(resource_handle_tensor(here.resources[i], here.devices[i]->name, "", "v", &variable_type, &handles[i]));
    ASSERT_OK(tensor_new_scalar(&number, SHOAL_FLOAT32));
    *T_DATA(&number, float) = (float)(3 + i);
    assert_float_equal(call_at(&here, functions, !i, "set", (struct tensor[]){handles[i], number}, 2), 3 + i, 0);
    tensor_release(&number);
  }
  ASSERT_OK(tensor_new_scalar(&number, SHOAL_FLOAT32));
  *T_DATA(&number, float) = 7;
  for (int i = 0; i < 8; i++) {
    int x = i & 1, y = i >> 1 & 1, device = i >> 2;
    const struct tensor args[] = {handles[x], handles[y], number};
    assert_float_equal(call_at(&here, functions, device, "times", args, 2), (3 + x) * (3 + y), 0);
    assert_float_equal(call_at(&here, functions, device, "down", args, 3), (3 + x) * (3 + y), 0);
  }
  tensor_release(&number);
  for (int i = 0; i < 2; i++) tensor_release(&handles[i]);
  function_runtime_unref(functions);
  place_release(&here);
}

RUN_TESTS(cmocka_unit_test(a_loop_stays_on_its_device), cmocka_unit_test(a_list_stays_on_its_device),
          cmocka_unit_test(branches_and_counted_loops), cmocka_unit_test(what_a_device_has_not_runs_elsewhere),
          cmocka_unit_test(requests_inside_a_body_count), cmocka_unit_test(bodies_are_rewritten),
          cmocka_unit_test(handles_of_two_devices))
