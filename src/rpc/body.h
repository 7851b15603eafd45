/* A received message: gRPC's slices, as they are or in one piece. */
#ifndef RPC_BODY_H
#define RPC_BODY_H

#include <grpc/byte_buffer.h>
#include <grpc/slice.h>

#include "base/status.h"

struct rpc_body {
  grpc_byte_buffer *bytes; /* NULL: empty */
  grpc_slice flat;         /* once asked for */
  bool is_flat;
};

/* Takes over bytes. */
static inline struct rpc_body rpc_body_of(grpc_byte_buffer *bytes) { return (struct rpc_body){.bytes = bytes}; }
size_t rpc_body_size(const struct rpc_body *b);
/* All of it in one piece, valid until release; copies only when it came in several. */
shoal_status rpc_body_flat(struct rpc_body *b, const void **data, size_t *size);
void rpc_body_release(struct rpc_body *b);

/* A walk over the bytes from the start, slice by slice. */
struct rpc_cursor {
  const grpc_slice *slice;
  size_t left;   /* slices, this one included */
  size_t offset; /* in this slice */
  size_t remain; /* bytes in all */
};
/* False when the message is compressed: use rpc_body_flat then. */
bool rpc_cursor_start(struct rpc_cursor *c, const struct rpc_body *b);
/* Copies n bytes out; false when there are fewer. to NULL skips them. */
bool rpc_cursor_read(struct rpc_cursor *c, void *to, size_t n);

#endif
