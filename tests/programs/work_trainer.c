/* A worker for tests/cluster/work_test.py: workers share items of so many numbers, and count how often each number is
 * used.
 *
 *   work_trainer --cluster=JSON --task=0 --items=N --rows=N [--numbers=N] [--step_ms=N] [--lease=SECONDS]
 *                [--checkpoint_dir=DIR]
 *
 * Prints a line for each step; the chief ends with how often the least and the most used number was, and how many
 * numbers there are: --numbers, as a rule as many as items have. Without --cluster it trains in this process. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shoal/shoal.h>

static const char *text_flag(int argc, char **argv, const char *name) {
  size_t n = strlen(name);
  for (int i = 1; i < argc; i++)
    if (!strncmp(argv[i], "--", 2) && !strncmp(argv[i] + 2, name, n) && argv[i][2 + n] == '=') return argv[i] + 3 + n;
  return NULL;
}

static long number_flag(int argc, char **argv, const char *name, long otherwise) {
  const char *t = text_flag(argc, argv, name);
  return t ? atol(t) : otherwise;
}

/* Batches of three of an item's numbers. */
static shoal_out numbers(shoal_graph *g, shoal_out item, void *arg) {
  shoal_out first = shoal_mul(g, item, shoal_constant_int64(g, *(int64_t *)arg));
  shoal_builder *b = shoal_build(g, "Range", NULL);
  shoal_build_input(b, first);
  shoal_build_input(b, shoal_add_v2(g, first, shoal_constant_int64(g, *(int64_t *)arg)));
  shoal_build_input(b, shoal_constant_int64(g, 1));
  shoal_out all = shoal_build_end_out(b);
  return shoal_dataset_prefetch(g, shoal_dataset_batch(g, shoal_dataset_tensor_slices(g, &all, 1), 3, false), 2);
}

static shoal_op *count(shoal_graph *g, shoal_var counts, shoal_out which) {
  shoal_builder *b = shoal_build(g, "ResourceScatterAdd", NULL);
  shoal_build_input(b, counts.handle);
  shoal_build_input(b, which);
  shoal_build_input(b, shoal_constant_int64(g, 1));
  shoal_op *parts[2];
  parts[0] = shoal_build_end(b);
  parts[1] = shoal_assign_add_variable_op(g, shoal_global_step(g).handle, shoal_constant_int64(g, 1));
  return shoal_group(g, parts, 2, "count");
}

static void print_counts(const shoal_tensor *t) {
  const int64_t *v = shoal_tensor_const_data(t);
  int64_t n = shoal_tensor_elements(t), least = v[0], most = v[0];
  for (int64_t i = 0; i < n; i++) {
    if (v[i] < least) least = v[i];
    if (v[i] > most) most = v[i];
  }
  printf("counted %" PRId64 " to %" PRId64 " of %" PRId64 "\n", least, most, n);
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const char *cluster = text_flag(argc, argv, "cluster");
  int task = (int)number_flag(argc, argv, "task", 0);
  int64_t rows = number_flag(argc, argv, "rows", 10), items = number_flag(argc, argv, "items", 4);
  int64_t all = number_flag(argc, argv, "numbers", items * rows);
  long step_ms = number_flag(argc, argv, "step_ms", 0);
  shoal_server *server = NULL;
  char device[64] = "";
  if (cluster) {
    shoal_status e =
        shoal_server_start(&(shoal_server_options){.cluster = cluster, .job = "worker", .task = task}, &server);
    if (e) return shoal_train_exit(e);
    snprintf(device, sizeof device, "/job:worker/task:%d", task);
  }
  shoal_graph *g = shoal_graph_new();
  if (cluster)
    shoal_push_replica_setter(g, SHOAL_OPTIONS(shoal_replica_setter, .ps_tasks = 1, .worker_device = device));
  shoal_out in;
  shoal_work *work =
      shoal_work_new(g,
                     SHOAL_OPTIONS(shoal_work_options, .items = items, .worker = task, .dataset = numbers, .arg = &rows,
                                   .lease_secs = (double)number_flag(argc, argv, "lease", 0)),
                     &in, 1);
  shoal_var counts = shoal_variable_untrained(g, "counts", shoal_init_zeros(g, SHOAL_INT64, SHOAL_SHAPE(all)));
  shoal_op *train = count(g, counts, in);
  if (cluster) shoal_pop_device(g);
  if (shoal_report(g)) return 1;
  shoal_hook hook = shoal_work_hook(work, train);
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = task == 0,
                      .checkpoint_dir = text_flag(argc, argv, "checkpoint_dir"), .save_steps = 3, .hooks = &hook,
                      .n_hooks = 1, .status = &error) {
    shoal_tensor *t;
    while (!shoal_should_stop(s)) {
      if (!shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(in, &t), train)) continue;
      printf("used %" PRId64 "\n", *(const int64_t *)shoal_tensor_const_data(t));
      shoal_tensor_unref(t);
      nanosleep(&(struct timespec){.tv_sec = step_ms / 1000, .tv_nsec = step_ms % 1000 * 1000000}, NULL);
    }
    if (task == 0 && !shoal_train_session_error(s) &&
        !shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS, SHOAL_FETCH(counts.value, &t), NULL)) {
      print_counts(t);
      shoal_tensor_unref(t);
    }
  }
  shoal_graph_free(g);
  shoal_server_stop(server);
  return shoal_train_exit(error);
}
