/* Messages as text, of types that are known only when a graph runs: made into bytes in the order of the text, which
 * rewriting then puts right and checks. Nesting is bounded, so the parser may recurse. */
#include <string.h>

#include "graph/text_scan.h"
#include "ops/text/message_rewrite.h"

static shoal_status read_fields(struct scan *s, const struct message_type *m, char closing, int depth,
                                struct text *out);

static shoal_status read_enum(struct scan *s, const struct enum_type *e, uint64_t *bits) {
  bool word = s->kind == T_WORD;
  if (!word) TRY(scan_integer(s, INT32_MIN, INT32_MAX, bits));
  for (size_t i = 0; i < e->values.n; i++) {
    const struct enum_value *v = &e->values.at[i];
    if (word ? strlen(v->name) != s->n || memcmp(v->name, s->begin, s->n) : v->number != (int32_t)*bits) continue;
    *bits = (uint64_t)(int64_t)v->number;
    return word ? scan_next(s) : NULL;
  }
  return word || e->closed ? scan_wrong(s, "Unknown enumeration value.") : NULL;
}

/* A number, as the bits that its wire type has. */
static shoal_status read_number(struct scan *s, const struct message_field *f, uint64_t *bits) {
  double d;
  float narrow;
  bool b;
  switch (f->type) {
    case FIELD_INT32:
    case FIELD_SFIXED32: return scan_integer(s, INT32_MIN, INT32_MAX, bits);
    case FIELD_INT64:
    case FIELD_SFIXED64: return scan_integer(s, INT64_MIN, INT64_MAX, bits);
    case FIELD_UINT32:
    case FIELD_FIXED32: return scan_integer(s, 0, UINT32_MAX, bits);
    case FIELD_UINT64:
    case FIELD_FIXED64: return scan_integer(s, 0, UINT64_MAX, bits);
    case FIELD_SINT32:
      TRY(scan_integer(s, INT32_MIN, INT32_MAX, bits));
      *bits = (uint32_t)*bits << 1 ^ (0u - ((uint32_t)*bits >> 31));
      return NULL;
    case FIELD_SINT64:
      TRY(scan_integer(s, INT64_MIN, INT64_MAX, bits));
      *bits = *bits << 1 ^ (0 - (*bits >> 63));
      return NULL;
    case FIELD_BOOL:
      TRY(scan_bool(s, &b));
      *bits = b;
      return NULL;
    case FIELD_ENUM: return read_enum(s, f->enums, bits);
    default: break;
  }
  TRY(scan_double(s, &d));
  narrow = (float)d;
  *bits = 0;
  if (f->type == FIELD_FLOAT) memcpy(bits, &narrow, sizeof narrow);
  else memcpy(bits, &d, sizeof d);
  return NULL;
}

static shoal_status read_message(struct scan *s, const struct message_field *f, int depth, struct text *out) {
  if (depth >= MESSAGE_MAX_DEPTH) return scan_wrong(s, "Message is too deep.");
  char closing = scan_at(s, '<') ? '>' : '}';
  TRY(scan_expect(s, closing == '>' ? '<' : '{'));
  struct text inner = {0};
  shoal_status bad = read_fields(s, f->message, closing, depth + 1, &inner);
  if (!bad && f->type == FIELD_MESSAGE) {
    wire_add_bytes(out, wire_tag(f->number, WIRE_BYTES), inner.at, inner.n);
  } else if (!bad) {
    wire_put_varint(out, (uint64_t)f->number << 3 | WIRE_GROUP);
    text_add(out, text_cstr(&inner), inner.n);
    wire_put_varint(out, (uint64_t)f->number << 3 | WIRE_GROUP_END);
  }
  text_release(&inner);
  return bad;
}

static shoal_status read_value(struct scan *s, const struct message_field *f, int depth, struct text *out) {
  if (f->message) return read_message(s, f, depth, out);
  int wire = field_wire(f->type);
  if (wire == WIRE_BYTES) {
    struct text t = {0};
    shoal_status bad = scan_string(s, &t);
    if (!bad) wire_add_bytes(out, wire_tag(f->number, WIRE_BYTES), t.at, t.n);
    text_release(&t);
    return bad;
  }
  uint64_t bits;
  TRY(read_number(s, f, &bits));
  wire_put_varint(out, (uint64_t)f->number << 3 | (uint64_t)wire);
  message_put_bits(out, wire, bits);
  return NULL;
}

/* "name", or "[the.full.name]" of an extension; a group goes by the name of its type. */
static shoal_status read_name(struct scan *s, const struct message_type *m, const struct message_field **out) {
  bool extension;
  struct text full = {0};
  TRY(scan_eat(s, '[', &extension));
  while (s->kind == T_WORD || (extension && scan_at(s, '.'))) {
    text_add(&full, s->begin, s->n);
    shoal_status bad = scan_next(s);
    if (bad || !extension) {
      if (bad) text_release(&full);
      if (bad) return bad;
      break;
    }
  }
  const struct message_field *f = message_field_named(m, text_cstr(&full), full.n);
  if (f && f->type == FIELD_GROUP && !f->extension) f = NULL;
  if (!f && !extension) f = message_group_named(m, text_cstr(&full), full.n);
  text_release(&full);
  if (!f || f->extension != extension) return SCAN_WRONG(s, "Message type \"%s\" has no such field.", m->name);
  *out = f;
  return extension ? scan_expect(s, ']') : NULL;
}

static shoal_status read_field(struct scan *s, const struct message_type *m, int depth, struct text *out) {
  const struct message_field *f = NULL;
  bool colon, list = false, more;
  TRY(read_name(s, m, &f));
  TRY(scan_eat(s, ':', &colon));
  if (!colon && !f->message) return scan_wrong(s, "Expected \":\".");
  if (f->repeated) TRY(scan_eat(s, '[', &list));
  if (list) TRY(scan_eat(s, ']', &more));
  if (!list || !more) do {
      TRY(read_value(s, f, depth, out));
      more = false;
      if (list) TRY(scan_eat(s, ',', &more));
      if (list && !more) TRY(scan_expect(s, ']'));
    } while (more);
  TRY(scan_eat(s, ',', &more));
  return more ? NULL : scan_eat(s, ';', &more);
}

static shoal_status read_fields(struct scan *s, const struct message_type *m, char closing, int depth,
                                struct text *out) {
  while (s->kind != T_END && !(closing && scan_at(s, closing))) TRY(read_field(s, m, depth, out));
  if (!closing) return NULL;
  if (s->kind == T_END) return scan_wrong(s, "Reached end of input in message definition.");
  return scan_next(s);
}

shoal_status message_read_text(const struct message_type *m, const char *text, size_t size, struct text *out) {
  struct scan s = {.at = text, .end = text + size, .line = 1, .column = 1};
  struct text raw = {0};
  shoal_status bad = scan_next(&s);
  if (!bad) bad = read_fields(&s, m, 0, 1, &raw);
  if (!bad) bad = message_rewrite_at(m, wire_from(text_cstr(&raw), raw.n), true, 1, out);
  text_release(&raw);
  if (!bad) return NULL;
  shoal_status told = LOST("Unable to parse text protobuf: %s", shoal_status_message(bad));
  shoal_status_free(bad);
  return told;
}
