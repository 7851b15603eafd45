/* Growing arrays. VEC(type) declares one; the fields are plain and meant to be read:
 *
 *   VEC(struct shoal_node *) nodes = {0};
 *   vec_push(&nodes, n);
 *   for (size_t i = 0; i < nodes.n; i++) use(nodes.at[i]);
 *   vec_release(&nodes);
 */
#ifndef BASE_VEC_H
#define BASE_VEC_H

#include <stdlib.h>

#include "base/mem.h"

#define VEC(type)  \
  struct {         \
    type *at;      \
    size_t n, cap; \
  }

/* Each argument is evaluated once; a new element after there is room for it. */
#define vec_reserve(v, want) vec_reserve_by(mem_realloc, v, want)
#define vec_reserve_by(grow, v, want)                                \
  do {                                                               \
    __auto_type room_of_ = (v);                                      \
    size_t want_ = (want);                                           \
    if (room_of_->cap < want_) {                                     \
      size_t cap_ = room_of_->cap ? room_of_->cap * 2 : 8;           \
      if (cap_ < want_) cap_ = want_;                                \
      room_of_->at = grow(room_of_->at, cap_, sizeof *room_of_->at); \
      room_of_->cap = cap_;                                          \
    }                                                                \
  } while (0)

#define vec_push(v, ...) vec_push_by(mem_realloc, v, __VA_ARGS__)
#define vec_push_by(grow, v, ...)                        \
  do {                                                   \
    __auto_type pushed_to_ = (v);                        \
    vec_reserve_by(grow, pushed_to_, pushed_to_->n + 1); \
    pushed_to_->at[pushed_to_->n] = (__VA_ARGS__);       \
    pushed_to_->n++;                                     \
  } while (0)

#define vec_pop(v)             \
  __extension__({              \
    __auto_type popped_ = (v); \
    popped_->at[--popped_->n]; \
  })
/* The last element, to be read or written. */
#define vec_last(v)           \
  (*__extension__({           \
    __auto_type ends_ = (v);  \
    &ends_->at[ends_->n - 1]; \
  }))
#define vec_clear(v) ((v)->n = 0)
#define vec_release(v) vec_release_by(free, v)
#define vec_release_by(let_go, v) \
  do {                            \
    __auto_type freed_ = (v);     \
    let_go(freed_->at);           \
    freed_->at = NULL;            \
    freed_->n = freed_->cap = 0;  \
  } while (0)

#endif
