/* Blocks of space moved to the batch or to the depth, and back: SpaceToBatch(ND), BatchToSpace(ND), SpaceToDepth,
 * DepthToSpace. Each block offset is one strided copy. */
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/array/strided.h"

/* ---- batch ---- */

/* One side has the space (with margins: paddings or crops), the other has it cut into blocks, the block's offset
 * being the slow part of the batch. */
struct blocks {
  int n; /* block dimensions: 1 .. n of the tensors */
  int64_t size[SHOAL_MAX_RANK], before[SHOAL_MAX_RANK], after[SHOAL_MAX_RANK];
  int64_t product;
  bool to_batch;
};

struct fixed_state {
  int64_t block; /* the old ops: an attribute, two dimensions; 0: the ND ops */
};

static shoal_status blocks_get(struct blocks *b, const struct shape *x, int64_t fixed, const struct tensor *sizes,
                               const struct tensor *margins) {
  const char *what = b->to_batch ? "paddings" : "crops";
  b->n = fixed ? 2 : (int)sizes->n;
  if (!fixed && sizes->rank != 1) return INVALID("block_shape rank should be 1 instead of %d", sizes->rank);
  if (!fixed && sizes->n > SHOAL_MAX_RANK - 1)
    return INVALID("block_shape has too many dimensions: %" PRId64, sizes->n);
  if (x->rank < 1 + b->n) return INVALID("input rank should be >= %d instead of %d", 1 + b->n, x->rank);
  if (margins->rank != 2 || margins->dims[0] != b->n || margins->dims[1] != 2)
    return INVALID("%s should have shape [%d, 2] instead of %s", what, b->n, tensor_shape_str(margins));
  b->product = 1;
  for (int i = 0; i < b->n; i++) {
    b->size[i] = fixed ? fixed : int_at(sizes, i);
    if (b->size[i] < 1)
      return INVALID("All values in block_shape must be positive, got value, %" PRId64 " at index %d.", b->size[i], i);
    if (mul_overflows(b->product, b->size[i], &b->product)) return INVALID("The product of block sizes is too large");
    b->before[i] = int_at(margins, 2 * i);
    b->after[i] = int_at(margins, 2 * i + 1);
    if (b->before[i] < 0 || b->after[i] < 0)
      return INVALID("%s must be non-negative", b->to_batch ? "Paddings" : "Crops");
  }
  return NULL;
}

/* The result's shape from the input's (dimensions may be unknown). */
static shoal_status blocks_shape(const struct blocks *b, const struct shape *x, struct shape *y) {
  *y = *x;
  for (int i = 0; i < b->n; i++) {
    int64_t d = x->dims[1 + i];
    if (d < 0) continue;
    if (b->to_batch) {
      if (__builtin_add_overflow(d, b->before[i], &d) || __builtin_add_overflow(d, b->after[i], &d))
        return INVALID("Paddings are too large");
      if (d % b->size[i])
        return INVALID("padded_shape[%d]=%" PRId64 " is not divisible by block_shape[%d]=%" PRId64, i, d, i,
                       b->size[i]);
      y->dims[1 + i] = d / b->size[i];
    } else {
      if (mul_overflows(d, b->size[i], &d) || __builtin_sub_overflow(d, b->before[i], &d) ||
          __builtin_sub_overflow(d, b->after[i], &d))
        return INVALID("block_shape is too large");
      if (d < 0) return INVALID("cropped_shape[%d]=%" PRId64 " must be non-negative", i, d);
      y->dims[1 + i] = d;
    }
  }
  int64_t batch = x->dims[0];
  if (batch < 0) return NULL;
  if (b->to_batch) {
    if (mul_overflows(batch, b->product, &y->dims[0])) return INVALID("The batch is too large");
  } else {
    if (batch % b->product)
      return INVALID("Input batch dimension (%" PRId64 ") is not divisible by product of block sizes (%" PRId64 ")",
                     batch, b->product);
    y->dims[0] = batch / b->product;
  }
  return NULL;
}

static void copy_blocks(struct pool *pool, const struct blocks *b, const struct tensor *x, struct tensor *y) {
  const struct tensor *space = b->to_batch ? x : y, *cut = b->to_batch ? y : x;
  int64_t space_steps[SHOAL_MAX_RANK], cut_steps[SHOAL_MAX_RANK], size = (int64_t)dtype_size((shoal_dtype)x->dtype);
  strides_of(space->rank, space->dims, space_steps);
  strides_of(cut->rank, cut->dims, cut_steps);
  for (int64_t block = 0; block < b->product; block++) {
    int64_t at[SHOAL_MAX_RANK], rest = block, space_at = 0, cut_at = block * space->dims[0] * cut_steps[0];
    for (int i = b->n; i-- > 0; rest /= b->size[i]) at[i] = rest % b->size[i];
    struct strided v = {0};
    strided_add(&v, space->dims[0], b->to_batch ? cut_steps[0] : space_steps[0],
                b->to_batch ? space_steps[0] : cut_steps[0]);
    bool any = true;
    for (int i = 0; i < b->n; i++) {
      /* cut index p shows space index p * size + at - before; only those inside count. */
      int64_t s = b->size[i], shift = at[i] - b->before[i], dim = space->dims[1 + i];
      int64_t first = shift >= 0 ? 0 : (-shift + s - 1) / s;
      int64_t last = dim - shift <= 0 ? -1 : (dim - shift - 1) / s;
      last = MIN(last, cut->dims[1 + i] - 1);
      if (last < first) any = false;
      int64_t to = b->to_batch ? cut_steps[1 + i] : s * space_steps[1 + i];
      int64_t from = b->to_batch ? s * space_steps[1 + i] : cut_steps[1 + i];
      strided_add(&v, MAX(0, last - first + 1), to, from);
      cut_at += first * cut_steps[1 + i];
      space_at += (first * s + shift) * space_steps[1 + i];
    }
    if (!any) continue;
    strided_add(&v, dims_product(space->dims, 1 + b->n, space->rank), 1, 1);
    strided_copy(pool, (shoal_dtype)x->dtype, &v, (char *)y->data + (b->to_batch ? cut_at : space_at) * size,
                 (const char *)x->data + (b->to_batch ? space_at : cut_at) * size);
  }
}

static shoal_status fixed_init(struct kernel_init *ki, void *state) {
  struct fixed_state *st = state;
  return node_attr(ki->node, "block_size") ? node_get_int(ki->node, "block_size", &st->block) : NULL;
}

static shoal_status batch_run(struct kernel_ctx *ctx, bool to_batch) {
  const struct fixed_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape xs = tensor_shape(x), ys;
  struct blocks b = {.to_batch = to_batch};
  if (st->block && x->rank != 4) return INVALID("input rank should be 4 instead of %d", x->rank);
  TRY(blocks_get(&b, &xs, st->block, ctx_in(ctx, 1), ctx_in(ctx, st->block ? 1 : 2)));
  TRY(blocks_shape(&b, &xs, &ys));
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &ys, &y));
  if (!y->n) return NULL;
  if (to_batch) tensor_zero(y);
  if (x->n) copy_blocks(ctx_pool(ctx), &b, x, y);
  return NULL;
}

static shoal_status to_batch_run(struct kernel_ctx *ctx) { return batch_run(ctx, true); }
static shoal_status from_batch_run(struct kernel_ctx *ctx) { return batch_run(ctx, false); }

static shoal_status batch_shape(struct shape_ctx *c) {
  struct blocks b = {.to_batch = str_starts(c->node->op->name, "Space")};
  int64_t fixed = 0;
  if (node_attr(c->node, "block_size")) TRY(node_get_int(c->node, "block_size", &fixed));
  const struct tensor *sizes = fixed ? NULL : c->values[1], *margins = c->values[fixed ? 1 : 2];
  if (c->in[0].rank < 0) return NULL;
  c->out[0] = shape_unknown_of_rank(c->in[0].rank);
  if ((!fixed && !sizes) || !margins) return NULL;
  TRY(blocks_get(&b, &c->in[0], fixed, sizes, margins));
  return blocks_shape(&b, &c->in[0], &c->out[0]);
}

static shoal_status batch_grad(struct grad_ctx *c) {
  bool nd = str_ends(c->node->op->name, "ND"), to = str_starts(c->node->op->name, "Space");
  const char *other = nd ? (to ? "BatchToSpaceND" : "SpaceToBatchND") : (to ? "BatchToSpace" : "SpaceToBatch");
  struct build b = build_begin(c->g, other, NULL);
  build_in(&b, grad_dy(c, 0));
  build_in(&b, gin(c, 1));
  if (nd) build_in(&b, gin(c, 2));
  else {
    int64_t block;
    TRY(node_get_int(c->node, "block_size", &block));
    build_attr_int(&b, "block_size", block);
  }
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

static const struct kernel_def to_batch_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct fixed_state), .init = fixed_init, .run = to_batch_run, .host_in = 6},
    {0}};
static const struct kernel_def from_batch_kernels[] = {{.device = "CPU",
                                                        .state_size = sizeof(struct fixed_state),
                                                        .init = fixed_init,
                                                        .run = from_batch_run,
                                                        .host_in = 6},
                                                       {0}};

/* ---- depth ---- */

struct space_depth_state {
  int64_t block;
  bool channels_first;
};

static shoal_status depth_get(const struct shoal_node *n, struct space_depth_state *st) {
  const char *format;
  TRY(node_get_int(n, "block_size", &st->block));
  TRY(node_get_string(n, "data_format", &format));
  if (str_equal(format, "NCHW_VECT_C")) return UNIMPLEMENTED("%s: data_format NCHW_VECT_C", n->op->name);
  st->channels_first = str_equal(format, "NCHW");
  return NULL;
}

static shoal_status depth_init(struct kernel_init *ki, void *state) { return depth_get(ki->node, state); }

/* Dimensions of [batch, height, width, channels] in the tensor. */
static void depth_dims(const struct space_depth_state *st, int *h, int *w, int *c) {
  *h = st->channels_first ? 2 : 1;
  *w = *h + 1;
  *c = st->channels_first ? 1 : 3;
}

static shoal_status depth_out(const struct space_depth_state *st, bool to_depth, const struct shape *x,
                              struct shape *y) {
  int h, w, c;
  depth_dims(st, &h, &w, &c);
  if (x->rank != 4) return INVALID("Input rank should be 4 instead of %d", x->rank);
  *y = *x;
  int64_t b = st->block, square;
  if (mul_overflows(b, b, &square)) return INVALID("block_size is too large: %" PRId64, b);
  if (to_depth) {
    if ((x->dims[h] >= 0 && x->dims[h] % b) || (x->dims[w] >= 0 && x->dims[w] % b))
      return INVALID("Image width %" PRId64 " and height %" PRId64 " should be divisible by block_size: %" PRId64,
                     x->dims[w], x->dims[h], b);
    if (x->dims[h] >= 0) y->dims[h] = x->dims[h] / b;
    if (x->dims[w] >= 0) y->dims[w] = x->dims[w] / b;
    if (x->dims[c] >= 0 && mul_overflows(x->dims[c], square, &y->dims[c])) return INVALID("block_size is too large");
  } else {
    if (x->dims[c] >= 0 && x->dims[c] % square)
      return INVALID("Input depth dimension %" PRId64 " should be divisible by: %" PRId64, x->dims[c], square);
    if (x->dims[h] >= 0 && mul_overflows(x->dims[h], b, &y->dims[h])) return INVALID("block_size is too large");
    if (x->dims[w] >= 0 && mul_overflows(x->dims[w], b, &y->dims[w])) return INVALID("block_size is too large");
    if (x->dims[c] >= 0) y->dims[c] = x->dims[c] / square;
  }
  return NULL;
}

static shoal_status depth_run(struct kernel_ctx *ctx, bool to_depth) {
  const struct space_depth_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape xs = tensor_shape(x), ys;
  TRY(depth_out(st, to_depth, &xs, &ys));
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &ys, &y));
  if (!y->n) return NULL;
  int h, w, c;
  depth_dims(st, &h, &w, &c);
  const struct tensor *space = to_depth ? x : y, *deep = to_depth ? y : x;
  int64_t s[4], d[4], b = st->block, channels = space->dims[c];
  strides_of(4, space->dims, s);
  strides_of(4, deep->dims, d);
  /* deep channel = (block row * b + block column) * channels + channel */
  int64_t dims[6] = {space->dims[0], deep->dims[h], deep->dims[w], b, b, channels};
  int64_t in_space[6] = {s[0], s[h] * b, s[w] * b, s[h], s[w], s[c]};
  int64_t in_deep[6] = {d[0], d[h], d[w], d[c] * b * channels, d[c] * channels, d[c]};
  struct strided v = {0};
  for (int i = 0; i < 6; i++)
    strided_add(&v, dims[i], to_depth ? in_deep[i] : in_space[i], to_depth ? in_space[i] : in_deep[i]);
  strided_copy(ctx_pool(ctx), (shoal_dtype)x->dtype, &v, y->data, x->data);
  return NULL;
}

static shoal_status to_depth_run(struct kernel_ctx *ctx) { return depth_run(ctx, true); }
static shoal_status from_depth_run(struct kernel_ctx *ctx) { return depth_run(ctx, false); }

static shoal_status depth_shape(struct shape_ctx *c) {
  struct space_depth_state st;
  struct shape x;
  TRY(depth_get(c->node, &st));
  TRY(shape_in_rank(c, 0, 4, &x));
  if (x.rank < 0) x = shape_unknown_of_rank(4);
  return depth_out(&st, op_is(c->node->op, "SpaceToDepth"), &x, &c->out[0]);
}

static shoal_status depth_grad(struct grad_ctx *c) {
  int64_t block;
  const char *format;
  TRY(node_get_int(c->node, "block_size", &block));
  TRY(node_get_string(c->node, "data_format", &format));
  struct build b = build_begin(c->g, op_is(c->node->op, "SpaceToDepth") ? "DepthToSpace" : "SpaceToDepth", NULL);
  build_in(&b, grad_dy(c, 0));
  build_attr_int(&b, "block_size", block);
  build_attr_string(&b, "data_format", format);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

static const struct kernel_def to_depth_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct space_depth_state), .init = depth_init, .run = to_depth_run}, {0}};
static const struct kernel_def from_depth_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct space_depth_state), .init = depth_init, .run = from_depth_run}, {0}};

static const struct op_row rows[] = {
    {.name = "SpaceToBatchND",
     .in = "input: T, block_shape: Tblock_shape, paddings: Tpaddings",
     .out = "output: T",
     .attrs = "T: type; Tblock_shape: {int32, int64} = int32; Tpaddings: {int32, int64} = int32",
     .shape = batch_shape,
     .grad = batch_grad,
     .kernels = to_batch_kernels},
    {.name = "SpaceToBatch",
     .in = "input: T, paddings: Tpaddings",
     .out = "output: T",
     .attrs = "T: type; Tpaddings: {int32, int64} = int32; block_size: int >= 2",
     .shape = batch_shape,
     .grad = batch_grad,
     .kernels = to_batch_kernels},
    {.name = "BatchToSpaceND",
     .in = "input: T, block_shape: Tblock_shape, crops: Tcrops",
     .out = "output: T",
     .attrs = "T: type; Tblock_shape: {int32, int64} = int32; Tcrops: {int32, int64} = int32",
     .shape = batch_shape,
     .grad = batch_grad,
     .kernels = from_batch_kernels},
    {.name = "BatchToSpace",
     .in = "input: T, crops: Tidx",
     .out = "output: T",
     .attrs = "T: type; block_size: int >= 2; Tidx: {int32, int64} = int32",
     .shape = batch_shape,
     .grad = batch_grad,
     .kernels = from_batch_kernels},
    {.name = "SpaceToDepth",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type; block_size: int >= 2; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
     .shape = depth_shape,
     .grad = depth_grad,
     .kernels = to_depth_kernels},
    {.name = "DepthToSpace",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type; block_size: int >= 2; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
     .shape = depth_shape,
     .grad = depth_grad,
     .kernels = from_depth_kernels},
};
OP_FAMILY(space_batch, rows);
