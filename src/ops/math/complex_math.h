/* Complex numbers from their parts: CMPLX, which not every compiler's library has, and which keeps NaN and signed
 * zeros in the imaginary part (re + im * I does not). */
#ifndef OPS_MATH_COMPLEX_MATH_H
#define OPS_MATH_COMPLEX_MATH_H

#include <complex.h>

#include "tensor/dtype.h"

static inline c64 c64_of(float re, float im) {
  union {
    float parts[2];
    c64 whole;
  } u = {{re, im}};
  return u.whole;
}
static inline c128 c128_of(double re, double im) {
  union {
    double parts[2];
    c128 whole;
  } u = {{re, im}};
  return u.whole;
}

#endif
