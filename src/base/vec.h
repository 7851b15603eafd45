/* Growing arrays. VEC(type) declares one; the fields are plain and meant to be read:
 *
 *   VEC(struct node *) nodes = {0};
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

#define vec_reserve(v, want)                                 \
  do {                                                       \
    size_t want_ = (want);                                   \
    if ((v)->cap < want_) {                                  \
      size_t cap_ = (v)->cap ? (v)->cap * 2 : 8;             \
      if (cap_ < want_) cap_ = want_;                        \
      (v)->at = mem_realloc((v)->at, cap_, sizeof *(v)->at); \
      (v)->cap = cap_;                                       \
    }                                                        \
  } while (0)

#define vec_push(v, ...)               \
  do {                                 \
    vec_reserve((v), (v)->n + 1);      \
    (v)->at[(v)->n++] = (__VA_ARGS__); \
  } while (0)

#define vec_pop(v) ((v)->at[--(v)->n])
#define vec_last(v) ((v)->at[(v)->n - 1])
#define vec_clear(v) ((v)->n = 0)
#define vec_release(v)     \
  do {                     \
    free((v)->at);         \
    (v)->at = NULL;        \
    (v)->n = (v)->cap = 0; \
  } while (0)

#endif
