/* Functions: the library, instantiation, lowering, and what must not be believed. */
#include "unit.h"

#include <semaphore.h>

#include "graph/builder.h"
#include "graph/function.h"
#include "graph/lower.h"
#include "runtime/function.h"
#include "runtime/plan.h"
#include "shoal/session.h"

#define ARG(name) "input_arg { name: '" name "' type: DT_FLOAT } "
#define RET(name) "output_arg { name: '" name "' type: DT_FLOAT } "
#define T "attr { key: 'T' value { type: DT_FLOAT } } "
#define CALL(name, f, in)                                             \
  "node { name: '" name "' op: 'StatefulPartitionedCall' input: '" in \
  "' "                                                                \
  "attr { key: 'f' value { func { name: '" f                          \
  "' } } } attr { key: 'Tin' value { list { type: DT_FLOAT } } } "    \
  "attr { key: 'Tout' value { list { type: DT_FLOAT } } } } "
#define X "node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } } "
/* twice(a) = a + a */
#define TWICE \
  "library { function { signature { name: 'twice' " ARG("a") RET("r") " } ret { key: 'r' value: 'sum:z:0' } "     \
  "node_def { name: 'sum' op: 'AddV2' input: 'a' input: 'a' " T "} } } "

static shoal_status take(struct shoal_graph *g, const char *text) {
  return shoal_graph_import_text(g, text, strlen(text), NULL);
}

static float run(struct shoal_graph *g, const char *fetch, float x) {
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, &(shoal_session_options){0}, &s));
  shoal_tensor *feed, *out;
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &x, sizeof x, &feed));
  ASSERT_OK(shoal_session_run(s, NULL, (const char *const[]){"x:0"}, &feed, 1, &fetch, &out, 1, NULL, 0, NULL));
  float v = *(const float *)shoal_tensor_const_data(out);
  shoal_tensor_unref(feed);
  shoal_tensor_unref(out);
  ASSERT_OK(shoal_session_close(s));
  return v;
}

static void calls_are_inlined_under_their_name(void **state) {
  struct shoal_graph *g = graph_new();
  ASSERT_OK(take(g, TWICE X CALL("y", "twice", "x") "node { name: 'z' op: 'twice' input: 'y' }"));
  struct shoal_node *y = graph_find(g, "y");
  assert_true(graph_needs_lowering(g));
  ASSERT_OK(graph_lower(g));
  assert_false(graph_needs_lowering(g));
  assert_ptr_equal(graph_find(g, "y"), y);
  assert_string_equal(y->op->name, "IdentityN");
  assert_non_null(graph_find(g, "y/sum"));
  assert_ptr_equal(graph_find(g, "z/sum")->in[0].node, graph_find(g, "y/sum"));
  assert_float_equal(run(g, "z:0", 1.5f), 6, 0);
  graph_free(g);
}

static void a_body_is_typed_by_the_call(void **state) {
  struct shoal_graph *g = graph_new();
  ASSERT_OK(take(g,
                 "library { function { signature { name: 'f' attr { name: 'T' type: 'type' } "
                 "input_arg { name: 'a' type_attr: 'T' } output_arg { name: 'r' type_attr: 'T' } } "
                 "ret { key: 'r' value: 'i:output:0' } "
                 "node_def { name: 'i' op: 'Identity' input: 'a' attr { key: 'T' value { placeholder: 'T' } } } } }"));
  struct named_attr type = {"T", attr_type(SHOAL_INT64)};
  struct function_body b;
  ASSERT_OK(function_instantiate(g, graph_function(g, "f"), &type, 1, &b));
  assert_int_equal(b.n_args, 1);
  assert_int_equal(b.args[0]->out_types[0], SHOAL_INT64);
  assert_string_equal(b.rets[0]->in[0].node->name, "i");
  function_body_release(&b);
  ASSERT_FAILS(function_instantiate(g, graph_function(g, "f"), NULL, 0, &b), SHOAL_INVALID_ARGUMENT,
               "Attr T is not found");
  graph_free(g);
}

static void endless_functions_are_errors(void **state) {
  struct shoal_graph *g = graph_new();
#define SELF(name, callee) \
  "function { signature { name: '" name "' " ARG("a") RET("r") " } ret { key: 'r' value: 'c:output:0' } "          \
  "node_def { name: 'c' op: 'PartitionedCall' input: 'a' attr { key: 'f' value { func { name: '" callee "' } } } "  \
  "attr { key: 'Tin' value { list { type: DT_FLOAT } } } attr { key: 'Tout' value { list { type: DT_FLOAT } } } } } "
  ASSERT_OK(take(g, "library { " SELF("f", "f") "} " X CALL("y", "f", "x")));
  ASSERT_FAILS(graph_lower(g), SHOAL_INVALID_ARGUMENT, "Function 'f' calls itself");
  graph_free(g);
  g = graph_new();
  ASSERT_OK(take(g, "library { " SELF("p", "q") SELF("q", "p") "} " X CALL("y", "p", "x")));
  ASSERT_FAILS(graph_lower(g), SHOAL_INVALID_ARGUMENT, "calls itself, directly or through others");
  graph_free(g);
}

/* f0 calls f1 twice, which calls f2 twice, ... */
static struct shoal_graph *doubling(int depth) {
  struct text t = {0};
  text_adds(&t, "library { ");
  for (int i = 0; i < depth; i++)
    text_addf(&t,
              "function { signature { name: 'f%d' " ARG("a") RET("r") " } ret { key: 'r' value: 's:z:0' } "
              "node_def { name: 'p' op: 'f%d' input: 'a' } node_def { name: 'q' op: 'f%d' input: 'a' } "
              "node_def { name: 's' op: 'AddV2' input: 'p:r:0' input: 'q:r:0' " T "} } ", i, i + 1, i + 1);
  text_addf(&t,
            "function { signature { name: 'f%d' " ARG("a") RET("r") " } ret { key: 'r' value: 'a' } } } " X
                                                                    "node { name: 'y' op: 'f0' input: 'x' }",
            depth);
  struct shoal_graph *g = graph_new();
  ASSERT_OK(take(g, text_cstr(&t)));
  text_release(&t);
  return g;
}

static void functions_that_multiply_are_bounded(void **state) {
  struct shoal_graph *g = doubling(40);
  int before = g->n_nodes;
  ASSERT_FAILS(graph_lower(g), SHOAL_RESOURCE_EXHAUSTED, "{{node y}} (op f0) makes more than 500000");
  assert_int_equal(g->n_nodes, before); /* it was known beforehand */
  graph_free(g);
}

/* Each of nine functions calls all others: what the library does not tell beforehand is met on the way, and ends all
 * lowering instead of every node's in turn. */
static void functions_that_call_each_other_are_bounded(void **state) {
  enum { N = 9 };
  struct text t = {0};
  text_adds(&t, "library { ");
  for (int i = 0; i < N; i++) {
    text_addf(&t, "function { signature { name: 'f%d' " ARG("a") RET("r") " } ret { key: 'r' value: 'a' } ", i);
    for (int k = 0; k < N; k++)
      if (k != i) text_addf(&t, "node_def { name: 'n%d' op: 'f%d' input: 'a' } ", k, k);
    text_adds(&t, "} ");
  }
  text_adds(&t, "} " X "node { name: 'y' op: 'f0' input: 'x' }");
  struct shoal_graph *g = graph_new();
  ASSERT_OK(take(g, text_cstr(&t)));
  struct effort effort = {.left = 20000, .what = "Inlining functions"};
  g->effort = &effort;
  ASSERT_FAILS(graph_try_lower(g), SHOAL_RESOURCE_EXHAUSTED, "Inlining functions takes more work than is allowed");
  assert_in_range(g->n_nodes, 1000, 20000 + 100);
  graph_free(g);
  text_release(&t);
}

static bool after_three_looks(void *looks) { return ++*(int *)looks > 3; }

static void lowering_stops_when_nobody_waits(void **state) {
  struct shoal_graph *g = doubling(10);
  int looks = 0;
  struct effort effort = {.left = EFFORT_UNBOUNDED, .over = after_three_looks, .arg = &looks};
  g->effort = &effort;
  ASSERT_FAILS(graph_try_lower(g), SHOAL_CANCELLED, "nobody waits");
  assert_int_equal(looks, 4);
  assert_in_range(g->n_nodes, 10, 4 * EFFORT_LOOK);
  g->effort = NULL;
  ASSERT_OK(graph_try_lower(g)); /* the next one who asks goes on with it */
  assert_false(graph_needs_lowering(g));
  assert_float_equal(run(g, "y:0", 1), 1024, 0);
  graph_free(g);
}

/* Control inputs that a body names again and again are there once. */
static void controls_are_there_once(void **state) {
  struct text t = {0};
  text_adds(&t,
            "library { function { signature { name: 'f' " ARG("a") RET("r") " } ret { key: 'r' value: 'i:output:0' } ");
  for (int i = 0; i < 30; i++) text_addf(&t, "node_def { name: 'n%d' op: 'NoOp' input: '^a' } ", i);
  text_adds(&t, "node_def { name: 'i' op: 'Identity' input: 'a' " T);
  for (int i = 0; i < 90; i++) text_addf(&t, "input: '^n%d' ", i % 30);
  text_adds(&t, "input: '^a' } } } " X "node { name: 'y' op: 'f' input: 'x' }");
  struct shoal_graph *g = graph_new();
  ASSERT_OK(take(g, text_cstr(&t)));
  ASSERT_OK(graph_lower(g));
  assert_int_equal(graph_find(g, "y/i")->control.n, 31);
  assert_float_equal(run(g, "y:0", 3), 3, 0);
  graph_free(g);
  text_release(&t);
}

static void broken_bodies_are_named(void **state) {
  static const struct {
    const char *body, *why;
  } cases[] = {
      {"ret { key: 'r' value: 'gone:z:0' }", "input gone:z:0 is not found"},
      {"ret { key: 'r' value: 's:z:0' } node_def { name: 's' op: 'AddV2' input: 'a' " T "}", "1 of its 2 inputs"},
      {"ret { key: 'r' value: 's:z:0' } node_def { name: 's' op: 'AddV2' input: 'a' input: 'a' input: 'a' " T "}",
       "fewer"},
      {"ret { key: 'r' value: 's:z:1' } node_def { name: 's' op: 'AddV2' input: 'a' input: 'a' " T "}",
       "s:z:1 is not found"},
      {"ret { key: 'r' value: 's:z:0' } node_def { name: 's' op: 'Nonesuch' }", "Op type not registered 'Nonesuch'"},
      {"ret { key: 'r' value: 'a' } control_ret { key: 'c' value: 'gone' }", "Control output 'gone'"},
      {"ret { key: 'r' value: 's:output:0' } node_def { name: 's' op: 'Identity' input: 't:output:0' " T "} "
       "node_def { name: 't' op: 'Identity' input: 's:output:0' " T "}",
       "cycle"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct text t = {0};
    text_addf(&t, "library { function { signature { name: 'f' " ARG("a") RET("r") " } %s } } " X CALL("y", "f", "x"),
              cases[i].body);
    struct shoal_graph *g = graph_new();
    ASSERT_OK(take(g, text_cstr(&t)));
    shoal_status s = graph_lower(g);
    if (!s || !strstr(shoal_status_message(s), cases[i].why)) fail_msg("%s: %s", cases[i].why, shoal_status_message(s));
    shoal_status_free(s);
    graph_free(g);
    text_release(&t);
  }
}

static void a_call_must_fit(void **state) {
  struct shoal_graph *g = graph_new();
  ASSERT_OK(take(g, TWICE
                 "node { name: 'i' op: 'Placeholder' attr { key: 'dtype' value { type: DT_INT32 } } } "
                 "node { name: 'y' op: 'PartitionedCall' input: 'i' attr { key: 'f' value { func { name: 'twice' } } } "
                 "attr { key: 'Tin' value { list { type: DT_INT32 } } } "
                 "attr { key: 'Tout' value { list { type: DT_FLOAT } } } }"));
  ASSERT_FAILS(graph_lower(g), SHOAL_INVALID_ARGUMENT, "is int32 but should be float");
  graph_free(g);
  g = graph_new();
  ASSERT_OK(take(g, X CALL("y", "nobody", "x")));
  ASSERT_FAILS(graph_lower(g), SHOAL_NOT_FOUND, "Function 'nobody' is not found");
  graph_free(g);
}

static void note(void *arg, shoal_status s) {
  ASSERT_OK(s);
  sem_post(arg);
}

/* A session keeps stateful kernels by their nodes' names, also when the graph that they came with has gone, and with
 * it the functions that it brought. */
static void a_kept_kernel_keeps_its_functions(void **state) {
  struct pool *pool = pool_new(1, "test");
  struct device *device;
  ASSERT_OK(device_new("CPU", "/job:localhost/replica:0/task:0", 0, pool, &device));
  struct resource_mgr *resources = resource_mgr_new("localhost"), *of_step = resource_mgr_new("step");
  struct kernel_cache *kernels = kernel_cache_new();
  struct cancel cancel;
  cancel_init(&cancel);
  for (int i = 0; i < 3; i++) {
    struct shoal_graph *g = graph_new();
    ASSERT_OK(take(
        g, TWICE "node { name: 'x' op: '_Arg' attr { key: 'index' value { i: 0 } } " T "} " CALL(
               "y", "twice", "x") "node { name: 'z' op: '_Retval' input: 'y' attr { key: 'index' value { i: 0 } } " T
                                  "}"));
    struct function_runtime *functions = function_runtime_new(g);
    struct plan_options o = {device, resources, functions, kernels};
    struct plan *p;
    ASSERT_OK(plan_compile(g, &o, &p));
    graph_free(g);
    struct tensor in, out = {0};
    ASSERT_OK(tensor_new_scalar(&in, SHOAL_FLOAT32));
    *T_DATA(&in, float) = 2;
    struct step step = {.cancel = &cancel,
                        .inter = pool,
                        .step_resources = of_step,
                        .deadline = DEADLINE_NEVER,
                        .session = "",
                        .args = &in,
                        .n_args = 1,
                        .rets = &out,
                        .n_rets = 1};
    sem_t ended;
    sem_init(&ended, 0, 0);
    plan_run(p, &step, note, &ended);
    while (sem_wait(&ended)) {
    }
    assert_float_equal(*T_DATA(&out, float), 4, 0);
    sem_destroy(&ended);
    tensor_release(&in);
    tensor_release(&out);
    plan_unref(p);
    function_runtime_unref(functions);
  }
  kernel_cache_free(kernels);
  resource_mgr_unref(of_step);
  resource_mgr_unref(resources);
  cancel_release(&cancel);
  device_free(device);
  pool_free(pool);
}

RUN_TESTS(cmocka_unit_test(calls_are_inlined_under_their_name), cmocka_unit_test(a_body_is_typed_by_the_call),
          cmocka_unit_test(endless_functions_are_errors), cmocka_unit_test(functions_that_multiply_are_bounded),
          cmocka_unit_test(functions_that_call_each_other_are_bounded),
          cmocka_unit_test(lowering_stops_when_nobody_waits), cmocka_unit_test(controls_are_there_once),
          cmocka_unit_test(broken_bodies_are_named), cmocka_unit_test(a_call_must_fit),
          cmocka_unit_test(a_kept_kernel_keeps_its_functions))
