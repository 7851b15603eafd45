/* Every type that collectives can have, with the loops of the op, by every algorithm, odd sizes, 1 to 8 ranks: sums,
 * products, extremes and means as they are made one by one, and whole values where they are only moved. Numbers are
 * small, so that every type has them and their sums exactly. */
#include "unit.h"

#include "base/latch.h"
#include "collective/schedule.h"
#include "mailbox.h"
#include "ops/control/collective_loops.h"
#include "tensor/dtype.h"

enum { RANKS = 8, WIDEST = 16, LONGEST = 67 };
static const int64_t sizes[] = {0, 1, 3, LONGEST};
static const shoal_dtype types[] = {SHOAL_FLOAT16, SHOAL_BFLOAT16, SHOAL_FLOAT32,   SHOAL_FLOAT64,    SHOAL_INT8,
                                    SHOAL_INT16,   SHOAL_INT32,    SHOAL_INT64,     SHOAL_UINT8,      SHOAL_UINT16,
                                    SHOAL_UINT32,  SHOAL_UINT64,   SHOAL_COMPLEX64, SHOAL_COMPLEX128, SHOAL_BOOL};

static bool is_complex(shoal_dtype t) { return t == SHOAL_COMPLEX64 || t == SHOAL_COMPLEX128; }
static bool has_mean(shoal_dtype t) {
  static const shoal_dtype with[] = {SHOAL_FLOAT16, SHOAL_BFLOAT16, SHOAL_FLOAT32,   SHOAL_FLOAT64,
                                     SHOAL_INT32,   SHOAL_INT64,    SHOAL_COMPLEX64, SHOAL_COMPLEX128};
  for (size_t i = 0; i < COUNT_OF(with); i++)
    if (with[i] == t) return true;
  return false;
}

/* A number of that type; of complex ones with its half as the imaginary part. */
static void put(shoal_dtype t, void *at, double x) {
  switch (t) {
    case SHOAL_FLOAT16:
    case SHOAL_BFLOAT16: half_from_float(t, at, &(float){(float)x}, 1); break;
    case SHOAL_FLOAT32: *(float *)at = (float)x; break;
    case SHOAL_FLOAT64: *(double *)at = x; break;
    case SHOAL_COMPLEX64: memcpy(at, (float[]){(float)x, (float)x / 2}, 8); break;
    case SHOAL_COMPLEX128: memcpy(at, (double[]){x, x / 2}, 16); break;
    case SHOAL_BOOL: *(uint8_t *)at = x > 1; break;
    case SHOAL_INT16:
    case SHOAL_UINT16: *(uint16_t *)at = (uint16_t)x; break;
    case SHOAL_INT32:
    case SHOAL_UINT32: *(uint32_t *)at = (uint32_t)x; break;
    case SHOAL_INT64:
    case SHOAL_UINT64: *(uint64_t *)at = (uint64_t)x; break;
    default: *(uint8_t *)at = (uint8_t)x;
  }
}

/* Of few ranks more than 1: a product of all stays small. */
static double number(int rank, int64_t i) { return (rank + i) % 3 ? 1 : 2 + (double)(i % 2); }

/* As one would by hand, in the order of ranks; complex products are of numbers on one line through 0. */
static void reference(shoal_dtype t, const char *merge, bool mean, int size, int64_t i, void *out) {
  double x = number(0, i), re = x, im = x / 2;
  for (int r = 1; r < size; r++) {
    double y = number(r, i), was = re;
    if (!strcmp(merge, "Add")) x += y;
    if (!strcmp(merge, "Mul")) x *= y;
    if (!strcmp(merge, "Max")) x = y > x ? y : x;
    if (!strcmp(merge, "Min")) x = y < x ? y : x;
    re = re * y - im * (y / 2);
    im = was * (y / 2) + im * y;
  }
  if (mean) x /= size;
  put(t, out, x);
  if (strcmp(merge, "Mul")) return;
  if (t == SHOAL_COMPLEX64) memcpy(out, (float[]){(float)re, (float)im}, 8);
  if (t == SHOAL_COMPLEX128) memcpy(out, (double[]){re, im}, 16);
}

struct rank {
  struct collective_run run;
  struct schedule program;
  struct box_end end;
  struct latch *latch;
  _Alignas(64) char in[RANKS * LONGEST * WIDEST], out[RANKS * LONGEST * WIDEST];
};
static struct rank ranks[RANKS];

static void rank_done(struct collective_run *r, shoal_status s) { latch_done(((struct rank *)r)->latch, s); }

static int64_t parts_in(const struct schedule_request *r) {
  return r->operation == OPERATION_REDUCE_SCATTER || r->operation == OPERATION_ALL_TO_ALL ? r->size : 1;
}

static void run(struct schedule_request q, shoal_dtype t, const struct collective_loops *loops) {
  struct mailbox box = {.lock = PTHREAD_MUTEX_INITIALIZER};
  struct latch latch;
  size_t element = dtype_size(t);
  latch_init(&latch, q.size);
  for (q.rank = 0; q.rank < q.size; q.rank++) {
    struct rank *g = &ranks[q.rank];
    g->end = (struct box_end){{&box_ops}, &box, q.rank, 16 * element};
    g->latch = &latch;
    ASSERT_OK(schedule_init(&g->program, &q));
    for (int64_t i = 0; i < q.n * parts_in(&q); i++) put(t, g->in + (size_t)i * element, number(q.rank, i));
    g->run = (struct collective_run){.program = &g->program,
                                     .transport = &g->end.head,
                                     .arithmetic = loops ? &loops->head : NULL,
                                     .members = q.size,
                                     .element = element,
                                     .in = g->in,
                                     .out = g->out,
                                     .done = rank_done};
  }
  for (int i = 0; i < q.size; i++) collective_run_start(&ranks[i].run);
  ASSERT_OK(latch_finish(&latch));
  for (int i = 0; i < q.size; i++) schedule_release(&ranks[i].program);
}

static void check(const struct schedule_request *q, shoal_dtype t, const char *what, int rank, int64_t i,
                  const char *wanted) {
  size_t element = dtype_size(t);
  if (!memcmp(ranks[rank].out + (size_t)i * element, wanted, element)) return;
  print_error("%s of %s, operation %d by %s among %d, n %ld, rank %d: element %ld differs\n", what, dtype_tf_name(t),
              q->operation, collective_algorithm_names[q->algorithm], q->size, (long)q->n, rank, (long)i);
  fail();
}

static void reduce(struct schedule_request q, shoal_dtype t, const char *merge, bool mean) {
  struct collective_loops loops = {0};
  char wanted[WIDEST];
  ASSERT_OK(collective_loops_init(&loops, merge, mean ? "Div" : "Id", t));
  run(q, t, &loops);
  for (int rank = 0; rank < q.size; rank++)
    for (int64_t i = 0; i < q.n && (q.operation != OPERATION_REDUCE || rank == q.root); i++) {
      reference(t, merge, mean, q.size, q.operation == OPERATION_REDUCE_SCATTER ? q.n * rank + i : i, wanted);
      check(&q, t, merge, rank, i, wanted);
    }
}

static void move(struct schedule_request q, shoal_dtype t) {
  char wanted[WIDEST];
  run(q, t, NULL);
  for (int rank = 0; rank < q.size; rank++)
    for (int64_t i = 0; i < (q.operation == OPERATION_BROADCAST ? q.n : q.n * q.size); i++) {
      int from = q.operation == OPERATION_BROADCAST ? q.root : (int)(i / q.n);
      put(t, wanted, number(from, q.operation == OPERATION_ALL_TO_ALL ? q.n * rank + i % q.n : i % q.n));
      check(&q, t, "moving", rank, i, wanted);
    }
}

static void of_type(struct schedule_request q, shoal_dtype t) {
  static const char *const merges[] = {"Add", "Mul", "Max", "Min"};
  bool sums = q.operation <= OPERATION_REDUCE_SCATTER;
  if (!sums) {
    move(q, t);
    return;
  }
  if (t == SHOAL_BOOL) return;
  for (int m = 0; m < (is_complex(t) ? 2 : 4); m++) reduce(q, t, merges[m], false);
  if (has_mean(t)) reduce(q, t, "Add", true);
}

static void every_type(void **state) {
  static const int tasks[RANKS] = {0, 0, 0, 1, 2, 2, 3, 3};
  for (size_t t = 0; t < COUNT_OF(types); t++)
    for (int size = 1; size <= RANKS; size++)
      for (int op = 0; op < OPERATION_BARRIER; op++)
        for (int algorithm = 0; algorithm < ALGORITHMS; algorithm++)
          for (size_t k = 0; k < COUNT_OF(sizes) && collective_can(op, algorithm); k++)
            of_type((struct schedule_request){.operation = op,
                                              .algorithm = algorithm,
                                              .size = size,
                                              .root = size / 2,
                                              .n = sizes[k],
                                              .alignment = 4,
                                              .hosts = algorithm == ALGORITHM_TASKS ? tasks : NULL},
                    types[t]);
}

static void means_that_make_no_sense(void **state) {
  struct collective_loops loops = {0};
  ASSERT_FAILS(collective_loops_init(&loops, "Add", "Div", SHOAL_INT8), SHOAL_INVALID_ARGUMENT, "\"Div\" is not for");
}

RUN_TESTS(cmocka_unit_test(every_type), cmocka_unit_test(means_that_make_no_sense))
