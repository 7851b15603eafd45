/* Trains a classifier on Fashion-MNIST with several replicas in this process, each on a device of its own, that apply
 * the mean of their gradients: tf.distribute.MirroredStrategy.
 *
 *   mnist_mirrored --devices=2
 *   mnist_mirrored --devices=2 --device=GPU
 *
 * Two runs with the same flags have the same weights, bit for bit; and so has mnist_multiworker with as many workers,
 * where the training set divides into batches of all replicas. */
#include "replicas.h"

enum { MOST_REPLICAS = 256 };

int main(int argc, char **argv) {
  struct training t = TRAINING_DEFAULTS;
  int64_t devices = 2;
  const struct flag flags[] = {
      flag_between("devices", "replicas, on as many logical CPUs, or devices from --device on", &devices, 1,
                   MOST_REPLICAS),
      TRAINING_FLAGS(t),
      flags_end(),
  };
  read_flags(argc, argv, "mnist_mirrored: trains replicas on several devices of this process", flags);
  check_save(&t.save, t.checkpoint_dir);

  const char *names[MOST_REPLICAS];
  char name[MOST_REPLICAS][DEVICE_NAME];
  check_device(t.device, (int)devices);
  for (int i = 0; i < (int)devices; i++) {
    name_device(t.device ? t.device : "CPU", "", i, name[i]);
    names[i] = name[i];
  }
  shoal_strategy *strategy = NULL;
  check_given(shoal_strategy_new_mirrored(names, (int)devices, NULL, &strategy));
  shoal_status error = train_replicas(strategy, &t, true, NULL);
  shoal_strategy_free(strategy);
  return shoal_train_exit(error);
}
