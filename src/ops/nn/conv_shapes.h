/* Convolutions and their gradients as nodes have them: attributes, and from a kernel's inputs what is to be computed.
 * For the kernels of every device: elements are not looked at, but for those of input_sizes and filter_sizes, which are
 * the host's. */
#ifndef OPS_NN_CONV_SHAPES_H
#define OPS_NN_CONV_SHAPES_H

#include "math/conv.h"
#include "ops/nn/window.h"

enum conv_kind { CONV_FORWARD, CONV_BACK_INPUT, CONV_BACK_FILTER };

struct conv_shapes {
  struct window w;
  enum conv_kind kind;
  bool depthwise;      /* of DepthwiseConv2dNative: as many groups as channels */
  bool sizes_by_value; /* the shape to be is an input's value; else that input's shape */
};

int conv_dims(const struct shoal_node *n); /* 2 or 3 */
shoal_status conv_shapes_init(struct conv_shapes *of, const struct shoal_node *n);
/* The shapes of image and filter in the op's own formats, and the convolution, as if channels were last. */
shoal_status conv_shapes_find(const struct kernel_ctx *ctx, const struct conv_shapes *of, struct shape *image,
                              struct shape *filter, struct conv *c);

#endif
