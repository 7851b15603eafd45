/* A bound on what others can make us hold: bytes, connections, streams.
 *
 * Whoever holds something takes it first and gives it back when it is gone. A budget may have a parent (a connection's
 * has the process's): what is taken from the child is taken from the parent, too, or from neither. Thread-safe; most
 * does not change while anything is held. */
#ifndef BASE_BUDGET_H
#define BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct budget {
  atomic_size_t used;
  size_t most; /* 0: nothing can be taken */
  struct budget *parent;
};

static inline void budget_init(struct budget *b, size_t most, struct budget *parent) {
  atomic_init(&b->used, 0);
  b->most = most;
  b->parent = parent;
}

static inline void budget_give(struct budget *b, size_t n) {
  for (; b; b = b->parent) {
    size_t before = atomic_fetch_sub_explicit(&b->used, n, memory_order_relaxed);
    INVARIANT(9, before >= n);
  }
}

/* Takes it whether or not there is room: for what is here already, and bounded otherwise. */
static inline void budget_force(struct budget *b, size_t n) {
  for (; b; b = b->parent) atomic_fetch_add_explicit(&b->used, n, memory_order_relaxed);
}

/* False: there is no room, and nothing was taken. NULL is a budget without bounds. */
static inline bool budget_take(struct budget *b, size_t n) {
  for (struct budget *at = b; at; at = at->parent) {
    size_t before = atomic_fetch_add_explicit(&at->used, n, memory_order_relaxed);
    if (n <= at->most && before <= at->most - n) continue;
    for (struct budget *undo = b;; undo = undo->parent) {
      atomic_fetch_sub_explicit(&undo->used, n, memory_order_relaxed);
      if (undo == at) return false;
    }
  }
  return true;
}

static inline size_t budget_used(const struct budget *b) {
  return atomic_load_explicit(&b->used, memory_order_relaxed);
}

/* Would n be granted, and a part of the whole (1/leaving; 0: nothing) be left for others? */
static inline bool budget_has_room(const struct budget *b, size_t n, size_t leaving) {
  for (; b; b = b->parent) {
    size_t most = b->most - (leaving ? b->most / leaving : 0);
    if (n > most || budget_used(b) > most - n) return false;
  }
  return true;
}

#endif
