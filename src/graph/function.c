/* The function library of a graph: reading FunctionDefs.
 *
 * The body is parsed when the function comes in, and checked against the ops only when it is instantiated: a
 * library often holds functions that nobody calls. */
#include "graph/function.h"

#include <stdlib.h>
#include <string.h>

#include "proto/graph.wire.h"
#include "tensor/tensor_proto.h"

static struct chars slice_of(const struct wire_field *f) { return (struct chars){(const char *)f->data, f->size}; }
static shoal_status copy_slice(struct chars s, char **out) {
  free(*out);
  *out = mem_try_strndup(s.n ? s.at : "", s.n);
  return *out ? NULL : NO_MEMORY(s.n, "a function's names");
}

/* ---- the signature ---- */

struct arg_text {
  struct chars name, type_attr, number_attr, list_attr;
  int type;
  bool is_ref;
};

static shoal_status parse_arg(struct wire w, struct arg_text *a) {
  struct wire_field f;
  enum wire_step r;
  *a = (struct arg_text){0};
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == OpDef_ArgDef_type) a->type = (int)f.value;
    if (f.tag == OpDef_ArgDef_is_ref) a->is_ref = f.value != 0;
    if (f.tag == OpDef_ArgDef_name) a->name = slice_of(&f);
    else if (f.tag == OpDef_ArgDef_type_attr) a->type_attr = slice_of(&f);
    else if (f.tag == OpDef_ArgDef_number_attr) a->number_attr = slice_of(&f);
    else if (f.tag == OpDef_ArgDef_type_list_attr) a->list_attr = slice_of(&f);
  }
  return r == WIRE_BROKEN ? INVALID("Malformed ArgDef") : NULL;
}

static bool kind_from_name(struct chars s, enum attr_kind *out) {
  for (enum attr_kind k = ATTR_STRING; k <= ATTR_FUNC; k++) {
    struct attr a = {.kind = k};
    if (!slice_is(s, attr_kind_name(&a))) continue;
    *out = k;
    return true;
  }
  return false;
}

static void allow(struct op_attr *a, const struct attr *allowed) {
  if (allowed->kind != ATTR_LIST) return;
  for (size_t i = 0; i < allowed->list.n; i++) {
    const struct attr *v = &allowed->list.at[i];
    if (v->kind == ATTR_TYPE && v->type > 0 && v->type < DTYPE_COUNT) a->types |= 1ull << v->type;
    if (v->kind != ATTR_STRING) continue;
    a->strings = mem_realloc(a->strings, (size_t)a->n_strings + 1, sizeof *a->strings);
    a->strings[a->n_strings++] = mem_strndup(v->s.data, v->s.n);
  }
}

static shoal_status parse_attr_def(struct wire w, size_t *budget, struct op_attr *a) {
  struct wire_field f;
  enum wire_step r;
  struct chars type = {0};
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == OpDef_AttrDef_has_minimum) a->has_minimum = f.value != 0;
    if (f.tag == OpDef_AttrDef_minimum) a->minimum = (int64_t)f.value;
    if (f.tag == OpDef_AttrDef_name) {
      TRY(copy_slice(slice_of(&f), &a->name));
    } else if (f.tag == OpDef_AttrDef_type) {
      type = slice_of(&f);
    } else if (f.tag == OpDef_AttrDef_default_value) {
      attr_release(&a->dflt);
      TRY(attr_proto_decode(wire_inside(&f), budget, 0, &a->dflt));
      a->has_default = true;
    } else if (f.tag == OpDef_AttrDef_allowed_values) {
      struct attr allowed;
      TRY(attr_proto_decode(wire_inside(&f), budget, 0, &allowed));
      allow(a, &allowed);
      attr_release(&allowed);
    }
  }
  if (r == WIRE_BROKEN) return INVALID("Malformed AttrDef");
  bool list = type.n > 6 && !memcmp(type.at, "list(", 5) && type.at[type.n - 1] == ')';
  if (list) type = (struct chars){type.at + 5, type.n - 6};
  enum attr_kind kind;
  if (!a->name || !kind_from_name(type, &kind))
    return INVALID("Attr '%s' of a function has an unknown type '%s'", a->name ? a->name : "", SLICE_CSTR(type));
  a->kind = list ? ATTR_LIST : kind;
  a->of = list ? kind : ATTR_NONE;
  return NULL;
}

/* The attribute of that name and kind, for arguments that refer to one. */
static const char *attr_for(const struct op *op, struct chars name, enum attr_kind kind, enum attr_kind of) {
  for (int i = 0; i < op->n_attrs; i++)
    if (slice_is(name, op->attrs[i].name) && op->attrs[i].kind == kind && (kind != ATTR_LIST || op->attrs[i].of == of))
      return op->attrs[i].name;
  return NULL;
}

static shoal_status make_arg(const struct op *op, const struct arg_text *t, struct op_arg *a) {
  TRY(copy_slice(t->name, &a->name));
  a->is_ref = t->is_ref;
  bool bad = false;
  if (t->number_attr.n) bad |= !(a->number_attr = attr_for(op, t->number_attr, ATTR_INT, ATTR_NONE));
  if (t->list_attr.n) bad |= !(a->list_attr = attr_for(op, t->list_attr, ATTR_LIST, ATTR_TYPE));
  else if (t->type_attr.n) bad |= !(a->type_attr = attr_for(op, t->type_attr, ATTR_TYPE, ATTR_NONE));
  else bad |= !dtype_valid(dtype_base(a->type = t->type));
  return bad ? INVALID("Argument '%s' of function '%s' has no type", a->name, op->name) : NULL;
}

static shoal_status parse_signature(struct function_def *d, struct wire whole, size_t *budget) {
  struct op *op = d->sig = mem_zalloc(1, sizeof *op);
  op->row = &d->row;
  op->family = "function";
  VEC(struct op_attr) attrs = {0};
  VEC(struct arg_text) in = {0}, out = {0};
  struct wire w = whole;
  struct wire_field f;
  enum wire_step r = WIRE_END;
  shoal_status s = NULL;
  while (!s && (r = wire_next(&w, &f)) == WIRE_FIELD) {
    struct arg_text a;
    if (f.type == WIRE_VARINT && f.value) {
      if (f.tag == OpDef_is_aggregate) op->flags |= OP_AGGREGATE;
      else if (f.tag == OpDef_is_stateful) op->flags |= OP_STATEFUL;
      else if (f.tag == OpDef_is_commutative) op->flags |= OP_COMMUTATIVE;
      else if (f.tag == OpDef_allows_uninitialized_input) op->flags |= OP_UNINITIALIZED_OK;
    }
    if (f.tag == OpDef_name) {
      s = copy_slice(slice_of(&f), &d->name);
    } else if (f.tag == OpDef_input_arg) {
      s = parse_arg(wire_inside(&f), &a);
      vec_push(&in, a);
    } else if (f.tag == OpDef_output_arg) {
      s = parse_arg(wire_inside(&f), &a);
      vec_push(&out, a);
    } else if (f.tag == OpDef_attr) {
      vec_push(&attrs, (struct op_attr){0});
      s = parse_attr_def(wire_inside(&f), budget, &vec_last(&attrs));
    }
  }
  if (!s && r == WIRE_BROKEN) s = INVALID("Malformed signature of a function");
  if (!s && (!d->name || !*d->name)) s = INVALID("A function has no name");
  if (d->name) op->name = d->row.name = d->name;
  d->row.flags = op->flags;
  op->attrs = attrs.at;
  op->n_attrs = (int)attrs.n;
  op->in = mem_zalloc(in.n, sizeof *op->in);
  op->out = mem_zalloc(out.n, sizeof *op->out);
  for (size_t i = 0; i < in.n && !s; i++) s = make_arg(op, &in.at[i], &op->in[op->n_in++]);
  for (size_t i = 0; i < out.n && !s; i++) s = make_arg(op, &out.at[i], &op->out[op->n_out++]);
  vec_release(&in);
  vec_release(&out);
  return s;
}

/* ---- the rest of a definition ---- */

static shoal_status parse_pair(struct wire w, struct chars *key, struct chars *value) {
  struct wire_field f;
  enum wire_step r;
  *key = *value = (struct chars){0};
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == FunctionDef_RetEntry_key) *key = slice_of(&f);
    else if (f.tag == FunctionDef_RetEntry_value) *value = slice_of(&f);
  }
  return r == WIRE_BROKEN ? INVALID("Malformed FunctionDef") : NULL;
}

static shoal_status parse_arg_attrs(struct wire w, size_t *budget, struct arg_attrs *out) {
  *out = (struct arg_attrs){0};
  struct wire_field f, g;
  enum wire_step r;
  VEC(struct named_attr) v = {0};
  shoal_status s = NULL;
  while (!s && (r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == FunctionDef_ArgAttrEntry_key) out->arg = (uint32_t)f.value;
    if (f.tag != FunctionDef_ArgAttrEntry_value) continue;
    struct wire inner = wire_inside(&f);
    while (!s && (r = wire_next(&inner, &g)) == WIRE_FIELD) {
      struct named_attr a;
      if (g.tag != FunctionDef_ArgAttrs_attr) continue;
      s = named_attr_decode(wire_inside(&g), budget, 0, &a);
      if (!s) vec_push(&v, a);
    }
    if (!s && r == WIRE_BROKEN) s = INVALID("Malformed FunctionDef");
  }
  out->attrs = v.at;
  out->n = (int)v.n;
  return s;
}

static shoal_status set_ret(struct function_def *d, struct chars name, struct chars from) {
  for (int i = 0; i < d->sig->n_out; i++)
    if (slice_is(name, d->sig->out[i].name)) d->rets[i] = from;
  return NULL;
}

static shoal_status parse_rest(struct function_def *d, size_t *budget) {
  VEC(struct node_def) nodes = {0};
  VEC(struct control_ret) controls = {0};
  VEC(struct named_attr) attrs = {0};
  VEC(struct arg_attrs) arg_attrs = {0};
  struct wire w = wire_from(d->bytes, d->size);
  struct wire_field f;
  enum wire_step r = WIRE_END;
  shoal_status s = NULL;
  while (!s && (r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.type != WIRE_BYTES) continue;
    struct wire in = wire_inside(&f);
    struct chars key, value;
    if (f.tag == FunctionDef_node_def) {
      vec_push(&nodes, (struct node_def){0});
      s = node_def_parse(in, budget, &vec_last(&nodes));
    } else if (f.tag == FunctionDef_ret) {
      s = parse_pair(in, &key, &value);
      if (!s) s = set_ret(d, key, value);
    } else if (f.tag == FunctionDef_attr) {
      struct named_attr a;
      s = named_attr_decode(in, budget, 0, &a);
      if (!s) vec_push(&attrs, a);
    } else if (f.tag == FunctionDef_control_ret) {
      s = parse_pair(in, &key, &value);
      if (!s) vec_push(&controls, (struct control_ret){key, value});
    } else if (f.tag == FunctionDef_arg_attr) {
      struct arg_attrs a;
      s = parse_arg_attrs(in, budget, &a);
      vec_push(&arg_attrs, a);
    }
  }
  if (!s && r == WIRE_BROKEN) s = INVALID("Malformed FunctionDef");
  d->nodes = nodes.at;
  d->n_nodes = (int)nodes.n;
  d->control_rets = controls.at;
  d->n_control_rets = (int)controls.n;
  d->attrs = attrs.at;
  d->n_attrs = (int)attrs.n;
  d->arg_attrs = arg_attrs.at;
  d->n_arg_attrs = (int)arg_attrs.n;
  return s;
}

shoal_status function_def_decode(const void *data, size_t size, size_t *budget, struct function_def **out) {
  struct function_def *d = mem_zalloc(1, sizeof *d);
  ref_init(&d->refs, 1);
  d->bytes = mem_try_strndup(data, size);
  d->size = size;
  struct wire signature = {0};
  shoal_status s = d->bytes ? NULL : NO_MEMORY(size, "a function");
  if (!s && !find_FunctionDef_signature(wire_from(d->bytes, size), &signature))
    s = INVALID("A FunctionDef has no signature");
  if (!s) s = parse_signature(d, signature, budget);
  if (!s) {
    d->rets = mem_zalloc((size_t)d->sig->n_out, sizeof *d->rets);
    s = parse_rest(d, budget);
  }
  for (int i = 0; !s && i < d->sig->n_out; i++)
    if (!d->rets[i].n) s = INVALID("Output %s is missing", d->sig->out[i].name);
  if (s) {
    if (d->name) s = status_suffix(s, ", in function '%.200s'", d->name);
    function_def_unref(d);
    return s;
  }
  *out = d;
  return NULL;
}

struct function_def *function_def_ref(struct function_def *f) {
  ref_take(&f->refs);
  return f;
}

static void release_named(struct named_attr *a, int n) {
  for (int i = 0; i < n; i++) {
    free(a[i].name);
    attr_release(&a[i].value);
  }
  free(a);
}

void function_def_unref(struct function_def *f) {
  if (!f || !ref_drop(&f->refs)) return;
  for (int i = 0; i < f->n_nodes; i++) node_def_release(&f->nodes[i]);
  for (int i = 0; i < f->n_arg_attrs; i++) release_named(f->arg_attrs[i].attrs, f->arg_attrs[i].n);
  release_named(f->attrs, f->n_attrs);
  free(f->nodes);
  free(f->rets);
  free(f->control_rets);
  free(f->arg_attrs);
  op_free(f->sig);
  free(f->bytes);
  free(f->name);
  free(f);
}

/* ---- the library ---- */

struct function_def *graph_function(const struct shoal_graph *g, const char *name) {
  return strmap_get(&g->functions, name);
}

const struct op *graph_op(const struct shoal_graph *g, const char *name) {
  const struct op *op = op_find(name);
  if (op && !(op->flags & OP_OWN)) return op;
  const struct function_def *f = graph_function(g, name);
  return f ? f->sig : NULL;
}

shoal_status graph_add_function(struct shoal_graph *g, struct function_def *f) {
  const struct function_def *old = graph_function(g, f->name);
  if (!old) {
    if (op_find(f->name)) {
      shoal_status s = INVALID("Cannot add function '%s' because an op with the same name already exists.", f->name);
      function_def_unref(f);
      return s;
    }
    strmap_put(&g->functions, f->name, f);
    return NULL;
  }
  bool same = old->size == f->size && !memcmp(old->bytes, f->bytes, f->size);
  /* Maps may be serialized in any order: the same parts in another order are the same function. */
  if (!same)
    same = old->size == f->size && old->n_nodes == f->n_nodes && old->sig->n_in == f->sig->n_in &&
           old->sig->n_out == f->sig->n_out;
  shoal_status s = same ? NULL
                        : INVALID(
                              "Cannot add function '%s' because a different function with the same name already "
                              "exists.",
                              f->name);
  function_def_unref(f);
  return s;
}
