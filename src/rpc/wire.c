/* Protocol buffers by hand; see wire.h. */
#include "rpc/wire.h"

#include <grpc/slice_buffer.h>
#include <string.h>

#include "base/mem.h"

enum { CHUNK = 1024 };

bool wire_varint(const uint8_t **at, const uint8_t *end, uint64_t *out) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (*at == end) return false;
    uint8_t b = *(*at)++;
    v |= (uint64_t)(b & 0x7f) << shift;
    if (!(b & 0x80)) {
      *out = v;
      return true;
    }
  }
  return false;
}

static bool fixed(struct wire *w, size_t n, uint64_t *out) {
  if ((size_t)(w->end - w->at) < n) return false;
  *out = 0;
  for (size_t i = 0; i < n; i++) *out |= (uint64_t)w->at[i] << (8 * i);
  w->at += n;
  return true;
}

bool wire_next(struct wire *w, struct wire_field *f) {
  if (w->bad || w->at == w->end) return false;
  uint64_t tag;
  bool ok = wire_varint(&w->at, w->end, &tag) && tag >> 3 != 0 && tag >> 3 < 1u << 29;
  if (ok) {
    *f = (struct wire_field){.number = (uint32_t)(tag >> 3), .type = (enum wire_type)(tag & 7)};
    switch (tag & 7) {
      case WIRE_VARINT: ok = wire_varint(&w->at, w->end, &f->value); break;
      case WIRE_FIXED64: ok = fixed(w, 8, &f->value); break;
      case WIRE_FIXED32: ok = fixed(w, 4, &f->value); break;
      case WIRE_BYTES: {
        uint64_t n;
        ok = wire_varint(&w->at, w->end, &n) && n <= (uint64_t)(w->end - w->at);
        if (ok) {
          f->data = w->at;
          f->size = (size_t)n;
          w->at += n;
        }
        break;
      }
      default: ok = false;
    }
  }
  w->bad = !ok;
  return ok;
}

char *wire_string(const struct wire_field *f) { return mem_strndup((const char *)f->data, f->size); }

shoal_status wire_check(const struct wire *w, const char *message) {
  if (w->bad) return INVALID("%s is malformed: it does not parse as a protocol buffer", message);
  return NULL;
}

void wire_out_init(struct wire_out *w) {
  grpc_slice_buffer_init(&w->slices);
  w->used = w->room = 0;
}

static void close_chunk(struct wire_out *w) {
  if (!w->room) return;
  if (w->used) {
    GRPC_SLICE_SET_LENGTH(w->chunk, w->used);
    grpc_slice_buffer_add_indexed(&w->slices, w->chunk);
  } else {
    grpc_slice_unref(w->chunk);
  }
  w->used = w->room = 0;
}

/* Room for n more bytes in one piece. */
static uint8_t *reserve(struct wire_out *w, size_t n) {
  if (w->room - w->used < n) {
    close_chunk(w);
    w->room = n > CHUNK ? n : CHUNK;
    w->chunk = grpc_slice_malloc(w->room);
  }
  uint8_t *p = GRPC_SLICE_START_PTR(w->chunk) + w->used;
  w->used += n;
  return p;
}

grpc_byte_buffer *wire_out_finish(struct wire_out *w) {
  close_chunk(w);
  grpc_byte_buffer *b = grpc_raw_byte_buffer_create(w->slices.slices, w->slices.count);
  grpc_slice_buffer_reset_and_unref(&w->slices);
  return b;
}

void wire_out_release(struct wire_out *w) {
  close_chunk(w);
  grpc_slice_buffer_destroy(&w->slices);
}

size_t wire_size_varint(uint64_t v) {
  size_t n = 1;
  while (v >>= 7) n++;
  return n;
}

static size_t encode(uint8_t *p, uint64_t v) {
  size_t n = 0;
  for (; v > 0x7f; v >>= 7) p[n++] = (uint8_t)(v | 0x80);
  p[n++] = (uint8_t)v;
  return n;
}

void wire_put_varint(struct wire_out *w, uint64_t v) {
  uint8_t *p = reserve(w, 10);
  w->used -= 10 - encode(p, v);
}

void wire_put_raw(struct wire_out *w, const void *data, size_t n) {
  if (n) memcpy(reserve(w, n), data, n);
}

void wire_put_int(struct wire_out *w, uint32_t number, uint64_t v) {
  if (!v) return;
  wire_put_varint(w, (uint64_t)number << 3 | WIRE_VARINT);
  wire_put_varint(w, v);
}

void wire_put_fixed64(struct wire_out *w, uint32_t number, uint64_t v) {
  wire_put_varint(w, (uint64_t)number << 3 | WIRE_FIXED64);
  uint8_t *p = reserve(w, 8);
  for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> (8 * i));
}

void wire_put_header(struct wire_out *w, uint32_t number, size_t n) {
  wire_put_varint(w, (uint64_t)number << 3 | WIRE_BYTES);
  wire_put_varint(w, n);
}

void wire_put_bytes(struct wire_out *w, uint32_t number, const void *data, size_t n) {
  wire_put_header(w, number, n);
  wire_put_raw(w, data, n);
}

void wire_put_string(struct wire_out *w, uint32_t number, const char *s) {
  if (*s) wire_put_bytes(w, number, s, strlen(s));
}

void wire_put_ref(struct wire_out *w, const void *data, size_t n, void (*release)(void *owner), void *owner) {
  close_chunk(w);
  grpc_slice_buffer_add_indexed(&w->slices,
                                grpc_slice_new_with_user_data((void *)(uintptr_t)data, n, release, owner));
}

void wire_text_varint(struct text *t, uint64_t v) {
  uint8_t p[10];
  text_add(t, (char *)p, encode(p, v));
}

void wire_text_int(struct text *t, uint32_t number, uint64_t v) {
  if (!v) return;
  wire_text_varint(t, (uint64_t)number << 3 | WIRE_VARINT);
  wire_text_varint(t, v);
}

void wire_text_bytes(struct text *t, uint32_t number, const void *data, size_t n) {
  wire_text_varint(t, (uint64_t)number << 3 | WIRE_BYTES);
  wire_text_varint(t, n);
  text_add(t, data, n);
}

void wire_text_string(struct text *t, uint32_t number, const char *s) {
  if (*s) wire_text_bytes(t, number, s, strlen(s));
}

void wire_text_fixed64(struct text *t, uint32_t number, uint64_t v) {
  uint8_t p[8];
  for (int i = 0; i < 8; i++) p[i] = (uint8_t)(v >> (8 * i));
  wire_text_varint(t, (uint64_t)number << 3 | WIRE_FIXED64);
  text_add(t, (char *)p, 8);
}
