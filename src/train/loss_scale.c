/* Loss scaling for half precision: shoal_minimize_scaled of shoal/accumulate.h.
 *
 * The scale and the count of good steps are variables with TensorFlow's names, so that a checkpoint carries them. Both
 * are changed by selecting among values in every step; only the update itself is left out in a bad one. */
#include "base/options.h"
#include "graph/across.h"
#include "shoal/accumulate.h"
#include "train/batches_used.h"
#include "train/optimizer.h"
#include "train/variables.h"
#include "train/only_if.h"

static shoal_out all_finite(struct shoal_graph *g, const struct gradients *all) {
  VEC(shoal_out) parts = {0};
  for (int i = 0; i < all->n; i++)
    if (all->grads[i].values.node) {
      shoal_out flat = build_op2(g, "Reshape", build_op1(g, "IsFinite", all->grads[i].values),
                                 build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1}, 1));
      vec_push(&parts, build_op2(g, "All", flat, build_const_ints(g, SHOAL_INT32, (const int64_t[]){0}, 1)));
    }
  struct build b = build_begin(g, "Pack", NULL);
  build_in_list(&b, parts.at, (int)parts.n);
  shoal_out packed = build_end_out(&b);
  vec_release(&parts);
  return build_op2(g, "All", packed, build_const_ints(g, SHOAL_INT32, (const int64_t[]){0}, 1));
}

/* The next scale and count of good steps, set after `after`. */
static struct shoal_node *adapt(struct shoal_graph *g, const shoal_loss_scale *o, shoal_var scale, shoal_var good,
                                shoal_out finite) {
  shoal_out zero = build_const_int(g, SHOAL_INT64, 0), m = build_const_float(g, SHOAL_FLOAT32, o->multiplier);
  shoal_out more = build_op2(g, "AddV2", good.value, build_const_int(g, SHOAL_INT64, 1));
  shoal_out ripe = build_op2(g, "GreaterEqual", more, build_const_int(g, SHOAL_INT64, o->increment_period));
  shoal_out larger = build_op2(g, "Mul", scale.value, m);
  larger = build_op3(g, "SelectV2", build_op1(g, "IsFinite", larger), larger, scale.value);
  shoal_out smaller =
      build_op2(g, "Maximum", build_op2(g, "RealDiv", scale.value, m), build_const_float(g, SHOAL_FLOAT32, 1));
  shoal_out kept = build_op3(g, "SelectV2", ripe, larger, scale.value);
  struct shoal_node *done[2];
  done[0] = shoal_variable_assign(g, scale, build_op3(g, "SelectV2", finite, kept, smaller));
  shoal_out count = build_op3(g, "SelectV2", ripe, zero, more);
  done[1] = shoal_variable_assign(g, good, build_op3(g, "SelectV2", finite, count, zero));
  return shoal_group(g, done, 2, "adapt");
}

static shoal_loss_scale with_defaults(shoal_graph *g, const shoal_loss_scale *o) {
  shoal_loss_scale s = {0};
  shoal_status e = OPTIONS_TAKE(shoal_loss_scale, fixed, &s, o);
  if (e) graph_fail(g, e);
  if (s.initial == 0) s.initial = 32768;
  if (s.increment_period == 0) s.increment_period = 2000;
  if (s.multiplier == 0) s.multiplier = 2;
  return s;
}

shoal_op *shoal_minimize_scaled(shoal_graph *g, shoal_optimizer optimizer, shoal_out loss, shoal_var step,
                                const shoal_loss_scale *options) {
  shoal_loss_scale o = with_defaults(g, options);
  if ((o.initial < 1 || o.multiplier <= 1 || o.increment_period < 1) && !graph_error(g))
    graph_fail(g, INVALID("loss scale: it must be at least 1, its multiplier above 1, its period at least 1"));
  shoal_var scale = {0}, good = {0};
  shoal_out factor = build_const_float(g, SHOAL_FLOAT32, o.initial);
  if (!o.fixed) {
    scale = shoal_variable_untrained(g, "current_loss_scale", factor);
    good = shoal_variable_untrained(g, "good_steps", build_const_int(g, SHOAL_INT64, 0));
    factor = scale.value;
  }
  struct gradients all = gradients_of(g, build_op2(g, "Mul", loss, build_cast(g, factor, out_type(loss))));
  shoal_out back = build_op2(g, "RealDiv", build_const_float(g, SHOAL_FLOAT32, 1), factor);
  for (int i = 0; i < all.n; i++)
    if (all.grads[i].values.node)
      all.grads[i].values =
          build_op2(g, "Mul", all.grads[i].values, build_cast(g, back, out_type(all.grads[i].values)));
  struct shoal_node *train = NULL;
  if (o.fixed) {
    train = shoal_apply_gradients(g, optimizer, all.vars, all.grads, all.n, step);
  } else if (!graph_error(g)) {
    shoal_out finite = all_finite(g, &all);
    struct across *copies = across_on(g); /* which leave a step out together: the others would wait for its sums */
    if (copies) finite = copies->all(copies, finite);
    struct only_if w = only_if_begin(g, finite);
    struct shoal_node *applied = shoal_apply_gradients(g, optimizer, all.vars, all.grads, all.n, step);
    struct shoal_node *parts[3] = {only_if_end(&w, applied), adapt(g, &o, scale, good, finite)};
    parts[2] = batches_used_add(g, step, 1);
    train = graph_error(g) ? NULL : shoal_group(g, parts, parts[2] ? 3 : 2, "train_scaled");
  }
  gradients_release(&all);
  return train;
}
