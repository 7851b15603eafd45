/* ops/text: strings, regular expressions, Unicode, and messages (protocol buffers) as strings. */

/* The types of messages that are linked in: those of src/proto that a program may want to take apart, and what they
 * hold. */
#include <protobuf-c/protobuf-c.h>
#include <string.h>

#include "ops/text/message_type.h"
#include "proto/config.pb-c.h"
#include "proto/event.pb-c.h"
#include "proto/example.pb-c.h"
#include "proto/graph.pb-c.h"
#include "proto/meta_graph.pb-c.h"
#include "proto/step_stats.pb-c.h"
#include "proto/tensor.pb-c.h"

static enum field_type type_of(ProtobufCType t) {
  switch (t) {
    case PROTOBUF_C_TYPE_INT32: return FIELD_INT32;
    case PROTOBUF_C_TYPE_SINT32: return FIELD_SINT32;
    case PROTOBUF_C_TYPE_SFIXED32: return FIELD_SFIXED32;
    case PROTOBUF_C_TYPE_INT64: return FIELD_INT64;
    case PROTOBUF_C_TYPE_SINT64: return FIELD_SINT64;
    case PROTOBUF_C_TYPE_SFIXED64: return FIELD_SFIXED64;
    case PROTOBUF_C_TYPE_UINT32: return FIELD_UINT32;
    case PROTOBUF_C_TYPE_FIXED32: return FIELD_FIXED32;
    case PROTOBUF_C_TYPE_UINT64: return FIELD_UINT64;
    case PROTOBUF_C_TYPE_FIXED64: return FIELD_FIXED64;
    case PROTOBUF_C_TYPE_FLOAT: return FIELD_FLOAT;
    case PROTOBUF_C_TYPE_DOUBLE: return FIELD_DOUBLE;
    case PROTOBUF_C_TYPE_BOOL: return FIELD_BOOL;
    case PROTOBUF_C_TYPE_ENUM: return FIELD_ENUM;
    case PROTOBUF_C_TYPE_STRING: return FIELD_STRING;
    case PROTOBUF_C_TYPE_BYTES: return FIELD_BYTES;
    default: return FIELD_MESSAGE;
  }
}

static const struct enum_type *enum_add(struct message_pool *p, const ProtobufCEnumDescriptor *d) {
  struct enum_type *e = strmap_get(&p->enums_by_name, d->name);
  if (e) return e;
  e = mem_zalloc(1, sizeof *e);
  for (unsigned i = 0; i < d->n_value_names; i++) {
    const ProtobufCEnumValueIndex *v = &d->values_by_name[i];
    vec_push(&e->values, (struct enum_value){mem_strndup(v->name, strlen(v->name)), d->values[v->index].value});
  }
  vec_push(&p->enums, e);
  strmap_put(&p->enums_by_name, d->name, e);
  return e;
}

/* Messages are as deep within each other as src/proto says. */
static const struct message_type *message_add(struct message_pool *p, const ProtobufCMessageDescriptor *d) {
  struct message_type *m = strmap_get(&p->by_name, d->name);
  if (m) return m;
  m = mem_zalloc(1, sizeof *m);
  m->name = mem_strndup(d->name, strlen(d->name));
  vec_push(&p->types, m);
  strmap_put(&p->by_name, m->name, m);
  for (unsigned i = 0; i < d->n_fields; i++) {
    const ProtobufCFieldDescriptor *f = &d->fields[i];
    struct message_field to = {
        .name = mem_strndup(f->name, strlen(f->name)), .number = f->id, .type = type_of(f->type)};
    bool within = to.type == FIELD_MESSAGE, oneof = f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
    to.repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
    to.packed = to.packed_said = to.repeated && f->flags & PROTOBUF_C_FIELD_FLAG_PACKED;
    to.implicit = !to.repeated && !within && !oneof;
    to.oneof = oneof ? (int)f->quantifier_offset : -1; /* members share the place that says which of them is there */
    if (oneof && m->n_oneofs <= to.oneof) m->n_oneofs = to.oneof + 1;
    if (within) to.message = message_add(p, f->descriptor);
    if (to.type == FIELD_ENUM) to.enums = enum_add(p, f->descriptor);
    vec_push(&m->fields, to);
  }
  message_type_finish(m);
  return m;
}

void message_pool_linked(struct message_pool *p) {
  static const ProtobufCMessageDescriptor *const roots[] = {
      &tensorflow__example__descriptor,      &tensorflow__sequence_example__descriptor,
      &tensorflow__graph_def__descriptor,    &tensorflow__meta_graph_def__descriptor,
      &tensorflow__tensor_proto__descriptor, &tensorflow__event__descriptor,
      &tensorflow__config_proto__descriptor, &tensorflow__run_metadata__descriptor,
      &tensorflow__step_stats__descriptor};
  for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) message_add(p, roots[i]);
}
