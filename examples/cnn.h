/* The convolutional network of mnist_cnn.c and mnist_records.c. */
#ifndef EXAMPLES_CNN_H
#define EXAMPLES_CNN_H

#include "common.h"

/* Two rounds of convolution and pooling, which leave 7 x 7 pictures of 32 channels, then two dense layers. */
static inline shoal_out network(shoal_graph *g, shoal_out x) {
  shoal_out h = shoal_reshape(g, x, shoal_constant_ints(g, SHOAL_SHAPE(4), (const int32_t[]){-1, 28, 28, 1}));
  h = shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, h, 16, 3, "conv1")));
  h = shoal_pool_layer(g, shoal_relu(g, shoal_conv_layer(g, h, 32, 3, "conv2")));
  h = shoal_relu(g, shoal_dense(g, shoal_flatten(g, h), 128, "dense"));
  return shoal_dense(g, h, CLASSES, "logits");
}

#endif
