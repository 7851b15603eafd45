/* Matrix products on a card, by cuBLASLt, which is opened at run time. */
#ifndef DEVICE_CUDA_CUDA_BLAS_H
#define DEVICE_CUDA_CUDA_BLAS_H

#include "device/cuda/cuda.h"

struct kernel_ctx;

enum cuda_epilogue {
  CUDA_PLAIN_PRODUCT,
  CUDA_WITH_BIAS,
  CUDA_WITH_BIAS_RELU,
  CUDA_GELU_BACK, /* times the derivative of GELU (its tanh form), of half precision; n is a multiple of 8 */
  CUDA_BIAS_GELU  /* with a bias, and then its GELU beside it: the same */
};

struct cuda_product { /* c = op(a) * op(b), row after row, `batch` times */
  shoal_dtype dtype;
  bool trans_a, trans_b;
  int64_t m, n, k;                       /* c is m by n, k are summed */
  int64_t batch, step_a, step_b, step_c; /* in elements; 0 repeats */
  enum cuda_epilogue epilogue;           /* what is done to c before it is written */
  bool onto;                             /* c begins with something like it, instead of zeros */
};

/* Of the last two dimensions of a and b (kernels_matmul.c). */
struct tensor;
shoal_status cuda_product_of(const struct tensor *a, const struct tensor *b, bool trans_a, bool trans_b,
                             struct cuda_product *out);
/* Of a kernel's first two inputs, which are matrices, with an epilogue; a bias is its third (kernels_fused.c). */
shoal_status cuda_product_with(const struct kernel_ctx *ctx, bool trans_a, bool trans_b, enum cuda_epilogue epilogue,
                               struct cuda_product *out);

/* Without the library cards still work; products stay on the CPU. */
shoal_status cuda_blas_new(struct cuda_device *c, struct device *d, struct cuda_blas **out);
void cuda_blas_free(struct cuda_blas *b);
bool cuda_blas_there(void);
/* With the device's lock held, after cuda_use of what it takes. */
shoal_status cuda_blas_run(struct cuda_device *c, const struct cuda_product *p, const void *a, const void *b,
                           void *out);
/* With what the epilogue takes: a bias, of n numbers, or what GELU was of, like c. */
shoal_status cuda_blas_run_with(struct cuda_device *c, const struct cuda_product *p, const void *a, const void *b,
                                const void *more, void *out);
/* The same of CUDA_BIAS_GELU: x is the product and its bias, out their GELU. */
shoal_status cuda_blas_run_gelu(struct cuda_device *c, const struct cuda_product *p, const void *a, const void *b,
                                const void *bias, void *x, void *out);
/* The same of a product that is `onto` something, which is not where it is written. */
shoal_status cuda_blas_run_onto(struct cuda_device *c, const struct cuda_product *p, const void *a, const void *b,
                                const void *more, const void *onto, void *out);

#endif
