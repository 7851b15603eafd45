/* A convolutional network trained on files of records: Examples with the features "image" (784 bytes) and "label" (a
 * number), as TensorFlow's programs write them.
 *
 *   mnist_records --records='/data/train-*.tfrecord' --steps=1000 --trace_dir=/tmp/traces
 *
 * Reading, shuffling, parsing and scaling are a dataset, which runs beside the steps and is --prefetch batches ahead of
 * them. Whether the trainer ever waits for it is in the trace of a step: the time of IteratorGetNext.
 * bench/input_wait.py prints that beside the step's own. */
#include "cnn.h"
#include "steps.h"

struct settings {
  struct steps steps;
  const char *records;
  int64_t batch, prefetch, parallel, seed;
  double learning_rate;
};

/* Of a batch of raw images and labels: images as numbers in 0..1. */
static shoal_out scaled(shoal_graph *g, shoal_out d, const struct settings *s) {
  shoal_out in[2];
  const int32_t dims[] = {-1, PIXELS};
  shoal_graph *f = shoal_dataset_function(g, d, NULL, in, 2);
  shoal_out bytes = shoal_decode_raw(f, in[0], SHOAL_UINT8);
  shoal_out x = shoal_mul(f, shoal_cast(f, bytes, SHOAL_FLOAT32), shoal_constant_float(f, 1.0F / 255));
  shoal_function_output(f, shoal_reshape(f, x, shoal_constant_ints(f, SHOAL_SHAPE(2), dims)), "image");
  shoal_function_output(f, in[1], "label");
  return shoal_dataset_map(g, d, shoal_function_end(f), SHOAL_OPTIONS(shoal_map_options, .parallel = s->parallel));
}

static shoal_out batches(shoal_graph *g, const struct settings *s) {
  shoal_feature features[2];
  memset(features, 0, sizeof features);
  features[0].name = "image";
  features[0].dtype = SHOAL_STRING;
  features[1].name = "label";
  features[1].dtype = SHOAL_INT64;
  for (int i = 0; i < 2; i++) features[i].kind = SHOAL_FEATURE_FIXED;
  shoal_out d = shoal_dataset_tfrecord(g, shoal_matching(g, s->records), NULL);
  d = shoal_dataset_repeat(g, shoal_dataset_shuffle(g, d, 10000, s->seed, NULL), -1);
  d = shoal_dataset_batch(g, d, s->batch, true);
  d = shoal_dataset_parse_example(g, d, features, 2, SHOAL_OPTIONS(shoal_map_options, .parallel = s->parallel));
  d = scaled(g, d, s);
  return s->prefetch ? shoal_dataset_prefetch(g, d, s->prefetch) : d;
}

int main(int argc, char **argv) {
  struct settings s;
  memset(&s, 0, sizeof s);
  s.steps.unit = "images";
  s.steps.last = 1000;
  s.steps.log = 100;
  s.batch = 64;
  s.prefetch = 2;
  s.seed = 1;
  s.learning_rate = 0.001;
  const struct flag flags[] = {
      flag_path("records", "a pattern of files", &s.records),
      flag_number("batch", "images a step", &s.batch, 1),
      flag_number("prefetch", "batches made ahead; 0: each when it is wanted", &s.prefetch, 0),
      flag_number("parallel", "batches parsed at a time; 0: one after the other", &s.parallel, 0),
      flag_real("learning_rate", "Adam's", &s.learning_rate),
      STEPS_FLAGS(s.steps),
      flag_number("seed", "of initial values and the order of images", &s.seed, 0),
      flags_end(),
  };
  read_flags(argc, argv, "mnist_records: trains a convolutional network on files of records", flags);
  check_save(&s.steps.save, s.steps.checkpoint_dir);
  if (!s.records) refuse("--records says which files, as '/data/train-*.tfrecord', and is not given");
  s.steps.consumed = s.batch;

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, s.seed);
  push_device(g, s.steps.device);
  shoal_out in[2];
  shoal_dataset_next(g, batches(g, &s), in, 2, SHOAL_OPTIONS(shoal_next_options, .saved = true));
  struct watched w;
  w.loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, network(g, in[0]), in[1]));
  static shoal_var vars[64];
  static shoal_gradient grads[64];
  int n = shoal_compute_gradients(g, w.loss, vars, grads, 64);
  w.norm = shoal_clip_by_global_norm(g, grads, n, 10);
  w.rate = shoal_constant_float(g, (float)s.learning_rate);
  shoal_op *train = shoal_apply_gradients(g, shoal_adam(s.learning_rate), vars, grads, n, shoal_global_step(g));
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);
  shoal_status error = run_steps(g, &s.steps, &w, train, no_feed(), NULL, NULL, NULL);
  shoal_graph_free(g);
  return shoal_train_exit(error);
}
