/* Trains a classifier on Fashion-MNIST over several workers, with the parameters on parameter servers: each worker has
 * a replica of the model and feeds it batches of its own (between-graph replication). The same program is every task:
 *
 *   mnist_replica --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=ps --task_index=0
 *   mnist_replica --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=0     and so on, or
 *   shoal launch --ps=1 --workers=2 -- mnist_replica
 *
 * Without a cluster it trains in this process. Names of variables are those of TensorFlow's mnist_replica.py, so that
 * workers of both train one model together. */
#include <math.h>

#include "common.h"

int main(int argc, char **argv) {
  struct cluster_flags where = {0};
  struct save_flags save = {0};
  const char *data_dir = FASHION_MNIST, *checkpoint_dir = NULL, *log_dir = NULL, *device = NULL;
  int64_t train_steps = 2000, batch_size = 100, hidden_units = 100, replicas_to_aggregate = 0, trace_steps = 0,
          validation_steps = 0, staleness = 0, seed = 1;
  double learning_rate = 0.001;
  bool decay = false, strict = false, sync_replicas = false, existing_servers = false;
  const struct flag flags[] = {
      CLUSTER_FLAGS(where),
      flag_on("existing_servers", "servers run already: start none", &existing_servers),
      flag_path("data_dir", "the four IDX files", &data_dir),
      flag_number("train_steps", "global steps to end at", &train_steps, 1),
      flag_number("batch_size", "examples a step, of each worker", &batch_size, 1),
      flag_real("learning_rate", "Adam's", &learning_rate),
      flag_on("decay", "let it fall to 0 at train_steps, along a cosine", &decay),
      flag_number("hidden_units", "in the hidden layer", &hidden_units, 1),
      flag_on("sync_replicas", "apply the mean of the workers' gradients", &sync_replicas),
      flag_between("replicas_to_aggregate", "gradients in a mean; 0: one of each worker", &replicas_to_aggregate, 0,
                   10000),
      flag_on("strict", "instead: one gradient of each worker in every step, the same at every run", &strict),
      flag_between("staleness", "instead: no worker more than so many steps ahead; 0: any", &staleness, 0, 1000000),
      flag_path("checkpoint_dir", "where the chief saves", &checkpoint_dir),
      SAVE_FLAGS(save),
      flag_path("log_dir", "for event files and traces; none: checkpoint_dir", &log_dir),
      flag_number("validation_steps", "the chief validates every so many steps; 0: only tests at the end",
                  &validation_steps, 0),
      flag_number("trace_steps", "the chief traces a step every so often; 0: never", &trace_steps, 0),
      flag_number("seed", "of initial values and batches", &seed, 0),
      DEVICE_FLAG(device),
      flags_end(),
  };
  read_flags(argc, argv, "mnist_replica: trains on parameter servers, over any number of workers", flags);

  check_save(&save, checkpoint_dir);
  const char *log_flag = log_dir ? "log_dir" : "checkpoint_dir";
  if (!log_dir) log_dir = checkpoint_dir;
  if (trace_steps && !log_dir) refuse("--trace_steps is for --log_dir, which is not given: traces are written there");
  if (strict && sync_replicas) refuse("--strict is instead of --sync_replicas: one of them");
  if (replicas_to_aggregate && !sync_replicas) refuse("--replicas_to_aggregate is for --sync_replicas");
  if (staleness && (sync_replicas || strict)) refuse("--staleness is instead of --sync_replicas and --strict");

  shoal_cluster *cluster = find_cluster(&where);
  need_servers(cluster);
  if (existing_servers && !cluster)
    refuse("--existing_servers of which cluster? --ps_hosts and --worker_hosts, or TF_CONFIG, say where they are");
  if ((sync_replicas || strict) && !cluster)
    refuse("--sync_replicas and --strict are for a cluster: shoal launch --ps=1 --workers=2 -- mnist_replica ...");
  if (existing_servers && !strcmp(shoal_cluster_job(cluster), "ps"))
    refuse("--existing_servers with --job_name=ps: servers run already, and a ps is nothing else; start the workers");
  int task = cluster ? shoal_cluster_task(cluster) : 0, workers = 1, ps_tasks = 0;
  bool is_chief = !cluster || shoal_cluster_is_chief(cluster);
  char here[64] = "", worker_device[DEVICE_NAME], master[512] = "";
  shoal_server *server = NULL;
  if (cluster) {
    const char *job = shoal_cluster_job(cluster);
    ps_tasks = shoal_cluster_tasks(cluster, "ps");
    workers = shoal_cluster_tasks(cluster, "worker") + shoal_cluster_tasks(cluster, "chief");
    snprintf(here, sizeof here, "/job:%s/task:%d", job, task);
    if (existing_servers) snprintf(master, sizeof master, "grpc://%s", shoal_cluster_address(cluster, job, task));
    else server = start_server(cluster, &where); /* a ps stays in there */
  }

  check_device(device, 1);
  name_device(device, here, 0, worker_device);

  struct data training = load_data(data_dir, "train", (uint64_t)(seed * 1000 + task));
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, seed);
  push_worker(g, ps_tasks, worker_device);
  shoal_var step = shoal_global_step(g);
  shoal_var hid_w = shoal_variable(
      g, "hid_w", shoal_init_truncated_normal(g, SHOAL_FLOAT32, SHOAL_SHAPE(PIXELS, hidden_units), 0, 1.0 / 28));
  shoal_var hid_b = shoal_variable(g, "hid_b", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(hidden_units)));
  shoal_var sm_w = shoal_variable(g, "sm_w",
                                  shoal_init_truncated_normal(g, SHOAL_FLOAT32, SHOAL_SHAPE(hidden_units, CLASSES), 0,
                                                              1.0 / sqrt((double)hidden_units)));
  shoal_var sm_b = shoal_variable(g, "sm_b", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(CLASSES)));
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, PIXELS), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "y");
  shoal_out hid = shoal_relu(g, shoal_bias_add(g, shoal_mat_mul(g, x, hid_w.value), hid_b.value));
  shoal_out logits = shoal_bias_add(g, shoal_mat_mul(g, hid, sm_w.value), sm_b.value);
  shoal_out loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, y));
  shoal_out accuracy = shoal_accuracy(g, logits, y);
  shoal_scalar_summary(g, shoal_constant_string(g, "loss"), loss);
  shoal_optimizer adam = shoal_adam(learning_rate);
  if (decay) {
    shoal_push_colocation(g, step.handle.node); /* computed where it is used */
    adam.learning_rate_out = shoal_cosine_decay(g, learning_rate, step.value, (double)train_steps, 0);
    shoal_pop_colocation(g);
  }
  shoal_sync_replicas *sync = NULL;
  if (sync_replicas || strict || staleness)
    sync = shoal_sync_replicas_new(
        g, adam,
        SHOAL_OPTIONS(shoal_sync_options,
                      .mode = strict      ? SHOAL_SYNC_STRICT
                              : staleness ? SHOAL_SYNC_BOUNDED
                                          : SHOAL_SYNC_TOKENS,
                      .replicas_to_aggregate = replicas_to_aggregate ? (int)replicas_to_aggregate : workers,
                      .total_replicas = workers,
                      .task = task + (cluster && !is_chief ? shoal_cluster_tasks(cluster, "chief") : 0),
                      .staleness = (int)staleness));
  shoal_op *train = sync ? shoal_sync_minimize(sync, loss, step) : shoal_minimize(g, adam, loss, step);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  char label[64];
  snprintf(label, sizeof label, "%s %d", cluster ? shoal_cluster_job(cluster) : "worker", task);
  struct classifier model = {x, y, loss, accuracy, train};
  struct validation validation = {0};
  if (is_chief) validation = validation_new(&model, data_dir, log_flag, log_dir, validation_steps);
  shoal_hook hooks[3];
  int n_hooks = 0;
  hooks[n_hooks++] = shoal_nan_tensor_hook(loss, true);
  if (sync) hooks[n_hooks++] = shoal_sync_hook(sync, is_chief);
  if (is_chief && trace_steps) hooks[n_hooks++] = shoal_profiler_hook(trace_steps, 0, log_dir);
  shoal_progress progress = {.label = label, .loss = loss, .examples_per_step = batch_size, .last_step = train_steps};
  shoal_status error = NULL;
  double start = seconds(), took = 0;
  int64_t local_steps = 0, global_step = 0;
  SHOAL_TRAIN_SESSION(s, g, .server = server, .master = *master ? master : NULL, .is_chief = is_chief,
                      .checkpoint_dir = checkpoint_dir, .save_steps = save.steps, .save_secs = save_secs(&save),
                      .log_dir = log_dir, .stop_at_step = train_steps, .hooks = hooks, .n_hooks = n_hooks,
                      .progress = &progress, .session = device_session(device), .status = &error) {
    while (!shoal_should_stop(s)) {
      shoal_tensor *images, *labels;
      next_batch(&training, batch_size, &images, &labels);
      local_steps += shoal_run(s, SHOAL_FEED(x, images, y, labels), SHOAL_FETCH(step.value, &global_step), train);
      shoal_tensor_unref(images);
      shoal_tensor_unref(labels);
      if (is_chief) validate(&validation, shoal_train_session_raw(s), global_step, false);
    }
    took = seconds() - start;
    if (is_chief && !shoal_preempted() && !shoal_train_session_error(s))
      validate(&validation, shoal_train_session_raw(s), step_reached(s, train_steps), true);
  }
  printf("%s: %lld local steps in %.1f s\n", label, (long long)local_steps, took);
  free_data(&training);
  if (is_chief) validation_free(&validation);
  shoal_sync_replicas_free(sync);
  shoal_graph_free(g);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}
