/* GraphDef in.
 *
 * Nodes are added in the order they stand in, with their inputs open; when all are there, inputs are looked up and
 * connected, and the whole is checked for cycles. So no order is needed, and loops need no special care. The bytes
 * are read in place: generated code would first build a tree of a dozen small allocations for each node, and take
 * longer than all the rest.
 *
 * A graph is changed only in ways that can be undone by cutting its node list back to where it was. */
#include "graph/import.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/given.h"
#include "base/mem.h"
#include "graph/function.h"
#include "graph/import_parts.h"
#include "graph/shape_fn.h"
#include "proto/graph.wire.h"
#include "proto/types.wire.h"
#include "shoal/graph.h"
#include "tensor/tensor_proto.h"

enum { MAX_BAD_CONSUMERS = 1000, MAX_NAME = 1 << 16 };

#define BUDGET (2 * TENSOR_PROTO_MAX_REPEAT) /* for repeated values in one GraphDef */

struct importing {
  struct shoal_graph *g;
  const struct import_options *o;
  size_t prefix_n;
  struct text name;             /* scratch: prefix + name */
  size_t budget, most_repeated; /* for repeated values: what is left, what there was */
  struct node_def def;
  VEC(struct wire) sources; /* of the new nodes, by id - first */
  VEC(char *) functions;    /* names added, to be taken out again on error */
  VEC(char *) gradients;
  size_t first;
  int *controls; /* by id of a node: the last node, as its id + 1, that was given an edge of control from it */
};

/* The name with the prefix, as a C string that lives until the next call; NULL when it holds a NUL or
 * is longer than any name. */
static const char *full_name(struct importing *im, struct chars s) {
  if (s.n > MAX_NAME || slice_has_nul(s)) return NULL;
  im->name.n = im->prefix_n;
  text_add(&im->name, s.at, s.n);
  return im->name.at;
}

static shoal_status unknown_op(struct chars op) {
  char host[256] = "localhost";
  if (gethostname(host, sizeof host - 1)) host[0] = 0;
  return NOT_FOUND(
      "Op type not registered '%s' in binary running on %s. Make sure the Op and Kernel are registered "
      "in the binary running in this process. Note that if you are loading a saved graph which used ops "
      "from tf.contrib (e.g. `tf.contrib.resampler`), accessing should be done before importing the graph, "
      "as contrib ops are lazily registered when the module is first accessed.",
      SLICE_CSTR(op), host);
}

/* Is it one that says what the inputs and outputs are? */
static bool has_types(const struct op *op, const char *attr) {
  for (int i = 0; i < op->n_in + op->n_out; i++) {
    const struct op_arg *a = i < op->n_in ? &op->in[i] : &op->out[i - op->n_in];
    if (str_equal(a->type_attr, attr) || str_equal(a->number_attr, attr) || str_equal(a->list_attr, attr)) return true;
  }
  return false;
}

static shoal_status check_given(const struct importing *im, const struct op *op, const struct node_def *d) {
  struct text missing = {0};
  int n = 0;
  for (int i = 0; i < op->n_attrs; i++) {
    const struct op_attr *a = &op->attrs[i];
    if (a->has_default || named_attr_find(d->attrs.at, (int)d->attrs.n, a->name)) continue;
    if (im->o->opens_session && has_types(op, a->name)) {
      text_release(&missing);
      return NOT_FOUND("No attr named '%s' in NodeDef:\n\t [[{{node %s}}]]", a->name, SLICE_CSTR(d->name));
    }
    text_addf(&missing, "%s'%s'", n++ ? ", " : "", a->name);
  }
  if (!n) return NULL;
  struct text sig = {0};
  op_print(op, &sig);
  shoal_status s = INVALID("NodeDef missing attr%s %s from %s; NodeDef: {{node %s}}", n > 1 ? "s" : "",
                           text_cstr(&missing), text_cstr(&sig), SLICE_CSTR(d->name));
  text_release(&missing);
  text_release(&sig);
  return s;
}

/* "loc:@x" becomes "loc:@prefix/x". */
static void prefix_colocation(struct importing *im, struct node_def *d) {
  struct attr *list = named_attr_find(d->attrs.at, (int)d->attrs.n, "_class");
  if (!list || list->kind != ATTR_LIST || list->of != ATTR_STRING) return;
  for (size_t i = 0; i < list->list.n; i++) {
    struct attr *a = &list->list.at[i];
    if (strncmp(a->s.data, "loc:@", 5)) continue;
    struct text t = {0};
    text_adds(&t, "loc:@");
    text_add(&t, im->name.at, im->prefix_n);
    text_add(&t, a->s.data + 5, a->s.n - 5);
    struct attr with = attr_string(t.at, t.n);
    text_release(&t);
    attr_release(a);
    *a = with;
  }
}

static shoal_status take_slice(struct chars s, char **out) {
  char *copy = mem_try_strndup(s.n ? s.at : "", s.n);
  if (!copy) return NO_MEMORY(s.n, "a node's texts");
  free(*out);
  *out = copy;
  return NULL;
}

static shoal_status add_details(struct shoal_node *n, const struct node_def *d) {
  if (d->device.n) TRY(take_slice(d->device, &n->device));
  for (size_t i = 0; i < d->original_names.n; i++) {
    vec_push(&n->original_names, NULL);
    TRY(take_slice(d->original_names.at[i], &vec_last(&n->original_names)));
  }
  for (size_t i = 0; i < d->original_funcs.n; i++) {
    vec_push(&n->original_funcs, NULL);
    TRY(take_slice(d->original_funcs.at[i], &vec_last(&n->original_funcs)));
  }
  if (d->full_type.n) {
    n->full_type = mem_try_alloc(sizeof(size_t) + d->full_type.n);
    if (!n->full_type) return NO_MEMORY(d->full_type.n, "a node's types");
    memcpy(n->full_type, &d->full_type.n, sizeof(size_t));
    memcpy((char *)n->full_type + sizeof(size_t), d->full_type.at, d->full_type.n);
  }
  return NULL;
}

static shoal_status add_node(struct importing *im, struct wire w) {
  struct node_def *d = &im->def;
  TRY(node_def_parse(w, &im->budget, d));
  const char *name = full_name(im, d->name);
  if (!name || !node_name_valid(name, im->o->internal)) return INVALID("Illegal op name '%s'", SLICE_CSTR(d->name));
  struct shoal_node *old = graph_find(im->g, name);
  if (old && (size_t)old->id >= im->first) return INVALID("Node '%s' is not unique", name);
  if (old) return INVALID("Node name '%s' already exists in the Graph", name);
  if (!d->op.n) return INVALID("Node '%s' does not specify an operation", name);
  if (slice_has_nul(d->op)) return unknown_op(d->op);
  char *op_name = mem_try_strndup(d->op.at, d->op.n);
  if (!op_name) return NO_MEMORY(d->op.n, "an op's name");
  const struct op *op = graph_op(im->g, op_name);
  free(op_name);
  if (!op) return unknown_op(d->op);
  TRY(check_given(im, op, d));
  if (im->prefix_n) prefix_colocation(im, d);

  int n_in = 0;
  bool control = false;
  for (size_t i = 0; i < d->in.n; i++) {
    struct chars in = d->in.at[i];
    if (!in.n || (in.at[0] == '^' && in.n == 1))
      return INVALID("Illegal op input name '%s'; NodeDef: {{node %s}}", SLICE_CSTR(in), name);
    if (in.at[0] == '^') control = true;
    else if (control) return INVALID("Node '%s': Control dependencies must come after regular dependencies", name);
    else n_in++;
  }
  int n_attrs;
  struct named_attr *attrs = node_def_take_attrs(d, &n_attrs);
  shoal_out *open = mem_zalloc((size_t)n_in, sizeof *open);
  struct shoal_node *n;
  shoal_status s = graph_add(im->g, name, op, open, n_in, attrs, n_attrs, &n);
  free(open);
  TRY(s);
  TRY(add_details(n, d));
  vec_push(&im->sources, w);
  return NULL;
}

/* ---- edges ---- */

/* "x" or "x:12" into a node's name and an output; a name of digits after ':' that does not fit is no output. */
static void split_input(struct chars in, struct chars *name, int *index) {
  *name = in;
  *index = 0;
  size_t digits = 0;
  while (digits < in.n && in.at[in.n - 1 - digits] >= '0' && in.at[in.n - 1 - digits] <= '9') digits++;
  if (!digits || digits == in.n || in.at[in.n - 1 - digits] != ':') return;
  name->n = in.n - 1 - digits;
  int64_t v = 0;
  for (size_t i = in.n - digits; i < in.n && v <= INT32_MAX; i++) v = v * 10 + (in.at[i] - '0');
  *index = v > INT32_MAX ? INT32_MAX : (int)v;
}

static shoal_status connect(struct importing *im, struct shoal_node *n, struct wire w) {
  struct wire_field f;
  int at = 0;
  while (wire_next(&w, &f) == WIRE_FIELD) {
    if (f.tag != NodeDef_input) continue;
    struct chars in = {(const char *)f.data, f.size}, name;
    bool control = in.at[0] == '^';
    int index = 0;
    if (control) name = (struct chars){in.at + 1, in.n - 1};
    else split_input(in, &name, &index);
    const char *full = full_name(im, name);
    struct shoal_node *from = full ? graph_find(im->g, full) : NULL;
    if (!from) return INVALID("Node '%s': Unknown input node '%s'", n->name, SLICE_CSTR(in));
    if (control) {
      if (from == n) return INVALID("Node '%s' has itself as a control input", n->name);
      if (im->controls[from->id] != n->id + 1) vec_push(&n->control, from);
      im->controls[from->id] = n->id + 1;
      continue;
    }
    if (index >= from->n_out)
      return INVALID(
          "Node '%s': Connecting to invalid output %d of source node %s which has %d outputs. Try using "
          "tf.compat.v1.experimental.output_all_intermediates(True).",
          n->name, index, from->name, from->n_out);
    TRY(graph_set_input(im->g, n, at++, (shoal_out){from, index}));
  }
  return NULL;
}

/* ---- library and versions ---- */

static shoal_status add_gradient(struct importing *im, struct wire w) {
  struct wire function = {0}, gradient = {0};
  if (!find_GradientDef_function_name(w, &function) || !find_GradientDef_gradient_func(w, &gradient))
    return INVALID("Malformed GradientDef");
  char *name = mem_try_strndup((const char *)function.at, wire_left(&function));
  char *value = mem_try_strndup((const char *)gradient.at, wire_left(&gradient));
  const char *old = name ? strmap_get(&im->g->gradient_functions, name) : NULL;
  shoal_status s = NULL;
  if (!name || !value) {
    s = NO_MEMORY(wire_left(&function) + wire_left(&gradient), "a function's names");
  } else if (old && strcmp(old, value)) {
    s = INVALID("Cannot assign gradient function '%s' to '%s' because it already has gradient function '%s'", value,
                name, old);
  } else if (!old) {
    strmap_put(&im->g->gradient_functions, name, value);
    vec_push(&im->gradients, name);
    return NULL;
  }
  free(name);
  free(value);
  return s;
}

static shoal_status add_library(struct importing *im, struct wire w) {
  struct wire_field f;
  enum wire_step r;
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == FunctionDefLibrary_function) {
      struct function_def *d;
      TRY(function_def_decode(f.data, f.size, &im->budget, &d));
      if (!graph_function(im->g, d->name)) vec_push(&im->functions, mem_strdup(d->name));
      TRY(graph_add_function(im->g, d));
    } else if (f.tag == FunctionDefLibrary_gradient) {
      TRY(add_gradient(im, wire_inside(&f)));
    }
  }
  return r == WIRE_BROKEN ? INVALID("Malformed FunctionDefLibrary") : NULL;
}

struct versions {
  int producer, min_consumer;
  VEC(int) bad;
};

static shoal_status read_versions(struct wire w, struct versions *v) {
  struct wire_field f;
  enum wire_step r;
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == VersionDef_producer) v->producer = (int)f.value;
    else if (f.tag == VersionDef_min_consumer) v->min_consumer = (int)f.value;
    else if (f.tag == VersionDef_bad_consumers) vec_push(&v->bad, (int)f.value);
    else if (f.tag == VersionDef_bad_consumers_packed) {
      struct wire list = wire_inside(&f);
      uint64_t x;
      while (list.at < list.end && wire_get_varint(&list, &x)) vec_push(&v->bad, (int)x);
    }
  }
  if (r == WIRE_BROKEN) return INVALID("Malformed VersionDef");
  if (v->bad.n > MAX_BAD_CONSUMERS)
    return INVALID("A VersionDef has %zu bad consumers; at most %d are read", v->bad.n, MAX_BAD_CONSUMERS);
  if (v->min_consumer > GRAPH_VERSION)
    return INVALID(
        "GraphDef min consumer version %d above current version %d for TensorFlow 2.15.1.  Please upgrade "
        "TensorFlow.",
        v->min_consumer, GRAPH_VERSION);
  for (size_t i = 0; i < v->bad.n; i++)
    if (v->bad.at[i] == GRAPH_VERSION)
      return INVALID(
          "GraphDef disallows consumer version %d.  Please upgrade TensorFlow: this version is likely buggy.",
          GRAPH_VERSION);
  return NULL;
}

/* A merged graph is as old as its oldest part. */
static void take_versions(struct shoal_graph *g, bool was_empty, const struct versions *v) {
  g->producer = was_empty ? v->producer : MIN(g->producer, v->producer);
  g->min_consumer = MAX(g->min_consumer, v->min_consumer);
  for (size_t i = 0; i < v->bad.n; i++) {
    bool known = false;
    for (size_t k = 0; k < g->bad_consumers.n; k++) known |= g->bad_consumers.at[k] == v->bad.at[i];
    if (!known) vec_push(&g->bad_consumers, v->bad.at[i]);
  }
}

/* ---- the whole ---- */

static shoal_status import(struct importing *im, struct wire whole) {
  struct versions versions = {0};
  bool was_empty = im->g->n_nodes == 0;
  struct wire w = whole;
  struct wire_field f;
  enum wire_step r;
  shoal_status s = NULL;
  while (!s && (r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == GraphDef_library) s = add_library(im, wire_inside(&f));
    else if (f.tag == GraphDef_versions) s = read_versions(wire_inside(&f), &versions);
  }
  if (!s && r == WIRE_BROKEN) s = INVALID("Malformed GraphDef");
  for (w = whole; !s && wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag != GraphDef_node) continue;
    if (im->o->max_nodes && im->g->n_nodes >= im->o->max_nodes)
      s = STATUS(SHOAL_RESOURCE_EXHAUSTED, "The graph has more than %d nodes", im->o->max_nodes);
    else s = add_node(im, wire_inside(&f));
  }
  im->controls = mem_zalloc(im->g->nodes.n, sizeof *im->controls);
  for (size_t i = 0; !s && i < im->sources.n; i++) s = connect(im, im->g->nodes.at[im->first + i], im->sources.at[i]);
  if (!s && im->g->n_nodes) {
    struct shoal_node **order = mem_zalloc((size_t)im->g->n_nodes, sizeof *order);
    s = graph_topological_order(im->g, order);
    free(order);
  }
  if (!s && im->o->admit)
    s = im->o->admit(im->o->arg, im->g->nodes.n - im->first, wire_left(&whole) + im->most_repeated - im->budget);
  if (!s) take_versions(im->g, was_empty, &versions);
  vec_release(&versions.bad);
  return s;
}

static void undo(struct importing *im) {
  struct shoal_graph *g = im->g;
  for (size_t i = g->nodes.n; i-- > im->first;) graph_remove(g, g->nodes.at[i]);
  g->nodes.n = im->first;
  for (size_t i = 0; i < im->functions.n; i++) function_def_unref(strmap_remove(&g->functions, im->functions.at[i]));
  for (size_t i = 0; i < im->gradients.n; i++) free(strmap_remove(&g->gradient_functions, im->gradients.at[i]));
}

/* Whoever gives repeated values a budget has no more for the rest. */
static shoal_status check_parts(const struct import_options *o, struct wire graph_def) {
  if (!o->max_repeated) return NULL;
  size_t bytes = import_parts_bytes(graph_def);
  if (bytes <= o->max_repeated) return NULL;
  return STATUS(SHOAL_RESOURCE_EXHAUSTED,
                "the graph's lists and functions would take %zu bytes, and there is room for %zu (--max_graph_bytes)",
                bytes, o->max_repeated);
}

shoal_status graph_import(struct shoal_graph *g, const void *data, size_t size, const struct import_options *options,
                          int *added) {
  static const struct import_options none;
  struct importing im = {.g = g, .o = options ? options : &none, .first = g->nodes.n};
  im.budget = im.most_repeated = im.o->max_repeated ? MIN(im.o->max_repeated, BUDGET) : BUDGET;
  shoal_status s = NULL;
  if (im.o->prefix && *im.o->prefix) {
    text_adds(&im.name, im.o->prefix);
    if (im.name.at[im.name.n - 1] != '/') text_addc(&im.name, '/');
    im.prefix_n = im.name.n;
    if (!node_name_valid(im.o->prefix, im.o->internal))
      s = INVALID("Imported node name prefix '%s' would lead to invalid node names", im.o->prefix);
  }
  if (!s) s = check_parts(im.o, wire_from(data, size));
  struct effort *outer = g->effort;
  if (im.o->effort) g->effort = im.o->effort;
  if (!s) s = import(&im, wire_from(data, size));
  g->effort = outer;
  if (s) undo(&im);
  else if (added) *added = (int)im.first;
  for (size_t i = 0; i < im.functions.n; i++) free(im.functions.at[i]);
  for (size_t i = 0; i < im.gradients.n; i++) free(im.gradients.at[i]);
  vec_release(&im.functions);
  vec_release(&im.gradients);
  vec_release(&im.sources);
  node_def_release(&im.def);
  text_release(&im.name);
  free(im.controls);
  return s;
}

shoal_status shoal_graph_import(shoal_graph *g, const void *data, size_t size, const char *prefix) {
  GIVEN(g);
  GIVEN_ARRAY(data, (int64_t)(size > 0));
  struct import_options o = {.prefix = prefix};
  TRY(graph_import(g, data, size, &o, NULL));
  /* For shoal_out_shape and for gradients, which are simpler where shapes are known. What does not fit says so when it
   * runs. */
  shoal_status_free(graph_infer_shapes(g));
  return NULL;
}
