/* Collectives in shared memory, every operation and type with odd sizes among 1 to 8 ranks, against sums made one by
 * one: ranks are threads here, each with a home of its own, and processes where one of them is killed or stopped. */
#include "unit.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/latch.h"
#include "base/mem.h"
#include "collective/shared_group.h"
#include "collective_types.h"

enum { MOST = 8 };

/* ---- types ---- */

typedef _Complex float complex64;
typedef _Complex double complex128;
ARITHMETIC(byte, uint8_t)
ARITHMETIC(short, uint16_t)
ARITHMETIC(int, int32_t)
ARITHMETIC(long, int64_t)
ARITHMETIC(float, float)
ARITHMETIC(double, double)
ARITHMETIC(complex64, complex64)
ARITHMETIC(complex128, complex128)
static const struct type types[] = {TYPE(byte, uint8_t),        TYPE(short, uint16_t),       TYPE(int, int32_t),
                                    TYPE(long, int64_t),        TYPE(float, float),          TYPE(double, double),
                                    TYPE(complex64, complex64), TYPE(complex128, complex128)};
static const struct type *const FLOAT = &types[4];

static void mean_of(const struct collective_arithmetic *a, void *sum, int members, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((float *)sum)[i] /= (float)members;
}

/* ---- groups ---- */

struct crowd {
  int size;
  struct shared_home *homes[MOST];
  struct shared_group *groups[MOST];
};

static uint64_t next_identity = 1;

static struct shared_group *join(struct shared_home *home, uint64_t identity, int rank, int size,
                                 const struct shared_place *places) {
  static const char *const names[MOST] = {"/task:0", "/task:1", "/task:2", "/task:3",
                                          "/task:4", "/task:5", "/task:6", "/task:7"};
  return shared_group_new(&(struct shared_group_request){
      .home = home, .identity = identity, .rank = rank, .size = size, .places = places, .names = names});
}

static void crowd_join(struct crowd *c) {
  struct shared_place places[MOST];
  uint64_t identity = next_identity++;
  for (int i = 0; i < c->size; i++) places[i] = shared_home_place(c->homes[i]);
  for (int i = 0; i < c->size; i++) assert_non_null(c->groups[i] = join(c->homes[i], identity, i, c->size, places));
}

static void crowd_open(struct crowd *c, int size) {
  c->size = size;
  for (int i = 0; i < size; i++) assert_non_null(c->homes[i] = shared_home_new());
  crowd_join(c);
}

static void crowd_close(struct crowd *c) {
  for (int i = 0; i < c->size; i++) shared_group_free(c->groups[i]);
  for (int i = 0; i < c->size; i++) shared_home_free(c->homes[i]);
}

struct rank_run {
  struct collective_run run;
  struct schedule_request request;
  struct latch *latch;
  char *in, *out;
};

static void rank_done(struct collective_run *r, shoal_status s) { latch_done(((struct rank_run *)r)->latch, s); }

static int64_t in_n(const struct schedule_request *r) {
  return r->operation == OPERATION_REDUCE_SCATTER || r->operation == OPERATION_ALL_TO_ALL ? r->n * r->size : r->n;
}
static int64_t out_n(const struct schedule_request *r) {
  return r->operation == OPERATION_ALL_GATHER || r->operation == OPERATION_ALL_TO_ALL ? r->n * r->size : r->n;
}

static void prepare(struct rank_run *x, struct shared_group *g, const struct schedule_request *r, int rank,
                    const struct type *t, const struct collective_arithmetic *a, int instance, bool in_place,
                    bool waits, struct latch *latch) {
  *x = (struct rank_run){.request = *r, .latch = latch};
  x->request.rank = rank;
  x->in = mem_zalloc((size_t)in_n(r) + 1, t->size);
  x->out = in_place ? x->in : mem_zalloc((size_t)out_n(r) + 1, t->size);
  t->fill(x->in, in_n(r), rank);
  x->run = (struct collective_run){.request = &x->request,
                                   .id = {.step = 5, .group_key = 1, .instance_key = instance},
                                   .transport = shared_group_transport(g),
                                   .arithmetic = a,
                                   .members = r->size,
                                   .element = t->size,
                                   .in = x->in,
                                   .out = x->out,
                                   .patience_ns = waits ? 100000 : 0,
                                   .done = rank_done};
}

static void let_go(struct rank_run *x) {
  if (x->out != x->in) free(x->out);
  free(x->in);
}

static void *start(void *arg) {
  collective_run_start(&((struct rank_run *)arg)->run);
  return NULL;
}

/* ---- the reference ---- */

/* S(lo, n) of elements from `first` on: the order of pairs. */
static void reference(const struct type *t, char *const *ins, int lo, int n, int64_t first, int64_t count, char *to) {
  if (n == 1) {
    memcpy(to, ins[lo] + (size_t)first * t->size, (size_t)count * t->size);
    return;
  }
  int h = 1;
  while (h * 2 < n) h *= 2;
  char *right = mem_alloc((size_t)count * t->size + 1);
  reference(t, ins, lo, h, first, count, to);
  reference(t, ins, lo + h, n - h, first, count, right);
  t->sum.merge(&t->sum, to, to, right, count);
  free(right);
}

static void expect(const struct type *t, const struct schedule_request *r, int rank, char *const *ins, char *to) {
  size_t bytes = (size_t)r->n * t->size;
  switch (r->operation) {
    case OPERATION_ALL_GATHER:
      for (int i = 0; i < r->size; i++) memcpy(to + (size_t)i * bytes, ins[i], bytes);
      break;
    case OPERATION_ALL_TO_ALL:
      for (int i = 0; i < r->size; i++) memcpy(to + (size_t)i * bytes, ins[i] + (size_t)rank * bytes, bytes);
      break;
    case OPERATION_BROADCAST: memcpy(to, ins[r->root], bytes); break;
    case OPERATION_REDUCE_SCATTER: reference(t, ins, 0, r->size, r->n * rank, r->n, to); break;
    default: reference(t, ins, 0, r->size, 0, r->n, to);
  }
}

static void check(struct crowd *c, const struct schedule_request *r, const struct type *t, bool means, bool in_place) {
  struct collective_arithmetic a = t->sum;
  struct rank_run ranks[MOST];
  struct latch latch;
  pthread_t threads[MOST];
  char *ins[MOST];
  if (means) a.final = mean_of;
  latch_init(&latch, c->size);
  for (int i = 0; i < c->size; i++) {
    prepare(&ranks[i], c->groups[i], r, i, t, &a, 1, in_place, i % 2, &latch);
    ins[i] = mem_zalloc((size_t)in_n(r) + 1, t->size);
    t->fill(ins[i], in_n(r), i);
  }
  for (int i = 0; i < c->size; i++) pthread_create(&threads[i], NULL, start, &ranks[i]);
  for (int i = 0; i < c->size; i++) pthread_join(threads[i], NULL);
  ASSERT_OK(latch_finish(&latch));
  size_t bytes = (size_t)out_n(r) * t->size;
  char *wanted = mem_zalloc(bytes + 1, 1);
  for (int i = 0; i < c->size; i++) {
    if (r->operation == OPERATION_REDUCE && i != r->root) continue;
    expect(t, r, i, ins, wanted);
    if (means) mean_of(&a, wanted, c->size, r->n);
    if (memcmp(ranks[i].out, wanted, bytes)) {
      print_error("operation %d, %zu bytes each, n %ld, rank %d of %d\n", r->operation, t->size, (long)r->n, i,
                  c->size);
      fail();
    }
  }
  free(wanted);
  for (int i = 0; i < c->size; i++) {
    free(ins[i]);
    let_go(&ranks[i]);
  }
}

static void every_operation_and_type(void **state) {
  static const int64_t sizes[] = {0, 1, 7, 1003, 16384, 16385, 50021, 200003};
  for (int size = 1; size <= MOST; size++) {
    struct crowd c;
    crowd_open(&c, size);
    for (int op = 0; op < OPERATION_BARRIER; op++)
      for (size_t k = 0; k < COUNT_OF(sizes); k++)
        for (size_t t = 0; t < COUNT_OF(types); t++) {
          /* the large ones for one type, and one operation, in turns */
          if (sizes[k] > 2000 && (t + k + (size_t)op + (size_t)size) % COUNT_OF(types)) continue;
          bool parted = op == OPERATION_REDUCE_SCATTER || op == OPERATION_ALL_TO_ALL || op == OPERATION_ALL_GATHER;
          struct schedule_request r = {
              .operation = op, .size = size, .root = size / 2, .n = parted ? sizes[k] / size : sizes[k]};
          check(&c, &r, &types[t], false, op == OPERATION_ALL_REDUCE && k % 2);
        }
    check(&c, &(struct schedule_request){.size = size, .n = 333}, FLOAT, true, true);
    check(&c, &(struct schedule_request){.size = size, .n = 100001}, FLOAT, true, false);
    check(&c, &(struct schedule_request){.operation = OPERATION_BARRIER, .size = size}, FLOAT, false, false);
    crowd_close(&c);
  }
}

/* Many at once, that each rank comes to in another order: more than can be posted at a time. */
static void any_order(void **state) {
  enum { SIZE = 3, N = 1300 };
  struct crowd c;
  crowd_open(&c, SIZE);
  struct latch latch;
  latch_init(&latch, SIZE * N);
  struct rank_run *runs = mem_zalloc(SIZE * N, sizeof *runs);
  struct schedule_request r = {.size = SIZE, .n = 5};
  for (int i = 0; i < N; i++)
    for (int rank = 0; rank < SIZE; rank++) {
      int instance = rank == 1 ? (i * 7) % N : rank == 2 ? i ^ 1 : i;
      struct rank_run *x = &runs[rank * N + instance];
      prepare(x, c.groups[rank], &r, rank, FLOAT, &FLOAT->sum, instance, true, false, &latch);
      ((float *)x->in)[0] = (float)(instance * (rank + 1));
      collective_run_start(&x->run);
    }
  ASSERT_OK(latch_finish(&latch));
  for (int i = 0; i < SIZE * N; i++) {
    assert_true(((float *)runs[i].out)[0] == (float)(i % N * 6));
    let_go(&runs[i]);
  }
  free(runs);
  crowd_close(&c);
}

/* ---- several that are started together ---- */

static uint64_t turns_of(const struct shared_home *home) {
  struct shared_place place = shared_home_place(home);
  struct shared_memory *m = shared_view_open(&place);
  uint64_t turns = 0;
  assert_non_null(m);
  for (int i = 0; i < SHARED_AREAS; i++) turns += atomic_load(&m->areas[i].turn);
  shared_view_close(m);
  return turns;
}

/* A rank's, from `first` on, linked. */
static void start_list(struct rank_run *runs, int n) {
  for (int i = 0; i + 1 < n; i++) runs[i].run.next = &runs[i + 1].run;
  collective_run_start(&runs[0].run);
}

/* Of every type, and odd sizes: each has the bits that it has alone; and others stand between them. */
static void together(int size, int n, int64_t (*size_of)(int i), bool mixed, uint64_t *turns) {
  struct crowd c;
  struct latch latch;
  crowd_open(&c, size);
  latch_init(&latch, size * n);
  struct rank_run *runs = mem_zalloc((size_t)(size * n), sizeof *runs);
  for (int rank = size; rank-- > 0;) {
    for (int i = 0; i < n; i++) {
      struct schedule_request r = {.size = size, .n = size_of(i), .root = size - 1};
      if (mixed && i % 9 == 4) r.operation = OPERATION_BROADCAST;
      const struct type *t = mixed ? &types[i % (int)COUNT_OF(types)] : FLOAT;
      prepare(&runs[rank * n + i], c.groups[rank], &r, rank, t, &t->sum, i + 1, i % 2, rank == 1, &latch);
    }
    start_list(runs + rank * n, n);
  }
  ASSERT_OK(latch_finish(&latch));
  *turns = turns_of(c.homes[0]);
  for (int i = 0; i < n; i++) {
    const struct type *t = mixed ? &types[i % (int)COUNT_OF(types)] : FLOAT;
    const struct schedule_request *r = &runs[i].request;
    char *ins[MOST], *wanted = mem_zalloc((size_t)r->n + 1, t->size);
    for (int rank = 0; rank < size; rank++) {
      ins[rank] = mem_zalloc((size_t)r->n + 1, t->size);
      t->fill(ins[rank], r->n, rank);
    }
    expect(t, r, 0, ins, wanted);
    for (int rank = 0; rank < size; rank++) assert_memory_equal(runs[rank * n + i].out, wanted, (size_t)r->n * t->size);
    for (int rank = 0; rank < size; rank++) free(ins[rank]);
    free(wanted);
  }
  for (int i = 0; i < size * n; i++) let_go(&runs[i]);
  free(runs);
  crowd_close(&c);
}

static int64_t all_small(int i) { return 1024; }
static int64_t any_size(int i) { return i % 13 == 5 ? 70001 : i % 11 == 3 ? 0 : i * 37 % 501; }

/* 200 of 4 KB take as many turns as one of 800 KB: 7 chunks, and two. */
static void many_are_one(void **state) {
  uint64_t turns;
  for (int size = 2; size <= 3; size++) {
    together(size, 200, all_small, false, &turns);
    assert_int_equal(turns, 9);
  }
}

static void those_started_together(void **state) {
  uint64_t turns;
  for (int size = 1; size <= MOST; size += size == 3 ? 4 : 1) together(size, 120, any_size, true, &turns);
}

/* One of those that are done as one is given up, before all have come to it: it alone ends so. */
static void one_of_many_is_given_up(void **state) {
  enum { N = 5 };
  struct crowd c;
  struct latch first, others, given_up;
  struct rank_run runs[2][N];
  struct schedule_request r = {.size = 2, .n = 100};
  crowd_open(&c, 2);
  latch_init(&first, N - 1);
  latch_init(&others, N - 1);
  latch_init(&given_up, 1);
  for (int rank = 0; rank < 2; rank++)
    for (int i = 0; i < N; i++)
      prepare(&runs[rank][i], c.groups[rank], &r, rank, FLOAT, &FLOAT->sum, i, true, false,
              i == 2 ? &given_up
              : rank ? &others
                     : &first);
  start_list(runs[0], N);
  collective_run_fail(&runs[0][2].run, STATUS(SHOAL_DEADLINE_EXCEEDED, "no patience"));
  ASSERT_FAILS(latch_finish(&given_up), SHOAL_DEADLINE_EXCEEDED, "no patience");
  for (int i = 0; i < N; i++)
    if (i != 2) collective_run_start(&runs[1][i].run);
  ASSERT_OK(latch_finish(&first));
  ASSERT_OK(latch_finish(&others));
  for (int rank = 0; rank < 2; rank++)
    for (int i = 0; i < N; i++) let_go(&runs[rank][i]);
  crowd_close(&c);
}

/* Starts one at each rank but `missing`; then `end` is called. The status of each of them. */
static void with_one_missing(struct crowd *c, int missing, int instance, void (*end)(struct rank_run *ranks, int who),
                             int who, shoal_status *statuses) {
  struct rank_run ranks[MOST];
  struct latch latches[MOST];
  struct schedule_request r = {.size = c->size, .n = 100};
  for (int i = 0; i < c->size; i++) {
    latch_init(&latches[i], i != missing);
    prepare(&ranks[i], c->groups[i], &r, i, FLOAT, &FLOAT->sum, instance, true, false, &latches[i]);
    if (i != missing) collective_run_start(&ranks[i].run);
  }
  end(ranks, who);
  for (int i = 0; i < c->size; i++) statuses[i] = latch_finish(&latches[i]);
  for (int i = 0; i < c->size; i++) let_go(&ranks[i]);
}

static void give_up_all(struct rank_run *ranks, int who) {
  for (int i = 0; i < 3; i++)
    if (i != who) collective_run_fail(&ranks[i].run, STATUS(SHOAL_DEADLINE_EXCEEDED, "no patience"));
}

/* Who is not waited for any more, whatever others are at, ends with the reason; the group works again. */
static void given_up_and_again(void **state) {
  struct crowd c;
  shoal_status s[MOST];
  crowd_open(&c, 3);
  for (int missing = 0; missing < 3; missing++) {
    with_one_missing(&c, missing, 7 + missing, give_up_all, missing, s);
    for (int i = 0; i < 3; i++) {
      if (i == missing) assert_null(s[i]);
      else ASSERT_FAILS(s[i], SHOAL_DEADLINE_EXCEEDED, "no patience");
    }
    check(&c, &(struct schedule_request){.size = 3, .n = 1000}, FLOAT, false, true);
  }
  crowd_close(&c);
}

/* Whoever comes with another shape, or operation, is told to all, and the next one works. */
static void members_that_differ(void **state) {
  struct crowd c;
  crowd_open(&c, 3);
  struct rank_run ranks[3];
  struct latch latches[3];
  for (int i = 0; i < 3; i++) {
    struct schedule_request r = {.size = 3, .n = i == 1 ? 99 : 100};
    latch_init(&latches[i], 1);
    prepare(&ranks[i], c.groups[i], &r, i, FLOAT, &FLOAT->sum, 1, true, i == 2, &latches[i]);
  }
  for (int i = 0; i < 3; i++) collective_run_start(&ranks[i].run);
  for (int i = 0; i < 3; i++) ASSERT_FAILS(latch_finish(&latches[i]), SHOAL_INVALID_ARGUMENT, "/task:1 (rank 1)");
  for (int i = 0; i < 3; i++) let_go(&ranks[i]);
  check(&c, &(struct schedule_request){.size = 3, .n = 1000}, FLOAT, false, true);
  crowd_close(&c);
}

/* A rank that leaves and comes again finds the others as they are. */
static void left_and_again(void **state) {
  struct crowd c;
  crowd_open(&c, 2);
  uint64_t identity = next_identity - 1;
  struct shared_place places[2] = {shared_home_place(c.homes[0]), shared_home_place(c.homes[1])};
  for (int i = 0; i < 4; i++) {
    check(&c, &(struct schedule_request){.size = 2, .n = 100000}, FLOAT, false, true);
    shared_group_free(c.groups[i % 2]);
    assert_non_null(c.groups[i % 2] = join(c.homes[i % 2], identity, i % 2, 2, places));
  }
  check(&c, &(struct schedule_request){.size = 2, .n = 100}, FLOAT, false, true);
  crowd_close(&c);
}

/* Who cannot share says so, and everybody goes another way; areas are a number, and come back. */
static void refused(void **state) {
  struct crowd c;
  crowd_open(&c, 2);
  for (int round = 0; round < 3; round++) {
    struct shared_group *more[SHARED_AREAS];
    struct shared_place places[2] = {shared_home_place(c.homes[0]), shared_home_place(c.homes[1])};
    int n = 0;
    while ((more[n] = join(c.homes[0], next_identity++, 0, 2, places))) n++;
    assert_int_equal(n, SHARED_AREAS - 1);
    struct shared_group *g = join(c.homes[1], next_identity - 1, 1, 2, places);
    assert_non_null(g);
    struct latch latch;
    latch_init(&latch, 1);
    struct rank_run x;
    struct schedule_request r = {.size = 2, .n = 10};
    prepare(&x, g, &r, 1, FLOAT, &FLOAT->sum, 1, true, false, &latch);
    collective_run_start(&x.run);
    ASSERT_FAILS(latch_finish(&latch), SHOAL_UNIMPLEMENTED, "shares no memory");
    assert_true(shared_group_is_refused(g));
    let_go(&x);
    shared_group_free(g);
    while (n) shared_group_free(more[--n]);
  }
  check(&c, &(struct schedule_request){.size = 2, .n = 100}, FLOAT, false, true);
  struct shared_place nowhere[2] = {shared_home_place(c.homes[0]), {0}};
  assert_false(shared_group_could(nowhere, 2));
  nowhere[1] = shared_home_place(c.homes[1]);
  assert_true(shared_group_could(nowhere, 2));
  nowhere[1].boot++;
  assert_false(shared_group_could(nowhere, 2));
  nowhere[1].boot--;
  nowhere[1].inode++;
  assert_null(join(c.homes[0], next_identity++, 0, 2, nowhere));
  crowd_close(&c);
}

/* ---- processes ---- */

struct meeting_point {
  struct shared_place places[3];
  atomic_int here, rounds;
};

/* A rank of three that reduces large values for ever. */
static void reduce_for_ever(struct meeting_point *m, int rank) {
  struct shared_home *home = shared_home_new();
  m->places[rank] = shared_home_place(home);
  atomic_fetch_add(&m->here, 1);
  while (atomic_load(&m->here) < 3) usleep(100);
  struct shared_group *g = join(home, 77, rank, 3, m->places);
  if (!g) return;
  for (int i = 0;; i++) {
    struct rank_run x;
    struct latch latch;
    latch_init(&latch, 1);
    struct schedule_request r = {.size = 3, .n = 1 << 18};
    prepare(&x, g, &r, rank, FLOAT, &FLOAT->sum, i, true, true, &latch);
    collective_run_start(&x.run);
    if (latch_finish(&latch)) _exit(3);
    let_go(&x);
    if (rank == 2) atomic_fetch_add(&m->rounds, 1);
  }
}

/* One is killed, or stopped, at whatever it is: the others' next collective names it; areas and views are given back.
 */
static void a_process_ends(int signal, shoal_code code, const char *told) {
  struct meeting_point *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t pids[3] = {0};
  for (int rank = 1; rank < 3; rank++) {
    pids[rank] = fork();
    if (!pids[rank]) {
      reduce_for_ever(m, rank);
      _exit(2);
    }
  }
  struct shared_home *home = shared_home_new();
  m->places[0] = shared_home_place(home);
  atomic_fetch_add(&m->here, 1);
  while (atomic_load(&m->here) < 3) usleep(100);
  struct shared_group *g = join(home, 77, 0, 3, m->places);
  assert_non_null(g);
  shoal_status s = NULL;
  for (int i = 0; !s; i++) {
    struct rank_run x;
    struct latch latch;
    latch_init(&latch, 1);
    struct schedule_request r = {.size = 3, .n = 1 << 18};
    prepare(&x, g, &r, 0, FLOAT, &FLOAT->sum, i, true, i % 2, &latch);
    if (atomic_load(&m->rounds) >= 20 && pids[1]) {
      kill(pids[1], signal);
      if (signal == SIGKILL) waitpid(pids[1], NULL, 0);
      else waitpid(pids[1], NULL, WUNTRACED);
    }
    x.run.patience_ns = 0;
    collective_run_start(&x.run);
    /* the deadline of a collective, which its caller has */
    if (signal == SIGSTOP &&
        !latch_wait_until(&latch, atomic_load(&m->rounds) >= 20 ? clock_ns() + 300000000 : DEADLINE_NEVER)) {
      assert_int_equal(shared_group_missing(g, &x.run.id), 1);
      collective_run_fail(&x.run, STATUS(SHOAL_DEADLINE_EXCEEDED, "it waited for rank 1"));
    }
    s = latch_finish(&latch);
    let_go(&x);
  }
  ASSERT_FAILS(s, code, told);
  assert_true(shared_group_is_idle(g));
  shared_group_free(g);
  kill(pids[1], SIGKILL);
  kill(pids[2], SIGKILL);
  if (signal != SIGKILL) waitpid(pids[1], NULL, 0);
  waitpid(pids[2], NULL, 0);
  shared_home_free(home);
  munmap(m, sizeof *m);
}

static void a_process_is_killed(void **state) { a_process_ends(SIGKILL, SHOAL_UNAVAILABLE, "/task:1 (rank 1)"); }
static void a_process_is_stopped(void **state) { a_process_ends(SIGSTOP, SHOAL_DEADLINE_EXCEEDED, "rank 1"); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_process_is_killed),
                                     cmocka_unit_test(a_process_is_stopped),
                                     cmocka_unit_test(every_operation_and_type),
                                     cmocka_unit_test(any_order),
                                     cmocka_unit_test(given_up_and_again),
                                     cmocka_unit_test(members_that_differ),
                                     cmocka_unit_test(left_and_again),
                                     cmocka_unit_test(refused),
                                     cmocka_unit_test(many_are_one),
                                     cmocka_unit_test(those_started_together),
                                     cmocka_unit_test(one_of_many_is_given_up)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
