/* Trains a small model under a strategy, for tests/interop/strategy_test.py and tests/cluster/strategy_test.py, which
 * compare what it prints with TensorFlow's strategies and with itself.
 *
 *   strategy_trainer one STEPS [flag=value ...]
 *   strategy_trainer mirrored STEPS devices=2
 *   strategy_trainer multi STEPS devices=1          TF_CONFIG in the environment says which task it is, of which
 *   strategy_trainer ps STEPS
 *
 * Flags: dir=FOLDER for checkpoints, save=N a checkpoint every N steps, sum=1 for gradients that are added, kib=N for
 * buckets, slow=MS a pause after each step, optimizer=adam or sgd, examples=N: there are no more, and the last line but
 * one says how many were seen; before=1: another model was trained by the same program before; norm=1: with a batch
 * normalisation in it; each=N: so many steps in a run, of which the last one's loss is printed; data=POLICY: the
 * examples are a dataset, dealt out so (1: by file, 2: by element); graph=FILE: it is the node BatchDatasetV2 of that
 * graph; shard=1: the state of the optimizer is shared out; tensorflow=N: other tasks are
 * TensorFlow 2's workers, in mode N of shoal_tensorflow; keras=N, slots=N: the first of them is in fit, with so many
 * steps in an epoch and slots of a weight; open=1: hosts that are not this one may come; wrong=K: what is fed in step K
 * makes no sense; away=K: its K-th step does not come; late=S: its session is made S seconds after its server; tell=1:
 * it tells of its progress; drop=1: with a dropout by the step's seed; acc=N: gradients are
 * accumulated over N batches; rate=N: the learning rate is so many hundredths, falling=1: and falls; hooks=2: each of
 * what is fed has a hook of its own; lost=K: behind its K-th step it takes another task for lost.
 *
 * Step k has a batch of 24 rows, of which each task feeds its own. A line for each step has its number and the loss of
 * the whole batch; the last line has a hash of this task's first replica's weights. */
#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROWS = 24, IN = 5, HIDDEN = 7, VARS = 4, NORM_VARS = 4 };

struct flags {
  int devices, save, sum, kib, messages, slow, examples, before, norm, each, data, shard, tensorflow, keras, slots,
      open, wrong, away, late, tell, drop, acc, rate, falling, hooks, lost;
  const char *dir, *optimizer, *graph, *place;
};

static void must(shoal_status s, const char *what) {
  if (!s) return;
  printf("%s: %s: %s\n", what, shoal_code_name(shoal_status_code(s)), shoal_status_message(s));
  exit(1);
}

static void numbers(float *v, int n, int salt) {
  for (int i = 0; i < n; i++) v[i] = (float)((i * 37 + salt * 11) % 20) / 20.0F - 0.5F;
}

static shoal_var weights(shoal_graph *g, const char *name, shoal_dims shape, int n, int salt) {
  float v[IN * HIDDEN];
  numbers(v, n, salt);
  return shoal_variable(g, name, shoal_constant_floats(g, shape, v));
}

struct model {
  const struct flags *flags;
  int replicas;
  shoal_var seen; /* examples, of this task's first replica */
};

static shoal_op *train(shoal_graph *g, const struct flags *f, shoal_out loss) {
  shoal_var step = shoal_global_step(g);
  shoal_optimizer o = strcmp(f->optimizer, "sgd") ? shoal_adam(0.05) : shoal_sgd(0.2);
  if (!strcmp(f->optimizer, "proximal")) o = shoal_proximal_sgd(0.2, 0.1, 0);
  if (f->rate) o.learning_rate = f->rate / 100.0;
  if (f->falling) o.learning_rate_out = shoal_exponential_decay(g, o.learning_rate, step.value, 3, 0.7, true);
  return f->acc ? shoal_minimize_accumulated(g, o, loss, step, f->acc) : shoal_minimize(g, o, loss, step);
}

static shoal_op *step(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  struct model *m = (struct model *)arg;
  shoal_var w1 = weights(g, "w1", SHOAL_SHAPE(IN, HIDDEN), IN * HIDDEN, 1),
            b1 = weights(g, "b1", SHOAL_SHAPE(HIDDEN), HIDDEN, 2);
  shoal_var w2 = weights(g, "w2", SHOAL_SHAPE(HIDDEN, 1), HIDDEN, 3), b2 = weights(g, "b2", SHOAL_SHAPE(1), 1, 4);
  shoal_out h = shoal_bias_add(g, shoal_mat_mul(g, in[0], w1.value), b1.value);
  if (m->flags->norm)
    h = shoal_batch_norm(g, h, shoal_constant_bool(g, true), "norm",
                         SHOAL_OPTIONS(shoal_batch_norm_options, .momentum = 0.75));
  h = shoal_tanh(g, h);
  if (m->flags->drop)
    h = shoal_dropout(g, h, 0.3,
                      SHOAL_OPTIONS(shoal_dropout_options, .seed = shoal_step_seed(g, shoal_global_step(g))));
  shoal_out y = shoal_bias_add(g, shoal_mat_mul(g, h, w2.value), b2.value);
  shoal_out losses = shoal_square(g, shoal_sub(g, y, in[1]));
  bool uneven = m->flags->examples > 0;
  shoal_out loss = uneven ? shoal_replica_average_loss(r, losses) : shoal_reduce_mean(g, losses);
  if (!m->flags->keras)
    out[0] = shoal_replica_reduce(r, uneven && m->flags->sum ? SHOAL_REDUCE_SUM : SHOAL_REDUCE_MEAN, loss);
  shoal_var seen = shoal_replica_on_read(r, "seen", shoal_constant_int(g, 0), SHOAL_REDUCE_SUM);
  if (!m->seen.handle.node) m->seen = seen;
  shoal_op *count = shoal_assign_add_variable_op(g, seen.handle, shoal_size(g, losses));
  shoal_out own = loss;
  if (!uneven && m->flags->sum) loss = shoal_div(g, loss, shoal_constant_float(g, (float)m->replicas));
  shoal_op *parts[] = {train(g, m->flags, loss), count};
  if (m->flags->keras) out[0] = shoal_replica_keras_loss(r, own, shoal_size(g, losses));
  return shoal_group(g, parts, 2, "step");
}

struct feeder {
  int task, tasks;
  int64_t examples; /* in all; 0: no end */
  int64_t wrong;    /* a step; 0: none */
  int only;         /* 1: of x; 2: of y; 0: of both */
};

/* Rows of a step's batch for one task: the step counter is the position in the input. */
static shoal_status fill(void *arg, int64_t k, shoal_tensor **values) {
  struct feeder *f = (struct feeder *)arg;
  float all[ROWS * IN];
  int rows = ROWS / f->tasks;
  int64_t left = f->examples ? f->examples - k * ROWS - f->task * rows : rows;
  if (left <= 0) return shoal_status_new(SHOAL_OUT_OF_RANGE, "no more examples");
  if (left < rows) rows = (int)left;
  numbers(all, ROWS * IN, 5 + (int)k);
  const int64_t x_dims[] = {f->wrong && k == f->wrong ? rows - 1 : rows, IN}, y_dims[] = {rows, 1};
  const float *x = all + f->task * (ROWS / f->tasks) * IN, *y = all + f->task * (ROWS / f->tasks);
  must(shoal_tensor_from(SHOAL_FLOAT32, 2, x_dims, x, (size_t)(x_dims[0] * IN) * sizeof *x, &values[0]), "x");
  numbers(all, ROWS, 100 + (int)k);
  must(shoal_tensor_from(SHOAL_FLOAT32, 2, y_dims, y, (size_t)rows * sizeof *y, &values[1]), "y");
  return NULL;
}

static shoal_status fill_one(void *arg, int64_t k, shoal_tensor **value) {
  shoal_tensor *both[2] = {NULL};
  int which = ((struct feeder *)arg)->only - 1;
  shoal_status e = fill(arg, k, both);
  *value = both[which];
  shoal_tensor_unref(both[!which]);
  return e;
}

/* The same examples as a dataset, in batches for one replica. */
static shoal_out dataset(shoal_graph *g, int examples, int replicas) {
  int steps = (examples + ROWS - 1) / ROWS;
  float *x = (float *)calloc((size_t)(steps * ROWS * IN), sizeof *x),
        *y = (float *)calloc((size_t)(steps * ROWS), sizeof *y);
  for (int k = 0; k < steps; k++) {
    numbers(x + k * ROWS * IN, ROWS * IN, 5 + k);
    numbers(y + k * ROWS, ROWS, 100 + k);
  }
  const shoal_out values[] = {shoal_constant_floats(g, SHOAL_SHAPE(examples, IN), x),
                              shoal_constant_floats(g, SHOAL_SHAPE(examples, 1), y)};
  const shoal_dims rows[] = {SHOAL_SHAPE(IN), SHOAL_SHAPE(1)}, batches[] = {SHOAL_SHAPE(-1, IN), SHOAL_SHAPE(-1, 1)};
  const shoal_dtype types[] = {SHOAL_FLOAT32, SHOAL_FLOAT32};
  free(x);
  free(y);
  return shoal_batch_dataset_v2(g, shoal_tensor_slice_dataset(g, values, 2, rows, 2),
                                shoal_constant_int64(g, ROWS / replicas), shoal_constant_bool(g, false), types, 2,
                                batches, 2);
}

static shoal_out imported(shoal_graph *g, const char *path) {
  static char text[1 << 20];
  FILE *file = fopen(path, "rb");
  if (!file) must(shoal_status_new(SHOAL_NOT_FOUND, "%s", path), "graph");
  size_t n = fread(text, 1, sizeof text, file);
  fclose(file);
  must(shoal_graph_import(g, text, n, NULL), "graph");
  return shoal_graph_out(g, "BatchDatasetV2");
}

static unsigned long long hash_weights(shoal_session *s, shoal_graph *g, bool norm) {
  static const char *const names[VARS + NORM_VARS] = {
      "w1", "b1", "w2", "b2", "norm/gamma", "norm/beta", "norm/moving_mean", "norm/moving_variance"};
  unsigned long long h = 14695981039346656037u;
  for (int i = 0; i < VARS + (norm ? NORM_VARS : 0); i++) {
    shoal_tensor *t;
    char value[64];
    snprintf(value, sizeof value, "%s/Read/ReadVariableOp", names[i]);
    must(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(shoal_graph_out(g, value), &t), NULL), "weights");
    const unsigned char *bytes = (const unsigned char *)shoal_tensor_const_data(t);
    for (int64_t k = 0; k < shoal_tensor_elements(t) * 4; k++) h = (h ^ bytes[k]) * 1099511628211u;
    shoal_tensor_unref(t);
  }
  return h;
}

static struct flags read_flags(int argc, char **argv) {
  struct flags f = {.devices = 1, .optimizer = "adam"};
  for (int i = 3; i < argc; i++) {
    const char *at = strchr(argv[i], '=');
    if (!at) must(shoal_status_new(SHOAL_INVALID_ARGUMENT, "%s", argv[i]), "flag");
    size_t n = (size_t)(at++ - argv[i]);
    if (!strncmp(argv[i], "devices", n)) f.devices = atoi(at);
    if (!strncmp(argv[i], "save", n)) f.save = atoi(at);
    if (!strncmp(argv[i], "sum", n)) f.sum = atoi(at);
    if (!strncmp(argv[i], "kib", n)) f.kib = atoi(at);
    if (!strncmp(argv[i], "messages", n)) f.messages = atoi(at);
    if (!strncmp(argv[i], "slow", n)) f.slow = atoi(at);
    if (!strncmp(argv[i], "examples", n)) f.examples = atoi(at);
    if (!strncmp(argv[i], "before", n)) f.before = atoi(at);
    if (!strncmp(argv[i], "norm", n)) f.norm = atoi(at);
    if (!strncmp(argv[i], "each", n)) f.each = atoi(at);
    if (!strncmp(argv[i], "data", n)) f.data = atoi(at);
    if (!strncmp(argv[i], "tensorflow", n)) f.tensorflow = atoi(at);
    if (!strncmp(argv[i], "keras", n)) f.keras = atoi(at);
    if (!strncmp(argv[i], "slots", n)) f.slots = atoi(at);
    if (!strncmp(argv[i], "shard", n)) f.shard = atoi(at);
    if (!strncmp(argv[i], "open", n)) f.open = atoi(at);
    if (!strncmp(argv[i], "wrong", n)) f.wrong = atoi(at);
    if (!strncmp(argv[i], "away", n)) f.away = atoi(at);
    if (!strncmp(argv[i], "late", n)) f.late = atoi(at);
    if (!strncmp(argv[i], "tell", n)) f.tell = atoi(at);
    if (!strncmp(argv[i], "drop", n)) f.drop = atoi(at);
    if (!strncmp(argv[i], "acc", n)) f.acc = atoi(at);
    if (!strncmp(argv[i], "rate", n)) f.rate = atoi(at);
    if (!strncmp(argv[i], "falling", n)) f.falling = atoi(at);
    if (!strncmp(argv[i], "hooks", n)) f.hooks = atoi(at);
    if (!strncmp(argv[i], "lost", n)) f.lost = atoi(at);
    if (!strncmp(argv[i], "dir", n)) f.dir = at;
    if (!strncmp(argv[i], "optimizer", n)) f.optimizer = at;
    if (!strncmp(argv[i], "graph", n)) f.graph = at;
    if (!strncmp(argv[i], "place", n)) f.place = at;
  }
  return f;
}

/* What a step that reaches for another task ends with, when nobody else is in it. */
static shoal_status take_for_lost(void *left, shoal_run_context *c) {
  return --*(int *)left ? NULL : shoal_status_new(SHOAL_UNAVAILABLE, "so it looks from here");
}

/* Another model, with variables of another type, under a strategy of its own. */
static shoal_op *other_step(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_var v = shoal_variable_untrained(g, "other", shoal_init_zeros(g, SHOAL_INT64, SHOAL_SHAPE(3)));
  return shoal_variable_assign(g, v, shoal_replica_reduce(r, SHOAL_REDUCE_SUM, shoal_add(g, v.value, v.value)));
}

static void train_other(const shoal_cluster *cluster, const shoal_server *server) {
  shoal_strategy *strategy;
  shoal_status error = NULL;
  must(shoal_strategy_new_multi_worker(cluster, server, NULL, &strategy), "another strategy");
  shoal_graph *g = shoal_graph_new();
  shoal_op *op = shoal_strategy_run(g, strategy, other_step, NULL, NULL, 0, NULL, 0);
  SHOAL_TRAIN_SESSION(s, g, .keep_cluster = true, .status = &error, .strategy = strategy)
  shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, op);
  must(error, "another model");
  shoal_graph_free(g);
  shoal_strategy_free(strategy);
}

int main(int argc, char **argv) {
  const char *kind = argc > 2 ? argv[1] : "";
  int64_t steps = argc > 2 ? atoll(argv[2]) : 0;
  struct flags f = read_flags(argc, argv);
  setvbuf(stdout, NULL, _IOLBF, 0);
  const shoal_strategy_options *options = SHOAL_OPTIONS(
      shoal_strategy_options, .gradients = f.sum ? SHOAL_REDUCE_SUM : SHOAL_REDUCE_MEAN, .bucket_kib = f.kib,
      .task_devices = strcmp(kind, "multi") ? 0 : f.devices, .task_device = f.place,
      .messages = (shoal_dtype)f.messages, .shard_state = f.shard != 0, .tensorflow = (shoal_tensorflow)f.tensorflow,
      .keras_slots = f.slots, .keras_steps_per_epoch = f.keras);
  shoal_cluster *cluster = NULL;
  shoal_server *server = NULL;
  shoal_strategy *strategy = NULL;
  if (!strcmp(kind, "multi") || !strcmp(kind, "ps")) {
    must(shoal_cluster_from_config(NULL, &cluster), "cluster");
    must(shoal_server_start(SHOAL_OPTIONS(shoal_server_options, .cluster = shoal_cluster_json(cluster),
                                          .job = shoal_cluster_job(cluster), .task = shoal_cluster_task(cluster),
                                          .cpu_devices = f.devices, .coordination_service = f.tensorflow != 0,
                                          .insecure_bind_all = f.open != 0),
                            &server),
         "server");
    if (!strcmp(shoal_cluster_job(cluster), "ps")) {
      int code = shoal_server_serve(server);
      shoal_cluster_free(cluster);
      return code;
    }
  }
  if (f.before) train_other(cluster, server);
  if (!strcmp(kind, "one")) must(shoal_strategy_new_one_device(NULL, options, &strategy), "strategy");
  else if (!strcmp(kind, "mirrored"))
    must(shoal_strategy_new_mirrored(NULL, f.devices, options, &strategy), "strategy");
  else if (!strcmp(kind, "multi"))
    must(shoal_strategy_new_multi_worker(cluster, server, options, &strategy), "strategy");
  else must(shoal_strategy_new_parameter_server(cluster, server, options, &strategy), "strategy");

  int local = shoal_strategy_local_replicas(strategy), replicas = shoal_strategy_replicas(strategy);
  int tasks = replicas / local, task = shoal_strategy_first_replica(strategy) / local;
  struct model model = {.flags = &f, .replicas = replicas};
  shoal_graph *g = shoal_graph_new();
  shoal_out *in = (shoal_out *)calloc((size_t)local * 2, sizeof *in),
            *out = (shoal_out *)calloc((size_t)local, sizeof *out);
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, IN), "x");
  shoal_out y = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 1), "y");
  shoal_hook hooks[3];
  int n_hooks = 1;
  if (f.data) {
    shoal_push_strategy(g, strategy);
    shoal_out examples = f.graph ? imported(g, f.graph) : dataset(g, f.examples, replicas);
    shoal_pop_strategy(g, strategy);
    hooks[0] = shoal_strategy_dataset_hook(g, strategy, examples, (shoal_auto_shard)f.data, in, 2);
  } else {
    shoal_strategy_split(g, strategy, x, in, 2);
    shoal_strategy_split(g, strategy, y, in + 1, 2);
  }
  shoal_op *train = shoal_strategy_run(g, strategy, step, &model, in, 2, out, 1);
  if (shoal_report(g)) return 1;

  shoal_status error = NULL;
  unsigned long long hash = 0;
  const shoal_out to[] = {x, y};
  struct feeder feeder = {.task = task, .tasks = tasks, .examples = f.examples, .wrong = f.wrong};
  shoal_out counter = shoal_global_step(g).value,
            seen = f.examples ? shoal_strategy_read(g, strategy, model.seen) : (shoal_out){0};
  struct feeder of_x = feeder, of_y = feeder;
  of_x.only = 1;
  of_y.only = 2;
  if (f.hooks) {
    hooks[0] = shoal_strategy_input_hook(strategy, &x, 1, fill_one, &of_x);
    hooks[1] = shoal_strategy_input_hook(strategy, &y, 1, fill_one, &of_y);
    n_hooks = 2;
  } else if (!f.data && f.examples) hooks[0] = shoal_strategy_input_hook(strategy, to, 2, fill, &feeder);
  else if (!f.data) hooks[0] = shoal_input_hook((shoal_input){counter, NULL}, to, 2, fill, &feeder);
  int steps_left = f.lost;
  if (f.lost) hooks[n_hooks++] = (shoal_hook){&steps_left, .after_run = take_for_lost};
  shoal_progress progress = {.label = "trainer"};
  sleep((unsigned)f.late);
  SHOAL_TRAIN_SESSION(s, g, .checkpoint_dir = f.dir, .save_steps = f.save, .stop_at_step = steps, .hooks = hooks,
                      .n_hooks = n_hooks, .status = &error, .strategy = strategy, .steps_per_execution = f.each,
                      .progress = f.tell ? &progress : NULL) {
    for (int k = 1; !shoal_should_stop(s); k++) {
      if (k == f.away) printf("away\n");
      while (k == f.away) pause();
      float loss;
      int64_t counted = 0;
      if (shoal_run(s, SHOAL_NO_FEEDS, SHOAL_FETCH(out[0], &loss), train)) {
        must(shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS, SHOAL_FETCH(counter, &counted), NULL),
             "counter");
        printf("%lld %a\n", (long long)counted - 1, (double)loss);
      }
      nanosleep(&(struct timespec){.tv_nsec = f.slow * 1000000}, NULL);
    }
    int32_t all = 0;
    if (f.examples && !shoal_train_session_error(s)) {
      must(shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS, SHOAL_FETCH(seen, &all), NULL), "seen");
      printf("examples %d\n", all);
    }
    if (!shoal_train_session_error(s)) hash = hash_weights(shoal_train_session_raw(s), g, f.norm);
  }
  if (!error) printf("weights %016llx\n", hash);
  else printf("error %s: %s\n", shoal_code_name(shoal_status_code(error)), shoal_status_message(error));
  free(in);
  free(out);
  shoal_graph_free(g);
  shoal_strategy_free(strategy);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}
