/* `shoal bench allreduce --simulate=RANKS[,HOSTS]`: the same programs on links that are only numbers
 * (collective/simulate.h), for more ranks than there are machines at hand; beside it what the formulas of
 * docs/algorithms.md say.
 *
 * Ranks of a host that has fewer cores take turns: all that costs them time, messages inside the host too, takes as
 * many times as long as there are ranks to a core. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "cli/bench.h"
#include "collective/choose.h"
#include "tensor/dtype.h"

enum { MOST_RANKS = 4096 };

/* "20,5,10": microseconds of latency, of overhead, and GB/s. */
static shoal_status read_link(const char *flag, const char *text, struct link_cost *out) {
  double latency, overhead, speed;
  char rest;
  if (!text) return NULL;
  if (sscanf(text, "%lf,%lf,%lf%c", &latency, &overhead, &speed, &rest) != 3 || latency < 0 || overhead < 0 ||
      !(speed > 0))
    return INVALID("--%s=%s: expected three numbers: us of latency, us of overhead, GB/s", flag, text);
  *out = (struct link_cost){latency * 1e-6, overhead * 1e-6, 1e-9 / speed};
  return NULL;
}

static shoal_status read_layout(const char *text, int *ranks, int *hosts) {
  char rest;
  *hosts = 0;
  int n = sscanf(text, "%d,%d%c", ranks, hosts, &rest);
  if (n == 1 && strchr(text, ',')) n = 0;
  if (n == 1) *hosts = *ranks;
  if (n < 1 || n > 2 || *ranks < 1 || *ranks > MOST_RANKS || *hosts < 1 || *hosts > *ranks || *ranks % *hosts)
    return INVALID("--simulate=%s: expected RANKS or RANKS,HOSTS: up to %d ranks, as many on each host", text,
                   MOST_RANKS);
  return NULL;
}

static void slow_down(struct link_cost *l, double times, bool copies) {
  l->overhead *= times;
  if (copies) l->per_byte *= times;
}

static void share_cores(struct machine_cost *c, double times) {
  if (times <= 1) return;
  slow_down(&c->inside, times, true);
  slow_down(&c->between, times, false);
  c->inside.latency *= times;
  c->merge_per_byte *= times;
  c->copy_per_byte *= times;
}

static shoal_status read_machine(const struct bench_simulation *q, struct machine_cost *cost, int *ranks, int *hosts) {
  *cost = collective_usual_cost;
  TRY(read_layout(q->layout, ranks, hosts));
  TRY(read_link("link", q->link, &cost->between));
  TRY(read_link("inside", q->inside, &cost->inside));
  if (q->cores) share_cores(cost, (double)(*ranks / *hosts) / (double)q->cores);
  return NULL;
}

static void print_row(const struct bench_case *c, enum collective_algorithm a, double seconds, double formula) {
  double bandwidth = (double)c->bytes / seconds * 1e-9;
  char by_formula[32] = "-";
  if (formula > 0) snprintf(by_formula, sizeof by_formula, "%.1f", formula * 1e6);
  printf("%12" PRId64 " %12" PRId64 "  %-12s %12.1f %12s %12.3f %12.3f\n", c->bytes, c->elements,
         collective_algorithm_names[a], seconds * 1e6, by_formula, bandwidth,
         bandwidth * 2 * (c->ranks - 1) / c->ranks);
  fflush(stdout);
}

/* The formulas are of ranks on links of one kind. */
static double formula_of(const struct schedule_request *r, const struct machine_cost *cost, int hosts, double bytes) {
  if (r->algorithm == ALGORITHM_HIERARCHICAL || (hosts > 1 && hosts < r->size)) return 0;
  return collective_estimate(r->operation, r->algorithm, r->size, bytes, cost,
                             hosts > 1 ? &cost->between : &cost->inside);
}

static shoal_status simulate_one(const struct bench_case *c, const struct machine_cost *cost, const int *of,
                                 int hosts) {
  size_t element = dtype_size(c->dtype);
  struct schedule_request r = {.operation = OPERATION_ALL_REDUCE,
                               .size = c->ranks,
                               .n = c->elements,
                               .alignment = MAX((int64_t)(64 / element), 1),
                               .hosts = of};
  int named = collective_algorithm_find(c->algorithm);
  double seconds;
  if (named < 0) collective_choose(&r, element, cost);
  else r.algorithm = (enum collective_algorithm)named;
  TRY(simulate_collective(&r, element, cost, &seconds));
  print_row(c, r.algorithm, seconds, formula_of(&r, cost, hosts, (double)c->bytes));
  return NULL;
}

static void print_head(const struct machine_cost *c, int ranks, int hosts, const char *dtype) {
  printf("# all-reduce among %d simulated rank%s on %d host%s, %s\n", ranks, ranks == 1 ? "" : "s", hosts,
         hosts == 1 ? "" : "s", dtype);
  const struct link_cost *links[] = {&c->between, &c->inside};
  for (int i = 0; i < 2; i++)
    printf("# %s: latency %.2f us, overhead %.2f us, %.3f GB/s\n", i ? "inside a host" : "between hosts",
           links[i]->latency * 1e6, links[i]->overhead * 1e6, 1e-9 / links[i]->per_byte);
  printf("%12s %12s  %-12s %12s %12s %12s %12s\n", "bytes", "elements", "algorithm", "us", "by formula", "algbw GB/s",
         "busbw GB/s");
}

shoal_status bench_simulate(const struct bench_simulation *q, const struct bench_list *list, shoal_dtype dtype,
                            const char *dtype_name) {
  struct machine_cost cost;
  struct bench_case c = {.dtype = dtype};
  int hosts;
  TRY(read_machine(q, &cost, &c.ranks, &hosts));
  int *of = mem_zalloc((size_t)c.ranks, sizeof *of);
  for (int i = 0; i < c.ranks; i++) of[i] = i / (c.ranks / hosts);
  print_head(&cost, c.ranks, hosts, dtype_name);
  shoal_status s = NULL;
  for (int i = 0; i < list->n_sizes && !s; i++)
    for (int k = 0; k < list->n_algorithms && !s; k++) {
      bench_case_size(&c, list->sizes[i]);
      c.algorithm = list->algorithms[k];
      s = simulate_one(&c, &cost, of, hosts);
    }
  free(of);
  return s;
}
