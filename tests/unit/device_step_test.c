/* Steps on a device whose memory is not the host's, as a whole: how they begin, wait and end. On the soft device
 * (src/device/soft). */
#include "unit.h"
#include "ports.h"

#include <pthread.h>
#include <shoal/shoal.h>

#include "runtime/replay.h"

static int count(const shoal_bytes *in, const char *text) {
  int n = 0;
  const char *at = in->data, *end = at + in->size;
  for (; (at = memmem(at, (size_t)(end - at), text, strlen(text))); at++) n++;
  return n;
}

/* Fed and fetched: one plan, in which nobody sends or receives, and whose end alone waits. */
static void feeds_and_fetches_are_where_they_are_used(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *x, *y;
  shoal_bytes trace = {0};
  const char *feed = "x:0";
  shoal_push_device(g, "/device:GPU:0");
  shoal_out in = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(2), "x");
  const char *fetch = shoal_op_name(shoal_add_v2(g, in, in).node);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = "all"), &s));
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 1, (int64_t[]){2}, (float[]){1, 2}, 8, &x));
  shoal_run_options o = {.trace_level = 3, .output_partition_graphs = true};
  ASSERT_OK(shoal_session_run(s, &o, &feed, &x, 1, &fetch, &y, 1, NULL, 0, &trace));
  const float *values = shoal_tensor_const_data(y);
  assert_float_equal(values[0], 2, 0);
  assert_float_equal(values[1], 4, 0);
  assert_int_equal(count(&trace, "_Recv"), 0);
  assert_int_equal(count(&trace, "_Send"), 0);
  assert_int_equal(count(&trace, "_to_host = _ToHostAtEnd"), 1);
  shoal_bytes_free(&trace);
  shoal_tensor_unref(x);
  shoal_tensor_unref(y);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* ---- steps that are captured ---- */

/* y = x * w, and w goes against the gradient of (y - t)^2; how often is counted, once by adding and once by assigning.
 */
struct model {
  shoal_graph *g;
  shoal_session *s;
  shoal_out x, t, wrong, w, steps, twice;
  shoal_op *train, *init, *destroy;
};

static const char *target; /* of the sessions that follow; NULL: this process */

static void model_new(struct model *m, const char *device) {
  shoal_graph *g = m->g = shoal_graph_new();
  shoal_tensor *zeros;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){3, 2}, &zeros));
  shoal_push_device(g, device);
  m->x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 3), "x");
  m->t = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 2), "t");
  shoal_out w =
      shoal_var_handle_op_with(g, SHOAL_FLOAT32, SHOAL_SHAPE(3, 2),
                               &(shoal_var_handle_op_options){sizeof(shoal_var_handle_op_options), .shared_name = "w"});
  shoal_out n =
      shoal_var_handle_op_with(g, SHOAL_FLOAT32, SHOAL_SCALAR,
                               &(shoal_var_handle_op_options){sizeof(shoal_var_handle_op_options), .shared_name = "n"});
  shoal_out p =
      shoal_var_handle_op_with(g, SHOAL_FLOAT32, SHOAL_SCALAR,
                               &(shoal_var_handle_op_options){sizeof(shoal_var_handle_op_options), .shared_name = "p"});
  shoal_op *set_w = shoal_assign_variable_op(g, w, shoal_constant(g, zeros));
  shoal_op *set_n = shoal_assign_variable_op(g, n, shoal_constant_float(g, 0));
  m->wrong = shoal_sub(g, shoal_mat_mul(g, m->x, shoal_read_variable_op(g, w, SHOAL_FLOAT32)), m->t);
  shoal_out grad = shoal_mat_mul_with(g, m->x, m->wrong,
                                      &(shoal_mat_mul_options){sizeof(shoal_mat_mul_options), .transpose_a = true});
  shoal_op *descend = shoal_resource_apply_gradient_descent(g, w, shoal_constant_float(g, 0.1f), grad);
  shoal_op *count_up = shoal_assign_add_variable_op(g, n, shoal_constant_float(g, 1));
  shoal_op *set_p = shoal_assign_variable_op(g, p, shoal_constant_float(g, 0));
  shoal_out next = shoal_add_v2(g, shoal_read_variable_op(g, p, SHOAL_FLOAT32), shoal_constant_float(g, 2));
  shoal_op *go_on = shoal_assign_variable_op(g, p, next);
  m->train = shoal_group(g, (shoal_op *[]){descend, count_up, go_on}, 3, "train");
  m->init = shoal_group(g, (shoal_op *[]){set_w, set_n, set_p}, 3, "init");
  m->destroy = shoal_destroy_resource_op(g, w);
  m->twice = shoal_read_variable_op(g, p, SHOAL_FLOAT32);
  m->w = shoal_read_variable_op(g, w, SHOAL_FLOAT32);
  m->steps = shoal_read_variable_op(g, n, SHOAL_FLOAT32);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .target = target), &m->s));
  ASSERT_OK(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m->init));
  shoal_tensor_unref(zeros);
}

static void model_free(struct model *m) {
  ASSERT_OK(shoal_session_close(m->s));
  shoal_graph_free(m->g);
}

/* One step with `rows` rows that depend on i; the first value of what was wrong. */
static float step(struct model *m, int i, int rows) {
  shoal_tensor *x, *t, *wrong;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){rows, 3}, &x));
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){rows, 2}, &t));
  for (int k = 0; k < rows * 3; k++) ((float *)shoal_tensor_data(x))[k] = (float)((i + k) % 7) / 7;
  for (int k = 0; k < rows * 2; k++) ((float *)shoal_tensor_data(t))[k] = (float)((i + k) % 5) / 5;
  ASSERT_OK(shoal_session_step(m->s, SHOAL_FEED(m->x, x, m->t, t), SHOAL_FETCH(m->wrong, &wrong), m->train));
  float first = *(const float *)shoal_tensor_const_data(wrong);
  shoal_tensor_unref(x);
  shoal_tensor_unref(t);
  shoal_tensor_unref(wrong);
  return first;
}

static void same_weights(struct model *a, struct model *b) {
  shoal_tensor *w[2];
  ASSERT_OK(shoal_session_step(a->s, SHOAL_NO_FEEDS, SHOAL_FETCH(a->w, &w[0]), NULL));
  ASSERT_OK(shoal_session_step(b->s, SHOAL_NO_FEEDS, SHOAL_FETCH(b->w, &w[1]), NULL));
  for (int i = 0; i < 6; i++)
    assert_float_equal(((const float *)shoal_tensor_const_data(w[0]))[i],
                       ((const float *)shoal_tensor_const_data(w[1]))[i], 1e-5);
  shoal_tensor_unref(w[0]);
  shoal_tensor_unref(w[1]);
}

static float counted(struct model *m) {
  float n;
  ASSERT_OK(shoal_session_step(m->s, SHOAL_NO_FEEDS, SHOAL_FETCH(m->steps, &n), NULL));
  return n;
}

/* Fed anew in every step, it computes what the CPU does; of 30 steps all but the first few are replayed. One with
 * another shape is not, and does no harm. */
static void a_step_is_captured(void **state) {
  struct model cpu, gpu;
  int64_t before = replay_count();
  model_new(&cpu, "/device:CPU:0");
  model_new(&gpu, "/device:GPU:0");
  for (int i = 0; i < 30; i++) {
    int rows = i == 20 ? 2 : 4;
    assert_float_equal(step(&cpu, i, rows), step(&gpu, i, rows), 1e-5);
  }
  assert_int_equal(replay_count() - before, 25);
  same_weights(&cpu, &gpu);
  assert_float_equal(counted(&gpu), 30, 0);
  float twice;
  ASSERT_OK(shoal_session_step(gpu.s, SHOAL_NO_FEEDS, SHOAL_FETCH(gpu.twice, &twice), NULL));
  assert_float_equal(twice, 60, 0);
  model_free(&cpu);
  model_free(&gpu);
}

/* A variable that is made anew is another: what was captured is of no use any more. */
static void a_variable_that_moves_ends_the_capture(void **state) {
  struct model cpu, gpu;
  int64_t before = replay_count();
  model_new(&cpu, "/device:CPU:0");
  model_new(&gpu, "/device:GPU:0");
  for (int i = 0; i < 40; i++) {
    if (i == 20) {
      struct model *both[] = {&cpu, &gpu};
      for (int k = 0; k < 2; k++) {
        ASSERT_OK(shoal_session_step(both[k]->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, both[k]->destroy));
        ASSERT_OK(shoal_session_step(both[k]->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, both[k]->init));
      }
    }
    assert_float_equal(step(&cpu, i, 4), step(&gpu, i, 4), 1e-5);
  }
  assert_int_equal(replay_count() - before, 33); /* 16 of the first 20; then three runs as at the beginning */
  same_weights(&cpu, &gpu);
  model_free(&cpu);
  model_free(&gpu);
}

/* The step that would be captured has a mistake: it is told of, and a later one is captured. */
static void a_mistake_is_told_and_tried_again(void **state) {
  struct model m;
  shoal_tensor *x, *t, *wrong;
  model_new(&m, "/device:GPU:0");
  int64_t before = replay_count();
  for (int i = 0; i < 4; i++) step(&m, i, 4);
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){4, 3}, &x));
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){5, 2}, &t));
  shoal_status s = shoal_session_step(m.s, SHOAL_FEED(m.x, x, m.t, t), SHOAL_FETCH(m.wrong, &wrong), m.train);
  assert_int_equal(shoal_status_code(s), SHOAL_INVALID_ARGUMENT);
  shoal_status_free(s);
  shoal_tensor_unref(x);
  shoal_tensor_unref(t);
  for (int i = 0; i < 10; i++) step(&m, i, 4);
  assert_true(replay_count() > before);
  assert_float_equal(counted(&m), 15, 0); /* it was counted before it failed, once */
  model_free(&m);
}

static void *step_often(void *arg) {
  for (int i = 0; i < 100; i++) step(arg, i, 4);
  return NULL;
}

/* Steps of several threads at once, some replayed, some not: each counts once. */
static void steps_at_once(void **state) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  struct model m;
  model_new(&m, "/device:GPU:0");
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, step_often, &m);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_float_equal(counted(&m), 100 * THREADS, 0);
  int64_t before = replay_count();
  for (int i = 0; i < 2000 && replay_count() == before; i++) step(&m, i, 4);
  assert_int_equal(replay_count() - before, 1);
  model_free(&m);
}

/* What is fed and read by the host may be another in the next step: an axis. */
static void a_step_that_the_host_looks_into_is_not(void **state) {
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  int64_t before = replay_count();
  shoal_push_device(g, "/device:GPU:0");
  shoal_out shape = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(1), "shape");
  shoal_out y = shoal_reshape(g, shoal_constant_float(g, 7), shape);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, NULL, &s));
  shoal_tensor *one, *out;
  ASSERT_OK(shoal_tensor_from(SHOAL_INT32, 1, (int64_t[]){1}, (int32_t[]){1}, 4, &one));
  for (int i = 0; i < 10; i++) {
    ASSERT_OK(shoal_session_step(s, SHOAL_FEED(shape, one), SHOAL_FETCH(y, &out), NULL));
    shoal_tensor_unref(out);
  }
  assert_int_equal(replay_count() - before, 0);
  shoal_tensor_unref(one);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
}

/* Rows of a table are gathered by what is fed, and change: each is added to itself. */
struct table {
  shoal_graph *g;
  shoal_session *s;
  shoal_out index, rows, size;
  shoal_op *add;
};

static void table_new(struct table *t, const char *device) {
  shoal_graph *g = t->g = shoal_graph_new();
  shoal_tensor *first;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){5, 3}, &first));
  for (int i = 0; i < 15; i++) ((float *)shoal_tensor_data(first))[i] = (float)i;
  shoal_push_device(g, device);
  t->index = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(4), "index");
  shoal_out handle = shoal_var_handle_op_with(
      g, SHOAL_FLOAT32, SHOAL_SHAPE(5, 3),
      &(shoal_var_handle_op_options){sizeof(shoal_var_handle_op_options), .shared_name = "table"});
  shoal_op *init = shoal_assign_variable_op(g, handle, shoal_constant(g, first));
  t->rows = shoal_resource_gather(g, handle, t->index, SHOAL_FLOAT32);
  t->add = shoal_resource_scatter_add(g, handle, t->index, t->rows);
  t->size = shoal_variable_shape(g, handle);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, NULL, &t->s));
  ASSERT_OK(shoal_session_step(t->s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  shoal_tensor_unref(first);
}

static void table_step(struct table *t, int i, float rows[12]) {
  int32_t at[] = {i % 5, (i + 1) % 5, (i * 3) % 5, 4};
  shoal_tensor *index, *out, *size;
  ASSERT_OK(shoal_tensor_from(SHOAL_INT32, 1, (int64_t[]){4}, at, sizeof at, &index));
  ASSERT_OK(shoal_session_step(t->s, SHOAL_FEED(t->index, index), SHOAL_FETCH(t->rows, &out, t->size, &size), t->add));
  memcpy(rows, shoal_tensor_const_data(out), 12 * sizeof *rows);
  assert_int_equal(((const int32_t *)shoal_tensor_const_data(size))[0], 5);
  shoal_tensor_unref(index);
  shoal_tensor_unref(out);
  shoal_tensor_unref(size);
}

/* Gathers, scatters and the shape of a variable do not keep a step from being captured. */
static void rows_by_index_are_captured(void **state) {
  struct table cpu, gpu;
  int64_t before = replay_count();
  table_new(&cpu, "/device:CPU:0");
  table_new(&gpu, "/device:GPU:0");
  for (int i = 0; i < 20; i++) {
    float want[12], have[12];
    table_step(&cpu, i, want);
    table_step(&gpu, i, have);
    for (int k = 0; k < 12; k++) assert_float_equal(want[k], have[k], 0);
  }
  assert_int_equal(replay_count() - before, 16);
  ASSERT_OK(shoal_session_close(cpu.s));
  ASSERT_OK(shoal_session_close(gpu.s));
  shoal_graph_free(cpu.g);
  shoal_graph_free(gpu.g);
}

/* A chain of layers of 4 KB each, of which the last is fetched; so many bytes its captured step has. */
static int64_t chain_memory(int layers) {
  enum { N = 1024 };
  shoal_graph *g = shoal_graph_new();
  shoal_session *s;
  shoal_tensor *x, *y;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 1, (int64_t[]){N}, &x));
  ((float *)shoal_tensor_data(x))[0] = 1;
  shoal_push_device(g, "/device:GPU:0");
  shoal_out in = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(N), "x"), h = in;
  for (int i = 0; i < layers; i++) h = i % 2 ? shoal_neg(g, h) : shoal_add_v2(g, h, h);
  shoal_pop_device(g);
  ASSERT_OK(shoal_graph_error(g));
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .rewrites_off = "all"), &s));
  for (int i = 0; i < 8; i++) {
    ASSERT_OK(shoal_session_step(s, SHOAL_FEED(in, x), SHOAL_FETCH(h, &y), NULL));
    float want = 1;
    for (int k = 0; k < layers; k++) want *= k % 2 ? -1 : 2;
    assert_float_equal(((const float *)shoal_tensor_const_data(y))[0], want, 0);
    shoal_tensor_unref(y);
  }
  int64_t has = replay_bytes();
  shoal_tensor_unref(x);
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  assert_int_equal(replay_bytes(), 0);
  return has;
}

/* A value that all have read makes room for others in a captured step too: however long the chain is. */
static void memory_serves_again_in_a_captured_step(void **state) {
  int64_t few = chain_memory(4);
  assert_in_range(few, 4096, 3 * 4096);
  assert_int_equal(chain_memory(40), few);
}

/* Several at once, of which the last one's values are fetched: on the CPU, and where they are queued without waiting.
 */
static void steps_in_a_row(void **state) {
  struct model m[2];
  shoal_tensor *x, *t;
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){4, 3}, &x));
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (int64_t[]){4, 2}, &t));
  for (int k = 0; k < 12; k++) ((float *)shoal_tensor_data(x))[k] = (float)(k % 7) / 7;
  for (int k = 0; k < 8; k++) ((float *)shoal_tensor_data(t))[k] = (float)(k % 5) / 5;
  int64_t before = replay_count();
  float wrong[2];
  for (int d = 0; d < 2; d++) {
    shoal_tensor *out;
    model_new(&m[d], d ? "/device:GPU:0" : "/device:CPU:0");
    ASSERT_OK(
        shoal_session_steps(m[d].s, 150, SHOAL_FEED(m[d].x, x, m[d].t, t), SHOAL_FETCH(m[d].wrong, &out), m[d].train));
    wrong[d] = *(const float *)shoal_tensor_const_data(out);
    shoal_tensor_unref(out);
    assert_float_equal(counted(&m[d]), 150, 0);
    shoal_status s = shoal_session_steps(m[d].s, 0, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m[d].train);
    assert_int_equal(shoal_status_code(s), SHOAL_INVALID_ARGUMENT);
    shoal_status_free(s);
  }
  assert_int_equal(replay_count() - before, 146);
  assert_float_equal(wrong[0], wrong[1], 1e-5);
  same_weights(&m[0], &m[1]);
  for (int d = 0; d < 2; d++) model_free(&m[d]);
  shoal_tensor_unref(x);
  shoal_tensor_unref(t);
}

/* A server's step that is all on its device is captured as well: for a client in this process, and for one by gRPC. */
static void a_step_of_a_server_is_captured(void **state) {
  char cluster[64], elsewhere[64];
  shoal_server *server;
  snprintf(cluster, sizeof cluster, "{\"worker\": [\"127.0.0.1:%d\"]}", free_port());
  ASSERT_OK(shoal_server_start(&(shoal_server_options){.cluster = cluster, .job = "worker"}, &server));
  snprintf(elsewhere, sizeof elsewhere, "grpc://localhost%s", strrchr(shoal_server_target(server), ':'));
  const char *const targets[] = {shoal_server_target(server), elsewhere};
  for (int k = 0; k < 2; k++) {
    struct model cpu, gpu;
    int64_t before = replay_count();
    model_new(&cpu, "/device:CPU:0");
    target = targets[k];
    model_new(&gpu, "/device:GPU:0");
    target = NULL;
    for (int i = 0; i < 30; i++) assert_float_equal(step(&cpu, i, 4), step(&gpu, i, 4), 1e-5);
    assert_int_equal(replay_count() - before, 26);
    same_weights(&cpu, &gpu);
    assert_float_equal(counted(&gpu), 30, 0);
    ASSERT_OK(shoal_session_step(gpu.s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, gpu.destroy));
    model_free(&cpu);
    model_free(&gpu);
  }
  shoal_server_stop(server);
}

/* Steps of several clients of a server at once: some are replayed, others run meanwhile; each counts once. */
static void steps_of_a_server_at_once(void **state) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  struct model m;
  char cluster[64];
  shoal_server *server;
  snprintf(cluster, sizeof cluster, "{\"worker\": [\"127.0.0.1:%d\"]}", free_port());
  ASSERT_OK(shoal_server_start(&(shoal_server_options){.cluster = cluster, .job = "worker"}, &server));
  target = shoal_server_target(server);
  model_new(&m, "/device:GPU:0");
  target = NULL;
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, step_often, &m);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_float_equal(counted(&m), 100 * THREADS, 0);
  model_free(&m);
  shoal_server_stop(server);
}

int main(void) {
  setenv("SHOAL_SOFT_GPUS", "1", 1);
  setenv("SHOAL_SOFT_QUEUES", "1", 1);
  const struct CMUnitTest tests[] = {cmocka_unit_test(feeds_and_fetches_are_where_they_are_used),
                                     cmocka_unit_test(a_step_is_captured),
                                     cmocka_unit_test(a_variable_that_moves_ends_the_capture),
                                     cmocka_unit_test(a_mistake_is_told_and_tried_again),
                                     cmocka_unit_test(steps_at_once),
                                     cmocka_unit_test(a_step_that_the_host_looks_into_is_not),
                                     cmocka_unit_test(rows_by_index_are_captured),
                                     cmocka_unit_test(memory_serves_again_in_a_captured_step),
                                     cmocka_unit_test(steps_in_a_row),
                                     cmocka_unit_test(a_step_of_a_server_is_captured),
                                     cmocka_unit_test(steps_of_a_server_at_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
