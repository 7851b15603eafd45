/* Reading the text form: a scanner that knows its line and column, and a parser over descriptors. Nesting is bounded,
 * so the parser may recurse; every allocation is paid for by bytes of the text. Printing is in text_format_print.c.
 *
 * Accepted beyond what TensorFlow writes: '<' '>' for braces, ':' before '{', lists in brackets, ',' and ';' between
 * fields, strings in pieces, numbers in hex and octal, enums by number, comments. Not accepted: extensions and
 * expanded Any messages, which no file of TensorFlow's holds. */
#include "graph/text_format.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "proto/proto_check.h"

enum token { T_END, T_WORD, T_NUMBER, T_STRING, T_MARK };

struct scan {
  const char *at, *end;
  int line, column; /* of `at` */
  enum token kind;
  const char *begin; /* the token's text; of strings with the quotes */
  size_t n;
  int token_line, token_column;
};

static shoal_status wrong_at(const struct scan *s, const char *what) {
  return INVALID("%d:%d: %s", s->token_line, s->token_column, what);
}

static shoal_status placed(const struct scan *s, shoal_status wrong) {
  return status_prefix(wrong, "%d:%d: ", s->token_line, s->token_column);
}

#define WRONG(s, ...) placed((s), INVALID(__VA_ARGS__))

static void step(struct scan *s) {
  if (*s->at == '\n') {
    s->line++;
    s->column = 0;
  }
  s->column++;
  s->at++;
}

static void skip_blanks(struct scan *s) {
  while (s->at < s->end) {
    if (*s->at == '#')
      while (s->at < s->end && *s->at != '\n') step(s);
    else if (isspace((unsigned char)*s->at)) step(s);
    else return;
  }
}

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Reads the next token. A sign is a mark of its own. */
static shoal_status next(struct scan *s) {
  skip_blanks(s);
  s->token_line = s->line;
  s->token_column = s->column;
  s->begin = s->at;
  s->kind = T_END;
  if (s->at < s->end) {
    char c = *s->at;
    if (isalpha((unsigned char)c) || c == '_') {
      s->kind = T_WORD;
      while (s->at < s->end && word_char(*s->at)) step(s);
    } else if (isdigit((unsigned char)c) || (c == '.' && s->at + 1 < s->end && isdigit((unsigned char)s->at[1]))) {
      s->kind = T_NUMBER;
      while (s->at < s->end && (word_char(*s->at) || *s->at == '.' ||
                                ((*s->at == '+' || *s->at == '-') && (s->at[-1] == 'e' || s->at[-1] == 'E'))))
        step(s);
    } else if (c == '"' || c == '\'') {
      s->kind = T_STRING;
      step(s);
      while (s->at < s->end && *s->at != c) {
        if (*s->at == '\n') return wrong_at(s, "String literals cannot cross line boundaries.");
        if (*s->at == '\\' && s->at + 1 < s->end) step(s);
        step(s);
      }
      if (s->at == s->end) return wrong_at(s, "Unexpected end of string.");
      step(s);
    } else {
      s->kind = T_MARK;
      step(s);
    }
  }
  s->n = (size_t)(s->at - s->begin);
  return NULL;
}

static bool at_mark(const struct scan *s, char c) { return s->kind == T_MARK && *s->begin == c; }

static shoal_status eat(struct scan *s, char c, bool *found) {
  *found = at_mark(s, c);
  return *found ? next(s) : NULL;
}

static shoal_status expect(struct scan *s, char c) {
  if (at_mark(s, c)) return next(s);
  return WRONG(s, "Expected \"%c\", found \"%.*s\".", c, (int)MIN(s->n, 40), s->begin);
}

/* ---- values ---- */

static shoal_status add_escape(const struct scan *s, const char **p, const char *end, struct text *out) {
  char c = *(*p)++;
  static const char from[] = "nrtabfv\\'\"?", to[] = "\n\r\t\a\b\f\v\\'\"?";
  const char *simple = strchr(from, c);
  if (c && simple) {
    text_addc(out, to[simple - from]);
    return NULL;
  }
  if (c >= '0' && c <= '7') {
    int v = c - '0';
    for (int i = 0; i < 2 && *p < end && **p >= '0' && **p <= '7'; i++) v = v * 8 + (*(*p)++ - '0');
    text_addc(out, (char)v);
    return NULL;
  }
  int digits = c == 'x' || c == 'X' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (!digits) return wrong_at(s, "Invalid escape sequence in string literal.");
  uint32_t v = 0;
  int got = 0;
  for (; got < digits && *p < end && isxdigit((unsigned char)**p); got++) {
    char h = (char)tolower((unsigned char)*(*p)++);
    v = v * 16 + (uint32_t)(h <= '9' ? h - '0' : h - 'a' + 10);
  }
  if (!got || (digits > 2 && got < digits) || v > 0x10ffff)
    return wrong_at(s, "Invalid escape sequence in string literal.");
  if (digits == 2 || v < 0x80) {
    text_addc(out, (char)v);
  } else {
    char utf[4];
    int n = v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, v >>= 6) utf[i] = (char)(0x80 | (v & 0x3f));
    utf[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | v);
    text_add(out, utf, (size_t)n);
  }
  return NULL;
}

/* One or more string literals side by side. */
static shoal_status read_string(struct scan *s, struct text *out) {
  if (s->kind != T_STRING) return wrong_at(s, "Expected string.");
  while (s->kind == T_STRING) {
    const char *p = s->begin + 1, *end = s->begin + s->n - 1;
    while (p < end) {
      if (*p != '\\') {
        text_addc(out, *p++);
        continue;
      }
      p++;
      TRY(add_escape(s, &p, end, out));
    }
    TRY(next(s));
  }
  return NULL;
}

static bool word_is(const struct scan *s, const char *w) {
  return s->kind == T_WORD && s->n == strlen(w) && !strncasecmp(s->begin, w, s->n);
}

/* An integer between low and high (high up to UINT64_MAX). */
static shoal_status read_integer(struct scan *s, int64_t low, uint64_t high, uint64_t *out) {
  bool minus;
  TRY(eat(s, '-', &minus));
  char text[72];
  if (s->kind != T_NUMBER || s->n >= sizeof text)
    return WRONG(s, "Expected integer, got: %.*s", (int)MIN(s->n, 40), s->begin);
  memcpy(text, s->begin, s->n);
  text[s->n] = 0;
  char *end;
  errno = 0;
  uint64_t v = strtoull(text, &end, 0);
  if (*end || errno) return WRONG(s, "Expected integer, got: %s", text);
  if (minus ? v > (uint64_t)INT64_MAX + 1 || (v && (int64_t)(0 - v) < low) : v > high)
    return WRONG(s, "Integer out of range (%s%s)", minus ? "-" : "", text);
  *out = minus ? 0 - v : v;
  return next(s);
}

static shoal_status read_double(struct scan *s, double *out) {
  bool minus;
  TRY(eat(s, '-', &minus));
  double v;
  if (word_is(s, "inf") || word_is(s, "infinity")) v = INFINITY;
  else if (word_is(s, "nan")) v = NAN;
  else {
    char text[128], *end;
    if (s->kind != T_NUMBER || s->n >= sizeof text)
      return WRONG(s, "Expected double, got: %.*s", (int)MIN(s->n, 40), s->begin);
    memcpy(text, s->begin, s->n);
    text[s->n] = 0;
    v = strtod(text, &end);
    if (*end && !((*end == 'f' || *end == 'F') && !end[1])) return WRONG(s, "Expected double, got: %s", text);
  }
  *out = minus ? -v : v;
  return next(s);
}

static shoal_status read_bool(struct scan *s, protobuf_c_boolean *out) {
  if (word_is(s, "true") || word_is(s, "t")) *out = 1;
  else if (word_is(s, "false") || word_is(s, "f")) *out = 0;
  else {
    uint64_t v;
    TRY(read_integer(s, 0, 1, &v));
    *out = v != 0;
    return NULL;
  }
  return next(s);
}

static shoal_status read_enum(struct scan *s, const ProtobufCEnumDescriptor *d, int *out) {
  if (s->kind != T_WORD) {
    uint64_t v;
    TRY(read_integer(s, INT32_MIN, INT32_MAX, &v));
    *out = (int)v;
    return NULL;
  }
  for (unsigned i = 0; i < d->n_value_names; i++) {
    const ProtobufCEnumValueIndex *e = &d->values_by_name[i];
    if (strlen(e->name) != s->n || memcmp(e->name, s->begin, s->n)) continue;
    *out = d->values[e->index].value;
    return next(s);
  }
  return WRONG(s, "Unknown enumeration value of \"%.*s\" for \"%s\".", (int)MIN(s->n, 60), s->begin, d->name);
}

/* ---- messages ---- */

static shoal_status read_fields(struct scan *s, ProtobufCMessage *m, char closing, int depth);

static ProtobufCMessage *new_message(const ProtobufCMessageDescriptor *d) {
  ProtobufCMessage *m = mem_alloc(d->sizeof_message);
  d->message_init(m);
  return m;
}

static shoal_status read_message(struct scan *s, const ProtobufCMessageDescriptor *d, int depth, void *slot) {
  if (depth >= TEXT_FORMAT_MAX_DEPTH) return wrong_at(s, "Message is too deep.");
  char closing = at_mark(s, '<') ? '>' : '}';
  TRY(expect(s, closing == '>' ? '<' : '{'));
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
      TRY(read_integer(s, INT32_MIN, INT32_MAX, &u));
      *(int32_t *)slot = (int32_t)u;
      return NULL;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
      TRY(read_integer(s, 0, UINT32_MAX, &u));
      *(uint32_t *)slot = (uint32_t)u;
      return NULL;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
      TRY(read_integer(s, INT64_MIN, INT64_MAX, &u));
      *(int64_t *)slot = (int64_t)u;
      return NULL;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: return read_integer(s, 0, UINT64_MAX, slot);
    case PROTOBUF_C_TYPE_FLOAT:
      TRY(read_double(s, &d));
      *(float *)slot = (float)d;
      return NULL;
    case PROTOBUF_C_TYPE_DOUBLE: return read_double(s, slot);
    case PROTOBUF_C_TYPE_BOOL: return read_bool(s, slot);
    case PROTOBUF_C_TYPE_ENUM: return read_enum(s, f->descriptor, slot);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES: {
      struct text t = {0};
      shoal_status bad = read_string(s, &t);
      if (!bad && f->type == PROTOBUF_C_TYPE_STRING && t.n && memchr(t.at, 0, t.n))
        bad = WRONG(s, "String field \"%s\" contains a NUL.", f->name);
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
  return wrong_at(s, "A field of unknown type.");
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
  if (*seen) return WRONG(s, "Non-repeated field \"%s\" is specified multiple times.", f->name);
  *seen = true;
  if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
    uint32_t *which = (uint32_t *)((char *)m + f->quantifier_offset);
    if (*which) return WRONG(s, "Field \"%s\" is specified along with another member of its oneof.", f->name);
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
  if (s->kind != T_WORD) return WRONG(s, "Expected identifier, got: %.*s", (int)MIN(s->n, 40), s->begin);
  const ProtobufCFieldDescriptor *f = find_field(m->descriptor, s);
  if (!f)
    return WRONG(s, "Message type \"%s\" has no field named \"%.*s\".", m->descriptor->name, (int)MIN(s->n, 60),
                 s->begin);
  bool colon, list = false, more;
  TRY(next(s));
  TRY(eat(s, ':', &colon));
  if (!colon && f->type != PROTOBUF_C_TYPE_MESSAGE) return wrong_at(s, "Expected \":\".");
  if (f->label != PROTOBUF_C_LABEL_REPEATED) {
    TRY(read_singular(s, m, f, depth, &seen[f - m->descriptor->fields]));
  } else {
    TRY(eat(s, '[', &list));
    if (list) TRY(eat(s, ']', &more));
    else more = false;
    if (!(list && more)) {
      do {
        TRY(add_repeated(s, m, f, depth));
        if (!list) break;
        TRY(eat(s, ',', &more));
      } while (more);
      if (list) TRY(expect(s, ']'));
    }
  }
  TRY(eat(s, ',', &more));
  return more ? NULL : eat(s, ';', &more);
}

static shoal_status read_fields(struct scan *s, ProtobufCMessage *m, char closing, int depth) {
  bool *seen = mem_zalloc(m->descriptor->n_fields, sizeof *seen);
  shoal_status bad = NULL;
  while (!bad && s->kind != T_END && !(closing && at_mark(s, closing))) bad = read_field(s, m, depth, seen);
  free(seen);
  if (bad) return bad;
  if (!closing) return NULL;
  if (s->kind == T_END) return WRONG(s, "Reached end of input in message definition (missing '%c').", closing);
  return next(s);
}

shoal_status text_format_parse(const ProtobufCMessageDescriptor *d, const char *text, size_t size, void *out) {
  ProtobufCMessage **msg = out;
  *msg = NULL;
  struct scan s = {.at = text, .end = text + size, .line = 1, .column = 1};
  ProtobufCMessage *m = new_message(d);
  shoal_status bad = next(&s);
  if (!bad) bad = read_fields(&s, m, 0, 1);
  if (bad) {
    protobuf_c_message_free_unpacked(m, NULL);
    return bad;
  }
  *msg = m;
  return NULL;
}
