/* Model parallelism: the layers of one model on different tasks. Activations flow from worker to worker, gradients flow
 * back the same way, and each task holds and updates the parameters of its own layers: nobody needs room for the whole.
 * So that not all but one wait, a batch is cut into micro-batches that follow each other through the stages (1F1B); the
 * result is that of the whole batch. Only worker 0 is a client; the others just serve.
 *
 *   shoal launch --ps=0 --workers=3 -- model_parallel
 */
#include "common.h"

enum { LAYERS = 6, MAX_STAGES = LAYERS };

struct stage {
  int first, last; /* layers */
  int64_t units;
  shoal_var kernel[LAYERS], bias[LAYERS]; /* those of its layers, when made */
};

static shoal_out layer(shoal_graph *g, shoal_out x, const struct stage *s, int i) {
  shoal_out y = shoal_bias_add(g, shoal_mat_mul(g, x, s->kernel[i].value), s->bias[i].value);
  return i == LAYERS - 1 ? y : shoal_relu(g, y);
}

/* Called for every micro-batch; all but the first time the variables are those made before. */
static shoal_out forward(shoal_graph *g, shoal_out h, void *arg) {
  struct stage *s = (struct stage *)arg;
  for (int i = s->first; i < s->last; i++) {
    char name[32];
    int64_t in = i ? s->units : PIXELS, out = i == LAYERS - 1 ? CLASSES : s->units;
    snprintf(name, sizeof name, "layer%d/kernel", i);
    s->kernel[i] = shoal_variable(g, name, shoal_init_glorot_uniform(g, SHOAL_FLOAT32, SHOAL_SHAPE(in, out)));
    snprintf(name, sizeof name, "layer%d/bias", i);
    s->bias[i] = shoal_variable(g, name, shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(out)));
    h = layer(g, h, s, i);
  }
  return h;
}

static shoal_out mean_loss(shoal_graph *g, shoal_out logits, shoal_out labels, void *arg) {
  (void)arg;
  return shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, labels));
}

int main(int argc, char **argv) {
  struct cluster_flags where = {0};
  struct save_flags save = {0};
  const char *data_dir = FASHION_MNIST, *checkpoint_dir = NULL, *device = NULL;
  int64_t train_steps = 500, batch_size = 128, micro_batches = 4, units = 256;
  double learning_rate = 0.001;
  const struct flag flags[] = {
      CLUSTER_FLAGS(where),
      flag_path("data_dir", "the four IDX files", &data_dir),
      flag_number("train_steps", "steps to end at", &train_steps, 1),
      flag_number("batch_size", "examples a step", &batch_size, 1),
      flag_number("micro_batches", "into which a batch is cut", &micro_batches, 1),
      flag_number("hidden_units", "in each hidden layer", &units, 1),
      flag_real("learning_rate", "Adam's", &learning_rate),
      flag_path("checkpoint_dir", "where to save", &checkpoint_dir),
      SAVE_FLAGS(save),
      DEVICE_FLAG(device),
      flags_end(),
  };
  read_flags(argc, argv, "model_parallel: the layers of one model on different tasks", flags);
  check_save(&save, checkpoint_dir);
  shoal_cluster *cluster = find_cluster(&where);
  if (!cluster) {
    fprintf(stderr, "model_parallel: this is for a cluster: shoal launch --ps=0 --workers=3 -- %s\n", argv[0]);
    return 2;
  }
  int tasks = shoal_cluster_tasks(cluster, "worker");
  check_task_device(cluster, device, 1);
  shoal_server *server = start_server(cluster, &where);
  /* The others work for the client of worker 0, until that says it is done. */
  if (!shoal_cluster_is_chief(cluster)) {
    shoal_cluster_free(cluster);
    return shoal_server_serve(server);
  }

  if (micro_batches < 1 || batch_size % micro_batches != 0) {
    fprintf(stderr, "model_parallel: --batch_size must be a multiple of --micro_batches\n");
    return 2;
  }

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  shoal_push_device(g, "/job:worker/task:0");
  shoal_var step = shoal_global_step(g);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, PIXELS), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "y");
  struct stage layers[MAX_STAGES];
  shoal_pipeline_stage stages[MAX_STAGES];
  char task[32], devices[MAX_STAGES][DEVICE_NAME];
  int n_stages = tasks < MAX_STAGES ? tasks : MAX_STAGES;
  for (int i = 0; i < n_stages; i++) {
    layers[i] = (struct stage){.first = i * LAYERS / n_stages, .last = (i + 1) * LAYERS / n_stages, .units = units};
    snprintf(task, sizeof task, "/job:worker/task:%d", i);
    name_device(device, task, 0, devices[i]);
    stages[i] = (shoal_pipeline_stage){devices[i], forward, &layers[i]};
  }
  shoal_out loss;
  shoal_op *train = shoal_pipeline_minimize(g,
                                            SHOAL_OPTIONS(shoal_pipeline, .stages = stages, .n_stages = n_stages,
                                                          .micro_batches = (int)micro_batches, .loss = mean_loss),
                                            x, y, shoal_adam(learning_rate), step, &loss);
  shoal_out h = x; /* for the test: once through all stages */
  for (int k = 0; k < n_stages; k++) {
    shoal_push_device(g, devices[k]);
    for (int i = layers[k].first; i < layers[k].last; i++) h = layer(g, h, &layers[k], i);
    shoal_pop_device(g);
  }
  shoal_out accuracy = shoal_accuracy(g, h, y);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  struct classifier model = {x, y, loss, accuracy, train};
  shoal_status error =
      train_alone(g, &model, server, cluster, data_dir, checkpoint_dir, &save, batch_size, train_steps, device);
  shoal_graph_free(g);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}
