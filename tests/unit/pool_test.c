/* Thread pools and cancellation. */
#include "unit.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/pool.h"

static void count(void *arg) { atomic_fetch_add((atomic_int *)arg, 1); }

static atomic_int told;

static void submitted_tasks_all_run(void **state) {
  for (int threads = 1; threads <= 4; threads++) {
    struct pool *p = pool_new(threads, "test");
    assert_int_equal(pool_threads(p), threads);
    atomic_int done = 0;
    for (int i = 0; i < 10000; i++) pool_submit(p, count, &done);
    pool_free(p);
    assert_int_equal(done, 10000);
  }
}

static void tell(void *arg) {
  struct pool *p = arg;
  pool_submit(p, count, &told);
}

/* Who waits for the last task frees the pool, and who has submitted that may not have returned. */
static void freed_when_its_last_task_is_over(void **state) {
  struct pool *others = pool_new(1, "others");
  for (int i = 0; i < 2000; i++) {
    struct pool *p = pool_new(1, "test");
    atomic_store(&told, 0);
    pool_submit(others, tell, p);
    while (!atomic_load(&told)) sched_yield();
    pool_free(p);
  }
  pool_free(others);
}

struct loop {
  atomic_uchar *hits;
  int64_t n, grain;
  atomic_int wrong;
};

static void mark(void *arg, int64_t begin, int64_t end) {
  struct loop *l = arg;
  if (begin < 0 || end > l->n || begin >= end) atomic_fetch_add(&l->wrong, 1);
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&l->hits[i], 1);
}

static void mark_piece(void *arg, int64_t begin, int64_t end) {
  struct loop *l = arg;
  int64_t last = begin + l->grain < l->n ? begin + l->grain : l->n;
  if (begin % l->grain || end != last) atomic_fetch_add(&l->wrong, 1);
  mark(arg, begin, end);
}

static void loops_visit_each_index_once(void **state) {
  static const int64_t sizes[] = {0, 1, 2, 7, 100, 1023, 4096}, grains[] = {1, 3, 64, 5000};
  for (int threads = 0; threads <= 3; threads++) {
    struct pool *p = threads ? pool_new(threads, "test") : NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (size_t k = 0; k < sizeof grains / sizeof *grains; k++) {
        struct loop l = {calloc((size_t)sizes[i] + 1, 1), sizes[i], grains[k], 0};
        pool_for(p, l.n, l.grain, mark, &l);
        pool_for_pieces(p, l.n, l.grain, mark_piece, &l);
        pool_for_tapered(p, l.n, l.grain, l.grain / 8, threads, mark, &l);
        assert_int_equal(l.wrong, 0);
        for (int64_t x = 0; x < l.n; x++) assert_int_equal(l.hits[x], 3);
        free(l.hits);
      }
    if (p) pool_free(p);
  }
}

/* ---- pieces that become smaller ---- */

struct taper {
  atomic_int wrong;
  int64_t n, most, least;
};

/* Whatever the pace of the others, a piece is as large as what was left when it was taken says. */
static void check_size(void *arg, int64_t begin, int64_t end) {
  struct taper *t = arg;
  int64_t want = (t->n - begin) / 6;
  if (want > t->most) want = t->most;
  if (want < t->least) want = t->least;
  if (end - begin != want && end != t->n) atomic_fetch_add(&t->wrong, 1);
}

static void pieces_taper(void **state) {
  struct pool *p = pool_new(3, "test");
  struct taper t = {.n = 1000, .most = 100, .least = 3};
  pool_for_tapered(p, t.n, t.most, t.least, 3, check_size, &t);
  assert_int_equal(t.wrong, 0);
  pool_free(p);
}

struct crowd {
  atomic_int inside, most;
};

static void linger(void *arg, int64_t begin, int64_t end) {
  struct crowd *c = arg;
  int now = atomic_fetch_add(&c->inside, 1) + 1;
  for (int most = atomic_load(&c->most); now > most && !atomic_compare_exchange_weak(&c->most, &most, now);) continue;
  usleep(2000);
  atomic_fetch_sub(&c->inside, 1);
}

static void a_loop_keeps_to_its_threads(void **state) {
  struct pool *p = pool_new(8, "test");
  for (int threads = 1; threads <= 3; threads++) {
    struct crowd c = {0};
    pool_for_tapered(p, 32, 1, 1, threads, linger, &c);
    assert_int_equal(c.inside, 0);
    assert_true(c.most <= threads);
  }
  pool_free(p);
}

struct computer {
  struct pool *p;
  atomic_int state; /* 1: it computes; 2: it is to rest */
};

static void *compute(void *arg) {
  struct computer *c = arg;
  pool_compute(c->p);
  atomic_store(&c->state, 1);
  while (atomic_load(&c->state) == 1) usleep(100);
  pool_rest();
  return NULL;
}

static int most_in_a_loop(struct pool *p) {
  struct crowd c = {0};
  pool_for(p, 16, 1, linger, &c);
  return c.most;
}

/* Of two threads that compute on two cores none has the other's. */
static void who_computes_does_not_help(void **state) {
  struct pool *p = pool_new(2, "test");
  struct computer c = {p, 0};
  pthread_t t;
  pool_compute(p);
  pool_compute(p); /* they nest */
  pool_rest();
  pthread_create(&t, NULL, compute, &c);
  while (!atomic_load(&c.state)) usleep(100);
  assert_int_equal(most_in_a_loop(p), 1);
  atomic_store(&c.state, 2);
  pthread_join(t, NULL);
  assert_true(most_in_a_loop(p) <= 2); /* this thread and one other */
  pool_rest();
  pool_free(p);
}

struct nested {
  struct pool *p;
  atomic_int sum;
};
static void inside(void *arg, int64_t begin, int64_t end) {
  atomic_fetch_add(&((struct nested *)arg)->sum, (int)(end - begin));
}
static void outside(void *arg, int64_t begin, int64_t end) {
  struct nested *n = arg;
  for (int64_t i = begin; i < end; i++) pool_for(n->p, 100, 10, inside, n);
}

static void loops_inside_loops_end(void **state) {
  struct nested n = {pool_new(2, "test"), 0};
  pool_for(n.p, 50, 1, outside, &n);
  assert_int_equal(n.sum, 5000);
  pool_free(n.p);
}

struct hindered {
  struct pool *p;
  atomic_int by_helpers;
};
/* Who helps takes far longer than the caller would. */
static void slow_helpers(void *arg, int64_t begin, int64_t end) {
  struct hindered *h = arg;
  if (!pool_is_mine(h->p)) {
    for (volatile int i = 0; i < 2000; i++) {
    } /* time for them to come */
    return;
  }
  atomic_fetch_add(&h->by_helpers, 1);
  usleep(2000);
}

static void helpers_that_bring_nothing_are_left_asleep(void **state) {
  enum { LOOPS = 260, TRIES = LOOPS / 13 };
  struct hindered h = {pool_new(2, "test"), 0};
  int helped = 0;
  for (int i = -1; i < LOOPS; i++) {
    h.by_helpers = 0;
    pool_for(h.p, 8, 1, slow_helpers, &h);
    if (i >= 0 && h.by_helpers) helped++;
  }
  assert_true(helped <= TRIES);
  pool_free(h.p);
}

static void hook(void *arg) { atomic_fetch_add((atomic_int *)arg, 1); }

static void cancel_calls_each_hook_once(void **state) {
  struct cancel c;
  cancel_init(&c);
  struct cancel_hook a, b;
  atomic_int calls = 0;
  assert_true(cancel_register(&c, &a, hook, &calls));
  assert_true(cancel_register(&c, &b, hook, &calls));
  assert_true(cancel_deregister(&c, &b));
  assert_null(cancel_reason(&c));
  cancel_start(&c, STATUS(SHOAL_DEADLINE_EXCEEDED, "time is up"));
  cancel_start(&c, STATUS(SHOAL_ABORTED, "later"));
  assert_int_equal(calls, 1);
  assert_true(cancel_started(&c));
  assert_false(cancel_deregister(&c, &a));
  assert_false(cancel_register(&c, &b, hook, &calls));
  ASSERT_FAILS(cancel_reason(&c), SHOAL_DEADLINE_EXCEEDED, "time is up");
  cancel_release(&c);
}

struct race {
  struct cancel c;
  atomic_int calls, removed, ready;
};

static void *register_and_remove(void *arg) {
  struct race *r = arg;
  atomic_fetch_add(&r->ready, 1);
  for (int i = 0; i < 2000; i++) {
    struct cancel_hook h;
    if (!cancel_register(&r->c, &h, hook, &r->calls)) break;
    if (cancel_deregister(&r->c, &h)) atomic_fetch_add(&r->removed, 1);
  }
  return NULL;
}

/* A hook's memory may go as soon as deregister returns: ASan and TSan watch this one. */
static void cancel_races_with_deregister(void **state) {
  for (int round = 0; round < 50; round++) {
    struct race r = {0};
    cancel_init(&r.c);
    pthread_t t[2];
    for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, register_and_remove, &r);
    while (r.ready < 2) usleep(1);
    cancel_start(&r.c, NULL);
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    assert_true(r.calls <= 2);
    ASSERT_FAILS(cancel_reason(&r.c), SHOAL_CANCELLED, "");
    cancel_release(&r.c);
  }
}

RUN_TESTS(cmocka_unit_test(submitted_tasks_all_run), cmocka_unit_test(freed_when_its_last_task_is_over),
          cmocka_unit_test(loops_visit_each_index_once), cmocka_unit_test(a_loop_keeps_to_its_threads),
          cmocka_unit_test(pieces_taper), cmocka_unit_test(who_computes_does_not_help),
          cmocka_unit_test(loops_inside_loops_end), cmocka_unit_test(helpers_that_bring_nothing_are_left_asleep),
          cmocka_unit_test(cancel_calls_each_hook_once), cmocka_unit_test(cancel_races_with_deregister))
