/* What is held back is sent before a node that took long, and a node is forgiven when it takes little again. */
#include "unit.h"

#include "base/outbox.h"

static int flushed;
static void flush(struct outbox *o) {
  o->since = 0;
  flushed++;
}

enum { LONG_AGO = 1 };
static int64_t soon(void) { return clock_ns() + 1000000000; } /* as a beginning: it took no time */

/* As a sender does with the first message. */
static void hold(struct outbox *o, int64_t since) { o->since = o->now = since; }

static void slow_nodes(void **state) {
  struct outbox box = {.flush = flush};
  atomic_bool slow = false;
  assert_int_equal(outbox_before(&slow), 0); /* nobody holds anything */
  outbox = &box;
  assert_int_equal(outbox_before(&slow), 0); /* there is nothing to be held */
  hold(&box, soon());
  assert_true(outbox_before(&slow) > 0); /* held, and the node is looked at */
  assert_int_equal(flushed, 0);
  outbox_after(LONG_AGO, &slow);
  assert_true(slow);
  assert_true(outbox_before(&slow) > 0); /* not for such a node, which is looked at again */
  assert_int_equal(flushed, 1);
  outbox_after(LONG_AGO, &slow);
  assert_true(slow);
  outbox_after(soon(), &slow);
  assert_false(slow);
  hold(&box, soon());
  assert_true(outbox_before(&slow) > 0);
  assert_int_equal(flushed, 1);
  hold(&box, LONG_AGO);
  box.now = clock_ns(); /* when the node before ended */
  assert_int_equal(outbox_before(&slow), 0); /* held long enough */
  assert_int_equal(flushed, 2);
  outbox = NULL;
}

RUN_TESTS(cmocka_unit_test(slow_nodes))
