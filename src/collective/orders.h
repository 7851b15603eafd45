/* Orders of collectives that cannot come to an end: a part of those who have members wait, the leader (leader.h) and
 * the meeting of a task's devices (meeting.h), under their locks.
 *
 * A member that waits in one instance may hold others back: it comes to them after that one, as its graph has it
 * (cluster/collective_order.c). Whoever waits in an instance that is held back waits for that member. Where such waits
 * go round in a circle nobody in it will ever be answered, whatever else the steps still do: so it is told at once.
 * Each link of a circle is a member that waits and holds back, so only those are kept here.
 *
 * Strangers say what they hold back, and all who ask wait for a search: it looks at the places of its own step alone,
 * and at no more of them than those of a thousand members come to. A circle that is not found by then is told by the
 * deadline. */
#ifndef COLLECTIVE_ORDERS_H
#define COLLECTIVE_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* How many one holds back, at most: of more, those found first. And the attribute of its node that has their keys,
 * sorted. */
enum { MOST_HELD = 1024 };
#define HOLDS_BACK_ATTR "_holds_back"

/* An instance of a group, in a number. */
static inline int64_t orders_key(int group, int instance) {
  return (int64_t)((uint64_t)(uint32_t)group << 32 | (uint32_t)instance);
}

struct order_held {
  const int64_t *keys; /* sorted */
  int n;
};

/* An instance in which members wait that hold others back. */
struct order_place {
  struct order_place *prev, *next;
  struct order_wait *waits; /* NULL: it is in no list */
  int64_t key, step;
  unsigned seen; /* by which search */
};

struct order_wait {
  struct order_wait *prev, *next;
  struct order_place *place; /* NULL: it is in no list */
  const char *device;
  struct order_held holds;    /* the owner's memory */
  struct order_wait *held_by; /* in a circle that was found */
  struct order_wait *after;   /* in a search */
};

enum { ORDER_LISTS = 64 };

struct orders {
  struct order_place *places[ORDER_LISTS]; /* by step */
  unsigned searches;
  int looks; /* of the search under way */
};

/* w, whose device and holds are set, waits in that place, whose key and step are set. True: that closes a circle, which
 * w->held_by begins, and which ends with w itself. */
bool orders_wait(struct orders *o, struct order_place *at, struct order_wait *w);
/* If it waits. */
void orders_leave(struct orders *o, struct order_wait *w);
/* What those in the circle of w wait for. */
shoal_status orders_circle(const struct order_wait *w);

#endif
