/* FusedBatchNorm and its gradient, in training and in inference. A tensor is a matrix [rows, channels]; the
 * statistics are sums over rows, taken in fixed pieces of rows that are added in order. Channels-first tensors
 * are turned round. The variance is that of the batch, two passes over memory: one pass (mean of squares minus
 * square of the mean) loses the digits that matter when the mean is large. */
#include <math.h>
#include <string.h>

#include "ops/nn/batch_norm.h"

static shoal_status norm_init(struct kernel_init *ki, void *state) { return norm_state_init(state, ki->node); }

/* ---- sums over rows ---- */

struct norm {
  shoal_dtype type;
  int64_t rows, channels, piece;
  const void *x, *dy, *side;
  void *y;
  const float *mean, *scale, *offset, *slope; /* [channels] each; what they mean is the loop's */
  float *partial;                             /* [pieces][sums][channels] */
  int sums;
  bool relu;
};

/* A strip of a row as floats: the row itself where it is float. */
static const float *row_at(const struct norm *p, const void *x, int64_t row, float *room) {
  if (p->type == SHOAL_FLOAT32) return (const float *)x + row * p->channels;
  nn_to_float(p->type, (const char *)x + (size_t)(row * p->channels) * 2, room, p->channels);
  return room;
}

static float *row_room(const struct norm *p, struct buffer **b, int rows) {
  if (p->type == SHOAL_FLOAT32) return NULL;
  shoal_status s = buffer_new((size_t)(p->channels * rows) * sizeof(float), b);
  MUST(!s); /* a row of a tensor that is in memory */
  return (*b)->data;
}

#define BEGIN_PIECE                                                                                                   \
  const struct norm *p = arg;                                                                                         \
  struct buffer *b = NULL;                                                                                            \
  float *room = row_room(p, &b, 3), *out = p->partial ? p->partial + begin / p->piece * p->sums * p->channels : NULL; \
  int64_t n = p->channels

static void sum_rows(void *arg, int64_t begin, int64_t end) {
  BEGIN_PIECE;
  memset(out, 0, (size_t)n * sizeof *out);
  for (int64_t r = begin; r < end; r++) {
    const float *x = row_at(p, p->x, r, room);
    for (int64_t c = 0; c < n; c++) out[c] += x[c];
  }
  buffer_unref(b);
}

static void square_rows(void *arg, int64_t begin, int64_t end) {
  BEGIN_PIECE;
  memset(out, 0, (size_t)n * sizeof *out);
  for (int64_t r = begin; r < end; r++) {
    const float *x = row_at(p, p->x, r, room);
    for (int64_t c = 0; c < n; c++) out[c] += (x[c] - p->mean[c]) * (x[c] - p->mean[c]);
  }
  buffer_unref(b);
}

/* y = (x - mean) * scale + offset [+ side] [relu] */
static void apply_rows(void *arg, int64_t begin, int64_t end) {
  BEGIN_PIECE;
  (void)out;
  for (int64_t r = begin; r < end; r++) {
    const float *x = row_at(p, p->x, r, room);
    float *y = room ? room : (float *)p->y + r * n;
    for (int64_t c = 0; c < n; c++) y[c] = (x[c] - p->mean[c]) * p->scale[c] + p->offset[c];
    if (p->side) {
      const float *side = row_at(p, p->side, r, room ? room + n : NULL);
      for (int64_t c = 0; c < n; c++) y[c] += side[c];
    }
    if (p->relu)
      for (int64_t c = 0; c < n; c++) y[c] = y[c] < 0 ? 0 : y[c];
    if (room) nn_from_float(p->type, y, (char *)p->y + (size_t)(r * n) * 2, n);
  }
  buffer_unref(b);
}

/* Sums of dy, and of dy * (x - mean). */
static void sum_back_rows(void *arg, int64_t begin, int64_t end) {
  BEGIN_PIECE;
  memset(out, 0, (size_t)n * 2 * sizeof *out);
  for (int64_t r = begin; r < end; r++) {
    const float *x = row_at(p, p->x, r, room), *dy = row_at(p, p->dy, r, room ? room + n : NULL);
    for (int64_t c = 0; c < n; c++) {
      out[c] += dy[c];
      out[n + c] += dy[c] * (x[c] - p->mean[c]);
    }
  }
  buffer_unref(b);
}

/* dx = scale * (dy - offset - (x - mean) * slope) */
static void back_rows(void *arg, int64_t begin, int64_t end) {
  BEGIN_PIECE;
  (void)out;
  for (int64_t r = begin; r < end; r++) {
    const float *x = row_at(p, p->x, r, room), *dy = row_at(p, p->dy, r, room ? room + n : NULL);
    float *dx = room ? room + 2 * n : (float *)p->y + r * n;
    for (int64_t c = 0; c < n; c++) dx[c] = p->scale[c] * (dy[c] - p->offset[c] - (x[c] - p->mean[c]) * p->slope[c]);
    if (room) nn_from_float(p->type, dx, (char *)p->y + (size_t)(r * n) * 2, n);
  }
  buffer_unref(b);
}

/* Runs fn over all rows and adds up its sums: result [sums][channels]. */
static shoal_status reduce(struct pool *pool, struct norm *p, int sums, void (*fn)(void *, int64_t, int64_t),
                           float *result) {
  int64_t pieces = (p->rows + p->piece - 1) / p->piece, n = sums * p->channels;
  struct buffer *b;
  TRY(buffer_new((size_t)(MAX(pieces, 1) * n) * sizeof(float), &b));
  p->partial = b->data;
  p->sums = sums;
  pool_for_pieces(pool, p->rows, p->piece, fn, p);
  memset(result, 0, (size_t)n * sizeof *result);
  for (int64_t s = 0; s < pieces; s++)
    for (int64_t i = 0; i < n; i++) result[i] += p->partial[s * n + i];
  p->partial = NULL;
  buffer_unref(b);
  return NULL;
}

/* ---- kernels ---- */

static struct window format_of(const struct norm_state *st) {
  return (struct window){.spatial = st->wide_rank ? 3 : 2, .channels_first = st->channels_first};
}

static void matrix(const struct norm_matrix *m, const struct tensor *x, struct norm *p) {
  p->channels = m->channels;
  p->rows = m->rows;
  p->piece = nn_grain(m->channels);
  p->type = (shoal_dtype)x->dtype;
}

static shoal_status out_vector(struct kernel_ctx *ctx, int i, int64_t n, struct tensor **out) {
  return ctx_out_dims(ctx, i, 1, &n, out);
}

static shoal_status statistics(struct kernel_ctx *ctx, struct norm *p, float *mean, float *variance) {
  TRY(reduce(ctx_pool(ctx), p, 1, sum_rows, mean));
  for (int64_t c = 0; c < p->channels; c++) mean[c] /= (float)p->rows;
  p->mean = mean;
  TRY(reduce(ctx_pool(ctx), p, 1, square_rows, variance));
  for (int64_t c = 0; c < p->channels; c++) variance[c] /= (float)p->rows;
  return NULL;
}

/* The running statistics after this batch. The variance is that of the population behind the sample. */
static void blend(const struct norm_state *st, const struct norm *p, const float *old_mean, const float *old_variance,
                  const float *mean, const float *variance, float *new_mean, float *new_variance) {
  float f = st->factor, unbias = (float)p->rows / (float)MAX(p->rows - 1, 1);
  for (int64_t c = 0; c < p->channels; c++) {
    float v = variance[c] * unbias;
    new_mean[c] = f == 1 ? mean[c] : (1 - f) * old_mean[c] + f * mean[c];
    new_variance[c] = f == 1 ? v : (1 - f) * old_variance[c] + f * v;
  }
}

static shoal_status norm_run(struct kernel_ctx *ctx) {
  const struct norm_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *scale = ctx_in(ctx, 1), *offset = ctx_in(ctx, 2), *mean = ctx_in(ctx, 3),
                      *variance = ctx_in(ctx, 4);
  struct norm p = {.relu = st->relu};
  struct norm_matrix size;
  TRY(norm_check(ctx, st, &size));
  matrix(&size, x, &p);
  struct shape sx = tensor_shape(x);
  struct tensor *y, *new_mean, *new_variance, *saved_mean, *saved_variance, *empty;
  TRY(ctx_out(ctx, 0, &sx, &y));
  TRY(out_vector(ctx, 1, p.channels, &new_mean));
  TRY(out_vector(ctx, 2, p.channels, &new_variance));
  TRY(out_vector(ctx, 3, p.channels, &saved_mean));
  TRY(out_vector(ctx, 4, p.channels, &saved_variance));
  if (ctx->kernel->n_out > 5) TRY(out_vector(ctx, 5, 0, &empty));
  if (!x->n) {
    for (int64_t c = 0; c < p.channels; c++) T_DATA(new_mean, float)[c] = T_DATA(new_variance, float)[c] = NAN;
    tensor_zero(saved_mean);
    tensor_zero(saved_variance);
    return NULL;
  }
  struct window w = format_of(st);
  struct tensor image = {0}, side = {0}, work = {0}, factor = {0};
  shoal_status s;
  TRY_GOTO(s, window_channels_last(&w, ctx_pool(ctx), x, &image), done);
  if (st->side_inputs) {
    struct shape more = tensor_shape(ctx_in(ctx, 5));
    if (!shape_equal(&more, &sx)) {
      s = INVALID("side_input shape must be equal to input shape: %s != %s", shape_str(&more), shape_str(&sx));
      goto done;
    }
    TRY_GOTO(s, window_channels_last(&w, ctx_pool(ctx), ctx_in(ctx, 5), &side), done);
    p.side = side.data;
  }
  p.x = image.data;
  float *m = saved_mean->data, *v = saved_variance->data;
  if (st->training) {
    TRY_GOTO(s, statistics(ctx, &p, m, v), done);
    blend(st, &p, mean->data, variance->data, m, v, new_mean->data, new_variance->data);
  } else {
    memcpy(m, mean->data, tensor_bytes(mean));
    memcpy(v, variance->data, tensor_bytes(variance));
    memcpy(new_mean->data, m, tensor_bytes(mean));
    memcpy(new_variance->data, v, tensor_bytes(mean));
  }
  struct shape vector = shape_vector(p.channels);
  TRY_GOTO(s, tensor_new(&factor, SHOAL_FLOAT32, &vector), done);
  for (int64_t c = 0; c < p.channels; c++)
    T_DATA(&factor, float)[c] = T_DATA(scale, const float)[c] / sqrtf(v[c] + st->epsilon);
  if (st->channels_first) TRY_GOTO(s, tensor_new(&work, p.type, &sx), done);
  p.y = st->channels_first ? work.data : y->data;
  p.mean = m;
  p.scale = factor.data;
  p.offset = offset->data;
  pool_for(ctx_pool(ctx), p.rows, p.piece, apply_rows, &p);
  if (st->channels_first) window_store(&w, ctx_pool(ctx), &work, y);
done:
  tensor_release(&image);
  tensor_release(&side);
  tensor_release(&work);
  tensor_release(&factor);
  return s;
}

static void add(const float *a, const float *b, float *out, int64_t n, const void *arg) {
  for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

static void gate(const float *dy, const float *y, float *out, int64_t n, const void *arg) {
  for (int64_t i = 0; i < n; i++) out[i] = y[i] > 0 ? dy[i] : 0;
}

/* dy, or what Relu lets through of it, which is the gradient of the side input too. */
static shoal_status through_relu(struct kernel_ctx *ctx, const struct norm_state *st, struct tensor *out) {
  const struct tensor *dy = ctx_in(ctx, 0);
  struct shape shape = tensor_shape(dy);
  struct tensor *side;
  if (!st->relu) {
    tensor_ref(out, dy);
    return NULL;
  }
  if (st->side_inputs) {
    TRY(ctx_out(ctx, 5, &shape, &side));
    tensor_ref(out, side);
  } else TRY(tensor_new(out, (shoal_dtype)dy->dtype, &shape));
  shoal_dtype type = (shoal_dtype)dy->dtype;
  if (st->sum) nn_map(ctx_pool(ctx), type, dy->data, ctx_in(ctx, 8)->data, out->data, dy->n, NN_GRAIN, add, NULL, NULL);
  nn_map(ctx_pool(ctx), type, st->sum ? out->data : dy->data, ctx_in(ctx, 7)->data, out->data, dy->n, NN_GRAIN, gate,
         NULL, NULL);
  return NULL;
}

static shoal_status norm_grad_run(struct kernel_ctx *ctx) {
  const struct norm_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 1), *scale = ctx_in(ctx, 2), *mean = ctx_in(ctx, 3), *variance = ctx_in(ctx, 4);
  struct norm p = {0};
  struct norm_matrix size;
  struct tensor dy = {0};
  TRY(norm_check_back(ctx, st, &size));
  matrix(&size, x, &p);
  struct shape sx = tensor_shape(x), scalar = shape_scalar();
  struct tensor *dx, *dscale, *doffset, *none;
  TRY(ctx_out(ctx, 0, &sx, &dx));
  TRY(out_vector(ctx, 1, p.channels, &dscale));
  TRY(out_vector(ctx, 2, p.channels, &doffset));
  for (int i = 3; i < 5; i++) {
    TRY(ctx_out(ctx, i, &scalar, &none));
    tensor_zero(none);
  }
  TRY(through_relu(ctx, st, &dy));
  if (!x->n) {
    tensor_release(&dy);
    tensor_zero(dscale);
    tensor_zero(doffset);
    return NULL;
  }
  struct window w = format_of(st);
  struct tensor image = {0}, back = {0}, work = {0}, room = {0};
  struct shape four = shape_matrix(5, p.channels);
  shoal_status s;
  TRY_GOTO(s, window_channels_last(&w, ctx_pool(ctx), x, &image), done);
  TRY_GOTO(s, window_channels_last(&w, ctx_pool(ctx), &dy, &back), done);
  TRY_GOTO(s, tensor_new(&room, SHOAL_FLOAT32, &four), done);
  if (st->channels_first) TRY_GOTO(s, tensor_new(&work, p.type, &sx), done);
  float *sums = room.data, *factor = sums + 2 * p.channels, *centre = sums + 3 * p.channels,
        *slope = sums + 4 * p.channels;
  p.x = image.data;
  p.dy = back.data;
  p.mean = mean->data;
  TRY_GOTO(s, reduce(ctx_pool(ctx), &p, 2, sum_back_rows, sums), done);
  for (int64_t c = 0; c < p.channels; c++) {
    float v = T_DATA(variance, const float)[c] + st->epsilon, inv = 1 / sqrtf(v);
    T_DATA(doffset, float)[c] = sums[c];
    T_DATA(dscale, float)[c] = sums[p.channels + c] * inv;
    factor[c] = T_DATA(scale, const float)[c] * inv;
    centre[c] = st->training ? sums[c] / (float)p.rows : 0;
    slope[c] = st->training ? sums[p.channels + c] / (float)p.rows / v : 0;
  }
  p.y = st->channels_first ? work.data : dx->data;
  p.scale = factor;
  p.offset = centre;
  p.slope = slope;
  pool_for(ctx_pool(ctx), p.rows, p.piece, back_rows, &p);
  if (st->channels_first) window_store(&w, ctx_pool(ctx), &work, dx);
done:
  tensor_release(&dy);
  tensor_release(&image);
  tensor_release(&back);
  tensor_release(&work);
  tensor_release(&room);
  return s;
}

#define NORM_TYPES (DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16))
static const struct kernel_def v1_kernels[] = {{.device = "CPU",
                                                .type_attr = "T",
                                                .types = DT(FLOAT32),
                                                .state_size = sizeof(struct norm_state),
                                                .init = norm_init,
                                                .run = norm_run},
                                               {0}};
static const struct kernel_def norm_kernels[] = {{.device = "CPU",
                                                  .type_attr = "T",
                                                  .types = NORM_TYPES,
                                                  .type_attr2 = "U",
                                                  .types2 = DT(FLOAT32),
                                                  .state_size = sizeof(struct norm_state),
                                                  .init = norm_init,
                                                  .run = norm_run},
                                                 {0}};
static const struct kernel_def v1_grad_kernels[] = {{.device = "CPU",
                                                     .type_attr = "T",
                                                     .types = DT(FLOAT32),
                                                     .state_size = sizeof(struct norm_state),
                                                     .init = norm_init,
                                                     .run = norm_grad_run},
                                                    {0}};
static const struct kernel_def grad_kernels[] = {{.device = "CPU",
                                                  .type_attr = "T",
                                                  .types = NORM_TYPES,
                                                  .type_attr2 = "U",
                                                  .types2 = DT(FLOAT32),
                                                  .state_size = sizeof(struct norm_state),
                                                  .init = norm_init,
                                                  .run = norm_grad_run},
                                                 {0}};

/* ---- shapes ---- */

static shoal_status format_at(const struct shoal_node *n, int *rank, int *channel) {
  const char *text;
  TRY(node_get_string(n, "data_format", &text));
  *rank = (int)strlen(text);
  *channel = text[1] == 'C' ? 1 : *rank - 1;
  return NULL;
}

static shoal_status norm_shape(struct shape_ctx *c) {
  int rank, at;
  struct shape x;
  TRY(format_at(c->node, &rank, &at));
  TRY(shape_in_rank(c, 0, rank, &x));
  c->out[0] = x;
  for (int i = 1; i < 5; i++) c->out[i] = shape_vector(x.dims[at]);
  return NULL;
}

static shoal_status norm_grad_shape(struct shape_ctx *c) {
  int rank, at;
  struct shape x;
  TRY(format_at(c->node, &rank, &at));
  TRY(shape_in_rank(c, 1, rank, &x));
  c->out[0] = x;
  c->out[1] = c->out[2] = shape_vector(x.dims[at]);
  if (c->node->n_out > 5) c->out[5] = x;
  return NULL;
}

/* ---- gradients ---- */

static shoal_status norm_grad(struct grad_ctx *c) {
  const char *name = c->node->op->name;
  bool training, v3 = !strcmp(name, "FusedBatchNormV3");
  TRY(node_get_bool(c->node, "is_training", &training));
  struct build n = build_begin(c->g,
                               v3                                  ? "FusedBatchNormGradV3"
                               : !strcmp(name, "FusedBatchNormV2") ? "FusedBatchNormGradV2"
                                                                   : "FusedBatchNormGrad",
                               NULL);
  build_in(&n, grad_dy(c, 0));
  build_in(&n, gin(c, 0));
  build_in(&n, gin(c, 1));
  build_in(&n, training ? gout(c, 3) : gin(c, 3));
  build_in(&n, training ? gout(c, 4) : gin(c, 4));
  if (v3) build_in(&n, gout(c, 5));
  static const char *const attrs[] = {"epsilon", "data_format", "is_training"};
  for (size_t i = 0; i < COUNT_OF(attrs); i++) build_attr(&n, attrs[i], attr_copy(node_attr(c->node, attrs[i])));
  struct shoal_node *back = build_end(&n);
  for (int i = 0; back && i < 3; i++) grad_set(c, i, node_out(back, i));
  return NULL;
}

static shoal_out mean_of(struct shoal_graph *g, shoal_out x, shoal_out axes) {
  struct build n = build_begin(g, "Mean", NULL);
  build_in(&n, x);
  build_in(&n, axes);
  build_attr_bool(&n, "keep_dims", true);
  return build_end_out(&n);
}

/* The gradient's formula written out in plain ops, which are then differentiated themselves. */
static shoal_status norm_grad_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out dy = gin(c, 0), x = gin(c, 1), scale = gin(c, 2);
  int rank, at, n_axes = 0;
  int64_t axes_v[4], shape_v[5];
  float epsilon;
  bool training;
  TRY(format_at(c->node, &rank, &at));
  TRY(node_get_float(c->node, "epsilon", &epsilon));
  TRY(node_get_bool(c->node, "is_training", &training));
  for (int i = 0; i < rank; i++) {
    shape_v[i] = i == at ? -1 : 1;
    if (i != at) axes_v[n_axes++] = i;
  }
  shoal_out axes = build_const_ints(g, SHOAL_INT32, axes_v, n_axes),
            shape = build_const_ints(g, SHOAL_INT32, shape_v, rank);
  shoal_out eps = build_const_float(g, SHOAL_FLOAT32, (double)epsilon);
  shoal_out xf = build_cast(g, x, SHOAL_FLOAT32), dyf = build_cast(g, dy, SHOAL_FLOAT32);
  shoal_out wide = array_reshape(g, scale, shape), mean, variance;
  if (training) {
    mean = mean_of(g, xf, axes);
    variance = mean_of(g, build_op2(g, "SquaredDifference", xf, mean), axes);
  } else {
    mean = array_reshape(g, gin(c, 3), shape);
    variance = array_reshape(g, gin(c, 4), shape);
  }
  shoal_out inv = build_op1(g, "Rsqrt", build_op2(g, "AddV2", variance, eps));
  shoal_out centred = build_op2(g, "Sub", xf, mean), product = build_op2(g, "Mul", dyf, centred);
  shoal_out dx = dyf;
  if (training) {
    shoal_out slope = build_op2(g, "Mul", mean_of(g, product, axes), build_op1(g, "Square", inv));
    dx = build_op2(g, "Sub", build_op2(g, "Sub", dyf, mean_of(g, dyf, axes)), build_op2(g, "Mul", centred, slope));
  }
  dx = build_cast(g, build_op2(g, "Mul", build_op2(g, "Mul", wide, inv), dx), out_type(x));
  shoal_out like = array_shape(g, scale, SHOAL_INT32);
  shoal_out dscale = array_reshape(g, array_sum(g, build_op2(g, "Mul", product, inv), axes, false), like);
  shoal_out doffset = array_reshape(g, array_sum(g, dyf, axes, false), like);
  shoal_out ys[3] = {dx, dscale, doffset}, xs[3] = {dy, x, scale}, used[3];
  struct grad dys[3], dxs[3];
  int n = 0;
  for (int i = 0; i < 3; i++)
    if (!grad_none(c->dy[i])) {
      used[n] = ys[i];
      dys[n++] = c->dy[i];
    }
  if (!n || graph_error(g)) return NULL;
  TRY(graph_gradients(g, used, n, dys, xs, 3, NULL, 0, false, dxs));
  for (int i = 0; i < 3; i++) c->dx[i] = dxs[i];
  return NULL;
}

static const struct op_row rows[] = {
    {"FusedBatchNorm", .in = "x: T, scale: T, offset: T, mean: T, variance: T",
     .out = "y: T, batch_mean: T, batch_variance: T, reserve_space_1: T, reserve_space_2: T",
     .attrs = "T: {float}; epsilon: float = 0.0001; exponential_avg_factor: float = 1.0; data_format: {'NHWC', 'NCHW'} "
              "= 'NHWC'; is_training: bool = true",
     .shape = norm_shape, .grad = norm_grad, .kernels = v1_kernels},
    {"FusedBatchNormV2", .in = "x: T, scale: U, offset: U, mean: U, variance: U",
     .out = "y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U",
     .attrs = "T: {half, bfloat16, float}; U: {float}; epsilon: float = 0.0001; exponential_avg_factor: float = 1.0; "
              "data_format: {'NHWC', 'NCHW'} = 'NHWC'; is_training: bool = true",
     .shape = norm_shape, .grad = norm_grad, .kernels = norm_kernels},
    {"FusedBatchNormV3", .in = "x: T, scale: U, offset: U, mean: U, variance: U",
     .out = "y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U",
     .attrs = "T: {half, bfloat16, float}; U: {bfloat16, float}; epsilon: float = 0.0001; exponential_avg_factor: "
              "float = 1.0; data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'; is_training: bool = true",
     .shape = norm_shape, .grad = norm_grad, .kernels = norm_kernels},
    {"FusedBatchNormGrad", .in = "y_backprop: T, x: T, scale: T, reserve_space_1: T, reserve_space_2: T",
     .out = "x_backprop: T, scale_backprop: T, offset_backprop: T, reserve_space_3: T, reserve_space_4: T",
     .attrs = "T: {float}; epsilon: float = 0.0001; data_format: {'NHWC', 'NCHW'} = 'NHWC'; is_training: bool = true",
     .shape = norm_grad_shape, .grad = norm_grad_grad, .kernels = v1_grad_kernels},
    {"FusedBatchNormGradV2", .in = "y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U",
     .out = "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_3: U, reserve_space_4: U",
     .attrs = "T: {half, bfloat16, float}; U: {float}; epsilon: float = 0.0001; data_format: {'NHWC', 'NCHW'} = "
              "'NHWC'; is_training: bool = true",
     .shape = norm_grad_shape, .grad = norm_grad_grad, .kernels = grad_kernels},
    {"FusedBatchNormGradV3",
     .in = "y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U",
     .out = "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_4: U, reserve_space_5: U",
     .attrs = "T: {half, bfloat16, float}; U: {float}; epsilon: float = 0.0001; data_format: {'NHWC', 'NCHW', 'NDHWC', "
              "'NCDHW'} = 'NHWC'; is_training: bool = true",
     .shape = norm_grad_shape, .grad = norm_grad_grad, .kernels = grad_kernels},
    {"_FusedBatchNormEx", .in = "x: T, scale: U, offset: U, mean: U, variance: U, side_input: num_side_inputs * T",
     .out = "y: T, batch_mean: U, batch_variance: U, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U",
     .attrs = "T: {half, float, bfloat16}; U: {float}; epsilon: float = 0.0001; exponential_avg_factor: float = 1.0; "
              "num_side_inputs: int >= 0 = 0; activation_mode: string = 'Identity'; data_format: {'NHWC', 'NCHW'} = "
              "'NHWC'; is_training: bool = true",
     .shape = norm_shape, .kernels = norm_kernels},
    /* The gradient of _FusedBatchNormEx with Relu; and of one with a side input, of y_backprop + more. */
    {"_BatchNormReluGrad",
     .in = "y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U, offset: "
           "float, y: T",
     .out = "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_4: U, reserve_space_5: U, "
            "side_input_backprop: num_side_inputs * T",
     .attrs = "T: {half, float, bfloat16}; U: {float}; epsilon: float = 0.0001; num_side_inputs: int >= 0 = 0; "
              "data_format: {'NHWC', 'NCHW'} = 'NHWC'; is_training: bool = true",
     .flags = OP_OWN, .shape = norm_grad_shape, .kernels = grad_kernels},
    {"_BatchNormReluGradOfSum",
     .in = "y_backprop: T, x: T, scale: float, reserve_space_1: U, reserve_space_2: U, reserve_space_3: U, offset: "
           "float, y: T, more: T",
     .out = "x_backprop: T, scale_backprop: U, offset_backprop: U, reserve_space_4: U, reserve_space_5: U, "
            "side_input_backprop: T",
     .attrs = "T: {half, float, bfloat16}; U: {float}; epsilon: float = 0.0001; data_format: {'NHWC', 'NCHW'} = "
              "'NHWC'; is_training: bool = true",
     .flags = OP_OWN, .shape = norm_grad_shape, .kernels = grad_kernels},
};
OP_FAMILY(batch_norm, rows);
