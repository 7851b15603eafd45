/* ExtractImagePatches and ExtractVolumePatches: the windows that a convolution would see, each laid out along the last
 * dimension. The gradient adds every element of a patch back to where it came from: the patches of the elements' own
 * numbers say where that is. */
#include <limits.h>
#include <string.h>

#include "base/pool.h"
#include "ops/nn/window.h"

/* ksizes, strides and rates; batch and depth must be 1. */
static shoal_status read_list(const struct shoal_node *n, const char *name, int spatial, int64_t *out) {
  int64_t v[10];
  int count;
  TRY(node_get_ints(n, name, v, COUNT_OF(v), &count));
  if (count != spatial + 2)
    return INVALID("%s requires the %s attribute to contain %d values, but got: %d", n->op->name, name, spatial + 2,
                   count);
  if (v[0] != 1 || v[count - 1] != 1) return UNIMPLEMENTED("Only support %s across space.", name);
  for (int d = 0; d < 3; d++) out[d] = 1;
  for (int i = 1; i <= spatial; i++) {
    if (v[i] < 1 || v[i] > INT_MAX) return STATUS(SHOAL_OUT_OF_RANGE, "%s is out of range.", name);
    out[3 - spatial + i - 1] = v[i];
  }
  return NULL;
}

static shoal_status read_window(const struct shoal_node *n, struct window *w) {
  const char *padding;
  *w = (struct window){.spatial = op_is(n->op, "ExtractImagePatches") ? 2 : 3, .size_depth = 1};
  for (int d = 0; d < 3; d++) w->dilation[d] = 1;
  TRY(read_list(n, "ksizes", w->spatial, w->size));
  TRY(read_list(n, "strides", w->spatial, w->stride));
  if (w->spatial == 2) TRY(read_list(n, "rates", w->spatial, w->dilation));
  TRY(node_get_string(n, "padding", &padding));
  w->padding = strcmp(padding, "SAME") ? PADDING_VALID : PADDING_SAME;
  return NULL;
}

static shoal_status patches_init(struct kernel_init *ki, void *state) { return read_window(ki->node, state); }

struct cut {
  const struct window *w;
  const char *from;
  char *to;
  int64_t in[3], out[3], before[3];
  size_t pixel; /* bytes */
};

/* Patches [begin, end), counted over batch and places. */
static void cut_some(void *arg, int64_t begin, int64_t end) {
  const struct cut *c = arg;
  const struct window *w = c->w;
  int64_t pixels = c->in[0] * c->in[1] * c->in[2];
  char *to = c->to + (size_t)(begin * w->size[0] * w->size[1] * w->size[2]) * c->pixel;
  for (int64_t i = begin; i < end; i++) {
    int64_t x = i % c->out[2], y = i / c->out[2] % c->out[1], z = i / c->out[2] / c->out[1] % c->out[0];
    int64_t batch = i / c->out[2] / c->out[1] / c->out[0], at[3] = {z, y, x}, k[3];
    for (int d = 0; d < 3; d++) at[d] = at[d] * w->stride[d] - c->before[d];
    const char *image = c->from + (size_t)(batch * pixels) * c->pixel;
    for (k[0] = 0; k[0] < w->size[0]; k[0]++)
      for (k[1] = 0; k[1] < w->size[1]; k[1]++)
        for (k[2] = 0; k[2] < w->size[2]; k[2]++, to += c->pixel) {
          int64_t p[3];
          bool inside = true;
          for (int d = 0; d < 3; d++) {
            p[d] = at[d] + k[d] * w->dilation[d];
            inside &= p[d] >= 0 && p[d] < c->in[d];
          }
          if (inside) memcpy(to, image + (size_t)((p[0] * c->in[1] + p[1]) * c->in[2] + p[2]) * c->pixel, c->pixel);
          else memset(to, 0, c->pixel);
        }
  }
}

static shoal_status patches_run(struct kernel_ctx *ctx) {
  const struct window *w = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  int spatial = w->spatial;
  if (x->rank != spatial + 2) return INVALID("input must be %d-dimensional%s", spatial + 2, tensor_shape_str(x));
  struct cut c = {.w = w, .from = x->data};
  struct shape s = tensor_shape(x);
  int64_t taps = 1, after;
  for (int d = 0; d < 3; d++) {
    c.in[d] = c.out[d] = 1;
    if (d < window_first(w)) continue;
    c.in[d] = x->dims[window_at(w, d)];
    TRY(window_out(w, d, c.in[d], w->size[d], &c.out[d], &c.before[d], &after));
    /* Where strides leave more than half a window out, TensorFlow's volumes begin inside the image. */
    if (spatial == 3 && w->padding == PADDING_SAME)
      c.before[d] = ((c.out[d] - 1) * w->stride[d] + w->size[d] - c.in[d]) / 2;
    s.dims[window_at(w, d)] = c.out[d];
    if (__builtin_mul_overflow(taps, w->size[d], &taps)) return INVALID("ksizes are too large");
  }
  int64_t depth = x->dims[spatial + 1];
  if (__builtin_mul_overflow(taps, depth, &s.dims[spatial + 1])) return INVALID("ksizes are too large");
  struct tensor *y;
  TRY(ctx_out(ctx, 0, &s, &y));
  if (!y->n) return NULL;
  c.to = y->data;
  c.pixel = (size_t)depth * dtype_size((shoal_dtype)x->dtype);
  pool_for(ctx_pool(ctx), y->n / s.dims[spatial + 1], nn_grain(s.dims[spatial + 1]), cut_some, &c);
  return NULL;
}

static shoal_status patches_shape(struct shape_ctx *c) {
  struct window w;
  struct shape x;
  TRY(read_window(c->node, &w));
  TRY(shape_in_rank(c, 0, w.spatial + 2, &x));
  struct shape *y = &c->out[0];
  *y = shape_unknown_of_rank(w.spatial + 2);
  if (x.rank < 0) return NULL;
  int64_t before, after, depth = x.dims[w.spatial + 1];
  y->dims[0] = x.dims[0];
  for (int d = window_first(&w); d < 3; d++) {
    TRY(window_out(&w, d, x.dims[window_at(&w, d)], w.size[d], &y->dims[window_at(&w, d)], &before, &after));
    if (depth >= 0 && __builtin_mul_overflow(depth, w.size[d], &depth)) return INVALID("ksizes are too large");
  }
  y->dims[w.spatial + 1] = depth;
  return NULL;
}

/* The product of a vector. */
static shoal_out count_of(struct shoal_graph *g, shoal_out dims) {
  return build_op2(g, "Prod", dims, build_const_ints(g, SHOAL_INT32, (int64_t[]){0}, 1));
}

static shoal_status patches_grad(struct grad_ctx *c) {
  struct shoal_graph *g = c->g;
  shoal_out x = gin(c, 0), dy = grad_dy(c, 0);
  struct window w;
  TRY(read_window(c->node, &w));
  int spatial = w.spatial;
  int64_t taps = w.size[0] * w.size[1] * w.size[2];
  shoal_dtype wide = SHOAL_INT64;
  shoal_out shape = array_shape(g, x, wide), one = build_const_ints(g, wide, (int64_t[]){1}, 1);
  shoal_out batch = array_part(g, shape, 0, 1), depth = array_part(g, shape, spatial + 1, INT_MAX);
  shoal_out space = array_part(g, shape, 1, spatial + 1), rest = build_const_ints(g, wide, (int64_t[]){-1}, 1);
  shoal_out pixels = count_of(g, space);
  /* Where each element of a patch comes from; -1 is padding, which UnsortedSegmentSum leaves out. */
  shoal_out numbers =
      build_op3(g, "Range", build_const_int(g, wide, 1), build_op2(g, "AddV2", pixels, build_const_int(g, wide, 1)),
                build_const_int(g, wide, 1));
  numbers = array_reshape(g, numbers, array_concat(g, (shoal_out[]){one, space, one}, 3, 0));
  struct build b = build_begin(g, c->node->op->name, NULL);
  build_in(&b, numbers);
  static const char *const copied[] = {"ksizes", "strides", "rates", "padding"};
  for (size_t i = 0; i < COUNT_OF(copied); i++) {
    const struct attr *a = node_attr(c->node, copied[i]);
    if (a) build_attr(&b, copied[i], attr_copy(a));
  }
  shoal_out from = build_op2(g, "Sub", array_reshape(g, build_end_out(&b), rest), build_const_int(g, wide, 1));
  /* dy as [places * taps, batch, depth] */
  shoal_out places = array_part(g, array_shape(g, dy, wide), 1, spatial + 1);
  shoal_out count = array_reshape(g, build_op2(g, "Mul", count_of(g, places), build_const_int(g, wide, taps)), one);
  shoal_out flat = array_reshape(g, dy, array_concat(g, (shoal_out[]){batch, count, depth}, 3, 0));
  shoal_out swap = build_const_ints(g, SHOAL_INT32, (int64_t[]){1, 0, 2}, 3);
  shoal_out sums = build_op3(g, "UnsortedSegmentSum", array_transpose(g, flat, swap), from, pixels);
  grad_set(c, 0, array_reshape_like(g, array_transpose(g, sums, swap), x));
  return NULL;
}

#define KERNEL(id, types_)                                                     \
  static const struct kernel_def id[] = {{.device = "CPU",                     \
                                          .type_attr = "T",                    \
                                          .types = types_,                     \
                                          .state_size = sizeof(struct window), \
                                          .init = patches_init,                \
                                          .run = patches_run},                 \
                                         {0}}
KERNEL(image_kernels, DT_NUMBER);
KERNEL(volume_kernels, DT_REAL);

static const struct op_row rows[] = {
    {.name = "ExtractImagePatches",
     .in = "images: T",
     .out = "patches: T",
     .attrs =
         "ksizes: list(int) >= 4; strides: list(int) >= 4; rates: list(int) >= 4; T: {bfloat16, half, float, "
         "double, int8, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128, bool}; padding: "
         "{'SAME', 'VALID'}",
     .shape = patches_shape,
     .grad = patches_grad,
     .kernels = image_kernels},
    {.name = "ExtractVolumePatches",
     .in = "input: T",
     .out = "patches: T",
     .attrs = "ksizes: list(int) >= 5; strides: list(int) >= 5; T: {float, double, int32, uint8, int16, int8, int64, "
              "bfloat16, uint16, half, uint32, uint64}; padding: {'SAME', 'VALID'}",
     .shape = patches_shape,
     .grad = patches_grad,
     .kernels = volume_kernels},
};
OP_FAMILY(image_patches, rows);
