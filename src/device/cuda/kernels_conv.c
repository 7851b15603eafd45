/* Convolutions on a card: products where they are (kernels_conv_product.c), our own over thin images (kernels_thin.c)
 * and for gradients of small filters (kernels_conv_filter.c), cuDNN's (cuda_dnn.h), else conv.cu's.
 *
 * All work is done channels last. Channels first is turned round before and after, which costs a pass over memory; so
 * there is one order to be fast in. cuDNN wants the filter's output channels first: filters are small, and turned. It
 * pads both ends alike; where an image needs more at its end (SAME with strides) it is copied into a padded one. */
#include "device/cuda/cuda_conv.h"

shoal_status cuda_conv_init(struct kernel_init *ki, struct cuda_conv_state *st) {
  static const char *const names[] = {"conv_forward", "conv_back_input", "conv_back_filter"};
  TRY(conv_shapes_init(&st->of, ki->node));
  TRY(cuda_folds_init(ki, &st->folds));
  TRY(cuda_thins_init(ki, &st->thins));
  TRY(cuda_filters_init(ki, &st->filters));
  return cuda_function(cuda_of(ki->device), "conv", names[st->of.kind], dtype_base(ki->kernel->out_types[0]), 0,
                       &st->direct);
}

static shoal_status conv_init(struct kernel_init *ki, void *state) { return cuda_conv_init(ki, state); }

static void tensors_release(struct cuda_conv_tensors *t) {
  tensor_release(&t->image);
  tensor_release(&t->filter);
  tensor_release(&t->result);
}

shoal_status cuda_conv_temp(struct kernel_ctx *ctx, int64_t n, struct tensor *out) {
  struct shape shape = shape_vector(n);
  return cuda_temp(ctx, ctx_out_type(ctx, 0), &shape, out);
}

/* ---- written out ---- */

struct cuda_direct { /* as conv.cu has it */
  int64_t batch, in[3], out[3], filter[3], stride[3], dilation[3], pad[3], ci, co, groups;
};

static struct cuda_direct direct_of(const struct conv *c) {
  struct cuda_direct k = {.batch = c->batch, .ci = c->ci, .co = c->co, .groups = c->groups};
  for (int d = 0; d < 3; d++) {
    k.in[d] = c->in[d];
    k.out[d] = c->out[d];
    k.filter[d] = c->filter[d];
    k.stride[d] = c->stride[d];
    k.dilation[d] = c->dilation[d];
    k.pad[d] = c->pad[d];
  }
  return k;
}

static shoal_status run_direct(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *t) {
  enum { LANES = 32 };
  const struct cuda_conv_state *st = ctx->state;
  struct cuda_direct k = direct_of(c);
  int64_t rows = c->co ? t->filter.n / c->co : 0;
  unsigned grid = st->of.kind == CONV_BACK_FILTER
                      ? (unsigned)(rows * ((c->co + LANES - 1) / LANES))
                      : cuda_blocks(cuda_ctx(ctx), st->of.kind == CONV_FORWARD ? t->result.n : t->image.n);
  return cuda_run_on(ctx, st->direct, grid, 1, CUDA_BLOCK,
                     (void *[]){&t->image.data, &t->filter.data, &t->result.data, &k}, 3,
                     (const struct tensor *[]){&t->image, &t->filter, &t->result});
}

/* ---- by cuDNN ---- */

/* What the image needs behind it. */
static int64_t pad_after(const struct conv *c, int d) {
  return MAX(0, (c->out[d] - 1) * c->stride[d] + (c->filter[d] - 1) * c->dilation[d] + 1 - c->in[d] - c->pad[d]);
}

/* Would as much behind as before give the same result? */
static bool is_even(const struct conv *c, int d) {
  int64_t effective = (c->filter[d] - 1) * c->dilation[d] + 1, room = c->in[d] + 2 * c->pad[d] - effective;
  return pad_after(c, d) <= c->pad[d] && room / c->stride[d] + 1 == c->out[d];
}

static void pad_evenly(struct conv *c) {
  if (is_even(c, 0) && is_even(c, 1) && is_even(c, 2)) return;
  for (int d = 0; d < 3; d++) {
    c->in[d] += c->pad[d] + pad_after(c, d);
    c->pad[d] = 0;
  }
}

/* The image inside of a padded one. */
static shoal_status copy_padded(struct kernel_ctx *ctx, const struct conv *plain, const struct conv *padded,
                                const struct tensor *image, const struct tensor *wide, bool in) {
  struct device *d = ctx->kernel->device;
  struct strided s = {0};
  int64_t image_step[5], wide_step[5], dims[5] = {plain->batch, plain->in[0], plain->in[1], plain->in[2], plain->ci};
  strides_of(5, dims, image_step);
  strides_of(5, (int64_t[]){padded->batch, padded->in[0], padded->in[1], padded->in[2], padded->ci}, wide_step);
  int64_t first = 0;
  for (int i = 0; i < 3; i++) first += plain->pad[i] * wide_step[1 + i];
  for (int i = 0; i < 5; i++)
    strided_add(&s, dims[i], in ? wide_step[i] : image_step[i], in ? image_step[i] : wide_step[i]);
  if (!in) return d->type->ops->copy_view(d, &s, image, 0, wide, first);
  d->type->ops->zero(d, wide);
  return d->type->ops->copy_view(d, &s, wide, first, image, 0);
}

static uint32_t alignment(uintptr_t bits) {
  enum { MOST = 16 };
  return bits & (MOST - 1) ? (uint32_t)(bits & -bits) : MOST;
}

/* The place of a tensor that cuDNN is to see: itself, or what stands for it. */
static const struct tensor *or_itself(const struct tensor *in_place, const struct tensor *t) {
  return in_place->buffer ? in_place : t;
}

shoal_status cuda_conv_ask(struct kernel_ctx *ctx, const struct cuda_conv *k, bool *can, size_t *workspace) {
  struct cuda_device *c = cuda_ctx(ctx);
  cuda_lock(c);
  shoal_status s = cuda_dnn_ask(c, k, can, workspace);
  cuda_unlock(c);
  return s;
}

static shoal_status queue_dnn(struct cuda_device *c, const struct cuda_conv *k, const struct tensor *image,
                              const struct tensor *filter, const struct tensor *result,
                              const struct tensor *workspace) {
  const struct cuda_conv_memory m = {image->data, filter->data, result->data, workspace->data};
  TRY(cuda_use(c, image));
  TRY(cuda_use(c, filter));
  TRY(cuda_use(c, result));
  return cuda_dnn_run(c, k, &m);
}

shoal_status cuda_conv_queue(struct kernel_ctx *ctx, const struct cuda_conv *k, const struct tensor *image,
                             const struct tensor *filter, const struct tensor *result, size_t workspace) {
  struct cuda_device *c = cuda_ctx(ctx);
  struct tensor room;
  struct shape shape = shape_vector((int64_t)workspace);
  TRY(cuda_temp(ctx, SHOAL_UINT8, &shape, &room));
  cuda_lock(c);
  shoal_status s = queue_dnn(c, k, image, filter, result, &room);
  cuda_unlock(c);
  tensor_release(&room);
  return s;
}

/* Filter and image as cuDNN wants them, the convolution, and what of the two was written as it was wanted. */
static shoal_status run_around(struct kernel_ctx *ctx, const struct conv *c, const struct cuda_conv *k,
                               struct cuda_conv_tensors *t, size_t bytes, struct tensor *filter, struct tensor *wide) {
  int64_t rows = t->filter.n / c->co;
  TRY(cuda_conv_temp(ctx, t->filter.n, filter));
  if (k->c.in[0] != c->in[0] || k->c.in[1] != c->in[1] || k->c.in[2] != c->in[2]) {
    TRY(cuda_conv_temp(ctx, c->batch * k->c.in[0] * k->c.in[1] * k->c.in[2] * c->ci, wide));
    if (k->kind != CONV_BACK_INPUT) TRY(copy_padded(ctx, c, &k->c, &t->image, wide, true));
  }
  if (k->kind != CONV_BACK_FILTER) TRY(cuda_turn(ctx, &t->filter, filter, (struct cuda_matrices){1, rows, c->co}));
  TRY(cuda_conv_queue(ctx, k, or_itself(wide, &t->image), filter, &t->result, bytes));
  if (k->kind == CONV_BACK_FILTER) return cuda_turn(ctx, filter, &t->filter, (struct cuda_matrices){1, c->co, rows});
  return k->kind == CONV_BACK_INPUT && wide->buffer ? copy_padded(ctx, c, &k->c, &t->image, wide, false) : NULL;
}

static shoal_status run_dnn(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *t, bool *done) {
  const struct cuda_conv_state *st = ctx->state;
  struct cuda_conv k = {.kind = st->of.kind, .dtype = ctx_out_type(ctx, 0), .c = *c};
  struct tensor filter = {0}, wide = {0};
  size_t bytes = 0;
  if (k.dtype == SHOAL_FLOAT64 || !cuda_dnn_there()) return NULL;
  TRY(cuda_conv_folded(ctx, c, t, done));
  if (*done) return NULL;
  pad_evenly(&k.c);
  k.align = alignment((uintptr_t)t->image.data | (uintptr_t)t->result.data);
  TRY(cuda_conv_ask(ctx, &k, done, &bytes));
  if (!*done) return NULL;
  shoal_status s = run_around(ctx, c, &k, t, bytes, &filter, &wide);
  tensor_release(&filter);
  tensor_release(&wide);
  return s;
}

/* ---- order of channels ---- */

static struct cuda_matrices turned(const struct tensor *t, int64_t channels) {
  return (struct cuda_matrices){t->dims[0], channels, t->n / t->dims[0] / channels};
}

/* *to is t channels last: itself, or a copy, which is left empty if it is to be written. */
static shoal_status channels_last(struct kernel_ctx *ctx, const struct tensor *t, struct tensor *to) {
  const struct cuda_conv_state *st = ctx->state;
  if (!st->of.w.channels_first) {
    tensor_ref(to, t);
    return NULL;
  }
  TRY(cuda_conv_temp(ctx, t->n, to));
  return t == &ctx->out[0] ? NULL : cuda_turn(ctx, t, to, turned(t, t->dims[1]));
}

static shoal_status channels_back(struct kernel_ctx *ctx, const struct tensor *from) {
  const struct cuda_conv_state *st = ctx->state;
  const struct tensor *to = &ctx->out[0];
  if (!st->of.w.channels_first || st->of.kind == CONV_BACK_FILTER) return NULL;
  struct cuda_matrices m = turned(to, to->dims[1]);
  return cuda_turn(ctx, from, to, (struct cuda_matrices){m.batch, m.cols, m.rows});
}

/* ---- kernels ---- */

static shoal_status run_tensors(struct kernel_ctx *ctx, const struct conv *c, struct cuda_conv_tensors *t) {
  const struct cuda_conv_state *st = ctx->state;
  enum conv_kind kind = st->of.kind;
  const struct tensor *out = &ctx->out[0];
  bool done = false, finished = false;
  TRY(channels_last(ctx, kind == CONV_BACK_INPUT ? out : ctx_in(ctx, 0), &t->image));
  tensor_ref(&t->filter, kind == CONV_BACK_FILTER ? out : ctx_in(ctx, 1));
  TRY(channels_last(ctx, kind == CONV_FORWARD ? out : ctx_in(ctx, 2), &t->result));
  TRY(cuda_conv_by_product(ctx, c, t, &done));
  if (!done) {
    TRY(cuda_conv_thin(ctx, c, t, &finished));
    done = finished;
  }
  if (!done) TRY(cuda_conv_filter(ctx, c, t, &done));
  if (!done) TRY(run_dnn(ctx, c, t, &done));
  if (!done) TRY(run_direct(ctx, c, t));
  if (!finished) TRY(cuda_conv_finish(ctx, c, &t->result));
  return channels_back(ctx, kind == CONV_FORWARD ? &t->result : &t->image);
}

/* Nothing summed is zeros. */
static bool sums_nothing(struct kernel_ctx *ctx, const struct conv *c) {
  return !ctx->out[0].n || !c->batch || !c->ci || !c->co || c->filter[0] * c->filter[1] * c->filter[2] <= 0 ||
         c->out[0] * c->out[1] * c->out[2] <= 0;
}

static shoal_status make_zeros(struct kernel_ctx *ctx, const struct conv *c) {
  const struct cuda_conv_state *st = ctx->state;
  struct device *d = ctx->kernel->device;
  if (st->bias && ctx->out[0].n && st->of.w.channels_first)
    return UNIMPLEMENTED("a convolution of nothing with a bias, channels first, on a card");
  d->type->ops->zero(d, &ctx->out[0]);
  return ctx->out[0].n ? cuda_conv_finish(ctx, c, &ctx->out[0]) : NULL;
}

shoal_status cuda_conv_run(struct kernel_ctx *ctx) {
  const struct cuda_conv_state *st = ctx->state;
  struct shape image, filter, result;
  struct conv c;
  struct tensor *out;
  TRY(conv_shapes_find(ctx, &st->of, &image, &filter, &c));
  result = window_shape(&st->of.w, c.batch, c.out, c.co);
  TRY(ctx_out(ctx, 0, st->of.kind == CONV_FORWARD ? &result : st->of.kind == CONV_BACK_INPUT ? &image : &filter, &out));
  if (sums_nothing(ctx, &c)) return make_zeros(ctx, &c);
  struct cuda_conv_tensors t = {{0}};
  shoal_status s = run_tensors(ctx, &c, &t);
  tensors_release(&t);
  return s;
}

#define KERNEL(id, host)                                                                \
  static const struct kernel_def id[] = {{.device = "GPU",                              \
                                          .type_attr = "T",                             \
                                          .types = CUDA_FLOATING,                       \
                                          .state_size = sizeof(struct cuda_conv_state), \
                                          .init = conv_init,                            \
                                          .run = cuda_conv_run,                         \
                                          .host_in = host},                             \
                                         {0}};
KERNEL(plain, 0)
KERNEL(sizes_first, 1)
KERNEL(sizes_second, 2)

const struct device_kernels cuda_conv_kernels[] = {{"Conv2D", plain},
                                                   {"Conv2DBackpropInput", sizes_first},
                                                   {"Conv2DBackpropFilter", sizes_second},
                                                   {"DepthwiseConv2dNative", plain},
                                                   {"DepthwiseConv2dNativeBackpropInput", sizes_first},
                                                   {"DepthwiseConv2dNativeBackpropFilter", sizes_second},
                                                   {"Conv3D", plain},
                                                   {"Conv3DBackpropInputV2", sizes_first},
                                                   {"Conv3DBackpropFilterV2", sizes_second},
                                                   {0}};
