/* How a reduction is computed: the op's, or whoever else's who asks for one. Both work on any part of the elements. */
#ifndef COLLECTIVE_ARITHMETIC_H
#define COLLECTIVE_ARITHMETIC_H

#include <stdint.h>

#include "device/device.h"

struct collective_arithmetic {
  /* out = x op y; out may be x, or y. The op commutes. */
  void (*merge)(const struct collective_arithmetic *a, void *out, const void *x, const void *y, int64_t n);
  /* (optional) sum = final(sum, members) */
  void (*final)(const struct collective_arithmetic *a, void *sum, int members, int64_t n);
  enum device_merge op; /* what merge does, for devices; final divides by the number of members */
};

#endif
