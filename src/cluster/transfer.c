/* Tensors in messages; see transfer.h. */
#include "cluster/transfer.h"

#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "proto/any.wire.h"
#include "proto/master.wire.h"
#include "proto/tensor.wire.h"
#include "proto/types.wire.h"
#include "proto/worker.wire.h"
#include "tensor/tensor_proto.h"

/* Below INLINE a copy is cheaper than a piece of its own; above FLAT a message is read without looking for every field
 * first. */
enum { INLINE = 1024, FLAT = 64 << 10 };

static void drop_buffer(void *buffer) { buffer_unref(buffer); }

/* What stands before the raw bytes of a plain tensor, or the whole of any other. */
static shoal_status encode_head(const struct tensor *t, struct text *head, size_t *total) {
  if (dtype_plain((shoal_dtype)t->dtype)) {
    tensor_proto_header(t, head);
    *total = head->n + tensor_bytes(t);
  } else {
    TRY(tensor_proto_encode(t, head));
    *total = head->n;
  }
  if (*total > INT_MAX - 4096)
    return STATUS(
        SHOAL_RESOURCE_EXHAUSTED,
        "a tensor of %s%s takes %zu bytes, but a gRPC message holds at most 2 GiB: split it (for instance with "
        "a partitioned variable)",
        dtype_tf_name(t->dtype), shape_str((struct shape[]){tensor_shape(t)}), *total);
  return NULL;
}

static void put_body(struct message *m, const struct tensor *t, const struct text *head) {
  message_raw(m, head->at, head->n);
  size_t n = dtype_plain((shoal_dtype)t->dtype) ? tensor_bytes(t) : 0;
  if (n <= INLINE) message_raw(m, t->data, n);
  else message_reference(m, t->data, n, drop_buffer, buffer_ref(t->buffer));
}

shoal_status transfer_put(struct message *m, uint32_t tag, const struct tensor *t) {
  struct text head = {.in_block = true};
  size_t total;
  shoal_status s = encode_head(t, &head, &total);
  if (!s) {
    message_header(m, tag, total);
    put_body(m, t, &head);
  }
  text_release(&head);
  return s;
}

shoal_status transfer_put_named(struct message *m, uint32_t tag, const char *name, const struct tensor *t) {
  struct text head = {.in_block = true};
  size_t total, name_n = strlen(name);
  shoal_status s = encode_head(t, &head, &total);
  if (!s) {
    message_header(
        m, tag, message_field_size(NamedTensorProto_name, name_n) + message_field_size(NamedTensorProto_tensor, total));
    message_bytes(m, NamedTensorProto_name, name, name_n);
    message_header(m, NamedTensorProto_tensor, total);
    put_body(m, t, &head);
  }
  text_release(&head);
  return s;
}

void transfer_put_fast(struct message *m, uint32_t tag, const void *value, size_t n) {
  struct text any = {.in_block = true};
  put_Any_type_url(&any, TRANSFER_FAST_PATH);
  put_Any_value_n(&any, value, n);
  message_bytes(m, tag, any.at, any.n);
  text_release(&any);
}

bool transfer_get_fast(struct wire any, struct text *value) {
  bool ours = false;
  struct wire found = wire_from("", 0);
  for (struct wire_field f; wire_next(&any, &f) == WIRE_FIELD;) {
    if (f.tag == Any_type_url)
      ours = f.size == strlen(TRANSFER_FAST_PATH) && !memcmp(f.data, TRANSFER_FAST_PATH, f.size);
    if (f.tag == Any_value) found = wire_inside(&f);
  }
  if (ours && value) text_add(value, (const char *)found.at, wire_left(&found));
  return ours;
}

bool transfer_fits(const struct tensor *value) {
  return !tensor_valid(value) || !dtype_plain((shoal_dtype)value->dtype) || tensor_bytes(value) < INT_MAX - 8192;
}

struct rpc_message *transfer_elsewhere(const struct text *ticket) {
  struct message m;
  message_init(&m);
  transfer_put_fast(&m, RecvTensorResponse_transport_options, ticket->at, ticket->n);
  return message_finish(&m);
}

shoal_status transfer_response(const struct tensor *value, bool is_dead, const struct text *ticket,
                               struct rpc_message **out) {
  struct message m;
  message_init(&m);
  if (is_dead) message_int(&m, RecvTensorResponse_is_dead, 1);
  message_int(&m, RecvTensorResponse_send_start_micros, (uint64_t)wall_micros());
  if (ticket && ticket->n) transfer_put_fast(&m, RecvTensorResponse_transport_options, ticket->at, ticket->n);
  shoal_status s = NULL;
  if (tensor_valid(value)) {
    s = transfer_put(&m, RecvTensorResponse_tensor, value);
  } else {
    static const uint8_t empty[] = {/* float [0] */
                                    TensorProto_dtype,          DataType_DT_FLOAT,
                                    TensorProto_tensor_shape,   4,
                                    TensorShapeProto_dim,       2,
                                    TensorShapeProto_Dim_size,  0,
                                    TensorProto_tensor_content, 0};
    message_bytes(&m, RecvTensorResponse_tensor, empty, sizeof empty);
  }
  if (s) message_release(&m);
  else *out = message_finish(&m);
  return s;
}

shoal_status transfer_buffer_response(const struct tensor *value, struct rpc_message **out) {
  static const char type[] = "type.googleapis.com/tensorflow.RecvBufRespExtra";
  if (tensor_valid(value) && value->dtype != SHOAL_UINT8)
    return INVALID("RecvBuf asks for a value that is no message of a collective");
  if (!tensor_valid(value) || !transfer_fits(value))
    return STATUS(SHOAL_RESOURCE_EXHAUSTED,
                  "a part of a collective does not fit into a gRPC message, of at most 2 GiB");
  size_t bytes = tensor_bytes(value), extra = message_field_size(RecvBufRespExtra_tensor_content, bytes);
  struct message m;
  message_init(&m);
  message_header(&m, RecvBufResponse_transport_options,
                 message_field_size(Any_type_url, strlen(type)) + message_field_size(Any_value, extra));
  message_bytes(&m, Any_type_url, type, strlen(type));
  message_header(&m, Any_value, extra);
  message_header(&m, RecvBufRespExtra_tensor_content, bytes);
  put_body(&m, value, &(struct text){0});
  message_int(&m, RecvBufResponse_send_start_micros, (uint64_t)wall_micros());
  *out = message_finish(&m);
  return NULL;
}

static bool read_varint(struct rpc_cursor *c, uint64_t *v) {
  *v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    uint8_t b;
    if (!rpc_cursor_read(c, &b, 1)) return false;
    *v |= (uint64_t)(b & 0x7f) << shift;
    if (!(b & 0x80)) return true;
  }
  return false;
}

enum found { FOUND, UNUSUAL };

/* A plain tensor of n bytes in the usual order of fields, up to its contents: those are the next *size bytes. Anything
 * else is left to the general reader. */
static enum found read_head(struct rpc_cursor *c, size_t n, shoal_dtype *type, struct shape *shape, size_t *size,
                            shoal_status *s) {
  if (n > c->remain) return UNUSUAL;
  size_t after = c->remain - n;
  uint64_t tag, v, dtype = 0;
  *shape = shape_scalar();
  while (c->remain > after) {
    if (!read_varint(c, &tag)) return UNUSUAL;
    if (tag == TensorProto_dtype) {
      if (!read_varint(c, &dtype)) return UNUSUAL;
    } else if (tag == TensorProto_version_number) {
      if (!read_varint(c, &v)) return UNUSUAL;
    } else if (tag == TensorProto_tensor_shape) {
      uint8_t bytes[512];
      if (!read_varint(c, &v) || v > sizeof bytes || !rpc_cursor_read(c, bytes, v)) return UNUSUAL;
      if ((*s = shape_proto_decode(bytes, v, shape))) return FOUND;
    } else if (tag == TensorProto_tensor_content) {
      int64_t elements;
      if (!read_varint(c, &v) || c->remain < after || v != c->remain - after || dtype > DTYPE_COUNT ||
          !dtype_valid((int)dtype) || !dtype_plain((shoal_dtype)dtype) || dtype == SHOAL_BOOL)
        return UNUSUAL;
      *type = (shoal_dtype)dtype;
      if ((*s = tensor_bytes_for(*type, shape, &elements, size))) return FOUND;
      return *size == v ? FOUND : UNUSUAL;
    } else {
      return UNUSUAL;
    }
  }
  return UNUSUAL;
}

/* Such a tensor, its contents read into room if that was made for it, or a new buffer. */
static enum found read_tensor(struct rpc_cursor *c, size_t n, struct tensor *room, struct tensor *out,
                              shoal_status *s) {
  shoal_dtype dtype;
  struct shape shape;
  size_t size;
  if (read_head(c, n, &dtype, &shape, &size, s) == UNUSUAL) return UNUSUAL;
  if (*s) return FOUND;
  struct shape have = tensor_valid(room) ? tensor_shape(room) : shape_scalar();
  if (tensor_valid(room) && room->dtype == dtype && shape_equal(&have, &shape)) {
    *out = *room;
    *room = tensor_none();
  } else if ((*s = tensor_new(out, dtype, &shape))) {
    return FOUND;
  }
  rpc_cursor_read(c, out->data, size);
  return FOUND;
}

bool transfer_place(const uint8_t *head, size_t n, size_t total, struct tensor *room, size_t *at, size_t *size) {
  struct rpc_cursor c = rpc_cursor_over(head, n, total);
  for (uint64_t tag, v; read_varint(&c, &tag) && read_varint(&c, &v);) {
    if (tag == RecvTensorResponse_tensor) {
      shoal_dtype dtype;
      struct shape shape;
      shoal_status s = NULL;
      bool usual = read_head(&c, v, &dtype, &shape, size, &s) == FOUND && !s;
      *at = total - c.remain;
      usual = usual && *size > n && !(s = tensor_new(room, dtype, &shape)); /* what is wrong is told when all is here */
      shoal_status_free(s);
      return usual;
    }
    if ((tag & 7) == WIRE_BYTES ? !rpc_cursor_read(&c, NULL, v) : (tag & 7) != WIRE_VARINT) return false;
  }
  return false;
}

/* Large messages, straight from where they arrived. */
static enum found parse_large(struct rpc_body *body, struct tensor *room, struct tensor *value, bool *is_dead,
                              struct text *ticket, shoal_status *s) {
  struct rpc_cursor c;
  uint64_t tag, v;
  bool have = false;
  if (!rpc_cursor_start(&c, body)) return UNUSUAL;
  while (c.remain && !*s) {
    if (!read_varint(&c, &tag) || !read_varint(&c, &v)) break;
    if (tag == RecvTensorResponse_tensor && !have) {
      if (read_tensor(&c, v, room, value, s) == UNUSUAL) break;
      have = true;
    } else if (tag == RecvTensorResponse_is_dead) {
      *is_dead = v != 0;
    } else if (tag == RecvTensorResponse_transport_options && v <= 512) {
      uint8_t any[512];
      if (!rpc_cursor_read(&c, any, v)) break;
      if (ticket) transfer_get_fast(wire_from(any, v), ticket);
    } else if ((tag & 7) == WIRE_BYTES) {
      if (!rpc_cursor_read(&c, NULL, v)) break;
    } else if ((tag & 7) != WIRE_VARINT) {
      break;
    }
  }
  if (*s || (have && !c.remain)) return FOUND;
  if (have) tensor_release(value);
  *is_dead = false;
  return UNUSUAL;
}

shoal_status transfer_parse(struct rpc_body *body, struct tensor *room, struct tensor *value, bool *is_dead,
                            struct text *ticket) {
  *is_dead = false;
  *value = tensor_none();
  shoal_status s = NULL;
  if (rpc_body_size(body) > FLAT && parse_large(body, room, value, is_dead, ticket, &s) == FOUND) {
    if (s && tensor_valid(value)) tensor_release(value);
    return s;
  }
  const void *data;
  size_t size;
  TRY(rpc_body_flat(body, &data, &size));
  struct wire w = wire_from(data, size), tensor = {0};
  enum wire_step step;
  for (struct wire_field f; (step = wire_next(&w, &f)) == WIRE_FIELD;) {
    if (f.tag == RecvTensorResponse_tensor) tensor = wire_inside(&f);
    if (f.tag == RecvTensorResponse_is_dead) *is_dead = f.value != 0;
    if (f.tag == RecvTensorResponse_transport_options && ticket) transfer_get_fast(wire_inside(&f), ticket);
  }
  if (step == WIRE_BROKEN) return INTERNAL("could not parse rpc response");
  if (!tensor.at && ticket && ticket->n) return NULL;
  if (!tensor.at) return tensor_new_dims(value, SHOAL_FLOAT32, 1, (const int64_t[]){0});
  s = tensor_proto_decode(tensor.at, wire_left(&tensor), value);
  return s ? status_prefix(s, "could not parse rpc response: ") : NULL;
}
