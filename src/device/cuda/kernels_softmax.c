/* Softmax and cross entropy on a card: softmax.cu. */
#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"

static shoal_status fn_init(struct kernel_init *ki, void *state) { return cuda_fn_init(ki, "softmax", state); }

/* A block to a row: as many threads as it has columns, in warps. */
static unsigned row_threads(int64_t columns) { return (unsigned)MIN(1024, MAX(32, (columns + 31) / 32 * 32)); }

/* ---- Softmax, LogSoftmax: rows in registers where they fit (softmax_rows.cu) ---- */

enum { PACK = 16, WARPS_ROW = 1024, BLOCKS_ROW = 8192, ROWS_OF_WARPS = CUDA_BLOCK / 32 }; /* bytes; elements; rows */
struct cuda_softmax {
  CUfunction any, by_warp, by_block;
};

static shoal_status softmax_init(struct kernel_init *ki, void *state) {
  struct cuda_softmax *st = state;
  struct cuda_device *c = cuda_of(ki->device);
  shoal_dtype type = dtype_base(ki->kernel->in_types[0]);
  bool is_log = op_is(ki->node->op, "LogSoftmax");
  TRY(cuda_function(c, "softmax", is_log ? "LogSoftmax" : "Softmax", type, 0, &st->any));
  TRY(cuda_function(c, "softmax_rows", is_log ? "LogSoftmax_warp" : "Softmax_warp", type, 0, &st->by_warp));
  return cuda_function(c, "softmax_rows", is_log ? "LogSoftmax_block" : "Softmax_block", type, 0, &st->by_block);
}

static bool fits_registers(const struct tensor *x, const struct tensor *y, int32_t columns) {
  uintptr_t all = (uintptr_t)x->data | (uintptr_t)y->data | (uintptr_t)columns * dtype_size((shoal_dtype)x->dtype);
  return columns <= BLOCKS_ROW && all % PACK == 0;
}

static shoal_status softmax_run(struct kernel_ctx *ctx) {
  const struct cuda_softmax *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  if (x->rank < 1) return INVALID("logits must have >= 1 dimension, got %s", tensor_shape_str(x));
  TRY(ctx_out_like(ctx, 0, 0, &y));
  int32_t columns = (int32_t)x->dims[x->rank - 1];
  if (!x->n) return NULL;
  int64_t rows = x->n / columns, each = columns <= WARPS_ROW ? ROWS_OF_WARPS : 1;
  if (!fits_registers(x, y, columns))
    return cuda_run(ctx, st->any, (unsigned)rows, 1, row_threads(columns),
                    (void *[]){(void *)&x->data, &y->data, &columns});
  return cuda_run(ctx, each > 1 ? st->by_warp : st->by_block, (unsigned)((rows + each - 1) / each), 1, CUDA_BLOCK,
                  (void *[]){(void *)&x->data, &y->data, &rows, &columns});
}

/* ---- with a mask, and the way back: made by the rewrite fuse_softmax for what fits registers ---- */

static bool rows_fit(const struct shoal_node *n) {
  int64_t columns = 0;
  shoal_status s = node_get_int(n, "columns", &columns);
  shoal_status_free(s);
  return columns > 0 && columns <= BLOCKS_ROW && columns * (int64_t)dtype_size(dtype_base(n->in_types[0])) % PACK == 0;
}

static shoal_status rows_init(struct kernel_init *ki, void *state) {
  struct cuda_softmax *st = state;
  struct cuda_device *c = cuda_of(ki->device);
  shoal_dtype type = dtype_base(ki->kernel->in_types[0]);
  bool back = op_is(ki->node->op, "_SoftmaxGrad");
  TRY(cuda_function(c, "softmax_rows", back ? "back_warp" : "masked_warp", type, 0, &st->by_warp));
  return cuda_function(c, "softmax_rows", back ? "back_block" : "masked_block", type, 0, &st->by_block);
}

/* The two inputs, copied to where 16 bytes begin if they lie otherwise (parts of other tensors). */
struct cuda_pair {
  struct tensor t[2];
};

static void pair_release(struct cuda_pair *p) {
  for (int i = 0; i < 2; i++)
    if (p->t[i].buffer) tensor_release(&p->t[i]);
}

static shoal_status pair_one(struct kernel_ctx *ctx, int i, struct tensor *out) {
  const struct tensor *from = ctx_in(ctx, i);
  struct device *d = ctx->kernel->device;
  if ((uintptr_t)from->data % PACK == 0) {
    tensor_ref(out, from);
    return NULL;
  }
  struct shape shape = tensor_shape(from);
  TRY(cuda_temp(ctx, (shoal_dtype)from->dtype, &shape, out));
  d->type->ops->copy(d, from, out, 0);
  return NULL;
}

static shoal_status pair_find(struct kernel_ctx *ctx, struct cuda_pair *p) {
  *p = (struct cuda_pair){{tensor_none(), tensor_none()}};
  TRY(pair_one(ctx, 0, &p->t[0]));
  return pair_one(ctx, 1, &p->t[1]);
}

/* Both along rows of so many columns; the second's rows repeat. */
static shoal_status run_rows(struct kernel_ctx *ctx, struct tensor *out) {
  const struct cuda_softmax *st = ctx->state;
  struct cuda_pair in;
  int32_t columns = (int32_t)out->dims[out->rank - 1];
  int64_t rows = out->n / columns, each = columns <= WARPS_ROW ? ROWS_OF_WARPS : 1;
  int64_t rows_of_second = ctx_in(ctx, 1)->n / columns;
  shoal_status s = pair_find(ctx, &in);
  if (!s)
    s = cuda_run(ctx, each > 1 ? st->by_warp : st->by_block, (unsigned)((rows + each - 1) / each), 1, CUDA_BLOCK,
                 (void *[]){&in.t[0].data, &in.t[1].data, &out->data, &rows, &columns, &rows_of_second});
  pair_release(&in);
  return s;
}

static shoal_status masked_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *mask = ctx_in(ctx, 1);
  struct shape shape = tensor_shape(x);
  struct tensor *y;
  if (!x->rank || !mask->rank || mask->dims[mask->rank - 1] != x->dims[x->rank - 1] || (x->n && x->n % MAX(mask->n, 1)))
    return INVALID("a mask does not fit: %s, %s", tensor_shape_str(x), tensor_shape_str(mask));
  if ((uintptr_t)x->data % PACK == 0) TRY(ctx_out_like(ctx, 0, 0, &y));
  else TRY(ctx_out(ctx, 0, &shape, &y));
  return y->n ? run_rows(ctx, y) : NULL;
}

static shoal_status back_run(struct kernel_ctx *ctx) {
  const struct tensor *y = ctx_in(ctx, 0), *dy = ctx_in(ctx, 1);
  struct shape shape = tensor_shape(y);
  struct tensor *dx;
  if (!y->rank || !tensor_same_shape(y, dy))
    return INVALID("a gradient does not fit: %s, %s", tensor_shape_str(y), tensor_shape_str(dy));
  if ((uintptr_t)dy->data % PACK == 0) TRY(ctx_out_like(ctx, 0, 1, &dx));
  else TRY(ctx_out(ctx, 0, &shape, &dx));
  return dx->n ? run_rows(ctx, dx) : NULL;
}

/* ---- cross entropy ---- */

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

#define KERNEL(id, state_, init_, run_)                                        \
  static const struct kernel_def id[] = {{.device = "GPU",                     \
                                          .type_attr = "T",                    \
                                          .types = CUDA_FLOATING,              \
                                          .state_size = sizeof(struct state_), \
                                          .init = init_,                       \
                                          .run = run_},                        \
                                         {0}};
KERNEL(softmax, cuda_softmax, softmax_init, softmax_run)
#define ROWS(id, run_)                                                                       \
  static const struct kernel_def id[] = {{.device = "GPU",                                   \
                                          .type_attr = "T",                                  \
                                          .types = DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16), \
                                          .fits = rows_fit,                                  \
                                          .state_size = sizeof(struct cuda_softmax),         \
                                          .init = rows_init,                                 \
                                          .run = run_},                                      \
                                         {0}};
ROWS(masked, masked_run)
ROWS(back, back_run)
KERNEL(cross_entropy, cuda_fn, fn_init, cross_entropy_run)
KERNEL(sparse, cuda_fn, sparse_init, sparse_run)

const struct device_kernels cuda_softmax_kernels[] = {{"Softmax", softmax},
                                                      {"LogSoftmax", softmax},
                                                      {"_MaskedSoftmax", masked},
                                                      {"_SoftmaxGrad", back},
                                                      {"SoftmaxCrossEntropyWithLogits", cross_entropy},
                                                      {"SparseSoftmaxCrossEntropyWithLogits", sparse},
                                                      {0}};
