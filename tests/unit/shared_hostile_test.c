/* A member of a group in shared memory that writes there what it likes, in its own home and in others': who computes
 * with it gets wrong numbers or an error, and can always give up; nothing is read or written out of bounds (this test
 * is worth most under AddressSanitizer), and nobody waits, or spins, for ever: a test that does is ended by an alarm.
 */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/latch.h"
#include "collective/shared_group.h"

enum { RANKS = 3, N = 50000, PATIENCE_MS = 30, ALARM_S = 300 };

static struct shared_home *homes[RANKS];
static struct shared_memory *views[RANKS];
static struct shared_group *groups[RANKS];

static int open_group(void **state) {
  static uint64_t identity = 1;
  static const char *const names[RANKS] = {"/task:0", "/task:1", "/task:2"};
  struct shared_place places[RANKS];
  alarm(ALARM_S);
  for (int i = 0; i < RANKS; i++) {
    homes[i] = shared_home_new();
    places[i] = shared_home_place(homes[i]);
    views[i] = shared_view_open(&places[i]);
    if (!views[i]) return -1;
  }
  for (int i = 0; i < RANKS; i++)
    groups[i] = shared_group_new(&(struct shared_group_request){
        .home = homes[i], .identity = identity, .rank = i, .size = RANKS, .places = places, .names = names});
  identity++;
  return 0;
}

static int close_group(void **state) {
  for (int i = 0; i < RANKS; i++) shared_group_free(groups[i]);
  for (int i = 0; i < RANKS; i++) {
    shared_view_close(views[i]);
    shared_home_free(homes[i]);
  }
  alarm(0);
  return 0;
}

/* The area of a rank: the one that its home has. */
static struct shared_area *area_of(int rank) {
  for (int i = 0; i < SHARED_AREAS; i++)
    if (atomic_load(&views[rank]->areas[i].key)) return &views[rank]->areas[i];
  return NULL;
}

static void add(const struct collective_arithmetic *a, void *out, const void *x, const void *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((uint32_t *)out)[i] = ((const uint32_t *)x)[i] + ((const uint32_t *)y)[i];
}

struct rank_run {
  struct collective_run run;
  struct schedule_request request;
  struct latch latch;
  uint32_t in[N], out[N];
};

static void done(struct collective_run *r, shoal_status s) { latch_done(&((struct rank_run *)r)->latch, s); }

static void begin(struct rank_run *x, int rank, int instance) {
  static const struct collective_arithmetic sum = {add, NULL};
  x->request = (struct schedule_request){.operation = OPERATION_ALL_REDUCE, .rank = rank, .size = RANKS, .n = N};
  x->run = (struct collective_run){.request = &x->request,
                                   .id = {.step = 5, .group_key = 1, .instance_key = instance},
                                   .transport = shared_group_transport(groups[rank]),
                                   .arithmetic = &sum,
                                   .members = RANKS,
                                   .element = sizeof *x->in,
                                   .in = x->in,
                                   .out = x->out,
                                   .done = done};
  latch_init(&x->latch, 1);
  collective_run_start(&x->run);
}

/* Its outcome; it is given up when it takes long. */
static shoal_status finish(struct rank_run *x) {
  if (!latch_wait_until(&x->latch, deadline_after_ms(PATIENCE_MS)))
    collective_run_fail(&x->run, STATUS(SHOAL_DEADLINE_EXCEEDED, "it takes too long"));
  return latch_finish(&x->latch);
}

static void honest_members(void **state) {
  static struct rank_run x[RANKS];
  for (int i = 0; i < RANKS; i++) {
    for (int k = 0; k < N; k++) x[i].in[k] = (uint32_t)(k + i);
    begin(&x[i], i, 1);
  }
  for (int i = 0; i < RANKS; i++) ASSERT_OK(latch_finish(&x[i].latch));
  for (int k = 0; k < N; k++) assert_int_equal(x[1].out[k], 3 * k + 3);
}

/* An epoch after which none can come: counting on would begin anew, in an epoch that is over when it begins. */
static void the_last_epoch(void **state) {
  static struct rank_run x;
  for (int is_epoch = 0; is_epoch < 2; is_epoch++) {
    struct shared_area *a = area_of(RANKS - 1);
    atomic_store(is_epoch ? &a->epoch : &a->broken, UINT64_MAX);
    begin(&x, 1, 1);
    ASSERT_FAILS(latch_finish(&x.latch), SHOAL_INTERNAL, "/task:2 (rank 2) says what cannot be");
    assert_true(shared_group_is_dead(groups[1]));
    assert_false(shared_group_is_dead(groups[0]));
    close_group(state);
    assert_int_equal(open_group(state), 0);
  }
}

/* Rank 0 has come, as it seems, and is stopped before it says what is next, or before it has come to this epoch: the
 * others know for whom they wait. */
static void who_says_nothing_is_missing(void **state) {
  static struct rank_run x[RANKS];
  for (int i = 1; i < RANKS; i++) begin(&x[i], i, 1);
  struct shared_area *zero = area_of(0), *one = area_of(1), *two = area_of(2);
  while (!atomic_load(&one->posted) || !atomic_load(&two->posted)) usleep(100); /* or rank 2 is missing, too */
  assert_int_equal(shared_group_missing(groups[1], &x[1].run.id), 0);
  zero->posts[0] = one->posts[0];
  atomic_store(&zero->posted, 1);
  assert_int_equal(shared_group_missing(groups[1], &x[1].run.id), 0);
  atomic_store(&zero->epoch, atomic_load(&one->epoch));
  assert_int_equal(shared_group_missing(groups[1], &x[1].run.id), 0);
  for (int i = 1; i < RANKS; i++) ASSERT_FAILS(finish(&x[i]), SHOAL_DEADLINE_EXCEEDED, "");
}

/* It ends every epoch that the others come to. */
struct ender {
  atomic_bool stop;
  struct shared_area *own, *other;
};

static void *end_epochs(void *arg) {
  struct ender *e = arg;
  while (!atomic_load(&e->stop)) {
    uint64_t epoch = atomic_load(&e->other->epoch);
    atomic_store(&e->own->epoch, epoch);
    atomic_store(&e->own->broken, epoch);
  }
  return NULL;
}

static void epochs_without_end(void **state) {
  static struct rank_run x[2];
  struct ender e = {.own = area_of(RANKS - 1), .other = area_of(0)};
  pthread_t t;
  assert_int_equal(pthread_create(&t, NULL, end_epochs, &e), 0);
  for (int i = 0; i < 2; i++) begin(&x[i], i, 1);
  for (int i = 0; i < 2; i++) shoal_status_free(finish(&x[i]));
  for (int i = 0; i < 2; i++) assert_true(shared_group_is_idle(groups[i]));
  for (int i = 0; i < 2; i++) shared_group_free(groups[i]); /* while it goes on */
  groups[0] = groups[1] = NULL;
  atomic_store(&e.stop, true);
  pthread_join(t, NULL);
}

/* It writes anything anywhere but into what is summed. */
struct scribbler {
  atomic_bool stop;
  uint64_t random;
};

static uint64_t draw(struct scribbler *s) {
  s->random = s->random * 6364136223846793005ull + 1442695040888963407ull;
  return s->random >> 20;
}

static void *scribble(void *arg) {
  struct scribbler *s = arg;
  while (!atomic_load(&s->stop)) {
    struct shared_area *a = area_of((int)(draw(s) % RANKS));
    uint64_t values[] = {0, 1, 2, 3, draw(s) % 2000, UINT64_MAX, UINT64_MAX / 2, draw(s)}, v = values[draw(s) % 8];
    if (!a) continue;
    switch (draw(s) % 10) {
      case 0: atomic_store(&a->epoch, v); break;
      case 1: atomic_store(&a->broken, v); break;
      case 2: atomic_store(&a->posted, v); break;
      case 3: atomic_store(&a->ordered, v); break;
      case 4: atomic_store(&a->turn, v); break;
      case 5: atomic_store(&a->asleep, (uint32_t)v); break;
      case 6: atomic_store(&a->bell, (uint32_t)v); break;
      case 7: a->posts[draw(s) % SHARED_POSTS].n = (int64_t)v; break;
      case 8: a->order[draw(s) % 8].differs = (int64_t)v; break;
      default: a->order[draw(s) % 8].id.instance_key = (int32_t)v; break;
    }
    if (draw(s) % 64 == 0) usleep(50);
  }
  return NULL;
}

static void scribbled_upon(void **state) {
  static struct rank_run x[RANKS];
  struct scribbler s = {.random = 7};
  pthread_t t;
  for (int round = 0; round < 12; round++) {
    for (int i = 0; i < RANKS; i++) begin(&x[i], i, round);
    atomic_store(&s.stop, false);
    assert_int_equal(pthread_create(&t, NULL, scribble, &s), 0);
    for (int k = 0; k < 4; k++) {
      for (int i = 0; i < RANKS; i++) shoal_status_free(finish(&x[i]));
      if (k < 3)
        for (int i = 0; i < RANKS; i++) begin(&x[i], i, 100 + round);
    }
    atomic_store(&s.stop, true);
    pthread_join(t, NULL);
    for (int i = 0; i < RANKS; i++) assert_true(shared_group_is_idle(groups[i]));
    close_group(state);
    assert_int_equal(open_group(state), 0);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_group, close_group)
RUN_TESTS(TEST(honest_members), TEST(who_says_nothing_is_missing), TEST(the_last_epoch), TEST(epochs_without_end),
          TEST(scribbled_upon))
