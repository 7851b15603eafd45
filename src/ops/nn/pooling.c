/* Max and average pooling in two and three dimensions, with gradients of first and second order. The loops are in
 * pooling_loops.c, attributes and sizes in pooling_shapes.c. */
#include <limits.h>
#include <string.h>

#include "ops/nn/pooling_shapes.h"

static shoal_status pool_init(struct kernel_init *ki, void *state) { return pool_state_init(state, ki->node); }

/* Inputs in channels-last order, and where the result goes. */
struct views {
  struct tensor in[3], work;
};

static void views_release(struct views *v) {
  for (int i = 0; i < 3; i++) tensor_release(&v->in[i]);
  tensor_release(&v->work);
}

/* Output 0 of this shape, and room for it in channels-last order. */
static shoal_status result_begin(struct kernel_ctx *ctx, const struct window *w, int64_t batch, const int64_t *spatial,
                                 int64_t depth, struct tensor **out, struct tensor *work) {
  struct shape s = window_shape(w, batch, spatial, depth);
  TRY(ctx_out(ctx, 0, &s, out));
  if (!w->channels_first) {
    tensor_ref(work, *out);
    return NULL;
  }
  return tensor_new(work, ctx_out_type(ctx, 0), &s); /* as many elements; the order is ours */
}

/* ---- across the depth ---- */

/* Of each run of `size` channels the largest: rows of a matrix whose columns are channels. */
static shoal_status max_depth_run(struct kernel_ctx *ctx, const struct window *w) {
  const struct tensor *x = ctx_in(ctx, 0);
  for (int d = 0; d < 3; d++)
    if (w->size[d] != 1 || w->stride[d] != 1)
      return UNIMPLEMENTED("MaxPooling supports exactly one of pooling across depth or pooling across width/height.");
  if (x->rank != 4) return INVALID("tensor_in must be 4-dimensional");
  int64_t depth = x->dims[window_depth_at(w)];
  if (depth % w->size_depth)
    return UNIMPLEMENTED("Depthwise max pooling requires the depth window to evenly divide the input depth.");
  if (w->size_depth != w->stride_depth)
    return UNIMPLEMENTED("Depthwise max pooling requires the depth window to equal the depth stride.");
  if (w->channels_first) return UNIMPLEMENTED("Depthwise max pooling is only supported in NHWC");
  struct shape s = tensor_shape(x);
  s.dims[3] /= w->size_depth;
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  struct pooling p = {.type = ctx_in_type(ctx, 0),
                      .batch = 1,
                      .depth = 1,
                      .in = {1, y->n, w->size_depth},
                      .out = {1, y->n, 1},
                      .size = {1, 1, w->size_depth},
                      .stride = {1, 1, w->size_depth},
                      .x = x->data,
                      .result = y->data};
  pooling_max(ctx_pool(ctx), &p);
  return NULL;
}

/* ---- forward ---- */

static shoal_status forward(struct kernel_ctx *ctx, void (*loop)(struct pool *, const struct pooling *)) {
  struct window w;
  TRY(pool_window(ctx, ctx->state, &w));
  if (loop == pooling_max && w.size_depth != 1) return max_depth_run(ctx, &w);
  TRY(pool_check_depth(ctx, &w));
  struct shape sx = tensor_shape(ctx_in(ctx, 0));
  struct pooling p = {.type = ctx_in_type(ctx, 0)};
  TRY(pool_geometry(&w, &sx, "tensor_in", &p));
  struct views v = {0};
  struct tensor *y;
  shoal_status s;
  TRY_GOTO(s, result_begin(ctx, &w, p.batch, p.out, p.depth, &y, &v.work), done);
  if (!y->n) goto done;
  TRY_GOTO(s, window_channels_last(&w, ctx_pool(ctx), ctx_in(ctx, 0), &v.in[0]), done);
  p.x = v.in[0].data;
  p.result = v.work.data;
  loop(ctx_pool(ctx), &p);
  if (w.channels_first) window_store(&w, ctx_pool(ctx), &v.work, y);
done:
  views_release(&v);
  return s;
}

static shoal_status max_run(struct kernel_ctx *ctx) { return forward(ctx, pooling_max); }
static shoal_status avg_run(struct kernel_ctx *ctx) { return forward(ctx, pooling_avg); }

static shoal_status argmax_run(struct kernel_ctx *ctx) {
  const struct pool_state *st = ctx->state;
  TRY(pool_check_depth(ctx, &st->w));
  const struct tensor *x = ctx_in(ctx, 0);
  struct shape sx = tensor_shape(x);
  struct pooling p = {.type = ctx_in_type(ctx, 0),
                      .argmax_batch = st->batch_in_index,
                      .argmax_wide = ctx_out_type(ctx, 1) == SHOAL_INT64};
  TRY(pool_geometry(&st->w, &sx, "tensor_in", &p));
  if (!p.argmax_wide && x->n > INT_MAX) return INVALID("Targmax int32 is too narrow for %s", shape_str(&sx));
  struct shape sy = window_shape(&st->w, p.batch, p.out, p.depth);
  struct tensor *y, *index;
  TRY(ctx_out(ctx, 0, &sy, &y));
  TRY(ctx_out(ctx, 1, &sy, &index));
  if (!y->n) return NULL;
  p.x = x->data;
  p.result = y->data;
  p.argmax = index->data;
  pooling_argmax(ctx_pool(ctx), &p);
  return NULL;
}

/* ---- gradients ---- */

/* Inputs orig_input, orig_output, grad. second: grad has the input's shape, the result the output's. */
static shoal_status max_back(struct kernel_ctx *ctx, bool second) {
  struct window w;
  TRY(pool_window(ctx, ctx->state, &w));
  TRY(pool_check_depth(ctx, &w));
  struct shape sx = tensor_shape(ctx_in(ctx, 0));
  struct pooling p = {.type = ctx_in_type(ctx, 0)};
  TRY(pool_geometry(&w, &sx, "tensor_in", &p));
  struct shape sy = window_shape(&w, p.batch, p.out, p.depth);
  TRY(pool_check_shape(ctx_in(ctx, 1), &sy, "orig_output"));
  TRY(pool_check_shape(ctx_in(ctx, 2), second ? &sx : &sy, "grad"));
  if (ctx_in_type(ctx, 2) != p.type)
    return UNIMPLEMENTED("%s of %s with a gradient of %s", ctx->kernel->op->name, shoal_dtype_name(p.type),
                         shoal_dtype_name(ctx_in_type(ctx, 2)));
  struct views v = {0};
  struct tensor *out;
  shoal_status s;
  TRY_GOTO(s, result_begin(ctx, &w, p.batch, second ? p.out : p.in, p.depth, &out, &v.work), done);
  if (!out->n) goto done;
  for (int i = 0; i < 3; i++) TRY_GOTO(s, window_channels_last(&w, ctx_pool(ctx), ctx_in(ctx, i), &v.in[i]), done);
  p.x = v.in[0].data;
  p.y = v.in[1].data;
  p.dy = v.in[2].data;
  p.result = v.work.data;
  if (second) pooling_max_grad_grad(ctx_pool(ctx), &p);
  else if (w.spatial == 3) pooling_max_grad_all(ctx_pool(ctx), &p);
  else pooling_max_grad(ctx_pool(ctx), &p);
  if (w.channels_first) window_store(&w, ctx_pool(ctx), &v.work, out);
done:
  views_release(&v);
  return s;
}

static shoal_status max_grad_run(struct kernel_ctx *ctx) { return max_back(ctx, false); }
static shoal_status max_grad_grad_run(struct kernel_ctx *ctx) { return max_back(ctx, true); }

static shoal_status avg_grad_run(struct kernel_ctx *ctx) {
  const struct pool_state *st = ctx->state;
  const struct window *w = &st->w;
  const struct tensor *sizes = ctx_in(ctx, 0), *dy = ctx_in(ctx, 1);
  int rank = w->spatial + 2;
  TRY(pool_check_depth(ctx, w));
  if (sizes->rank != 1 || sizes->n != rank) return INVALID("out_backprop must be 1-dimensional and %d elements", rank);
  struct shape sx;
  TRY(tensor_get_shape(sizes, false, &sx));
  struct pooling p = {.type = ctx_in_type(ctx, 1)};
  TRY(pool_geometry(w, &sx, "orig_input_shape", &p));
  struct shape sy = window_shape(w, p.batch, p.out, p.depth);
  if (dy->rank != rank) return INVALID("out_backprop must be %d-dimensional", rank);
  TRY(pool_check_shape(dy, &sy, "grad"));
  struct views v = {0};
  struct tensor *out;
  shoal_status s;
  TRY_GOTO(s, result_begin(ctx, w, p.batch, p.in, p.depth, &out, &v.work), done);
  if (!out->n) goto done;
  TRY_GOTO(s, window_channels_last(w, ctx_pool(ctx), dy, &v.in[0]), done);
  p.dy = v.in[0].data;
  p.result = v.work.data;
  pooling_avg_grad(ctx_pool(ctx), &p);
  if (w->channels_first) window_store(w, ctx_pool(ctx), &v.work, out);
done:
  views_release(&v);
  return s;
}

/* ---- by index ---- */

static int64_t index_at(const struct tensor *t, int64_t i) { return int_at(t, i); }

/* Checks argmax against the input it points into, and gives the offset of image n. */
static shoal_status check_index(const struct kernel_ctx *ctx, const struct tensor *x, const struct tensor *index,
                                int64_t *per_image) {
  const struct pool_state *st = ctx->state;
  struct shape sx = tensor_shape(x), sy;
  struct pooling p = {0};
  TRY(pool_geometry(&st->w, &sx, "tensor_in", &p));
  sy = window_shape(&st->w, p.batch, p.out, p.depth);
  TRY(pool_check_shape(index, &sy, "argmax"));
  int64_t image = p.batch ? x->n / p.batch : 0, limit = st->batch_in_index ? x->n : image;
  for (int64_t i = 0; i < index->n; i++)
    if (index_at(index, i) < 0 || index_at(index, i) >= limit)
      return INVALID("Argmax %" PRId64 " is outside of the input's %" PRId64 " elements", index_at(index, i), limit);
  *per_image = st->batch_in_index ? 0 : image;
  return NULL;
}

#define SCATTER(E, TYPE, PLUS)                                              \
  case E:                                                                   \
    for (int64_t i = 0; i < dy->n; i++) {                                   \
      TYPE *to = T_DATA(out, TYPE) + i / each * image + index_at(index, i); \
      *to = PLUS(*to, T_DATA(dy, const TYPE)[i]);                           \
    }                                                                       \
    break;
#define PLUS_float(a, b) ((a) + (b))
#define PLUS_f16(a, b) f16_from_float(f16_to_float(a) + f16_to_float(b))
#define PLUS_bf16(a, b) bf16_from_float(bf16_to_float(a) + bf16_to_float(b))
#define SCATTER_INT(E, TYPE, U) SCATTER(E, U, PLUS_float)

static shoal_status argmax_grad_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *dy = ctx_in(ctx, 1), *index = ctx_in(ctx, 2);
  int64_t image;
  TRY(check_index(ctx, x, index, &image));
  struct shape sx = tensor_shape(x), sy = tensor_shape(index);
  TRY(pool_check_shape(dy, &sy, "grad"));
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &sx, &out));
  tensor_zero(out);
  if (!dy->n) return NULL;
  int64_t each = dy->n / x->dims[0];
  switch (ctx_in_type(ctx, 1)) {
    SCATTER(SHOAL_FLOAT32, float, PLUS_float)
    SCATTER(SHOAL_FLOAT64, double, PLUS_float)
    SCATTER(SHOAL_FLOAT16, f16, PLUS_f16)
    SCATTER(SHOAL_BFLOAT16, bf16, PLUS_bf16)
    NN_INTEGERS(SCATTER_INT)
    default: return UNIMPLEMENTED("MaxPoolGradWithArgmax of %s", shoal_dtype_name(ctx_in_type(ctx, 1)));
  }
  return NULL;
}

static shoal_status argmax_grad_grad_run(struct kernel_ctx *ctx) {
  const struct tensor *x = ctx_in(ctx, 0), *dd = ctx_in(ctx, 1), *index = ctx_in(ctx, 2);
  int64_t image;
  TRY(check_index(ctx, x, index, &image));
  struct shape sx = tensor_shape(x), sy = tensor_shape(index);
  TRY(pool_check_shape(dd, &sx, "grad"));
  struct tensor *out;
  TRY(ctx_out(ctx, 0, &sy, &out));
  if (!out->n) return NULL;
  int64_t each = out->n / x->dims[0];
  size_t es = dtype_size(ctx_in_type(ctx, 1));
  for (int64_t i = 0; i < out->n; i++)
    memcpy((char *)out->data + (size_t)i * es,
           (const char *)dd->data + (size_t)(i / each * image + index_at(index, i)) * es, es);
  return NULL;
}

#define KERNELS(name, types_, run_)                                                  \
  static const struct kernel_def name[] = {{.device = "CPU",                         \
                                            .type_attr = "T",                        \
                                            .types = types_,                         \
                                            .state_size = sizeof(struct pool_state), \
                                            .init = pool_init,                       \
                                            .run = run_},                            \
                                           {0}}
#define MAX_TYPES (DT_FLOATING | DT_SIGNED | DT(UINT8) | DT(UINT16))
KERNELS(max_kernels, MAX_TYPES, max_run);
KERNELS(max_grad_kernels, DT_REAL, max_grad_run);
KERNELS(max_grad_grad_kernels, DT_REAL, max_grad_grad_run);
KERNELS(argmax_kernels, DT_REAL, argmax_run);
KERNELS(argmax_grad_kernels, DT_REAL, argmax_grad_run);
KERNELS(argmax_grad_grad_kernels, DT_REAL, argmax_grad_grad_run);
KERNELS(avg_kernels, DT_FLOATING, avg_run);
KERNELS(avg_grad_kernels, DT_FLOATING, avg_grad_run);

/* ---- shapes ---- */

static shoal_status forward_shape(struct shape_ctx *c) {
  struct window w;
  struct shape x;
  int64_t out[3], before, after;
  TRY(window_init(&w, c->node, pool_dims(c->node)));
  TRY(shape_in_rank(c, 0, w.spatial + 2, &x));
  int64_t depth = x.dims[window_depth_at(&w)];
  if (!node_attr(c->node, "ksize")) { /* V2 */
    int64_t ksize[8], strides[8];
    int n_ksize, n_strides;
    if (!c->values[1] || !c->values[2] || c->values[1]->n > 8 || c->values[2]->n > 8) {
      c->out[0] = shape_unknown_of_rank(4);
      return NULL;
    }
    TRY(tensor_get_ints(c->values[1], "ksize", ksize, 8, &n_ksize));
    TRY(tensor_get_ints(c->values[2], "strides", strides, 8, &n_strides));
    TRY(window_set(&w, ksize, n_ksize, strides, n_strides));
  }
  for (int d = window_first(&w); d < 3; d++)
    TRY(window_out(&w, d, x.dims[window_at(&w, d)], w.size[d], &out[d], &before, &after));
  if (depth >= 0) depth /= w.size_depth;
  c->out[0] = window_shape(&w, x.dims[0], out, depth);
  if (c->node->n_out == 2) c->out[1] = c->out[0];
  return NULL;
}

static shoal_status like_output_shape(struct shape_ctx *c) {
  TRY(shape_merge(&c->in[1], &c->in[1], &c->out[0]));
  return NULL;
}
static shoal_status like_argmax_shape(struct shape_ctx *c) {
  c->out[0] = c->in[2];
  return NULL;
}
static shoal_status avg_grad_shape(struct shape_ctx *c) {
  int rank = pool_dims(c->node) + 2;
  TRY(shape_in_value(c, 0, &c->out[0]));
  if (c->out[0].rank != rank) c->out[0] = shape_unknown_of_rank(rank);
  return NULL;
}

/* ---- gradients ---- */

static shoal_out pool_node(struct grad_ctx *c, const char *op, const shoal_out *in, int n) {
  struct build b = build_begin(c->g, op, NULL);
  for (int i = 0; i < n; i++) build_in(&b, in[i]);
  window_copy_attrs(&b, c->node);
  const struct attr *a = node_attr(c->node, "include_batch_in_index");
  if (a) build_attr(&b, "include_batch_in_index", attr_copy(a));
  return build_end_out(&b);
}

static shoal_status max_grad(struct grad_ctx *c) {
  bool v2 = op_is(c->node->op, "MaxPoolV2");
  const char *op = v2 ? "MaxPoolGradV2" : pool_dims(c->node) == 3 ? "MaxPool3DGrad" : "MaxPoolGrad";
  shoal_out in[5] = {gin(c, 0), gout(c, 0), grad_dy(c, 0)};
  for (int i = 1; v2 && i < 3; i++) in[2 + i] = gin(c, i);
  grad_set(c, 0, pool_node(c, op, in, v2 ? 5 : 3));
  return NULL;
}

/* Of MaxPoolGrad: only the gradient that came in matters; where the maxima are does not change. */
static shoal_status max_grad_grad(struct grad_ctx *c) {
  bool v2 = op_is(c->node->op, "MaxPoolGradV2");
  const char *op = v2 ? "MaxPoolGradGradV2" : pool_dims(c->node) == 3 ? "MaxPool3DGradGrad" : "MaxPoolGradGrad";
  shoal_out in[5] = {gin(c, 0), gin(c, 1), grad_dy(c, 0)};
  for (int i = 3; v2 && i < 5; i++) in[i] = gin(c, i);
  grad_set(c, 0, array_zeros_like(c->g, gin(c, 0)));
  grad_set(c, 1, array_zeros_like(c->g, gin(c, 1)));
  grad_set(c, 2, pool_node(c, op, in, v2 ? 5 : 3));
  return NULL;
}

static shoal_status max_grad_grad_grad(struct grad_ctx *c) {
  const char *op = pool_dims(c->node) == 3 ? "MaxPool3DGrad" : "MaxPoolGrad";
  shoal_out in[3] = {gin(c, 0), gin(c, 1), grad_dy(c, 0)};
  grad_set(c, 0, array_zeros_like(c->g, gin(c, 0)));
  grad_set(c, 1, array_zeros_like(c->g, gin(c, 1)));
  grad_set(c, 2, pool_node(c, op, in, 3));
  return NULL;
}

static shoal_status argmax_grad(struct grad_ctx *c) {
  shoal_out in[3] = {gin(c, 0), grad_dy(c, 0), gout(c, 1)};
  grad_set(c, 0, pool_node(c, "MaxPoolGradWithArgmax", in, 3));
  return NULL;
}

static shoal_status avg_grad(struct grad_ctx *c) {
  shoal_out in[2] = {array_shape(c->g, gin(c, 0), SHOAL_INT32), grad_dy(c, 0)};
  grad_set(c, 0, pool_node(c, pool_dims(c->node) == 3 ? "AvgPool3DGrad" : "AvgPoolGrad", in, 2));
  return NULL;
}

static shoal_status avg_grad_grad(struct grad_ctx *c) {
  shoal_out in[1] = {grad_dy(c, 0)};
  grad_set(c, 1, pool_node(c, pool_dims(c->node) == 3 ? "AvgPool3D" : "AvgPool", in, 1));
  return NULL;
}

static const struct op_row rows[] = {
    {"MaxPool", .in = "input: T", .out = "output: T",
     .attrs = "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float; ksize: "
              "list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID', 'EXPLICIT'}; explicit_paddings: "
              "list(int) = []; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
     .shape = forward_shape, .grad = max_grad, .kernels = max_kernels},
    {"MaxPoolV2", .in = "input: T, ksize: int32, strides: int32", .out = "output: T",
     .attrs = "T: {half, bfloat16, float, double, int32, int64, uint8, int16, int8, uint16, qint8} = float; padding: "
              "{'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
     .shape = forward_shape, .grad = max_grad, .kernels = max_kernels},
    {"MaxPoolGrad", .in = "orig_input: T, orig_output: T, grad: T", .out = "output: T",
     .attrs = "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID', 'EXPLICIT'}; "
              "explicit_paddings: list(int) = []; data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: realnumbertype = float",
     .shape = shape_unchanged, .grad = max_grad_grad, .kernels = max_grad_kernels},
    {"MaxPoolGradV2", .in = "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32", .out = "output: T",
     .attrs = "padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: realnumbertype = float",
     .shape = shape_unchanged, .grad = max_grad_grad, .kernels = max_grad_kernels},
    {"MaxPoolGradGrad", .in = "orig_input: T, orig_output: T, grad: T", .out = "output: T",
     .attrs = "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; data_format: {'NHWC', "
              "'NCHW'} = 'NHWC'; T: realnumbertype",
     .shape = like_output_shape, .grad = max_grad_grad_grad, .kernels = max_grad_grad_kernels},
    {"MaxPoolGradGradV2", .in = "orig_input: T, orig_output: T, grad: T, ksize: int32, strides: int32",
     .out = "output: T",
     .attrs = "padding: {'SAME', 'VALID'}; data_format: {'NHWC', 'NCHW'} = 'NHWC'; T: realnumbertype",
     .shape = like_output_shape, .kernels = max_grad_grad_kernels},
    {"MaxPoolWithArgmax", .in = "input: T", .out = "output: T, argmax: Targmax",
     .attrs = "ksize: list(int) >= 4; strides: list(int) >= 4; Targmax: {int32, int64} = int64; padding: {'SAME', "
              "'VALID'}; include_batch_in_index: bool = false; T: realnumbertype",
     .shape = forward_shape, .grad = argmax_grad, .kernels = argmax_kernels},
    {"MaxPoolGradWithArgmax", .in = "input: T, grad: T, argmax: Targmax", .out = "output: T",
     .attrs = "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; include_batch_in_index: "
              "bool = false; Targmax: {int32, int64}; T: realnumbertype",
     .shape = shape_unchanged, .kernels = argmax_grad_kernels},
    {"MaxPoolGradGradWithArgmax", .in = "input: T, grad: T, argmax: Targmax", .out = "output: T",
     .attrs = "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; include_batch_in_index: "
              "bool = false; Targmax: {int32, int64}; T: realnumbertype",
     .shape = like_argmax_shape, .kernels = argmax_grad_grad_kernels},
    {"AvgPool", .in = "value: T", .out = "output: T",
     .attrs = "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; data_format: {'NHWC', "
              "'NCHW'} = 'NHWC'; T: {half, bfloat16, float, double}",
     .shape = forward_shape, .grad = avg_grad, .kernels = avg_kernels},
    {"AvgPoolGrad", .in = "orig_input_shape: int32, grad: T", .out = "output: T",
     .attrs = "ksize: list(int) >= 4; strides: list(int) >= 4; padding: {'SAME', 'VALID'}; data_format: {'NHWC', "
              "'NCHW'} = 'NHWC'; T: {half, bfloat16, float, double}",
     .shape = avg_grad_shape, .grad = avg_grad_grad, .kernels = avg_grad_kernels},
    {"MaxPool3D", .in = "input: T", .out = "output: T",
     .attrs = "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: {'NDHWC', "
              "'NCDHW'} = 'NDHWC'; T: {half, bfloat16, float}",
     .shape = forward_shape, .grad = max_grad, .kernels = max_kernels},
    {"MaxPool3DGrad", .in = "orig_input: TInput, orig_output: TInput, grad: T", .out = "output: T",
     .attrs = "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: {'NDHWC', "
              "'NCDHW'} = 'NDHWC'; T: {half, bfloat16, float} = float; TInput: {half, bfloat16, float} = float",
     .shape = shape_unchanged, .grad = max_grad_grad, .kernels = max_grad_kernels},
    {"MaxPool3DGradGrad", .in = "orig_input: T, orig_output: T, grad: T", .out = "output: T",
     .attrs = "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: {'NDHWC', "
              "'NCDHW'} = 'NDHWC'; T: realnumbertype",
     .shape = like_output_shape, .grad = max_grad_grad_grad, .kernels = max_grad_grad_kernels},
    {"AvgPool3D", .in = "input: T", .out = "output: T",
     .attrs = "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: {'NDHWC', "
              "'NCDHW'} = 'NDHWC'; T: {half, bfloat16, float, double}",
     .shape = forward_shape, .grad = avg_grad, .kernels = avg_kernels},
    {"AvgPool3DGrad", .in = "orig_input_shape: int32, grad: T", .out = "output: T",
     .attrs = "ksize: list(int) >= 5; strides: list(int) >= 5; padding: {'SAME', 'VALID'}; data_format: {'NDHWC', "
              "'NCDHW'} = 'NDHWC'; T: {half, bfloat16, float, double}",
     .shape = avg_grad_shape, .grad = avg_grad_grad, .kernels = avg_grad_kernels},
};
OP_FAMILY(pooling, rows);
