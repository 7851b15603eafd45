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
  const char *dtype, *data, *eval_data, *blocks;
  int64_t batch, image_size, warmup, readers, seed;
  bool augment;
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
      flag_path("eval_data", "pictures that the trained model is tried on, of the same classes", &s->eval_data),
      flag_on("augment", "cut pictures out at random, and turn them round", &s->augment),
      flag_between("readers", "threads that read and decode pictures", &s->readers, 1, 256),
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
  if (s->augment && !s->data) refuse("--augment is for --data, which is not given");
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

/* ---- how well it does ---- */

/* The model once more, by its moving averages, for any number of pictures. */
struct evaluation {
  const struct settings *s;
  struct pictures pictures;
  shoal_out in[2], accuracy;
};

static void build_evaluation(shoal_graph *g, struct evaluation *e, shoal_dtype dtype) {
  const struct settings *s = e->s;
  struct resnet model = s->model;
  e->in[0] = shoal_placeholder(g, SHOAL_UINT8, SHOAL_SHAPE(-1, s->image_size, s->image_size, 3), "eval_pictures");
  e->in[1] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(-1), "eval_labels");
  model.training = shoal_constant_bool(g, false);
  e->accuracy = shoal_accuracy(g, resnet_logits(g, &model, centred(g, e->in[0], dtype)), e->in[1]);
}

/* Each picture once, in order. */
static void evaluate(shoal_session *session, void *arg) {
  struct evaluation *e = (struct evaluation *)arg;
  struct pictures *p = &e->pictures;
  int64_t *row = (int64_t *)calloc((size_t)p->batch, sizeof *row);
  double right = 0;
  for (int64_t i = 0; i < p->n; i += p->batch) {
    int64_t n = p->n - i < p->batch ? p->n - i : p->batch;
    shoal_tensor *value[2];
    float share = 0;
    for (int64_t k = 0; k < n; k++) row[k] = i + k;
    make_rows(p, row, n, 0, value);
    check_pictures(p);
    check(shoal_session_step(session, SHOAL_FEED(e->in[0], value[0], e->in[1], value[1]),
                             SHOAL_FETCH(e->accuracy, &share), NULL));
    right += (double)share * (double)n;
    for (int k = 0; k < 2; k++) shoal_tensor_unref(value[k]);
  }
  printf("accuracy %.4f of %lld pictures\n", right / (double)p->n, (long long)p->n);
  free(row);
}

/* ---- all of it ---- */

static void defaults(struct settings *s) {
  s->model.classes = 1000;
  s->model.width = 64;
  s->steps.unit = "pictures";
  s->steps.last = 100;
  s->steps.log = 1;
  s->dtype = "float32";
  s->blocks = "3,4,6,3";
  s->batch = 32;
  s->image_size = 224;
  s->readers = 2;
  s->learning_rate = 0.1;
  s->momentum = 0.9;
  s->weight_decay = 5e-5;
  s->label_smoothing = 0.1;
  s->seed = 1;
}

/* What a step has: fed, or made up. */
static void make_inputs(shoal_graph *g, const struct settings *s, shoal_out in[2]) {
  if (s->data) {
    in[0] = shoal_placeholder(g, SHOAL_UINT8, SHOAL_SHAPE(s->batch, s->image_size, s->image_size, 3), "pictures");
    in[1] = shoal_placeholder(g, SHOAL_INT32, SHOAL_SHAPE(s->batch), "labels");
  } else make_up(g, s, in);
}

static shoal_out build_loss(shoal_graph *g, struct settings *s, const shoal_out in[2], shoal_dtype dtype) {
  s->model.training = shoal_constant_bool(g, true);
  shoal_out logits = resnet_logits(g, &s->model, centred(g, in[0], dtype));
  return shoal_reduce_mean(
      g, shoal_cross_entropy(g, logits, in[1],
                             SHOAL_OPTIONS(shoal_cross_entropy_options, .label_smoothing = s->label_smoothing)));
}

int main(int argc, char **argv) {
  static struct pictures pictures;
  static struct evaluation evaluation;
  struct settings s = {0};
  defaults(&s);
  read_settings(argc, argv, &s);
  shoal_dtype dtype = read_dtype(s.dtype);
  s.steps.consumed = s.batch;
  struct reading reading = {s.image_size, s.model.classes, s.batch, s.readers, s.seed, s.augment, false};
  check_device(s.steps.device, 1);
  if (s.data) open_pictures(&pictures, s.data, &reading);
  reading.changed = false;
  reading.test = true;
  reading.batch = 1; /* any number of pictures will do: batches are our own */
  if (s.eval_data) open_pictures(&evaluation.pictures, s.eval_data, &reading);
  evaluation.pictures.batch = s.batch;
  evaluation.s = &s;

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, s.seed);
  push_device(g, s.steps.device);
  shoal_sharing *sharing = shoal_sharing_new();
  struct watched watched = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
  shoal_out in[2];
  make_inputs(g, &s, in);
  shoal_sharing_begin(g, sharing);
  watched.loss = build_loss(g, &s, in, dtype);
  shoal_sharing_end(g, sharing);
  shoal_op *train = minimize(g, &s, &watched);
  if (s.eval_data) {
    shoal_sharing_begin(g, sharing);
    build_evaluation(g, &evaluation, dtype);
    shoal_sharing_end(g, sharing);
  }
  shoal_sharing_free(sharing);
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  shoal_input position = {shoal_global_step(g).value, NULL};
  shoal_hook feed = s.data ? shoal_input_hook(position, in, 2, fill_pictures, &pictures) : no_feed();
  shoal_status error = run_steps(g, &s.steps, &watched, train, feed, NULL, s.eval_data ? evaluate : NULL, &evaluation);
  if (s.data) close_pictures(&pictures);
  if (s.eval_data) close_pictures(&evaluation.pictures);
  shoal_graph_free(g);
  return shoal_train_exit(error);
}
