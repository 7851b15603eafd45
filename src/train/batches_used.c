/* The number of batches that a run has used: see the header. */
#include "train/batches_used.h"

#include <string.h>

static const char number_name[] = "batches_used", step_name[] = "global_step", of_replica[] = "global_step/replica_";

/* Of the first replica, or another's copy. */
static bool counts_steps(shoal_var v) {
  if (!v.handle.node) return false;
  const char *name = v.handle.node->name;
  return !strcmp(name, step_name) || !strncmp(name, of_replica, strlen(of_replica));
}

static shoal_var number(struct shoal_graph *g, shoal_dtype dtype) {
  struct variable_maker *m = variable_maker_on(g);
  shoal_var v = variable_find(g, number_name);
  if (v.handle.node) return m && m->here ? m->here(m, v) : v;
  graph_push_scope_root(g);
  graph_push_control(g, NULL, -1);
  v = shoal_variable_untrained(g, number_name, shoal_init_zeros(g, dtype, SHOAL_SCALAR));
  graph_pop_control(g);
  graph_pop_scope(g);
  variable_set_stand_in(v, step_name);
  return v;
}

struct shoal_node *batches_used_add(struct shoal_graph *g, shoal_var step, int n) {
  /* References are of programs that train together with TensorFlow 1's, whose chiefs do not know the variable. */
  if (graph_error(g) || !counts_steps(step) || variable_is_ref(step.handle)) return NULL;
  shoal_dtype dtype = out_type(step.value);
  shoal_var v = number(g, dtype);
  if (!v.handle.node) return NULL;
  graph_push_colocation(g, v.handle.node);
  struct shoal_node *added = variable_update_op(g, "AssignAdd", v.handle, build_const_int(g, dtype, n));
  graph_pop_colocation(g);
  return added;
}

shoal_out batches_used_value(const struct shoal_graph *g, shoal_out position) {
  shoal_var step = variable_find(g, step_name), used = variable_find(g, number_name);
  bool is_step = step.value.node && step.value.node == position.node;
  return is_step && used.value.node ? used.value : position;
}
