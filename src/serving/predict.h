/* Predict: a PredictRequest's bytes become a query, its answers a PredictResponse. */
#ifndef SERVING_PREDICT_H
#define SERVING_PREDICT_H

#include "rpc/message.h"
#include "serving/query.h"

/* Room for what a request becomes; false: there is none. */
typedef bool (*predict_room)(void *arg, size_t bytes);

/* Inputs and wanted outputs of a request, of which the model_spec has been read. room may be NULL. */
shoal_status predict_read(struct query *q, struct wire request, predict_room room, void *arg);
/* Large tensors are in the message by reference. */
shoal_status predict_response(const struct query *q, struct rpc_message **out);

#endif
