/* A product with its bias, and perhaps Relu, or with the derivative of GELU, in one kernel on a card: cuBLASLt's
 * epilogues. The rewrite that makes _FusedMatMul knows of other activations; those stay nodes of their own here. */
#include <string.h>

#include "device/cuda/cuda_blas.h"
#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"

struct cuda_fused {
  bool trans_a, trans_b;
  enum cuda_epilogue epilogue;
};

static bool is_op(const struct attr *list, size_t i, const char *op) {
  return i < list->list.n && list->list.at[i].kind == ATTR_STRING && !strcmp(list->list.at[i].s.data, op);
}

static enum cuda_epilogue epilogue_of(const struct shoal_node *n) {
  const struct attr *ops = node_attr(n, "fused_ops"), *args = node_attr(n, "num_args");
  if (!ops || ops->kind != ATTR_LIST || !is_op(ops, 0, "BiasAdd") || !args || args->i != 1) return CUDA_PLAIN_PRODUCT;
  if (ops->list.n == 1) return CUDA_WITH_BIAS;
  return ops->list.n == 2 && is_op(ops, 1, "Relu") ? CUDA_WITH_BIAS_RELU : CUDA_PLAIN_PRODUCT;
}

static bool fits(const struct shoal_node *n) { return cuda_blas_there() && epilogue_of(n) != CUDA_PLAIN_PRODUCT; }

static shoal_status fused_init(struct kernel_init *ki, void *state) {
  struct cuda_fused *st = state;
  st->epilogue = epilogue_of(ki->node);
  TRY(node_get_bool(ki->node, "transpose_a", &st->trans_a));
  return node_get_bool(ki->node, "transpose_b", &st->trans_b);
}

static shoal_status check_bias(const struct kernel_ctx *ctx, const struct cuda_product *p) {
  const struct tensor *bias = ctx_in(ctx, 2);
  if (bias->rank == 1 && bias->dims[0] == p->n) return NULL;
  return INVALID("Must provide as many biases as the last dimension of the input tensor: %s vs. %s",
                 tensor_shape_str(bias), tensor_shape_str(ctx_in(ctx, 1)));
}

shoal_status cuda_product_with(const struct kernel_ctx *ctx, bool trans_a, bool trans_b, enum cuda_epilogue epilogue,
                               struct cuda_product *out) {
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1);
  if (a->rank != 2 || b->rank != 2)
    return INVALID("In[0] and In[1] has different ndims: %s vs. %s", tensor_shape_str(a), tensor_shape_str(b));
  TRY(cuda_product_of(a, b, trans_a, trans_b, out));
  out->epilogue = epilogue;
  if (!out->k) return UNIMPLEMENTED("a product of nothing with an epilogue, on a card");
  return epilogue == CUDA_GELU_BACK ? NULL : check_bias(ctx, out);
}

static shoal_status product_of(const struct kernel_ctx *ctx, struct cuda_product *p) {
  const struct cuda_fused *st = ctx->state;
  return cuda_product_with(ctx, st->trans_a, st->trans_b, st->epilogue, p);
}

static shoal_status queue(struct kernel_ctx *ctx, const struct cuda_product *p) {
  struct cuda_device *c = cuda_ctx(ctx);
  for (int i = 0; i < 3; i++) TRY(cuda_use(c, ctx_in(ctx, i)));
  TRY(cuda_use(c, &ctx->out[0]));
  return cuda_blas_run_with(c, p, ctx_in(ctx, 0)->data, ctx_in(ctx, 1)->data, ctx_in(ctx, 2)->data, ctx->out[0].data);
}

static shoal_status run_product(struct kernel_ctx *ctx, const struct cuda_product *p) {
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){p->m, p->n}, &out));
  if (!out->n) return NULL;
  cuda_lock(cuda_ctx(ctx));
  shoal_status s = queue(ctx, p);
  cuda_unlock(cuda_ctx(ctx));
  return s;
}

static shoal_status fused_run(struct kernel_ctx *ctx) {
  struct cuda_product p;
  TRY(product_of(ctx, &p));
  return run_product(ctx, &p);
}

/* ---- _MatMulGeluGrad ---- */

static bool gelu_fits(const struct shoal_node *n) {
  int64_t columns = 0;
  shoal_status s = node_get_int(n, "columns", &columns);
  shoal_status_free(s);
  return cuda_blas_there() && columns > 0 && columns % 8 == 0;
}

static shoal_status gelu_init(struct kernel_init *ki, void *state) {
  struct cuda_fused *st = state;
  st->epilogue = CUDA_GELU_BACK;
  TRY(node_get_bool(ki->node, "transpose_a", &st->trans_a));
  return node_get_bool(ki->node, "transpose_b", &st->trans_b);
}

static shoal_status gelu_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 2);
  struct cuda_product p;
  TRY(product_of(ctx, &p));
  if (x->n != p.m * p.n)
    return INVALID("a product of %lld by %lld beside %s", (long long)p.m, (long long)p.n, tensor_shape_str(x));
  return run_product(ctx, &p);
}

static const struct kernel_def fused[] = {{.device = "GPU",
                                           .type_attr = "T",
                                           .types = DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16),
                                           .fits = fits,
                                           .state_size = sizeof(struct cuda_fused),
                                           .init = fused_init,
                                           .run = fused_run},
                                          {0}};

static const struct kernel_def gelu[] = {{.device = "GPU",
                                          .type_attr = "T",
                                          .types = DT(FLOAT16) | DT(BFLOAT16),
                                          .fits = gelu_fits,
                                          .state_size = sizeof(struct cuda_fused),
                                          .init = gelu_init,
                                          .run = gelu_run},
                                         {0}};

const struct device_kernels cuda_fused_kernels[] = {{"_FusedMatMul", fused}, {"_MatMulGeluGrad", gelu}, {0}};
