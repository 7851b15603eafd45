/* Floats rounded to bfloat16, many at once. */
#ifndef MATH_NARROW_H
#define MATH_NARROW_H

#include <stdint.h>

#include "tensor/dtype.h"

/* As bf16_from_float. */
void bf16_from_floats(const float *from, bf16 *to, int64_t n);

#endif
