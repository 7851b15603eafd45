/* REST, as TensorFlow Serving answers it:
 *
 *   POST /v1/models/NAME[/versions/N|/labels/L]:predict|classify|regress
 *   GET  /v1/models/NAME[/versions/N|/labels/L][/metadata]
 *   GET  /monitoring/prometheus/metrics */
#ifndef SERVING_REST_H
#define SERVING_REST_H

#include "rpc/http1/http1.h"
#include "serving/catalog.h"

/* The handlers' argument. */
struct rest {
  struct catalog *catalog;
  int64_t timeout_ms; /* of a request; 0: none */
};

void rest_handle(void *rest, const struct http1_request *r, struct http1_answer *a);
void rest_refuse(void *rest, int code, const char *words, struct http1_answer *a);

#endif
