/* _MatMulOnto on a card: a product and its bias, added to what has the same shape, in one kernel (cuBLASLt's C). What
 * has another shape is spread, and added after. */
#include "device/cuda/cuda_blas.h"
#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"
#include "ops/math/broadcast.h"

struct cuda_onto {
  bool trans_a, trans_b;
  struct shape shape; /* of the product */
  CUfunction add;
};

static bool fits(const struct shoal_node *n) { return cuda_blas_there(); }

static shoal_status onto_init(struct kernel_init *ki, void *state) {
  struct cuda_onto *st = state;
  TRY(node_get_bool(ki->node, "transpose_a", &st->trans_a));
  TRY(node_get_bool(ki->node, "transpose_b", &st->trans_b));
  TRY(node_get_shape(ki->node, "shape", &st->shape));
  return cuda_function(cuda_of(ki->device), "elementwise", "AddV2", dtype_base(ki->kernel->in_types[0]), 0, &st->add);
}

static shoal_status product_of(const struct kernel_ctx *ctx, struct cuda_product *p) {
  const struct cuda_onto *st = ctx->state;
  int64_t elements;
  TRY(shape_elements(&st->shape, &elements));
  TRY(cuda_product_with(ctx, st->trans_a, st->trans_b, CUDA_WITH_BIAS, p));
  if (p->m * p->n == elements) return NULL;
  return INVALID("Input to reshape is a tensor with %lld values, but the requested shape has %lld",
                 (long long)(p->m * p->n), (long long)elements);
}

/* onto NULL: nothing. */
static shoal_status queue(struct kernel_ctx *ctx, const struct cuda_product *p, const struct tensor *onto,
                          const struct tensor *out) {
  struct cuda_device *c = cuda_ctx(ctx);
  for (int i = 0; i < 3; i++) TRY(cuda_use(c, ctx_in(ctx, i)));
  if (onto) TRY(cuda_use(c, onto));
  TRY(cuda_use(c, out));
  return cuda_blas_run_onto(c, p, ctx_in(ctx, 0)->data, ctx_in(ctx, 1)->data, ctx_in(ctx, 2)->data,
                            onto ? onto->data : NULL, out->data);
}

static shoal_status multiply(struct kernel_ctx *ctx, struct cuda_product *p, const struct tensor *onto,
                             const struct tensor *out) {
  if (!out->n) return NULL;
  p->onto = onto != NULL;
  cuda_lock(cuda_ctx(ctx));
  shoal_status s = queue(ctx, p, onto, out);
  cuda_unlock(cuda_ctx(ctx));
  return s;
}

static shoal_status add_after(struct kernel_ctx *ctx, struct cuda_product *p) {
  const struct cuda_onto *st = ctx->state;
  struct tensor product, *out;
  struct broadcast b;
  TRY(cuda_temp(ctx, p->dtype, &st->shape, &product));
  const struct tensor *in[] = {ctx_in(ctx, 3), &product};
  shoal_status s = multiply(ctx, p, NULL, &product);
  if (!s) s = broadcast_plan(&b, in, 2);
  if (!s) s = ctx_out(ctx, 0, &b.out, &out);
  if (!s) s = cuda_run_spread(ctx, st->add, &b, in, out);
  tensor_release(&product);
  return s;
}

static shoal_status onto_run(struct kernel_ctx *ctx) {
  const struct cuda_onto *st = ctx->state;
  struct shape onto = tensor_shape(ctx_in(ctx, 3));
  struct cuda_product p;
  struct tensor *out;
  TRY(product_of(ctx, &p));
  if (!shape_equal(&onto, &st->shape)) return add_after(ctx, &p);
  TRY(ctx_out(ctx, 0, &st->shape, &out));
  return multiply(ctx, &p, ctx_in(ctx, 3), out);
}

static const struct kernel_def onto_kernels[] = {{.device = "GPU",
                                                  .type_attr = "T",
                                                  .types = DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16),
                                                  .fits = fits,
                                                  .state_size = sizeof(struct cuda_onto),
                                                  .init = onto_init,
                                                  .run = onto_run},
                                                 {0}};

const struct device_kernels cuda_onto_kernels[] = {{"_MatMulOnto", onto_kernels}, {0}};
