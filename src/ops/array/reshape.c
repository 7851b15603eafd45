/* Ops that change a tensor's shape and nothing else (Reshape, ExpandDims, Squeeze), which cost nothing, and the
 * transposes, which move every element. */
#include <complex.h>
#include <string.h>

#include "ops/array/array_util.h"
#include "ops/array/strided.h"

/* ---- Reshape ---- */

/* The size of the dimension given as -1. Dimensions of 0 are left out on both sides, so that the shape of an
 * empty tensor can still be inferred. */
static shoal_status missing_size(const struct tensor *x, bool zero_asked, int64_t product, int64_t *out) {
  bool zero_there = false;
  int64_t n = 1;
  for (int i = 0; i < x->rank; i++) {
    if (x->dims[i] == 0) zero_there = true;
    else if (mul_overflows(n, x->dims[i], &n)) return INVALID("Shape %s is too large", tensor_shape_str(x));
  }
  if (!zero_asked) n = x->n;
  *out = n / product;
  if (!zero_there && *out * product != n)
    return INVALID("Input to reshape is a tensor with %" PRId64
                   " values, but the requested shape requires a multiple of %" PRId64,
                   n, product);
  return NULL;
}

shoal_status reshape_size(const struct tensor *x, const struct tensor *sizes, struct shape *out) {
  if (sizes->rank > 1) return INVALID("sizes input must be 1-D, not %s", tensor_shape_str(sizes));
  if (sizes->n > SHOAL_MAX_RANK)
    return INVALID("too many dimensions: must be < %d, but received %" PRId64, SHOAL_MAX_RANK, sizes->n);
  struct shape s = {.rank = (int)sizes->n};
  int open = -1;
  int64_t product = 1;
  bool zero = false;
  for (int i = 0; i < s.rank; i++) {
    int64_t d = s.dims[i] = int_at(sizes, i);
    if (d == -1) {
      if (open >= 0) return INVALID("Only one input size may be -1, not both %d and %d", open, i);
      open = i;
    } else if (d < 0) {
      return INVALID("Size %d must be non-negative, not %" PRId64, i, d);
    } else if (d == 0) {
      zero = true;
    } else if (mul_overflows(product, d, &product)) {
      return INVALID("Shape %s has more elements than fit in 63 bits", shape_str(&s));
    }
  }
  if (open >= 0) TRY(missing_size(x, zero, product, &s.dims[open]));
  int64_t n;
  TRY(shape_elements(&s, &n));
  if (n != x->n)
    return INVALID("Input to reshape is a tensor with %" PRId64 " values, but the requested shape has %" PRId64, x->n,
                   n);
  *out = s;
  return NULL;
}

static shoal_status reshape_run(struct kernel_ctx *ctx) {
  struct shape s;
  TRY(reshape_size(ctx_in(ctx, 0), ctx_in(ctx, 1), &s));
  return ctx_forward(ctx, 0, 0, &s);
}

static shoal_status reshape_shape(struct shape_ctx *c) {
  struct shape s;
  TRY(shape_in_value(c, 1, &s));
  c->out[0] = s;
  int64_t n;
  if (s.rank < 0 || shape_elements(&c->in[0], &n) || n < 0 || !c->values[1]) return NULL;
  int open = -1;
  int64_t product = 1;
  for (int i = 0; i < s.rank; i++) {
    if (s.dims[i] == 0) return NULL;
    if (s.dims[i] < 0 && open >= 0) return NULL;
    if (s.dims[i] < 0) open = i;
    else if (mul_overflows(product, s.dims[i], &product)) return NULL;
  }
  if (open < 0 && product != n)
    return INVALID("Cannot reshape a tensor with %" PRId64 " elements to shape %s (%" PRId64 " elements)", n,
                   shape_str(&s), product);
  if (open >= 0) {
    if (n % product)
      return INVALID("Dimension size must be evenly divisible by %" PRId64 " but is %" PRId64, product, n);
    c->out[0].dims[open] = n / product;
  }
  return NULL;
}

static shoal_status reshape_grad(struct grad_ctx *c) {
  grad_set(c, 0, array_reshape_like(c->g, grad_dy(c, 0), gin(c, 0)));
  return NULL;
}

/* ---- ExpandDims, Squeeze ---- */

static shoal_status expand(const struct shape *x, int64_t axis, struct shape *out) {
  if (axis < -1 - x->rank || axis > x->rank)
    return INVALID("Tried to expand dim index %" PRId64 " for tensor with %d dimensions.", axis, x->rank);
  if (x->rank == SHOAL_MAX_RANK) return INVALID("A tensor has at most %d dimensions", SHOAL_MAX_RANK);
  if (axis < 0) axis += x->rank + 1;
  out->rank = x->rank + 1;
  for (int i = 0; i < out->rank; i++) out->dims[i] = i < axis ? x->dims[i] : i == axis ? 1 : x->dims[i - 1];
  return NULL;
}

static shoal_status expand_run(struct kernel_ctx *ctx) {
  const struct tensor *axis = ctx_in(ctx, 1);
  if (axis->n != 1) return INVALID("'dim' must be a tensor with a single value");
  struct shape x = tensor_shape(ctx_in(ctx, 0)), y;
  TRY(expand(&x, int_at(axis, 0), &y));
  return ctx_forward(ctx, 0, 0, &y);
}

static shoal_status expand_shape(struct shape_ctx *c) {
  int64_t axis;
  if (c->in[0].rank < 0) return NULL;
  if (shape_in_int(c, 1, &axis)) return expand(&c->in[0], axis, &c->out[0]);
  if (c->in[0].rank < SHOAL_MAX_RANK) c->out[0] = shape_unknown_of_rank(c->in[0].rank + 1);
  return NULL;
}

struct squeeze_state {
  int64_t axes[SHOAL_MAX_RANK];
  int n;
};

static shoal_status squeeze(const struct shape *x, const struct squeeze_state *st, struct shape *out) {
  bool wanted[SHOAL_MAX_RANK] = {false};
  for (int i = 0; i < st->n; i++) {
    int64_t axis = st->axes[i];
    if (axis < -x->rank || axis >= x->rank)
      return INVALID("Tried to squeeze dim index %" PRId64 " for tensor with %d dimensions.", axis, x->rank);
    wanted[axis < 0 ? axis + x->rank : axis] = true;
  }
  out->rank = 0;
  for (int i = 0; i < x->rank; i++) {
    if (st->n && wanted[i] && x->dims[i] != 1 && x->dims[i] >= 0)
      return INVALID("Can not squeeze dim[%d], expected a dimension of 1, got %" PRId64, i, x->dims[i]);
    if (st->n ? !wanted[i] : x->dims[i] != 1) out->dims[out->rank++] = x->dims[i];
  }
  return NULL;
}

static shoal_status squeeze_init(struct kernel_init *ki, void *state) {
  struct squeeze_state *st = state;
  return node_get_ints(ki->node, "squeeze_dims", st->axes, SHOAL_MAX_RANK, &st->n);
}

static shoal_status squeeze_run(struct kernel_ctx *ctx) {
  struct shape x = tensor_shape(ctx_in(ctx, 0)), y;
  TRY(squeeze(&x, ctx->state, &y));
  return ctx_forward(ctx, 0, 0, &y);
}

static shoal_status squeeze_shape(struct shape_ctx *c) {
  struct squeeze_state st;
  TRY(node_get_ints(c->node, "squeeze_dims", st.axes, SHOAL_MAX_RANK, &st.n));
  const struct shape *x = &c->in[0];
  if (x->rank < 0) return NULL;
  if (!st.n && !shape_known(x)) return NULL;
  return squeeze(x, &st, &c->out[0]);
}

static const struct kernel_def reshape_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = reshape_run, .host_in = 2}, {0}};
static const struct kernel_def expand_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = expand_run, .host_in = 2}, {0}};
static const struct kernel_def squeeze_kernels[] = {{.device = "CPU",
                                                     .flags = KERNEL_CHEAP | KERNEL_ANYWHERE,
                                                     .state_size = sizeof(struct squeeze_state),
                                                     .init = squeeze_init,
                                                     .run = squeeze_run},
                                                    {0}};

/* ---- Transpose ---- */

static shoal_status permutation(const struct tensor *p, int rank, int *perm) {
  if (p->rank != 1) return INVALID("perm must be rank 1, got shape %s", tensor_shape_str(p));
  if (p->n != rank)
    return INVALID("transpose expects a vector of size %d. But input(1) is a vector of size %" PRId64, rank, p->n);
  bool seen[SHOAL_MAX_RANK] = {false};
  for (int i = 0; i < rank; i++) {
    int64_t d = int_at(p, i);
    if (d < 0 || d >= rank) return INVALID("%" PRId64 " is out of range [0 .. %d)", d, rank);
    perm[i] = (int)d;
    seen[d] = true;
  }
  for (int i = 0; i < rank; i++) {
    if (seen[i]) continue;
    struct text list = {0};
    for (int k = 0; k < rank; k++) text_addf(&list, "%s%d", k ? "," : "", perm[k]);
    shoal_status s = INVALID("%d is missing from {%s}.", i, text_cstr(&list));
    text_release(&list);
    return s;
  }
  return NULL;
}

static void conjugate(struct tensor *t) {
  if (t->dtype == SHOAL_COMPLEX64)
    for (int64_t i = 0; i < t->n; i++) T_DATA(t, c64)[i] = conjf(T_DATA(t, c64)[i]);
  else if (t->dtype == SHOAL_COMPLEX128)
    for (int64_t i = 0; i < t->n; i++) T_DATA(t, c128)[i] = conj(T_DATA(t, c128)[i]);
}

static shoal_status transpose(struct kernel_ctx *ctx, bool conj) {
  const struct tensor *x = ctx_in(ctx, 0);
  int perm[SHOAL_MAX_RANK];
  TRY(permutation(ctx_in(ctx, 1), x->rank, perm));
  struct shape s = {.rank = x->rank};
  /* Nothing moves when the dimensions larger than 1 keep their order. */
  bool same = !conj || !dtype_complex((shoal_dtype)x->dtype);
  int before = -1;
  for (int i = 0; i < x->rank; i++) {
    s.dims[i] = x->dims[perm[i]];
    if (s.dims[i] == 1) continue;
    if (perm[i] < before) same = false;
    before = perm[i];
  }
  if (same) return ctx_forward(ctx, 0, 0, &s);
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  int64_t to[SHOAL_MAX_RANK], from[SHOAL_MAX_RANK];
  strides_of(x->rank, x->dims, from);
  strides_of(y->rank, y->dims, to);
  struct strided v = {0};
  for (int i = 0; i < y->rank; i++) strided_add(&v, y->dims[i], to[i], from[perm[i]]);
  if (y->n) TRY(ctx_copy_view(ctx, &v, y, 0, x, 0));
  if (conj) conjugate(y);
  return NULL;
}

static shoal_status transpose_run(struct kernel_ctx *ctx) { return transpose(ctx, false); }
static shoal_status conj_transpose_run(struct kernel_ctx *ctx) { return transpose(ctx, true); }

static shoal_status transpose_shape(struct shape_ctx *c) {
  const struct shape *x = &c->in[0];
  const struct tensor *p = c->values[1];
  if (x->rank < 0) {
    int64_t n = c->in[1].rank == 1 ? c->in[1].dims[0] : -1;
    if (n >= 0 && n <= SHOAL_MAX_RANK) c->out[0] = shape_unknown_of_rank((int)n);
    return NULL;
  }
  c->out[0] = shape_unknown_of_rank(x->rank);
  if (!p) return NULL;
  int perm[SHOAL_MAX_RANK];
  TRY(permutation(p, x->rank, perm));
  for (int i = 0; i < x->rank; i++) c->out[0].dims[i] = x->dims[perm[i]];
  return NULL;
}

static shoal_status transpose_grad(struct grad_ctx *c) {
  shoal_out back = build_op1(c->g, "InvertPermutation", gin(c, 1));
  grad_set(c, 0, build_op2(c->g, c->node->op->name, grad_dy(c, 0), back));
  return NULL;
}

KERNELS_ANYWHERE(transpose_kernels, 2, .run = transpose_run);
static const struct kernel_def conj_transpose_kernels[] = {{.device = "CPU", .run = conj_transpose_run, .host_in = 2},
                                                           {0}};

/* ---- InvertPermutation ---- */

static shoal_status invert_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank != 1) return INVALID("invert_permutation expects a 1D vector.");
  if (x->n > INT32_MAX) return INVALID("permutation of nonnegative int32s must have <= int32 max elements");
  struct tensor *y;
  struct shape s = tensor_shape(x);
  TRY(ctx_out(ctx, 0, &s, &y));
  memset(y->data, 0xff, tensor_bytes(y));
  for (int64_t i = 0; i < x->n; i++) {
    int64_t d = int_at(x, i);
    if (d < 0 || d >= x->n) return INVALID("%" PRId64 " is not between 0 and %" PRId64, d, x->n);
    if (int_at(y, d) != -1) return INVALID("%" PRId64 " is duplicated in the input.", d);
    int_put(y, d, i);
  }
  return NULL;
}

static shoal_status invert_shape(struct shape_ctx *c) { return shape_in_rank(c, 0, 1, &c->out[0]); }

static const struct kernel_def invert_kernels[] = {
    {.device = "CPU", .flags = KERNEL_CHEAP | KERNEL_ANYWHERE, .run = invert_run, .host_in = 1, .host_out = 1}, {0}};

static const struct op_row rows[] = {
    {.name = "Reshape",
     .in = "tensor: T, shape: Tshape",
     .out = "output: T",
     .attrs = "T: type; Tshape: {int32, int64} = int32",
     .shape = reshape_shape,
     .grad = reshape_grad,
     .kernels = reshape_kernels},
    {.name = "ExpandDims",
     .in = "input: T, dim: Tdim",
     .out = "output: T",
     .attrs = "T: type; Tdim: {int32, int64} = int32",
     .shape = expand_shape,
     .grad = reshape_grad,
     .kernels = expand_kernels},
    {.name = "Squeeze",
     .in = "input: T",
     .out = "output: T",
     .attrs = "T: type; squeeze_dims: list(int) >= 0 = []",
     .shape = squeeze_shape,
     .grad = reshape_grad,
     .kernels = squeeze_kernels},
    {.name = "Transpose",
     .in = "x: T, perm: Tperm",
     .out = "y: T",
     .attrs = "T: type; Tperm: {int32, int64} = int32",
     .shape = transpose_shape,
     .grad = transpose_grad,
     .kernels = transpose_kernels},
    {.name = "ConjugateTranspose",
     .in = "x: T, perm: Tperm",
     .out = "y: T",
     .attrs = "T: type; Tperm: {int32, int64} = int32",
     .shape = transpose_shape,
     .grad = transpose_grad,
     .kernels = conj_transpose_kernels},
    {.name = "InvertPermutation",
     .in = "x: T",
     .out = "y: T",
     .attrs = "T: {int32, int64} = int32",
     .flags = OP_NO_GRADIENT,
     .shape = invert_shape,
     .kernels = invert_kernels},
};
OP_FAMILY(reshape, rows);
