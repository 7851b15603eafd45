/* What a thread begins one after another, and would better begin together.
 *
 * Whoever starts many things that wait (an executor, src/runtime/straight.c) opens a scope around that. What is started
 * inside may be left for later: it is begun when no more is about to be started, before the thread computes anything,
 * and at the latest when the scope is closed. So the collectives that a step comes to at one moment are one list for
 * those who do them, and wake them once. */
#ifndef BASE_TOGETHER_H
#define BASE_TOGETHER_H

#include <stdbool.h>
#include <stddef.h>

struct together { /* in the memory of what is left */
  void (*begin)(struct together *t);
  struct together *next;
};

struct together_scope {
  int depth;
  struct together *left;
};
extern __thread struct together_scope together_scope; /* this thread's */

/* What was left is begun. */
static inline void together_begin(void) {
  for (struct together *t; (t = together_scope.left);) {
    together_scope.left = t->next;
    t->begin(t);
  }
}

static inline void together_open(void) { together_scope.depth++; }
static inline void together_close(void) {
  together_begin();
  together_scope.depth--;
}

/* False: there is no scope here; it is to be begun at once. */
static inline bool together_leave(struct together *t) {
  if (!together_scope.depth) return false;
  t->next = together_scope.left;
  together_scope.left = t;
  return true;
}

#endif
