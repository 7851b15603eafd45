/* A walk over wire bytes with the schema beside it. The stack of open messages is an array of the depth allowed,
 * so hostile nesting costs an error and not our own stack.
 *
 * A sum is kept of what protobuf-c will allocate: a message of two bytes ("empty, field 1") becomes a structure of
 * a hundred, and a megabyte of them should be refused before, not after, the memory is gone. */
#include "proto/proto_check.h"

#include <stdint.h>

#include "base/wire.h"

struct level {
  const ProtobufCMessageDescriptor *d;
  const uint8_t *end;
};

static shoal_status bad(const ProtobufCMessageDescriptor *d, size_t offset, const char *what) {
  return INVALID("Could not parse a %s: %s at byte %zu", d->name, what, offset);
}

/* Elements of a packed list: their number, or -1 when the bytes do not come out even. */
static int64_t packed_count(ProtobufCType type, struct wire w) {
  int64_t n = 0;
  uint64_t v;
  switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32: return wire_left(&w) % 4 ? -1 : (int64_t)(wire_left(&w) / 4);
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64: return wire_left(&w) % 8 ? -1 : (int64_t)(wire_left(&w) / 8);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return -1;
    default:
      for (; w.at < w.end; n++)
        if (!wire_get_varint(&w, &v)) return -1;
      return n;
  }
}

static enum wire_type type_on_wire(ProtobufCType type) {
  switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32: return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64: return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE: return WIRE_BYTES;
    default: return WIRE_VARINT;
  }
}

shoal_status proto_check(const ProtobufCMessageDescriptor *d, const void *data, size_t size,
                         const struct proto_limits *limits) {
  struct proto_limits l = limits ? *limits : (struct proto_limits){0};
  if (l.max_depth <= 0 || l.max_depth > PROTO_MAX_DEPTH) l.max_depth = PROTO_MAX_DEPTH;
  if (!l.max_size) l.max_size = INT32_MAX;
  if (!l.max_overhead) l.max_overhead = (size_t)1 << 30;
  if (size > l.max_size) return INVALID("A %s of %zu bytes is over the limit of %zu", d->name, size, l.max_size);

  struct level stack[PROTO_MAX_DEPTH] = {{d, (const uint8_t *)data + size}};
  int depth = 0;
  size_t overhead = d->sizeof_message;
  const uint8_t *start = data;
  struct wire w = {data, stack[0].end};
  for (;;) {
    struct level *top = &stack[depth];
    if (w.at == top->end) {
      if (depth-- == 0) return NULL;
      w.end = stack[depth].end;
      continue;
    }
    w.end = top->end;
    size_t offset = (size_t)(w.at - start);
    struct wire_field f;
    struct wire before = w;
    uint64_t tag;
    if (wire_get_varint(&before, &tag) && (tag & 7) == 3) return bad(top->d, offset, "a group");
    if (wire_next(&w, &f) != WIRE_FIELD) return bad(top->d, offset, "malformed bytes");
    const ProtobufCFieldDescriptor *fd = protobuf_c_message_descriptor_get_field(top->d, f.number);
    if (!fd) {
      overhead += sizeof(ProtobufCMessageUnknownField) + 16;
    } else if (f.type != type_on_wire(fd->type)) {
      int64_t n =
          fd->label == PROTOBUF_C_LABEL_REPEATED && f.type == WIRE_BYTES ? packed_count(fd->type, wire_inside(&f)) : -1;
      if (n < 0) return bad(top->d, offset, "a field of another type than declared");
      overhead += (size_t)n * 8;
    } else {
      overhead += 24;
      if (fd->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessageDescriptor *sub = fd->descriptor;
        if (depth + 1 >= l.max_depth) return bad(top->d, offset, "messages nested too deeply");
        overhead += sub->sizeof_message;
        stack[++depth] = (struct level){sub, f.data + f.size};
        w.at = f.data;
        w.end = f.data + f.size;
      }
    }
    if (overhead > l.max_overhead) return bad(top->d, offset, "more elements than the limit allows");
  }
}

shoal_status proto_unpack_within(const ProtobufCMessageDescriptor *d, const void *data, size_t size,
                                 const struct proto_limits *limits, void *out) {
  ProtobufCMessage **msg = out;
  *msg = NULL;
  TRY(proto_check(d, data, size, limits));
  *msg = protobuf_c_message_unpack(d, NULL, size, size ? data : (const uint8_t *)"");
  if (!*msg) return INVALID("Could not parse a %s of %zu bytes", d->name, size);
  return NULL;
}

shoal_status proto_unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t size, void *out) {
  return proto_unpack_within(d, data, size, NULL, out);
}

void proto_free(void *msg) {
  if (msg) protobuf_c_message_free_unpacked(msg, NULL);
}

size_t proto_element_size(ProtobufCType type) {
  switch (type) {
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return 8;
    default: return 4;
  }
}
