/* What gradient functions of ops use: gradients as tensors, sums over broadcast dimensions, slices. */
#include "graph/gradient.h"

shoal_out grad_dy(struct grad_ctx *c, int i) {
  if (grad_none(c->dy[i])) return build_op1(c->g, "ZerosLike", gout(c, i));
  return grad_densify(c->g, c->dy[i]);
}

void grad_set(struct grad_ctx *c, int i, shoal_out dx) {
  if (dx.node) c->dx[i] = grad_dense(dx);
}

void grad_set_slices(struct grad_ctx *c, int i, shoal_out values, shoal_out indices, shoal_out dense_shape) {
  if (values.node && indices.node) c->dx[i] = (struct grad){values, indices, dense_shape};
}

shoal_status grad_stop(struct grad_ctx *c) { return NULL; }

shoal_status grad_pass(struct grad_ctx *c) {
  c->dx[0] = c->dy[0];
  return NULL;
}

shoal_out grad_densify(struct shoal_graph *g, struct grad gr) {
  if (!grad_sparse(gr)) return gr.values;
  if (!gr.dense_shape.node) {
    graph_fail(g, INVALID("a sparse gradient without dense_shape cannot become a dense tensor"));
    return (shoal_out){0};
  }
  int64_t zero = 0, one = 1;
  struct build b = build_begin(g, "StridedSlice", "rows");
  build_in(&b, gr.dense_shape);
  build_in(&b, build_const_ints(g, SHOAL_INT32, &zero, 1));
  build_in(&b, build_const_ints(g, SHOAL_INT32, &one, 1));
  build_in(&b, build_const_ints(g, SHOAL_INT32, &one, 1));
  build_attr_int(&b, "shrink_axis_mask", 1);
  return build_op3(g, "UnsortedSegmentSum", gr.values, gr.indices, build_end_out(&b));
}

/* dx is `want` broadcast to `have`: the dimensions to sum over, of have's. False when that is not known yet. */
static bool broadcast_axes(const struct shape *want, const struct shape *have, int64_t *axes, int *n) {
  if (!shape_known(want) || !shape_known(have) || want->rank > have->rank) return false;
  *n = 0;
  int lead = have->rank - want->rank;
  for (int i = 0; i < have->rank; i++)
    if (i < lead || (want->dims[i - lead] == 1 && have->dims[i] != 1)) axes[(*n)++] = i;
  return true;
}

static shoal_out sum_over(struct shoal_graph *g, shoal_out x, shoal_out axes) { return build_op2(g, "Sum", x, axes); }

shoal_out grad_unbroadcast(struct shoal_graph *g, shoal_out dx, shoal_out like, shoal_out other, int which) {
  struct shape want = out_shape(like), have = out_shape(dx), beside = out_shape(other);
  if (shape_known(&want) && shape_known(&beside) && !shape_known(&have)) {
    shoal_status s = shape_broadcast(&want, &beside, &have);
    if (s) {
      shoal_status_free(s);
      have = shape_unknown();
    }
  }
  int64_t axes[SHOAL_MAX_RANK];
  int n;
  if (broadcast_axes(&want, &have, axes, &n)) {
    if (!n) return dx;
    shoal_out summed = sum_over(g, dx, build_const_ints(g, SHOAL_INT32, axes, n));
    if (n == have.rank - want.rank && axes[n - 1] == n - 1) return summed;
    return build_op2(g, "Reshape", summed, build_const_ints(g, SHOAL_INT64, want.dims, want.rank));
  }
  shoal_out shape = build_op1(g, "Shape", like), beside_shape = build_op1(g, "Shape", other);
  struct build b = build_begin(g, "BroadcastGradientArgs", NULL);
  build_in(&b, which == 0 ? shape : beside_shape);
  build_in(&b, which == 0 ? beside_shape : shape);
  struct shoal_node *args = build_end(&b);
  return build_op2(g, "Reshape", sum_over(g, dx, node_out(args, which == 0 ? 0 : 1)), shape);
}
