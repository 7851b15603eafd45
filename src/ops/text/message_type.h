/* Types of messages that are known only when a graph runs: what EncodeProto and DecodeProtoV2 are told by a
 * FileDescriptorSet, or what is linked in. */
#ifndef OPS_TEXT_MESSAGE_TYPE_H
#define OPS_TEXT_MESSAGE_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strmap.h"
#include "base/vec.h"

/* As descriptor.proto numbers them. */
enum field_type {
  FIELD_DOUBLE = 1,
  FIELD_FLOAT,
  FIELD_INT64,
  FIELD_UINT64,
  FIELD_INT32,
  FIELD_FIXED64,
  FIELD_FIXED32,
  FIELD_BOOL,
  FIELD_STRING,
  FIELD_GROUP,
  FIELD_MESSAGE,
  FIELD_BYTES,
  FIELD_UINT32,
  FIELD_ENUM,
  FIELD_SFIXED32,
  FIELD_SFIXED64,
  FIELD_SINT32,
  FIELD_SINT64,
};
const char *field_type_name(enum field_type t); /* "int32" */
/* The wire type of a value outside a packed list: 0 varint, 1 eight bytes, 2 length and bytes, 3 group, 5 four bytes.
 */
int field_wire(enum field_type t);

struct enum_value {
  char *name;
  int32_t number;
};
struct enum_type {
  VEC(struct enum_value) values;
  bool closed; /* numbers without a name are no values (proto2) */
};

struct message_field {
  char *name; /* of an extension: in full */
  uint32_t number;
  enum field_type type;
  bool repeated, required, extension;
  bool packed_said; /* [packed = true] stands in the file */
  bool packed;      /* how a list is written */
  bool implicit;    /* of proto3: zero is as good as absent */
  int oneof;        /* -1: none */
  const struct message_type *message;
  const struct enum_type *enums;
  /* The default: an integer or bool as bits, a float or double as real, text of strings (NULL: empty). */
  uint64_t bits;
  double real;
  char *text;
  size_t text_n;
};

struct message_type {
  char *name;                       /* "package.Outer.Inner" */
  VEC(struct message_field) fields; /* by number */
  struct strmap by_name;            /* of fields */
  int n_oneofs;
  size_t n_required;
};
/* To be called when all fields are there; false when two have one name or number. */
bool message_type_finish(struct message_type *m);
/* A group by the name of its type. */
const struct message_field *message_group_named(const struct message_type *m, const char *name, size_t n);
const struct message_field *message_field_named(const struct message_type *m, const char *name, size_t n);
const struct message_field *message_field_numbered(const struct message_type *m, uint32_t number);

struct message_pool {
  VEC(struct message_type *) types;
  VEC(struct enum_type *) enums;
  struct strmap by_name, enums_by_name;
};
enum { MESSAGE_SET_MAX = 16 << 20 }; /* bytes of a set */
/* Everything comes from outside: names, numbers and types are checked, and nothing is larger than its bytes pay for. */
shoal_status message_pool_read(struct message_pool *p, const void *data, size_t size);
/* The types of the messages that this program itself reads and writes. */
void message_pool_linked(struct message_pool *p);
const struct message_type *message_pool_find(const struct message_pool *p, const char *name);
void message_pool_release(struct message_pool *p);

#endif
