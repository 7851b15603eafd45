/* Products of float32 that are too small for the library, by a kernel of our own (small.cu). */
#ifndef DEVICE_CUDA_CUDA_SMALL_H
#define DEVICE_CUDA_CUDA_SMALL_H

#include "device/cuda/cuda_blas.h"

enum { CUDA_SMALL_PRODUCTS = 24 }; /* of one launch */
struct cuda_small_product {        /* as small.cu has it */
  const void *a, *b, *bias;
  void *out, *sums;
  int32_t m, n, k, a_row, a_col, b_row, b_col;
  uint32_t first, relu;
};

/* Can the kernel do it? It may still be slower than the library. */
bool cuda_small_fits(const struct cuda_product *p);
/* With the device's lock held, after cuda_use. more: the bias, where there is one. Returns CUDA's error, as the driver
 * does. */
int cuda_small_multiply(struct cuda_device *c, const struct cuda_product *p, const void *a, const void *b,
                        const void *more, void *out);

#endif
