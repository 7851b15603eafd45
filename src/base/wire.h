/* Protocol buffers in place: a writer that appends fields to a text, and a reader that walks a message's fields
 * without ever leaving its bounds. Nothing is unpacked, copied or allocated.
 *
 * Which number and type a field has is said in src/proto alone: tools/gen_wire.c makes of it names to compare tags with
 * and functions that put fields (proto/NAME.wire.h). Numbers are handed to the functions below only by those, and by
 * what learns a schema while running (DecodeProto and its like). */
#ifndef BASE_WIRE_H
#define BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/text.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* A tag is a field's number and its type, as on the wire. */
static inline uint32_t wire_tag(uint32_t number, enum wire_type type) { return number << 3 | type; }
static inline uint32_t wire_tag_number(uint32_t tag) { return tag >> 3; }
static inline enum wire_type wire_tag_type(uint32_t tag) { return (enum wire_type)(tag & 7); }

/* ---- writing ---- */
void wire_put_varint(struct text *t, uint64_t v);
/* A tag and a value. These write zero values too: leaving out defaults is the caller's choice. Whoever knows the field
 * when compiling calls its own function instead (put_NodeDef_name), which fits its type. */
void wire_add_uint(struct text *t, uint32_t tag, uint64_t v);
void wire_add_float(struct text *t, uint32_t tag, float v);
void wire_add_double(struct text *t, uint32_t tag, double v);
void wire_add_fixed32(struct text *t, uint32_t tag, uint32_t v);
void wire_add_fixed64(struct text *t, uint32_t tag, uint64_t v);
void wire_add_bytes(struct text *t, uint32_t tag, const void *data, size_t n);
void wire_add_str(struct text *t, uint32_t tag, const char *s);
/* A packed repeated double. Nothing when n is 0. */
void wire_add_doubles(struct text *t, uint32_t tag, const double *v, size_t n);
/* An embedded message (or packed list) written in place: what is added between open and end is its body. */
size_t wire_open(struct text *t, uint32_t tag);
void wire_end(struct text *t, size_t begun);
/* Bytes that v takes as a varint; at most 10. */
size_t wire_varint_size(uint64_t v);

/* ---- reading ---- */
struct wire {
  const uint8_t *at, *end;
};

/* One field. Its tag, which is its number and type, is what is compared with the names of src/proto.
 * Integers of any width are in value; bytes point into the message. */
struct wire_field {
  uint32_t tag;
  uint32_t number;
  enum wire_type type;
  uint64_t value;
  const uint8_t *data;
  size_t size;
};

/* Of a message of no bytes data may be NULL. */
static inline struct wire wire_from(const void *data, size_t n) {
  return (struct wire){data, n ? (const uint8_t *)data + n : data};
}
static inline struct wire wire_inside(const struct wire_field *f) { return wire_from(f->data, f->size); }

bool wire_get_varint_slow(struct wire *w, uint64_t *out);
/* False when the message ends inside, or after ten bytes. */
static inline bool wire_get_varint(struct wire *w, uint64_t *out) {
  if (w->at < w->end && *w->at < 0x80) {
    *out = *w->at++;
    return true;
  }
  return wire_get_varint_slow(w, out);
}

enum wire_step { WIRE_END, WIRE_FIELD, WIRE_BROKEN };
/* The next field; unknown groups are stepped over. */
enum wire_step wire_next(struct wire *w, struct wire_field *f);

static inline size_t wire_left(const struct wire *w) { return (size_t)(w->end - w->at); }
/* The last field of that tag, which is one of bytes, all fields before and after it being sound. */
bool wire_find_tag(struct wire w, uint32_t tag, struct wire *out);

static inline float wire_float(const struct wire_field *f) {
  uint32_t bits = (uint32_t)f->value;
  float v;
  memcpy(&v, &bits, 4);
  return v;
}
static inline double wire_double(const struct wire_field *f) {
  double v;
  memcpy(&v, &f->value, 8);
  return v;
}

#endif
