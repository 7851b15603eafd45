/* Requests that a model brings along, to be answered once before it is served: what is compiled at first use is
 * compiled then. DIR/assets.extra/tf_serving_warmup_requests, a TFRecord file of PredictionLogs. */
#ifndef SERVING_WARMUP_H
#define SERVING_WARMUP_H

#include "serving/servable.h"

/* All of them, at most 1000; none is fine. An error says which request failed. */
shoal_status warmup(struct servable *s, const char *dir);

#endif
