/* Optimizers as graph builders.
 *
 * What they have in common (slots beside each variable, numbers as constants, one update op for each variable, a
 * counter at the end) is here once; what tells them apart is a row: which op applies a dense gradient, which a sparse
 * one, which slots there are, and in which order the op takes its arguments. Adding one adds a row.
 *
 * Names of slots are TensorFlow's, so that checkpoints go both ways; so are those of the updates. */
#include <string.h>

#include "base/fingerprint.h"
#include "base/options.h"
#include "graph/given.h"
#include "graph/gradient.h"
#include "graph/recompute.h"
#include "shoal/train.h"
#include "train/optimizer.h"
#include "train/variables.h"

enum { MAX_SLOTS = 3 };
typedef VEC(struct shoal_node *) node_list;

/* An op's arguments, one letter each:
 *   v variable   0 1 2 slots   L learning rate   a b c numbers   p q powers of a and b   S this step's number
 *   G gradient   I its indices */
struct shoal_optimizer_row {
  const char *name; /* of slots */
  const char *dense, *dense_args;
  const char *sparse, *sparse_args; /* NULL: made of single ops, by hand */
  int slots;
  double initial[MAX_SLOTS];
  bool powers, has_nesterov, decays; /* decays: the variable shrinks by rate * d before its update */
  /* Of Keras' optimizers, else NULL: slots are called training/NAME/VARIABLE/SLOT, and numbers are variables
   * training/NAME/NUMBER: "learning_rate L beta_1 a", letters as above, 0 for one that is always so. The learning rate
   * is read from its variable, as a checkpoint has it; the others are kept for TensorFlow alone. */
  const char *numbers;
  const char *slot_names[MAX_SLOTS];
};

static const struct shoal_optimizer_row sgd = {"GradientDescent", "ResourceApplyGradientDescent", "vLG"};
static const struct shoal_optimizer_row momentum = {
    "Momentum", "ResourceApplyMomentum", "v0LGa", "ResourceSparseApplyMomentum", "v0LGIa",
    .slots = 1, .has_nesterov = true};
static const struct shoal_optimizer_row adam = {"Adam",     "ResourceApplyAdam", "v01pqLabcG",
                                                .slots = 2, .powers = true,      .has_nesterov = true};
static const struct shoal_optimizer_row adamw = {"AdamW",        "ResourceApplyAdam",  "v01pqLabcG",  .slots = 2,
                                                 .powers = true, .has_nesterov = true, .decays = true};
static const struct shoal_optimizer_row adagrad = {
    "Adagrad", "ResourceApplyAdagrad", "v0LG", "ResourceSparseApplyAdagrad", "v0LGI", .slots = 1, .initial = {0.1}};
static const struct shoal_optimizer_row adagrad_da = {
    "AdagradDA", "ResourceApplyAdagradDA", "v01GLabS", "ResourceSparseApplyAdagradDA", "v01GILabS",
    .slots = 2,  .initial = {0, 0.1}};
static const struct shoal_optimizer_row adadelta = {
    "Adadelta", "ResourceApplyAdadelta", "v01LabG", "ResourceSparseApplyAdadelta", "v01LabGI", .slots = 2};
static const struct shoal_optimizer_row rmsprop = {
    "RMSProp",  "ResourceApplyRMSProp", "v01LabcG", "ResourceSparseApplyRMSProp", "v01LabcGI",
    .slots = 2, .initial = {1}};
static const struct shoal_optimizer_row centered_rmsprop = {"RMSProp",     "ResourceApplyCenteredRMSProp",
                                                            "v102LabcG",   "ResourceSparseApplyCenteredRMSProp",
                                                            "v102LabcGI",  .slots = 3,
                                                            .initial = {1}};
static const struct shoal_optimizer_row ftrl = {
    "Ftrl", "ResourceApplyFtrl", "v01GLabc", "ResourceSparseApplyFtrl", "v01GILabc", .slots = 2, .initial = {0.1}};
static const struct shoal_optimizer_row proximal_sgd = {"ProximalGradientDescent",
                                                        "ResourceApplyProximalGradientDescent", "vLabG",
                                                        "ResourceSparseApplyProximalGradientDescent", "vLabGI"};
static const struct shoal_optimizer_row proximal_adagrad = {"ProximalAdagrad", "ResourceApplyProximalAdagrad",
                                                            "v0LabG",          "ResourceSparseApplyProximalAdagrad",
                                                            "v0LabGI",         .slots = 1,
                                                            .initial = {0.1}};

static const struct shoal_optimizer_row keras_sgd = {"SGD", "ResourceApplyGradientDescent", "vLG",
                                                     .numbers = "decay 0 learning_rate L momentum a"};
static const struct shoal_optimizer_row keras_momentum = {"SGD",
                                                          "ResourceApplyKerasMomentum",
                                                          "v0LGa",
                                                          "ResourceSparseApplyKerasMomentum",
                                                          "v0LGIa",
                                                          .slots = 1,
                                                          .has_nesterov = true,
                                                          .numbers = "decay 0 learning_rate L momentum a",
                                                          .slot_names = {"momentum"}};
static const struct shoal_optimizer_row keras_adam = {"Adam",
                                                      "ResourceApplyAdam",
                                                      "v01pqLabcG",
                                                      .slots = 2,
                                                      .powers = true,
                                                      .numbers = "beta_1 a beta_2 b decay 0 learning_rate L",
                                                      .slot_names = {"m", "v"}};
static const struct shoal_optimizer_row keras_adagrad = {"Adagrad",
                                                         "ResourceApplyAdagradV2",
                                                         "v0LaG",
                                                         "ResourceSparseApplyAdagradV2",
                                                         "v0LaGI",
                                                         .slots = 1,
                                                         .initial = {0.1},
                                                         .numbers = "decay 0 learning_rate L",
                                                         .slot_names = {"accumulator"}};
static const struct shoal_optimizer_row keras_ftrl = {
    "Ftrl",
    "ResourceApplyFtrl",
    "v01GLabc",
    "ResourceSparseApplyFtrl",
    "v01GILabc",
    .slots = 2,
    .initial = {0.1},
    .numbers =
        "beta 0 decay 0 l1_regularization_strength a l2_regularization_strength b learning_rate L "
        "learning_rate_power c",
    .slot_names = {"accumulator", "linear"}};

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
shoal_optimizer shoal_adamw(double rate, double weight_decay) {
  return (shoal_optimizer){.row = &adamw, .learning_rate = rate, .a = 0.9, .b = 0.999, .c = 1e-8, .d = weight_decay};
}
shoal_optimizer shoal_adagrad(double rate) { return (shoal_optimizer){.row = &adagrad, .learning_rate = rate}; }
shoal_optimizer shoal_adagrad_da(double rate, double l1, double l2) {
  return (shoal_optimizer){.row = &adagrad_da, .learning_rate = rate, .a = l1, .b = l2};
}
shoal_optimizer shoal_adadelta(double rate) {
  return (shoal_optimizer){.row = &adadelta, .learning_rate = rate, .a = 0.95, .b = 1e-8};
}
shoal_optimizer shoal_rmsprop(double rate) {
  return (shoal_optimizer){.row = &rmsprop, .learning_rate = rate, .a = 0.9, .c = 1e-10};
}
shoal_optimizer shoal_centered_rmsprop(double rate) {
  return (shoal_optimizer){.row = &centered_rmsprop, .learning_rate = rate, .a = 0.9, .c = 1e-10};
}
shoal_optimizer shoal_ftrl(double rate) { return (shoal_optimizer){.row = &ftrl, .learning_rate = rate, .c = -0.5}; }
shoal_optimizer shoal_proximal_sgd(double rate, double l1, double l2) {
  return (shoal_optimizer){.row = &proximal_sgd, .learning_rate = rate, .a = l1, .b = l2};
}
shoal_optimizer shoal_proximal_adagrad(double rate, double l1, double l2) {
  return (shoal_optimizer){.row = &proximal_adagrad, .learning_rate = rate, .a = l1, .b = l2};
}

shoal_optimizer shoal_keras_sgd(double rate, double m) {
  return (shoal_optimizer){.row = m > 0 ? &keras_momentum : &keras_sgd, .learning_rate = rate, .a = m};
}
shoal_optimizer shoal_keras_adam(double rate) {
  return (shoal_optimizer){.row = &keras_adam, .learning_rate = rate, .a = 0.9, .b = 0.999, .c = 1e-7};
}
shoal_optimizer shoal_keras_adagrad(double rate) {
  return (shoal_optimizer){.row = &keras_adagrad, .learning_rate = rate, .a = 1e-7};
}
shoal_optimizer shoal_keras_ftrl(double rate) {
  return (shoal_optimizer){.row = &keras_ftrl, .learning_rate = rate, .c = -0.5};
}

bool optimizer_is_keras(const shoal_optimizer *o) { return o->row && o->row->numbers; }

shoal_var shoal_global_step(shoal_graph *g) {
  shoal_var there = variable_find(g, "global_step");
  struct variable_maker *m = variable_maker_on(g);
  if (there.handle.node) return m && m->here ? m->here(m, there) : there;
  return shoal_variable_untrained(g, "global_step", shoal_init_zeros(g, SHOAL_INT64, SHOAL_SCALAR));
}

/* ---- one application ---- */

struct applying {
  struct shoal_graph *g;
  const shoal_optimizer *o;
  shoal_var power_a, power_b; /* of Adam: beta1 and beta2 to the power of the step; float32, as TensorFlow has them */
  shoal_out step;             /* of AdagradDA: the number of this step, from 1 */
  shoal_var rate;             /* of Keras': the learning rate */
  shoal_var steps;            /* of Keras': the steps that were made, where nobody else counts them */
};

/* It waits for nothing, so that all updates can share it. */
static shoal_out number(struct applying *w, shoal_dtype dtype, double v) {
  graph_push_control(w->g, NULL, -1);
  shoal_out o = build_const_float(w->g, dtype, v);
  graph_pop_control(w->g);
  return o;
}

static shoal_out rate(struct applying *w, shoal_dtype dtype) {
  if (w->o->learning_rate_out.node) return build_cast(w->g, w->o->learning_rate_out, dtype);
  if (w->rate.value.node) return build_cast(w->g, w->rate.value, dtype);
  return number(w, dtype, w->o->learning_rate);
}

/* Rows that occur more than once, added up: an update that is not linear must see each row once. */
static struct grad unique_rows(struct shoal_graph *g, struct grad gr) {
  struct shoal_node *u = NULL;
  struct build b = build_begin(g, "Unique", NULL);
  build_in(&b, gr.indices);
  u = build_end(&b);
  if (!u) return gr;
  shoal_out count = build_op1(g, "Size", node_out(u, 0));
  shoal_out sums = build_op3(g, "UnsortedSegmentSum", gr.values, node_out(u, 1), count);
  return (struct grad){sums, node_out(u, 0), gr.dense_shape};
}

static struct shoal_node *apply_row(struct applying *w, const char *op, const char *args, shoal_var v,
                                    const shoal_var *slots, struct grad gr) {
  shoal_dtype dtype = out_type(v.value);
  struct build b = build_begin(w->g, variable_op_name(v.handle, op), NULL);
  for (const char *a = args; *a; a++) {
    switch (*a) {
      case 'v': build_in(&b, v.handle); break;
      case '0': build_in(&b, slots[0].handle); break;
      case '1': build_in(&b, slots[1].handle); break;
      case '2': build_in(&b, slots[2].handle); break;
      case 'L': build_in(&b, rate(w, dtype)); break;
      case 'a': build_in(&b, number(w, dtype, w->o->a)); break;
      case 'b': build_in(&b, number(w, dtype, w->o->b)); break;
      case 'c': build_in(&b, number(w, dtype, w->o->c)); break;
      case 'p': build_in(&b, build_cast(w->g, w->power_a.value, dtype)); break;
      case 'q': build_in(&b, build_cast(w->g, w->power_b.value, dtype)); break;
      case 'S': build_in(&b, w->step); break;
      case 'G': build_in(&b, gr.values); break;
      case 'I': build_in(&b, gr.indices); break;
    }
  }
  if (w->o->nesterov && w->o->row->has_nesterov) build_attr_bool(&b, "use_nesterov", true);
  return build_end(&b);
}

/* var[indices] -= rate * values: linear, so repeated rows need no care. */
static struct shoal_node *sgd_sparse(struct applying *w, shoal_var v, struct grad gr) {
  shoal_out change = build_op2(w->g, "Mul", gr.values, build_op1(w->g, "Neg", rate(w, out_type(v.value))));
  return build_op3(w->g, variable_op_name(v.handle, "ResourceScatterAdd"), v.handle, gr.indices, change).node;
}

/* slot = slot * keep, then slot[indices] += (1 - keep) * values; returns the slot read after both. */
static shoal_out adam_slot(struct applying *w, shoal_var slot, double keep, shoal_out values, shoal_out indices) {
  struct shoal_graph *g = w->g;
  shoal_dtype dtype = out_type(slot.value);
  shoal_out kept = build_op2(g, "Mul", slot.value, number(w, dtype, keep));
  struct shoal_node *decayed = variable_update_op(g, "Assign", slot.handle, kept), *added;
  graph_push_control(g, &decayed, decayed ? 1 : 0);
  added = build_op3(g, variable_op_name(slot.handle, "ResourceScatterAdd"), slot.handle, indices,
                    build_op2(g, "Mul", values, number(w, dtype, 1 - keep)))
              .node;
  graph_pop_control(g);
  graph_push_control(g, &added, added ? 1 : 0);
  shoal_out now = variable_read_op(g, slot.handle, dtype, NULL);
  graph_pop_control(g);
  return now;
}

/* TensorFlow has no sparse Adam op: the moments decay everywhere, gain in the rows, and all of var moves. */
static struct shoal_node *adam_sparse(struct applying *w, shoal_var v, const shoal_var *slots, struct grad gr) {
  struct shoal_graph *g = w->g;
  shoal_dtype dtype = out_type(v.value);
  shoal_out one = number(w, dtype, 1);
  shoal_out m = adam_slot(w, slots[0], w->o->a, gr.values, gr.indices);
  shoal_out s = adam_slot(w, slots[1], w->o->b, build_op1(g, "Square", gr.values), gr.indices);
  shoal_out pa = build_cast(g, w->power_a.value, dtype), pb = build_cast(g, w->power_b.value, dtype);
  shoal_out corrected =
      build_op2(g, "RealDiv", build_op2(g, "Mul", rate(w, dtype), build_op1(g, "Sqrt", build_op2(g, "Sub", one, pb))),
                build_op2(g, "Sub", one, pa));
  shoal_out step = build_op2(g, "RealDiv", build_op2(g, "Mul", corrected, m),
                             build_op2(g, "AddV2", build_op1(g, "Sqrt", s), number(w, dtype, w->o->c)));
  return variable_update_op(g, "AssignSub", v.handle, step);
}

/* A variable that is placed with another. */
static shoal_var beside(struct shoal_graph *g, shoal_var v, const char *full, const shoal_out *initial,
                        const struct shape *shape, double fill) {
  bool refs = graph_ref_variables(g);
  graph_set_ref_variables(g, variable_is_ref(v.handle));
  graph_push_colocation(g, v.handle.node);
  graph_push_control(g, NULL, -1);
  graph_push_scope_root(g);
  shoal_out value =
      initial ? *initial : shoal_init_constant(g, out_type(v.value), (shoal_dims){shape->rank, shape->dims}, fill);
  shoal_var slot = shoal_variable_untrained(g, full, value);
  graph_pop_scope(g);
  graph_pop_control(g);
  graph_pop_colocation(g);
  graph_set_ref_variables(g, refs);
  return slot;
}

/* Slots belong to a variable in every way: where it is, what it is called, which part of a whole it is. */
shoal_var slot_variable(struct shoal_graph *g, shoal_var v, const char *name, const shoal_out *initial,
                        const struct shape *shape, double fill) {
  struct variable_maker *m = variable_maker_on(g);
  shoal_var of_piece;
  if (!v.handle.node) return (shoal_var){0};
  if (m && m->slot && !initial && m->slot(m, v, "", name, fill, &of_piece)) return of_piece;
  char *full = mem_printf("%s/%s", v.handle.node->name, name);
  shoal_var slot = beside(g, v, full, initial, shape, fill);
  free(full);
  if (slot.handle.node && *variable_save_slice(v)) {
    char *saved = mem_printf("%s%s", variable_save_name(v), slot.handle.node->name + strlen(v.handle.node->name));
    variable_set_slice(slot, saved, variable_save_slice(v));
    free(saved);
  }
  return slot;
}

static shoal_var keras_slot(struct shoal_graph *g, shoal_var v, const struct shoal_optimizer_row *row, int i,
                            const struct shape *shape) {
  struct variable_maker *m = variable_maker_on(g);
  const char *name = row->slot_names[i];
  double fill = row->initial[i];
  shoal_var slot;
  char *under = mem_printf("training/%s/", row->name);
  if (!(m && m->slot && m->slot(m, v, under, name, fill, &slot))) {
    char *full = mem_printf("%s%s/%s", under, v.handle.node->name, name);
    char *saved = mem_printf("%s%s/%s", under, variable_save_name(v), name);
    slot = beside(g, v, full, NULL, shape, fill);
    if (slot.handle.node && *variable_save_slice(v)) variable_set_slice(slot, saved, variable_save_slice(v));
    free(full);
    free(saved);
  }
  free(under);
  return slot;
}

static void make_slots(struct applying *w, shoal_var v, shoal_var *slots) {
  const struct shoal_optimizer_row *row = w->o->row;
  struct shape shape = out_shape(v.value);
  for (int i = 0; i < row->slots; i++)
    slots[i] = row->numbers ? keras_slot(w->g, v, row, i, &shape)
                            : slot_variable(w->g, v, row->name, NULL, &shape, row->initial[i]);
}

/* After the gradient: what looks up rows reads the variable itself, and must find it as it was. */
static struct shoal_node *decay(struct applying *w, shoal_var v, struct grad gr) {
  struct shoal_graph *g = w->g;
  shoal_dtype dtype = out_type(v.value);
  shoal_out shrink = build_op2(g, "Mul", rate(w, dtype), number(w, dtype, w->o->d));
  shoal_out less = build_op2(g, "Mul", v.value, shrink);
  graph_push_control(g, &gr.values.node, 1);
  struct shoal_node *decayed = variable_update_op(g, "AssignSub", v.handle, less);
  graph_pop_control(g);
  return decayed;
}

/* spared: by the decay of weights. */
static struct shoal_node *apply_one(struct applying *w, shoal_var v, struct grad gr, bool spared) {
  const struct shoal_optimizer_row *row = w->o->row;
  struct shoal_graph *g = w->g;
  if (!v.handle.node) return NULL;
  shoal_var slots[MAX_SLOTS] = {0};
  make_slots(w, v, slots);
  char *scope = mem_printf("update_%s", v.handle.node->name);
  graph_push_scope(g, scope);
  free(scope);
  graph_push_colocation(g, v.handle.node);
  struct shoal_node *done, *decayed = NULL;
  if (row->decays && w->o->d != 0 && !spared) decayed = decay(w, v, gr);
  graph_push_control(g, &decayed, 1);
  if (!grad_sparse(gr)) done = apply_row(w, row->dense, row->dense_args, v, slots, gr);
  else if (row == &sgd || row == &keras_sgd) done = sgd_sparse(w, v, gr);
  else if (row->powers) done = adam_sparse(w, v, slots, unique_rows(g, gr));
  else done = apply_row(w, row->sparse, row->sparse_args, v, slots, unique_rows(g, gr));
  graph_pop_control(g);
  graph_pop_colocation(g);
  graph_pop_scope(g);
  return done;
}

/* After all updates: the powers move on. */
static struct shoal_node *advance_power(struct applying *w, shoal_var power, double by) {
  graph_push_colocation(w->g, power.handle.node);
  shoal_out next = build_op2(w->g, "Mul", power.value, number(w, out_type(power.value), by));
  struct shoal_node *n = variable_update_op(w->g, "Assign", power.handle, next);
  graph_pop_colocation(w->g);
  return n;
}

/* The powers stand with the variable whose name comes first, as TensorFlow has it. */
static void make_powers(struct applying *w, const shoal_var *vars, const shoal_gradient *grads, int n) {
  struct shoal_node *first = NULL;
  for (int i = 0; i < n; i++) {
    struct shoal_node *v = vars[i].handle.node;
    if (v && grads[i].values.node && (!first || strcmp(v->name, first->name) < 0)) first = v;
  }
  if (!first) return;
  graph_push_colocation(w->g, first);
  graph_push_control(w->g, NULL, -1);
  w->power_a = shoal_variable_untrained(w->g, "beta1_power", number(w, SHOAL_FLOAT32, w->o->a));
  w->power_b = shoal_variable_untrained(w->g, "beta2_power", number(w, SHOAL_FLOAT32, w->o->b));
  graph_pop_control(w->g);
  graph_pop_colocation(w->g);
}

static double value_of(const shoal_optimizer *o, char letter) {
  switch (letter) {
    case 'L': return o->learning_rate;
    case 'a': return o->a;
    case 'b': return o->b;
    case 'c': return o->c;
    default: return 0;
  }
}

static shoal_var keras_number(struct applying *w, const char *name, size_t n, shoal_out initial) {
  char *full = mem_printf("training/%s/%.*s", w->o->row->name, (int)n, name);
  graph_push_control(w->g, NULL, -1);
  graph_push_scope_root(w->g);
  shoal_var v = shoal_variable_untrained(w->g, full, initial);
  graph_pop_scope(w->g);
  graph_pop_control(w->g);
  free(full);
  return v;
}

/* Keras' numbers as variables; and the powers of Adam's, which go by the number of this step. */
static void make_numbers(struct applying *w, shoal_var step) {
  struct shoal_graph *g = w->g;
  for (const char *at = w->o->row->numbers; *at;) {
    size_t n = strcspn(at, " ");
    char letter = at[n + 1];
    if (letter != 'L' || !w->o->learning_rate_out.node) {
      shoal_var v = keras_number(w, at, n, number(w, SHOAL_FLOAT32, value_of(w->o, letter)));
      if (letter == 'L') w->rate = v;
    }
    at += n + 2;
    at += *at == ' ';
  }
  if (!step.handle.node) {
    w->steps = keras_number(w, "iter", 4, shoal_init_zeros(g, SHOAL_INT64, SHOAL_SCALAR));
    step = w->steps;
  }
  if (!w->o->row->powers || graph_error(g)) return;
  shoal_out now =
      build_cast(g, build_op2(g, "AddV2", step.value, build_const_int(g, out_type(step.value), 1)), SHOAL_FLOAT32);
  w->power_a.value = build_op2(g, "Pow", number(w, SHOAL_FLOAT32, w->o->a), now);
  w->power_b.value = build_op2(g, "Pow", number(w, SHOAL_FLOAT32, w->o->b), now);
}

static bool takes_step(const struct shoal_optimizer_row *row) { return strchr(row->dense_args, 'S') != NULL; }

/* What is done once all variables have been updated; added to the vector of what the step consists of. */
static void finish(struct applying *w, shoal_var step, node_list *done) {
  struct shoal_graph *g = w->g;
  graph_push_control(g, done->at, (int)done->n);
  if (w->o->row->powers && !w->o->row->numbers) {
    vec_push(done, advance_power(w, w->power_a, w->o->a));
    vec_push(done, advance_power(w, w->power_b, w->o->b));
  }
  if (w->steps.handle.node) step = w->steps;
  if (step.handle.node) {
    graph_push_colocation(g, step.handle.node);
    vec_push(done, variable_update_op(g, "AssignAdd", step.handle, build_const_int(g, out_type(step.value), 1)));
    graph_pop_colocation(g);
  }
  graph_pop_control(g);
}

/* What is to be applied, and the ops that do. */
struct updates {
  const shoal_var *vars;
  shoal_gradient *grads;
  shoal_var *changed; /* the variables, or the pieces of them that are changed here */
  struct shoal_node **done;
  int n;
  const bool *no_decay; /* NULL: all variables decay */
};

static struct updates updates_of(const shoal_var *vars, const shoal_gradient *grads, int n) {
  size_t room = (size_t)MAX(n, 0);
  struct updates u = {.vars = vars, .n = n};
  u.grads = mem_zalloc(room + 1, sizeof *u.grads);
  u.changed = mem_zalloc(room + 1, sizeof *u.changed);
  u.done = mem_zalloc(room + 1, sizeof(*u.done));
  if (room) memcpy(u.grads, grads, room * sizeof *grads);
  if (room) memcpy(u.changed, vars, room * sizeof *vars);
  return u;
}

static void updates_release(struct updates *u) {
  free(u->grads);
  free(u->changed);
  free(u->done);
}

/* Nodes are called as TensorFlow calls them, Adam/update_hidden/kernel/ResourceApplyAdam: errors and traces are read by
 * people who know those. All of it is the op Adam. */
static shoal_op *apply_all(struct shoal_graph *g, shoal_optimizer optimizer, const struct updates *u, shoal_var step) {
  struct applying w = {.g = g, .o = &optimizer};
  struct variable_maker *m = variable_maker_on(g);
  node_list done = {0};
  if (optimizer.row->powers && !optimizer.row->numbers) make_powers(&w, u->vars, u->grads, u->n);
  graph_push_scope(g, optimizer.row->name);
  if (optimizer.row->numbers) make_numbers(&w, step);
  if (takes_step(optimizer.row)) {
    if (!step.value.node && !graph_error(g))
      graph_fail(g, INVALID("%s counts its steps: it needs a step variable", optimizer.row->name));
    w.step = build_op2(g, "AddV2", build_cast(g, step.value, SHOAL_INT64), build_const_int(g, SHOAL_INT64, 1));
  }
  for (int i = 0; i < u->n; i++) {
    struct grad gr = {u->grads[i].values, u->grads[i].indices, u->grads[i].dense_shape};
    if (!grad_none(gr)) u->done[i] = apply_one(&w, u->changed[i], gr, u->no_decay && u->no_decay[i]);
  }
  if (m && m->spread && !graph_error(g)) m->spread(m, u->vars, u->changed, u->done, u->n);
  for (int i = 0; i < u->n; i++)
    if (u->done[i]) vec_push(&done, u->done[i]);
  if (!done.n && !graph_error(g))
    graph_fail(g, INVALID("no gradients: the loss depends on none of the %d variables", u->n));
  if (!graph_error(g)) finish(&w, step, &done);
  graph_pop_scope(g);
  shoal_op *all = graph_error(g) ? NULL : shoal_group(g, done.at, (int)done.n, optimizer.row->name);
  vec_release(&done);
  return all;
}

/* ---- what an optimizer does, as a number ---- */

/* Of a learning rate that is computed: which ops it is made of, and the numbers in them. Not in it is what may be
 * another in each process: names, devices, what is fed, arrays, and whatever a collective makes one value of. */
static uint64_t fingerprint_of(const struct shoal_node *n, int output, int *left) {
  uint64_t h = fingerprint_cat64(fingerprint64(n->op->name, strlen(n->op->name)), (uint64_t)output);
  const struct attr *value = op_is(n->op, "Const") ? node_attr(n, "value") : NULL;
  if (value && value->kind == ATTR_TENSOR && value->tensor->n == 1 && dtype_plain((shoal_dtype)value->tensor->dtype))
    h = fingerprint_cat64(h, fingerprint64(value->tensor->data, tensor_bytes(value->tensor)));
  if (!strncmp(n->op->name, "Collective", strlen("Collective"))) return h;
  for (int i = 0; i < n->n_in; i++) {
    if (!*left) break;
    --*left;
    if (n->in[i].node) h = fingerprint_cat64(h, fingerprint_of(n->in[i].node, n->in[i].index, left));
  }
  return h;
}

static uint64_t optimizer_fingerprint(const shoal_optimizer *o) {
  int left = 512; /* a rate that is made of more is no schedule: what else is in it, nobody knows */
  shoal_out rate = o->learning_rate_out;
  const double numbers[] = {rate.node ? 0 : o->learning_rate, o->a, o->b, o->c, o->d, o->nesterov};
  uint64_t h = fingerprint64(o->row->dense, strlen(o->row->dense));
  h = fingerprint_cat64(h, fingerprint64(o->row->name, strlen(o->row->name)));
  h = fingerprint_cat64(h, fingerprint64(numbers, sizeof numbers));
  uint64_t computed = rate.node ? fingerprint_of(rate.node, rate.index, &left) : 0;
  return left > 0 ? fingerprint_cat64(h, computed) : h;
}

shoal_op *shoal_apply_gradients(shoal_graph *g, shoal_optimizer optimizer, const shoal_var *vars,
                                const shoal_gradient *grads, int n, shoal_var step) {
  GRAPH_GIVEN_ARRAY(g, vars, n, NULL);
  GRAPH_GIVEN_ARRAY(g, grads, n, NULL);
  return shoal_apply_gradients_with(g, optimizer, vars, grads, n, step, NULL);
}

shoal_op *shoal_apply_gradients_with(shoal_graph *g, shoal_optimizer optimizer, const shoal_var *vars,
                                     const shoal_gradient *grads, int n, shoal_var step,
                                     const shoal_apply_options *options) {
  shoal_apply_options o = {0};
  GRAPH_TRY(g, OPTIONS_TAKE(shoal_apply_options, no_decay, &o, options), NULL);
  GRAPH_GIVEN_ARRAY(g, vars, n, NULL);
  GRAPH_GIVEN_ARRAY(g, grads, n, NULL);
  if (!optimizer.row) {
    graph_fail(g, INVALID("an optimizer is made by a function such as shoal_sgd: this one is empty"));
    return NULL;
  }
  struct variable_maker *m = variable_maker_on(g);
  struct updates u = updates_of(vars, grads, n);
  u.no_decay = o.no_decay;
  if (m) m->moves_all = optimizer.row->powers;
  if (m) m->keeps = optimizer.row->slots > 0;
  if (m) m->rate = optimizer.learning_rate_out.node ? 0 : optimizer.learning_rate;
  if (m) m->applied = fingerprint_cat64(m->applied, optimizer_fingerprint(&optimizer));
  if (m && m->reduce) m->reduce(m, vars, u.grads, u.changed, n);
  shoal_op *all = apply_all(g, optimizer, &u, step);
  updates_release(&u);
  return all;
}

int shoal_compute_gradients(shoal_graph *g, shoal_out loss, shoal_var *vars, shoal_gradient *grads, int max) {
  GRAPH_GIVEN_ARRAY(g, vars, max, 0);
  GRAPH_GIVEN_ARRAY(g, grads, max, 0);
  int n = shoal_variables(g, true, vars, max);
  if (n > max) return n;
  shoal_out *handles = mem_zalloc((size_t)n + 1, sizeof *handles);
  for (int i = 0; i < n; i++) handles[i] = vars[i].handle;
  if (!graph_error(g)) shoal_gradients(g, &loss, 1, handles, n, NULL, grads);
  free(handles);
  return n;
}

struct gradients gradients_of(struct shoal_graph *g, shoal_out loss) {
  struct gradients all = {.n = shoal_variables(g, true, NULL, 0)};
  all.vars = mem_zalloc((size_t)all.n + 1, sizeof *all.vars);
  all.grads = mem_zalloc((size_t)all.n + 1, sizeof *all.grads);
  shoal_compute_gradients(g, loss, all.vars, all.grads, all.n);
  return all;
}

void gradients_release(struct gradients *all) {
  free(all->vars);
  free(all->grads);
}

void shoal_push_recompute(shoal_graph *g) { graph_push_recompute(g); }
void shoal_pop_recompute(shoal_graph *g) { graph_pop_recompute(g); }

shoal_op *shoal_minimize(shoal_graph *g, shoal_optimizer optimizer, shoal_out loss, shoal_var step) {
  struct gradients all = gradients_of(g, loss);
  shoal_op *train = graph_error(g) ? NULL : shoal_apply_gradients(g, optimizer, all.vars, all.grads, all.n, step);
  gradients_release(&all);
  return train;
}
