/* _BiasReluPool and _BiasReluPoolGrad, made by the rewrite fuse_pool for devices that have kernels of their own for
 * them (device/cuda/kernels_relu_pool.c). The kernels here say what they compute, in plain loops; the soft device
 * borrows them.
 *
 *   _BiasReluPool:     the largest of each window of Relu(x + bias), and where it is: its place in the window, line by
 *                      line, or RELU_POOL_NONE where it is not above zero. Windows stand side by side.
 *   _BiasReluPoolGrad: the gradient of x (height by width) from that and the result's, and its sums over all pixels,
 *                      which are the bias'
 *
 * Of equal numbers the first is taken, as by MaxPoolGrad. What lies between is in no memory at all, and what the way
 * back needs is a byte for each window. */
#include "ops/nn/relu_pool.h"

#include <string.h>

shoal_status relu_pool_init(struct relu_pool_state *st, const struct shoal_node *n) {
  struct window *w = &st->w;
  bool apart = true;
  TRY(window_init(w, n, 2));
  for (int d = 1; d < 3; d++) apart = apart && w->size[d] == w->stride[d];
  if (!apart || w->channels_first || w->size_batch != 1 || w->size_depth != 1 || w->stride_batch != 1 ||
      w->stride_depth != 1 || w->padding == PADDING_EXPLICIT || w->size[1] > RELU_POOL_NONE ||
      w->size[2] > RELU_POOL_NONE || w->size[1] * w->size[2] > RELU_POOL_NONE)
    return UNIMPLEMENTED("%s: windows that are not side by side, or too large", n->name);
  if (!node_attr(n, "height")) return NULL;
  TRY(node_get_int(n, "height", &st->height));
  return node_get_int(n, "width", &st->width);
}

static shoal_status check_bias(const struct tensor *bias, int64_t depth, const struct tensor *x) {
  if (bias->rank == 1 && bias->dims[0] == depth) return NULL;
  return INVALID("Must provide as many biases as the last dimension of the input tensor: %s vs. %s",
                 tensor_shape_str(bias), tensor_shape_str(x));
}

shoal_status relu_pool_begin(struct kernel_ctx *ctx, const struct relu_pool_state *st, struct relu_pool *out) {
  struct relu_pool k = {.x = ctx_in(ctx, 0), .bias = ctx_in(ctx, 1)};
  struct shape x = tensor_shape(k.x);
  TRY(pool_geometry(&st->w, &x, "tensor_in", &k.p));
  TRY(check_bias(k.bias, k.p.depth, k.x));
  struct shape y = window_shape(&st->w, k.p.batch, k.p.out, k.p.depth);
  TRY(ctx_out(ctx, 0, &y, &k.y));
  TRY(ctx_out(ctx, 1, &y, &k.where));
  *out = k;
  return NULL;
}

shoal_status relu_pool_grad_begin(struct kernel_ctx *ctx, const struct relu_pool_state *st, struct relu_pool *out) {
  struct relu_pool k = {.taken = ctx_in(ctx, 0), .dy = ctx_in(ctx, 1)};
  if (k.dy->rank != 4) return INVALID("out_backprop must be 4-dimensional");
  struct shape x = {.rank = 4, .dims = {k.dy->dims[0], st->height, st->width, k.dy->dims[3]}};
  TRY(pool_geometry(&st->w, &x, "tensor_in", &k.p));
  struct shape y = window_shape(&st->w, k.p.batch, k.p.out, k.p.depth);
  TRY(pool_check_shape(k.dy, &y, "grad"));
  TRY(pool_check_shape(k.taken, &y, "where"));
  TRY(ctx_out(ctx, 0, &x, &k.dx));
  TRY(ctx_out_dims(ctx, 1, 1, &k.p.depth, &k.sums));
  *out = k;
  return NULL;
}

/* ---- the host's kernels ---- */

/* The first element under a window, padding counted: what is outside is not looked at. */
static int64_t first_under(const struct pooling *p, int d, int64_t o) { return o * p->stride[d] - p->pad[d]; }

static int64_t element(const struct pooling *p, int64_t image, int64_t a, int64_t b, int64_t channel) {
  return ((image * p->in[1] + a) * p->in[2] + b) * p->depth + channel;
}

/* Window i, counted as the result's elements are. */
struct pool_window {
  int64_t image, at[3], channel;
};
static struct pool_window window_of(const struct pooling *p, int64_t i) {
  struct pool_window w = {.channel = i % p->depth};
  i /= p->depth;
  w.at[2] = i % p->out[2];
  w.at[1] = i / p->out[2] % p->out[1];
  w.image = i / p->out[2] / p->out[1];
  return w;
}

#define T float
#define C float
#define LOAD LOAD_float
#define STORE STORE_float
#define NAME(x) x##_float
#include "ops/nn/relu_pool_loops.inc"
#define T double
#define C double
#define LOAD LOAD_double
#define STORE STORE_double
#define NAME(x) x##_double
#include "ops/nn/relu_pool_loops.inc"
#define T f16
#define C float
#define LOAD LOAD_f16
#define STORE STORE_f16
#define NAME(x) x##_f16
#include "ops/nn/relu_pool_loops.inc"
#define T bf16
#define C float
#define LOAD LOAD_bf16
#define STORE STORE_bf16
#define NAME(x) x##_bf16
#include "ops/nn/relu_pool_loops.inc"

#define FORWARD(id, type, C) \
  case id:                   \
    forward_##type(&k);      \
    break;
#define BACK(id, type, C) \
  case id: back_##type(&k, sums->data); break;

static shoal_status state_init(struct kernel_init *ki, void *state) { return relu_pool_init(state, ki->node); }

static shoal_status forward_run(struct kernel_ctx *ctx) {
  struct relu_pool k;
  TRY(relu_pool_begin(ctx, ctx->state, &k));
  switch ((shoal_dtype)k.x->dtype) {
    NN_FLOATING(FORWARD)
    default: break;
  }
  return NULL;
}

static shoal_status back_run(struct kernel_ctx *ctx) {
  struct relu_pool k;
  struct buffer *sums;
  TRY(relu_pool_grad_begin(ctx, ctx->state, &k));
  size_t size = (size_t)k.p.depth * sizeof(double);
  TRY(buffer_new(size + 1, &sums));
  memset(sums->data, 0, size);
  memset(k.dx->data, 0, tensor_bytes(k.dx));
  switch ((shoal_dtype)k.dy->dtype) {
    NN_FLOATING(BACK)
    default: break;
  }
  buffer_unref(sums);
  return NULL;
}

/* ---- shapes ---- */

static shoal_status forward_shape(struct shape_ctx *c) {
  struct relu_pool_state st = {.height = 0};
  struct shape x;
  int64_t out[3] = {1, 1, 1}, before, after;
  TRY(relu_pool_init(&st, c->node));
  TRY(shape_in_rank(c, 0, 4, &x));
  for (int d = 1; d < 3; d++) TRY(window_out(&st.w, d, x.dims[d], st.w.size[d], &out[d], &before, &after));
  c->out[0] = c->out[1] = window_shape(&st.w, x.dims[0], out, x.dims[3]);
  return NULL;
}

static shoal_status back_shape(struct shape_ctx *c) {
  struct relu_pool_state st = {.height = 0};
  struct shape y;
  TRY(relu_pool_init(&st, c->node));
  TRY(shape_in_rank(c, 1, 4, &y));
  c->out[0] = (struct shape){.rank = 4, .dims = {y.dims[0], st.height, st.width, y.dims[3]}};
  c->out[1] = shape_vector(y.dims[3]);
  return NULL;
}

#define KERNELS(name, run_)                                                               \
  static const struct kernel_def name[] = {{.device = "CPU",                              \
                                            .type_attr = "T",                             \
                                            .types = DT_FLOATING,                         \
                                            .state_size = sizeof(struct relu_pool_state), \
                                            .init = state_init,                           \
                                            .run = run_},                                 \
                                           {0}}
KERNELS(forward_kernels, forward_run);
KERNELS(back_kernels, back_run);

#define WINDOWS                                                                                                      \
  "T: {half, bfloat16, float, double}; ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; " \
  "data_format: {'NHWC'} = 'NHWC'"

static const struct op_row rows[] = {
    {"_BiasReluPool", .flags = OP_OWN, .in = "x: T, bias: T", .out = "y: T, where: uint8", .attrs = WINDOWS,
     .shape = forward_shape, .kernels = forward_kernels},
    {"_BiasReluPoolGrad", .flags = OP_OWN, .in = "where: uint8, dy: T", .out = "dx: T, sums: T",
     .attrs = WINDOWS "; height: int; width: int", .shape = back_shape, .kernels = back_kernels},
};
OP_FAMILY(relu_pool, rows);
