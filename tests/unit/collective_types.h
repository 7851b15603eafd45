/* Types that collectives' tests sum. ARITHMETIC(NAME, T) makes a sum and values of a rank's own, TYPE(NAME, T) is their
 * row. */
#ifndef UNIT_COLLECTIVE_TYPES_H
#define UNIT_COLLECTIVE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "collective/arithmetic.h"

struct type {
  struct collective_arithmetic sum;
  void (*fill)(void *to, int64_t n, int rank);
  size_t size;
};
#define ARITHMETIC(NAME, T)                                                                                           \
  static void add_##NAME(const struct collective_arithmetic *a, void *out, const void *x, const void *y, int64_t n) { \
    for (int64_t i = 0; i < n; i++) ((T *)out)[i] = (T)(((const T *)x)[i] + ((const T *)y)[i]);                       \
  }                                                                                                                   \
  static void fill_##NAME(void *to, int64_t n, int rank) {                                                            \
    for (int64_t i = 0; i < n; i++)                                                                                   \
      ((T *)to)[i] = (T)((1.0 / (3 + rank) + (double)(i * 7919 % 1009) * 1e-3 * (rank + 1)) * 8);                     \
  }
#define TYPE(NAME, T) \
  { {add_##NAME, NULL}, fill_##NAME, sizeof(T) }

#endif
