/* Fourier transforms over the last one, two or three dimensions, of complex tensors and of real ones (which keep half
 * of the last dimension, the rest following by symmetry). */
#include <math.h>
#include <string.h>

#include "ops/signal/fft_plan.h"
#include "ops/nn/nn_util.h"

struct fft_state {
  int rank;
  bool inverse, real;
};

static struct fft_state kind_of(const char *op) {
  struct fft_state st = {.inverse = op[0] == 'I'};
  op += st.inverse;
  st.real = op[0] == 'R';
  op += st.real + 3;
  st.rank = *op ? *op - '0' : 1;
  return st;
}

static shoal_status fft_init(struct kernel_init *ki, void *state) {
  *(struct fft_state *)state = kind_of(ki->node->op->name);
  return NULL;
}

/* A batch of arrays in double: [batch, d0, d1, d2], of which the transforms run over the last `rank`. */
struct fft {
  c128 *x;
  int64_t dims[3]; /* unused first ones are 1 */
  int axis;        /* being transformed */
  bool inverse;
  struct fft_plan plan;
};

/* Lines along one axis; a line that is not contiguous is copied out and back. */
static void run_lines(void *arg, int64_t begin, int64_t end) {
  const struct fft *f = arg;
  int64_t n = f->dims[f->axis], stride = dims_product(f->dims, f->axis + 1, 3);
  struct buffer *b;
  shoal_status s = buffer_new((size_t)(fft_scratch(&f->plan) + n) * sizeof(c128), &b);
  MUST(!s); /* some lines' worth of a tensor that is in memory */
  c128 *line = b->data, *scratch = line + n;
  for (int64_t u = begin; u < end; u++) {
    c128 *at = f->x + u / stride * stride * n + u % stride;
    if (stride == 1) {
      fft_run(&f->plan, at, f->inverse, scratch);
      continue;
    }
    for (int64_t i = 0; i < n; i++) line[i] = at[i * stride];
    fft_run(&f->plan, line, f->inverse, scratch);
    for (int64_t i = 0; i < n; i++) at[i * stride] = line[i];
  }
  buffer_unref(b);
}

static shoal_status run_axis(struct pool *pool, struct fft *f, int axis, int64_t elements) {
  int64_t n = f->dims[axis];
  if (n <= 1 || !elements) return NULL;
  f->axis = axis;
  TRY(fft_plan_init(&f->plan, n));
  pool_for(pool, elements / n, nn_grain(n * 8), run_lines, f);
  fft_plan_release(&f->plan);
  return NULL;
}

static c128 load(const struct tensor *t, int64_t i) {
  switch ((shoal_dtype)t->dtype) {
    case SHOAL_FLOAT32: return (c128)T_DATA(t, const float)[i];
    case SHOAL_FLOAT64: return (c128)T_DATA(t, const double)[i];
    case SHOAL_COMPLEX64: return (c128)T_DATA(t, const c64)[i];
    default: return T_DATA(t, const c128)[i];
  }
}
static void store(struct tensor *t, int64_t i, c128 v) {
  switch ((shoal_dtype)t->dtype) {
    case SHOAL_FLOAT32: T_DATA(t, float)[i] = (float)__real__ v; break;
    case SHOAL_FLOAT64: T_DATA(t, double)[i] = __real__ v; break;
    case SHOAL_COMPLEX64: T_DATA(t, c64)[i] = (c64)v; break;
    default: T_DATA(t, c128)[i] = v;
  }
}

/* Copies the corner [keep] of each of the batch's arrays of dims [have] into arrays of dims [want], zeros around. */
static void load_corner(const struct tensor *x, int64_t batch, const int64_t *have, const int64_t *keep,
                        const int64_t *want, c128 *to) {
  for (int64_t n = 0; n < batch; n++)
    for (int64_t a = 0; a < want[0]; a++)
      for (int64_t b = 0; b < want[1]; b++)
        for (int64_t c = 0; c < want[2]; c++) {
          bool inside = a < keep[0] && b < keep[1] && c < keep[2];
          *to++ = inside ? load(x, ((n * have[0] + a) * have[1] + b) * have[2] + c) : 0;
        }
}

/* The lengths of a transform of real data, checked against the input as TensorFlow does. */
static shoal_status real_lengths(const struct kernel_ctx *ctx, const struct fft_state *st, const struct tensor *x,
                                 int64_t *lengths) {
  const struct tensor *given = ctx_in(ctx, 1);
  if (given->rank != 1 || given->n != st->rank) return INVALID("fft_length must have shape [%d]", st->rank);
  for (int i = 0; i < st->rank; i++) {
    int64_t length = int_at(given, i);
    int at = x->rank - st->rank + i;
    if (length < 0) return INVALID("fft_length[%d] must >= 0, but got: %" PRId64, i, length);
    int64_t need = st->inverse && i == st->rank - 1 && length ? length / 2 + 1 : length;
    if (x->dims[at] && x->dims[at] < need)
      return INVALID("Input dimension %d must have length of at least %" PRId64 " but got: %" PRId64, at, need,
                     x->dims[at]);
    lengths[3 - st->rank + i] = length;
  }
  return NULL;
}

static shoal_status fft_kernel(struct kernel_ctx *ctx) {
  const struct fft_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  if (x->rank < st->rank)
    return INVALID("Input must have rank of at least %d but got: %s", st->rank, tensor_shape_str(x));
  struct fft f = {.dims = {1, 1, 1}, .inverse = st->inverse};
  int64_t have[3] = {1, 1, 1};
  for (int i = 0; i < st->rank; i++)
    have[3 - st->rank + i] = f.dims[3 - st->rank + i] = x->dims[x->rank - st->rank + i];
  if (st->real) TRY(real_lengths(ctx, st, x, f.dims));
  int64_t half = f.dims[2] ? f.dims[2] / 2 + 1 : 0, keep[3] = {f.dims[0], f.dims[1], f.dims[2]};
  struct shape s = tensor_shape(x);
  for (int i = 0; i < st->rank; i++) s.dims[s.rank - st->rank + i] = f.dims[3 - st->rank + i];
  if (st->real && !st->inverse) s.dims[s.rank - 1] = half;
  if (st->real && st->inverse) keep[2] = half;
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  if (!x->n) {
    tensor_zero(y);
    return NULL;
  }
  int64_t batch = dims_product(x->dims, 0, x->rank - st->rank), length = dims_product(f.dims, 0, 3), bytes;
  if (mul_overflows(batch * length, (int64_t)sizeof(c128), &bytes)) return INVALID("fft_length is too large");
  struct buffer *work;
  TRY(buffer_new((size_t)bytes, &work));
  f.x = work->data;
  load_corner(x, batch, have, keep, f.dims, f.x);
  shoal_status bad = NULL;
  for (int axis = 3 - st->rank; axis < 3 && !bad; axis++) {
    if (axis == 2 && st->real && st->inverse) /* the second half of each line mirrors the first */
      for (int64_t line = 0; line < batch * f.dims[0] * f.dims[1]; line++) {
        c128 *at = f.x + line * f.dims[2];
        for (int64_t i = half; i < f.dims[2]; i++) {
          at[i] = at[f.dims[2] - i];
          __imag__ at[i] = -__imag__ at[i];
        }
      }
    bad = run_axis(ctx_pool(ctx), &f, axis, batch * length);
  }
  double scale = st->inverse ? 1.0 / (double)length : 1;
  int64_t row = s.dims[s.rank - 1];
  for (int64_t i = 0; !bad && i < y->n; i++) store(y, i, f.x[i / row * f.dims[2] + i % row] * scale);
  buffer_unref(work);
  return bad;
}

static const struct kernel_def complex_kernels[] = {{.device = "CPU",
                                                     .type_attr = "Tcomplex",
                                                     .types = DT_COMPLEX,
                                                     .state_size = sizeof(struct fft_state),
                                                     .init = fft_init,
                                                     .run = fft_kernel},
                                                    {0}};
static const struct kernel_def real_kernels[] = {{.device = "CPU",
                                                  .type_attr = "Tcomplex",
                                                  .types = DT_COMPLEX,
                                                  .type_attr2 = "Treal",
                                                  .types2 = DT(FLOAT32) | DT(FLOAT64),
                                                  .state_size = sizeof(struct fft_state),
                                                  .init = fft_init,
                                                  .run = fft_kernel},
                                                 {0}};

/* ---- shapes ---- */

static shoal_status complex_shape(struct shape_ctx *c) {
  struct fft_state st = kind_of(c->node->op->name);
  return shape_in_rank_at_least(c, 0, st.rank, &c->out[0]);
}

static shoal_status real_shape(struct shape_ctx *c) {
  struct fft_state st = kind_of(c->node->op->name);
  struct shape x;
  TRY(shape_in_rank_at_least(c, 0, st.rank, &x));
  if (x.rank < 0) return NULL;
  const struct tensor *given = c->values[1];
  if (given && (given->rank != 1 || given->n != st.rank)) return INVALID("fft_length must have shape [%d]", st.rank);
  for (int i = 0; i < st.rank; i++) {
    int64_t length = given ? int_at(given, i) : -1;
    if (length > 0 && !st.inverse && i == st.rank - 1) length = length / 2 + 1;
    x.dims[x.rank - st.rank + i] = MAX(length, -1);
  }
  c->out[0] = x;
  return NULL;
}

/* ---- gradients ---- */

/* The number of elements each transform runs over, as a scalar of x's type (complex or real). */
static shoal_out size_of(struct shoal_graph *g, shoal_out x, int rank, shoal_dtype type) {
  shoal_out last = array_part(g, array_shape(g, x, SHOAL_INT32), -rank, INT32_MAX);
  return build_cast(g, build_op2(g, "Prod", last, build_const_int(g, SHOAL_INT32, 0)), type);
}

/* The adjoint of a transform is the inverse times n, and the other way round. */
static shoal_status complex_grad(struct grad_ctx *c) {
  static const char *const names[2][3] = {{"FFT", "FFT2D", "FFT3D"}, {"IFFT", "IFFT2D", "IFFT3D"}};
  struct fft_state st = kind_of(c->node->op->name);
  shoal_out dy = grad_dy(c, 0), back = build_op1(c->g, names[!st.inverse][st.rank - 1], dy);
  shoal_out n = size_of(c->g, dy, st.rank, out_type(dy));
  grad_set(c, 0, build_op2(c->g, st.inverse ? "Div" : "Mul", back, n));
  return NULL;
}

/* The half that was kept, with zeros in place of the rest, transformed back; its real part. */
static shoal_status rfft_grad(struct grad_ctx *c) {
  static const char *const names[3] = {"IFFT", "IFFT2D", "IFFT3D"};
  struct shoal_graph *g = c->g;
  struct fft_state st = kind_of(c->node->op->name);
  shoal_out dy = grad_dy(c, 0), length = gin(c, 1), shape = array_shape(g, dy, SHOAL_INT32);
  shoal_out missing = build_op2(g, "Sub", array_part(g, length, -1, INT32_MAX), array_part(g, shape, -1, INT32_MAX));
  shoal_out dims[2] = {array_part(g, shape, 0, -1), missing};
  shoal_out zero = build_cast(g, build_const_float(g, SHOAL_FLOAT32, 0), out_type(dy));
  shoal_out zeros = build_op2(g, "Fill", array_concat(g, dims, 2, 0), zero), parts[2] = {dy, zeros};
  shoal_out back = build_op1(g, names[st.rank - 1], array_concat(g, parts, 2, -1));
  struct build real = build_begin(g, "Real", NULL);
  build_in(&real, back);
  build_attr_type(&real, "Tout", out_type(gin(c, 0)));
  shoal_out n = build_cast(g, build_op2(g, "Prod", length, build_const_int(g, SHOAL_INT32, 0)), out_type(gin(c, 0)));
  grad_set(c, 0, build_op2(g, "Mul", build_end_out(&real), n));
  return NULL;
}

/* The transform of the gradient over n; frequencies that stand for two count twice. */
static shoal_status irfft_grad(struct grad_ctx *c) {
  static const char *const names[3] = {"RFFT", "RFFT2D", "RFFT3D"};
  struct shoal_graph *g = c->g;
  struct fft_state st = kind_of(c->node->op->name);
  shoal_out dy = grad_dy(c, 0), length = gin(c, 1), x = gin(c, 0);
  shoal_dtype type = out_type(x), real = out_type(dy);
  struct build n = build_begin(g, names[st.rank - 1], NULL);
  build_in(&n, dy);
  build_in(&n, length);
  build_attr_type(&n, "Tcomplex", type);
  shoal_out forward = build_end_out(&n), zero = build_const_int(g, SHOAL_INT32, 0),
            one = build_const_int(g, SHOAL_INT32, 1);
  shoal_out k = build_op3(g, "Range", zero, array_at(g, array_shape(g, x, SHOAL_INT32), -1), one);
  shoal_out twice = build_op2(g, "Mul", k, build_const_int(g, SHOAL_INT32, 2));
  shoal_out alone =
      build_op2(g, "LogicalOr", build_op2(g, "Equal", k, zero), build_op2(g, "Equal", twice, array_at(g, length, -1)));
  shoal_out weight = build_op3(g, "SelectV2", alone, build_const_float(g, real, 1), build_const_float(g, real, 2));
  shoal_out scale = build_op2(g, "RealDiv", weight, size_of(g, dy, st.rank, real));
  grad_set(c, 0, build_op2(g, "Mul", forward, build_cast(g, scale, type)));
  return NULL;
}

static const struct op_row rows[] = {
    {"FFT", .in = "input: Tcomplex", .out = "output: Tcomplex",
     .attrs = "Tcomplex: {complex64, complex128} = complex64", .shape = complex_shape, .grad = complex_grad,
     .kernels = complex_kernels},
    {"IFFT", .in = "input: Tcomplex", .out = "output: Tcomplex",
     .attrs = "Tcomplex: {complex64, complex128} = complex64", .shape = complex_shape, .grad = complex_grad,
     .kernels = complex_kernels},
    {"FFT2D", .in = "input: Tcomplex", .out = "output: Tcomplex",
     .attrs = "Tcomplex: {complex64, complex128} = complex64", .shape = complex_shape, .grad = complex_grad,
     .kernels = complex_kernels},
    {"IFFT2D", .in = "input: Tcomplex", .out = "output: Tcomplex",
     .attrs = "Tcomplex: {complex64, complex128} = complex64", .shape = complex_shape, .grad = complex_grad,
     .kernels = complex_kernels},
    {"FFT3D", .in = "input: Tcomplex", .out = "output: Tcomplex",
     .attrs = "Tcomplex: {complex64, complex128} = complex64", .shape = complex_shape, .grad = complex_grad,
     .kernels = complex_kernels},
    {"IFFT3D", .in = "input: Tcomplex", .out = "output: Tcomplex",
     .attrs = "Tcomplex: {complex64, complex128} = complex64", .shape = complex_shape, .grad = complex_grad,
     .kernels = complex_kernels},
    {"RFFT", .in = "input: Treal, fft_length: int32", .out = "output: Tcomplex",
     .attrs = "Treal: {float, double} = float; Tcomplex: {complex64, complex128} = complex64", .shape = real_shape,
     .grad = rfft_grad, .kernels = real_kernels},
    {"RFFT2D", .in = "input: Treal, fft_length: int32", .out = "output: Tcomplex",
     .attrs = "Treal: {float, double} = float; Tcomplex: {complex64, complex128} = complex64", .shape = real_shape,
     .grad = rfft_grad, .kernels = real_kernels},
    {"RFFT3D", .in = "input: Treal, fft_length: int32", .out = "output: Tcomplex",
     .attrs = "Treal: {float, double} = float; Tcomplex: {complex64, complex128} = complex64", .shape = real_shape,
     .grad = rfft_grad, .kernels = real_kernels},
    {"IRFFT", .in = "input: Tcomplex, fft_length: int32", .out = "output: Treal",
     .attrs = "Treal: {float, double} = float; Tcomplex: {complex64, complex128} = complex64", .shape = real_shape,
     .grad = irfft_grad, .kernels = real_kernels},
    {"IRFFT2D", .in = "input: Tcomplex, fft_length: int32", .out = "output: Treal",
     .attrs = "Treal: {float, double} = float; Tcomplex: {complex64, complex128} = complex64", .shape = real_shape,
     .grad = irfft_grad, .kernels = real_kernels},
    {"IRFFT3D", .in = "input: Tcomplex, fft_length: int32", .out = "output: Treal",
     .attrs = "Treal: {float, double} = float; Tcomplex: {complex64, complex128} = complex64", .shape = real_shape,
     .grad = irfft_grad, .kernels = real_kernels},
};
OP_FAMILY(fft, rows);
