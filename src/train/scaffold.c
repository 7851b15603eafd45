/* Scaffolds: the ops that make a model ready, completed by what the graph itself tells.
 *
 * Ready ops give the names of what is missing, as TensorFlow's report_uninitialized_variables does, so that whoever
 * waits can say for what. */
#include <string.h>

#include "base/options.h"
#include "graph/builder.h"
#include "train/train_session.h"
#include "train/variables.h"

shoal_out global_step_value(const shoal_graph *g) {
  struct shoal_node *n = graph_find(g, "global_step");
  if (!n) return (shoal_out){0};
  if (!op_is(n->op, "VarHandleOp")) return n->n_out == 1 ? node_out(n, 0) : (shoal_out){0};
  struct shoal_node *read = graph_find(g, "global_step/Read/ReadVariableOp");
  return read ? node_out(read, 0) : (shoal_out){0};
}

/* Names of the variables that have no value. */
static shoal_out missing(shoal_graph *g, const shoal_var *vars, int n, const char *name) {
  const char **names = mem_zalloc((size_t)n + 1, sizeof *names);
  struct build pack = build_begin(g, "Pack", NULL);
  for (int i = 0; i < n; i++) {
    names[i] = vars[i].handle.node->name;
    graph_push_colocation(g, vars[i].handle.node);
    build_in(&pack, variable_there_op(g, vars[i].handle));
    graph_pop_colocation(g);
  }
  build_attr_int(&pack, "N", n);
  shoal_out there = build_end_out(&pack), all = shoal_constant_strings(g, names, n);
  free(names);
  shoal_out rows = build_op2(g, "Reshape", build_op1(g, "Where", build_op1(g, "LogicalNot", there)),
                             build_const_ints(g, SHOAL_INT32, (const int64_t[]){-1}, 1));
  struct build gather = build_begin(g, "GatherV2", name);
  build_in(&gather, all);
  build_in(&gather, rows);
  build_in(&gather, build_const_int(g, SHOAL_INT32, 0));
  return build_end_out(&gather);
}

/* What sessions begin with: tables, and what has the mark. */
static bool starts(const struct shoal_node *n) {
  return node_attr(n, LOCAL_INIT_MARK) || op_is(n->op, "InitializeTable") || op_is(n->op, "InitializeTableV2") ||
         op_is(n->op, "InitializeTableFromTextFile") || op_is(n->op, "InitializeTableFromTextFileV2");
}

static shoal_op *local_init(shoal_graph *g) {
  VEC(shoal_op *) ops = {0};
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i] && starts(g->nodes.at[i])) vec_push(&ops, g->nodes.at[i]);
  if (shoal_local_variables(g, NULL, 0)) vec_push(&ops, shoal_initialize_local(g));
  shoal_op *all = ops.n ? shoal_group(g, ops.at, (int)ops.n, "local_init_op") : NULL;
  vec_release(&ops);
  return all;
}

shoal_status scaffold_complete(struct scaffold *s, shoal_graph *g, const shoal_scaffold *given, bool needs_saver) {
  *s = (struct scaffold){.global_step = global_step_value(g)};
  TRY(OPTIONS_TAKE(shoal_scaffold, summary_op, &s->use, given));
  int global = shoal_variables(g, false, NULL, 0), local = shoal_local_variables(g, NULL, 0);
  shoal_var *vars = mem_zalloc((size_t)(global + local) + 1, sizeof *vars);
  shoal_variables(g, false, vars, global);
  shoal_local_variables(g, vars + global, local);
  graph_push_control(g, NULL, -1);
  graph_push_device(g, "");
  if (!s->use.init_op && global) s->use.init_op = shoal_initialize(g);
  if (!s->use.local_init_op) s->use.local_init_op = local_init(g);
  if (!s->use.ready_op.node && global + local)
    s->use.ready_op = missing(g, vars, global + local, "report_uninitialized_variables");
  if (!s->use.ready_for_local_init_op.node && global)
    s->use.ready_for_local_init_op = missing(g, vars, global, "report_uninitialized_variables_global");
  if (!s->use.saver && global && needs_saver) s->use.saver = s->own_saver = shoal_saver_new(g, NULL);
  graph_pop_device(g);
  graph_pop_control(g);
  free(vars);
  return NULL;
}

void scaffold_release(struct scaffold *s) { shoal_saver_free(s->own_saver); }

bool node_is_summary(const struct shoal_node *n) {
  static const char *const kinds[] = {"ScalarSummary",  "HistogramSummary", "ImageSummary",   "AudioSummary",
                                      "AudioSummaryV2", "TensorSummary",    "TensorSummaryV2"};
  for (size_t k = 0; k < COUNT_OF(kinds); k++)
    if (op_is(n->op, kinds[k])) return true;
  return false;
}

shoal_out summaries_merged(shoal_graph *g) {
  VEC(shoal_out) all = {0};
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i] && node_is_summary(g->nodes.at[i])) vec_push(&all, node_out(g->nodes.at[i], 0));
  shoal_out merged = {0};
  if (all.n) {
    struct build b = build_begin(g, "MergeSummary", "merge_all_summaries");
    build_in_list(&b, all.at, (int)all.n);
    build_attr_int(&b, "N", (int64_t)all.n);
    merged = build_end_out(&b);
  }
  vec_release(&all);
  return merged;
}
