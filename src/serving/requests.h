/* How often models were asked, with which outcome, and how long it took: for Prometheus, under TensorFlow Serving's
 * names. Models that are not there are counted together, whatever they were called. */
#ifndef SERVING_REQUESTS_H
#define SERVING_REQUESTS_H

#include "base/status.h"
#include "base/text.h"

enum request_api { REQUEST_PREDICT, REQUEST_CLASSIFY, REQUEST_REGRESS, REQUEST_MULTI_INFERENCE, REQUEST_APIS };
enum request_entry { REQUEST_GRPC, REQUEST_REST, REQUEST_ENTRIES };

/* A request that began at a moment of clock_ns() is over. model NULL: none was found. */
void requests_count(const char *model, enum request_api api, enum request_entry entry, int64_t began, shoal_status s);
void requests_write(struct text *out);

#endif
