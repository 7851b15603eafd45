/* Saving a large model: how long training is held up, and how near to the disk's own speed the checkpoint is written.
 *
 *   saving [--bytes=N] [--variables=N] [--rounds=N] [DIR]
 *
 * Steps of gradient descent over all variables go on while a checkpoint is written behind them. Each round also writes
 * a plain file of the same size (write, fsync) beside the same training, and one while nothing else is done: the first
 * is what the disk gives a process on a machine that is busy training, the second what it gives at best. Held up: the
 * snapshot and the longest step of a save, less the median of steps without one. Twice: in this process, and with the
 * variables on a parameter server. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shoal/shoal.h>

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(shoal_status s) {
  if (!s) return;
  fprintf(stderr, "saving: %s\n", shoal_status_message(s));
  exit(1);
}

static long flag(int argc, char **argv, const char *name, long otherwise) {
  for (int i = 1; i < argc; i++)
    if (!strncmp(argv[i], name, strlen(name))) return atol(argv[i] + strlen(name));
  return otherwise;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, by_value);
  return v[n / 2];
}

/* Seconds for a plain file of so many bytes. */
static double plain_write(const char *path, long bytes) {
  enum { PIECE = 1 << 20 };
  char *piece = malloc(PIECE);
  memset(piece, 7, PIECE);
  double start = seconds();
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  for (long done = 0; done < bytes; done += PIECE)
    if (write(fd, piece, PIECE) != PIECE) check(shoal_checkpoint_int(path, "no room", &(int64_t){0}));
  fsync(fd);
  close(fd);
  double took = seconds() - start;
  unlink(path);
  free(piece);
  return took;
}

struct model {
  shoal_graph *g;
  shoal_op *train, *init;
  shoal_saver *saver;
};

static struct model build(long bytes, int variables, const char *device) {
  struct model m = {.g = shoal_graph_new()};
  int64_t size = bytes / 4 / variables;
  shoal_op **updates = calloc((size_t)variables, sizeof *updates);
  shoal_push_device(m.g, device);
  shoal_out gradient = shoal_init_ones(m.g, SHOAL_FLOAT32, SHOAL_SHAPE(size));
  for (int i = 0; i < variables; i++) {
    shoal_var v = shoal_variable(m.g, "v", shoal_init_zeros(m.g, SHOAL_FLOAT32, SHOAL_SHAPE(size)));
    shoal_builder *b = shoal_build(m.g, "ResourceApplyGradientDescent", NULL);
    shoal_build_input(b, v.handle);
    shoal_build_input(b, shoal_constant_float(m.g, 0.1f));
    shoal_build_input(b, gradient);
    updates[i] = shoal_build_end(b);
  }
  shoal_pop_device(m.g);
  m.train = shoal_group(m.g, updates, variables, "train");
  m.saver = shoal_saver_new(m.g, &(shoal_saver_options){.max_to_keep = 1});
  m.init = shoal_initialize(m.g);
  free(updates);
  if (shoal_report(m.g)) exit(1);
  return m;
}

static double step(shoal_session *s, const struct model *m) {
  double start = seconds();
  check(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m->train));
  return seconds() - start;
}

/* Something written by a thread while training goes on. */
struct writing {
  shoal_saver *saver; /* NULL: a plain file */
  const char *path;
  long bytes;
  atomic_bool done;
};

static void *write_it(void *arg) {
  struct writing *w = arg;
  if (w->saver) check(shoal_saver_wait(w->saver));
  else plain_write(w->path, w->bytes);
  atomic_store(&w->done, true);
  return NULL;
}

/* Steps until it is written: the longest. */
static double train_beside(shoal_session *s, const struct model *m, struct writing *w) {
  pthread_t thread;
  double longest = 0;
  atomic_store(&w->done, false);
  if (pthread_create(&thread, NULL, write_it, w)) exit(1);
  while (!atomic_load(&w->done)) {
    double t = step(s, m);
    if (t > longest) longest = t;
  }
  pthread_join(thread, NULL);
  return longest;
}

static void measure(const char *where, const char *target, const char *device, long bytes, int variables, int rounds,
                    const char *dir) {
  enum { BEFORE = 8, MOST = 64 };
  struct model m = build(bytes, variables, device);
  shoal_session *s;
  check(shoal_session_open(m.g, &(shoal_session_options){.target = target}, &s));
  check(shoal_session_step(s, SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, m.init));
  char prefix[600], plain[600];
  snprintf(prefix, sizeof prefix, "%s/model.ckpt", dir);
  snprintf(plain, sizeof plain, "%s/plain", dir);
  double held[MOST], speed[MOST], beside[MOST], alone[MOST], of_beside[MOST], of_alone[MOST];
  for (int r = 0; r < rounds; r++) {
    double quiet[BEFORE], mb = (double)bytes / 1e6;
    for (int i = 0; i < BEFORE; i++) quiet[i] = step(s, &m);
    double usual = median(quiet, BEFORE), start = seconds();
    check(shoal_saver_save_behind(m.saver, s, prefix, r));
    held[r] = seconds() - start - usual;
    held[r] += train_beside(s, &m, &(struct writing){.saver = m.saver});
    speed[r] = mb / (seconds() - start);
    start = seconds();
    train_beside(s, &m, &(struct writing){.path = plain, .bytes = bytes});
    beside[r] = mb / (seconds() - start);
    alone[r] = mb / plain_write(plain, bytes);
    of_beside[r] = 100 * speed[r] / beside[r];
    of_alone[r] = 100 * speed[r] / alone[r];
  }
  printf(
      "%-22s held up %6.3f s (aim 0.2)   written at %5.0f MB/s; a plain file beside the same training at %5.0f "
      "MB/s: %3.0f %% (aim 70), alone at %5.0f MB/s: %3.0f %%\n",
      where, median(held, rounds), median(speed, rounds), median(beside, rounds), median(of_beside, rounds),
      median(alone, rounds), median(of_alone, rounds));
  shoal_saver_free(m.saver);
  check(shoal_session_close(s));
  shoal_graph_free(m.g);
}

int main(int argc, char **argv) {
  long bytes = flag(argc, argv, "--bytes=", 1L << 30);
  int variables = (int)flag(argc, argv, "--variables=", 32), rounds = (int)flag(argc, argv, "--rounds=", 5);
  const char *parent = "/tmp";
  for (int i = 1; i < argc; i++)
    if (*argv[i] != '-') parent = argv[i];
  char dir[400], command[500];
  snprintf(dir, sizeof dir, "%s/shoal-saving-XXXXXX", parent);
  if (!mkdtemp(dir) || rounds < 1 || rounds > 64 || variables < 1) return 2;
  printf("saving %.2f GB in %d variables\n", (double)bytes / 1e9, variables);
  measure("in this process", "", "", bytes, variables, rounds, dir);

  const char *cluster = "{\"ps\": [\"localhost:0\"]}";
  shoal_server *ps;
  check(shoal_server_start(&(shoal_server_options){.cluster = cluster, .job = "ps"}, &ps));
  measure("on a parameter server", shoal_server_target(ps), "/job:ps/task:0", bytes, variables, rounds, dir);
  shoal_server_stop(ps);
  snprintf(command, sizeof command, "rm -rf '%s'", dir);
  return system(command) != 0;
}
