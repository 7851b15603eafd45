/* Who gives up a sum in shared memory and leaves the group gives its area back when nobody works in it any more: a slow
 * member writes its sums there, and the area may be another group's by then. */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/latch.h"
#include "collective/shared_group.h"

enum { N = 4 * SHARED_CHUNK / 4, SLOW, LEAVER, OTHER, HOMES = 3, ALARM_S = 300 };

static struct shared_home *homes[HOMES];
static struct shared_memory *views[HOMES];
static atomic_int goes_on, is_inside, ends, is_over;

struct member {
  struct collective_run run;
  struct schedule_request request;
  struct latch latch;
  struct shared_group *group;
  uint32_t in[N], out[N];
};

static struct shared_area *area_of(int who) {
  struct shared_memory *m = views[who - SLOW];
  for (int i = 0; i < SHARED_AREAS; i++)
    if (atomic_load(&m->areas[i].key) > SHARED_LOST) return &m->areas[i];
  return NULL;
}

static void until(atomic_int *what) {
  while (!atomic_load(what)) usleep(100);
}

static void until_turn(int who, uint64_t turn) {
  while (!area_of(who) || atomic_load(&area_of(who)->turn) < turn) usleep(100);
}

static void add(const struct collective_arithmetic *a, void *out, const void *x, const void *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((uint32_t *)out)[i] = ((const uint32_t *)x)[i] + ((const uint32_t *)y)[i];
}

/* Stands still in its second turn, and again in the third, in which it has seen that all had ended the second. */
static void add_slowly(const struct collective_arithmetic *a, void *out, const void *x, const void *y, int64_t n) {
  uint64_t turn = atomic_load(&area_of(SLOW)->turn);
  if (turn == 1) until(&goes_on);
  if (turn == 2) {
    atomic_store(&is_inside, 1);
    until(&ends);
  }
  add(a, out, x, y, n);
}

/* Stands still in its first sum until the leaver has shown more, and the slow one has been where that lies. */
static void add_late(const struct collective_arithmetic *a, void *out, const void *x, const void *y, int64_t n) {
  if (atomic_load(&area_of(OTHER)->turn) == 1 && !atomic_load(&ends)) {
    until_turn(LEAVER, 2);
    atomic_store(&ends, 1);
    until(&is_over);
  }
  add(a, out, x, y, n);
}

static void done(struct collective_run *r, shoal_status s) { latch_done(&((struct member *)r)->latch, s); }

static void begin(struct member *m, int rank, const struct collective_arithmetic *how) {
  m->request = (struct schedule_request){.operation = OPERATION_ALL_REDUCE, .rank = rank, .size = 2, .n = N};
  m->run = (struct collective_run){.request = &m->request,
                                   .id = {.step = 5, .group_key = 1, .instance_key = 1},
                                   .transport = shared_group_transport(m->group),
                                   .arithmetic = how,
                                   .members = 2,
                                   .element = sizeof *m->in,
                                   .in = m->in,
                                   .out = m->out,
                                   .done = done};
  latch_init(&m->latch, 1);
  collective_run_start(&m->run);
}

static struct member *join(uint64_t identity, int first, int who, int rank, uint32_t times) {
  static const char *const names[] = {"/task:0", "/task:1"};
  const struct shared_place places[] = {shared_home_place(homes[first - SLOW]),
                                        shared_home_place(homes[LEAVER - SLOW])};
  struct member *m = calloc(1, sizeof *m);
  m->group = shared_group_new(&(struct shared_group_request){
      .home = homes[who - SLOW], .identity = identity, .rank = rank, .size = 2, .places = places, .names = names});
  for (uint32_t i = 0; i < N; i++) m->in[i] = i * times;
  return m;
}

static void *free_group(void *group) {
  shared_group_free(group);
  return NULL;
}

static void areas_are_given_back_when_nobody_is_in_them(void **state) {
  static const struct collective_arithmetic plainly = {add, NULL}, slowly = {add_slowly, NULL}, late = {add_late, NULL};
  pthread_t leaving;
  alarm(ALARM_S);
  for (int i = 0; i < HOMES; i++) {
    homes[i] = shared_home_new();
    struct shared_place place = shared_home_place(homes[i]);
    views[i] = shared_view_open(&place);
  }
  struct member *slow = join(5, SLOW, SLOW, 0, 1000), *leaver = join(5, SLOW, LEAVER, 1, 2000);
  begin(slow, 0, &slowly);
  begin(leaver, 1, &plainly);
  until_turn(LEAVER, 2);
  collective_run_fail(&leaver->run, STATUS(SHOAL_CANCELLED, "given up"));
  shoal_status_free(latch_finish(&leaver->latch));
  pthread_create(&leaving, NULL, free_group, leaver->group);
  usleep(20000);
  atomic_store(&goes_on, 1);
  pthread_join(leaving, NULL);
  for (int i = 0; i < 2000 && !atomic_load(&is_inside); i++) usleep(1000);

  struct member *other = join(6, OTHER, OTHER, 0, 1), *again = join(6, OTHER, LEAVER, 1, 2);
  begin(other, 0, &late);
  begin(again, 1, &plainly);
  until(&ends);
  shoal_status_free(latch_finish(&slow->latch));
  atomic_store(&is_over, 1);
  ASSERT_OK(latch_finish(&other->latch));
  ASSERT_OK(latch_finish(&again->latch));
  for (uint32_t i = 0; i < N; i++) {
    assert_int_equal(other->out[i], i * 3);
    assert_int_equal(again->out[i], i * 3);
  }
  struct member *all[] = {slow, other, again};
  for (int i = 0; i < 3; i++) shared_group_free(all[i]->group);
  for (int i = 0; i < 3; i++) free(all[i]);
  free(leaver);
  for (int i = 0; i < HOMES; i++) {
    shared_view_close(views[i]);
    shared_home_free(homes[i]);
  }
}

RUN_TESTS(cmocka_unit_test(areas_are_given_back_when_nobody_is_in_them))
