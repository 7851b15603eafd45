/* Things that are known by a number: each gets the next one, and none is given twice. What is kept is what is there,
 * not what ever was.
 *
 *   struct numbered callables = {0};
 *   int64_t number = numbered_add(&callables, thing);     0, 1, 2, ...
 *   thing = numbered_get(&callables, number);              NULL: no such number, or it was taken out
 *   for (size_t i = 0; (thing = numbered_next(&callables, &i));) ...
 */
#ifndef BASE_NUMBERED_H
#define BASE_NUMBERED_H

#include <stdint.h>

#include "base/vec.h"

struct numbered_thing {
  int64_t number;
  void *thing; /* NULL: taken out */
};

struct numbered {
  VEC(struct numbered_thing) all; /* by rising numbers */
  int64_t next;
  size_t holes; /* of all */
};

/* thing is not NULL. */
int64_t numbered_add(struct numbered *t, void *thing);
void *numbered_get(const struct numbered *t, int64_t number);
/* The same, and the number is no more. */
void *numbered_remove(struct numbered *t, int64_t number);
/* One after the other, from *i = 0; NULL after the last. */
void *numbered_next(const struct numbered *t, size_t *i);
/* The things are the caller's. */
void numbered_release(struct numbered *t);

#endif
