/* Collectives among ranks: every operation by every algorithm against sums made one by one, sizes odd and even, in
 * place and not; what fails, fails everywhere; the simulated times grow as docs/algorithms.md says. */
#include "unit.h"

#include <math.h>
#include <stdbool.h>

#include "base/latch.h"
#include "collective/choose.h"
#include "collective/simulate.h"
#include "mailbox.h"

/* ---- a group ---- */

enum { MOST = 17 };

static void add_floats(const struct collective_arithmetic *a, void *out, const void *x, const void *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((float *)out)[i] = ((const float *)x)[i] + ((const float *)y)[i];
}
static void mean(const struct collective_arithmetic *a, void *sum, int members, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((float *)sum)[i] /= (float)members;
}
static const struct collective_arithmetic sums = {add_floats, NULL}, means = {add_floats, mean};

struct group_rank {
  struct collective_run run;
  struct schedule program;
  struct box_end end;
  float *in, *out;
  struct latch *latch;
};

static void rank_done(struct collective_run *r, shoal_status s) { latch_done(((struct group_rank *)r)->latch, s); }

static void *start_rank(void *arg) {
  collective_run_start(&((struct group_rank *)arg)->run);
  return NULL;
}

struct group_case {
  struct schedule_request r;
  bool in_place, by_threads;
  const struct collective_arithmetic *arithmetic;
  int fails_at; /* this rank's run fails; -1: none */
};

static int64_t in_size(const struct schedule_request *r) {
  return r->operation == OPERATION_REDUCE_SCATTER || r->operation == OPERATION_ALL_TO_ALL ? r->n * r->size : r->n;
}
static int64_t out_size(const struct schedule_request *r) {
  if (r->operation == OPERATION_BARRIER) return 0;
  return r->operation == OPERATION_ALL_GATHER || r->operation == OPERATION_ALL_TO_ALL ? r->n * r->size : r->n;
}

/* Numbers whose sums depend on their order. */
static float number(int rank, int64_t i) {
  return (float)(1.0 / (3 + rank) + (double)(i * 7919 % 1009) * 1e-3 * (rank + 1));
}

static shoal_status run_group(const struct group_case *c, struct group_rank *ranks) {
  struct mailbox box = {.lock = PTHREAD_MUTEX_INITIALIZER};
  struct latch latch;
  latch_init(&latch, c->r.size);
  int64_t in_n = in_size(&c->r), out_n = out_size(&c->r);
  for (int i = 0; i < c->r.size; i++) {
    struct group_rank *g = &ranks[i];
    struct schedule_request r = c->r;
    r.rank = i;
    *g = (struct group_rank){.end = {{&box_ops}, &box, i, 3 * sizeof(float)}, .latch = &latch};
    ASSERT_OK(schedule_init(&g->program, &r));
    g->in = mem_zalloc((size_t)in_n + 1, sizeof(float));
    g->out = c->in_place ? g->in : mem_zalloc((size_t)out_n + 1, sizeof(float));
    for (int64_t k = 0; k < in_n; k++) g->in[k] = number(i, k);
    g->run = (struct collective_run){.program = &g->program,
                                     .transport = &g->end.head,
                                     .arithmetic = c->arithmetic,
                                     .members = c->r.size,
                                     .element = sizeof(float),
                                     .in = g->in,
                                     .out = g->out,
                                     .done = rank_done};
  }
  pthread_t threads[MOST];
  for (int i = 0; i < c->r.size; i++) {
    struct group_rank *g = &ranks[c->r.size - 1 - i];
    if (c->fails_at == c->r.size - 1 - i) {
      latch_done(&latch, NULL); /* never starts */
      continue;
    }
    if (c->by_threads) pthread_create(&threads[i], NULL, start_rank, g);
    else start_rank(g);
  }
  for (int i = 0; c->by_threads && i < c->r.size; i++) pthread_join(threads[i], NULL);
  if (c->fails_at >= 0)
    for (int i = 0; i < c->r.size; i++)
      if (i != c->fails_at)
        collective_run_fail(&ranks[i].run, STATUS(SHOAL_UNAVAILABLE, "rank %d is gone", c->fails_at));
  shoal_status s = latch_finish(&latch);
  assert_null(box.waiting);
  return s;
}

static void free_group(const struct group_case *c, struct group_rank *ranks) {
  for (int i = 0; i < c->r.size; i++) {
    schedule_release(&ranks[i].program);
    if (!c->in_place) free(ranks[i].out);
    free(ranks[i].in);
  }
}

/* S(lo, n): the order of pairs. */
static float pairs(int lo, int n, int64_t i) {
  if (n == 1) return number(lo, i);
  int h = 1;
  while (h * 2 < n) h *= 2;
  return pairs(lo, h, i) + pairs(lo + h, n - h, i);
}

/* TensorFlow's ring: the piece begins at the rank of its number. */
static float around(const struct schedule_request *r, int64_t i) {
  int64_t each = (r->n + r->size - 1) / r->size;
  if (r->alignment > 1) each = (each / r->alignment + 1) * r->alignment;
  int first = (int)(i / each);
  float sum = number(first, i);
  for (int k = 1; k < r->size; k++) sum += number((first + k) % r->size, i);
  return sum;
}

static float expected(const struct group_case *c, int rank, int64_t i) {
  const struct schedule_request *r = &c->r;
  float sum;
  switch (r->operation) {
    case OPERATION_ALL_GATHER: return number((int)(i / r->n), i % r->n);
    case OPERATION_BROADCAST: return number(r->root, i);
    case OPERATION_ALL_TO_ALL: return number((int)(i / r->n), r->n * rank + i % r->n);
    case OPERATION_REDUCE_SCATTER: sum = pairs(0, r->size, r->n * rank + i); break;
    default: sum = r->algorithm == ALGORITHM_RING ? around(r, i) : pairs(0, r->size, i);
  }
  return c->arithmetic->final ? sum / (float)r->size : sum;
}

static void check_group(const struct group_case *c) {
  struct group_rank ranks[MOST];
  ASSERT_OK(run_group(c, ranks));
  /* Hosts of any sizes add in an order of their own, but the same everywhere. */
  bool exact = !c->r.hosts || c->r.operation == OPERATION_ALL_TO_ALL;
  for (int rank = 0; rank < c->r.size; rank++) {
    if (c->r.operation == OPERATION_REDUCE && rank != c->r.root) continue;
    for (int64_t i = 0; i < out_size(&c->r); i++) {
      float got = ranks[rank].out[i], wanted = exact ? expected(c, rank, i) : ranks[0].out[i];
      if (got == wanted && fabsf(got - expected(c, rank, i)) <= 1e-5f * fabsf(got)) continue;
      print_error("operation %d by %s among %d, n %ld, rank %d, element %ld: %.9g instead of %.9g\n", c->r.operation,
                  collective_algorithm_names[c->r.algorithm], c->r.size, (long)c->r.n, rank, (long)i, got, wanted);
      fail();
    }
  }
  free_group(c, ranks);
}

static const int64_t sizes[] = {0, 1, 2, 5, 16, 97, 1000};

static void all_operations(void **state) {
  static const int tasks[MOST] = {0, 0, 0, 1, 2, 2, 3, 3, 3, 3, 4, 5, 5, 6, 6, 6, 6};
  for (int size = 1; size <= MOST; size++)
    for (int op = 0; op <= OPERATION_BARRIER; op++)
      for (int algorithm = 0; algorithm < ALGORITHMS; algorithm++)
        for (size_t k = 0; k < COUNT_OF(sizes) && collective_can(op, algorithm); k++)
          for (int in_place = 0; in_place < (op == OPERATION_ALL_REDUCE ? 2 : 1); in_place++)
            check_group(&(struct group_case){{.operation = op,
                                              .algorithm = algorithm,
                                              .size = size,
                                              .root = size / 2,
                                              .n = sizes[k],
                                              .alignment = 4,
                                              .hosts = algorithm == ALGORITHM_TASKS ? tasks : NULL},
                                             .in_place = in_place,
                                             .arithmetic = k & 1 ? &means : &sums,
                                             .fails_at = -1});
}

static void hosts_of_all_sizes(void **state) {
  static const int layouts[][8] = {{0, 0, 0, 0, 1, 1, 1, 1},
                                   {0, 1, 0, 1, 0, 1, 0, 1},
                                   {0, 0, 0, 1, 1, 2, 2, 2},
                                   {0, 1, 2, 3, 4, 5, 6, 7},
                                   {5, 5, 5, 5, 5, 5, 5, 5}};
  for (size_t l = 0; l < COUNT_OF(layouts); l++)
    for (int size = 1; size <= 8; size++)
      for (size_t k = 0; k < COUNT_OF(sizes); k++)
        check_group(&(struct group_case){
            {.algorithm = ALGORITHM_HIERARCHICAL, .size = size, .n = sizes[k], .hosts = layouts[l]},
            .arithmetic = &means,
            .fails_at = -1});
}

static void ranks_on_threads(void **state) {
  for (int algorithm = 0; algorithm < ALGORITHM_TASKS; algorithm++)
    for (int size = 2; size <= 8; size += 3)
      check_group(&(struct group_case){{.algorithm = algorithm, .size = size, .n = 1000, .alignment = 16},
                                       .in_place = true,
                                       .by_threads = true,
                                       .arithmetic = &sums,
                                       .fails_at = -1});
}

static void a_missing_rank_ends_all(void **state) {
  for (int algorithm = 0; algorithm < ALGORITHM_TASKS; algorithm++)
    for (int gone = 0; gone < 5; gone++) {
      struct group_case c = {
          {.algorithm = algorithm, .size = 5, .n = 100, .alignment = 16}, .arithmetic = &sums, .fails_at = gone};
      struct group_rank ranks[MOST];
      ASSERT_FAILS(run_group(&c, ranks), SHOAL_UNAVAILABLE, "is gone");
      free_group(&c, ranks);
    }
}

static void nonsense_is_named(void **state) {
  struct schedule s;
  ASSERT_FAILS(schedule_init(&s, &(struct schedule_request){.size = 0}), SHOAL_INVALID_ARGUMENT, "at least one member");
  ASSERT_FAILS(schedule_init(&s, &(struct schedule_request){.size = 2, .rank = 2}), SHOAL_INVALID_ARGUMENT,
               "no rank 2");
  ASSERT_FAILS(schedule_init(&s, &(struct schedule_request){.operation = OPERATION_BROADCAST, .size = 2, .root = -1}),
               SHOAL_INVALID_ARGUMENT, "root of a broadcast");
  ASSERT_FAILS(schedule_init(&s, &(struct schedule_request){.size = 4, .n = INT64_MAX / 2}), SHOAL_INVALID_ARGUMENT,
               "too large");
  ASSERT_FAILS(schedule_init(&s, &(struct schedule_request){.operation = OPERATION_ALL_TO_ALL, .size = 4}),
               SHOAL_UNIMPLEMENTED, "no all-to-all by the algorithm \"central\"");
}

/* ---- simulated ---- */

static double simulated(int algorithm, int size, int64_t n) {
  static const struct machine_cost cost = {
      .inside = {1e-6, 0, 1e-9}, .between = {1e-6, 0, 1e-9}, .merge_per_byte = 0, .copy_per_byte = 0};
  double seconds;
  ASSERT_OK(simulate_collective(
      &(struct schedule_request){.algorithm = algorithm, .size = size, .n = n, .alignment = 1}, 1, &cost, &seconds));
  return seconds;
}

static void assert_close(double a, double b) {
  if (fabs(a - b) <= 0.02 * fabs(b)) return;
  print_error("%g s instead of %g s\n", a, b);
  fail();
}

static void times_follow_the_formulas(void **state) {
  for (int p = 2; p <= 64; p *= 2) {
    double n = 1 << 24, us = 1e-6, ns = 1e-9, levels = log2(p);
    assert_close(simulated(ALGORITHM_RING, p, 1 << 24), 2 * (p - 1) * (us + n / p * ns));
    assert_close(simulated(ALGORITHM_DIRECT, p, 1 << 24), 2 * us + 2 * (p - 1) * n / p * ns);
    assert_close(simulated(ALGORITHM_HALVING, p, 1 << 24), 2 * levels * us + 2 * (p - 1) * n / p * ns);
    assert_close(simulated(ALGORITHM_TREE, p, 1 << 24), 2 * levels * (us + n * ns));
    assert_close(simulated(ALGORITHM_CENTRAL, p, 1 << 24), 2 * us + 2 * (p - 1) * n * ns);
  }
  assert_close(simulated(ALGORITHM_HALVING, 1024, 1024), 20e-6 + 2 * 1023e-9);
}

/* More elements than 32 bits count: the programs are made, and carry every byte. */
static void values_of_many_gigabytes(void **state) {
  const int64_t n = (INT64_C(1) << 33) + 5;
  for (int p = 2; p <= 8; p += 3) {
    double bytes = (double)n, ns = 1e-9;
    assert_close(simulated(ALGORITHM_RING, p, n), 2 * (p - 1) * bytes / p * ns);
    assert_close(simulated(ALGORITHM_DIRECT, p, n), 2 * (p - 1) * bytes / p * ns);
    assert_close(simulated(ALGORITHM_CENTRAL, p, n), 2 * (p - 1) * bytes * ns);
  }
}

static int chosen(int operation, int size, int64_t n, const int *hosts) {
  static const struct machine_cost cost = {
      .inside = {1e-6, 2e-7, 1e-10}, .between = {3e-5, 5e-6, 1e-9}, .merge_per_byte = 1e-10, .copy_per_byte = 1e-10};
  struct schedule_request r = {.operation = operation, .size = size, .n = n, .hosts = hosts};
  collective_choose(&r, 4, &cost);
  return r.algorithm;
}

static void the_cheapest_is_chosen(void **state) {
  static const int layered[] = {0, 0, 1, 1};
  static const int apart[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  assert_int_equal(chosen(OPERATION_ALL_REDUCE, 2, 1 << 20, NULL), ALGORITHM_DIRECT);
  assert_int_equal(chosen(OPERATION_ALL_REDUCE, 64, 1 << 20, NULL), ALGORITHM_HALVING);
  assert_int_equal(chosen(OPERATION_ALL_REDUCE, 4, 1, apart), ALGORITHM_CENTRAL);
  assert_int_equal(chosen(OPERATION_ALL_REDUCE, 4, 1, layered), ALGORITHM_HIERARCHICAL);
  assert_int_equal(chosen(OPERATION_BROADCAST, 64, 1, NULL), ALGORITHM_TREE);
  assert_int_equal(chosen(OPERATION_BROADCAST, 16, 1 << 24, apart), ALGORITHM_DIRECT);
  assert_int_equal(chosen(OPERATION_BARRIER, 16, 0, NULL), ALGORITHM_TREE);
  /* What is chosen takes, simulated, not a quarter longer than any other. */
  static const struct machine_cost cost = {
      .inside = {2e-6, 5e-7, 2e-10}, .between = {2e-6, 5e-7, 2e-10}, .merge_per_byte = 1e-10, .copy_per_byte = 1e-10};
  for (int size = 2; size <= 33; size += size < 8 ? 1 : 5)
    for (int64_t n = 1; n <= 1 << 22; n *= 8) {
      struct schedule_request r = {.size = size, .n = n, .alignment = 16};
      collective_choose(&r, 4, &cost);
      double best, other;
      ASSERT_OK(simulate_collective(&r, 4, &cost, &best));
      for (int a = ALGORITHM_CENTRAL; a <= ALGORITHM_HALVING; a++) {
        struct schedule_request by = r;
        by.algorithm = a;
        ASSERT_OK(simulate_collective(&by, 4, &cost, &other));
        if (best <= 1.25 * other) continue;
        print_error("%d ranks, %ld floats: %s takes %g s, %s %g s\n", size, (long)n,
                    collective_algorithm_names[r.algorithm], best, collective_algorithm_names[a], other);
        fail();
      }
    }
}

RUN_TESTS(cmocka_unit_test(values_of_many_gigabytes), cmocka_unit_test(all_operations),
          cmocka_unit_test(hosts_of_all_sizes), cmocka_unit_test(ranks_on_threads),
          cmocka_unit_test(a_missing_rank_ends_all), cmocka_unit_test(nonsense_is_named),
          cmocka_unit_test(times_follow_the_formulas), cmocka_unit_test(the_cheapest_is_chosen))
