/* May what has waited go on here, on the thread that ended its waiting?
 *
 * As a rule it does: nobody is woken for it. But it goes on upon the stack of whoever served it, may serve another in
 * its turn, and a chain of thousands would end the stack; and a thread that cancels, or that looks after everybody's
 * time-outs, must not come to compute for a step that only got its turn by that. Then it goes on in a pool. */
#ifndef BASE_GOING_ON_H
#define BASE_GOING_ON_H

#include <stdbool.h>

struct cancel;

enum { GOING_ON_MOST = 32 }; /* one upon another */

struct going_on {
  int depth;
  bool among_others;               /* when it has gone on, others are told of the end of their waiting */
  const struct cancel *cancelling; /* whose hooks this thread calls; NULL: nobody's */
};
extern __thread struct going_on going_on; /* this thread's */

/* own: what would cancel the one that goes on. Who is being cancelled here has little left to do, and does it here. */
static inline bool may_go_on(const struct cancel *own) {
  if (going_on.cancelling) return going_on.cancelling == own;
  return going_on.depth < GOING_ON_MOST;
}

/* True: whoever is told of the end of its waiting now is not the last whom this thread tells. Where it would compute
 * for long the others had better not wait for that. What was so before. */
static inline bool going_on_among_others(bool others) {
  bool before = going_on.among_others;
  going_on.among_others = others;
  return before;
}

/* Between these nothing but what is being cancelled goes on here. */
static inline void going_on_forbid(void) { going_on.depth += GOING_ON_MOST; }
static inline void going_on_allow(void) { going_on.depth -= GOING_ON_MOST; }

#endif
