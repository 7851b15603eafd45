/* Checkpoint ops over all variables of a graph: one SaveV2 with every name, one RestoreV2 that assigns them back. */
#include <string.h>

#include "shoal/train.h"
#include "train/variables.h"

/* What checkpoints call the variables, and which slices they are. */
static void names_and_slices(shoal_graph *g, const shoal_var *vars, int n, shoal_out *names, shoal_out *slices) {
  const char **text = mem_zalloc((size_t)n + 1, sizeof *text);
  for (int i = 0; i < n; i++) text[i] = variable_save_name(vars[i]);
  *names = shoal_constant_strings(g, text, n);
  for (int i = 0; i < n; i++) text[i] = variable_save_slice(vars[i]);
  *slices = shoal_constant_strings(g, text, n);
  free(text);
}

static shoal_var *all_variables(shoal_graph *g, int *n) {
  *n = shoal_variables(g, false, NULL, 0);
  shoal_var *vars = mem_zalloc((size_t)*n + 1, sizeof *vars);
  shoal_variables(g, false, vars, *n);
  if (!*n) graph_fail(g, INVALID("the graph has no variables to save"));
  return vars;
}

shoal_op *shoal_save_variables(shoal_graph *g, shoal_out prefix) {
  int n;
  shoal_var *vars = all_variables(g, &n);
  graph_push_scope(g, "save");
  shoal_out names, slices;
  names_and_slices(g, vars, n, &names, &slices);
  struct build b = build_begin(g, "SaveV2", NULL);
  build_in(&b, prefix);
  build_in(&b, names);
  build_in(&b, slices);
  for (int i = 0; i < n; i++) build_in(&b, variable_read_op(g, vars[i].handle, out_type(vars[i].value), NULL));
  shoal_op *save = build_end(&b);
  graph_pop_scope(g);
  free(vars);
  return save;
}

shoal_op *shoal_restore_variables(shoal_graph *g, shoal_out prefix) {
  int n;
  shoal_var *vars = all_variables(g, &n);
  graph_push_scope(g, "save");
  shoal_out names, slices;
  names_and_slices(g, vars, n, &names, &slices);
  shoal_dtype *types = mem_zalloc((size_t)n + 1, sizeof *types);
  for (int i = 0; i < n; i++) types[i] = out_type(vars[i].value);
  struct build b = build_begin(g, "RestoreV2", NULL);
  build_in(&b, prefix);
  build_in(&b, names);
  build_in(&b, slices);
  build_attr_types(&b, "dtypes", types, n);
  struct shoal_node *restored = build_end(&b);
  shoal_op **assigns = mem_zalloc((size_t)n + 1, sizeof *assigns);
  for (int i = 0; i < n && restored; i++) assigns[i] = shoal_variable_assign(g, vars[i], node_out(restored, i));
  shoal_op *all = restored ? shoal_group(g, assigns, n, "restore_all") : NULL;
  graph_pop_scope(g);
  free(assigns);
  free(types);
  free(vars);
  return all;
}
