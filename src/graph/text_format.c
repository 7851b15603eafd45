/* Reading the text form: a parser over descriptors, its tokens from text_scan.c. Nesting is bounded,
 * so the parser may recurse; every allocation is paid for by bytes of the text. Printing is in text_format_print.c.
 *
 * Accepted beyond what TensorFlow writes: '<' '>' for braces, ':' before '{', lists in brackets, ',' and ';' between
 * fields, strings in pieces, numbers in hex and octal, enums by number, comments. Not accepted: extensions and
 * expanded Any messages, which no file of TensorFlow's holds. */
#include "graph/text_format.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/text_scan.h"
#include "proto/proto_check.h"

static shoal_status read_enum(struct scan *s, const ProtobufCEnumDescriptor *d, int *out) {
  if (s->kind != T_WORD) {
    uint64_t v;
    TRY(scan_integer(s, INT32_MIN, INT32_MAX, &v));
    *out = (int)v;
    return NULL;
  }
  for (unsigned i = 0; i < d->n_value_names; i++) {
    const ProtobufCEnumValueIndex *e = &d->values_by_name[i];
    if (strlen(e->name) != s->n || memcmp(e->name, s->begin, s->n)) continue;
    *out = d->values[e->index].value;
    return scan_next(s);
  }
  return SCAN_WRONG(s, "Unknown enumeration value of \"%.*s\" for \"%s\".", (int)MIN(s->n, 60), s->begin, d->name);
}

/* ---- messages ---- */

static shoal_status read_fields(struct scan *s, ProtobufCMessage *m, char closing, int depth);

static ProtobufCMessage *new_message(const ProtobufCMessageDescriptor *d) {
  ProtobufCMessage *m = mem_alloc(d->sizeof_message);
  d->message_init(m);
  return m;
}

static shoal_status read_message(struct scan *s, const ProtobufCMessageDescriptor *d, int depth, void *slot) {
  if (depth >= TEXT_FORMAT_MAX_DEPTH) return scan_wrong(s, "Message is too deep.");
  char closing = scan_at(s, '<') ? '>' : '}';
  TRY(scan_expect(s, closing == '>' ? '<' : '{'));
  ProtobufCMessage *m = new_message(d);
  *(ProtobufCMessage **)slot = m; /* owned by its parent even when what follows fails */
  return read_fields(s, m, closing, depth);
}

/* One value of a field into slot, which is zero or (strings) the default. */
static shoal_status read_value(struct scan *s, const ProtobufCFieldDescriptor *f, int depth, void *slot) {
  uint64_t u;
  double d;
  switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
      TRY(scan_integer(s, INT32_MIN, INT32_MAX, &u));
      *(int32_t *)slot = (int32_t)u;
      return NULL;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
      TRY(scan_integer(s, 0, UINT32_MAX, &u));
      *(uint32_t *)slot = (uint32_t)u;
      return NULL;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
      TRY(scan_integer(s, INT64_MIN, INT64_MAX, &u));
      *(int64_t *)slot = (int64_t)u;
      return NULL;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: return scan_integer(s, 0, UINT64_MAX, slot);
    case PROTOBUF_C_TYPE_FLOAT:
      TRY(scan_double(s, &d));
      *(float *)slot = (float)d;
      return NULL;
    case PROTOBUF_C_TYPE_DOUBLE: return scan_double(s, slot);
    case PROTOBUF_C_TYPE_BOOL: {
      bool b;
      TRY(scan_bool(s, &b));
      *(protobuf_c_boolean *)slot = b;
      return NULL;
    }
    case PROTOBUF_C_TYPE_ENUM: return read_enum(s, f->descriptor, slot);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES: {
      struct text t = {0};
      shoal_status bad = scan_string(s, &t);
      if (!bad && f->type == PROTOBUF_C_TYPE_STRING && t.n && memchr(t.at, 0, t.n))
        bad = SCAN_WRONG(s, "String field \"%s\" contains a NUL.", f->name);
      if (bad) {
        text_release(&t);
        return bad;
      }
      if (f->type == PROTOBUF_C_TYPE_STRING) {
        *(char **)slot = text_take(&t);
      } else {
        ProtobufCBinaryData *b = slot;
        b->len = t.n;
        b->data = t.n ? (uint8_t *)text_take(&t) : NULL;
        text_release(&t);
      }
      return NULL;
    }
    case PROTOBUF_C_TYPE_MESSAGE: return read_message(s, f->descriptor, depth + 1, slot);
  }
  return scan_wrong(s, "A field of unknown type.");
}

static shoal_status add_repeated(struct scan *s, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, int depth) {
  size_t *n = (size_t *)((char *)m + f->quantifier_offset), size = proto_element_size(f->type);
  char **array = (char **)((char *)m + f->offset);
  if ((*n & (*n - 1)) == 0) *array = mem_realloc(*array, *n ? *n * 2 : 1, size);
  char *slot = *array + *n * size;
  memset(slot, 0, size);
  shoal_status bad = read_value(s, f, depth, slot);
  /* A half-read message is kept, to be freed with the whole; of other types nothing was made. */
  if (!bad || (f->type == PROTOBUF_C_TYPE_MESSAGE && *(void **)slot)) ++*n;
  return bad;
}

static shoal_status read_singular(struct scan *s, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, int depth,
                                  bool *seen) {
  if (*seen) return SCAN_WRONG(s, "Non-repeated field \"%s\" is specified multiple times.", f->name);
  *seen = true;
  if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
    uint32_t *which = (uint32_t *)((char *)m + f->quantifier_offset);
    if (*which) return SCAN_WRONG(s, "Field \"%s\" is specified along with another member of its oneof.", f->name);
    *which = f->id;
    memset((char *)m + f->offset, 0, proto_element_size(f->type)); /* the other members share this place */
  }
  return read_value(s, f, depth, (char *)m + f->offset);
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *d, const struct scan *s) {
  for (unsigned low = 0, high = d->n_fields; low < high;) {
    unsigned mid = (low + high) / 2;
    const ProtobufCFieldDescriptor *f = &d->fields[d->fields_sorted_by_name[mid]];
    int c = strncmp(f->name, s->begin, s->n);
    if (!c && f->name[s->n]) c = 1;
    if (!c) return f;
    if (c < 0) low = mid + 1;
    else high = mid;
  }
  return NULL;
}

static shoal_status read_field(struct scan *s, ProtobufCMessage *m, int depth, bool *seen) {
  if (s->kind != T_WORD) return SCAN_WRONG(s, "Expected identifier, got: %.*s", (int)MIN(s->n, 40), s->begin);
  const ProtobufCFieldDescriptor *f = find_field(m->descriptor, s);
  if (!f)
    return SCAN_WRONG(s, "Message type \"%s\" has no field named \"%.*s\".", m->descriptor->name, (int)MIN(s->n, 60),
                      s->begin);
  bool colon, list = false, more;
  TRY(scan_next(s));
  TRY(scan_eat(s, ':', &colon));
  if (!colon && f->type != PROTOBUF_C_TYPE_MESSAGE) return scan_wrong(s, "Expected \":\".");
  if (f->label != PROTOBUF_C_LABEL_REPEATED) {
    TRY(read_singular(s, m, f, depth, &seen[f - m->descriptor->fields]));
  } else {
    TRY(scan_eat(s, '[', &list));
    if (list) TRY(scan_eat(s, ']', &more));
    else more = false;
    if (!(list && more)) {
      do {
        TRY(add_repeated(s, m, f, depth));
        if (!list) break;
        TRY(scan_eat(s, ',', &more));
      } while (more);
      if (list) TRY(scan_expect(s, ']'));
    }
  }
  TRY(scan_eat(s, ',', &more));
  return more ? NULL : scan_eat(s, ';', &more);
}

static shoal_status read_fields(struct scan *s, ProtobufCMessage *m, char closing, int depth) {
  bool *seen = mem_zalloc(m->descriptor->n_fields, sizeof *seen);
  shoal_status bad = NULL;
  while (!bad && s->kind != T_END && !(closing && scan_at(s, closing))) bad = read_field(s, m, depth, seen);
  free(seen);
  if (bad) return bad;
  if (!closing) return NULL;
  if (s->kind == T_END) return SCAN_WRONG(s, "Reached end of input in message definition (missing '%c').", closing);
  return scan_next(s);
}

shoal_status text_format_parse(const ProtobufCMessageDescriptor *d, const char *text, size_t size, void *out) {
  ProtobufCMessage **msg = out;
  *msg = NULL;
  struct scan s = {.at = text, .end = text + size, .line = 1, .column = 1};
  ProtobufCMessage *m = new_message(d);
  shoal_status bad = scan_next(&s);
  if (!bad) bad = read_fields(&s, m, 0, 1);
  if (bad) {
    protobuf_c_message_free_unpacked(m, NULL);
    return bad;
  }
  *msg = m;
  return NULL;
}
