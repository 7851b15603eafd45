/* Lists for people, of what others can make us hold: they end after some lines, and say what is left. They are written
 * with locks held, and hundreds of thousands of lines would be in everybody's way, and read by nobody. */
#ifndef CLUSTER_LISTING_H
#define CLUSTER_LISTING_H

#include <stdbool.h>

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

#endif
