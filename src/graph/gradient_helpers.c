/* What gradient functions of ops use: reading dy, setting dx, undoing broadcasts, making slices dense. */
#include "graph/gradient.h"

struct out grad_densify(struct graph *g, struct grad gr) {
  if (grad_none(gr) || !grad_sparse(gr)) return gr.values;
  if (!gr.dense_shape.node) {
    graph_fail(g, INVALID("a sparse gradient of unknown shape cannot be made dense"));
    return (struct out){0};
  }
  struct out zero = build_const_int(g, SHOAL_INT32, 0);
  struct out shape = build_cast(g, gr.dense_shape, SHOAL_INT32);
  struct out rows = build_op3(g, "GatherV2", shape, zero, zero);
  return build_op3(g, "UnsortedSegmentSum", gr.values, gr.indices, rows);
}

struct out grad_dy(struct grad_ctx *c, int i) {
  if (grad_none(c->dy[i])) return build_op1(c->g, "ZerosLike", gout(c, i));
  return grad_densify(c->g, c->dy[i]);
}

void grad_set(struct grad_ctx *c, int i, struct out dx) { c->dx[i] = grad_dense(dx); }

void grad_set_slices(struct grad_ctx *c, int i, struct out values, struct out indices, struct out dense_shape) {
  c->dx[i] = (struct grad){values, indices, dense_shape};
}

struct out grad_unbroadcast(struct graph *g, struct out dx, struct out like, struct out other, int which) {
  struct shape a = out_shape(like), b = out_shape(other);
  if (shape_known(&a) && shape_known(&b) && shape_equal(&a, &b)) return dx;
  struct out sa = build_op1(g, "Shape", like), sb = build_op1(g, "Shape", other);
  struct build args = build_begin(g, "BroadcastGradientArgs", NULL);
  build_in(&args, which ? sb : sa);
  build_in(&args, which ? sa : sb);
  struct node *n = build_end(&args);
  struct out axes = node_out(n, which);
  return build_op2(g, "Reshape", build_op2(g, "Sum", dx, axes), sa);
}

shoal_status grad_stop(struct grad_ctx *c) { return NULL; }

shoal_status grad_pass(struct grad_ctx *c) {
  c->dx[0] = c->dy[0];
  return NULL;
}
