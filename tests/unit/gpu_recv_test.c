/* A value in the memory of a card, asked for by another process of the host on the same card: a parameter server (this
 * program once more, with arguments) has a variable of 64 MB on its GPU, and a worker's step reads it on its own. The
 * values are right, and stay so when the variable changes. How long a step takes is told: run with SHOAL_WINDOWS=0, by
 * way of the host. */
#include "gpu_case.h"
#include "ports.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { ELEMENTS = 16 << 20, ROUNDS = 15 };

static int serve(const char *cluster) {
  shoal_server *s;
  shoal_status e = shoal_server_start(SHOAL_OPTIONS(shoal_server_options, .cluster = cluster, .job = "ps"), &s);
  if (e) {
    fprintf(stderr, "%s\n", shoal_status_message(e));
    _exit(1);
  }
  printf("ready\n");
  fflush(stdout);
  for (;;) pause();
}

static pid_t start_ps(const char *cluster) {
  char here[1024], word[8] = "";
  int out[2];
  ssize_t length = readlink("/proc/self/exe", here, sizeof here - 1);
  assert_true(length > 0 && !pipe(out));
  here[length] = 0;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (!pid) {
    dup2(out[1], 1);
    if (*unit_emulator()) execl(unit_emulator(), unit_emulator(), here, cluster, (char *)NULL);
    execl(here, here, cluster, (char *)NULL);
    _exit(127);
  }
  close(out[1]);
  assert_int_equal(read(out[0], word, 5), 5);
  close(out[0]);
  return pid;
}

static int by_time(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Milliseconds of a step that pulls all of it, the median; the numbers are right. */
static double pull(shoal_session *s, shoal_out top, float want) {
  double took[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    float have = 0;
    int64_t began = clock_ns();
    ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(top, &have), NULL));
    took[i] = (double)(clock_ns() - began) * 1e-6;
    assert_float_equal(have, want, 0);
  }
  qsort(took, ROUNDS, sizeof *took, by_time);
  return took[ROUNDS / 2];
}

static shoal_out filled(shoal_graph *g, float value) {
  return shoal_fill(g, shoal_constant_ints(g, SHOAL_SHAPE(1), (int32_t[]){ELEMENTS}), shoal_constant_float(g, value));
}

static void pulled_from_a_ps(void **state) {
  char cluster[160];
  snprintf(cluster, sizeof cluster, "{\"ps\": [\"127.0.0.1:%d\"], \"worker\": [\"127.0.0.1:%d\"]}", free_port(),
           free_port());
  pid_t ps = start_ps(cluster);
  shoal_server *worker;
  ASSERT_OK(shoal_server_start(SHOAL_OPTIONS(shoal_server_options, .cluster = cluster, .job = "worker"), &worker));
  shoal_graph *g = shoal_graph_new();
  shoal_push_device(g, "/job:ps/device:GPU:0");
  shoal_var v = shoal_variable(g, "v", filled(g, 0));
  shoal_op *add = shoal_assign_add_variable_op(g, v.handle, filled(g, 1));
  shoal_pop_device(g);
  shoal_push_device(g, "/job:worker/device:GPU:0");
  shoal_out axis = shoal_constant_ints(g, SHOAL_SHAPE(1), (int32_t[]){0}), top = shoal_max(g, v.value, axis);
  shoal_pop_device(g);
  shoal_op *init = shoal_initialize(g);
  ASSERT_OK(shoal_graph_error(g));
  shoal_session *s;
  ASSERT_OK(shoal_session_open(g, SHOAL_OPTIONS(shoal_session_options, .target = shoal_server_target(worker)), &s));
  ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  for (int i = 1; i < 4; i++) {
    ASSERT_OK(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, add));
    print_message("# %d MB pulled from a ps on the same card: %.3f ms\n", ELEMENTS >> 18, pull(s, top, (float)i));
  }
  ASSERT_OK(shoal_session_close(s));
  shoal_graph_free(g);
  shoal_server_stop(worker);
  kill(ps, SIGKILL);
  waitpid(ps, NULL, 0);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(pulled_from_a_ps)};
  if (!gpu_here()) return 1;
  if (argc > 1) return serve(argv[1]);
  return cmocka_run_group_tests_name("gpu_recv", tests, NULL, NULL);
}
