/* Model parallelism: the layers of one model on different tasks. Activations flow from worker to worker, gradients flow
 * back the same way, and each task holds and updates the parameters of its own layers: nobody needs room for the whole.
 * Only worker 0 is a client; the others just serve.
 *
 *   shoal launch --ps=0 --workers=3 -- model_parallel
 */
#include "common.h"

enum { LAYERS = 6 };

int main(int argc, char **argv) {
  struct cluster_flags where = {0};
  const char *data_dir = FASHION_MNIST, *checkpoint_dir = NULL;
  int64_t train_steps = 500, batch_size = 128, units = 256;
  double learning_rate = 0.001;
  read_flags(argc, argv, "model_parallel: the layers of one model on different tasks",
             (const struct flag[]){
                 CLUSTER_FLAGS(where),
                 {"data_dir", "the four IDX files", .text = &data_dir},
                 {"train_steps", "steps to end at", .number = &train_steps},
                 {"batch_size", "examples a step", .number = &batch_size},
                 {"hidden_units", "in each hidden layer", .number = &units},
                 {"learning_rate", "Adam's", .real = &learning_rate},
                 {"checkpoint_dir", "where to save", .text = &checkpoint_dir},
                 {0},
             });
  shoal_cluster *cluster = find_cluster(&where);
  if (!cluster) {
    fprintf(stderr, "model_parallel: this is for a cluster: shoal launch --ps=0 --workers=3 -- %s\n", argv[0]);
    return 2;
  }
  int tasks = shoal_cluster_tasks(cluster, "worker");
  shoal_server *server = start_server(cluster, &where);
  /* The others work for the client of worker 0, until that says it is done. */
  if (!shoal_cluster_is_chief(cluster)) return shoal_server_serve(server);

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  shoal_push_device(g, "/job:worker/task:0");
  shoal_var step = shoal_global_step(g);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, PIXELS), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "y");
  shoal_out h = x, loss = {0}, accuracy = {0};
  for (int i = 0; i < LAYERS; i++) {
    char device[32], name[32];
    snprintf(device, sizeof device, "/job:worker/task:%d", i * tasks / LAYERS);
    snprintf(name, sizeof name, "layer%d", i);
    shoal_push_device(g, device); /* variables and ops of this layer; its gradients follow them */
    bool last = i == LAYERS - 1;
    h = shoal_dense(g, h, last ? CLASSES : units, name);
    if (!last) h = shoal_relu(g, h);
    if (last) {
      loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, h, y));
      accuracy = shoal_accuracy(g, h, y);
    }
    shoal_pop_device(g);
  }
  shoal_op *train = shoal_minimize(g, shoal_adam(learning_rate), loss, step);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  struct data training = load_data(data_dir, "train", 1), test = load_data(data_dir, "t10k", 1);
  shoal_progress progress = {.loss = loss, .examples_per_step = batch_size, .last_step = train_steps};
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = true, .checkpoint_dir = checkpoint_dir,
                      .stop_at_step = train_steps, .progress = &progress, .status = &error) {
    shoal_tensor *images, *labels;
    while (!shoal_should_stop(s)) {
      next_batch(&training, batch_size, &images, &labels);
      shoal_run(s, SHOAL_FEED(x, images, y, labels), SHOAL_NO_FETCHES, train);
      shoal_tensor_unref(images);
      shoal_tensor_unref(labels);
    }
    float right = 0;
    if (!shoal_preempted()) {
      check(shoal_session_step(shoal_train_session_raw(s), SHOAL_FEED(x, test.images, y, test.labels),
                               SHOAL_FETCH(accuracy, &right), NULL));
      printf("test accuracy %.4f\n", (double)right);
    }
  }
  stop_others(cluster);
  free_data(&training);
  free_data(&test);
  shoal_graph_free(g);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}
