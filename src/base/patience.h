/* How long it is worth while to look out for something before one sleeps: as long as it comes meanwhile. After several
 * tries in vain it is given up, but for one now and then. Several threads may share one; a lost count does no harm. */
#ifndef BASE_PATIENCE_H
#define BASE_PATIENCE_H

#include <stdatomic.h>
#include <stdbool.h>

struct patience {
  atomic_int left;    /* tries in vain before it is given up */
  atomic_uint spared; /* times not tried since */
};

static inline bool patience_allows(struct patience *p) {
  enum { RETRY = 64 };
  if (atomic_load_explicit(&p->left, memory_order_relaxed)) return true;
  return atomic_fetch_add_explicit(&p->spared, 1, memory_order_relaxed) % RETRY == 0;
}

/* What came of a try. */
static inline void patience_learn(struct patience *p, bool came) {
  enum { FULL = 4 };
  int left = atomic_load_explicit(&p->left, memory_order_relaxed);
  atomic_store_explicit(&p->left, came ? FULL : left ? left - 1 : 0, memory_order_relaxed);
}

#endif
