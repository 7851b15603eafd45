/* Lists of what is elsewhere already (runs, calls, hooks): each has prev and next of its own type, and is taken out
 * without being looked for. `first` is an lvalue; the newest is first. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stddef.h>

#define LIST_ADD(first, x)             \
  do {                                 \
    __typeof__(x) added_ = (x);        \
    added_->prev = NULL;               \
    added_->next = (first);            \
    if (first) (first)->prev = added_; \
    (first) = added_;                  \
  } while (0)

#define LIST_REMOVE(first, x)                                  \
  do {                                                         \
    __typeof__(x) removed_ = (x);                              \
    if (removed_->prev) removed_->prev->next = removed_->next; \
    else (first) = removed_->next;                             \
    if (removed_->next) removed_->next->prev = removed_->prev; \
  } while (0)

#endif
