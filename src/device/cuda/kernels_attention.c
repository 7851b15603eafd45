/* Attention on a card, which the rewrite "fuse_layers" makes: attention.cu. Heads of 64 in half precision; others stay
 * the single ops they were built of. */
#include "device/cuda/cuda_kernel.h"
#include "ops/nn/attention.h"

enum { ROWS = 64, DEPTH = 64, GROUP = 128, TILE = ROWS * DEPTH * 2, ALIGNED = 16 };
/* A kernel, and the tiles that a block of it shares: two and two that it goes over, and its own. */
struct attention_fn {
  CUfunction f;
  int tiles;
};

struct cuda_attention {
  struct attention_state of;
  CUfunction products;
  struct attention_fn forward, keys, queries;
};

struct cuda_attention_size { /* as attention.cu has it */
  int32_t batch, heads, queries, keys;
  int64_t q_step, k_step, v_step, y_step;
  float scale;
  int32_t causal;
};

static bool fits(const struct shoal_node *n) {
  const struct attr *depth = node_attr(n, "depth");
  return depth && depth->kind == ATTR_INT && depth->i == DEPTH;
}

static shoal_status find(struct kernel_init *ki, const char *name, CUfunction *out) {
  return cuda_function(cuda_of(ki->device), "attention", name, dtype_base(ki->kernel->in_types[0]), 0, out);
}

static shoal_status find_fn(struct kernel_init *ki, const char *name, int own, struct attention_fn *out) {
  out->tiles = 4 + own;
  TRY(find(ki, name, &out->f));
  return cuda_let_share(cuda_of(ki->device), out->f, (unsigned)(out->tiles * TILE));
}

static shoal_status init(struct kernel_init *ki, void *state) {
  struct cuda_attention *st = state;
  TRY(attention_state_init(&st->of, ki->node));
  TRY(find_fn(ki, "attention", 1, &st->forward));
  TRY(find(ki, "attention_products", &st->products));
  TRY(find_fn(ki, "attention_back_keys", 2, &st->keys));
  return find_fn(ki, "attention_back_queries", 2, &st->queries);
}

static int64_t blocks(int64_t rows) { return (rows + ROWS - 1) / ROWS; }

static shoal_status size_of(const struct kernel_ctx *ctx, bool back, struct attention_size *of,
                            struct cuda_attention_size *out) {
  const struct cuda_attention *st = ctx->state;
  TRY(attention_size(ctx, &st->of, back, of));
  struct attention_size s = *of;
  if (s.queries > INT32_MAX / 2 || s.keys > INT32_MAX / 2 || MAX(s.step, s.width) > INT32_MAX / ROWS ||
      s.batch * st->of.heads * blocks(MAX(s.queries, s.keys)) > INT32_MAX)
    return INVALID("too many queries and keys: %s", tensor_shape_str(ctx_in(ctx, 0)));
  for (int i = 0; i < ctx->kernel->n_in; i++)
    if ((uintptr_t)ctx_in(ctx, i)->data % ALIGNED) return STATUS(SHOAL_INTERNAL, "input %d does not lie well", i);
  *out = (struct cuda_attention_size){.batch = (int32_t)s.batch,
                                      .heads = (int32_t)st->of.heads,
                                      .queries = (int32_t)s.queries,
                                      .keys = (int32_t)s.keys,
                                      .q_step = s.step,
                                      .k_step = s.step,
                                      .v_step = s.step,
                                      .y_step = s.width,
                                      .scale = st->of.scale,
                                      .causal = st->of.causal};
  return NULL;
}

/* With the lock, and after what it uses has been seen to. */
static shoal_status launch(struct cuda_device *c, const struct attention_fn *f, const struct cuda_attention_size *s,
                           int64_t rows, void **args) {
  return cuda_launch_sharing(c, f->f, (unsigned)(s->batch * s->heads * blocks(rows)), GROUP,
                             (unsigned)(f->tiles * TILE), args);
}

static shoal_status use_all(struct kernel_ctx *ctx) {
  struct cuda_device *c = cuda_ctx(ctx);
  for (int i = 0; i < ctx->kernel->n_in; i++) TRY(cuda_use(c, ctx->in[i]));
  for (int i = 0; i < ctx->kernel->n_out; i++) TRY(cuda_use(c, &ctx->out[i]));
  return NULL;
}

static shoal_status forward(struct kernel_ctx *ctx, const struct cuda_attention_size *s, void **args) {
  const struct cuda_attention *st = ctx->state;
  TRY(use_all(ctx));
  return launch(cuda_ctx(ctx), &st->forward, s, s->queries, args);
}

static shoal_status run(struct kernel_ctx *ctx) {
  struct attention_size of;
  struct cuda_attention_size s;
  struct tensor *y, *sums;
  TRY(size_of(ctx, false, &of, &s));
  TRY(attention_make_y(ctx, &of, &y));
  TRY(ctx_out_dims(ctx, 1, 3, (int64_t[]){s.batch, s.heads, s.queries}, &sums));
  void *in[] = {attention_in(ctx, &of, 0), attention_in(ctx, &of, 1), attention_in(ctx, &of, 2)};
  if (!y->n) return NULL;
  cuda_lock(cuda_ctx(ctx));
  shoal_status e = forward(ctx, &s, (void *[]){&s, &in[0], &in[1], &in[2], &y->data, &sums->data});
  cuda_unlock(cuda_ctx(ctx));
  return e;
}

/* ---- back ---- */

struct attention_back {
  struct attention_size of;
  struct cuda_attention_size s;
  void *in[3], *out[3]; /* queries, keys, values */
  const struct tensor *y, *sums, *dy;
  struct tensor deltas;
};

/* Three kernels, one after the other. */
static shoal_status back(struct kernel_ctx *ctx, struct attention_back *b) {
  const struct cuda_attention *st = ctx->state;
  struct cuda_device *c = cuda_ctx(ctx);
  int64_t pieces = b->y->n / 8; /* eight threads to a head */
  void *sums[] = {&b->s, (void *)&b->y->data, (void *)&b->dy->data, &b->deltas.data};
  void *keys[] = {&b->s,           &b->in[0],  &b->in[1], &b->in[2], (void *)&b->dy->data, (void *)&b->sums->data,
                  &b->deltas.data, &b->out[1], &b->out[2]};
  void *queries[] = {&b->s,           &b->in[0], &b->in[1], &b->in[2], (void *)&b->dy->data, (void *)&b->sums->data,
                     &b->deltas.data, &b->out[0]};
  TRY(use_all(ctx));
  TRY(cuda_launch(c, st->products, cuda_blocks(c, pieces), 1, CUDA_BLOCK, sums));
  TRY(launch(c, &st->keys, &b->s, b->s.keys, keys));
  return launch(c, &st->queries, &b->s, b->s.queries, queries);
}

static shoal_status grad_run(struct kernel_ctx *ctx) {
  struct attention_back b = {0};
  TRY(size_of(ctx, true, &b.of, &b.s));
  TRY(attention_make_gradients(ctx, &b.of));
  int first = b.of.packed ? 1 : 3;
  for (int i = 0; i < 3; i++) {
    b.in[i] = attention_in(ctx, &b.of, i);
    b.out[i] = attention_out(ctx, &b.of, i);
  }
  b.y = ctx_in(ctx, first);
  b.sums = ctx_in(ctx, first + 1);
  b.dy = ctx_in(ctx, first + 2);
  if (!b.y->n) return b.s.batch ? UNIMPLEMENTED("attention of no query, on a card") : NULL;
  struct shape room = shape_vector(b.sums->n);
  TRY(cuda_temp(ctx, SHOAL_FLOAT32, &room, &b.deltas));
  cuda_lock(cuda_ctx(ctx));
  shoal_status status = back(ctx, &b);
  cuda_unlock(cuda_ctx(ctx));
  tensor_release(&b.deltas);
  return status;
}

/* Nothing is kept: a step with them is replayed. */
#define KERNEL(id, run_)                                                               \
  static const struct kernel_def id[] = {{.device = "GPU",                             \
                                          .type_attr = "T",                            \
                                          .types = DT(FLOAT16) | DT(BFLOAT16),         \
                                          .fits = fits,                                \
                                          .state_size = sizeof(struct cuda_attention), \
                                          .init = init,                                \
                                          .run = run_},                                \
                                         {0}};
KERNEL(attention, run)
KERNEL(attention_grad, grad_run)

const struct device_kernels cuda_attention_kernels[] = {
    {"_ShoalAttention", attention}, {"_ShoalAttentionGrad", attention_grad}, {0}};
