/* Received messages; see body.h. */
#include "rpc/body.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/block.h"
#include "base/mem.h"

/* FIRST: the least that is taken. STEP: at a time, when decompressing. */
enum { FIRST = 4096, STEP = 64 << 10, GROWTH = 4, SMALL = 64 << 10 };

static bool take(struct rpc_body *b, size_t n, size_t most) {
  if (n <= b->reserved) {
    b->reserved -= n;
    return true;
  }
  return (most <= SMALL || budget_has_room(b->budget, n, RPC_BODY_LEAVING)) && budget_take(b->budget, n);
}

bool rpc_body_reserve(struct rpc_body *b, size_t n) {
  size_t more = n > b->room ? n - b->room : 0;
  if (!budget_has_room(b->budget, more, RPC_BODY_LEAVING) || !budget_take(b->budget, more)) return false;
  b->reserved = more;
  return true;
}

bool rpc_body_grow(struct rpc_body *b, size_t n, size_t most) {
  size_t room = MIN(most, MAX(b->room * GROWTH, b->room + MAX(n, (size_t)FIRST)));
  if (room <= b->room) return most <= b->room;
  size_t more = room - b->room;
  if (!take(b, more, most)) {
    /* Then no more than is needed. */
    room = MIN(most, b->room + n);
    more = room - b->room;
    if (!take(b, more, most)) return false;
  }
  uint8_t *data = block_try_realloc(b->data, room, 1);
  if (!data) {
    budget_give(b->budget, more);
    return false;
  }
  b->data = data;
  b->room = room;
  return true;
}

struct rpc_body rpc_body_copy(const void *data, size_t size) {
  struct rpc_body b = {0};
  if (!size) return b;
  b.data = block_alloc(size);
  b.size = b.room = size;
  memcpy(b.data, data, size);
  return b;
}

size_t rpc_body_size(const struct rpc_body *b) { return b->size; }

/* gzip and zlib alike, told apart by their first bytes. */
static shoal_status decompress(const struct rpc_body *from, struct rpc_body *to) {
  z_stream z = {.next_in = from->data, .avail_in = (uInt)from->size};
  if (from->size > UINT_MAX || inflateInit2(&z, 15 + 32) != Z_OK) return INVALID("the message cannot be decompressed");
  size_t most = from->most ? from->most : INT_MAX;
  int err = Z_OK;
  while (err == Z_OK && (to->size < to->room || (to->room < most && rpc_body_grow(to, STEP, most)))) {
    z.next_out = to->data + to->size;
    z.avail_out = (uInt)MIN(to->room - to->size, UINT_MAX);
    size_t before = z.avail_out;
    err = inflate(&z, Z_NO_FLUSH);
    to->size += before - z.avail_out;
  }
  inflateEnd(&z);
  if (err == Z_STREAM_END) return NULL;
  to->no_room = err == Z_OK && to->room < most;
  if (to->no_room)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED,
                  "there is no room for the message when decompressed beside those that wait (--max_held_bytes)");
  if (err == Z_OK)
    return STATUS(SHOAL_RESOURCE_EXHAUSTED, "the message is larger than max (%zu) when decompressed", most);
  return INVALID("the message cannot be decompressed");
}

/* All bytes in data again. */
static shoal_status gather(struct rpc_body *b) {
  uint8_t *all = block_try_alloc(b->size);
  if (!all) return STATUS(SHOAL_RESOURCE_EXHAUSTED, "there is no memory for a message of %zu bytes", b->size);
  struct rpc_cursor c;
  rpc_cursor_start(&c, b);
  rpc_cursor_read(&c, all, b->size);
  block_free(b->data);
  b->data = all;
  b->placed = NULL;
  return NULL;
}

shoal_status rpc_body_flat(struct rpc_body *b, const void **data, size_t *size) {
  if (b->placed) TRY(gather(b));
  if (b->compressed) {
    struct rpc_body plain = {.budget = b->budget};
    shoal_status s = decompress(b, &plain);
    if (s) {
      b->no_room = plain.no_room;
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
  budget_give(b->budget, b->room + b->reserved);
  block_free(b->data);
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
