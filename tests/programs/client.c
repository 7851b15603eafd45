/* A client in C of whatever servers there are: tests/cluster/c_client_test.py runs it on TensorFlow's, on Shoal's, and
 * on both together, and compares what it prints.
 *
 *   client TARGET            all of it once: training, callables, partial runs, loops, functions, errors, traces
 *   client TARGET endless    steps until one fails; prints the code and the text
 *
 * The cluster has one ps and two workers; TARGET is any task's. */
#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PS "/job:ps/task:0"
#define WORKER(n) "/job:worker/task:" #n

static void must(shoal_status s, const char *what) {
  if (!s) return;
  printf("%s: %s: %s\n", what, shoal_code_name(shoal_status_code(s)), shoal_status_message(s));
  exit(1);
}

/* What a step that should fail failed with. */
static void fails(shoal_status s, const char *what, const char *text) {
  printf("%s: %s%s\n", what, shoal_code_name(shoal_status_code(s)),
         s && strstr(shoal_status_message(s), text) ? ", as told"
         : s                                        ? shoal_status_message(s)
                                                    : "");
  shoal_status_free(s);
}

static shoal_tensor *floats(int rank, const int64_t *dims, const float *values) {
  size_t n = sizeof *values;
  for (int i = 0; i < rank; i++) n *= (size_t)dims[i];
  shoal_tensor *t;
  must(shoal_tensor_from(SHOAL_FLOAT32, rank, dims, values, n, &t), "tensor");
  return t;
}

static shoal_session *open_on(const char *target, shoal_graph *g, int64_t timeout_ms) {
  shoal_session *s;
  if (shoal_report(g)) exit(1);
  must(shoal_session_open(g, &(shoal_session_options){.target = target, .operation_timeout_ms = timeout_ms}, &s),
       "open");
  return s;
}

static void close_all(shoal_session *s, shoal_graph *g) {
  must(shoal_session_close(s), "close");
  shoal_graph_free(g);
}

/* Two layers: variables on ps, the first layer on one worker, the second and the loss on the other. */
static void training(const char *target) {
  enum { ROWS = 16, IN = 4 };
  float x_values[ROWS * IN], y_values[ROWS];
  for (int i = 0; i < ROWS * IN; i++) x_values[i] = (float)((i * 7) % 11) / 11;
  for (int i = 0; i < ROWS; i++) y_values[i] = x_values[i * IN] - 2 * x_values[i * IN + 2];
  shoal_graph *g = shoal_graph_new();
  shoal_push_device(g, PS);
  shoal_var step = shoal_global_step(g);
  float weights[2][IN * 3];
  for (int i = 0; i < IN * 3; i++) weights[0][i] = (float)(i % 5) / 5 - 0.4f, weights[1][i] = (float)(i % 3) / 3;
  shoal_var w0 = shoal_variable(g, "w0", shoal_constant_floats(g, SHOAL_SHAPE(IN, 3), weights[0]));
  shoal_var w1 = shoal_variable(g, "w1", shoal_constant_floats(g, SHOAL_SHAPE(3, 1), weights[1]));
  shoal_pop_device(g);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, IN), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 1), "y");
  shoal_push_device(g, WORKER(0));
  shoal_out h = shoal_tanh(g, shoal_mat_mul(g, x, w0.value));
  shoal_pop_device(g);
  shoal_push_device(g, WORKER(1));
  shoal_out loss = shoal_reduce_mean(g, shoal_square(g, shoal_sub(g, shoal_mat_mul(g, h, w1.value), y)));
  shoal_op *train = shoal_minimize(g, shoal_adam(0.1), loss, step);
  shoal_pop_device(g);
  shoal_op *init = shoal_initialize(g);
  shoal_session *s = open_on(target, g, 240000);
  must(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init), "initialize");
  shoal_tensor *xs = floats(2, (int64_t[]){ROWS, IN}, x_values), *ys = floats(2, (int64_t[]){ROWS, 1}, y_values);
  float l = 0;
  int64_t at = 0;
  for (int i = 0; i < 25; i++) {
    must(shoal_session_step(s, SHOAL_FEED(x, xs, y, ys), SHOAL_FETCH(loss, &l), train), "train");
    if (i % 6 == 0) printf("loss %.4f\n", (double)l);
  }
  must(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(step.value, &at), NULL), "step");
  printf("step %lld\n", (long long)at);
  shoal_tensor_unref(xs);
  shoal_tensor_unref(ys);
  close_all(s, g);
}

/* z = (x * 2) + 3, over three tasks; more is added later. */
static void sessions(const char *target) {
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "x");
  shoal_out late = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "late");
  shoal_push_device(g, WORKER(1));
  shoal_out y = shoal_mul(g, x, shoal_constant_float(g, 2));
  shoal_pop_device(g);
  shoal_push_device(g, PS);
  shoal_out z = shoal_add_v2(g, y, shoal_constant_float(g, 3));
  shoal_out w = shoal_mul(g, z, late);
  shoal_out checked = shoal_check_numerics(g, shoal_log(g, x), "not a number there");
  shoal_pop_device(g);
  char x_name[64], late_name[64], z_name[64], w_name[64], checked_name[64];
  snprintf(x_name, sizeof x_name, "%s:0", shoal_op_name(x.node));
  snprintf(late_name, sizeof late_name, "%s:0", shoal_op_name(late.node));
  snprintf(z_name, sizeof z_name, "%s:0", shoal_op_name(z.node));
  snprintf(w_name, sizeof w_name, "%s:0", shoal_op_name(w.node));
  snprintf(checked_name, sizeof checked_name, "%s:0", shoal_op_name(checked.node));
  shoal_session *s = open_on(target, g, 240000);
  shoal_tensor *four = floats(0, NULL, &(float){4}), *out[2] = {0};
  const char *feeds[] = {x_name, late_name}, *fetches[] = {z_name, w_name};

  int64_t callable;
  must(shoal_session_make_callable(s, feeds, 2, fetches, 2, NULL, 0, &callable), "make callable");
  for (int i = 0; i < 3; i++) {
    shoal_tensor *in[2] = {floats(0, NULL, &(float){(float)i}), four};
    must(shoal_session_run_callable(s, callable, NULL, in, 2, out, 2, NULL), "callable");
    printf("callable %g %g\n", (double)*(const float *)shoal_tensor_const_data(out[0]),
           (double)*(const float *)shoal_tensor_const_data(out[1]));
    shoal_tensor_unref(in[0]);
    for (int k = 0; k < 2; k++) shoal_tensor_unref(out[k]);
  }
  shoal_tensor *both[2] = {four, four};
  shoal_bytes how = {0};
  must(shoal_session_run_callable(s, callable, SHOAL_OPTIONS(shoal_run_options, .trace_level = 3), both, 2, out, 2,
                                  &how),
       "traced callable");
  printf("callable %g, %s\n", (double)*(const float *)shoal_tensor_const_data(out[1]),
         how.size ? "traced" : "not traced");
  shoal_bytes_free(&how);
  for (int k = 0; k < 2; k++) shoal_tensor_unref(out[k]);
  must(shoal_session_release_callable(s, callable), "release callable");

  char *handle;
  must(shoal_session_partial_setup(s, feeds, 2, fetches, 2, NULL, 0, &handle), "partial setup");
  must(shoal_session_partial_run(s, handle, feeds, &four, 1, fetches, out, 1), "first part");
  must(shoal_session_partial_run(s, handle, feeds + 1, &four, 1, fetches + 1, out + 1, 1), "second part");
  printf("parts %g %g\n", (double)*(const float *)shoal_tensor_const_data(out[0]),
         (double)*(const float *)shoal_tensor_const_data(out[1]));
  free(handle);
  for (int k = 0; k < 2; k++) shoal_tensor_unref(out[k]);

  shoal_tensor *minus = floats(0, NULL, &(float){-1});
  const char *bad[] = {checked_name}, *nowhere[] = {"nowhere:0"};
  fails(shoal_session_run(s, NULL, feeds, &minus, 1, bad, out, 1, NULL, 0, NULL), "log of -1", "not a number there");
  fails(shoal_session_run(s, NULL, NULL, NULL, 0, fetches, out, 1, NULL, 0, NULL), "nothing fed", "must feed a value");
  fails(shoal_session_run(s, NULL, feeds, &four, 1, nowhere, out, 1, NULL, 0, NULL), "unknown fetch", "nowhere");

  shoal_out more = shoal_square(g, z);
  must(shoal_session_extend(s, g), "extend");
  float v = 0;
  must(shoal_session_step(s, SHOAL_FEED(x, four), SHOAL_FETCH(more, &v), NULL), "extended");
  printf("extended %g\n", (double)v);

  shoal_bytes metadata = {0};
  must(shoal_session_run(s, &(shoal_run_options){.trace_level = 3, .timeout_ms = 240000}, feeds, &four, 1, fetches, out,
                         1, NULL, 0, &metadata),
       "traced");
  printf("traced %s\n", metadata.size > 100 ? "well" : "not");
  shoal_bytes_free(&metadata);
  shoal_tensor_unref(out[0]);
  char *devices;
  must(shoal_session_list_devices(s, &devices), "devices");
  printf("devices%s%s%s\n", strstr(devices, "/job:ps/replica:0/task:0/device:CPU:0") ? " ps" : "",
         strstr(devices, "/job:worker/replica:0/task:0/device:CPU:0") ? " worker0" : "",
         strstr(devices, "/job:worker/replica:0/task:1/device:CPU:0") ? " worker1" : "");
  free(devices);
  shoal_tensor_unref(four);
  shoal_tensor_unref(minus);
  close_all(s, g);
}

/* Functions, a functional loop and its gradient, a queue with a time-out. */
static void functions(const char *target) {
#define FUNCTION(name, ret, nodes)                                                                                   \
  "function { signature { name: '" name "' input_arg { name: 'a' type: DT_FLOAT } output_arg { name: 'r' type: " ret \
  " } } ret { key: 'r' value: 'z:z:0' } " nodes "} "
#define FLOAT_T "attr { key: 'T' value { type: DT_FLOAT } } "
  static const char library[] =
      "library { " FUNCTION("twice", "DT_FLOAT", "node_def { name: 'z' op: 'AddV2' input: 'a' input: 'a' " FLOAT_T "} ")
          FUNCTION("small", "DT_BOOL",
                   "node_def { name: 'c' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } } "
                   "attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 100 } } } } "
                   "node_def { name: 'z' op: 'Less' input: 'a' input: 'c:output:0' " FLOAT_T "} ") "}";
  shoal_graph *g = shoal_graph_new();
  must(shoal_graph_import_text(g, library, strlen(library), NULL), "functions");
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "x");
  shoal_push_device(g, WORKER(1));
  shoal_builder *b = shoal_build(g, "While", "loop");
  shoal_build_inputs(b, &x, 1);
  shoal_build_func(b, "cond", "small");
  shoal_build_func(b, "body", "twice");
  shoal_out loop = shoal_build_end_out(b);
  shoal_pop_device(g);
  b = shoal_build(g, "PartitionedCall", "call");
  shoal_build_device(b, PS);
  shoal_build_inputs(b, &loop, 1);
  shoal_build_types(b, "Tout", (const shoal_dtype[]){SHOAL_FLOAT32}, 1);
  shoal_build_func(b, "f", "twice");
  shoal_out call = shoal_build_end_out(b);
  shoal_gradient d;
  shoal_gradients(g, &call, 1, &x, 1, NULL, &d);
  shoal_push_device(g, PS);
  b = shoal_build(g, "FIFOQueueV2", "queue");
  shoal_build_types(b, "component_types", (const shoal_dtype[]){SHOAL_FLOAT32}, 1);
  shoal_out queue = shoal_build_end_out(b);
  b = shoal_build(g, "QueueDequeueV2", "get");
  shoal_build_input(b, queue);
  shoal_build_types(b, "component_types", (const shoal_dtype[]){SHOAL_FLOAT32}, 1);
  shoal_build_end(b);
  shoal_pop_device(g);
  shoal_session *s = open_on(target, g, 240000);
  for (int i = 1; i < 200; i *= 7) {
    shoal_tensor *in = floats(0, NULL, &(float){(float)i});
    float v = 0, dv = 0;
    must(shoal_session_step(s, SHOAL_FEED(x, in), SHOAL_FETCH(call, &v, d.values, &dv), NULL), "loop");
    printf("loop %g %g\n", (double)v, (double)dv);
    shoal_tensor_unref(in);
  }
  const char *get[] = {"get:0"};
  shoal_tensor *out;
  fails(shoal_session_run(s, &(shoal_run_options){.timeout_ms = 200}, NULL, NULL, 0, get, &out, 1, NULL, 0, NULL),
        "an empty queue", "");
  close_all(s, g);
}

/* A loop whose body is on two workers, over a weight on ps; every other round keeps its value; and its gradient. */
struct recurrent {
  shoal_out weight, now;
};

static shoal_out more_rounds(shoal_graph *g, void *arg, const shoal_out *vars) {
  return shoal_less(g, vars[0], shoal_constant_int(g, 6));
}

static void weigh(shoal_graph *g, void *arg, shoal_out *results) {
  const struct recurrent *r = arg;
  results[0] = shoal_mul(g, r->now, r->weight);
}

static void keep(shoal_graph *g, void *arg, shoal_out *results) { results[0] = ((const struct recurrent *)arg)->now; }

static void one_round(shoal_graph *g, void *arg, const shoal_out *vars, shoal_out *next) {
  struct recurrent r = {*(const shoal_out *)arg, vars[1]};
  shoal_push_device(g, WORKER(1));
  shoal_out even = shoal_equal(g, shoal_floor_mod(g, vars[0], shoal_constant_int(g, 2)), shoal_constant_int(g, 0));
  shoal_cond(g, even, weigh, keep, &r, 1, &next[1]);
  shoal_pop_device(g);
  next[0] = shoal_add_v2(g, vars[0], shoal_constant_int(g, 1));
}

static void loops(const char *target) {
  shoal_graph *g = shoal_graph_new();
  shoal_push_device(g, PS);
  shoal_var weight = shoal_variable(g, "weight", shoal_constant_float(g, 2));
  shoal_op *init = shoal_initialize(g);
  shoal_pop_device(g);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SCALAR, "x"), results[2];
  shoal_push_device(g, WORKER(0));
  shoal_while_loop(g, more_rounds, one_round, &weight.value, (shoal_out[]){shoal_constant_int(g, 0), x}, 2, NULL,
                   results);
  shoal_gradient d[2];
  shoal_gradients(g, &results[1], 1, (shoal_out[]){weight.value, x}, 2, NULL, d);
  shoal_pop_device(g);
  shoal_session *s = open_on(target, g, 240000);
  must(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init), "init");
  shoal_tensor *in = floats(0, NULL, &(float){5});
  for (int i = 0; i < 3; i++) {
    float v = 0, dw = 0, dx = 0;
    must(
        shoal_session_step(s, SHOAL_FEED(x, in), SHOAL_FETCH(results[1], &v, d[0].values, &dw, d[1].values, &dx), NULL),
        "rounds");
    printf("rounds %g %g %g\n", (double)v, (double)dw, (double)dx);
  }
  shoal_tensor_unref(in);
  close_all(s, g);
}

/* Many sessions one after another: connections are made and given up, and nothing is left behind. */
static void reconnecting(const char *target) {
  for (int i = 0; i < 20; i++) {
    shoal_graph *g = shoal_graph_new();
    shoal_push_device(g, PS);
    shoal_out z = shoal_add_v2(g, shoal_constant_float(g, (float)i), shoal_constant_float(g, 1));
    shoal_pop_device(g);
    shoal_session *s = open_on(target, g, 240000);
    float v = 0;
    must(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(z, &v), NULL), "again");
    if (v != (float)i + 1) printf("again %g\n", (double)v);
    close_all(s, g);
  }
  printf("reconnected\n");
}

static int endless(const char *target) {
  shoal_graph *g = shoal_graph_new();
  shoal_push_device(g, WORKER(1));
  shoal_out y =
      shoal_add_v2(g, shoal_constant_float(g, 1),
                   shoal_random_uniform(g, shoal_constant_ints(g, SHOAL_SHAPE(1), &(int32_t){1}), SHOAL_FLOAT32));
  shoal_pop_device(g);
  shoal_push_device(g, PS);
  shoal_out z = shoal_reduce_mean(g, y);
  shoal_pop_device(g);
  shoal_session *s = open_on(target, g, 40000);
  for (int i = 0;; i++) {
    float v;
    shoal_status st = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(z, &v), NULL);
    if (i == 0) printf("running\n");
    if (i == 0) fflush(stdout);
    if (!st) continue;
    printf("%s: %s\n", shoal_code_name(shoal_status_code(st)), shoal_status_message(st));
    shoal_status_free(st);
    shoal_status_free(shoal_session_close(s));
    shoal_graph_free(g);
    return 0;
  }
}

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: client TARGET [endless]\n"), 2;
  if (argc > 2) return endless(argv[1]);
  training(argv[1]);
  sessions(argv[1]);
  functions(argv[1]);
  loops(argv[1]);
  reconnecting(argv[1]);
  return 0;
}
