/* What the examples with strategies share: the model, which is the same under each of them, its input, and the loop. */
#ifndef EXAMPLES_REPLICAS_H
#define EXAMPLES_REPLICAS_H

#include "common.h"

struct training {
  const char *data_dir, *checkpoint_dir, *device;
  struct save_flags save;
  int64_t train_steps, batch_size, hidden_units, seed;
  double learning_rate;
};
#define TRAINING_DEFAULTS \
  { FASHION_MNIST, NULL, NULL, {0, 0}, 1000, 100, 100, 1, 0.001 }
#define TRAINING_FLAGS(t)                                                                              \
  flag_path("data_dir", "the four IDX files", &(t).data_dir),                                          \
      flag_number("train_steps", "steps to end at", &(t).train_steps, 1),                              \
      flag_number("batch_size", "examples a step, of each replica", &(t).batch_size, 1),               \
      flag_real("learning_rate", "Adam's", &(t).learning_rate),                                        \
      flag_number("hidden_units", "in the hidden layer", &(t).hidden_units, 1),                        \
      flag_path("checkpoint_dir", "where the chief saves", &(t).checkpoint_dir), SAVE_FLAGS((t).save), \
      flag_number("seed", "of initial values and batches", &(t).seed, 0), DEVICE_FLAG((t).device)

/* ---- the model ---- */

enum { REPLICA_IN = 2, REPLICA_OUT = 2 }; /* images and labels; the loss of all replicas, the accuracy of this one */

static inline shoal_op *replica(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  const struct training *t = (const struct training *)arg;
  shoal_out hidden = shoal_relu(g, shoal_dense(g, in[0], t->hidden_units, "hidden"));
  shoal_out logits = shoal_dense(g, hidden, CLASSES, "logits");
  shoal_out loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, in[1]));
  out[0] = shoal_replica_reduce(r, SHOAL_REDUCE_MEAN, loss);
  out[1] = shoal_accuracy(g, logits, in[1]);
  return shoal_minimize(g, shoal_adam(t->learning_rate), loss, shoal_global_step(g));
}

/* ---- the input: the batch of a step is known by the step's number, so a run that goes on sees what it would have ----
 */

struct feeder {
  struct data data;
  shoal_batches *batches;
  int64_t rows; /* of this task's batch */
};

static inline shoal_status fill_batch(void *arg, int64_t position, shoal_tensor **values) {
  struct feeder *f = (struct feeder *)arg;
  const int64_t dims[] = {f->rows, PIXELS}, *row = shoal_batches_at(f->batches, position);
  check(shoal_tensor_new(SHOAL_FLOAT32, 2, dims, &values[0]));
  check(shoal_tensor_new(SHOAL_INT64, 1, dims, &values[1]));
  const float *pixel = (const float *)shoal_tensor_const_data(f->data.images);
  const int64_t *label = (const int64_t *)shoal_tensor_const_data(f->data.labels);
  for (int64_t i = 0; i < f->rows; i++) {
    memcpy((float *)shoal_tensor_data(values[0]) + i * PIXELS, pixel + row[i] * PIXELS, PIXELS * sizeof *pixel);
    ((int64_t *)shoal_tensor_data(values[1]))[i] = label[row[i]];
  }
  return NULL;
}

/* ---- the loop ---- */

/* Trains under any strategy. label: this task's name, or NULL. */
static inline shoal_status train_replicas(shoal_strategy *strategy, const struct training *t, bool is_chief,
                                          const char *label) {
  int local = shoal_strategy_local_replicas(strategy);
  int tasks = shoal_strategy_replicas(strategy) / local, task = shoal_strategy_first_replica(strategy) / local;
  struct feeder feeder = {load_data(t->data_dir, "train", 0), NULL, t->batch_size * local};
  check_given(shoal_batches_new(feeder.data.n, feeder.rows, (uint64_t)t->seed, task, tasks, &feeder.batches));

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, t->seed);
  shoal_out *in = (shoal_out *)calloc((size_t)(local * REPLICA_IN), sizeof *in);
  shoal_out *out = (shoal_out *)calloc((size_t)(local * REPLICA_OUT), sizeof *out);
  const shoal_out fed[] = {shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, PIXELS), "x"),
                           shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "y")};
  for (int i = 0; i < REPLICA_IN; i++) shoal_strategy_split(g, strategy, fed[i], in + i, REPLICA_IN);
  shoal_op *train = shoal_strategy_run(g, strategy, replica, (void *)t, in, REPLICA_IN, out, REPLICA_OUT);
  shoal_var step = shoal_global_step(g);
  if (shoal_report(g)) exit(1);

  /* The first replica alone is the whole model: it is tested with its own inputs. */
  struct classifier model = {in[0], in[1], out[0], out[1], train};
  struct validation validation = {0};
  if (is_chief) validation = validation_new(&model, t->data_dir, "checkpoint_dir", t->checkpoint_dir, 0);
  shoal_input position = {step.value, NULL};
  shoal_hook hooks[] = {shoal_input_hook(position, fed, REPLICA_IN, fill_batch, &feeder),
                        shoal_nan_tensor_hook(out[0], true)};
  shoal_progress progress = {
      .label = label, .loss = out[0], .examples_per_step = feeder.rows, .last_step = t->train_steps};
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, g, .checkpoint_dir = t->checkpoint_dir, .save_steps = t->save.steps,
                      .save_secs = save_secs(&t->save), .stop_at_step = t->train_steps, .hooks = hooks, .n_hooks = 2,
                      .progress = &progress, .session = device_session(t->device), .status = &error,
                      .strategy = strategy) {
    while (!shoal_should_stop(s)) shoal_run(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, train);
    if (is_chief && !shoal_preempted() && !shoal_train_session_error(s))
      validate(&validation, shoal_train_session_raw(s), t->train_steps, true);
  }
  if (is_chief) validation_free(&validation);
  shoal_batches_free(feeder.batches);
  free_data(&feeder.data);
  shoal_graph_free(g);
  free(in);
  free(out);
  return error;
}

#endif
