/* Messages on their way out; see message.h. */
#include "rpc/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/block.h"
#include "base/mem.h"

enum { CHUNK = 1000 }; /* a block of 1 KiB */

static void release_pieces(struct rpc_piece *pieces, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (pieces[i].release) pieces[i].release(pieces[i].owner);
  block_free(pieces);
}

static struct rpc_message *message_of(struct rpc_piece *pieces, size_t n) {
  struct rpc_message *m = block_alloc(sizeof *m);
  *m = (struct rpc_message){.pieces = pieces, .n_pieces = n};
  ref_init(&m->refs, 1);
  for (size_t i = 0; i < n; i++) m->size += pieces[i].n;
  return m;
}

void rpc_message_free(struct rpc_message *m) {
  if (!m) return;
  release_pieces(m->pieces, m->n_pieces);
  block_free(m);
}

shoal_status rpc_message_check(const struct rpc_message *m, const char *what) {
  if (m->failed) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "OOM: there is no memory for %s", what);
  if (m->size <= UINT32_MAX) return NULL;
  return STATUS(SHOAL_RESOURCE_EXHAUSTED, "%s of %zu bytes cannot be sent: gRPC's messages have less than 4 GiB", what,
                m->size);
}

bool rpc_message_flat(struct rpc_message *m, const void **data, size_t *size) {
  if (m && m->n_pieces > 1) {
    uint8_t *all = block_try_alloc(m->size);
    if (!all) return false;
    size_t at = 0;
    for (size_t i = 0; i < m->n_pieces; at += m->pieces[i++].n)
      if (m->pieces[i].n) memcpy(all + at, m->pieces[i].at, m->pieces[i].n);
    release_pieces(m->pieces, m->n_pieces);
    m->pieces = block_alloc(sizeof *m->pieces);
    m->pieces[0] = (struct rpc_piece){all, m->size, block_free, all};
    m->n_pieces = 1;
  }
  *data = m && m->n_pieces ? m->pieces[0].at : (const uint8_t *)"";
  *size = m ? m->size : 0;
  return true;
}

void message_init(struct message *m) { *m = (struct message){0}; }

static void add_piece(struct message *m, struct rpc_piece piece) {
  enum { FEW = 4 };
  if (m->n_pieces == m->cap_pieces) {
    struct rpc_piece *before = m->pieces;
    m->cap_pieces = m->cap_pieces ? m->cap_pieces * 2 : FEW;
    m->pieces = block_alloc(m->cap_pieces * sizeof *m->pieces);
    if (before) memcpy(m->pieces, before, m->n_pieces * sizeof *before);
    block_free(before);
  }
  m->pieces[m->n_pieces++] = piece;
}

static void close_chunk(struct message *m) {
  if (m->used) add_piece(m, (struct rpc_piece){m->chunk, m->used, block_free, m->chunk});
  else if (m->room) block_free(m->chunk);
  m->used = m->room = 0;
}

/* Room for n more bytes in one piece; NULL, and the message is failed, when they are many and there is no memory. */
static uint8_t *reserve(struct message *m, size_t n) {
  if (m->room - m->used < n) {
    close_chunk(m);
    m->chunk = n > CHUNK ? block_try_alloc(n) : block_alloc(CHUNK);
    if (!m->chunk) {
      m->failed = true;
      return NULL;
    }
    m->room = n > CHUNK ? n : CHUNK;
  }
  uint8_t *p = m->chunk + m->used;
  m->used += n;
  return p;
}

struct rpc_message *message_finish(struct message *m) {
  close_chunk(m);
  struct rpc_message *done = message_of(m->pieces, m->n_pieces);
  done->failed = m->failed;
  *m = (struct message){0};
  return done;
}

void message_release(struct message *m) {
  close_chunk(m);
  release_pieces(m->pieces, m->n_pieces);
  *m = (struct message){0};
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
  uint8_t *to = n ? reserve(m, n) : NULL;
  if (to) memcpy(to, data, n);
}

void message_int(struct message *m, uint32_t tag, uint64_t v) {
  if (!v) return;
  message_varint(m, tag);
  message_varint(m, v);
}

void message_header(struct message *m, uint32_t tag, size_t n) {
  message_varint(m, tag);
  message_varint(m, n);
}

void message_bytes(struct message *m, uint32_t tag, const void *data, size_t n) {
  message_header(m, tag, n);
  message_raw(m, data, n);
}

void message_string(struct message *m, uint32_t tag, const char *s) {
  if (*s) message_bytes(m, tag, s, strlen(s));
}

void message_text(struct message *m, uint32_t tag, const char *s) {
  struct text t = {0};
  text_add_utf8(&t, s, strlen(s));
  message_bytes(m, tag, t.at, t.n);
  text_release(&t);
}

void message_reference(struct message *m, const void *data, size_t n, void (*release)(void *owner), void *owner) {
  close_chunk(m);
  add_piece(m, (struct rpc_piece){data, n, release, owner});
}

struct rpc_message *message_from_text(struct text *t) {
  struct rpc_piece *piece = NULL;
  size_t n = t->n;
  if (n) {
    piece = block_alloc(sizeof *piece);
    char *all = text_take(t);
    *piece = (struct rpc_piece){(const uint8_t *)all, n, free, all};
  }
  text_release(t);
  return message_of(piece, n ? 1 : 0);
}
