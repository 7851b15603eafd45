/* What lives between nodes, on devices whose memory is not the host's: stacks, tensor arrays, tensor lists, what
 * devices compute together. On the soft device (src/device/soft). */
#include "unit.h"

#include <pthread.h>
#include <shoal/shoal.h>

#include "base/mem.h"

static void setup_gpus(const char *n) { assert_int_equal(setenv("SHOAL_SOFT_GPUS", n, 1), 0); }

static int count(const shoal_bytes *in, const char *text) {
  int n = 0;
  const char *at = in->data, *end = at + in->size;
  for (; (at = memmem(at, (size_t)(end - at), text, strlen(text))); at++) n++;
  return n;
}

#define TYPE(key, type) "attr { key: '" key "' value { type: " type " } } "
#define NODE(name, op, rest) "node { name: '" name "' op: '" op "' device: '/device:GPU:0' " rest "} "
#define AT(device, name, op, rest) "node { name: '" name "' op: '" op "' device: '/device:" device "' " rest "} "
#define IN(name) "input: '" name "' "
#define FOUR                               \
  "node { name: 'four' op: 'Const' " TYPE( \
      "dtype",                             \
      "DT_FLOAT") "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 4 } } } } "
#define ADD(device, name, in) AT(device, name, "AddV2", IN(in) IN(in) TYPE("T", "DT_FLOAT"))

/* The values that a graph makes, n of them, and how often the host got any. */
static void run_graph(const char *text, const char *fetch, float *values, size_t n, int to_host) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *out = NULL;
  shoal_bytes trace = {0};
  ASSERT_OK(shoal_graph_import_text(g, text, strlen(text), NULL));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = "all"), &s));
  ASSERT_OK(
      shoal_session_run(s, &(shoal_run_options){.trace_level = 3}, NULL, NULL, 0, &fetch, &out, 1, NULL, 0, &trace));
  memcpy(values, shoal_tensor_const_data(out), n * sizeof *values);
  assert_int_equal(count(&trace, "_to_host ="), to_host);
  shoal_bytes_free(&trace);
  shoal_tensor_unref(out);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

#define REDUCE(device, name, in, key) \
  AT(device, name, "CollectiveReduce",                                                                           \
     IN(in) TYPE("T", "DT_FLOAT") "attr { key: 'group_size' value { i: 2 } } attr { key: 'group_key' value { i: 1 } } " \
     "attr { key: 'instance_key' value { i: " key " } } attr { key: 'merge_op' value { s: 'Add' } } "            \
     "attr { key: 'final_op' value { s: 'Id' } } attr { key: 'subdiv_offsets' value { list { i: 0 } } } ")

/* Two devices add up what each has, and go on with the sum. */
static void collectives_on_devices(void **state) {
  float y;
  setup_gpus("2");
  run_graph(FOUR ADD("GPU:0", "a", "four") ADD("GPU:1", "b", "a") REDUCE("GPU:0", "r", "a", "1")
                REDUCE("GPU:1", "s", "b", "1") ADD("GPU:0", "c", "r") ADD("GPU:1", "d", "s")
                    AT("GPU:0", "sum", "AddV2", IN("c") IN("d") TYPE("T", "DT_FLOAT")),
            "sum:0", &y, 1, 1); /* what is fetched alone */
  assert_float_equal(y, 96, 0);
}

#define VARIABLE NODE("v", "VariableV2", TYPE("dtype", "DT_FLOAT") "attr { key: 'shape' value { shape { } } } ")
#define UPDATES(name, op, ref) NODE(name, op, IN(ref) IN("four") TYPE("T", "DT_FLOAT"))
#define READ(device) AT(device, "read", "Identity", IN("v") IN("^more") TYPE("T", "DT_FLOAT"))

/* A variable, 4 and then 8, and who waits for that: on another device, and on its own, where what is fetched is read.
 */
static void references_are_read_when_their_reader_runs(void **state) {
  static const char *const readers[] = {READ("CPU:0"), READ("GPU:1"), READ("GPU:0")};
  setup_gpus("2");
  for (size_t i = 0; i < COUNT_OF(readers); i++) {
    char *text = mem_printf("%s%s", FOUR VARIABLE UPDATES("first", "Assign", "v") UPDATES("more", "AssignAdd", "first"),
                            readers[i]);
    float y;
    run_graph(text, "read:0", &y, 1, 1);
    assert_float_equal(y, 8, 0);
    free(text);
  }
}

/* What is pushed on a stack stays on its device. */
static void stacks_on_devices(void **state) {
  static const char text[] = FOUR ADD("GPU:0", "a", "four")
      NODE("size", "Const", TYPE("dtype", "DT_INT32") "attr { key: 'value' value { tensor { dtype: DT_INT32 "
                                                      "tensor_shape { } int_val: 9 } } } ")
          NODE("stack", "StackV2", IN("size") TYPE("elem_type", "DT_FLOAT"))
              NODE("push", "StackPushV2", IN("stack") IN("a") TYPE("T", "DT_FLOAT"))
                  NODE("pop", "StackPopV2", IN("stack") IN("^push") TYPE("elem_type", "DT_FLOAT"))
                      ADD("GPU:0", "b", "pop");
  float y;
  setup_gpus("1");
  run_graph(text, "b:0", &y, 1, 1);
  assert_float_equal(y, 16, 0);
}

#define INTS(name, dims, values)                                                                             \
  NODE(name, "Const",                                                                                        \
       TYPE("dtype", "DT_INT32") "attr { key: 'value' value { tensor { dtype: DT_INT32 tensor_shape { " dims \
                                 " } " values " } } } ")
#define WRITE(name, index, value, flow) \
  NODE(name, "TensorArrayWriteV3", IN("array") IN(index) IN(value) IN(flow) TYPE("T", "DT_FLOAT"))

/* What is written to an array and gathered from it stays on its device; so does what was never written. */
static void arrays_on_devices(void **state) {
  static const char text[] =
      FOUR ADD("GPU:0", "a", "four") ADD("GPU:0", "b", "a") INTS("zero", "", "int_val: 0") INTS("one", "", "int_val: 1")
          INTS("three", "", "int_val: 3") INTS("order", "dim { size: 3 }", "int_val: 1 int_val: 2 int_val: 0")
              NODE("array", "TensorArrayV3",
                   IN("three") TYPE("dtype", "DT_FLOAT") "attr { key: 'element_shape' value { shape { } } } ")
                  WRITE("first", "zero", "a", "array:1") WRITE("second", "one", "b", "first")
                      NODE("all", "TensorArrayGatherV3", IN("array") IN("order") IN("second") TYPE("dtype", "DT_FLOAT"))
                          NODE("shown", "Reshape", IN("all") IN("shape") TYPE("T", "DT_FLOAT"))
                              INTS("shape", "dim { size: 2 }", "int_val: 3 int_val: 1");
  float values[3];
  setup_gpus("1");
  run_graph(text, "shown:0", values, 3, 1);
  assert_memory_equal(values, ((float[]){16, 0, 8}), sizeof values);
}

/* ---- lists ---- */

#define OF_FLOATS TYPE("element_dtype", "DT_FLOAT")
#define LIST_NUMBERS                                                                                                 \
  FOUR ADD("GPU:0", "a", "four") ADD("GPU:0", "b", "a") INTS("zero", "", "int_val: 0") INTS("one", "", "int_val: 1") \
      INTS("three", "", "int_val: 3") INTS("scalar", "dim { size: 0 }", "")
#define SET(device, name, list, index, value) \
  AT(device, name, "TensorListSetItem", IN(list) IN(index) IN(value) OF_FLOATS)
#define GET(device, name, list, index) AT(device, name, "TensorListGetItem", IN(list) IN(index) IN("scalar") OF_FLOATS)
#define STACK(device, name, list) AT(device, name, "TensorListStack", IN(list) IN("scalar") OF_FLOATS)
/* Three elements: 8, none, 16. */
#define LIST                                                                                                        \
  LIST_NUMBERS NODE("list", "TensorListReserve", IN("scalar") IN("three") OF_FLOATS TYPE("shape_type", "DT_INT32")) \
      INTS("two", "", "int_val: 2") SET("GPU:0", "first", "list", "zero", "a")                                      \
          SET("GPU:0", "all", "first", "two", "b")

/* What is put into a list and taken out of it stays on its device; so do zeros for what was never put there. */
static void lists_on_devices(void **state) {
  float values[3];
  setup_gpus("1");
  run_graph(LIST STACK("GPU:0", "stacked", "all"), "stacked:0", values, 3, 1);
  assert_memory_equal(values, ((float[]){8, 0, 16}), sizeof values);
  run_graph(LIST GET("GPU:0", "x", "all", "two") ADD("GPU:0", "y", "x"), "y:0", values, 1, 1);
  assert_float_equal(values[0], 32, 0);
  run_graph(LIST GET("GPU:0", "x", "all", "one") ADD("GPU:0", "y", "x"), "y:0", values, 1, 1);
  assert_float_equal(values[0], 0, 0);
  run_graph(LIST INTS("order", "dim { size: 3 }", "int_val: 2 int_val: 1 int_val: 2")
                NODE("taken", "TensorListGather", IN("all") IN("order") IN("scalar") OF_FLOATS),
            "taken:0", values, 3, 1);
  assert_memory_equal(values, ((float[]){16, 0, 16}), sizeof values);
}

/* Rows of a tensor are elements in its memory; what is pushed is popped. */
static void lists_of_rows_on_devices(void **state) {
  float values[3];
  setup_gpus("1");
  run_graph(LIST STACK("GPU:0", "stacked", "all") NODE(
                "rows", "TensorListFromTensor", IN("stacked") IN("scalar") OF_FLOATS TYPE("shape_type", "DT_INT32"))
                NODE("more", "TensorListPushBack", IN("rows") IN("a") OF_FLOATS)
                    NODE("less", "TensorListPopBack", IN("more") IN("scalar") OF_FLOATS)
                        NODE("least", "TensorListPopBack", IN("less") IN("scalar") OF_FLOATS)
                            NODE("sum", "AddV2", IN("less:1") IN("least:1") TYPE("T", "DT_FLOAT")),
            "sum:0", values, 1, 1);
  assert_float_equal(values[0], 24, 0);
}

/* A list that goes elsewhere takes its elements along: to the CPU, to another device, which both change it, and back.
 * Indices and shapes go from device to device, and are read by the host there. */
static void lists_travel(void **state) {
  float values[3];
  setup_gpus("2");
  run_graph(LIST STACK("CPU:0", "stacked", "all"), "stacked:0", values, 3, 1);
  assert_memory_equal(values, ((float[]){8, 0, 16}), sizeof values);
  run_graph(LIST SET("GPU:1", "there", "all", "one", "four") STACK("GPU:1", "stacked", "there"), "stacked:0", values, 3,
            4);
  assert_memory_equal(values, ((float[]){8, 4, 16}), sizeof values);
  run_graph(LIST SET("GPU:1", "there", "all", "one", "four") SET("CPU:0", "here", "there", "zero", "four")
                STACK("GPU:0", "stacked", "here"),
            "stacked:0", values, 3, 4);
  assert_memory_equal(values, ((float[]){4, 4, 16}), sizeof values);
  run_graph(LIST GET("GPU:1", "x", "all", "two") ADD("GPU:1", "y", "x"), "y:0", values, 1, 4);
  assert_float_equal(values[0], 32, 0);
}

/* A list is fetched, and fed to another step: its elements are the host's then. */
static void lists_are_fetched_and_fed(void **state) {
  static const char text[] =
      LIST STACK("GPU:0", "stacked", "fed") AT("CPU:0", "fed", "Placeholder", TYPE("dtype", "DT_VARIANT"));
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *list = NULL, *out = NULL;
  const char *all = "all:0", *fed = "fed:0", *stacked = "stacked:0";
  setup_gpus("1");
  ASSERT_OK(shoal_graph_import_text(g, text, strlen(text), NULL));
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, &all, &list, 1, NULL, 0, NULL));
  ASSERT_OK(shoal_session_run(s, NULL, &fed, &list, 1, &stacked, &out, 1, NULL, 0, NULL));
  assert_memory_equal(shoal_tensor_const_data(out), ((float[]){8, 0, 16}), 3 * sizeof(float));
  shoal_tensor_unref(list);
  shoal_tensor_unref(out);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* ---- variables that several clients change at once ---- */

/* Two variables whose elements are always equal to each other, and what is done to them. */
struct shared {
  shoal_graph *g;
  shoal_session *s;
  shoal_op *set, *add, *pass_on, *both, *rows;
  shoal_out a, b;
};

static shoal_out variable_named(shoal_graph *g, const char *name) {
  return shoal_var_handle_op_with(
      g, SHOAL_FLOAT32, SHOAL_SHAPE(3),
      &(shoal_var_handle_op_options){sizeof(shoal_var_handle_op_options), .shared_name = name});
}

static shoal_out all_of(shoal_graph *g, float value) {
  shoal_tensor *t;
  float values[] = {value, value, value};
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 1, (int64_t[]){3}, values, sizeof values, &t));
  shoal_out of = shoal_constant(g, t);
  shoal_tensor_unref(t);
  return of;
}

static shoal_out rows_of(shoal_graph *g) {
  shoal_tensor *t;
  ASSERT_OK(shoal_tensor_from(SHOAL_INT32, 1, (int64_t[]){3}, (int32_t[]){0, 1, 2}, 12, &t));
  shoal_out of = shoal_constant(g, t);
  shoal_tensor_unref(t);
  return of;
}

static void shared_new(struct shared *m) {
  shoal_graph *g = m->g = shoal_graph_new();
  shoal_push_device(g, "/device:GPU:0");
  shoal_out a = variable_named(g, "a"), b = variable_named(g, "b");
  shoal_out twos = all_of(g, 2), rate = shoal_constant_float(g, 0.5f);
  shoal_op *set_a = shoal_assign_variable_op(g, a, all_of(g, 1)), *set_b = shoal_assign_variable_op(g, b, twos);
  m->a = shoal_neg(g, shoal_read_variable_op(g, a, SHOAL_FLOAT32));
  m->b = shoal_neg(g, shoal_read_variable_op(g, b, SHOAL_FLOAT32));
  m->set = shoal_group(g, (shoal_op *[]){set_a, set_b}, 2, "set");
  m->add = shoal_assign_add_variable_op(g, b, twos);
  m->pass_on = shoal_assign_variable_op(g, a, shoal_read_variable_op(g, b, SHOAL_FLOAT32));
  m->both = shoal_resource_apply_momentum(g, a, b, rate, twos, rate);
  m->rows = shoal_resource_scatter_add(g, a, rows_of(g), twos);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, NULL, &m->s));
  ASSERT_OK(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m->set));
}

static bool is_even(const shoal_tensor *t) {
  const float *v = shoal_tensor_const_data(t);
  return v[0] == v[1] && v[1] == v[2];
}

static void look(struct shared *m) {
  shoal_tensor *a, *b;
  ASSERT_OK(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_FETCH(m->a, &a, m->b, &b), NULL));
  assert_true(is_even(a) && is_even(b));
  shoal_tensor_unref(a);
  shoal_tensor_unref(b);
}

static void *change_often(void *arg) {
  enum { STEPS = 500 };
  struct shared *m = arg;
  static _Atomic int threads;
  int first = threads++;
  shoal_op *const does[] = {m->set, m->add, m->pass_on, m->both, m->rows};
  for (int i = 0; i < STEPS; i++) {
    ASSERT_OK(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, does[(first + i) % 5]));
    if (i % 20 == 0) look(m);
  }
  return NULL;
}

/* Whatever the others do, each step ends, and sees whole values. */
static void variables_are_changed_at_once(void **state) {
  enum { THREADS = 5 };
  pthread_t threads[THREADS];
  struct shared m;
  setup_gpus("1");
  shared_new(&m);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, change_often, &m);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  ASSERT_OK(shoal_session_close(m.s));
  shoal_graph_free(m.g);
}

RUN_TESTS(cmocka_unit_test(collectives_on_devices), cmocka_unit_test(references_are_read_when_their_reader_runs),
          cmocka_unit_test(stacks_on_devices), cmocka_unit_test(arrays_on_devices), cmocka_unit_test(lists_on_devices),
          cmocka_unit_test(lists_of_rows_on_devices), cmocka_unit_test(lists_travel),
          cmocka_unit_test(lists_are_fetched_and_fed), cmocka_unit_test(variables_are_changed_at_once))
