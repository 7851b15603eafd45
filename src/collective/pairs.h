/* Sums in the order of pairs (schedule.h) of numbers that all lie at hand. */
#ifndef COLLECTIVE_PAIRS_H
#define COLLECTIVE_PAIRS_H

#include <stddef.h>

#include "collective/arithmetic.h"

/* to = the sum of n sources of `count` elements each. spare: room for such a sum, every `step` bytes, at each of
 * pairs_levels(n) levels. `to` may be one of the sources. */
void pairs_sum(const struct collective_arithmetic *a, const char *const *sources, int n, size_t element, int64_t count,
               char *to, char *spare, size_t step);
int pairs_levels(int n);

#endif
