/* `shoal bench allreduce`: how long an all-reduce among processes of this host takes, size by size, as nccl-tests tell
 * it for cards.
 *
 * Algorithmic bandwidth is bytes of one rank by time. Bus bandwidth is that times 2 (p - 1) / p, the part of the bytes
 * that must enter and leave each rank however they are summed: it can be compared with what the memory or a link gives,
 * whatever the number of ranks. */
#include "cli/bench.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/cli.h"
#include "collective/schedule.h"
#include "tensor/dtype.h"

/* The next of a list that commas part; NULL: no more. */
static char *next_item(char **list) {
  char *item = *list, *comma = item ? strchr(item, ',') : NULL;
  if (comma) *comma = '\0';
  *list = comma ? comma + 1 : NULL;
  return item;
}

/* "64K", "1M". */
static bool parse_size(char *text, int64_t *out) {
  size_t n = strlen(text);
  const char *units = "KMG", *unit = n ? strchr(units, text[n - 1]) : NULL;
  int shift = unit && *unit ? 10 * (int)(unit - units + 1) : 0;
  if (shift) text[n - 1] = '\0';
  bool fits = str_to_int64(text, out) && *out >= 1 && *out <= (INT64_C(1) << 40) >> shift;
  *out = fits ? *out << shift : 0;
  return fits;
}

static shoal_status read_sizes(char *list, struct bench_list *b) {
  for (char *item; (item = next_item(&list));) {
    if (b->n_sizes == BENCH_MOST_ITEMS) return INVALID("--sizes: at most %d of them", BENCH_MOST_ITEMS);
    if (!parse_size(item, &b->sizes[b->n_sizes++]))
      return INVALID("--sizes: \"%s\" is no number of bytes to measure, 1 or more; 4096, 64K, 1M and 1G are", item);
  }
  return NULL;
}

static bool is_algorithm(const char *name) {
  int i = collective_algorithm_find(name);
  return !strcmp(name, "auto") || !strcmp(name, "bf16") ||
         (i >= 0 && collective_can(OPERATION_ALL_REDUCE, (enum collective_algorithm)i));
}

static shoal_status read_algorithms(char *list, struct bench_list *b) {
  for (char *item; (item = next_item(&list));) {
    if (b->n_algorithms == BENCH_MOST_ITEMS) return INVALID("--algorithm: at most %d of them", BENCH_MOST_ITEMS);
    b->algorithms[b->n_algorithms++] = item;
    if (is_algorithm(item)) continue;
    struct text known = {0};
    for (int i = 0; i < ALGORITHMS; i++)
      if (is_algorithm(collective_algorithm_names[i])) text_addf(&known, ", %s", collective_algorithm_names[i]);
    shoal_status s = INVALID("--algorithm: there is no \"%s\"; there are auto%s, bf16", item, text_cstr(&known));
    text_release(&known);
    return s;
  }
  return NULL;
}

static shoal_status read_dtype(const char *name, shoal_dtype *out) {
  static const shoal_dtype summed[] = {SHOAL_FLOAT32,  SHOAL_FLOAT64, SHOAL_FLOAT16,
                                       SHOAL_BFLOAT16, SHOAL_INT32,   SHOAL_INT64};
  *out = dtype_from_name(name, strlen(name));
  for (size_t i = 0; i < COUNT_OF(summed); i++)
    if (*out == summed[i]) return NULL;
  return INVALID("--dtype=%s: expected float32, float64, float16, bfloat16, int32 or int64", name);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void bench_print_row(const struct bench_case *c, double *seconds) {
  qsort(seconds, (size_t)c->iters, sizeof *seconds, by_value);
  double median = seconds[c->iters / 2], bandwidth = (double)c->bytes / median * 1e-9;
  printf("%12" PRId64 " %12" PRId64 "  %-12s %12.1f %12.1f %12.3f %12.3f\n", c->bytes, c->elements, c->algorithm,
         seconds[0] * 1e6, median * 1e6, bandwidth, bandwidth * 2 * (c->ranks - 1) / c->ranks);
  fflush(stdout);
}

void bench_print_head(const struct bench_case *c, const char *one, const char *many, const char *where,
                      const char *dtype) {
  printf("# all-reduce among %d %s%s, %s, %d time%s each\n", c->ranks, c->ranks == 1 ? one : many, where, dtype,
         c->iters, c->iters == 1 ? "" : "s");
  printf("%12s %12s  %-12s %12s %12s %12s %12s\n", "bytes", "elements", "algorithm", "min us", "median us",
         "algbw GB/s", "busbw GB/s");
}

pid_t bench_fork(pid_t parent) {
  fflush(NULL);
  pid_t pid = fork();
  if (pid) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILED);
  return 0;
}

void bench_case_size(struct bench_case *c, int64_t bytes) {
  c->elements = MAX(bytes / (int64_t)dtype_size(c->dtype), 1);
  c->bytes = c->elements * (int64_t)dtype_size(c->dtype);
}

/* hosts: of a cluster that is there; NULL: of this host. */
static shoal_status measure(const struct bench_list *list, struct bench_case c, const char *dtype, bool by_servers,
                            const char *hosts) {
  struct bench_servers *servers = NULL;
  if (hosts) TRY(bench_servers_of(hosts, &servers));
  else if (by_servers) TRY(bench_servers_start(c.ranks, &servers));
  if (hosts) c.ranks = bench_servers_ranks(servers);
  double *seconds = mem_zalloc((size_t)c.iters, sizeof *seconds);
  shoal_status s = NULL;
  bench_print_head(&c, by_servers ? "server" : "process", by_servers ? "servers" : "processes",
                   hosts ? "" : " of this host", dtype);
  for (int i = 0; i < list->n_sizes && !s; i++)
    for (int k = 0; k < list->n_algorithms && !s; k++) {
      bench_case_size(&c, list->sizes[i]);
      c.algorithm = list->algorithms[k];
      s = by_servers ? bench_servers_run(servers, &c, seconds) : bench_memory_run(&c, seconds);
      if (!s) bench_print_row(&c, seconds);
    }
  free(seconds);
  if (servers) bench_servers_stop(servers);
  return s;
}

static shoal_status check_transport(const char *name, bool by_servers, bool simulated) {
  bool memory = !strcmp(name, "memory");
  if (!memory && strcmp(name, "mpi") != 0) return INVALID("--transport=%s: there are memory and mpi", name);
  if (!memory && (by_servers || simulated))
    return INVALID("--transport=mpi goes with neither --servers nor --simulate");
  return NULL;
}

static shoal_status check(const struct bench_simulation *q, bool by_servers, bool by_mpi, const char *algorithms) {
  if (!q->layout && (q->link || q->inside || q->cores))
    return INVALID("--link, --inside and --cores are of --simulate=RANKS, which is not given");
  if (q->layout && by_servers) return INVALID("--servers measures, and --simulate does not: one of them");
  if (!by_servers && strstr(algorithms, "bf16"))
    return INVALID("--algorithm=%s: messages of bfloat16 are of --servers", algorithms);
  if (!q->layout && !by_servers && !by_mpi && strcmp(algorithms, "auto") != 0)
    return INVALID("--algorithm=%s: an algorithm is chosen with --servers; shared memory has its own", algorithms);
  return NULL;
}

static int allreduce(int argc, char **argv) {
  int64_t ranks = 2, iters = 20;
  bool by_servers = false;
  struct bench_simulation simulation = {0};
  const char *transport = "memory", *sizes = "4K,64K,1M,16M", *algorithms = "auto", *dtype = "float32";
  const char *device = "CPU", *hosts = NULL;
  const struct flag flags[] = {
      {"ranks", "N", "processes (default 2)", .number = &ranks, .min = 1, .max = BENCH_MOST_RANKS},
      {"sizes", "LIST", "bytes of each rank, 1 or more (default 4K,64K,1M,16M)", .text = &sizes},
      {"servers", NULL, "by a graph on servers, many to a step, instead of processes that do nothing else",
       .on = &by_servers},
      {"worker_hosts", "LIST",
       "--servers that are there, host:port of each worker: the ranks; those that do not come are waited for a minute",
       .text = &hosts},
      {"transport", "NAME", "without --servers: memory (default), or mpi: under mpirun, which says how many ranks",
       .text = &transport},
      {"algorithm", "LIST",
       "with --servers, --transport=mpi or --simulate: by name; auto: the cheapest, as graphs have it (default); bf16: "
       "direct, in "
       "messages of "
       "bfloat16",
       .text = &algorithms},
      {"device", "TYPE", "with --servers: CPU (default) or GPU, whose processes may share a card", .text = &device},
      {"dtype", "NAME", "float32 (default), float64, float16, bfloat16, int32 or int64", .text = &dtype},
      {"simulate", "RANKS[,HOSTS]", "instead of measuring: on links that are only numbers, up to 4096 ranks",
       .text = &simulation.layout},
      {"link", "US,US,GB_S", "with --simulate: latency, overhead of a message, speed between hosts (default 50,10,1)",
       .text = &simulation.link},
      {"inside", "US,US,GB_S", "with --simulate: the same inside a host (default 20,5,5)", .text = &simulation.inside},
      {"cores", "N", "with --simulate: that the ranks of a host share (default: each has one)",
       .number = &simulation.cores, .min = 1, .max = 1024},
      {"iters", "N", "measurements of each, after a few that do not count (default 20)", .number = &iters, .min = 1,
       .max = BENCH_MOST_ITERS},
  };
  int code;
  if (!flags_parse(
          "shoal bench allreduce [--flag=value ...]\n\n"
          "The time of an all-reduce among processes of this host, which the command starts and ends, or among the\n"
          "servers of a cluster.",
          flags, COUNT_OF(flags), &argc, argv, &code))
    return code;
  if (argc > 1) {
    fprintf(stderr, "shoal: bench allreduce: what is \"%s\"?\n", argv[1]);
    return EXIT_USAGE;
  }
  by_servers = by_servers || hosts;
  struct bench_list list = {0};
  struct bench_case c = {.ranks = (int)ranks, .iters = (int)iters, .device = device};
  char *size_items = mem_strdup(sizes), *algorithm_items = mem_strdup(algorithms);
  shoal_status s = read_dtype(dtype, &c.dtype);
  if (!s) s = read_sizes(size_items, &list);
  if (!s) s = read_algorithms(algorithm_items, &list);
  bool by_mpi = !strcmp(transport, "mpi");
  if (!s && strcmp(device, "CPU") != 0 && !by_servers) s = INVALID("--device=%s goes with --servers", device);
  if (!s) s = check_transport(transport, by_servers, simulation.layout);
  if (!s) s = check(&simulation, by_servers, by_mpi, algorithms);
  if (!s && by_mpi) s = bench_mpi(&list, c, dtype);
  else if (!s && simulation.layout) s = bench_simulate(&simulation, &list, c.dtype, dtype);
  else if (!s) s = measure(&list, c, dtype, by_servers, hosts);
  free(size_items);
  free(algorithm_items);
  return s ? report(s) : EXIT_OK;
}

int bench_main(int argc, char **argv) {
  static const struct subcommand benches[] = {{"allreduce", "among processes of this host, or servers", allreduce}};
  for (size_t i = 0; argc > 1 && i < COUNT_OF(benches); i++)
    if (!strcmp(argv[1], benches[i].name)) return benches[i].run(argc - 1, argv + 1);
  bool asked = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
  FILE *out = asked ? stdout : stderr;
  if (argc > 1 && !asked) fprintf(out, "shoal: bench: there is no \"%s\"\n", argv[1]);
  fprintf(out, "usage: shoal bench WHAT [--flag=value ...]\n\n");
  for (size_t i = 0; i < COUNT_OF(benches); i++) fprintf(out, "  %-10s %s\n", benches[i].name, benches[i].summary);
  fprintf(out, "\n`shoal bench WHAT --help` lists its flags.\n");
  return asked ? EXIT_OK : EXIT_USAGE;
}
