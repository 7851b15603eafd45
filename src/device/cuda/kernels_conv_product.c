/* Convolutions of 1 x 1 without strides are products of matrices, [pixels, ci] by [ci, co], with the filter as
 * TensorFlow has it: nothing is turned round for them, as it would be for cuDNN, which takes them for products too. */
#include "device/cuda/cuda_blas.h"
#include "device/cuda/cuda_conv.h"

static bool is_product(const struct conv *c) {
  bool is = c->groups == 1;
  for (int d = 0; d < 3; d++) is = is && c->filter[d] == 1 && c->stride[d] == 1 && !c->pad[d] && c->in[d] == c->out[d];
  return is;
}

static shoal_status queue(struct cuda_device *c, const struct cuda_product *p, const struct tensor *a,
                          const struct tensor *b, const struct tensor *out) {
  TRY(cuda_use(c, a));
  TRY(cuda_use(c, b));
  TRY(cuda_use(c, out));
  return cuda_blas_run(c, p, a->data, b->data, out->data);
}

static shoal_status multiply(struct kernel_ctx *ctx, const struct cuda_product *p, const struct tensor *a,
                             const struct tensor *b, const struct tensor *out) {
  struct cuda_device *c = cuda_ctx(ctx);
  cuda_lock(c);
  shoal_status s = queue(c, p, a, b, out);
  cuda_unlock(c);
  return s;
}

shoal_status cuda_conv_by_product(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *t,
                                  bool *done) {
  const struct cuda_conv_state *st = ctx->state;
  int64_t pixels = c->batch * c->in[0] * c->in[1] * c->in[2];
  struct cuda_product p = {.dtype = ctx_out_type(ctx, 0), .batch = 1};
  *done = cuda_ctx(ctx)->blas && is_product(c);
  if (!*done) return NULL;
  switch (st->of.kind) {
    case CONV_FORWARD:
      p.m = pixels, p.k = c->ci, p.n = c->co;
      return multiply(ctx, &p, &t->image, &t->filter, &t->result);
    case CONV_BACK_INPUT:
      p.m = pixels, p.k = c->co, p.n = c->ci, p.trans_b = true;
      return multiply(ctx, &p, &t->result, &t->filter, &t->image);
    default:
      p.m = c->ci, p.k = pixels, p.n = c->co, p.trans_a = true;
      return multiply(ctx, &p, &t->image, &t->result, &t->filter);
  }
}
