/* `mpirun -n RANKS shoal bench allreduce --transport=mpi`: our programs of sends, receives and merges over OpenMPI's
 * messages (collective/mpi_transport.h). Rank 0 prints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/bench_rank.h"
#include "cli/cli.h"
#include "collective/choose.h"
#include "collective/mpi_transport.h"
#include "tensor/dtype.h"

struct mpi_rank {
  struct bench_rank rank; /* first */
  struct mpi_transport *mpi;
};

struct mpi_call {
  struct collective_run run;
  bool ended;
  shoal_status status;
};

static void ended(struct collective_run *r, shoal_status s) {
  struct mpi_call *c = (struct mpi_call *)r;
  c->status = s;
  c->ended = true;
}

static shoal_status reduce(struct bench_rank *b) {
  struct mpi_call c = {.ended = false};
  bench_rank_run(b, &c.run);
  c.run.done = ended;
  collective_run_start(&c.run);
  while (!c.ended) mpi_transport_progress(((struct mpi_rank *)b)->mpi);
  return c.status;
}

static void plan(struct schedule_request *r, const struct bench_case *c, size_t element) {
  int named = collective_algorithm_find(c->algorithm);
  r->operation = OPERATION_ALL_REDUCE;
  r->alignment = MAX((int64_t)(64 / element), 1);
  if (named < 0) collective_choose(r, element, &collective_usual_cost);
  else r->algorithm = (enum collective_algorithm)named;
}

static shoal_status measure(struct mpi_transport *m, const struct bench_case *c, double *seconds) {
  struct mpi_rank b = {.mpi = m};
  struct schedule program = {0};
  shoal_status s = bench_rank_init(&b.rank, c, mpi_transport_rank(m), reduce);
  plan(&b.rank.request, c, b.rank.element);
  if (!s) s = schedule_init(&program, &b.rank.request);
  b.rank.program = &program;
  b.rank.transport = mpi_transport_head(m);
  if (!s) s = bench_rank_measure(&b.rank, c, seconds);
  schedule_release(&program);
  bench_rank_release(&b.rank);
  return s;
}

static shoal_status measure_all(struct mpi_transport *m, const struct bench_list *list, struct bench_case c,
                                const char *dtype) {
  bool prints = mpi_transport_rank(m) == 0;
  double *seconds = mem_zalloc((size_t)c.iters, sizeof *seconds);
  shoal_status s = NULL;
  if (prints) bench_print_head(&c, "process", "processes", " by MPI", dtype);
  for (int i = 0; i < list->n_sizes && !s; i++)
    for (int k = 0; k < list->n_algorithms && !s; k++) {
      bench_case_size(&c, list->sizes[i]);
      c.algorithm = list->algorithms[k];
      s = measure(m, &c, seconds);
      if (!s && prints) bench_print_row(&c, seconds);
    }
  free(seconds);
  return s;
}

shoal_status bench_mpi(const struct bench_list *list, struct bench_case c, const char *dtype) {
  struct mpi_transport *m;
  TRY(mpi_transport_open(&m));
  c.ranks = mpi_transport_size(m);
  shoal_status s = measure_all(m, list, c, dtype);
  if (s) {
    report(s);
    mpi_transport_abort(m);
  }
  mpi_transport_close(m);
  return NULL;
}
