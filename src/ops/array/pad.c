/* Making tensors larger: Pad, MirrorPad, Tile; and Reverse and Roll, which move what is there. */
#include <stdlib.h>
#include <string.h>

#include "ops/array/pad.h"
#include "ops/array/strided.h"

/* ---- Pad, PadV2 ---- */

static shoal_status check_paddings(const struct tensor *x, const struct tensor *p, const char *between) {
  if (p->rank != 2 || p->dims[1] != 2)
    return INVALID("paddings must be a matrix with 2 columns: %s", tensor_shape_str(p));
  if (p->dims[0] != x->rank)
    return INVALID("The first dimension of paddings must be the rank of inputs%s%s%s", tensor_shape_str(p), between,
                   tensor_shape_str(x));
  return NULL;
}

static shoal_status padded_dim(int64_t dim, int64_t before, int64_t after, int64_t *out) {
  if (before < 0 || after < 0) return INVALID("Paddings must be non-negative: %" PRId64 " %" PRId64, before, after);
  if (__builtin_add_overflow(before, after, out) || __builtin_add_overflow(*out, dim, out))
    return INVALID("Paddings are too large: %" PRId64 " %" PRId64, before, after);
  return NULL;
}

shoal_status pad_filled(struct kernel_ctx *ctx, pad_fill fill) {
  const struct tensor *x = ctx_in(ctx, 0), *p = ctx_in(ctx, 1);
  TRY(check_paddings(x, p, " "));
  if (ctx->kernel->n_in == 3 && ctx_in(ctx, 2)->rank != 0)
    return INVALID("constant_values must be a scalar. Found: %s", tensor_shape_str(ctx_in(ctx, 2)));
  struct shape s = {.rank = x->rank};
  bool same = true;
  for (int i = 0; i < x->rank; i++) {
    TRY(padded_dim(x->dims[i], int_at(p, 2 * i), int_at(p, 2 * i + 1), &s.dims[i]));
    same &= s.dims[i] == x->dims[i];
  }
  if (same) return ctx_forward(ctx, 0, 0, NULL);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  TRY(fill(ctx, y));
  int64_t to[SHOAL_MAX_RANK], from[SHOAL_MAX_RANK], offset = 0;
  strides_of(x->rank, y->dims, to);
  strides_of(x->rank, x->dims, from);
  struct strided v = {0};
  for (int i = 0; i < x->rank; i++) {
    strided_add(&v, x->dims[i], to[i], from[i]);
    offset += int_at(p, 2 * i) * to[i];
  }
  return x->n ? ctx_copy_view(ctx, &v, y, offset, x, 0) : NULL;
}

static shoal_status fill_host(struct kernel_ctx *ctx, struct tensor *y) {
  elements_fill(ctx_pool(ctx), (shoal_dtype)y->dtype, y->data, ctx_in(ctx, 2)->data, y->n);
  return NULL;
}
static shoal_status fill_zeros(struct kernel_ctx *ctx, struct tensor *y) {
  ctx_zero(ctx, y);
  return NULL;
}
static shoal_status pad_run(struct kernel_ctx *ctx) { return pad_filled(ctx, fill_zeros); }
static shoal_status pad_v2_run(struct kernel_ctx *ctx) { return pad_filled(ctx, fill_host); }

static shoal_status pad_shape(struct shape_ctx *c) {
  const struct tensor *p = c->values[1];
  int rank = c->in[0].rank;
  if (rank < 0 && c->in[1].rank == 2 && c->in[1].dims[0] >= 0 && c->in[1].dims[0] <= SHOAL_MAX_RANK)
    rank = (int)c->in[1].dims[0];
  if (rank < 0) return NULL;
  c->out[0] = shape_unknown_of_rank(rank);
  if (!p || c->in[0].rank < 0) return NULL;
  if (p->rank != 2 || p->dims[1] != 2 || p->dims[0] != rank)
    return INVALID("paddings must be a matrix of %d rows and 2 columns, but has shape %s", rank, tensor_shape_str(p));
  for (int i = 0; i < rank; i++)
    if (c->in[0].dims[i] >= 0)
      TRY(padded_dim(c->in[0].dims[i], int_at(p, 2 * i), int_at(p, 2 * i + 1), &c->out[0].dims[i]));
  return NULL;
}

static shoal_status pad_grad(struct grad_ctx *c) {
  shoal_out x = gin(c, 0), p = gin(c, 1);
  shoal_dtype index = out_type(p);
  int64_t zeros[2] = {0, 0};
  int64_t first[2] = {-1, 1};
  shoal_out before = array_slice(c->g, p, build_const_ints(c->g, SHOAL_INT32, zeros, 2),
                                 build_const_ints(c->g, SHOAL_INT32, first, 2));
  int64_t flat = -1;
  before = array_reshape(c->g, before, build_const_ints(c->g, SHOAL_INT32, &flat, 1));
  grad_set(c, 0, array_slice(c->g, grad_dy(c, 0), before, array_shape(c->g, x, index)));
  return NULL;
}

KERNELS_ANYWHERE(pad_kernels, 2, .run = pad_run);
static const struct kernel_def pad_v2_kernels[] = {{.device = "CPU", .run = pad_v2_run, .host_in = 2}, {0}};

/* ---- MirrorPad ---- */

struct mirror_state {
  int offset; /* 0: SYMMETRIC, the border is repeated; 1: REFLECT, it is not */
};

static shoal_status mirror_init(struct kernel_init *ki, void *state) {
  const char *mode;
  TRY(node_get_string(ki->node, "mode", &mode));
  ((struct mirror_state *)state)->offset = str_equal(mode, "REFLECT");
  return NULL;
}

/* For every dimension of the padded tensor: which index of the inner one each index shows. */
struct mirror {
  int rank;
  int64_t *map[SHOAL_MAX_RANK];
  int64_t big[SHOAL_MAX_RANK], small[SHOAL_MAX_RANK]; /* strides of the padded and of the inner tensor */
  int64_t dims[SHOAL_MAX_RANK];                       /* of the padded tensor */
  struct buffer *memory;                              /* of the maps: values say how large it is */
};

static shoal_status mirror_make(struct mirror *m, const struct tensor *p, int rank, const int64_t *small,
                                const int64_t *big, int offset) {
  m->rank = rank;
  int64_t total = 0;
  for (int i = 0; i < rank; i++)
    if (__builtin_add_overflow(total, big[i], &total)) return INVALID("Paddings are too large");
  TRY(buffer_new((size_t)total * sizeof(int64_t), &m->memory));
  int64_t *at = m->memory->data;
  for (int i = 0; i < rank; i++) {
    int64_t before = int_at(p, 2 * i), n = small[i];
    m->map[i] = at;
    m->dims[i] = big[i];
    for (int64_t k = 0; k < big[i]; k++) {
      int64_t j = k - before;
      if (j < 0) j = -j - 1 + offset;
      else if (j >= n) j = 2 * n - 1 - offset - j;
      *at++ = j;
    }
  }
  strides_of(rank, big, m->big);
  strides_of(rank, small, m->small);
  return NULL;
}

static void mirror_copy(const struct mirror *m, shoal_dtype dtype, int dim, char *to, const char *from) {
  int64_t size = (int64_t)dtype_size(dtype);
  if (dim == m->rank) {
    elements_copy(dtype, to, from, 1);
    return;
  }
  bool last = dim == m->rank - 1 && dtype_plain(dtype);
  for (int64_t i = 0; i < m->dims[dim]; i++) {
    const char *source = from + m->map[dim][i] * m->small[dim] * size;
    char *target = to + i * m->big[dim] * size;
    if (last && size == 4) memcpy(target, source, 4);
    else if (last) memcpy(target, source, (size_t)size);
    else mirror_copy(m, dtype, dim + 1, target, source);
  }
}

static shoal_status mirror_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *p = ctx_in(ctx, 1);
  int offset = ((struct mirror_state *)ctx->state)->offset;
  TRY(check_paddings(x, p, ", "));
  struct shape s = {.rank = x->rank};
  for (int i = 0; i < x->rank; i++) {
    int64_t before = int_at(p, 2 * i), after = int_at(p, 2 * i + 1), n = x->dims[i];
    if (before < 0 || after < 0) return INVALID("paddings must be non-negative: %" PRId64 " %" PRId64, before, after);
    if (offset == 0 && (before > n || after > n))
      return INVALID("paddings must be no greater than the dimension size: %" PRId64 ", %" PRId64
                     " greater than %" PRId64,
                     before, after, n);
    if (offset == 1 && (before >= n || after >= n))
      return INVALID("paddings must be less than the dimension size: %" PRId64 ", %" PRId64 " not less than %" PRId64,
                     before, after, n);
    TRY(padded_dim(n, before, after, &s.dims[i]));
  }
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  struct mirror m = {0};
  TRY(mirror_make(&m, p, x->rank, x->dims, y->dims, offset));
  mirror_copy(&m, (shoal_dtype)x->dtype, 0, y->data, x->data);
  buffer_unref(m.memory);
  return NULL;
}

/* Adds what the mirror shows back to where it came from. */
#define FOLD(name, type, ADD)                                                        \
  static void name(const struct mirror *m, int dim, type *to, const type *from) {    \
    if (dim == m->rank) {                                                            \
      *to = ADD(*to, *from);                                                         \
      return;                                                                        \
    }                                                                                \
    for (int64_t i = 0; i < m->dims[dim]; i++)                                       \
      name(m, dim + 1, to + m->map[dim][i] * m->small[dim], from + i * m->big[dim]); \
  }
#define ADD_PLAIN(a, b) (a) + (b)
#define ADD_F16(a, b) f16_from_float(f16_to_float(a) + f16_to_float(b))
#define ADD_BF16(a, b) bf16_from_float(bf16_to_float(a) + bf16_to_float(b))
FOLD(fold_float, float, ADD_PLAIN)
FOLD(fold_double, double, ADD_PLAIN)
FOLD(fold_u8, uint8_t, ADD_PLAIN)
FOLD(fold_u16, uint16_t, ADD_PLAIN)
FOLD(fold_u32, uint32_t, ADD_PLAIN)
FOLD(fold_u64, uint64_t, ADD_PLAIN)
FOLD(fold_c64, c64, ADD_PLAIN)
FOLD(fold_c128, c128, ADD_PLAIN)
FOLD(fold_f16, f16, ADD_F16)
FOLD(fold_bf16, bf16, ADD_BF16)

static shoal_status mirror_grad_run(struct kernel_ctx *ctx) {
  const struct tensor *dy = ctx_in(ctx, 0), *p = ctx_in(ctx, 1);
  int offset = ((struct mirror_state *)ctx->state)->offset;
  TRY(check_paddings(dy, p, ", "));
  struct shape s = {.rank = dy->rank};
  for (int i = 0; i < dy->rank; i++) {
    int64_t before = int_at(p, 2 * i), after = int_at(p, 2 * i + 1), total;
    if (before < 0 || after < 0) return INVALID("Paddings must be non-negative: %" PRId64 ", %" PRId64, before, after);
    if (__builtin_add_overflow(before, after, &total) || total >= dy->dims[i])
      return INVALID("Total paddings must be less than the input dimension size: %" PRId64
                     " was not less than %" PRId64,
                     total, dy->dims[i]);
    int64_t n = s.dims[i] = dy->dims[i] - total;
    if (before > n - offset || after > n - offset)
      return INVALID("Paddings must be %s the output dimension size: %" PRId64 ", %" PRId64 " vs. %" PRId64,
                     offset ? "less than" : "no greater than", before, after, n);
  }
  struct tensor *dx;
  TRY(ctx_out(ctx, 0, &s, &dx));
  tensor_zero(dx);
  if (!dy->n) return NULL;
  struct mirror m = {0};
  TRY(mirror_make(&m, p, dy->rank, dx->dims, dy->dims, offset));
  switch (dy->dtype) {
    case SHOAL_FLOAT32: fold_float(&m, 0, dx->data, dy->data); break;
    case SHOAL_FLOAT64: fold_double(&m, 0, dx->data, dy->data); break;
    case SHOAL_FLOAT16: fold_f16(&m, 0, dx->data, dy->data); break;
    case SHOAL_BFLOAT16: fold_bf16(&m, 0, dx->data, dy->data); break;
    case SHOAL_COMPLEX64: fold_c64(&m, 0, dx->data, dy->data); break;
    case SHOAL_COMPLEX128: fold_c128(&m, 0, dx->data, dy->data); break;
    default:
      switch (dtype_size((shoal_dtype)dy->dtype)) { /* two's complement: signs do not matter to sums */
        case 1: fold_u8(&m, 0, dx->data, dy->data); break;
        case 2: fold_u16(&m, 0, dx->data, dy->data); break;
        case 4: fold_u32(&m, 0, dx->data, dy->data); break;
        default: fold_u64(&m, 0, dx->data, dy->data);
      }
  }
  buffer_unref(m.memory);
  return NULL;
}

static shoal_status mirror_grad_shape(struct shape_ctx *c) {
  const struct tensor *p = c->values[1];
  if (c->in[0].rank < 0) return NULL;
  c->out[0] = shape_unknown_of_rank(c->in[0].rank);
  if (!p || p->rank != 2 || p->dims[1] != 2 || p->dims[0] != c->in[0].rank) return NULL;
  for (int i = 0; i < c->in[0].rank; i++)
    if (c->in[0].dims[i] >= 0) c->out[0].dims[i] = MAX(-1, c->in[0].dims[i] - int_at(p, 2 * i) - int_at(p, 2 * i + 1));
  return NULL;
}

static shoal_status mirror_other(struct grad_ctx *c) {
  const char *mode;
  TRY(node_get_string(c->node, "mode", &mode));
  struct build b = build_begin(c->g, op_is(c->node->op, "MirrorPad") ? "MirrorPadGrad" : "MirrorPad", NULL);
  build_in(&b, grad_dy(c, 0));
  build_in(&b, gin(c, 1));
  build_attr_string(&b, "mode", mode);
  grad_set(c, 0, build_end_out(&b));
  return NULL;
}

static const struct kernel_def mirror_kernels[] = {
    {.device = "CPU", .state_size = sizeof(struct mirror_state), .init = mirror_init, .run = mirror_run, .host_in = 2},
    {0}};
static const struct kernel_def mirror_grad_kernels[] = {{.device = "CPU",
                                                         .type_attr = "T",
                                                         .types = DT_NUMBER,
                                                         .state_size = sizeof(struct mirror_state),
                                                         .init = mirror_init,
                                                         .run = mirror_grad_run,
                                                         .host_in = 2},
                                                        {0}};

/* ---- Tile ---- */

static shoal_status tile_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *times = ctx_in(ctx, 1);
  if (times->rank != 1) return INVALID("Expected multiples to be 1-D, but got shape %s", tensor_shape_str(times));
  if (times->n != x->rank)
    return INVALID("Expected multiples argument to be a vector of length %d but got length %" PRId64, x->rank,
                   times->n);
  struct shape s = {.rank = x->rank};
  bool same = true;
  for (int i = 0; i < x->rank; i++) {
    int64_t m = int_at(times, i);
    if (m < 0) return INVALID("Expected multiples[%d] >= 0, but got %" PRId64, i, m);
    if (mul_overflows(x->dims[i], m, &s.dims[i])) return INVALID("multiples[%d] = %" PRId64 " is too large", i, m);
    same &= m == 1;
  }
  if (same) return ctx_forward(ctx, 0, 0, NULL);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  int64_t to[SHOAL_MAX_RANK], from[SHOAL_MAX_RANK];
  strides_of(x->rank, y->dims, to);
  strides_of(x->rank, x->dims, from);
  struct strided v = {0};
  for (int i = 0; i < x->rank; i++) {
    strided_add(&v, int_at(times, i), to[i] * x->dims[i], 0);
    strided_add(&v, x->dims[i], to[i], from[i]);
  }
  return ctx_copy_view(ctx, &v, y, 0, x, 0);
}

static shoal_status tile_shape(struct shape_ctx *c) {
  struct shape x = c->in[0], times;
  TRY(shape_in_rank(c, 1, 1, &times));
  if (x.rank < 0) {
    if (times.rank == 1 && times.dims[0] >= 0 && times.dims[0] <= SHOAL_MAX_RANK)
      c->out[0] = shape_unknown_of_rank((int)times.dims[0]);
    return NULL;
  }
  c->out[0] = shape_unknown_of_rank(x.rank);
  const struct tensor *v = c->values[1];
  if (!v || v->n != x.rank) return NULL;
  for (int i = 0; i < x.rank; i++)
    if (x.dims[i] >= 0 && (int_at(v, i) < 0 || mul_overflows(x.dims[i], int_at(v, i), &c->out[0].dims[i])))
      return INVALID("multiples[%d] = %" PRId64 " is not valid", i, int_at(v, i));
  return NULL;
}

/* [m0*d0, m1*d1] seen as [m0, d0, m1, d1] and summed over every m. */
static shoal_status tile_grad(struct grad_ctx *c) {
  shoal_out x = gin(c, 0), dy = grad_dy(c, 0), times = gin(c, 1);
  shoal_out size = array_shape(c->g, x, out_type(times));
  struct build b = build_begin(c->g, "Pack", NULL);
  build_in(&b, times);
  build_in(&b, size);
  build_attr_int(&b, "axis", 1);
  int64_t flat = -1;
  shoal_out split = array_reshape(c->g, build_end_out(&b), build_const_ints(c->g, SHOAL_INT32, &flat, 1));
  shoal_out rank = build_op1(c->g, "Size", split);
  shoal_out axes =
      build_op3(c->g, "Range", build_const_int(c->g, SHOAL_INT32, 0), rank, build_const_int(c->g, SHOAL_INT32, 2));
  shoal_out dx = array_sum(c->g, array_reshape(c->g, dy, split), axes, false);
  grad_set(c, 0, array_reshape_like(c->g, dx, x));
  return NULL;
}

KERNELS_ANYWHERE(tile_kernels, 2, .run = tile_run);

static const struct op_row rows[] = {
    {.name = "Pad",
     .in = "input: T, paddings: Tpaddings",
     .out = "output: T",
     .attrs = "T: type; Tpaddings: {int32, int64} = int32",
     .shape = pad_shape,
     .grad = pad_grad,
     .kernels = pad_kernels},
    {.name = "PadV2",
     .in = "input: T, paddings: Tpaddings, constant_values: T",
     .out = "output: T",
     .attrs = "T: type; Tpaddings: {int32, int64} = int32",
     .shape = pad_shape,
     .grad = pad_grad,
     .kernels = pad_v2_kernels},
    {.name = "MirrorPad",
     .in = "input: T, paddings: Tpaddings",
     .out = "output: T",
     .attrs = "T: type; Tpaddings: {int32, int64} = int32; mode: {'REFLECT', 'SYMMETRIC'}",
     .shape = pad_shape,
     .grad = mirror_other,
     .kernels = mirror_kernels},
    {.name = "MirrorPadGrad",
     .in = "input: T, paddings: Tpaddings",
     .out = "output: T",
     .attrs = "T: type; Tpaddings: {int32, int64} = int32; mode: {'REFLECT', 'SYMMETRIC'}",
     .shape = mirror_grad_shape,
     .grad = mirror_other,
     .kernels = mirror_grad_kernels},
    {.name = "Tile",
     .in = "input: T, multiples: Tmultiples",
     .out = "output: T",
     .attrs = "T: type; Tmultiples: {int32, int64} = int32",
     .shape = tile_shape,
     .grad = tile_grad,
     .kernels = tile_kernels},
};
OP_FAMILY(pad, rows);
