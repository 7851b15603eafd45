/* A cluster of this host, a server in each process, or one that is there, and a graph with an all-reduce on all of
 * them.
 *
 * A step of a cluster costs more than a small all-reduce. So a step has many of them one after another (CHAIN), each of
 * what the last has given: the means of means, which stay what they are, and can be checked. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/bench.h"
#include "cli/launch.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

enum { CHAIN = 100, CHAIN_BYTES = 8 << 20, WARM_UP = 3, TIMEOUT_MS = 120000 };

struct bench_servers {
  int ranks, ended, next; /* next: what no group or instance has been named by */
  pid_t pids[BENCH_MOST_RANKS];
  char *cluster, *target;
};

/* In a child: a server until the parent goes. */
static void serve(const char *cluster, int task) {
  shoal_server *server;
  shoal_status s = shoal_server_start(
      SHOAL_OPTIONS(shoal_server_options, .cluster = cluster, .job = "worker", .task = task), &server);
  if (s) _exit(report(s));
  shoal_server_join(server);
  _exit(EXIT_OK);
}

static shoal_status describe(struct bench_servers *b) {
  struct text t = {0};
  text_adds(&t, "{\"worker\": [");
  for (int i = 0; i < b->ranks; i++) {
    int port;
    shoal_status s = launch_take_port(&port);
    if (s) {
      text_release(&t);
      return s;
    }
    if (!i) b->target = mem_printf("grpc://127.0.0.1:%d", port);
    text_addf(&t, "%s\"127.0.0.1:%d\"", i ? ", " : "", port);
  }
  text_adds(&t, "]}");
  b->cluster = mem_strdup(text_cstr(&t));
  text_release(&t);
  return NULL;
}

shoal_status bench_servers_start(int ranks, struct bench_servers **out) {
  struct bench_servers *b = mem_zalloc(1, sizeof *b);
  b->ranks = ranks;
  shoal_status s = describe(b);
  pid_t parent = getpid();
  for (int i = 0; i < ranks && !s; i++) {
    b->pids[i] = bench_fork(parent);
    if (b->pids[i] == 0) serve(b->cluster, i);
    if (b->pids[i] < 0) s = STATUS(SHOAL_RESOURCE_EXHAUSTED, "process %d of %d cannot be started", i, ranks);
  }
  if (s) bench_servers_stop(b);
  else *out = b;
  return s;
}

shoal_status bench_servers_of(const char *hosts, struct bench_servers **out) {
  size_t first = strcspn(hosts, ",");
  int ranks = 1;
  for (const char *at = hosts; *at; at++) ranks += *at == ',';
  if (!first || ranks > BENCH_MOST_RANKS)
    return INVALID("--worker_hosts=%s: expected 1 to %d of HOST:PORT, with commas between", hosts, BENCH_MOST_RANKS);
  struct bench_servers *b = mem_zalloc(1, sizeof *b);
  b->ranks = ranks;
  b->target = mem_printf("grpc://%.*s", (int)first, hosts);
  b->next = (int)(getpid() % 1000000) + 1; /* those of another run are known there */
  *out = b;
  return NULL;
}

int bench_servers_ranks(const struct bench_servers *b) { return b->ranks; }

void bench_servers_stop(struct bench_servers *b) {
  for (int i = 0; i < b->ranks; i++)
    if (b->pids[i] > 0) kill(b->pids[i], SIGKILL);
  for (int i = 0; i < b->ranks; i++)
    if (b->pids[i] > 0) waitpid(b->pids[i], NULL, 0);
  free(b->cluster);
  free(b->target);
  free(b);
}

/* ---- the graph ---- */

struct bench_graph {
  shoal_graph *g;
  int chain;
  char *ends[BENCH_MOST_RANKS]; /* names of the last op of each rank */
  char *sample;                 /* of the last rank: the last element */
  char *init;
};

static shoal_out reduce(struct bench_servers *b, const struct bench_case *c, shoal_graph *g, shoal_out x, int group,
                        int instance) {
  char hint[64] = "auto";
  if (strcmp(c->algorithm, hint)) snprintf(hint, sizeof hint, "shoal:%s", c->algorithm);
  shoal_collective_reduce_options options = SHOAL_COLLECTIVE_REDUCE_DEFAULTS;
  options.communication_hint = hint;
  return shoal_collective_reduce_with(g, x, b->ranks, group, instance, "Add", "Div", (int64_t[]){0}, 1, &options);
}

/* A list of one number, which elements of large values may need all bits of. */
static shoal_out one_long(shoal_graph *g, int64_t n) {
  return shoal_reshape(g, shoal_constant_int64(g, n), shoal_constant_ints(g, SHOAL_SHAPE(1), (int32_t[]){1}));
}

static shoal_status build(struct bench_servers *b, const struct bench_case *c, struct bench_graph *out) {
  shoal_graph *g = out->g = shoal_graph_new();
  out->chain = (int)MAX(MIN(CHAIN_BYTES / c->bytes, CHAIN), 1);
  int group = ++b->next;
  shoal_out last = {0};
  for (int rank = 0; rank < b->ranks; rank++) {
    char device[64], name[64];
    snprintf(device, sizeof device, "/job:worker/task:%d/device:%s:0", rank, c->device);
    snprintf(name, sizeof name, "x%d_%d", group, rank);
    shoal_push_device(g, device);
    shoal_out x = shoal_variable(g, name, shoal_init_constant(g, c->dtype, SHOAL_SHAPE(c->elements), 2.0 * rank)).value;
    for (int i = 0; i < out->chain; i++) x = reduce(b, c, g, x, group, 1000 * group + i);
    if (x.node) out->ends[rank] = mem_strdup(shoal_op_name(x.node));
    if (rank == b->ranks - 1)
      last = shoal_cast(g, shoal_slice(g, x, one_long(g, c->elements - 1), one_long(g, 1)), SHOAL_FLOAT64);
    shoal_pop_device(g);
  }
  shoal_op *init = shoal_initialize(g);
  TRY(status_copy(shoal_graph_error(g)));
  out->sample = mem_printf("%s:0", shoal_op_name(last.node));
  out->init = mem_strdup(shoal_op_name(init));
  return NULL;
}

static void release(struct bench_servers *b, struct bench_graph *g) {
  for (int i = 0; i < b->ranks; i++) free(g->ends[i]);
  free(g->sample);
  free(g->init);
  shoal_graph_free(g->g);
}

static shoal_status run(shoal_session *s, const char *const *targets, int n) {
  return shoal_session_run(s, NULL, NULL, NULL, 0, NULL, NULL, 0, targets, n, NULL);
}

/* Ranks begin with 0, 2, 4, ...: the mean is p - 1. */
static shoal_status check(shoal_session *s, const struct bench_case *c, const struct bench_graph *g) {
  shoal_tensor *t;
  TRY(shoal_session_run(s, NULL, NULL, NULL, 0, &(const char *){g->sample}, &t, 1, (const char *const *)g->ends,
                        c->ranks, NULL));
  double got = *(const double *)shoal_tensor_data(t), wanted = c->ranks - 1;
  shoal_tensor_unref(t);
  return got == wanted ? NULL : INTERNAL("The mean of %d ranks is %g, and not %g", c->ranks, got, wanted);
}

static shoal_status time_steps(shoal_session *s, const struct bench_case *c, const struct bench_graph *g,
                               double *seconds) {
  const char *const *ends = (const char *const *)g->ends;
  TRY(run(s, &(const char *){g->init}, 1));
  TRY(check(s, c, g));
  for (int i = 0; i < WARM_UP; i++) TRY(run(s, ends, c->ranks));
  for (int i = 0; i < c->iters; i++) {
    int64_t began = clock_ns();
    TRY(run(s, ends, c->ranks));
    seconds[i] = (double)(clock_ns() - began) * 1e-9 / g->chain;
  }
  return NULL;
}

/* Says now and then for whom it waits. */
static shoal_status open_session(const struct bench_servers *b, shoal_graph *g, shoal_session **out) {
  enum { LOOK_MS = 10000, WAIT_MS = 60000 };
  for (int64_t waited = LOOK_MS;; waited += LOOK_MS) {
    shoal_status s =
        shoal_session_open(g,
                           SHOAL_OPTIONS(shoal_session_options, .target = b->target, .create_timeout_ms = LOOK_MS,
                                         .operation_timeout_ms = TIMEOUT_MS, .isolate_session_state = true),
                           out);
    bool waits = shoal_status_code(s) == SHOAL_UNAVAILABLE || shoal_status_code(s) == SHOAL_DEADLINE_EXCEEDED;
    if (!waits) return s;
    if (waited >= WAIT_MS) return status_prefix(s, "the servers were not all there within %d s: ", WAIT_MS / 1000);
    fprintf(stderr, "waiting since %d s for the servers, for at most %d s: %s\n", (int)(waited / 1000), WAIT_MS / 1000,
            shoal_status_message(s));
    shoal_status_free(s);
  }
}

shoal_status bench_servers_run(struct bench_servers *b, const struct bench_case *c, double *seconds) {
  struct bench_graph g = {0};
  shoal_session *session = NULL;
  shoal_status s = build(b, c, &g);
  if (!s) s = open_session(b, g.g, &session);
  if (!s) s = time_steps(session, c, &g, seconds);
  if (session) status_merge(&s, shoal_session_close(session));
  release(b, &g);
  return s;
}
