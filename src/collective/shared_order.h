/* Which collectives of a shared group (shared_group.h) are next: rank 0 sees what all have posted.
 *
 * Those that all have come to when it looks, of one step, are one exchange as far as they can be (shared_work_joins):
 * whoever posts many together has few of them. Nothing waits for more to come. */
#ifndef COLLECTIVE_SHARED_ORDER_H
#define COLLECTIVE_SHARED_ORDER_H

#include "base/vec.h"
#include "collective/shared_memory.h"

struct shared_order {
  uint64_t seen[SHARED_RANKS]; /* posts of each that were read */
  VEC(struct shared_candidate {
    struct shared_post post;
    int count;
    int64_t differs; /* the rank that says something else; -1 */
  })
  candidates; /* those that not all have come to, the oldest first */
  bool wrong; /* somebody's posts make no sense */
};

/* Whether there is more of it than before, in own->order. */
bool shared_order_look(struct shared_order *o, struct shared_area *const *areas, int size, struct shared_area *own);
void shared_order_clear(struct shared_order *o);
void shared_order_release(struct shared_order *o);
/* Has its rank come to it? */
bool shared_order_has(const struct shared_area *a, const struct collective_id *id);

#endif
