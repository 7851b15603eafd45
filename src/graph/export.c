/* GraphDef out: the inverse of import.c. Functions go out as the bytes they came in. */
#include <stdlib.h>
#include <string.h>

#include "base/given.h"
#include "base/mem.h"
#include "base/wire.h"
#include "graph/function.h"
#include "graph/function_define.h"
#include "graph/import.h"
#include "proto/graph.wire.h"
#include "proto/types.wire.h"
#include "shoal/graph.h"

static void put_nonempty(struct text *out, uint32_t tag, const char *s) {
  if (*s) wire_add_str(out, tag, s);
}

static bool is_default(const struct op *op, const struct named_attr *a) {
  const struct op_attr *def = op_attr_find(op, a->name);
  return def && def->has_default && attr_equal(&def->dflt, &a->value);
}

static shoal_status put_attrs(const struct shoal_node *n, const struct export_options *o, struct text *out) {
  for (int i = 0; i < n->n_attrs; i++)
    if (!o->strip_defaults || !is_default(n->op, &n->attrs[i]))
      TRY(attr_proto_encode_map(&n->attrs[i], 1, NodeDef_attr, out));
  return NULL;
}

static void put_source(shoal_out from, bool in_function, struct text *out) {
  if (in_function) {
    function_put_source(from, out);
    return;
  }
  text_adds(out, from.node->name);
  if (from.index) text_addf(out, ":%d", from.index);
}

shoal_status node_export(const struct shoal_node *n, const struct export_options *o, struct text *out) {
  static const struct export_options none;
  if (!o) o = &none;
  put_nonempty(out, NodeDef_name, n->name);
  put_nonempty(out, NodeDef_op, n->op->name);
  for (int i = 0; i < n->n_in; i++) {
    shoal_out from = n->in[i];
    if (!from.node) return INVALID("Input %d of {{node %s}} is not connected", i, n->name);
    size_t at = wire_open(out, NodeDef_input);
    put_source(from, o->in_function, out);
    wire_end(out, at);
  }
  for (size_t i = 0; i < n->control.n; i++) {
    size_t at = wire_open(out, NodeDef_input);
    text_addc(out, '^');
    text_adds(out, n->control.at[i]->name);
    wire_end(out, at);
  }
  put_nonempty(out, NodeDef_device, o->assigned && n->assigned ? n->assigned : n->device);
  TRY(put_attrs(n, o, out));
  if (n->original_names.n || n->original_funcs.n) {
    size_t at = begin_NodeDef_experimental_debug_info(out);
    for (size_t i = 0; i < n->original_names.n; i++)
      put_NodeDef_ExperimentalDebugInfo_original_node_names(out, n->original_names.at[i]);
    for (size_t i = 0; i < n->original_funcs.n; i++)
      put_NodeDef_ExperimentalDebugInfo_original_func_names(out, n->original_funcs.at[i]);
    wire_end(out, at);
  }
  if (n->full_type)
    put_NodeDef_experimental_type_n(out, (char *)n->full_type + sizeof(size_t), *(size_t *)n->full_type);
  return NULL;
}

static int by_key(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The keys of a map in order of name: maps have none of their own, and files should not differ from run to run. */
static const char **sorted_keys(const struct strmap *m) {
  const char **keys = mem_zalloc(m->n, sizeof *keys);
  size_t n = 0;
  const char *key;
  for (size_t i = 0; strmap_next(m, &i, &key, NULL);) keys[n++] = key;
  if (n) qsort(keys, n, sizeof *keys, by_key);
  return keys;
}

void graph_export_library(const struct shoal_graph *g, struct text *out) {
  if (!g->functions.n && !g->gradient_functions.n) return;
  size_t at = begin_GraphDef_library(out);
  const char **names = sorted_keys(&g->functions);
  for (size_t i = 0; i < g->functions.n; i++) {
    const struct function_def *f = graph_function(g, names[i]);
    put_FunctionDefLibrary_function_n(out, f->bytes, f->size);
  }
  free(names);
  names = sorted_keys(&g->gradient_functions);
  for (size_t i = 0; i < g->gradient_functions.n; i++) {
    size_t pair = begin_FunctionDefLibrary_gradient(out);
    put_GradientDef_function_name(out, names[i]);
    put_GradientDef_gradient_func(out, strmap_get(&g->gradient_functions, names[i]));
    wire_end(out, pair);
  }
  free(names);
  wire_end(out, at);
}

shoal_status graph_export(const struct shoal_graph *g, const struct export_options *o, struct text *out) {
  static const struct export_options none;
  if (!o) o = &none;
  for (size_t i = 0; i < g->nodes.n; i++) {
    if (!g->nodes.at[i]) continue;
    size_t at = begin_GraphDef_node(out);
    TRY(node_export(g->nodes.at[i], o, out));
    wire_end(out, at);
  }
  if (!o->no_library) graph_export_library(g, out);
  size_t at = begin_GraphDef_versions(out);
  if (g->producer) put_VersionDef_producer(out, g->producer);
  if (g->min_consumer) put_VersionDef_min_consumer(out, g->min_consumer);
  for (size_t i = 0; i < g->bad_consumers.n; i++) put_VersionDef_bad_consumers(out, g->bad_consumers.at[i]);
  wire_end(out, at);
  return NULL;
}

/* ---- signatures ---- */

static void put_args(const struct op_arg *args, int n, uint32_t tag, struct text *out) {
  for (int i = 0; i < n; i++) {
    size_t at = wire_open(out, tag);
    put_OpDef_ArgDef_name(out, args[i].name);
    if (args[i].type) put_OpDef_ArgDef_type(out, args[i].type);
    if (args[i].type_attr) put_OpDef_ArgDef_type_attr(out, args[i].type_attr);
    if (args[i].number_attr) put_OpDef_ArgDef_number_attr(out, args[i].number_attr);
    if (args[i].list_attr) put_OpDef_ArgDef_type_list_attr(out, args[i].list_attr);
    if (args[i].is_ref) put_OpDef_ArgDef_is_ref(out, 1);
    wire_end(out, at);
  }
}

static shoal_status put_allowed(const struct op_attr *a, struct text *out) {
  struct attr list = attr_list(a->strings ? ATTR_STRING : ATTR_TYPE);
  for (int t = 1; t < DTYPE_COUNT; t++)
    if (a->types >> t & 1) attr_list_add(&list, attr_type(t));
  for (int i = 0; i < a->n_strings; i++) attr_list_add(&list, attr_string(a->strings[i], strlen(a->strings[i])));
  size_t at = begin_OpDef_AttrDef_allowed_values(out);
  shoal_status s = attr_proto_encode(&list, out);
  wire_end(out, at);
  attr_release(&list);
  return s;
}

shoal_status op_export(const struct op *op, struct text *out) {
  put_OpDef_name(out, op->name);
  put_args(op->in, op->n_in, OpDef_input_arg, out);
  put_args(op->out, op->n_out, OpDef_output_arg, out);
  for (int i = 0; i < op->n_attrs; i++) {
    const struct op_attr *a = &op->attrs[i];
    struct attr kind = {.kind = a->kind, .of = a->of};
    size_t at = begin_OpDef_attr(out);
    put_OpDef_AttrDef_name(out, a->name);
    put_OpDef_AttrDef_type(out, attr_kind_name(&kind));
    if (a->has_default) {
      size_t value = begin_OpDef_AttrDef_default_value(out);
      TRY(attr_proto_encode(&a->dflt, out));
      wire_end(out, value);
    }
    if (a->has_minimum) {
      put_OpDef_AttrDef_has_minimum(out, 1);
      if (a->minimum) put_OpDef_AttrDef_minimum(out, a->minimum);
    }
    if (a->types || a->strings) TRY(put_allowed(a, out));
    wire_end(out, at);
  }
  if (op->flags & OP_AGGREGATE) put_OpDef_is_aggregate(out, 1);
  if (op->flags & OP_STATEFUL) put_OpDef_is_stateful(out, 1);
  if (op->flags & OP_COMMUTATIVE) put_OpDef_is_commutative(out, 1);
  if (op->flags & OP_UNINITIALIZED_OK) put_OpDef_allows_uninitialized_input(out, 1);
  return NULL;
}

shoal_status shoal_graph_export(const shoal_graph *g, shoal_bytes *out) {
  GIVEN(g);
  GIVEN(out);
  *out = (shoal_bytes){0};
  struct text t = {0};
  shoal_status s = graph_export(g, NULL, &t);
  if (s) {
    text_release(&t);
    return s;
  }
  out->size = t.n;
  out->data = text_take(&t);
  return NULL;
}
