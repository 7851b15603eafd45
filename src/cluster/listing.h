/* Lists for people, of what others can make us hold: they end after some lines, and say what is left. They are written
 * with locks held, and hundreds of thousands of lines would be in everybody's way, and read by nobody. */
#ifndef CLUSTER_LISTING_H
#define CLUSTER_LISTING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

enum { LISTED = 200 };

struct listing {
  struct text *out;
  int lines;
  bool full; /* a line was refused */
};

/* Is there room for one more? */
static inline bool listing_line(struct listing *l) {
  l->full = l->full || l->lines == LISTED;
  l->lines += !l->full;
  return !l->full;
}

/* What anybody may read of a step's number, the same on all tasks: whoever has the whole of it can end the step, or
 * take its values. Of 57 bits that were drawn, the last 20. */
static inline int64_t listing_step(int64_t id) { return id & 0xfffff; }

#endif
