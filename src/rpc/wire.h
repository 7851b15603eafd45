/* Protocol buffers by hand: a reader that refers to the bytes it was given, and a writer into gRPC slices that can
 * refer to tensors' buffers.
 *
 * The messages of a step (RunStep, RunGraph, RecvTensor) pass through these thousands of times a second, some with
 * hundreds of megabytes of tensor. Unpacking them with protobuf-c would copy every field twice; here nothing is
 * copied but what the tensor itself needs. The other messages of the services are few and small, and use the same. */
#ifndef RPC_WIRE_H
#define RPC_WIRE_H

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* ---- reading ---- */

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire {
  const uint8_t *at, *end;
  bool bad; /* a malformed field was met */
};

struct wire_field {
  uint32_t number;
  enum wire_type type;
  uint64_t value;      /* varint and fixed */
  const uint8_t *data; /* bytes: into the message */
  size_t size;
};

static inline struct wire wire_of(const void *data, size_t size) {
  return (struct wire){.at = data, .end = (const uint8_t *)data + size};
}
static inline struct wire wire_in(const struct wire_field *f) { return wire_of(f->data, f->size); }
/* The next field; false at the end or when the rest is malformed (then bad is set). Groups are malformed. */
bool wire_next(struct wire *w, struct wire_field *f);
/* The field as a new C string; bytes after a NUL are dropped. */
char *wire_string(const struct wire_field *f);
/* INVALID_ARGUMENT naming the message when bad. */
shoal_status wire_check(const struct wire *w, const char *message);
/* Fields that must have a wire type: skips (returns false) when another came. */
static inline bool wire_is(const struct wire_field *f, uint32_t number, enum wire_type type) {
  return f->number == number && f->type == type;
}
bool wire_varint(const uint8_t **at, const uint8_t *end, uint64_t *out);

/* ---- writing ---- */

struct wire_out {
  grpc_slice_buffer slices; /* finished */
  grpc_slice chunk;         /* being filled */
  size_t used, room;        /* of chunk; room 0: none */
};

void wire_out_init(struct wire_out *w);
/* The message as gRPC sends it; w is empty again. */
grpc_byte_buffer *wire_out_finish(struct wire_out *w);
void wire_out_release(struct wire_out *w);

size_t wire_size_varint(uint64_t v);
/* Tag and length prefix, and n bytes. */
static inline size_t wire_size_bytes(uint32_t number, size_t n) {
  return wire_size_varint((uint64_t)number << 3) + wire_size_varint(n) + n;
}
void wire_put_varint(struct wire_out *w, uint64_t v);
void wire_put_raw(struct wire_out *w, const void *data, size_t n);
/* A varint field, left out when 0 as proto3 does. */
void wire_put_int(struct wire_out *w, uint32_t number, uint64_t v);
void wire_put_fixed64(struct wire_out *w, uint32_t number, uint64_t v);
/* A length-delimited field; written even when empty. */
void wire_put_bytes(struct wire_out *w, uint32_t number, const void *data, size_t n);
/* The same for strings, left out when empty. */
void wire_put_string(struct wire_out *w, uint32_t number, const char *s);
/* Tag and length of a field of n bytes that the caller writes next. */
void wire_put_header(struct wire_out *w, uint32_t number, size_t n);
/* n bytes by reference: release(owner) is called when they have been sent. */
void wire_put_ref(struct wire_out *w, const void *data, size_t n, void (*release)(void *owner), void *owner);

/* Small messages into a text (to be nested in another). */
void wire_text_varint(struct text *t, uint64_t v);
void wire_text_int(struct text *t, uint32_t number, uint64_t v);
void wire_text_bytes(struct text *t, uint32_t number, const void *data, size_t n);
void wire_text_string(struct text *t, uint32_t number, const char *s);
void wire_text_fixed64(struct text *t, uint32_t number, uint64_t v);

#endif
