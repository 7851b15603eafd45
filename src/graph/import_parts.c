/* See import_parts.h.
 *
 * An empty shape in a list is two bytes of a message, and a hundred and fifty in memory; so are an argument, a node or
 * an attribute of a function. Whoever holds a graph to a budget asks here first: what is counted while it is unpacked
 * is counted too late. The message is walked as its schema has it, and nothing is taken from it but lengths. */
#include "graph/import_parts.h"

/* PART: bytes of one. Numbers of a list are packed: each takes a sixth of that, and at least a byte of the message.
 * DEPTH: of functions in attributes, more of which nobody imports. */
enum { PART = 192, PACKED = 6, DEPTH = 40 };

static size_t count_attr(struct wire attr, int depth);

/* An entry of a map of attributes, without itself. */
static size_t count_entry(struct wire w, int depth) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.number == 2 && f.type == WIRE_BYTES) n += count_attr(wire_inside(&f), depth);
  return n;
}

/* The attributes of a function that an attribute names. */
static size_t count_named(struct wire w, int depth) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.number == 2 && f.type == WIRE_BYTES) n += 1 + count_entry(wire_inside(&f), depth);
  return n;
}

static size_t count_list(struct wire w, int depth) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    bool packed = f.type == WIRE_BYTES && f.number >= 3 && f.number <= 6; /* i, f, b, type */
    n += packed ? f.size / PACKED : 1;
    if (f.number == 9 && f.type == WIRE_BYTES && depth) n += count_named(wire_inside(&f), depth - 1);
  }
  return n;
}

/* An AttrValue, without itself. */
static size_t count_attr(struct wire w, int depth) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.type != WIRE_BYTES) continue;
    if (f.number == 1) n += count_list(wire_inside(&f), depth);
    if (f.number == 10 && depth) n += count_named(wire_inside(&f), depth - 1);
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
    if (f.type != WIRE_BYTES) continue;
    if (f.number == 6) n += count_fields(wire_inside(&f)); /* experimental_debug_info */
    if (f.number == 5) n += count_entry(wire_inside(&f), DEPTH);
  }
  return n;
}

/* A FunctionDef: its signature's parts, its nodes and theirs. */
static size_t count_function(struct wire w) {
  size_t n = 1;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    n++;
    if (f.type != WIRE_BYTES) continue;
    if (f.number == 1) n += count_fields(wire_inside(&f));
    if (f.number == 3) n += count_fields(wire_inside(&f)) + count_node(wire_inside(&f));
  }
  return n;
}

size_t import_parts_bytes(struct wire w) {
  size_t n = 0;
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;) {
    if (f.type != WIRE_BYTES) continue;
    if (f.number == 1) n += count_node(wire_inside(&f));
    if (f.number != 2) continue;
    struct wire library = wire_inside(&f);
    for (struct wire_field k; wire_next(&library, &k) == WIRE_FIELD;)
      if (k.type == WIRE_BYTES) n += k.number == 1 ? count_function(wire_inside(&k)) : 1;
  }
  return n * PART;
}
