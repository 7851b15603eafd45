/* Copies between views (tensor/strided.h). */
#ifndef OPS_ARRAY_STRIDED_H
#define OPS_ARRAY_STRIDED_H

#include "base/pool.h"
#include "runtime/kernel.h"
#include "tensor/strided.h"

/* to and from point at the elements with all indices 0. Elements of `to` must not overlap. */
void strided_copy(struct pool *pool, shoal_dtype dtype, const struct strided *s, void *to, const void *from);

/* The same from element from_at of one tensor to element to_at of another, both in the memory of the kernel's device or
 * in the host's: for kernels that serve anywhere. */
shoal_status ctx_copy_view(struct kernel_ctx *ctx, const struct strided *s, struct tensor *to, int64_t to_at,
                           const struct tensor *from, int64_t from_at);
/* A tensor of either becomes zeros. */
void ctx_zero(struct kernel_ctx *ctx, struct tensor *t);

/* Kernels for any device, of an op whose elements have the type T. Those of int32 stay in host memory: shapes and
 * places are made of them, which the host wants to know. */
#define KERNELS_ANYWHERE(id, host_in_, ...)                                          \
  static const struct kernel_def id[] = {                                            \
      {.device = "CPU",                                                              \
       .flags = KERNEL_ANYWHERE,                                                     \
       .type_attr = "T",                                                             \
       .types = DT(INT32),                                                           \
       .host_in = UINT32_MAX,                                                        \
       .host_out = UINT32_MAX,                                                       \
       __VA_ARGS__},                                                                 \
      {.device = "CPU", .flags = KERNEL_ANYWHERE, .host_in = host_in_, __VA_ARGS__}, \
      {0}}

#endif
