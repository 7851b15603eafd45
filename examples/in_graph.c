/* In-graph replication: one client, one graph that has a copy of the model on every worker, or several on devices of
 * each, and the mean of their gradients taken and applied on the parameter servers' CPUs, where the variables are. Only
 * worker 0 is a client; the others just serve.
 *
 *   shoal launch --ps=1 --workers=2 -- in_graph
 *   shoal launch --ps=1 --workers=1 -- in_graph --copies=2 --device=GPU         towers on the GPUs of one worker
 */
#include "common.h"

enum { HIDDEN = 100, MAX_TOWERS = 64 };

/* One copy of the model over the variables that all share: its loss and its logits. */
static shoal_out tower(shoal_graph *g, const shoal_var v[4], shoal_out x, shoal_out y, shoal_out *logits) {
  shoal_out hidden = shoal_relu(g, shoal_bias_add(g, shoal_mat_mul(g, x, v[0].value), v[1].value));
  *logits = shoal_bias_add(g, shoal_mat_mul(g, hidden, v[2].value), v[3].value);
  return shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, *logits, y));
}

int main(int argc, char **argv) {
  struct cluster_flags where = {0};
  struct save_flags save = {0};
  const char *data_dir = FASHION_MNIST, *checkpoint_dir = NULL, *device_given = NULL;
  int64_t train_steps = 500, batch_size = 200, copies = 1;
  double learning_rate = 0.001;
  const struct flag flags[] = {
      CLUSTER_FLAGS(where),
      flag_between("copies", "of the model on each worker, on devices from --device on", &copies, 1, MAX_TOWERS),
      flag_path("data_dir", "the four IDX files", &data_dir),
      flag_number("train_steps", "steps to end at", &train_steps, 1),
      flag_number("batch_size", "examples a step, shared by all workers", &batch_size, 1),
      flag_real("learning_rate", "Adam's", &learning_rate),
      flag_path("checkpoint_dir", "where to save", &checkpoint_dir),
      SAVE_FLAGS(save),
      DEVICE_FLAG(device_given),
      flags_end(),
  };
  read_flags(argc, argv, "in_graph: one client trains a copy of the model on every worker", flags);
  check_save(&save, checkpoint_dir);
  shoal_cluster *cluster = find_cluster(&where);
  if (!cluster) {
    fprintf(stderr, "in_graph: this is for a cluster: shoal launch --ps=1 --workers=2 -- %s\n", argv[0]);
    return 2;
  }
  int ps_tasks = shoal_cluster_tasks(cluster, "ps"), towers = shoal_cluster_tasks(cluster, "worker") * (int)copies;
  check_task_device(cluster, device_given, (int)copies);
  shoal_server *server = start_server(cluster, &where);
  /* The others work for the client of worker 0, until that says it is done. */
  if (!shoal_cluster_is_chief(cluster)) {
    shoal_cluster_free(cluster);
    return shoal_server_serve(server);
  }
  if (towers > MAX_TOWERS || batch_size % towers != 0) {
    fprintf(stderr, "in_graph: --batch_size must be a multiple of the copies, of which there are at most %d\n",
            MAX_TOWERS);
    return 2;
  }

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  /* Variables go to the parameter servers in turn, everything else to worker 0 unless it says otherwise. */
  shoal_push_replica_setter(
      g, SHOAL_OPTIONS(shoal_replica_setter, .ps_tasks = ps_tasks, .ps_device = "/job:ps/device:CPU:0",
                       .worker_device = "/job:worker/task:0"));
  shoal_var step = shoal_global_step(g);
  shoal_var vars[4] = {
      shoal_variable(g, "hidden/kernel", shoal_init_glorot_uniform(g, SHOAL_FLOAT32, SHOAL_SHAPE(PIXELS, HIDDEN))),
      shoal_variable(g, "hidden/bias", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(HIDDEN))),
      shoal_variable(g, "logits/kernel", shoal_init_glorot_uniform(g, SHOAL_FLOAT32, SHOAL_SHAPE(HIDDEN, CLASSES))),
      shoal_variable(g, "logits/bias", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(CLASSES))),
  };
  shoal_out values[4];
  for (int i = 0; i < 4; i++) values[i] = vars[i].value;
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, PIXELS), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "y");
  shoal_op *xs = shoal_split(g, shoal_constant_int(g, 0), x, towers);
  shoal_op *ys = shoal_split(g, shoal_constant_int(g, 0), y, towers);

  shoal_out losses[MAX_TOWERS], logits;
  shoal_gradient grads[MAX_TOWERS * 4], mean[4];
  for (int i = 0; i < towers; i++) {
    char task[32], device[DEVICE_NAME];
    snprintf(task, sizeof task, "/job:worker/task:%d", i / (int)copies);
    name_device(device_given, task, i % (int)copies, device);
    shoal_push_device(g, device); /* the copy, and its gradients, on its worker */
    losses[i] = tower(g, vars, (shoal_out){xs, i}, (shoal_out){ys, i}, &logits);
    shoal_gradients(g, &losses[i], 1, values, 4, NULL, &grads[(ptrdiff_t)i * 4]);
    shoal_pop_device(g);
  }
  shoal_average_gradients(g, grads, towers, 4, mean);
  shoal_op *train = shoal_apply_gradients(g, shoal_adam(learning_rate), vars, mean, 4, step);
  shoal_out loss = shoal_mul(g, shoal_add_n(g, losses, towers), shoal_constant_float(g, 1.0f / (float)towers));
  shoal_out whole; /* for the test: the model once more, without a split */
  tower(g, vars, x, y, &whole);
  shoal_out accuracy = shoal_accuracy(g, whole, y);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  struct classifier model = {x, y, loss, accuracy, train};
  shoal_status error =
      train_alone(g, &model, server, cluster, data_dir, checkpoint_dir, &save, batch_size, train_steps, device_given);
  shoal_graph_free(g);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}
