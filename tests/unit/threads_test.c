/* Eight threads on one session, in this process and on a cluster of two tasks in this process: updates of shared
 * variables, loops across devices, a queue, callables, partial runs, errors, time-outs, while the graph grows. Meant
 * for ThreadSanitizer and AddressSanitizer above all (`make tsan`, `make asan`); the sums must be right anyway. */
#include "unit.h"
#include "ports.h"

#include <pthread.h>
#include <shoal/cluster.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"

enum { THREADS = 8, ROUNDS = 60 };

#define FLOAT(key) "attr { key: '" key "' value { type: DT_FLOAT } } "
#define SHAPE0 "value { shape { } } "
#define NODE(name, op, rest) "node { name: '" name "' op: '" op "' " rest "} "
#define CONST(name, v) \
  NODE(name, "Const",  \
       FLOAT("dtype") "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: " v " } } } ")
#define ON_A "device: '@A' "
#define ON_B "device: '@B' "
#define LOOP \
  "attr { key: 'frame_name' value { s: 'loop' } } attr { key: 'parallel_iterations' value { i: 4 } } " FLOAT("T")

/* count and total are shared by all; `loop` is 2^k - 1 for k rounds, computed on both devices. */
static const char graph_text[] = NODE("x", "Placeholder", FLOAT("dtype") ON_A)
    NODE("late", "Placeholder", FLOAT("dtype") ON_B) CONST("one", "1") CONST("two", "2") CONST("zero", "0")
    /* variables of both kinds */
    NODE("total", "VariableV2",
         FLOAT("dtype") "attr { key: 'shape' " SHAPE0 "} attr { key: 'shared_name' value { s: 'total' } } " ON_B)
        NODE("total/init", "Assign", "input: 'total' input: 'zero' " FLOAT("T"))
            NODE("total/add", "AssignAdd",
                 "input: 'total' input: 'x' " FLOAT("T") "attr { key: 'use_locking' value { b: true } } ")
                NODE("total/read", "Identity", "input: 'total' " FLOAT("T"))
                    NODE("count", "VarHandleOp",
                         FLOAT("dtype") "attr { key: 'shape' " SHAPE0
                                        "} attr { key: 'shared_name' value { s: 'count' } } " ON_A)
                        NODE("count/init", "AssignVariableOp", "input: 'count' input: 'zero' " FLOAT("dtype"))
                            NODE("count/add", "AssignAddVariableOp", "input: 'count' input: 'one' " FLOAT("dtype"))
                                NODE("count/read", "ReadVariableOp", "input: 'count' " FLOAT("dtype"))
    /* a loop whose body crosses devices */
    NODE("i/enter", "Enter", "input: 'zero' " LOOP) NODE("a/enter", "Enter", "input: 'zero' " LOOP) NODE(
        "n/enter", "Enter",
        "input: 'x' " LOOP
        "attr { key: 'is_constant' value { b: true } } ") NODE("i/merge", "Merge",
                                                               "input: 'i/enter' input: 'i/next' " FLOAT(
                                                                   "T") "attr { key: 'N' value { i: 2 } } ")
        NODE("a/merge", "Merge", "input: 'a/enter' input: 'a/next' " FLOAT("T") "attr { key: 'N' value { i: 2 } } ") NODE(
            "less",
            "Less",
            "input: 'i/merge' input: 'n/enter' " FLOAT(
                "T")) NODE("go", "LoopCond",
                           "input: 'less' ") NODE("i/switch", "Switch", "input: 'i/merge' input: 'go' " FLOAT("T"))
            NODE("a/switch", "Switch", "input: 'a/merge' input: 'go' " FLOAT("T")) NODE(
                "i/one",
                "Const",
                "input: '^i/switch' " FLOAT(
                    "dtype") "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 1 } } "
                             "} ") NODE("i/add", "AddV2", "input: 'i/switch:1' input: 'i/one' " FLOAT("T") ON_A)
                NODE("a/twice", "AddV2", "input: 'a/switch:1' input: 'a/switch:1' " FLOAT("T") ON_B)
                    NODE("a/add", "AddV2", "input: 'a/twice' input: 'i/one' " FLOAT("T") ON_A)
                        NODE("i/next", "NextIteration", "input: 'i/add' " FLOAT("T"))
                            NODE("a/next", "NextIteration", "input: 'a/add' " FLOAT("T"))
                                NODE("loop", "Exit", "input: 'a/switch' " FLOAT("T"))
    /* a queue, and one that nobody fills */
    NODE("queue", "FIFOQueueV2",
         "attr { key: 'component_types' value { list { type: DT_FLOAT } } } attr { key: 'capacity' value { i: 4 } } "
         "attr { key: 'shared_name' value { s: 'queue' } } " ON_B)
        NODE("put", "QueueEnqueueV2",
             "input: 'queue' input: 'x' attr { key: 'Tcomponents' value { list { type: DT_FLOAT } } } ")
            NODE("get", "QueueDequeueV2",
                 "input: 'queue' attr { key: 'component_types' value { list { type: DT_FLOAT } } } ")
                NODE("silent", "FIFOQueueV2",
                     "attr { key: 'component_types' value { list { type: DT_FLOAT } } } attr { key: 'shared_name' "
                     "value { s: 'silent' } } " ON_B)
                    NODE("never", "QueueDequeueV2",
                         "input: 'silent' attr { key: 'component_types' value { list { type: DT_FLOAT } } } ")
    /* what fails, and what a partial run asks for */
    NODE("inverse", "Reciprocal", "input: 'x' " FLOAT("T") ON_B)
        NODE("checked", "CheckNumerics",
             "input: 'inverse' " FLOAT("T") "attr { key: 'message' value { s: 'as meant' } } " ON_A)
            NODE("early", "Mul", "input: 'x' input: 'two' " FLOAT("T") ON_B)
                NODE("product", "Mul", "input: 'early' input: 'late' " FLOAT("T") ON_A);

struct shared {
  shoal_graph *graph;
  shoal_session *session;
  int64_t callable;
  pthread_mutex_t growing;
  atomic_int added, put, got, calls, wrong;
};

struct worker {
  struct shared *shared;
  int index;
};

static shoal_tensor *scalar(float v) {
  shoal_tensor *t;
  shoal_status s = shoal_tensor_from(SHOAL_FLOAT32, 0, NULL, &v, sizeof v, &t);
  MUST(!s);
  return t;
}

static shoal_status run(struct shared *s, const char *feed, float x, const char *fetch, const char *target, int timeout,
                        float *value) {
  shoal_tensor *in = scalar(x), *out = NULL;
  shoal_run_options o = {.timeout_ms = timeout};
  shoal_status st = shoal_session_run(s->session, &o, &feed, &in, feed ? 1 : 0, &fetch, &out, fetch ? 1 : 0, &target,
                                      target ? 1 : 0, NULL);
  if (!st && value) *value = *(const float *)shoal_tensor_const_data(out);
  shoal_tensor_unref(in);
  shoal_tensor_unref(out);
  return st;
}

/* Assertions of cmocka are for its own thread. */
static void expect(struct shared *s, shoal_status st, shoal_code code, bool right, const char *what) {
  if (shoal_status_code(st) != code || !right) {
    fprintf(stderr, "%s: %s\n", what, st ? shoal_status_message(st) : "another value");
    atomic_fetch_add(&s->wrong, 1);
  }
  shoal_status_free(st);
}

static void call(struct shared *s, int i) {
  shoal_tensor *in[2] = {scalar((float)i), scalar(3)}, *out = NULL;
  shoal_status st = shoal_session_run_callable(s->session, s->callable, NULL, in, 2, &out, 1, NULL);
  expect(s, st, SHOAL_OK, out && *(const float *)shoal_tensor_const_data(out) == 6.0f * (float)i, "callable");
  shoal_tensor_unref(in[0]);
  shoal_tensor_unref(in[1]);
  shoal_tensor_unref(out);
}

static void in_parts(struct shared *s) {
  const char *feeds[] = {"x:0", "late:0"}, *fetches[] = {"early:0", "product:0"};
  shoal_tensor *in[2] = {scalar(5), scalar(7)}, *out[2] = {0};
  char *handle = NULL;
  shoal_status st = shoal_session_partial_setup(s->session, feeds, 2, fetches, 2, NULL, 0, &handle);
  for (int i = 0; i < 2 && !st; i++)
    st = shoal_session_partial_run(s->session, handle, feeds + i, in + i, 1, fetches + i, out + i, 1);
  expect(s, st, SHOAL_OK, out[1] && *(const float *)shoal_tensor_const_data(out[1]) == 70, "partial run");
  for (int i = 0; i < 2; i++) {
    shoal_tensor_unref(in[i]);
    shoal_tensor_unref(out[i]);
  }
  free(handle);
}

static void grow(struct shared *s, int round) {
  char name[32], fetch[40];
  snprintf(name, sizeof name, "grown%d", round);
  snprintf(fetch, sizeof fetch, "%s:0", name);
  pthread_mutex_lock(&s->growing);
  shoal_builder *b = shoal_build(s->graph, "Mul", name);
  shoal_build_input(b, shoal_graph_out(s->graph, "x:0"));
  shoal_build_input(b, shoal_graph_out(s->graph, "two:0"));
  shoal_build_end(b);
  shoal_status st = shoal_session_extend(s->session, s->graph);
  pthread_mutex_unlock(&s->growing);
  float v = 0;
  if (!st) st = run(s, "x:0", 4, fetch, NULL, 0, &v);
  expect(s, st, SHOAL_OK, v == 8, "extended");
}

static void *work(void *arg) {
  struct shared *s = ((struct worker *)arg)->shared;
  int index = ((struct worker *)arg)->index;
  for (int i = 0; i < ROUNDS; i++) {
    float v = 0;
    shoal_status st;
    switch ((i + index) % 8) {
      case 0:
        expect(s, run(s, "x:0", 1, NULL, "total/add", 0, NULL), SHOAL_OK, true, "add");
        atomic_fetch_add(&s->added, 1);
        break;
      case 1:
        st = run(s, "x:0", (float)(i % 6), "loop:0", NULL, 0, &v);
        expect(s, st, SHOAL_OK, v == (float)((1 << i % 6) - 1), "loop");
        break;
      case 2: /* never more in the queue than has room, whatever the order of threads */
        expect(s, run(s, "x:0", 2, NULL, "put", 120000, NULL), SHOAL_OK, true, "put");
        st = run(s, NULL, 0, "get:0", NULL, 120000, &v);
        expect(s, st, SHOAL_OK, v == 2, "get");
        break;
      case 3: expect(s, run(s, "x:0", 0, "checked:0", NULL, 0, NULL), SHOAL_INVALID_ARGUMENT, true, "checked"); break;
      case 4: expect(s, run(s, NULL, 0, "never:0", NULL, 5, NULL), SHOAL_DEADLINE_EXCEEDED, true, "never"); break;
      case 5: call(s, i); break;
      case 6: in_parts(s); break;
      default:
        expect(s, run(s, NULL, 0, NULL, "count/add", 0, NULL), SHOAL_OK, true, "count");
        atomic_fetch_add(&s->calls, 1);
        if (index == 0) grow(s, i);
    }
  }
  return NULL;
}

static char *replaced(const char *text, const char *a, const char *b) {
  struct text t = {0};
  for (const char *at = text; *at;) {
    if (at[0] == '@') {
      text_adds(&t, at[1] == 'A' ? a : b);
      at += 2;
    } else {
      text_add(&t, at++, 1);
    }
  }
  return text_take(&t);
}

static void together(const char *a, const char *b, const shoal_session_options *o) {
  struct shared s = {.graph = shoal_graph_new(), .growing = PTHREAD_MUTEX_INITIALIZER};
  char *text = replaced(graph_text, a, b);
  ASSERT_OK(shoal_graph_import_text(s.graph, text, strlen(text), NULL));
  free(text);
  ASSERT_OK(shoal_session_open(s.graph, o, &s.session));
  ASSERT_OK(run(&s, NULL, 0, NULL, "total/init", 0, NULL));
  ASSERT_OK(run(&s, NULL, 0, NULL, "count/init", 0, NULL));
  const char *feeds[] = {"x:0", "late:0"}, *fetch[] = {"product:0"};
  ASSERT_OK(shoal_session_make_callable(s.session, feeds, 2, fetch, 1, NULL, 0, &s.callable));
  pthread_t threads[THREADS];
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){&s, i};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(s.wrong, 0);
  float total, count;
  ASSERT_OK(run(&s, NULL, 0, "total/read:0", NULL, 0, &total));
  ASSERT_OK(run(&s, NULL, 0, "count/read:0", NULL, 0, &count));
  assert_int_equal((int)total, s.added);
  assert_int_equal((int)count, s.calls);
  ASSERT_OK(shoal_session_close(s.session));
  shoal_graph_free(s.graph);
}

static void in_one_process(void **state) {
  together("/device:CPU:0", "/device:CPU:1", &(shoal_session_options){.cpu_devices = 2});
}

/* A device whose memory the host cannot read (src/device/soft); queues, which it has not, stay on the CPU. */
static void with_a_soft_gpu(void **state) {
  assert_int_equal(setenv("SHOAL_SOFT_GPUS", "1", 1), 0);
  together("/device:CPU:0", "/device:GPU:0", &(shoal_session_options){.allow_soft_placement = true});
  unsetenv("SHOAL_SOFT_GPUS");
}

static void on_a_cluster(void **state) {
  char spec[128];
  snprintf(spec, sizeof spec, "{\"w\": [\"127.0.0.1:%d\", \"127.0.0.1:%d\"]}", free_port(), free_port());
  shoal_server *servers[2];
  for (int i = 0; i < 2; i++)
    ASSERT_OK(shoal_server_start(&(shoal_server_options){.cluster = spec, .job = "w", .task = i}, &servers[i]));
  together("/job:w/task:0", "/job:w/task:1", &(shoal_session_options){.target = shoal_server_target(servers[0])});
  for (int i = 0; i < 2; i++) shoal_server_stop(servers[i]);
}

/* A loop that the master cut for a task, and the task for its devices: the condition is elsewhere. */
static void on_two_devices_of_another_task(void **state) {
  char spec[128];
  snprintf(spec, sizeof spec, "{\"w\": [\"127.0.0.1:%d\", \"127.0.0.1:%d\"]}", free_port(), free_port());
  shoal_server *servers[2];
  for (int i = 0; i < 2; i++)
    ASSERT_OK(shoal_server_start(&(shoal_server_options){.cluster = spec, .job = "w", .task = i, .cpu_devices = 2},
                                 &servers[i]));
  together("/job:w/task:1/device:CPU:0", "/job:w/task:1/device:CPU:1",
           &(shoal_session_options){.target = shoal_server_target(servers[0])});
  for (int i = 0; i < 2; i++) shoal_server_stop(servers[i]);
}

RUN_TESTS(cmocka_unit_test(in_one_process), cmocka_unit_test(with_a_soft_gpu), cmocka_unit_test(on_a_cluster),
          cmocka_unit_test(on_two_devices_of_another_task))
