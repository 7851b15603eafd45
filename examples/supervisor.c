/* Training with a supervisor, as programs of TensorFlow's older kind do it: the program runs its own steps on a session
 * that is ready when it gets it, and threads of the supervisor save and summarise by the clock.
 *
 *   shoal launch --ps=1 --workers=2 -- supervisor --logdir=/tmp/supervisor
 */
#include "common.h"

int main(int argc, char **argv) {
  struct cluster_flags where = {0};
  const char *data_dir = FASHION_MNIST, *logdir = NULL, *device = NULL;
  int64_t train_steps = 1000, batch_size = 100, save_model_secs = 10;
  double learning_rate = 0.05;
  const struct flag flags[] = {
      CLUSTER_FLAGS(where),
      flag_path("data_dir", "the four IDX files", &data_dir),
      flag_number("train_steps", "global steps to end at", &train_steps, 1),
      flag_number("batch_size", "examples a step, of each worker", &batch_size, 1),
      flag_real("learning_rate", "of gradient descent", &learning_rate),
      flag_path("logdir", "for checkpoints and event files", &logdir),
      flag_number("save_model_secs", "a checkpoint every so often", &save_model_secs, 0),
      DEVICE_FLAG(device),
      flags_end(),
  };
  read_flags(argc, argv, "supervisor: trains on parameter servers, with a supervisor", flags);
  shoal_cluster *cluster = find_cluster(&where);
  need_servers(cluster);
  shoal_server *server = cluster ? start_server(cluster, &where) : NULL; /* a ps stays in there */
  int task = cluster ? shoal_cluster_task(cluster) : 0;
  bool is_chief = !cluster || shoal_cluster_is_chief(cluster);
  char here[64] = "", worker_device[DEVICE_NAME];
  if (cluster) snprintf(here, sizeof here, "/job:%s/task:%d", shoal_cluster_job(cluster), task);
  check_device(device, 1);
  name_device(device, here, 0, worker_device);

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  push_worker(g, cluster ? shoal_cluster_tasks(cluster, "ps") : 0, worker_device);
  shoal_var global_step = shoal_global_step(g);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, PIXELS), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "y");
  shoal_out logits = shoal_dense(g, shoal_relu(g, shoal_dense(g, x, 100, "hidden")), CLASSES, "logits");
  shoal_out loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, y));
  shoal_out accuracy = shoal_accuracy(g, logits, y);
  shoal_op *train = shoal_minimize(g, shoal_momentum(learning_rate, 0.9), loss, global_step);
  shoal_pop_device(g);

  struct classifier model = {x, y, loss, accuracy, train};
  struct validation test = {0};
  if (is_chief) test = validation_new(&model, data_dir, "logdir", logdir, 0);
  shoal_supervisor *sv;
  check(shoal_supervisor_new(g,
                             SHOAL_OPTIONS(shoal_supervisor_options, .is_chief = is_chief, .logdir = logdir,
                                           .save_model_secs = (double)save_model_secs),
                             &sv));
  if (shoal_graph_error(g)) return shoal_report(g);
  shoal_session *session;
  check(shoal_supervisor_managed_session(sv, server ? shoal_server_target(server) : "", device_session(device),
                                         &session));

  struct data training = load_data(data_dir, "train", (uint64_t)task);
  int64_t step = 0;
  check(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(global_step.value, &step), NULL));
  if (step) printf("worker %d  goes on from step %lld\n", task, (long long)step);
  double start = seconds(), next = start + 1;
  for (int64_t local = 0; !shoal_supervisor_should_stop(sv) && step < train_steps; local++) {
    shoal_tensor *images, *labels;
    float l;
    next_batch(&training, batch_size, &images, &labels);
    shoal_status s = shoal_session_step(session, SHOAL_FEED(x, images, y, labels),
                                        SHOAL_FETCH(loss, &l, global_step.value, &step), train);
    shoal_tensor_unref(images);
    shoal_tensor_unref(labels);
    if (s) {
      shoal_supervisor_request_stop(sv, s); /* ends the loop; stop returns it */
      break;
    }
    if (seconds() < next) continue;
    next = seconds() + 1;
    printf("worker %d  step %lld/%lld  loss %.4f  %.0f examples/s\n", task,
           (long long)(step < train_steps ? step : train_steps), (long long)train_steps, (double)l,
           (double)((local + 1) * batch_size) / (seconds() - start));
  }
  if (is_chief && !shoal_supervisor_should_stop(sv)) validate(&test, session, step, true);
  /* What a step fetched may be from before its own update. */
  if (shoal_preempted())
    shoal_status_free(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(global_step.value, &step), NULL));
  shoal_status error = shoal_supervisor_stop(sv); /* the chief saves a last time */
  if (!error && is_chief && shoal_preempted())
    printf("worker %d  stopped at step %lld; %s%s\n", task, (long long)step,
           logdir ? "the same command again goes on from " : "nothing was saved, for want of a logdir",
           logdir ? logdir : "");
  if (is_chief) validation_free(&test);
  free_data(&training);
  shoal_graph_free(g);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}
