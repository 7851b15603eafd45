/* Functional conditionals and loops as dataflow.
 *
 *   If:     the predicate switches itself; its two sides, through identities, are the pivots that everything in a
 *           branch without inputs waits for. Each input is switched by the predicate; each output is a Merge.
 *   Case:   the same with _SwitchN.
 *   While:  Enter -> Merge <- NextIteration; Merge -> cond -> LoopCond -> Switch -> body -> NextIteration, or -> Exit.
 *
 * A loop variable that the body hands on unchanged (every captured tensor and resource is one) enters once, as a
 * constant of the frame, and is not carried around. Such a value is live even in the last, dead round, so nodes of
 * the body that read nothing else also wait for the pivot, and NextIteration always does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/builder.h"
#include "graph/function.h"
#include "graph/lower_internal.h"

static shoal_status to_bool(struct lowering *lo, const struct shoal_node *n, shoal_out x, shoal_out *out) {
  *out = x;
  if (out_type(x) == SHOAL_BOOL) return NULL;
  struct shoal_node *b;
  TRY(lower_add(lo, n, "ToBool", "ToBool", &x, 1, NULL, 0, &b));
  *out = node_out(b, 0);
  return NULL;
}

static shoal_status add_identity(struct lowering *lo, const struct shoal_node *n, const char *name, shoal_out x,
                                 struct shoal_node **out) {
  return lower_add(lo, n, name, "Identity", &x, 1, NULL, 0, out);
}

/* A node that runs after n's control inputs; NULL when it has none. */
static shoal_status gate(struct lowering *lo, const struct shoal_node *n, const char *name, struct shoal_node **out) {
  *out = NULL;
  if (!n->control.n) return NULL;
  TRY(lower_add(lo, n, name, "NoOp", NULL, 0, NULL, 0, out));
  graph_add_controls(*out, n->control.at, n->control.n);
  return NULL;
}

static void after(struct shoal_node *n, struct shoal_node *gate_node) {
  if (gate_node) graph_add_control(n, gate_node);
}

/* ---- conditionals ---- */

/* x sent one of n_ways ways by `select`: Switch for two ways and a bool, _SwitchN otherwise. */
static shoal_status add_switch(struct lowering *lo, const struct shoal_node *n, const char *name, shoal_out x,
                               shoal_out select, int ways, bool two, struct shoal_node *wait, struct shoal_node **out) {
  shoal_out in[2] = {x, select};
  if (two) TRY(lower_add(lo, n, name, "Switch", in, 2, NULL, 0, out));
  else TRY(lower_add(lo, n, name, "_SwitchN", in, 2, lower_attr("num_outs", attr_int(ways)), 1, out));
  after(*out, wait);
  return NULL;
}

static shoal_status lower_branches(struct lowering *lo, struct shoal_node *n, const struct func_attr *const *branches,
                                   int ways, shoal_out select, bool two) {
  int n_in = n->n_in - 1, n_out = n->n_out;
  struct shoal_node *wait, *pick, *executed = NULL;
  TRY(gate(lo, n, "input_control_node", &wait));
  TRY(add_switch(lo, n, "switch_pred", select, select, ways, two, wait, &pick));
  struct shoal_node **switched = mem_zalloc((size_t)n_in, sizeof *switched);
  shoal_out *in = mem_zalloc((size_t)n_in, sizeof *in);
  shoal_out *merged = mem_zalloc((size_t)ways * (size_t)(n_out + 1), sizeof *merged); /* [n_out + 1][ways] */
  shoal_out *outs = mem_zalloc((size_t)n_out, sizeof *outs);
  shoal_status s = NULL;
  for (int i = 0; i < n_in && !s; i++)
    s = add_switch(lo, n, "switch", n->in[i + 1], select, ways, two, wait, &switched[i]);
  for (int b = 0; b < ways && !s; b++) {
    char name[32];
    snprintf(name, sizeof name, "branch_%d", b);
    int side = two ? 1 - b : b; /* then is output 1 of a Switch */
    struct shoal_node *pivot, *done, *end;
    shoal_out *results;
    TRY_GOTO(s, add_identity(lo, n, two ? (b ? "pivot_f" : "pivot_t") : "pivot", node_out(pick, side), &pivot), out);
    for (int i = 0; i < n_in; i++) in[i] = node_out(switched[i], side);
    TRY_GOTO(s,
             lower_inline(lo, n, two ? (b ? "else" : "then") : name, branches[b], in, n_in, n_out, pivot, NULL,
                          &results, &done),
             out);
    for (int i = 0; i < n_out; i++) merged[i * ways + b] = results[i];
    free(results);
    TRY_GOTO(s, add_identity(lo, n, "branch_done", node_out(pivot, 0), &end), out);
    graph_add_control(end, done);
    merged[n_out * ways + b] = node_out(end, 0);
  }
  for (int i = 0; i <= n_out && !s; i++) {
    struct shoal_node *m;
    s = lower_add(lo, n, i < n_out ? "output" : "branch_executed", "Merge", &merged[i * ways], ways, NULL, 0, &m);
    if (s) break;
    if (i < n_out) outs[i] = node_out(m, 0);
    else executed = m;
  }
out:
  free(switched);
  free(in);
  free(merged);
  if (s) {
    free(outs);
    return s;
  }
  return lower_replace(lo, n, outs, executed);
}

shoal_status lower_if(struct lowering *lo, struct shoal_node *n) {
  const struct func_attr *branches[2];
  TRY(node_get_func(n, "then_branch", &branches[0]));
  TRY(node_get_func(n, "else_branch", &branches[1]));
  shoal_out pred;
  TRY(to_bool(lo, n, n->in[0], &pred));
  return lower_branches(lo, n, branches, 2, pred, true);
}

shoal_status lower_case(struct lowering *lo, struct shoal_node *n) {
  const struct attr *list;
  TRY(node_get_list(n, "branches", ATTR_FUNC, &list));
  int ways = (int)list->list.n;
  if (ways < 1 || list->list.n > 1 << 16) return INVALID("Case {{node %s}} has %zu branches", n->name, list->list.n);
  const struct func_attr **branches = mem_zalloc((size_t)ways, sizeof *branches);
  for (int i = 0; i < ways; i++) branches[i] = list->list.at[i].func;
  shoal_status s = lower_branches(lo, n, branches, ways, n->in[0], false);
  free(branches);
  return s;
}

/* ---- loops ---- */

struct lowered_loop {
  struct shoal_node *n;
  int vars;
  bool *constant;                            /* [vars] handed on unchanged */
  shoal_out *at_merge;                       /* [vars] what the condition reads */
  shoal_out *in_body;                        /* [vars] what the body reads */
  struct shoal_node **merge, **exit, **turn; /* [vars] Merge, Exit, Switch; NULL for constants */
  int first;                                 /* a variable that is carried */
};

/* Marks variables whose result is the argument itself. */
static void find_constants(const struct function_def *body, struct lowered_loop *l) {
  const struct op *sig = body->sig;
  if (sig->n_in != l->vars || sig->n_out != l->vars) return;
  for (int i = 0; i < l->vars; i++) {
    if (sig->in[i].number_attr || sig->in[i].list_attr) return;
    l->constant[i] = slice_is(body->rets[i], sig->in[i].name);
  }
  for (l->first = 0; l->first < l->vars && l->constant[l->first];) l->first++;
  if (l->first == l->vars) l->constant[l->first = 0] = false;
}

static shoal_status enter_loop(struct lowering *lo, struct lowered_loop *l, int64_t parallel) {
  struct shoal_node *n = l->n, *wait;
  TRY(gate(lo, n, "LoopControlInputs", &wait));
  for (int i = 0; i < l->vars; i++) {
    struct named_attr *attrs = mem_zalloc(3, sizeof *attrs);
    attrs[0] = (struct named_attr){mem_strdup("frame_name"), attr_string(n->name, strlen(n->name))};
    attrs[1] = (struct named_attr){mem_strdup("parallel_iterations"), attr_int(parallel)};
    attrs[2] = (struct named_attr){mem_strdup("is_constant"), attr_bool(l->constant[i])};
    struct shoal_node *enter;
    TRY(lower_add(lo, n, "enter", "Enter", &n->in[i], 1, attrs, 3, &enter));
    after(enter, wait);
    l->at_merge[i] = l->in_body[i] = node_out(enter, 0);
    if (l->constant[i]) continue;
    attrs = mem_zalloc(2, sizeof *attrs);
    attrs[0] = (struct named_attr){mem_strdup("T"), attr_type(dtype_base(enter->out_types[0]))};
    attrs[1] = (struct named_attr){mem_strdup("N"), attr_int(2)};
    shoal_out in[2] = {node_out(enter, 0), {0}};
    TRY(lower_add(lo, n, "merge", "Merge", in, 2, attrs, 2, &l->merge[i]));
    l->at_merge[i] = node_out(l->merge[i], 0);
  }
  return NULL;
}

static shoal_status add_condition(struct lowering *lo, struct lowered_loop *l, struct shoal_node **loop_cond) {
  struct shoal_node *n = l->n, *done;
  const struct func_attr *f;
  shoal_out *result, pred;
  TRY(node_get_func(n, "cond", &f));
  TRY(lower_inline(lo, n, "cond", f, l->at_merge, l->vars, 1, l->merge[l->first], l->constant, &result, &done));
  pred = result[0];
  free(result);
  TRY(to_bool(lo, n, pred, &pred));
  TRY(lower_add(lo, n, "LoopCond", "LoopCond", &pred, 1, NULL, 0, loop_cond));
  graph_add_control(*loop_cond, done);
  return NULL;
}

static shoal_status add_body(struct lowering *lo, struct lowered_loop *l, struct shoal_node *loop_cond) {
  struct shoal_node *n = l->n, *pivot, *done, *next;
  const struct func_attr *f;
  shoal_out *results;
  for (int i = 0; i < l->vars; i++) {
    if (l->constant[i]) continue;
    shoal_out in[2] = {l->at_merge[i], node_out(loop_cond, 0)};
    TRY(lower_add(lo, n, "switch", "Switch", in, 2, NULL, 0, &l->turn[i]));
    l->in_body[i] = node_out(l->turn[i], 1);
    if (!lo->portable) continue;
    TRY(add_identity(lo, n, "in_body", l->in_body[i], &pivot));
    l->in_body[i] = node_out(pivot, 0);
  }
  TRY(add_identity(lo, n, "loop_body_control", l->in_body[l->first], &pivot));
  TRY(node_get_func(n, "body", &f));
  TRY(lower_inline(lo, n, "body", f, l->in_body, l->vars, l->vars, pivot, l->constant, &results, &done));
  shoal_status s = NULL;
  for (int i = 0; i < l->vars && !s; i++) {
    if (l->constant[i]) continue;
    s = lower_add(lo, n, "next_iteration", "NextIteration", &results[i], 1, NULL, 0, &next);
    if (s) break;
    graph_add_control(next, done);
    graph_add_control(next, pivot);
    s = graph_set_input(lo->g, l->merge[i], 1, node_out(next, 0));
  }
  free(results);
  return s;
}

static shoal_status leave_loop(struct lowering *lo, struct lowered_loop *l, shoal_out *outs,
                               struct shoal_node **executed) {
  struct shoal_node *n = l->n;
  TRY(lower_add(lo, n, "LoopExecuted", "NoOp", NULL, 0, NULL, 0, executed));
  for (int i = 0; i < l->vars; i++) {
    if (l->constant[i]) continue;
    shoal_out in = node_out(l->turn[i], 0);
    TRY(lower_add(lo, n, "exit", "Exit", &in, 1, NULL, 0, &l->exit[i]));
    outs[i] = node_out(l->exit[i], 0);
    graph_add_control(*executed, l->exit[i]);
  }
  for (int i = 0; i < l->vars; i++) {
    if (!l->constant[i]) continue;
    struct shoal_node *id;
    TRY(add_identity(lo, n, "unchanged", n->in[i], &id));
    graph_add_control(id, *executed);
    outs[i] = node_out(id, 0);
  }
  return NULL;
}

shoal_status lower_while(struct lowering *lo, struct shoal_node *n) {
  if (!n->n_in || n->n_in != n->n_out) return INVALID("While {{node %s}} has no loop variables", n->name);
  int64_t parallel = 10;
  if (node_attr(n, "parallel_iterations")) TRY(node_get_int(n, "parallel_iterations", &parallel));
  const struct func_attr *body;
  TRY(node_get_func(n, "body", &body));
  const struct function_def *def = graph_function(lo->g, body->name);
  if (!def) return NOT_FOUND("Function '%s' is not found in the library; called by {{node %s}}", body->name, n->name);
  size_t vars = (size_t)n->n_in;
  struct lowered_loop l = {.n = n,
                           .vars = n->n_in,
                           .constant = mem_zalloc(vars, sizeof *l.constant),
                           .at_merge = mem_zalloc(vars, sizeof *l.at_merge),
                           .in_body = mem_zalloc(vars, sizeof *l.in_body),
                           .merge = mem_zalloc(vars, sizeof *l.merge),
                           .exit = mem_zalloc(vars, sizeof *l.exit),
                           .turn = mem_zalloc(vars, sizeof *l.turn)};
  shoal_out *outs = mem_zalloc(vars, sizeof *outs);
  struct shoal_node *loop_cond, *executed = NULL;
  find_constants(def, &l);
  shoal_status s = enter_loop(lo, &l, parallel);
  if (!s) s = add_condition(lo, &l, &loop_cond);
  if (!s) s = add_body(lo, &l, loop_cond);
  if (!s) s = leave_loop(lo, &l, outs, &executed);
  free(l.constant);
  free(l.at_merge);
  free(l.in_body);
  free(l.merge);
  free(l.exit);
  free(l.turn);
  if (s) {
    free(outs);
    return s;
  }
  return lower_replace(lo, n, outs, executed);
}
