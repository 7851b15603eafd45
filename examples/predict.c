/* Restores what mnist_replica has trained and says what it sees on pictures of the test set.
 *
 *   mnist_replica --checkpoint_dir=/tmp/first
 *   predict --checkpoint_dir=/tmp/first
 *   predict --checkpoint_dir=/tmp/first --export_dir=/tmp/exported/1
 *
 * The second writes the model as a SavedModel too, for `shoal saved_model run`, for tf.saved_model.load, for a server.
 * The checkpoint may as well be TensorFlow's, of a model with these names. Nothing of training is needed here: neither
 * the optimizer and its slots, nor the cluster. */
#include <unistd.h>

#include "common.h"

static const char *const names[CLASSES] = {"T-shirt", "trousers", "pullover", "dress", "coat",
                                           "sandal",  "shirt",    "sneaker",  "bag",   "ankle boot"};

/* A variable that is about to be restored: its initial value is never used. */
static shoal_out variable(shoal_graph *g, const char *name, shoal_dims shape) {
  return shoal_variable(g, name, shoal_init_zeros(g, SHOAL_FLOAT32, shape)).value;
}

/* Its one signature: pictures in, the chances of each class and the likeliest one out. */
static void export_model(shoal_graph *g, shoal_session *session, shoal_saver *saver, shoal_out images,
                         shoal_out chances, shoal_out classes, const char *dir) {
  const shoal_export_value in[] = {{"images", images}}, out[] = {{"chances", chances}, {"classes", classes}};
  const shoal_export_signature signature = {NULL, NULL, in, out, 1, 2};
  check_given(shoal_saved_model_save(
      g, session, dir,
      SHOAL_OPTIONS(shoal_export_options, .signatures = &signature, .n_signatures = 1, .saver = saver)));
  printf("exported %s\n", dir);
}

int main(int argc, char **argv) {
  const char *data_dir = FASHION_MNIST, *checkpoint_dir = NULL, *export_dir = NULL, *device = NULL;
  int64_t hidden_units = 100, images = 10;
  const struct flag flags[] = {
      flag_path("checkpoint_dir", "where mnist_replica saved", &checkpoint_dir),
      flag_path("data_dir", "the four IDX files", &data_dir),
      flag_path("export_dir", "a new folder, for the model as a SavedModel", &export_dir),
      flag_number("hidden_units", "in the hidden layer, as in training", &hidden_units, 1),
      flag_number("images", "how many of the test set", &images, 1),
      DEVICE_FLAG(device),
      flags_end(),
  };
  read_flags(argc, argv, "predict: restores what mnist_replica has trained, and predicts", flags);
  if (!checkpoint_dir) refuse("which checkpoint? --checkpoint_dir=DIR, the one that mnist_replica was given");
  char *checkpoint = shoal_latest_checkpoint(checkpoint_dir);
  if (!checkpoint) {
    char state[1024];
    snprintf(state, sizeof state, "%s/checkpoint", checkpoint_dir);
    if (access(state, R_OK) && errno != ENOENT) fprintf(stderr, "predict: %s: %s\n", state, strerror(errno));
    else
      fprintf(stderr, "predict: there is no checkpoint in %s: mnist_replica --checkpoint_dir=DIR makes one\n",
              checkpoint_dir);
    return 1;
  }

  shoal_graph *g = shoal_graph_new();
  push_device(g, device);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, PIXELS), "x");
  shoal_out hid_w = variable(g, "hid_w", SHOAL_SHAPE(PIXELS, hidden_units));
  shoal_out hid_b = variable(g, "hid_b", SHOAL_SHAPE(hidden_units));
  shoal_out sm_w = variable(g, "sm_w", SHOAL_SHAPE(hidden_units, CLASSES));
  shoal_out sm_b = variable(g, "sm_b", SHOAL_SHAPE(CLASSES));
  shoal_out hidden = shoal_relu(g, shoal_bias_add(g, shoal_mat_mul(g, x, hid_w), hid_b));
  shoal_out chances = shoal_softmax(g, shoal_bias_add(g, shoal_mat_mul(g, hidden, sm_w), sm_b));
  shoal_out classes = shoal_arg_max(g, chances, shoal_constant_int(g, 1));
  shoal_pop_device(g);
  shoal_saver *saver = shoal_saver_new(g, NULL);
  if (shoal_graph_error(g)) return shoal_report(g);

  shoal_session *session;
  check(shoal_session_open(g, device_session(device), &session));
  check_given(shoal_saver_restore(saver, session, checkpoint));
  printf("restored %s\n", checkpoint);
  if (export_dir) export_model(g, session, saver, x, chances, classes, export_dir);

  struct data test = load_data(data_dir, "t10k", 1);
  if (images > test.n) images = test.n;
  shoal_tensor *pictures, *labels, *out;
  next_batch(&test, images, &pictures, &labels);
  check(shoal_session_step(session, SHOAL_FEED(x, pictures), SHOAL_FETCH(chances, &out), NULL));
  const float *p = (const float *)shoal_tensor_const_data(out);
  const int64_t *label = (const int64_t *)shoal_tensor_const_data(labels);
  int64_t right = 0;
  for (int64_t i = 0; i < images; i++, p += CLASSES) {
    int best = 0;
    for (int k = 1; k < CLASSES; k++)
      if (p[k] > p[best]) best = k;
    right += best == label[i];
    printf("%-10s (%5.1f %%)%s%s\n", names[best], 100 * (double)p[best],
           best == label[i] ? "" : "  but it is: ", best == label[i] ? "" : names[label[i]]);
  }
  printf("%lld of %lld right\n", (long long)right, (long long)images);

  shoal_tensor_unref(pictures);
  shoal_tensor_unref(labels);
  shoal_tensor_unref(out);
  free_data(&test);
  check(shoal_session_close(session));
  shoal_saver_free(saver);
  shoal_graph_free(g);
  free(checkpoint);
  return 0;
}
