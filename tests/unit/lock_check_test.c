/* The checker of the order of locks sees what breaks it, and nothing else. It is compiled in here where the build has
 * none. */
#ifndef SHOAL_CHECK_LOCKS
#define SHOAL_CHECK_LOCKS
#include "../../src/base/lock_check.c"
#endif
#include "base/lock_check.h"
#include "unit.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Two places of the order, and none. */
static void make_outer(pthread_mutex_t *m) {
  lock_check_init(m, NULL, "&m->lock", "/usr/src/shoal/src/cluster/master.c");
}
static void make_inner(pthread_mutex_t *m) { lock_check_init(m, NULL, "&p->lock", "../src/cluster/peer.c"); }
static void make_leaf(pthread_mutex_t *m) { lock_check_init(m, NULL, "&x->lock", "../src/base/nowhere.c"); }

static void take(pthread_mutex_t *m) { assert_int_equal(lock_check_lock(m, "m", "test", 1), 0); }

static void as_it_should_be(void) {
  pthread_mutex_t outer, inner[2], leaf;
  make_outer(&outer);
  make_inner(&inner[0]);
  make_inner(&inner[1]);
  make_leaf(&leaf);
  take(&outer);
  take(&inner[0]);
  take(&inner[1]); /* of one kind: by addresses */
  take(&leaf);
  lock_check_unlock(&inner[0]);
  lock_check_unlock(&leaf);
  take(&leaf);
}

static void inverted(void) {
  pthread_mutex_t outer, inner;
  make_outer(&outer);
  make_inner(&inner);
  take(&inner);
  take(&outer);
}

static void inside_a_leaf(void) {
  pthread_mutex_t inner, leaf;
  make_inner(&inner);
  make_leaf(&leaf);
  take(&leaf);
  take(&inner);
}

static void by_falling_addresses(void) {
  pthread_mutex_t inner[2];
  make_inner(&inner[0]);
  make_inner(&inner[1]);
  take(&inner[1]);
  take(&inner[0]);
}

static void twice(void) {
  pthread_mutex_t inner;
  make_inner(&inner);
  take(&inner);
  take(&inner);
}

static void written_in_a_leaf(void) {
  pthread_mutex_t leaf;
  pthread_rwlock_t variable;
  make_leaf(&leaf);
  lock_check_rw_init(&variable, NULL, "&v->lock", "../src/runtime/variable.c");
  take(&leaf);
  lock_check_write(&variable, "l", "test", 1);
}

/* What is tried for, and had, is held like any other. */
static void inside_what_was_tried(void) {
  pthread_mutex_t outer;
  pthread_rwlock_t variable;
  make_outer(&outer);
  lock_check_rw_init(&variable, NULL, "&v->lock", "../src/runtime/variable.c");
  assert_int_equal(lock_check_try_read(&variable, "l", "test", 1), 0);
  take(&outer);
}

static void wait_in(pthread_mutex_t *m) {
  pthread_cond_t never = PTHREAD_COND_INITIALIZER;
  take(m);
  lock_check_timedwait(&never, m, &(struct timespec){0}, "m", "test", 2);
}

static void waiting_with_another(void) {
  pthread_mutex_t outer, inner;
  make_outer(&outer);
  make_inner(&inner);
  take(&outer);
  wait_in(&inner);
}

static void waiting_alone(void) {
  pthread_mutex_t inner;
  make_inner(&inner);
  wait_in(&inner);
}

/* What is only tried for waits for nobody. */
static void tried(void) {
  pthread_mutex_t outer, inner, leaf;
  pthread_rwlock_t variable;
  make_outer(&outer);
  make_inner(&inner);
  make_leaf(&leaf);
  lock_check_rw_init(&variable, NULL, "&v->lock", "../src/runtime/variable.c");
  take(&inner);
  assert_int_equal(lock_check_trylock(&outer, "m", "test", 1), 0);
  take(&leaf);
  assert_int_equal(lock_check_try_read(&variable, "l", "test", 1), 0);
}

/* The next lock at an address is of its own kind, also where others stood in the way in the table. */
static void made_anew(void) {
  static pthread_mutex_t many[4096], inner;
  for (int i = 0; i < 4096; i++) make_leaf(&many[i]);
  for (int i = 0; i < 4096; i += 2) lock_check_destroy(&many[i]);
  make_inner(&inner);
  for (int i = 0; i < 4096; i += 2) make_outer(&many[i]);
  for (int i = 0; i < 4096; i++) {
    if (i % 2) take(&inner);
    take(&many[i]);
    if (!(i % 2)) take(&inner);
    lock_check_unlock(&inner);
    lock_check_unlock(&many[i]);
  }
}

static bool ends_it(void (*fn)(void)) {
  pid_t child = fork();
  if (!child) {
    unsetenv("SHOAL_LOCKS");
    if (!freopen("/dev/null", "w", stderr)) _exit(2);
    fn();
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true((WIFEXITED(status) && WEXITSTATUS(status) == 0) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
  return WIFSIGNALED(status);
}

static void what_breaks_the_order_ends_the_program(void **state) {
  assert_true(ends_it(inverted));
  assert_true(ends_it(inside_a_leaf));
  assert_true(ends_it(by_falling_addresses));
  assert_true(ends_it(twice));
  assert_true(ends_it(written_in_a_leaf));
  assert_true(ends_it(inside_what_was_tried));
  assert_true(ends_it(waiting_with_another));
}

static void all_else_does_not(void **state) {
  assert_false(ends_it(as_it_should_be));
  assert_false(ends_it(waiting_alone));
  assert_false(ends_it(tried));
  assert_false(ends_it(made_anew));
}

RUN_TESTS(cmocka_unit_test(what_breaks_the_order_ends_the_program), cmocka_unit_test(all_else_does_not))
