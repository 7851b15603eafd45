/* Received messages; see body.h. */
#include "rpc/body.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/mem.h"

enum { FIRST = 256 << 10 };

bool rpc_body_grow(struct rpc_body *b, size_t n) {
  if (n <= b->room) return true;
  size_t room = MIN(n, MAX(b->room * 4, (size_t)FIRST)), more = room - b->room;
  if (b->tally && atomic_fetch_add(&b->tally->held, more) + more > b->tally->most) {
    atomic_fetch_sub(&b->tally->held, more);
    return false;
  }
  uint8_t *data = realloc(b->data, room); /* large ones grow without a copy: the pages move */
  if (!data) {
    if (b->tally) atomic_fetch_sub(&b->tally->held, more);
    return false;
  }
  b->data = data;
  b->room = room;
  return true;
}

struct rpc_body rpc_body_copy(const void *data, size_t size) {
  struct rpc_body b = {0};
  if (!size) return b;
  b.data = mem_alloc(size);
  b.size = b.room = size;
  memcpy(b.data, data, size);
  return b;
}

size_t rpc_body_size(const struct rpc_body *b) { return b->size; }

/* gzip and zlib alike, told apart by their first bytes. */
static shoal_status decompress(const struct rpc_body *from, struct rpc_body *to) {
  z_stream z = {.next_in = from->data, .avail_in = (uInt)from->size};
  if (from->size > UINT_MAX || inflateInit2(&z, 15 + 32) != Z_OK) return INVALID("the message cannot be decompressed");
  int err = Z_OK;
  while (err == Z_OK && rpc_body_grow(to, to->room == to->size ? to->room + 1 + FIRST : to->room)) {
    z.next_out = to->data + to->size;
    z.avail_out = (uInt)MIN(to->room - to->size, UINT_MAX);
    size_t before = z.avail_out;
    err = inflate(&z, Z_NO_FLUSH);
    to->size += before - z.avail_out;
    if (to->size > INT_MAX) break;
  }
  inflateEnd(&z);
  if (err == Z_STREAM_END) return NULL;
  if (err == Z_OK) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "the message is too large when decompressed");
  return INVALID("the message cannot be decompressed");
}

/* All bytes in data again. */
static shoal_status gather(struct rpc_body *b) {
  uint8_t *all = malloc(b->size);
  if (!all) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "there is no memory for a message of %zu bytes", b->size);
  struct rpc_cursor c;
  rpc_cursor_start(&c, b);
  rpc_cursor_read(&c, all, b->size);
  free(b->data);
  b->data = all;
  b->placed = NULL;
  return NULL;
}

shoal_status rpc_body_flat(struct rpc_body *b, const void **data, size_t *size) {
  if (b->placed) TRY(gather(b));
  if (b->compressed) {
    struct rpc_body plain = {.tally = b->tally};
    shoal_status s = decompress(b, &plain);
    if (s) {
      rpc_body_release(&plain);
      return s;
    }
    rpc_body_release(b);
    *b = plain;
  }
  *data = b->data ? b->data : (const uint8_t *)"";
  *size = b->size;
  return NULL;
}

void rpc_body_release(struct rpc_body *b) {
  if (b->tally && b->room) atomic_fetch_sub(&b->tally->held, b->room);
  free(b->data);
  *b = (struct rpc_body){0};
}

bool rpc_cursor_start(struct rpc_cursor *c, const struct rpc_body *b) {
  size_t before = b->placed ? b->placed_at : b->size;
  *c = (struct rpc_cursor){.pieces = {{b->data, before}}, .remain = b->size};
  if (b->placed) {
    c->pieces[1].at = b->placed;
    c->pieces[1].n = b->placed_size;
    c->pieces[2].at = b->data + before;
    c->pieces[2].n = b->size - before - b->placed_size;
  }
  return !b->compressed;
}

bool rpc_cursor_read(struct rpc_cursor *c, void *to, size_t n) {
  if (c->remain < n) return false;
  c->remain -= n;
  for (uint8_t *out = to; n;) {
    while (c->piece < (int)COUNT_OF(c->pieces) && !c->pieces[c->piece].n) c->piece++;
    if (c->piece == (int)COUNT_OF(c->pieces)) return false;
    size_t here = MIN(n, c->pieces[c->piece].n);
    if (out && out != c->pieces[c->piece].at) memcpy(out, c->pieces[c->piece].at, here);
    if (out) out += here;
    c->pieces[c->piece].at += here;
    c->pieces[c->piece].n -= here;
    n -= here;
  }
  return true;
}
