/* A product with GELU (its tanh form) behind its bias, and one that leads back to a GELU, multiplied by the GELU's
 * derivative: made by rewrites. Rows are worked on before they are rounded and stored, while they are in the cache. */
#include <inttypes.h>

#include "ops/linalg/matmul.h"
#include "ops/nn/gelu.h"
#include "ops/nn/nn_util.h"

/* The matrix that a GELU is of: written on the way there, read on the way back. */
struct argument {
  char *data;
  shoal_dtype type;
  int64_t columns;
};

static char *element(const struct argument *x, int64_t row, int64_t column) {
  return x->data + (size_t)(row * x->columns + column) * dtype_size(x->type);
}

static void gelu_behind(const void *arg, float *sums, int64_t row, int64_t j0, int64_t n) {
  const struct argument *x = arg;
  nn_from_float(x->type, sums, element(x, row, j0), n);
  gelu_floats(sums, sums, n);
}

static void by_derivative(const void *arg, float *sums, int64_t row, int64_t j0, int64_t n) {
  enum { BLOCK = 512 };
  const struct argument *x = arg;
  float at[BLOCK];
  for (int64_t i = 0; i < n; i += BLOCK) {
    int64_t len = MIN(BLOCK, n - i);
    nn_to_float(x->type, element(x, row, j0 + i), at, len);
    gelu_grad_floats(at, sums + i, sums + i, len);
  }
}

static shoal_status gelu_run(struct kernel_ctx *ctx) {
  struct argument x = {.type = ctx_out_type(ctx, 1)};
  struct gemm_epilogue e = {.last = gelu_behind, .arg = &x};
  int64_t m;
  struct tensor *out;
  TRY(matmul_sizes(ctx, &m, &x.columns));
  TRY(ctx_out_dims(ctx, 1, 2, (int64_t[]){m, x.columns}, &out));
  x.data = out->data;
  return matmul_run_biased(ctx, &e);
}

static shoal_status grad_run(struct kernel_ctx *ctx) {
  const struct tensor *of = ctx_in(ctx, 2);
  struct argument x = {.data = of->data, .type = ctx_in_type(ctx, 2)};
  struct gemm_epilogue e = {.last = by_derivative, .arg = &x};
  int64_t m;
  TRY(matmul_sizes(ctx, &m, &x.columns));
  if (of->n != m * x.columns)
    return INVALID("a product of %" PRId64 " by %" PRId64 " beside %s", m, x.columns, tensor_shape_str(of));
  return matmul_run_with(ctx, &e);
}

static shoal_status gelu_shape(struct shape_ctx *c) {
  TRY(matmul_shape(c));
  c->out[1] = c->out[0];
  return NULL;
}

#define ATTRS "transpose_a: bool = false; transpose_b: bool = false; T: {bfloat16, half, float}; columns: int >= 1"
#define KERNELS(run_)                                   \
  (const struct kernel_def[]) {                         \
    {.device = "CPU",                                   \
     .type_attr = "T",                                  \
     .types = DT(FLOAT32) | DT(BFLOAT16) | DT(FLOAT16), \
     .state_size = sizeof(struct matmul_state),         \
     .init = matmul_init,                               \
     .run = run_},                                      \
    {                                                   \
      0                                                 \
    }                                                   \
  }

static const struct op_row rows[] = {
    {"_MatMulGelu", .flags = OP_OWN, .in = "a: T, b: T, bias: T", .out = "y: T, x: T", .attrs = ATTRS,
     .shape = gelu_shape, .kernels = KERNELS(gelu_run)},
    /* x has as many elements as the product. */
    {"_MatMulGeluGrad", .flags = OP_OWN, .in = "a: T, b: T, x: T", .out = "product: T", .attrs = ATTRS,
     .shape = matmul_shape, .kernels = KERNELS(grad_run)},
};
OP_FAMILY(matmul_gelu, rows);
