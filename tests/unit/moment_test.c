/* A moment's wait goes on once, by its time or by its cancellation, whichever comes first and however close they are.
 */
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/moment.h"
#include "unit.h"

struct wait {
  struct moment moment;
  atomic_int times, cancelled;
};

static void over(void *arg, bool cancelled) {
  struct wait *w = arg;
  atomic_fetch_add(&w->cancelled, cancelled);
  atomic_fetch_add(&w->times, 1);
}

static void until_over(struct wait *w) {
  int64_t end = deadline_after_ms(60000);
  while (!atomic_load(&w->times) && clock_ns() < end) usleep(100);
  usleep(1000);
  assert_int_equal(atomic_load(&w->times), 1);
}

static void by_time(void **state) {
  for (int with = 0; with < 2; with++) {
    struct wait w = {0};
    struct cancel c;
    cancel_init(&c);
    int64_t began = clock_ns();
    moment_wait(&w.moment, with ? &c : NULL, 20, over, &w);
    until_over(&w);
    assert_true(clock_ns() - began >= 20 * 1000000 && !atomic_load(&w.cancelled));
    cancel_start(&c, NULL);
    assert_int_equal(atomic_load(&w.times), 1);
    cancel_release(&c);
  }
}

static void by_cancellation(void **state) {
  for (int before = 0; before < 2; before++) {
    struct wait w = {0};
    struct cancel c;
    cancel_init(&c);
    if (before) cancel_start(&c, NULL);
    moment_wait(&w.moment, &c, 600000, over, &w);
    if (!before) cancel_start(&c, NULL);
    assert_true(atomic_load(&w.times) == 1 && atomic_load(&w.cancelled) == 1);
    cancel_release(&c);
  }
}

/* Both at one time, again and again. */
static void by_either(void **state) {
  int cancelled = 0;
  for (int i = 0; i < 300; i++) {
    struct wait w = {0};
    struct cancel c;
    cancel_init(&c);
    moment_wait(&w.moment, &c, 1, over, &w);
    usleep((useconds_t)(900 + i));
    cancel_start(&c, NULL);
    until_over(&w);
    cancelled += atomic_load(&w.cancelled);
    cancel_release(&c);
  }
  print_message("%d of 300 were cancelled\n", cancelled);
}

RUN_TESTS(cmocka_unit_test(by_time), cmocka_unit_test(by_cancellation), cmocka_unit_test(by_either))
