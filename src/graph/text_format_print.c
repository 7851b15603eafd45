/* Writing the text form, as TensorFlow's own printers do: two spaces a level, one field a line, nothing for values that
 * are not set. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/text_format.h"
#include "proto/proto_check.h"

static void indent(struct text *out, int level) {
  for (int i = 0; i < level; i++) text_adds(out, "  ");
}

/* The shortest decimal that reads back as the same number. */
static void print_real(struct text *out, double v, int digits, bool single) {
  if (isnan(v)) {
    text_adds(out, "nan");
  } else if (isinf(v)) {
    text_adds(out, v < 0 ? "-inf" : "inf");
  } else {
    char buf[40];
    for (int p = digits; p <= 17; p++) {
      snprintf(buf, sizeof buf, "%.*g", p, v);
      if (single ? strtof(buf, NULL) == (float)v : strtod(buf, NULL) == v) break;
    }
    text_adds(out, buf);
  }
}

static void print_bytes(struct text *out, const uint8_t *data, size_t n) {
  text_addc(out, '"');
  for (size_t i = 0; i < n; i++) {
    uint8_t c = data[i];
    static const char special[] = "\n\r\t\"'\\", letter[] = "nrt\"'\\";
    const char *found = c ? memchr(special, c, sizeof special - 1) : NULL;
    if (found) text_addf(out, "\\%c", letter[found - special]);
    else if (c < 0x20 || c >= 0x7f) text_addf(out, "\\%03o", c);
    else text_addc(out, (char)c);
  }
  text_addc(out, '"');
}

static void print_message(const ProtobufCMessage *m, int level, struct text *out);

static void print_scalar(const ProtobufCFieldDescriptor *f, const void *at, struct text *out) {
  switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32: text_addf(out, "%" PRId32, *(const int32_t *)at); break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: text_addf(out, "%" PRIu32, *(const uint32_t *)at); break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64: text_addf(out, "%" PRId64, *(const int64_t *)at); break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: text_addf(out, "%" PRIu64, *(const uint64_t *)at); break;
    case PROTOBUF_C_TYPE_FLOAT: print_real(out, *(const float *)at, 6, true); break;
    case PROTOBUF_C_TYPE_DOUBLE: print_real(out, *(const double *)at, 15, false); break;
    case PROTOBUF_C_TYPE_BOOL: text_adds(out, *(const protobuf_c_boolean *)at ? "true" : "false"); break;
    case PROTOBUF_C_TYPE_ENUM: {
      int v = *(const int *)at;
      const ProtobufCEnumValue *e = protobuf_c_enum_descriptor_get_value(f->descriptor, v);
      if (e) text_adds(out, e->name);
      else text_addf(out, "%d", v);
      break;
    }
    case PROTOBUF_C_TYPE_STRING: {
      const char *s = *(char *const *)at;
      print_bytes(out, (const uint8_t *)s, s ? strlen(s) : 0);
      break;
    }
    case PROTOBUF_C_TYPE_BYTES: {
      const ProtobufCBinaryData *b = at;
      print_bytes(out, b->data, b->len);
      break;
    }
    case PROTOBUF_C_TYPE_MESSAGE: break;
  }
}

static void print_one(const ProtobufCFieldDescriptor *f, const void *at, int level, struct text *out) {
  indent(out, level);
  text_adds(out, f->name);
  if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
    text_adds(out, " {\n");
    print_message(*(ProtobufCMessage *const *)at, level + 1, out);
    indent(out, level);
    text_adds(out, "}\n");
  } else {
    text_adds(out, ": ");
    print_scalar(f, at, out);
    text_addc(out, '\n');
  }
}

/* Is a singular field set, and not to its default? */
static bool is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f) {
  const char *at = (const char *)m + f->offset;
  if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
    return *(const uint32_t *)((const char *)m + f->quantifier_offset) == f->id;
  switch (f->type) {
    case PROTOBUF_C_TYPE_MESSAGE: return *(void *const *)at != NULL;
    case PROTOBUF_C_TYPE_STRING: return *(char *const *)at && **(char *const *)at;
    case PROTOBUF_C_TYPE_BYTES: return ((const ProtobufCBinaryData *)at)->len > 0;
    default: {
      static const char zero[8];
      return memcmp(at, zero, proto_element_size(f->type)) != 0;
    }
  }
}

static void print_message(const ProtobufCMessage *m, int level, struct text *out) {
  if (level > TEXT_FORMAT_MAX_DEPTH) return;
  for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
    const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
    const char *at = (const char *)m + f->offset;
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
      size_t n = *(const size_t *)((const char *)m + f->quantifier_offset), size = proto_element_size(f->type);
      for (size_t k = 0; k < n; k++) print_one(f, *(char *const *)at + k * size, level, out);
    } else if (is_set(m, f)) {
      print_one(f, at, level, out);
    }
  }
}

void text_format_print(const void *msg, struct text *out) { print_message(msg, 0, out); }
