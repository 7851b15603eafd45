/* Inlining of function calls, and the pass that drives all lowering; conditionals and loops are in lower_control.c.
 *
 * Nodes are visited in the order of their ids; what a lowered node turns into is appended and visited in turn, so
 * nested functions need no recursion here. Each new node remembers the chain of functions it came out of: a function
 * that turns up in its own chain would never end, and is an error.
 *
 * Consumers are not rewired one by one: each lowered node leaves a note of what its outputs and its completion have
 * become, and one sweep at the end follows these notes. */
#include "graph/lower.h"

#include <stdlib.h>
#include <string.h>

#include "base/device_name.h"
#include "graph/function.h"
#include "graph/gradient_internal.h"
#include "graph/lower_internal.h"

enum { MAX_CHAIN = 100 };

/* ---- making nodes ---- */

shoal_status lower_add(struct lowering *lo, const struct shoal_node *near, const char *suffix, const char *op,
                       const shoal_out *in, int n_in, struct named_attr *attrs, int n_attrs, struct shoal_node **out) {
  const struct op *found = op_find(op);
  char *base = mem_printf("%s/%s", near->name, suffix);
  char *name = graph_unique_name(lo->g, base);
  shoal_status s = found ? graph_add(lo->g, name, found, in, n_in, attrs, n_attrs, out)
                         : UNIMPLEMENTED("Lowering {{node %s}} needs the op %s, which is not there", near->name, op);
  free(base);
  free(name);
  if (s) return s;
  graph_set_device(*out, near->device);
  lower_chain(lo, *out, lo->chain);
  return NULL;
}

void lower_chain(struct lowering *lo, const struct shoal_node *n, int chain) {
  while (lo->chains.n <= (size_t)n->id) vec_push(&lo->chains, -1);
  lo->chains.at[n->id] = chain;
}

struct named_attr *lower_attr(const char *name, struct attr value) {
  struct named_attr *a = mem_zalloc(1, sizeof *a);
  *a = (struct named_attr){mem_strdup(name), value};
  return a;
}

/* The node's outputs and completion become these; outs is taken over. */
static void note(struct lowering *lo, const struct shoal_node *n, shoal_out *outs, struct shoal_node *done) {
  while (lo->notes.n <= (size_t)n->id) vec_push(&lo->notes, (struct lowered){0});
  lo->notes.at[n->id] = (struct lowered){true, outs, done};
}

/* n itself turns into an IdentityN of outs, or a NoOp, that runs after done. */
shoal_status lower_replace(struct lowering *lo, struct shoal_node *n, shoal_out *outs, struct shoal_node *done) {
  const struct op *op = op_find(n->n_out ? "IdentityN" : "NoOp");
  if (!op) {
    free(outs);
    return INTERNAL("the op IdentityN is not there");
  }
  for (int i = 0; i < n->n_attrs; i++) {
    free(n->attrs[i].name);
    attr_release(&n->attrs[i].value);
  }
  n->n_attrs = 0;
  n->op = op;
  free(n->in);
  free(n->in_types);
  n->n_in = n->n_out;
  n->in = mem_zalloc((size_t)n->n_out, sizeof *n->in);
  n->in_types = mem_alloc((size_t)n->n_out + 1);
  if (n->n_out) {
    struct attr types = attr_list(ATTR_TYPE);
    for (int i = 0; i < n->n_out; i++) {
      n->in[i] = outs[i];
      n->in_types[i] = n->out_types[i] = (uint8_t)dtype_base(n->out_types[i]);
      attr_list_add(&types, attr_type(n->out_types[i]));
    }
    node_set_attr(n, "T", types);
  }
  vec_clear(&n->control);
  if (done) graph_add_control(n, done);
  note(lo, n, outs, done);
  return NULL;
}

/* ---- calls ---- */

static bool chain_has(const struct lowering *lo, int chain, const char *function) {
  for (int c = chain; c >= 0; c = lo->links.at[c].up)
    if (!strcmp(lo->links.at[c].function, function)) return true;
  return false;
}

static int chain_length(const struct lowering *lo, int chain) {
  int n = 0;
  for (int c = chain; c >= 0; c = lo->links.at[c].up) n++;
  return n;
}

/* Where a RemoteCall's target, its first input, is a constant, that; else NULL: its kernel looks when it runs. */
static const struct shoal_node *constant_target(const struct shoal_node *n) {
  const struct shoal_node *from = n->n_in ? n->in[0].node : NULL;
  while (from && op_is(from->op, "Identity")) from = from->in[0].node;
  return from && op_is(from->op, "Const") ? from : NULL;
}

bool lower_is_call_op(const char *op) {
  return !strcmp(op, "PartitionedCall") || !strcmp(op, "StatefulPartitionedCall") || !strcmp(op, "SymbolicGradient") ||
         !strcmp(op, "RemoteCall");
}

static bool is_call(const struct lowering *lo, const struct shoal_node *n) {
  return (lower_is_call_op(n->op->name) && (!op_is(n->op, "RemoteCall") || constant_target(n))) ||
         graph_function(lo->g, n->op->name);
}

/* A body node's device: its own parts, completed by the caller's. */
static void place_inlined(struct shoal_node *n, const char *caller) {
  if (!*caller) return;
  struct device_spec own = {0}, from;
  shoal_status s = *n->device ? device_spec_parse(n->device, &own) : NULL;
  if (!s) s = device_spec_parse(caller, &from);
  if (s) { /* placement will complain of it, by name */
    shoal_status_free(s);
    return;
  }
  struct device_spec merged = from;
  device_spec_merge(&merged, &own);
  char text[192];
  device_spec_print(&merged, text, sizeof text);
  graph_set_device(n, text);
}

/* Names inside attributes: frames, and colocation with another node of the body. */
static void prefix_attrs(struct shoal_node *n, const struct function_body *body, const char *prefix) {
  struct attr *frame = op_is(n->op, "Enter") || op_is(n->op, "RefEnter") ? node_attr(n, "frame_name") : NULL;
  if (frame && frame->kind == ATTR_STRING) {
    char *name = mem_printf("%s/%s", prefix, frame->s.data);
    node_set_attr(n, "frame_name", attr_string(name, strlen(name)));
    free(name);
  }
  const struct attr *class = node_attr(n, "_class");
  if (!class || class->kind != ATTR_LIST || class->of != ATTR_STRING) return;
  struct attr renamed = attr_list(ATTR_STRING);
  for (size_t i = 0; i < class->list.n; i++) {
    const char *text = class->list.at[i].s.data;
    const struct shoal_node *with = str_starts(text, "loc:@") ? graph_find(body->graph, text + 5) : NULL;
    if (!with || op_is(with->op, "_Arg")) continue;
    char *name = mem_printf("loc:@%s/%s", prefix, text + 5);
    attr_list_add(&renamed, attr_string(name, strlen(name)));
    free(name);
  }
  node_set_attr(n, "_class", renamed);
}

static shoal_status clone_node(struct lowering *lo, const struct shoal_node *caller, const char *prefix,
                               const struct function_body *body, const struct shoal_node *n, struct shoal_node **out) {
  struct named_attr *attrs = mem_zalloc((size_t)n->n_attrs, sizeof *attrs);
  for (int i = 0; i < n->n_attrs; i++)
    attrs[i] = (struct named_attr){mem_strdup(n->attrs[i].name), attr_copy(&n->attrs[i].value)};
  char *base = mem_printf("%s/%s", prefix, n->name);
  char *name = graph_unique_name(lo->g, base);
  shoal_out *open = mem_zalloc((size_t)n->n_in, sizeof *open);
  /* A direct call's op belongs to its definition, which the body's graph may outlive only by our own reference. */
  const struct op *op = graph_op(lo->g, n->op->name);
  shoal_status s = op ? graph_add(lo->g, name, op, open, n->n_in, attrs, n->n_attrs, out)
                      : NOT_FOUND("Op type not registered '%s'", n->op->name);
  free(open);
  free(base);
  free(name);
  TRY(s);
  graph_set_device(*out, n->device);
  place_inlined(*out, caller->device);
  prefix_attrs(*out, body, prefix);
  lower_chain(lo, *out, lo->chain);
  return NULL;
}

static bool has_effect(const struct shoal_node *n) {
  return (n->op->flags & OP_STATEFUL) && !op_is(n->op, "_Arg") && !op_is(n->op, "_Retval") &&
         !op_is(n->op, "Placeholder");
}

/* Does nothing in the body precede n, other than constants of the frame? */
static bool is_source(const struct function_body *body, const struct shoal_node *n, const bool *constant) {
  if (n->control.n) return false;
  for (int i = 0; i < n->n_in; i++) {
    const struct shoal_node *from = n->in[i].node;
    if (!constant || !op_is(from->op, "_Arg")) return false;
    for (int k = 0; k < body->n_args; k++)
      if (body->args[k] == from && !constant[k]) return false;
  }
  return true;
}

/* What stands for an output of the body's: its node's copy, or what its argument is given. */
static shoal_out copy_of(struct shoal_node *const *map, const shoal_out *arg, shoal_out o) {
  return map[o.node->id] ? (shoal_out){map[o.node->id], o.index} : arg[o.node->id];
}

/* Copies the body into the graph. inputs feed its arguments; nodes of the body that nothing precedes run after
 * `start` (NULL: nothing to wait for). outs ([n_rets]) and *done are what comes out; strict: results are there only
 * when the body's effects are done. */
static shoal_status splice(struct lowering *lo, const struct shoal_node *caller, const char *prefix,
                           const struct function_body *body, const shoal_out *inputs, struct shoal_node *start,
                           const bool *constant, bool strict, shoal_out *outs, struct shoal_node **done) {
  struct shoal_graph *from = body->graph;
  if (lo->g->nodes.n + from->nodes.n > lo->most)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "Inlining functions makes more than %d nodes", LOWER_MAX_NODES);
  struct shoal_node **map = mem_zalloc(from->nodes.n, sizeof *map);
  shoal_status s = NULL;
  for (size_t i = 0; i < from->nodes.n && !s; i++) {
    const struct shoal_node *n = from->nodes.at[i];
    if (n && !op_is(n->op, "_Arg") && !op_is(n->op, "_Retval")) s = clone_node(lo, caller, prefix, body, n, &map[i]);
  }
  VEC(struct shoal_node *) ends = {0};
  shoal_out *arg = mem_zalloc(from->nodes.n, sizeof *arg);
  for (int i = 0; i < body->n_args; i++) arg[body->args[i]->id] = inputs[i];
  for (size_t i = 0; i < from->nodes.n && !s; i++) {
    struct shoal_node *n = from->nodes.at[i], *c = map[i];
    if (!c) continue;
    for (int k = 0; k < n->n_in && !s; k++) s = graph_set_input(lo->g, c, k, copy_of(map, arg, n->in[k]));
    ends.n = 0;
    for (size_t k = 0; k < n->control.n && !s; k++)
      vec_push(&ends, copy_of(map, arg, (shoal_out){n->control.at[k], 0}).node);
    graph_add_controls(c, ends.at, ends.n);
    if (start && (is_source(body, n, constant) || is_call(lo, c))) graph_add_control(c, start);
  }
  bool effects = false, branches = false;
  ends.n = 0;
  for (int i = 0; i < body->n_controls && !s; i++)
    vec_push(&ends, copy_of(map, arg, (shoal_out){body->controls[i], 0}).node);
  effects = ends.n > 0;
  for (size_t i = 0; i < from->nodes.n && !s && !body->n_controls; i++)
    if (map[i] && has_effect(map[i])) {
      vec_push(&ends, map[i]);
      effects = true;
    }
  for (size_t i = 0; i < from->nodes.n && !branches; i++) branches = map[i] && op_is(map[i]->op, "Switch");
  for (int i = 0; i < body->n_rets && !s; i++) {
    outs[i] = copy_of(map, arg, body->rets[i]->in[0]);
    if (!effects) vec_push(&ends, outs[i].node);
  }
  if (!s && !ends.n && start) vec_push(&ends, start);
  /* An effect inside a conditional of the old kind may be dead while the call is not. */
  const char *end = effects && branches ? "ControlTrigger" : "NoOp";
  if (!s) s = lower_add(lo, caller, "output_control_node", end, NULL, 0, NULL, 0, done);
  if (!s) graph_add_controls(*done, ends.at, ends.n);
  for (int i = 0; i < body->n_rets && !s && effects && strict; i++) {
    struct shoal_node *id;
    s = lower_add(lo, caller, "output", "Identity", &outs[i], 1, NULL, 0, &id);
    if (s) break;
    graph_add_control(id, *done);
    outs[i] = node_out(id, 0);
  }
  vec_release(&ends);
  free(arg);
  free(map);
  return s;
}

/* In the words of the op that calls. */
static shoal_status wrong_results(const struct shoal_node *caller, const char *role, int have, int want) {
  if (role && !strcmp(role, "cond"))
    return INVALID("Expected a single scalar return value from WhileOp cond, got %d tensors.", have);
  if (role && !strcmp(role, "body")) return INVALID("While loop body returned %d arguments. Expected: %d", have, want);
  if (op_is(caller->op, "SymbolicGradient"))
    return INVALID("SymGrad expects to return %d tensor(s), but get %d tensor(s) instead.", want, have);
  return INVALID("A function of %d results is called by {{node %s}}, which has %d outputs", have, caller->name, want);
}

static shoal_status check_call(const struct shoal_node *caller, const char *role, const struct function_body *body,
                               const shoal_out *inputs, int n_in, int n_out) {
  if (body->n_rets != n_out) return node_error(caller, wrong_results(caller, role, body->n_rets, n_out));
  if (body->n_args != n_in)
    return INVALID("A function of %d arguments is called with %d by {{node %s}}", body->n_args, n_in, caller->name);
  for (int i = 0; i < n_in; i++) {
    int want = body->args[i]->out_types[0], have = inputs[i].node->out_types[inputs[i].index];
    if (dtype_base(want) != dtype_base(have))
      return INVALID("Argument %d of a function called by {{node %s}} is %s but should be %s", i, caller->name,
                     dtype_tf_name(have), dtype_tf_name(want));
  }
  return NULL;
}

/* The function's body. One without attributes is made once, others are the last there was. */
static shoal_status body_of(struct lowering *lo, const struct function_def *def, const struct func_attr *f,
                            struct function_body **out) {
  *out = f->n_attrs ? NULL : strmap_get(&lo->bodies, def->name);
  if (*out) return NULL;
  if (lo->last.graph) function_body_release(&lo->last);
  TRY(function_instantiate(lo->g, def, f->attrs, f->n_attrs, &lo->last));
  *out = &lo->last;
  if (f->n_attrs) return NULL;
  *out = mem_alloc(sizeof **out);
  **out = lo->last;
  lo->last = (struct function_body){0};
  strmap_put(&lo->bodies, def->name, *out);
  return NULL;
}

shoal_status lower_inline(struct lowering *lo, const struct shoal_node *caller, const char *suffix,
                          const struct func_attr *f, const shoal_out *inputs, int n_in, int n_out,
                          struct shoal_node *start, const bool *constant, shoal_out **outs, struct shoal_node **done) {
  struct function_def *def = graph_function(lo->g, f->name);
  if (!def) return NOT_FOUND("Function '%s' is not found in the library; called by {{node %s}}", f->name, caller->name);
  int chain = (size_t)caller->id < lo->chains.n ? lo->chains.at[caller->id] : -1;
  if (chain_has(lo, chain, f->name) || chain_length(lo, chain) >= MAX_CHAIN)
    return INVALID("Function '%s' calls itself, directly or through others; {{node %s}}", f->name, caller->name);
  vec_push(&lo->links, (struct link){def->name, chain});
  lo->chain = (int)lo->links.n - 1;
  struct function_body *body;
  shoal_status s = body_of(lo, def, f, &body);
  if (!s) s = check_call(caller, suffix, body, inputs, n_in, n_out);
  if (!s) {
    *outs = mem_zalloc((size_t)body->n_rets, sizeof **outs);
    char *prefix = suffix ? mem_printf("%s/%s", caller->name, suffix) : mem_strdup(caller->name);
    s = splice(lo, caller, prefix, body, inputs, start, constant, !suffix, *outs, done);
    free(prefix);
    if (s) free(*outs);
  }
  lo->chain = chain;
  return s;
}

/* The gate through which a call's control inputs reach its body; NULL when there are none. */
static shoal_status call_start(struct lowering *lo, const struct shoal_node *n, struct shoal_node **start) {
  *start = NULL;
  bool in_loop = lo->has_frames && !n->control.n && n->n_in;
  if (!n->control.n && !in_loop) return NULL;
  TRY(lower_add(lo, n, "input_control_node", "NoOp", NULL, 0, NULL, 0, start));
  graph_add_controls(*start, n->control.at, n->control.n);
  /* Constants of the body must live in the caller's frame, which only its inputs know. */
  if (in_loop) graph_add_control(*start, n->in[0].node);
  return NULL;
}

/* ---- SymbolicGradient ---- */

/* f's body with the gradient added: (x..., dy...) -> dx... */
static shoal_status make_gradient_body(struct function_body *b, const struct shoal_node *n) {
  struct shoal_graph *g = b->graph;
  const struct op *arg_op = op_find("_Arg"), *ret_op = op_find("_Retval");
  int nx = b->n_args, ny = b->n_rets;
  if (n->n_in != nx + ny || n->n_out != nx)
    return INVALID(
        "SymbolicGradient {{node %s}} of a function of %d arguments and %d results has %d inputs and %d "
        "outputs",
        n->name, nx, ny, n->n_in, n->n_out);
  shoal_out *ys = mem_zalloc((size_t)ny, sizeof *ys), *xs = mem_zalloc((size_t)nx, sizeof *xs);
  struct grad *dys = mem_zalloc((size_t)ny, sizeof *dys), *dxs = mem_zalloc((size_t)nx, sizeof *dxs);
  b->args = mem_realloc(b->args, (size_t)(nx + ny), sizeof *b->args);
  shoal_status s = NULL;
  for (int i = 0; i < ny && !s; i++) {
    struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
    attrs[0] = (struct named_attr){mem_strdup("T"), attr_type(b->rets[i]->in_types[0])};
    attrs[1] = (struct named_attr){mem_strdup("index"), attr_int(nx + i)};
    char *name = graph_unique_name(g, "dy");
    s = graph_add(g, name, arg_op, NULL, 0, attrs, 2, &b->args[nx + i]);
    free(name);
    if (s) break;
    ys[i] = b->rets[i]->in[0];
    dys[i] = grad_dense(node_out(b->args[nx + i], 0));
    graph_remove(g, b->rets[i]);
  }
  b->n_rets = 0;
  for (int i = 0; i < nx; i++) xs[i] = node_out(b->args[i], 0);
  if (!s) {
    b->n_args = nx + ny;
    s = graph_gradients(g, ys, ny, dys, xs, nx, NULL, 0, false, dxs);
  }
  b->rets = mem_realloc(b->rets, (size_t)nx + 1, sizeof *b->rets);
  for (int i = 0; i < nx && !s; i++) {
    shoal_out dx = grad_none(dxs[i]) ? build_op1(g, "ZerosLike", xs[i]) : grad_densify(g, dxs[i]);
    if (graph_error(g)) s = status_copy(graph_error(g));
    if (s) break;
    struct named_attr *attrs = mem_zalloc(2, sizeof *attrs);
    attrs[0] = (struct named_attr){mem_strdup("T"), attr_type(out_type(dx))};
    attrs[1] = (struct named_attr){mem_strdup("index"), attr_int(i)};
    char *name = graph_unique_name(g, "dx_RetVal");
    s = graph_add(g, name, ret_op, &dx, 1, attrs, 2, &b->rets[i]);
    free(name);
    if (!s) b->n_rets++;
  }
  free(ys);
  free(xs);
  free(dys);
  free(dxs);
  return s;
}

static shoal_status lower_gradient(struct lowering *lo, struct shoal_node *n, const shoal_out *inputs,
                                   struct shoal_node *start, shoal_out **outs, struct shoal_node **done) {
  const struct func_attr *f;
  TRY(node_get_func(n, "f", &f));
  const char *own = strmap_get(&lo->g->gradient_functions, f->name);
  if (own) {
    struct func_attr named = {.name = (char *)own, .attrs = f->attrs, .n_attrs = f->n_attrs};
    return lower_inline(lo, n, NULL, &named, inputs, n->n_in, n->n_out, start, NULL, outs, done);
  }
  struct function_def *def = graph_function(lo->g, f->name);
  if (!def) return NOT_FOUND("Function '%s' is not found in the library; called by {{node %s}}", f->name, n->name);
  int chain = (size_t)n->id < lo->chains.n ? lo->chains.at[n->id] : -1;
  if (chain_length(lo, chain) >= MAX_CHAIN)
    return INVALID("The gradient of function '%s' never ends; {{node %s}}", f->name, n->name);
  vec_push(&lo->links, (struct link){def->name, chain});
  lo->chain = (int)lo->links.n - 1;
  struct function_body body;
  shoal_status s = function_instantiate(lo->g, def, f->attrs, f->n_attrs, &body);
  if (!s) {
    function_body_take_library(&body, lo->g);
    body.graph->effort = lo->g->effort;
    s = make_gradient_body(&body, n);
    body.graph->effort = NULL;
    if (!s) s = check_call(n, NULL, &body, inputs, n->n_in, n->n_out);
    if (!s) {
      *outs = mem_zalloc((size_t)body.n_rets, sizeof **outs);
      s = splice(lo, n, n->name, &body, inputs, start, NULL, true, *outs, done);
      if (s) free(*outs);
    }
    function_body_release(&body);
  }
  lo->chain = chain;
  return s;
}

/* RemoteCall names the device of its body by its first input. */
static shoal_status place_remote(struct shoal_node *n) {
  const struct tensor *t = NULL;
  TRY(node_get_tensor(constant_target(n), "value", &t));
  if (t->dtype != SHOAL_STRING || t->n != 1)
    return INVALID("RemoteCall {{node %s}}: `target` must be a scalar", n->name);
  const struct str *device = t->data;
  char *text = mem_strndup(str_data(device), device->size);
  graph_set_device(n, text);
  free(text);
  return NULL;
}

static shoal_status lower_call(struct lowering *lo, struct shoal_node *n) {
  struct shoal_node *start, *done;
  shoal_out *outs;
  if (op_is(n->op, "RemoteCall")) TRY(place_remote(n));
  TRY(call_start(lo, n, &start));
  /* With something to wait for, arguments pass through identities that wait: nothing in the body starts early. */
  shoal_out *inputs = mem_zalloc((size_t)n->n_in, sizeof *inputs);
  shoal_status s = NULL;
  int skip = op_is(n->op, "RemoteCall") ? 1 : 0; /* its first input is a device name */
  for (int i = skip; i < n->n_in && !s; i++) {
    inputs[i] = n->in[i];
    if (!n->control.n) continue;
    struct shoal_node *id;
    s = lower_add(lo, n, "input", "Identity", &n->in[i], 1, NULL, 0, &id);
    if (s) break;
    graph_add_control(id, start);
    inputs[i] = node_out(id, 0);
  }
  if (!s && op_is(n->op, "SymbolicGradient")) {
    s = lower_gradient(lo, n, inputs, start, &outs, &done);
  } else if (!s && graph_function(lo->g, n->op->name)) {
    struct func_attr f = {.name = (char *)n->op->name, .attrs = n->attrs, .n_attrs = n->n_attrs};
    s = lower_inline(lo, n, NULL, &f, inputs, n->n_in, n->n_out, start, NULL, &outs, &done);
  } else if (!s) {
    const struct func_attr *f;
    s = node_get_func(n, "f", &f);
    if (!s) s = lower_inline(lo, n, NULL, f, inputs + skip, n->n_in - skip, n->n_out, start, NULL, &outs, &done);
  }
  free(inputs);
  return s ? s : lower_replace(lo, n, outs, done);
}

/* ---- the pass ---- */

static const struct {
  const char *op;
  shoal_status (*lower)(struct lowering *lo, struct shoal_node *n);
} control_ops[] = {{"If", lower_if},       {"StatelessIf", lower_if},
                   {"Case", lower_case},   {"StatelessCase", lower_case},
                   {"While", lower_while}, {"StatelessWhile", lower_while}};

bool lower_is_control(const char *op) {
  for (size_t i = 0; i < COUNT_OF(control_ops); i++)
    if (!strcmp(op, control_ops[i].op)) return true;
  return false;
}

static shoal_status lower_node(struct lowering *lo, struct shoal_node *n) {
  if (lo->portable && call_own_gradient(lo->g, n)) return NULL;
  if (is_call(lo, n)) return lower_call(lo, n);
  for (size_t i = 0; i < COUNT_OF(control_ops); i++)
    if (op_is(n->op, control_ops[i].op)) return control_ops[i].lower(lo, n);
  return NULL;
}

static bool wants_lowering(const struct shoal_graph *g, const struct shoal_node *n) {
  struct lowering lo = {.g = (struct shoal_graph *)g};
  return is_call(&lo, n) || lower_is_control(n->op->name);
}

bool graph_needs_lowering(const struct shoal_graph *g) {
  for (size_t i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i] && wants_lowering(g, g->nodes.at[i])) return true;
  return false;
}

static const struct lowered *note_of(const struct lowering *lo, const struct shoal_node *n) {
  return (size_t)n->id < lo->notes.n && lo->notes.at[n->id].is ? &lo->notes.at[n->id] : NULL;
}

/* Follows the notes from every input and control input. */
static void rewire(struct lowering *lo) {
  for (size_t i = 0; i < lo->g->nodes.n; i++) {
    struct shoal_node *n = lo->g->nodes.at[i];
    if (!n) continue;
    const struct lowered *l;
    for (int k = 0; k < n->n_in; k++)
      while ((l = note_of(lo, n->in[k].node))) n->in[k] = l->outs[n->in[k].index];
    for (size_t k = 0; k < n->control.n; k++)
      while ((l = note_of(lo, n->control.at[k])) && l->done) n->control.at[k] = l->done;
  }
}

/* Takes out what a node that could not be lowered had already been turned into, and notes why. */
static void give_up(struct lowering *lo, struct shoal_node *n, size_t mark, shoal_status why) {
  struct shoal_graph *g = lo->g;
  while (g->nodes.n > mark) {
    graph_remove(g, vec_last(&g->nodes));
    g->nodes.n--;
  }
  lo->chains.n = MIN(lo->chains.n, mark);
  const char *text = shoal_status_message(why);
  node_set_attr(n, LOWER_ERROR, attr_string(text, strlen(text)));
}

/* Not a mistake of one node's, but the end of all lowering. */
static bool ends_all(shoal_status s) {
  int code = shoal_status_code(s);
  return code == SHOAL_RESOURCE_EXHAUSTED || code == SHOAL_CANCELLED;
}

static shoal_status lower_all(struct lowering *lo) {
  struct shoal_graph *g = lo->g;
  shoal_status first = NULL;
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *n = g->nodes.at[i];
    if (!n) continue;
    lo->chain = i < lo->chains.n ? lo->chains.at[i] : -1;
    size_t mark = g->nodes.n;
    shoal_status s = lower_node(lo, n);
    if (!s) continue;
    give_up(lo, n, mark, s);
    if (ends_all(s)) {
      shoal_status_free(first);
      return s;
    }
    if (first) shoal_status_free(s);
    else first = s;
  }
  return first;
}

static shoal_status lower(struct shoal_graph *g, bool portable) {
  if (!graph_needs_lowering(g)) return NULL;
  TRY(lower_check_size(g));
  struct effort own = {.left = LOWER_MAX_WORK, .what = "Inlining functions"};
  struct effort *outer = g->effort, *effort = outer ? outer : &own;
  g->effort = effort;
  struct lowering lo = {.g = g, .portable = portable, .chain = -1, .most = g->nodes.n + LOWER_MAX_NODES};
  for (size_t i = 0; i < g->nodes.n && !lo.has_frames; i++)
    lo.has_frames = g->nodes.at[i] && (op_is(g->nodes.at[i]->op, "Enter") || op_is(g->nodes.at[i]->op, "RefEnter"));
  shoal_status first = lower_all(&lo);
  rewire(&lo);
  for (size_t i = 0; i < lo.notes.n; i++) free(lo.notes.at[i].outs);
  vec_release(&lo.notes);
  vec_release(&lo.links);
  vec_release(&lo.chains);
  void *body;
  for (size_t i = 0; strmap_next(&lo.bodies, &i, NULL, &body);) {
    function_body_release(body);
    free(body);
  }
  strmap_release(&lo.bodies);
  if (lo.last.graph) function_body_release(&lo.last);
  g->effort = outer;
  return first;
}

shoal_status graph_lower(struct shoal_graph *g) { return lower(g, false); }

static shoal_status leave_to_run(shoal_status s) {
  if (!s || ends_all(s)) return s;
  shoal_status_free(s);
  return NULL;
}

shoal_status graph_try_lower(struct shoal_graph *g) { return leave_to_run(lower(g, false)); }

shoal_status graph_try_lower_portable(struct shoal_graph *g) { return leave_to_run(lower(g, true)); }
