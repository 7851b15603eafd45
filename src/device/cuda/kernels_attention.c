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

static shoal_status size_of(const struct kernel_ctx *ctx, bool back, struct cuda_attention_size *out) {
  const struct cuda_attention *st = ctx->state;
  struct attention_size s;
  TRY(attention_size(ctx, &st->of, back, &s));
  if (s.queries > INT32_MAX / 2 || s.keys > INT32_MAX / 2 ||
      s.batch * st->of.heads * MAX(blocks(s.queries), blocks(s.keys)) > INT32_MAX)
    return INVALID("too many queries and keys: %s, %s", tensor_shape_str(ctx_in(ctx, 0)),
                   tensor_shape_str(ctx_in(ctx, 1)));
  for (int i = 0; i < ctx->kernel->n_in; i++)
    if ((uintptr_t)ctx_in(ctx, i)->data % ALIGNED) return STATUS(SHOAL_INTERNAL, "input %d does not lie well", i);
  *out = (struct cuda_attention_size){.batch = (int32_t)s.batch,
                                      .heads = (int32_t)st->of.heads,
                                      .queries = (int32_t)s.queries,
                                      .keys = (int32_t)s.keys,
                                      .q_step = s.width,
                                      .k_step = s.width,
                                      .v_step = s.width,
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
  const struct tensor *q = ctx_in(ctx, 0), *k = ctx_in(ctx, 1), *v = ctx_in(ctx, 2);
  struct cuda_attention_size s;
  struct tensor *y, *sums;
  TRY(size_of(ctx, false, &s));
  TRY(ctx_out_dims(ctx, 0, 3, q->dims, &y));
  TRY(ctx_out_dims(ctx, 1, 3, (int64_t[]){s.batch, s.heads, s.queries}, &sums));
  if (!y->n) return NULL;
  return cuda_run(ctx, st->forward, grid(&s, s.queries), 1, THREADS,
                  (void *[]){&s, (void *)&q->data, (void *)&k->data, (void *)&v->data, &y->data, &sums->data});
}

/* ---- back ---- */

static shoal_status back(struct kernel_ctx *ctx, struct cuda_attention_size *s, const struct tensor *deltas) {
  const struct cuda_attention *st = ctx->state;
  const struct tensor *q = ctx_in(ctx, 0), *k = ctx_in(ctx, 1), *v = ctx_in(ctx, 2), *y = ctx_in(ctx, 3),
                      *sums = ctx_in(ctx, 4), *dy = ctx_in(ctx, 5);
  struct tensor *dq = &ctx->out[0], *dk = &ctx->out[1], *dv = &ctx->out[2];
  const struct tensor *uses[] = {q, k, v, y, sums, dy, dq, dk, dv, deltas};
  int n = (int)(sizeof uses / sizeof *uses);
  int64_t pieces = q->n / 8; /* eight threads to a head */
  TRY(cuda_run_on(ctx, st->products, cuda_blocks(cuda_ctx(ctx), pieces), 1, CUDA_BLOCK,
                  (void *[]){s, (void *)&y->data, (void *)&dy->data, (void *)&deltas->data}, n, uses));
  TRY(cuda_run_on(ctx, st->keys, grid(s, s->keys), 1, THREADS,
                  (void *[]){s, (void *)&q->data, (void *)&k->data, (void *)&v->data, (void *)&dy->data,
                             (void *)&sums->data, (void *)&deltas->data, &dk->data, &dv->data},
                  n, uses));
  return cuda_run_on(ctx, st->queries, grid(s, s->queries), 1, THREADS,
                     (void *[]){s, (void *)&q->data, (void *)&k->data, (void *)&v->data, (void *)&dy->data,
                                (void *)&sums->data, (void *)&deltas->data, &dq->data},
                     n, uses);
}

static shoal_status grad_run(struct kernel_ctx *ctx) {
  struct cuda_attention_size s;
  struct tensor *d, deltas;
  TRY(size_of(ctx, true, &s));
  for (int i = 0; i < 3; i++) TRY(ctx_out_dims(ctx, i, 3, ctx_in(ctx, i)->dims, &d));
  if (!ctx_in(ctx, 0)->n) return s.batch ? UNIMPLEMENTED("attention of no query, on a card") : NULL;
  struct shape room = shape_vector(ctx_in(ctx, 4)->n);
  TRY(cuda_temp(ctx, SHOAL_FLOAT32, &room, &deltas));
  shoal_status status = back(ctx, &s, &deltas);
  tensor_release(&deltas);
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
