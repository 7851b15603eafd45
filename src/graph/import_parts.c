/* See import_parts.h.
 *
 * An empty shape in a list is two bytes of a message, and a hundred and fifty in memory; so are an argument, a node or
 * an attribute of a function. Whoever holds a graph to a budget asks here first: what is counted while it is unpacked
 * is counted too late. The message is walked as its schema has it, and nothing is taken from it but lengths. */
#include "graph/import_parts.h"

#include "proto/graph.wire.h"

/* PART: bytes of one. Numbers of a list are packed: each takes a sixth of that, and at least a byte of the message.
 * DEPTH: of functions in attributes, more of which nobody imports. */
enum { PART = 192, PACKED = 6, DEPTH = 40 };

static size_t count_attr(struct wire attr, int depth);

/* An entry of a map of attributes, without itself. */
static size_t count_entry(struct wire w, int depth) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == NodeDef_AttrEntry_value) n += count_attr(wire_inside(&f), depth);
  return n;
}

/* The attributes of a function that an attribute names. */
static size_t count_named(struct wire w, int depth) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == NameAttrList_attr) n += 1 + count_entry(wire_inside(&f), depth);
  return n;
}

static size_t count_list(struct wire w, int depth) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    bool packed = f.tag == AttrValue_ListValue_i_packed || f.tag == AttrValue_ListValue_f_packed ||
                  f.tag == AttrValue_ListValue_b_packed || f.tag == AttrValue_ListValue_type_packed;
    n += packed ? f.size / PACKED : 1;
    if (f.tag == AttrValue_ListValue_func && depth) n += count_named(wire_inside(&f), depth - 1);
  }
  return n;
}

/* An AttrValue, without itself. */
static size_t count_attr(struct wire w, int depth) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == AttrValue_list) n += count_list(wire_inside(&f), depth);
    if (f.tag == AttrValue_func && depth) n += count_named(wire_inside(&f), depth - 1);
  }
  return n;
}

static size_t count_fields(struct wire w) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) n++;
  return n;
}

/* A NodeDef: what its attributes hold, and where it says it comes from. */
static size_t count_node(struct wire w) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == NodeDef_experimental_debug_info) n += count_fields(wire_inside(&f));
    if (f.tag == NodeDef_attr) n += count_entry(wire_inside(&f), DEPTH);
  }
  return n;
}

/* A FunctionDef: its signature's parts, its nodes and theirs. */
static size_t count_function(struct wire w) {
  size_t n = 1;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    n++;
    if (f.tag == FunctionDef_signature) n += count_fields(wire_inside(&f));
    if (f.tag == FunctionDef_node_def) n += count_fields(wire_inside(&f)) + count_node(wire_inside(&f));
  }
  return n;
}

size_t import_parts_bytes(struct wire w) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.tag == GraphDef_node) n += count_node(wire_inside(&f));
    if (f.tag != GraphDef_library) continue;
    struct wire library = wire_inside(&f);
    for (struct wire_field k; wire_next(&library, &k) == WIRE_FIELD;)
      if (k.type == WIRE_BYTES) n += k.tag == FunctionDefLibrary_function ? count_function(wire_inside(&k)) : 1;
  }
  return n * PART;
}
