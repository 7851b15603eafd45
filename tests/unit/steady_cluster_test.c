/* The steady state of a training step on parameter servers takes no memory: not on the parameter server, not on the
 * workers, not in their masters, nor in a client. All tasks are in this process, where a counter stands in for malloc;
 * steps of two workers take turns. */
#include "unit.h"
#include "ports.h"

#include <shoal/shoal.h>

#include "count_mallocs.h"

/* A batch makes a request of less than 16 KB: larger ones are no blocks. */
enum { STEPS = 25, MOST_WINDOWS = 400, TASKS = 3, BATCH = 4 };

struct job {
  shoal_server *servers[TASKS]; /* the ps, two workers */
  shoal_graph *graphs[TASKS];   /* the workers' */
  shoal_session *sessions[TASKS];
  const char *train;
  char loss[64];
  shoal_tensor *feeds[2];
};

static shoal_graph *model(int task, struct job *j, const char **init) {
  char device[32];
  snprintf(device, sizeof device, "/job:worker/task:%d", task);
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  shoal_push_replica_setter(g, &(shoal_replica_setter){.ps_tasks = 1, .worker_device = device});
  shoal_var step = shoal_global_step(g);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(BATCH, 784), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(BATCH), "y");
  shoal_out h = shoal_relu(g, shoal_dense(g, x, 100, "hidden")); /* 300 KB: by shared memory */
  shoal_out logits = shoal_dense(g, h, 10, "logits");            /* 4 KB: so too; the biases in frames */
  shoal_out loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, y));
  j->train = shoal_op_name(shoal_minimize(g, shoal_adam(0.001), loss, step));
  snprintf(j->loss, sizeof j->loss, "%s:0", shoal_op_name(loss.node));
  *init = shoal_op_name(shoal_initialize(g));
  shoal_pop_device(g);
  ASSERT_OK(status_copy(shoal_graph_error(g)));
  return g;
}

static void run(struct job *j, int task) {
  shoal_tensor *loss;
  ASSERT_OK(shoal_session_run(j->sessions[task], NULL, (const char *[]){"x:0", "y:0"}, j->feeds, 2,
                              (const char *[]){j->loss}, &loss, 1, &j->train, 1, NULL));
  shoal_tensor_unref(loss);
}

/* A client elsewhere: a server by another name is not known to be in this process. */
static void put_target(const shoal_server *s, bool elsewhere, char *out, size_t room) {
  const char *target = shoal_server_target(s);
  if (elsewhere) snprintf(out, room, "grpc://localhost%s", strrchr(target, ':'));
  else snprintf(out, room, "%s", target);
}

static void start(struct job *j, bool no_fast_path, bool elsewhere) {
  char cluster[160], target[64];
  const char *init = NULL;
  snprintf(cluster, sizeof cluster, "{\"ps\": [\"127.0.0.1:%d\"], \"worker\": [\"127.0.0.1:%d\", \"127.0.0.1:%d\"]}",
           free_port(), free_port(), free_port());
  for (int i = 0; i < TASKS; i++)
    ASSERT_OK(shoal_server_start(
        &(shoal_server_options){
            .cluster = cluster, .job = i ? "worker" : "ps", .task = i ? i - 1 : 0, .no_fast_path = no_fast_path},
        &j->servers[i]));
  for (int i = 1; i < TASKS; i++) {
    j->graphs[i] = model(i - 1, j, &init);
    put_target(j->servers[i], elsewhere, target, sizeof target);
    ASSERT_OK(shoal_session_open(j->graphs[i], &(shoal_session_options){.target = target}, &j->sessions[i]));
  }
  ASSERT_OK(shoal_session_run(j->sessions[1], NULL, NULL, NULL, 0, NULL, NULL, 0, &init, 1, NULL));
  ASSERT_OK(shoal_tensor_new(SHOAL_FLOAT32, 2, (const int64_t[]){BATCH, 784}, &j->feeds[0]));
  ASSERT_OK(shoal_tensor_new(SHOAL_INT64, 1, (const int64_t[]){BATCH}, &j->feeds[1]));
  for (int i = 0; i < BATCH * 784; i++) ((float *)shoal_tensor_data(j->feeds[0]))[i] = (float)(i % 17) / 17;
  for (int i = 0; i < BATCH; i++) ((int64_t *)shoal_tensor_data(j->feeds[1]))[i] = i % 10;
}

static void stop(struct job *j) {
  for (int i = 1; i < TASKS; i++) {
    ASSERT_OK(shoal_session_close(j->sessions[i]));
    shoal_graph_free(j->graphs[i]);
  }
  for (int i = TASKS; i-- > 0;) shoal_server_stop(j->servers[i]);
  for (int i = 0; i < 2; i++) shoal_tensor_unref(j->feeds[i]);
}

/* The first steps connect, and take what later ones use again. How much that is at most depends on which of a sender
 * and its receiver comes first, and on which thread; so windows of steps, until one takes nothing. */
static void check_steady(bool no_fast_path, bool elsewhere) {
  struct job j = {0};
  start(&j, no_fast_path, elsewhere);
  long taken = -1, all = 0;
  int window = 0;
  for (; window < MOST_WINDOWS && taken; window++) {
    long before = allocations();
    for (int i = 0; i < STEPS; i++) {
      run(&j, 1);
      run(&j, 2);
    }
    taken = allocations() - before;
    if (window) all += taken;
  }
  print_message("%ld allocations in %d windows of %d steps after the first\n", all, window - 1, 2 * STEPS);
  if (taken) print_message("%ld allocations in the last %d steps\n", taken, 2 * STEPS);
  stop(&j);
  assert_int_equal(taken, 0);
}

static void by_the_fast_path(void **state) { check_steady(false, false); }
static void by_grpc(void **state) { check_steady(true, false); }
static void client_elsewhere(void **state) { check_steady(false, true); }

RUN_TESTS(cmocka_unit_test(by_the_fast_path), cmocka_unit_test(by_grpc), cmocka_unit_test(client_elsewhere))
