/* Convolutions of pictures as layers, with a bias or without. */
#include "base/options.h"
#include "graph/given.h"
#include "shoal/layers.h"
#include "train/layers.h"

/* How much is padded: what comes before and behind is the same where rows and columns are left out of no step, and
 * "SAME" says it then. */
static void pad(struct build *b, const shoal_conv_layer_options *o, int64_t size) {
  int64_t by = (size - 1) / 2;
  const int64_t sides[] = {0, 0, by, by, by, by, 0, 0};
  bool own = o->symmetric && o->stride > 1 && by > 0;
  build_attr_string(b, "padding", own ? "EXPLICIT" : o->symmetric && by == 0 ? "VALID" : "SAME");
  if (own) build_attr_ints(b, "explicit_paddings", sides, 8);
}

static shoal_out convolve(struct shoal_graph *g, shoal_out images, shoal_out kernel, const shoal_conv_layer_options *o,
                          int64_t size) {
  struct build b = build_begin(g, "Conv2D", NULL);
  build_in(&b, images);
  build_in(&b, kernel);
  build_attr_ints(&b, "strides", (const int64_t[]){1, o->stride, o->stride, 1}, 4);
  pad(&b, o, size);
  return build_end_out(&b);
}

shoal_out shoal_conv_layer_with(shoal_graph *g, shoal_out images, int64_t filters, int64_t size, const char *name,
                                const shoal_conv_layer_options *options) {
  shoal_conv_layer_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_conv_layer_options, no_bias, &o, options), (shoal_out){0});
  if (o.stride < 0 || (o.symmetric && size % 2 == 0))
    graph_fail(g, INVALID("shoal_conv_layer_with: stride %lld; symmetric padding is of odd sizes, this one is %lld",
                          (long long)o.stride, (long long)size));
  if (!o.stride) o.stride = 1;
  int64_t in = layer_check(g, images, 4, "shoal_conv_layer");
  shoal_dtype dtype = out_type(images), kept = layer_kept_type(dtype);
  shoal_dims shape = SHOAL_SHAPE(size, size, in, filters);
  shoal_push_scope(g, name ? name : "conv2d");
  shoal_out initial = o.he_normal ? shoal_init_he_normal(g, kept, shape) : shoal_init_glorot_uniform(g, kept, shape);
  shoal_out kernel = build_cast(g, shoal_variable(g, o.kernel ? o.kernel : "kernel", initial).value, dtype);
  shoal_out zeros = o.no_bias ? (shoal_out){0} : shoal_init_zeros(g, kept, SHOAL_SHAPE(filters));
  shoal_out bias = o.no_bias ? zeros : shoal_variable(g, o.bias ? o.bias : "bias", zeros).value;
  shoal_out y = convolve(g, images, kernel, &o, size);
  if (!o.no_bias) y = build_op2(g, "BiasAdd", y, build_cast(g, bias, dtype));
  shoal_pop_scope(g);
  return y;
}

shoal_out shoal_conv_layer(shoal_graph *g, shoal_out images, int64_t filters, int64_t size, const char *name) {
  return shoal_conv_layer_with(g, images, filters, size, name, NULL);
}
