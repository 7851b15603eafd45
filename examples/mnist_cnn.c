/* A convolutional network on Fashion-MNIST, trained as mnist_replica trains its smaller one: in this process, or on
 * parameter servers with any number of workers.
 *
 *   mnist_cnn
 *   shoal launch --ps=1 --workers=2 -- mnist_cnn --checkpoint_dir=/tmp/cnn
 */
#include "cnn.h"

int main(int argc, char **argv) {
  struct cluster_flags where = {0};
  struct save_flags save = {0};
  const char *data_dir = FASHION_MNIST, *checkpoint_dir = NULL, *device_given = NULL;
  int64_t train_steps = 1000, batch_size = 64, validation_steps = 200;
  double learning_rate = 0.001;
  const struct flag flags[] = {
      CLUSTER_FLAGS(where),
      flag_path("data_dir", "the four IDX files", &data_dir),
      flag_number("train_steps", "global steps to end at", &train_steps, 1),
      flag_number("batch_size", "examples a step, of each worker", &batch_size, 1),
      flag_real("learning_rate", "Adam's", &learning_rate),
      flag_path("checkpoint_dir", "where the chief saves", &checkpoint_dir),
      SAVE_FLAGS(save),
      flag_number("validation_steps", "the chief validates every so many steps; 0: only tests at the end",
                  &validation_steps, 0),
      DEVICE_FLAG(device_given),
      flags_end(),
  };
  read_flags(argc, argv, "mnist_cnn: trains a convolutional network, alone or on parameter servers", flags);
  check_save(&save, checkpoint_dir);
  shoal_cluster *cluster = find_cluster(&where);
  need_servers(cluster);
  shoal_server *server = cluster ? start_server(cluster, &where) : NULL; /* a ps stays in there */
  int task = cluster ? shoal_cluster_task(cluster) : 0;
  bool is_chief = !cluster || shoal_cluster_is_chief(cluster);
  char here[64] = "", device[DEVICE_NAME], label[64];
  if (cluster) snprintf(here, sizeof here, "/job:%s/task:%d", shoal_cluster_job(cluster), task);
  check_device(device_given, 1);
  name_device(device_given, here, 0, device);
  snprintf(label, sizeof label, "%s %d", cluster ? shoal_cluster_job(cluster) : "worker", task);

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  push_worker(g, cluster ? shoal_cluster_tasks(cluster, "ps") : 0, device);
  shoal_var step = shoal_global_step(g);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, PIXELS), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "y");
  shoal_out logits = network(g, x);
  shoal_out loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, y));
  shoal_scalar_summary(g, shoal_constant_string(g, "loss"), loss);
  shoal_out accuracy = shoal_accuracy(g, logits, y);
  shoal_op *train = shoal_minimize(g, shoal_adam(learning_rate), loss, step);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  struct classifier model = {x, y, loss, accuracy, train};
  struct data training = load_data(data_dir, "train", (uint64_t)task);
  struct validation validation = {0};
  if (is_chief) validation = validation_new(&model, data_dir, "checkpoint_dir", checkpoint_dir, validation_steps);
  shoal_hook hooks[] = {shoal_nan_tensor_hook(loss, true)};
  shoal_progress progress = {.label = label, .loss = loss, .examples_per_step = batch_size};
  shoal_status error = NULL;
  int64_t global_step = 0;
  SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = is_chief, .checkpoint_dir = checkpoint_dir,
                      .save_steps = save.steps, .save_secs = save_secs(&save), .stop_at_step = train_steps,
                      .hooks = hooks, .n_hooks = 1, .progress = &progress, .session = device_session(device_given),
                      .status = &error) {
    while (!shoal_should_stop(s)) {
      shoal_tensor *images, *labels;
      next_batch(&training, batch_size, &images, &labels);
      shoal_run(s, SHOAL_FEED(x, images, y, labels), SHOAL_FETCH(step.value, &global_step), train);
      shoal_tensor_unref(images);
      shoal_tensor_unref(labels);
      if (is_chief) validate(&validation, shoal_train_session_raw(s), global_step, false);
    }
    if (is_chief && !shoal_preempted() && !shoal_train_session_error(s))
      validate(&validation, shoal_train_session_raw(s), step_reached(s, train_steps), true);
  }
  free_data(&training);
  if (is_chief) validation_free(&validation);
  shoal_graph_free(g);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}
