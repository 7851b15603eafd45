/* Ops that wait for a resource to be in some state, without holding a thread. Each has a function that tries to do its
 * job, under the resource's lock; whatever changes the resource lets all who wait try again, in order of arrival. */
#ifndef OPS_STATE_WAIT_LIST_H
#define OPS_STATE_WAIT_LIST_H

#include "base/cancel.h"
#include "ops/state/state.h"

struct staged_waiter;
struct wait_list {
  pthread_mutex_t lock; /* the resource's */
  struct staged_waiter *first;
  bool in_order;    /* nobody gets ahead of who came before */
  const char *what; /* what is cancelled, in the error of who waited; NULL: the op by its name */
};

/* Tries, with the lock held. False: not yet. True: done, with *s the outcome. */
typedef bool (*wait_try)(struct kernel_ctx *ctx, struct resource *r, shoal_status *s);

void wait_list_init(struct wait_list *l);
void wait_list_release(struct wait_list *l);
/* Tries at once, and again after each change, until done or cancelled; then calls ctx_done. r holds the list. */
void wait_start(struct wait_list *l, struct resource *r, struct kernel_ctx *ctx, wait_try attempt);
/* The same, but no longer than until `deadline` (clock_ns()): then it ends in DEADLINE_EXCEEDED, with this message. */
void wait_start_until(struct wait_list *l, struct resource *r, struct kernel_ctx *ctx, wait_try attempt,
                      int64_t deadline, const char *late);
/* After a change made outside of a try: lets everybody try again. Called without the lock; r must be held. */
void wait_changed(struct wait_list *l);
/* The same with the lock held, which it drops. */
void wait_changed_and_unlock(struct wait_list *l);

#endif
