/* Variables: the functions of shoal/layers.h about them, and variables.h.
 *
 * There is no list of variables beside the graph: a variable is its VarHandleOp node, marked by an attribute when it is
 * trainable, and NAME/Assign is what initialises it, as TensorFlow names it. So a graph that was exported and imported
 * again still knows its variables. The attribute's name starts with '_', which every TensorFlow lets pass.
 *
 * TensorFlow 1's programs have variables of an older kind, references (VariableV2), which are other objects on a server
 * even under the same name. shoal_use_ref_variables makes those, for programs that train together with such ones; all
 * that differs is which ops read and change them. */
#include "train/variables.h"
#include "graph/given.h"

#include <stdlib.h>
#include <string.h>

static const char trainable_attr[] = "_trainable", local_attr[] = "_local", unsaved_attr[] = "_unsaved",
                  replica_attr[] = "_replica";

/* ---- who makes them ---- */

static _Thread_local struct {
  const struct shoal_graph *g;
  struct variable_maker *maker;
} making;

struct variable_maker *variable_maker_on(const struct shoal_graph *g) {
  return making.g == g ? making.maker : NULL;
}

void variable_maker_begin(struct variable_maker *m, const char *who) {
  if (making.maker)
    graph_fail(m->g, INVALID("%s: another sharing, or a replica of a strategy, is on; they do not nest", who));
  making.g = m->g;
  making.maker = m;
}

void variable_maker_end(struct variable_maker *m, const char *who) {
  if (making.maker != m) graph_fail(m->g, INVALID("%s: this sharing is not on", who));
  making.g = NULL;
  making.maker = NULL;
}

/* ---- the two kinds ---- */

bool variable_is_ref(shoal_out handle) { return handle.node && !op_is(handle.node->op, "VarHandleOp"); }

shoal_out variable_read_op(struct shoal_graph *g, shoal_out handle, shoal_dtype dtype, const char *name) {
  if (variable_is_ref(handle)) {
    struct build i = build_begin(g, "Identity", name);
    build_in(&i, handle);
    return build_end_out(&i);
  }
  struct build b = build_begin(g, "ReadVariableOp", name);
  build_in(&b, handle);
  build_attr_type(&b, "dtype", dtype);
  return build_end_out(&b);
}

struct shoal_node *variable_update_op(struct shoal_graph *g, const char *op, shoal_out handle, shoal_out value) {
  char *resource = mem_printf("%sVariableOp", op);
  struct build b = build_begin(g, variable_is_ref(handle) ? op : resource, NULL);
  build_in(&b, handle);
  build_in(&b, value);
  free(resource);
  return build_end(&b);
}

const char *variable_op_name(shoal_out handle, const char *resource_op) {
  return variable_is_ref(handle) ? resource_op + strlen("Resource") : resource_op;
}

shoal_out variable_there_op(struct shoal_graph *g, shoal_out handle) {
  return build_op1(g, variable_is_ref(handle) ? "IsVariableInitialized" : "VarIsInitializedOp", handle);
}

void shoal_use_ref_variables(shoal_graph *g, bool on) { graph_set_ref_variables(g, on); }

/* ---- making them ---- */

/* The name a variable really got inside the current scope: name, or name_1 where that was taken. */
static const char *own_name(const struct shoal_node *n, const char *name) {
  const char *at = n->name + strlen(n->name) - strlen(name);
  while (at > n->name && strncmp(at, name, strlen(name))) at--;
  return at;
}

/* How the node that reads it is called. */
static const char *read_part(const struct shoal_node *variable) {
  return op_is(variable->op, "VarHandleOp") ? "Read/ReadVariableOp" : "read";
}

static shoal_var new_variable(shoal_graph *g, const char *name, shoal_out initial, int flags) {
  struct shape shape = out_shape(initial);
  if (!graph_error(g) && !shape_known(&shape))
    graph_fail(g, INVALID("variable '%s': the shape of its initial value is %s, which is not fully known", name,
                          shape_str(&shape)));
  if (flags & VARIABLE_GROWS) shape.dims[0] = -1;
  bool ref = graph_ref_variables(g) && !(flags & (VARIABLE_LOCAL | VARIABLE_UNSAVED));
  struct build b = build_begin(g, ref ? "VariableV2" : "VarHandleOp", name);
  build_attr_type(&b, "dtype", out_type(initial));
  build_attr_shape(&b, "shape", &shape);
  if (flags & VARIABLE_TRAINABLE) build_attr_bool(&b, trainable_attr, true);
  if (flags & VARIABLE_LOCAL) build_attr_bool(&b, local_attr, true);
  if (flags & VARIABLE_UNSAVED) build_attr_bool(&b, unsaved_attr, true);
  struct shoal_node *handle = build_end(&b);
  if (!handle) return (shoal_var){0};
  /* Shared under its full name, so that all sessions on a server mean the same variable. */
  if (!ref) node_set_attr(handle, "shared_name", attr_string(handle->name, strlen(handle->name)));
  graph_push_colocation(g, handle);
  const char *own = own_name(handle, name);
  char *assign = mem_printf("%s/Assign", own), *read = mem_printf("%s/%s", own, read_part(handle));
  struct build a = build_begin(g, ref ? "Assign" : "AssignVariableOp", assign);
  build_in(&a, node_out(handle, 0));
  build_in(&a, initial);
  build_end(&a);
  shoal_var v = {node_out(handle, 0), variable_read_op(g, node_out(handle, 0), out_type(initial), read)};
  free(assign);
  free(read);
  graph_pop_colocation(g);
  return v;
}

shoal_var variable_make(struct shoal_graph *g, const char *name, shoal_out initial, int flags) {
  /* A variable is there before anything happens, whatever control scope it is first needed in. */
  graph_push_control(g, NULL, -1);
  shoal_var v = new_variable(g, name, initial, flags);
  graph_pop_control(g);
  return v;
}

static shoal_var make_variable(shoal_graph *g, const char *name, shoal_out initial, int flags) {
  struct variable_maker *m = variable_maker_on(g);
  shoal_var v;
  if (!name) {
    graph_fail(g, INVALID("a variable without a name (NULL)"));
    return (shoal_var){0};
  }
  if (m && m->take(m, name, initial, flags, &v)) return v;
  v = variable_make(g, name, initial, flags);
  if (m) m->give(m, v, flags);
  return v;
}

shoal_var shoal_variable(shoal_graph *g, const char *name, shoal_out initial) {
  return make_variable(g, name, initial, VARIABLE_TRAINABLE);
}
shoal_var shoal_variable_untrained(shoal_graph *g, const char *name, shoal_out initial) {
  return make_variable(g, name, initial, 0);
}
shoal_var variable_unsaved(struct shoal_graph *g, const char *name, shoal_out initial) {
  return make_variable(g, name, initial, VARIABLE_UNSAVED);
}
shoal_var variable_growing(struct shoal_graph *g, const char *name, shoal_out initial) {
  return make_variable(g, name, initial, VARIABLE_GROWS);
}

shoal_var shoal_variable_local(shoal_graph *g, const char *name, shoal_out initial) {
  /* With an op of this worker, so that no device setter sends it to a parameter server. */
  graph_push_control(g, NULL, -1);
  struct build b = build_begin(g, "NoOp", NULL);
  struct shoal_node *anchor = build_end(&b);
  graph_pop_control(g);
  graph_push_colocation(g, anchor);
  shoal_var v = make_variable(g, name, initial, VARIABLE_LOCAL);
  graph_pop_colocation(g);
  return v;
}

shoal_op *shoal_variable_assign(shoal_graph *g, shoal_var v, shoal_out value) {
  return variable_update_op(g, "Assign", v.handle, value);
}

static struct shoal_node *find_part(const struct shoal_graph *g, const struct shoal_node *variable, const char *part) {
  char *name = mem_printf("%s/%s", variable->name, part);
  struct shoal_node *n = graph_find(g, name);
  free(name);
  return n;
}

static bool marked(const struct shoal_node *n, const char *name) {
  const struct attr *a = node_attr(n, name);
  return a && a->kind == ATTR_BOOL && a->b;
}

/* Which replica's copy it is. */
static int replica_of(const struct shoal_node *n) {
  const struct attr *a = node_attr(n, replica_attr);
  return a && a->kind == ATTR_INT ? (int)a->i : 0;
}

void variable_set_replica(shoal_var v, int replica) {
  if (v.handle.node && replica) node_set_attr(v.handle.node, replica_attr, attr_int(replica));
}

char *variable_replica_name(const struct shoal_node *first, int replica) {
  return mem_printf("%s/replica_%d", first->name, replica);
}

static bool is_variable(const struct shoal_node *v) {
  return op_is(v->op, "VarHandleOp") || op_is(v->op, "VariableV2");
}

static bool is_listed(const struct shoal_graph *g, const struct shoal_node *v, bool trainable, bool local) {
  const struct variable_maker *m = variable_maker_on(g);
  if (trainable && !marked(v, trainable_attr)) return false;
  if (trainable && m && m->replica >= 0) return replica_of(v) == m->replica;
  return marked(v, local_attr) == local && !marked(v, unsaved_attr);
}

/* A replica's copies stand where those stand that they are copies of, whichever of them was asked for first: what one
 * replica has in some place, sums over all replicas add to what the others have there. */
static struct shoal_node *listed_here(const struct shoal_graph *g, struct shoal_node *v, bool trainable) {
  const struct variable_maker *m = variable_maker_on(g);
  if (!trainable || !m || m->replica <= 0) return v;
  char *name = variable_replica_name(v, m->replica);
  struct shoal_node *copy = graph_find(g, name);
  free(name);
  return copy;
}

static int list_variables(const struct shoal_graph *g, bool trainable, bool local, shoal_var *out, int max) {
  int n = 0;
  for (size_t i = 0; i < g->nodes.n; i++) {
    struct shoal_node *v = g->nodes.at[i];
    if (!v || !is_variable(v) || !(v = listed_here(g, v, trainable)) || !is_variable(v)) continue;
    if (!find_part(g, v, "Assign") || !find_part(g, v, read_part(v)) || !is_listed(g, v, trainable, local)) continue;
    if (n < max) out[n] = (shoal_var){node_out(v, 0), node_out(find_part(g, v, read_part(v)), 0)};
    n++;
  }
  return n;
}

int shoal_variables(const shoal_graph *g, bool trainable, shoal_var *out, int max) {
  return list_variables(g, trainable, false, out, out ? max : 0);
}
int shoal_local_variables(const shoal_graph *g, shoal_var *out, int max) {
  return list_variables(g, false, true, out, out ? max : 0);
}

shoal_op *shoal_group(shoal_graph *g, shoal_op *const *ops, int n, const char *name) {
  GRAPH_GIVEN_ARRAY(g, ops, n, NULL);
  struct build b = build_begin(g, "NoOp", name);
  for (int i = 0; i < n; i++) build_control(&b, ops[i]);
  return build_end(&b);
}

shoal_var variable_find(const struct shoal_graph *g, const char *name) {
  struct shoal_node *v = graph_find(g, name);
  if (!v || !is_variable(v)) return (shoal_var){0};
  struct shoal_node *read = find_part(g, v, read_part(v));
  return read ? (shoal_var){node_out(v, 0), node_out(read, 0)} : (shoal_var){0};
}

shoal_op *variable_initializer(const struct shoal_graph *g, shoal_var v) {
  return find_part(g, v.handle.node, "Assign");
}

static shoal_op *initialize(shoal_graph *g, bool local, const char *name) {
  int n = list_variables(g, false, local, NULL, 0);
  shoal_var *vars = mem_zalloc((size_t)n + 1, sizeof *vars);
  shoal_op **assigns = mem_zalloc((size_t)n + 1, sizeof *assigns);
  list_variables(g, false, local, vars, n);
  for (int i = 0; i < n; i++) assigns[i] = variable_initializer(g, vars[i]);
  shoal_op *all = shoal_group(g, assigns, n, name);
  free(vars);
  free(assigns);
  return all;
}

shoal_op *shoal_initialize(shoal_graph *g) { return initialize(g, false, "init"); }
shoal_op *shoal_initialize_local(shoal_graph *g) { return initialize(g, true, "local_init"); }

/* ---- names in checkpoints ---- */

static const char save_name_attr[] = "_save_name", save_slice_attr[] = "_save_slice", stand_in_attr[] = "_stand_in";

static const char *text_attr(const struct shoal_node *n, const char *name, const char *otherwise) {
  const struct attr *a = node_attr(n, name);
  const char *text = otherwise;
  if (a && a->kind == ATTR_STRING) shoal_status_free(node_get_string(n, name, &text));
  return text;
}

const char *variable_save_name(shoal_var v) { return text_attr(v.handle.node, save_name_attr, v.handle.node->name); }
const char *variable_save_slice(shoal_var v) { return text_attr(v.handle.node, save_slice_attr, ""); }

void variable_set_slice(shoal_var v, const char *name, const char *slice) {
  if (!v.handle.node) return;
  node_set_attr(v.handle.node, save_name_attr, attr_string(name, strlen(name)));
  node_set_attr(v.handle.node, save_slice_attr, attr_string(slice, strlen(slice)));
}

const char *variable_stand_in(shoal_var v) { return text_attr(v.handle.node, stand_in_attr, NULL); }

void variable_set_stand_in(shoal_var v, const char *name) {
  if (v.handle.node) node_set_attr(v.handle.node, stand_in_attr, attr_string(name, strlen(name)));
}
