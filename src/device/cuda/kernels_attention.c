/* Attention on a card, which the rewrite "fuse_layers" makes: attention.cu. Heads of 64 in half precision; others stay
 * the single ops they were built of. */
#include "device/cuda/cuda_kernel.h"
#include "ops/nn/attention.h"

enum { ROWS = 64, DEPTH = 64, THREADS = 128, ALIGNED = 16 };

struct cuda_attention {
  struct attention_state of;
  CUfunction forward, products, keys, queries;
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

static shoal_status init(struct kernel_init *ki, void *state) {
  struct cuda_attention *st = state;
  TRY(attention_state_init(&st->of, ki->node));
  TRY(find(ki, "attention", &st->forward));
  TRY(find(ki, "attention_products", &st->products));
  TRY(find(ki, "attention_back_keys", &st->keys));
  return find(ki, "attention_back_queries", &st->queries);
}

static int64_t blocks(int64_t rows) { return (rows + ROWS - 1) / ROWS; }

static shoal_status size_of(const struct kernel_ctx *ctx, bool back, struct attention_size *of,
                            struct cuda_attention_size *out) {
  const struct cuda_attention *st = ctx->state;
  TRY(attention_size(ctx, &st->of, back, of));
  struct attention_size s = *of;
  if (s.queries > INT32_MAX / 2 || s.keys > INT32_MAX / 2 ||
      s.batch * st->of.heads * MAX(blocks(s.queries), blocks(s.keys)) > INT32_MAX)
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

static unsigned grid(const struct cuda_attention_size *s, int64_t rows) {
  return (unsigned)(s->batch * s->heads * blocks(rows));
}

static shoal_status run(struct kernel_ctx *ctx) {
  const struct cuda_attention *st = ctx->state;
  struct attention_size of;
  struct cuda_attention_size s;
  struct tensor *y, *sums;
  TRY(size_of(ctx, false, &of, &s));
  TRY(attention_make_y(ctx, &of, &y));
  TRY(ctx_out_dims(ctx, 1, 3, (int64_t[]){s.batch, s.heads, s.queries}, &sums));
  void *in[] = {attention_in(ctx, &of, 0), attention_in(ctx, &of, 1), attention_in(ctx, &of, 2)};
  if (!y->n) return NULL;
  return cuda_run(ctx, st->forward, grid(&s, s.queries), 1, THREADS,
                  (void *[]){&s, &in[0], &in[1], &in[2], &y->data, &sums->data});
}

/* ---- back ---- */

struct attention_back {
  struct attention_size of;
  struct cuda_attention_size s;
  void *in[3], *out[3]; /* queries, keys, values */
  const struct tensor *y, *sums, *dy;
  struct tensor deltas;
};

/* Three kernels, one after the other: cuda_run has seen to what all of them use. */
static shoal_status back(struct kernel_ctx *ctx, struct attention_back *b) {
  const struct cuda_attention *st = ctx->state;
  const struct tensor *deltas[] = {&b->deltas};
  int64_t pieces = b->y->n / 8; /* eight threads to a head */
  TRY(cuda_run(ctx, st->products, cuda_blocks(cuda_ctx(ctx), pieces), 1, CUDA_BLOCK,
               (void *[]){&b->s, (void *)&b->y->data, (void *)&b->dy->data, &b->deltas.data}));
  TRY(cuda_run_on(ctx, st->keys, grid(&b->s, b->s.keys), 1, THREADS,
                  (void *[]){&b->s, &b->in[0], &b->in[1], &b->in[2], (void *)&b->dy->data, (void *)&b->sums->data,
                             &b->deltas.data, &b->out[1], &b->out[2]},
                  1, deltas));
  return cuda_run_on(ctx, st->queries, grid(&b->s, b->s.queries), 1, THREADS,
                     (void *[]){&b->s, &b->in[0], &b->in[1], &b->in[2], (void *)&b->dy->data, (void *)&b->sums->data,
                                &b->deltas.data, &b->out[0]},
                     1, deltas);
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
  shoal_status status = back(ctx, &b);
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
