/* What goes on without a thread that waits: strands and joins. */
#include "unit.h"

#include <stdatomic.h>

#include "base/join.h"
#include "base/mem.h"
#include "base/strand.h"

enum { TASKS = 2000, OBJECTS = 8 };

struct object {
  struct strand strand;
  atomic_int inside, refs;
  int next; /* the strand's */
  bool disorder;
};

struct task {
  struct strand_task head;
  struct object *of;
  int number;
};

static void hold(void *o) { atomic_fetch_add(&((struct object *)o)->refs, 1); }
static void let_go(void *o) { atomic_fetch_sub(&((struct object *)o)->refs, 1); }

static void work(struct strand_task *t) {
  struct task *k = (struct task *)t;
  struct object *o = k->of;
  if (atomic_fetch_add(&o->inside, 1) != 0 || !atomic_load(&o->refs)) o->disorder = true;
  if (k->number != o->next++) o->disorder = true;
  atomic_fetch_sub(&o->inside, 1);
  free(k);
}

static void tasks_of_an_object_run_in_order_and_alone(void **state) {
  struct object all[OBJECTS] = {0};
  struct pool *p = pool_new(4, "test");
  for (int i = 0; i < OBJECTS; i++) strand_init(&all[i].strand, p, hold, let_go, &all[i]);
  for (int n = 0; n < TASKS; n++)
    for (int i = 0; i < OBJECTS; i++) {
      struct task *k = mem_zalloc(1, sizeof *k);
      *k = (struct task){{work, NULL}, &all[i], n};
      strand_run(&all[i].strand, &k->head);
    }
  pool_free(p);
  for (int i = 0; i < OBJECTS; i++) {
    assert_false(all[i].disorder);
    assert_int_equal(all[i].next, TASKS);
    assert_int_equal(all[i].refs, 0); /* given back with the last task */
    strand_release(&all[i].strand);
  }
}

struct outcome {
  atomic_int calls;
  shoal_status status;
};

static void ended(void *arg, shoal_status s) {
  struct outcome *o = arg;
  atomic_fetch_add(&o->calls, 1);
  o->status = s;
}

static void part(void *join) { join_part(join, NULL); }

static void failing_part(void *join) { join_part(join, INVALID("this part failed")); }

static void the_last_part_goes_on(void **state) {
  struct pool *p = pool_new(4, "test");
  struct outcome o = {0};
  struct join j;
  join_init(&j, 101, ended, &o);
  for (int i = 0; i < 100; i++) pool_submit(p, i == 50 ? failing_part : part, &j);
  join_part(&j, status_mark_derived(STATUS(SHOAL_CANCELLED, "a consequence")));
  pool_free(p);
  assert_int_equal(o.calls, 1);
  ASSERT_FAILS(o.status, SHOAL_INVALID_ARGUMENT, "this part failed");

  o = (struct outcome){0};
  join_init(&j, 1, ended, &o); /* nothing was started */
  join_part(&j, NULL);
  assert_int_equal(o.calls, 1);
  assert_null(o.status);
}

RUN_TESTS(cmocka_unit_test(tasks_of_an_object_run_in_order_and_alone), cmocka_unit_test(the_last_part_goes_on))
