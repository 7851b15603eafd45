/* GraphDef out: the inverse of import.c, which has the table of fields. Functions go out as the bytes they came in. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/wire.h"
#include "graph/function.h"
#include "graph/import.h"
#include "shoal/graph.h"

static void put_nonempty(struct text *out, uint32_t field, const char *s) {
  if (*s) wire_put_str(out, field, s);
}

static bool is_default(const struct op *op, const struct named_attr *a) {
  const struct op_attr *def = op_attr_find(op, a->name);
  return def && def->has_default && attr_equal(&def->dflt, &a->value);
}

static shoal_status put_attrs(const struct shoal_node *n, const struct export_options *o, struct text *out) {
  for (int i = 0; i < n->n_attrs; i++)
    if (!o->strip_defaults || !is_default(n->op, &n->attrs[i])) TRY(attr_proto_encode_map(&n->attrs[i], 1, 5, out));
  return NULL;
}

shoal_status node_export(const struct shoal_node *n, const struct export_options *o, struct text *out) {
  static const struct export_options none;
  if (!o) o = &none;
  put_nonempty(out, 1, n->name);
  put_nonempty(out, 2, n->op->name);
  for (int i = 0; i < n->n_in; i++) {
    shoal_out from = n->in[i];
    if (!from.node) return INVALID("Input %d of {{node %s}} is not connected", i, n->name);
    size_t at = wire_begin(out, 3);
    text_adds(out, from.node->name);
    if (from.index) text_addf(out, ":%d", from.index);
    wire_end(out, at);
  }
  for (size_t i = 0; i < n->control.n; i++) {
    size_t at = wire_begin(out, 3);
    text_addc(out, '^');
    text_adds(out, n->control.at[i]->name);
    wire_end(out, at);
  }
  put_nonempty(out, 4, o->assigned && n->assigned ? n->assigned : n->device);
  TRY(put_attrs(n, o, out));
  if (n->original_names.n || n->original_funcs.n) {
    size_t at = wire_begin(out, 6);
    for (size_t i = 0; i < n->original_names.n; i++) wire_put_str(out, 1, n->original_names.at[i]);
    for (size_t i = 0; i < n->original_funcs.n; i++) wire_put_str(out, 2, n->original_funcs.at[i]);
    wire_end(out, at);
  }
  if (n->full_type) wire_put_bytes(out, 7, (char *)n->full_type + sizeof(size_t), *(size_t *)n->full_type);
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

static void put_library(const struct shoal_graph *g, struct text *out) {
  size_t at = wire_begin(out, 2);
  const char **names = sorted_keys(&g->functions);
  for (size_t i = 0; i < g->functions.n; i++) {
    const struct function_def *f = graph_function(g, names[i]);
    wire_put_bytes(out, 1, f->bytes, f->size);
  }
  free(names);
  names = sorted_keys(&g->gradient_functions);
  for (size_t i = 0; i < g->gradient_functions.n; i++) {
    size_t pair = wire_begin(out, 2);
    wire_put_str(out, 1, names[i]);
    wire_put_str(out, 2, strmap_get(&g->gradient_functions, names[i]));
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
    size_t at = wire_begin(out, 1);
    TRY(node_export(g->nodes.at[i], o, out));
    wire_end(out, at);
  }
  if (!o->no_library && (g->functions.n || g->gradient_functions.n)) put_library(g, out);
  size_t at = wire_begin(out, 4);
  if (g->producer) wire_put_uint(out, 1, (uint64_t)(int64_t)g->producer);
  if (g->min_consumer) wire_put_uint(out, 2, (uint64_t)(int64_t)g->min_consumer);
  for (size_t i = 0; i < g->bad_consumers.n; i++) wire_put_uint(out, 3, (uint64_t)(int64_t)g->bad_consumers.at[i]);
  wire_end(out, at);
  return NULL;
}

/* ---- signatures ---- */

static void put_args(const struct op_arg *args, int n, uint32_t field, struct text *out) {
  for (int i = 0; i < n; i++) {
    size_t at = wire_begin(out, field);
    wire_put_str(out, 1, args[i].name);
    if (args[i].type) wire_put_uint(out, 3, (uint64_t)args[i].type);
    if (args[i].type_attr) wire_put_str(out, 4, args[i].type_attr);
    if (args[i].number_attr) wire_put_str(out, 5, args[i].number_attr);
    if (args[i].list_attr) wire_put_str(out, 6, args[i].list_attr);
    if (args[i].is_ref) wire_put_uint(out, 16, 1);
    wire_end(out, at);
  }
}

static shoal_status put_allowed(const struct op_attr *a, struct text *out) {
  struct attr list = attr_list(a->strings ? ATTR_STRING : ATTR_TYPE);
  for (int t = 1; t < DTYPE_COUNT; t++)
    if (a->types >> t & 1) attr_list_add(&list, attr_type(t));
  for (int i = 0; i < a->n_strings; i++) attr_list_add(&list, attr_string(a->strings[i], strlen(a->strings[i])));
  size_t at = wire_begin(out, 7);
  shoal_status s = attr_proto_encode(&list, out);
  wire_end(out, at);
  attr_release(&list);
  return s;
}

shoal_status op_export(const struct op *op, struct text *out) {
  wire_put_str(out, 1, op->name);
  put_args(op->in, op->n_in, 2, out);
  put_args(op->out, op->n_out, 3, out);
  for (int i = 0; i < op->n_attrs; i++) {
    const struct op_attr *a = &op->attrs[i];
    struct attr kind = {.kind = a->kind, .of = a->of};
    size_t at = wire_begin(out, 4);
    wire_put_str(out, 1, a->name);
    wire_put_str(out, 2, attr_kind_name(&kind));
    if (a->has_default) {
      size_t value = wire_begin(out, 3);
      TRY(attr_proto_encode(&a->dflt, out));
      wire_end(out, value);
    }
    if (a->has_minimum) {
      wire_put_uint(out, 5, 1);
      if (a->minimum) wire_put_uint(out, 6, (uint64_t)a->minimum);
    }
    if (a->types || a->strings) TRY(put_allowed(a, out));
    wire_end(out, at);
  }
  if (op->flags & OP_AGGREGATE) wire_put_uint(out, 16, 1);
  if (op->flags & OP_STATEFUL) wire_put_uint(out, 17, 1);
  if (op->flags & OP_COMMUTATIVE) wire_put_uint(out, 18, 1);
  if (op->flags & OP_UNINITIALIZED_OK) wire_put_uint(out, 19, 1);
  return NULL;
}

shoal_status shoal_graph_export(const shoal_graph *g, shoal_bytes *out) {
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
