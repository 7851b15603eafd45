/* The object graph of a SavedModel; see objects.h.
 *
 * Every signature becomes two functions, as TensorFlow's own models have them: one that takes its inputs by place,
 * which is a method of the loaded object, and one that takes them by key and calls it, for `signatures`. What a
 * signature's part of the graph reads and others own becomes a capture: a variable, a table, the path of a file. A
 * table is a resource with functions that make and fill it, the latter of what `main_op` does to it.
 *
 * Numbers of the objects:
 *
 *   0 the root   1 signatures   2 variables, a list   3 trainable_variables, a list
 *   then the variables, the files, four for each table (itself; create, fill, destroy), two for each signature
 *
 * A partitioned variable is as many as it has parts, each with its own name and shape. What has no such form (variables
 * of TensorFlow 1's kind, other resources, a main_op that does more than fill tables, inputs whose keys cannot be
 * parameters) leaves a model without objects, which TensorFlow 2 loads by its graph, as one of version 1. */
#include "saved_model/objects.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "graph/function.h"
#include "graph/function_define.h"
#include "proto/saved_object.wire.h"
#include "proto/types.wire.h"
#include "proto/wrappers.wire.h"
#include "saved_model/graph_part.h"
#include "tensor/tensor_proto.h"
#include "train/variables.h"

const char OBJECTS_KEY[] = "_CHECKPOINTABLE_OBJECT_GRAPH";

char *objects_value_key(int i) { return mem_printf("variables/%d/.ATTRIBUTES/VARIABLE_VALUE", i); }

enum { ROOT, SIGNATURES, VARIABLES, TRAINABLE, FIRST_VARIABLE };
enum { TABLE, TABLE_CREATE, TABLE_FILL, TABLE_DESTROY, TABLE_OBJECTS };

struct objects {
  const struct object_source *from;
  struct shoal_graph *into;
  VEC(struct shoal_node *) tables;
  VEC(struct shoal_node *) initial; /* what main_op runs */
  const struct shoal_node *making;  /* the table that a part makes itself; NULL: none */
  struct text functions;            /* entries of SavedObjectGraph.concrete_functions */
  struct text nodes;                /* SavedObjectGraph.nodes, in order */
};

static int first_asset(const struct objects *o) { return FIRST_VARIABLE + o->from->n_values; }
static int first_table(const struct objects *o) { return first_asset(o) + o->from->n_assets; }
static int first_signature(const struct objects *o) { return first_table(o) + TABLE_OBJECTS * (int)o->tables.n; }

void object_result_release(struct object_result *r) {
  text_release(&r->graph);
  text_release(&r->checkpoint);
}

/* ---- what is captured ---- */

static bool is_table(const struct shoal_node *n) {
  return n->n_in == 0 && n->n_out == 1 && n->out_types[0] == SHOAL_RESOURCE && strstr(n->op->name, "HashTable") &&
         !strstr(n->op->name, "Anonymous");
}

static int find_table(const struct objects *o, const struct shoal_node *n) {
  for (size_t i = 0; i < o->tables.n; i++)
    if (o->tables.at[i] == n) return (int)i;
  return -1;
}

static shoal_status no_form(const struct shoal_node *n, const char *why) {
  return UNIMPLEMENTED("'%s' (%s) %s", n->name, n->op->name, why);
}

static shoal_status capture(void *arg, shoal_out from, int *object) {
  const struct objects *o = arg;
  const struct shoal_node *n = from.node;
  *object = -1;
  for (int i = 0; i < o->from->n_assets; i++)
    if (o->from->assets[i].tensor.node == n && o->from->assets[i].tensor.index == from.index)
      *object = first_asset(o) + i;
  for (int i = 0; i < o->from->n_values; i++)
    if (o->from->values[i].vars[0].handle.node == n) *object = FIRST_VARIABLE + i;
  int table = find_table(o, n);
  if (table >= 0 && n != o->making) *object = first_table(o) + TABLE_OBJECTS * table;
  if (*object >= 0 || n == o->making) return NULL;
  if (op_is(n->op, "VarHandleOp")) return no_form(n, "is a variable that is not saved");
  if (op_is(n->op, "Placeholder")) return no_form(n, "is no input of the signature");
  if (n->out_types[from.index] > 100) return no_form(n, "is a reference");
  if (!n->n_in && n->out_types[from.index] == SHOAL_RESOURCE && !strstr(n->op->name, "TensorArray"))
    return no_form(n, "is a resource that has no form as an object");
  return NULL;
}

static shoal_status check_variables(const struct object_source *from) {
  for (int i = 0; i < from->n_values; i++) {
    const struct saved_value *v = &from->values[i];
    if (variable_is_ref(v->vars[0].handle)) return no_form(v->vars[0].handle.node, "is a reference");
    if (v->n > 1) return no_form(v->vars[0].handle.node, "is a piece of a variable that replicas share");
  }
  return NULL;
}

/* ---- inputs, which are parameters in Python ---- */

/* As TensorFlow calls them there, whatever a key is. */
static char *parameter_name(const char *key) {
  char *name =
      isalpha((unsigned char)*key) || (unsigned char)*key >= 0x80 ? mem_strdup(key) : mem_printf("arg_%s", key);
  for (char *at = name; *at; at++)
    if (!isalnum((unsigned char)*at) && (unsigned char)*at < 0x80) *at = '_';
  return name;
}

/* Words of Python's; and self, which TensorFlow takes for a method's object. */
static bool is_reserved(const char *name) {
  static const char *const words[] = {"False",  "None",     "True",     "and",    "as",   "assert", "async",  "await",
                                      "break",  "class",    "continue", "def",    "del",  "elif",   "else",   "except",
                                      "for",    "finally",  "from",     "global", "if",   "import", "in",     "is",
                                      "lambda", "nonlocal", "not",      "or",     "pass", "raise",  "return", "self",
                                      "try",    "while",    "with",     "yield"};
  for (size_t i = 0; i < COUNT_OF(words); i++)
    if (!strcmp(words[i], name)) return true;
  return false;
}

/* What would be no parameter, or two of one name, would keep TensorFlow from loading the model at all. */
static shoal_status check_inputs(const shoal_export_signature *s) {
  for (int i = 0; i < s->n_inputs; i++) {
    char *name = parameter_name(s->inputs[i].key);
    bool bad = !*s->inputs[i].key || is_reserved(name);
    for (int k = 0; k < i && !bad; k++) {
      char *other = parameter_name(s->inputs[k].key);
      bad = !strcmp(name, other);
      free(other);
    }
    free(name);
    if (bad) return UNIMPLEMENTED("input '%s' of a signature has no name as a parameter", s->inputs[i].key);
  }
  return NULL;
}

/* ---- what main_op does ---- */

static bool fills_table(const struct objects *o, const struct shoal_node *n) {
  return !n->n_out && n->n_in && find_table(o, n->in[0].node) >= 0;
}

/* Its ops by control; anything with effects must be one that fills a table. */
static shoal_status find_initial(struct objects *o) {
  VEC(struct shoal_node *) left = {0};
  shoal_status s = NULL;
  if (o->from->main_op) vec_push(&left, (struct shoal_node *)(uintptr_t)o->from->main_op);
  for (size_t i = 0; i < left.n && !s; i++) {
    struct shoal_node *n = left.at[i];
    if (fills_table(o, n)) vec_push(&o->initial, n);
    else if (!op_is(n->op, "NoOp")) s = no_form(n, "is run when the model is loaded, and fills no table");
    for (size_t k = 0; k < n->control.n; k++) {
      bool seen = false;
      for (size_t j = 0; j < left.n; j++) seen = seen || left.at[j] == n->control.at[k];
      if (!seen) vec_push(&left, n->control.at[k]);
    }
  }
  vec_release(&left);
  return s;
}

/* ---- functions ---- */

static shoal_status add_function(struct objects *o, const struct text *def) {
  struct function_def *f;
  size_t budget = SIZE_MAX;
  TRY(function_def_decode(def->at, def->n, &budget, &f));
  return graph_add_function(o->into, f);
}

static void put_child(struct text *t, const char *name, int object) {
  size_t at = begin_SavedObject_children(t);
  put_TrackableObjectGraph_TrackableObject_ObjectReference_node_id(t, object);
  put_TrackableObjectGraph_TrackableObject_ObjectReference_local_name(t, name);
  wire_end(t, at);
}

/* What a function is bound to, takes and gives. */
static void put_concrete(struct objects *o, const char *name, const struct graph_part *p, const struct spec_value *in,
                         int n, bool by_key, const struct text *gives) {
  struct text *t = &o->functions;
  size_t entry = begin_SavedObjectGraph_concrete_functions(t);
  put_SavedObjectGraph_ConcreteFunctionsEntry_key(t, name);
  size_t value = begin_SavedObjectGraph_ConcreteFunctionsEntry_value(t);
  for (size_t i = 0; i < p->args.n; i++)
    if (p->args.at[i].object >= 0) put_SavedConcreteFunction_bound_inputs(t, p->args.at[i].object);
  size_t at = begin_SavedConcreteFunction_canonicalized_input_signature(t);
  spec_put_inputs(t, in, n, by_key);
  wire_end(t, at);
  at = begin_SavedConcreteFunction_output_signature(t);
  text_add(t, gives->at, gives->n);
  wire_end(t, at);
  wire_end(t, value);
  wire_end(t, entry);
}

static void put_function_object(struct objects *o, const char *name, const struct spec_value *in, int n) {
  size_t node = begin_SavedObjectGraph_nodes(&o->nodes), at = begin_SavedObject_function(&o->nodes);
  put_SavedFunction_concrete_functions(&o->nodes, name);
  size_t spec = begin_SavedFunction_function_spec(&o->nodes);
  spec_put_function(&o->nodes, in, n, false);
  wire_end(&o->nodes, spec);
  wire_end(&o->nodes, at);
  wire_end(&o->nodes, node);
}

static char *function_name(const struct objects *o, const char *what, const char *of) {
  char *base = mem_printf("%s_%s", what, of), *name = function_unique_name(o->into, base);
  free(base);
  return name;
}

/* A function without arguments, of a table. */
static shoal_status add_table_function(struct objects *o, struct graph_part *p, const char *gives_name) {
  struct text def = {0}, gives = {0};
  shoal_status s = graph_part_find(p, capture, o);
  if (!s) s = graph_part_encode(p, &def);
  if (!s) s = add_function(o, &def);
  if (p->outputs.n) spec_put_tensor(&gives, gives_name, p->outputs.at[0]);
  else spec_put_none(&gives);
  if (!s) put_concrete(o, p->name, p, NULL, 0, false, &gives);
  if (!s) put_function_object(o, p->name, NULL, 0);
  text_release(&def);
  text_release(&gives);
  return s;
}

/* what: which of a table's functions. */
static shoal_status put_table_function(struct objects *o, struct shoal_node *table, int what) {
  static const char *const names[] = {[TABLE_CREATE] = "create", [TABLE_FILL] = "fill", [TABLE_DESTROY] = "destroy"};
  char *name = function_name(o, names[what], table->name);
  struct graph_part p;
  graph_part_init(&p, o->from->graph, name);
  if (what == TABLE_CREATE) {
    vec_push(&p.outputs, ((shoal_out){table, 0}));
    o->making = table;
  }
  for (size_t i = 0; i < o->initial.n && what == TABLE_FILL; i++)
    if (o->initial.at[i]->in[0].node == table) vec_push(&p.effects, o->initial.at[i]);
  shoal_status s = add_table_function(o, &p, "table");
  o->making = NULL;
  graph_part_release(&p);
  free(name);
  return s;
}

static shoal_status put_table(struct objects *o, int i) {
  static const char *const names[] = {
      [TABLE_CREATE] = "_create_resource", [TABLE_FILL] = "_initialize", [TABLE_DESTROY] = "_destroy_resource"};
  size_t node = begin_SavedObjectGraph_nodes(&o->nodes);
  for (int k = TABLE_CREATE; k < TABLE_OBJECTS; k++)
    put_child(&o->nodes, names[k], first_table(o) + TABLE_OBJECTS * i + k);
  put_SavedObject_resource_n(&o->nodes, "", 0);
  wire_end(&o->nodes, node);
  for (int k = TABLE_CREATE; k < TABLE_OBJECTS; k++) TRY(put_table_function(o, o->tables.at[i], k));
  return NULL;
}

/* ---- signatures ---- */

static int by_key(const void *a, const void *b) {
  return strcmp(((const struct spec_value *)a)->key, ((const struct spec_value *)b)->key);
}

/* In the order of their keys, which is that of Python's dictionaries when they are flattened. */
static void sort_values(const shoal_export_value *v, int n, struct spec_value *sorted) {
  for (int i = 0; i < n; i++) sorted[i] = (struct spec_value){v[i].key, v[i].tensor};
  if (n) qsort(sorted, (size_t)n, sizeof *sorted, by_key);
}

static const char *key_of(const shoal_export_signature *s) { return s->key ? s->key : "serving_default"; }

static void put_signature_object(struct objects *o, const char *name, const struct spec_value *in, int n) {
  struct text *t = &o->nodes;
  size_t node = begin_SavedObjectGraph_nodes(t), at = begin_SavedObject_bare_concrete_function(t);
  put_SavedBareConcreteFunction_concrete_function_name(t, name);
  for (int i = 0; i < n; i++) put_SavedBareConcreteFunction_argument_keywords(t, in[i].key);
  size_t spec = begin_SavedBareConcreteFunction_function_spec(t);
  spec_put_function(t, in, n, true);
  wire_end(t, spec);
  wire_end(t, at);
  wire_end(t, node);
}

struct signature_room {
  struct spec_value *given, *in, *out; /* inputs as given; inputs and outputs by key */
  int *order;                          /* which of the inputs as given each by key is */
};

static shoal_status add_signature(struct objects *o, const shoal_export_signature *s, struct graph_part *p,
                                  const struct signature_room *r) {
  struct text def = {0}, call = {0}, gives = {0};
  char *outer = function_name(o, "signature", key_of(s));
  sort_values(s->inputs, s->n_inputs, r->in);
  sort_values(s->outputs, s->n_outputs, r->out);
  for (int i = 0; i < s->n_inputs; i++) {
    r->given[i] = (struct spec_value){s->inputs[i].key, s->inputs[i].tensor};
    graph_part_add_input(p, s->inputs[i].tensor, s->inputs[i].key);
    for (int k = 0; k < s->n_inputs; k++)
      if (r->in[k].key == s->inputs[i].key) r->order[k] = i;
  }
  for (int i = 0; i < s->n_outputs; i++) vec_push(&p->outputs, r->out[i].tensor);
  spec_put_dict(&gives, r->out, s->n_outputs);
  shoal_status e = graph_part_find(p, capture, o);
  if (!e) e = graph_part_encode(p, &def);
  if (!e) e = add_function(o, &def);
  if (!e) e = graph_part_encode_call(p, outer, r->order, s->n_inputs, &call);
  if (!e) e = add_function(o, &call);
  if (!e) {
    put_concrete(o, p->name, p, r->given, s->n_inputs, false, &gives);
    put_concrete(o, outer, p, r->in, s->n_inputs, true, &gives);
    put_function_object(o, p->name, r->given, s->n_inputs);
    put_signature_object(o, outer, r->in, s->n_inputs);
  }
  text_release(&def);
  text_release(&call);
  text_release(&gives);
  free(outer);
  return e;
}

static shoal_status put_signature(struct objects *o, const shoal_export_signature *s) {
  size_t n = (size_t)s->n_inputs + 1, m = (size_t)s->n_outputs + 1;
  struct signature_room r = {mem_zalloc(n, sizeof *r.given), mem_zalloc(n, sizeof *r.in), mem_zalloc(m, sizeof *r.out),
                             mem_zalloc(n, sizeof *r.order)};
  char *name = function_name(o, "function", key_of(s));
  struct graph_part p;
  graph_part_init(&p, o->from->graph, name);
  shoal_status e = add_signature(o, s, &p, &r);
  graph_part_release(&p);
  free(name);
  free(r.given);
  free(r.in);
  free(r.out);
  free(r.order);
  return e;
}

/* ---- the objects that hold others ---- */

static void put_kind(struct text *t, const char *identifier) {
  size_t at = begin_SavedObject_user_object(t), version;
  put_SavedUserObject_identifier(t, identifier);
  version = begin_SavedUserObject_version(t);
  put_VersionDef_producer(t, 1);
  put_VersionDef_min_consumer(t, 1);
  wire_end(t, version);
  wire_end(t, at);
}

static void put_numbered(struct text *t, const char *before, int number, int object) {
  char *name = mem_printf("%s%d", before, number);
  put_child(t, name, object);
  free(name);
}

static bool is_identifier(const char *key) {
  if (!*key || (*key >= '0' && *key <= '9')) return false;
  for (; *key; key++)
    if (!((*key >= 'a' && *key <= 'z') || (*key >= 'A' && *key <= 'Z') || (*key >= '0' && *key <= '9') || *key == '_'))
      return false;
  return true;
}

static void put_root(struct objects *o) {
  struct text *t = &o->nodes;
  size_t node = begin_SavedObjectGraph_nodes(t);
  put_child(t, "signatures", SIGNATURES);
  put_child(t, "variables", VARIABLES);
  put_child(t, "trainable_variables", TRAINABLE);
  for (int i = 0; i < o->from->n_assets; i++) put_numbered(t, "asset_", i, first_asset(o) + i);
  for (int i = 0; i < (int)o->tables.n; i++) put_numbered(t, "table_", i, first_table(o) + TABLE_OBJECTS * i);
  for (int i = 0; i < o->from->n_signatures; i++) {
    const char *key = key_of(&o->from->signatures[i]);
    if (is_identifier(key) && strcmp(key, "signatures") && strcmp(key, "variables") &&
        strcmp(key, "trainable_variables") && strncmp(key, "asset_", 6) && strncmp(key, "table_", 6))
      put_child(t, key, first_signature(o) + 2 * i);
  }
  put_kind(t, "_generic_user_object");
  wire_end(t, node);
}

static void put_signature_map(struct objects *o) {
  size_t node = begin_SavedObjectGraph_nodes(&o->nodes);
  for (int i = 0; i < o->from->n_signatures; i++)
    put_child(&o->nodes, key_of(&o->from->signatures[i]), first_signature(o) + 2 * i + 1);
  put_kind(&o->nodes, "signature_map");
  wire_end(&o->nodes, node);
}

static bool is_trained(const struct objects *o, const struct saved_value *v) {
  int n = shoal_variables(o->from->graph, true, NULL, 0);
  shoal_var *trained = mem_zalloc((size_t)n + 1, sizeof *trained);
  bool found = false;
  shoal_variables(o->from->graph, true, trained, n);
  for (int i = 0; i < n; i++) found = found || trained[i].handle.node == v->vars[0].handle.node;
  free(trained);
  return found;
}

static void put_list(struct objects *o, bool trained_alone) {
  size_t node = begin_SavedObjectGraph_nodes(&o->nodes);
  int n = 0;
  for (int i = 0; i < o->from->n_values; i++)
    if (!trained_alone || is_trained(o, &o->from->values[i])) put_numbered(&o->nodes, "", n++, FIRST_VARIABLE + i);
  put_kind(&o->nodes, "trackable_list_wrapper");
  wire_end(&o->nodes, node);
}

static void put_variable(struct objects *o, const struct saved_value *v) {
  struct text *t = &o->nodes;
  struct shape shape = {0};
  shape.rank = shoal_out_shape(v->vars[0].value, shape.dims);
  size_t node = begin_SavedObjectGraph_nodes(t), at = begin_SavedObject_variable(t);
  put_SavedVariable_dtype(t, (int)shoal_out_dtype(v->vars[0].value));
  size_t dims = begin_SavedVariable_shape(t);
  shape_proto_encode(&shape, t);
  wire_end(t, dims);
  if (is_trained(o, v)) put_SavedVariable_trainable(t, true);
  put_SavedVariable_name(t, v->vars[0].handle.node->name);
  wire_end(t, at);
  wire_end(t, node);
}

static void put_asset(struct objects *o, int i) {
  size_t node = begin_SavedObjectGraph_nodes(&o->nodes), at = begin_SavedObject_asset(&o->nodes);
  put_SavedAsset_asset_file_def_index(&o->nodes, i);
  wire_end(&o->nodes, at);
  wire_end(&o->nodes, node);
}

/* ---- the checkpoint's half ---- */

static void put_reference(struct text *t, const char *name, int object) {
  size_t at = begin_TrackableObjectGraph_TrackableObject_children(t);
  put_TrackableObjectGraph_TrackableObject_ObjectReference_node_id(t, object);
  put_TrackableObjectGraph_TrackableObject_ObjectReference_local_name(t, name);
  wire_end(t, at);
}

static void put_has_values(struct text *t) {
  size_t at = begin_TrackableObjectGraph_TrackableObject_has_checkpoint_values(t);
  put_BoolValue_value(t, true);
  wire_end(t, at);
}

/* The root, its list `variables`, and these, each with its name in the checkpoint. */
static void encode_checkpoint(const struct object_source *from, struct text *t) {
  size_t node = begin_TrackableObjectGraph_nodes(t);
  put_reference(t, "variables", 1);
  put_has_values(t);
  wire_end(t, node);
  node = begin_TrackableObjectGraph_nodes(t);
  for (int i = 0; i < from->n_values; i++) {
    char *number = mem_printf("%d", i);
    put_reference(t, number, 2 + i);
    free(number);
  }
  put_has_values(t);
  wire_end(t, node);
  for (int i = 0; i < from->n_values; i++) {
    char *key = objects_value_key(i);
    node = begin_TrackableObjectGraph_nodes(t);
    size_t at = begin_TrackableObjectGraph_TrackableObject_attributes(t);
    put_TrackableObjectGraph_TrackableObject_SerializedTensor_name(t, "VARIABLE_VALUE");
    put_TrackableObjectGraph_TrackableObject_SerializedTensor_full_name(t, saved_name(&from->values[i]));
    put_TrackableObjectGraph_TrackableObject_SerializedTensor_checkpoint_key(t, key);
    wire_end(t, at);
    put_has_values(t);
    wire_end(t, node);
    free(key);
  }
}

/* ---- all of it ---- */

static shoal_status make(struct objects *o) {
  const struct object_source *from = o->from;
  TRY(check_variables(from));
  for (int i = 0; i < from->n_signatures; i++) TRY(check_inputs(&from->signatures[i]));
  for (size_t i = 0; i < from->graph->nodes.n; i++)
    if (from->graph->nodes.at[i] && is_table(from->graph->nodes.at[i])) vec_push(&o->tables, from->graph->nodes.at[i]);
  TRY(find_initial(o));
  put_root(o);
  put_signature_map(o);
  put_list(o, false);
  put_list(o, true);
  for (int i = 0; i < from->n_values; i++) put_variable(o, &from->values[i]);
  for (int i = 0; i < from->n_assets; i++) put_asset(o, i);
  for (int i = 0; i < (int)o->tables.n; i++) TRY(put_table(o, i));
  for (int i = 0; i < from->n_signatures; i++) TRY(put_signature(o, &from->signatures[i]));
  return NULL;
}

shoal_status objects_make(const struct object_source *from, struct shoal_graph *into, struct object_result *out) {
  struct objects o = {.from = from, .into = into};
  shoal_status s = make(&o);
  if (!s) {
    text_add(&out->graph, o.nodes.at, o.nodes.n);
    text_add(&out->graph, o.functions.at, o.functions.n);
    encode_checkpoint(from, &out->checkpoint);
  }
  vec_release(&o.tables);
  vec_release(&o.initial);
  text_release(&o.functions);
  text_release(&o.nodes);
  return s;
}
