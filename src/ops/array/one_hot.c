/* OneHot, and Where: from indices to a mask and back. */
#include <string.h>

#include "ops/array/array_util.h"

/* ---- OneHot ---- */

struct one_hot_state {
  int64_t axis;
};

static shoal_status one_hot_init(struct kernel_init *ki, void *state) {
  return node_get_int(ki->node, "axis", &((struct one_hot_state *)state)->axis);
}

static shoal_status one_hot_run(struct kernel_ctx *ctx) {
  const struct tensor *ix = ctx_in(ctx, 0), *depth_t = ctx_in(ctx, 1), *on = ctx_in(ctx, 2), *off = ctx_in(ctx, 3);
  int64_t axis = ((struct one_hot_state *)ctx->state)->axis;
  if (axis != -1 && (axis < 0 || axis > ix->rank))
    return INVALID("Expected axis to be -1 or between [0, %d).  But received: %" PRId64, ix->rank + 1, axis);
  if (depth_t->rank) return INVALID("depth must be a scalar, but got: %s", tensor_shape_str(depth_t));
  if (on->rank) return INVALID("on_value must be a scalar, but got: %s", tensor_shape_str(on));
  if (off->rank) return INVALID("off_value must be a scalar, but got: %s", tensor_shape_str(off));
  int64_t depth = int_at(depth_t, 0);
  if (depth < 0) return INVALID("depth must be non-negative, got: %" PRId64, depth);
  if (ix->rank == SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
  int at = axis < 0 ? ix->rank : (int)axis;
  struct shape s = {.rank = ix->rank + 1};
  for (int i = 0; i < s.rank; i++) s.dims[i] = i < at ? ix->dims[i] : i == at ? depth : ix->dims[i - 1];
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  shoal_dtype t = (shoal_dtype)y->dtype;
  size_t size = dtype_size(t);
  elements_fill(ctx_pool(ctx), t, y->data, off->data, y->n);
  if (!y->n) return NULL;
  int64_t outer = dims_product(ix->dims, 0, at), inner = dims_product(ix->dims, at, ix->rank);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++) {
      int64_t hot = int_at(ix, o * inner + i);
      if (hot >= 0 && hot < depth)
        elements_copy(t, (char *)y->data + (size_t)((o * depth + hot) * inner + i) * size, on->data, 1);
    }
  return NULL;
}

static shoal_status one_hot_shape(struct shape_ctx *c) {
  int64_t axis, depth = -1;
  const struct shape *ix = &c->in[0];
  TRY(node_get_int(c->node, "axis", &axis));
  if (axis < -1) return INVALID("axis must be >= -1");
  if (shape_in_int(c, 1, &depth) && depth < 0) return INVALID("depth must be non-negative, got: %" PRId64, depth);
  if (ix->rank < 0 || ix->rank == SHOAL_MAX_RANK) return NULL;
  if (axis > ix->rank)
    return INVALID("Expected axis to be -1 or between [0, %d).  But received: %" PRId64, ix->rank + 1, axis);
  int at = axis < 0 ? ix->rank : (int)axis;
  struct shape *s = &c->out[0];
  s->rank = ix->rank + 1;
  for (int i = 0; i < s->rank; i++) s->dims[i] = i < at ? ix->dims[i] : i == at ? depth : ix->dims[i - 1];
  return NULL;
}

static const struct kernel_def one_hot_kernels[] = {{.device = "CPU",
                                                     .state_size = sizeof(struct one_hot_state),
                                                     .init = one_hot_init,
                                                     .run = one_hot_run,
                                                     .host_in = 2},
                                                    {0}};

/* ---- Where ---- */

/* Is element i anything but zero? Negative zero is zero. */
static bool is_true(const struct tensor *t, int64_t i) {
  switch (t->dtype) {
    case SHOAL_FLOAT32: return T_DATA(t, const float)[i] != 0;
    case SHOAL_FLOAT64: return T_DATA(t, const double)[i] != 0;
    case SHOAL_FLOAT16:
    case SHOAL_BFLOAT16: return (T_DATA(t, const uint16_t)[i] & 0x7fff) != 0;
    case SHOAL_COMPLEX64: return T_DATA(t, const c64)[i] != 0;
    case SHOAL_COMPLEX128: return T_DATA(t, const c128)[i] != 0;
    default:
      switch (dtype_size((shoal_dtype)t->dtype)) {
        case 1: return T_DATA(t, const uint8_t)[i] != 0;
        case 2: return T_DATA(t, const uint16_t)[i] != 0;
        case 4: return T_DATA(t, const uint32_t)[i] != 0;
        default: return T_DATA(t, const uint64_t)[i] != 0;
      }
  }
}

static shoal_status where_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank < 1) return INVALID("WhereOp : Unhandled input dimensions: %d", x->rank);
  int64_t n = 0, strides[SHOAL_MAX_RANK];
  for (int64_t i = 0; i < x->n; i++) n += is_true(x, i);
  struct shape s = shape_matrix(n, x->rank);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  for (int i = 0; i < x->rank; i++) strides[i] = dims_product(x->dims, i + 1, x->rank);
  int64_t *to = y->data;
  for (int64_t i = 0; n && i < x->n; i++) {
    if (!is_true(x, i)) continue;
    int64_t rest = i;
    for (int k = 0; k < x->rank; k++) {
      *to++ = rest / strides[k];
      rest %= strides[k];
    }
    n--;
  }
  return NULL;
}

static shoal_status where_shape(struct shape_ctx *c) {
  c->out[0] = shape_matrix(-1, c->in[0].rank);
  return NULL;
}

static const struct kernel_def where_kernels[] = {
    {.device = "CPU", .type_attr = "T", .types = DT_NUMBER | DT(BOOL), .run = where_run}, {0}};

static const struct op_row rows[] = {
    {.name = "OneHot",
     .in = "indices: TI, depth: int32, on_value: T, off_value: T",
     .out = "output: T",
     .attrs = "axis: int = -1; T: type; TI: {uint8, int8, int32, int64} = int64",
     .flags = OP_NO_GRADIENT,
     .shape = one_hot_shape,
     .kernels = one_hot_kernels},
    {.name = "Where",
     .in = "input: T",
     .out = "index: int64",
     .attrs = "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, "
              "qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = bool",
     .flags = OP_NO_GRADIENT,
     .shape = where_shape,
     .kernels = where_kernels},
};
OP_FAMILY(one_hot, rows);
