/* Depthwise convolution: each channel of the image has filters of its own, so there is no matrix to multiply;
 * the loops run along channels, which lie contiguous. Half and bfloat16 tensors are converted to float whole.
 * The filter's gradient is summed over at most MAX_PIECES fixed pieces of the rows, added in order. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "math/gemm.h"
#include "ops/nn/window.h"

enum depth_kind { FORWARD, BACK_INPUT, BACK_FILTER };
enum { MAX_PIECES = 16 };

struct depth_state {
  struct window w;
  enum depth_kind kind;
  bool fused;
  enum gemm_act act;
  float alpha;
};

static shoal_status depth_init(struct kernel_init *ki, void *state) {
  struct depth_state *st = state;
  const char *name = ki->node->op->name;
  st->kind = strstr(name, "BackpropInput") ? BACK_INPUT : strstr(name, "BackpropFilter") ? BACK_FILTER : FORWARD;
  return window_init(&st->w, ki->node, 2);
}

static shoal_status fused_init(struct kernel_init *ki, void *state) {
  struct depth_state *st = state;
  TRY(depth_init(ki, state));
  st->fused = true;
  const struct attr *list;
  int64_t args;
  TRY(node_get_list(ki->node, "fused_ops", ATTR_STRING, &list));
  TRY(node_get_float(ki->node, "leakyrelu_alpha", &st->alpha));
  TRY(node_get_int(ki->node, "num_args", &args));
  bool good = list->list.n >= 1 && list->list.n <= 2 && !strcmp(list->list.at[0].s.data, "BiasAdd") && args == 1;
  if (good && list->list.n == 2) good = gemm_act_from_name(list->list.at[1].s.data, &st->act);
  if (!good) return UNIMPLEMENTED("Fusion is not implemented: fused_ops of %s", ki->node->name);
  return NULL;
}

/* Spatial dimensions 1 and 2 of struct window. All data channels last, in float or double. */
struct depth {
  int64_t batch, in[2], out[2], filter[2], stride[2], dilation[2], pad[2];
  int64_t ci, mult; /* channels, and results for each */
  const void *x, *f, *dy;
  void *result;
  char *partial; /* of the filter's gradient: [pieces][taps * ci * mult] */
  int64_t piece; /* rows of one */
};

#define T float
#define NAME(x) x##_float
#include "ops/nn/depthwise_loops.inc"
#define T double
#define NAME(x) x##_double
#include "ops/nn/depthwise_loops.inc"

/* ---- kernels ---- */

static shoal_status geometry(const struct kernel_ctx *ctx, const struct shape *x, const struct shape *f,
                             struct depth *p) {
  const struct depth_state *st = ctx->state;
  const struct window *w = &st->w;
  const char *op = ctx->kernel->op->name;
  if (x->rank != 4) return INVALID("%s: input must be 4-dimensional: %s", op, shape_str(x));
  if (f->rank != 4) return INVALID("%s: filter must be 4-dimensional: %s", op, shape_str(f));
  for (int i = 0; i < 4; i++)
    if (x->dims[i] < 0 || f->dims[i] < 0 || x->dims[i] > INT_MAX || f->dims[i] > INT_MAX)
      return INVALID("%s: input %s or filter %s is out of range", op, shape_str(x), shape_str(f));
  *p = (struct depth){.batch = x->dims[0], .ci = x->dims[window_depth_at(w)], .mult = f->dims[3]};
  if (p->ci != f->dims[2])
    return INVALID("input and filter must have the same depth: %" PRId64 " vs %" PRId64, p->ci, f->dims[2]);
  for (int d = 0; d < 2; d++) {
    int64_t after;
    p->stride[d] = w->stride[d + 1];
    p->dilation[d] = w->dilation[d + 1];
    p->in[d] = x->dims[window_at(w, d + 1)];
    p->filter[d] = f->dims[d];
    TRY(window_out(w, d + 1, p->in[d], p->filter[d], &p->out[d], &p->pad[d], &after));
  }
  return NULL;
}

/* A tensor as the loops want it: channels last, float or double. */
static shoal_status load(struct kernel_ctx *ctx, const struct tensor *t, bool image, struct tensor *out) {
  const struct depth_state *st = ctx->state;
  struct tensor last;
  if (image) TRY(window_channels_last(&st->w, ctx_pool(ctx), t, &last));
  else tensor_ref(&last, t);
  if (last.dtype == SHOAL_FLOAT32 || last.dtype == SHOAL_FLOAT64) {
    *out = last;
    return NULL;
  }
  struct shape s = tensor_shape(&last);
  shoal_status bad = tensor_new(out, SHOAL_FLOAT32, &s);
  if (!bad) nn_to_float((shoal_dtype)last.dtype, last.data, out->data, last.n);
  tensor_release(&last);
  return bad;
}

/* Room for a result of this channels-last shape. */
static shoal_status room(struct kernel_ctx *ctx, const struct shape *s, struct tensor *out) {
  return tensor_new(out, gemm_acc_type(ctx_out_type(ctx, 0)), s);
}

/* The result in the type and order of output 0. */
static shoal_status finish(struct kernel_ctx *ctx, struct tensor *work, const struct shape *shape, bool image) {
  const struct depth_state *st = ctx->state;
  struct tensor *out, narrow = {0};
  shoal_dtype type = ctx_out_type(ctx, 0);
  if (type != (shoal_dtype)work->dtype) {
    struct shape s = tensor_shape(work);
    TRY(tensor_new(&narrow, type, &s));
    nn_from_float(type, work->data, narrow.data, work->n);
    tensor_release(work);
    *work = narrow;
  }
  if (!image || !st->w.channels_first) {
    ctx_set(ctx, 0, work);
    *work = tensor_none();
    return NULL;
  }
  TRY(ctx_out(ctx, 0, shape, &out));
  window_store(&st->w, ctx_pool(ctx), work, out);
  return NULL;
}

static void add_bias(const struct depth_state *st, const struct tensor *bias, struct tensor *y) {
  int64_t co = bias->n;
  for (int64_t i = 0; i < y->n; i++) {
    if (y->dtype == SHOAL_FLOAT64) {
      T_DATA(y, double)[i] += T_DATA(bias, const double)[i % co];
      continue;
    }
    T_DATA(y, float)[i] += T_DATA(bias, const float)[i % co];
  }
  if (y->dtype == SHOAL_FLOAT64) gemm_activate_double(y->data, y->n, st->act, (double)st->alpha);
  else gemm_activate(y->data, y->n, st->act, st->alpha);
}

static shoal_status forward_run(struct kernel_ctx *ctx) {
  const struct depth_state *st = ctx->state;
  struct shape sx = tensor_shape(ctx_in(ctx, 0)), sf = tensor_shape(ctx_in(ctx, 1));
  struct depth p;
  TRY(geometry(ctx, &sx, &sf, &p));
  int64_t co = p.ci * p.mult, spatial[3] = {1, p.out[0], p.out[1]};
  struct shape sy = window_shape(&st->w, p.batch, spatial, co);
  struct shape last = {.rank = 4, .dims = {p.batch, p.out[0], p.out[1], co}};
  if (st->fused && (ctx_in(ctx, 2)->rank != 1 || ctx_in(ctx, 2)->n != co))
    return INVALID("bias must be a vector of %" PRId64 ", has shape %s", co, tensor_shape_str(ctx_in(ctx, 2)));
  struct tensor x = {0}, f = {0}, y = {0}, bias = {0};
  shoal_status s;
  TRY_GOTO(s, room(ctx, &last, &y), done);
  TRY_GOTO(s, load(ctx, ctx_in(ctx, 0), true, &x), done);
  TRY_GOTO(s, load(ctx, ctx_in(ctx, 1), false, &f), done);
  p.x = x.data;
  p.f = f.data;
  p.result = y.data;
  int64_t cost = p.out[1] * co * p.filter[0] * p.filter[1];
  if (y.n)
    pool_for(ctx_pool(ctx), p.batch * p.out[0], nn_grain(cost),
             y.dtype == SHOAL_FLOAT64 ? forward_double : forward_float, &p);
  if (st->fused && y.n) {
    TRY_GOTO(s, load(ctx, ctx_in(ctx, 2), false, &bias), done);
    add_bias(st, &bias, &y);
  }
  TRY_GOTO(s, finish(ctx, &y, &sy, true), done);
done:
  tensor_release(&x);
  tensor_release(&f);
  tensor_release(&y);
  tensor_release(&bias);
  return s;
}

static shoal_status check_gradient(const struct kernel_ctx *ctx, const struct depth *p, const struct tensor *dy) {
  const struct depth_state *st = ctx->state;
  int64_t spatial[3] = {1, p->out[0], p->out[1]};
  struct shape want = window_shape(&st->w, p->batch, spatial, p->ci * p->mult), have = tensor_shape(dy);
  if (shape_equal(&want, &have)) return NULL;
  return INVALID("%s: out_backprop has shape %s, computed %s", ctx->kernel->op->name, shape_str(&have),
                 shape_str(&want));
}

static shoal_status back_input_run(struct kernel_ctx *ctx) {
  const struct tensor *sizes = ctx_in(ctx, 0), *dy = ctx_in(ctx, 2);
  struct shape sx, sf = tensor_shape(ctx_in(ctx, 1));
  if (sizes->rank != 1 || sizes->n != 4)
    return INVALID("%s: input_sizes input must be 1-dim of 4 elements, not %s", ctx->kernel->op->name,
                   tensor_shape_str(sizes));
  TRY(tensor_get_shape(sizes, false, &sx));
  struct depth p;
  TRY(geometry(ctx, &sx, &sf, &p));
  TRY(check_gradient(ctx, &p, dy));
  struct shape last = {.rank = 4, .dims = {p.batch, p.in[0], p.in[1], p.ci}};
  struct tensor back = {0}, f = {0}, dx = {0};
  shoal_status s;
  TRY_GOTO(s, room(ctx, &last, &dx), done);
  TRY_GOTO(s, load(ctx, dy, true, &back), done);
  TRY_GOTO(s, load(ctx, ctx_in(ctx, 1), false, &f), done);
  p.dy = back.data;
  p.f = f.data;
  p.result = dx.data;
  int64_t cost = p.in[1] * p.ci * p.mult * p.filter[0] * p.filter[1];
  if (dx.n)
    pool_for(ctx_pool(ctx), p.batch * p.in[0], nn_grain(cost),
             dx.dtype == SHOAL_FLOAT64 ? back_input_double : back_input_float, &p);
  TRY_GOTO(s, finish(ctx, &dx, &sx, true), done);
done:
  tensor_release(&back);
  tensor_release(&f);
  tensor_release(&dx);
  return s;
}

static shoal_status back_filter_run(struct kernel_ctx *ctx) {
  const struct tensor *sizes = ctx_in(ctx, 1), *dy = ctx_in(ctx, 2);
  struct shape sx = tensor_shape(ctx_in(ctx, 0)), sf;
  if (sizes->rank != 1 || sizes->n != 4)
    return INVALID("%s: filter_sizes input must be 1-dim of 4 elements, not %s", ctx->kernel->op->name,
                   tensor_shape_str(sizes));
  TRY(tensor_get_shape(sizes, false, &sf));
  struct depth p;
  TRY(geometry(ctx, &sx, &sf, &p));
  TRY(check_gradient(ctx, &p, dy));
  struct tensor back = {0}, x = {0}, df = {0}, sums = {0};
  shoal_status s;
  TRY_GOTO(s, room(ctx, &sf, &df), done);
  TRY_GOTO(s, load(ctx, dy, true, &back), done);
  TRY_GOTO(s, load(ctx, ctx_in(ctx, 0), true, &x), done);
  int64_t units = p.batch * p.out[0];
  p.piece = MAX(1, (units + MAX_PIECES - 1) / MAX_PIECES);
  int64_t pieces = (units + p.piece - 1) / p.piece;
  struct shape many = shape_matrix(pieces, df.n);
  TRY_GOTO(s, room(ctx, &many, &sums), done);
  p.dy = back.data;
  p.x = x.data;
  p.result = df.data;
  p.partial = sums.data;
  if (df.n) {
    bool wide = df.dtype == SHOAL_FLOAT64;
    pool_for_pieces(ctx_pool(ctx), units, p.piece, wide ? back_filter_double : back_filter_float, &p);
    if (wide) join_double(&p, pieces);
    else join_float(&p, pieces);
  }
  TRY_GOTO(s, finish(ctx, &df, &sf, false), done);
done:
  tensor_release(&back);
  tensor_release(&x);
  tensor_release(&df);
  tensor_release(&sums);
  return s;
}

#define KERNELS(name, init_, run_)                                                    \
  static const struct kernel_def name[] = {{.device = "CPU",                          \
                                            .type_attr = "T",                         \
                                            .types = DT_FLOATING,                     \
                                            .state_size = sizeof(struct depth_state), \
                                            .init = init_,                            \
                                            .run = run_},                             \
                                           {0}}
KERNELS(forward_kernels, depth_init, forward_run);
KERNELS(back_input_kernels, depth_init, back_input_run);
KERNELS(back_filter_kernels, depth_init, back_filter_run);
KERNELS(fused_kernels, fused_init, forward_run);

/* ---- shapes and gradients ---- */

static shoal_status forward_shape(struct shape_ctx *c) {
  struct window w;
  struct shape x, f;
  TRY(window_init(&w, c->node, 2));
  TRY(shape_in_rank(c, 0, 4, &x));
  TRY(shape_in_rank(c, 1, 4, &f));
  int64_t depth = x.dims[window_depth_at(&w)], out[3] = {1, -1, -1}, before, after;
  TRY(nn_same_dim(c, depth, f.dims[2]));
  if (depth < 0) depth = f.dims[2];
  for (int d = 1; d < 3; d++) TRY(window_out(&w, d, x.dims[window_at(&w, d)], f.dims[d - 1], &out[d], &before, &after));
  bool known = depth >= 0 && f.dims[3] >= 0;
  c->out[0] = window_shape(&w, x.dims[0], out, known ? depth * f.dims[3] : -1);
  return NULL;
}
static shoal_status back_input_shape(struct shape_ctx *c) { return shape_in_value(c, 0, &c->out[0]); }
static shoal_status back_filter_shape(struct shape_ctx *c) { return shape_in_value(c, 1, &c->out[0]); }

static shoal_out shape_of(struct grad_ctx *c, shoal_out x) { return array_shape(c->g, x, SHOAL_INT32); }

static shoal_status forward_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), x = gin(c, 0), f = gin(c, 1);
  grad_set(c, 0, window_grad_node(c, "DepthwiseConv2dNativeBackpropInput", shape_of(c, x), f, dy));
  grad_set(c, 1, window_grad_node(c, "DepthwiseConv2dNativeBackpropFilter", x, shape_of(c, f), dy));
  return NULL;
}
static shoal_status back_input_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), f = gin(c, 1), back = gin(c, 2);
  grad_set(c, 1, window_grad_node(c, "DepthwiseConv2dNativeBackpropFilter", dy, shape_of(c, f), back));
  grad_set(c, 2, window_grad_node(c, "DepthwiseConv2dNative", dy, f, (shoal_out){NULL, 0}));
  return NULL;
}
static shoal_status back_filter_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), x = gin(c, 0), back = gin(c, 2);
  grad_set(c, 0, window_grad_node(c, "DepthwiseConv2dNativeBackpropInput", shape_of(c, x), dy, back));
  grad_set(c, 2, window_grad_node(c, "DepthwiseConv2dNative", x, dy, (shoal_out){NULL, 0}));
  return NULL;
}

#define ATTRS                                                                                        \
  "T: {half, bfloat16, float, double}; strides: list(int); padding: {'SAME', 'VALID', 'EXPLICIT'}; " \
  "explicit_paddings: list(int) = []; data_format: {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1,1,1,1]"

static const struct op_row rows[] = {
    {"DepthwiseConv2dNative", .in = "input: T, filter: T", .out = "output: T", .attrs = ATTRS, .shape = forward_shape,
     .grad = forward_grad, .kernels = forward_kernels},
    {"DepthwiseConv2dNativeBackpropInput", .in = "input_sizes: int32, filter: T, out_backprop: T", .out = "output: T",
     .attrs = ATTRS, .shape = back_input_shape, .grad = back_input_grad, .kernels = back_input_kernels},
    {"DepthwiseConv2dNativeBackpropFilter", .in = "input: T, filter_sizes: int32, out_backprop: T", .out = "output: T",
     .attrs = ATTRS, .shape = back_filter_shape, .grad = back_filter_grad, .kernels = back_filter_kernels},
    {"_FusedDepthwiseConv2dNative", .in = "input: T, filter: T, args: num_args * T", .out = "output: T",
     .attrs = "T: {half, bfloat16, float, double}; num_args: int >= 0; strides: list(int); padding: {'SAME', 'VALID'}; "
              "data_format: {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1,1,1,1]; fused_ops: list(string) = []; "
              "epsilon: float = 0.0001; leakyrelu_alpha: float = 0.2",
     .shape = forward_shape, .kernels = fused_kernels},
};
OP_FAMILY(depthwise, rows);
