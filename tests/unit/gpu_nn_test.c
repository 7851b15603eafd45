/* A GPU's kernels beside the CPU's: layers of neural networks. See gpu_case.h. */
#include "gpu_case.h"

static void list(shoal_builder *b, const char *attr, int64_t n, int64_t h, int64_t w, int64_t c) {
  shoal_build_ints(b, attr, (int64_t[]){n, h, w, c}, 4);
}

/* ---- convolutions ---- */

static void padded(shoal_builder *b, const char *how, int stride, int dilation) {
  list(b, "strides", 1, stride, stride, 1);
  list(b, "dilations", 1, dilation, dilation, 1);
  shoal_build_string(b, "padding", how);
}
static void same(shoal_builder *b) { padded(b, "SAME", 1, 1); }
static void valid(shoal_builder *b) { padded(b, "VALID", 1, 1); }
static void same_2(shoal_builder *b) { padded(b, "SAME", 2, 1); }
static void valid_2(shoal_builder *b) { padded(b, "VALID", 2, 1); }
static void dilated(shoal_builder *b) { padded(b, "SAME", 1, 2); }
static void explicit_2(shoal_builder *b) {
  padded(b, "EXPLICIT", 2, 1);
  shoal_build_ints(b, "explicit_paddings", (int64_t[]){0, 0, 1, 2, 0, 1, 0, 0}, 8);
}
static void first(shoal_builder *b, const char *how, int stride) {
  list(b, "strides", 1, 1, stride, stride);
  shoal_build_string(b, "padding", how);
  shoal_build_string(b, "data_format", "NCHW");
}
static void first_same(shoal_builder *b) { first(b, "SAME", 1); }
static void first_same_2(shoal_builder *b) { first(b, "SAME", 2); }

static void convolutions(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 9, 8, 3), D(3, 3, 3, 5)}, .attrs = same, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 9, 8, 16), D(3, 3, 16, 24)}, .attrs = same, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 9, 8, 8), D(1, 1, 8, 16)}, .attrs = valid, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 12, 8, 8), D(3, 3, 8, 16)}, .attrs = same_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 13, 9, 4), D(7, 7, 4, 8)}, .attrs = same_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 14, 17, 3), D(7, 7, 3, 8)}, .attrs = same_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 14, 17, 3), D(7, 6, 3, 8)}, .attrs = explicit_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 12, 9, 4), D(5, 3, 4, 8)}, .attrs = valid_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 12, 9, 4), D(3, 3, 4, 8)}, .attrs = dilated, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 12, 9, 4), D(3, 3, 4, 8)}, .attrs = explicit_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 12, 9, 8), D(3, 3, 4, 16)}, .attrs = same, TF32}, /* two groups */
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 3, 9, 8), D(3, 3, 3, 5)}, .attrs = first_same, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 8, 12, 8), D(3, 3, 8, 16)}, .attrs = first_same_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(0, 9, 8, 3), D(3, 3, 3, 5)}, .attrs = same},
      /* thin images: digits; lines that are cut; more channels than a block makes; all rows that a filter may have */
      {.op = "Conv2D", .n_in = 2, .in = {D(5, 28, 28, 1), D(3, 3, 1, 16)}, .attrs = same, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(1, 5, 3000, 2), D(3, 3, 2, 4)}, .attrs = same, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 9, 11, 3), D(5, 4, 3, 132)}, .attrs = valid_2, TF32},
      {.op = "Conv2D", .n_in = 2, .in = {D(2, 13, 9, 4), D(8, 8, 4, 12)}, .attrs = same, TF32}};
  TRY_ALL(cases);
}

/* ---- with a bias, and Relu ---- */

static void with_bias(shoal_builder *b, int ops) {
  shoal_build_strings(b, "fused_ops", (const char *const[]){"BiasAdd", "Relu"}, ops);
  shoal_build_int(b, "num_args", 1);
  shoal_build_types(b, "TArgs", &building, 1);
}
static void same_bias(shoal_builder *b) {
  same(b);
  with_bias(b, 1);
}
static void same_relu(shoal_builder *b) {
  same(b);
  with_bias(b, 2);
}
static void valid_2_relu(shoal_builder *b) {
  valid_2(b);
  with_bias(b, 2);
}
static void first_same_relu(shoal_builder *b) {
  first_same(b);
  with_bias(b, 2);
}

static void convolutions_made_whole(void **state) {
  static const uint32_t types = DT(FLOAT32) | DT(FLOAT64) | DT(FLOAT16);
  static const struct gpu_case cases[] = {{.op = "_FusedConv2D",
                                           .n_in = 3,
                                           .in = {D(5, 28, 28, 1), D(3, 3, 1, 16), D(16)},
                                           .attrs = same_relu,
                                           .types = types,
                                           TF32},
                                          {.op = "_FusedConv2D",
                                           .n_in = 3,
                                           .in = {D(2, 9, 8, 3), D(3, 3, 3, 5), D(5)},
                                           .attrs = same_bias,
                                           .types = types,
                                           TF32},
                                          {.op = "_FusedConv2D",
                                           .n_in = 3,
                                           .in = {D(2, 9, 8, 16), D(3, 3, 16, 24), D(24)},
                                           .attrs = same_relu,
                                           .types = types,
                                           TF32},
                                          {.op = "_FusedConv2D",
                                           .n_in = 3,
                                           .in = {D(2, 9, 8, 6), D(1, 1, 6, 5), D(5)},
                                           .attrs = same_bias,
                                           .types = types,
                                           TF32},
                                          {.op = "_FusedConv2D",
                                           .n_in = 3,
                                           .in = {D(2, 12, 9, 8), D(3, 3, 8, 20), D(20)},
                                           .attrs = valid_2_relu,
                                           .types = types,
                                           TF32},
                                          {.op = "_FusedConv2D",
                                           .n_in = 3,
                                           .in = {D(2, 3, 9, 8), D(3, 3, 3, 5), D(5)},
                                           .attrs = first_same_relu,
                                           .types = types,
                                           TF32},
                                          {.op = "_FusedConv2D",
                                           .n_in = 3,
                                           .in = {D(2, 16, 9, 8), D(3, 3, 16, 8), D(8)},
                                           .attrs = first_same_relu,
                                           .types = types,
                                           TF32},
                                          {.op = "_FusedConv2D",
                                           .n_in = 3,
                                           .in = {D(0, 9, 8, 3), D(3, 3, 3, 5), D(5)},
                                           .attrs = same_relu,
                                           .types = types}};
  TRY_ALL(cases);
}

static void convolutions_back_to_images(void **state) {
  static const struct gpu_case cases[] = {{.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 9, 8, 3), D(3, 3, 3, 5), D(2, 9, 8, 5)},
                                           .attrs = same,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 9, 8, 16), D(1, 1, 16, 8), D(2, 9, 8, 8)},
                                           .attrs = valid,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 12, 8, 8), D(3, 3, 8, 16), D(2, 6, 4, 16)},
                                           .attrs = same_2,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 12, 9, 4), D(5, 3, 4, 8), D(2, 4, 4, 8)},
                                           .attrs = valid_2,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 12, 9, 4), D(3, 3, 4, 8), D(2, 12, 9, 8)},
                                           .attrs = dilated,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 12, 9, 8), D(3, 3, 4, 16), D(2, 12, 9, 16)},
                                           .attrs = same,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 8, 12, 8), D(3, 3, 8, 16), D(2, 16, 6, 4)},
                                           .attrs = first_same_2,
                                           TF32},
                                          {.op = "Conv2DBackpropInput",
                                           .n_in = 3,
                                           .in = {INTS(INT32, 2, 9, 8, 0), D(3, 3, 0, 5), D(2, 9, 8, 5)},
                                           .attrs = same}};
  TRY_ALL(cases);
}

static void convolutions_back_to_filters(void **state) {
  static const struct gpu_case cases[] = {{.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 9, 8, 3), INTS(INT32, 3, 3, 3, 5), D(2, 9, 8, 5)},
                                           .attrs = same,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 9, 8, 16), INTS(INT32, 1, 1, 16, 40), D(2, 9, 8, 40)},
                                           .attrs = valid,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 12, 8, 8), INTS(INT32, 3, 3, 8, 16), D(2, 6, 4, 16)},
                                           .attrs = same_2,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 14, 17, 3), INTS(INT32, 7, 7, 3, 8), D(2, 7, 9, 8)},
                                           .attrs = same_2,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 12, 9, 4), INTS(INT32, 3, 3, 4, 8), D(2, 12, 9, 8)},
                                           .attrs = dilated,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 12, 9, 8), INTS(INT32, 3, 3, 4, 16), D(2, 12, 9, 16)},
                                           .attrs = same,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 8, 12, 8), INTS(INT32, 3, 3, 8, 16), D(2, 16, 6, 4)},
                                           .attrs = first_same_2,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(0, 9, 8, 3), INTS(INT32, 3, 3, 3, 5), D(0, 9, 8, 5)},
                                           .attrs = same},
                                          /* small filters: a tile of several lines; a line in pieces; more channels
                                           * than a warp has, and more rows than a block */
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(150, 7, 7, 16), INTS(INT32, 3, 3, 16, 32), D(150, 7, 7, 32)},
                                           .attrs = same,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(1, 5, 300, 8), INTS(INT32, 3, 3, 8, 6), D(1, 5, 300, 6)},
                                           .attrs = same,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 9, 11, 30), INTS(INT32, 5, 4, 30, 25), D(2, 3, 4, 25)},
                                           .attrs = valid_2,
                                           TF32},
                                          /* thin images, as above */
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(5, 28, 28, 1), INTS(INT32, 3, 3, 1, 16), D(5, 28, 28, 16)},
                                           .attrs = same,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(1, 5, 3000, 2), INTS(INT32, 3, 3, 2, 4), D(1, 5, 3000, 4)},
                                           .attrs = same,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(2, 9, 11, 3), INTS(INT32, 5, 4, 3, 132), D(2, 3, 4, 132)},
                                           .attrs = valid_2,
                                           TF32},
                                          {.op = "Conv2DBackpropFilter",
                                           .n_in = 3,
                                           .in = {D(300, 5, 4, 4), INTS(INT32, 8, 8, 4, 12), D(300, 5, 4, 12)},
                                           .attrs = same,
                                           TF32}};
  TRY_ALL(cases);
}

static void depthwise(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "DepthwiseConv2dNative", .n_in = 2, .in = {D(2, 9, 8, 4), D(3, 3, 4, 2)}, .attrs = same, TF32},
      {.op = "DepthwiseConv2dNative", .n_in = 2, .in = {D(2, 12, 8, 8), D(3, 3, 8, 1)}, .attrs = same_2, TF32},
      {.op = "DepthwiseConv2dNativeBackpropInput",
       .n_in = 3,
       .in = {INTS(INT32, 2, 12, 8, 4), D(3, 3, 4, 2), D(2, 6, 4, 8)},
       .attrs = same_2,
       TF32},
      {.op = "DepthwiseConv2dNativeBackpropFilter",
       .n_in = 3,
       .in = {D(2, 12, 8, 4), INTS(INT32, 3, 3, 4, 2), D(2, 6, 4, 8)},
       .attrs = same_2,
       TF32}};
  TRY_ALL(cases);
}

static void solid(shoal_builder *b) {
  shoal_build_ints(b, "strides", (int64_t[]){1, 1, 2, 2, 1}, 5);
  shoal_build_string(b, "padding", "SAME");
}

static void convolutions_of_solids(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "Conv3D", .n_in = 2, .in = {D(2, 5, 6, 7, 4), D(3, 3, 3, 4, 8)}, .attrs = solid, TF32},
      {.op = "Conv3DBackpropInputV2",
       .n_in = 3,
       .in = {INTS(INT32, 2, 5, 6, 7, 4), D(3, 3, 3, 4, 8), D(2, 5, 3, 4, 8)},
       .attrs = solid,
       TF32},
      {.op = "Conv3DBackpropFilterV2",
       .n_in = 3,
       .in = {D(2, 5, 6, 7, 4), INTS(INT32, 3, 3, 3, 4, 8), D(2, 5, 3, 4, 8)},
       .attrs = solid,
       TF32}};
  TRY_ALL(cases);
}

/* ---- pooling ---- */

static void pool(shoal_builder *b, int size, int stride, const char *how) {
  list(b, "ksize", 1, size, size, 1);
  list(b, "strides", 1, stride, stride, 1);
  shoal_build_string(b, "padding", how);
}
static void pool_2(shoal_builder *b) { pool(b, 2, 2, "VALID"); }
static void pool_3(shoal_builder *b) { pool(b, 3, 2, "SAME"); }
static void pool_20(shoal_builder *b) { pool(b, 20, 1, "VALID"); } /* more places than a byte has */
static void pool_first(shoal_builder *b) {
  list(b, "ksize", 1, 1, 3, 2);
  list(b, "strides", 1, 1, 2, 1);
  shoal_build_string(b, "padding", "SAME");
  shoal_build_string(b, "data_format", "NCHW");
}
static void valid_v2(shoal_builder *b) { shoal_build_string(b, "padding", "VALID"); }

static void pooling(void **state) {
  static const struct gpu_case cases[] = {
      {.op = "MaxPool", .n_in = 1, .in = {D(2, 9, 8, 5)}, .attrs = pool_2},
      {.op = "MaxPool", .n_in = 1, .in = {D(2, 9, 8, 5)}, .attrs = pool_3},
      {.op = "MaxPool", .n_in = 1, .in = {D(2, 5, 9, 8)}, .attrs = pool_first},
      {.op = "MaxPool", .n_in = 1, .in = {D(0, 9, 8, 5)}, .attrs = pool_3},
      {.op = "MaxPoolV2",
       .n_in = 3,
       .in = {D(2, 9, 8, 5), INTS(INT32, 1, 3, 2, 1), INTS(INT32, 1, 2, 2, 1)},
       .attrs = valid_v2},
      {.op = "AvgPool", .n_in = 1, .in = {D(2, 9, 8, 5)}, .attrs = pool_2},
      {.op = "AvgPool", .n_in = 1, .in = {D(2, 9, 8, 5)}, .attrs = pool_3},
      {.op = "AvgPool", .n_in = 1, .in = {D(2, 5, 9, 8)}, .attrs = pool_first},
      {.op = "MaxPoolGrad", .n_in = 3, .in = {D(2, 9, 8, 5), D(2, 4, 4, 5), D(2, 4, 4, 5)}, .attrs = pool_2},
      {.op = "MaxPoolGrad", .n_in = 3, .in = {D(2, 9, 8, 5), D(2, 5, 4, 5), D(2, 5, 4, 5)}, .attrs = pool_3},
      {.op = "MaxPoolGrad",
       .n_in = 3,
       .in = {BELOW(3, FLOAT32, 2, 9, 8, 5), D(2, 5, 4, 5), D(2, 5, 4, 5)},
       .attrs = pool_3,
       .types = DT(FLOAT32)},
      {.op = "MaxPoolGrad", .n_in = 3, .in = {D(2, 5, 9, 8), D(2, 5, 5, 8), D(2, 5, 5, 8)}, .attrs = pool_first},
      {.op = "AvgPoolGrad", .n_in = 2, .in = {INTS(INT32, 2, 9, 8, 5), D(2, 4, 4, 5)}, .attrs = pool_2},
      {.op = "AvgPoolGrad", .n_in = 2, .in = {INTS(INT32, 2, 9, 8, 5), D(2, 5, 4, 5)}, .attrs = pool_3},
      {.op = "MaxPoolGrad", .n_in = 3, .in = {D(2, 21, 20, 3), D(2, 2, 1, 3), D(2, 2, 1, 3)}, .attrs = pool_20},
      {.op = "MaxPoolGrad", .n_in = 3, .in = {D(2, 21, 20, 8), D(2, 2, 1, 8), D(2, 2, 1, 8)}, .attrs = pool_20},
      /* 16 channels: several to a thread */
      {.op = "MaxPool", .n_in = 1, .in = {D(2, 9, 8, 16)}, .attrs = pool_3},
      {.op = "AvgPool", .n_in = 1, .in = {D(2, 9, 8, 16)}, .attrs = pool_3},
      {.op = "MaxPoolGrad", .n_in = 3, .in = {D(2, 9, 8, 16), D(2, 5, 4, 16), D(2, 5, 4, 16)}, .attrs = pool_3},
      {.op = "MaxPoolGrad",
       .n_in = 3,
       .in = {BELOW(3, FLOAT32, 2, 9, 8, 16), D(2, 5, 4, 16), D(2, 5, 4, 16)},
       .attrs = pool_3,
       .types = DT(FLOAT32)},
      {.op = "AvgPoolGrad", .n_in = 2, .in = {INTS(INT32, 2, 9, 8, 16), D(2, 5, 4, 16)}, .attrs = pool_3},
      {.op = "AvgPoolGrad", .n_in = 2, .in = {INTS(INT32, 2, 5, 9, 8), D(2, 5, 5, 8)}, .attrs = pool_first}};
  TRY_ALL(cases);
}

/* ---- batch normalisation ---- */

#define NORM_TYPES (DT(FLOAT32) | DT(FLOAT16) | DT(BFLOAT16))
static void running(shoal_builder *b) { shoal_build_float(b, "exponential_avg_factor", 0.25f); }
static void inference(shoal_builder *b) { shoal_build_bool(b, "is_training", false); }
static void norm_first(shoal_builder *b) { shoal_build_string(b, "data_format", "NCHW"); }

/* Vectors of n channels, whose numbers are float32 whatever the image's. */
#define V(n) BELOW(3, FLOAT32, n)
#define NORM(n, attrs_, ...)                                                                              \
  {                                                                                                       \
    .op = "FusedBatchNormV3", .n_in = 5, .in = {D(__VA_ARGS__), V(n), V(n), V(n), V(n)}, .attrs = attrs_, \
    .types = NORM_TYPES, .n_out = 5, .slack = 8, .low = 3, .high = 6                                      \
  }
#define NORM_GRAD(n, attrs_, ...)                                                                            \
  {                                                                                                          \
    .op = "FusedBatchNormGradV3", .n_in = 6, .in = {D(__VA_ARGS__), D(__VA_ARGS__), V(n), V(n), V(n), V(0)}, \
    .attrs = attrs_, .types = NORM_TYPES, .n_out = 3, .slack = 32                                            \
  }

static void batch_norms(void **state) {
  static const struct gpu_case cases[] = {NORM(5, NULL, 3, 4, 5, 5),
                                          NORM(16, NULL, 3, 4, 5, 16),
                                          NORM(40, running, 3, 4, 5, 40),
                                          NORM(7, inference, 3, 4, 5, 7),
                                          NORM(24, inference, 3, 4, 5, 24),
                                          NORM(16, norm_first, 3, 16, 5, 7),
                                          NORM(300, NULL, 3, 4, 5, 300),
                                          NORM(8, NULL, 20, 30, 20, 8),
                                          NORM(3, NULL, 0, 4, 5, 3),
                                          NORM_GRAD(5, NULL, 3, 4, 5, 5),
                                          NORM_GRAD(16, NULL, 3, 4, 5, 16),
                                          NORM_GRAD(24, inference, 3, 4, 5, 24),
                                          NORM_GRAD(16, norm_first, 3, 16, 5, 7),
                                          NORM_GRAD(300, NULL, 3, 4, 5, 300),
                                          NORM_GRAD(8, NULL, 20, 30, 20, 8),
                                          NORM_GRAD(3, NULL, 0, 4, 5, 3)};
  TRY_ALL(cases);
}

int main(void) {
  if (!gpu_here()) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(convolutions),
                                     cmocka_unit_test(convolutions_made_whole),
                                     cmocka_unit_test(convolutions_back_to_images),
                                     cmocka_unit_test(convolutions_back_to_filters),
                                     cmocka_unit_test(convolutions_of_solids),
                                     cmocka_unit_test(depthwise),
                                     cmocka_unit_test(pooling),
                                     cmocka_unit_test(batch_norms)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
