/* How many names and values a request has: each takes far more here than the two bytes it may take in the message. */
#ifndef CLUSTER_REQUEST_PARTS_H
#define CLUSTER_REQUEST_PARTS_H

#include "base/wire.h"
#include "rpc/server.h"

/* Before a message with lists is unpacked: RESOURCE_EXHAUSTED when its lists are too long, or there is no room for what
 * they become beside what other requests hold; that room is given back with the call. call: NULL where requests are
 * counted otherwise. */
shoal_status request_parts(struct rpc_call *call, const void *data, size_t size);
/* The request of a call, so counted. */
shoal_status request_read(struct rpc_call *call, struct wire *out);

#endif
