/* Optimizers as graph builders.
 *
 * What they have in common (slots beside each variable, numbers as constants, one update op for each variable, a
 * counter at the end) is here once; what tells them apart is a row: which op applies a dense gradient, which a sparse
 * one, which slots there are, and in which order the op takes its arguments. Adding one adds a row.
 *
 * Names of slots are TensorFlow's, so that checkpoints go both ways. */
#include <string.h>

#include "graph/gradient.h"
#include "shoal/train.h"
#include "train/variables.h"

/* An op's arguments, one letter each:
 *   v variable   0 1 slots   L learning rate   a b c numbers   p q powers of a and b   G gradient   I its indices */
struct optimizer_row {
  const char *name; /* of slots */
  const char *dense, *dense_args;
  const char *sparse, *sparse_args; /* NULL: made of single ops, by hand */
  int slots;
  double initial; /* of the first slot */
  bool powers, has_nesterov;
};

static const struct optimizer_row sgd = {"GradientDescent", "ResourceApplyGradientDescent", "vLG"};
static const struct optimizer_row momentum = {
    "Momentum", "ResourceApplyMomentum", "v0LGa", "ResourceSparseApplyMomentum", "v0LGIa",
    .slots = 1, .has_nesterov = true};
static const struct optimizer_row adam = {"Adam",     "ResourceApplyAdam", "v01pqLabcG",
                                          .slots = 2, .powers = true,      .has_nesterov = true};
static const struct optimizer_row adagrad = {
    "Adagrad", "ResourceApplyAdagrad", "v0LG", "ResourceSparseApplyAdagrad", "v0LGI", .slots = 1, .initial = 0.1};
static const struct optimizer_row adadelta = {
    "Adadelta", "ResourceApplyAdadelta", "v01LabG", "ResourceSparseApplyAdadelta", "v01LabGI", .slots = 2};
static const struct optimizer_row rmsprop = {
    "RMSProp", "ResourceApplyRMSProp", "v01LabcG", "ResourceSparseApplyRMSProp", "v01LabcGI", .slots = 2, .initial = 1};
static const struct optimizer_row ftrl = {"Ftrl",      "ResourceApplyFtrl", "v01GLabc",    "ResourceSparseApplyFtrl",
                                          "v01GILabc", .slots = 2,          .initial = 0.1};

shoal_optimizer shoal_sgd(double rate) { return (shoal_optimizer){.row = &sgd, .learning_rate = rate}; }
shoal_optimizer shoal_momentum(double rate, double m) {
  return (shoal_optimizer){.row = &momentum, .learning_rate = rate, .a = m};
}
shoal_optimizer shoal_nesterov(double rate, double m) {
  return (shoal_optimizer){.row = &momentum, .learning_rate = rate, .a = m, .nesterov = true};
}
shoal_optimizer shoal_adam(double rate) {
  return (shoal_optimizer){.row = &adam, .learning_rate = rate, .a = 0.9, .b = 0.999, .c = 1e-8};
}
shoal_optimizer shoal_adagrad(double rate) { return (shoal_optimizer){.row = &adagrad, .learning_rate = rate}; }
shoal_optimizer shoal_adadelta(double rate) {
  return (shoal_optimizer){.row = &adadelta, .learning_rate = rate, .a = 0.95, .b = 1e-8};
}
shoal_optimizer shoal_rmsprop(double rate) {
  return (shoal_optimizer){.row = &rmsprop, .learning_rate = rate, .a = 0.9, .c = 1e-10};
}
shoal_optimizer shoal_ftrl(double rate) { return (shoal_optimizer){.row = &ftrl, .learning_rate = rate, .c = -0.5}; }

shoal_var shoal_global_step(shoal_graph *g) {
  struct node *n = graph_find(g, "global_step"), *read = graph_find(g, "global_step/Read/ReadVariableOp");
  if (n && read) return (shoal_var){node_out(n, 0), node_out(read, 0)};
  return shoal_variable_untrained(g, "global_step", shoal_init_zeros(g, SHOAL_INT64, SHOAL_SCALAR));
}

/* ---- one application ---- */

struct applying {
  struct graph *g;
  const shoal_optimizer *o;
  shoal_var power_a, power_b; /* of Adam: beta1 and beta2 to the power of the step; in the first variable's dtype */
};

static struct out number(struct applying *w, shoal_dtype dtype, double v) { return build_const_float(w->g, dtype, v); }

static struct out rate(struct applying *w, shoal_dtype dtype) {
  if (w->o->learning_rate_out.node) return build_cast(w->g, w->o->learning_rate_out, dtype);
  return number(w, dtype, w->o->learning_rate);
}

static struct out assign_op(struct graph *g, const char *op, struct out handle, struct out value, struct node **node) {
  struct build b = build_begin(g, op, NULL);
  build_in(&b, handle);
  build_in(&b, value);
  *node = build_end(&b);
  return handle;
}

/* Rows that occur more than once, added up: an update that is not linear must see each row once. */
static struct grad unique_rows(struct graph *g, struct grad gr) {
  struct node *u = NULL;
  struct build b = build_begin(g, "Unique", NULL);
  build_in(&b, gr.indices);
  u = build_end(&b);
  if (!u) return gr;
  struct out count = build_op1(g, "Size", node_out(u, 0));
  struct out sums = build_op3(g, "UnsortedSegmentSum", gr.values, node_out(u, 1), count);
  return (struct grad){sums, node_out(u, 0), gr.dense_shape};
}

static struct node *apply_row(struct applying *w, const char *op, const char *args, shoal_var v, const shoal_var *slots,
                              struct grad gr) {
  shoal_dtype dtype = out_type(v.value);
  struct build b = build_begin(w->g, op, NULL);
  for (const char *a = args; *a; a++) {
    switch (*a) {
      case 'v': build_in(&b, v.handle); break;
      case '0': build_in(&b, slots[0].handle); break;
      case '1': build_in(&b, slots[1].handle); break;
      case 'L': build_in(&b, rate(w, dtype)); break;
      case 'a': build_in(&b, number(w, dtype, w->o->a)); break;
      case 'b': build_in(&b, number(w, dtype, w->o->b)); break;
      case 'c': build_in(&b, number(w, dtype, w->o->c)); break;
      case 'p': build_in(&b, build_cast(w->g, w->power_a.value, dtype)); break;
      case 'q': build_in(&b, build_cast(w->g, w->power_b.value, dtype)); break;
      case 'G': build_in(&b, gr.values); break;
      case 'I': build_in(&b, gr.indices); break;
    }
  }
  if (w->o->nesterov && w->o->row->has_nesterov) build_attr_bool(&b, "use_nesterov", true);
  return build_end(&b);
}

/* var[indices] -= rate * values: linear, so repeated rows need no care. */
static struct node *sgd_sparse(struct applying *w, shoal_var v, struct grad gr) {
  struct out change = build_op2(w->g, "Mul", gr.values, build_op1(w->g, "Neg", rate(w, out_type(v.value))));
  return build_op3(w->g, "ResourceScatterAdd", v.handle, gr.indices, change).node;
}

/* slot = slot * keep, then slot[indices] += (1 - keep) * values; returns the slot read after both. */
static struct out adam_slot(struct applying *w, shoal_var slot, double keep, struct out values, struct out indices) {
  struct graph *g = w->g;
  shoal_dtype dtype = out_type(slot.value);
  struct node *decayed, *added;
  assign_op(g, "AssignVariableOp", slot.handle, build_op2(g, "Mul", slot.value, number(w, dtype, keep)), &decayed);
  graph_push_control(g, &decayed, decayed ? 1 : 0);
  added =
      build_op3(g, "ResourceScatterAdd", slot.handle, indices, build_op2(g, "Mul", values, number(w, dtype, 1 - keep)))
          .node;
  graph_pop_control(g);
  graph_push_control(g, &added, added ? 1 : 0);
  struct out now = variable_read_op(g, slot.handle, dtype, NULL);
  graph_pop_control(g);
  return now;
}

/* TensorFlow has no sparse Adam op: the moments decay everywhere, gain in the rows, and all of var moves. */
static struct node *adam_sparse(struct applying *w, shoal_var v, const shoal_var *slots, struct grad gr) {
  struct graph *g = w->g;
  shoal_dtype dtype = out_type(v.value);
  struct out one = number(w, dtype, 1);
  struct out m = adam_slot(w, slots[0], w->o->a, gr.values, gr.indices);
  struct out s = adam_slot(w, slots[1], w->o->b, build_op1(g, "Square", gr.values), gr.indices);
  struct out pa = build_cast(g, w->power_a.value, dtype), pb = build_cast(g, w->power_b.value, dtype);
  struct out corrected =
      build_op2(g, "RealDiv", build_op2(g, "Mul", rate(w, dtype), build_op1(g, "Sqrt", build_op2(g, "Sub", one, pb))),
                build_op2(g, "Sub", one, pa));
  struct out step = build_op2(g, "RealDiv", build_op2(g, "Mul", corrected, m),
                              build_op2(g, "AddV2", build_op1(g, "Sqrt", s), number(w, dtype, w->o->c)));
  struct node *moved;
  assign_op(g, "AssignSubVariableOp", v.handle, step, &moved);
  return moved;
}

static struct node *apply_one(struct applying *w, shoal_var v, struct grad gr) {
  const struct optimizer_row *row = w->o->row;
  struct graph *g = w->g;
  if (!v.handle.node) return NULL;
  graph_push_colocation(g, v.handle.node);
  shoal_var slots[2] = {0};
  struct shape shape = out_shape(v.value);
  char *name = mem_printf("%s/%s", v.handle.node->name, row->name);
  for (int i = 0; i < row->slots; i++)
    slots[i] = shoal_variable_untrained(
        g, name,
        shoal_init_constant(g, out_type(v.value), (shoal_dims){shape.rank, shape.dims}, i == 0 ? row->initial : 0));
  free(name);
  struct node *done;
  if (!grad_sparse(gr)) done = apply_row(w, row->dense, row->dense_args, v, slots, gr);
  else if (row == &sgd) done = sgd_sparse(w, v, gr);
  else if (row == &adam) done = adam_sparse(w, v, slots, unique_rows(g, gr));
  else done = apply_row(w, row->sparse, row->sparse_args, v, slots, unique_rows(g, gr));
  graph_pop_colocation(g);
  return done;
}

/* After all updates: the powers move on. */
static struct node *advance_power(struct applying *w, shoal_var power, double by) {
  struct node *n;
  assign_op(w->g, "AssignVariableOp", power.handle,
            build_op2(w->g, "Mul", power.value, number(w, out_type(power.value), by)), &n);
  return n;
}

shoal_op *shoal_apply_gradients(shoal_graph *g, shoal_optimizer optimizer, const shoal_var *vars,
                                const shoal_gradient *grads, int n, shoal_var step) {
  struct applying w = {.g = g, .o = &optimizer};
  VEC(struct node *) done = {0};
  if (optimizer.row->powers && n) {
    shoal_dtype dtype = out_type(vars[0].value);
    if (dtype == SHOAL_FLOAT16 || dtype == SHOAL_BFLOAT16) dtype = SHOAL_FLOAT32;
    w.power_a = shoal_variable_untrained(g, "beta1_power", number(&w, dtype, optimizer.a));
    w.power_b = shoal_variable_untrained(g, "beta2_power", number(&w, dtype, optimizer.b));
  }
  for (int i = 0; i < n; i++) {
    struct grad gr = {grads[i].values, grads[i].indices, grads[i].dense_shape};
    if (grad_none(gr)) continue;
    struct node *one = apply_one(&w, vars[i], gr);
    if (one) vec_push(&done, one);
  }
  if (!done.n && !graph_error(g))
    graph_fail(g, INVALID("no gradients: the loss depends on none of the %d variables", n));
  if (graph_error(g)) {
    vec_release(&done);
    return NULL;
  }
  graph_push_control(g, done.at, (int)done.n);
  if (optimizer.row->powers) {
    vec_push(&done, advance_power(&w, w.power_a, optimizer.a));
    vec_push(&done, advance_power(&w, w.power_b, optimizer.b));
  }
  if (step.handle.node) {
    struct node *counted;
    assign_op(g, "AssignAddVariableOp", step.handle, build_const_int(g, out_type(step.value), 1), &counted);
    vec_push(&done, counted);
  }
  graph_pop_control(g);
  shoal_op *all = shoal_group(g, done.at, (int)done.n, optimizer.row->name);
  vec_release(&done);
  return all;
}

shoal_op *shoal_minimize(shoal_graph *g, shoal_optimizer optimizer, shoal_out loss, shoal_var step) {
  int n = shoal_variables(g, true, NULL, 0);
  shoal_var *vars = mem_zalloc((size_t)n + 1, sizeof *vars);
  shoal_gradient *grads = mem_zalloc((size_t)n + 1, sizeof *grads);
  shoal_out *values = mem_zalloc((size_t)n + 1, sizeof *values);
  shoal_variables(g, true, vars, n);
  for (int i = 0; i < n; i++) values[i] = vars[i].value;
  if (!graph_error(g)) shoal_gradients(g, &loss, 1, values, n, NULL, grads);
  shoal_op *train = graph_error(g) ? NULL : shoal_apply_gradients(g, optimizer, vars, grads, n, step);
  free(vars);
  free(grads);
  free(values);
  return train;
}
