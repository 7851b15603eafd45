/* Bias, Relu and max pooling as one, and the way back, on a card: relu_pool.cu. */
#include "device/cuda/cuda_kernel.h"
#include "ops/nn/relu_pool.h"

enum { PACK = 16, PIECES = 512, MOST_CHUNKS = 256 }; /* MOST_CHUNKS: each of up to 256 channels */

struct cuda_relu_pool { /* as relu_pool.cu has it */
  int64_t windows;
  int32_t in[2], out[2], size[2], pad[2], depth, down, across, groups;
};

struct cuda_relu_pool_state {
  struct relu_pool_state of;
  CUfunction one, wide; /* channels that a thread serves: one, or 16 bytes of them */
  struct tensor done;   /* back: counts blocks, 0 between launches, which follow one another on the stream */
};

static bool fits(const struct shoal_node *n) {
  struct relu_pool_state st;
  shoal_status s = relu_pool_init(&st, n);
  bool good = !s;
  shoal_status_free(s);
  return good;
}

static shoal_status find(struct kernel_init *ki, const char *one, const char *wide, struct cuda_relu_pool_state *st) {
  struct cuda_device *c = cuda_of(ki->device);
  shoal_dtype type = dtype_base(ki->kernel->out_types[0]);
  TRY(relu_pool_init(&st->of, ki->node));
  TRY(cuda_function(c, "relu_pool", one, type, 0, &st->one));
  return cuda_function(c, "relu_pool", wide, type, 0, &st->wide);
}

static shoal_status forward_init(struct kernel_init *ki, void *state) {
  return find(ki, "relu_pool_one", "relu_pool_wide", state);
}

static shoal_status back_init(struct kernel_init *ki, void *state) {
  struct cuda_relu_pool_state *st = state;
  struct device *d = ki->device;
  struct shape counts = shape_vector(MOST_CHUNKS);
  st->done = tensor_none();
  TRY(find(ki, "relu_pool_back_one", "relu_pool_back_wide", st));
  TRY(device_tensor_new(d, ki->node->name, SHOAL_INT32, &counts, &st->done));
  d->type->ops->zero(d, &st->done);
  return NULL;
}

static void back_release(void *state) { tensor_release(&((struct cuda_relu_pool_state *)state)->done); }

static shoal_status shape_of(const struct pooling *p, struct cuda_relu_pool *s) {
  *s = (struct cuda_relu_pool){.windows = p->batch * p->out[1] * p->out[2], .depth = (int32_t)p->depth};
  if (p->depth > INT32_MAX / 2 || p->in[1] > INT32_MAX / 2 || p->in[2] > INT32_MAX / 2)
    return UNIMPLEMENTED("pooling of %lld by %lld by %lld on a card", (long long)p->in[1], (long long)p->in[2],
                         (long long)p->depth);
  for (int d = 0; d < 2; d++) {
    s->in[d] = (int32_t)p->in[d + 1];
    s->out[d] = (int32_t)p->out[d + 1];
    s->size[d] = (int32_t)p->size[d + 1];
    s->pad[d] = (int32_t)p->pad[d + 1];
  }
  return NULL;
}

/* Channels to a thread, of at most n elements at those addresses. */
static int32_t channels_each(const struct cuda_relu_pool *s, shoal_dtype type, int64_t n, uintptr_t addresses) {
  int32_t each = PACK / (int32_t)dtype_size(type);
  return s->depth % each == 0 && addresses % PACK == 0 && n / each < UINT32_MAX ? each : 1;
}

static uintptr_t address(const struct tensor *t) { return (uintptr_t)t->data; }

static shoal_status forward_run(struct kernel_ctx *ctx) {
  const struct cuda_relu_pool_state *st = ctx->state;
  struct cuda_relu_pool s;
  struct relu_pool k;
  TRY(relu_pool_begin(ctx, &st->of, &k));
  TRY(shape_of(&k.p, &s));
  int32_t each = channels_each(&s, (shoal_dtype)k.x->dtype, k.y->n,
                               address(k.x) | address(k.bias) | address(k.y) | address(k.where));
  return cuda_run_each(ctx, each > 1 ? st->wide : st->one, k.y->n / each,
                       (void *[]){(void *)&k.x->data, (void *)&k.bias->data, &k.y->data, &k.where->data, &s});
}

static int64_t parts(int64_t n, int64_t each) { return (n + each - 1) / each; }

static shoal_status back(struct kernel_ctx *ctx, struct relu_pool *k, struct cuda_relu_pool *s, int32_t each) {
  const struct cuda_relu_pool_state *st = ctx->state;
  int64_t packs = s->depth / each, chunks = parts(packs, CUDA_BLOCK / each);
  s->groups = (int32_t)parts(packs, chunks);
  int64_t rounds = parts(s->windows, CUDA_BLOCK / s->groups), pieces = parts(rounds, parts(rounds, PIECES));
  bool wide = (shoal_dtype)k->dy->dtype == SHOAL_FLOAT64;
  struct shape room = shape_vector(pieces * s->depth);
  struct tensor sums;
  if (chunks > MOST_CHUNKS) return UNIMPLEMENTED("pooling of %d channels on a card", (int)s->depth);
  TRY(cuda_temp(ctx, wide ? SHOAL_FLOAT64 : SHOAL_FLOAT32, &room, &sums));
  shoal_status e = cuda_run(ctx, each > 1 ? st->wide : st->one, (unsigned)pieces, (unsigned)chunks, CUDA_BLOCK,
                            (void *[]){(void *)&k->taken->data, (void *)&k->dy->data, &k->dx->data, &k->sums->data,
                                       &sums.data, (void *)&st->done.data, s});
  tensor_release(&sums);
  return e;
}

static shoal_status back_run(struct kernel_ctx *ctx) {
  const struct cuda_relu_pool_state *st = ctx->state;
  struct device *d = ctx->kernel->device;
  struct cuda_relu_pool s;
  struct relu_pool k;
  TRY(relu_pool_grad_begin(ctx, &st->of, &k));
  TRY(shape_of(&k.p, &s));
  if (!k.dx->n) {
    d->type->ops->zero(d, k.sums);
    return NULL;
  }
  s.down = (int32_t)parts(s.in[0] + s.pad[0], s.size[0]);
  s.across = (int32_t)parts(s.in[1] + s.pad[1], s.size[1]);
  s.windows = k.p.batch * s.down * s.across;
  return back(ctx, &k, &s,
              channels_each(&s, (shoal_dtype)k.dy->dtype, k.dx->n, address(k.taken) | address(k.dy) | address(k.dx)));
}

#define KERNEL(id, init_, release_, run_)                                                    \
  static const struct kernel_def id[] = {{.device = "GPU",                                   \
                                          .type_attr = "T",                                  \
                                          .types = CUDA_FLOATING,                            \
                                          .fits = fits,                                      \
                                          .state_size = sizeof(struct cuda_relu_pool_state), \
                                          .init = init_,                                     \
                                          .release = release_,                               \
                                          .run = run_},                                      \
                                         {0}};
KERNEL(forward_kernels, forward_init, NULL, forward_run)
KERNEL(back_kernels, back_init, back_release, back_run)

const struct device_kernels cuda_relu_pool_kernels[] = {
    {"_BiasReluPool", forward_kernels}, {"_BiasReluPoolGrad", back_kernels}, {0}};
