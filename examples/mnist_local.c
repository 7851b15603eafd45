/* Trains a classifier on Fashion-MNIST in this process: `make demo`.
 *
 *   mnist_local [DATA_DIR [OUT_DIR [EPOCHS]]]
 *
 * DATA_DIR holds the four IDX files, as Debian's dataset-fashion-mnist installs them. OUT_DIR gets a checkpoint that
 * TensorFlow can read, and an event file for TensorBoard. */
#include <string.h>
#include <time.h>

#include "run.h"

enum { BATCH = 100, PIXELS = 28 * 28, CLASSES = 10, HIDDEN = 128 };

struct data {
  shoal_tensor *images, *labels;
  int64_t n;
};

/* Images as floats in [0, 1], labels as int64. */
static struct data load(const char *folder, const char *which) {
  char path[512];
  shoal_tensor *images, *labels;
  snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte.gz", folder, which);
  check(shoal_read_idx(path, &images));
  snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte.gz", folder, which);
  check(shoal_read_idx(path, &labels));
  struct data d = {.n = shoal_tensor_dim(images, 0)};
  if (shoal_tensor_rank(images) != 3 || shoal_tensor_elements(images) != d.n * PIXELS ||
      shoal_tensor_dtype(images) != SHOAL_UINT8 || shoal_tensor_dtype(labels) != SHOAL_UINT8 ||
      shoal_tensor_elements(labels) != d.n) {
    fprintf(stderr, "%s: these are not %d x 28 x 28 images with as many labels\n", path, (int)d.n);
    exit(1);
  }
  check(shoal_tensor_new(SHOAL_FLOAT32, 2, (const int64_t[]){d.n, PIXELS}, &d.images));
  check(shoal_tensor_new(SHOAL_INT64, 1, (const int64_t[]){d.n}, &d.labels));
  const unsigned char *pixel = shoal_tensor_const_data(images), *label = shoal_tensor_const_data(labels);
  float *x = shoal_tensor_data(d.images);
  int64_t *y = shoal_tensor_data(d.labels);
  for (int64_t i = 0; i < d.n * PIXELS; i++) x[i] = (float)pixel[i] / 255;
  for (int64_t i = 0; i < d.n; i++) y[i] = label[i];
  shoal_tensor_unref(images);
  shoal_tensor_unref(labels);
  return d;
}

/* Fills a batch with rows drawn without replacement: position `at` of this epoch's order. */
static void fill(const struct data *d, const int *order, int64_t at, shoal_tensor *images, shoal_tensor *labels) {
  const float *x = shoal_tensor_const_data(d->images);
  const int64_t *y = shoal_tensor_const_data(d->labels);
  float *to = shoal_tensor_data(images);
  for (int i = 0; i < BATCH; i++) {
    memcpy(to + (size_t)i * PIXELS, x + (size_t)order[at + i] * PIXELS, PIXELS * sizeof *x);
    ((int64_t *)shoal_tensor_data(labels))[i] = y[order[at + i]];
  }
}

static void shuffle(int *order, int n) {
  static unsigned long long seed = 88172645463325252ull;
  for (int i = n - 1; i > 0; i--) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    int k = (int)(seed % (unsigned)(i + 1)), t = order[i];
    order[i] = order[k];
    order[k] = t;
  }
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
  const char *data_dir = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
  const char *out_dir = argc > 2 ? argv[2] : "build/demo";
  int epochs = argc > 3 ? atoi(argv[3]) : 10;

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
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
  if (shoal_graph_error(g)) return shoal_report(g);

  struct data training = load(data_dir, "train"), test = load(data_dir, "t10k");
  shoal_session *session;
  check(shoal_session_open(g, NULL, &session));
  run(session, NULL, (shoal_out){0}, init);

  shoal_events *events;
  check(shoal_events_open(out_dir, &events));
  check(shoal_events_graph(events, g));

  int *order = malloc((size_t)training.n * sizeof *order);
  for (int i = 0; i < training.n; i++) order[i] = i;
  struct feed whole[] = {{x, test.images}, {y, test.labels}, {{0}, NULL}};
  long steps = 0;
  double start = seconds(), mean = 0;
  for (int e = 0; e < epochs; e++) {
    shuffle(order, (int)training.n);
    for (int64_t at = 0; at + BATCH <= training.n; at += BATCH, steps++) {
      /* New tensors each time: a step may still share those of the last one. Their memory comes from a cache. */
      struct feed feeds[] = {{x, NULL}, {y, NULL}, {{0}, NULL}};
      check(shoal_tensor_new(SHOAL_FLOAT32, 2, (const int64_t[]){BATCH, PIXELS}, &feeds[0].value));
      check(shoal_tensor_new(SHOAL_INT64, 1, (const int64_t[]){BATCH}, &feeds[1].value));
      fill(&training, order, at, feeds[0].value, feeds[1].value);
      float l = run(session, feeds, loss, train);
      shoal_tensor_unref(feeds[0].value);
      shoal_tensor_unref(feeds[1].value);
      mean = steps ? 0.98 * mean + 0.02 * (double)l : (double)l;
      if (steps % 100 == 99) {
        check(shoal_events_scalar(events, steps + 1, "loss", l));
        printf("\repoch %d of %d  step %5ld  loss %.4f  %7.0f examples/s ", e + 1, epochs, steps + 1, mean,
               (double)(steps + 1) * BATCH / (seconds() - start));
        fflush(stdout);
      }
    }
    float tested = run(session, whole, accuracy, NULL);
    check(shoal_events_scalar(events, steps, "test_accuracy", tested));
    printf("\repoch %d of %d  step %5ld  loss %.4f  test accuracy %.4f%20s\n", e + 1, epochs, steps, mean,
           (double)tested, "");
  }

  char text[512];
  snprintf(text, sizeof text, "%s/model.ckpt-%ld", out_dir, steps);
  struct feed where[] = {{prefix, NULL}, {{0}, NULL}};
  check(shoal_tensor_from_string(text, strlen(text), &where[0].value));
  run(session, where, (shoal_out){0}, save);
  shoal_tensor_unref(where[0].value);
  float reached = run(session, whole, accuracy, NULL);
  printf("test accuracy %.4f after %ld steps in %.1f s\n", (double)reached, steps, seconds() - start);
  printf("checkpoint:  %s\nevent file:  %s\n", text, shoal_events_path(events));
  printf("look at it:  tensorboard --logdir %s\n", out_dir);
  check(shoal_events_close(events));

  check(shoal_session_close(session));
  shoal_tensor *all[] = {training.images, training.labels, test.images, test.labels};
  for (int i = 0; i < 4; i++) shoal_tensor_unref(all[i]);
  free(order);
  shoal_graph_free(g);
  return 0;
}
