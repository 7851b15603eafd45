/* How many hold a thing that is shared. Who holds it may let others hold it too; the last who lets go of it frees it:
 *
 *   ref_init(&x->refs, 1);                       its maker's
 *   ref_take(&x->refs);                          by somebody who has one, or under the lock of a table that does
 *   if (!ref_drop(&x->refs)) return;             then nobody has any: free what it is made of
 *
 * Taking orders nothing: whoever takes one sees the thing already. Dropping does, so that whoever frees a thing sees
 * what all others did with it. */
#ifndef BASE_REF_H
#define BASE_REF_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

struct ref {
  atomic_int n;
};

static inline void ref_init(struct ref *r, int n) { atomic_init(&r->n, n); }

static inline void ref_take_n(struct ref *r, int n) {
  int before = atomic_fetch_add_explicit(&r->n, n, memory_order_relaxed);
  INVARIANT(6, before > 0);
}

static inline void ref_take(struct ref *r) { ref_take_n(r, 1); }

/* True for the last one. */
static inline bool ref_drop(struct ref *r) {
  int before = atomic_fetch_sub_explicit(&r->n, 1, memory_order_acq_rel);
  INVARIANT(6, before > 0);
  return before == 1;
}

/* How many there are; others may take and drop theirs meanwhile, but where it is 1 that one is the asker's, and nobody
 * can: the thing may be changed, or freed, as it is. */
static inline int ref_count(const struct ref *r) { return atomic_load_explicit(&r->n, memory_order_acquire); }

/* For the only holder of what no table lends, which need not pay for an atomic read-modify-write. */
static inline void ref_take_alone(struct ref *r) { atomic_store_explicit(&r->n, 2, memory_order_relaxed); }
static inline bool ref_drop_own(struct ref *r) { return ref_count(r) == 1 || ref_drop(r); }

/* For what a table lends without holding it: the last one is dropped under the table's lock alone, by ref_drop, which
 * is false where somebody has found it there meanwhile. */
static inline bool ref_drop_unless_last(struct ref *r) {
  for (int n = ref_count(r); n > 1;)
    if (atomic_compare_exchange_weak(&r->n, &n, n - 1)) return true;
  return false;
}

#endif
