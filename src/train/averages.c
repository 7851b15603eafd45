/* Exponential moving averages: shoal/averages.h. The averages are found by name, so nothing is kept beside the graph.
 */
#include "shoal/averages.h"

#include <stdlib.h>
#include <string.h>

#include "train/optimizer.h"
#include "train/variables.h"

static const char suffix[] = "ExponentialMovingAverage";

shoal_var shoal_average_of(const shoal_graph *g, shoal_var v) {
  if (!v.handle.node) return (shoal_var){0};
  char *name = mem_printf("%s/%s", v.handle.node->name, suffix);
  shoal_var average = variable_find(g, name);
  free(name);
  return average;
}

static bool is_average(const struct shoal_node *n) {
  const char *end = strrchr(n->name, '/');
  return end && !strcmp(end + 1, suffix);
}

/* 1 - decay, as a float32 scalar. */
static shoal_out pull(struct shoal_graph *g, double decay, shoal_out updates) {
  shoal_out keep = build_const_float(g, SHOAL_FLOAT32, decay), one = build_const_float(g, SHOAL_FLOAT32, 1);
  if (updates.node) {
    shoal_out n = build_cast(g, updates, SHOAL_FLOAT32);
    shoal_out early = build_op2(g, "RealDiv", build_op2(g, "AddV2", one, n),
                                build_op2(g, "AddV2", build_const_float(g, SHOAL_FLOAT32, 10), n));
    keep = build_op2(g, "Minimum", keep, early);
  }
  return build_op2(g, "Sub", one, keep);
}

static struct shoal_node *move(struct shoal_graph *g, shoal_var v, shoal_out amount) {
  shoal_var average = shoal_average_of(g, v);
  if (!average.handle.node) {
    struct shoal_node *assign = variable_initializer(g, v);
    if (!assign || assign->n_in < 2) {
      graph_fail(g, INVALID("variable '%s' has no initial value to start its average with", v.handle.node->name));
      return NULL;
    }
    average = slot_variable(g, v, suffix, &assign->in[1], NULL, 0);
  }
  if (!average.handle.node) return NULL;
  shoal_dtype t = out_type(v.value);
  graph_push_colocation(g, v.handle.node);
  shoal_out now = variable_read_op(g, v.handle, t, NULL), old = variable_read_op(g, average.handle, t, NULL);
  shoal_out change = build_op2(g, "Mul", build_op2(g, "Sub", old, now), build_cast(g, amount, t));
  struct shoal_node *moved = variable_update_op(g, "AssignSub", average.handle, change);
  graph_pop_colocation(g);
  return moved;
}

shoal_op *shoal_average_variables(shoal_graph *g, double decay, shoal_out num_updates, const shoal_var *vars, int n,
                                  shoal_op *after) {
  if (!vars) n = shoal_variables(g, true, NULL, 0);
  shoal_var *all = mem_zalloc((size_t)n + 1, sizeof *all);
  shoal_op **moved = mem_zalloc((size_t)n + 1, sizeof *moved);
  if (vars) memcpy(all, vars, (size_t)n * sizeof *all);
  else shoal_variables(g, true, all, n);
  graph_push_scope(g, suffix);
  graph_push_control(g, &after, 1);
  shoal_out amount = pull(g, decay, num_updates);
  for (int i = 0; i < n && !graph_error(g); i++) moved[i] = move(g, all[i], amount);
  graph_pop_control(g);
  graph_pop_scope(g);
  shoal_op *done = graph_error(g) ? NULL : shoal_group(g, moved, n, "average_variables");
  free(all);
  free(moved);
  return done;
}

/* A RestoreV2 of one tensor each: names differ from the variables' own, and parts restore their slices. */
static shoal_out restored(struct shoal_graph *g, shoal_out prefix, shoal_var v, bool averaged) {
  char *name = averaged ? mem_printf("%s/%s", variable_save_name(v), suffix) : mem_strdup(variable_save_name(v));
  const char *one[] = {name}, *slice[] = {variable_save_slice(v)};
  shoal_dtype t = out_type(v.value);
  struct build b = build_begin(g, "RestoreV2", NULL);
  build_in(&b, prefix);
  build_in(&b, shoal_constant_strings(g, one, 1));
  build_in(&b, shoal_constant_strings(g, slice, 1));
  build_attr_types(&b, "dtypes", &t, 1);
  free(name);
  return build_end_out(&b);
}

shoal_op *shoal_restore_averages(shoal_graph *g, shoal_out prefix) {
  int n = shoal_variables(g, false, NULL, 0), trainable = shoal_variables(g, true, NULL, 0);
  shoal_var *vars = mem_zalloc((size_t)n + 1, sizeof *vars), *own = mem_zalloc((size_t)trainable + 1, sizeof *own);
  shoal_op **done = mem_zalloc((size_t)n + 1, sizeof *done);
  shoal_variables(g, false, vars, n);
  shoal_variables(g, true, own, trainable);
  graph_push_scope(g, "restore_averages");
  for (int i = 0; i < n && !graph_error(g); i++) {
    if (is_average(vars[i].handle.node)) continue;
    bool averaged = shoal_average_of(g, vars[i]).handle.node != NULL;
    for (int k = 0; k < trainable; k++) averaged |= own[k].handle.node == vars[i].handle.node;
    done[i] = shoal_variable_assign(g, vars[i], restored(g, prefix, vars[i], averaged));
  }
  shoal_op *all = graph_error(g) ? NULL : shoal_group(g, done, n, "all");
  graph_pop_scope(g);
  free(vars);
  free(own);
  free(done);
  return all;
}
