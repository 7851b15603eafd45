/* What the files of `shoal bench` share.
 *
 *   bench.c           flags and the table
 *   bench_servers.c   all-reduce by a graph on servers of this host, a process each, or of a cluster that is there
 *   bench_memory.c    all-reduce in shared memory, by processes that do nothing else
 *   bench_mpi.c       the same by our programs over OpenMPI's messages, under mpirun
 *   bench_rank.c      one rank of either
 *   bench_simulate.c  all-reduce on links that are only numbers */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <sys/types.h>

#include <shoal/shoal.h>

enum { BENCH_MOST_RANKS = 64, BENCH_MOST_ITERS = 10000 };

/* One row of the table. */
struct bench_case {
  int ranks;
  int64_t bytes, elements; /* of each rank */
  shoal_dtype dtype;
  const char *algorithm; /* "auto": by the cost model */
  const char *device;    /* the type: of servers */
  int iters;
};

/* What is measured. */
enum { BENCH_MOST_ITEMS = 64 };
struct bench_list {
  int64_t sizes[BENCH_MOST_ITEMS]; /* bytes */
  const char *algorithms[BENCH_MOST_ITEMS];
  int n_sizes, n_algorithms;
};
/* Whole elements, one at least. */
void bench_case_size(struct bench_case *c, int64_t bytes);

/* As flags say; NULL or 0: as usual. */
struct bench_simulation {
  const char *layout, *link, *inside;
  int64_t cores; /* of a host */
};
shoal_status bench_simulate(const struct bench_simulation *q, const struct bench_list *list, shoal_dtype dtype,
                            const char *dtype_name);

/* one, many: of whom; where: " of this host". */
void bench_print_head(const struct bench_case *c, const char *one, const char *many, const char *where,
                      const char *dtype);
/* Sorts the seconds. */
void bench_print_row(const struct bench_case *c, double *seconds);

/* The ranks are those of mpirun. */
shoal_status bench_mpi(const struct bench_list *list, struct bench_case c, const char *dtype);

/* A child that does not outlive its parent. */
pid_t bench_fork(pid_t parent);

/* Seconds of one all-reduce, iters times; what comes out is looked at too. To be called before this process has any
 * thread. */
shoal_status bench_memory_run(const struct bench_case *c, double *seconds);

/* Processes that wait to be told what to measure. */
struct bench_servers;
/* To be called before this process has any thread. */
shoal_status bench_servers_start(int ranks, struct bench_servers **out);
/* Of a cluster whose workers these are. */
shoal_status bench_servers_of(const char *hosts, struct bench_servers **out);
int bench_servers_ranks(const struct bench_servers *b);
shoal_status bench_servers_run(struct bench_servers *b, const struct bench_case *c, double *seconds);
void bench_servers_stop(struct bench_servers *b);

#endif
