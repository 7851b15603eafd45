/* Convolutions over images of few channels, as the first of a network is: cuDNN pads channels to eight and multiplies
 * mostly zeros. With strides the image is folded instead (fold.cu), and what is multiplied is half as much. Gradients
 * of images are left to the usual way. */
#include "device/cuda/cuda_conv.h"

enum { FEW = 4, LARGE = 16, GROUP = 16, MOST_CHANNELS = 256, MOST_ELEMENTS = 8192 }; /* LARGE: places of a filter */

struct cuda_fold { /* as fold.cu has it */
  int64_t batch, co;
  int32_t in[2], out[2], filter[2], stride[2], pad[2], ci;
  int32_t lines, rows, used, channels;
};

shoal_status cuda_folds_init(struct kernel_init *ki, struct cuda_folds *out) {
  struct cuda_device *c = cuda_of(ki->device);
  shoal_dtype type = dtype_base(ki->kernel->out_types[0]);
  if (type != SHOAL_FLOAT16 && type != SHOAL_BFLOAT16) return NULL;
  TRY(cuda_function(c, "fold", "fold_image", type, 0, &out->image));
  TRY(cuda_function(c, "fold", "fold_filter", type, 0, &out->filter));
  return cuda_function(c, "fold", "unfold_filter", type, 0, &out->back);
}

static bool fits(const struct conv *c) {
  bool flat = c->in[0] == 1 && c->out[0] == 1 && c->filter[0] == 1 && c->groups == 1 && c->batch < 1 << 15;
  bool near = c->dilation[1] == 1 && c->dilation[2] == 1 && c->in[1] < 1 << 15 && c->in[2] < 1 << 15;
  bool small = c->ci <= FEW && c->stride[1] == 2 && c->stride[2] == 2 && c->filter[1] < 1 << 10 &&
               c->filter[1] * c->filter[2] >= LARGE && 2 * c->filter[2] * c->ci <= MOST_CHANNELS - GROUP;
  return flat && near && small && 2 * ((c->out[2] - 1) * 2 + c->filter[2]) * c->ci <= MOST_ELEMENTS;
}

static struct cuda_fold fold_of(const struct conv *c) {
  struct cuda_fold f = {.batch = c->batch, .co = c->co, .ci = (int32_t)c->ci};
  for (int d = 0; d < 2; d++) {
    f.in[d] = (int32_t)c->in[d + 1];
    f.out[d] = (int32_t)c->out[d + 1];
    f.stride[d] = (int32_t)c->stride[d + 1];
    f.pad[d] = (int32_t)c->pad[d + 1];
    f.filter[d] = (int32_t)c->filter[d + 1];
  }
  f.rows = (f.filter[0] + f.stride[0] - 1) / f.stride[0];
  f.lines = f.out[0] + f.rows - 1;
  f.used = f.stride[0] * f.filter[1] * f.ci;
  f.channels = (f.used + GROUP - 1) / GROUP * GROUP;
  return f;
}

/* The convolution that is left. */
static struct conv folded(const struct conv *c, const struct cuda_fold *f) {
  struct conv k = *c;
  k.in[1] = f->lines;
  k.in[2] = f->out[1];
  k.filter[1] = f->rows;
  k.filter[2] = 1;
  k.stride[1] = k.stride[2] = 1;
  k.pad[1] = k.pad[2] = 0;
  k.ci = f->channels;
  return k;
}

static shoal_status launch(struct kernel_ctx *ctx, CUfunction fn, const struct cuda_fold *f, const struct tensor *from,
                           const struct tensor *to, unsigned blocks) {
  return cuda_run_on(ctx, fn, blocks, 1, CUDA_BLOCK, (void *[]){(void *)&from->data, (void *)&to->data, (void *)f}, 2,
                     (const struct tensor *[]){from, to});
}

static shoal_status run(struct kernel_ctx *ctx, const struct cuda_fold *f, const struct cuda_conv *k,
                        struct cuda_conv_tensors *t, size_t workspace, struct tensor *image, struct tensor *filter) {
  const struct cuda_conv_state *st = ctx->state;
  TRY(cuda_conv_temp(ctx, f->batch * f->lines * f->out[1] * f->channels, image));
  TRY(cuda_conv_temp(ctx, f->co * f->rows * f->channels, filter));
  unsigned blocks = cuda_blocks(cuda_ctx(ctx), filter->n);
  TRY(launch(ctx, st->folds.image, f, &t->image, image, (unsigned)(f->batch * f->lines)));
  if (k->kind == CONV_FORWARD) TRY(launch(ctx, st->folds.filter, f, &t->filter, filter, blocks));
  TRY(cuda_conv_queue(ctx, k, image, filter, &t->result, workspace));
  return k->kind == CONV_FORWARD ? NULL : launch(ctx, st->folds.back, f, filter, &t->filter, blocks);
}

shoal_status cuda_conv_folded(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *t, bool *done) {
  const struct cuda_conv_state *st = ctx->state;
  struct tensor image = {0}, filter = {0};
  size_t workspace;
  if (!st->folds.image || st->of.kind == CONV_BACK_INPUT || !fits(c)) return NULL;
  struct cuda_fold f = fold_of(c);
  struct cuda_conv k = {.kind = st->of.kind, .dtype = ctx_out_type(ctx, 0), .align = 16, .c = folded(c, &f)};
  if ((uintptr_t)t->result.data % k.align) return NULL;
  TRY(cuda_conv_ask(ctx, &k, done, &workspace));
  if (!*done) return NULL;
  shoal_status s = run(ctx, &f, &k, t, workspace, &image, &filter);
  tensor_release(&image);
  tensor_release(&filter);
  return s;
}
