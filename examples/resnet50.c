/* ResNet-50 (version 1.5): trains a classifier of pictures, and goes on from where it was.
 *
 *   resnet50 --data=FOLDER --classes=10 --batch=32 --steps=1000 --checkpoint_dir=out     a folder of files for each
 * class resnet50 --data=train.tfrecord --batch=256 --dtype=bfloat16 --device=GPU             records, as ImageNet's
 *   resnet50 --batch=256 --dtype=bfloat16 --device=GPU                                   made up, and kept on the
 * device resnet50 --data=/usr/share/datasets/fashion-mnist --classes=10 --image_size=28 --blocks=1,1,1,1 --width=8
 *
 * Momentum, weight decay of kernels, smoothed labels, a learning rate that rises and then falls along a cosine. */
#include "pictures.h"
#include "resnet50.h"
#include "steps.h"

enum { MOST_VARIABLES = 4096 };

struct settings {
  struct resnet model;
  struct steps steps;
  const char *dtype, *data, *blocks;
  int64_t batch, image_size, warmup, seed;
  double learning_rate, momentum, weight_decay, label_smoothing;
};

/* "3,4,6,3" */
static void read_blocks(struct settings *s) {
  const char *at = s->blocks;
  for (int i = 0; i < STAGES; i++) {
    char *end = NULL;
    long v = strtol(at, &end, 10);
    if (end == at || v < 1 || v > 1000 || *end != (i == STAGES - 1 ? 0 : ','))
      refuse("--blocks is how many blocks each of the four stages has, as 3,4,6,3");
    s->model.blocks[i] = v;
    at = end + 1;
  }
}

static void read_settings(int argc, char **argv, struct settings *s) {
  const struct flag flags[] = {
      flag_path("data", "pictures: a folder of classes, TFRecords, a folder with IDX files; none: made up", &s->data),
      flag_between("image_size", "pictures are scaled to so many rows and columns", &s->image_size, 8, 4096),
      flag_between("classes", "how many there are", &s->model.classes, 2, 1 << 24),
      flag_text("blocks", "in each of the four stages", &s->blocks),
      flag_between("width", "filters of the first stage", &s->model.width, 1, 65536),
      flag_number("batch", "pictures a step", &s->batch, 1),
      flag_text("dtype", "float32 or bfloat16, of activations; variables are float32", &s->dtype),
      flag_real("learning_rate", "the highest", &s->learning_rate),
      flag_number("warmup_steps", "it rises for so many steps, then falls to 0 along a cosine", &s->warmup, 0),
      flag_real("momentum", "of gradient descent", &s->momentum),
      flag_real("weight_decay", "of kernels", &s->weight_decay),
      flag_real("label_smoothing", "of the loss", &s->label_smoothing),
      STEPS_FLAGS(s->steps),
      flag_number("seed", "of initial values and batches", &s->seed, 0),
      flags_end(),
  };
  read_flags(argc, argv, "resnet50: trains ResNet-50 on pictures", flags);
  check_save(&s->steps.save, s->steps.checkpoint_dir);
  if (s->label_smoothing > 1) refuse("--label_smoothing is at most 1");
  read_blocks(s);
}

/* ---- input ---- */

/* Bytes to numbers around 0: as the published models have it, with one mean and one deviation for all colours. */
static shoal_out centred(shoal_graph *g, shoal_out pictures, shoal_dtype dtype) {
  shoal_out x = shoal_cast(g, pictures, SHOAL_FLOAT32);
  x = shoal_mul(g, shoal_sub(g, x, shoal_constant_float(g, 118)), shoal_constant_float(g, 1 / 58.0F));
  return shoal_cast(g, x, dtype);
}

/* One batch for all steps, which stays where the model is: what is measured is the model alone. */
static void make_up(shoal_graph *g, const struct settings *s, shoal_out in[2]) {
  shoal_out noise =
      shoal_init_uniform(g, SHOAL_FLOAT32, SHOAL_SHAPE(s->batch, s->image_size, s->image_size, 3), 0, 256);
  shoal_out some = shoal_init_uniform(g, SHOAL_FLOAT32, SHOAL_SHAPE(s->batch), 0, (double)s->model.classes);
  in[0] = shoal_variable_local(g, "made_up/pictures", noise).value;
  in[1] = shoal_cast(g, shoal_variable_local(g, "made_up/labels", some).value, SHOAL_INT32);
}

/* ---- training ---- */

/* What decay of weights adds to the gradients of kernels. */
static void decay(shoal_graph *g, const shoal_var *vars, shoal_gradient *grads, int n, double by) {
  int64_t dims[SHOAL_MAX_RANK];
  for (int i = 0; i < n && by > 0; i++) {
    if (shoal_out_shape(vars[i].value, dims) < 2) continue;
    shoal_out more = shoal_mul(g, vars[i].value, shoal_constant_float(g, (float)by));
    grads[i].values = shoal_add_v2(g, grads[i].values, more);
  }
}

static shoal_op *minimize(shoal_graph *g, const struct settings *s, struct watched *w) {
  static shoal_var vars[MOST_VARIABLES];
  static shoal_gradient grads[MOST_VARIABLES], clipped[MOST_VARIABLES];
  shoal_var step = shoal_global_step(g);
  int n = shoal_compute_gradients(g, w->loss, vars, grads, MOST_VARIABLES);
  if (n > MOST_VARIABLES) refuse("so many --blocks are more than this program can train");
  memcpy(clipped, grads, sizeof grads);
  w->norm = shoal_clip_by_global_norm(g, clipped, n, 1); /* the norm alone is used */
  decay(g, vars, grads, n, s->weight_decay);
  w->rate = rising_rate(g, s->learning_rate, step, (double)s->warmup, (double)s->steps.last, 0);
  shoal_optimizer momentum = shoal_momentum(s->learning_rate, s->momentum);
  momentum.learning_rate_out = w->rate;
  return shoal_apply_gradients(g, momentum, vars, grads, n, step);
}

int main(int argc, char **argv) {
  struct settings s = {0};
  s.model.classes = 1000;
  s.model.width = 64;
  s.steps.unit = "pictures";
  s.steps.last = 100;
  s.steps.log = 1;
  s.dtype = "float32";
  s.blocks = "3,4,6,3";
  s.batch = 32;
  s.image_size = 224;
  s.learning_rate = 0.1;
  s.momentum = 0.9;
  s.weight_decay = 5e-5;
  s.label_smoothing = 0.1;
  s.seed = 1;
  read_settings(argc, argv, &s);
  shoal_dtype dtype = read_dtype(s.dtype);
  s.steps.consumed = s.batch;

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, s.seed);
  push_device(g, s.steps.device);
  struct pictures pictures;
  shoal_out in[2];
  if (s.data) {
    pictures = open_pictures(s.data, s.image_size, s.model.classes, s.batch, s.seed);
    in[0] = shoal_placeholder(g, SHOAL_UINT8, SHOAL_SHAPE(s.batch, s.image_size, s.image_size, 3), "pictures");
    in[1] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(s.batch), "labels");
  } else make_up(g, &s, in);
  s.model.training = shoal_constant_bool(g, true);
  struct watched watched = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
  shoal_out logits = resnet_logits(g, &s.model, centred(g, in[0], dtype));
  watched.loss = shoal_reduce_mean(
      g, shoal_cross_entropy(g, logits, in[1],
                             SHOAL_OPTIONS(shoal_cross_entropy_options, .label_smoothing = s.label_smoothing)));
  shoal_op *train = minimize(g, &s, &watched);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  shoal_input position = {shoal_global_step(g).value, NULL};
  shoal_hook feed = s.data ? shoal_input_hook(position, in, 2, fill_pictures, &pictures) : no_feed();
  shoal_status error = run_steps(g, &s.steps, &watched, train, feed, NULL, NULL, NULL);
  if (s.data) close_pictures(&pictures);
  shoal_graph_free(g);
  return shoal_train_exit(error);
}
