/* A SavedModel's ops and functions; see outline.h.
 *
 * Both are told as saved_model_cli tells them. Ops are those of the graph's nodes and of the functions that nodes call
 * by name or by (Stateful)PartitionedCall. The forms of a function are in the order in which TensorFlow, loading the
 * model, comes to them: a function after those it calls, and of those that wait for none the last in the file first.
 *
 * All is read in place, by names that are looked up in one table: the work is in proportion to the file. */
#include "saved_model/outline.h"

#include <string.h>

#include "base/status.h"
#include "base/strmap.h"
#include "proto/graph.wire.h"
#include "proto/saved_object.wire.h"

/* ---- the graph's functions ---- */

struct library_function {
  char *name;
  struct wire def;
  VEC(int) users;       /* functions that call it */
  int waits, last_seen; /* calls of others that are not loaded yet; who was last seen to call it */
  int order;            /* in which it is loaded; -1: never */
  bool used;            /* by the graph */
};

struct library {
  VEC(struct library_function) functions;
  struct strmap by_name; /* 1 + its place */
};

static int find_function(const struct library *l, struct wire name) {
  return (int)(intptr_t)strmap_getn(&l->by_name, (const char *)name.at, wire_left(&name)) - 1;
}

static void add_library_function(struct library *l, struct wire def) {
  struct wire signature = wire_from("", 0), name = wire_from("", 0);
  find_FunctionDef_signature(def, &signature);
  find_OpDef_name(signature, &name);
  struct library_function f = {.def = def, .last_seen = -1, .order = -1};
  f.name = mem_strndup((const char *)name.at, wire_left(&name));
  vec_push(&l->functions, f);
  strmap_put(&l->by_name, f.name, (void *)(intptr_t)l->functions.n);
}

static shoal_status read_library(struct library *l, struct wire graph) {
  struct wire w = {0};
  struct wire_field f;
  enum wire_step step;
  if (!find_GraphDef_library(graph, &w)) return NULL;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD)
    if (f.tag == FunctionDefLibrary_function) add_library_function(l, wire_inside(&f));
  return step == WIRE_BROKEN ? STATUS(SHOAL_DATA_LOSS, "the library of functions is damaged") : NULL;
}

static void library_release(struct library *l) {
  for (size_t i = 0; i < l->functions.n; i++) {
    free(l->functions.at[i].name);
    vec_release(&l->functions.at[i].users);
  }
  vec_release(&l->functions);
  strmap_release(&l->by_name);
}

static void add_user(struct library *l, struct wire name, int user) {
  int called = find_function(l, name);
  if (called < 0 || l->functions.at[called].last_seen == user) return;
  l->functions.at[called].last_seen = user;
  vec_push(&l->functions.at[called].users, user);
  l->functions.at[user].waits++;
}

/* An attribute that is a function, or a list of them. */
static void add_attribute_users(struct library *l, struct wire value, int user) {
  struct wire func, list, name;
  struct wire_field f;
  if (find_AttrValue_func(value, &func) && find_NameAttrList_name(func, &name)) add_user(l, name, user);
  if (!find_AttrValue_list(value, &list)) return;
  while (wire_next(&list, &f) == WIRE_FIELD)
    if (f.tag == AttrValue_ListValue_func && find_NameAttrList_name(wire_inside(&f), &name)) add_user(l, name, user);
}

static void add_node_users(struct library *l, struct wire node, int user) {
  struct wire op = wire_from("", 0), value;
  struct wire_field f;
  find_NodeDef_op(node, &op);
  if (find_function(l, op) >= 0) {
    add_user(l, op, user);
    return;
  }
  while (wire_next(&node, &f) == WIRE_FIELD)
    if (f.tag == NodeDef_attr && find_NodeDef_AttrEntry_value(wire_inside(&f), &value))
      add_attribute_users(l, value, user);
}

static void order_library(struct library *l) {
  VEC(int) ready = {0};
  struct wire_field f;
  int loaded = 0;
  for (size_t i = 0; i < l->functions.n; i++)
    for (struct wire w = l->functions.at[i].def; wire_next(&w, &f) == WIRE_FIELD;)
      if (f.tag == FunctionDef_node_def) add_node_users(l, wire_inside(&f), (int)i);
  for (size_t i = 0; i < l->functions.n; i++)
    if (!l->functions.at[i].waits) vec_push(&ready, (int)i);
  while (ready.n) {
    struct library_function *next = &l->functions.at[ready.at[--ready.n]];
    next->order = loaded++;
    for (size_t k = 0; k < next->users.n; k++)
      if (!--l->functions.at[next->users.at[k]].waits) vec_push(&ready, next->users.at[k]);
  }
  vec_release(&ready);
}

/* ---- ops ---- */

struct op_search {
  struct library *library;
  struct strmap seen;
  VEC(int) left; /* functions to look into */
};

static void use(struct op_search *s, struct wire name) {
  int f = find_function(s->library, name);
  if (f >= 0 && !s->library->functions.at[f].used) {
    s->library->functions.at[f].used = true;
    vec_push(&s->left, f);
  }
  if (f >= 0) return;
  char *text = mem_strndup((const char *)name.at, wire_left(&name));
  strmap_put(&s->seen, text, s);
  free(text);
}

static bool is_text(struct wire w, const char *text) {
  return wire_left(&w) == strlen(text) && !memcmp(w.at, text, strlen(text));
}

static void use_node(struct op_search *s, struct wire node) {
  struct wire op = wire_from("", 0), key = {0}, value, func, name;
  struct wire_field f;
  find_NodeDef_op(node, &op);
  use(s, op);
  if (!is_text(op, "PartitionedCall") && !is_text(op, "StatefulPartitionedCall")) return;
  while (wire_next(&node, &f) == WIRE_FIELD)
    if (f.tag == NodeDef_attr && find_NodeDef_AttrEntry_key(wire_inside(&f), &key) && is_text(key, "f") &&
        find_NodeDef_AttrEntry_value(wire_inside(&f), &value) && find_AttrValue_func(value, &func) &&
        find_NameAttrList_name(func, &name))
      use(s, name);
}

static void use_nodes(struct op_search *s, struct wire w, uint32_t tag) {
  struct wire_field f;
  while (wire_next(&w, &f) == WIRE_FIELD)
    if (f.tag == tag) use_node(s, wire_inside(&f));
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void find_ops(struct outline *o, struct library *l, struct wire graph) {
  struct op_search s = {.library = l};
  const char *name;
  void *value;
  use_nodes(&s, graph, GraphDef_node);
  while (s.left.n) use_nodes(&s, l->functions.at[s.left.at[--s.left.n]].def, FunctionDef_node_def);
  for (size_t i = 0; strmap_next(&s.seen, &i, &name, &value);) vec_push(&o->ops, mem_strdup(name));
  if (o->ops.n) qsort(o->ops.at, o->ops.n, sizeof *o->ops.at, by_text);
  strmap_release(&s.seen);
  vec_release(&s.left);
}

/* ---- objects ---- */

struct concrete {
  int order;
  struct wire takes;
};

struct object_graph {
  const struct library *library;
  VEC(struct wire) nodes;
  VEC(struct wire) concretes; /* SavedConcreteFunctions */
  struct strmap by_name;      /* 1 + the place of one */
};

static void add_concrete(struct object_graph *g, struct wire entry) {
  struct wire key = wire_from("", 0), value = key;
  find_SavedObjectGraph_ConcreteFunctionsEntry_key(entry, &key);
  find_SavedObjectGraph_ConcreteFunctionsEntry_value(entry, &value);
  char *name = mem_strndup((const char *)key.at, wire_left(&key));
  vec_push(&g->concretes, value);
  strmap_put(&g->by_name, name, (void *)(intptr_t)g->concretes.n);
  free(name);
}

static shoal_status read_objects(struct object_graph *g, struct wire w) {
  struct wire_field f;
  enum wire_step step;
  while ((step = wire_next(&w, &f)) == WIRE_FIELD) switch (f.tag) {
      case SavedObjectGraph_nodes: vec_push(&g->nodes, wire_inside(&f)); break;
      case SavedObjectGraph_concrete_functions: add_concrete(g, wire_inside(&f)); break;
    }
  return step == WIRE_BROKEN ? STATUS(SHOAL_DATA_LOSS, "the graph of objects is damaged") : NULL;
}

typedef VEC(struct concrete) concrete_list;

static void add_form(const struct object_graph *g, struct wire name, concrete_list *out) {
  size_t at = (size_t)(intptr_t)strmap_getn(&g->by_name, (const char *)name.at, wire_left(&name));
  int function = find_function(g->library, name);
  struct concrete c = {function < 0 ? -1 : g->library->functions.at[function].order, wire_from("", 0)};
  if (!at) return;
  find_SavedConcreteFunction_canonicalized_input_signature(g->concretes.at[at - 1], &c.takes);
  vec_push(out, c);
}

static int by_order(const void *a, const void *b) {
  int x = ((const struct concrete *)a)->order, y = ((const struct concrete *)b)->order;
  return (x > y) - (x < y);
}

static void add_function(struct outline *o, const struct object_graph *g, const char *name, size_t name_size,
                         struct wire object) {
  struct wire function, bare, one;
  struct wire_field f;
  concrete_list forms = {0};
  if (find_SavedObject_function(object, &function)) {
    while (wire_next(&function, &f) == WIRE_FIELD)
      if (f.tag == SavedFunction_concrete_functions) add_form(g, wire_inside(&f), &forms);
  } else if (find_SavedObject_bare_concrete_function(object, &bare)) {
    if (find_SavedBareConcreteFunction_concrete_function_name(bare, &one)) add_form(g, one, &forms);
  } else {
    return;
  }
  if (forms.n) qsort(forms.at, forms.n, sizeof *forms.at, by_order);
  struct outline_function made = {.name = mem_strndup(name, name_size)};
  for (size_t i = 0; i < forms.n; i++) vec_push(&made.forms, forms.at[i].takes);
  vec_push(&o->functions, made);
  vec_release(&forms);
}

static void add_child(struct outline *o, const struct object_graph *g, struct wire child) {
  struct wire_field f;
  uint64_t object = 0;
  const char *name = "";
  size_t size = 0;
  while (wire_next(&child, &f) == WIRE_FIELD) switch (f.tag) {
      case TrackableObjectGraph_TrackableObject_ObjectReference_node_id: object = f.value; break;
      case TrackableObjectGraph_TrackableObject_ObjectReference_local_name:
        name = (const char *)f.data;
        size = f.size;
        break;
    }
  if (object < g->nodes.n) add_function(o, g, name, size, g->nodes.at[object]);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const struct outline_function *)a)->name, ((const struct outline_function *)b)->name);
}

static shoal_status find_functions(struct outline *o, const struct library *l, struct wire objects) {
  struct object_graph g = {.library = l};
  struct wire_field f;
  shoal_status s = read_objects(&g, objects);
  if (!s && g.nodes.n)
    for (struct wire root = g.nodes.at[0]; wire_next(&root, &f) == WIRE_FIELD;)
      if (f.tag == SavedObject_children) add_child(o, &g, wire_inside(&f));
  if (o->functions.n) qsort(o->functions.at, o->functions.n, sizeof *o->functions.at, by_name);
  vec_release(&g.nodes);
  vec_release(&g.concretes);
  strmap_release(&g.by_name);
  return s;
}

/* ---- all of it ---- */

shoal_status outline_read(struct outline *o, const struct meta_model *m) {
  struct library l = {0};
  *o = (struct outline){0};
  shoal_status s = read_library(&l, m->graph_def);
  if (!s) {
    order_library(&l);
    find_ops(o, &l, m->graph_def);
    s = find_functions(o, &l, m->objects);
  }
  library_release(&l);
  return s;
}

void outline_release(struct outline *o) {
  for (size_t i = 0; i < o->ops.n; i++) free(o->ops.at[i]);
  for (size_t i = 0; i < o->functions.n; i++) {
    free(o->functions.at[i].name);
    vec_release(&o->functions.at[i].forms);
  }
  vec_release(&o->ops);
  vec_release(&o->functions);
}
