/* Attributes and sizes of pooling. */
#include "ops/nn/pooling_shapes.h"

#include <limits.h>
#include <string.h>

int pool_dims(const struct shoal_node *n) { return strstr(n->op->name, "Pool3D") ? 3 : 2; }

shoal_status pool_state_init(struct pool_state *st, const struct shoal_node *n) {
  TRY(window_init(&st->w, n, pool_dims(n)));
  st->sizes_are_inputs = !node_attr(n, "ksize");
  if (node_attr(n, "include_batch_in_index")) TRY(node_get_bool(n, "include_batch_in_index", &st->batch_in_index));
  return NULL;
}

shoal_status pool_window(const struct kernel_ctx *ctx, const struct pool_state *st, struct window *w) {
  *w = st->w;
  if (!st->sizes_are_inputs) return NULL;
  int first = ctx->kernel->n_in - 2, n_ksize, n_strides;
  int64_t ksize[8], strides[8];
  for (int i = first; i < first + 2; i++)
    if (ctx_in(ctx, i)->n > 8) return INVALID("Sliding window ksize and strides must specify 4 dimensions");
  TRY(tensor_get_ints(ctx_in(ctx, first), "ksize", ksize, 8, &n_ksize));
  TRY(tensor_get_ints(ctx_in(ctx, first + 1), "strides", strides, 8, &n_strides));
  return window_set(w, ksize, n_ksize, strides, n_strides);
}

shoal_status pool_geometry(const struct window *w, const struct shape *x, const char *what, struct pooling *p) {
  if (x->rank != w->spatial + 2) return INVALID("%s must be %d-dimensional", what, w->spatial + 2);
  p->batch = x->dims[0];
  p->depth = x->dims[window_depth_at(w)];
  int64_t pixels = 1;
  for (int d = 0; d < 3; d++) {
    p->size[d] = w->size[d];
    p->stride[d] = w->stride[d];
    if (d < window_first(w)) {
      p->in[d] = p->out[d] = 1;
      continue;
    }
    int64_t after;
    p->in[d] = x->dims[window_at(w, d)];
    TRY(window_out(w, d, p->in[d], w->size[d], &p->out[d], &p->pad[d], &after));
    if (mul_overflows(pixels, p->in[d], &pixels)) pixels = INT64_MAX;
  }
  if (pixels > INT_MAX) return INVALID("%s has too many pixels: %s", what, shape_str(x));
  return NULL;
}

shoal_status pool_check_depth(const struct kernel_ctx *ctx, const struct window *w) {
  if (w->size_depth == 1 && w->stride_depth == 1) return NULL;
  return UNIMPLEMENTED("%s is not yet supported on the depth dimension.", ctx->kernel->op->name);
}

shoal_status pool_check_shape(const struct tensor *t, const struct shape *want, const char *what) {
  struct shape have = tensor_shape(t);
  if (shape_equal(&have, want)) return NULL;
  return INVALID("Expected %s shape to be %s, but got %s", what, shape_str(want), shape_str(&have));
}
