/* Protocol buffers on the wire, read and written by hand where the generated code is too slow or copies too much:
 * graphs, tensors, and the framing of large responses.
 *
 *   struct wire w = wire_of(data, size);
 *   struct wire_field f;
 *   while ((r = wire_next(&w, &f)) > 0)
 *     switch (f.number) {
 *       case 1: name = f.bytes; break;         // bytes, strings, messages, packed numbers
 *       case 2: n = (int64_t)f.value; break;   // numbers
 *     }
 *   if (r < 0) return INVALID("...");
 *
 * A field's wire type is in f.type; wire_is() checks it. Nothing is copied, nothing is allocated by the reader. */
#ifndef PROTO_WIRE_H
#define PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/text.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_GROUP = 3, WIRE_GROUP_END = 4, WIRE_FIXED32 = 5 };

struct wire {
  const uint8_t *at, *end;
};

struct wire_field {
  uint32_t number;
  enum wire_type type; /* never GROUP or GROUP_END: groups are skipped */
  uint64_t value;      /* VARINT, FIXED32, FIXED64 */
  struct wire bytes;   /* BYTES */
};

static inline struct wire wire_of(const void *data, size_t size) {
  return (struct wire){data, (const uint8_t *)data + size};
}
static inline size_t wire_left(const struct wire *w) { return (size_t)(w->end - w->at); }

bool wire_varint_slow(struct wire *w, uint64_t *out);
static inline bool wire_varint(struct wire *w, uint64_t *out) {
  if (w->at < w->end && *w->at < 0x80) {
    *out = *w->at++;
    return true;
  }
  return wire_varint_slow(w, out);
}
bool wire_fixed32(struct wire *w, uint32_t *out);
bool wire_fixed64(struct wire *w, uint64_t *out);
/* The next field: 1; at the end: 0; malformed: -1. */
int wire_next(struct wire *w, struct wire_field *f);
/* The last occurrence of a length-delimited field; false when there is none or the message is malformed. */
bool wire_find(struct wire w, uint32_t number, struct wire *out);

static inline float wire_float(uint64_t bits) {
  uint32_t u = (uint32_t)bits;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static inline double wire_double(uint64_t bits) {
  double d;
  memcpy(&d, &bits, 8);
  return d;
}

/* ---- writing, at the end of a text ---- */

static inline size_t wire_varint_size(uint64_t v) { return (size_t)(70 - __builtin_clzll(v | 1)) / 7; }
void wire_put_varint(struct text *t, uint64_t v);
static inline void wire_put_tag(struct text *t, uint32_t number, enum wire_type type) {
  wire_put_varint(t, (uint64_t)number << 3 | type);
}
/* A number as proto3 has it: nothing is written for 0. */
void wire_put_int(struct text *t, uint32_t number, int64_t v);
/* The same, 0 included (oneofs, map values, repeated). */
void wire_put_int_always(struct text *t, uint32_t number, int64_t v);
void wire_put_float_always(struct text *t, uint32_t number, float v);
void wire_put_bytes(struct text *t, uint32_t number, const void *data, size_t n);
/* Nothing is written for an empty string. */
void wire_put_string(struct text *t, uint32_t number, const char *s);
/* A message (or packed list) of a length not yet known: what is added between begin and end is its body. */
size_t wire_begin(struct text *t, uint32_t number);
void wire_end(struct text *t, size_t begun);

#endif
