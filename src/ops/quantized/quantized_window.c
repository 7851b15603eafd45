/* Sliding windows over quantized numbers: convolutions, whose sums are 32-bit numbers over a range wide enough for
 * them, and pooling, which takes the numbers as they are. */
#include "ops/quantized/quantized.h"
#include "ops/nn/window.h"

/* ---- convolution ---- */

struct quantized_conv_state {
  struct window w;
};

static shoal_status conv_init(struct kernel_init *ki, void *state) {
  struct quantized_conv_state *st = state;
  TRY(window_init(&st->w, ki->node, 2));
  if (st->w.stride[1] != st->w.stride[2])
    return INVALID("Current implementation only supports equal length strides in the row and column dimensions.");
  if (st->w.dilation[1] != 1 || st->w.dilation[2] != 1)
    return INVALID("Current implementation only supports dilated rate as 1 in the row and column dimensions.");
  return NULL;
}

struct convolving {
  const uint8_t *x, *f;
  int32_t *y;
  int64_t rows, columns, depth, f_rows, f_columns, out_rows, out_columns, out_depth, stride, top, left;
  int32_t x_zero, f_zero;
};

static void convolve_rows(void *arg, int64_t begin, int64_t end) {
  const struct convolving *c = arg;
  for (int64_t at = begin; at < end; at++)
    for (int64_t column = 0; column < c->out_columns; column++)
      for (int64_t k = 0; k < c->out_depth; k++) {
        uint32_t sum = 0; /* wraps, as 32 bits do */
        for (int64_t i = 0; i < c->f_rows; i++) {
          int64_t r = at % c->out_rows * c->stride - c->top + i;
          for (int64_t j = 0; r >= 0 && r < c->rows && j < c->f_columns; j++) {
            int64_t q = column * c->stride - c->left + j;
            if (q < 0 || q >= c->columns) continue;
            const uint8_t *from = c->x + ((at / c->out_rows * c->rows + r) * c->columns + q) * c->depth;
            const uint8_t *by = c->f + (i * c->f_columns + j) * c->depth * c->out_depth + k;
            for (int64_t d = 0; d < c->depth; d++)
              sum += (uint32_t)(from[d] - c->x_zero) * (uint32_t)(by[d * c->out_depth] - c->f_zero);
          }
        }
        c->y[(at * c->out_columns + column) * c->out_depth + k] = (int32_t)sum;
      }
}

static shoal_status conv_run(struct kernel_ctx *ctx) {
  const struct quantized_conv_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *f = ctx_in(ctx, 1);
  static const char *const names[] = {"min_input", "max_input", "min_filter", "max_filter"};
  float e[4];
  int64_t out[3] = {1}, pad[3], after;
  if (x->rank != 4) return INVALID("input must be rank 4 but is rank %d", x->rank);
  if (f->rank != 4) return INVALID("filter must be rank 4 but is rank %d", f->rank);
  for (int i = 0; i < 4; i++) {
    if (ctx_in(ctx, 2 + i)->rank)
      return INVALID("%s must be rank 0 but is rank %d", names[i], ctx_in(ctx, 2 + i)->rank);
    TRY(range_in(ctx, 2 + i, names[i], &e[i]));
  }
  if (x->dims[3] != f->dims[2])
    return INVALID("input and filter must have the same depth: %" PRId64 " vs %" PRId64, x->dims[3], f->dims[2]);
  for (int d = 1; d < 3; d++) TRY(window_out(&st->w, d, x->dims[d], f->dims[d - 1], &out[d], &pad[d], &after));
  if (!x->dims[0] || !out[1] || !out[2] || !f->dims[3]) return INVALID("The convolution has no elements");
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 4, (int64_t[]){x->dims[0], out[1], out[2], f->dims[3]}, &y));
  struct convolving c = {x->data,
                         f->data,
                         y->data,
                         x->dims[1],
                         x->dims[2],
                         x->dims[3],
                         f->dims[0],
                         f->dims[1],
                         out[1],
                         out[2],
                         f->dims[3],
                         st->w.stride[1],
                         pad[1],
                         pad[2],
                         zero_of(&levels_quint8, e[0], e[1]),
                         zero_of(&levels_quint8, e[2], e[3])};
  pool_for(ctx_pool(ctx), x->dims[0] * out[1], 1, convolve_rows, &c);
  float level = product_level(&levels_quint8, e[0], e[1], &levels_quint8, e[2], e[3]);
  TRY(range_out(ctx, 1, level * (float)INT32_MIN));
  return range_out(ctx, 2, level * (float)INT32_MAX);
}

static shoal_status conv_shape(struct shape_ctx *c) {
  struct window w;
  struct shape x, f;
  int64_t out[3] = {1}, before, after;
  TRY(window_init(&w, c->node, 2));
  TRY(shape_in_rank(c, 0, 4, &x));
  TRY(shape_in_rank(c, 1, 4, &f));
  for (int d = 1; d < 3; d++) TRY(window_out(&w, d, x.dims[d], f.dims[d - 1], &out[d], &before, &after));
  c->out[0] = window_shape(&w, x.dims[0], out, f.dims[3]);
  return ranges_shape(c);
}

/* ---- pooling: the numbers themselves, whatever they stand for; means are rounded ---- */

static shoal_status pool_init(struct kernel_init *ki, void *state) {
  return window_init(&((struct quantized_conv_state *)state)->w, ki->node, 2);
}

static shoal_status pool_run(struct kernel_ctx *ctx) {
  const struct window *w = &((const struct quantized_conv_state *)ctx->state)->w;
  const struct tensor *x = ctx_in(ctx, 0);
  bool max = op_is(ctx->kernel->op, "QuantizedMaxPool");
  int64_t out[3] = {1}, pad[3], after, depth;
  float lo, hi;
  TRY(range_in(ctx, 1, "min_input", &lo));
  TRY(range_in(ctx, 2, "max_input", &hi));
  if (x->rank != 4) return INVALID("tensor_in must be 4-dimensional");
  if (w->size_depth != 1 || w->stride_depth != 1)
    return UNIMPLEMENTED("Non-spatial pooling is not yet supported. Volunteers? :)");
  for (int d = 1; d < 3; d++) TRY(window_out(w, d, x->dims[d], w->size[d], &out[d], &pad[d], &after));
  depth = x->dims[3];
  struct tensor *y;
  TRY(ctx_out_dims(ctx, 0, 4, (int64_t[]){x->dims[0], out[1], out[2], depth}, &y));
  for (int64_t i = 0; i < y->n; i++) {
    int64_t k = i % depth, column = i / depth % out[2], row = i / depth / out[2] % out[1],
            image = i / depth / out[2] / out[1];
    int64_t r0 = row * w->stride[1] - pad[1], q0 = column * w->stride[2] - pad[2], sum = 0, n = 0, most = INT32_MIN;
    for (int64_t r = MAX(r0, 0); r < MIN(r0 + w->size[1], x->dims[1]); r++)
      for (int64_t q = MAX(q0, 0); q < MIN(q0 + w->size[2], x->dims[2]); q++, n++) {
        int64_t v = level_at(x, ((image * x->dims[1] + r) * x->dims[2] + q) * depth + k);
        sum += v;
        most = MAX(most, v);
      }
    level_put(y, i, max ? most : n ? lrintf((float)sum / (float)n) : 0);
  }
  TRY(range_out(ctx, 1, lo));
  return range_out(ctx, 2, hi);
}

static shoal_status pool_shape(struct shape_ctx *c) {
  struct window w;
  struct shape x;
  int64_t out[3] = {1}, before, after;
  TRY(window_init(&w, c->node, 2));
  TRY(shape_in_rank(c, 0, 4, &x));
  for (int d = 1; d < 3; d++) TRY(window_out(&w, d, x.dims[d], w.size[d], &out[d], &before, &after));
  c->out[0] = window_shape(&w, x.dims[0], out, x.dims[3]);
  return ranges_shape(c);
}

/* ---- rows ---- */

#define WINDOW(init_) .state_size = sizeof(struct quantized_conv_state), .init = init_
#define POOL(name_)                                                                                                    \
  {                                                                                                                    \
    .name = name_, .flags = OP_NO_GRADIENT, .shape = pool_shape, .in = "input: T, min_input: float, max_input: float", \
    .out = "output: T, min_output: float, max_output: float",                                                          \
    .attrs = "T: " Q "; ksize: list(int); strides: list(int); padding: {'SAME', 'VALID'}",                             \
    .kernels = ONE_KERNEL(.type_attr = "T", .types = DT(QUINT8) | DT(QINT8), WINDOW(pool_init), .run = pool_run)       \
  }

static const struct op_row rows[] = {
    {.name = "QuantizedConv2D",
     .flags = OP_NO_GRADIENT,
     .shape = conv_shape,
     .in = "input: Tinput, filter: Tfilter, min_input: float, max_input: float, min_filter: float, max_filter: float",
     .out = "output: out_type, min_output: float, max_output: float",
     .attrs = "Tinput: " Q "; Tfilter: " Q "; out_type: " Q
              " = qint32; strides: list(int); padding: {'SAME', 'VALID'}; dilations: list(int) = [1,1,1,1]",
     .kernels = ONE_KERNEL(BYTES("Tinput", "Tfilter"), .flags = KERNEL_EXPENSIVE, WINDOW(conv_init), .run = conv_run)},
    POOL("QuantizedAvgPool"),
    POOL("QuantizedMaxPool"),
};
OP_FAMILY(quantized_window, rows);
