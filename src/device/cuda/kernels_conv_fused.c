/* A convolution with its bias, and perhaps Relu, on a card: over a thin image in one kernel (thin.cu), else in one more
 * behind it, in place. The rewrite that makes _FusedConv2D knows of other activations; those stay nodes of their own
 * here, and so does a convolution that batch normalisation is folded into. */
#include <string.h>

#include "device/cuda/cuda_conv.h"
#include "ops/array/array_util.h"

struct cuda_conv_fused {
  struct cuda_conv_state conv; /* first: it is what the convolution itself sees */
  CUfunction one, wide;
};

static bool is_op(const struct attr *list, size_t i, const char *op) {
  return i < list->list.n && list->list.at[i].kind == ATTR_STRING && !strcmp(list->list.at[i].s.data, op);
}

static bool fits(const struct shoal_node *n) {
  const struct attr *ops = node_attr(n, "fused_ops"), *args = node_attr(n, "num_args");
  const struct attr *format = node_attr(n, "filter_format");
  if (!ops || ops->kind != ATTR_LIST || !is_op(ops, 0, "BiasAdd") || !args || args->i != 1 || n->n_in != 3)
    return false;
  if (format && strcmp(format->s.data, "HWIO")) return false;
  return dtype_base(n->in_types[2]) == dtype_base(n->in_types[0]) &&
         (ops->list.n == 1 || (ops->list.n == 2 && is_op(ops, 1, "Relu")));
}

static shoal_status fused_init(struct kernel_init *ki, void *state) {
  struct cuda_conv_fused *st = state;
  struct cuda_device *c = cuda_of(ki->device);
  shoal_dtype type = dtype_base(ki->kernel->out_types[0]);
  st->conv.bias = true;
  st->conv.relu = node_attr(ki->node, "fused_ops")->list.n == 2;
  TRY(cuda_conv_init(ki, &st->conv));
  TRY(cuda_function(c, "conv", "conv_finish", type, 0, &st->one));
  return cuda_function(c, "conv", "conv_finish_wide", type, 0, &st->wide);
}

static shoal_status fused_run(struct kernel_ctx *ctx) {
  const struct tensor *filter = ctx_in(ctx, 1), *bias = ctx_in(ctx, 2);
  if (filter->rank && (bias->rank != 1 || bias->dims[0] != filter->dims[filter->rank - 1]))
    return INVALID("bias must be a vector of %lld, has shape %s", (long long)filter->dims[filter->rank - 1],
                   tensor_shape_str(bias));
  return cuda_conv_run(ctx);
}

shoal_status cuda_conv_finish(struct kernel_ctx *ctx, const struct conv *c, const struct tensor *result) {
  const struct cuda_conv_state *of = ctx->state;
  if (!of->bias) return NULL;
  const struct cuda_conv_fused *st = ctx->state;
  const struct tensor *bias = ctx_in(ctx, 2);
  int64_t n = result->n, co = c->co, each = 16 / (int64_t)dtype_size((shoal_dtype)result->dtype);
  bool wide = co % each == 0 && (uintptr_t)result->data % 16 == 0 && n / each <= UINT32_MAX;
  int relu = of->relu;
  return cuda_run_on(ctx, wide ? st->wide : st->one, cuda_blocks(cuda_ctx(ctx), wide ? n / each : n), 1, CUDA_BLOCK,
                     (void *[]){(void *)&result->data, (void *)&bias->data, &n, &co, &relu}, 2,
                     (const struct tensor *[]){result, bias});
}

static const struct kernel_def fused[] = {{.device = "GPU",
                                           .type_attr = "T",
                                           .types = CUDA_FLOATING,
                                           .fits = fits,
                                           .state_size = sizeof(struct cuda_conv_fused),
                                           .init = fused_init,
                                           .run = fused_run},
                                          {0}};

const struct device_kernels cuda_conv_fused_kernels[] = {{"_FusedConv2D", fused}, {0}};
