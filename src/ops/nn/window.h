/* Sliding windows: what convolutions and pooling have in common. Attributes by data format, output sizes by
 * padding, and tensors brought to channels-last order and back. */
#ifndef OPS_NN_WINDOW_H
#define OPS_NN_WINDOW_H

#include "ops/nn/nn_util.h"

enum window_padding { PADDING_VALID, PADDING_SAME, PADDING_EXPLICIT };

struct window {
  int spatial;         /* 2 or 3 */
  bool channels_first; /* NCHW, NCDHW */
  enum window_padding padding;
  /* By spatial dimension; with two of them, [0] is 1 (0 for pads) and stands for nothing. */
  int64_t size[3], stride[3], dilation[3], pad_before[3], pad_after[3];
  /* Of pooling: window and stride over batch and depth. */
  int64_t size_batch, size_depth, stride_batch, stride_depth;
};

/* Reads data_format, padding, explicit_paddings, and, as far as the op has them, strides, dilations, ksize. */
shoal_status window_init(struct window *w, const struct shoal_node *n, int spatial);
/* Sets sizes and strides from lists by data format (MaxPoolV2's inputs). */
shoal_status window_set(struct window *w, const int64_t *ksize, int n_ksize, const int64_t *strides, int n_strides);
/* One dimension: output size and padding. -1 in gives -1 out, for shape functions. */
shoal_status window_out(const struct window *w, int d, int64_t in, int64_t filter, int64_t *out, int64_t *before,
                        int64_t *after);

/* Where a dimension stands: rank is spatial + 2. d counts spatial dimensions 0..2 as in struct window. */
static inline int window_at(const struct window *w, int d) {
  return d - (3 - w->spatial) + (w->channels_first ? 2 : 1);
}
static inline int window_depth_at(const struct window *w) { return w->channels_first ? 1 : w->spatial + 1; }
static inline int window_first(const struct window *w) { return 3 - w->spatial; } /* the first d in use */

/* A shape with these dimensions in the window's format. */
struct shape window_shape(const struct window *w, int64_t batch, const int64_t *spatial, int64_t depth);

/* t in channels-last order: *out is t itself (a new reference) or a copy. */
shoal_status window_channels_last(const struct window *w, struct pool *pool, const struct tensor *t,
                                  struct tensor *out);
/* Copies from (channels last, [batch, pixels, depth]) into to, which is in the window's format. */
void window_store(const struct window *w, struct pool *pool, const struct tensor *from, struct tensor *to);

/* For gradients: the window's attributes copied from a node to one being built. */
void window_copy_attrs(struct build *b, const struct shoal_node *n);
/* A node with the attributes of c's, and two or three inputs (d.node NULL: two). */
shoal_out window_grad_node(struct grad_ctx *c, const char *op, shoal_out a, shoal_out b, shoal_out d);

#endif
