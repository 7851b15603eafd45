/* Layers of Transformers on a card, which the rewrite "fuse_layers" makes: layers.cu. */
#include <stdio.h>

#include "device/cuda/cuda_kernel.h"
#include "ops/nn/softmax.h"

#define HALVES_AND_FLOAT (DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16))
static shoal_dtype first_type(const struct kernel_init *ki) { return dtype_base(ki->kernel->in_types[0]); }

/* ---- GELU ---- */

static shoal_status gelu_init(struct kernel_init *ki, void *state) { return cuda_fn_init(ki, "layers", state); }

static shoal_status gelu_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  int64_t n = y->n;
  return cuda_run_each(ctx, st->f, n, (void *[]){(void *)&x->data, &y->data, &n});
}

static shoal_status gelu_grad_run(struct kernel_ctx *ctx) {
  const struct cuda_fn *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *dy = ctx_in(ctx, 1);
  struct tensor *dx;
  TRY(nn_check_same(ctx, 0, 1));
  TRY(ctx_out_like(ctx, 0, 1, &dx));
  int64_t n = dx->n;
  return cuda_run_each(ctx, st->f, n, (void *[]){(void *)&x->data, (void *)&dy->data, &dx->data, &n});
}

/* ---- layer normalisation ---- */

enum { WARPS = 8, BACK_WARPS = 4, WARP = 32, PACK_BYTES = 16, PIECES = 512, COLUMN_PIECES = 64, MOST_HELD = 1024 };
static const int holding[] = {1, 2, 3, 4, 6, 8}; /* packs that a lane holds: as layers.cu has them */
enum { HOLDINGS = sizeof holding / sizeof *holding };

struct held_fn {
  CUfunction f;
  unsigned shared; /* bytes of a block */
};
struct cuda_layer_norm {
  float epsilon;
  struct held_fn held[HOLDINGS];
  CUfunction any, columns, finish;
};

static shoal_status find(struct kernel_init *ki, const char *name, int packs, CUfunction *out) {
  char full[64];
  snprintf(full, sizeof full, "%s_%d", name, packs);
  return cuda_function(cuda_of(ki->device), "layers", full, first_type(ki), 0, out);
}

static int elements_held(int i, shoal_dtype type) { return holding[i] * WARP * (int)(PACK_BYTES / dtype_size(type)); }

static shoal_status find_all(struct kernel_init *ki, const char *name, struct cuda_layer_norm *st) {
  for (int i = 0; i < HOLDINGS && elements_held(i, first_type(ki)) <= MOST_HELD; i++)
    TRY(find(ki, name, holding[i], &st->held[i].f));
  return find(ki, name, 0, &st->any);
}

static shoal_status norm_init(struct kernel_init *ki, void *state) {
  struct cuda_layer_norm *st = state;
  TRY(node_get_float(ki->node, "epsilon", &st->epsilon));
  return find_all(ki, "layer_norm", st);
}

static shoal_status norm_grad_init(struct kernel_init *ki, void *state) {
  struct cuda_layer_norm *st = state;
  TRY(find_all(ki, "layer_norm_back", st));
  for (int i = 0; i < HOLDINGS && st->held[i].f; i++) {
    st->held[i].shared =
        (unsigned)(BACK_WARPS * 2 * 3 * holding[i] * WARP * PACK_BYTES); /* two rows of three tensors */
    TRY(cuda_let_share(cuda_of(ki->device), st->held[i].f, st->held[i].shared));
  }
  TRY(cuda_function(cuda_of(ki->device), "layers", "layer_norm_columns", first_type(ki), 0, &st->columns));
  return cuda_function(cuda_of(ki->device), "layers", "layer_norm_finish", 0, 0, &st->finish);
}

struct layer_rows {
  int64_t rows;
  int32_t width;
};

static shoal_status rows_of(const struct kernel_ctx *ctx, struct layer_rows *r) {
  const struct tensor *x = ctx_in(ctx, 0), *scale = ctx_in(ctx, 1);
  if (x->rank < 1 || x->dims[x->rank - 1] < 1 || x->dims[x->rank - 1] > INT32_MAX / 2 || scale->rank != 1 ||
      scale->dims[0] != x->dims[x->rank - 1])
    return INVALID("a row of %s is not one of %s", tensor_shape_str(x), tensor_shape_str(scale));
  r->width = (int32_t)x->dims[x->rank - 1];
  r->rows = x->n / r->width;
  return NULL;
}

/* The function for rows that fit into a warp's registers; NULL: they do not. */
static const struct held_fn *held_by(const struct cuda_layer_norm *st, const struct layer_rows *r, shoal_dtype type,
                                     uintptr_t addresses) {
  if (r->width > MOST_HELD || r->width * dtype_size(type) % PACK_BYTES || addresses % PACK_BYTES) return NULL;
  for (int i = 0; i < HOLDINGS; i++)
    if (elements_held(i, type) >= r->width) return &st->held[i];
  return NULL;
}

static uintptr_t address(const struct tensor *t) { return (uintptr_t)t->data; }

/* A warp to a row, `warps` to a block. */
static unsigned row_blocks(const struct layer_rows *r, int warps, int64_t most) {
  return (unsigned)MAX(1, MIN(most, (r->rows + warps - 1) / warps));
}

static shoal_status norm_run(struct kernel_ctx *ctx) {
  const struct cuda_layer_norm *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *scale = ctx_in(ctx, 1), *offset = ctx_in(ctx, 2);
  struct tensor *y, *mean, *rstd;
  struct layer_rows r;
  float epsilon = st->epsilon;
  TRY(rows_of(ctx, &r));
  if (offset->n != r.width) return INVALID("an offset of %s for rows of %d", tensor_shape_str(offset), (int)r.width);
  TRY(ctx_out_like(ctx, 0, 0, &y));
  TRY(ctx_out_dims(ctx, 1, 1, &r.rows, &mean));
  TRY(ctx_out_dims(ctx, 2, 1, &r.rows, &rstd));
  const struct held_fn *held =
      held_by(st, &r, (shoal_dtype)x->dtype, address(x) | address(y) | address(scale) | address(offset));
  if (!r.rows) return NULL;
  int64_t most = (int64_t)cuda_ctx(ctx)->multiprocessors * 8;
  return cuda_run(ctx, held ? held->f : st->any, row_blocks(&r, WARPS, most), 1, WARPS * WARP,
                  (void *[]){(void *)&x->data, (void *)&scale->data, (void *)&offset->data, &y->data, &mean->data,
                             &rstd->data, &r.rows, &r.width, &epsilon});
}

struct layer_norm_back { /* the gradient's tensors */
  const struct tensor *x, *scale, *mean, *rstd, *dy;
  struct tensor *dx, *dscale, *doffset, parts;
  const struct tensor *more; /* what is added to dx; NULL: nothing */
  void *added;               /* where it is */
  struct layer_rows r;
};

/* Rows are held, and the sums over them taken on the way. */
static shoal_status back_held(struct kernel_ctx *ctx, const struct held_fn *held, struct layer_norm_back *b,
                              int32_t pieces) {
  void *args[] = {(void *)&b->x->data,
                  (void *)&b->scale->data,
                  (void *)&b->mean->data,
                  (void *)&b->rstd->data,
                  (void *)&b->dy->data,
                  &b->added,
                  &b->dx->data,
                  &b->parts.data,
                  &b->r.rows,
                  &b->r.width};
  return cuda_run_sharing(ctx, held->f, (unsigned)pieces, BACK_WARPS * WARP, held->shared, args);
}

static shoal_status back_any(struct kernel_ctx *ctx, struct layer_norm_back *b, int32_t pieces) {
  const struct cuda_layer_norm *st = ctx->state;
  const struct tensor *uses[] = {b->x, b->scale, b->mean, b->rstd, b->dy, b->more ? b->more : b->x, b->dx, &b->parts};
  int64_t piece = (b->r.rows + pieces - 1) / pieces;
  TRY(cuda_run_on(ctx, st->columns, ((unsigned)b->r.width + CUDA_BLOCK - 1) / CUDA_BLOCK, (unsigned)pieces, CUDA_BLOCK,
                  (void *[]){(void *)&b->x->data, (void *)&b->mean->data, (void *)&b->rstd->data, (void *)&b->dy->data,
                             &b->parts.data, &b->r.rows, &b->r.width, &piece},
                  8, uses));
  return cuda_run_on(
      ctx, st->any, row_blocks(&b->r, WARPS, 1 << 16), 1, WARPS * WARP,
      (void *[]){(void *)&b->x->data, (void *)&b->scale->data, (void *)&b->mean->data, (void *)&b->rstd->data,
                 (void *)&b->dy->data, &b->added, &b->dx->data, &b->r.rows, &b->r.width},
      7, uses);
}

static shoal_status back_all(struct kernel_ctx *ctx, struct layer_norm_back *b, const struct held_fn *held,
                             int32_t pieces) {
  const struct cuda_layer_norm *st = ctx->state;
  const struct tensor *uses[] = {&b->parts, b->dscale, b->doffset};
  TRY(held ? back_held(ctx, held, b, pieces) : back_any(ctx, b, pieces));
  return cuda_run_on(ctx, st->finish, (unsigned)(2 * b->r.width + WARP - 1) / WARP, 1, WARPS * WARP,
                     (void *[]){&b->parts.data, &b->dscale->data, &b->doffset->data, &pieces, &b->r.width}, 3, uses);
}

static shoal_status norm_grad_run(struct kernel_ctx *ctx) {
  struct layer_norm_back b = {ctx_in(ctx, 0), ctx_in(ctx, 1), ctx_in(ctx, 2), ctx_in(ctx, 3), ctx_in(ctx, 4)};
  TRY(rows_of(ctx, &b.r));
  TRY(nn_check_same(ctx, 0, 4));
  if (ctx->kernel->n_in > 6) return INVALID("at most one tensor is added");
  if (ctx->kernel->n_in == 6) {
    TRY(nn_check_same(ctx, 0, 5));
    b.more = ctx_in(ctx, 5);
    b.added = b.more->data;
  }
  if (b.mean->n != b.r.rows || b.rstd->n != b.r.rows)
    return INVALID("there are %" PRId64 " rows, but means %s", b.r.rows, tensor_shape_str(b.mean));
  TRY(ctx_out_like(ctx, 0, 4, &b.dx));
  TRY(ctx_out_dims(ctx, 1, 1, (int64_t[]){b.r.width}, &b.dscale));
  TRY(ctx_out_dims(ctx, 2, 1, (int64_t[]){b.r.width}, &b.doffset));
  const struct held_fn *held =
      held_by(ctx->state, &b.r, (shoal_dtype)b.x->dtype,
              address(b.x) | address(b.dy) | address(b.dx) | address(b.scale) | (uintptr_t)b.added);
  int32_t pieces = (int32_t)(held ? row_blocks(&b.r, BACK_WARPS, PIECES) : MAX(1, MIN(COLUMN_PIECES, b.r.rows)));
  struct shape room = shape_vector((int64_t)pieces * 2 * b.r.width);
  TRY(cuda_temp(ctx, SHOAL_FLOAT32, &room, &b.parts));
  shoal_status s = back_all(ctx, &b, held, pieces);
  tensor_release(&b.parts);
  return s;
}

/* ---- cross entropy ---- */

/* Rows that a block holds in shared memory: two blocks fit a multiprocessor, so that one reads while one computes. */
enum { MOST_SHARED = 112 << 10, SHARED_BY_ALL = 46 << 10 };

struct cuda_entropy {
  CUfunction f;
  int64_t most; /* bytes of a row that is held */
};

static shoal_status entropy_init(struct kernel_init *ki, void *state) {
  struct cuda_entropy *st = state;
  TRY(cuda_function(cuda_of(ki->device), "layers", "_ShoalCrossEntropy", first_type(ki),
                    dtype_base(ki->kernel->in_types[1]), &st->f));
  shoal_status s = cuda_let_share(cuda_of(ki->device), st->f, MOST_SHARED);
  st->most = s ? SHARED_BY_ALL : MOST_SHARED; /* smaller cards have less to share */
  shoal_status_free(s);
  return NULL;
}

static unsigned row_threads(int64_t columns) {
  enum { EACH = 16, MOST = 512 };
  return (unsigned)MIN(MOST, MAX(WARP, (columns / EACH + WARP - 1) / WARP * WARP));
}

static shoal_status entropy_run(struct kernel_ctx *ctx) {
  const struct cuda_entropy *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *labels = ctx_in(ctx, 1), *each = ctx_in(ctx, 2);
  struct tensor *loss, *dx;
  TRY(sparse_check_shapes(x, labels));
  if (each->n != x->dims[0]) return INVALID("a loss counts for one number, not %s", tensor_shape_str(each));
  if (x->dims[0] > INT32_MAX || x->dims[1] > INT32_MAX / 2) return INVALID("too many: %s", tensor_shape_str(x));
  TRY(ctx_out_dims(ctx, 0, 1, x->dims, &loss));
  TRY(ctx_out_like(ctx, 1, 0, &dx));
  int32_t columns = (int32_t)x->dims[1];
  int64_t bytes = columns * (int64_t)dtype_size((shoal_dtype)x->dtype);
  int32_t held = bytes <= st->most && bytes % PACK_BYTES == 0 && (address(x) | address(dx)) % PACK_BYTES == 0;
  if (!x->n) return NULL;
  void *args[] = {
      (void *)&x->data, (void *)&labels->data, (void *)&each->data, &loss->data, &dx->data, &columns, &held};
  return cuda_run_sharing(ctx, st->f, (unsigned)x->dims[0], row_threads(columns), held ? (unsigned)bytes : 0, args);
}

/* ---- all of them: none keeps anything, so a step with them is replayed ---- */

#define KERNEL(id, types_, state_, init_, run_)                                \
  static const struct kernel_def id[] = {{.device = "GPU",                     \
                                          .type_attr = "T",                    \
                                          .types = types_,                     \
                                          .state_size = sizeof(struct state_), \
                                          .init = init_,                       \
                                          .run = run_},                        \
                                         {0}};
KERNEL(gelu, CUDA_FLOATING, cuda_fn, gelu_init, gelu_run)
KERNEL(gelu_grad, CUDA_FLOATING, cuda_fn, gelu_init, gelu_grad_run)
KERNEL(norm, HALVES_AND_FLOAT, cuda_layer_norm, norm_init, norm_run)
KERNEL(norm_grad, HALVES_AND_FLOAT, cuda_layer_norm, norm_grad_init, norm_grad_run)
KERNEL(entropy, HALVES_AND_FLOAT, cuda_entropy, entropy_init, entropy_run)

const struct device_kernels cuda_layers_kernels[] = {{"_ShoalGelu", gelu},
                                                     {"_ShoalGeluGrad", gelu_grad},
                                                     {"_ShoalLayerNorm", norm},
                                                     {"_ShoalLayerNormGrad", norm_grad},
                                                     {"_ShoalCrossEntropy", entropy},
                                                     {0}};
