/* Reductions on a card: reduce.cu.
 *
 * As on the CPU neighbouring axes are taken as one, the innermost group of reduced ones first; each pass sees a block
 * [outer, length, inner]. A long pass with few results is cut into pieces, whose results are reduced in turn: how many
 * is decided by the shape alone, so the same bits come out every time. */
#include <stdio.h>

#include "device/cuda/cuda_kernel.h"
#include "ops/array/array_util.h"
#include "ops/math/reduce.h"

enum { SHORT_ROW = 1024, WARP = 32, TILE = 32, MOST_PIECES = 256, ENOUGH_BLOCKS = 1024, MOST_GRID_Y = 65535 };

static const char *const names[] = {"sum", "prod", "max", "min", "all", "any"};
static const char *const ways[] = {"short", "long", "columns", "wide"};

static shoal_dtype wide(shoal_dtype t) { return t == SHOAL_FLOAT64 || t == SHOAL_BOOL ? t : SHOAL_FLOAT32; }

/* ---- functions ---- */

static shoal_status find_ways(struct cuda_device *c, enum cuda_reduction r, shoal_dtype from, shoal_dtype to,
                              CUfunction out[CUDA_WAYS]) {
  char name[32];
  for (int i = 0; i < CUDA_WAYS; i++) {
    snprintf(name, sizeof name, "%s_%s", names[r], ways[i]);
    TRY(cuda_function(c, "reduce", name, from, to, &out[i]));
  }
  return NULL;
}

shoal_status cuda_reducer_init(struct cuda_device *c, enum cuda_reduction r, shoal_dtype type,
                               struct cuda_reducer *out) {
  shoal_dtype types[2] = {type, wide(type)};
  out->type = type;
  for (int from = 0; from < 2; from++)
    for (int to = 0; to < 2; to++) TRY(find_ways(c, r, types[from], types[to], out->f[from][to]));
  return NULL;
}

/* ---- passes ---- */

/* From memory of one type into memory of another. */
struct cuda_pass {
  struct kernel_ctx *ctx;
  const CUfunction *f;
  int64_t each;              /* columns that a thread takes */
  int64_t in_size, out_size; /* of elements */
  struct cuda_block b;
  int64_t pieces;
  double scale;
};

/* Columns that lie well are taken several at a time. */
static int64_t columns_each(const struct tensor *in, struct cuda_block b) {
  enum { BYTES = 16 };
  int64_t each = BYTES / (int64_t)dtype_size((shoal_dtype)in->dtype);
  return b.inner % each == 0 && (uintptr_t)in->data % BYTES == 0 ? each : 1;
}

/* Threads side by side in a block: all columns, up to 32. */
static int across(struct cuda_block b, int64_t each) {
  int n = 1;
  while (n < TILE && n * each < b.inner) n *= 2;
  return n;
}

static int64_t blocks_across(struct cuda_block b, int64_t each) {
  int64_t width = across(b, each) * each;
  return (b.inner + width - 1) / width;
}

/* Of so many outer ones as fit the card's grid. */
static shoal_status run_columns_of(const struct cuda_pass *p, int64_t outer, void *in, void *out, int64_t piece) {
  int64_t length = p->b.length, inner = p->b.inner, pieces = p->pieces;
  double scale = p->scale;
  int side = across(p->b, p->each);
  if (p->each > 1)
    return cuda_run(p->ctx, p->f[CUDA_WIDE], (unsigned)blocks_across(p->b, p->each), (unsigned)(outer * pieces),
                    CUDA_BLOCK, (void *[]){&in, &out, &length, &inner, &piece, &pieces, &side, &scale});
  return cuda_run(p->ctx, p->f[CUDA_COLUMNS], (unsigned)((inner + TILE - 1) / TILE), (unsigned)(outer * pieces),
                  CUDA_BLOCK, (void *[]){&in, &out, &length, &inner, &piece, &pieces, &scale});
}

static shoal_status run_columns(const struct cuda_pass *p, void *in, void *out, int64_t piece) {
  int64_t most = MOST_GRID_Y / p->pieces;
  for (int64_t o = 0; o < p->b.outer; o += most)
    TRY(run_columns_of(p, MIN(most, p->b.outer - o), (char *)in + o * p->b.length * p->b.inner * p->in_size,
                       (char *)out + o * p->pieces * p->b.inner * p->out_size, piece));
  return NULL;
}

static shoal_status run_pass(const struct cuda_pass *p, void *in, void *out) {
  int64_t outer = p->b.outer, length = p->b.length, pieces = p->pieces, piece = (length + pieces - 1) / pieces;
  double scale = p->scale;
  if (p->b.inner > 1) return run_columns(p, in, out, piece);
  if (pieces == 1 && length <= SHORT_ROW)
    return cuda_run(p->ctx, p->f[CUDA_SHORT], (unsigned)((outer + CUDA_BLOCK / WARP - 1) / (CUDA_BLOCK / WARP)), 1,
                    CUDA_BLOCK, (void *[]){&in, &out, &outer, &length, &scale});
  return cuda_run(p->ctx, p->f[CUDA_LONG], (unsigned)outer, (unsigned)pieces, CUDA_BLOCK,
                  (void *[]){&in, &out, &length, &piece, &scale});
}

/* So many that the card is busy, of at least a thousand elements each. */
static int64_t pieces_of(struct cuda_block b, int64_t each) {
  int64_t blocks = b.inner == 1 ? b.outer : b.outer * blocks_across(b, each);
  int64_t rows = b.inner == 1 ? 4096 : each > 1 ? CUDA_BLOCK / across(b, each) * 8 : 128;
  return MAX(1, MIN(MIN(ENOUGH_BLOCKS / MAX(blocks, 1), b.length / rows), MOST_PIECES));
}

shoal_status cuda_reduce(struct kernel_ctx *ctx, const struct cuda_reducer *r, const struct tensor *in,
                         struct cuda_block b, double scale, const struct tensor *out) {
  bool from_wide = in->dtype != r->type, to_wide = out->dtype != r->type;
  int64_t each = columns_each(in, b);
  int64_t sizes[] = {(int64_t)dtype_size(r->type), (int64_t)dtype_size(wide(r->type))};
  int64_t from = sizes[from_wide], to = sizes[to_wide];
  struct cuda_pass p = {ctx, r->f[from_wide][to_wide], each, from, to, b, pieces_of(b, each), scale};
  if (!b.outer || !b.inner) return NULL;
  if (p.pieces == 1) return run_pass(&p, in->data, out->data);
  struct tensor parts;
  struct shape shape = shape_vector(b.outer * p.pieces * b.inner);
  TRY(cuda_temp(ctx, wide(r->type), &shape, &parts));
  p.f = r->f[from_wide][1];
  p.out_size = sizes[1];
  p.scale = 1;
  shoal_status s = run_pass(&p, in->data, parts.data);
  b.length = p.pieces;
  p = (struct cuda_pass){ctx, r->f[1][to_wide], columns_each(&parts, b), sizes[1], to, b, 1, scale};
  if (!s) s = run_pass(&p, parts.data, out->data);
  tensor_release(&parts);
  return s;
}

/* ---- over axes ---- */

struct cuda_axes {
  struct cuda_reducer r;
  bool mean, keep;
};

static shoal_status axes_init(struct kernel_init *ki, void *state) {
  struct cuda_axes *st = state;
  const struct op *op = ki->node->op;
  st->mean = op_is(op, "Mean");
  enum cuda_reduction r = op_is(op, "Prod")  ? CUDA_PROD
                          : op_is(op, "Max") ? CUDA_MAX
                          : op_is(op, "Min") ? CUDA_MIN
                          : op_is(op, "All") ? CUDA_ALL
                          : op_is(op, "Any") ? CUDA_ANY
                                             : CUDA_SUM;
  TRY(cuda_reducer_init(cuda_of(ki->device), r, dtype_base(ki->kernel->in_types[0]), &st->r));
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
static shoal_status reduce_groups(struct kernel_ctx *ctx, const struct cuda_reducer *r, struct cuda_groups *g,
                                  double scale, const struct tensor *x, const struct tensor *out) {
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
    if (last) {
      s = cuda_reduce(ctx, r, &from, b, scale, out);
    } else if (!(s = cuda_temp(ctx, wide(r->type), &shape, &next))) {
      s = cuda_reduce(ctx, r, &from, b, 1, &next);
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
  return reduce_groups(ctx, &st->r, &g, scale, x, y);
}

/* ---- L2Loss ---- */

struct cuda_l2 {
  CUfunction squares;
  struct cuda_reducer sum;
};

static shoal_status l2_loss_init(struct kernel_init *ki, void *state) {
  struct cuda_l2 *st = state;
  shoal_dtype type = dtype_base(ki->kernel->in_types[0]);
  TRY(cuda_reducer_init(cuda_of(ki->device), CUDA_SUM, type, &st->sum));
  return cuda_function(cuda_of(ki->device), "reduce", "squares", type, wide(type), &st->squares);
}

static shoal_status l2_loss_run(struct kernel_ctx *ctx) {
  const struct cuda_l2 *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct tensor *y, parts;
  TRY(ctx_out_dims(ctx, 0, 0, NULL, &y));
  int64_t n = x->n, pieces = MAX(1, MIN(n / 4096, MOST_PIECES)), piece = (n + pieces - 1) / pieces;
  struct shape shape = shape_vector(pieces);
  TRY(cuda_temp(ctx, wide(st->sum.type), &shape, &parts));
  shoal_status s = cuda_run(ctx, st->squares, (unsigned)pieces, 1, CUDA_BLOCK,
                            (void *[]){(void *)&x->data, &parts.data, &n, &piece});
  if (!s) s = cuda_reduce(ctx, &st->sum, &parts, (struct cuda_block){1, pieces, 1}, 1, y);
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
static const struct kernel_def all[] = {
    {.device = "GPU", .state_size = sizeof(struct cuda_axes), .init = axes_init, .run = axes_run, .host_in = 2}, {0}};
static const struct kernel_def l2_loss[] = {{.device = "GPU",
                                             .type_attr = "T",
                                             .types = CUDA_FLOATING,
                                             .state_size = sizeof(struct cuda_l2),
                                             .init = l2_loss_init,
                                             .run = l2_loss_run},
                                            {0}};
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

const struct device_kernels cuda_reduce_kernels[] = {{"Sum", axes},
                                                     {"Mean", axes},
                                                     {"Prod", axes},
                                                     {"Max", axes},
                                                     {"Min", axes},
                                                     {"L2Loss", l2_loss},
                                                     {"ArgMax", arg},
                                                     {"ArgMin", arg},
                                                     {"All", all},
                                                     {"Any", all},
                                                     {0}};
