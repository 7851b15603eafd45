#include "collective/pairs.h"

#include <string.h>

int pairs_levels(int n) {
  int levels = 1;
  while (1 << levels < n) levels++;
  return levels;
}

void pairs_sum(const struct collective_arithmetic *a, const char *const *sources, int n, size_t element, int64_t count,
               char *to, char *spare, size_t step) {
  if (n == 1) {
    if (to != sources[0] && count) memcpy(to, sources[0], (size_t)count * element);
    return;
  }
  int h = 1;
  while (h * 2 < n) h *= 2;
  const char *left = sources[0], *right = sources[h];
  /* The right half first, into the spare room: `to` may be one of the sources, and is written when those were read. */
  if (n - h > 1) pairs_sum(a, sources + h, n - h, element, count, spare, spare + step, step);
  else if (h > 1 && right == to && count) memcpy(spare, to, (size_t)count * element);
  if (n - h > 1 || (h > 1 && right == to)) {
    right = spare;
    spare += step;
  }
  if (h > 1) {
    pairs_sum(a, sources, h, element, count, to, spare, step);
    left = to;
  }
  a->merge(a, to, left, right, count);
}
