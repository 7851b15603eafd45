/* Functions from C: their bodies, what they capture, their end. See shoal/function.h.
 *
 * A body is a graph of its own: gradients, loops and names in it are its own affair, and the scopes that stand open
 * outside do not reach into it. An input from the graph around it is captured where a node is built (builder.c asks
 * function_see), through as many bodies as lie between. At its end a body is written as a FunctionDef and read again by
 * what reads those of TensorFlow: so there is one kind of function in a graph, whoever made it.
 *
 * Rejected: to build bodies among the nodes of the graph around, as loops are (control.c). Whatever looks at a whole
 * graph, as gradients do, would mix the two. */
#include "graph/function_define.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "graph/builder.h"
#include "graph/given.h"
#include "tensor/tensor_proto.h"

struct shoal_graph *function_root(struct shoal_graph *g) {
  while (g->building) g = g->building->outer;
  return g;
}

/* Is one of that name begun in g, or in a body inside? */
static bool begun(const struct shoal_graph *g, const char *name) {
  for (const struct shoal_function *f = g->defined; f; f = f->next)
    if (!strcmp(f->name, name) || begun(f->body, name)) return true;
  return false;
}

static bool name_taken(struct shoal_graph *g, const char *name) {
  const struct shoal_graph *root = function_root(g);
  return graph_function(root, name) || begun(root, name);
}

char *function_unique_name(struct shoal_graph *g, const char *base) {
  char *name = mem_strdup(base);
  for (int k = 1; name_taken(g, name) || op_find(name); k++) {
    free(name);
    name = mem_printf("%s_%d", base, k);
  }
  return name;
}

/* As names of arguments are in a signature: [a-z][a-z0-9_]*, of the last part of a scoped name. */
static char *argument_name(const char *name) {
  const char *last = strrchr(name, '/');
  if (last) name = last + 1;
  char *out = isalpha((unsigned char)*name) ? mem_strdup(name) : mem_printf("a%s", name);
  for (char *c = out; *c; c++) *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
  return out;
}

/* ---- begin ---- */

static shoal_status check_name(struct shoal_graph *g, const char *name) {
  if (!node_name_valid(name, true)) return INVALID("'%s' is not a valid name of a function", name);
  if (op_find(name)) return INVALID("a function cannot be named '%s', which is an op", name);
  return name_taken(g, name) ? INVALID("there is a function '%s' already", name) : NULL;
}

shoal_graph *shoal_function_begin(shoal_graph *g, const char *name) {
  shoal_status s = name ? check_name(g, name) : NULL;
  if (s) graph_fail(g, s);
  struct shoal_function *f = mem_zalloc(1, sizeof *f);
  f->outer = g;
  f->name = name ? mem_strdup(name) : function_unique_name(g, "function");
  f->body = graph_new();
  f->body->producer = g->producer;
  f->body->building = f;
  f->next = g->defined;
  g->defined = f;
  struct function_body library = {.graph = f->body};
  function_body_take_library(&library, g);
  if (graph_error(g)) graph_fail(f->body, status_copy(graph_error(g)));
  return f->body;
}

/* The function that g is the body of, while it is being built; else a mistake. */
static struct shoal_function *building(struct shoal_graph *g, const char *caller) {
  if (!g->building)
    graph_fail(g, INVALID("%s: this graph is no function's body: shoal_function_begin makes one", caller));
  else if (g->building->ended)
    graph_fail(function_root(g), INVALID("%s: function '%s' has ended", caller, g->building->name));
  return graph_error(g) || g->building->ended ? NULL : g->building;
}

/* ---- inputs ---- */

static struct shoal_node *add_input(struct shoal_graph *body, const char *name, shoal_dtype dtype,
                                    const struct shape *shape) {
  char *base = argument_name(name);
  graph_push_scope_root(body);
  graph_push_control(body, NULL, -1);
  graph_push_colocation(body, NULL);
  struct build b = build_begin(body, "Placeholder", base);
  build_attr_type(&b, "dtype", dtype);
  build_attr_shape(&b, "shape", shape);
  build_device(&b, "");
  struct shoal_node *n = build_end(&b);
  graph_pop_colocation(body);
  graph_pop_control(body);
  graph_pop_scope(body);
  free(base);
  return n;
}

static shoal_status take_shape(shoal_dims dims, struct shape *out) {
  if (dims.rank > SHOAL_MAX_RANK) return INVALID("a shape has at most %d dimensions", SHOAL_MAX_RANK);
  if (dims.rank > 0 && !dims.at) return INVALID("the dimensions of a shape are NULL");
  if (dims.rank >= 0) out->rank = dims.rank;
  for (int i = 0; i < dims.rank; i++) {
    out->dims[i] = dims.at[i];
    if (dims.at[i] < -1) return INVALID("a shape cannot have a dimension %lld", (long long)dims.at[i]);
  }
  return NULL;
}

shoal_out shoal_function_input(shoal_graph *g, shoal_dtype dtype, shoal_dims dims, const char *name) {
  struct shoal_function *f = building(g, __func__);
  if (!f) return (shoal_out){0};
  struct shape shape = shape_unknown();
  GRAPH_TRY(g, take_shape(dims, &shape), (shoal_out){0});
  struct shoal_node *n = add_input(g, name ? name : "input", dtype, &shape);
  if (n) vec_push(&f->inputs, n);
  return node_out(n, 0);
}

static shoal_out capture(struct shoal_function *f, shoal_out from) {
  for (size_t i = 0; i < f->captures.n; i++)
    if (f->captures.at[i].from.node == from.node && f->captures.at[i].from.index == from.index)
      return node_out(f->captures.at[i].as, 0);
  if (from.index < 0 || from.index >= from.node->n_out) return from;
  struct shape shape = out_shape(from);
  struct shoal_node *n = add_input(f->body, from.node->name, out_type(from), &shape);
  if (!n) return (shoal_out){0};
  vec_push(&f->captures, (struct function_capture){from, n});
  return node_out(n, 0);
}

shoal_out function_see(struct shoal_graph *g, shoal_out o) {
  if (!g->building || g->building->ended || !o.node || graph_has(g, o.node)) return o;
  shoal_out outside = function_see(g->building->outer, o);
  return outside.node && graph_has(g->building->outer, outside.node) ? capture(g->building, outside) : o;
}

shoal_out shoal_function_capture(shoal_graph *g, shoal_out outside) {
  if (!building(g, __func__)) return (shoal_out){0};
  shoal_out seen = function_see(g, outside);
  if (!seen.node) graph_fail(g, INVALID("%s: outside is not a tensor of any op", __func__));
  else if (!graph_has(g, seen.node)) graph_fail(g, INVALID("%s: %s is of another graph", __func__, seen.node->name));
  return graph_error(g) ? (shoal_out){0} : seen;
}

/* ---- outputs and attributes ---- */

void shoal_function_output(shoal_graph *g, shoal_out out, const char *name) {
  struct shoal_function *f = building(g, __func__);
  if (!f) return;
  shoal_out seen = function_see(g, out);
  if (!seen.node)
    graph_fail(g, INVALID("output %zu of function '%s' is not a tensor of any op", f->outputs.n, f->name));
  else if (!graph_has(g, seen.node))
    graph_fail(g, INVALID("output %zu of function '%s' is %s:%d of another graph", f->outputs.n, f->name,
                          seen.node->name, seen.index));
  else if (seen.index < 0 || seen.index >= seen.node->n_out)
    graph_fail(g, INVALID("output %zu of function '%s' is %s:%d, which is not there", f->outputs.n, f->name,
                          seen.node->name, seen.index));
  if (graph_error(g)) return;
  vec_push(&f->outputs, (struct function_output){seen, argument_name(name ? name : seen.node->name)});
}

static void set_attr(struct shoal_graph *g, const char *caller, const char *name, struct attr value) {
  struct shoal_function *f = building(g, caller);
  if (f && !name) graph_fail(g, INVALID("%s: attr is NULL", caller));
  if (graph_error(g)) attr_release(&value);
  else vec_push(&f->attrs, (struct named_attr){mem_strdup(name), value});
}

void shoal_function_set_bool(shoal_graph *g, const char *attr, bool v) { set_attr(g, __func__, attr, attr_bool(v)); }
void shoal_function_set_int(shoal_graph *g, const char *attr, int64_t v) { set_attr(g, __func__, attr, attr_int(v)); }
void shoal_function_set_string(shoal_graph *g, const char *attr, const char *v) {
  GRAPH_GIVEN(g, v);
  set_attr(g, __func__, attr, attr_string(v, strlen(v)));
}

/* ---- end ---- */

static bool is_input(const struct shoal_function *f, const struct shoal_node *n) {
  for (int i = 0; i < function_n_in(f); i++)
    if (function_in(f, i) == n) return true;
  return false;
}

static bool calls(const struct attr *a, const char *name) {
  if (a->kind == ATTR_FUNC) return !strcmp(a->func->name, name);
  for (size_t i = 0; a->kind == ATTR_LIST && a->of == ATTR_FUNC && i < a->list.n; i++)
    if (calls(&a->list.at[i], name)) return true;
  return false;
}

static shoal_status check_node(const struct shoal_function *f, const struct shoal_node *n) {
  static const char *const variables[] = {"VarHandleOp", "VariableV2", "Variable"};
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    if (op_is(n->op, variables[i]))
      return INVALID("variable '%s' is made inside function '%s': make it before", n->name, f->name);
  if (op_is(n->op, "Placeholder") && !is_input(f, n))
    return INVALID("placeholder '%s' is made inside function '%s', where nothing can be fed: use shoal_function_input",
                   n->name, f->name);
  for (int i = 0; i < n->n_attrs; i++)
    if (calls(&n->attrs[i].value, f->name))
      return INVALID("function '%s' calls itself, by node '%s'", f->name, n->name);
  return NULL;
}

/* Colocation with what is no node of the FunctionDef is nobody's. */
static void drop_colocation(const struct shoal_function *f, struct shoal_node *n) {
  const struct attr *class = node_attr(n, "_class");
  if (!class || class->kind != ATTR_LIST || class->of != ATTR_STRING) return;
  struct attr kept = attr_list(ATTR_STRING);
  for (size_t i = 0; i < class->list.n; i++) {
    const char *text = class->list.at[i].s.data;
    const struct shoal_node *with = str_starts(text, "loc:@") ? graph_find(f->body, text + 5) : NULL;
    if (with && !is_input(f, with)) attr_list_add(&kept, attr_string(text, strlen(text)));
  }
  node_set_attr(n, "_class", kept);
}

static shoal_status check_body(struct shoal_function *f) {
  for (size_t i = 0; i < f->body->nodes.n; i++) {
    struct shoal_node *n = f->body->nodes.at[i];
    if (!n) continue;
    TRY(check_node(f, n));
    drop_colocation(f, n);
    if ((n->op->flags & OP_STATEFUL) && !is_input(f, n)) vec_push(&f->effects, n);
  }
  f->stateful = f->effects.n > 0;
  return NULL;
}

static bool output_name_taken(const struct shoal_function *f, size_t before, const char *name) {
  for (size_t i = 0; i < before; i++)
    if (!strcmp(f->outputs.at[i].name, name)) return true;
  for (int i = 0; i < function_n_in(f); i++)
    if (!strcmp(function_in(f, i)->name, name)) return true;
  return false;
}

static void settle_outputs(struct shoal_function *f) {
  for (size_t i = 0; i < f->outputs.n; i++) {
    struct function_output *o = &f->outputs.at[i];
    char *base = mem_strdup(o->name);
    for (int k = 1; output_name_taken(f, i, o->name); k++) {
      free(o->name);
      o->name = mem_printf("%s_%d", base, k);
    }
    free(base);
    vec_push(&f->types, out_type(o->from));
    struct shape shape = out_shape(o->from);
    int64_t *dims = mem_zalloc(SHOAL_MAX_RANK, sizeof *dims);
    for (int d = 0; d < shape.rank; d++) dims[d] = shape.dims[d];
    vec_push(&f->shapes, (shoal_dims){shape.rank, dims});
  }
  for (size_t i = 0; i < f->captures.n; i++) vec_push(&f->captures_from, f->captures.at[i].from);
}

/* The library of every graph around gets what this body's has, and the function. */
static shoal_status publish(struct shoal_function *f, struct function_def *def) {
  struct function_body library = {.graph = f->outer};
  shoal_status s = NULL;
  for (struct shoal_graph *g = f->outer; g && !s; g = g->building ? g->building->outer : NULL) {
    library.graph = g;
    function_body_take_library(&library, f->body);
    s = graph_add_function(g, function_def_ref(def));
  }
  return s;
}

static shoal_status finish(struct shoal_function *f) {
  if (graph_error(f->body)) return status_copy(graph_error(f->body));
  if (graph_function(function_root(f->outer), f->name)) return INVALID("there is a function '%s' already", f->name);
  TRY(check_body(f));
  settle_outputs(f);
  struct text bytes = {0};
  shoal_status s = function_encode(f, &bytes);
  struct function_def *def = NULL;
  size_t budget = SIZE_MAX;
  if (!s) s = function_def_decode(bytes.at, bytes.n, &budget, &def);
  text_release(&bytes);
  if (!s) s = publish(f, def);
  function_def_unref(def);
  return s;
}

shoal_function *shoal_function_end(shoal_graph *g) {
  struct shoal_function *f = g->building;
  if (!f) {
    graph_fail(g, INVALID("%s: this graph is no function's body", __func__));
    return NULL;
  }
  shoal_status s = f->ended ? INVALID("function '%s' has ended already", f->name) : finish(f);
  f->ended = true;
  if (s) graph_fail(f->outer, s);
  return s ? NULL : f;
}

/* ---- what it is ---- */

const char *shoal_function_name(const shoal_function *f) { return f ? f->name : NULL; }

int shoal_function_outputs(const shoal_function *f, const shoal_dtype **types, const shoal_dims **shapes) {
  if (types) *types = f ? f->types.at : NULL;
  if (shapes) *shapes = f ? f->shapes.at : NULL;
  return f ? (int)f->outputs.n : 0;
}

int shoal_function_captures(const shoal_function *f, const shoal_out **captures) {
  if (captures) *captures = f ? f->captures_from.at : NULL;
  return f ? (int)f->captures_from.n : 0;
}

void function_list_free(struct shoal_function *f) {
  while (f) {
    struct shoal_function *next = f->next;
    for (size_t i = 0; i < f->outputs.n; i++) free(f->outputs.at[i].name);
    for (size_t i = 0; i < f->shapes.n; i++) free((void *)f->shapes.at[i].at);
    for (size_t i = 0; i < f->attrs.n; i++) {
      free(f->attrs.at[i].name);
      attr_release(&f->attrs.at[i].value);
    }
    graph_free(f->body);
    vec_release(&f->inputs);
    vec_release(&f->captures);
    vec_release(&f->outputs);
    vec_release(&f->attrs);
    vec_release(&f->captures_from);
    vec_release(&f->types);
    vec_release(&f->shapes);
    vec_release(&f->effects);
    free(f->name);
    free(f);
    f = next;
  }
}
