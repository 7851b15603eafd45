/* BiasAdd and the gradient of its bias. A tensor is seen as [outer, channels, inner]: inner is 1 in NHWC, the
 * image in NCHW. Sums for the gradient run over fixed pieces of rows, which are then added in order. */
#include <string.h>

#include "base/vector.h"
#include "ops/nn/nn_util.h"

struct bias_state {
  bool nchw;
};

static shoal_status bias_init(struct kernel_init *ki, void *state) {
  struct bias_state *st = state;
  if (!node_attr(ki->node, "data_format")) return NULL; /* BiasAddV1 */
  const char *format;
  TRY(node_get_string(ki->node, "data_format", &format));
  st->nchw = !strcmp(format, "NCHW");
  return NULL;
}

static void view(const struct tensor *t, bool nchw, int64_t *outer, int64_t *channels, int64_t *inner) {
  int at = nchw ? 1 : t->rank - 1;
  *outer = dims_product(t->dims, 0, at);
  *channels = t->dims[at];
  *inner = dims_product(t->dims, at + 1, t->rank);
}

/* ---- loops ---- */

struct bias_add {
  const void *x, *bias;
  void *y;
  int64_t channels, inner;
};

struct bias_sum {
  const void *dy;
  char *partial;                 /* [pieces][channels] sums */
  int64_t channels, inner, rows; /* rows of a piece */
};

#define LOOPS "ops/nn/bias_loops.inc"
#include "tensor/each_floating.inc"
#include "tensor/each_integer.inc"
#include "tensor/each_complex.inc"
#undef LOOPS

static const struct {
  void (*add)(void *arg, int64_t begin, int64_t end);
  void (*sum)(void *arg, int64_t begin, int64_t end);
  void (*join)(const struct bias_sum *s, int64_t pieces, void *out);
} loops[DTYPE_COUNT] = {
#define ENTRY(E, T, C) [E] = {add_##E, sum_##E, join_##E},
    NN_FLOATING(ENTRY) NN_INTEGERS(ENTRY) ENTRY(SHOAL_COMPLEX64, , ) ENTRY(SHOAL_COMPLEX128, , )};

/* ---- kernels ---- */

static shoal_status bias_run(struct kernel_ctx *ctx) {
  const struct bias_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *bias = ctx_in(ctx, 1);
  if (x->rank < 2) return INVALID("Input tensor must be at least 2D: %s", tensor_shape_str(x));
  if (bias->rank != 1) return INVALID("Biases must be 1D: %s", tensor_shape_str(bias));
  int64_t outer;
  struct bias_add a = {.bias = bias->data};
  view(x, st->nchw, &outer, &a.channels, &a.inner);
  if (bias->dims[0] != a.channels)
    return INVALID("Must provide as many biases as the last dimension of the input tensor: %s vs. %s",
                   tensor_shape_str(bias), tensor_shape_str(x));
  struct tensor *y;
  TRY(ctx_out_like(ctx, 0, 0, &y));
  x = ctx_in(ctx, 0);
  a.x = x->data;
  a.y = y->data;
  if (!y->n) return NULL;
  pool_for(ctx_pool(ctx), outer, nn_grain(a.channels * a.inner), loops[ctx_in_type(ctx, 0)].add, &a);
  return NULL;
}

static shoal_status bias_grad_run(struct kernel_ctx *ctx) {
  const struct bias_state *st = ctx->state;
  const struct tensor *dy = ctx_in(ctx, 0);
  if (dy->rank < 2) return INVALID("Input tensor must be at least 2D: %s", tensor_shape_str(dy));
  int64_t outer;
  struct bias_sum s = {.dy = dy->data};
  view(dy, st->nchw, &outer, &s.channels, &s.inner);
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 1, &s.channels, &out));
  if (!dy->n) {
    tensor_zero(out);
    return NULL;
  }
  s.rows = nn_grain(s.channels * s.inner);
  int64_t pieces = (outer + s.rows - 1) / s.rows;
  struct buffer *b;
  TRY(buffer_new((size_t)(pieces * s.channels) * 16, &b));
  s.partial = b->data;
  shoal_dtype type = ctx_in_type(ctx, 0);
  pool_for_pieces(ctx_pool(ctx), outer, s.rows, loops[type].sum, &s);
  loops[type].join(&s, pieces, out->data);
  buffer_unref(b);
  return NULL;
}

static const struct kernel_def bias_kernels[] = {{.device = "CPU",
                                                  .type_attr = "T",
                                                  .types = DT_NUMBER,
                                                  .state_size = sizeof(struct bias_state),
                                                  .init = bias_init,
                                                  .run = bias_run},
                                                 {0}};
static const struct kernel_def bias_grad_kernels[] = {{.device = "CPU",
                                                       .type_attr = "T",
                                                       .types = DT_NUMBER,
                                                       .state_size = sizeof(struct bias_state),
                                                       .init = bias_init,
                                                       .run = bias_grad_run},
                                                      {0}};

/* ---- shapes ---- */

static shoal_status bias_shape(struct shape_ctx *c) {
  struct shape x, bias;
  TRY(shape_in_rank_at_least(c, 0, 2, &x));
  TRY(shape_in_rank(c, 1, 1, &bias));
  if (x.rank >= 0) {
    const struct attr *format = node_attr(c->node, "data_format");
    int at = format && format->kind == ATTR_STRING && !strcmp(format->s.data, "NCHW") ? 1 : x.rank - 1;
    TRY(nn_same_dim(c, x.dims[at], bias.dims[0]));
    if (x.dims[at] < 0) x.dims[at] = bias.dims[0];
  }
  c->out[0] = x;
  return NULL;
}

static shoal_status bias_grad_shape(struct shape_ctx *c) {
  struct shape x;
  TRY(shape_in_rank_at_least(c, 0, 2, &x));
  const char *format;
  TRY(node_get_string(c->node, "data_format", &format));
  c->out[0] = shape_vector(x.rank < 0 ? -1 : x.dims[!strcmp(format, "NCHW") ? 1 : x.rank - 1]);
  return NULL;
}

/* ---- gradients ---- */

static shoal_status bias_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  const char *format;
  TRY(node_get_string(c->node, "data_format", &format));
  grad_set(c, 0, dy);
  struct build n = build_begin(c->g, "BiasAddGrad", NULL);
  build_in(&n, dy);
  build_attr_string(&n, "data_format", format);
  grad_set(c, 1, build_end_out(&n));
  return NULL;
}

static shoal_status bias_v1_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0);
  grad_set(c, 0, dy);
  grad_set(c, 1, build_op1(c->g, "BiasAddGrad", dy));
  return NULL;
}

/* The bias's gradient spread over the shape it was summed from. */
static shoal_status bias_grad_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out dy = grad_dy(c, 0), x = gin(c, 0), zero = array_zeros_like(g, x);
  const char *format;
  TRY(node_get_string(c->node, "data_format", &format));
  struct build n = build_begin(g, "BiasAdd", NULL);
  build_in(&n, zero);
  build_in(&n, dy);
  build_attr_string(&n, "data_format", format);
  grad_set(c, 0, build_end_out(&n));
  return NULL;
}

static const struct op_row rows[] = {
    {"BiasAdd", .in = "value: T, bias: T", .out = "output: T",
     .attrs = "T: numbertype; data_format: {'NHWC', 'NCHW'} = 'NHWC'", .shape = bias_shape, .grad = bias_grad,
     .kernels = bias_kernels},
    {"BiasAddV1", .in = "value: T, bias: T", .out = "output: T", .attrs = "T: numbertype", .shape = bias_shape,
     .grad = bias_v1_grad, .kernels = bias_kernels},
    {"BiasAddGrad", .in = "out_backprop: T", .out = "output: T",
     .attrs = "T: numbertype; data_format: {'NHWC', 'NCHW'} = 'NHWC'", .shape = bias_grad_shape, .grad = bias_grad_grad,
     .kernels = bias_grad_kernels},
};
OP_FAMILY(bias, rows);
