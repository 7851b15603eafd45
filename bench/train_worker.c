/* A worker of bench/training.py: one model on parameter servers, as many steps as it is asked for.
 *
 * Reads lines "run N" (steps) or "until N" (of the step counter) and answers "{"seconds": S, "slowest": S, "step": N}";
 * "save PREFIX" starts a save behind the training; an end of the input ends it. train_worker.py is the same for
 * TensorFlow. */
#include "../examples/common.h"

struct model {
  shoal_out loss;
  shoal_out feeds[2];
  shoal_tensor *values[2];
  int n_feeds;
};

static shoal_tensor *random_tensor(shoal_dims shape, float scale) {
  shoal_tensor *t;
  check(shoal_tensor_new(SHOAL_FLOAT32, shape.rank, shape.at, &t));
  float *at = shoal_tensor_data(t);
  unsigned seed = 1;
  for (int64_t i = 0; i < shoal_tensor_elements(t); i++) {
    seed = seed * 1664525u + 1013904223u;
    at[i] = scale * (float)(seed >> 8) / (1 << 24);
  }
  return t;
}

static shoal_tensor *random_labels(int64_t n, int64_t below) {
  shoal_tensor *t;
  check(shoal_tensor_new(SHOAL_INT64, 1, (const int64_t[]){n}, &t));
  unsigned seed = 7;
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    ((int64_t *)shoal_tensor_data(t))[i] = (int64_t)(((uint64_t)seed * (uint64_t)below) >> 32);
  }
  return t;
}

/* x of this shape and labels of ten classes. */
static struct model classifier(shoal_graph *g, int64_t batch, shoal_dims shape) {
  struct model m = {.n_feeds = 2};
  m.values[0] = random_tensor(shape, 1);
  m.values[1] = random_labels(batch, CLASSES);
  m.feeds[0] = shoal_placeholder(g, SHOAL_FLOAT32, shape, "x");
  m.feeds[1] = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(batch), "y");
  return m;
}

static struct model build(shoal_graph *g, const char *name, int64_t batch) {
  struct model m;
  if (!strcmp(name, "embedding")) {
    /* A million rows of 64; the loss is of the rows looked up alone. */
    m = (struct model){.n_feeds = 1};
    shoal_var table = shoal_variable(g, "table", shoal_init_uniform(g, SHOAL_FLOAT32, SHOAL_SHAPE(1000000, 64), -1, 1));
    m.values[0] = random_labels(batch, 1000000);
    m.feeds[0] = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(batch), "ids");
    m.loss = shoal_reduce_mean(g, shoal_square(g, shoal_embedding_lookup(g, &table, 1, m.feeds[0], "mod")));
    return m;
  }
  if (!strcmp(name, "gigabyte")) {
    /* Ballast for a checkpoint, and a little to train. */
    m = (struct model){0};
    for (int i = 0; i < 16; i++) {
      char var[32];
      snprintf(var, sizeof var, "ballast_%d", i);
      shoal_variable_untrained(g, var, shoal_init_zeros(g, SHOAL_FLOAT32, SHOAL_SHAPE(1 << 24)));
    }
    shoal_var w = shoal_variable(g, "w", shoal_init_ones(g, SHOAL_FLOAT32, SHOAL_SHAPE(100, 100)));
    m.loss = shoal_reduce_mean(g, shoal_square(g, w.value));
    return m;
  }
  if (!strcmp(name, "variables")) {
    /* 200 of 4 KB: next to nothing is computed, all of them are pulled and pushed. */
    m = (struct model){0};
    shoal_out parts[200];
    for (int i = 0; i < 200; i++) {
      char var[32];
      snprintf(var, sizeof var, "small_%d", i);
      shoal_var w = shoal_variable(g, var, shoal_init_ones(g, SHOAL_FLOAT32, SHOAL_SHAPE(1024)));
      parts[i] = shoal_reduce_mean(g, shoal_square(g, w.value));
    }
    m.loss = shoal_add_n(g, parts, 200);
    return m;
  }
  shoal_out h;
  if (!strcmp(name, "cnn")) {
    m = classifier(g, batch, SHOAL_SHAPE(batch, 28, 28, 1));
    h = shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, m.feeds[0], 32, 5, "conv1")));
    h = shoal_flatten(g, shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, h, 64, 5, "conv2"))));
    h = shoal_relu(g, shoal_dense(g, h, 1024, "fc"));
  } else {
    bool big = !strcmp(name, "mlp_big");
    m = classifier(g, batch, SHOAL_SHAPE(batch, PIXELS));
    h = shoal_relu(g, shoal_dense(g, m.feeds[0], big ? 2048 : 100, "hidden"));
    if (big) h = shoal_relu(g, shoal_dense(g, h, 2048, "hidden2"));
  }
  m.loss = shoal_reduce_mean(g, shoal_sparse_softmax_xent(g, shoal_dense(g, h, CLASSES, "logits"), m.feeds[1]));
  return m;
}

/* Answers commands until there are no more. */
static void serve(shoal_train_session *s, const struct model *m, shoal_op *train, shoal_out step, shoal_saver *saver) {
  char line[1200];
  shoal_feed feeds[2] = {{m->feeds[0], m->values[0]}, {m->feeds[1], m->values[1]}};
  printf("{}\n");
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    if (!strncmp(line, "save ", 5)) {
      double start = seconds();
      check(shoal_saver_save_behind(saver, shoal_train_session_raw(s), line + 5, -1));
      printf("{\"seconds\": %.6f}\n", seconds() - start);
      continue;
    }
    if (!strcmp(line, "wait")) {
      double start = seconds();
      check(shoal_saver_wait(saver));
      printf("{\"seconds\": %.6f}\n", seconds() - start);
      continue;
    }
    bool until = !strncmp(line, "until ", 6);
    int64_t n = atoll(strchr(line, ' ') ? strchr(line, ' ') : "0"), at = 0;
    shoal_fetches fetches = until ? SHOAL_FETCH(step, &at) : SHOAL_NO_FETCHES;
    double start = seconds(), slowest = 0;
    for (int64_t i = 0; (until ? at : i) < n && !shoal_should_stop(s); i++) {
      double before = seconds();
      shoal_run(s, (shoal_feeds){feeds, m->n_feeds}, fetches, train);
      double took = seconds() - before;
      if (took > slowest) slowest = took;
    }
    double took = seconds() - start;
    check(shoal_session_step(shoal_train_session_raw(s), SHOAL_NO_FEEDS, SHOAL_FETCH(step, &at), NULL));
    printf("{\"seconds\": %.6f, \"slowest\": %.6f, \"step\": %lld}\n", took, slowest, (long long)at);
  }
}

int main(int argc, char **argv) {
  struct cluster_flags where = {0};
  const char *name = "mlp", *mode = "async", *checkpoint_dir = NULL;
  int64_t batch = 100, threads = 0, save_steps = -1;
  bool fast_path = true;
  read_flags(argc, argv, "train_worker: a task of bench/training.py",
             (const struct flag[]){
                 CLUSTER_FLAGS(where),
                 flag_text("model", "mlp, mlp_big, cnn, embedding, variables or gigabyte", &name),
                 flag_text("mode", "async, sync or strict", &mode),
                 flag_number("batch_size", "examples, or rows, a step", &batch, 1),
                 flag_number("threads", "in each server; 0: one a core", &threads, 0),
                 flag_on("fast_path", "between tasks of one machine, other than gRPC", &fast_path),
                 flag_text("checkpoint_dir", "to recover from", &checkpoint_dir),
                 flag_number("save_steps", "a checkpoint every so many steps", &save_steps, -1),
                 flags_end(),
             });
  static const char *const models[] = {"mlp", "mlp_big", "cnn", "embedding", "variables", "gigabyte"};
  size_t known = 0;
  while (known < sizeof models / sizeof *models && strcmp(models[known], name)) known++;
  if (known == sizeof models / sizeof *models) {
    fprintf(stderr, "train_worker: there is no model '%s'\n", name);
    return 2;
  }
  shoal_cluster *cluster = find_cluster(&where);
  if (!cluster) return 2;
  where.threads = (int)threads;
  where.no_fast_path = !fast_path;
  shoal_server *server = start_server(cluster, &where);
  int task = shoal_cluster_task(cluster);
  char device[32];
  snprintf(device, sizeof device, "/job:worker/task:%d", task);

  shoal_graph *g = shoal_graph_new();
  shoal_set_random_seed(g, 1);
  shoal_push_replica_setter(
      g, &(shoal_replica_setter){.ps_tasks = shoal_cluster_tasks(cluster, "ps"), .worker_device = device});
  shoal_var step = shoal_global_step(g);
  struct model m = build(g, name, batch);
  shoal_optimizer optimizer = m.n_feeds == 2 ? shoal_adam(0.001) : shoal_sgd(0.01);
  shoal_sync_replicas *sync = NULL;
  if (strcmp(mode, "async") != 0)
    sync = shoal_sync_replicas_new(
        g, optimizer,
        &(shoal_sync_options){.mode = !strcmp(mode, "strict") ? SHOAL_SYNC_STRICT : SHOAL_SYNC_TOKENS,
                              .replicas_to_aggregate = shoal_cluster_tasks(cluster, "worker"),
                              .task = task});
  shoal_op *train = sync ? shoal_sync_minimize(sync, m.loss, step) : shoal_minimize(g, optimizer, m.loss, step);
  shoal_pop_device(g);
  shoal_saver *saver = !strcmp(name, "gigabyte") ? shoal_saver_new(g, NULL) : NULL;
  if (shoal_graph_error(g)) return shoal_report(g);

  shoal_status error = NULL;
  shoal_hook hook = sync ? shoal_sync_hook(sync, task == 0) : (shoal_hook){0};
  SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = task == 0, .hooks = &hook, .n_hooks = sync != NULL,
                      .checkpoint_dir = checkpoint_dir, .save_steps = save_steps, .save_summaries_steps = -1,
                      .log_step_count_steps = -1, .status = &error)
  serve(s, &m, train, step.value, saver);
  shoal_saver_free(saver);
  shoal_sync_replicas_free(sync);
  for (int i = 0; i < m.n_feeds; i++) shoal_tensor_unref(m.values[i]);
  shoal_graph_free(g);
  shoal_server_stop(server);
  shoal_cluster_free(cluster);
  return shoal_train_exit(error);
}
