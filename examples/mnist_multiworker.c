/* Trains a classifier on Fashion-MNIST over several workers without parameter servers: each has the whole model, and
 * all apply the mean of their gradients, step by step: tf.distribute.MultiWorkerMirroredStrategy. The same program is
 * every task, told by TF_CONFIG or by the flags which one it is:
 *
 *   mnist_multiworker --worker_hosts=a:2222,b:2222 --job_name=worker --task_index=0     and so on, or
 *   shoal launch --ps=0 --workers=2 -- mnist_multiworker
 *
 * Without a cluster it trains in this process. */
#include "replicas.h"

int main(int argc, char **argv) {
  struct training t = TRAINING_DEFAULTS;
  struct cluster_flags where = {0};
  const struct flag flags[] = {
      CLUSTER_FLAGS(where),
      TRAINING_FLAGS(t),
      flags_end(),
  };
  read_flags(argc, argv, "mnist_multiworker: trains over several workers, without parameter servers", flags);
  check_save(&t.save, t.checkpoint_dir);

  shoal_cluster *cluster = find_cluster(&where);
  shoal_server *server = NULL;
  shoal_strategy *strategy = NULL;
  char label[64] = "worker 0", device[DEVICE_NAME];
  check_device(t.device, 1);
  name_device(t.device ? t.device : "CPU", "", 0, device);
  if (cluster && shoal_cluster_tasks(cluster, "ps"))
    refuse("replicas of several workers do without parameter servers, and there are some: shoal launch --ps=0");
  if (cluster) {
    server = start_server(cluster, &where);
    check_given(shoal_strategy_new_multi_worker(
        cluster, server, SHOAL_OPTIONS(shoal_strategy_options, .task_device = device), &strategy));
    snprintf(label, sizeof label, "%s %d", shoal_cluster_job(cluster), shoal_cluster_task(cluster));
  } else check_given(shoal_strategy_new_one_device(device, NULL, &strategy));
  shoal_status error = train_replicas(strategy, &t, !cluster || shoal_cluster_is_chief(cluster), label);
  shoal_strategy_free(strategy);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}
