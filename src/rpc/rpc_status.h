/* Errors on the wire. gRPC's status codes are ours; the text is cut to what a peer's header limit lets through; the
 * marks "derived" and "possibly restarted" travel in the trailer grpc-status-details-bin, as TensorFlow has them:
 *
 *   GrpcPayloadContainer  { 0a LEN { 0a LEN KEY 12 00 } }*     a map from type names to empty bytes */
#ifndef RPC_STATUS_H
#define RPC_STATUS_H

#include "base/status.h"
#include "base/text.h"

enum { RPC_MESSAGE_MAX = 3072 };

/* The message, cut where it is too long; out is filled. */
void rpc_status_text(shoal_status s, struct text *out);
/* The trailer's bytes; empty when there are no marks. */
void rpc_status_payload(shoal_status s, struct text *out);
/* The status of a finished call, by what its trailers said: NULL when OK. */
shoal_status rpc_status_from(int code, const struct text *message, const struct text *payload);

#endif
