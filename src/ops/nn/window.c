/* Sliding windows: attributes, sizes, and channel order. */
#include "ops/nn/window.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A list attribute by data format to batch, spatial, depth. */
static shoal_status spread(const struct window *w, const char *what, const int64_t *v, int n, int64_t *batch,
                           int64_t *spatial, int64_t *depth) {
  if (n != w->spatial + 2) return INVALID("Sliding window %s field must specify %d dimensions", what, w->spatial + 2);
  for (int i = 0; i < n; i++)
    if (v[i] > INT_MAX || v[i] < INT_MIN) return INVALID("Sliding window %s is too large: %" PRId64, what, v[i]);
  *batch = v[0];
  *depth = v[window_depth_at(w)];
  for (int d = 0; d < window_first(w); d++) spatial[d] = 1;
  for (int d = window_first(w); d < 3; d++) spatial[d] = v[window_at(w, d)];
  return NULL;
}

static shoal_status check_positive(const int64_t *v, const char *message) {
  for (int d = 0; d < 3; d++)
    if (v[d] <= 0) return INVALID("%s", message);
  return NULL;
}

static shoal_status read_explicit(struct window *w, const struct shoal_node *n) {
  int64_t v[10];
  int count;
  TRY(node_get_ints(n, "explicit_paddings", v, COUNT_OF(v), &count));
  if (w->padding != PADDING_EXPLICIT) {
    if (count) return INVALID("explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT");
    return NULL;
  }
  int want = 2 * (w->spatial + 2);
  if (count != want) return INVALID("explicit_paddings attribute must contain %d values, but got: %d", want, count);
  for (int i = 0; i < count; i++) {
    if (v[i] < 0) return INVALID("All elements of explicit_paddings must be nonnegative");
    if (v[i] > INT_MAX) return INVALID("explicit_paddings is too large: %" PRId64, v[i]);
  }
  int depth = window_depth_at(w);
  if (v[0] || v[1] || v[2 * depth] || v[2 * depth + 1])
    return INVALID("Nonzero explicit padding in the batch or depth dimensions is not supported");
  for (int d = window_first(w); d < 3; d++) {
    w->pad_before[d] = v[2 * window_at(w, d)];
    w->pad_after[d] = v[2 * window_at(w, d) + 1];
  }
  return NULL;
}

shoal_status window_set(struct window *w, const int64_t *ksize, int n_ksize, const int64_t *strides, int n_strides) {
  TRY(spread(w, "ksize", ksize, n_ksize, &w->size_batch, w->size, &w->size_depth));
  TRY(spread(w, "strides", strides, n_strides, &w->stride_batch, w->stride, &w->stride_depth));
  for (int i = 0; i < n_ksize; i++)
    if (ksize[i] <= 0) return INVALID("Sliding window ksize for dimension %d was zero or negative.", i);
  for (int i = 0; i < n_strides; i++)
    if (strides[i] <= 0) return INVALID("Sliding window stride for dimension %d was zero or negative.", i);
  if (w->size_batch != 1 || w->stride_batch != 1)
    return UNIMPLEMENTED("Pooling is not yet supported on the batch dimension.");
  return NULL;
}

shoal_status window_init(struct window *w, const struct shoal_node *n, int spatial) {
  *w = (struct window){.spatial = spatial, .size_batch = 1, .size_depth = 1, .stride_batch = 1, .stride_depth = 1};
  for (int d = 0; d < 3; d++) w->size[d] = w->stride[d] = w->dilation[d] = 1;
  const char *text;
  if (node_attr(n, "data_format")) {
    TRY(node_get_string(n, "data_format", &text));
    if (!strcmp(text, "NCHW_VECT_C"))
      return UNIMPLEMENTED("The %s op does not support data_format NCHW_VECT_C on the CPU", n->op->name);
    w->channels_first = !strcmp(text, "NCHW") || !strcmp(text, "NCDHW");
  }
  TRY(node_get_string(n, "padding", &text));
  w->padding = !strcmp(text, "SAME") ? PADDING_SAME : !strcmp(text, "VALID") ? PADDING_VALID : PADDING_EXPLICIT;
  if (node_attr(n, "explicit_paddings")) TRY(read_explicit(w, n));
  int64_t v[10], k[10], batch, depth;
  int count, n_k;
  if (node_attr(n, "ksize")) {
    TRY(node_get_ints(n, "ksize", k, COUNT_OF(k), &n_k));
    TRY(node_get_ints(n, "strides", v, COUNT_OF(v), &count));
    return window_set(w, k, n_k, v, count);
  }
  if (!node_attr(n, "strides")) return NULL;
  TRY(node_get_ints(n, "strides", v, COUNT_OF(v), &count));
  TRY(spread(w, "strides", v, count, &batch, w->stride, &depth));
  bool dilation2d = node_attr(n, "rates"); /* the only one that calls them so; its words and code are others, too */
  if ((batch != 1 || depth != 1) && dilation2d)
    return UNIMPLEMENTED("Stride is only supported across spatial dimensions.");
  if (batch != 1 || depth != 1)
    return INVALID("Current implementation does not yet support strides in the batch and depth dimensions.");
  TRY(check_positive(w->stride, spatial == 2 ? "Row and column strides should be larger than 0."
                                             : "Spatial strides should be larger than 0."));
  const char *rates = dilation2d ? "rates" : "dilations";
  if (!node_attr(n, rates)) return NULL;
  TRY(node_get_ints(n, rates, v, COUNT_OF(v), &count));
  TRY(spread(w, rates, v, count, &batch, w->dilation, &depth));
  if ((batch != 1 || depth != 1) && dilation2d)
    return UNIMPLEMENTED("Rate is only supported across spatial dimensions.");
  if (batch != 1 || depth != 1)
    return INVALID("Current implementation does not yet support dilations in the batch and depth dimensions.");
  return check_positive(w->dilation, "Dilated rates should be larger than 0.");
}

shoal_status window_out(const struct window *w, int d, int64_t in, int64_t filter, int64_t *out, int64_t *before,
                        int64_t *after) {
  *before = *after = 0;
  *out = -1;
  if (in < 0 || filter < 0) return NULL;
  if (filter > INT_MAX || in > ((int64_t)1 << 40)) return INVALID("filter or input is too large");
  int64_t effective = (filter - 1) * w->dilation[d] + 1, stride = w->stride[d];
  switch (w->padding) {
    case PADDING_VALID: *out = (in - effective + stride) / stride; break;
    case PADDING_EXPLICIT:
      *before = w->pad_before[d];
      *after = w->pad_after[d];
      *out = (in + *before + *after - effective + stride) / stride;
      break;
    case PADDING_SAME: {
      *out = (in + stride - 1) / stride;
      int64_t need = MAX(0, (*out - 1) * stride + effective - in);
      *before = need / 2;
      *after = need - *before;
      break;
    }
  }
  if (*out < 0)
    return INVALID("Computed output size would be negative: %" PRId64 " [input_size: %" PRId64
                   ", effective_filter_size: %" PRId64 ", stride: %" PRId64 "]",
                   *out, in, effective, stride);
  return NULL;
}

struct shape window_shape(const struct window *w, int64_t batch, const int64_t *spatial, int64_t depth) {
  struct shape s = shape_unknown_of_rank(w->spatial + 2);
  s.dims[0] = batch;
  s.dims[window_depth_at(w)] = depth;
  for (int d = window_first(w); d < 3; d++) s.dims[window_at(w, d)] = spatial[d];
  return s;
}

/* ---- channel order ---- */

struct turn {
  size_t element;
  const char *from;
  char *to;
  int64_t rows, cols;
};

enum { TILE = 32 };

#define TURN(type)                                                                                    \
  {                                                                                                   \
    const type *x = (const type *)t->from + b * t->rows * t->cols;                                    \
    type *y = (type *)t->to + b * t->rows * t->cols;                                                  \
    for (int64_t r = r0; r < MIN(r0 + TILE, t->rows); r++)                                            \
      for (int64_t c = c0; c < MIN(c0 + TILE, t->cols); c++) y[c * t->rows + r] = x[r * t->cols + c]; \
    break;                                                                                            \
  }

static void turn_some(void *arg, int64_t begin, int64_t end) {
  const struct turn *t = arg;
  int64_t down = (t->rows + TILE - 1) / TILE;
  for (int64_t u = begin; u < end; u++) {
    int64_t b = u / down, r0 = u % down * TILE;
    for (int64_t c0 = 0; c0 < t->cols; c0 += TILE) switch (t->element) {
        case 1: TURN(uint8_t)
        case 2: TURN(uint16_t)
        case 4: TURN(uint32_t)
        case 8: TURN(uint64_t)
        default: TURN(c128)
      }
  }
}

static void transpose_inner(struct pool *pool, size_t element, const void *from, void *to, int64_t batch, int64_t rows,
                            int64_t cols) {
  if (!batch || !rows || !cols) return;
  struct turn t = {element, from, to, rows, cols};
  pool_for(pool, batch * ((rows + TILE - 1) / TILE), nn_grain(TILE * cols), turn_some, &t);
}

shoal_status window_channels_last(const struct window *w, struct pool *pool, const struct tensor *t,
                                  struct tensor *out) {
  if (!w->channels_first) {
    tensor_ref(out, t);
    return NULL;
  }
  struct shape s = tensor_shape(t);
  int64_t depth = s.dims[1];
  for (int i = 1; i + 1 < s.rank; i++) s.dims[i] = s.dims[i + 1];
  s.dims[s.rank - 1] = depth;
  TRY(tensor_new(out, (shoal_dtype)t->dtype, &s));
  if (t->n)
    transpose_inner(pool, dtype_size((shoal_dtype)t->dtype), t->data, out->data, t->dims[0], depth,
                    dims_product(t->dims, 2, t->rank));
  return NULL;
}

void window_store(const struct window *w, struct pool *pool, const struct tensor *from, struct tensor *to) {
  if (!to->n) return;
  if (!w->channels_first) {
    memcpy(to->data, from->data, tensor_bytes(to));
    return;
  }
  transpose_inner(pool, dtype_size((shoal_dtype)to->dtype), from->data, to->data, to->dims[0],
                  dims_product(to->dims, 2, to->rank), to->dims[1]);
}

void window_copy_attrs(struct build *b, const struct shoal_node *n) {
  static const char *const names[] = {"strides",           "dilations",   "rates", "padding",
                                      "explicit_paddings", "data_format", "ksize", "use_cudnn_on_gpu"};
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    const struct attr *a = node_attr(n, names[i]);
    if (a && b->op && op_attr_find(b->op, names[i])) build_attr(b, names[i], attr_copy(a));
  }
}

shoal_out window_grad_node(struct grad_ctx *c, const char *op, shoal_out a, shoal_out b, shoal_out d) {
  struct build n = build_begin(c->g, op, NULL);
  build_in(&n, a);
  build_in(&n, b);
  if (d.node) build_in(&n, d);
  window_copy_attrs(&n, c->node);
  return build_end_out(&n);
}
