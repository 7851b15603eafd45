/* DataFormatDimMap and DataFormatVecPermute: dimension numbers, and values given by dimension, from one data format to
 * another. TensorFlow's layout rewrites put them into graphs that are handed on. */
#include <string.h>

#include "ops/array/array_util.h"

struct formats {
  char src[6], dst[6];
  int n; /* letters */
};

/* Is every letter of src in dst, and none twice? */
static bool permutes(const char *src, const char *dst) {
  if (strlen(src) != strlen(dst)) return false;
  for (const char *c = src; *c; c++)
    if (!strchr(dst, *c) || strchr(c + 1, *c)) return false;
  return true;
}

static shoal_status formats_init(struct kernel_init *ki, void *state) {
  struct formats *f = state;
  const char *src, *dst;
  TRY(node_get_string(ki->node, "src_format", &src));
  TRY(node_get_string(ki->node, "dst_format", &dst));
  size_t n = strlen(src), m = strlen(dst);
  if (n != 4 && n != 5) return INVALID("Source format must be of length 4 or 5, received src_format = %s", src);
  if (m != 4 && m != 5) return INVALID("Destination format must be of length 4 or 5, received dst_format = %s", dst);
  if (!permutes(src, dst))
    return INVALID("Destination and source format must determine a permutation, got %s and %s", src, dst);
  memcpy(f->src, src, n + 1);
  memcpy(f->dst, dst, n + 1);
  f->n = (int)n;
  return NULL;
}

static shoal_status dim_map_run(struct kernel_ctx *ctx) {
  const struct formats *f = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  for (int64_t i = 0; i < x->n; i++) {
    int64_t d = int_at(x, i);
    if (d < -f->n || d >= f->n)
      return INVALID("Dimension %" PRId64 " is not in the range [-%d, %d) of the format %s", d, f->n, f->n, f->src);
    int_put(y, i, strchr(f->dst, f->src[d < 0 ? d + f->n : d]) - f->dst);
  }
  return NULL;
}

/* The letters that stand for space, in their order. */
static int keep_spatial(const char *format, char *out) {
  int n = 0;
  for (; *format; format++)
    if (*format != 'N' && *format != 'C') out[n++] = *format;
  out[n] = 0;
  return n;
}

static shoal_status vec_permute_run(struct kernel_ctx *ctx) {
  const struct formats *f = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  char src[6], dst[6];
  int spatial = keep_spatial(f->src, src);
  keep_spatial(f->dst, dst);
  if (x->rank != 1 && x->rank != 2)
    return INVALID("input must be a vector or 2D tensor, but got shape %s", tensor_shape_str(x));
  if (x->dims[0] != spatial && x->dims[0] != f->n)
    return INVALID("%s must be of size %d or %d, but got shape %s",
                   x->rank == 1 ? "1D input" : "First dimension of 2D input", spatial, f->n, tensor_shape_str(x));
  if (x->rank == 2 && x->dims[1] != 2)
    return INVALID("Second dimension of 2D input must be of size 2, but got shape %s", tensor_shape_str(x));
  if (x->dims[0] == f->n) {
    memcpy(src, f->src, sizeof src);
    memcpy(dst, f->dst, sizeof dst);
  }
  struct shape s = tensor_shape(x);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  int width = x->rank;
  for (int i = 0; src[i]; i++)
    for (int k = 0; k < width; k++) int_put(y, (strchr(dst, src[i]) - dst) * width + k, int_at(x, i * width + k));
  return NULL;
}

#define KERNEL(id, run_)                                                        \
  static const struct kernel_def id[] = {{.device = "CPU",                      \
                                          .type_attr = "T",                     \
                                          .types = DT(INT32) | DT(INT64),       \
                                          .state_size = sizeof(struct formats), \
                                          .init = formats_init,                 \
                                          .run = run_},                         \
                                         {0}}
KERNEL(dim_map_kernels, dim_map_run);
KERNEL(vec_permute_kernels, vec_permute_run);

#define ATTRS "T: {int32, int64} = int32; src_format: string = 'NHWC'; dst_format: string = 'NCHW'"

static const struct op_row rows[] = {
    {.name = "DataFormatDimMap",
     .in = "x: T",
     .out = "y: T",
     .attrs = ATTRS,
     .shape = shape_unchanged,
     .kernels = dim_map_kernels},
    {.name = "DataFormatVecPermute",
     .in = "x: T",
     .out = "y: T",
     .attrs = ATTRS,
     .shape = shape_unchanged,
     .kernels = vec_permute_kernels},
};
OP_FAMILY(data_format, rows);
