/* ResNet-50 as a graph, version 1.5: in a block that makes pictures smaller the convolution of 3 x 3 does, not the one
 * of 1 x 1 before it.
 *
 *   conv1, bn1         7 x 7, stride 2, width filters; the largest of 3 x 3, stride 2
 *   stage0 ... stage3  blocks of 1 x 1, 3 x 3 and 1 x 1, with 1, 2, 4, 8 times width filters, 4 times as many behind
 * the last; beside them what came in, through a 1 x 1 where its shape is another logits             the mean of each
 * channel, and a dense layer
 *
 * Convolutions pad alike on both sides, as the published models do, and have no bias: normalisation has. */
#ifndef EXAMPLES_RESNET50_H
#define EXAMPLES_RESNET50_H

#include "common.h"

enum { STAGES = 4 };

struct resnet {
  int64_t blocks[STAGES], width, classes;
  shoal_out training; /* a bool: by the moments of the batch */
};

static inline shoal_out resnet_conv(shoal_graph *g, shoal_out x, int64_t filters, int64_t size, int64_t stride,
                                    const char *name) {
  return shoal_conv_layer_with(
      g, x, filters, size, name,
      SHOAL_OPTIONS(shoal_conv_layer_options, .stride = stride, .symmetric = true, .he_normal = true, .no_bias = true));
}

static inline shoal_out resnet_norm(shoal_graph *g, const struct resnet *m, shoal_out x, const char *name, bool last) {
  return shoal_batch_norm(
      g, x, m->training, name,
      SHOAL_OPTIONS(shoal_batch_norm_options, .momentum = 0.9, .epsilon = 1e-5, .fused = true, .zero_gamma = last));
}

/* What is added to a block's result. */
static inline shoal_out resnet_shortcut(shoal_graph *g, const struct resnet *m, shoal_out x, int64_t filters,
                                        int64_t stride) {
  int64_t dims[SHOAL_MAX_RANK];
  if (shoal_out_shape(x, dims) == 4 && dims[3] == filters && stride == 1) return x;
  return resnet_norm(g, m, resnet_conv(g, x, filters, 1, stride, "shortcut"), "shortcut_bn", false);
}

/* A block begins as what came in: the scale of its last normalisation is 0. */
static inline shoal_out resnet_block(shoal_graph *g, const struct resnet *m, shoal_out x, int64_t filters,
                                     int64_t stride) {
  shoal_out beside = resnet_shortcut(g, m, x, 4 * filters, stride);
  shoal_out h = shoal_relu(g, resnet_norm(g, m, resnet_conv(g, x, filters, 1, 1, "conv1"), "bn1", false));
  h = shoal_relu(g, resnet_norm(g, m, resnet_conv(g, h, filters, 3, stride, "conv2"), "bn2", false));
  h = resnet_norm(g, m, resnet_conv(g, h, 4 * filters, 1, 1, "conv3"), "bn3", true);
  return shoal_relu(g, shoal_add_v2(g, h, beside));
}

static inline shoal_out resnet_stage(shoal_graph *g, const struct resnet *m, shoal_out x, int stage) {
  for (int i = 0; i < (int)m->blocks[stage]; i++) {
    char name[48];
    snprintf(name, sizeof name, "stage%d/block%d", stage, i);
    shoal_push_scope(g, name);
    x = resnet_block(g, m, x, m->width << stage, i == 0 && stage > 0 ? 2 : 1);
    shoal_pop_scope(g);
  }
  return x;
}

/* Pictures [batch, side, side, 3] to logits [batch, classes]. */
static inline shoal_out resnet_logits(shoal_graph *g, const struct resnet *m, shoal_out x) {
  const int64_t window[] = {1, 3, 3, 1}, stride[] = {1, 2, 2, 1};
  const int32_t places[] = {1, 2};
  x = shoal_relu(g, resnet_norm(g, m, resnet_conv(g, x, m->width, 7, 2, "conv1"), "bn1", false));
  x = shoal_max_pool(g, x, window, 4, stride, 4, "SAME");
  for (int i = 0; i < STAGES; i++) x = resnet_stage(g, m, x, i);
  x = shoal_mean(g, x, shoal_constant_ints(g, SHOAL_SHAPE(2), places));
  return shoal_dense(g, x, m->classes, "logits");
}

#endif
