/* Who is inside: calls and work that must have left before a thing goes.
 *
 *   if (!inside_enter(&x->inside)) return;      false: its owner has waited, and x is about to go
 *   ...
 *   inside_leave(&x->inside);                   x may be gone
 *
 *   inside_wait(&x->inside);                    the owner, once; whoever is inside may still let others in
 *
 * To enter and to leave is one atomic operation each: a join (base/join.h) whose first part is the owner's, with a
 * latch behind it. */
#ifndef BASE_INSIDE_H
#define BASE_INSIDE_H

#include "base/join.h"
#include "base/latch.h"

struct inside {
  struct join join;
  struct latch empty;
};

static inline void inside_init(struct inside *i) {
  latch_init(&i->empty, 1);
  join_init(&i->join, 1, latch_done, &i->empty);
}

static inline bool inside_enter(struct inside *i) { return join_enter(&i->join); }

static inline bool inside_has_any(const struct inside *i) { return join_has_others(&i->join); }

static inline void inside_leave(struct inside *i) { join_part(&i->join, NULL); }

static inline void inside_wait(struct inside *i) {
  inside_leave(i);
  shoal_status_free(latch_finish(&i->empty));
}

#endif
