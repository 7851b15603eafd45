/* A product with its bias, and perhaps Relu or GELU, or with the derivative of GELU, in one kernel on a card:
 * cuBLASLt's epilogues. The rewrite that makes _FusedMatMul knows of other activations; those stay nodes of their own
 * here. */
#include <string.h>

#include "base/log.h"
#include "device/cuda/cuda_blas.h"
#include "device/cuda/cuda_kernel.h"
#include "device/cuda/cuda_timed.h"
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

static shoal_status product_init(const struct kernel_init *ki, enum cuda_epilogue epilogue, struct cuda_fused *st) {
  st->epilogue = epilogue;
  TRY(node_get_bool(ki->node, "transpose_a", &st->trans_a));
  return node_get_bool(ki->node, "transpose_b", &st->trans_b);
}

static shoal_status fused_init(struct kernel_init *ki, void *state) {
  return product_init(ki, epilogue_of(ki->node), state);
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

static shoal_status gelu_init(struct kernel_init *ki, void *state) { return product_init(ki, CUDA_GELU_BACK, state); }

static shoal_status gelu_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 2);
  struct cuda_product p;
  TRY(product_of(ctx, &p));
  if (x->n != p.m * p.n)
    return INVALID("a product of %lld by %lld beside %s", (long long)p.m, (long long)p.n, tensor_shape_str(x));
  return run_product(ctx, &p);
}

/* ---- _MatMulGelu: in one kernel, or in two, whichever is faster ---- */

enum gelu_way { GELU_NOT_TRIED, GELU_IN_ONE, GELU_BEHIND };
struct cuda_gelu {
  struct cuda_fused product;
  CUfunction behind;
  enum gelu_way way;
};

struct gelu_try {
  struct kernel_ctx *ctx;
  struct cuda_product p;
  enum gelu_way way;
};

static shoal_status gelu_also_init(struct kernel_init *ki, void *state) {
  struct cuda_gelu *st = state;
  TRY(product_init(ki, CUDA_BIAS_GELU, &st->product));
  return cuda_function(cuda_of(ki->device), "layers", "_ShoalGelu", dtype_base(ki->kernel->in_types[0]), 0,
                       &st->behind);
}

/* With the device's lock held. */
static shoal_status queue_gelu(const struct gelu_try *t) {
  const struct cuda_gelu *st = t->ctx->state;
  struct cuda_device *c = cuda_ctx(t->ctx);
  const void *a = ctx_in(t->ctx, 0)->data, *b = ctx_in(t->ctx, 1)->data, *bias = ctx_in(t->ctx, 2)->data;
  struct tensor *y = &t->ctx->out[0], *x = &t->ctx->out[1];
  struct cuda_product p = t->p;
  if (t->way == GELU_IN_ONE) return cuda_blas_run_gelu(c, &p, a, b, bias, x->data, y->data);
  p.epilogue = CUDA_WITH_BIAS;
  TRY(cuda_blas_run_with(c, &p, a, b, bias, x->data));
  return cuda_launch(c, st->behind, cuda_blocks(c, y->n), 1, CUDA_BLOCK, (void *[]){&x->data, &y->data, &y->n});
}

static int try_gelu(void *arg) {
  shoal_status s = queue_gelu(arg);
  bool bad = s != NULL;
  shoal_status_free(s);
  return bad;
}

/* What cannot be timed now is done in two. */
static enum gelu_way choose_gelu(struct cuda_device *c, struct gelu_try *t) {
  float took[2];
  if (!cuda_may_time(c)) return GELU_NOT_TRIED;
  for (int i = 0; i < 2; i++) {
    t->way = i ? GELU_BEHIND : GELU_IN_ONE;
    took[i] = cuda_time(c, try_gelu, t);
  }
  LOGD("a product of %lld by %lld by %lld and its GELU: %.1f us in one kernel, %.1f in two", (long long)t->p.m,
       (long long)t->p.k, (long long)t->p.n, (double)took[0] * 1e3, (double)took[1] * 1e3);
  return took[0] >= 0 && (took[1] < 0 || took[0] < took[1]) ? GELU_IN_ONE : GELU_BEHIND;
}

static shoal_status run_gelu_locked(struct kernel_ctx *ctx, struct gelu_try *t) {
  struct cuda_gelu *st = ctx->state;
  struct cuda_device *c = cuda_ctx(ctx);
  for (int i = 0; i < 3; i++) TRY(cuda_use(c, ctx_in(ctx, i)));
  for (int i = 0; i < 2; i++) TRY(cuda_use(c, &ctx->out[i]));
  if (st->way == GELU_NOT_TRIED) st->way = choose_gelu(c, t);
  t->way = st->way;
  return queue_gelu(t);
}

static shoal_status gelu_also_run(struct kernel_ctx *ctx) {
  const struct cuda_gelu *st = ctx->state;
  struct gelu_try t = {.ctx = ctx};
  struct tensor *out;
  TRY(cuda_product_with(ctx, st->product.trans_a, st->product.trans_b, CUDA_BIAS_GELU, &t.p));
  for (int i = 0; i < 2; i++) TRY(ctx_out_dims(ctx, i, 2, (int64_t[]){t.p.m, t.p.n}, &out));
  if (!out->n) return NULL;
  cuda_lock(cuda_ctx(ctx));
  shoal_status s = run_gelu_locked(ctx, &t);
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

static const struct kernel_def gelu[] = {{.device = "GPU",
                                          .type_attr = "T",
                                          .types = DT(FLOAT16) | DT(BFLOAT16),
                                          .fits = gelu_fits,
                                          .state_size = sizeof(struct cuda_fused),
                                          .init = gelu_init,
                                          .run = gelu_run},
                                         {0}};

static const struct kernel_def gelu_also[] = {{.device = "GPU",
                                               .type_attr = "T",
                                               .types = DT(FLOAT16) | DT(BFLOAT16),
                                               .fits = gelu_fits,
                                               .state_size = sizeof(struct cuda_gelu),
                                               .init = gelu_also_init,
                                               .run = gelu_also_run},
                                              {0}};

const struct device_kernels cuda_fused_kernels[] = {
    {"_FusedMatMul", fused}, {"_MatMulGeluGrad", gelu}, {"_MatMulGelu", gelu_also}, {0}};
