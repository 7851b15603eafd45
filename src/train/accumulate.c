/* Gradient accumulation: shoal/accumulate.h.
 *
 * Dense gradients are added up in local variables. Sparse ones go into a conditional accumulator, which keeps the rows
 * that occurred and no others: an optimizer then sees the same rows that it would see in the large batch. */
#include "shoal/accumulate.h"

#include <stdlib.h>

#include "train/batches_used.h"
#include "train/optimizer.h"
#include "train/variables.h"
#include "train/only_if.h"

struct sums {
  struct shoal_graph *g;
  const struct gradients *all;
  int n;
  shoal_var *dense;           /* [all->n] handle.node NULL: this one is sparse, or there is no gradient */
  shoal_out *sparse;          /* [all->n] accumulators */
  struct shoal_node **placed; /* [all->n] what adds this run's gradient */
};

static struct shoal_node *add_dense(struct sums *s, int i) {
  struct shoal_graph *g = s->g;
  struct shape shape = out_shape(s->all->vars[i].value);
  shoal_dtype t = out_type(s->all->vars[i].value);
  char *name = mem_printf("%s/accumulated", s->all->vars[i].handle.node->name);
  graph_push_control(g, NULL, -1);
  s->dense[i] = shoal_variable_local(g, name, shoal_init_zeros(g, t, (shoal_dims){shape.rank, shape.dims}));
  graph_pop_control(g);
  free(name);
  struct build b = build_begin(g, "AssignAddVariableOp", NULL);
  build_in(&b, s->dense[i].handle);
  build_in(&b, s->all->grads[i].values);
  return build_end(&b);
}

static struct shoal_node *add_sparse(struct sums *s, int i) {
  struct shoal_graph *g = s->g;
  struct shape shape = out_shape(s->all->vars[i].value);
  struct build b = build_begin(g, "SparseConditionalAccumulator", NULL);
  build_attr_type(&b, "dtype", out_type(s->all->grads[i].values));
  build_attr_shape(&b, "shape", &shape);
  build_attr_string(&b, "reduction_type", "SUM");
  s->sparse[i] = build_end_out(&b);
  struct build a = build_begin(g, "SparseAccumulatorApplyGradient", NULL);
  build_in(&a, s->sparse[i]);
  build_in(&a, build_const_int(g, SHOAL_INT64, INT64_MAX)); /* its own count of takes does not matter */
  build_in(&a, build_cast(g, s->all->grads[i].indices, SHOAL_INT64));
  build_in(&a, s->all->grads[i].values);
  build_in(&a, build_const_ints(g, SHOAL_INT64, NULL, 0));
  build_attr_bool(&a, "has_known_shape", false);
  return build_end(&a);
}

/* The mean gradient of variable i; what is read is read now. */
static shoal_gradient mean(struct sums *s, int i) {
  struct shoal_graph *g = s->g;
  shoal_dtype t = out_type(s->all->vars[i].value);
  shoal_out share = build_const_float(g, t, 1.0 / s->n);
  if (s->dense[i].handle.node)
    return (shoal_gradient){.values = build_op2(g, "Mul", variable_read_op(g, s->dense[i].handle, t, NULL), share)};
  if (!s->sparse[i].node) return (shoal_gradient){0};
  struct build b = build_begin(g, "SparseAccumulatorTakeGradient", NULL);
  build_in(&b, s->sparse[i]);
  build_in(&b, build_const_int(g, SHOAL_INT32, s->n));
  build_attr_type(&b, "dtype", t);
  struct shoal_node *taken = build_end(&b);
  return (shoal_gradient){build_op2(g, "Mul", node_out(taken, 1), share), node_out(taken, 0), node_out(taken, 2)};
}

static struct shoal_node *clear(struct sums *s, struct shoal_node *after) {
  struct shoal_graph *g = s->g;
  VEC(struct shoal_node *) done = {0};
  vec_push(&done, after);
  graph_push_control(g, &after, 1);
  for (int i = 0; i < s->all->n; i++) {
    if (!s->dense[i].handle.node) continue;
    struct shape shape = out_shape(s->dense[i].value);
    shoal_dtype t = out_type(s->dense[i].value);
    shoal_out zeros = shoal_init_zeros(g, t, (shoal_dims){shape.rank, shape.dims});
    vec_push(&done, shoal_variable_assign(g, s->dense[i], zeros));
  }
  graph_pop_control(g);
  struct shoal_node *all = shoal_group(g, done.at, (int)done.n, "cleared");
  vec_release(&done);
  return all;
}

/* Counts this run; does it complete a step? */
static shoal_out completes(struct sums *s) {
  struct shoal_graph *g = s->g;
  graph_push_control(g, NULL, -1);
  shoal_var count = shoal_variable_local(g, "count", build_const_int(g, SHOAL_INT64, 0));
  graph_pop_control(g);
  graph_push_control(g, s->placed, s->all->n);
  struct build b = build_begin(g, "AssignAddVariableOp", NULL);
  build_in(&b, count.handle);
  build_in(&b, build_const_int(g, SHOAL_INT64, 1));
  struct shoal_node *counted = build_end(&b);
  graph_pop_control(g);
  graph_push_control(g, &counted, 1);
  shoal_out now = variable_read_op(g, count.handle, SHOAL_INT64, NULL);
  graph_pop_control(g);
  return build_op2(g, "Equal", build_op2(g, "FloorMod", now, build_const_int(g, SHOAL_INT64, s->n)),
                   build_const_int(g, SHOAL_INT64, 0));
}

/* What a completed step does. */
static struct shoal_node *complete(struct sums *s, shoal_optimizer optimizer, const shoal_gradient *means,
                                   shoal_var step) {
  struct shoal_node *done[2];
  done[0] = clear(s, shoal_apply_gradients(s->g, optimizer, s->all->vars, means, s->all->n, step));
  done[1] = batches_used_add(s->g, step, s->n);
  return shoal_group(s->g, done, done[1] ? 2 : 1, "complete");
}

shoal_op *shoal_minimize_accumulated(shoal_graph *g, shoal_optimizer optimizer, shoal_out loss, shoal_var step, int n) {
  if (n < 1 && !graph_error(g)) graph_fail(g, INVALID("gradients are to be accumulated over %d micro-batches", n));
  struct gradients all = gradients_of(g, loss);
  size_t room = (size_t)all.n + 1;
  struct sums s = {.g = g,
                   .all = &all,
                   .n = n,
                   .dense = mem_zalloc(room, sizeof *s.dense),
                   .sparse = mem_zalloc(room, sizeof *s.sparse),
                   .placed = mem_zalloc(room, sizeof *s.placed)};
  shoal_gradient *means = mem_zalloc(room, sizeof *means);
  struct variable_maker *m = variable_maker_on(g);
  if (m) m->accumulated += n;
  graph_push_scope(g, "accumulate");
  for (int i = 0; i < all.n && !graph_error(g); i++)
    if (all.grads[i].values.node) s.placed[i] = all.grads[i].indices.node ? add_sparse(&s, i) : add_dense(&s, i);
  struct shoal_node *train = NULL;
  if (!graph_error(g)) {
    struct only_if w = only_if_begin(g, completes(&s));
    for (int i = 0; i < all.n && !graph_error(g); i++) means[i] = mean(&s, i);
    train = only_if_end(&w, complete(&s, optimizer, means, step));
  }
  train = graph_error(g) ? NULL : shoal_group(g, &train, 1, "train");
  graph_pop_scope(g);
  free(means);
  free(s.dense);
  free(s.sparse);
  free(s.placed);
  gradients_release(&all);
  return train;
}
