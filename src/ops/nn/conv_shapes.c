/* Shapes of convolutions, with TensorFlow's words for what does not fit. */
#include "ops/nn/conv_shapes.h"

#include <limits.h>
#include <string.h>

int conv_dims(const struct shoal_node *n) { return str_starts(n->op->name, "Conv3D") ? 3 : 2; }

shoal_status conv_shapes_init(struct conv_shapes *of, const struct shoal_node *n) {
  const char *name = n->op->name;
  of->kind = strstr(name, "BackpropInput")    ? CONV_BACK_INPUT
             : strstr(name, "BackpropFilter") ? CONV_BACK_FILTER
                                              : CONV_FORWARD;
  of->depthwise = str_starts(name, "Depthwise");
  of->sizes_by_value = strcmp(name, "Conv3DBackpropInput") && strcmp(name, "Conv3DBackpropFilter");
  return window_init(&of->w, n, conv_dims(n));
}

static shoal_status check_rank(const struct kernel_ctx *ctx, const struct conv_shapes *of, const char *what,
                               const struct shape *shape, int want) {
  if (shape->rank == want) return NULL;
  if (of->kind == CONV_FORWARD) return INVALID("%s must be %d-dimensional: %s", what, want, shape_str(shape));
  return INVALID("%s: %s must be %d-dimensional", ctx->kernel->op->name, what, want);
}

/* Spatial sizes. */
static shoal_status find_sizes(const struct window *w, const struct shape *x, const struct shape *f, struct conv *c) {
  for (int d = 0; d < 3; d++) {
    c->stride[d] = w->stride[d];
    c->dilation[d] = w->dilation[d];
    if (d < window_first(w)) {
      c->in[d] = c->out[d] = c->filter[d] = 1;
      continue;
    }
    int64_t after;
    c->in[d] = x->dims[window_at(w, d)];
    c->filter[d] = f->dims[d - window_first(w)];
    TRY(window_out(w, d, c->in[d], c->filter[d], &c->out[d], &c->pad[d], &after));
  }
  return NULL;
}

/* Each channel has filters of its own: as many groups, of one channel each. [h, w, ci, m] lies as [h, w, 1, ci * m]. */
static shoal_status depthwise_geometry(const struct conv_shapes *of, const struct shape *x, const struct shape *f,
                                       struct conv *c) {
  if (c->ci != f->dims[2])
    return INVALID("input and filter must have the same depth: %" PRId64 " vs %" PRId64, c->ci, f->dims[2]);
  c->co = c->ci * f->dims[3];
  c->groups = MAX(1, c->ci);
  return find_sizes(&of->w, x, f, c);
}

/* Everything but the batch from the shapes of image and filter. */
static shoal_status geometry(const struct kernel_ctx *ctx, const struct conv_shapes *of, const struct shape *x,
                             const struct shape *f, struct conv *c) {
  const struct window *w = &of->w;
  int rank = w->spatial + 2;
  TRY(check_rank(ctx, of, "input", x, rank));
  TRY(check_rank(ctx, of, "filter", f, rank));
  for (int i = 0; i < rank; i++)
    if (x->dims[i] > INT_MAX || f->dims[i] > INT_MAX || x->dims[i] < 0 || f->dims[i] < 0)
      return INVALID("%s: dimension %d of input %s or filter %s is out of range", ctx->kernel->op->name, i,
                     shape_str(x), shape_str(f));
  *c = (struct conv){.batch = x->dims[0], .ci = x->dims[window_depth_at(w)], .co = f->dims[rank - 1], .groups = 1};
  if (of->depthwise) return depthwise_geometry(of, x, f, c);
  int64_t patch = f->dims[rank - 2];
  if (patch == 0 ? c->ci != 0 : c->ci % patch) {
    if (of->kind == CONV_FORWARD)
      return INVALID("input depth must be evenly divisible by filter depth: %" PRId64 " vs %" PRId64, c->ci, patch);
    return INVALID("%s: input depth must be evenly divisible by filter depth", ctx->kernel->op->name);
  }
  if (patch) c->groups = MAX(1, c->ci / patch);
  if (c->co % c->groups)
    return INVALID("output depth must be evenly divisible by number of groups: %" PRId64 " vs %" PRId64, c->co,
                   c->groups);
  return find_sizes(w, x, f, c);
}

static shoal_status check_gradient(const struct kernel_ctx *ctx, const struct conv_shapes *of, const struct conv *c,
                                   const struct tensor *dy) {
  const struct window *w = &of->w;
  const char *op = ctx->kernel->op->name;
  struct shape shape = tensor_shape(dy);
  TRY(check_rank(ctx, of, "out_backprop", &shape, w->spatial + 2));
  if (dy->dims[0] != c->batch)
    return INVALID("%s: input and out_backprop must have the same batch size. Input batch: %" PRId64
                   ", outbackprop batch: %" PRId64,
                   op, c->batch, dy->dims[0]);
  if (dy->dims[window_depth_at(w)] != c->co)
    return INVALID("%s: filter and out_backprop must have the same out_depth", op);
  for (int d = window_first(w); d < 3; d++) {
    int64_t size = dy->dims[window_at(w, d)];
    if (size != c->out[d])
      return INVALID("%s: Size of out_backprop doesn't match computed: actual = %" PRId64 ", computed = %" PRId64
                     " spatial_dim: %d input: %" PRId64 " filter: %" PRId64 " output: %" PRId64 " stride: %" PRId64
                     " dilation: %" PRId64,
                     op, size, c->out[d], window_at(w, d), c->in[d], c->filter[d], size, c->stride[d], c->dilation[d]);
  }
  return NULL;
}

/* The shape that input i stands for. Two sizes alone (of Conv2DBackpropInput) are height and width. */
static shoal_status sizes_in(const struct kernel_ctx *ctx, const struct conv_shapes *of, int i,
                             const struct tensor *filter, const struct tensor *dy, struct shape *out) {
  const struct tensor *t = ctx_in(ctx, i);
  if (!of->sizes_by_value) {
    *out = tensor_shape(t);
    return NULL;
  }
  const char *op = ctx->kernel->op->name;
  int rank = of->w.spatial + 2;
  const char *what = of->kind == CONV_BACK_INPUT ? "input_sizes" : "filter_sizes";
  if (t->rank != 1) return INVALID("%s: %s input must be 1-dim, not %d", op, what, t->rank);
  int64_t v[SHOAL_MAX_RANK];
  int n;
  if (t->n > SHOAL_MAX_RANK) return INVALID("%s: %s has %" PRId64 " elements", op, what, t->n);
  TRY(tensor_get_ints(t, what, v, SHOAL_MAX_RANK, &n));
  for (int k = 0; k < n; k++)
    if (v[k] < 0) return INVALID("%s: %s[%d] is negative: %" PRId64, op, what, k, v[k]);
  if (of->kind == CONV_BACK_INPUT && rank == 4 && n == 2 && dy->rank == 4 && filter->rank == 4) {
    int64_t spatial[3] = {1, v[0], v[1]};
    *out = window_shape(&of->w, dy->dims[0], spatial, filter->dims[2]);
    return NULL;
  }
  *out = (struct shape){.rank = n};
  memcpy(out->dims, v, (size_t)n * sizeof *v);
  return NULL;
}

shoal_status conv_shapes_find(const struct kernel_ctx *ctx, const struct conv_shapes *of, struct shape *image,
                              struct shape *filter, struct conv *c) {
  bool forward = of->kind == CONV_FORWARD;
  const struct tensor *f = ctx_in(ctx, 1), *dy = forward ? NULL : ctx_in(ctx, 2);
  *image = tensor_shape(ctx_in(ctx, 0));
  *filter = tensor_shape(f);
  if (of->kind == CONV_BACK_INPUT) TRY(sizes_in(ctx, of, 0, f, dy, image));
  if (of->kind == CONV_BACK_FILTER) TRY(sizes_in(ctx, of, 1, NULL, dy, filter));
  TRY(geometry(ctx, of, image, filter, c));
  return forward ? NULL : check_gradient(ctx, of, c, dy);
}
