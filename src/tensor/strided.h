/* Views: how elements of one tensor lie in another. What slices, pads, tiles, reversals, transposes and space-to-batch
 * come down to. Strides are in elements and may be 0 or negative. */
#ifndef TENSOR_STRIDED_H
#define TENSOR_STRIDED_H

#include "tensor/tensor.h"

enum { STRIDED_MAX = 2 * SHOAL_MAX_RANK };

struct strided {
  int rank;
  int64_t dims[STRIDED_MAX];
  int64_t to[STRIDED_MAX], from[STRIDED_MAX];
};

static inline void strided_add(struct strided *s, int64_t dim, int64_t to, int64_t from) {
  s->dims[s->rank] = dim;
  s->to[s->rank] = to;
  s->from[s->rank++] = from;
}

/* Row-major strides of dims. */
static inline void strides_of(int rank, const int64_t *dims, int64_t *strides) {
  int64_t n = 1;
  for (int i = rank; i-- > 0;) {
    strides[i] = n;
    n *= dims[i];
  }
}

#endif
