/* Reductions on a card: reduce.cu.
 *
 * As on the CPU neighbouring axes are taken as one, the innermost group of reduced ones first; each pass sees a block
 * [outer, length, inner]. A long pass with few results is cut into pieces, whose results are reduced in turn: how many
 * is decided by the shape alone, so the same bits come out every time. */
#include <stdio.h>

#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"
#include "ops/math/reduce.h"

enum { SHORT_ROW = 1024, WARP = 32, TILE = 32, MOST_PIECES = 256, ENOUGH_BLOCKS = 512, MOST_GRID_Y = 65535 };

static const char *const names[] = {"sum", "prod", "max", "min"};

static shoal_dtype wide(shoal_dtype t) { return t == SHOAL_FLOAT64 ? SHOAL_FLOAT64 : SHOAL_FLOAT32; }

/* A pass: from memory of one type into memory of another. */
struct cuda_pass {
  struct kernel_ctx *ctx;
  enum cuda_reduction r;
  shoal_dtype from, to;
  struct cuda_block b;
  int64_t pieces;
  double scale;
};

static shoal_status find(const struct cuda_pass *p, const char *how, CUfunction *out) {
  char name[32];
  snprintf(name, sizeof name, "%s_%s", names[p->r], how);
  return cuda_function(cuda_ctx(p->ctx), "reduce", name, p->from, p->to, out);
}

static shoal_status run_pass(const struct cuda_pass *p, void *in, void *out) {
  CUfunction f;
  int64_t outer = p->b.outer, length = p->b.length, inner = p->b.inner, pieces = p->pieces;
  int64_t piece = (length + pieces - 1) / pieces;
  double scale = p->scale;
  if (inner == 1 && pieces == 1 && length <= SHORT_ROW) {
    TRY(find(p, "short", &f));
    return cuda_run(p->ctx, f, (unsigned)((outer + CUDA_BLOCK / WARP - 1) / (CUDA_BLOCK / WARP)), 1, CUDA_BLOCK,
                    (void *[]){&in, &out, &outer, &length, &scale});
  }
  if (inner == 1) {
    TRY(find(p, "long", &f));
    return cuda_run(p->ctx, f, (unsigned)outer, (unsigned)pieces, CUDA_BLOCK,
                    (void *[]){&in, &out, &length, &piece, &scale});
  }
  if (outer * pieces > MOST_GRID_Y) return UNIMPLEMENTED("a reduction of %lld blocks on a card", (long long)outer);
  TRY(find(p, "columns", &f));
  return cuda_run(p->ctx, f, (unsigned)((inner + TILE - 1) / TILE), (unsigned)(outer * pieces), CUDA_BLOCK,
                  (void *[]){&in, &out, &length, &inner, &piece, &pieces, &scale});
}

/* So many that the card is busy, of at least a thousand elements each. */
static int64_t pieces_of(struct cuda_block b) {
  int64_t blocks = b.inner == 1 ? b.outer : b.outer * ((b.inner + TILE - 1) / TILE);
  int64_t rows = b.inner == 1 ? 4096 : 128;
  return MAX(1, MIN(MIN(ENOUGH_BLOCKS / MAX(blocks, 1), b.length / rows), MOST_PIECES));
}

shoal_status cuda_reduce(struct kernel_ctx *ctx, enum cuda_reduction r, const struct tensor *in, shoal_dtype type,
                         struct cuda_block b, double scale, const struct tensor *out) {
  shoal_dtype acc = wide(type);
  struct cuda_pass p = {ctx, r, (shoal_dtype)in->dtype, type, b, pieces_of(b), scale};
  if (!b.outer || !b.inner) return NULL;
  if (p.pieces == 1) return run_pass(&p, in->data, out->data);
  struct tensor parts;
  struct shape shape = shape_vector(b.outer * p.pieces * b.inner);
  TRY(ctx_temp(ctx, acc, &shape, &parts));
  p.to = acc;
  p.scale = 1;
  shoal_status s = run_pass(&p, in->data, parts.data);
  p = (struct cuda_pass){ctx, r, acc, type, {b.outer, p.pieces, b.inner}, 1, scale};
  if (!s) s = run_pass(&p, parts.data, out->data);
  tensor_release(&parts);
  return s;
}

/* ---- over axes ---- */

struct cuda_axes {
  enum cuda_reduction r;
  bool mean, keep;
};

static shoal_status axes_init(struct kernel_init *ki, void *state) {
  struct cuda_axes *st = state;
  const struct op *op = ki->node->op;
  st->mean = op_is(op, "Mean");
  st->r = op_is(op, "Prod") ? CUDA_PROD : op_is(op, "Max") ? CUDA_MAX : op_is(op, "Min") ? CUDA_MIN : CUDA_SUM;
  return node_get_bool(ki->node, "keep_dims", &st->keep);
}

/* Groups of neighbours that are all reduced, or all kept, from the outside in. */
struct cuda_groups {
  int n;
  int64_t dims[SHOAL_MAX_RANK];
  bool reduced[SHOAL_MAX_RANK];
};

static void group(const struct tensor *x, const bool *reduced, struct cuda_groups *g) {
  g->n = 0;
  for (int i = 0; i < x->rank; i++) {
    if (x->dims[i] == 1) continue;
    if (g->n && g->reduced[g->n - 1] == reduced[i]) {
      g->dims[g->n - 1] *= x->dims[i];
    } else {
      g->dims[g->n] = x->dims[i];
      g->reduced[g->n++] = reduced[i];
    }
  }
}

static struct shape shape_reduced(const struct tensor *x, const bool *reduced, bool keep) {
  struct shape s = {0};
  for (int i = 0; i < x->rank; i++)
    if (!reduced[i]) s.dims[s.rank++] = x->dims[i];
    else if (keep) s.dims[s.rank++] = 1;
  return s;
}

/* The groups that are left to reduce, innermost first; what is between goes to scratch memory. */
static shoal_status reduce_groups(struct kernel_ctx *ctx, enum cuda_reduction r, struct cuda_groups *g, double scale,
                                  const struct tensor *x, const struct tensor *out) {
  struct tensor from, next;
  tensor_ref(&from, x);
  shoal_status s = NULL;
  int left = 0;
  for (int i = 0; i < g->n; i++) left += g->reduced[i];
  for (int i = g->n - 1; i >= 0 && !s; i--) {
    if (!g->reduced[i]) continue;
    struct cuda_block b = {dims_product(g->dims, 0, i), g->dims[i], dims_product(g->dims, i + 1, g->n)};
    g->dims[i] = 1;
    bool last = --left == 0;
    struct shape shape = shape_vector(b.outer * b.inner);
    shoal_dtype acc = wide((shoal_dtype)x->dtype);
    if (last) {
      s = cuda_reduce(ctx, r, &from, (shoal_dtype)out->dtype, b, scale, out);
    } else if (!(s = ctx_temp(ctx, acc, &shape, &next))) {
      s = cuda_reduce(ctx, r, &from, acc, b, 1, &next);
      tensor_release(&from);
      from = next;
    }
  }
  tensor_release(&from);
  return s;
}

static shoal_status axes_run(struct kernel_ctx *ctx) {
  const struct cuda_axes *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  bool reduced[SHOAL_MAX_RANK] = {0}, any = false;
  struct cuda_groups g;
  struct tensor *y;
  TRY(reduce_axes(ctx_in(ctx, 1), x->rank, reduced));
  group(x, reduced, &g);
  for (int i = 0; i < g.n; i++) any |= g.reduced[i];
  struct shape shape = shape_reduced(x, reduced, st->keep);
  if (!any) return ctx_forward(ctx, 0, 0, &shape);
  TRY(ctx_out(ctx, 0, &shape, &y));
  double scale = st->mean ? (double)y->n / (double)x->n : 1;
  return reduce_groups(ctx, st->r, &g, scale, x, y);
}

/* ---- L2Loss ---- */

static shoal_status l2_loss_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y, parts;
  CUfunction f;
  shoal_dtype acc = wide((shoal_dtype)x->dtype);
  TRY(cuda_function(cuda_ctx(ctx), "reduce", "squares", (shoal_dtype)x->dtype, acc, &f));
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  int64_t n = x->n, pieces = MAX(1, MIN(n / 4096, MOST_PIECES)), piece = (n + pieces - 1) / pieces;
  struct shape shape = shape_vector(pieces);
  TRY(ctx_temp(ctx, acc, &shape, &parts));
  shoal_status s =
      cuda_run(ctx, f, (unsigned)pieces, 1, CUDA_BLOCK, (void *[]){(void *)&x->data, &parts.data, &n, &piece});
  if (!s) s = cuda_reduce(ctx, CUDA_SUM, &parts, (shoal_dtype)y->dtype, (struct cuda_block){1, pieces, 1}, 1, y);
  tensor_release(&parts);
  return s;
}

/* ---- ArgMax, ArgMin ---- */

struct cuda_arg {
  CUfunction f;
  int sign;
};

static shoal_status arg_init(struct kernel_init *ki, void *state) {
  struct cuda_arg *st = state;
  st->sign = op_is(ki->node->op, "ArgMax") ? 1 : -1;
  return cuda_function(cuda_of(ki->device), "reduce", "arg", dtype_base(ki->kernel->in_types[0]),
                       dtype_base(ki->kernel->out_types[0]), &st->f);
}

static shoal_status arg_run(struct kernel_ctx *ctx) {
  const struct cuda_arg *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  TRY(ctx_check_scalar(ctx, 1, "dim"));
  int64_t asked = int_at(ctx_in(ctx, 1), 0), axis = asked < 0 ? asked + x->rank : asked;
  if (axis < 0 || axis >= x->rank)
    return INVALID("Expected dimension in the range [%d, %d), but got %" PRId64, -x->rank, x->rank, asked);
  if (!x->dims[axis]) return INVALID("Reduction axis %" PRId64 " is empty in shape %s", axis, tensor_shape_str(x));
  bool reduced[SHOAL_MAX_RANK] = {0};
  reduced[axis] = true;
  struct shape shape = shape_reduced(x, reduced, false);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &shape, &y));
  int64_t outer = dims_product(x->dims, 0, (int)axis), length = x->dims[axis];
  int64_t inner = dims_product(x->dims, (int)axis + 1, x->rank);
  int sign = st->sign;
  if (!y->n) return NULL;
  return cuda_run(ctx, st->f, (unsigned)((outer * inner + CUDA_BLOCK / WARP - 1) / (CUDA_BLOCK / WARP)), 1, CUDA_BLOCK,
                  (void *[]){(void *)&x->data, &y->data, &outer, &length, &inner, &sign});
}

/* ---- the table ---- */

static const struct kernel_def axes[] = {{.device = "GPU",
                                          .type_attr = "T",
                                          .types = CUDA_FLOATING,
                                          .state_size = sizeof(struct cuda_axes),
                                          .init = axes_init,
                                          .run = axes_run,
                                          .host_in = 2},
                                         {0}};
static const struct kernel_def l2_loss[] = {
    {.device = "GPU", .type_attr = "T", .types = CUDA_FLOATING, .run = l2_loss_run}, {0}};
static const struct kernel_def arg[] = {{.device = "GPU",
                                         .type_attr = "T",
                                         .types = CUDA_NUMBERS,
                                         .type_attr2 = "output_type",
                                         .types2 = DT(INT32) | DT(INT64),
                                         .state_size = sizeof(struct cuda_arg),
                                         .init = arg_init,
                                         .run = arg_run,
                                         .host_in = 2},
                                        {0}};

const struct device_kernels cuda_reduce_kernels[] = {{"Sum", axes},   {"Mean", axes},  {"Prod", axes},
                                                     {"Max", axes},   {"Min", axes},   {"L2Loss", l2_loss},
                                                     {"ArgMax", arg}, {"ArgMin", arg}, {0}};
