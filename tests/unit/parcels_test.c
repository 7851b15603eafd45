/* Small all-reduces in parcels (collective/parcels.h): among 2 to 8 ranks, of every type and odd sizes, come to in
 * other orders and in other company by each, in place and not, against sums made one by one; what makes no sense; and
 * ranks that give up. Ranks are threads, and messages wait in a table. */
#include "unit.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/latch.h"
#include "base/mem.h"
#include "collective/parcel.h"
#include "collective/parcels.h"
#include "collective_types.h"

enum { MOST = 8, NUMBERS = 512, MANY = 60 };

/* ---- types ---- */

ARITHMETIC(byte, uint8_t)
ARITHMETIC(short, uint16_t)
ARITHMETIC(int, int32_t)
ARITHMETIC(float, float)
ARITHMETIC(double, double)
typedef _Complex double complex128;
ARITHMETIC(complex128, complex128)
static const struct type types[] = {TYPE(byte, uint8_t), TYPE(short, uint16_t), TYPE(int, int32_t),
                                    TYPE(float, float),  TYPE(double, double),  TYPE(complex128, complex128)};
enum { TYPES = sizeof types / sizeof *types };
static const struct type *const FLOAT = &types[3];

/* ---- a wire ---- */

struct letter {
  struct tensor value;
  struct parcel_out *out;
  bool is_there;
  struct parcels *waits; /* NULL: nobody does */
  struct cancel *cancel; /* of whoever waits */
};

struct crowd {
  int size;
  pthread_mutex_t lock;
  struct letter letters[MOST][MOST][NUMBERS]; /* from, to; lock */
  uint64_t sent[MOST];
  struct rank {
    struct parcels_wire wire;
    struct crowd *crowd;
    int rank;
    struct parcels *parcels;
    struct cancel_hook hook[MOST];
    struct waits {
      struct rank *me;
      int peer;
      uint64_t number;
    } waits[MOST];
  } ranks[MOST];
};

static struct rank *rank_of(struct parcels_wire *w) { return (struct rank *)w; }

static shoal_status send_parcel(struct parcels_wire *w, int peer, uint64_t number, struct tensor *t,
                                struct parcel_out *out) {
  struct rank *me = rank_of(w);
  struct crowd *c = me->crowd;
  struct letter *l = &c->letters[me->rank][peer][number];
  assert_true(number < NUMBERS);
  pthread_mutex_lock(&c->lock);
  c->sent[me->rank]++;
  struct parcels *waits = l->waits;
  l->waits = NULL;
  if (!waits) {
    tensor_move(&l->value, t);
    l->out = out;
    l->is_there = true;
  }
  pthread_mutex_unlock(&c->lock);
  if (waits) {
    cancel_deregister(l->cancel, &c->ranks[peer].hook[me->rank]);
    parcels_came(waits, me->rank, NULL, t);
    if (out) parcels_taken(out);
  }
  return NULL;
}

/* Whoever waits is told that it is over. */
static void give_up(void *arg) {
  const struct waits *x = arg;
  struct crowd *c = x->me->crowd;
  struct letter *l = &c->letters[x->peer][x->me->rank][x->number];
  pthread_mutex_lock(&c->lock);
  bool mine = l->waits;
  l->waits = NULL;
  pthread_mutex_unlock(&c->lock);
  struct tensor none = tensor_none();
  if (mine) parcels_came(x->me->parcels, x->peer, STATUS(SHOAL_CANCELLED, "it was given up"), &none);
}

static void recv_parcel(struct parcels_wire *w, int peer, uint64_t number, struct parcels *p, struct cancel *cancel) {
  struct rank *me = rank_of(w);
  struct crowd *c = me->crowd;
  struct letter *l = &c->letters[peer][me->rank][number];
  struct tensor value = tensor_none();
  shoal_status s = NULL;
  me->waits[peer] = (struct waits){me, peer, number};
  pthread_mutex_lock(&c->lock);
  bool came = l->is_there;
  struct parcel_out *out = came ? l->out : NULL;
  if (came) tensor_move(&value, &l->value);
  l->waits = came ? NULL : p;
  l->cancel = cancel;
  l->is_there = false;
  if (!came && !cancel_register(cancel, &me->hook[peer], give_up, &me->waits[peer])) {
    l->waits = NULL;
    came = true;
    s = STATUS(SHOAL_CANCELLED, "it was given up");
  }
  pthread_mutex_unlock(&c->lock);
  if (came) parcels_came(p, peer, s, &value);
  if (out) parcels_taken(out);
}

static void over(struct parcels_wire *w, struct collective_run *list) { collective_runs_end(list); }
static void nothing(struct parcels_wire *w) {}
static const char *name(const struct parcels_wire *w, int peer) {
  static const char *const names[] = {"zero", "one", "two", "three", "four", "five", "six", "seven"};
  return names[peer];
}

static struct crowd *crowd_new(int size) {
  struct crowd *c = mem_zalloc(1, sizeof *c);
  c->size = size;
  pthread_mutex_init(&c->lock, NULL);
  for (int r = 0; r < size; r++) {
    c->ranks[r] = (struct rank){{send_parcel, recv_parcel, over, nothing, nothing, name}, c, r};
    c->ranks[r].parcels = parcels_new(&c->ranks[r].wire, r, size);
  }
  return c;
}

static void crowd_free(struct crowd *c) {
  for (int r = 0; r < c->size; r++) parcels_free(c->ranks[r].parcels);
  for (int r = 0; r < c->size; r++)
    for (int k = 0; k < c->size; k++)
      for (int i = 0; i < NUMBERS; i++)
        if (c->letters[r][k][i].is_there) {
          tensor_release(&c->letters[r][k][i].value);
          if (c->letters[r][k][i].out) parcels_taken(c->letters[r][k][i].out);
        }
  pthread_mutex_destroy(&c->lock);
  free(c);
}

/* ---- runs ---- */

struct part_run {
  struct collective_run run;
  struct schedule_request request;
  const struct type *type;
  struct latch *latch;
};

static void part_done(struct collective_run *r, shoal_status s) { latch_done(((struct part_run *)r)->latch, s); }

static void prepare(struct part_run *x, struct rank *me, const struct type *t, int64_t n, int instance, bool in_place,
                    struct latch *latch) {
  char *in = mem_zalloc((size_t)n, t->size), *out = in_place ? in : mem_zalloc((size_t)n, t->size);
  t->fill(in, n, me->rank + instance);
  *x = (struct part_run){.type = t, .latch = latch};
  x->request =
      (struct schedule_request){.operation = OPERATION_ALL_REDUCE, .rank = me->rank, .size = me->crowd->size, .n = n};
  x->run = (struct collective_run){.request = &x->request,
                                   .id = {.step = 1, .group_key = 2, .instance_key = instance},
                                   .transport = parcels_transport(me->parcels),
                                   .arithmetic = &t->sum,
                                   .members = me->crowd->size,
                                   .element = t->size,
                                   .in = in,
                                   .out = out,
                                   .done = part_done};
}

static void let_go(struct part_run *x) {
  if (x->run.out != x->run.in) free(x->run.out);
  free((void *)(uintptr_t)x->run.in);
}

/* S(lo, n): the order of pairs. */
static void reference(const struct part_run *x, int lo, int n, char *to) {
  const struct type *t = x->type;
  size_t bytes = (size_t)x->request.n * t->size;
  if (n == 1) {
    t->fill(to, x->request.n, lo + x->run.id.instance_key);
    return;
  }
  int h = 1;
  while (h * 2 < n) h *= 2;
  char *right = mem_alloc(bytes);
  reference(x, lo, h, to);
  reference(x, lo + h, n - h, right);
  t->sum.merge(&t->sum, to, to, right, x->request.n);
  free(right);
}

static void check(const struct part_run *x) {
  size_t bytes = (size_t)x->request.n * x->type->size;
  char *wanted = mem_alloc(bytes);
  reference(x, 0, x->request.size, wanted);
  assert_memory_equal(x->run.out, wanted, bytes);
  free(wanted);
}

/* ---- the tests ---- */

struct job {
  struct rank *me;
  struct part_run *runs; /* [MANY] */
  int order[MANY], together;
};

/* `together` at a time. */
static void *begin(void *arg) {
  struct job *j = arg;
  for (int i = 0; i < MANY; i += j->together) {
    int end = i + j->together < MANY ? i + j->together : MANY;
    for (int k = i; k + 1 < end; k++) j->runs[j->order[k]].run.next = &j->runs[j->order[k + 1]].run;
    collective_run_start(&j->runs[j->order[i]].run);
  }
  return NULL;
}

static void mix(struct job *j, int kind) {
  static const int together[] = {MANY, 7, 1, 13};
  unsigned seed = (unsigned)(j->me->rank * 31 + kind);
  j->together = together[(j->me->rank + kind) % 4];
  for (int i = 0; i < MANY; i++) j->order[i] = i;
  for (int i = MANY - 1; i > 0 && kind; i--) {
    int k = (int)((seed = seed * 1103515245u + 12345u) >> 16) % (i + 1), was = j->order[i];
    j->order[i] = j->order[k];
    j->order[k] = was;
  }
}

static void run_crowd(int size, int kind) {
  static const int64_t sizes[] = {1, 2, 3, 7, 8, 33, 64, 1000, 1023, 4096};
  struct crowd *c = crowd_new(size);
  struct part_run *runs = mem_zalloc((size_t)(size * MANY), sizeof *runs);
  struct job jobs[MOST];
  pthread_t threads[MOST];
  struct latch latch;
  latch_init(&latch, size * MANY);
  for (int r = 0; r < size; r++) {
    for (int i = 0; i < MANY; i++)
      prepare(&runs[r * MANY + i], &c->ranks[r], &types[i % TYPES], sizes[(i + kind) % 10], i + 1, (i + r) % 2, &latch);
    jobs[r] = (struct job){&c->ranks[r], &runs[r * MANY]};
    mix(&jobs[r], kind);
  }
  for (int r = 0; r < size; r++) assert_int_equal(pthread_create(&threads[r], NULL, begin, &jobs[r]), 0);
  for (int r = 0; r < size; r++) pthread_join(threads[r], NULL);
  ASSERT_OK(latch_finish(&latch));
  for (int i = 0; i < size * MANY; i++) {
    check(&runs[i]);
    let_go(&runs[i]);
  }
  free(runs);
  crowd_free(c);
}

static void test_all_come_in_any_order(void **state) {
  for (int size = 2; size <= MOST; size++)
    for (int kind = 0; kind < 3; kind++) run_crowd(size, kind);
}

/* Ranks one after the other, each with all at once: a message each way and, among three, one of the sums;
 * among four two rounds. */
static void test_those_that_come_together_are_one_message(void **state) {
  for (int size = 2; size <= 4; size++) {
    struct crowd *c = crowd_new(size);
    struct part_run *runs = mem_zalloc((size_t)(size * MANY), sizeof *runs);
    struct latch latch;
    latch_init(&latch, size * MANY);
    for (int r = 0; r < size; r++) {
      struct job j = {&c->ranks[r], &runs[r * MANY]};
      for (int i = 0; i < MANY; i++) prepare(&j.runs[i], &c->ranks[r], FLOAT, 100, i, true, &latch);
      mix(&j, 0);
      j.together = MANY;
      begin(&j);
    }
    ASSERT_OK(latch_finish(&latch));
    for (int r = 0; r < size; r++) assert_int_equal(c->sent[r], size == 3 ? 4 : size / 2);
    for (int i = 0; i < size * MANY; i++) {
      check(&runs[i]);
      let_go(&runs[i]);
    }
    free(runs);
    crowd_free(c);
  }
}

static void start_one(struct crowd *c, struct part_run *x, int rank, int64_t n, struct latch *latch) {
  prepare(x, &c->ranks[rank], FLOAT, n, 5, false, latch);
  collective_run_start(&x->run);
}

static void test_shapes_that_differ_are_told(void **state) {
  for (int first = 0; first < 2; first++) {
    struct crowd *c = crowd_new(2);
    struct part_run runs[2];
    struct latch latch;
    latch_init(&latch, 1);
    start_one(c, &runs[first], first, 10, &latch);
    assert_int_equal(parcels_missing(c->ranks[first].parcels), 1 - first);
    struct latch other;
    latch_init(&other, 1);
    start_one(c, &runs[1 - first], 1 - first, 11, &other);
    ASSERT_FAILS(latch_finish(&latch), SHOAL_INVALID_ARGUMENT,
                 first ? "zero (rank 0) has come" : "one (rank 1) has come");
    ASSERT_FAILS(latch_finish(&other), SHOAL_INVALID_ARGUMENT, "another operation, type or shape");
    for (int r = 0; r < 2; r++) let_go(&runs[r]);
    crowd_free(c);
  }
}

static void test_what_is_given_up_ends_and_all_after_it(void **state) {
  struct crowd *c = crowd_new(3);
  struct part_run runs[2];
  struct latch latch;
  latch_init(&latch, 2);
  start_one(c, &runs[0], 0, 10, &latch);
  collective_run_fail(&runs[0].run, STATUS(SHOAL_ABORTED, "enough"));
  prepare(&runs[1], &c->ranks[0], FLOAT, 3, 6, false, &latch);
  collective_run_start(&runs[1].run);
  ASSERT_FAILS(latch_finish(&latch), SHOAL_ABORTED, "enough");
  for (int i = 0; i < 2; i++) let_go(&runs[i]);
  crowd_free(c);
}

/* ---- messages of another type ---- */

static float as_bf16(float f) { return bf16_to_float(bf16_from_float(f)); }

/* In the order of pairs, of what is rounded; then the mean is. */
static float rounded_sum(int lo, int n, int64_t i) {
  float own = 0.1f * (float)(lo + 1) + (float)i * 0.37f;
  int h = 1;
  while (h * 2 < n) h *= 2;
  return n == 1 ? as_bf16(own) : rounded_sum(lo, h, i) + rounded_sum(lo + h, n - h, i);
}

static void half_of(const struct collective_arithmetic *a, void *sum, int members, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((float *)sum)[i] /= (float)members;
}

static void test_messages_of_bfloat16(void **state) {
  static const int64_t sizes[] = {1, 5, 1024, 1025, 100003};
  struct collective_arithmetic mean = FLOAT->sum;
  mean.final = half_of;
  for (int size = 2; size <= MOST; size++)
    for (int k = 0; k < 10; k++) {
      struct crowd *c = crowd_new(size);
      struct part_run runs[MOST];
      struct latch latch;
      int64_t n = sizes[k / 2];
      latch_init(&latch, size);
      for (int r = 0; r < size; r++) {
        prepare(&runs[r], &c->ranks[r], FLOAT, n, 1, k % 2, &latch);
        runs[r].run.wire = SHOAL_BFLOAT16;
        runs[r].run.arithmetic = &mean;
        for (int64_t i = 0; i < n; i++)
          ((float *)(uintptr_t)runs[r].run.in)[i] = 0.1f * (float)(r + 1) + (float)i * 0.37f;
      }
      for (int r = 0; r < size; r++) collective_run_start(&runs[r].run);
      ASSERT_OK(latch_finish(&latch));
      for (int r = 0; r < size; r++)
        for (int64_t i = 0; i < n; i++) {
          float wanted = as_bf16(rounded_sum(0, size, i) / (float)size);
          assert_memory_equal((float *)runs[r].run.out + i, &wanted, sizeof wanted);
        }
      for (int r = 0; r < size; r++) let_go(&runs[r]);
      crowd_free(c);
    }
}

/* ---- strangers ---- */

static struct tensor letter_of(const struct parcel_entry *entries, size_t n, size_t bytes) {
  struct tensor t;
  size_t least = parcel_head(n);
  ASSERT_OK(tensor_new_dims(&t, SHOAL_UINT8, 1, &(int64_t){(int64_t)(bytes > least ? bytes : least)}));
  memset(t.data, 0, (size_t)t.n);
  parcel_put_count(t.data, n);
  for (size_t i = 0; i < n; i++) parcel_put(t.data, i, &entries[i]);
  return t;
}

static void refuses_among(int size, struct tensor t, const char *text) {
  struct crowd *c = crowd_new(size);
  struct part_run x;
  struct latch latch;
  latch_init(&latch, 1);
  start_one(c, &x, 0, 10, &latch);
  ASSERT_OK(send_parcel(&c->ranks[1].wire, 0, 0, &t, NULL));
  shoal_status s = latch_finish(&latch);
  assert_non_null(s);
  ASSERT_FAILS(s, shoal_status_code(s), text);
  let_go(&x);
  crowd_free(c);
}

static void refuses(struct tensor t, const char *text) { refuses_among(3, t, text); }

static void test_what_makes_no_sense_is_refused(void **state) {
  const struct parcel_entry good = {.n = 10, .instance_key = 5, .element = 4};
  struct parcel_entry e[2] = {good, good};
  static const char wrong[] = "one (rank 1) sends what is no parcel";
  refuses(letter_of(e, 2, 4096), wrong); /* twice */
  refuses(letter_of(e, 1, 0), wrong);    /* no elements */
  refuses(letter_of(e, 0, 0), wrong);
  struct tensor t = letter_of(e, 1, 4096);
  parcel_put_count(t.data, UINT32_MAX);
  refuses(t, wrong);
  ASSERT_OK(tensor_new_dims(&t, SHOAL_UINT8, 1, &(int64_t){3}));
  memset(t.data, 1, 3);
  refuses(t, wrong);
  e[0].n = INT64_MAX;
  refuses(letter_of(e, 1, 4096), wrong);
  e[0] = good;
  e[0].n = -1;
  refuses(letter_of(e, 1, 4096), wrong);
  e[0] = good;
  e[0].element = 0;
  refuses(letter_of(e, 1, 4096), wrong);
  e[0] = good;
  e[0].element = 8;
  refuses(letter_of(e, 1, 4096), "another operation, type or shape");
  e[0] = good;
  e[0].stage = PARCEL_SUM;
  e[1] = e[0];
  refuses(letter_of(e, 2, 4096), wrong); /* a piece of the sum twice */
  e[0].instance_key = 6;                 /* of what this rank has not come to */
  refuses(letter_of(e, 1, 4096), wrong);
  e[0] = good;
  refuses_among(4, letter_of(e, 1, 4096), "another operation, type or shape"); /* no round where there are such */
  e[0].stage = PARCEL_ROUND;
  refuses(letter_of(e, 1, 4096), wrong);                         /* one where there are none */
  refuses_among(4, letter_of(e, 1, parcel_head(1) + 32), wrong); /* a part of it */
  for (unsigned round = 1; round < 40; round += 3) {
    e[0].stage = PARCEL_ROUND + round;
    refuses_among(4, letter_of(e, 1, 4096), wrong); /* another rank's, or one too many */
  }
}

/* ---- a sender that writes on ---- */

/* What it has sent lies in memory that it shares; when that is let go of, something else is there. */
static void scribble(struct buffer *b) { memset(b->owner, 0xff, 4096); }

static void (*whole_merge)(const struct collective_arithmetic *a, void *out, const void *x, const void *y, int64_t n);
static char *shared;

/* While one of the collectives is summed it says something else of the other: first that it is a third, then that both
 * are the other. */
static void merge_and_change(const struct collective_arithmetic *a, void *out, const void *x, const void *y,
                             int64_t n) {
  struct parcel_entry e;
  memcpy(&e, shared + parcel_head(0), sizeof e);
  if (e.frame) parcel_put(shared, 1, &e);
  else parcel_put(shared, 0, &(struct parcel_entry){.n = 10, .instance_key = 8, .element = 4});
  whole_merge(a, out, x, y, n);
}

static void test_a_parcel_that_changes_is_read_once(void **state) {
  for (unsigned frame = 0; frame < 2; frame++) {
    struct crowd *c = crowd_new(2);
    struct part_run x[2];
    struct latch latch;
    struct collective_arithmetic sum = FLOAT->sum;
    const struct parcel_entry e[] = {{.frame = frame, .n = 10, .instance_key = 9, .element = 4},
                                     {.n = 10, .instance_key = 5, .element = 4}};
    latch_init(&latch, 2);
    shared = aligned_alloc(64, 4096);
    struct tensor whole = letter_of(e, 2, 4096), t = whole;
    memcpy(shared, whole.data, 4096);
    tensor_release(&whole);
    t.data = shared;
    t.buffer = buffer_wrap(shared, 4096, NULL, scribble, shared);
    for (int i = 0; i < 10; i++) ((float *)(shared + parcel_head(2)))[i] = 100;
    whole_merge = sum.merge;
    sum.merge = merge_and_change;
    prepare(&x[0], &c->ranks[0], FLOAT, 10, 5, false, &latch);
    x[0].run.arithmetic = &sum;
    collective_run_start(&x[0].run);
    ASSERT_OK(send_parcel(&c->ranks[1].wire, 0, 0, &t, NULL));
    prepare(&x[1], &c->ranks[0], FLOAT, 10, 9, false, &latch);
    x[1].run.id.frame = frame;
    collective_run_start(&x[1].run);
    for (int k = 0; k < 2; k++) { /* what rank 0 has sent is taken */
      struct letter *l = &c->letters[0][1][k];
      l->is_there = false;
      tensor_release(&l->value);
      parcels_taken(l->out);
    }
    ASSERT_OK(latch_finish(&latch));
    for (int i = 0; i < 10; i++) assert_true(((const float *)x[1].run.out)[i] == 100 + ((const float *)x[1].run.in)[i]);
    for (int i = 0; i < 2; i++) let_go(&x[i]);
    crowd_free(c);
    free(shared);
  }
}

/* Entries of which each would be a collective of its own: of as many as can be sent, no more are kept than one can be
 * ahead, and names that are chosen so that they fell into one place take no longer. */
static void test_there_is_an_end_to_being_ahead(void **state) {
  enum { N = 200000 };
  struct parcel_entry *e = mem_zalloc(N, sizeof *e);
  for (uint64_t i = 0; i < N; i++)
    e[i] = (struct parcel_entry){
        .frame = i * 0xef7bdef7bdef7bdfu << 32, .iter = i, .n = 1, .instance_key = 6, .element = 1};
  struct tensor t = letter_of(e, N, parcel_head(N) + (size_t)N * PARCEL_LINE);
  refuses(t, "one (rank 1) is more than 65536 collectives ahead");
  e[0].n = 0;
  refuses(letter_of(e, 1, 4096), "one (rank 1) sends what is no parcel");
  free(e);
}

static void test_which_are_taken(void **state) {
  assert_true(parcels_takes(OPERATION_ALL_REDUCE, 1024, 4, 2, -1, 0));
  assert_true(parcels_takes(OPERATION_ALL_REDUCE, 1024, 4, 2, ALGORITHM_DIRECT, 0));
  assert_false(parcels_takes(OPERATION_ALL_REDUCE, 1024, 4, 2, ALGORITHM_TREE, 0));
  assert_false(parcels_takes(OPERATION_ALL_REDUCE, 0, 4, 2, -1, 0));
  assert_false(parcels_takes(OPERATION_ALL_REDUCE, 1 << 20, 4, 2, -1, 0));
  assert_false(parcels_takes(OPERATION_ALL_REDUCE, INT64_MAX, 16, 2, -1, 0));
  assert_false(parcels_takes(OPERATION_ALL_REDUCE, 8, 4, 1, -1, 0));
  assert_false(parcels_takes(OPERATION_ALL_REDUCE, 8, 4, PARCELLED_RANKS + 1, -1, 0));
  assert_false(parcels_takes(OPERATION_ALL_GATHER, 8, 4, 2, -1, 0));
  assert_true(parcels_takes(OPERATION_ALL_REDUCE, 1 << 20, 4, 2, ALGORITHM_DIRECT, SHOAL_BFLOAT16));
  assert_false(parcels_takes(OPERATION_ALL_REDUCE, 1 << 20, 4, PARCELLED_RANKS + 1, -1, SHOAL_BFLOAT16));
}

RUN_TESTS(cmocka_unit_test(test_all_come_in_any_order), cmocka_unit_test(test_those_that_come_together_are_one_message),
          cmocka_unit_test(test_shapes_that_differ_are_told),
          cmocka_unit_test(test_what_is_given_up_ends_and_all_after_it), cmocka_unit_test(test_messages_of_bfloat16),
          cmocka_unit_test(test_what_makes_no_sense_is_refused),
          cmocka_unit_test(test_a_parcel_that_changes_is_read_once),
          cmocka_unit_test(test_there_is_an_end_to_being_ahead), cmocka_unit_test(test_which_are_taken))
