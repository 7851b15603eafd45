/* All-reduces in shared memory (collective/shared_group.h) without servers, by the loops that collective ops merge
 * with: processes that call it and wait, as a program of MPI's does. Sums are made in place. Each process stays on a
 * core of its own where there are enough, as under mpirun: two that begin on one core are not parted by the system
 * before all is measured. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/latch.h"
#include "base/mem.h"
#include "cli/bench_rank.h"
#include "collective/shared_group.h"

/* What the processes share: where they meet, and what rank 0 has measured. */
struct bench_meeting {
  struct shared_place places[BENCH_MOST_RANKS];
  atomic_int here;
  atomic_bool failed;
  char error[512]; /* the first of a rank; others only follow from it */
  shoal_code code;
  double seconds[BENCH_MOST_ITERS];
};

struct bench_call {
  struct collective_run run;
  struct latch ended;
};

static void ended(struct collective_run *r, shoal_status s) { latch_done(&((struct bench_call *)r)->ended, s); }

static shoal_status reduce(struct bench_rank *b) {
  struct bench_call c;
  latch_init(&c.ended, 1);
  bench_rank_run(b, &c.run);
  c.run.patience_ns = INT64_MAX;
  c.run.done = ended;
  collective_run_start(&c.run);
  return latch_finish(&c.ended);
}

static void tell(struct bench_meeting *m, shoal_status s) {
  if (!s || atomic_exchange(&m->failed, true)) return;
  snprintf(m->error, sizeof m->error, "%s", shoal_status_message(s));
  m->code = shoal_status_code(s);
}

/* Is it the first of its core's threads? Where that is not known it is. */
static bool leads_core(int cpu) {
  char path[96];
  int first = cpu;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE *f = fopen(path, "r");
  if (f && fscanf(f, "%d", &first) != 1) first = cpu;
  if (f) fclose(f);
  return first == cpu;
}

/* The calling thread stays on the rank-th core of those it may be on, or of the further threads of cores. */
static void stay_on_core(int rank, int ranks) {
  cpu_set_t may, own;
  if (sched_getaffinity(0, sizeof may, &may) != 0 || CPU_COUNT(&may) < ranks) return;
  int left = rank;
  for (int further = 0; further < 2; further++)
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
      if (!CPU_ISSET(cpu, &may) || leads_core(cpu) == (further != 0) || left-- > 0) continue;
      CPU_ZERO(&own);
      CPU_SET(cpu, &own);
      sched_setaffinity(0, sizeof own, &own); /* where that is not allowed the system chooses */
      return;
    }
}

/* One rank, from its birth to its end. */
static shoal_status take_part(const struct bench_case *c, struct bench_meeting *m, int rank) {
  struct shared_home *home = shared_home_new();
  if (!home) {
    shoal_status none = UNIMPLEMENTED("this system has no memory that can be shared");
    tell(m, none);
    return none;
  }
  m->places[rank] = shared_home_place(home);
  atomic_fetch_add(&m->here, 1);
  while (atomic_load(&m->here) < c->ranks) usleep(100);
  const char *names[BENCH_MOST_RANKS];
  for (int i = 0; i < c->ranks; i++) names[i] = "a process";
  struct bench_rank b;
  struct shared_group *group = NULL;
  shoal_status s = bench_rank_init(&b, c, rank, reduce);
  if (!s)
    group = shared_group_new(&(struct shared_group_request){
        .home = home, .identity = 1, .rank = rank, .size = c->ranks, .places = m->places, .names = names});
  if (!s && !group) s = UNIMPLEMENTED("the processes cannot share memory");
  if (group) b.transport = shared_group_transport(group);
  stay_on_core(rank, c->ranks); /* the group has counted the cores that all may be on */
  if (!s) s = bench_rank_measure(&b, c, rank ? NULL : m->seconds);
  tell(m, s); /* before the others can see it gone */
  bench_rank_release(&b);
  shared_group_free(group);
  shared_home_free(home);
  return s;
}

shoal_status bench_memory_run(const struct bench_case *c, double *seconds) {
  struct bench_meeting *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "no memory for %d processes", c->ranks);
  pid_t pids[BENCH_MOST_RANKS], parent = getpid();
  bool failed = false;
  for (int i = 0; i < c->ranks; i++) {
    pids[i] = bench_fork(parent);
    if (pids[i] == 0) {
      shoal_status s = take_part(c, m, i);
      _exit(s ? 1 : 0);
    }
    failed |= pids[i] < 0;
  }
  for (int i = 0; i < c->ranks; i++) {
    int status = 1;
    if (pids[i] > 0 && failed) kill(pids[i], SIGKILL); /* they would wait for the others */
    if (pids[i] > 0) waitpid(pids[i], &status, 0);
    failed |= status != 0;
  }
  shoal_status s = !failed ? NULL : m->code ? STATUS(m->code, "%s", m->error) : INTERNAL("a process has ended early");
  memcpy(seconds, m->seconds, (size_t)c->iters * sizeof *seconds);
  munmap(m, sizeof *m);
  return s;
}
