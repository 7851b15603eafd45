/* Before outside bytes become messages: protobuf-c recurses as deep as the bytes say and allocates for every
 * element they name, so they are checked against the schema first. */
#ifndef PROTO_PROTO_CHECK_H
#define PROTO_PROTO_CHECK_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/status.h"

struct proto_limits {
  int max_depth;       /* messages within messages, the outermost being 1; 0: 100, as protobuf's own parsers */
  size_t max_size;     /* bytes of the message; 0: 2 GiB - 1 */
  size_t max_overhead; /* bytes that unpacking takes for structures and lists, beyond the copied bytes; 0: 1 GiB */
};
enum { PROTO_MAX_DEPTH = 100 };

/* Well-formed, within the limits (NULL: the defaults), every known field of its declared type. INVALID_ARGUMENT
 * names the message, the offset and what is wrong. Allocates nothing, recurses nowhere. */
shoal_status proto_check(const ProtobufCMessageDescriptor *d, const void *data, size_t size,
                         const struct proto_limits *limits);

/* Checks with the default limits, and unpacks. Free *out with proto_free. */
shoal_status proto_unpack(const ProtobufCMessageDescriptor *d, const void *data, size_t size, void *out);
shoal_status proto_unpack_within(const ProtobufCMessageDescriptor *d, const void *data, size_t size,
                                 const struct proto_limits *limits, void *out);
void proto_free(void *msg); /* NULL is fine */
/* Bytes that one value of a field takes in a message's structure. */
size_t proto_element_size(ProtobufCType type);

#endif
