/* Gradient clipping, with TensorFlow's formulas: none of them divides by a norm of zero, and a common norm that is not
 * finite makes every gradient NaN rather than hiding the trouble. */
#include "base/vec.h"
#include "graph/given.h"
#include "graph/gradient.h"
#include "shoal/train.h"

void shoal_clip_gradients_by_value(shoal_graph *g, shoal_gradient *grads, int n, double low, double high) {
  GRAPH_GIVEN_ARRAY(g, grads, n);
  for (int i = 0; i < n; i++) {
    shoal_out x = grads[i].values;
    if (!x.node) continue;
    x = build_op2(g, "Minimum", x, build_const_float(g, out_type(x), high));
    grads[i].values = build_op2(g, "Maximum", x, build_const_float(g, out_type(x), low));
  }
}

static shoal_out sum_all(struct shoal_graph *g, shoal_out x) {
  shoal_out rank = build_op1(g, "Rank", x);
  shoal_out axes = build_op3(g, "Range", build_const_int(g, SHOAL_INT32, 0), rank, build_const_int(g, SHOAL_INT32, 1));
  return build_op2(g, "Sum", x, axes);
}

void shoal_clip_gradients_by_norm(shoal_graph *g, shoal_gradient *grads, int n, double clip) {
  GRAPH_GIVEN_ARRAY(g, grads, n);
  for (int i = 0; i < n; i++) {
    shoal_out x = grads[i].values;
    if (!x.node) continue;
    shoal_out limit = build_const_float(g, out_type(x), clip);
    shoal_out norm = build_op1(g, "Sqrt", sum_all(g, build_op2(g, "Mul", x, x)));
    grads[i].values = build_op2(g, "RealDiv", build_op2(g, "Mul", x, limit), build_op2(g, "Maximum", norm, limit));
  }
}

shoal_out shoal_clip_by_global_norm(shoal_graph *g, shoal_gradient *grads, int n, double clip) {
  GRAPH_GIVEN_ARRAY(g, grads, n, (shoal_out){0});
  VEC(shoal_out) halves = {0};
  shoal_dtype dtype = SHOAL_FLOAT32;
  for (int i = 0; i < n; i++) {
    if (!grads[i].values.node) continue;
    dtype = out_type(grads[i].values);
    graph_push_colocation(g, grads[i].values.node); /* where layers are on several devices, gradients stay there */
    vec_push(&halves, build_op1(g, "L2Loss", grads[i].values));
    graph_pop_colocation(g);
  }
  if (!halves.n) return (shoal_out){0};
  struct build b = build_begin(g, "AddN", NULL);
  build_in_list(&b, halves.at, (int)halves.n);
  vec_release(&halves);
  shoal_out norm = build_op1(g, "Sqrt", build_op2(g, "Mul", build_end_out(&b), build_const_float(g, dtype, 2)));
  shoal_out limit = build_const_float(g, dtype, clip);
  shoal_out scale = build_op2(g, "RealDiv", limit, build_op2(g, "Maximum", norm, limit));
  scale = build_op2(g, "AddV2", scale, build_op2(g, "Sub", norm, norm));
  for (int i = 0; i < n; i++) {
    if (!grads[i].values.node) continue;
    graph_push_colocation(g, grads[i].values.node);
    grads[i].values = build_op2(g, "Mul", grads[i].values, scale);
    graph_pop_colocation(g);
  }
  return norm;
}
