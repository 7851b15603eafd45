/* The six steps of a training job (docs/six_steps.md): split the data over workers, initialise, train, upload updates,
 * test on each worker and gather what was found, then stop, go on or train anew by a rule.
 *
 *   six_steps                                                 in this process
 *   shoal launch --ps=1 --workers=2 -- six_steps --target=0.72
 *
 * What workers find is a table on a parameter server, a row for each round and worker. Nothing is kept in a worker from
 * one round to the next: each reads all of the table and applies the same rule, so that all come to the same end, also
 * after a worker was lost, which finds its round there, and after a parameter server was, when the table is that of the
 * last checkpoint and all go back to its round. */
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
  shoal_out share, tested; /* of a test batch: what part was right, of how many */
  shoal_out found, trial, row, value, step;
};

enum decision { GO_ON, STOP, RETRAIN, GIVE_UP };

/* What was read: the table, and how often training was begun anew. */
struct state {
  shoal_tensor *found;
  const float *table; /* [MAX_ROUNDS * workers][2]: how many were right, of how many; 0 of 0: not tested yet */
  int64_t trial, step;
};

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

/* The worker's share of the test rows, all of it. */
static bool test(struct job *j, float *right, float *of) {
  *right = *of = 0;
  for (int64_t i = 0; i < j->test_batches; i++) {
    float share = 0;
    int32_t n = 0;
    if (!shoal_run(j->session, SHOAL_NO_FEEDS, SHOAL_FETCH(j->share, &share, j->tested, &n), NULL)) return false;
    *right += roundf(share * (float)n);
    *of += (float)n;
  }
  return true;
}

static bool read_state(struct job *j, struct state *s) {
  s->found = NULL;
  if (!shoal_run(j->session, SHOAL_NO_FEEDS, SHOAL_FETCH(j->found, &s->found, j->trial, &s->trial, j->step, &s->step),
                 NULL))
    return false;
  s->table = (const float *)shoal_tensor_const_data(s->found);
  return true;
}

static const float *row_of(const struct job *j, const struct state *s, int64_t round, int worker) {
  return s->table + 2 * (round * j->workers + worker);
}

/* The first round that a worker has not told of. */
static int64_t next_round(const struct job *j, const struct state *s, int worker) {
  int64_t round = 0;
  while (round < MAX_ROUNDS && row_of(j, s, round, worker)[1] > 0) round++;
  return round;
}

/* The first that somebody has not. */
static int64_t rounds_of_all(const struct job *j, const struct state *s) {
  int64_t least = MAX_ROUNDS;
  for (int w = 0; w < j->workers; w++) {
    int64_t next = next_round(j, s, w);
    if (next < least) least = next;
  }
  return least;
}

/* Of a round that all have told of. */
static double accuracy_of(const struct job *j, const struct state *s, int64_t round) {
  double right = 0, of = 0;
  for (int w = 0; w < j->workers; w++) {
    right += (double)row_of(j, s, round, w)[0];
    of += (double)row_of(j, s, round, w)[1];
  }
  return right / of;
}

/* As what round? As the table says now: it may have gone back meanwhile. */
static void upload(struct job *j, float right, float of) {
  struct state s;
  if (!read_state(j, &s)) return;
  int64_t round = next_round(j, &s, j->worker);
  shoal_tensor_unref(s.found);
  if (round == MAX_ROUNDS) return;
  const int64_t dims[2] = {1, 2}, one[1] = {1}, row[1] = {round * j->workers + j->worker};
  const float values[2] = {right, of};
  shoal_tensor *where = NULL, *what = NULL;
  check(shoal_tensor_from(SHOAL_INT64, 1, one, row, sizeof row, &where));
  check(shoal_tensor_from(SHOAL_FLOAT32, 2, dims, values, sizeof values, &what));
  shoal_run(j->session, SHOAL_FEED(j->row, where, j->value, what), SHOAL_NO_FETCHES, j->set_found);
  shoal_tensor_unref(where);
  shoal_tensor_unref(what);
}

/* ---- step 6: the rule ---- */

/* What these rounds say; *trials: how often training is to be begun anew before the next. */
static enum decision decide(const struct job *j, const struct state *s, int64_t rounds, int64_t *trials) {
  enum decision d = GO_ON;
  double best = 0;
  int64_t best_round = 0;
  *trials = 0;
  for (int64_t r = 0; r < rounds; r++) {
    double accuracy = accuracy_of(j, s, r);
    d = GO_ON;
    if (accuracy >= j->target) return STOP;
    if (accuracy > best) {
      best = accuracy;
      best_round = r;
    } else if (r - best_round >= j->patience) {
      if (*trials == j->retrains) return GIVE_UP;
      d = RETRAIN;
      ++*trials;
      best = 0;
      best_round = r + 1;
    }
  }
  return rounds == MAX_ROUNDS ? GIVE_UP : d;
}

static void tell(const struct job *j, const struct state *s, int64_t round, enum decision d) {
  static const char *const said[] = {"go on", "stop: the target is reached", "train anew, at half the rate",
                                     "stop: it gets no better"};
  const float *own = row_of(j, s, round, j->worker);
  printf("worker %d: round %lld, step %lld: accuracy %.3f of its own, %.3f of all: %s\n", j->worker, (long long)round,
         (long long)s->step, (double)(own[0] / own[1]), accuracy_of(j, s, round), said[d]);
  fflush(stdout);
}

/* ---- all of them ---- */

/* Steps 3 to 5 of one round. */
static void train_and_test(struct job *j) {
  float right, of;
  for (int64_t i = 0; i < j->round_steps && !shoal_should_stop(j->session); i++)
    shoal_run(j->session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, j->train);
  if (!shoal_should_stop(j->session) && test(j, &right, &of)) upload(j, right, of);
}

/* Until the rule says stop; false: others did not come. Each turn goes by the table alone. */
static bool run_rounds(struct job *j) {
  int64_t heard = -1, told = -1;
  double since = seconds();
  while (!shoal_should_stop(j->session)) {
    struct state s;
    if (!read_state(j, &s)) break;
    int64_t own = next_round(j, &s, j->worker), all = rounds_of_all(j, &s), trials;
    enum decision d = decide(j, &s, all, &trials);
    if (all && all != told) tell(j, &s, all - 1, d);
    told = all;
    bool anew = s.trial < trials; /* the chief does that */
    int late = 0;
    while (!anew && late < j->workers - 1 && next_round(j, &s, late) > all) late++;
    shoal_tensor_unref(s.found);
    if (d == STOP || d == GIVE_UP) return true;
    if (heard != all + s.trial) since = seconds();
    heard = all + s.trial;
    if (anew && j->is_chief) {
      shoal_run(j->session, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, j->retrain);
    } else if (!anew && own == all) {
      train_and_test(j);
      since = seconds();
    } else if (seconds() > since + j->wait_secs) {
      fprintf(stderr, "worker %d: worker %d has not %s round %lld after %.0f s\n", j->worker, late,
              anew ? "begun anew before" : "tested", (long long)all, j->wait_secs);
      return false;
    } else {
      struct timespec nap = {0, 20000000};
      nanosleep(&nap, NULL);
    }
  }
  return true;
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
  double learning_rate = 0.1, save_secs = 10;
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
      flag_real("save_secs", "how often", &save_secs),
      DEVICE_FLAG(device),
      flags_end(),
  };
  read_flags(argc, argv, "six_steps: a job that tests itself, and stops, goes on or trains anew by a rule", flags);

  shoal_cluster *cluster = find_cluster(&where);
  check_task_device(cluster, device, 1);
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
  j.test_batches = census_share(&testing);
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
  j.tested = shoal_size(g, test_labels);
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
  bool decided = true;
  SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = j.is_chief, .checkpoint_dir = checkpoint_dir,
                      .save_secs = save_secs, .session = device_session(device), .status = &error) {
    j.session = s;
    decided = run_rounds(&j);
  }
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  shoal_graph_free(g);
  shoal_columns_free(columns.set);
  int code = shoal_train_exit(error);
  return code || decided ? code : 1;
}
