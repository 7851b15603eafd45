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

/* What members must agree upon: the same number for the same arithmetic; 0: nothing is summed, or it is not known. */
int collective_arithmetic_code(const struct collective_arithmetic *a);
/* As TensorFlow's members say it: "Add,Id"; of 0: "". */
const char *collective_arithmetic_name(int code);
/* What is in the last brackets of a text of n bytes. */
int collective_arithmetic_read(const char *text, size_t n);

#endif
