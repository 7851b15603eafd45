/* One worker of a cluster whose others are of TensorFlow 2's MultiWorkerMirroredStrategy:
 * tests/cluster/coordination_test.py runs it beside them, and compares.
 *
 *   multi_worker_member WORKERS PLAN      TF_CONFIG in the environment says which worker it is, of which
 *
 * PLAN has a letter for each collective of the strategy's program, in its order: r, a sum over all workers; b, a
 * broadcast from the first; w: it waits until it is killed. Both are of N numbers, (worker + 1) * (1 + place % 7) +
 * turn. The strategy gives its collectives one group and a key each, which count from 100. A line for each tells what
 * came out: first and last number. Where a step fails it ends, or begins anew (a PLAN that starts with !). */
#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 1003, GROUP = 1, FIRST_KEY = 100 };

static void must(shoal_status s, const char *what) {
  if (!s) return;
  printf("%s: %s: %s\n", what, shoal_code_name(shoal_status_code(s)), shoal_status_message(s));
  exit(1);
}

static shoal_tensor *number(int32_t n) {
  shoal_tensor *t;
  must(shoal_tensor_from(SHOAL_INT32, 0, NULL, &n, sizeof n, &t), "number");
  return t;
}

static shoal_tensor *numbers(int worker, int turn) {
  static float v[N];
  int64_t dims[] = {N};
  shoal_tensor *t;
  for (int i = 0; i < N; i++) v[i] = (float)((worker + 1) * (1 + i % 7) + turn);
  must(shoal_tensor_from(SHOAL_FLOAT32, 1, dims, v, sizeof v, &t), "numbers");
  return t;
}

int main(int argc, char **argv) {
  const char *plan = argc > 2 ? argv[2] : "";
  int size = argc > 1 ? atoi(argv[1]) : 0, worker = 0;
  bool again = *plan == '!';
  plan += again;
  shoal_server *server;
  setvbuf(stdout, NULL, _IOLBF, 0);
  must(shoal_server_start(&(shoal_server_options){.size = sizeof(shoal_server_options), .coordination_service = 1},
                          &server),
       "start");
  const char *task = shoal_server_task(server);
  sscanf(task, "/job:worker/replica:0/task:%d", &worker);

  shoal_graph *g = shoal_graph_new();
  shoal_push_device(g, task);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(N), "x");
  shoal_out key = shoal_placeholder(g, SHOAL_INT32, SHOAL_SCALAR, "key");
  shoal_out group = shoal_constant_ints(g, SHOAL_SCALAR, (int32_t[]){GROUP});
  shoal_out members = shoal_constant_ints(g, SHOAL_SCALAR, (int32_t[]){size});
  shoal_out shape = shoal_constant_ints(g, SHOAL_SHAPE(1), (int32_t[]){N});
  shoal_out sum = shoal_collective_reduce_v2(g, x, members, group, key, NULL, 0, "Add", "Id");
  shoal_out copy = worker ? shoal_collective_bcast_recv_v2(g, members, group, key, shape, SHOAL_FLOAT32)
                          : shoal_collective_bcast_send_v2(g, x, members, group, key);
  shoal_pop_device(g);
  if (shoal_report(g)) return 1;
  shoal_session *s;
  const char *own[] = {task, NULL};
  must(
      shoal_session_open(g, &(shoal_session_options){.target = shoal_server_target(server), .device_filters = own}, &s),
      "open");
  for (int turn = 0; plan[turn];) {
    if (plan[turn] == 'w') pause();
    shoal_tensor *in = numbers(worker, turn), *instance = number(FIRST_KEY + turn), *out = NULL;
    bool sums = plan[turn] == 'r';
    shoal_status failed =
        shoal_session_step(s, SHOAL_FEED(x, in, key, instance), SHOAL_FETCH(sums ? sum : copy, &out), NULL);
    if (!again) must(failed, "step");
    if (failed) {
      printf("step: %s\n", shoal_status_message(failed));
      turn = 0;
    } else {
      const float *v = shoal_tensor_data(out);
      printf("%d %c %g %g\n", turn, plan[turn], v[0], v[N - 1]);
      turn++;
    }
    shoal_status_free(failed);
    shoal_tensor_unref(in);
    shoal_tensor_unref(instance);
    shoal_tensor_unref(out);
  }
  must(shoal_session_close(s), "close");
  shoal_graph_free(g);
  shoal_server_stop(server);
  return 0;
}
