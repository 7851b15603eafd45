/* Moving elements within a tensor: Reverse, ReverseSequence, Roll. Each is one or a few strided copies, with
 * negative strides where the order turns round. */
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/array/strided.h"

/* ---- Reverse, ReverseV2 ---- */

static shoal_status reverse_dims(struct kernel_ctx *ctx, const bool *turn) {
  const struct tensor *x = ctx_in(ctx, 0);
  bool same = true;
  for (int i = 0; i < x->rank; i++) same &= !turn[i] || x->dims[i] <= 1;
  if (same) return ctx_forward(ctx, 0, 0, NULL);
  struct shape s = tensor_shape(x);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  int64_t strides[SHOAL_MAX_RANK], offset = 0;
  strides_of(x->rank, x->dims, strides);
  struct strided v = {0};
  for (int i = 0; i < x->rank; i++) {
    if (turn[i]) offset += (x->dims[i] - 1) * strides[i];
    strided_add(&v, x->dims[i], strides[i], turn[i] ? -strides[i] : strides[i]);
  }
  return ctx_copy_view(ctx, &v, y, 0, x, offset);
}

static shoal_status reverse_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *dims = ctx_in(ctx, 1);
  if (dims->rank != 1) return INVALID("'dims' must be 1-dimension, not %d", dims->rank);
  if (dims->n != x->rank)
    return INVALID(
        "'dims' must have the same number of values as 'input' has dimensions. 'input' has %d'dims' has "
        "%" PRId64 " values",
        x->rank, dims->n);
  return reverse_dims(ctx, dims->data);
}

static shoal_status axes_to_flags(const struct tensor *axes, int rank, bool *turn) {
  if (axes->rank != 1) return INVALID("'dims' must be 1-dimension, not %d", axes->rank);
  for (int64_t i = 0; i < axes->n; i++) {
    int64_t axis = int_at(axes, i), a = axis < 0 ? axis + rank : axis;
    if (a < 0 || a >= rank)
      return INVALID("'axis'[%" PRId64 "] = %" PRId64 " is out of valid range [0, %d", i, axis, rank - 1);
    if (turn[a]) return INVALID("axis %" PRId64 " specified more than once.", a);
    turn[a] = true;
  }
  return NULL;
}

static shoal_status reverse_v2_run(struct kernel_ctx *ctx) {
  bool turn[SHOAL_MAX_RANK] = {false};
  TRY(axes_to_flags(ctx_in(ctx, 1), ctx_in(ctx, 0)->rank, turn));
  return reverse_dims(ctx, turn);
}

static shoal_status reverse_v2_shape(struct shape_ctx *c) {
  struct shape vector;
  TRY(shape_in_rank(c, 1, 1, &vector));
  bool turn[SHOAL_MAX_RANK] = {false};
  if (c->values[1] && c->in[0].rank >= 0) TRY(axes_to_flags(c->values[1], c->in[0].rank, turn));
  c->out[0] = c->in[0];
  return NULL;
}

/* The same op on the gradient. */
static shoal_status reverse_grad(struct grad_ctx *c) {
  grad_set(c, 0, build_op2(c->g, c->node->op->name, grad_dy(c, 0), gin(c, 1)));
  return NULL;
}

KERNELS_ANYWHERE(reverse_kernels, 2, .run = reverse_run);
KERNELS_ANYWHERE(reverse_v2_kernels, 2, .run = reverse_v2_run);

/* ---- ReverseSequence ---- */

struct reverse_sequence_state {
  int64_t seq, batch;
};

static shoal_status sequence_get(const struct shoal_node *n, struct reverse_sequence_state *st) {
  TRY(node_get_int(n, "seq_dim", &st->seq));
  return node_get_int(n, "batch_dim", &st->batch);
}

static shoal_status sequence_init(struct kernel_init *ki, void *state) { return sequence_get(ki->node, state); }

struct reversed_rows {
  const struct tensor *x, *lens;
  struct tensor *y;
  int seq, batch;
  int64_t strides[SHOAL_MAX_RANK];
};

/* Batch entry b: [0, len) turned round, the rest as it is. */
static void sequence_part(const struct reversed_rows *q, int64_t b, bool turned) {
  int64_t len = int_at(q->lens, b), total = q->x->dims[q->seq], step = q->strides[q->seq];
  int64_t count = turned ? len : total - len, to = b * q->strides[q->batch], from = to;
  if (!count) return;
  if (turned) from += (len - 1) * step;
  else to += len * step, from = to;
  struct strided v = {0};
  for (int i = 0; i < q->x->rank; i++) {
    if (i == q->batch) continue;
    if (i == q->seq) strided_add(&v, count, step, turned ? -step : step);
    else strided_add(&v, q->x->dims[i], q->strides[i], q->strides[i]);
  }
  int64_t size = (int64_t)dtype_size((shoal_dtype)q->x->dtype);
  strided_copy(NULL, (shoal_dtype)q->x->dtype, &v, (char *)q->y->data + to * size,
               (const char *)q->x->data + from * size);
}

static void sequence_piece(void *arg, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; b++) {
    sequence_part(arg, b, true);
    sequence_part(arg, b, false);
  }
}

static shoal_status sequence_run(struct kernel_ctx *ctx) {
  const struct reverse_sequence_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *lens = ctx_in(ctx, 1);
  int64_t seq = st->seq, batch = st->batch;
  if (seq < 0) return INVALID("Invalid seq_dim %" PRId64, seq);
  if (batch < 0) return INVALID("Invalid batch_dim %" PRId64, batch);
  if (batch == seq) return INVALID("batch_dim == seq_dim == %" PRId64, seq);
  if (seq >= x->rank) return INVALID("seq_dim must be < input rank ( %" PRId64 " vs. %d)", seq, x->rank);
  if (batch >= x->rank) return INVALID("batch_dim must be < input rank ( %" PRId64 " vs. %d)", batch, x->rank);
  if (lens->rank != 1) return INVALID("seq_lens input must be 1-dim, not %d", lens->rank);
  if (lens->n != x->dims[batch])
    return INVALID("Length of seq_lengths != input.dims(%" PRId64 "), (%" PRId64 " vs. %" PRId64 ")", batch, lens->n,
                   x->dims[batch]);
  for (int64_t i = 0; i < lens->n; i++) {
    if (int_at(lens, i) < 0) return INVALID("seq_lens(%" PRId64 ") < 0", i);
    if (int_at(lens, i) > x->dims[seq]) return INVALID("seq_lens(%" PRId64 ") > input.dims(%" PRId64 ")", i, seq);
  }
  struct shape s = tensor_shape(x);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  struct reversed_rows q = {.x = x, .lens = lens, .y = y, .seq = (int)seq, .batch = (int)batch};
  strides_of(x->rank, x->dims, q.strides);
  pool_for(ctx_pool(ctx), lens->n, copy_grain((int64_t)tensor_bytes(x) / lens->n), sequence_piece, &q);
  return NULL;
}

static shoal_status sequence_shape(struct shape_ctx *c) {
  struct reverse_sequence_state st;
  struct shape lens;
  TRY(sequence_get(c->node, &st));
  TRY(shape_in_rank(c, 1, 1, &lens));
  c->out[0] = c->in[0];
  if (c->in[0].rank < 0) return NULL;
  if (st.batch >= c->in[0].rank)
    return INVALID("batch_dim must be < input rank: %" PRId64 " vs. %d", st.batch, c->in[0].rank);
  if (st.seq >= c->in[0].rank)
    return INVALID("seq_dim must be < input rank: %" PRId64 " vs. %d", st.seq, c->in[0].rank);
  return NULL;
}

static shoal_status sequence_grad(struct grad_ctx *c) {
  struct reverse_sequence_state st;
  TRY(sequence_get(c->node, &st));
  struct build b = build_begin(c->g, "ReverseSequence", NULL);
  build_in(&b, grad_dy(c, 0));
  build_in(&b, gin(c, 1));
  build_attr_int(&b, "seq_dim", st.seq);
  build_attr_int(&b, "batch_dim", st.batch);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

static const struct kernel_def sequence_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct reverse_sequence_state), .init = sequence_init, .run = sequence_run},
    {0}};

/* ---- Roll ---- */

/* Every rolled dimension falls into two runs; each combination of runs is one strided copy. */
static shoal_status roll_blocks(struct kernel_ctx *ctx, const struct tensor *x, struct tensor *y,
                                const int64_t *shift) {
  int64_t strides[SHOAL_MAX_RANK];
  int moved[SHOAL_MAX_RANK], n = 0;
  strides_of(x->rank, x->dims, strides);
  for (int i = 0; i < x->rank; i++)
    if (shift[i]) moved[n++] = i;
  for (unsigned block = 0; block < 1u << n; block++) {
    int64_t count[SHOAL_MAX_RANK], to = 0, from = 0;
    for (int i = 0; i < x->rank; i++) count[i] = x->dims[i];
    for (int k = 0; k < n; k++) {
      int d = moved[k];
      if (block >> k & 1) { /* the end comes to the front */
        count[d] = shift[d];
        from += (x->dims[d] - shift[d]) * strides[d];
      } else {
        count[d] = x->dims[d] - shift[d];
        to += shift[d] * strides[d];
      }
    }
    struct strided v = {0};
    for (int i = 0; i < x->rank; i++) strided_add(&v, count[i], strides[i], strides[i]);
    TRY(ctx_copy_view(ctx, &v, y, to, x, from));
  }
  return NULL;
}

static shoal_status roll_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *shift = ctx_in(ctx, 1), *axis = ctx_in(ctx, 2);
  if (x->rank < 1) return INVALID("input must be 1-D or higher");
  if (shift->rank > 1) return INVALID("shift must be a scalar or a 1-D vector. Found: %s", tensor_shape_str(shift));
  if (axis->rank > 1) return INVALID("axis must be a scalar or a 1-D vector. Found: %s", tensor_shape_str(axis));
  if (shift->rank != axis->rank || shift->n != axis->n) return INVALID("shift and axis must have the same size");
  int64_t total[SHOAL_MAX_RANK] = {0};
  bool same = true;
  for (int64_t i = 0; i < axis->n; i++) {
    int64_t a = int_at(axis, i), k = a < 0 ? a + x->rank : a;
    if (k < 0 || k >= x->rank) return INVALID("axis %" PRId64 " is out of range", a);
    int64_t n = MAX(x->dims[k], 1);
    total[k] = ((total[k] + int_at(shift, i) % n) % n + n) % n;
  }
  for (int i = 0; i < x->rank; i++) same &= total[i] == 0;
  if (same || !x->n) return ctx_forward(ctx, 0, 0, NULL);
  struct shape s = tensor_shape(x);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  return roll_blocks(ctx, x, y, total);
}

static shoal_status roll_shape(struct shape_ctx *c) { return shape_in_rank_at_least(c, 0, 1, &c->out[0]); }

static shoal_status roll_grad(struct grad_ctx *c) {
  grad_set(c, 0, build_op3(c->g, "Roll", grad_dy(c, 0), build_op1(c->g, "Neg", gin(c, 1)), gin(c, 2)));
  return NULL;
}

KERNELS_ANYWHERE(roll_kernels, 6, .run = roll_run);

static const struct op_row rows[] = {
    {.name = "Reverse",
     .in = "tensor: T, dims: bool",
     .out = "output: T",
     .attrs = "T: {uint8, int8, uint16, int16, uint32, int32, uint64, int64, bool, bfloat16, half, float, double, "
              "complex64, complex128, string}",
     .shape = shape_unchanged,
     .grad = reverse_grad,
     .kernels = reverse_kernels},
    {.name = "ReverseV2",
     .in = "tensor: T, axis: Tidx",
     .out = "output: T",
     .attrs = "Tidx: {int32, int64} = int32; T: {uint8, int8, uint16, int16, int32, uint32, int64, uint64, bool, "
              "bfloat16, half, float, double, complex64, complex128, string}",
     .shape = reverse_v2_shape,
     .grad = reverse_grad,
     .kernels = reverse_v2_kernels},
    {.name = "ReverseSequence",
     .in = "input: T, seq_lengths: Tlen",
     .out = "output: T",
     .attrs = "seq_dim: int; batch_dim: int = 0; T: type; Tlen: {int32, int64} = int64",
     .shape = sequence_shape,
     .grad = sequence_grad,
     .kernels = sequence_kernels},
    {.name = "Roll",
     .in = "input: T, shift: Tshift, axis: Taxis",
     .out = "output: T",
     .attrs = "T: type; Tshift: {int32, int64}; Taxis: {int32, int64}",
     .shape = roll_shape,
     .grad = roll_grad,
     .kernels = roll_kernels},
};
OP_FAMILY(reverse, rows);
