/* Received messages; see body.h. */
#include "rpc/body.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/impl/codegen/grpc_types.h>
#include <string.h>

#include "base/mem.h"

size_t rpc_body_size(const struct rpc_body *b) { return b->bytes ? grpc_byte_buffer_length(b->bytes) : 0; }

shoal_status rpc_body_flat(struct rpc_body *b, const void **data, size_t *size) {
  if (!b->is_flat) {
    if (!b->bytes) {
      b->flat = grpc_empty_slice();
    } else if (b->bytes->type == GRPC_BB_RAW && b->bytes->data.raw.compression == GRPC_COMPRESS_NONE &&
               b->bytes->data.raw.slice_buffer.count == 1) {
      b->flat = grpc_slice_ref(b->bytes->data.raw.slice_buffer.slices[0]);
    } else {
      grpc_byte_buffer_reader r;
      if (!grpc_byte_buffer_reader_init(&r, b->bytes))
        return STATUS(SHOAL_INVALID_ARGUMENT, "the message cannot be decompressed");
      b->flat = grpc_byte_buffer_reader_readall(&r);
      grpc_byte_buffer_reader_destroy(&r);
    }
    b->is_flat = true;
  }
  *data = GRPC_SLICE_START_PTR(b->flat);
  *size = GRPC_SLICE_LENGTH(b->flat);
  return NULL;
}

void rpc_body_release(struct rpc_body *b) {
  if (b->bytes) grpc_byte_buffer_destroy(b->bytes);
  if (b->is_flat) grpc_slice_unref(b->flat);
  *b = (struct rpc_body){0};
}

bool rpc_cursor_start(struct rpc_cursor *c, const struct rpc_body *b) {
  *c = (struct rpc_cursor){0};
  if (!b->bytes) return true;
  if (b->bytes->type != GRPC_BB_RAW || b->bytes->data.raw.compression != GRPC_COMPRESS_NONE) return false;
  const grpc_slice_buffer *s = &b->bytes->data.raw.slice_buffer;
  *c = (struct rpc_cursor){.slice = s->slices, .left = s->count, .remain = s->length};
  return true;
}

bool rpc_cursor_read(struct rpc_cursor *c, void *to, size_t n) {
  if (c->remain < n) return false;
  c->remain -= n;
  uint8_t *out = to;
  while (n) {
    size_t here = MIN(n, GRPC_SLICE_LENGTH(*c->slice) - c->offset);
    if (out && here) {
      memcpy(out, GRPC_SLICE_START_PTR(*c->slice) + c->offset, here);
      out += here;
    }
    n -= here;
    c->offset += here;
    if (c->offset == GRPC_SLICE_LENGTH(*c->slice) && c->left > 1) {
      c->slice++;
      c->left--;
      c->offset = 0;
    }
  }
  return true;
}
