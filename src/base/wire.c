/* Protocol buffers in place; see wire.h. Fixed-width numbers are little-endian on the wire, whatever the machine. */
#include "base/wire.h"

enum { GROUP_BEGIN = 3, GROUP_END = 4, GROUP_DEPTH = 32 };

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

size_t wire_varint_size(uint64_t v) {
  size_t n = 1;
  while (v >= 0x80) v >>= 7, n++;
  return n;
}

static void put_little(struct text *t, uint64_t v, int bytes) {
  char b[8];
  for (int i = 0; i < bytes; i++) b[i] = (char)(v >> (8 * i));
  text_add(t, b, (size_t)bytes);
}

void wire_add_uint(struct text *t, uint32_t tag, uint64_t v) {
  wire_put_varint(t, tag);
  wire_put_varint(t, v);
}

void wire_add_fixed32(struct text *t, uint32_t tag, uint32_t v) {
  wire_put_varint(t, tag);
  put_little(t, v, 4);
}

void wire_add_fixed64(struct text *t, uint32_t tag, uint64_t v) {
  wire_put_varint(t, tag);
  put_little(t, v, 8);
}

void wire_add_float(struct text *t, uint32_t tag, float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  wire_add_fixed32(t, tag, bits);
}

static uint64_t bits_of(double v) {
  uint64_t bits;
  memcpy(&bits, &v, 8);
  return bits;
}

void wire_add_double(struct text *t, uint32_t tag, double v) { wire_add_fixed64(t, tag, bits_of(v)); }

void wire_add_bytes(struct text *t, uint32_t tag, const void *data, size_t n) {
  wire_put_varint(t, tag);
  wire_put_varint(t, n);
  text_add(t, data, n);
}

void wire_add_str(struct text *t, uint32_t tag, const char *s) { wire_add_bytes(t, tag, s, strlen(s)); }

void wire_add_doubles(struct text *t, uint32_t tag, const double *v, size_t n) {
  if (!n) return;
  wire_put_varint(t, tag);
  wire_put_varint(t, n * 8);
  for (size_t i = 0; i < n; i++) put_little(t, bits_of(v[i]), 8);
}

/* One byte is kept for the length, and the body moved up when it turns out to need more: most messages are short,
 * and a pass that only measures would visit everything twice. */
size_t wire_open(struct text *t, uint32_t tag) {
  wire_put_varint(t, tag);
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
  size_t v = n;
  for (; v >= 0x80; v >>= 7) *p++ = (char)(v | 0x80);
  *p = (char)v;
}

bool wire_get_varint_slow(struct wire *w, uint64_t *out) {
  uint64_t v = 0;
  const uint8_t *p = w->at;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (p == w->end) return false;
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

static bool get_little(struct wire *w, int bytes, uint64_t *out) {
  if (w->end - w->at < bytes) return false;
  uint64_t v = 0;
  for (int i = 0; i < bytes; i++) v |= (uint64_t)w->at[i] << (8 * i);
  w->at += bytes;
  *out = v;
  return true;
}

static enum wire_step next(struct wire *w, struct wire_field *f, int depth);

/* Steps over a group that has just begun. */
static bool skip_group(struct wire *w, uint32_t number, int depth) {
  if (depth > GROUP_DEPTH) return false;
  for (;;) {
    struct wire peek = *w;
    uint64_t tag;
    if (!wire_get_varint(&peek, &tag)) return false;
    if ((tag & 7) == GROUP_END) {
      *w = peek;
      return tag >> 3 == number;
    }
    struct wire_field inner;
    struct wire before = *w;
    if (next(w, &inner, depth + 1) != WIRE_FIELD || w->at == before.at) return false;
  }
}

static enum wire_step next(struct wire *w, struct wire_field *f, int depth) {
  for (;;) {
    if (w->at == w->end) return WIRE_END;
    uint64_t tag;
    if (!wire_get_varint(w, &tag) || tag >> 3 == 0 || tag >> 32) return WIRE_BROKEN;
    f->tag = (uint32_t)tag;
    f->number = (uint32_t)(tag >> 3);
    f->data = NULL;
    f->size = 0;
    unsigned type = tag & 7;
    f->type = (enum wire_type)type;
    bool ok = false;
    if (type == WIRE_VARINT) ok = wire_get_varint(w, &f->value);
    else if (type == WIRE_FIXED64) ok = get_little(w, 8, &f->value);
    else if (type == WIRE_FIXED32) ok = get_little(w, 4, &f->value);
    else if (type == WIRE_BYTES) {
      uint64_t n;
      ok = wire_get_varint(w, &n) && n <= (uint64_t)(w->end - w->at);
      if (ok) {
        f->value = n;
        f->data = w->at;
        f->size = (size_t)n;
        w->at += n;
      }
    } else if (type == GROUP_BEGIN) {
      if (!skip_group(w, f->number, depth)) return WIRE_BROKEN;
      if (depth == 0) continue;
      ok = true;
    }
    return ok ? WIRE_FIELD : WIRE_BROKEN;
  }
}

enum wire_step wire_next(struct wire *w, struct wire_field *f) { return next(w, f, 0); }

bool wire_find_tag(struct wire w, uint32_t tag, struct wire *out) {
  struct wire_field f;
  enum wire_step r;
  bool found = false;
  while ((r = wire_next(&w, &f)) == WIRE_FIELD)
    if (f.tag == tag) {
      *out = wire_inside(&f);
      found = true;
    }
  return found && r == WIRE_END;
}
