/* A received message, in one piece.
 *
 * Its memory is taken in steps as bytes arrive, never on the sender's word alone, and comes out of a budget while it is
 * held: what keeps a flood of large messages out of memory. What a compressed message becomes comes out of the same. */
#ifndef RPC_BODY_H
#define RPC_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/status.h"

/* Messages larger than 64 KiB leave 1/RPC_BODY_LEAVING of the budget to those that are not: however many large ones
 * wait for their ends, the small ones go on. */
enum { RPC_BODY_LEAVING = 8 };

struct rpc_body {
  uint8_t *data; /* NULL: empty */
  size_t size;   /* bytes of the message; while it arrives, those that are there */
  size_t room;
  size_t most;           /* when decompressed; 0: 2 GiB */
  size_t reserved;       /* of the budget, for what is to come */
  struct budget *budget; /* of room; NULL: not counted. Outlives the message */
  bool compressed;       /* as it arrived */
  bool no_room;          /* it was not decompressed since its budget is used up: later it may be */
  /* Bytes that were read to a place of their own, and are not in data. */
  uint8_t *placed;
  size_t placed_at, placed_size;
};

/* Where some bytes of a large message shall go, told by its first bytes (head, n of them, of total): from *at on, *size
 * bytes to *to. False: nowhere but into the message. Must not block. */
typedef bool (*rpc_place)(void *arg, const uint8_t *head, size_t n, size_t total, size_t *at, size_t *size,
                          uint8_t **to);

/* Room for n bytes more than there are, or some multiple of it, but for no more than most in all; false when there is
 * no memory, or the budget is used up. */
bool rpc_body_grow(struct rpc_body *b, size_t n, size_t most);
/* Takes all that a message of n bytes needs from the budget, at once; false: there is no room. */
bool rpc_body_reserve(struct rpc_body *b, size_t n);
struct rpc_body rpc_body_copy(const void *data, size_t size);
size_t rpc_body_size(const struct rpc_body *b);
/* All of it, decompressed, valid until release. */
shoal_status rpc_body_flat(struct rpc_body *b, const void **data, size_t *size);
void rpc_body_release(struct rpc_body *b);

/* A walk over the bytes from the start. */
struct rpc_cursor {
  struct {
    const uint8_t *at;
    size_t n;
  } pieces[3];
  int piece;
  size_t remain; /* bytes in all */
};
/* Over the first n bytes of a message of total bytes. */
static inline struct rpc_cursor rpc_cursor_over(const uint8_t *head, size_t n, size_t total) {
  return (struct rpc_cursor){.pieces = {{head, n}}, .remain = total};
}
/* False when the message is compressed: use rpc_body_flat then. */
bool rpc_cursor_start(struct rpc_cursor *c, const struct rpc_body *b);
/* Copies n bytes out; false when there are fewer. to NULL skips them; bytes that are at to already stay. */
bool rpc_cursor_read(struct rpc_cursor *c, void *to, size_t n);

#endif
