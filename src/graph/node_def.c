/* Reading and writing NodeDef and AttrValue. Lists of numbers are read packed or not, and written packed. */
#include "graph/node_def.h"

#include <stdlib.h>
#include <string.h>

#include "proto/graph.wire.h"
#include "tensor/tensor_proto.h"

static struct chars slice_of(const struct wire_field *f) { return (struct chars){(const char *)f->data, f->size}; }

/* Kinds by the numbers of their fields, in an AttrValue and in its list. */
enum { KINDS = (AttrValue_func >> 3) + 1 };
static const enum attr_kind kind_of[KINDS] = {
    [AttrValue_list >> 3] = ATTR_LIST,   [AttrValue_s >> 3] = ATTR_STRING,
    [AttrValue_i >> 3] = ATTR_INT,       [AttrValue_f >> 3] = ATTR_FLOAT,
    [AttrValue_b >> 3] = ATTR_BOOL,      [AttrValue_type >> 3] = ATTR_TYPE,
    [AttrValue_shape >> 3] = ATTR_SHAPE, [AttrValue_tensor >> 3] = ATTR_TENSOR,
    [AttrValue_func >> 3] = ATTR_FUNC,   [AttrValue_placeholder >> 3] = ATTR_PLACEHOLDER,
};
static const enum attr_kind kind_in_list[KINDS] = {
    [AttrValue_ListValue_s >> 3] = ATTR_STRING,      [AttrValue_ListValue_i >> 3] = ATTR_INT,
    [AttrValue_ListValue_f >> 3] = ATTR_FLOAT,       [AttrValue_ListValue_b >> 3] = ATTR_BOOL,
    [AttrValue_ListValue_type >> 3] = ATTR_TYPE,     [AttrValue_ListValue_shape >> 3] = ATTR_SHAPE,
    [AttrValue_ListValue_tensor >> 3] = ATTR_TENSOR, [AttrValue_ListValue_func >> 3] = ATTR_FUNC,
};

static enum wire_type wire_of_kind(enum attr_kind k) {
  return k == ATTR_INT || k == ATTR_BOOL || k == ATTR_TYPE ? WIRE_VARINT : k == ATTR_FLOAT ? WIRE_FIXED32 : WIRE_BYTES;
}

static uint32_t number_of(const enum attr_kind *kinds, enum attr_kind k) {
  uint32_t i = 1;
  while (i < KINDS && kinds[i] != k) i++;
  return i;
}

static shoal_status decode_func(struct wire w, size_t *budget, int depth, struct attr *out) {
  if (depth > ATTR_MAX_DEPTH) return INVALID("Function attributes are nested more than %d deep", ATTR_MAX_DEPTH);
  struct chars name = {0};
  VEC(struct named_attr) attrs = {0};
  struct wire_field f;
  enum wire_step r = WIRE_END;
  shoal_status s = NULL;
  while (!s && (r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == NameAttrList_name) name = slice_of(&f);
    if (f.tag != NameAttrList_attr) continue;
    struct named_attr a;
    s = named_attr_decode(wire_inside(&f), budget, depth + 1, &a);
    if (!s) vec_push(&attrs, a);
  }
  if (!s && r == WIRE_BROKEN) s = INVALID("Malformed NameAttrList");
  char *text = mem_try_strndup(name.n ? name.at : "", name.n);
  if (!text && !s) s = NO_MEMORY(name.n, "a function's name");
  *out = attr_func(text ? text : "");
  free(text);
  out->func->attrs = attrs.at;
  out->func->n_attrs = (int)attrs.n;
  if (s) attr_release(out);
  return s;
}

/* One value of a kind; numbers are in f->value, the rest in f's bytes. */
static shoal_status decode_one(enum attr_kind kind, const struct wire_field *f, size_t *budget, int depth,
                               struct attr *out) {
  switch (kind) {
    case ATTR_STRING:
    case ATTR_PLACEHOLDER: {
      char *text = mem_try_strndup((const char *)f->data, f->size);
      if (!text) return NO_MEMORY(f->size, "an attribute");
      *out = (struct attr){.kind = kind, .s = {text, f->size}};
      return NULL;
    }
    case ATTR_INT: *out = attr_int((int64_t)f->value); return NULL;
    case ATTR_FLOAT: *out = attr_float(wire_float(f)); return NULL;
    case ATTR_BOOL: *out = attr_bool(f->value != 0); return NULL;
    case ATTR_TYPE: *out = attr_type((int)f->value); return NULL;
    case ATTR_SHAPE: {
      struct shape shape;
      TRY(shape_proto_decode(f->data, f->size, &shape));
      *out = attr_shape(&shape);
      return NULL;
    }
    case ATTR_TENSOR: {
      struct tensor t;
      TRY(tensor_proto_decode_within(f->data, f->size, budget, &t));
      *out = attr_tensor(&t);
      tensor_release(&t);
      return NULL;
    }
    case ATTR_FUNC: return decode_func(wire_inside(f), budget, depth, out);
    default: return INVALID("Malformed AttrValue");
  }
}

static shoal_status add_packed(struct attr *list, enum attr_kind kind, struct wire w) {
  struct wire_field f = {0};
  struct attr a;
  while (w.at < w.end) {
    if (kind == ATTR_FLOAT) {
      if (wire_left(&w) < 4) return INVALID("Malformed list of floats in an AttrValue");
      uint32_t bits;
      memcpy(&bits, w.at, 4);
      f.value = bits;
      w.at += 4;
    } else if (!wire_get_varint(&w, &f.value)) {
      return INVALID("Malformed list of numbers in an AttrValue");
    }
    TRY(decode_one(kind, &f, NULL, 0, &a));
    attr_list_add(list, a);
  }
  return NULL;
}

static shoal_status decode_list(struct wire w, size_t *budget, int depth, struct attr *out) {
  *out = attr_list(ATTR_NONE);
  struct wire_field f;
  enum wire_step r = WIRE_END;
  shoal_status s = NULL;
  while (!s && (r = wire_next(&w, &f)) == WIRE_FIELD) {
    enum attr_kind kind = f.number < KINDS ? kind_in_list[f.number] : ATTR_NONE;
    if (kind == ATTR_NONE) continue;
    if (out->list.n && out->of != kind) {
      s = INVALID("A list in an AttrValue holds values of two kinds");
    } else if (f.type == wire_of_kind(kind)) {
      struct attr a;
      s = decode_one(kind, &f, budget, depth, &a);
      if (!s) attr_list_add(out, a);
    } else if (f.type == WIRE_BYTES) {
      s = add_packed(out, kind, wire_inside(&f));
    } else {
      s = INVALID("Malformed list in an AttrValue");
    }
  }
  if (!s && r == WIRE_BROKEN) s = INVALID("Malformed list in an AttrValue");
  if (s) attr_release(out);
  return s;
}

shoal_status attr_proto_decode(struct wire w, size_t *budget, int depth, struct attr *out) {
  *out = (struct attr){0};
  struct wire_field f;
  enum wire_step r;
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    enum attr_kind kind = f.number < KINDS ? kind_of[f.number] : ATTR_NONE;
    if (kind == ATTR_NONE) continue;
    struct attr a;
    shoal_status s;
    if (f.type != wire_of_kind(kind)) s = INVALID("Malformed AttrValue");
    else if (kind == ATTR_LIST) s = decode_list(wire_inside(&f), budget, depth, &a);
    else s = decode_one(kind, &f, budget, depth, &a);
    attr_release(out);
    if (s) return s;
    *out = a;
  }
  if (r == WIRE_BROKEN) {
    attr_release(out);
    return INVALID("Malformed AttrValue");
  }
  return NULL;
}

shoal_status named_attr_decode(struct wire w, size_t *budget, int depth, struct named_attr *out) {
  struct chars key = {0};
  struct wire value = {0};
  struct wire_field f;
  enum wire_step r;
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    if (f.tag == NodeDef_AttrEntry_key) key = slice_of(&f);
    else if (f.tag == NodeDef_AttrEntry_value) value = wire_inside(&f);
  }
  if (r == WIRE_BROKEN) return INVALID("Malformed attribute");
  shoal_status s = attr_proto_decode(value, budget, depth, &out->value);
  if (s && key.n && key.at[0] == '_' &&
      shoal_status_code(s) !=
          SHOAL_RESOURCE_EXHAUSTED) { /* notes between passes of a foreign master (shapes with dimensions of -2) */
    shoal_status_free(s);
    s = NULL;
    out->value = (struct attr){.kind = ATTR_NONE};
  }
  if (s) return status_suffix(s, ", in attr '%s'", SLICE_CSTR(key));
  out->name = mem_try_strndup(key.n ? key.at : "", key.n);
  if (out->name) return NULL;
  attr_release(&out->value);
  return NO_MEMORY(key.n, "an attribute's name");
}

/* ---- nodes ---- */

static void parse_debug(struct wire w, struct node_def *d) {
  struct wire_field f;
  while (wire_next(&w, &f) == WIRE_FIELD) {
    if (f.tag == NodeDef_ExperimentalDebugInfo_original_node_names) vec_push(&d->original_names, slice_of(&f));
    else if (f.tag == NodeDef_ExperimentalDebugInfo_original_func_names) vec_push(&d->original_funcs, slice_of(&f));
  }
}

/* A map's later entry of the same key replaces the earlier. */
static void put_attr(struct node_def *d, struct named_attr a) {
  struct attr *old = named_attr_find(d->attrs.at, (int)d->attrs.n, a.name);
  if (!old) {
    vec_push(&d->attrs, a);
    return;
  }
  attr_release(old);
  *old = a.value;
  free(a.name);
}

shoal_status node_def_parse(struct wire w, size_t *budget, struct node_def *d) {
  d->name = d->op = d->device = d->full_type = (struct chars){0};
  vec_clear(&d->in);
  vec_clear(&d->original_names);
  vec_clear(&d->original_funcs);
  struct wire_field f;
  enum wire_step r;
  while ((r = wire_next(&w, &f)) == WIRE_FIELD) {
    switch (f.tag) {
      case NodeDef_name: d->name = slice_of(&f); break;
      case NodeDef_op: d->op = slice_of(&f); break;
      case NodeDef_input: vec_push(&d->in, slice_of(&f)); break;
      case NodeDef_device: d->device = slice_of(&f); break;
      case NodeDef_attr: {
        struct named_attr a;
        shoal_status s = named_attr_decode(wire_inside(&f), budget, 0, &a);
        if (s) return status_suffix(s, " of NodeDef: {{node %s}}", SLICE_CSTR(d->name));
        put_attr(d, a);
        if (d->attrs.n > NODE_MAX_ATTRS)
          return INVALID("A node has at most %d attributes; NodeDef: {{node %s}}", NODE_MAX_ATTRS, SLICE_CSTR(d->name));
        break;
      }
      case NodeDef_experimental_debug_info: parse_debug(wire_inside(&f), d); break;
      case NodeDef_experimental_type: d->full_type = slice_of(&f); break;
    }
  }
  if (r == WIRE_BROKEN) return INVALID("Malformed NodeDef: {{node %s}}", SLICE_CSTR(d->name));
  return NULL;
}

struct named_attr *node_def_take_attrs(struct node_def *d, int *n) {
  struct named_attr *at = d->attrs.at;
  *n = (int)d->attrs.n;
  d->attrs.at = NULL;
  d->attrs.n = d->attrs.cap = 0;
  return at;
}

void node_def_release(struct node_def *d) {
  for (size_t i = 0; i < d->attrs.n; i++) {
    free(d->attrs.at[i].name);
    attr_release(&d->attrs.at[i].value);
  }
  vec_release(&d->attrs);
  vec_release(&d->in);
  vec_release(&d->original_names);
  vec_release(&d->original_funcs);
}

/* ---- writing ---- */

static shoal_status encode_one(const struct attr *a, uint32_t tag, struct text *out) {
  size_t at;
  switch (a->kind) {
    case ATTR_STRING:
    case ATTR_PLACEHOLDER: wire_add_bytes(out, tag, a->s.data, a->s.n); return NULL;
    case ATTR_INT: wire_add_uint(out, tag, (uint64_t)a->i); return NULL;
    case ATTR_FLOAT: wire_add_float(out, tag, a->f); return NULL;
    case ATTR_BOOL: wire_add_uint(out, tag, a->b); return NULL;
    case ATTR_TYPE: wire_add_uint(out, tag, (uint64_t)(int64_t)a->type); return NULL;
    case ATTR_SHAPE:
      at = wire_open(out, tag);
      shape_proto_encode(a->shape, out);
      wire_end(out, at);
      return NULL;
    case ATTR_TENSOR:
      at = wire_open(out, tag);
      TRY(tensor_proto_compact(a->tensor, out));
      wire_end(out, at);
      return NULL;
    case ATTR_FUNC:
      at = wire_open(out, tag);
      put_NameAttrList_name(out, a->func->name);
      TRY(attr_proto_encode_map(a->func->attrs, a->func->n_attrs, NameAttrList_attr, out));
      wire_end(out, at);
      return NULL;
    default: return NULL;
  }
}

static void encode_packed(const struct attr *list, uint32_t tag, struct text *out) {
  size_t at = wire_open(out, tag);
  for (size_t i = 0; i < list->list.n; i++) {
    const struct attr *a = &list->list.at[i];
    if (a->kind == ATTR_FLOAT) text_add(out, (const char *)&a->f, 4);
    else wire_put_varint(out, a->kind == ATTR_INT ? (uint64_t)a->i : a->kind == ATTR_BOOL ? a->b : (uint64_t)a->type);
  }
  wire_end(out, at);
}

shoal_status attr_proto_encode(const struct attr *a, struct text *out) {
  if (a->kind == ATTR_LIST) {
    size_t at = begin_AttrValue_list(out);
    uint32_t tag = wire_tag(number_of(kind_in_list, a->of), WIRE_BYTES);
    if (a->list.n && wire_of_kind(a->of) != WIRE_BYTES) encode_packed(a, tag, out);
    else
      for (size_t i = 0; i < a->list.n; i++) TRY(encode_one(&a->list.at[i], tag, out));
    wire_end(out, at);
    return NULL;
  }
  if (a->kind == ATTR_NONE) return NULL;
  return encode_one(a, wire_tag(number_of(kind_of, a->kind), wire_of_kind(a->kind)), out);
}

shoal_status attr_proto_encode_map(const struct named_attr *attrs, int n, uint32_t tag, struct text *out) {
  for (int i = 0; i < n; i++) {
    size_t entry = wire_open(out, tag);
    put_NodeDef_AttrEntry_key(out, attrs[i].name);
    size_t value = begin_NodeDef_AttrEntry_value(out);
    TRY(attr_proto_encode(&attrs[i].value, out));
    wire_end(out, value);
    wire_end(out, entry);
  }
  return NULL;
}
