/* The cards' kernels, all families; and what these share. */
#include <string.h>

#include "device/cuda/cuda_kernel.h"

const struct kernel_def *cuda_kernels(const struct op *op) {
  for (const struct device_kernels *const *family = cuda_families; *family; family++)
    for (const struct device_kernels *k = *family; k->op; k++)
      if (!strcmp(k->op, op->name)) return k->kernels;
  return NULL;
}

shoal_status cuda_fn_init(struct kernel_init *ki, const char *file, struct cuda_fn *out) {
  shoal_dtype type = dtype_base(ki->kernel->in_types[0]);
  return cuda_function(cuda_of(ki->device), file, ki->node->op->name, type, 0, &out->f);
}

unsigned cuda_blocks(const struct cuda_device *c, int64_t n) {
  enum { EACH_MULTIPROCESSOR = 16 };
  return (unsigned)MAX(1, MIN((n + CUDA_BLOCK - 1) / CUDA_BLOCK, (int64_t)c->multiprocessors * EACH_MULTIPROCESSOR));
}

static shoal_status use_all(struct cuda_device *c, struct kernel_ctx *ctx) {
  for (int i = 0; i < ctx->kernel->n_in; i++) TRY(cuda_use(c, ctx->in[i]));
  for (int i = 0; i < ctx->kernel->n_out; i++) TRY(cuda_use(c, &ctx->out[i]));
  return NULL;
}

shoal_status cuda_run(struct kernel_ctx *ctx, CUfunction f, unsigned grid_x, unsigned grid_y, unsigned block,
                      void **args) {
  struct cuda_device *c = cuda_ctx(ctx);
  cuda_lock(c);
  shoal_status s = use_all(c, ctx);
  if (!s) s = cuda_launch(c, f, grid_x, grid_y, block, args);
  cuda_unlock(c);
  return s;
}

shoal_status cuda_run_sharing(struct kernel_ctx *ctx, CUfunction f, unsigned grid, unsigned block, unsigned bytes,
                              void **args) {
  struct cuda_device *c = cuda_ctx(ctx);
  cuda_lock(c);
  shoal_status s = use_all(c, ctx);
  if (!s) s = cuda_launch_sharing(c, f, grid, block, bytes, args);
  cuda_unlock(c);
  return s;
}

shoal_status cuda_run_each(struct kernel_ctx *ctx, CUfunction f, int64_t n, void **args) {
  return n ? cuda_run(ctx, f, cuda_blocks(cuda_ctx(ctx), n), 1, CUDA_BLOCK, args) : NULL;
}

static shoal_status queue_on(struct cuda_device *c, CUfunction f, unsigned grid_x, unsigned grid_y, unsigned block,
                             void **args, int n, const struct tensor *const *uses) {
  for (int i = 0; i < n; i++) TRY(cuda_use(c, uses[i]));
  return f ? cuda_launch(c, f, grid_x, grid_y, block, args) : NULL;
}

shoal_status cuda_run_on(struct kernel_ctx *ctx, CUfunction f, unsigned grid_x, unsigned grid_y, unsigned block,
                         void **args, int n, const struct tensor *const *uses) {
  struct cuda_device *c = cuda_ctx(ctx);
  cuda_lock(c);
  shoal_status s = queue_on(c, f, grid_x, grid_y, block, args, n, uses);
  cuda_unlock(c);
  return s;
}

/* A copy into it, by who had it before, may still be on its way. */
shoal_status cuda_temp(struct kernel_ctx *ctx, shoal_dtype dtype, const struct shape *shape, struct tensor *out) {
  TRY(ctx_temp(ctx, dtype, shape, out));
  shoal_status s = cuda_run_on(ctx, NULL, 0, 0, 0, NULL, 1, (const struct tensor *[]){out});
  if (s) tensor_release(out);
  return s;
}
