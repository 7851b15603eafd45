/* Checkpoint ops over all variables of a graph: one SaveV2 with every name, one RestoreV2 that assigns them back. */
#include <string.h>

#include "shoal/train.h"
#include "train/pieces.h"

/* All values of a graph's variables. */
struct all_values {
  shoal_var *vars;
  struct saved_value *values;
  int n_vars, n;
};

static struct all_values all_values(shoal_graph *g) {
  struct all_values a = {.n_vars = shoal_variables(g, false, NULL, 0)};
  a.vars = mem_zalloc((size_t)a.n_vars + 1, sizeof *a.vars);
  a.values = mem_zalloc((size_t)a.n_vars + 1, sizeof *a.values);
  shoal_variables(g, false, a.vars, a.n_vars);
  if (!a.n_vars) graph_fail(g, INVALID("the graph has no variables to save"));
  a.n = saved_values(g, a.vars, a.n_vars, a.values);
  return a;
}

static void all_values_release(struct all_values *a) {
  free(a->vars);
  free(a->values);
}

/* What checkpoints call them, and which slices they are. */
static void names_and_slices(shoal_graph *g, const struct all_values *a, shoal_out *names, shoal_out *slices) {
  const char **text = mem_zalloc((size_t)a->n + 1, sizeof *text);
  for (int i = 0; i < a->n; i++) text[i] = saved_name(&a->values[i]);
  *names = shoal_constant_strings(g, text, a->n);
  for (int i = 0; i < a->n; i++) text[i] = saved_slice(&a->values[i]);
  *slices = shoal_constant_strings(g, text, a->n);
  free(text);
}

shoal_op *shoal_save_variables(shoal_graph *g, shoal_out prefix) {
  struct all_values a = all_values(g);
  graph_push_scope(g, "save");
  shoal_out names, slices;
  names_and_slices(g, &a, &names, &slices);
  struct build b = build_begin(g, "SaveV2", NULL);
  build_in(&b, prefix);
  build_in(&b, names);
  build_in(&b, slices);
  for (int i = 0; i < a.n; i++) build_in(&b, saved_now(g, &a.values[i]));
  shoal_op *save = build_end(&b);
  graph_pop_scope(g);
  all_values_release(&a);
  return save;
}

shoal_op *shoal_restore_variables(shoal_graph *g, shoal_out prefix) {
  struct all_values a = all_values(g);
  graph_push_scope(g, "save");
  shoal_out names, slices;
  names_and_slices(g, &a, &names, &slices);
  shoal_dtype *types = mem_zalloc((size_t)a.n + 1, sizeof *types);
  for (int i = 0; i < a.n; i++) types[i] = out_type(a.values[i].vars[0].value);
  struct build b = build_begin(g, "RestoreV2", NULL);
  build_in(&b, prefix);
  build_in(&b, names);
  build_in(&b, slices);
  build_attr_types(&b, "dtypes", types, a.n);
  struct shoal_node *restored = build_end(&b);
  shoal_op **assigns = mem_zalloc((size_t)a.n_vars + 1, sizeof *assigns);
  for (int i = 0, at = 0; i < a.n && restored; at += a.values[i++].n)
    saved_assign(g, &a.values[i], node_out(restored, i), assigns + at);
  shoal_op *all = restored ? shoal_group(g, assigns, a.n_vars, "restore_all") : NULL;
  graph_pop_scope(g);
  free(assigns);
  free(types);
  all_values_release(&a);
  return all;
}
