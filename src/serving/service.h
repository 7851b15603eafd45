/* PredictionService and ModelService: what TensorFlow Serving answers by gRPC. */
#ifndef SERVING_SERVICE_H
#define SERVING_SERVICE_H

#include "rpc/server.h"
#include "serving/catalog.h"

/* The handlers' argument. */
struct service {
  struct catalog *catalog;
};

extern const struct rpc_method service_methods[];
extern const int service_n_methods;

#endif
