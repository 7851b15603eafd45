/* Gradients of reductions: back to the shape that was reduced. */
#include "ops/array/array_util.h"
#include "ops/math/grad_help.h"
#include "ops/math/reduce.h"

/* The axes as a vector of int32, none negative. */
static shoal_out plain_axes(struct grad_ctx *c) {
  shoal_out axes = build_cast(c->g, gin(c, 1), SHOAL_INT32), rank = array_rank(c->g, gin(c, 0));
  axes = g_reshape(c, axes, build_const_ints(c->g, SHOAL_INT32, (int64_t[]){-1}, 1));
  return g_op2(c, "FloorMod", g_add(c, axes, rank), rank);
}

/* The input's shape with reduced dimensions as 1, where the graph says it: axes are a constant, and all is known but
 * one dimension at most, which a reshape finds. (What is computed of shapes stands with the reduction, and keeps it off
 * devices that have no kernels for that.) */
static bool known_kept(struct grad_ctx *c, struct shape *s) {
  const struct tensor *axes = NULL;
  *s = out_shape(gin(c, 0));
  if (s->rank < 0 || !op_is(gin(c, 1).node->op, "Const")) return false;
  shoal_status e = node_get_tensor(gin(c, 1).node, "value", &axes);
  if (e) shoal_status_free(e);
  for (int64_t i = 0; axes && i < axes->n; i++) {
    int64_t at = int_at(axes, i) + (int_at(axes, i) < 0 ? s->rank : 0);
    if (at < 0 || at >= s->rank) return false;
    s->dims[at] = 1;
  }
  int unknown = 0, empty = 0;
  for (int i = 0; i < s->rank; i++) {
    unknown += s->dims[i] < 0;
    empty += s->dims[i] == 0;
  }
  return axes && (!unknown || (unknown == 1 && !empty));
}

/* The output's shape with reduced dimensions kept as 1. */
static shoal_out kept_shape(struct grad_ctx *c) {
  struct shape in = out_shape(gin(c, 0)), out = out_shape(gout(c, 0));
  bool keep = false;
  shoal_status s = node_get_bool(c->node, "keep_dims", &keep);
  shoal_status_free(s);
  if (keep) return array_shape(c->g, gout(c, 0), SHOAL_INT32);
  if (in.rank >= 0 && out.rank == 0) { /* everything is reduced */
    int64_t ones[SHOAL_MAX_RANK];
    for (int i = 0; i < in.rank; i++) ones[i] = 1;
    return build_const_ints(c->g, SHOAL_INT32, ones, in.rank);
  }
  struct shape known;
  if (known_kept(c, &known)) return build_const_ints(c->g, SHOAL_INT32, known.dims, known.rank);
  shoal_out axes = plain_axes(c);
  shoal_out indices[2] = {array_axes(c->g, gin(c, 0)), axes};
  shoal_out sizes[2] = {array_shape(c->g, gin(c, 0), SHOAL_INT32),
                        g_op2(c, "Fill", g_shape(c, axes), build_const_int(c->g, SHOAL_INT32, 1))};
  struct build b = build_begin(c->g, "DynamicStitch", NULL);
  build_in_list(&b, indices, 2);
  build_in_list(&b, sizes, 2);
  build_attr_int(&b, "N", 2);
  return build_end_out(&b);
}

/* dy in the input's shape. */
static shoal_out spread(struct grad_ctx *c, shoal_out dy, shoal_out kept) {
  return g_op2(c, "BroadcastTo", g_reshape(c, dy, kept), array_shape(c->g, gin(c, 0), SHOAL_INT32));
}

shoal_status reduce_sum_grad(struct grad_ctx *c) {
  grad_set(c, 0, spread(c, grad_dy(c, 0), kept_shape(c)));
  return NULL;
}

shoal_status reduce_mean_grad(struct grad_ctx *c) {
  shoal_out dx = spread(c, grad_dy(c, 0), kept_shape(c)), factor;
  struct shape in = out_shape(gin(c, 0)), out = out_shape(gout(c, 0));
  int64_t n_in, n_out;
  TRY(shape_elements(&in, &n_in));
  TRY(shape_elements(&out, &n_out));
  if (n_in >= 0 && n_out >= 0) factor = g_num(c, dx, (double)(n_in / MAX(n_out, 1)));
  else {
    shoal_out size = g_op(c, "Size", gin(c, 0)), results = g_op(c, "Size", gout(c, 0));
    results = g_op2(c, "Maximum", results, build_const_int(c->g, SHOAL_INT32, 1));
    factor = build_cast(c->g, g_op2(c, "FloorDiv", size, results), out_type(dx));
  }
  grad_set(c, 0, g_op2(c, dtype_integer(out_type(dx)) ? "Div" : "RealDiv", dx, factor));
  return NULL;
}

static shoal_out prod_all(struct grad_ctx *c, shoal_out v) {
  return g_op2(c, "Prod", v, build_const_ints(c->g, SHOAL_INT32, (int64_t[]){0}, 1));
}

static shoal_out cumprod(struct grad_ctx *c, shoal_out x, bool reverse) {
  struct build b = build_begin(c->g, "Cumprod", NULL);
  build_in(&b, x);
  build_in(&b, build_const_int(c->g, SHOAL_INT32, 0));
  build_attr_bool(&b, "exclusive", true);
  build_attr_bool(&b, "reverse", reverse);
  return build_end_out(&b);
}

/* The product of all others, for each element: products from the left times products from the right, which zeros do not
 * disturb. The reduced dimensions are moved to the front for it. */
shoal_status reduce_prod_grad(struct grad_ctx *c) {
  shoal_out x = gin(c, 0), shape = array_shape(c->g, x, SHOAL_INT32), axes = plain_axes(c);
  shoal_out dy = spread(c, grad_dy(c, 0), kept_shape(c));
  shoal_out other = g_op2(c, "ListDiff", array_axes(c->g, x), axes);
  shoal_out perm = array_concat(c->g, (shoal_out[]){axes, other}, 2, 0);
  shoal_out sizes[2] = {prod_all(c, array_gather(c->g, shape, axes, 0)),
                        prod_all(c, array_gather(c->g, shape, other, 0))};
  struct build b = build_begin(c->g, "Pack", NULL);
  build_in_list(&b, sizes, 2);
  shoal_out matrix = build_end_out(&b);
  shoal_out moved = array_transpose(c->g, x, perm);
  shoal_out flat = g_reshape(c, moved, matrix);
  shoal_out rest = g_mul(c, g_conj(c, cumprod(c, flat, false)), g_conj(c, cumprod(c, flat, true)));
  rest = g_reshape(c, rest, g_shape(c, moved));
  shoal_out dx = g_mul(c, dy, array_transpose(c->g, rest, g_op(c, "InvertPermutation", perm)));
  grad_set(c, 0, g_reshape(c, dx, shape));
  return NULL;
}

/* Max and Min: shared evenly by all elements that have the value. */
shoal_status reduce_extreme_grad(struct grad_ctx *c) {
  shoal_out kept = kept_shape(c), dy = g_reshape(c, grad_dy(c, 0), kept), y = g_reshape(c, gout(c, 0), kept);
  shoal_out hit = build_cast(c->g, g_op2(c, "Equal", y, gin(c, 0)), out_type(dy));
  shoal_out hits = g_reshape(c, g_op2(c, "Sum", hit, gin(c, 1)), kept);
  grad_set(c, 0, g_mul(c, g_op2(c, "Div", hit, hits), dy));
  return NULL;
}

shoal_status reduce_norm_grad(struct grad_ctx *c) {
  shoal_out kept = kept_shape(c), dy = g_reshape(c, grad_dy(c, 0), kept), y = g_reshape(c, gout(c, 0), kept);
  grad_set(c, 0, g_mul(c, gin(c, 0), g_div(c, dy, y)));
  return NULL;
}

shoal_status reduce_l2_loss_grad(struct grad_ctx *c) {
  grad_set(c, 0, g_mul(c, gin(c, 0), grad_dy(c, 0)));
  return NULL;
}
