/* A product with its bias, and perhaps Relu, in one kernel on a card: cuBLASLt's epilogues. The rewrite that makes
 * _FusedMatMul knows of other activations; those stay nodes of their own here. */
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

static shoal_status product_of(const struct cuda_fused *st, const struct kernel_ctx *ctx, struct cuda_product *p) {
  const struct tensor *a = ctx_in(ctx, 0), *b = ctx_in(ctx, 1), *bias = ctx_in(ctx, 2);
  if (a->rank != 2 || b->rank != 2)
    return INVALID("In[0] and In[1] has different ndims: %s vs. %s", tensor_shape_str(a), tensor_shape_str(b));
  *p = (struct cuda_product){.dtype = (shoal_dtype)a->dtype,
                             .trans_a = st->trans_a,
                             .trans_b = st->trans_b,
                             .m = a->dims[st->trans_a],
                             .k = a->dims[!st->trans_a],
                             .n = b->dims[!st->trans_b],
                             .batch = 1,
                             .epilogue = st->epilogue};
  if (p->k != b->dims[st->trans_b])
    return INVALID("Matrix size-incompatible: In[0]: %s, In[1]: %s", tensor_shape_str(a), tensor_shape_str(b));
  if (bias->rank != 1 || bias->dims[0] != p->n)
    return INVALID("Must provide as many biases as the last dimension of the input tensor: %s vs. %s",
                   tensor_shape_str(bias), tensor_shape_str(b));
  return p->k ? NULL : UNIMPLEMENTED("a product of nothing with a bias, on a card");
}

static shoal_status queue(struct kernel_ctx *ctx, const struct cuda_product *p) {
  struct cuda_device *c = cuda_ctx(ctx);
  for (int i = 0; i < 3; i++) TRY(cuda_use(c, ctx_in(ctx, i)));
  TRY(cuda_use(c, &ctx->out[0]));
  return cuda_blas_run_with_bias(c, p, ctx_in(ctx, 0)->data, ctx_in(ctx, 1)->data, ctx_in(ctx, 2)->data,
                                 ctx->out[0].data);
}

static shoal_status fused_run(struct kernel_ctx *ctx) {
  struct cuda_product p;
  struct tensor *out;
  TRY(product_of(ctx->state, ctx, &p));
  TRY(ctx_out_dims(ctx, 0, 2, (int64_t[]){p.m, p.n}, &out));
  if (!out->n) return NULL;
  cuda_lock(cuda_ctx(ctx));
  shoal_status s = queue(ctx, &p);
  cuda_unlock(cuda_ctx(ctx));
  return s;
}

static const struct kernel_def fused[] = {{.device = "GPU",
                                           .type_attr = "T",
                                           .types = DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16),
                                           .fits = fits,
                                           .state_size = sizeof(struct cuda_fused),
                                           .init = fused_init,
                                           .run = fused_run},
                                          {0}};

const struct device_kernels cuda_fused_kernels[] = {{"_FusedMatMul", fused}, {0}};
