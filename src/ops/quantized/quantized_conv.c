/* Convolutions of numbers with a scale and a zero point: UniformQuantizedConvolution, whose results have a scale of
 * their own, and UniformQuantizedConvolutionHybrid, which brings each image of floats to 8 bits over the range that it
 * uses and gives floats.
 *
 * Any number of spatial dimensions, in any order (dimension_numbers, a serialized message), with strides, gaps between
 * pixels (lhs_dilation) and between taps (rhs_dilation), and groups of batch or features. Pixels of the border and of
 * gaps are what stands for zero. Nothing is transposed or padded: each sum walks both operands by their steps. */
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "ops/quantized/quantized_scale.h"
#include "proto/attributes.wire.h"

enum { SPATIAL_MAX = SHOAL_MAX_RANK - 2 };

/* Which dimension of a tensor is which: batch (of the kernel: output features), features, and spatial ones. */
struct order {
  int64_t batch, feature, spatial[SPATIAL_MAX];
  int n;
};

struct uniform_conv_state {
  struct side lhs, rhs, out;
  enum { VALID, SAME, EXPLICIT } padding;
  bool ordered; /* dimension_numbers were given */
  struct order in, kernel, result;
  int64_t batch_groups, feature_groups;
  int64_t strides[SPATIAL_MAX], lhs_dilation[SPATIAL_MAX], rhs_dilation[SPATIAL_MAX], pads[2 * SPATIAL_MAX];
  int n_strides, n_lhs_dilation, n_rhs_dilation, n_pads;
};

/* ---- attributes ---- */

static bool spatial_add(struct order *o, int64_t v) {
  if (o->n < SPATIAL_MAX) o->spatial[o->n] = v;
  return o->n++ < SPATIAL_MAX;
}

/* The field of that number in dimension_numbers: one value, or one of a list. */
static struct order *dimension_of(struct uniform_conv_state *st, uint32_t number, int64_t **one) {
  struct order *o = NULL;
  switch (number) {
    case UniformQuantizedConvolutionDimensionNumbersAttr_input_batch_dimension >> 3:
      o = &st->in, *one = &o->batch;
      break;
    case UniformQuantizedConvolutionDimensionNumbersAttr_input_feature_dimension >> 3:
      o = &st->in, *one = &o->feature;
      break;
    case UniformQuantizedConvolutionDimensionNumbersAttr_input_spatial_dimensions >> 3: o = &st->in; break;
    case UniformQuantizedConvolutionDimensionNumbersAttr_kernel_input_feature_dimension >> 3:
      o = &st->kernel, *one = &o->feature;
      break;
    case UniformQuantizedConvolutionDimensionNumbersAttr_kernel_output_feature_dimension >> 3:
      o = &st->kernel, *one = &o->batch;
      break;
    case UniformQuantizedConvolutionDimensionNumbersAttr_kernel_spatial_dimensions >> 3: o = &st->kernel; break;
    case UniformQuantizedConvolutionDimensionNumbersAttr_output_batch_dimension >> 3:
      o = &st->result, *one = &o->batch;
      break;
    case UniformQuantizedConvolutionDimensionNumbersAttr_output_feature_dimension >> 3:
      o = &st->result, *one = &o->feature;
      break;
    case UniformQuantizedConvolutionDimensionNumbersAttr_output_spatial_dimensions >> 3: o = &st->result; break;
    default: break;
  }
  return o;
}

static shoal_status orders_read(const char *data, size_t size, struct uniform_conv_state *st) {
  struct wire w = wire_from(data, size);
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) {
    int64_t *one = NULL;
    struct order *o = dimension_of(st, f.number, &one);
    bool fits = true;
    if (!o) continue;
    if (!one && f.type == WIRE_BYTES) {
      struct wire list = wire_inside(&f);
      for (uint64_t v; fits && wire_left(&list);) {
        if (!wire_get_varint(&list, &v)) return INVALID("Error parsing convolution dimension numbers.");
        fits = spatial_add(o, (int64_t)v);
      }
    } else if (f.type == WIRE_VARINT) {
      if (one) *one = (int64_t)f.value;
      else fits = spatial_add(o, (int64_t)f.value);
    }
    if (!fits) return INVALID("A convolution has at most %d spatial dimensions", SPATIAL_MAX);
  }
  st->ordered = st->in.n > 0;
  return step == WIRE_BROKEN ? INVALID("Error parsing convolution dimension numbers.") : NULL;
}

static shoal_status list_read(const struct shoal_node *n, const char *name, int64_t *out, int most, int *count) {
  TRY(node_get_ints(n, name, out, most, count));
  for (int i = 0; i < *count; i++)
    if (out[i] != (int32_t)out[i])
      return INVALID("Attr %s has value %" PRId64 " out of range for an int32", name, out[i]);
  return NULL;
}

static shoal_status state_read(const struct shoal_node *n, struct uniform_conv_state *st) {
  const char *padding;
  *st = (struct uniform_conv_state){.lhs.axis = -1, .rhs.axis = -1, .out.axis = -1};
  TRY(side_read(n, "lhs_", &st->lhs));
  TRY(side_read(n, "rhs_", &st->rhs));
  TRY(side_read(n, "output_", &st->out));
  if (st->lhs.axis != -1) return INVALID("lhs_quantization_axis Attr must be -1 (per-tensor).");
  TRY(list_read(n, "window_strides", st->strides, SPATIAL_MAX, &st->n_strides));
  TRY(list_read(n, "lhs_dilation", st->lhs_dilation, SPATIAL_MAX, &st->n_lhs_dilation));
  TRY(list_read(n, "rhs_dilation", st->rhs_dilation, SPATIAL_MAX, &st->n_rhs_dilation));
  TRY(list_read(n, "explicit_padding", st->pads, 2 * SPATIAL_MAX, &st->n_pads));
  TRY(node_get_int(n, "batch_group_count", &st->batch_groups));
  TRY(node_get_int(n, "feature_group_count", &st->feature_groups));
  TRY(node_get_string(n, "padding", &padding));
  if (str_equal(padding, "EXPLICIT")) st->padding = EXPLICIT;
  else if (str_equal(padding, "SAME")) st->padding = SAME;
  else if (!str_equal(padding, "VALID"))
    return INVALID("padding Attr must be one of [EXPLICIT | SAME | VALID], but given: %s", padding);
  if (st->padding != EXPLICIT && st->n_pads)
    return INVALID(
        "If padding Attr is not 'EXPLICIT', explicit_padding Attr must be empty. Given padding %s and "
        "explicit_padding of size %d",
        padding, st->n_pads);
  const struct attr *a = node_attr(n, "dimension_numbers");
  return a && a->kind == ATTR_STRING && a->s.n ? orders_read(a->s.data, a->s.n, st) : NULL;
}

static shoal_status init(struct kernel_init *ki, void *state) { return state_read(ki->node, state); }

/* ---- shapes ---- */

struct conv_plan {
  int n; /* spatial dimensions */
  struct order in, kernel, result;
  int64_t strides[SPATIAL_MAX], lhs_dilation[SPATIAL_MAX], rhs_dilation[SPATIAL_MAX], before[SPATIAL_MAX];
  struct shape out;
};

/* A list of one number for each spatial dimension, all at least 1; ones when it is empty. */
static shoal_status fill_ones(const char *name, const int64_t *from, int count, int n, int64_t *to) {
  if (count && count != n) return INVALID("Size of %s Attr must be dims - 2.", name);
  for (int i = 0; i < n; i++) {
    to[i] = count ? from[i] : 1;
    if (to[i] < 1) return INVALID("All elements of %s must be >= 1. Given %" PRId64, name, to[i]);
  }
  return NULL;
}

/* Every dimension of a tensor of that rank, each once. */
static shoal_status order_check(const struct order *o, int rank) {
  uint64_t seen = 0;
  if (o->n != rank - 2)
    return INVALID("Spatial dimensions size must be rank - 2. Given rank %d and spatial dimensions size %d", rank,
                   o->n);
  for (int i = 0; i < rank; i++) {
    int64_t d = i == 0 ? o->batch : i == 1 ? o->feature : o->spatial[i - 2];
    if (d < 0 || d >= rank)
      return INVALID(
          "Each dimension number must be in region [0, rank). Given rank %d and dimension number value %" PRId64, rank,
          d);
    if (seen >> d & 1) return INVALID("Dimension number %" PRId64 " is given twice", d);
    seen |= (uint64_t)1 << d;
  }
  return NULL;
}

static shoal_status groups_check(const struct uniform_conv_state *st, const struct conv_plan *p, const struct shape *x,
                                 const struct shape *f) {
  int64_t in = x->dims[p->in.feature], by = f->dims[p->kernel.feature], out = f->dims[p->kernel.batch];
  int64_t images = x->dims[p->in.batch], groups = st->feature_groups, batches = st->batch_groups;
  if (groups <= 0) return INVALID("feature_group_count must be a positive integer, given: %" PRId64, groups);
  if (in % groups)
    return INVALID("feature_group_count must divide lhs feature dimension size, but %" PRId64
                   " does not divide %" PRId64,
                   groups, in);
  if (by == 0) return INVALID("rhs input feature dimension must divide lhs feature dimension size, but it is 0");
  if (in / groups != by)
    return INVALID(
        "lhs feature dimension size divided by feature_group_count must equal the rhs input feature dimension "
        "size, but %" PRId64 " / %" PRId64 " != %" PRId64,
        in, groups, by);
  if (out % groups)
    return INVALID("rhs output dimension size must be a multiple of feature_group_count, but %" PRId64
                   " is not a multiple of %" PRId64,
                   out, groups);
  if (batches <= 0) return INVALID("batch_group_count Attr must be a positive integer. Given: %" PRId64, batches);
  if (images % batches)
    return INVALID("batch_group_count must divide lhs batch dimension size, but %" PRId64 " does not divide %" PRId64,
                   batches, images);
  if (out % batches)
    return INVALID("rhs output dimension size must be a multiple of batch_group_count, but %" PRId64
                   " is not a multiple of %" PRId64,
                   out, batches);
  return NULL;
}

/* With gaps of so much between each two. */
static shoal_status dilated(int64_t size, int64_t by, int64_t *out) {
  *out = 0;
  if (size && (mul_overflows(size - 1, by, out) || *out >= INT64_MAX / 4))
    return INVALID("The convolution is too large");
  *out += size > 0;
  return NULL;
}

static shoal_status plan_make(const struct uniform_conv_state *st, const struct shape *x, const struct shape *f,
                              struct conv_plan *p) {
  int rank = x->rank;
  if (rank != f->rank)
    return INVALID("lhs and rhs must have same dims. Given lhs and rhs of shapes: %s%s", shape_str(x), shape_str(f));
  if (rank <= 2) return INVALID("lhs and rhs shape dims must be at least 3. Given: %d", rank);
  *p = (struct conv_plan){.n = rank - 2, .in = st->in, .kernel = st->kernel, .result = st->result};
  TRY(fill_ones("window_strides", st->strides, st->n_strides, p->n, p->strides));
  TRY(fill_ones("lhs_dilation", st->lhs_dilation, st->n_lhs_dilation, p->n, p->lhs_dilation));
  TRY(fill_ones("rhs_dilation", st->rhs_dilation, st->n_rhs_dilation, p->n, p->rhs_dilation));
  struct order *const orders[] = {&p->in, &p->kernel, &p->result};
  for (int k = 0; k < 3; k++) {
    if (!st->ordered) {
      *orders[k] = (struct order){.batch = 0, .feature = 1, .n = p->n};
      for (int i = 0; i < p->n; i++) orders[k]->spatial[i] = 2 + i;
    }
    TRY(order_check(orders[k], rank));
  }
  TRY(groups_check(st, p, x, f));
  if (st->padding == EXPLICIT && st->n_pads != 2 * p->n)
    return INVALID(
        "Size of explicit_padding Attr must be 2 * (rank - 2). Given rank %d and explicit_padding of size %d", rank,
        st->n_pads);
  p->out.rank = rank;
  p->out.dims[p->result.batch] = x->dims[p->in.batch] / st->batch_groups;
  p->out.dims[p->result.feature] = f->dims[p->kernel.batch];
  for (int i = 0; i < p->n; i++) {
    int64_t in, taps, total = 0, stride = p->strides[i];
    TRY(dilated(x->dims[p->in.spatial[i]], p->lhs_dilation[i], &in));
    TRY(dilated(f->dims[p->kernel.spatial[i]], p->rhs_dilation[i], &taps));
    if (st->padding == EXPLICIT) {
      if (st->pads[2 * i] < 0 || st->pads[2 * i + 1] < 0) return INVALID("All explicit_padding elems must be >= 0");
      p->before[i] = st->pads[2 * i];
      total = st->pads[2 * i] + st->pads[2 * i + 1];
    } else if (st->padding == SAME) {
      total = MAX(((in + stride - 1) / stride - 1) * stride + taps - in, 0);
      p->before[i] = total / 2;
    }
    int64_t size = (in + total - taps + stride) / stride; /* rounded up */
    if (size < 0) return INVALID("Expected shape dimensions to be non-negative, got %" PRId64, size);
    p->out.dims[p->result.spatial[i]] = size;
  }
  return NULL;
}

/* ---- sums ---- */

struct uniform_convolving {
  const struct conv_plan *p;
  const int8_t *x, *f;
  const int32_t *x_zeros; /* one, or one for each image */
  bool x_zeros_each;
  const struct scale *by;
  struct shape xs, fs;
  int64_t x_step[SHOAL_MAX_RANK], f_step[SHOAL_MAX_RANK], out_step[SHOAL_MAX_RANK];
  /* What becomes of a sum: requantized into ints, or scaled into floats. */
  const struct uniform_conv_state *st;
  const struct ratio *ratios;
  const struct scale *to;
  const struct byte_line *lines;
  int32_t *ints;
  float *floats;
  int64_t pixels, taps;
};

static void steps_of(const struct shape *s, int64_t *step) {
  for (int d = s->rank - 1; d >= 0; d--) step[d] = d == s->rank - 1 ? 1 : step[d + 1] * s->dims[d + 1];
}

/* The sum at one pixel of one feature of one image: at holds the pixel's place by spatial dimension. */
static int32_t sum_at(const struct uniform_convolving *c, const int64_t *at, int64_t image, int64_t out_feature) {
  const struct conv_plan *p = c->p;
  int64_t depth = c->fs.dims[p->kernel.feature], features = c->fs.dims[p->kernel.batch];
  int64_t first = out_feature / (features / c->st->feature_groups) * depth;
  int32_t zero = c->x_zeros[c->x_zeros_each ? image : 0], f_zero = c->by->zeros[c->by->n == 1 ? 0 : out_feature];
  const int8_t *x = c->x + image * c->x_step[p->in.batch] + first * c->x_step[p->in.feature];
  const int8_t *f = c->f + out_feature * c->f_step[p->kernel.batch];
  uint32_t sum = 0; /* wraps, as 32 bits do */
  for (int64_t tap = 0; tap < c->taps; tap++) {
    int64_t rest = tap, x_at = 0, f_at = 0;
    bool inside = true;
    for (int i = p->n - 1; i >= 0; i--) {
      int64_t size = c->fs.dims[p->kernel.spatial[i]], k = rest % size;
      int64_t place = at[i] * p->strides[i] + k * p->rhs_dilation[i] - p->before[i];
      rest /= size;
      f_at += k * c->f_step[p->kernel.spatial[i]];
      inside = inside && place >= 0 && place % p->lhs_dilation[i] == 0 &&
               place / p->lhs_dilation[i] < c->xs.dims[p->in.spatial[i]];
      if (inside) x_at += place / p->lhs_dilation[i] * c->x_step[p->in.spatial[i]];
    }
    for (int64_t d = 0; d < depth; d++) {
      int8_t v = inside ? x[x_at + d * c->x_step[p->in.feature]] : (int8_t)zero;
      sum += ((uint32_t)v - (uint32_t)zero) * ((uint32_t)f[f_at + d * c->f_step[p->kernel.feature]] - (uint32_t)f_zero);
    }
  }
  return (int32_t)sum;
}

/* Planes [begin, end): one feature of one image of the result each. */
static void convolve_planes(void *arg, int64_t begin, int64_t end) {
  const struct uniform_convolving *c = arg;
  const struct conv_plan *p = c->p;
  int64_t features = p->out.dims[p->result.feature], images = p->out.dims[p->result.batch], at[SPATIAL_MAX];
  for (int64_t plane = begin; plane < end; plane++) {
    int64_t image = plane / features, feature = plane % features;
    int64_t from = feature / (features / c->st->batch_groups) * images + image, k = c->by->n == 1 ? 0 : feature;
    for (int64_t pixel = 0; pixel < c->pixels; pixel++) {
      int64_t rest = pixel, to = image * c->out_step[p->result.batch] + feature * c->out_step[p->result.feature];
      for (int i = p->n - 1; i >= 0; i--) {
        int64_t size = p->out.dims[p->result.spatial[i]];
        at[i] = rest % size;
        rest /= size;
        to += at[i] * c->out_step[p->result.spatial[i]];
      }
      int32_t sum = sum_at(c, at, from, feature);
      if (c->floats) c->floats[to] = (float)sum * c->lines[from].scale * c->by->scales[k];
      else c->ints[to] = requantized(c->ratios[k], sum, 0, c->to->zeros[c->to->n == 1 ? 0 : feature], &c->st->out);
    }
  }
}

static void convolve(struct kernel_ctx *ctx, struct uniform_convolving *c) {
  const struct conv_plan *p = c->p;
  steps_of(&c->xs, c->x_step);
  steps_of(&c->fs, c->f_step);
  steps_of(&p->out, c->out_step);
  c->pixels = 1;
  c->taps = ctx_in(ctx, 1)->n > 0; /* the other dimensions of an empty kernel may be of any size */
  for (int i = 0; i < p->n; i++) {
    c->pixels *= p->out.dims[p->result.spatial[i]];
    if (c->taps) c->taps *= c->fs.dims[p->kernel.spatial[i]];
  }
  int64_t planes = p->out.dims[p->result.batch] * p->out.dims[p->result.feature];
  pool_for(ctx_pool(ctx), planes, 1, convolve_planes, c);
}

static shoal_status begin(struct kernel_ctx *ctx, struct conv_plan *p, struct uniform_convolving *c) {
  const struct uniform_conv_state *st = ctx->state;
  *c = (struct uniform_convolving){.p = p, .st = st, .f = ctx_in(ctx, 1)->data};
  c->xs = tensor_shape(ctx_in(ctx, 0));
  c->fs = tensor_shape(ctx_in(ctx, 1));
  TRY(plan_make(st, &c->xs, &c->fs, p));
  if (st->rhs.axis != -1 && st->rhs.axis != p->kernel.batch)
    return INVALID(
        "rhs_quantization_axis Attr must be -1 (per-tensor) or "
        "dimension_numbers.kernel_output_feature_dimension (per-channel).");
  return NULL;
}

static shoal_status conv_run(struct kernel_ctx *ctx) {
  const struct uniform_conv_state *st = ctx->state;
  struct conv_plan p;
  struct uniform_convolving c;
  struct scale one, by, to;
  struct tensor *y;
  TRY(begin(ctx, &p, &c));
  TRY(scale_in(ctx, 2, &c.xs, -1, &one));
  TRY(scale_in(ctx, 4, &c.fs, st->rhs.axis, &by));
  if (st->out.axis != -1 && st->out.axis != p.result.feature)
    return INVALID(
        "output_quantization_axis Attr must be -1 (per-tensor) or "
        "dimension_numbers.output_feature_dimension (per-channel).");
  TRY(scale_in(ctx, 6, &p.out, st->out.axis, &to));
  if (st->out.axis >= 0 && st->rhs.axis < 0)
    return INVALID("If rhs is per-tensor quantized, output must be also per-tensor quantized.");
  TRY(ctx_out(ctx, 0, &p.out, &y));
  struct ratio *ratios = mem_try_zalloc((size_t)by.n, sizeof *ratios);
  if (by.n && !ratios) return NO_MEMORY((size_t)by.n * sizeof *ratios, "scales");
  shoal_status s = NULL;
  for (int64_t k = 0; !s && k < by.n; k++)
    s = ratio_of((double)one.scales[0] * (double)by.scales[k] / (double)to.scales[to.n == 1 ? 0 : k], &ratios[k]);
  c.x = ctx_in(ctx, 0)->data;
  c.x_zeros = one.zeros;
  c.by = &by;
  c.to = &to;
  c.ratios = ratios;
  c.ints = y->data;
  if (!s && y->n) convolve(ctx, &c);
  free(ratios);
  return s;
}

/* Each image as bytes over the range it uses, zero included; its line and zero point. */
static void quantize_images(const struct tensor *x, int axis, int8_t *to, struct byte_line *lines, int32_t *zeros) {
  int64_t images = x->dims[axis], inner = dims_product(x->dims, axis + 1, x->rank);
  const float *v = x->data;
  for (int64_t b = 0; b < images; b++) {
    float least = 0, most = 0;
    for (int64_t first = b * inner; first < x->n; first += images * inner)
      for (int64_t i = first; i < first + inner; i++) least = fminf(least, v[i]), most = fmaxf(most, v[i]);
    lines[b] = byte_line_of(least, most);
    zeros[b] = lines[b].zero;
    for (int64_t first = b * inner; first < x->n; first += images * inner)
      for (int64_t i = first; i < first + inner; i++) to[i] = byte_of(&lines[b], v[i]);
  }
}

static shoal_status hybrid_run(struct kernel_ctx *ctx) {
  const struct uniform_conv_state *st = ctx->state;
  const struct tensor *x = ctx_in(ctx, 0);
  struct conv_plan p;
  struct uniform_convolving c;
  struct scale by;
  struct tensor *y;
  TRY(begin(ctx, &p, &c));
  TRY(scale_in(ctx, 2, &c.fs, st->rhs.axis, &by));
  TRY(ctx_out(ctx, 0, &p.out, &y));
  int64_t images = x->dims[p.in.batch];
  if (!y->n) return NULL;
  int8_t *bytes = mem_try_alloc((size_t)x->n + 1);
  struct byte_line *lines = mem_try_zalloc((size_t)images, sizeof *lines);
  int32_t *zeros = mem_try_zalloc((size_t)images, sizeof *zeros);
  bool there = bytes && lines && zeros;
  if (there) {
    if (x->n) quantize_images(x, (int)p.in.batch, bytes, lines, zeros);
    c.x = bytes;
    c.x_zeros = zeros;
    c.x_zeros_each = true;
    c.by = &by;
    c.lines = lines;
    c.floats = y->data;
    convolve(ctx, &c);
  }
  free(bytes);
  free(lines);
  free(zeros);
  return there ? NULL : NO_MEMORY(x->n, "images");
}

static shoal_status shape(struct shape_ctx *c) {
  struct uniform_conv_state st;
  struct conv_plan p;
  int64_t n;
  TRY(state_read(c->node, &st));
  for (int i = 0; i < 2; i++) {
    if (c->in[i].rank >= 0) c->out[0] = shape_unknown_of_rank(c->in[i].rank);
    if (c->in[i].rank < 0 || shape_elements(&c->in[i], &n) || n < 0) return NULL;
  }
  TRY(plan_make(&st, &c->in[0], &c->in[1], &p));
  c->out[0] = p.out;
  return NULL;
}

/* ---- rows ---- */

#define KERNEL(run_) \
  ONE_KERNEL(.flags = KERNEL_EXPENSIVE, .state_size = sizeof(struct uniform_conv_state), .init = init, .run = run_)
#define WINDOW                                                                                                        \
  "window_strides: list(int) = []; padding: string; explicit_padding: list(int) = []; lhs_dilation: list(int) = []; " \
  "rhs_dilation: list(int) = []; batch_group_count: int = 1; feature_group_count: int = 1; "                          \
  "dimension_numbers: string = ''; "

static const struct op_row rows[] = {
    {.name = "UniformQuantizedConvolution",
     .flags = OP_NO_GRADIENT,
     .shape = shape,
     .in = "lhs: Tin, rhs: Tin, " UNIFORM_SCALES("lhs_") ", " UNIFORM_SCALES("rhs_") ", " UNIFORM_SCALES("output_"),
     .out = "output: Tout",
     .attrs = "Tin: {qint8}; Tout: {qint32}; " WINDOW UNIFORM_SIDE("lhs_") "; " UNIFORM_SIDE("rhs_") "; " UNIFORM_SIDE(
         "output_"),
     .kernels = KERNEL(conv_run)},
    {.name = "UniformQuantizedConvolutionHybrid",
     .flags = OP_NO_GRADIENT,
     .shape = shape,
     .in = "lhs: Tlhs, rhs: Trhs, " UNIFORM_SCALES("rhs_"),
     .out = "output: Tout",
     .attrs = "Tlhs: {float}; Trhs: {qint8}; Tout: {float}; " WINDOW UNIFORM_SIDE("rhs_"),
     .kernels = KERNEL(hybrid_run)},
};
OP_FAMILY(quantized_conv, rows);
