/* Many small collectives in a step, beside one that has the bytes of all of them.
 *
 *   many_collectives [--count=200] [--bytes=4096] [--rounds=20] [--steps=10] [--side=2] [CASE ...]
 *
 * Cases:
 *
 *   memory    a graph on two servers of this host, in memory that they share
 *   messages  the same by messages
 *   local     a graph on two logical CPUs of one process
 *   workers   a strategy of two workers, which puts gradients together in buckets
 *   apart     the same with a bucket for each variable
 *   mirrored  a strategy of two logical CPUs of one process
 *   alone     one replica, and nothing to reduce: what the same steps take without collectives
 *
 * Both sides take turns, `steps` steps at a time. Printed are the best and the median step of each, and the processor
 * time of all processes for a step, which says more where others want the cores; then how many times as much the many
 * take. --side=0 (one) or 1 (many) runs that side alone, for tools that count (strace -c -f, valgrind). */
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <shoal/shoal.h>

enum { RANKS = 2, MOST_VARIABLES = 1000, MOST_STEPS = 100000, WARM_UP = 5, GROUP = 7 };

static struct { long count, bytes, rounds, steps, side; } flags = {200, 4096, 20, 10, 2};

/* What the processes of a case share. */
static struct board {
  pid_t pids[RANKS + 1];
  atomic_int here;
  double took[2][MOST_STEPS], cpu[2];
} * board;

static double seconds(clockid_t clock) {
  struct timespec t;
  if (clock_gettime(clock, &t)) return 0;
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(shoal_status s) {
  if (!s) return;
  fprintf(stderr, "many_collectives: %s\n", shoal_status_message(s));
  exit(1);
}

static double cpu_of_all(void) {
  double sum = 0;
  for (int i = 0; i <= RANKS; i++) {
    clockid_t clock;
    if (board->pids[i] && !clock_getcpuclockid(board->pids[i], &clock)) sum += seconds(clock);
  }
  return sum;
}

static long count_of(int side) { return side ? flags.count : 1; }
static int64_t elements_of(int side) { return flags.bytes / 4 * (side ? 1 : flags.count); }

/* ---- processes ---- */

static int free_port(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(fd, (struct sockaddr *)&a, n) || getsockname(fd, (struct sockaddr *)&a, &n)) exit(1);
  close(fd);
  return ntohs(a.sin_port);
}

static char workers[64]; /* host lists */

static void choose_ports(void) {
  int first = free_port(), second = free_port();
  snprintf(workers, sizeof workers, "127.0.0.1:%d,127.0.0.1:%d", first, second);
}

static pid_t start(void (*fn)(int rank), int rank) {
  fflush(NULL);
  pid_t pid = fork();
  if (pid) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  fn(rank);
  _exit(0);
}

/* ---- measuring ---- */

typedef void (*stepper)(void *arg, int side);

/* The same number of steps in every process that takes part. */
static void measure(stepper step, void *arg, bool tells) {
  for (int side = 0; side < 2; side++)
    for (int i = 0; i < WARM_UP && flags.side != !side; i++) step(arg, side);
  for (long r = 0; r < flags.rounds; r++)
    for (int side = 0; side < 2; side++) {
      if (flags.side == !side) continue;
      double before = cpu_of_all();
      for (long i = 0; i < flags.steps; i++) {
        double began = seconds(CLOCK_MONOTONIC);
        step(arg, side);
        if (tells) board->took[side][r * flags.steps + i] = seconds(CLOCK_MONOTONIC) - began;
      }
      if (tells) board->cpu[side] += cpu_of_all() - before;
    }
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void print_case(const char *name) {
  long n = flags.rounds * flags.steps;
  double best[2], median[2], cpu[2];
  for (int side = 0; side < 2; side++) {
    qsort(board->took[side], (size_t)n, sizeof(double), by_value);
    best[side] = board->took[side][0] * 1e6;
    median[side] = board->took[side][n / 2] * 1e6;
    cpu[side] = board->cpu[side] / (double)n * 1e6;
  }
  printf("%-9s", name);
  const double *all[] = {best, median, cpu};
  for (int i = 0; i < 3; i++) printf(" %9.0f %9.0f %5.2fx", all[i][0], all[i][1], all[i][1] / all[i][0]);
  printf("\n");
}

/* ---- a graph with collectives ---- */

struct graph_steps {
  shoal_session *sessions[2];
  char *ends[2][RANKS];
};

static shoal_op *all_reduce(shoal_graph *g, const char *device, int rank, int side, const char *hint) {
  shoal_op *ends[MOST_VARIABLES];
  char name[64];
  shoal_collective_reduce_v2_options options = SHOAL_COLLECTIVE_REDUCE_V2_DEFAULTS;
  options.communication_hint = hint;
  shoal_push_device(g, device);
  for (int i = 0; i < count_of(side); i++) {
    snprintf(name, sizeof name, "x%d_%d_%d", side, rank, i);
    shoal_dims shape = SHOAL_SHAPE(elements_of(side));
    shoal_out x = shoal_variable(g, name, shoal_init_constant(g, SHOAL_FLOAT32, shape, 2.0 * rank)).value;
    ends[i] = shoal_collective_reduce_v2_with(g, x, shoal_constant_int(g, RANKS), shoal_constant_int(g, GROUP + side),
                                              shoal_constant_int(g, i + 1), NULL, 0, "Add", "Div", &options)
                  .node;
  }
  shoal_op *all = shoal_group(g, ends, (int)count_of(side), "all");
  shoal_pop_device(g);
  return all;
}

static void open_graph(struct graph_steps *s, int side, const char *const *devices, const char *target,
                       const char *hint) {
  shoal_graph *g = shoal_graph_new();
  for (int r = 0; r < RANKS; r++) {
    const shoal_op *end = all_reduce(g, devices[r], r, side, hint);
    if (end) s->ends[side][r] = strdup(shoal_op_name(end));
  }
  shoal_op *init = shoal_initialize(g);
  if (shoal_report(g)) exit(1);
  check(shoal_session_open(g,
                           SHOAL_OPTIONS(shoal_session_options, .target = target, .cpu_devices = RANKS,
                                         .create_timeout_ms = 60000, .isolate_session_state = true),
                           &s->sessions[side]));
  check(shoal_session_step(s->sessions[side], SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, init));
  shoal_graph_free(g);
}

static void graph_step(void *arg, int side) {
  struct graph_steps *s = arg;
  check(shoal_session_run(s->sessions[side], NULL, NULL, NULL, 0, NULL, NULL, 0, (const char *const *)s->ends[side],
                          RANKS, NULL));
}

static void measure_graph(const char *const *devices, const char *target, const char *hint) {
  struct graph_steps s = {0};
  for (int side = 0; side < 2; side++) open_graph(&s, side, devices, target, hint);
  measure(graph_step, &s, true);
  for (int side = 0; side < 2; side++) {
    check(shoal_session_close(s.sessions[side]));
    for (int r = 0; r < RANKS; r++) free(s.ends[side][r]);
  }
}

static void measure_servers(const char *hint) {
  static const char *const devices[] = {"/job:worker/task:0/cpu:0", "/job:worker/task:1/cpu:0"};
  char target[64];
  snprintf(target, sizeof target, "grpc://%.*s", (int)strcspn(workers, ","), workers);
  measure_graph(devices, target, hint);
}

static void client_of_memory(int rank) { measure_servers("auto"); }
static void client_of_messages(int rank) { measure_servers("shoal:direct"); }

static void local(int rank) {
  static const char *const devices[] = {"/cpu:0", "/cpu:1"};
  measure_graph(devices, NULL, "auto");
}

static shoal_server *serve(int rank, shoal_cluster **cluster) {
  shoal_server *server;
  check(shoal_cluster_from_hosts(NULL, workers, "worker", rank, cluster));
  check(shoal_server_start(
      SHOAL_OPTIONS(shoal_server_options, .cluster = shoal_cluster_json(*cluster), .job = "worker", .task = rank),
      &server));
  return server;
}

static void server(int rank) {
  shoal_cluster *cluster;
  shoal_server_join(serve(rank, &cluster));
}

/* ---- a strategy ---- */

static shoal_op *replica(shoal_graph *g, shoal_replica *r, const shoal_out *in, shoal_out *out, void *arg) {
  int side = *(const int *)arg;
  shoal_out parts[MOST_VARIABLES];
  for (int i = 0; i < count_of(side); i++) {
    char name[32];
    snprintf(name, sizeof name, "w%d_%d", side, i); /* both sides have their variables on the same servers */
    shoal_dims shape = SHOAL_SHAPE(elements_of(side));
    parts[i] =
        shoal_reduce_sum(g, shoal_square(g, shoal_variable(g, name, shoal_init_ones(g, SHOAL_FLOAT32, shape)).value));
  }
  return shoal_minimize(g, shoal_sgd(1e-3), shoal_add_n(g, parts, (int)count_of(side)), shoal_global_step(g));
}

struct strategy_steps {
  shoal_train_session *sessions[2];
  shoal_op *steps[2];
};

static void open_strategy(struct strategy_steps *s, shoal_strategy *strategy, int side) {
  shoal_graph *g = shoal_graph_new();
  s->steps[side] = shoal_strategy_run(g, strategy, replica, &side, NULL, 0, NULL, 0);
  if (shoal_report(g)) exit(1);
  check(shoal_train_session_open(
      g,
      SHOAL_OPTIONS(shoal_train_session_options, .strategy = strategy, .log_step_count_steps = -1, .no_signals = true),
      &s->sessions[side]));
}

static void strategy_step(void *arg, int side) {
  struct strategy_steps *s = arg;
  check(shoal_train_session_run(s->sessions[side], SHOAL_NO_FEEDS, SHOAL_NO_FETCHES, s->steps[side]));
}

static void train(int rank, int bucket_kib) {
  shoal_cluster *cluster;
  shoal_server *mine = serve(rank, &cluster);
  struct strategy_steps s = {0};
  for (int side = 0; side < 2; side++) {
    shoal_strategy *strategy;
    const shoal_strategy_options *options = SHOAL_OPTIONS(shoal_strategy_options, .bucket_kib = bucket_kib);
    check(shoal_strategy_new_multi_worker(cluster, mine, options, &strategy));
    open_strategy(&s, strategy, side);
  }
  measure(strategy_step, &s, rank == 0);
  atomic_fetch_add(&board->here, 1);
  while (atomic_load(&board->here) < RANKS) usleep(1000); /* nobody goes while others are in their last step */
}

static void trainer(int rank) { train(rank, 0); }
static void trainer_apart(int rank) { train(rank, (int)(flags.bytes >> 10)); }

static void mirror(int replicas) {
  struct strategy_steps s = {0};
  for (int side = 0; side < 2; side++) {
    shoal_strategy *strategy;
    check(shoal_strategy_new_mirrored(NULL, replicas, NULL, &strategy));
    open_strategy(&s, strategy, side);
  }
  measure(strategy_step, &s, true);
}

static void mirrored(int rank) { mirror(RANKS); }
static void alone(int rank) { mirror(1); }

/* ---- cases ---- */

static const struct many_case {
  const char *name;
  void (*rank)(int rank); /* (optional) a process each */
  void (*client)(int rank);
} cases[] = {{"memory", server, client_of_memory},
             {"messages", server, client_of_messages},
             {"local", NULL, local},
             {"workers", trainer, NULL},
             {"apart", trainer_apart, NULL},
             {"mirrored", NULL, mirrored},
             {"alone", NULL, alone}};

static void run_case(const struct many_case *c) {
  memset(board, 0, sizeof *board);
  choose_ports();
  for (int i = 0; c->rank && i < RANKS; i++) board->pids[i] = start(c->rank, i);
  if (c->client) board->pids[RANKS] = start(c->client, 0);
  int status = 0;
  waitpid(c->client ? board->pids[RANKS] : board->pids[0], &status, 0);
  for (int i = 0; c->rank && i < RANKS; i++) {
    kill(board->pids[i], SIGKILL);
    waitpid(board->pids[i], NULL, 0);
  }
  if (status) exit(1);
  print_case(c->name);
}

static bool wanted(const char *name, int argc, char **argv) {
  bool all = true;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], name)) return true;
    all &= argv[i][0] == '-';
  }
  return all;
}

static void read_flag(const char *text, const char *name, long least, long most, long *out) {
  size_t n = strlen(name);
  if (strncmp(text, name, n)) return;
  *out = atol(text + n);
  if (*out >= least && *out <= most) return;
  fprintf(stderr, "many_collectives: %s: expected a number from %ld to %ld\n", text, least, most);
  exit(2);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    read_flag(argv[i], "--count=", 1, MOST_VARIABLES, &flags.count);
    read_flag(argv[i], "--bytes=", 4, 1 << 24, &flags.bytes);
    read_flag(argv[i], "--rounds=", 1, 1000, &flags.rounds);
    read_flag(argv[i], "--steps=", 1, MOST_STEPS / 1000, &flags.steps);
    read_flag(argv[i], "--side=", 0, 2, &flags.side);
  }
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (board == MAP_FAILED) return 1;
  printf("# one collective of %ld bytes, and %ld of %ld: us of the best step, of the median step, of processors\n",
         flags.count * flags.bytes, flags.count, flags.bytes);
  printf("%-9s %9s %9s %6s %9s %9s %6s %9s %9s %6s\n", "case", "one best", "many", "", "median", "many", "", "cpu",
         "many", "");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (wanted(cases[i].name, argc, argv)) run_case(&cases[i]);
  return 0;
}
