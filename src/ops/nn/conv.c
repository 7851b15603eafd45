/* Convolutions in two and three dimensions, their gradients, and Conv2D with what follows it fused in. The work
 * is done by math/conv.c on channels-last images; tensors in channels-first order are turned round before
 * and after, which costs a pass over memory where TensorFlow's CPU kernels refuse. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "ops/nn/conv_shapes.h"

struct conv_state {
  struct conv_shapes of;
  /* of _FusedConv2D */
  bool fused, bias, batch_norm, add;
  float epsilon;
  struct gemm_epilogue epilogue;
};

static shoal_status conv_init(struct kernel_init *ki, void *state) {
  struct conv_state *st = state;
  return conv_shapes_init(&st->of, ki->node);
}

static shoal_status fused_init(struct kernel_init *ki, void *state) {
  struct conv_state *st = state;
  TRY(conv_init(ki, state));
  st->fused = true;
  const char *format;
  TRY(node_get_string(ki->node, "filter_format", &format));
  if (strcmp(format, "HWIO")) return UNIMPLEMENTED("%s: filter_format %s", ki->node->name, format);
  const struct attr *list;
  TRY(node_get_list(ki->node, "fused_ops", ATTR_STRING, &list));
  TRY(node_get_float(ki->node, "leakyrelu_alpha", &st->epilogue.alpha));
  TRY(node_get_float(ki->node, "epsilon", &st->epsilon));
  for (size_t i = 0; i < list->list.n; i++) {
    const char *name = list->list.at[i].s.data;
    if (i == 0 && !strcmp(name, "BiasAdd")) st->bias = true;
    else if (i == 0 && !strcmp(name, "FusedBatchNorm")) st->batch_norm = true;
    else if (i == 1 && st->bias && !strcmp(name, "Add")) st->add = true;
    else if (i && i + 1 == list->list.n && gemm_act_from_name(name, &st->epilogue.act)) continue;
    else return UNIMPLEMENTED("Fusion is not implemented: fused_ops[%zu] = '%s' in %s", i, name, ki->node->name);
  }
  if (!st->bias && !st->batch_norm) return INVALID("Fused Conv2D must have at least one fused op.");
  int want = (st->batch_norm ? 4 : 1) + st->add;
  int64_t args;
  TRY(node_get_int(ki->node, "num_args", &args));
  if (args != want) return INVALID("Fused Conv2D must have %d extra argument(s): got %" PRId64, want, args);
  return NULL;
}

/* ---- kernels ---- */

/* Where a result is computed: the output itself, or a channels-last copy to be turned round. */
static shoal_status result_begin(struct kernel_ctx *ctx, const struct conv *c, const int64_t *spatial, int64_t depth,
                                 struct tensor **out, struct tensor *work) {
  const struct conv_state *st = ctx->state;
  struct shape s = window_shape(&st->of.w, c->batch, spatial, depth);
  TRY(ctx_out(ctx, 0, &s, out));
  if (!st->of.w.channels_first) {
    tensor_ref(work, *out);
    return NULL;
  }
  struct window last = st->of.w;
  last.channels_first = false;
  s = window_shape(&last, c->batch, spatial, depth);
  return tensor_new(work, ctx_out_type(ctx, 0), &s);
}

static void result_end(struct kernel_ctx *ctx, struct tensor *out, struct tensor *work) {
  const struct conv_state *st = ctx->state;
  if (st->of.w.channels_first) window_store(&st->of.w, ctx_pool(ctx), work, out);
  tensor_release(work);
}

/* Vectors of the epilogue, in the accumulator's type. */
static shoal_status load_vector(const struct tensor *t, int64_t n, const char *what, shoal_dtype type, void *to) {
  if (t->rank != 1 || t->dims[0] != n)
    return INVALID("%s must be a vector of %" PRId64 ", has shape %s", what, n, tensor_shape_str(t));
  if (type == SHOAL_FLOAT64) {
    if (t->dtype == SHOAL_FLOAT64) memcpy(to, t->data, (size_t)n * sizeof(double));
    else return INVALID("%s is %s instead of double", what, shoal_dtype_name((shoal_dtype)t->dtype));
  } else if (t->dtype == SHOAL_FLOAT32 || t->dtype == SHOAL_FLOAT16 || t->dtype == SHOAL_BFLOAT16) {
    nn_to_float((shoal_dtype)t->dtype, t->data, to, n);
  } else {
    return INVALID("%s is %s instead of float", what, shoal_dtype_name((shoal_dtype)t->dtype));
  }
  return NULL;
}

/* Inference batch norm is a scale and an offset for each channel. */
#define FOLD_NORM(type, SQRT)                                 \
  {                                                           \
    type *v = room->data;                                     \
    for (int64_t i = 0; i < n; i++) {                         \
      type s = v[i] / SQRT(v[3 * n + i] + (type)st->epsilon); \
      v[n + i] -= v[2 * n + i] * s;                           \
      v[i] = s;                                               \
    }                                                         \
  }

static shoal_status load_epilogue(struct kernel_ctx *ctx, int64_t n, struct gemm_epilogue *e, struct buffer **out) {
  const struct conv_state *st = ctx->state;
  shoal_dtype acc = gemm_acc_type(ctx_out_type(ctx, 0));
  size_t es = dtype_size(acc);
  struct buffer *room;
  TRY(buffer_new((size_t)(n * 4) * es + 1, &room));
  *out = room;
  *e = st->epilogue;
  static const char *const names[] = {"scale", "offset", "estimated_mean", "estimated_variance"};
  int count = st->batch_norm ? 4 : 1;
  ctx->part = 1; /* errors from here on are of what follows the convolution */
  for (int i = 0; i < count; i++)
    TRY(load_vector(ctx_in(ctx, 2 + i), n, st->bias ? "bias" : names[i], acc,
                    (char *)room->data + (size_t)(i * n) * es));
  ctx->part = 0;
  if (st->bias) {
    e->bias = room->data;
    return NULL;
  }
  if (acc == SHOAL_FLOAT64) FOLD_NORM(double, __builtin_sqrt)
  else FOLD_NORM(float, __builtin_sqrtf)
  e->scale = room->data;
  e->bias = (char *)room->data + (size_t)n * es;
  return NULL;
}

static shoal_status forward_run(struct kernel_ctx *ctx) {
  const struct conv_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *f = ctx_in(ctx, 1);
  struct shape sx, sf;
  struct conv c;
  TRY(conv_shapes_find(ctx, &st->of, &sx, &sf, &c));
  struct gemm_epilogue e;
  struct buffer *vectors = NULL;
  struct tensor image = {0}, work = {0}, side = {0}, *out;
  shoal_status s = NULL;
  if (st->fused) TRY_GOTO(s, load_epilogue(ctx, c.co, &e, &vectors), done);
  TRY_GOTO(s, result_begin(ctx, &c, c.out, c.co, &out, &work), done);
  if (!out->n) goto done;
  if (st->add) {
    const struct tensor *more = ctx_in(ctx, 3);
    struct shape want = tensor_shape(out), have = tensor_shape(more);
    if (!shape_equal(&want, &have) || more->dtype != out->dtype) {
      s = INVALID("%s: the tensor to add has shape %s instead of %s", ctx->kernel->name, shape_str(&have),
                  shape_str(&want));
      goto done;
    }
    TRY_GOTO(s, window_channels_last(&st->of.w, ctx_pool(ctx), more, &side), done);
    e.add = side.data;
    e.ld_add = c.co;
  }
  TRY_GOTO(s, window_channels_last(&st->of.w, ctx_pool(ctx), x, &image), done);
  TRY_GOTO(s,
           conv_forward(ctx_pool(ctx), &c, ctx_out_type(ctx, 0), image.data, f->data, work.data, st->fused ? &e : NULL),
           done);
done:
  if (!s) result_end(ctx, out, &work);
  else tensor_release(&work);
  tensor_release(&image);
  tensor_release(&side);
  buffer_unref(vectors);
  return s;
}

static shoal_status back_input_run(struct kernel_ctx *ctx) {
  const struct conv_state *st = ctx->state;
  const struct tensor *f = ctx_in(ctx, 1), *dy = ctx_in(ctx, 2);
  struct shape sx, sf;
  struct conv c;
  TRY(conv_shapes_find(ctx, &st->of, &sx, &sf, &c));
  struct tensor back = {0}, work = {0}, *out;
  shoal_status s;
  TRY_GOTO(s, result_begin(ctx, &c, c.in, c.ci, &out, &work), done);
  if (!out->n) goto done;
  TRY_GOTO(s, window_channels_last(&st->of.w, ctx_pool(ctx), dy, &back), done);
  TRY_GOTO(s, conv_backward_input(ctx_pool(ctx), &c, ctx_out_type(ctx, 0), f->data, back.data, work.data), done);
done:
  if (!s) result_end(ctx, out, &work);
  else tensor_release(&work);
  tensor_release(&back);
  return s;
}

static shoal_status back_filter_run(struct kernel_ctx *ctx) {
  const struct conv_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *dy = ctx_in(ctx, 2);
  struct shape sx, sf;
  struct conv c;
  TRY(conv_shapes_find(ctx, &st->of, &sx, &sf, &c));
  struct tensor *out, image = {0}, back = {0};
  TRY(ctx_out(ctx, 0, &sf, &out));
  if (!out->n) return NULL;
  shoal_status s;
  TRY_GOTO(s, window_channels_last(&st->of.w, ctx_pool(ctx), x, &image), done);
  TRY_GOTO(s, window_channels_last(&st->of.w, ctx_pool(ctx), dy, &back), done);
  TRY_GOTO(s, conv_backward_filter(ctx_pool(ctx), &c, ctx_out_type(ctx, 0), image.data, back.data, out->data), done);
done:
  tensor_release(&image);
  tensor_release(&back);
  return s;
}

#define KERNELS(name, types_, init_, run_)                                            \
  static const struct kernel_def name[] = {{.device = "CPU",                          \
                                            .type_attr = "T",                         \
                                            .types = types_,                          \
                                            .flags = KERNEL_EXPENSIVE,                \
                                            .init = init_,                            \
                                            .run = run_,                              \
                                            .state_size = sizeof(struct conv_state)}, \
                                           {0}}
KERNELS(forward_kernels, DT_FLOATING | DT(INT32), conv_init, forward_run);
KERNELS(back_input_kernels, DT_FLOATING | DT(INT32), conv_init, back_input_run);
KERNELS(back_filter_kernels, DT_FLOATING, conv_init, back_filter_run);
KERNELS(fused_kernels, DT_FLOATING, fused_init, forward_run);

/* ---- shapes ---- */

static shoal_status forward_shape(struct shape_ctx *c) {
  struct window w;
  struct shape x, f;
  TRY(window_init(&w, c->node, conv_dims(c->node)));
  int rank = w.spatial + 2;
  TRY(shape_in_rank(c, 0, rank, &x));
  TRY(shape_in_rank(c, 1, rank, &f));
  int64_t depth = x.dims[window_depth_at(&w)], patch = f.dims[rank - 2], out[3], before, after;
  if (depth >= 0 && patch > 0 && depth % patch)
    return INVALID("Depth of input (%" PRId64 ") is not a multiple of input depth of filter (%" PRId64
                   ") for '%s' (op: "
                   "'%s') with input shapes: %s, %s.",
                   depth, patch, c->node->name, c->node->op->name, shape_str(&x), shape_str(&f));
  for (int d = window_first(&w); d < 3; d++)
    TRY(window_out(&w, d, x.dims[window_at(&w, d)], f.dims[d - window_first(&w)], &out[d], &before, &after));
  c->out[0] = window_shape(&w, x.dims[0], out, f.dims[rank - 1]);
  return NULL;
}

/* The shape is input i's value. */
static shoal_status sizes_shape(struct shape_ctx *c, int i) {
  int rank = conv_dims(c->node) + 2;
  TRY(shape_in_value(c, i, &c->out[0]));
  if (c->out[0].rank != rank) c->out[0] = shape_unknown_of_rank(rank); /* two sizes alone leave batch and depth open */
  return NULL;
}
static shoal_status back_input_shape(struct shape_ctx *c) { return sizes_shape(c, 0); }
static shoal_status back_filter_shape(struct shape_ctx *c) { return sizes_shape(c, 1); }
static shoal_status like_first_shape(struct shape_ctx *c) { return shape_in_rank(c, 0, 5, &c->out[0]); }
static shoal_status like_second_shape(struct shape_ctx *c) { return shape_in_rank(c, 1, 5, &c->out[0]); }

/* ---- gradients ---- */

static const char *op_for(const struct grad_ctx *c, enum conv_kind kind) {
  static const char *const names[2][3] = {{"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"},
                                          {"Conv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"}};
  return names[conv_dims(c->node) - 2][kind];
}

static shoal_out shape_of(struct grad_ctx *c, shoal_out x) { return array_shape(c->g, x, SHOAL_INT32); }

static shoal_status forward_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), x = gin(c, 0), f = gin(c, 1);
  grad_set(c, 0, window_grad_node(c, op_for(c, CONV_BACK_INPUT), shape_of(c, x), f, dy));
  grad_set(c, 1, window_grad_node(c, op_for(c, CONV_BACK_FILTER), x, shape_of(c, f), dy));
  return NULL;
}

static shoal_status back_input_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), f = gin(c, 1), back = gin(c, 2);
  grad_set(c, 1, window_grad_node(c, op_for(c, CONV_BACK_FILTER), dy, shape_of(c, f), back));
  grad_set(c, 2, window_grad_node(c, op_for(c, CONV_FORWARD), dy, f, (shoal_out){NULL, 0}));
  return NULL;
}

static shoal_status back_filter_grad(struct grad_ctx *c) {
  shoal_out dy = grad_dy(c, 0), x = gin(c, 0), back = gin(c, 2);
  grad_set(c, 0, window_grad_node(c, op_for(c, CONV_BACK_INPUT), shape_of(c, x), dy, back));
  grad_set(c, 2, window_grad_node(c, op_for(c, CONV_FORWARD), x, dy, (shoal_out){NULL, 0}));
  return NULL;
}

#define FLOATS "T: {half, bfloat16, float, double}; "
#define CONV2D                                                                                                     \
  "strides: list(int); use_cudnn_on_gpu: bool = true; padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: " \
  "list(int) = []; data_format: {'NHWC', 'NCHW'} = 'NHWC'; dilations: list(int) = [1,1,1,1]"
#define CONV3D                                                                                                  \
  "strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'; dilations: " \
  "list(int) = [1,1,1,1,1]"
#define CONV3D_V1 \
  "T: {half, float, double}; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; dilations: list(int) = [1,1,1,1,1]"

static const struct op_row rows[] = {
    {"Conv2D", .in = "input: T, filter: T", .out = "output: T",
     .attrs = "T: {half, bfloat16, float, double, int32}; " CONV2D, .shape = forward_shape, .grad = forward_grad,
     .kernels = forward_kernels},
    {"Conv2DBackpropInput", .in = "input_sizes: int32, filter: T, out_backprop: T", .out = "output: T",
     .attrs = "T: {half, bfloat16, float, double, int32}; " CONV2D, .shape = back_input_shape, .grad = back_input_grad,
     .kernels = back_input_kernels},
    {"Conv2DBackpropFilter", .in = "input: T, filter_sizes: int32, out_backprop: T", .out = "output: T",
     .attrs = FLOATS CONV2D, .shape = back_filter_shape, .grad = back_filter_grad, .kernels = back_filter_kernels},
    {"Conv3D", .in = "input: T, filter: T", .out = "output: T", .attrs = FLOATS CONV3D, .shape = forward_shape,
     .grad = forward_grad, .kernels = forward_kernels},
    {"Conv3DBackpropInput", .in = "input: T, filter: T, out_backprop: T", .out = "output: T", .attrs = CONV3D_V1,
     .shape = like_first_shape, .kernels = back_input_kernels},
    {"Conv3DBackpropFilter", .in = "input: T, filter: T, out_backprop: T", .out = "output: T", .attrs = CONV3D_V1,
     .shape = like_second_shape, .kernels = back_filter_kernels},
    {"Conv3DBackpropInputV2", .in = "input_sizes: Tshape, filter: T, out_backprop: T", .out = "output: T",
     .attrs = FLOATS CONV3D "; Tshape: {int32, int64} = int32", .shape = back_input_shape, .grad = back_input_grad,
     .kernels = back_input_kernels},
    {"Conv3DBackpropFilterV2", .in = "input: T, filter_sizes: int32, out_backprop: T", .out = "output: T",
     .attrs = FLOATS CONV3D, .shape = back_filter_shape, .grad = back_filter_grad, .kernels = back_filter_kernels},
    {"_FusedConv2D", .in = "input: T, filter: T, args: TArgs, host_args: num_host_args * float", .out = "output: T",
     .attrs = "T: {half, float, double, int8, qint8}; TArgs: list(type) >= 1; num_args: int >= 0; num_host_args: int "
              ">= 0 = 0; strides: list(int); padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: list(int) = "
              "[]; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'; filter_format: {'HWIO', 'OIHW', "
              "'OIHW_VECT_I'} = 'HWIO'; dilations: list(int) = [1,1,1,1]; use_cudnn_on_gpu: bool = true; fused_ops: "
              "list(string) = []; epsilon: float = 0.0001; leakyrelu_alpha: float = 0.2",
     .shape = forward_shape, .kernels = fused_kernels},
};
OP_FAMILY(conv, rows);
