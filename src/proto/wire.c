/* The wire format of protocol buffers. A message is a row of fields; each is a tag (number << 3 | wire type) and
 * then
 *   0  a varint: 7 bits a byte, low ones first, the top bit says that more follow, at most 10 bytes
 *   1  8 bytes, little-endian        5  4 bytes, little-endian
 *   2  a varint length, and as many bytes: strings, bytes, messages, packed lists
 *   3  a group, ended by 4: obsolete, never written by TensorFlow; skipped with its nesting counted, not recursed.
 *
 * Messages of unknown length are written with one byte for the length and moved up when they turn out to need
 * more: most are short, and a pass that only measures would visit every attribute twice. */
#include "proto/wire.h"

#include "base/mem.h"

enum { MAX_GROUPS = 100 };

bool wire_varint_slow(struct wire *w, uint64_t *out) {
  uint64_t v = 0;
  const uint8_t *p = w->at;
  for (int shift = 0; shift < 70 && p < w->end; shift += 7) {
    uint8_t b = *p++;
    v |= (uint64_t)(b & 0x7f) << shift;
    if (b < 0x80) {
      w->at = p;
      *out = v;
      return true;
    }
  }
  return false;
}

bool wire_fixed32(struct wire *w, uint32_t *out) {
  if (wire_left(w) < 4) return false;
  const uint8_t *p = w->at;
  *out = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
  w->at += 4;
  return true;
}

bool wire_fixed64(struct wire *w, uint64_t *out) {
  uint32_t low, high;
  if (wire_left(w) < 8 || !wire_fixed32(w, &low) || !wire_fixed32(w, &high)) return false;
  *out = (uint64_t)high << 32 | low;
  return true;
}

static bool field(struct wire *w, struct wire_field *f) {
  uint64_t tag;
  if (!wire_varint(w, &tag) || tag > UINT32_MAX || !(tag >> 3)) return false;
  f->number = (uint32_t)(tag >> 3);
  f->type = (enum wire_type)(tag & 7);
  switch (f->type) {
    case WIRE_VARINT: return wire_varint(w, &f->value);
    case WIRE_FIXED64: return wire_fixed64(w, &f->value);
    case WIRE_FIXED32: {
      uint32_t v;
      if (!wire_fixed32(w, &v)) return false;
      f->value = v;
      return true;
    }
    case WIRE_BYTES: {
      uint64_t n;
      if (!wire_varint(w, &n) || n > wire_left(w)) return false;
      f->bytes = (struct wire){w->at, w->at + n};
      w->at += n;
      return true;
    }
    case WIRE_GROUP:
    case WIRE_GROUP_END: return true;
  }
  return false;
}

int wire_next(struct wire *w, struct wire_field *f) {
  uint32_t open[MAX_GROUPS];
  int groups = 0;
  while (w->at < w->end) {
    if (!field(w, f)) return -1;
    if (f->type == WIRE_GROUP) {
      if (groups == MAX_GROUPS) return -1;
      open[groups++] = f->number;
    } else if (f->type == WIRE_GROUP_END) {
      if (!groups || open[--groups] != f->number) return -1;
    } else if (!groups) {
      return 1;
    }
  }
  return groups ? -1 : 0;
}

bool wire_find(struct wire w, uint32_t number, struct wire *out) {
  struct wire_field f;
  bool found = false;
  int r;
  while ((r = wire_next(&w, &f)) > 0)
    if (f.number == number && f.type == WIRE_BYTES) {
      *out = f.bytes;
      found = true;
    }
  return found && r == 0;
}

void wire_put_varint(struct text *t, uint64_t v) {
  char b[10];
  size_t n = 0;
  while (v >= 0x80) {
    b[n++] = (char)(v | 0x80);
    v >>= 7;
  }
  b[n++] = (char)v;
  text_add(t, b, n);
}

void wire_put_int_always(struct text *t, uint32_t number, int64_t v) {
  wire_put_tag(t, number, WIRE_VARINT);
  wire_put_varint(t, (uint64_t)v);
}

void wire_put_int(struct text *t, uint32_t number, int64_t v) {
  if (v) wire_put_int_always(t, number, v);
}

void wire_put_float_always(struct text *t, uint32_t number, float v) {
  uint32_t u;
  memcpy(&u, &v, 4);
  char b[4] = {(char)u, (char)(u >> 8), (char)(u >> 16), (char)(u >> 24)};
  wire_put_tag(t, number, WIRE_FIXED32);
  text_add(t, b, 4);
}

void wire_put_bytes(struct text *t, uint32_t number, const void *data, size_t n) {
  wire_put_tag(t, number, WIRE_BYTES);
  wire_put_varint(t, n);
  if (n) text_add(t, data, n);
}

void wire_put_string(struct text *t, uint32_t number, const char *s) {
  size_t n = strlen(s);
  if (n) wire_put_bytes(t, number, s, n);
}

size_t wire_begin(struct text *t, uint32_t number) {
  wire_put_tag(t, number, WIRE_BYTES);
  text_addc(t, 0);
  return t->n;
}

void wire_end(struct text *t, size_t begun) {
  size_t n = t->n - begun, more = wire_varint_size(n) - 1;
  if (more) {
    char pad[10] = {0};
    text_add(t, pad, more);
    memmove(t->at + begun + more, t->at + begun, n);
  }
  char *p = t->at + begun - 1;
  for (size_t v = n;; v >>= 7) {
    *p++ = (char)(v >= 0x80 ? (v | 0x80) : v);
    if (v < 0x80) break;
  }
}
