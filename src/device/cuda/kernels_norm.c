/* Batch normalisation on a card, with Relu and a sum behind it where rewrites have put them into one node: norm.cu.
 * Channels first is turned round before and after. */
#include "device/cuda/cuda_kernel.h"
#include "ops/nn/batch_norm.h"

enum { WARP = 32, ENOUGH_BLOCKS = 264, ROWS_A_THREAD = 4, WIDE_BYTES = 16 };
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

/* What is fused is known by the node. Backward, a sum's gradient is gated once, and applied as it is. */
static const char *const apply_names[][WIDTHS] = {{"norm_apply_one", "norm_apply_wide"},
                                                  {"norm_apply_relu_one", "norm_apply_relu_wide"},
                                                  {"norm_apply_side_one", "norm_apply_side_wide"}};
static const char *const back_sums_names[][WIDTHS] = {{"norm_back_sums_one", "norm_back_sums_wide"},
                                                      {"norm_back_sums_relu_one", "norm_back_sums_relu_wide"},
                                                      {"norm_back_sums_side_one", "norm_back_sums_side_wide"},
                                                      {"norm_back_sums_sum_one", "norm_back_sums_sum_wide"}};
static const char *const back_apply_names[][WIDTHS] = {{"norm_back_apply_one", "norm_back_apply_wide"},
                                                       {"norm_back_apply_relu_one", "norm_back_apply_relu_wide"},
                                                       {"norm_back_apply_one", "norm_back_apply_wide"},
                                                       {"norm_back_apply_one", "norm_back_apply_wide"}};

static int fused(const struct norm_state *st) { return !st->relu ? 0 : st->sum ? 3 : st->side_inputs ? 2 : 1; }

/* Fused it is with Relu, and channels last. */
static bool fused_fits(const struct shoal_node *n) {
  struct norm_state st = {0};
  shoal_status s = norm_state_init(&st, n);
  bool good = !s && st.relu && !st.channels_first && st.side_inputs <= 1;
  shoal_status_free(s);
  return good;
}

static shoal_status norm_init(struct kernel_init *ki, void *state) {
  struct cuda_norm *st = state;
  TRY(norm_state_init(&st->of, ki->node));
  TRY(find(ki, (const char *[]){"norm_sums_one", "norm_sums_wide"}, st->sums));
  TRY(find(ki, apply_names[fused(&st->of)], st->apply));
  TRY(cuda_function(cuda_of(ki->device), "norm", "norm_nothing", 0, 0, &st->nothing));
  return cuda_function(cuda_of(ki->device), "norm", "norm_finish", 0, 0, &st->finish);
}

static shoal_status norm_grad_init(struct kernel_init *ki, void *state) {
  struct cuda_norm *st = state;
  TRY(norm_state_init(&st->of, ki->node));
  TRY(find(ki, back_sums_names[fused(&st->of)], st->sums));
  TRY(find(ki, back_apply_names[fused(&st->of)], st->apply));
  return cuda_function(cuda_of(ki->device), "norm", "norm_back_finish", 0, 0, &st->finish);
}

/* ---- how the matrix is cut ---- */

struct cuda_norm_rows { /* as norm.cu has it */
  int64_t rows, channels;
  int32_t columns, pieces, down, longer, last, missing;
  int64_t each;
};
struct cuda_norm_cut {
  struct cuda_norm_rows r;
  enum cuda_width width;
  unsigned across; /* blocks side by side */
};

/* Groups of rows next to each other, as many as a block has, go to the pieces in turn. */
static void share_out(struct cuda_norm_rows *r, int64_t height) {
  int64_t groups = (r->rows + height - 1) / height;
  r->each = groups / r->pieces * height;
  r->longer = (int32_t)(groups % r->pieces);
  r->last = (int32_t)((groups + r->pieces - 1) % r->pieces);
  r->missing = (int32_t)(groups * height - r->rows);
}

/* As many blocks as a card of some 130 multiprocessors has at once: more would have more to join. Nothing here asks for
 * the card's size: where sums are cut decides their last bits. */
static struct cuda_norm_cut cut(const struct norm_matrix *m, shoal_dtype type, uintptr_t addresses) {
  int64_t each = WIDE_BYTES / (int64_t)dtype_size(type);
  struct cuda_norm_cut c = {.r = {.rows = m->rows, .channels = m->channels, .columns = 1, .down = 1}};
  c.width = m->channels % each == 0 && addresses % WIDE_BYTES == 0 ? WIDE : ONE;
  int64_t threads = c.width == WIDE ? m->channels / each : m->channels;
  while (c.r.columns < WARP && c.r.columns < threads) c.r.columns *= 2;
  c.across = (unsigned)((threads + c.r.columns - 1) / c.r.columns);
  int64_t height = CUDA_BLOCK / c.r.columns, most = MAX(ENOUGH_BLOCKS / MAX(c.across, 1), 1);
  c.r.pieces = (int32_t)MAX(1, MIN(most, m->rows / (height * ROWS_A_THREAD)));
  share_out(&c.r, height);
  return c;
}

/* The same the other way. */
static struct cuda_norm_cut turn_back(const struct cuda_norm_cut *of) {
  struct cuda_norm_cut c = *of;
  c.r.down = 0;
  return c;
}

static shoal_status launch(struct kernel_ctx *ctx, const CUfunction f[WIDTHS], const struct cuda_norm_cut *c,
                           void **args) {
  return cuda_run(ctx, f[c->width], c->across, (unsigned)c->r.pieces, CUDA_BLOCK, args);
}

/* A warp to a channel, few of them in a block: what they read lies far apart, and blocks share it out to the card. */
static shoal_status finish(struct kernel_ctx *ctx, CUfunction f, const struct cuda_norm_cut *c, void **args) {
  enum { CHANNELS = 2 };
  return cuda_run(ctx, f, (unsigned)((c->r.channels + CHANNELS - 1) / CHANNELS), 1, CHANNELS * WARP, args);
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
  if (st->of.training) TRY(launch(ctx, st->sums, c, (void *[]){(void *)&x->data, &parts->data, &c->r}));
  TRY(finish(ctx, st->finish, c, (void *[]){&e, &c->r}));
  struct cuda_norm_cut back = turn_back(c);
  void *side = st->of.side_inputs ? ctx_in(ctx, 5)->data : NULL;
  return launch(
      ctx, st->apply, &back,
      (void *[]){(void *)&x->data, &side, (void *)&y->data, &e.saved_mean, &factor->data, &e.offset, &back.r});
}

static shoal_status run_last(struct kernel_ctx *ctx, const struct norm_matrix *m, const struct tensor *x,
                             const struct tensor *y) {
  const struct cuda_norm *st = ctx->state;
  uintptr_t side = st->of.side_inputs ? (uintptr_t)ctx_in(ctx, 5)->data : 0;
  struct cuda_norm_cut c = cut(m, (shoal_dtype)x->dtype, (uintptr_t)x->data | (uintptr_t)y->data | side);
  struct tensor parts = {0}, factor = {0};
  shoal_status s = floats(ctx, (int64_t)c.r.pieces * 2 * m->channels, &parts);
  if (!s) s = floats(ctx, m->channels, &factor);
  if (!s) s = run_parts(ctx, &c, x, y, &parts, &factor);
  tensor_release(&parts);
  tensor_release(&factor);
  return s;
}

static shoal_status run_nothing(struct kernel_ctx *ctx, const struct norm_matrix *m) {
  const struct cuda_norm *st = ctx->state;
  struct cuda_norm_ends e = ends(ctx, st);
  struct cuda_norm_rows r = {.rows = m->rows, .channels = m->channels, .columns = 1, .pieces = 1};
  return cuda_run_each(ctx, st->nothing, m->channels, (void *[]){&e, &r});
}

static shoal_status check_side(const struct kernel_ctx *ctx, const struct norm_state *st) {
  if (!st->side_inputs || tensor_same_shape(ctx_in(ctx, 0), ctx_in(ctx, 5))) return NULL;
  return INVALID("side_input shape must be equal to input shape: %s != %s", tensor_shape_str(ctx_in(ctx, 5)),
                 tensor_shape_str(ctx_in(ctx, 0)));
}

static shoal_status norm_run(struct kernel_ctx *ctx) {
  const struct cuda_norm *st = ctx->state;
  struct norm_matrix m;
  struct tensor *out, x = {0}, y = {0};
  TRY(norm_check(ctx, &st->of, &m));
  TRY(check_side(ctx, &st->of));
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
  void *dscale, *doffset, *factor, *nothing[2];
  float epsilon;
  int32_t training;
};

struct cuda_norm_back { /* as norm.cu has it */
  const void *x, *dy, *more, *y;
  void *gated;
  const void *mean, *scale, *variance, *offset;
  float epsilon;
};

static struct cuda_norm_back back_of(struct kernel_ctx *ctx, const struct tensor *x, const struct tensor *dy) {
  const struct cuda_norm *st = ctx->state;
  struct cuda_norm_back b = {.x = x->data,
                             .dy = dy->data,
                             .mean = ctx_in(ctx, 3)->data,
                             .scale = ctx_in(ctx, 2)->data,
                             .variance = ctx_in(ctx, 4)->data,
                             .epsilon = st->of.epsilon};
  if (!st->of.relu) return b;
  b.offset = ctx_in(ctx, 6)->data;
  b.y = ctx_in(ctx, 7)->data;
  if (st->of.side_inputs) b.gated = ctx->out[5].data;
  if (st->of.sum) b.more = ctx_in(ctx, 8)->data;
  return b;
}

static struct cuda_norm_back_ends back_ends(struct kernel_ctx *ctx, const struct cuda_norm *st) {
  return (struct cuda_norm_back_ends){.scale = ctx_in(ctx, 2)->data,
                                      .variance = ctx_in(ctx, 4)->data,
                                      .dscale = ctx->out[1].data,
                                      .doffset = ctx->out[2].data,
                                      .nothing = {ctx->out[3].data, ctx->out[4].data},
                                      .epsilon = st->of.epsilon,
                                      .training = st->of.training};
}

static shoal_status run_back_parts(struct kernel_ctx *ctx, struct cuda_norm_cut *c, struct cuda_norm_back *b,
                                   const struct tensor *dx, struct tensor *parts, struct tensor *factor) {
  const struct cuda_norm *st = ctx->state;
  struct cuda_norm_back_ends e = back_ends(ctx, st);
  e.parts = parts->data;
  e.factor = factor->data;
  TRY(launch(ctx, st->sums, c, (void *[]){b, &parts->data, &c->r}));
  TRY(finish(ctx, st->finish, c, (void *[]){&e, &c->r}));
  struct cuda_norm_cut back = turn_back(c);
  if (b->gated) b->dy = b->gated;
  return launch(ctx, st->apply, &back, (void *[]){b, (void *)&dx->data, &factor->data, &back.r});
}

static shoal_status run_back_last(struct kernel_ctx *ctx, const struct norm_matrix *m, const struct tensor *x,
                                  const struct tensor *dy, const struct tensor *dx) {
  struct cuda_norm_back b = back_of(ctx, x, dy);
  uintptr_t addresses = (uintptr_t)x->data | (uintptr_t)dy->data | (uintptr_t)dx->data | (uintptr_t)b.y |
                        (uintptr_t)b.gated | (uintptr_t)b.more;
  struct cuda_norm_cut c = cut(m, (shoal_dtype)x->dtype, addresses);
  struct tensor parts = {0}, factor = {0};
  shoal_status s = floats(ctx, (int64_t)c.r.pieces * 2 * m->channels, &parts);
  if (!s) s = floats(ctx, 3 * m->channels, &factor);
  if (!s) s = run_back_parts(ctx, &c, &b, dx, &parts, &factor);
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
  if (ctx->kernel->n_out > 5) TRY(ctx_out(ctx, 5, &shape, &out));
  for (int i = 1; i < 5 && !ctx->out[0].n; i++) d->type->ops->zero(d, &ctx->out[i]);
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
KERNEL(with_relu, norm_init, norm_run, .types = NORM_TYPES, .type_attr2 = "U", .types2 = DT(FLOAT32),
       .fits = fused_fits)
KERNEL(relu_grad, norm_grad_init, norm_grad_run, .types = NORM_TYPES, .type_attr2 = "U", .types2 = DT(FLOAT32),
       .fits = fused_fits)

const struct device_kernels cuda_norm_kernels[] = {{"FusedBatchNorm", v1},
                                                   {"FusedBatchNormV2", norm},
                                                   {"FusedBatchNormV3", norm},
                                                   {"FusedBatchNormGrad", v1_grad},
                                                   {"FusedBatchNormGradV2", norm_grad},
                                                   {"FusedBatchNormGradV3", norm_grad},
                                                   {"_FusedBatchNormEx", with_relu},
                                                   {"_BatchNormReluGrad", relu_grad},
                                                   {"_BatchNormReluGradOfSum", relu_grad},
                                                   {0}};
