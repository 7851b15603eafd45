/* Trains a classifier on Fashion-MNIST in this process.
 *
 *   mnist_local [--data_dir=DIR] [--out_dir=DIR] [--epochs=N] [--device=CPU|GPU|GPU:N]
 *
 * data_dir holds the four IDX files, as Debian's dataset-fashion-mnist installs them. out_dir gets a checkpoint that
 * TensorFlow can read, and an event file for TensorBoard. */
#include "common.h"

enum { BATCH = 100, HIDDEN = 128 };

int main(int argc, char **argv) {
  const char *data_dir = FASHION_MNIST, *out_dir = "build/mnist_local", *device = NULL;
  int64_t epochs = 10;
  const struct flag flags[] = {flag_path("data_dir", "the four IDX files", &data_dir),
                               flag_path("out_dir", "for the checkpoint and the event file", &out_dir),
                               flag_number("epochs", "how often every image is seen", &epochs, 1), DEVICE_FLAG(device),
                               flags_end()};
  read_flags(argc, argv, "mnist_local: trains a classifier in this process", flags);

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  push_device(g, device);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, PIXELS), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "y");
  shoal_out h = shoal_relu(g, shoal_dense(g, x, HIDDEN, "hidden"));
  shoal_out logits = shoal_dense(g, h, CLASSES, "logits");
  shoal_out loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, y));
  shoal_out accuracy = shoal_accuracy(g, logits, y);
  shoal_var step = shoal_global_step(g);
  shoal_op *train = shoal_minimize(g, shoal_adam(0.001), loss, step);
  shoal_out prefix = shoal_placeholder(g, SHOAL_STRING, SHOAL_SCALAR, "prefix");
  shoal_op *save = shoal_save_variables(g, prefix);
  shoal_op *init = shoal_initialize(g);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  struct data training = load_data(data_dir, "train", 0), test = load_data(data_dir, "t10k", 0);
  shoal_session *session;
  check(shoal_session_open(g, device_session(device), &session));
  check(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));

  shoal_events *events = open_events("out_dir", out_dir, out_dir);
  check(shoal_events_graph(events, g));

  long steps = 0;
  double start = seconds(), mean = 0;
  float tested = 0;
  for (int e = 0; e < (int)epochs; e++) {
    for (int64_t at = 0; at + BATCH <= training.n; at += BATCH, steps++) {
      shoal_tensor *images, *labels;
      float l;
      next_batch(&training, BATCH, &images, &labels);
      check(shoal_session_step(session, SHOAL_FEED(x, images, y, labels), SHOAL_FETCH(loss, &l), train));
      shoal_tensor_unref(images);
      shoal_tensor_unref(labels);
      mean = steps ? 0.98 * mean + 0.02 * (double)l : (double)l;
      if (steps % 100 == 99) {
        check(shoal_events_scalar(events, steps + 1, "loss", l));
        printf("\repoch %d of %d  step %5ld  loss %.4f  %7.0f examples/s ", e + 1, (int)epochs, steps + 1, mean,
               (double)(steps + 1) * BATCH / (seconds() - start));
        fflush(stdout);
      }
    }
    check(
        shoal_session_step(session, SHOAL_FEED(x, test.images, y, test.labels), SHOAL_FETCH(accuracy, &tested), NULL));
    check(shoal_events_scalar(events, steps, "test_accuracy", tested));
    printf("\repoch %d of %d  step %5ld  loss %.4f  test accuracy %.4f%20s\n", e + 1, (int)epochs, steps, mean,
           (double)tested, "");
  }

  char text[512];
  snprintf(text, sizeof text, "%s/model.ckpt-%ld", out_dir, steps);
  shoal_tensor *where;
  check(shoal_tensor_from_string(text, strlen(text), &where));
  check(shoal_session_step(session, SHOAL_FEED(prefix, where), SHOAL_NO_FETCHES, save));
  shoal_tensor_unref(where);
  printf("test accuracy %.4f after %ld steps in %.1f s\n", (double)tested, steps, seconds() - start);
  printf("checkpoint:  %s\nevent file:  %s\n", text, shoal_events_path(events));
  printf("look at it:  tensorboard --logdir %s\n", out_dir);
  check(shoal_events_close(events));

  check(shoal_session_close(session));
  free_data(&training);
  free_data(&test);
  shoal_graph_free(g);
  return 0;
}
