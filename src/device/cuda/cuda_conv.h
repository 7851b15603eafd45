/* What the ways to a convolution on a card share: kernels_conv.c has the usual one, kernels_thin.c and kernels_fold.c
 * those for images of few channels. */
#ifndef DEVICE_CUDA_CUDA_CONV_H
#define DEVICE_CUDA_CUDA_CONV_H

#include "device/cuda/cuda_dnn.h"
#include "device/cuda/cuda_kernel.h"

struct cuda_folds { /* functions of fold.cu; NULL: not for this type */
  CUfunction image, filter, back;
};
struct cuda_thins { /* functions of thin.cu; NULL: not for this type */
  CUfunction forward, back_filter, join;
};
struct cuda_filters { /* functions for small filters' gradients; NULL: not for this type */
  CUfunction parts, join;
};
struct cuda_conv_state {
  struct conv_shapes of;
  CUfunction direct;
  struct cuda_folds folds;
  struct cuda_thins thins;
  struct cuda_filters filters;
  bool bias, relu; /* of a result that is made whole: kernels_conv_fused.c */
};

/* The three tensors of a convolution, channels last; one of them is written. */
struct cuda_conv_tensors {
  struct tensor image, filter, result;
};

/* n elements of the result's type. */
shoal_status cuda_conv_temp(struct kernel_ctx *ctx, int64_t n, struct tensor *out);
/* cuda_dnn_ask, with the device's lock. */
shoal_status cuda_conv_ask(struct kernel_ctx *ctx, const struct cuda_conv *k, bool *can, size_t *workspace);
/* cuda_dnn_run on these, with so much memory besides. */
shoal_status cuda_conv_queue(struct kernel_ctx *ctx, const struct cuda_conv *k, const struct tensor *image,
                             const struct tensor *filter, const struct tensor *result, size_t workspace);

/* kernels_conv.c: of any of its ops, into its first output. */
shoal_status cuda_conv_init(struct kernel_init *ki, struct cuda_conv_state *st);
shoal_status cuda_conv_run(struct kernel_ctx *ctx);

/* kernels_conv_fused.c: bias and Relu, where they are asked for, on what a convolution has made, channels last. */
shoal_status cuda_conv_finish(struct kernel_ctx *ctx, const struct conv *c, const struct tensor *result);

/* kernels_thin.c */
shoal_status cuda_thins_init(struct kernel_init *ki, struct cuda_thins *out);
/* *done: it was one over a thin image, and is queued, with bias and Relu. */
shoal_status cuda_conv_thin(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *t, bool *done);

/* kernels_conv_filter.c */
shoal_status cuda_filters_init(struct kernel_init *ki, struct cuda_filters *out);
/* *done: it was a small filter's gradient, and is queued. */
shoal_status cuda_conv_filter(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *t, bool *done);

/* kernels_fold.c */
shoal_status cuda_folds_init(struct kernel_init *ki, struct cuda_folds *out);
/* *done: it was one for folding, and is queued. */
shoal_status cuda_conv_folded(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *t, bool *done);

/* kernels_conv_product.c: the same of one that is a product of matrices. */
shoal_status cuda_conv_by_product(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *t,
                                  bool *done);

#endif
