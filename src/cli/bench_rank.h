/* One rank of an all-reduce that is measured without servers: its values, and how often it is done. Sums are made in
 * place, by the loops that collective ops merge with. */
#ifndef CLI_BENCH_RANK_H
#define CLI_BENCH_RANK_H

#include "cli/bench.h"
#include "collective/run.h"
#include "ops/control/collective_loops.h"

struct bench_rank {
  struct collective_transport *transport;       /* the caller's */
  shoal_status (*reduce)(struct bench_rank *b); /* does one, and waits for it */
  const struct schedule *program;               /* NULL: of transports that do it all */
  struct collective_loops loops;
  struct schedule_request request;
  void *data;
  size_t element;
  int instance;
};

shoal_status bench_rank_init(struct bench_rank *b, const struct bench_case *c, int rank,
                             shoal_status (*reduce)(struct bench_rank *b));
void bench_rank_release(struct bench_rank *b);
/* All of the next one but how it ends. */
void bench_rank_run(struct bench_rank *b, struct collective_run *out);
/* seconds NULL: another rank has the clock. A sum that is wrong is INTERNAL. */
shoal_status bench_rank_measure(struct bench_rank *b, const struct bench_case *c, double *seconds);

#endif
