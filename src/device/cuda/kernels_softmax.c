/* Softmax and cross entropy on a card: softmax.cu. */
#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"

static shoal_status fn_init(struct kernel_init *ki, void *state) { return cuda_fn_init(ki, "softmax", state); }

/* A block to a row: as many threads as it has columns, in warps. */
static unsigned row_threads(int64_t columns) { return (unsigned)MIN(1024, MAX(32, (columns + 31) / 32 * 32)); }

static shoal_status softmax_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  if (x->rank < 1) return INVALID("logits must have >= 1 dimension, got %s", tensor_shape_str(x));
  TRY(ctx_out_like(ctx, 0, 0, &y));
  int32_t columns = (int32_t)x->dims[x->rank - 1];
  if (!x->n) return NULL;
  return cuda_run(ctx, st->f, (unsigned)(x->n / columns), 1, row_threads(columns),
                  (void *[]){(void *)&x->data, &y->data, &columns});
}

static shoal_status cross_entropy_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *labels = ctx_in(ctx, 1);
  struct tensor *loss, *back;
  if (x->rank != 2 || labels->rank != 2 || x->dims[1] != labels->dims[1] ||
      (x->dims[0] != labels->dims[0] && x->dims[0] != 1 && labels->dims[0] != 1))
    return INVALID("logits and labels must be broadcastable: logits_size=%s labels_size=%s", tensor_shape_str(x),
                   tensor_shape_str(labels));
  int64_t rows = x->dims[0] == 1 ? labels->dims[0] : x->dims[0];
  int32_t columns = (int32_t)x->dims[1];
  TRY(ctx_out_dims(ctx, 0, 1, &rows, &loss));
  TRY(ctx_out_dims(ctx, 1, 2, (int64_t[]){rows, columns}, &back));
  int64_t x_step = x->dims[0] == 1 ? 0 : columns, labels_step = labels->dims[0] == 1 ? 0 : columns;
  if (!rows) return NULL;
  return cuda_run(
      ctx, st->f, (unsigned)rows, 1, row_threads(columns),
      (void *[]){(void *)&x->data, (void *)&labels->data, &loss->data, &back->data, &columns, &x_step, &labels_step});
}

static shoal_status sparse_init(struct kernel_init *ki, void *state) {
  struct cuda_fn *st = state;
  return cuda_function(cuda_of(ki->device), "softmax", "SparseSoftmaxCrossEntropyWithLogits",
                       dtype_base(ki->kernel->in_types[0]), dtype_base(ki->kernel->in_types[1]), &st->f);
}

static shoal_status sparse_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *labels = ctx_in(ctx, 1);
  struct tensor *loss, *back;
  if (x->rank != 2) return INVALID("logits must be 2-D, but got shape %s", tensor_shape_str(x));
  if (labels->rank != 1) return INVALID("labels must be 1-D, but got shape %s", tensor_shape_str(labels));
  if (x->dims[0] != labels->dims[0])
    return INVALID("logits and labels must have the same first dimension, got logits shape %s and labels shape %s",
                   tensor_shape_str(x), tensor_shape_str(labels));
  int32_t columns = (int32_t)x->dims[1];
  if (columns <= 0) return INVALID("Must have at least one class, but got logits shape %s", tensor_shape_str(x));
  TRY(ctx_out_dims(ctx, 0, 1, &x->dims[0], &loss));
  TRY(ctx_out_dims(ctx, 1, 2, x->dims, &back));
  if (!x->n) return NULL;
  return cuda_run(ctx, st->f, (unsigned)x->dims[0], 1, row_threads(columns),
                  (void *[]){(void *)&x->data, (void *)&labels->data, &loss->data, &back->data, &columns});
}

#define KERNEL(id, init_, run_, ...)                                            \
  static const struct kernel_def id[] = {{.device = "GPU",                      \
                                          .type_attr = "T",                     \
                                          .types = CUDA_FLOATING,               \
                                          .state_size = sizeof(struct cuda_fn), \
                                          .init = init_,                        \
                                          .run = run_},                         \
                                         {0}};
KERNEL(softmax, fn_init, softmax_run)
KERNEL(cross_entropy, fn_init, cross_entropy_run)
KERNEL(sparse, sparse_init, sparse_run)

const struct device_kernels cuda_softmax_kernels[] = {{"Softmax", softmax},
                                                      {"LogSoftmax", softmax},
                                                      {"SoftmaxCrossEntropyWithLogits", cross_entropy},
                                                      {"SparseSoftmaxCrossEntropyWithLogits", sparse},
                                                      {0}};
