/* Tensors in the services' messages: out of a tensor's own buffer, into the buffer the consumer will read.
 *
 * RecvTensorResponse as TensorFlow frames it (all but strings, resources and variants):
 *   [10 01]                 is_dead, only if dead
 *   18 <varint>             send_start_micros
 *   0a <len>                tensor:
 *     08 <dtype>
 *     12 <len> { 12 <len> 08 <dim> }*     left out for a scalar
 *     22 <len> <raw bytes>  the tensor's buffer, by reference when larger than 1 KB */
#ifndef CLUSTER_TRANSFER_H
#define CLUSTER_TRANSFER_H

#include "rpc/body.h"
#include "rpc/message.h"
#include "tensor/tensor.h"

/* A TensorProto as the field of that tag. RESOURCE_EXHAUSTED when the message would pass gRPC's 2 GiB. */
shoal_status transfer_put(struct message *m, uint32_t tag, const struct tensor *t);
/* A NamedTensorProto {name, tensor}. */
shoal_status transfer_put_named(struct message *m, uint32_t tag, const char *name, const struct tensor *t);

/* transport_options between Shoal's own tasks, in RecvTensor's messages and (RunGraphExtra) in RunGraph's: a
 * google.protobuf.Any of this type. */
#define TRANSFER_FAST_PATH "type.shoal/FastPath"

/* Can a RecvTensorResponse hold it? A gRPC message has at most 2 GiB. */
bool transfer_fits(const struct tensor *value);
/* value is not consumed; a dead one may be empty. ticket (optional): where the fast path begins. */
shoal_status transfer_response(const struct tensor *value, bool is_dead, const struct text *ticket,
                               struct rpc_message **out);
/* A RecvBufResponse with the tensor's bytes; it is not consumed. */
shoal_status transfer_buffer_response(const struct tensor *value, struct rpc_message **out);
/* The answer for a value too large for gRPC: only the ticket. The receiver asks again, by the fast path. */
struct rpc_message *transfer_elsewhere(const struct text *ticket);
/* Given the first n bytes of a large RecvTensorResponse: makes the tensor (*room, invalid so far) that its value can be
 * read into, and says which bytes of the message that are; false when it is not of the usual kind. */
bool transfer_place(const uint8_t *head, size_t n, size_t total, struct tensor *room, size_t *at, size_t *size);
/* The value of a RecvTensorResponse, in room if that was made for it (taken over; otherwise invalid). INTERNAL "could
 * not parse rpc response" when it is none. ticket (optional) gets the sender's, if it gave one; without a value it
 * means transfer_elsewhere. */
shoal_status transfer_parse(struct rpc_body *body, struct tensor *room, struct tensor *value, bool *is_dead,
                            struct text *ticket);
/* An Any of TRANSFER_FAST_PATH as the field of that tag; and its value, read. False: it is another. */
void transfer_put_fast(struct message *m, uint32_t tag, const void *value, size_t n);
bool transfer_get_fast(struct wire any, struct text *value);

#endif
