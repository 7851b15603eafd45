/* A worker of the synchronous training tests: a small model with dense and sparse gradients, trained on numbers that
 * follow from task and batch alone, so that other programs can compute the same.
 *
 *   sync_trainer CLUSTER_JSON TASK MODE key=value ...
 *
 * MODE: async, tokens, strict, bounded. Keys: data (whose batches; its own by default), same (1: the first again and
 * again), workers, aggregate, steps,
 * batches (of this worker; 0: no end), lease, staleness, tokens (at the start), ps, sleep (ms after each step), dir
 * (for checkpoints), wait (seconds, for other tasks), adam (0: plain gradient descent), refs (TensorFlow 1's kind of
 * variables). Prints "step N" after each step of its own and at the end "done STEP STALE" and each variable's numbers
 * in hex. Once there is a file of the name in $SYNC_PACE it sleeps no more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shoal/shoal.h>

enum { BATCH = 8, IN = 4, OUT = 3, ROWS = 12 };

static int64_t option(int argc, char **argv, const char *key, int64_t otherwise) {
  size_t n = strlen(key);
  for (int i = 4; i < argc; i++)
    if (!strncmp(argv[i], key, n) && argv[i][n] == '=') return strtoll(argv[i] + n + 1, NULL, 10);
  return otherwise;
}

static const char *text_option(int argc, char **argv, const char *key) {
  size_t n = strlen(key);
  for (int i = 4; i < argc; i++)
    if (!strncmp(argv[i], key, n) && argv[i][n] == '=') return argv[i] + n + 1;
  return NULL;
}

static float number(int64_t task, int64_t batch, int64_t i) {
  return (float)((task * 7919 + batch * 104729 + i * 15487 + 13) % 1000) / 500.0F - 1.0F;
}

static shoal_tensor *floats(const int64_t *dims, int rank, const float *v, size_t n) {
  shoal_tensor *t = NULL;
  shoal_status e = shoal_tensor_from(SHOAL_FLOAT32, rank, dims, v, n * sizeof *v, &t);
  shoal_status_free(e);
  return t;
}

static void make_batch(int64_t task, int64_t batch, shoal_tensor **x, shoal_tensor **y, shoal_tensor **ids) {
  float xs[BATCH * IN], ys[BATCH * OUT];
  int64_t rows[BATCH];
  for (int i = 0; i < BATCH * IN; i++) xs[i] = number(task, batch, i);
  for (int i = 0; i < BATCH * OUT; i++) ys[i] = number(task + 100, batch, i);
  for (int i = 0; i < BATCH; i++) rows[i] = (task * 5 + batch * 3 + (int64_t)i * i) % ROWS;
  *x = floats((const int64_t[]){BATCH, IN}, 2, xs, BATCH * IN);
  *y = floats((const int64_t[]){BATCH, OUT}, 2, ys, BATCH * OUT);
  shoal_status e = shoal_tensor_from(SHOAL_INT64, 1, (const int64_t[]){BATCH}, rows, sizeof rows, ids);
  shoal_status_free(e);
}

static shoal_var numbers_variable(shoal_graph *g, const char *name, int64_t rows, int64_t columns, int64_t salt) {
  float v[64];
  for (int64_t i = 0; i < rows * columns; i++) v[i] = number(salt, 0, i);
  return shoal_variable(g, name, shoal_constant_floats(g, SHOAL_SHAPE(rows, columns), v));
}

struct model {
  shoal_out x, y, ids, loss;
  shoal_var w, table, step;
};

/* mean((x w + table[ids] - y)^2) */
static struct model build(shoal_graph *g) {
  struct model m = {.x = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, IN), "x"),
                    .y = shoal_placeholder(g, SHOAL_FLOAT32, SHOAL_SHAPE(-1, OUT), "y"),
                    .ids = shoal_placeholder(g, SHOAL_INT64, SHOAL_SHAPE(-1), "ids")};
  m.w = numbers_variable(g, "w", IN, OUT, 50);
  m.table = numbers_variable(g, "table", ROWS, OUT, 60);
  m.step = shoal_global_step(g);
  shoal_out rows = shoal_embedding_lookup(g, &m.table, 1, m.ids, "mod");
  shoal_out out = shoal_add_v2(g, shoal_mat_mul(g, m.x, m.w.value), rows);
  m.loss = shoal_reduce_mean(g, shoal_squared_difference(g, out, m.y));
  return m;
}

static void print_variable(shoal_session *s, const char *name, shoal_out value) {
  shoal_tensor *t;
  shoal_status e = shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_FETCH(value, &t), NULL);
  if (e) {
    printf("%s: %s\n", name, shoal_status_message(e));
    shoal_status_free(e);
    return;
  }
  const uint32_t *bits = shoal_tensor_const_data(t);
  printf("%s", name);
  for (int64_t i = 0; i < shoal_tensor_elements(t); i++) printf(" %08x", bits[i]);
  printf("\n");
  shoal_tensor_unref(t);
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  int64_t task = strtoll(argv[2], NULL, 10), steps = option(argc, argv, "steps", 10);
  int64_t batches = option(argc, argv, "batches", 0), sleep_ms = option(argc, argv, "sleep", 0);
  const char *mode = argv[3], *pace = getenv("SYNC_PACE");
  setvbuf(stdout, NULL, _IOLBF, 0);

  shoal_server *server;
  shoal_status error =
      shoal_server_start(&(shoal_server_options){.cluster = argv[1], .job = "worker", .task = (int)task}, &server);
  if (error) return shoal_train_exit(error);

  shoal_graph *g = shoal_graph_new();
  char device[64];
  snprintf(device, sizeof device, "/job:worker/task:%d", (int)task);
  shoal_push_replica_setter(
      g, &(shoal_replica_setter){.ps_tasks = (int)option(argc, argv, "ps", 1), .worker_device = device});
  shoal_use_ref_variables(g, option(argc, argv, "refs", 0));
  struct model m = build(g);
  shoal_optimizer optimizer = option(argc, argv, "adam", 0) ? shoal_adam(0.05) : shoal_sgd(0.2);
  shoal_sync_replicas *sync = NULL;
  shoal_op *train;
  if (!strcmp(mode, "async")) {
    train = shoal_minimize(g, optimizer, m.loss, m.step);
  } else {
    sync =
        shoal_sync_replicas_new(g, optimizer,
                                &(shoal_sync_options){.mode = !strcmp(mode, "tokens")   ? SHOAL_SYNC_TOKENS
                                                              : !strcmp(mode, "strict") ? SHOAL_SYNC_STRICT
                                                                                        : SHOAL_SYNC_BOUNDED,
                                                      .replicas_to_aggregate = (int)option(argc, argv, "aggregate", 2),
                                                      .total_replicas = (int)option(argc, argv, "workers", 2),
                                                      .task = (int)task,
                                                      .staleness = (int)option(argc, argv, "staleness", 0),
                                                      .lease_ms = option(argc, argv, "lease", 0),
                                                      .init_tokens = (int)option(argc, argv, "tokens", 0)});
    train = shoal_sync_minimize(sync, m.loss, m.step);
  }
  shoal_pop_device(g);
  if (shoal_report(g)) return 1;

  shoal_hook hooks[1];
  if (sync) hooks[0] = shoal_sync_hook(sync, task == 0);
  int64_t batch = 0, step = 0, stale = 0;
  SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = task == 0, .stop_at_step = steps, .hooks = hooks,
                      .checkpoint_dir = text_option(argc, argv, "dir"), .save_steps = 20, .n_hooks = sync ? 1 : 0,
                      .max_wait_secs = (double)option(argc, argv, "wait", 0), .status = &error) {
    while (!shoal_should_stop(s) && (!batches || batch < batches)) {
      shoal_tensor *x, *y, *ids;
      make_batch(option(argc, argv, "data", task), option(argc, argv, "same", 0) ? 0 : batch, &x, &y, &ids);
      batch++;
      float loss = 0;
      if (shoal_run(s, SHOAL_FEED(m.x, x, m.y, y, m.ids, ids), SHOAL_FETCH(m.loss, &loss), train))
        printf("step %lld loss %.6f\n", (long long)batch, (double)loss);
      shoal_tensor_unref(x);
      shoal_tensor_unref(y);
      shoal_tensor_unref(ids);
      if (sleep_ms && (!pace || access(pace, F_OK)))
        nanosleep(&(struct timespec){sleep_ms / 1000, sleep_ms % 1000 * 1000000}, NULL);
    }
    shoal_session *raw = shoal_train_session_raw(s);
    shoal_status e = raw ? shoal_session_step(raw, SHOAL_NO_FEEDS, SHOAL_FETCH(m.step.value, &step), NULL) : NULL;
    if (!e && raw && sync && shoal_sync_stale(sync).node)
      e = shoal_session_step(raw, SHOAL_NO_FEEDS, SHOAL_FETCH(shoal_sync_stale(sync), &stale), NULL);
    shoal_status_free(e);
    printf("done %lld %lld\n", (long long)step, (long long)stale);
    if (raw) {
      print_variable(raw, "w", m.w.value);
      print_variable(raw, "table", m.table.value);
    }
  }
  shoal_sync_replicas_free(sync);
  shoal_graph_free(g);
  int code = shoal_train_exit(error);
  shoal_server_stop(server);
  return code;
}
