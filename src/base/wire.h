/* Protocol buffers by hand: a writer that appends fields to a text, and a reader that walks a message's fields
 * without ever leaving its bounds.
 *
 * For places where a generated message would cost more than it gives: bytes that are written field by field in a
 * fixed order (summaries, events, bundle entries) or that are read once at full speed (Example). Everything else
 * uses the generated messages of src/proto. */
#ifndef BASE_WIRE_H
#define BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/text.h"

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* ---- writing ---- */
void wire_put_varint(struct text *t, uint64_t v);
/* A tag and a value. These write zero values too: leaving out defaults is the caller's choice. */
void wire_put_uint(struct text *t, uint32_t field, uint64_t v);
void wire_put_float(struct text *t, uint32_t field, float v);
void wire_put_double(struct text *t, uint32_t field, double v);
void wire_put_fixed32(struct text *t, uint32_t field, uint32_t v);
void wire_put_bytes(struct text *t, uint32_t field, const void *data, size_t n);
void wire_put_str(struct text *t, uint32_t field, const char *s);
/* An embedded message or string, whose bytes are another text's. */
void wire_put_text(struct text *t, uint32_t field, const struct text *inner);
/* A packed repeated double. Nothing when n is 0. */
void wire_put_doubles(struct text *t, uint32_t field, const double *v, size_t n);
/* An embedded message (or packed list) written in place: what is added between begin and end is its body. */
size_t wire_begin(struct text *t, uint32_t field);
void wire_end(struct text *t, size_t begun);
/* Bytes that v takes as a varint; at most 10. */
size_t wire_varint_size(uint64_t v);

/* ---- reading ---- */
struct wire {
  const uint8_t *at, *end;
};

/* One field. Integers of any width are in value; bytes point into the message. */
struct wire_field {
  uint32_t number;
  enum wire_type type;
  uint64_t value;
  const uint8_t *data;
  size_t size;
};

static inline struct wire wire_from(const void *data, size_t n) {
  return (struct wire){data, (const uint8_t *)data + n};
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
/* The last length-delimited field of that number, all fields before and after it being sound. */
bool wire_find(struct wire w, uint32_t number, struct wire *out);

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
