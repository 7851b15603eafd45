/* A task of bench/replicas.py: the CNN of bench/training.py under a strategy, as many steps as it is asked for.
 *
 *   replica_worker --devices=N                   N logical CPUs of this process
 *   replica_worker --worker_hosts=... --job_name=worker --task_index=I --threads=1
 *
 * Reads lines "run N" and answers with the seconds they took; an end of the input ends it. All tasks of a cluster are
 * to be asked for the same steps: they meet in each. */
#include "../examples/common.h"

enum { SIDE = 28 };

struct batch {
  int64_t size; /* of one replica */
  shoal_tensor *images, *labels;
};

static unsigned next_number(unsigned *seed) { return *seed = *seed * 1664525u + 1013904223u; }

static void fill(struct batch *b) {
  unsigned seed = 1;
  check(shoal_tensor_new(SHOAL_FLOAT32, 4, (const int64_t[]){b->size, SIDE, SIDE, 1}, &b->images));
  check(shoal_tensor_new(SHOAL_INT64, 1, (const int64_t[]){b->size}, &b->labels));
  float *x = shoal_tensor_data(b->images);
  int64_t *y = shoal_tensor_data(b->labels);
  for (int64_t i = 0; i < shoal_tensor_elements(b->images); i++) x[i] = (float)(next_number(&seed) >> 8) / (1 << 24);
  for (int64_t i = 0; i < b->size; i++) y[i] = (int64_t)(next_number(&seed) >> 8) % CLASSES;
}

static shoal_op *replica(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_out h = shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, in[0], 32, 5, "conv1")));
  h = shoal_flatten(g, shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, h, 64, 5, "conv2"))));
  h = shoal_dense(g, shoal_relu(g, shoal_dense(g, h, 1024, "fc")), CLASSES, "logits");
  shoal_out loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, h, in[1]));
  return shoal_minimize(g, shoal_adam(0.001), loss, shoal_global_step(g));
}

/* Answers commands until there are no more. */
static void serve(shoal_train_session *s, shoal_feeds feeds, shoal_op *train) {
  char line[64];
  printf("{}\n");
  while (fgets(line, sizeof line, stdin)) {
    int64_t n = atoll(strchr(line, ' ') ? strchr(line, ' ') : "0");
    double start = seconds();
    for (int64_t i = 0; i < n && !shoal_should_stop(s); i++) shoal_run(s, feeds, SHOAL_NO_FETCHES, train);
    printf("{\"seconds\": %.6f}\n", seconds() - start);
  }
}

static shoal_status train(shoal_strategy *strategy, const struct batch *b) {
  enum { MOST = 64 };
  shoal_out in[2 * MOST];
  int n = shoal_strategy_local_replicas(strategy);
  if (n > MOST) refuse("--devices: at most 64");
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(b->size, SIDE, SIDE, 1), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(b->size), "y");
  for (int i = 0; i < n; i++) in[2 * i] = x, in[2 * i + 1] = y;
  shoal_op *step = shoal_strategy_run(g, strategy, replica, NULL, in, 2, NULL, 0);
  if (shoal_report(g)) exit(1);
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, g, .strategy = strategy, .log_step_count_steps = -1, .status = &error)
  serve(s, SHOAL_FEED(x, b->images, y, b->labels), step);
  shoal_graph_free(g);
  return error;
}

int main(int argc, char **argv) {
  struct cluster_flags where = {0};
  struct batch b = {.size = 128};
  int64_t threads = 1, devices = 1;
  read_flags(argc, argv, "replica_worker: a task of bench/replicas.py",
             (const struct flag[]){
                 CLUSTER_FLAGS(where),
                 flag_number("threads", "in each server; 0: one a core", &threads, 0),
                 flag_number("devices", "without a cluster: logical CPUs of this process", &devices, 1),
                 flag_number("batch_size", "examples of a replica, a step", &b.size, 1),
                 flags_end(),
             });
  where.threads = (int)threads;
  shoal_cluster *cluster = find_cluster(&where);
  shoal_server *server = cluster ? start_server(cluster, &where) : NULL;
  shoal_strategy *strategy;
  if (cluster) check_given(shoal_strategy_new_multi_worker(cluster, server, NULL, &strategy));
  else check_given(shoal_strategy_new_mirrored(NULL, (int)devices, NULL, &strategy));
  fill(&b);
  shoal_status error = train(strategy, &b);
  shoal_tensor_unref(b.images);
  shoal_tensor_unref(b.labels);
  shoal_strategy_free(strategy);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}
