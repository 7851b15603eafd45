/* What the examples share: an end with a message, flags, the cluster they run in, and Fashion-MNIST in batches. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline void check(shoal_status s) {
  if (!s) return;
  shoal_status_print(s); /* with the place of the call that returned it */
  exit(1);
}

static inline double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- flags: --name=value, --name value, or --name for those that are true or false ---- */

struct flag {
  const char *name, *help;
  const char **text; /* where the value goes: one of these */
  int64_t *number;
  double *real;
  bool *on;
};

static inline void show_help(const char *about, const struct flag *flags) {
  printf("%s\n\n", about);
  for (const struct flag *f = flags; f->name; f++) {
    printf("  --%-22s %s", f->name, f->help);
    if (f->text && *f->text && **f->text) printf(" (%s)", *f->text);
    if (f->number) printf(" (%lld)", (long long)*f->number);
    if (f->real) printf(" (%g)", *f->real);
    if (f->on) printf(" (%s)", *f->on ? "true" : "false");
    printf("\n");
  }
}

/* Fills in what the flags point to; the table ends with {0}. `--help` prints it, with the defaults in brackets. */
static inline void read_flags(int argc, char **argv, const char *about, const struct flag *flags) {
  setvbuf(stdout, NULL, _IOLBF, 0); /* whoever reads our output wants lines as they come */
  for (int i = 1; i < argc; i++) {
    const char *arg = argv[i], *name = arg + strspn(arg, "-"), *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    if (!strcmp(name, "help") || !strcmp(arg, "-h")) {
      show_help(about, flags);
      exit(0);
    }
    const struct flag *f = flags;
    while (f->name && (strlen(f->name) != n || strncmp(f->name, name, n) != 0)) f++;
    const char *value = equals ? equals + 1 : f->name && f->on ? "true" : argv[i + 1];
    if (*arg != '-' || !f->name || !value) {
      fprintf(stderr, "%s: %s %s; --help lists the flags\n", argv[0], arg,
              *arg != '-' || !f->name ? "is no flag" : "needs a value");
      exit(2);
    }
    if (!equals && !f->on) i++;
    char *end = "";
    if (f->text) *f->text = value;
    if (f->number) *f->number = strtoll(value, &end, 10);
    if (f->real) *f->real = strtod(value, &end);
    if (f->on) *f->on = !strcmp(value, "true") || !strcmp(value, "1");
    bool numeric = f->number || f->real;
    if (*end || (numeric && !*value) || (f->on && !*f->on && strcmp(value, "false") && strcmp(value, "0"))) {
      fprintf(stderr, "%s: --%s=%s: expected %s\n", argv[0], f->name, value, f->on ? "true or false" : "a number");
      exit(2);
    }
  }
}

/* ---- the cluster ---- */

struct cluster_flags {
  const char *ps_hosts, *worker_hosts, *job_name;
  int64_t task_index;
  bool insecure_bind_all;
  const char *tls_cert, *tls_key, *tls_ca;
  int threads; /* of the server, inside an op and for ops side by side; 0: one for each core */
  bool no_fast_path;
};
#define CLUSTER_FLAGS(c)                                                                             \
  {"ps_hosts", "HOST:PORT,... of the parameter servers", .text = &(c).ps_hosts},                     \
      {"worker_hosts", "HOST:PORT,... of the workers; neither: TF_CONFIG, else this process alone",  \
       .text = &(c).worker_hosts},                                                                   \
      {"job_name", "ps or worker", .text = &(c).job_name},                                           \
      {"task_index", "the number of this task in its job", .number = &(c).task_index},               \
      {"insecure_bind_all", "listen beyond this machine without TLS", .on = &(c).insecure_bind_all}, \
      {"tls_cert", "this task's certificate (PEM)", .text = &(c).tls_cert},                          \
      {"tls_key", "its key", .text = &(c).tls_key}, {                                                \
    "tls_ca", "who signs all tasks' certificates", .text = &(c).tls_ca                               \
  }

/* From the flags, or from TF_CONFIG; NULL: there is no cluster. */
static inline shoal_cluster *find_cluster(const struct cluster_flags *f) {
  shoal_cluster *c = NULL;
  const char *config = getenv("TF_CONFIG");
  if (f->ps_hosts || f->worker_hosts)
    check(shoal_cluster_from_hosts(f->ps_hosts, f->worker_hosts, f->job_name, (int)f->task_index, &c));
  else if (config && *config) check(shoal_cluster_from_config(NULL, &c));
  return c;
}

/* This task's server. A parameter server stays in here until it is told to stop. */
static inline shoal_server *start_server(const shoal_cluster *c, const struct cluster_flags *f) {
  shoal_server *server;
  check(shoal_server_start(&(shoal_server_options){.cluster = shoal_cluster_json(c),
                                                   .job = shoal_cluster_job(c),
                                                   .task = shoal_cluster_task(c),
                                                   .insecure_bind_all = f->insecure_bind_all,
                                                   .tls_cert = f->tls_cert,
                                                   .tls_key = f->tls_key,
                                                   .no_fast_path = f->no_fast_path,
                                                   .inter_op_threads = f->threads,
                                                   .intra_op_threads = f->threads,
                                                   .tls_ca = f->tls_ca},
                           &server));
  if (strcmp(shoal_cluster_job(c), "ps") != 0) return server;
  printf("listening on %s\n", shoal_server_target(server));
  exit(shoal_server_serve(server));
}

/* Where one client has used all workers: lets the others' servers end. */
static inline void stop_others(const shoal_cluster *c) {
  for (int i = 1; i < shoal_cluster_tasks(c, "worker"); i++) {
    char target[512];
    snprintf(target, sizeof target, "grpc://%s", shoal_cluster_address(c, "worker", i));
    shoal_status_free(shoal_server_remote_stop(target, 5000)); /* one that is gone already is no loss */
  }
}

/* ---- Fashion-MNIST ---- */

#define FASHION_MNIST "/usr/share/datasets/fashion-mnist" /* where Debian's dataset-fashion-mnist has it */
enum { PIXELS = 28 * 28, CLASSES = 10 };

struct data {
  shoal_tensor *images, *labels; /* [n, 784] of floats in 0..1; [n] of int64 */
  int64_t n, at;                 /* at: how far the epoch is */
  int *order;
  uint64_t seed;
};

/* which: "train" or "t10k". seed: of the order in which batches come. */
static inline struct data load_data(const char *folder, const char *which, uint64_t seed) {
  char path[1024];
  shoal_tensor *images, *labels;
  snprintf(path, sizeof path, "%s/%s-images-idx3-ubyte.gz", folder, which);
  check(shoal_read_idx(path, &images));
  snprintf(path, sizeof path, "%s/%s-labels-idx1-ubyte.gz", folder, which);
  check(shoal_read_idx(path, &labels));
  struct data d = {.n = shoal_tensor_dim(images, 0), .seed = seed * 2654435769u + 88172645463325252ull};
  if (shoal_tensor_rank(images) != 3 || shoal_tensor_elements(images) != d.n * PIXELS ||
      shoal_tensor_dtype(images) != SHOAL_UINT8 || shoal_tensor_dtype(labels) != SHOAL_UINT8 ||
      shoal_tensor_elements(labels) != d.n) {
    fprintf(stderr, "%s: these are not %lld x 28 x 28 images with as many labels\n", path, (long long)d.n);
    exit(1);
  }
  check(shoal_tensor_new(SHOAL_FLOAT32, 2, (const int64_t[]){d.n, PIXELS}, &d.images));
  check(shoal_tensor_new(SHOAL_INT64, 1, (const int64_t[]){d.n}, &d.labels));
  const unsigned char *pixel = shoal_tensor_const_data(images), *label = shoal_tensor_const_data(labels);
  float *x = shoal_tensor_data(d.images);
  int64_t *y = shoal_tensor_data(d.labels);
  for (int64_t i = 0; i < d.n * PIXELS; i++) x[i] = (float)pixel[i] / 255;
  for (int64_t i = 0; i < d.n; i++) y[i] = label[i];
  d.order = malloc((size_t)d.n * sizeof *d.order);
  for (int i = 0; i < d.n; i++) d.order[i] = i;
  d.at = d.n;
  shoal_tensor_unref(images);
  shoal_tensor_unref(labels);
  return d;
}

static inline void free_data(struct data *d) {
  shoal_tensor_unref(d->images);
  shoal_tensor_unref(d->labels);
  free(d->order);
}

static inline void shuffle(struct data *d) {
  for (int64_t i = d->n - 1; i > 0; i--) {
    d->seed ^= d->seed << 13, d->seed ^= d->seed >> 7, d->seed ^= d->seed << 17;
    int64_t k = (int64_t)(d->seed % (uint64_t)(i + 1));
    int t = d->order[i];
    d->order[i] = d->order[k];
    d->order[k] = t;
  }
}

/* The next batch, each example once an epoch. New tensors each time, for the caller to unref: a step may still share
 * those of the last one, and their memory comes from a cache. */
static inline void next_batch(struct data *d, int64_t batch, shoal_tensor **images, shoal_tensor **labels) {
  if (d->at + batch > d->n) {
    shuffle(d);
    d->at = 0;
  }
  check(shoal_tensor_new(SHOAL_FLOAT32, 2, (const int64_t[]){batch, PIXELS}, images));
  check(shoal_tensor_new(SHOAL_INT64, 1, (const int64_t[]){batch}, labels));
  const float *x = shoal_tensor_const_data(d->images);
  const int64_t *y = shoal_tensor_const_data(d->labels);
  float *to = shoal_tensor_data(*images);
  int64_t *label = shoal_tensor_data(*labels);
  for (int64_t i = 0; i < batch; i++) {
    int64_t from = d->order[d->at + i];
    memcpy(to + i * PIXELS, x + from * PIXELS, PIXELS * sizeof *x);
    label[i] = y[from];
  }
  d->at += batch;
}

/* ---- one client ---- */

/* A model that one client trains on the whole cluster. */
struct classifier {
  shoal_out x, y, loss, accuracy;
  shoal_op *train;
};

/* Trains it as the chief, batch by batch, then prints how much of the test set it tells right, and stops the other
 * tasks. */
static inline shoal_status train_alone(shoal_graph *g, const struct classifier *m, const shoal_server *server,
                                       shoal_cluster *cluster, const char *data_dir, const char *checkpoint_dir,
                                       int64_t batch_size, int64_t train_steps) {
  struct data training = load_data(data_dir, "train", 1), test = load_data(data_dir, "t10k", 1);
  shoal_progress progress = {.loss = m->loss, .examples_per_step = batch_size, .last_step = train_steps};
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = true, .checkpoint_dir = checkpoint_dir,
                      .stop_at_step = train_steps, .progress = &progress, .status = &error) {
    shoal_tensor *images, *labels;
    while (!shoal_should_stop(s)) {
      next_batch(&training, batch_size, &images, &labels);
      shoal_run(s, SHOAL_FEED(m->x, images, m->y, labels), SHOAL_NO_FETCHES, m->train);
      shoal_tensor_unref(images);
      shoal_tensor_unref(labels);
    }
    float right = 0;
    if (!shoal_preempted()) {
      check(shoal_session_step(shoal_train_session_raw(s), SHOAL_FEED(m->x, test.images, m->y, test.labels),
                               SHOAL_FETCH(m->accuracy, &right), NULL));
      printf("test accuracy %.4f\n", (double)right);
    }
  }
  stop_others(cluster);
  free_data(&training);
  free_data(&test);
  return error;
}

#endif
