/* Layer normalisation, and the activation that goes with it in Transformers.
 *
 * Both are made of single ops, in an order that does not vary: graphs run on TensorFlow's servers as well, their
 * gradients are those of the ops, and a device that has them as one kernel can recognise them. (With SquaredDifference
 * in the place of Sub and Square, as tf.nn.moments has it, TensorFlow 2.15 itself recognises the layer on a CPU, and
 * puts a kernel in its place that takes 0.001 for epsilon whatever it was.) */
#include "base/options.h"
#include "graph/given.h"
#include "shoal/layers.h"
#include "train/layers.h"

static shoal_out mean_last(struct shoal_graph *g, shoal_out x) {
  struct build b = build_begin(g, "Mean", NULL);
  build_in(&b, x);
  build_in(&b, build_const_ints(g, SHOAL_INT32, (const int64_t[]){out_shape(x).rank - 1}, 1));
  build_attr_bool(&b, "keep_dims", true);
  return build_end_out(&b);
}

static shoal_out normalize(struct shoal_graph *g, shoal_out x, shoal_out scale, shoal_out shift, double epsilon) {
  shoal_out centred = build_op2(g, "Sub", x, mean_last(g, x));
  shoal_out variance = mean_last(g, build_op1(g, "Square", centred));
  variance = build_op2(g, "AddV2", variance, build_const_float(g, out_type(x), epsilon));
  shoal_out y = build_op2(g, "Mul", centred, build_op1(g, "Rsqrt", variance));
  return build_op2(g, "AddV2", build_op2(g, "Mul", y, scale), shift);
}

shoal_out shoal_layer_norm(shoal_graph *g, shoal_out x, const char *name, const shoal_layer_norm_options *options) {
  shoal_layer_norm_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_layer_norm_options, epsilon, &o, options), (shoal_out){0});
  int64_t width = layer_last_dim(g, x, 1, "shoal_layer_norm");
  if (!(o.epsilon >= 0)) graph_fail(g, INVALID("shoal_layer_norm: epsilon %g", o.epsilon));
  if (graph_error(g)) return (shoal_out){0};
  shoal_dtype dtype = layer_kept_type(out_type(x));
  shoal_push_scope(g, name ? name : "layer_normalization");
  shoal_out ones = shoal_init_ones(g, dtype, SHOAL_SHAPE(width));
  shoal_out scale = shoal_variable(g, o.scale ? o.scale : "gamma", ones).value;
  shoal_out zeros = shoal_init_zeros(g, dtype, SHOAL_SHAPE(width));
  shoal_out shift = shoal_variable(g, o.shift ? o.shift : "beta", zeros).value;
  shoal_out y = normalize(g, build_cast(g, x, dtype), scale, shift, o.epsilon > 0 ? o.epsilon : 1e-5);
  y = build_cast(g, y, out_type(x));
  shoal_pop_scope(g);
  return y;
}

/* x / 2 * (1 + tanh(u)), where u = sqrt(2 / pi) * (x + 0.044715 * x^3). Half of 1 + tanh(u) is sigmoid(2u): that is
 * three passes less, and in half precision it keeps the digits that 1 + tanh(u) loses below zero. */
shoal_out shoal_gelu(shoal_graph *g, shoal_out x) {
  const double slope = 2 * 0.79788456080286535588;
  shoal_dtype dtype = out_type(x);
  if (graph_error(g)) return (shoal_out){0};
  graph_push_scope(g, "Gelu");
  shoal_out square = build_op2(g, "Mul", build_op1(g, "Square", x), build_const_float(g, dtype, slope * 0.044715));
  shoal_out factor = build_op2(g, "AddV2", square, build_const_float(g, dtype, slope));
  shoal_out y = build_op2(g, "Mul", x, build_op1(g, "Sigmoid", build_op2(g, "Mul", x, factor)));
  graph_pop_scope(g);
  return y;
}
