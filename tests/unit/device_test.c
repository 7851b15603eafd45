/* Devices whose memory is not the host's: which there are, what runs there, what crosses. On the soft device
 * (src/device/soft), whose memory kills whoever reads it without asking. */
#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <shoal/shoal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/latch.h"
#include "base/mem.h"
#include "device/device.h"
#include "device/soft/soft.h"
#include "graph/graph.h"
#include "runtime/kernel.h"
#include "runtime/memory_edges.h"
#include "runtime/plan.h"

static const char task[] = "/job:a/replica:0/task:0";

static void setup_gpus(const char *n) { assert_int_equal(setenv("SHOAL_SOFT_GPUS", n, 1), 0); }

static void a_task_has_what_was_asked_for(void **state) {
  unsetenv("SHOAL_SOFT_GPUS");
  int n;
  struct device **d = devices_new(task, NULL, 0, NULL, NULL, &n);
  assert_int_equal(n, 1);
  assert_string_equal(d[0]->name, "/job:a/replica:0/task:0/device:CPU:0");
  assert_null(device_type_find("GPU"));
  device_free(d[0]);
  free(d);
  setup_gpus("2");
  d = devices_new(task, (struct device_count[]){{"CPU", 3}}, 1, NULL, NULL, &n);
  assert_int_equal(n, 5);
  for (int i = 0; i < n; i++) {
    assert_string_equal(d[i]->type->name, i < 3 ? "CPU" : "GPU");
    assert_int_equal(d[i]->ordinal, i < 3 ? i : i - 3);
    assert_int_equal(d[i]->task_devices, i < 3 ? 3 : 2);
    assert_int_not_equal(d[i]->incarnation, 0);
    device_free(d[i]);
  }
  free(d);
  d = devices_new(task, (struct device_count[]){{"GPU", 1}}, 1, NULL, NULL, &n);
  assert_int_equal(n, 2);
  for (int i = 0; i < n; i++) device_free(d[i]);
  free(d);
}

/* Real cards, as another folder would bring them: the soft device takes their place when it is asked for. */
static int two_cards(int asked) { return asked < 0 || asked > 2 ? 2 : asked; }
static const struct device_type cards = {.name = "GPU", .count = two_cards};
extern DEVICE_TYPE(soft);

static void one_type_of_a_name_is_there(void **state) {
  const struct device_type *const first[] = {&cards, &device_type_soft, NULL};
  const struct device_type *const last[] = {&device_type_soft, &cards, NULL};
  setup_gpus("1");
  assert_ptr_equal(device_type_among(first, "GPU"), &device_type_soft);
  assert_ptr_equal(device_type_among(last, "GPU"), &device_type_soft);
  unsetenv("SHOAL_SOFT_GPUS");
  assert_ptr_equal(device_type_among(first, "GPU"), &cards);
  assert_ptr_equal(device_type_among(last, "GPU"), &cards);
  assert_null(device_type_among(first, "NPU"));
}

struct waiting {
  pthread_mutex_t lock;
  pthread_cond_t over;
  bool done;
};

static void wake(void *arg, shoal_status s) {
  struct waiting *w = arg;
  assert_null(s);
  pthread_mutex_lock(&w->lock);
  w->done = true;
  pthread_cond_signal(&w->over);
  pthread_mutex_unlock(&w->lock);
}

static void wait_for(struct waiting *w) {
  pthread_mutex_lock(&w->lock);
  while (!w->done) pthread_cond_wait(&w->over, &w->lock);
  w->done = false;
  pthread_mutex_unlock(&w->lock);
}

static void memory_is_the_devices_own(void **state) {
  setup_gpus("1");
  struct device *d;
  ASSERT_OK(device_new("GPU", task, 0, NULL, &d));
  struct waiting w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
  struct tensor host, there, back;
  ASSERT_OK(tensor_new_dims(&host, SHOAL_FLOAT32, 1, (int64_t[]){100}));
  for (int i = 0; i < 100; i++) T_DATA(&host, float)[i] = (float)i;
  ASSERT_OK(d->type->ops->from_host(d, "there", &host, &there));
  assert_ptr_equal(there.buffer->device, d);
  pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL); /* cmocka's, or a sanitizer's, would go on with the tests */
    signal(SIGBUS, SIG_DFL);
    _exit(*(volatile float *)there.data == 0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status));
  d->type->ops->to_host(d, &there, &back, wake, &w);
  wait_for(&w);
  assert_null(back.buffer->device);
  assert_memory_equal(back.data, host.data, tensor_bytes(&host));
  tensor_release(&host);
  tensor_release(&there);
  tensor_release(&back);
  device_free(d);
}

/* What the copying thread has not brought yet is waited for by those that read it, on their own threads. */
static void hold(void *until) { wait_for(until); }

static void streams_wait_for_what_they_read(void **state) {
  setup_gpus("1");
  struct device *d;
  ASSERT_OK(device_new("GPU", task, 0, NULL, &d));
  struct soft_device *soft = d->impl;
  struct waiting go = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false}, got = go, all = go;
  struct tensor host, there, back;
  ASSERT_OK(tensor_new_dims(&host, SHOAL_FLOAT32, 1, (int64_t[]){1000}));
  for (int i = 0; i < 1000; i++) T_DATA(&host, float)[i] = (float)i;
  pool_submit(soft->in, hold, &go);
  ASSERT_OK(d->type->ops->from_host(d, "there", &host, &there));
  d->type->ops->to_host(d, &there, &back, wake, &got);
  d->type->ops->when_done(d, wake, &all);
  usleep(20000); /* for who does not wait to go wrong */
  assert_true(buffer_shared(host.buffer));
  wake(&go, NULL);
  wait_for(&got);
  assert_memory_equal(back.data, host.data, tensor_bytes(&host));
  wait_for(&all);
  assert_false(buffer_shared(host.buffer));
  tensor_release(&host);
  tensor_release(&there);
  tensor_release(&back);
  device_free(d);
}

#define TYPE(key, type) "attr { key: '" key "' value { type: " type " } } "
#define NODE(name, op, rest) "node { name: '" name "' op: '" op "' device: '/device:GPU:0' " rest "} "
static const char mixed[] = NODE("x", "_Arg", TYPE("T", "DT_FLOAT") "attr { key: 'index' value { i: 0 } } ")
    NODE("s", "_Arg", TYPE("T", "DT_STRING") "attr { key: 'index' value { i: 1 } } ")
        NODE("sum", "AddV2", "input: 'x' input: 'x' " TYPE("T", "DT_FLOAT"))
            NODE("text", "Add", "input: 's' input: 's' " TYPE("T", "DT_STRING"))
                NODE("zeros", "ZerosLike", "input: 'sum' " TYPE("T", "DT_FLOAT"))
                    NODE("shape", "Shape", "input: 'zeros' " TYPE("T", "DT_FLOAT"))
                        NODE("again", "Reshape", "input: 'sum' input: 'shape' " TYPE("T", "DT_FLOAT"))
                            NODE("queue", "FIFOQueueV2",
                                 "attr { key: 'component_types' value { list { type: DT_FLOAT } } } ")
                                NODE("y", "_Retval",
                                     "input: 'again' " TYPE("T", "DT_FLOAT") "attr { key: 'index' value { i: 0 } } ");

static shoal_graph *read_mixed(void) {
  shoal_graph *g = shoal_graph_new();
  ASSERT_OK(shoal_graph_import_text(g, mixed, strlen(mixed), NULL));
  return g;
}

/* A device has the kernels of its own table, those of the op's row that serve anywhere, and no others. */
static void kernels_by_type_and_dtype(void **state) {
  setup_gpus("1");
  shoal_graph *g = read_mixed();
  const struct kernel_def *def;
  assert_true(kernel_supports(graph_find(g, "sum"), "GPU"));
  assert_false(kernel_supports(graph_find(g, "text"), "GPU"));
  assert_true(kernel_supports(graph_find(g, "text"), "CPU"));
  assert_false(kernel_supports(graph_find(g, "queue"), "GPU"));
  assert_true(kernel_supports(graph_find(g, "queue"), "NPU")); /* others may have such devices */
  ASSERT_OK(kernel_find(graph_find(g, "zeros"), "GPU", &def));
  assert_true(def->run && !def->start);
  assert_string_equal(def->device, "GPU");
  ASSERT_FAILS(kernel_find(graph_find(g, "queue"), "GPU", &def), SHOAL_INVALID_ARGUMENT, "No OpKernel was registered");
  unsetenv("SHOAL_SOFT_GPUS");
  assert_true(kernel_supports(graph_find(g, "queue"), "GPU"));
  shoal_graph_free(g);
}

/* Arguments and results are in host memory, shapes too; nothing else crosses, and nothing twice. */
static void copies_stand_where_memory_changes(void **state) {
  setup_gpus("1");
  shoal_graph *g = read_mixed();
  graph_remove(g, graph_find(g, "text"));
  graph_remove(g, graph_find(g, "queue"));
  struct device *d;
  ASSERT_OK(device_new("GPU", task, 0, NULL, &d));
  int before = g->n_nodes;
  ASSERT_OK(memory_edges_add(g, d, false));
  assert_int_equal(g->n_nodes, before + 2);
  assert_true(op_is(graph_find(g, "sum")->in[0].node->op, "_ToDevice"));
  assert_ptr_equal(graph_find(g, "sum")->in[0].node, graph_find(g, "sum")->in[1].node);
  assert_ptr_equal(graph_find(g, "again")->in[1].node, graph_find(g, "shape"));
  assert_true(op_is(graph_find(g, "y")->in[0].node->op, "_ToHost"));
  device_free(d);
  shoal_graph_free(g);
}

/* ---- training ---- */

enum { STEPS = 8, BATCH = 16 };

/* Does any node's device in the metadata of a run have this text? */
static bool ran_on(const shoal_bytes *metadata, const char *device) {
  return memmem(metadata->data, metadata->size, device, strlen(device)) != NULL;
}

/* The losses of a few steps of a small network with a convolution, as a client sees them. */
static void train(shoal_optimizer by, bool on_gpu, float *losses) {
  if (on_gpu) setup_gpus("1");
  else unsetenv("SHOAL_SOFT_GPUS");
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 7);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(BATCH, 8, 8, 1), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(BATCH), "y");
  shoal_out h = shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, x, 4, 3, "conv")));
  shoal_out logits = shoal_dense(g, shoal_flatten(g, h), 10, "logits");
  shoal_out loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, y));
  const char *step = shoal_op_name(shoal_minimize(g, by, loss, shoal_global_step(g)));
  const char *init = shoal_op_name(shoal_initialize(g));
  ASSERT_OK(status_copy(shoal_graph_error(g)));
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  ASSERT_OK(shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, &init, 1, NULL));
  shoal_tensor *feeds[2];
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 4, (int64_t[]){BATCH, 8, 8, 1}, &feeds[0]));
  ASSERT_OK(shoal_tensor_new(SHOAL_INT64, 1, (int64_t[]){BATCH}, &feeds[1]));
  for (int i = 0; i < BATCH * 64; i++) ((float *)shoal_tensor_data(feeds[0]))[i] = (float)(i * 37 % 101) / 101;
  for (int i = 0; i < BATCH; i++) ((int64_t *)shoal_tensor_data(feeds[1]))[i] = i % 10;
  char *fetch = mem_printf("%s:%d", loss.node->name, loss.index);
  for (int i = 0; i < STEPS; i++) {
    shoal_tensor *out = NULL;
    shoal_bytes metadata = {0};
    shoal_run_options traced = {.trace_level = 3};
    ASSERT_OK(shoal_session_run(s, i ? NULL : &traced, (const char *[]){"x:0", "y:0"}, feeds, 2,
                                (const char *[]){fetch}, &out, 1, &step, 1, i ? NULL : &metadata));
    losses[i] = *(const float *)shoal_tensor_data(out);
    if (!i) assert_int_equal(ran_on(&metadata, "/device:GPU:0"), on_gpu);
    shoal_bytes_free(&metadata);
    shoal_tensor_unref(out);
  }
  free(fetch);
  shoal_tensor_unref(feeds[0]);
  shoal_tensor_unref(feeds[1]);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* Feeds, constants, random initial values, updates of variables in place, fetches: the losses are the CPU's, but for
 * the rounding of what is fused there. */
static void compare_training(shoal_optimizer by) {
  float cpu[STEPS], gpu[STEPS];
  train(by, false, cpu);
  train(by, true, gpu);
  for (int i = 0; i < STEPS; i++) assert_float_equal(cpu[i], gpu[i], 1e-3f * cpu[i]);
  assert_true(cpu[STEPS - 1] < cpu[0]);
}

static void training_by_momentum(void **state) { compare_training(shoal_momentum(0.05, 0.9)); }
static void training_by_adam(void **state) { compare_training(shoal_adam(0.01)); }

/* ---- between devices ---- */

static int count(const shoal_bytes *in, const char *text) {
  int n = 0;
  const char *at = in->data, *end = at + in->size;
  for (; (at = memmem(at, (size_t)(end - at), text, strlen(text))); at++) n++;
  return n;
}

#define AT(device, name, op, rest) "node { name: '" name "' op: '" op "' device: '/device:" device "' " rest "} "
#define IN(name) "input: '" name "' "
#define FOUR                               \
  "node { name: 'four' op: 'Const' " TYPE( \
      "dtype",                             \
      "DT_FLOAT") "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 4 } } } } "
#define ADD(device, name, in) AT(device, name, "AddV2", IN(in) IN(in) TYPE("T", "DT_FLOAT"))

static shoal_status run_fetch(const char *text, const char *fetch, const char *target, float *value,
                              shoal_bytes *metadata) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *out = NULL;
  ASSERT_OK(shoal_graph_import_text(g, text, strlen(text), NULL));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = "all"), &s));
  shoal_status e = shoal_session_run(s, &(shoal_run_options){.trace_level = 3}, NULL, NULL, 0, &fetch, &out, 1, &target,
                                     target ? 1 : 0, metadata);
  if (!e) *value = *(const float *)shoal_tensor_const_data(out);
  shoal_tensor_unref(out);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  return e;
}

/* From device to device and back: the host sees what is fetched, and nothing else. */
static void peers_copy_without_the_host(void **state) {
  setup_gpus("2");
  float y = 0;
  shoal_bytes trace = {0};
  ASSERT_OK(
      run_fetch(FOUR ADD("GPU:0", "a", "four") ADD("GPU:1", "b", "a") ADD("GPU:0", "c", "b"), "c:0", NULL, &y, &trace));
  assert_float_equal(y, 32, 0);
  assert_true(ran_on(&trace, "/device:GPU:0") && ran_on(&trace, "/device:GPU:1"));
  assert_int_equal(count(&trace, "_to_host ="), 1);
  shoal_bytes_free(&trace);
}

/* Ends for a device's memory, where a stranger's graph has them: an error, and nobody reads that memory. */
static void ends_are_looked_at(void **state) {
  setup_gpus("1");
  float y;
  shoal_bytes trace = {0};
  ASSERT_FAILS(run_fetch(FOUR ADD("GPU:0", "a", "four")
                             AT("GPU:0", "end", "_DeviceRetval",
                                IN("a") TYPE("T", "DT_FLOAT") "attr { key: 'index' value { i: 0 } } "),
                         "a:0", "end", &y, &trace),
               SHOAL_INTERNAL, "would be in the memory of a device");
  shoal_bytes_free(&trace);
  ASSERT_OK(run_fetch(FOUR AT("CPU:0", "a", "_ToDevice", IN("four") TYPE("T", "DT_FLOAT"))
                          AT("CPU:0", "b", "_ToHost", IN("a") TYPE("T", "DT_FLOAT")),
                      "b:0", NULL, &y, &trace));
  assert_float_equal(y, 4, 0);
  shoal_bytes_free(&trace);
}

/* ---- the end of a step ---- */

#define NAN_CONST                         \
  "node { name: 'nan' op: 'Const' " TYPE( \
      "dtype",                            \
      "DT_FLOAT") "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: nan } } } } "
#define CHECK(in) \
  NODE("checked", "CheckNumerics", IN(in) TYPE("T", "DT_FLOAT") "attr { key: 'message' value { s: 'look' } } ")

static shoal_status run_target(const char *text, const char *target) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  ASSERT_OK(shoal_graph_import_text(g, text, strlen(text), NULL));
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  shoal_status end = shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  return end;
}

/* Nobody reads what was computed: the step ends when the device has, with the error that it found. With and without
 * frames, and in a function. */
static void a_step_ends_with_its_devices(void **state) {
  setup_gpus("1");
  ASSERT_FAILS(run_target(NAN_CONST CHECK("nan"), "checked"), SHOAL_INVALID_ARGUMENT,
               "look : Tensor had NaN values\n\t [[{{node checked}}]]");
  ASSERT_FAILS(run_target(NAN_CONST NODE("enter", "Enter",
                                         IN("nan") TYPE("T", "DT_FLOAT") "attr { key: 'frame_name' value { s: 'f' } } ")
                              CHECK("enter") NODE("exit", "Exit", IN("checked") TYPE("T", "DT_FLOAT")),
                          "exit"),
               SHOAL_INVALID_ARGUMENT, "look : Tensor had NaN values");
}

/* ---- constants ---- */

static atomic_int copies_in;
static const struct device_ops *real_ops;

static shoal_status counted(struct device *d, const char *who, const struct tensor *from, struct tensor *to) {
  atomic_fetch_add(&copies_in, 1);
  return real_ops->from_host(d, who, from, to);
}

static void constants_are_copied_once(void **state) {
  static const char text[] = NODE("c", "Const",
                                  TYPE("dtype", "DT_FLOAT") "attr { key: 'value' value { tensor { dtype: DT_FLOAT "
                                                            "tensor_shape { } float_val: 4 } } } ")
      NODE("sum", "AddV2", IN("c") IN("c") TYPE("T", "DT_FLOAT"))
          NODE("y", "_Retval", IN("sum") TYPE("T", "DT_FLOAT") "attr { key: 'index' value { i: 0 } } ");
  setup_gpus("1");
  struct device *d;
  ASSERT_OK(device_new("GPU", task, 0, NULL, &d));
  real_ops = d->type->ops;
  struct device_type type = *d->type;
  struct device_ops ops = *d->type->ops;
  ops.from_host = counted;
  type.ops = &ops;
  d->type = &type;
  shoal_graph *g = shoal_graph_new();
  ASSERT_OK(shoal_graph_import_text(g, text, strlen(text), NULL));
  struct resource_mgr *resources = resource_mgr_new("localhost");
  struct plan *p;
  ASSERT_OK(plan_compile(g, &(struct plan_options){.device = d, .resources = resources}, &p));
  for (int i = 0; i < 5; i++) {
    struct tensor out = {0};
    struct step step = {.deadline = DEADLINE_NEVER, .session = "", .rets = &out, .n_rets = 1, .waits = true};
    struct latch ended;
    latch_init(&ended, 1);
    plan_run(p, &step, latch_done, &ended);
    ASSERT_OK(latch_finish(&ended));
    assert_float_equal(*T_DATA(&out, float), 8, 0);
    tensor_release(&out);
  }
  assert_int_equal(atomic_load(&copies_in), 1);
  plan_unref(p);
  resource_mgr_unref(resources);
  device_free(d);
  shoal_graph_free(g);
}

RUN_TESTS(cmocka_unit_test(a_task_has_what_was_asked_for), cmocka_unit_test(one_type_of_a_name_is_there),
          cmocka_unit_test(memory_is_the_devices_own), cmocka_unit_test(streams_wait_for_what_they_read),
          cmocka_unit_test(a_step_ends_with_its_devices), cmocka_unit_test(constants_are_copied_once),
          cmocka_unit_test(peers_copy_without_the_host),

          cmocka_unit_test(ends_are_looked_at), cmocka_unit_test(kernels_by_type_and_dtype),
          cmocka_unit_test(copies_stand_where_memory_changes), cmocka_unit_test(training_by_momentum),
          cmocka_unit_test(training_by_adam))
