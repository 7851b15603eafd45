/* All-reduces in shared memory (collective/shared_group.h) without servers, by the loops that collective ops merge
 * with: processes that call it and wait, as a program of MPI's does. Sums are made in place. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/latch.h"
#include "base/mem.h"
#include "cli/bench.h"
#include "collective/shared_group.h"
#include "ops/control/collective_loops.h"
#include "tensor/tensor.h"

enum { BATCH = 200, BATCH_BYTES = 4 << 20, WARM_UP = 2 };

/* What the processes share: where they meet, and what rank 0 has measured. */
struct bench_meeting {
  struct shared_place places[BENCH_MOST_RANKS];
  atomic_int here;
  atomic_bool failed;
  char error[512]; /* the first of a rank; others only follow from it */
  shoal_code code;
  double seconds[BENCH_MOST_ITERS];
};

struct bench_rank {
  struct shared_group *group;
  struct collective_loops loops;
  struct schedule_request request;
  void *data;
  size_t element;
  int instance;
};

struct bench_call {
  struct collective_run run;
  struct latch ended;
};

static void ended(struct collective_run *r, shoal_status s) { latch_done(&((struct bench_call *)r)->ended, s); }

static shoal_status reduce(struct bench_rank *b) {
  struct bench_call c;
  latch_init(&c.ended, 1);
  c.run = (struct collective_run){.request = &b->request,
                                  .id = {.instance_key = b->instance++},
                                  .transport = shared_group_transport(b->group),
                                  .arithmetic = &b->loops.head,
                                  .members = b->request.size,
                                  .element = b->element,
                                  .in = b->data,
                                  .out = b->data,
                                  .patience_ns = INT64_MAX,
                                  .done = ended};
  collective_run_start(&c.run);
  return latch_finish(&c.ended);
}

static void fill(const struct bench_case *c, const struct bench_rank *b, double v) {
  for (int64_t i = 0; i < c->elements; i++) {
    char *at = (char *)b->data + (size_t)i * b->element;
    float f = (float)v;
    switch (c->dtype) {
      case SHOAL_FLOAT64: *(double *)at = v; break;
      case SHOAL_INT32: *(int32_t *)at = (int32_t)v; break;
      case SHOAL_INT64: *(int64_t *)at = (int64_t)v; break;
      case SHOAL_FLOAT32: *(float *)at = f; break;
      default: half_from_float(c->dtype, at, &f, 1);
    }
  }
}

/* Ranks begin with 1, 2, 4, ...; modulo 5, so that sums are exact in every type. */
static double begins_with(int rank) { return 1 << rank % 5; }

static shoal_status check(const struct bench_case *c, struct bench_rank *b) {
  size_t bytes = (size_t)c->bytes;
  double sum = 0;
  for (int r = 0; r < c->ranks; r++) sum += begins_with(r);
  fill(c, b, begins_with(b->request.rank));
  TRY(reduce(b));
  void *got = b->data;
  b->data = mem_alloc(bytes);
  fill(c, b, sum);
  bool same = !memcmp(got, b->data, bytes);
  free(b->data);
  b->data = got;
  return same ? NULL : INTERNAL("The sum of %d ranks is wrong", c->ranks);
}

static shoal_status measure(const struct bench_case *c, struct bench_rank *b, double *seconds) {
  int batch = (int)MAX(MIN(BATCH_BYTES / c->bytes, BATCH), 1);
  TRY(check(c, b));
  fill(c, b, 0);
  for (int i = -WARM_UP; i < c->iters; i++) {
    int64_t began = clock_ns();
    for (int k = 0; k < batch; k++) TRY(reduce(b));
    if (i >= 0 && seconds) seconds[i] = (double)(clock_ns() - began) * 1e-9 / batch;
  }
  return NULL;
}

static void tell(struct bench_meeting *m, shoal_status s) {
  if (!s || atomic_exchange(&m->failed, true)) return;
  snprintf(m->error, sizeof m->error, "%s", shoal_status_message(s));
  m->code = shoal_status_code(s);
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
  struct bench_rank b = {.request = {.rank = rank, .size = c->ranks, .n = c->elements},
                         .element = dtype_size(c->dtype)};
  b.data = mem_try_alloc((size_t)c->bytes);
  shoal_status s = b.data ? NULL : NO_MEMORY(c->bytes, "one of the processes");
  if (!s)
    b.group = shared_group_new(&(struct shared_group_request){
        .home = home, .identity = 1, .rank = rank, .size = c->ranks, .places = m->places, .names = names});
  if (!s)
    s = b.group ? collective_loops_init(&b.loops, "Add", "Id", c->dtype)
                : UNIMPLEMENTED("the processes cannot share memory");
  if (!s) s = measure(c, &b, rank ? NULL : m->seconds);
  tell(m, s); /* before the others can see it gone */
  free(b.data);
  shared_group_free(b.group);
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
