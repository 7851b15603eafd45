/* A SavedModel frozen: the part of its graph that one signature needs, with the values of its variables as constants
 * and without calls of functions; see shoal/saved_model.h.
 *
 * Calls are inlined first, so that all reads of a variable stand in one graph. A variable's handle may have come there
 * through Identities, branches and loops: wherever it goes, the value goes in its place, and what these pass on is of
 * the value's type. Reads then pass on what they get.
 *
 * Functions that an attribute names, as a dataset's do, cannot be inlined: they come along, with those that they name
 * in turn. What they take they are given, and is looked at there; what they have of their own must be no variable. */
#include <string.h>

#include "base/given.h"
#include "graph/builder.h"
#include "graph/frames.h"
#include "graph/function.h"
#include "graph/lower.h"
#include "graph/prune.h"
#include "saved_model/model.h"

typedef VEC(struct shoal_node *) node_list;

struct freezing {
  const shoal_saved_model *m;
  const shoal_signature *signature;
  struct shoal_graph *from; /* the model's, inlined */
  bool *keep;               /* [from->nodes.n]: it is needed */
  int *fed;                 /* [from->nodes.n]: which input of the signature stands in its place; -1: none */
  uint8_t **held;           /* [from->nodes.n][n_out]: the dtype of the variable whose handle this output is; 0: none */
  node_list variables;      /* resource variables and references */
  VEC(shoal_tensor *) values; /* of each */
  struct shoal_graph *to;
  struct shoal_node **map; /* [from->nodes.n] to nodes of `to` */
};

/* ---- what is needed ---- */

static shoal_status find_tensor(const struct freezing *f, const shoal_signature_value *v, shoal_out *out) {
  char name[1024];
  int index;
  if (!v->tensor) return UNIMPLEMENTED("'%s' is made of several tensors", v->key);
  if (!tensor_name_parse(v->tensor, name, sizeof name, &index))
    return INVALID("'%s' is the tensor \"%s\", which is no name", v->key, v->tensor);
  struct shoal_node *n = graph_find(f->from, name);
  if (!n || index >= n->n_out) return INVALID("'%s' is the tensor \"%s\", which is not there", v->key, v->tensor);
  *out = (shoal_out){n, index};
  return NULL;
}

static shoal_status find_inputs(struct freezing *f) {
  shoal_out o;
  for (int i = 0; i < f->signature->n_inputs; i++) {
    TRY(find_tensor(f, f->signature->inputs[i], &o));
    if (o.node->n_out != 1)
      return UNIMPLEMENTED("input '%s' is one of several outputs of {{node %s}}", f->signature->inputs[i]->key,
                           o.node->name);
    if (!op_is(o.node->op, "PlaceholderWithDefault")) f->fed[o.node->id] = i; /* that one stays, with its default */
  }
  return NULL;
}

static void need(struct freezing *f, node_list *open, struct shoal_node *n) {
  if (f->keep[n->id]) return;
  f->keep[n->id] = true;
  vec_push(open, n);
}

static shoal_status find_needed(struct freezing *f) {
  node_list open = {0};
  shoal_status s = NULL;
  shoal_out o;
  for (int i = 0; i < f->signature->n_outputs && !s; i++) {
    s = find_tensor(f, f->signature->outputs[i], &o);
    if (!s) need(f, &open, o.node);
  }
  while (open.n && !s) {
    struct shoal_node *n = open.at[--open.n];
    if (f->fed[n->id] >= 0) continue;
    const struct attr *why = node_attr(n, LOWER_ERROR);
    if (why) s = INVALID("{{node %s}} cannot be inlined: %s", n->name, why->s.data);
    for (int i = 0; i < n->n_in; i++) need(f, &open, n->in[i].node);
    for (size_t i = 0; i < n->control.n; i++) need(f, &open, n->control.at[i]);
  }
  vec_release(&open);
  return s;
}

/* ---- variables ---- */

static bool is_reference(const struct shoal_node *n) { return op_is(n->op, "VariableV2") || op_is(n->op, "Variable"); }

/* Hands on what it is given, whatever that is. */
static bool hands_on(const struct shoal_node *n) {
  return op_is(n->op, "Identity") || op_is(n->op, "IdentityN") || op_is(n->op, "RefIdentity") || node_is_enter(n) ||
         node_is_exit(n) || node_is_merge(n) || node_is_switch(n) || node_is_next_iteration(n);
}

/* The dtype of the variable whose handle output i of n is; 0: it is none, or not known yet. */
static uint8_t held_by(const struct freezing *f, const struct shoal_node *n, int i) {
  shoal_dtype type = SHOAL_DT_INVALID;
  if (op_is(n->op, "VarHandleOp")) {
    shoal_status_free(node_get_type(n, "dtype", &type));
    return (uint8_t)type;
  }
  if (!hands_on(n)) return 0;
  if (op_is(n->op, "IdentityN")) return f->held[n->in[i].node->id][n->in[i].index];
  if (node_is_merge(n) && i) return 0; /* which of its inputs it was */
  for (int k = 0; k < (node_is_switch(n) ? 1 : n->n_in) && !type; k++)
    type = f->held[n->in[k].node->id][n->in[k].index];
  return (uint8_t)type;
}

/* Handles go round in loops: until nothing new is found. */
static void follow_handles(struct freezing *f) {
  for (bool more = true; more;) {
    more = false;
    for (size_t id = 0; id < f->from->nodes.n; id++) {
      const struct shoal_node *n = f->from->nodes.at[id];
      for (int i = 0; n && f->keep[id] && f->fed[id] < 0 && i < n->n_out; i++) {
        if (f->held[id][i] || dtype_base(n->out_types[i]) != SHOAL_RESOURCE) continue;
        f->held[id][i] = held_by(f, n, i);
        more |= f->held[id][i] != 0;
      }
    }
  }
}

/* A read of a resource variable, under a name that no graph has, in a graph with which the session is extended. */
static struct shoal_node *add_read(struct shoal_graph *g, const struct shoal_node *variable, shoal_dtype type) {
  const char *shared = "", *container = "";
  struct shape shape;
  shoal_status_free(node_get_string(variable, "shared_name", &shared));
  shoal_status_free(node_get_string(variable, "container", &container));
  shoal_status_free(node_get_shape(variable, "shape", &shape));
  char *name = mem_printf("shoal_freeze/%s", variable->name);
  struct build handle = build_begin(g, "VarHandleOp", name);
  build_attr_string(&handle, "shared_name", *shared ? shared : variable->name);
  build_attr_string(&handle, "container", container);
  build_attr_type(&handle, "dtype", type);
  build_attr_shape(&handle, "shape", &shape);
  shoal_out h = build_end_out(&handle);
  struct build read = build_begin(g, "ReadVariableOp", name);
  build_in(&read, h);
  build_attr_type(&read, "dtype", type);
  free(name);
  return build_end(&read);
}

static shoal_status fetch_values(struct freezing *f, struct shoal_graph *reads) {
  VEC(char *) names = {0};
  for (size_t i = 0; i < f->variables.n; i++) {
    struct shoal_node *v = f->variables.at[i];
    const struct shoal_node *read = is_reference(v) ? v : add_read(reads, v, (shoal_dtype)f->held[v->id][0]);
    vec_push(&names, mem_printf("%s:0", read ? read->name : ""));
    vec_push(&f->values, NULL);
  }
  shoal_status s = graph_error(reads) ? status_copy(graph_error(reads)) : NULL;
  if (!s && reads->n_nodes) s = shoal_session_extend(f->m->session, reads);
  if (!s && names.n)
    s = shoal_session_run(f->m->session, NULL, NULL, NULL, 0, (const char *const *)names.at, f->values.at, (int)names.n,
                          NULL, 0, NULL);
  for (size_t i = 0; i < names.n; i++) free(names.at[i]);
  vec_release(&names);
  return s;
}

static shoal_status read_variables(struct freezing *f) {
  for (size_t id = 0; id < f->from->nodes.n; id++) {
    struct shoal_node *n = f->from->nodes.at[id];
    if (n && f->keep[id] && f->fed[id] < 0 && (op_is(n->op, "VarHandleOp") || is_reference(n)))
      vec_push(&f->variables, n);
  }
  struct shoal_graph *reads = graph_new();
  shoal_status s = fetch_values(f, reads);
  graph_free(reads);
  return status_prefix(s, "its variables cannot be read: ");
}

/* ---- functions that come along ---- */

typedef VEC(struct function_def *) function_list;

/* Nothing, where the name is an op's, or that of one there already. */
static shoal_status take_function(struct freezing *f, const char *name, function_list *open) {
  struct function_def *def = graph_function(f->from, name);
  if (!def || graph_function(f->to, name)) return NULL;
  vec_push(open, def);
  return graph_add_function(f->to, function_def_ref(def));
}

/* (Attributes of functions in attributes are at most ATTR_MAX_DEPTH deep.) */
static shoal_status take_named(struct freezing *f, const struct named_attr *attrs, size_t n, function_list *open) {
  for (size_t i = 0; i < n; i++) {
    const struct attr *a = &attrs[i].value;
    bool is_list = a->kind == ATTR_LIST;
    if (!attr_names_function(a)) continue;
    for (size_t k = 0; k < (is_list ? a->list.n : 1); k++) {
      const struct func_attr *named = (is_list ? &a->list.at[k] : a)->func;
      TRY(take_function(f, named->name, open));
      TRY(take_named(f, named->attrs, (size_t)named->n_attrs, open));
    }
  }
  return NULL;
}

/* Has it what outlives a call, and is told by its name alone? Anonymous ones and dummies hold what a call puts in. */
static bool is_own_resource(const struct op *op) {
  if (op->n_in || str_starts(op->name, "Anonymous") || str_starts(op->name, "Dummy")) return false;
  for (int i = 0; i < op->n_out; i++)
    if (op->out[i].is_ref || op->out[i].type == SHOAL_RESOURCE) return true;
  return false;
}

static shoal_status take_body(struct freezing *f, const struct shoal_node *user, const struct function_def *def,
                              function_list *open) {
  for (int i = 0; i < def->n_nodes; i++) {
    const struct node_def *d = &def->nodes[i];
    char *name = mem_strndup(d->op.at, d->op.n);
    const struct op *op = op_find(name);
    shoal_status s = op ? NULL : take_function(f, name, open);
    free(name);
    TRY(s);
    if (op && is_own_resource(op))
      return UNIMPLEMENTED(
          "{{node %s}} (%s) calls '%s', whose '%.*s' (%s) is a variable, a table or another resource "
          "that no constant can stand for",
          user->name, user->op->name, def->name, (int)d->name.n, d->name.at, op->name);
    TRY(take_named(f, d->attrs.at, d->attrs.n, open));
  }
  return NULL;
}

/* Those that n names, and all that these do. */
static shoal_status take_functions(struct freezing *f, const struct shoal_node *n) {
  function_list open = {0};
  shoal_status s = take_named(f, n->attrs, (size_t)n->n_attrs, &open);
  while (!s && open.n) s = take_body(f, n, vec_pop(&open), &open);
  vec_release(&open);
  return s;
}

/* ---- the graph without them ---- */

static const struct tensor *value_of(const struct freezing *f, const struct shoal_node *n) {
  for (size_t i = 0; i < f->variables.n; i++)
    if (f->variables.at[i] == n) return &f->values.at[i]->t;
  return NULL;
}

/* Its copy, or nothing where an edge goes back in a loop. */
static shoal_out copied(const struct freezing *f, shoal_out o) { return (shoal_out){f->map[o.node->id], o.index}; }

static struct named_attr *copy_attrs(const struct shoal_node *n, int *count) {
  struct named_attr *attrs = mem_zalloc((size_t)n->n_attrs + 1, sizeof *attrs);
  *count = 0;
  for (int i = 0; i < n->n_attrs; i++)
    if (strcmp(n->attrs[i].name, "_class") != 0) /* beside a variable, most often */
      attrs[(*count)++] = (struct named_attr){mem_strdup(n->attrs[i].name), attr_copy(&n->attrs[i].value)};
  return attrs;
}

static shoal_status add_like(struct freezing *f, struct shoal_node *n, const struct op *op, struct named_attr *attrs,
                             int n_attrs) {
  shoal_out *in = mem_zalloc((size_t)n->n_in + 1, sizeof *in);
  for (int i = 0; i < n->n_in; i++) in[i] = copied(f, n->in[i]);
  shoal_status s = graph_add(f->to, n->name, op, in, n->n_in, attrs, n_attrs, &f->map[n->id]);
  free(in);
  return s;
}

static shoal_status add_built(struct freezing *f, struct shoal_node *n, struct build *b) {
  f->map[n->id] = build_end(b);
  return f->map[n->id] ? NULL : status_copy(graph_error(f->to));
}

static shoal_status add_input(struct freezing *f, struct shoal_node *n) {
  const shoal_signature_value *v = f->signature->inputs[f->fed[n->id]];
  struct shape shape = shape_unknown_of_rank(v->rank);
  for (int i = 0; i < v->rank; i++) shape.dims[i] = v->dims[i];
  struct build b = build_begin(f->to, "Placeholder", n->name);
  build_attr_type(&b, "dtype", v->dtype);
  build_attr_shape(&b, "shape", &shape);
  return add_built(f, n, &b);
}

static shoal_status add_value(struct freezing *f, struct shoal_node *n, const struct tensor *value) {
  struct build b = build_begin(f->to, "Const", n->name);
  build_attr(&b, "value", attr_tensor(value));
  build_attr_type(&b, "dtype", (shoal_dtype)value->dtype);
  return add_built(f, n, &b);
}

static void pass_type(const struct freezing *f, const struct shoal_node *n, struct named_attr *a) {
  if (op_is(n->op, "IdentityN")) {
    for (size_t i = 0; i < a->value.list.n; i++) {
      uint8_t held = f->held[n->id][i];
      if (held) a->value.list.at[i].type = held;
    }
  } else if (f->held[n->id][0]) {
    a->value.type = f->held[n->id][0];
  }
}

/* Of a handle it hands on the value; of a reference, too: Switch in RefSwitch's place. */
static shoal_status add_handing_on(struct freezing *f, struct shoal_node *n) {
  int n_attrs;
  struct named_attr *attrs = copy_attrs(n, &n_attrs);
  for (int i = 0; i < n_attrs; i++)
    if (!strcmp(attrs[i].name, "T")) pass_type(f, n, &attrs[i]);
  const char *name = n->op->name;
  return add_like(f, n, str_starts(name, "Ref") ? op_find(name + 3) : n->op, attrs, n_attrs);
}

static shoal_status add_gather(struct freezing *f, struct shoal_node *n) {
  int64_t batch = 0;
  shoal_status_free(node_get_int(n, "batch_dims", &batch));
  struct build b = build_begin(f->to, "GatherV2", n->name);
  build_in(&b, copied(f, n->in[0]));
  build_in(&b, copied(f, n->in[1]));
  build_in(&b, build_const_int(f->to, SHOAL_INT32, batch));
  build_attr_int(&b, "batch_dims", batch);
  return add_built(f, n, &b);
}

/* What reads a variable, of its value. */
static shoal_status add_read_of_value(struct freezing *f, struct shoal_node *n) {
  if (op_is(n->op, "ResourceGather")) return add_gather(f, n);
  bool is_shape = op_is(n->op, "VariableShape"), is_nd = op_is(n->op, "ResourceGatherNd");
  if (!is_shape && !is_nd && !op_is(n->op, "ReadVariableOp"))
    return INVALID("{{node %s}} (%s) does more with a variable than read it", n->name, n->op->name);
  struct build b = build_begin(f->to, is_shape ? "Shape" : is_nd ? "GatherNd" : "Identity", n->name);
  for (int i = 0; i < n->n_in; i++) build_in(&b, copied(f, n->in[i]));
  if (is_shape) build_attr_type(&b, "out_type", dtype_base(n->out_types[0]));
  return add_built(f, n, &b);
}

/* An Identity of a reference reads; anything else that takes one sets it. */
static shoal_status check_inputs(const struct shoal_node *n) {
  for (int i = 0; i < n->n_in; i++) {
    if (dtype_is_ref(n->in_types[i]))
      return INVALID("{{node %s}} (%s) does more with a variable than read it", n->name, n->op->name);
    if (n->in_types[i] == SHOAL_RESOURCE)
      return UNIMPLEMENTED("{{node %s}} (%s) uses a table or another resource that no constant can stand for", n->name,
                           n->op->name);
  }
  return NULL;
}

static bool takes_handle(const struct freezing *f, const struct shoal_node *n) {
  for (int i = 0; i < n->n_in; i++)
    if (f->held[n->in[i].node->id][n->in[i].index]) return true;
  return false;
}

static shoal_status add_node(struct freezing *f, struct shoal_node *n) {
  if (f->fed[n->id] >= 0) return add_input(f, n);
  const struct tensor *value = value_of(f, n);
  if (value) return add_value(f, n, value);
  if (hands_on(n)) return add_handing_on(f, n);
  if (takes_handle(f, n)) return add_read_of_value(f, n);
  TRY(check_inputs(n));
  TRY(take_functions(f, n));
  int n_attrs;
  struct named_attr *attrs = copy_attrs(n, &n_attrs);
  return add_like(f, n, n->op, attrs, n_attrs);
}

/* Edges that go back, which nodes left open, and who waits for whom. */
static shoal_status add_edges(struct freezing *f, const struct shoal_node *n) {
  struct shoal_node *copy = f->map[n->id];
  if (f->fed[n->id] >= 0) return NULL;
  for (int i = 0; i < n->n_in && i < copy->n_in; i++)
    if (!copy->in[i].node) TRY(graph_set_input(f->to, copy, i, copied(f, n->in[i])));
  for (size_t i = 0; i < n->control.n; i++) graph_add_control(copy, f->map[n->control.at[i]->id]);
  return NULL;
}

static shoal_status add_nodes(struct freezing *f) {
  struct shoal_node **order = mem_zalloc((size_t)f->from->n_nodes + 1, sizeof *order);
  int n = f->from->n_nodes;
  shoal_status s = graph_topological_order(f->from, order);
  for (int i = 0; i < n && !s; i++)
    if (f->keep[order[i]->id]) s = add_node(f, order[i]);
  for (int i = 0; i < n && !s; i++)
    if (f->keep[order[i]->id]) s = add_edges(f, order[i]);
  free(order);
  return s;
}

/* ---- all of it ---- */

static void room_for_nodes(struct freezing *f) {
  size_t n = f->from->nodes.n;
  f->keep = mem_zalloc(n + 1, sizeof *f->keep);
  f->fed = mem_zalloc(n + 1, sizeof *f->fed);
  f->held = mem_zalloc(n + 1, sizeof *f->held);
  f->map = mem_zalloc(n + 1, sizeof(struct shoal_node *));
  for (size_t i = 0; i < n; i++) {
    f->fed[i] = -1;
    if (f->from->nodes.at[i]) f->held[i] = mem_zalloc((size_t)f->from->nodes.at[i]->n_out + 1, 1);
  }
}

static shoal_status freeze(struct freezing *f) {
  shoal_status_free(graph_lower(f->from)); /* who is needed and could not be inlined says so */
  room_for_nodes(f);
  TRY(find_inputs(f));
  TRY(find_needed(f));
  follow_handles(f);
  TRY(read_variables(f));
  return add_nodes(f);
}

static void release(struct freezing *f) {
  for (size_t i = 0; f->held && i < f->from->nodes.n; i++) free(f->held[i]);
  for (size_t i = 0; i < f->values.n; i++) shoal_tensor_unref(f->values.at[i]);
  vec_release(&f->values);
  vec_release(&f->variables);
  free(f->keep);
  free(f->fed);
  free((void *)f->held);
  free((void *)f->map);
  graph_free(f->from);
}

shoal_status shoal_saved_model_freeze(const shoal_saved_model *m, const char *signature, shoal_graph **out) {
  GIVEN(m);
  GIVEN(out);
  *out = NULL;
  struct freezing f = {.m = m};
  TRY(model_signature(m, signature, &f.signature));
  f.from = graph_copy(m->graph, NULL);
  f.to = shoal_graph_new();
  shoal_status s = freeze(&f);
  release(&f);
  if (s) {
    shoal_graph_free(f.to);
    return status_prefix(s, "signature '%s' of '%s' cannot be frozen: ", f.signature->key, m->dir);
  }
  *out = f.to;
  return NULL;
}
