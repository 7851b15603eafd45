/* FusedPadConv2D and FusedResizeAndPadConv2D: a convolution of an image that is resized and mirrored at its borders
 * first.
 *
 * TensorFlow has them to save memory on small machines: it makes the padded image row by row. Here it is made as a
 * whole, one image in the place of two, and handed to the convolution that every other op uses. Of a batch TensorFlow
 * 2.15.1 gives the result of the first image for all of them; here each has its own. */
#include <math.h>
#include <stdlib.h>

#include "math/conv.h"
#include "ops/image/image.h"
#include "ops/nn/window.h"

struct padded_state {
  struct window w;
  bool resize, align_corners;
  int offset; /* 0: SYMMETRIC, the border is repeated; 1: REFLECT, it is not */
};

static shoal_status init(struct kernel_init *ki, void *state) {
  struct padded_state *st = state;
  const char *mode;
  TRY(window_init(&st->w, ki->node, 2));
  TRY(node_get_string(ki->node, "mode", &mode));
  st->offset = str_equal(mode, "REFLECT");
  st->resize = node_attr(ki->node, "resize_align_corners") != NULL;
  return st->resize ? node_get_bool(ki->node, "resize_align_corners", &st->align_corners) : NULL;
}

/* One dimension: which two input pixels each pixel of the padded image lies between, and how far from the first. */
struct padded_axis {
  int64_t in, resized, before, padded;
  struct buffer *room; /* of what follows: values choose how large it is, so it is counted as tensors are */
  int64_t *low, *high; /* [padded] */
  double *part;
};

static void axis_fill(const struct padded_state *st, struct padded_axis *a) {
  bool corners = st->align_corners && a->resized > 1;
  float scale = corners ? (float)(a->in - 1) / (float)(a->resized - 1) : (float)a->in / (float)a->resized;
  for (int64_t i = 0; i < a->padded; i++) {
    int64_t j = i - a->before;
    if (j < 0) j = -j - 1 + st->offset;
    else if (j >= a->resized) j = 2 * a->resized - 1 - st->offset - j;
    float p = (float)j * scale;
    a->low[i] = MIN(a->in - 1, (int64_t)p);
    a->high[i] = MIN(a->in - 1, a->low[i] + 1);
    a->part[i] = (double)(p - (float)a->low[i]);
  }
}

static shoal_status axis_init(const struct padded_state *st, const struct tensor *paddings, int d,
                              struct padded_axis *a) {
  int64_t after = int_at(paddings, 2 * d + 1), n = a->resized, most = n - st->offset;
  a->before = int_at(paddings, 2 * d);
  if (a->before < 0 || after < 0)
    return INVALID("paddings must be non-negative: %" PRId64 " %" PRId64, a->before, after);
  if (a->before > most || after > most)
    return INVALID("paddings must be %s the dimension size: %" PRId64 ", %" PRId64 " and %" PRId64,
                   st->offset ? "less than" : "no greater than", a->before, after, n);
  a->padded = n + a->before + after;
  TRY(buffer_new((size_t)(a->padded + 1) * 3 * sizeof *a->low, &a->room));
  a->low = a->room->data;
  a->high = a->low + a->padded;
  a->part = (double *)(a->high + a->padded);
  axis_fill(st, a);
  return NULL;
}

struct filling {
  const struct tensor *x;
  struct tensor *to;
  const struct padded_axis *rows, *columns;
};

static void fill_rows(void *arg, int64_t begin, int64_t end) {
  const struct filling *f = arg;
  const struct padded_axis *rows = f->rows, *columns = f->columns;
  int64_t depth = f->x->dims[3];
  for (int64_t i = begin; i < end; i++) {
    int64_t r = i % rows->padded, image = i / rows->padded * rows->in;
    int64_t top = (image + rows->low[r]) * columns->in, bottom = (image + rows->high[r]) * columns->in;
    for (int64_t c = 0; c < columns->padded; c++)
      for (int64_t k = 0; k < depth; k++) {
        int64_t left = columns->low[c], right = columns->high[c];
        double a = real_at(f->x, (top + left) * depth + k), b = real_at(f->x, (top + right) * depth + k);
        double e = real_at(f->x, (bottom + left) * depth + k), g = real_at(f->x, (bottom + right) * depth + k);
        double high = a + (b - a) * columns->part[c], low = e + (g - e) * columns->part[c];
        real_put(f->to, (i * columns->padded + c) * depth + k, high + (low - high) * rows->part[r]);
      }
  }
}

static shoal_status check(const struct tensor *x, const struct tensor *paddings, const struct tensor *filter) {
  if (x->rank != 4) return INVALID("input must be 4-dimensional%s", tensor_shape_str(x));
  if (paddings->rank != 2 || paddings->dims[1] != 2)
    return INVALID("paddings must be a matrix with 2 columns: %s", tensor_shape_str(paddings));
  if (paddings->dims[0] != 4)
    return INVALID("The first dimension of paddings must be the rank of inputs: 4 %s %s", tensor_shape_str(paddings),
                   tensor_shape_str(x));
  if (int_at(paddings, 0) || int_at(paddings, 1) || int_at(paddings, 6) || int_at(paddings, 7))
    return INVALID("Fused mirror padding only support spatial padding, not batches or channels");
  if (filter->rank != 4) return INVALID("filter must be 4-dimensional: %s", tensor_shape_str(filter));
  if (x->dims[3] != filter->dims[2])
    return INVALID("input and filter must have the same depth: %" PRId64 " vs %" PRId64, x->dims[3], filter->dims[2]);
  if (!x->n) return INVALID("Input tensor can't be empty");
  for (int i = 0; i < 4; i++)
    if (x->dims[i] > INT32_MAX || filter->dims[i] > INT32_MAX) return INVALID("input or filter is too large");
  return NULL;
}

static shoal_status convolve(struct kernel_ctx *ctx, const struct tensor *image, const struct tensor *filter) {
  const struct padded_state *st = ctx->state;
  struct conv c = {.batch = image->dims[0], .ci = image->dims[3], .co = filter->dims[3], .groups = 1};
  for (int d = 0; d < 3; d++) {
    int64_t after;
    c.in[d] = c.out[d] = c.filter[d] = c.stride[d] = c.dilation[d] = 1;
    if (!d) continue;
    c.in[d] = image->dims[d];
    c.filter[d] = filter->dims[d - 1];
    c.stride[d] = st->w.stride[d];
    TRY(window_out(&st->w, d, c.in[d], c.filter[d], &c.out[d], &c.pad[d], &after));
  }
  struct tensor *out;
  TRY(ctx_out_dims(ctx, 0, 4, (int64_t[]){c.batch, c.out[1], c.out[2], c.co}, &out));
  if (!out->n) return NULL;
  return conv_forward(ctx_pool(ctx), &c, ctx_out_type(ctx, 0), image->data, filter->data, out->data, NULL);
}

static shoal_status run(struct kernel_ctx *ctx) {
  const struct padded_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0), *paddings = ctx_in(ctx, 1 + st->resize),
                      *filter = ctx_in(ctx, 2 + st->resize);
  TRY(check(x, paddings, filter));
  struct padded_axis rows = {.in = x->dims[1], .resized = x->dims[1]},
                     columns = {.in = x->dims[2], .resized = x->dims[2]};
  if (st->resize) {
    TRY(image_size(ctx, 1, &rows.resized, &columns.resized));
  }
  struct tensor image = {0};
  shoal_status s;
  TRY_GOTO(s, axis_init(st, paddings, 1, &rows), done);
  TRY_GOTO(s, axis_init(st, paddings, 2, &columns), done);
  TRY_GOTO(s,
           tensor_new_dims(&image, (shoal_dtype)x->dtype, 4,
                           (int64_t[]){x->dims[0], rows.padded, columns.padded, x->dims[3]}),
           done);
  struct filling f = {x, &image, &rows, &columns};
  if (image.n)
    pool_for(ctx_pool(ctx), x->dims[0] * rows.padded, nn_grain(columns.padded * x->dims[3] * 16), fill_rows, &f);
  TRY_GOTO(s, convolve(ctx, &image, filter), done);
done:
  tensor_release(&image);
  buffer_unref(rows.room);
  buffer_unref(columns.room);
  return s;
}

static shoal_status shape(struct shape_ctx *c) {
  struct window w;
  struct shape x, filter;
  int first = c->node->n_in - 2; /* paddings */
  TRY(window_init(&w, c->node, 2));
  TRY(shape_in_rank(c, 0, 4, &x));
  TRY(shape_in_rank(c, first + 1, 4, &filter));
  const struct tensor *p = c->values[first], *size = first == 2 ? c->values[1] : NULL;
  int64_t out[3] = {1, -1, -1}, before, after;
  for (int d = 1; d < 3 && p && p->rank == 2 && p->n == 8; d++) {
    int64_t in = first == 1 ? x.dims[d] : size && size->n == 2 ? int_at(size, d - 1) : -1;
    int64_t more = int_at(p, 2 * d) + int_at(p, 2 * d + 1);
    if (in < 0 || more < 0) continue;
    TRY(window_out(&w, d, in + more, filter.dims[d - 1], &out[d], &before, &after));
  }
  c->out[0] = window_shape(&w, x.dims[0], out, filter.dims[3]);
  return NULL;
}

#define KERNEL(types_)                           \
  (const struct kernel_def[]) {                  \
    {.device = "CPU",                            \
     .type_attr = "T",                           \
     .types = types_,                            \
     .flags = KERNEL_EXPENSIVE,                  \
     .init = init,                               \
     .run = run,                                 \
     .state_size = sizeof(struct padded_state)}, \
    {                                            \
      0                                          \
    }                                            \
  }
#define ATTRS "mode: {'REFLECT', 'SYMMETRIC'}; strides: list(int); padding: {'SAME', 'VALID'}"

static const struct op_row rows[] = {
    {.name = "FusedPadConv2D",
     .in = "input: T, paddings: int32, filter: T",
     .out = "output: T",
     .attrs = "T: {half, bfloat16, float, double}; " ATTRS,
     .shape = shape,
     .kernels = KERNEL(DT(FLOAT16) | DT(FLOAT32) | DT(FLOAT64))},
    {.name = "FusedResizeAndPadConv2D",
     .in = "input: T, size: int32, paddings: int32, filter: T",
     .out = "output: T",
     .attrs = "T: {half, float, double}; resize_align_corners: bool = false; " ATTRS,
     .shape = shape,
     .kernels = KERNEL(DT(FLOAT16) | DT(FLOAT32) | DT(FLOAT64))},
};
OP_FAMILY(conv_padded, rows);
