/* What the examples share: an end with a message, the cluster they run in, Fashion-MNIST in batches, and how well a
 * model does on it. */
#ifndef EXAMPLES_COMMON_H
#define EXAMPLES_COMMON_H

#include <shoal/shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "flags.h"

static inline void check(shoal_status s) {
  if (!s) return;
  shoal_status_print(s); /* with the place of the call that returned it */
  exit(1);
}

/* The same for what the user can mend, as flags are: the line of the program is no help there. */
static inline void check_given(shoal_status s) {
  if (!s) return;
  fprintf(stderr, "%s: %s\n", program_name, shoal_status_message(s));
  exit(shoal_status_code(s) == SHOAL_INVALID_ARGUMENT ? 2 : 1);
}

/* The same for what one flag was given. */
static inline void check_flag(shoal_status s, const char *flag, const char *given) {
  if (!s) return;
  fprintf(stderr, "%s: --%s=%s: %s\n", program_name, flag, given, shoal_status_message(s));
  exit(2);
}

/* Opens event files in a folder that the user gave by a flag. */
static inline shoal_events *open_events(const char *flag, const char *given, const char *dir) {
  shoal_events *events = NULL;
  check_flag(shoal_events_open(dir, &events), flag, given);
  return events;
}

static inline double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the cluster ---- */

struct cluster_flags {
  const char *ps_hosts, *worker_hosts, *chief_hosts, *job_name;
  int64_t task_index;
  bool insecure_bind_all;
  const char *tls_cert, *tls_key, *tls_ca;
  int threads; /* of the server, inside an op and for ops side by side; 0: one for each core */
  bool no_fast_path;
  bool coordination; /* its service: tasks tell each other values, and meet */
};
#define CLUSTER_FLAGS(c)                                                                                     \
  flag_text("ps_hosts", "HOST:PORT,... of the parameter servers", &(c).ps_hosts),                            \
      flag_text("worker_hosts", "HOST:PORT,... of the workers; neither: TF_CONFIG, else this process alone", \
                &(c).worker_hosts),                                                                          \
      flag_text("chief_hosts", "HOST:PORT of a chief beside the workers", &(c).chief_hosts),                 \
      flag_text("job_name", "ps, worker or chief", &(c).job_name),                                           \
      flag_number("task_index", "the number of this task in its job", &(c).task_index, 0),                   \
      flag_on("insecure_bind_all", "listen beyond this machine without TLS", &(c).insecure_bind_all),        \
      flag_path("tls_cert", "this task's certificate (PEM)", &(c).tls_cert),                                 \
      flag_path("tls_key", "its key", &(c).tls_key),                                                         \
      flag_path("tls_ca", "who signs all tasks' certificates", &(c).tls_ca)

/* How often the chief saves. */
struct save_flags {
  double secs;
  int64_t steps;
};
#define SAVE_FLAGS(s)                                                                                    \
  flag_real("save_checkpoint_secs", "a checkpoint every so often; 0: every 30, or by steps", &(s).secs), \
      flag_number("save_checkpoint_steps", "a checkpoint every so many steps; 0: by seconds", &(s).steps, 0)
static inline double save_secs(const struct save_flags *s) { return s->secs > 0 || s->steps > 0 ? s->secs : 30; }
static inline void check_save(const struct save_flags *s, const char *checkpoint_dir) {
  if (!checkpoint_dir && (s->secs > 0 || s->steps > 0))
    refuse("--save_checkpoint_secs and --save_checkpoint_steps are for --checkpoint_dir, which is not given");
}

/* From the flags, or from TF_CONFIG; NULL: there is no cluster. */
static inline shoal_cluster *find_cluster(const struct cluster_flags *f) {
  shoal_cluster *c = NULL;
  const char *config = getenv("TF_CONFIG");
  /* The client in this process has certificates to show, too: it looks for them in the environment. */
  if (f->tls_cert) setenv("SHOAL_TLS_CERT", f->tls_cert, 1);
  if (f->tls_key) setenv("SHOAL_TLS_KEY", f->tls_key, 1);
  if (f->tls_ca) setenv("SHOAL_TLS_CA", f->tls_ca, 1);
  if (f->ps_hosts || f->worker_hosts || f->chief_hosts)
    check_given(shoal_cluster_from_hosts_with_chief(f->chief_hosts, f->ps_hosts, f->worker_hosts, f->job_name,
                                                    f->task_index > INT32_MAX ? INT32_MAX : (int)f->task_index, &c));
  else if (config && *config) check_given(shoal_cluster_from_config(NULL, &c));
  else if (f->job_name) {
    fprintf(stderr,
            "%s: --job_name=%s of which cluster? --ps_hosts and --worker_hosts, or TF_CONFIG, say where it is\n",
            program_name, f->job_name);
    exit(2);
  }
  if (!c && (f->task_index || f->insecure_bind_all || f->tls_cert || f->tls_key || f->tls_ca))
    refuse(
        "--task_index, --insecure_bind_all and --tls_* are for a task of a cluster, and there is none: --ps_hosts, "
        "--worker_hosts, --job_name, or TF_CONFIG, say what it is");
  return c;
}

/* For workers that share one model. */
static inline void need_servers(const shoal_cluster *c) {
  if (c && !shoal_cluster_tasks(c, "ps") && shoal_cluster_tasks(c, "worker") + shoal_cluster_tasks(c, "chief") > 1)
    refuse(
        "several workers train one model on parameter servers, and there are none: --ps_hosts (shoal launch --ps=1)");
}

/* This task's server. A parameter server stays in here until training has ended, or until it is told to stop. */
static inline shoal_server *start_server(const shoal_cluster *c, const struct cluster_flags *f) {
  shoal_server *server;
  check_given(shoal_server_start(
      SHOAL_OPTIONS(shoal_server_options, .cluster = shoal_cluster_json(c), .job = shoal_cluster_job(c),
                    .task = shoal_cluster_task(c), .inter_op_threads = f->threads, .intra_op_threads = f->threads,
                    .insecure_bind_all = f->insecure_bind_all, .tls_cert = f->tls_cert, .tls_key = f->tls_key,
                    .tls_ca = f->tls_ca, .no_fast_path = f->no_fast_path, .coordination_service = f->coordination),
      &server));
  if (strcmp(shoal_cluster_job(c), "ps") != 0) return server;
  printf("listening on %s\n", shoal_server_target(server));
  exit(shoal_server_serve(server));
}

/* What is built from here to shoal_pop_device: variables on the parameter servers in turn, all else on this device;
 * without parameter servers all of it is there. */
static inline void push_worker(shoal_graph *g, int ps_tasks, const char *device) {
  if (!ps_tasks) shoal_push_device(g, device);
  else shoal_push_replica_setter(g, SHOAL_OPTIONS(shoal_replica_setter, .ps_tasks = ps_tasks, .worker_device = device));
}

/* Where one client has used all workers: lets the others' servers end. */
static inline void stop_others(const shoal_cluster *c) {
  int first = strcmp(shoal_cluster_job(c), "worker") == 0; /* else the client is a chief, and all workers are others */
  for (int i = first; i < shoal_cluster_tasks(c, "worker"); i++) {
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

/* One of the four files. */
static inline shoal_tensor *load_file(const char *folder, const char *which, const char *what) {
  char path[1024];
  shoal_tensor *t = NULL;
  snprintf(path, sizeof path, "%s/%s-%s-ubyte.gz", folder, which, what);
  shoal_status s = shoal_read_idx(path, &t);
  if (shoal_status_code(s) == SHOAL_NOT_FOUND) {
    fprintf(stderr,
            "%s: there is no %s: Fashion-MNIST is Debian's package dataset-fashion-mnist, or say where it is: "
            "--data_dir=DIR\n",
            program_name, path);
    exit(1);
  }
  check(s);
  return t;
}

/* which: "train" or "t10k". seed: of the order in which batches come. */
static inline struct data load_data(const char *folder, const char *which, uint64_t seed) {
  shoal_tensor *images = load_file(folder, which, "images-idx3"), *labels = load_file(folder, which, "labels-idx1");
  struct data d = {.n = shoal_tensor_dim(images, 0), .seed = seed * 2654435769u + 88172645463325252ull};
  if (shoal_tensor_rank(images) != 3 || shoal_tensor_elements(images) != d.n * PIXELS ||
      shoal_tensor_dtype(images) != SHOAL_UINT8 || shoal_tensor_dtype(labels) != SHOAL_UINT8 ||
      shoal_tensor_elements(labels) != d.n) {
    fprintf(stderr, "%s: %s of %s: these are not %lld x 28 x 28 images with as many labels\n", program_name, which,
            folder, (long long)d.n);
    exit(1);
  }
  const int64_t dims[] = {d.n, PIXELS};
  check(shoal_tensor_new(SHOAL_FLOAT32, 2, dims, &d.images));
  check(shoal_tensor_new(SHOAL_INT64, 1, dims, &d.labels));
  const unsigned char *pixel = (const unsigned char *)shoal_tensor_const_data(images);
  const unsigned char *label = (const unsigned char *)shoal_tensor_const_data(labels);
  float *x = (float *)shoal_tensor_data(d.images);
  int64_t *y = (int64_t *)shoal_tensor_data(d.labels);
  for (int64_t i = 0; i < d.n * PIXELS; i++) x[i] = (float)pixel[i] / 255;
  for (int64_t i = 0; i < d.n; i++) y[i] = label[i];
  d.order = (int *)malloc((size_t)d.n * sizeof *d.order);
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
  if (batch > d->n) {
    fprintf(stderr, "%s: a batch of %lld: there are %lld examples\n", program_name, (long long)batch, (long long)d->n);
    exit(2);
  }
  if (d->at + batch > d->n) {
    shuffle(d);
    d->at = 0;
  }
  const int64_t dims[] = {batch, PIXELS};
  check(shoal_tensor_new(SHOAL_FLOAT32, 2, dims, images));
  check(shoal_tensor_new(SHOAL_INT64, 1, dims, labels));
  const float *x = (const float *)shoal_tensor_const_data(d->images);
  const int64_t *y = (const int64_t *)shoal_tensor_const_data(d->labels);
  float *to = (float *)shoal_tensor_data(*images);
  int64_t *label = (int64_t *)shoal_tensor_data(*labels);
  for (int64_t i = 0; i < batch; i++) {
    int64_t from = d->order[d->at + i];
    memcpy(to + i * PIXELS, x + from * PIXELS, PIXELS * sizeof *x);
    label[i] = y[from];
  }
  d->at += batch;
}

/* ---- how well a model does ---- */

/* A classifier: its inputs, and what is computed of them. */
struct classifier {
  shoal_out x, y, loss, accuracy;
  shoal_op *train;
};

/* The share of d that the model tells right, in pieces that any message can carry. */
static inline shoal_status measure(shoal_session *session, const struct classifier *m, struct data *d, float *right) {
  const int64_t piece = d->n < 1000 ? d->n : 1000, pieces = d->n / piece;
  double sum = 0;
  for (int64_t i = 0; i < pieces; i++) {
    shoal_tensor *images, *labels;
    float share = 0;
    next_batch(d, piece, &images, &labels);
    shoal_status s =
        shoal_session_step(session, SHOAL_FEED(m->x, images, m->y, labels), SHOAL_FETCH(m->accuracy, &share), NULL);
    shoal_tensor_unref(images);
    shoal_tensor_unref(labels);
    if (s) return s;
    sum += (double)share;
  }
  *right = (float)(sum / (double)pieces);
  return NULL;
}

/* Validation while training goes on, and the test at its end: printed, the test's last of all, and written to event
 * files in a folder of their own, which TensorBoard shows beside the training's. */
struct validation {
  const struct classifier *model;
  struct data data;
  shoal_events *events; /* NULL: nothing is written */
  int64_t every, next;  /* global steps; every 0: only at the end */
  float tested;         /* the accuracy at the end; -1: nothing was tested */
};

/* log_dir (or NULL) is what the user gave by that flag. */
static inline struct validation validation_new(const struct classifier *m, const char *data_dir, const char *flag,
                                               const char *log_dir, int64_t every) {
  struct validation v = {m, load_data(data_dir, "t10k", 1), NULL, every, every, -1};
  char path[1024];
  snprintf(path, sizeof path, "%s/validation", log_dir ? log_dir : "");
  if (log_dir) v.events = open_events(flag, log_dir, path);
  return v;
}

/* The step that a training has ended at: where it was told to, unless it was past that when it began. */
static inline int64_t step_reached(shoal_train_session *s, int64_t train_steps) {
  int64_t began = shoal_train_session_created(s)->global_step;
  return began > train_steps ? began : train_steps;
}

/* Called after each step, with the global step, and once with last at the end. */
static inline void validate(struct validation *v, shoal_session *session, int64_t step, bool last) {
  if (!last && (!v->every || step < v->next)) return;
  v->next = v->every ? (step / v->every + 1) * v->every : 0;
  float right = 0;
  shoal_status s = session ? measure(session, v->model, &v->data, &right) : NULL;
  if (!session || s) { /* a task is gone: the next step says so */
    shoal_status_free(s);
    return;
  }
  if (last) v->tested = right;
  else printf("step %lld: validation accuracy %.4f\n", (long long)step, (double)right);
  /* On a full disk there is still a model to be saved. */
  if (v->events) s = shoal_events_scalar(v->events, step, last ? "test_accuracy" : "validation_accuracy", right);
  if (s) fprintf(stderr, "%s: %s\n", program_name, shoal_status_message(s));
  shoal_status_free(s);
}

/* Called when the session has ended: what it saved has been said. */
static inline void validation_free(struct validation *v) {
  if (v->tested >= 0) printf("test accuracy %.4f\n", (double)v->tested);
  shoal_status s = v->events ? shoal_events_close(v->events) : NULL;
  if (s) fprintf(stderr, "%s: %s\n", program_name, shoal_status_message(s));
  shoal_status_free(s);
  free_data(&v->data);
}

/* ---- one client ---- */

/* Trains a model that one client runs on the whole cluster, as the chief, batch by batch, then prints how much of the
 * test set it tells right, and stops the other tasks. */
static inline shoal_status train_alone(shoal_graph *g, const struct classifier *m, const shoal_server *server,
                                       shoal_cluster *cluster, const char *data_dir, const char *checkpoint_dir,
                                       const struct save_flags *save, int64_t batch_size, int64_t train_steps,
                                       const char *device) {
  struct data training = load_data(data_dir, "train", 1);
  struct validation v = validation_new(m, data_dir, "checkpoint_dir", checkpoint_dir, 0);
  shoal_progress progress = {.loss = m->loss, .examples_per_step = batch_size, .last_step = train_steps};
  shoal_status error = NULL;
  SHOAL_TRAIN_SESSION(s, g, .server = server, .is_chief = true, .checkpoint_dir = checkpoint_dir,
                      .save_steps = save->steps, .save_secs = save_secs(save), .stop_at_step = train_steps,
                      .progress = &progress, .session = device_session(device), .status = &error) {
    shoal_tensor *images, *labels;
    while (!shoal_should_stop(s)) {
      next_batch(&training, batch_size, &images, &labels);
      shoal_run(s, SHOAL_FEED(m->x, images, m->y, labels), SHOAL_NO_FETCHES, m->train);
      shoal_tensor_unref(images);
      shoal_tensor_unref(labels);
    }
    if (!shoal_preempted() && !shoal_train_session_error(s))
      validate(&v, shoal_train_session_raw(s), step_reached(s, train_steps), true);
  }
  stop_others(cluster);
  free_data(&training);
  validation_free(&v);
  return error;
}

#endif
