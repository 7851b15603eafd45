/* Batch normalisation on a card: norm.cu. Channels first is turned round before and after. */
#include "device/cuda/cuda_kernel.h"
#include "ops/nn/batch_norm.h"

enum { WARP = 32, MOST_PIECES = 256, ENOUGH_BLOCKS = 1024, ROWS_A_THREAD = 16, WIDE_BYTES = 16 };
enum cuda_width { ONE, WIDE, WIDTHS }; /* channels that a thread serves: one, or 16 bytes of them */

struct cuda_norm {
  struct norm_state of;
  CUfunction sums[WIDTHS], apply[WIDTHS], finish, nothing;
};

static shoal_status find(struct kernel_init *ki, const char *const names[WIDTHS], CUfunction out[WIDTHS]) {
  for (int w = 0; w < WIDTHS; w++)
    TRY(cuda_function(cuda_of(ki->device), "norm", names[w], dtype_base(ki->kernel->in_types[0]), 0, &out[w]));
  return NULL;
}

static shoal_status norm_init(struct kernel_init *ki, void *state) {
  struct cuda_norm *st = state;
  TRY(norm_state_init(&st->of, ki->node));
  TRY(find(ki, (const char *[]){"norm_sums_one", "norm_sums_wide"}, st->sums));
  TRY(find(ki, (const char *[]){"norm_apply_one", "norm_apply_wide"}, st->apply));
  TRY(cuda_function(cuda_of(ki->device), "norm", "norm_nothing", 0, 0, &st->nothing));
  return cuda_function(cuda_of(ki->device), "norm", "norm_finish", 0, 0, &st->finish);
}

static shoal_status norm_grad_init(struct kernel_init *ki, void *state) {
  struct cuda_norm *st = state;
  TRY(norm_state_init(&st->of, ki->node));
  TRY(find(ki, (const char *[]){"norm_back_sums_one", "norm_back_sums_wide"}, st->sums));
  TRY(find(ki, (const char *[]){"norm_back_apply_one", "norm_back_apply_wide"}, st->apply));
  return cuda_function(cuda_of(ki->device), "norm", "norm_back_finish", 0, 0, &st->finish);
}

/* ---- how the matrix is cut ---- */

struct cuda_norm_rows { /* as norm.cu has it */
  int64_t rows, channels, piece;
  int32_t columns;
};
struct cuda_norm_cut {
  struct cuda_norm_rows r;
  enum cuda_width width;
  int64_t pieces, across; /* blocks side by side */
  int64_t each;           /* channels of a thread */
};

static struct cuda_norm_cut cut(const struct norm_matrix *m, shoal_dtype type, uintptr_t addresses) {
  struct cuda_norm_cut c = {.r = {m->rows, m->channels, 0, 1}, .each = WIDE_BYTES / (int64_t)dtype_size(type)};
  c.width = m->channels % c.each == 0 && addresses % WIDE_BYTES == 0 ? WIDE : ONE;
  if (c.width == ONE) c.each = 1;
  int64_t threads = m->channels / c.each;
  while (c.r.columns < WARP && c.r.columns < threads) c.r.columns *= 2;
  c.across = (threads + c.r.columns - 1) / c.r.columns;
  int64_t height = CUDA_BLOCK / c.r.columns, most = MIN(ENOUGH_BLOCKS / MAX(c.across, 1), MOST_PIECES);
  c.pieces = MAX(1, MIN(most, m->rows / (height * ROWS_A_THREAD)));
  c.r.piece = (m->rows + c.pieces - 1) / c.pieces;
  return c;
}

/* The same with as many pieces as fill the card: nothing is joined here. */
static struct cuda_norm_cut cut_finely(const struct cuda_norm_cut *of) {
  enum { ROWS_EACH = 8, MOST = 2048 };
  struct cuda_norm_cut c = *of;
  int64_t height = CUDA_BLOCK / c.r.columns;
  c.pieces = MAX(1, MIN(MOST / MAX(c.across, 1), c.r.rows / (height * ROWS_EACH)));
  c.r.piece = (c.r.rows + c.pieces - 1) / c.pieces;
  return c;
}

static unsigned warps(const struct cuda_norm_cut *c) {
  return (unsigned)((c->r.channels + CUDA_BLOCK / WARP - 1) / (CUDA_BLOCK / WARP));
}

static shoal_status floats(struct kernel_ctx *ctx, int64_t n, struct tensor *out) {
  struct shape shape = shape_vector(n);
  return cuda_temp(ctx, SHOAL_FLOAT32, &shape, out);
}

/* ---- order of channels ---- */

static struct cuda_matrices turned(const struct tensor *t) {
  return (struct cuda_matrices){t->dims[0], t->dims[1], t->n / t->dims[0] / t->dims[1]};
}

/* *to is t channels last: itself, or a copy; of what is to be written, room for it. */
static shoal_status channels_last(struct kernel_ctx *ctx, const struct tensor *t, struct tensor *to) {
  const struct cuda_norm *st = ctx->state;
  struct shape shape = shape_vector(t->n);
  if (!st->of.channels_first) {
    tensor_ref(to, t);
    return NULL;
  }
  TRY(cuda_temp(ctx, (shoal_dtype)t->dtype, &shape, to));
  return t == &ctx->out[0] ? NULL : cuda_turn(ctx, t, to, turned(t));
}

static shoal_status channels_back(struct kernel_ctx *ctx, const struct tensor *from) {
  const struct cuda_norm *st = ctx->state;
  struct cuda_matrices m = {0};
  if (!st->of.channels_first) return NULL;
  m = turned(&ctx->out[0]);
  return cuda_turn(ctx, from, &ctx->out[0], (struct cuda_matrices){m.batch, m.cols, m.rows});
}

/* ---- forward ---- */

struct cuda_norm_ends { /* as norm.cu has it */
  const void *parts, *scale, *offset, *old_mean, *old_variance, *mean, *variance;
  void *new_mean, *new_variance, *saved_mean, *saved_variance, *factor;
  int64_t pieces;
  float epsilon, blend;
  int32_t training;
};

static struct cuda_norm_ends ends(struct kernel_ctx *ctx, const struct cuda_norm *st) {
  return (struct cuda_norm_ends){.scale = ctx_in(ctx, 1)->data,
                                 .offset = ctx_in(ctx, 2)->data,
                                 .old_mean = ctx_in(ctx, 3)->data,
                                 .old_variance = ctx_in(ctx, 4)->data,
                                 .new_mean = ctx->out[1].data,
                                 .new_variance = ctx->out[2].data,
                                 .saved_mean = ctx->out[3].data,
                                 .saved_variance = ctx->out[4].data,
                                 .epsilon = st->of.epsilon,
                                 .blend = st->of.factor,
                                 .training = st->of.training};
}

static shoal_status run_parts(struct kernel_ctx *ctx, struct cuda_norm_cut *c, const struct tensor *x,
                              const struct tensor *y, struct tensor *parts, struct tensor *factor) {
  const struct cuda_norm *st = ctx->state;
  struct cuda_norm_ends e = ends(ctx, st);
  e.parts = parts->data;
  e.factor = factor->data;
  e.pieces = c->pieces;
  if (st->of.training)
    TRY(cuda_run(ctx, st->sums[c->width], (unsigned)c->across, (unsigned)c->pieces, CUDA_BLOCK,
                 (void *[]){(void *)&x->data, &parts->data, &c->r}));
  TRY(cuda_run(ctx, st->finish, warps(c), 1, CUDA_BLOCK, (void *[]){&e, &c->r}));
  struct cuda_norm_cut fine = cut_finely(c);
  return cuda_run(ctx, st->apply[c->width], (unsigned)fine.across, (unsigned)fine.pieces, CUDA_BLOCK,
                  (void *[]){(void *)&x->data, (void *)&y->data, &e.saved_mean, &factor->data, &e.offset, &fine.r});
}

static shoal_status run_last(struct kernel_ctx *ctx, const struct norm_matrix *m, const struct tensor *x,
                             const struct tensor *y) {
  struct cuda_norm_cut c = cut(m, (shoal_dtype)x->dtype, (uintptr_t)x->data | (uintptr_t)y->data);
  struct tensor parts = {0}, factor = {0};
  shoal_status s = floats(ctx, c.pieces * 2 * m->channels, &parts);
  if (!s) s = floats(ctx, m->channels, &factor);
  if (!s) s = run_parts(ctx, &c, x, y, &parts, &factor);
  tensor_release(&parts);
  tensor_release(&factor);
  return s;
}

static shoal_status run_nothing(struct kernel_ctx *ctx, const struct norm_matrix *m) {
  const struct cuda_norm *st = ctx->state;
  struct cuda_norm_ends e = ends(ctx, st);
  struct cuda_norm_rows r = {m->rows, m->channels, 0, 1};
  return cuda_run_each(ctx, st->nothing, m->channels, (void *[]){&e, &r});
}

static shoal_status norm_run(struct kernel_ctx *ctx) {
  const struct cuda_norm *st = ctx->state;
  struct norm_matrix m;
  struct tensor *out, x = {0}, y = {0};
  TRY(norm_check(ctx, &st->of, &m));
  struct shape shape = tensor_shape(ctx_in(ctx, 0));
  TRY(ctx_out(ctx, 0, &shape, &out));
  for (int i = 1; i < ctx->kernel->n_out; i++) TRY(ctx_out_dims(ctx, i, 1, &(int64_t){i < 5 ? m.channels : 0}, &out));
  if (!ctx_in(ctx, 0)->n) return run_nothing(ctx, &m);
  shoal_status s = channels_last(ctx, ctx_in(ctx, 0), &x);
  if (!s) s = channels_last(ctx, &ctx->out[0], &y);
  if (!s) s = run_last(ctx, &m, &x, &y);
  if (!s) s = channels_back(ctx, &y);
  tensor_release(&x);
  tensor_release(&y);
  return s;
}

/* ---- backward ---- */

struct cuda_norm_back_ends { /* as norm.cu has it */
  const void *parts, *scale, *variance;
  void *dscale, *doffset, *factor;
  int64_t pieces;
  float epsilon;
  int32_t training;
};

static shoal_status run_back_parts(struct kernel_ctx *ctx, struct cuda_norm_cut *c, const struct tensor *x,
                                   const struct tensor *dy, const struct tensor *dx, struct tensor *parts,
                                   struct tensor *factor) {
  const struct cuda_norm *st = ctx->state;
  void *mean = ctx_in(ctx, 3)->data;
  struct cuda_norm_back_ends e = {.parts = parts->data,
                                  .scale = ctx_in(ctx, 2)->data,
                                  .variance = ctx_in(ctx, 4)->data,
                                  .dscale = ctx->out[1].data,
                                  .doffset = ctx->out[2].data,
                                  .factor = factor->data,
                                  .pieces = c->pieces,
                                  .epsilon = st->of.epsilon,
                                  .training = st->of.training};
  TRY(cuda_run(ctx, st->sums[c->width], (unsigned)c->across, (unsigned)c->pieces, CUDA_BLOCK,
               (void *[]){(void *)&x->data, (void *)&dy->data, &mean, &parts->data, &c->r}));
  TRY(cuda_run(ctx, st->finish, warps(c), 1, CUDA_BLOCK, (void *[]){&e, &c->r}));
  struct cuda_norm_cut fine = cut_finely(c);
  return cuda_run(ctx, st->apply[c->width], (unsigned)fine.across, (unsigned)fine.pieces, CUDA_BLOCK,
                  (void *[]){(void *)&x->data, (void *)&dy->data, (void *)&dx->data, &mean, &factor->data, &fine.r});
}

static shoal_status run_back_last(struct kernel_ctx *ctx, const struct norm_matrix *m, const struct tensor *x,
                                  const struct tensor *dy, const struct tensor *dx) {
  uintptr_t addresses = (uintptr_t)x->data | (uintptr_t)dy->data | (uintptr_t)dx->data;
  struct cuda_norm_cut c = cut(m, (shoal_dtype)x->dtype, addresses);
  struct tensor parts = {0}, factor = {0};
  shoal_status s = floats(ctx, c.pieces * 2 * m->channels, &parts);
  if (!s) s = floats(ctx, 3 * m->channels, &factor);
  if (!s) s = run_back_parts(ctx, &c, x, dy, dx, &parts, &factor);
  tensor_release(&parts);
  tensor_release(&factor);
  return s;
}

/* The last two outputs stand for nothing. */
static shoal_status back_outputs(struct kernel_ctx *ctx, int64_t channels) {
  struct device *d = ctx->kernel->device;
  struct shape shape = tensor_shape(ctx_in(ctx, 1)), scalar = shape_scalar();
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &shape, &out));
  for (int i = 1; i < 3; i++) TRY(ctx_out_dims(ctx, i, 1, &channels, &out));
  for (int i = 3; i < 5; i++) TRY(ctx_out(ctx, i, &scalar, &out));
  for (int i = ctx->out[0].n ? 3 : 1; i < 5; i++) d->type->ops->zero(d, &ctx->out[i]);
  return NULL;
}

static shoal_status norm_grad_run(struct kernel_ctx *ctx) {
  const struct cuda_norm *st = ctx->state;
  struct norm_matrix m;
  struct tensor x = {0}, dy = {0}, dx = {0};
  TRY(norm_check_back(ctx, &st->of, &m));
  TRY(back_outputs(ctx, m.channels));
  if (!ctx->out[0].n) return NULL;
  shoal_status s = channels_last(ctx, ctx_in(ctx, 1), &x);
  if (!s) s = channels_last(ctx, ctx_in(ctx, 0), &dy);
  if (!s) s = channels_last(ctx, &ctx->out[0], &dx);
  if (!s) s = run_back_last(ctx, &m, &x, &dy, &dx);
  if (!s) s = channels_back(ctx, &dx);
  tensor_release(&x);
  tensor_release(&dy);
  tensor_release(&dx);
  return s;
}

#define NORM_TYPES (DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16))
#define KERNEL(id, init_, run_, ...)                                              \
  static const struct kernel_def id[] = {{.device = "GPU",                        \
                                          .type_attr = "T",                       \
                                          .state_size = sizeof(struct cuda_norm), \
                                          .init = init_,                          \
                                          .run = run_,                            \
                                          __VA_ARGS__},                           \
                                         {0}};
KERNEL(v1, norm_init, norm_run, .types = DT(FLOAT32))
KERNEL(v1_grad, norm_grad_init, norm_grad_run, .types = DT(FLOAT32))
KERNEL(norm, norm_init, norm_run, .types = NORM_TYPES, .type_attr2 = "U", .types2 = DT(FLOAT32))
KERNEL(norm_grad, norm_grad_init, norm_grad_run, .types = NORM_TYPES, .type_attr2 = "U", .types2 = DT(FLOAT32))

const struct device_kernels cuda_norm_kernels[] = {{"FusedBatchNorm", v1},
                                                   {"FusedBatchNormV2", norm},
                                                   {"FusedBatchNormV3", norm},
                                                   {"FusedBatchNormGrad", v1_grad},
                                                   {"FusedBatchNormGradV2", norm_grad},
                                                   {"FusedBatchNormGradV3", norm_grad},
                                                   {0}};
