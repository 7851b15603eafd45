/* Messages on their way out: protocol buffers written into small chunks, tensors' buffers by reference.
 *
 * The messages of a step (RunStep, RunGraph, RecvTensor) are written thousands of times a second, some with hundreds of
 * megabytes of tensor; generated messages would copy every field. base/wire.h has the reader, and the writer for
 * small messages that are nested in these.
 *
 * A field may be as large as what somebody sent: for one that there is no memory for, the message is failed, and
 * whoever sends it gets RESOURCE_EXHAUSTED instead (rpc_message_check). */
#ifndef RPC_MESSAGE_H
#define RPC_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/ref.h"
#include "base/status.h"
#include "base/wire.h"

/* A finished message: pieces of memory, sent in this order. */
struct rpc_message {
  struct rpc_piece {
    const uint8_t *at;
    size_t n;
    void (*release)(void *owner);
    void *owner;
  } * pieces;
  size_t n_pieces;
  size_t size;              /* bytes in all */
  bool failed;              /* there was no memory for some of it */
  struct rpc_message *next; /* its holder's */
  struct ref refs;          /* under its connection's lock, once it is being sent */
};

void rpc_message_free(struct rpc_message *m);
/* RESOURCE_EXHAUSTED when it is failed, or too large to be sent; what: "a request", "an answer". */
shoal_status rpc_message_check(const struct rpc_message *m, const char *what);
/* All of it in one piece, valid as long as m; copies (into m itself) only when there are several. False: there is no
 * memory for that, and m is as it was. */
bool rpc_message_flat(struct rpc_message *m, const void **data, size_t *size);

/* One that is being written. */
struct message {
  struct rpc_piece *pieces; /* finished: [n_pieces] of [cap_pieces] */
  size_t n_pieces, cap_pieces;
  uint8_t *chunk;    /* being filled */
  size_t used, room; /* of chunk; room 0: there is none */
  bool failed;       /* sticks */
};

void message_init(struct message *m);
/* The message, ready to be sent; m is released. */
struct rpc_message *message_finish(struct message *m);
void message_release(struct message *m);
/* Has nothing been written to it? */
static inline bool message_is_empty(const struct message *m) { return !m->n_pieces && !m->used && !m->failed; }

/* Bytes of a length-delimited field: tag, length, contents. */
static inline size_t message_field_size(uint32_t tag, size_t n) {
  return wire_varint_size(tag) + wire_varint_size(n) + n;
}
void message_varint(struct message *m, uint64_t v);
void message_raw(struct message *m, const void *data, size_t n);
/* A varint field, left out when 0 as proto3 does. */
void message_int(struct message *m, uint32_t tag, uint64_t v);
/* A length-delimited field; written even when empty. */
void message_bytes(struct message *m, uint32_t tag, const void *data, size_t n);
/* The same for strings, left out when empty. */
void message_string(struct message *m, uint32_t tag, const char *s);
/* The same for what may quote anything, such as an error's text: a message that is not UTF-8 is no message to its
 * reader. */
void message_text(struct message *m, uint32_t tag, const char *s);
/* Tag and length of a field of n bytes, which the caller writes next. */
void message_header(struct message *m, uint32_t tag, size_t n);
/* n bytes by reference: release(owner) is called when they have been sent. */
void message_reference(struct message *m, const void *data, size_t n, void (*release)(void *owner), void *owner);

/* The bytes of a text as a message; the text is released. */
struct rpc_message *message_from_text(struct text *t);

#endif
