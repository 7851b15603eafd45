/* _MaskedSoftmax and _SoftmaxGrad, made by the rewrite fuse_softmax for devices that have kernels of their own for them
 * (device/cuda/kernels_softmax.c). The kernels here say what they compute, row by row in float; the soft device borrows
 * them.
 *
 *   _MaskedSoftmax: softmax of x + mask along the last dimension; the mask is repeated over x's first dimensions
 *   _SoftmaxGrad:   (dy - sum(dy * y)) * y along the last dimension, where y is a softmax
 *
 * `columns` is how long that dimension is, for kernels that must know beforehand. */
#include <math.h>

#include "ops/nn/nn_util.h"

static float get(const struct tensor *t, int64_t i) {
  if (t->dtype == SHOAL_BFLOAT16) return bf16_to_float(T_DATA(t, const bf16)[i]);
  if (t->dtype == SHOAL_FLOAT16) return f16_to_float(T_DATA(t, const f16)[i]);
  return T_DATA(t, const float)[i];
}

static void put(struct tensor *t, int64_t i, float v) {
  if (t->dtype == SHOAL_BFLOAT16) T_DATA(t, bf16)[i] = bf16_from_float(v);
  else if (t->dtype == SHOAL_FLOAT16) T_DATA(t, f16)[i] = f16_from_float(v);
  else T_DATA(t, float)[i] = v;
}

static void softmax_row(const struct tensor *x, const struct tensor *mask, struct tensor *y, int64_t from, int64_t n) {
  float top = -INFINITY, sum = 0;
  for (int64_t i = from; i < from + n; i++) top = fmaxf(top, get(x, i) + get(mask, i % mask->n));
  for (int64_t i = from; i < from + n; i++) sum += expf(get(x, i) + get(mask, i % mask->n) - top);
  for (int64_t i = from; i < from + n; i++) put(y, i, expf(get(x, i) + get(mask, i % mask->n) - top) / sum);
}

static shoal_status masked_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *mask = ctx_in(ctx, 1);
  struct tensor *y;
  struct shape shape = tensor_shape(x);
  if (x->rank < 1 || mask->rank < 1 || (x->n && (!mask->n || x->n % mask->n)))
    return INVALID("a mask does not fit: %s, %s", tensor_shape_str(x), tensor_shape_str(mask));
  TRY(ctx_out(ctx, 0, &shape, &y));
  int64_t n = x->dims[x->rank - 1];
  for (int64_t i = 0; i < x->n; i += n) softmax_row(x, mask, y, i, n);
  return NULL;
}

static void back_row(const struct tensor *y, const struct tensor *dy, struct tensor *dx, int64_t from, int64_t n) {
  float sum = 0;
  for (int64_t i = from; i < from + n; i++) sum += get(dy, i) * get(y, i);
  for (int64_t i = from; i < from + n; i++) put(dx, i, (get(dy, i) - sum) * get(y, i));
}

static shoal_status back_run(struct kernel_ctx *ctx) {
  const struct tensor *y = ctx_in(ctx, 0), *dy = ctx_in(ctx, 1);
  struct tensor *dx;
  struct shape shape = tensor_shape(y);
  if (y->rank < 1 || !tensor_same_shape(y, dy))
    return INVALID("a gradient does not fit: %s, %s", tensor_shape_str(y), tensor_shape_str(dy));
  TRY(ctx_out(ctx, 0, &shape, &dx));
  int64_t n = y->dims[y->rank - 1];
  for (int64_t i = 0; i < y->n; i += n) back_row(y, dy, dx, i, n);
  return NULL;
}

static shoal_status shape_like_first(struct shape_ctx *c) {
  c->out[0] = c->in[0];
  return NULL;
}

#define ROW(name_, in_, out_, run_)                                                                              \
  {                                                                                                              \
    .name = name_, .in = in_, .out = out_, .attrs = "columns: int; T: {half, bfloat16, float}", .flags = OP_OWN, \
    .shape = shape_like_first, .kernels = (const struct kernel_def[]) {                                          \
      {.device = "CPU", .type_attr = "T", .types = DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16), .run = run_}, { 0 } \
    }                                                                                                            \
  }
static const struct op_row rows[] = {
    ROW("_MaskedSoftmax", "logits: T, mask: T", "softmax: T", masked_run),
    ROW("_SoftmaxGrad", "softmax: T, grad: T", "backprop: T", back_run),
};
OP_FAMILY(masked_softmax, rows);
