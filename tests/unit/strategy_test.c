/* Strategies in one process: replicas are one model, in values, names and checkpoints; mistakes are told at once. */
#include "unit.h"

#include <math.h>

#include <shoal/shoal.h>

#include "folder.h"

enum { ROWS = 12, IN = 3, STEPS = 5 };

static void numbers(float *v, int n, int salt) {
  for (int i = 0; i < n; i++) v[i] = (float)((i * 37 + salt * 11) % 20) / 10.0F - 1.0F;
}

/* Two layers and Adam: variables of layers, slots, powers, a counter. */
static shoal_op *step(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_optimizer *optimizer = arg;
  shoal_out h = shoal_tanh(g, shoal_dense(g, in[0], 4, "hidden"));
  shoal_out y = shoal_dense(g, h, 1, "out");
  out[0] = shoal_reduce_mean(g, shoal_square(g, shoal_sub(g, y, in[1])));
  return shoal_minimize(g, *optimizer, out[0], shoal_global_step(g));
}

static shoal_strategy *mirrored(int n, int bucket_kib) {
  shoal_strategy *s;
  ASSERT_OK(shoal_strategy_new_mirrored(NULL, n, SHOAL_OPTIONS(shoal_strategy_options, .bucket_kib = bucket_kib), &s));
  return s;
}

static shoal_strategy *sharing(const char *const *devices, int n, int bucket_kib) {
  shoal_strategy *s;
  ASSERT_OK(shoal_strategy_new_mirrored(
      devices, n, SHOAL_OPTIONS(shoal_strategy_options, .bucket_kib = bucket_kib, .shard_state = true), &s));
  return s;
}

static shoal_tensor *tensor(int rows, int columns, int salt) {
  float v[ROWS * IN];
  const int64_t dims[] = {rows, columns};
  shoal_tensor *t;
  numbers(v, rows * columns, salt);
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 2, dims, v, (size_t)(rows * columns) * sizeof *v, &t));
  return t;
}

struct model {
  shoal_graph *g;
  shoal_strategy *strategy;
  shoal_out x, y, loss;
  shoal_op *train;
};

static struct model build_of(shoal_strategy *s, shoal_replica_fn *fn, void *arg) {
  int n = shoal_strategy_local_replicas(s);
  struct model m = {.g = shoal_graph_new(), .strategy = s};
  shoal_out *in = calloc((size_t)n * 2, sizeof *in), *out = calloc((size_t)n, sizeof *out);
  shoal_set_random_seed(m.g, 7);
  m.x = shoal_placeholder(m.g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, IN), "x");
  m.y = shoal_placeholder(m.g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 1), "y");
  shoal_strategy_split(m.g, s, m.x, in, 2);
  shoal_strategy_split(m.g, s, m.y, in + 1, 2);
  m.train = shoal_strategy_run(m.g, s, fn, arg, in, 2, out, 1);
  m.loss = shoal_strategy_reduce(m.g, s, SHOAL_REDUCE_MEAN, out, 1);
  if (shoal_report(m.g)) fail();
  free(in);
  free(out);
  return m;
}

static struct model build(shoal_strategy *s, shoal_optimizer optimizer) { return build_of(s, step, &optimizer); }

static void unbuild(struct model *m) {
  shoal_graph_free(m->g);
  shoal_strategy_free(m->strategy);
}

/* Trains, in a training session; the losses. */
static void train_in(struct model *m, const char *dir, int steps, float *losses) {
  shoal_status error = NULL;
  shoal_tensor *x = tensor(ROWS, IN, 1), *y = tensor(ROWS, 1, 2);
  SHOAL_TRAIN_SESSION(s, m->g, .checkpoint_dir = dir, .no_signals = true, .status = &error, .strategy = m->strategy)
  for (int i = 0; i < steps; i++)
    assert_true(shoal_run(s, SHOAL_FEED(m->x, x, m->y, y), SHOAL_FETCH(m->loss, &losses[i]), m->train));
  ASSERT_OK(error);
  shoal_tensor_unref(x);
  shoal_tensor_unref(y);
}

static void losses_of(shoal_strategy *s, float *losses) {
  struct model m = build(s, shoal_adam(0.05));
  train_in(&m, NULL, STEPS, losses);
  unbuild(&m);
}

static void replicas_are_the_whole_batch(void **state) {
  float one[STEPS], many[STEPS], again[STEPS];
  shoal_strategy *s;
  ASSERT_OK(shoal_strategy_new_one_device(NULL, NULL, &s));
  losses_of(s, one);
  assert_true(one[STEPS - 1] < one[0]);
  for (int n = 1; n <= 4; n++) {
    losses_of(mirrored(n, 0), many);
    for (int i = 0; i < STEPS; i++)
      if (fabsf(one[i] - many[i]) > 1e-5F * fabsf(one[i]))
        fail_msg("%d replicas, step %d: %.9g and %.9g", n, i, (double)one[i], (double)many[i]);
    losses_of(mirrored(n, 0), again);
    assert_memory_equal(many, again, sizeof many);
  }
}

/* Gradients from 4 to 4,000 bytes. */
static shoal_op *wide(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_out h = shoal_tanh(g, shoal_dense(g, in[0], 200, "a"));
  h = shoal_tanh(g, shoal_dense(g, h, 5, "b"));
  out[0] = shoal_reduce_mean(g, shoal_square(g, shoal_dense(g, h, 1, "c")));
  return shoal_minimize(g, shoal_momentum(0.1, 0.9), out[0], shoal_global_step(g));
}

static float wide_loss(int bucket_kib, int *collectives) {
  shoal_strategy *s = mirrored(3, bucket_kib);
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 3);
  float x[3 * IN], loss = 0;
  numbers(x, 3 * IN, 5);
  shoal_out in[3], out[3];
  shoal_strategy_split(g, s, shoal_constant_floats(g, SHOAL_SHAPE(3, IN), x), in, 1);
  shoal_op *train = shoal_strategy_run(g, s, wide, NULL, in, 1, out, 1);
  shoal_out mean = shoal_strategy_reduce(g, s, SHOAL_REDUCE_MEAN, out, 1);
  *collectives = 0;
  while (*collectives < 100) {
    char name[48];
    if (*collectives) snprintf(name, sizeof name, "reduce/CollectiveReduce_%d", *collectives);
    if (!shoal_graph_op(g, *collectives ? name : "reduce/CollectiveReduce")) break;
    ++*collectives;
  }
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(session, g, .no_signals = true, .status = &error, .strategy = s)
  for (int i = 0; i < STEPS; i++) shoal_run(session, SHOAL_NO_FEEDS, SHOAL_FETCH(mean, &loss), train);
  ASSERT_OK(error);
  shoal_graph_free(g);
  shoal_strategy_free(s);
  return loss;
}

static void buckets_change_no_bit(void **state) {
  int few, many;
  float whole = wide_loss(0, &few), pieces = wide_loss(1, &many);
  assert_int_equal(few, 1);
  assert_int_equal(many, 4); /* c and b's bias; b's kernel, larger than a bucket; a's bias; a's kernel */
  assert_memory_equal(&whole, &pieces, sizeof whole);
}

/* ---- what is dropped ---- */

static shoal_op *dropping(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  const shoal_optimizer *optimizer = arg;
  shoal_out seed = shoal_step_seed(g, shoal_global_step(g));
  shoal_out h = shoal_tanh(g, shoal_dense(g, in[0], 40, "hidden"));
  h = shoal_dropout(g, h, 0.5, SHOAL_OPTIONS(shoal_dropout_options, .seed = seed));
  out[0] = shoal_reduce_mean(g, shoal_square(g, shoal_sub(g, shoal_dense(g, h, 1, "out"), in[1])));
  return shoal_minimize(g, *optimizer, out[0], shoal_global_step(g));
}

static void dropping_losses(shoal_strategy *s, shoal_optimizer optimizer, float *losses) {
  struct model m = build_of(s, dropping, &optimizer);
  train_in(&m, NULL, STEPS, losses);
  unbuild(&m);
}

/* Nothing but the model and the replica's number is in what is dropped: not how gradients are reduced, or who has which
 * state, or by which ops variables change. */
static void what_is_dropped_goes_by_the_model(void **state) {
  float want[STEPS], got[STEPS];
  dropping_losses(mirrored(3, 0), shoal_momentum(0.1, 0), want);
  dropping_losses(mirrored(3, 1), shoal_momentum(0.1, 0), got);
  assert_memory_equal(want, got, sizeof want);
  dropping_losses(sharing(NULL, 3, 0), shoal_momentum(0.1, 0), got);
  assert_memory_equal(want, got, sizeof want);
  dropping_losses(mirrored(3, 0), shoal_sgd(0.1), got);
  assert_memory_equal(want, got, sizeof want);
}

/* ---- batches of tasks ---- */

static shoal_status damaged(void *arg, int64_t position, shoal_tensor **values) {
  const int64_t *at = arg;
  if (position == *at) return shoal_status_new(SHOAL_DATA_LOSS, "batch %d is damaged", (int)position);
  values[0] = tensor(ROWS, IN, 1);
  values[1] = tensor(ROWS, 1, 2);
  return NULL;
}

/* They are looked for a step ahead: the step before has nothing to do with it. */
static void a_batch_that_cannot_be_made_ends_its_own_step(void **state) {
  for (int64_t at = 0; at < 3; at++) {
    struct model m = build(mirrored(2, 0), shoal_sgd(0.1));
    shoal_status error = NULL;
    int64_t steps = 0, counted = -1;
    const shoal_out to[] = {m.x, m.y};
    shoal_hook hook = shoal_strategy_input_hook(m.strategy, to, 2, damaged, &at);
    shoal_out counter = shoal_global_step(m.g).value;
    SHOAL_TRAIN_SESSION(s, m.g, .no_signals = true, .hooks = &hook, .n_hooks = 1, .status = &error,
                        .strategy = m.strategy) {
      while (!shoal_should_stop(s)) steps += shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m.train);
      ASSERT_OK(shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS, SHOAL_FETCH(counter, &counted), NULL));
    }
    ASSERT_FAILS(error, SHOAL_DATA_LOSS, "is damaged");
    assert_int_equal(steps, at);
    assert_int_equal(counted, at ? at : -1); /* the first is looked for before there is a session */
    unbuild(&m);
  }
}

/* ---- checkpoints ---- */

static void checkpoints_fit_any_number_of_replicas(void **state) {
  char *dir = in_dir("run");
  float straight[2 * STEPS], parts[2 * STEPS];
  struct model m = build(mirrored(2, 0), shoal_adam(0.05));
  train_in(&m, NULL, 2 * STEPS, straight);
  unbuild(&m);
  m = build(mirrored(3, 0), shoal_adam(0.05));
  train_in(&m, dir, STEPS, parts);
  unbuild(&m);
  m = build(mirrored(2, 0), shoal_adam(0.05));
  train_in(&m, dir, STEPS, parts + STEPS);
  /* What is saved has the names of a model without a strategy, and nothing else. */
  char *latest = shoal_latest_checkpoint(dir);
  int64_t counted;
  ASSERT_OK(shoal_checkpoint_int(latest, "global_step", &counted));
  assert_int_equal(counted, 2 * STEPS);
  assert_int_equal(shoal_variables(m.g, false, NULL, 0),
                   4 * 3 + 2 + 1); /* kernels, biases, their slots; powers; step */
  shoal_var vars[4];
  assert_int_equal(shoal_variables(m.g, true, vars, 4), 4);
  assert_string_equal(shoal_op_name(vars[0].handle.node), "hidden/kernel");
  free(latest);
  unbuild(&m);
  for (int i = 0; i < 2 * STEPS; i++) assert_true(fabsf(straight[i] - parts[i]) < 1e-4F * fabsf(straight[i]));
  free(dir);
}

/* ---- shared out state ---- */

static void optimizers_share_out_their_state(void **state) {
  const shoal_optimizer all[] = {shoal_sgd(0.1),
                                 shoal_momentum(0.1, 0.9),
                                 shoal_nesterov(0.1, 0.9),
                                 shoal_adam(0.05),
                                 shoal_adamw(0.05, 0.1),
                                 shoal_adagrad(0.1),
                                 shoal_adagrad_da(0.1, 0.01, 0.01),
                                 shoal_adadelta(0.5),
                                 shoal_rmsprop(0.01),
                                 shoal_centered_rmsprop(0.01),
                                 shoal_ftrl(0.1),
                                 shoal_proximal_sgd(0.1, 0.01, 0.01),
                                 shoal_proximal_adagrad(0.1, 0.01, 0.01),
                                 shoal_keras_sgd(0.1, 0),
                                 shoal_keras_sgd(0.1, 0.9),
                                 shoal_keras_adam(0.05),
                                 shoal_keras_adagrad(0.1),
                                 shoal_keras_ftrl(0.1)};
  static const char *const turned[] = {"/cpu:2", "/cpu:0", "/cpu:1"};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (int order = 0; order < 2; order++) {
      const char *const *devices = order ? turned : NULL;
      float whole[STEPS], pieces[STEPS];
      shoal_strategy *s;
      ASSERT_OK(shoal_strategy_new_mirrored(devices, 3, NULL, &s));
      struct model m = build(s, all[i]);
      train_in(&m, NULL, STEPS, whole);
      unbuild(&m);
      m = build(sharing(devices, 3, 1), all[i]);
      train_in(&m, NULL, STEPS, pieces);
      unbuild(&m);
      assert_memory_equal(whole, pieces, sizeof whole);
    }
}

/* Elements of all slots whose names end so. */
static int64_t slot_elements(const shoal_graph *g, const char *end) {
  shoal_var vars[64];
  int64_t sum = 0;
  int n = shoal_variables(g, false, vars, 64) + shoal_local_variables(g, NULL, 0);
  assert_true(n <= 64);
  int global = shoal_variables(g, false, vars, 64);
  shoal_local_variables(g, vars + global, 64 - global);
  for (int i = 0; i < n; i++) {
    const char *name = shoal_op_name(vars[i].handle.node);
    size_t at = strlen(name) - strlen(end);
    int64_t dims[8], elements = 1;
    if (!strstr(name, "/Adam") || strcmp(name + at, end) != 0) continue;
    int rank = shoal_out_shape(vars[i].value, dims);
    for (int k = 0; k < rank; k++) elements *= dims[k];
    sum += elements;
  }
  return sum;
}

static void each_replica_has_its_share(void **state) {
  enum { N = 4, KERNEL = IN * 4, BIAS = 4, OUT_KERNEL = 4, OUT_BIAS = 1 };
  char end[32];
  struct model m = build(sharing(NULL, N, 0), shoal_adam(0.05));
  int64_t share = 2 * ((KERNEL + N - 1) / N + (BIAS + N - 1) / N + (OUT_KERNEL + N - 1) / N + (OUT_BIAS + N - 1) / N);
  for (int i = 0; i < N; i++) {
    snprintf(end, sizeof end, "/piece_%d", i);
    assert_int_equal(slot_elements(m.g, end), share);
  }
  assert_int_equal(slot_elements(m.g, ""), N * share); /* and there are no others */
  unbuild(&m);
  m = build(mirrored(N, 0), shoal_adam(0.05));
  assert_int_equal(slot_elements(m.g, ""), N * 2 * (KERNEL + BIAS + OUT_KERNEL + OUT_BIAS));
  unbuild(&m);
}

/* As many steps under each strategy: what some of them share out is in the checkpoints of all. */
static void go_through(const char *dir, bool share, shoal_optimizer optimizer, float *losses) {
  struct model m = build(mirrored(2, 0), optimizer);
  train_in(&m, dir, STEPS, losses);
  unbuild(&m);
  m = build(share ? sharing(NULL, 5, 0) : mirrored(5, 0), optimizer);
  train_in(&m, dir, STEPS, losses + STEPS);
  unbuild(&m);
  m = build(share ? sharing(NULL, 3, 0) : mirrored(3, 0), optimizer);
  train_in(&m, dir, STEPS, losses + 2 * STEPS);
  unbuild(&m);
  m = build(mirrored(1, 0), optimizer);
  train_in(&m, dir, STEPS, losses + 3 * STEPS);
  unbuild(&m);
}

/* A table whose gradients are rows, beside a layer. Half precision: gathered as another type. (Adam's 0.999 is 1 in
 * it.)
 */
static shoal_op *mixed(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_var table = shoal_variable(g, "rows", shoal_init_constant(g, SHOAL_FLOAT32, SHOAL_SHAPE(5, 2), 1));
  const shoal_optimizer *optimizer = arg;
  shoal_dtype dtype = optimizer->b > 0.99 ? SHOAL_FLOAT32 : SHOAL_BFLOAT16;
  shoal_var half = shoal_variable(g, "half", shoal_init_constant(g, dtype, SHOAL_SHAPE(5), 0.5));
  shoal_out rows = shoal_embedding_lookup(g, &table, 1, in[0], "mod");
  shoal_out y = shoal_tanh(g, shoal_dense(g, rows, 3, "layer"));
  shoal_out sum = shoal_reduce_sum(g, shoal_square(g, half.value));
  out[0] = shoal_add(g, shoal_reduce_sum(g, shoal_square(g, y)), shoal_cast(g, sum, SHOAL_FLOAT32));
  return shoal_minimize(g, *optimizer, out[0], shoal_global_step(g));
}

/* under, name: of a slot of the table; pieces: how many elements each replica has of it, 0 where it is whole. */
static void mixed_losses(bool share, const char *dir, shoal_optimizer optimizer, const char *under, const char *name,
                         int64_t pieces, float *losses) {
  shoal_strategy *s = share ? sharing(NULL, 2, 0) : mirrored(2, 0);
  shoal_graph *g = shoal_graph_new();
  char piece[64];
  shoal_set_random_seed(g, 3);
  const int32_t ids[] = {0, 1, 1, 4};
  shoal_out in[2], out[2];
  shoal_strategy_split(g, s, shoal_constant_ints(g, SHOAL_SHAPE(4), ids), in, 1);
  shoal_op *train = shoal_strategy_run(g, s, mixed, &optimizer, in, 1, out, 1);
  shoal_out loss = shoal_strategy_reduce(g, s, SHOAL_REDUCE_MEAN, out, 1);
  if (shoal_report(g)) fail();
  snprintf(piece, sizeof piece, "%srows/%s/piece_1", under, name);
  assert_true((shoal_graph_op(g, piece) != NULL) == (share && pieces));
  if (share && pieces && !strcmp(name, "Adam")) assert_int_equal(slot_elements(g, "rows/Adam/piece_1"), pieces);
  snprintf(piece, sizeof piece, "%shalf/%s/piece_1", under, name);
  assert_true((shoal_graph_op(g, piece) != NULL) == share);
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(session, g, .checkpoint_dir = dir, .no_signals = true, .status = &error, .strategy = s)
  for (int i = 0; i < STEPS; i++) shoal_run(session, SHOAL_NO_FEEDS, SHOAL_FETCH(loss, &losses[i]), train);
  ASSERT_OK(error);
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

/* Trained, saved and trained on: shared out, then not, and never shared out. */
static void share_rows_under(shoal_optimizer optimizer, const char *under, const char *name, int64_t pieces) {
  static int calls;
  char sub[64];
  float losses[2][2 * STEPS];
  calls++;
  for (int share = 0; share < 2; share++) {
    snprintf(sub, sizeof sub, "rows_%d_%d", calls, share);
    char *dir = in_dir(sub);
    for (int run = 0; run < 2; run++)
      mixed_losses(share && !run, dir, optimizer, under, name, pieces, losses[share] + run * STEPS);
    free(dir);
  }
  assert_true(losses[0][2 * STEPS - 1] < losses[0][0]);
  assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
}

static void share_rows(shoal_optimizer optimizer, const char *name, int64_t pieces) {
  share_rows_under(optimizer, "", name, pieces);
}

static void rows_share_out_what_changes_whole(void **state) {
  share_rows_under(shoal_keras_adam(0.05), "training/Adam/", "m", 3 * 2);
  share_rows(shoal_adam(0.05), "Adam", 3 * 2);
  share_rows(shoal_adamw(0.05, 0.1), "AdamW", 3 * 2);
}

/* And those that change the rows of the gradient alone. */
static void rows_share_out_what_was_looked_up(void **state) {
  share_rows_under(shoal_keras_sgd(0.1, 0.9), "training/SGD/", "momentum", 3 * 2);
  share_rows_under(shoal_keras_adagrad(0.1), "training/Adagrad/", "accumulator", 3 * 2);
  share_rows_under(shoal_keras_ftrl(0.1), "training/Ftrl/", "linear", 3 * 2);
  share_rows(shoal_momentum(0.1, 0.9), "Momentum", 3 * 2);
  share_rows(shoal_nesterov(0.1, 0.9), "Momentum", 3 * 2);
  share_rows(shoal_adagrad(0.1), "Adagrad", 3 * 2);
  share_rows(shoal_adagrad_da(0.1, 0.01, 0.01), "AdagradDA", 3 * 2);
  share_rows(shoal_adadelta(0.5), "Adadelta", 3 * 2);
  share_rows(shoal_rmsprop(0.01), "RMSProp", 3 * 2);
  share_rows(shoal_centered_rmsprop(0.01), "RMSProp", 3 * 2);
  share_rows(shoal_ftrl(0.1), "Ftrl", 3 * 2);
  share_rows(shoal_proximal_adagrad(0.1, 0.01, 0.01), "ProximalAdagrad", 3 * 2);
}

/* A layer whose kernel is in parts. */
static shoal_out part_of_kernel(shoal_graph *g, shoal_dtype dtype, shoal_dims shape, void *arg) {
  return shoal_init_constant(g, dtype, shape, 0.25);
}

static shoal_op *in_parts(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  const shoal_partitioner two = shoal_fixed_partitioner(2, 0);
  shoal_partitioned kernel =
      shoal_partitioned_variable(g, "kernel", SHOAL_FLOAT32, SHOAL_SHAPE(IN, 5), &two, part_of_kernel, NULL);
  shoal_out h = shoal_tanh(g, shoal_mat_mul(g, in[0], shoal_partitioned_value(g, &kernel)));
  shoal_partitioned_free(&kernel);
  out[0] = shoal_reduce_mean(g, shoal_square(g, shoal_sub(g, shoal_dense(g, h, 1, "out"), in[1])));
  return shoal_minimize(g, *(shoal_optimizer *)arg, out[0], shoal_global_step(g));
}

static void losses_in_parts(shoal_strategy *s, shoal_optimizer optimizer, const char *dir, float *losses) {
  struct model m = build_of(s, in_parts, &optimizer);
  train_in(&m, dir, STEPS, losses);
  unbuild(&m);
}

/* Slots of parts are shared out too, and saved as parts of one slot; the next run has another number of replicas, the
 * last one shares nothing out. */
static void share_parts(shoal_optimizer optimizer, const char *name) {
  char sub[64];
  snprintf(sub, sizeof sub, "%s_with", name);
  char *with = in_dir(sub);
  snprintf(sub, sizeof sub, "%s_without", name);
  char *without = in_dir(sub);
  float losses[3 * STEPS], want[3 * STEPS];
  for (int n = 2; n < 4; n++) {
    losses_in_parts(sharing(NULL, n, 0), optimizer, with, losses + (n - 2) * STEPS);
    losses_in_parts(mirrored(n, 0), optimizer, without, want + (n - 2) * STEPS);
  }
  losses_in_parts(mirrored(2, 0), optimizer, with, losses + 2 * STEPS);
  losses_in_parts(mirrored(2, 0), optimizer, without, want + 2 * STEPS);
  assert_true(want[3 * STEPS - 1] < want[0]);
  assert_memory_equal(losses, want, sizeof want);
  struct model m = build_of(sharing(NULL, 2, 0), in_parts, &optimizer);
  assert_int_equal(slot_elements(m.g, "/piece_0"), 2 * (5 + 3 + 3 + 1)); /* of 10 + 5, 5 and 1, each of two slots */
  unbuild(&m);
  free(with);
  free(without);
}

static void parts_share_out_their_state(void **state) {
  share_parts(shoal_adam(0.05), "parts");
  share_parts(shoal_keras_adam(0.05), "keras_parts");
}

static void save_whole(shoal_optimizer optimizer, const char *one, const char *other) {
  char *with = in_dir(one), *without = in_dir(other);
  float losses[4 * STEPS], want[4 * STEPS];
  go_through(with, true, optimizer, losses);
  go_through(without, false, optimizer, want);
  assert_memory_equal(losses, want, sizeof want);
  free(with);
  free(without);
}

static void shared_out_state_is_saved_whole(void **state) {
  save_whole(shoal_adam(0.05), "with", "without");
  save_whole(shoal_keras_adam(0.05), "keras_with", "keras_without");
}

/* ---- what replicas say to each other ---- */

static shoal_op *talk(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_var *shared = arg, own = shoal_replica_variable(r, *shared);
  shoal_out id = shoal_constant_float(g, (float)shoal_replica_id(r) + 1);
  out[0] = shoal_replica_reduce(r, SHOAL_REDUCE_SUM, id);
  out[1] = shoal_replica_reduce(r, SHOAL_REDUCE_MAX, id);
  out[2] = shoal_replica_gather(r, shoal_expand_dims(g, id, shoal_constant_int(g, 0)));
  out[3] = own.value;
  return shoal_variable_assign(g, own, shoal_mul(g, out[0], shoal_constant_float(g, 10)));
}

static void replicas_talk(void **state) {
  enum { N = 3, OUT = 4 };
  shoal_strategy *s = mirrored(N, 0);
  shoal_graph *g = shoal_graph_new();
  shoal_push_strategy(g, s);
  shoal_var v = shoal_variable_untrained(g, "v", shoal_constant_float(g, 5));
  shoal_pop_strategy(g, s);
  shoal_out out[N * OUT];
  shoal_op *op = shoal_strategy_run(g, s, talk, &v, NULL, 0, out, OUT);
  shoal_out all = shoal_strategy_gather(g, s, &out[2], OUT);
  shoal_op *init = shoal_initialize(g), *local = shoal_initialize_local(g);
  if (shoal_report(g)) fail();
  shoal_session *session;
  ASSERT_OK(shoal_session_open(g, &(shoal_session_options){.cpu_devices = N}, &session));
  ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, local));
  for (int i = 0; i < N; i++) {
    float sum, max, value;
    shoal_tensor *ids;
    /* One replica's results are enough: the others' halves run with them. */
    ASSERT_OK(shoal_session_step(
        session, SHOAL_NO_FEEDS,
        SHOAL_FETCH(out[i * OUT], &sum, out[i * OUT + 1], &max, out[i * OUT + 2], &ids, out[i * OUT + 3], &value),
        NULL));
    assert_true(sum == 6 && max == 3 && value == 5);
    const float *id = shoal_tensor_const_data(ids);
    assert_true(shoal_tensor_elements(ids) == 3 && id[0] == 1 && id[1] == 2 && id[2] == 3);
    shoal_tensor_unref(ids);
  }
  shoal_tensor *ids;
  ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(all, &ids), NULL));
  assert_int_equal(shoal_tensor_elements(ids), N * N);
  shoal_tensor_unref(ids);
  ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, op));
  for (int i = 0; i < N; i++) {
    float value;
    ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(out[i * OUT + 3], &value), NULL));
    assert_true(value == 60);
  }
  ASSERT_OK(shoal_session_close(session));
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

/* A line through points: its slope is of the strategy's scope, and asked for behind a variable of the function's own.
 */
static shoal_op *fit_line(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_var height = shoal_variable(g, "height", shoal_constant_float(g, 0));
  shoal_var slope = shoal_replica_variable(r, *(shoal_var *)arg);
  shoal_out y = shoal_add(g, shoal_mul(g, in[0], slope.value), height.value);
  out[0] = slope.value;
  out[1] = height.value;
  shoal_out loss = shoal_reduce_mean(g, shoal_square(g, shoal_sub(g, y, in[1])));
  return shoal_minimize(g, shoal_momentum(0.02, 0.5), loss, shoal_global_step(g));
}

/* got: slope and height of each replica after some steps. */
static void fit_by(int replicas, float (*got)[2]) {
  enum { MOST = 4 };
  shoal_strategy *s = mirrored(replicas, 0);
  shoal_graph *g = shoal_graph_new();
  shoal_push_strategy(g, s);
  shoal_var slope = shoal_variable(g, "slope", shoal_constant_float(g, 0));
  shoal_pop_strategy(g, s);
  shoal_out points[] = {shoal_constant_floats(g, SHOAL_SHAPE(4), ((float[]){1, 2, 3, 4})),
                        shoal_constant_floats(g, SHOAL_SHAPE(4), ((float[]){3, 5, 7, 9}))};
  shoal_out in[2 * MOST], out[2 * MOST];
  for (int i = 0; i < 2; i++) shoal_strategy_split(g, s, points[i], in + i, 2);
  shoal_op *train = shoal_strategy_run(g, s, fit_line, &slope, in, 2, out, 2);
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(session, g, .no_signals = true, .status = &error, .strategy = s) {
    for (int i = 0; i < 5; i++) shoal_run(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train);
    for (int i = 0; i < replicas; i++)
      ASSERT_OK(shoal_session_step(shoal_train_session_raw(session), SHOAL_NO_FEEDS,
                                   SHOAL_FETCH(out[2 * i], &got[i][0], out[2 * i + 1], &got[i][1]), NULL));
  }
  ASSERT_OK(error);
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

static void gradients_are_of_the_same_variable(void **state) {
  float one[1][2], many[4][2];
  fit_by(1, one);
  assert_true(one[0][0] > 1);
  for (int n = 2; n <= 4; n += 2) {
    fit_by(n, many);
    for (int i = 0; i < n; i++)
      for (int k = 0; k < 2; k++) assert_true(fabsf(many[i][k] - one[0][k]) < 1e-5F);
  }
}

/* A table of which each replica uses other rows. */
static shoal_op *look_up(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_var table = shoal_variable(g, "table", shoal_init_constant(g, SHOAL_FLOAT32, SHOAL_SHAPE(6, 2), 1));
  shoal_out rows = shoal_embedding_lookup(g, &table, 1, in[0], "mod");
  out[0] = shoal_reduce_sum(g, shoal_square(g, rows));
  out[1] = table.value;
  return shoal_minimize(g, shoal_sgd(0.5), out[0], shoal_global_step(g));
}

static void rows_are_reduced(void **state) {
  shoal_strategy *s = mirrored(2, 0);
  shoal_graph *g = shoal_graph_new();
  const int32_t ids[] = {0, 1, 1, 5};
  shoal_out in[2], out[4];
  shoal_strategy_split(g, s, shoal_constant_ints(g, SHOAL_SHAPE(4), ids), in, 1);
  shoal_op *train = shoal_strategy_run(g, s, look_up, NULL, in, 1, out, 2);
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(session, g, .no_signals = true, .status = &error, .strategy = s) {
    shoal_run(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train);
    for (int i = 0; i < 2; i++) {
      shoal_tensor *t;
      ASSERT_OK(
          shoal_session_step(shoal_train_session_raw(session), SHOAL_NO_FEEDS, SHOAL_FETCH(out[2 * i + 1], &t), NULL));
      /* d(x^2) = 2, times 0.5, by the mean of two replicas: half of it for each time that a row was used. */
      const float want[] = {0.5F, 0, 1, 1, 1, 0.5F}, *have = shoal_tensor_const_data(t);
      for (int k = 0; k < 6; k++) assert_true(have[2 * k] == want[k] && have[2 * k + 1] == want[k]);
      shoal_tensor_unref(t);
    }
  }
  ASSERT_OK(error);
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

/* ---- replicas with other numbers of rows ---- */

enum { UNEVEN = 3, MOST_ROWS = 7 };

static shoal_op *bring_rows(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  out[0] = shoal_cast(g, in[0], *(shoal_dtype *)arg);
  out[1] = shoal_cast(g, shoal_replica_gather(r, out[0]), SHOAL_FLOAT64);
  return NULL;
}

/* Two columns of n rows, over all replicas, from the inside and from the outside. */
static void gather_rows(shoal_dtype dtype) {
  shoal_strategy *s = mirrored(UNEVEN, 0);
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT64, SHOAL_SHAPE(-1, 2), "x"), in[UNEVEN], out[2 * UNEVEN];
  shoal_strategy_split(g, s, x, in, 1);
  shoal_op *op = shoal_strategy_run(g, s, bring_rows, &dtype, in, 1, out, 2);
  shoal_out all = shoal_cast(g, shoal_strategy_gather(g, s, out, 2), SHOAL_FLOAT64);
  if (shoal_report(g)) fail();
  shoal_session *session;
  ASSERT_OK(shoal_session_open(g, &(shoal_session_options){.cpu_devices = UNEVEN}, &session));
  for (int64_t n = 0; n <= MOST_ROWS; n++) {
    double rows[2 * MOST_ROWS];
    for (int i = 0; i < 2 * n; i++) rows[i] = i + 1;
    shoal_tensor *fed, *got[2];
    ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT64, 2, (const int64_t[]){n, 2}, rows, 2 * (size_t)n * sizeof *rows, &fed));
    ASSERT_OK(shoal_session_step(session, SHOAL_FEED(x, fed), SHOAL_FETCH(out[2 * (n % UNEVEN) + 1], &got[0]), op));
    ASSERT_OK(shoal_session_step(session, SHOAL_FEED(x, fed), SHOAL_FETCH(all, &got[1]), NULL));
    for (int i = 0; i < 2; i++) {
      assert_int_equal(shoal_tensor_elements(got[i]), 2 * n);
      assert_memory_equal(shoal_tensor_const_data(got[i]), rows, 2 * (size_t)n * sizeof *rows);
      shoal_tensor_unref(got[i]);
    }
    shoal_tensor_unref(fed);
  }
  ASSERT_OK(shoal_session_close(session));
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

static void rows_are_gathered_as_many_as_there_are(void **state) {
  const shoal_dtype all[] = {SHOAL_FLOAT32, SHOAL_FLOAT64, SHOAL_INT32, SHOAL_INT64, SHOAL_FLOAT16, SHOAL_BFLOAT16};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) gather_rows(all[i]);
}

/* A replica's own number of columns, or of rows, which is known before the step. */
static shoal_op *bring_others(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  int32_t id = shoal_replica_id(r), shape[] = {-1, id + 1};
  if (arg) out[0] = shoal_constant_floats(g, SHOAL_SHAPE(id + 1), (float[]){1, 2});
  else out[0] = shoal_reshape(g, in[0], shoal_constant_ints(g, SHOAL_SHAPE(2), shape));
  out[0] = shoal_replica_gather(r, out[0]);
  return NULL;
}

static void other_columns_are_not_gathered(void **state) {
  shoal_strategy *s = mirrored(2, 0);
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1), "x"), in[2], out[2];
  shoal_strategy_split(g, s, x, in, 1);
  shoal_strategy_run(g, s, bring_others, NULL, in, 1, out, 1);
  shoal_session *session;
  ASSERT_OK(shoal_session_open(g, &(shoal_session_options){.cpu_devices = 2}, &session));
  shoal_tensor *fed = tensor(4, 1, 1), *flat, *got;
  ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){4}, shoal_tensor_const_data(fed), 16, &flat));
  ASSERT_FAILS(shoal_session_step(session, SHOAL_FEED(x, flat), SHOAL_FETCH(out[0], &got), NULL),
               SHOAL_INVALID_ARGUMENT, "Shape mismatch in the collective");
  shoal_tensor_unref(fed);
  shoal_tensor_unref(flat);
  ASSERT_OK(shoal_session_close(session));
  shoal_graph_free(g);
  g = shoal_graph_new();
  shoal_strategy_run(g, s, bring_others, s, NULL, 0, out, 1);
  assert_non_null(shoal_graph_error(g));
  assert_non_null(strstr(shoal_status_message(shoal_graph_error(g)), "replica 1 gathers 2 rows, and the first one 1"));
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

/* As look_up, of a batch whose size is not known before. */
static shoal_op *look_up_some(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_optimizer *optimizer = arg;
  shoal_var table = shoal_variable(g, "table", shoal_init_constant(g, SHOAL_FLOAT32, SHOAL_SHAPE(6, 2), 1));
  shoal_out rows = shoal_embedding_lookup(g, &table, 1, shoal_cast(g, in[0], SHOAL_INT32), "mod");
  out[0] = shoal_replica_average_loss(r, shoal_square(g, rows));
  out[1] = table.value;
  return shoal_minimize(g, *optimizer, out[0], shoal_global_step(g));
}

static void learn_rows(shoal_strategy *s, shoal_optimizer optimizer, int n, float *table) {
  shoal_graph *g = shoal_graph_new();
  const float ids[] = {1, 5, 1, 0, 2};
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1), "x"), in[UNEVEN], out[2 * UNEVEN];
  shoal_strategy_split(g, s, x, in, 1);
  shoal_op *train = shoal_strategy_run(g, s, look_up_some, &optimizer, in, 1, out, 2);
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(session, g, .no_signals = true, .status = &error, .strategy = s) {
    shoal_tensor *fed, *t;
    ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){n}, ids, (size_t)n * sizeof *ids, &fed));
    for (int i = 0; i < STEPS; i++) assert_true(shoal_run(session, SHOAL_FEED(x, fed), SHOAL_NO_FETCHES, train));
    int last = shoal_strategy_local_replicas(s) - 1;
    ASSERT_OK(
        shoal_session_step(shoal_train_session_raw(session), SHOAL_NO_FEEDS, SHOAL_FETCH(out[2 * last + 1], &t), NULL));
    memcpy(table, shoal_tensor_const_data(t), 12 * sizeof *table);
    shoal_tensor_unref(fed);
    shoal_tensor_unref(t);
  }
  ASSERT_OK(error);
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

/* Rows of a batch that does not divide do what they do in one replica. */
static void uneven_rows_are_reduced(void **state) {
  const shoal_optimizer all[] = {shoal_sgd(0.5), shoal_momentum(0.1, 0.9), shoal_adam(0.05)};
  for (int k = 0; k < 3; k++)
    for (int n = 1; n <= 5; n += 2)
      for (int share = 0; share < 2; share++) {
        float one[12], many[12];
        learn_rows(mirrored(1, 0), all[k], n, one);
        learn_rows(share ? sharing(NULL, UNEVEN, 0) : mirrored(UNEVEN, 0), all[k], n, many);
        for (int i = 0; i < 12; i++)
          if (!(fabsf(one[i] - many[i]) <= 1e-5F))
            fail_msg("optimizer %d, %d rows, shared %d, element %d: %.9g and %.9g", k, n, share, i, (double)one[i],
                     (double)many[i]);
      }
}

static shoal_op *learn_scaled(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_var v = shoal_variable(g, "v", shoal_constant_float(g, 0));
  out[0] = v.value;
  shoal_out loss = shoal_reduce_mean(g, shoal_square(g, shoal_sub(g, in[0], v.value)));
  return shoal_minimize_scaled(g, shoal_sgd(0.1), loss, shoal_global_step(g), NULL);
}

/* A gradient that is not finite in one replica leaves the step out in all of them. */
static void scaled_steps_are_left_out_together(void **state) {
  shoal_strategy *s = mirrored(2, 0);
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1), "x"), in[2], out[2];
  shoal_strategy_split(g, s, x, in, 1);
  shoal_op *train = shoal_strategy_run(g, s, learn_scaled, NULL, in, 1, out, 1);
  const float batches[][2] = {{1, 3}, {1, INFINITY}, {2, 2}}, want[] = {0.4F, 0.4F, 0.72F};
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(session, g, .no_signals = true, .status = &error, .strategy = s) {
    for (int n = 0; n < 3; n++) {
      shoal_tensor *fed;
      float v[2];
      ASSERT_OK(shoal_tensor_from(SHOAL_FLOAT32, 1, (const int64_t[]){2}, batches[n], sizeof batches[n], &fed));
      assert_true(shoal_run(session, SHOAL_FEED(x, fed), SHOAL_NO_FETCHES, train));
      shoal_tensor_unref(fed);
      ASSERT_OK(shoal_session_step(shoal_train_session_raw(session), SHOAL_NO_FEEDS,
                                   SHOAL_FETCH(out[0], &v[0], out[1], &v[1]), NULL));
      assert_true(v[0] == v[1]);
      assert_float_equal(v[0], want[n], 1e-5F);
    }
  }
  ASSERT_OK(error);
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

static void batches_are_cut(void **state) {
  shoal_strategy *s = mirrored(3, 0);
  shoal_graph *g = shoal_graph_new();
  shoal_out x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, 1), "x"), parts[3];
  shoal_strategy_split(g, s, x, parts, 1);
  if (shoal_report(g)) fail();
  shoal_session *session;
  ASSERT_OK(shoal_session_open(g, &(shoal_session_options){.cpu_devices = 3}, &session));
  for (int rows = 0; rows < 8; rows++) {
    shoal_tensor *in = tensor(rows, 1, 1), *out[3];
    ASSERT_OK(shoal_session_step(session, SHOAL_FEED(x, in),
                                 SHOAL_FETCH(parts[0], &out[0], parts[1], &out[1], parts[2], &out[2]), NULL));
    for (int i = 0; i < 3; i++) {
      assert_int_equal(shoal_tensor_dim(out[i], 0), rows / 3 + (i < rows % 3));
      shoal_tensor_unref(out[i]);
    }
    shoal_tensor_unref(in);
  }
  ASSERT_OK(shoal_session_close(session));
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

static void expect(shoal_status s, const char *part) {
  assert_non_null(s);
  assert_int_equal(shoal_status_code(s), SHOAL_INVALID_ARGUMENT);
  if (!strstr(shoal_status_message(s), part)) fail_msg("'%s' is not in: %s", part, shoal_status_message(s));
}

/* What replicas bring is seen by one function, in the middle of theirs, with scopes of their own around. */
static void weigh(shoal_graph *g, shoal_strategy *s, const shoal_out *in, shoal_out *out, void *arg) {
  ++*(int *)arg;
  int n = shoal_strategy_local_replicas(s);
  shoal_out sum = shoal_strategy_reduce(g, s, SHOAL_REDUCE_SUM, in, 2);
  for (int i = 0; i < n; i++) {
    out[2 * i] = shoal_sub(g, sum, in[2 * i]);
    out[2 * i + 1] = in[2 * ((i + 1) % n) + 1]; /* a neighbour's */
  }
}

static shoal_op *merges(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  int id = shoal_replica_id(r);
  shoal_var v = shoal_variable(g, "v", shoal_constant_float(g, 1));
  shoal_out mine[2] = {shoal_constant_float(g, (float)id + 1), shoal_constant_float(g, 10.0F * (float)id)}, all[2];
  shoal_push_scope(g, "inner");
  shoal_replica_merge_call(r, weigh, arg, mine, 2, all, 2);
  shoal_out twice[2];
  shoal_replica_merge_call(r, weigh, arg, all, 2, twice, 2);
  out[0] = shoal_mul(g, all[0], v.value);
  shoal_pop_scope(g);
  out[1] = all[1];
  out[2] = twice[0];
  shoal_out sum = shoal_replica_reduce(r, SHOAL_REDUCE_SUM, out[0]);
  return shoal_variable_assign(g, v, sum);
}

static void replicas_merge(void **state) {
  for (int n = 1; n <= 3; n++) {
    shoal_strategy *s = mirrored(n, 0);
    shoal_graph *g = shoal_graph_new();
    shoal_out out[3 * 3];
    int calls = 0, sum = n * (n + 1) / 2;
    shoal_op *op = shoal_strategy_run(g, s, merges, &calls, NULL, 0, out, 3);
    if (shoal_report(g)) fail();
    assert_int_equal(calls, 2);
    assert_string_equal(shoal_op_name(out[0].node), "inner/Mul");
    shoal_op *init = shoal_initialize(g), *local = n > 1 ? shoal_initialize_local(g) : init;
    shoal_session *session;
    ASSERT_OK(shoal_session_open(g, &(shoal_session_options){.cpu_devices = n}, &session));
    ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
    ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, local));
    for (int i = 0; i < n; i++) {
      float a, b, c;
      ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS,
                                   SHOAL_FETCH(out[3 * i], &a, out[3 * i + 1], &b, out[3 * i + 2], &c), NULL));
      assert_true(a == (float)(sum - i - 1) && b == 10.0F * (float)((i + 1) % n));
      assert_true(c == (float)(n * sum - sum - (sum - i - 1)));
    }
    ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, op));
    ASSERT_OK(shoal_session_close(session));
    shoal_graph_free(g);
    shoal_strategy_free(s);
  }
}

/* Each replica counts for itself; outside there is one number. */
struct counters {
  shoal_var sum[2], mean[2];
};

static shoal_op *count(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  struct counters *c = arg;
  int id = shoal_replica_id(r);
  c->sum[id] = shoal_replica_on_read(r, "sum", shoal_constant_float(g, 10), SHOAL_REDUCE_SUM);
  c->mean[id] = shoal_replica_on_read(r, "mean", shoal_constant_float(g, 0), SHOAL_REDUCE_MEAN);
  shoal_out one = shoal_constant_float(g, (float)id + 1);
  shoal_op *both[] = {shoal_assign_add_variable_op(g, c->sum[id].handle, one),
                      shoal_assign_add_variable_op(g, c->mean[id].handle, one)};
  return shoal_group(g, both, 2, "count");
}

static void variables_are_one_when_read(void **state) {
  shoal_strategy *s = mirrored(2, 0);
  shoal_graph *g = shoal_graph_new();
  struct counters c;
  shoal_op *op = shoal_strategy_run(g, s, count, &c, NULL, 0, NULL, 0);
  shoal_out sum = shoal_strategy_read(g, s, c.sum[0]), mean = shoal_strategy_read(g, s, c.mean[0]);
  assert_int_equal(shoal_variables(g, false, NULL, 0), 0);
  shoal_op *init = shoal_initialize_local(g);
  if (shoal_report(g)) fail();
  shoal_session *session;
  ASSERT_OK(shoal_session_open(g, &(shoal_session_options){.cpu_devices = 2}, &session));
  ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  for (int i = 0; i < 3; i++) ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, op));
  float all, middle;
  ASSERT_OK(shoal_session_step(session, SHOAL_NO_FEEDS, SHOAL_FETCH(sum, &all, mean, &middle), NULL));
  assert_true(all == 2 * 10 + 3 * 3 && middle == 4.5F);
  ASSERT_OK(shoal_session_close(session));
  assert_null(shoal_strategy_read(g, s, c.sum[1]).node);
  expect(shoal_graph_error(g), "'sum/replica_1' is not a variable that shoal_replica_on_read made");
  shoal_graph_free(g);
  shoal_strategy_free(s);
}

/* ---- mistakes ---- */

static shoal_op *more_on_others(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  for (int i = 0; i <= shoal_replica_id(r); i++)
    shoal_variable(g, "v", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(2)));
  return NULL;
}
static shoal_op *fewer_on_others(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  for (int i = shoal_replica_id(r); i < 2; i++)
    shoal_variable(g, "v", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(2)));
  return NULL;
}
static shoal_op *other_shapes(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_variable(g, "v", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(2 + shoal_replica_id(r))));
  return NULL;
}
static shoal_op *first_alone_reduces(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  if (!shoal_replica_id(r)) shoal_replica_reduce(r, SHOAL_REDUCE_SUM, shoal_constant_float(g, 1));
  return NULL;
}
static shoal_op *one_does_not_merge(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  shoal_out one[2] = {shoal_constant_float(g, 1), shoal_constant_float(g, 1)}, all[2];
  int calls = 0;
  if (shoal_replica_id(r) != 1) shoal_replica_merge_call(r, weigh, &calls, one, 2, all, 2);
  return NULL;
}
static shoal_op *nests(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  return shoal_strategy_run(g, arg, more_on_others, NULL, NULL, 0, NULL, 0);
}

static void replicas_must_be_alike(void **state) {
  const struct {
    shoal_replica_fn *fn;
    const char *part;
  } cases[] = {{more_on_others, "more variables than the first"},
               {fewer_on_others, "this copy of a model has 1 variables, the first had 2"},
               {other_shapes, "its place in the first copy of the model"},
               {first_alone_reduces, "every replica must do the same"},
               {one_does_not_merge, "not all replicas have come to the same call"},
               {nests, "they do not nest"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    shoal_strategy *s = mirrored(2, 0);
    shoal_graph *g = shoal_graph_new();
    assert_null(shoal_strategy_run(g, s, cases[i].fn, s, NULL, 0, NULL, 0));
    expect(shoal_graph_error(g), cases[i].part);
    shoal_graph_free(g);
    shoal_strategy_free(s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(replicas_are_the_whole_batch),
      cmocka_unit_test(buckets_change_no_bit),
      cmocka_unit_test(what_is_dropped_goes_by_the_model),
      cmocka_unit_test(a_batch_that_cannot_be_made_ends_its_own_step),
      cmocka_unit_test(checkpoints_fit_any_number_of_replicas),
      cmocka_unit_test(optimizers_share_out_their_state),
      cmocka_unit_test(each_replica_has_its_share),
      cmocka_unit_test(parts_share_out_their_state),
      cmocka_unit_test(rows_share_out_what_changes_whole),
      cmocka_unit_test(rows_share_out_what_was_looked_up),
      cmocka_unit_test(shared_out_state_is_saved_whole),
      cmocka_unit_test(replicas_talk),
      cmocka_unit_test(gradients_are_of_the_same_variable),
      cmocka_unit_test(rows_are_reduced),
      cmocka_unit_test(rows_are_gathered_as_many_as_there_are),
      cmocka_unit_test(other_columns_are_not_gathered),
      cmocka_unit_test(uneven_rows_are_reduced),
      cmocka_unit_test(scaled_steps_are_left_out_together),
      cmocka_unit_test(batches_are_cut),
      cmocka_unit_test(replicas_merge),
      cmocka_unit_test(variables_are_one_when_read),
      cmocka_unit_test(replicas_must_be_alike),
  };
  return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
