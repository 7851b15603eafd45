/* The six steps of a training job (docs/six_steps.md): split the data over workers, initialise, train, upload updates,
 * test on each worker and gather what was found, then stop, go on or train anew by a rule.
 *
 *   six_steps                                                 in this process
 *   shoal launch --ps=1 --workers=2 -- six_steps --target=0.72
 *
 * What workers find is a table on a parameter server, a row for each round and worker. Every worker reads all of it and
 * applies the same rule, so all come to the same end, and one that was lost and begins again finds its round there. */
#include "census.h"
#include "common.h"

enum { MAX_ROUNDS = 1000, HIDDEN = 32, CLASSES_OF_EARNERS = 2 };

struct job {
  shoal_train_session *session;
  int worker, workers;
  bool is_chief;
  int64_t round_steps, test_batches, patience, retrains;
  double target, wait_secs;
  shoal_op *train, *set_found, *retrain;
  shoal_out share, found, trial, row, value, step; /* share: of a test batch that was right */
};

enum decision { GO_ON, STOP, RETRAIN, GIVE_UP };

/* ---- steps 1 and 3: a worker's share of the data, and the model over it ---- */

static shoal_out logits_of(shoal_graph *g, struct census *data, const struct census_columns *columns,
                           shoal_out *labels) {
  shoal_out out[CENSUS_COMPONENTS];
  census_next(g, data, out);
  shoal_named_feature features[CENSUS_COMPONENTS - 1];
  memset(features, 0, sizeof features);
  for (int i = 0; i < CENSUS_COMPONENTS - 1; i++) {
    features[i].name = census_names[i];
    features[i].values = out[i];
  }
  const int32_t flat[1] = {-1};
  *labels = shoal_reshape(g, out[CENSUS_COMPONENTS - 1], shoal_constant_ints(g, SHOAL_SHAPE(1), flat));
  shoal_out x = shoal_input_layer(g, features, CENSUS_COMPONENTS - 1, columns->deep, DEEP, NULL);
  return shoal_dense(g, shoal_relu(g, shoal_dense(g, x, HIDDEN, "hidden")), CLASSES_OF_EARNERS, "logits");
}

/* What gives every variable of the model its first value again; the step counter goes on. */
static shoal_op *initialize_again(shoal_graph *g, shoal_op *first) {
  shoal_var vars[64];
  shoal_op *ops[66];
  int n = shoal_variables(g, false, vars, 64), k = 0;
  if (n > 64) n = 64;
  for (int i = 0; i < n; i++) {
    char name[512];
    const char *own = shoal_op_name(vars[i].handle.node);
    if (!strcmp(own, "global_step") || !strcmp(own, "learning_rate")) continue;
    snprintf(name, sizeof name, "%s/Assign", own);
    ops[k++] = shoal_graph_op(g, name);
  }
  ops[k++] = first;
  return shoal_group(g, ops, k, "retrain");
}

/* ---- step 5: tests, gathered ---- */

static double test(struct job *j) {
  double sum = 0;
  for (int64_t i = 0; i < j->test_batches; i++) {
    float share = 0;
    shoal_run(j->session, SHOAL_NO_FEEDS, SHOAL_FETCH(j->share, &share), NULL);
    sum += (double)share;
  }
  return sum / (double)j->test_batches;
}

/* Row ROUND * workers + WORKER of the table: the share that was right, and 1 when it is there. */
static void upload(struct job *j, int64_t round, double right) {
  const int64_t dims[2] = {1, 2}, one[1] = {1}, row[1] = {round * j->workers + j->worker};
  const float values[2] = {(float)right, 1};
  shoal_tensor *where = NULL, *what = NULL;
  check(shoal_tensor_from(SHOAL_INT64, 1, one, row, sizeof row, &where));
  check(shoal_tensor_from(SHOAL_FLOAT32, 2, dims, values, sizeof values, &what));
  shoal_run(j->session, SHOAL_FEED(j->row, where, j->value, what), SHOAL_NO_FETCHES, j->set_found);
  shoal_tensor_unref(where);
  shoal_tensor_unref(what);
}

/* How many workers have told of a round, and the mean of what they found. table: all rows. */
static int gathered(const struct job *j, const float *table, int64_t round, double *mean) {
  int came = 0;
  *mean = 0;
  for (int w = 0; w < j->workers; w++) {
    const float *row = table + 2 * (round * j->workers + w);
    if (row[1] > 0) *mean += (double)row[0];
    came += row[1] > 0;
  }
  if (came) *mean /= came;
  return came;
}

static shoal_tensor *read_found(struct job *j) {
  shoal_tensor *t = NULL;
  if (!shoal_run(j->session, SHOAL_NO_FEEDS, SHOAL_FETCH(j->found, &t), NULL)) return NULL;
  return t;
}

/* Waits until all have told of this round; false: they did not come, or this one is to stop. */
static bool gather(struct job *j, int64_t round, double *accuracy) {
  double end = seconds() + j->wait_secs;
  while (!shoal_should_stop(j->session)) {
    shoal_tensor *t = read_found(j);
    int came = t ? gathered(j, (const float *)shoal_tensor_const_data(t), round, accuracy) : 0;
    shoal_tensor_unref(t);
    if (came == j->workers) return true;
    if (seconds() > end) {
      fprintf(stderr, "worker %d: %d of %d workers have tested round %lld after %.0f s\n", j->worker, came, j->workers,
              (long long)round, j->wait_secs);
      return false;
    }
    struct timespec nap = {0, 20000000};
    nanosleep(&nap, NULL);
  }
  return false;
}

/* ---- step 6: the rule ---- */

/* What all rounds so far say; *trials: how often training was begun anew before this one. */
static enum decision decide(struct job *j, int64_t round, int64_t *trials) {
  shoal_tensor *t = read_found(j);
  if (!t) return GIVE_UP;
  const float *table = (const float *)shoal_tensor_const_data(t);
  enum decision d = GO_ON;
  double best = 0;
  int64_t best_round = 0;
  *trials = 0;
  for (int64_t r = 0; r <= round; r++) {
    double accuracy;
    gathered(j, table, r, &accuracy);
    d = GO_ON;
    if (accuracy >= j->target) d = STOP;
    if (accuracy > best) {
      best = accuracy;
      best_round = r;
    } else if (d == GO_ON && r - best_round >= j->patience) {
      d = *trials < j->retrains ? RETRAIN : GIVE_UP;
      if (d == RETRAIN && r < round) { /* that was done then */
        ++*trials;
        best = 0;
        best_round = r + 1;
      }
    }
  }
  shoal_tensor_unref(t);
  return d;
}

/* The chief begins anew and says so; others wait for it. */
static bool begin_anew(struct job *j, int64_t trial) {
  double end = seconds() + j->wait_secs;
  if (j->is_chief) return shoal_run(j->session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, j->retrain);
  while (!shoal_should_stop(j->session) && seconds() < end) {
    int64_t now = 0;
    if (shoal_run(j->session, SHOAL_NO_FEEDS, SHOAL_FETCH(j->trial, &now), NULL) && now >= trial) return true;
    struct timespec nap = {0, 20000000};
    nanosleep(&nap, NULL);
  }
  return false;
}

/* The first round that this worker has not told of: 0, but for one that was lost and begins again. */
static int64_t first_round(struct job *j) {
  shoal_tensor *t = read_found(j);
  int64_t round = 0;
  const float *table = t ? (const float *)shoal_tensor_const_data(t) : NULL;
  while (table && round < MAX_ROUNDS && table[2 * (round * j->workers + j->worker) + 1] > 0) round++;
  shoal_tensor_unref(t);
  return round;
}

static void run_rounds(struct job *j) {
  static const char *const said[] = {"go on", "stop: the target is reached", "train anew, at half the rate",
                                     "stop: it gets no better"};
  for (int64_t round = first_round(j); round < MAX_ROUNDS && !shoal_should_stop(j->session); round++) {
    int64_t step = 0, trials;
    for (int64_t i = 0; i < j->round_steps && !shoal_should_stop(j->session); i++)
      shoal_run(j->session, SHOAL_NO_FEEDS, SHOAL_FETCH(j->step, &step), j->train);
    double own = test(j), all = 0;
    upload(j, round, own);
    if (!gather(j, round, &all)) return;
    enum decision d = decide(j, round, &trials);
    printf("worker %d: round %lld, step %lld: accuracy %.3f of its own, %.3f of all: %s\n", j->worker, (long long)round,
           (long long)step, own, all, said[d]);
    fflush(stdout);
    if (d == STOP || d == GIVE_UP) return;
    if (d == RETRAIN && !begin_anew(j, trials + 1)) return;
  }
}

int main(int argc, char **argv) {
  struct cluster_flags where = {0};
  const char *checkpoint_dir = NULL, *device = NULL;
  int64_t batch_size = 100, rows = 100000, test_rows = 4000;
  struct job j;
  memset(&j, 0, sizeof j);
  j.round_steps = 200;
  j.patience = 3;
  j.retrains = 1;
  j.target = 0.75;
  j.wait_secs = 120;
  double learning_rate = 0.1;
  const struct flag flags[] = {
      CLUSTER_FLAGS(where),
      flag_number("batch_size", "examples a step, of each worker", &batch_size, 1),
      flag_number("rows", "of the table that is trained on", &rows, 1),
      flag_number("test_rows", "of the table that is tested on", &test_rows, 1),
      flag_number("round_steps", "steps of each worker in a round", &j.round_steps, 1),
      flag_real("learning_rate", "Adagrad's", &learning_rate),
      flag_real("target", "stop at this accuracy", &j.target),
      flag_number("patience", "rounds without a better one, then training begins anew", &j.patience, 1),
      flag_number("retrains", "how often at most", &j.retrains, 0),
      flag_real("wait_secs", "how long for what other workers find", &j.wait_secs),
      flag_path("checkpoint_dir", "where the chief saves", &checkpoint_dir),
      DEVICE_FLAG(device),
      flags_end(),
  };
  read_flags(argc, argv, "six_steps: a job that tests itself, and stops, goes on or trains anew by a rule", flags);

  check_device(device, 1);
  shoal_cluster *cluster = find_cluster(&where);
  need_servers(cluster);
  char here[64] = "", worker_device[DEVICE_NAME];
  int ps = 0;
  shoal_server *server = NULL;
  j.workers = 1;
  if (cluster) {
    ps = shoal_cluster_tasks(cluster, "ps");
    int chiefs = shoal_cluster_tasks(cluster, "chief");
    j.workers = shoal_cluster_tasks(cluster, "worker") + chiefs;
    j.worker = shoal_cluster_task(cluster) + (strcmp(shoal_cluster_job(cluster), "chief") ? chiefs : 0);
    snprintf(here, sizeof here, "/job:%s/task:%d", shoal_cluster_job(cluster), shoal_cluster_task(cluster));
    server = start_server(cluster, &where); /* a ps stays in there */
  }
  j.is_chief = !cluster || shoal_cluster_is_chief(cluster);
  name_device(device, here, 0, worker_device);
  struct census training = {(uint64_t)test_rows, rows, batch_size, j.worker, j.workers, true},
                testing = {0, test_rows, 100, j.worker, j.workers, true};
  j.test_batches = (test_rows / testing.batch + j.workers - 1) / j.workers;
  if (j.test_batches < 1) j.test_batches = 1;

  struct census_columns columns = census_columns_new();
  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  push_worker(g, ps, worker_device);
  shoal_var step = shoal_global_step(g);
  shoal_var rate = shoal_variable_untrained(g, "learning_rate", shoal_constant_float(g, (float)learning_rate));
  shoal_sharing *copies = shoal_sharing_new();
  shoal_out labels, test_labels;
  shoal_sharing_begin(g, copies);
  shoal_out logits = logits_of(g, &training, &columns, &labels);
  shoal_sharing_end(g, copies);
  shoal_sharing_begin(g, copies); /* the same variables over the other data */
  shoal_out test_logits = logits_of(g, &testing, &columns, &test_labels);
  j.share = shoal_accuracy(g, test_logits, test_labels);
  shoal_sharing_end(g, copies);
  shoal_sharing_free(copies);
  shoal_optimizer adagrad = shoal_adagrad(learning_rate);
  adagrad.learning_rate_out = rate.value;
  shoal_out loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, logits, labels));
  j.train = shoal_minimize(g, adagrad, loss, step);

  shoal_op *halve = shoal_variable_assign(g, rate, shoal_mul(g, rate.value, shoal_constant_float(g, 0.5f)));
  shoal_op *anew = initialize_again(g, halve);
  shoal_var trial = shoal_variable_untrained(g, "trial", shoal_constant_int64(g, 0));
  shoal_push_control(g, &anew, 1);
  j.retrain = shoal_variable_assign(g, trial, shoal_add_v2(g, trial.value, shoal_constant_int64(g, 1)));
  shoal_pop_control(g);
  shoal_var found = shoal_variable_untrained(
      g, "found", shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE((int64_t)MAX_ROUNDS * j.workers, 2)));
  j.row = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(1), "row");
  j.value = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(1, 2), "value");
  j.set_found = shoal_resource_scatter_update(g, found.handle, j.row, j.value);
  j.found = found.value;
  j.trial = trial.value;
  j.step = step.value;
  shoal_pop_device(g);
  if (shoal_graph_error(g)) return shoal_report(g);

  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = j.is_chief, .checkpoint_dir = checkpoint_dir, .save_secs = 10,
                      .session = device_session(device), .status = &error) {
    j.session = s;
    run_rounds(&j);
  }
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  shoal_graph_free(g);
  shoal_columns_free(columns.set);
  return shoal_train_exit(error);
}
