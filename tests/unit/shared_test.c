/* What is shared: references (base/ref.h), who is inside (base/inside.h), lists (base/list.h). */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/inside.h"
#include "base/list.h"
#include "base/ref.h"
#include "unit.h"

/* Does fn end the process, as a broken invariant does? */
static bool ends(void (*fn)(void)) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    fclose(stderr);
    signal(SIGABRT, SIG_DFL);
    fn();
    _exit(0);
  }
  int how = 0;
  assert_int_equal(waitpid(child, &how, 0), child);
  return WIFSIGNALED(how) || WEXITSTATUS(how) != 0;
}

static void the_last_one_is_told(void **state) {
  struct ref r;
  ref_init(&r, 1);
  ref_take(&r);
  ref_take_n(&r, 2);
  assert_int_equal(ref_count(&r), 4);
  for (int i = 0; i < 3; i++) assert_false(ref_drop(&r));
  assert_false(ref_drop_unless_last(&r)); /* and it stays */
  assert_int_equal(ref_count(&r), 1);
  ref_take_alone(&r);
  assert_int_equal(ref_count(&r), 2);
  assert_true(ref_drop_unless_last(&r));
  assert_true(ref_drop_own(&r));
  assert_true(ref_drop(&r));
}

static void take_of_none(void) {
  struct ref r;
  ref_init(&r, 1);
  ref_drop(&r);
  ref_take(&r);
}

static void drop_of_none(void) {
  struct ref r;
  ref_init(&r, 1);
  ref_drop(&r);
  ref_drop(&r);
}

static void nobody_takes_or_drops_what_nobody_has(void **state) {
  assert_true(ends(take_of_none));
  assert_true(ends(drop_of_none));
}

static struct inside room;
static atomic_int left;

static void *visit(void *arg) {
  usleep(20000);
  atomic_fetch_add(&left, 1);
  inside_leave(&room);
  return NULL;
}

static void whoever_waits_sees_all_leave(void **state) {
  pthread_t t[8];
  inside_init(&room);
  for (int i = 0; i < 8; i++) {
    assert_true(inside_enter(&room));
    assert_int_equal(pthread_create(&t[i], NULL, visit, NULL), 0);
  }
  inside_wait(&room);
  assert_int_equal(atomic_load(&left), 8);
  assert_false(inside_enter(&room));
  for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
}

static void nobody_inside_is_not_waited_for(void **state) {
  inside_init(&room);
  inside_wait(&room);
  assert_false(inside_enter(&room));
}

static void leave_twice(void) {
  inside_init(&room);
  inside_enter(&room);
  inside_leave(&room);
  inside_leave(&room);
  inside_leave(&room);
}

static void nobody_leaves_twice(void **state) { assert_true(ends(leave_twice)); }

struct item {
  struct item *prev, *next;
  int n;
};

static int digits(const struct item *first) {
  int all = 0;
  for (const struct item *i = first, *prev = NULL; i; prev = i, i = i->next) {
    assert_ptr_equal(i->prev, prev);
    all = 10 * all + i->n;
  }
  return all;
}

static void lists_are_taken_apart_in_any_order(void **state) {
  static const int rest[] = {32, 31, 21};
  for (int out = 0; out < 3; out++) {
    struct item all[3] = {{.n = 1}, {.n = 2}, {.n = 3}}, *first = NULL;
    for (int i = 0; i < 3; i++) LIST_ADD(first, &all[i]);
    assert_int_equal(digits(first), 321);
    LIST_REMOVE(first, &all[out]);
    assert_int_equal(digits(first), rest[out]);
    LIST_ADD(first, &all[out]);
    for (int i = 0; i < 3; i++) LIST_REMOVE(first, &all[i]);
    assert_null(first);
  }
}

RUN_TESTS(cmocka_unit_test(the_last_one_is_told), cmocka_unit_test(nobody_takes_or_drops_what_nobody_has),
          cmocka_unit_test(whoever_waits_sees_all_leave), cmocka_unit_test(nobody_inside_is_not_waited_for),
          cmocka_unit_test(nobody_leaves_twice), cmocka_unit_test(lists_are_taken_apart_in_any_order))
