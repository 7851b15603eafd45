/* Messages that a thread holds back for a moment, so that those of many small nodes travel together.
 *
 * Whoever runs a plan on its thread (src/cluster) may point `outbox` at one of its own; senders then add to it instead
 * of sending. What is held must not wait for a long computation: the executors ask before each node, and a node that
 * took long is not begun with anything held until it is seen to take little. (It was not forgiven at first: where
 * others want the cores every node takes long some time, and after a while each message travelled alone.) */
#ifndef BASE_OUTBOX_H
#define BASE_OUTBOX_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"

struct outbox {
  int64_t since; /* when the first message was held; 0: there is none */
  int64_t now;   /* the last time that was looked at: since, or the end of a node */
  void (*flush)(struct outbox *o);
};

extern __thread struct outbox *outbox; /* this thread's; NULL: nothing is held back */

enum { OUTBOX_HOLD_NS = 100000 };

/* Before a node: sends what has been held long enough, or anything if the node is known as slow. Returns when the node
 * begins if something was held and the node is worth looking at, else 0. That is when the one before it ended: the
 * clock is read once for each. */
static inline int64_t outbox_before(const atomic_bool *slow) {
  struct outbox *o = outbox;
  if (!o || !o->since) return 0;
  bool is_slow = atomic_load_explicit(slow, memory_order_relaxed), ripe = o->now - o->since >= OUTBOX_HOLD_NS;
  if (!ripe && !is_slow) return o->now;
  o->flush(o);
  return is_slow ? clock_ns() : 0;
}

/* After it, with what outbox_before() returned. */
static inline void outbox_after(int64_t began, atomic_bool *slow) {
  if (!began) return;
  int64_t now = clock_ns();
  bool is_slow = now - began > OUTBOX_HOLD_NS;
  if (outbox) outbox->now = now;
  if (is_slow != atomic_load_explicit(slow, memory_order_relaxed))
    atomic_store_explicit(slow, is_slow, memory_order_relaxed);
}

#endif
