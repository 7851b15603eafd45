/* Messages on their way out; see message.h. */
#include "rpc/message.h"

#include <grpc/slice_buffer.h>
#include <string.h>

#include "base/mem.h"

enum { CHUNK = 1024 };

void message_init(struct message *m) {
  grpc_slice_buffer_init(&m->slices);
  m->used = m->room = 0;
}

static void close_chunk(struct message *m) {
  if (!m->room) return;
  if (m->used) {
    GRPC_SLICE_SET_LENGTH(m->chunk, m->used);
    grpc_slice_buffer_add_indexed(&m->slices, m->chunk);
  } else {
    grpc_slice_unref(m->chunk);
  }
  m->used = m->room = 0;
}

/* Room for n more bytes in one piece. */
static uint8_t *reserve(struct message *m, size_t n) {
  if (m->room - m->used < n) {
    close_chunk(m);
    m->room = n > CHUNK ? n : CHUNK;
    m->chunk = grpc_slice_malloc(m->room);
  }
  uint8_t *p = GRPC_SLICE_START_PTR(m->chunk) + m->used;
  m->used += n;
  return p;
}

grpc_byte_buffer *message_finish(struct message *m) {
  close_chunk(m);
  grpc_byte_buffer *b = grpc_raw_byte_buffer_create(m->slices.slices, m->slices.count);
  grpc_slice_buffer_destroy(&m->slices);
  return b;
}

void message_release(struct message *m) {
  close_chunk(m);
  grpc_slice_buffer_destroy(&m->slices);
}

static size_t encode(uint8_t *p, uint64_t v) {
  size_t n = 0;
  for (; v > 0x7f; v >>= 7) p[n++] = (uint8_t)(v | 0x80);
  p[n++] = (uint8_t)v;
  return n;
}

void message_varint(struct message *m, uint64_t v) {
  uint8_t *p = reserve(m, 10);
  m->used -= 10 - encode(p, v);
}

void message_raw(struct message *m, const void *data, size_t n) {
  if (n) memcpy(reserve(m, n), data, n);
}

void message_int(struct message *m, uint32_t field, uint64_t v) {
  if (!v) return;
  message_varint(m, (uint64_t)field << 3 | WIRE_VARINT);
  message_varint(m, v);
}

void message_header(struct message *m, uint32_t field, size_t n) {
  message_varint(m, (uint64_t)field << 3 | WIRE_BYTES);
  message_varint(m, n);
}

void message_bytes(struct message *m, uint32_t field, const void *data, size_t n) {
  message_header(m, field, n);
  message_raw(m, data, n);
}

void message_string(struct message *m, uint32_t field, const char *s) {
  if (*s) message_bytes(m, field, s, strlen(s));
}

void message_reference(struct message *m, const void *data, size_t n, void (*release)(void *owner), void *owner) {
  close_chunk(m);
  grpc_slice_buffer_add_indexed(&m->slices, grpc_slice_new_with_user_data((void *)(uintptr_t)data, n, release, owner));
}

grpc_byte_buffer *message_from_text(struct text *t) {
  grpc_slice s = grpc_slice_from_copied_buffer(text_cstr(t), t->n);
  grpc_byte_buffer *b = grpc_raw_byte_buffer_create(&s, 1);
  grpc_slice_unref(s);
  text_release(t);
  return b;
}
