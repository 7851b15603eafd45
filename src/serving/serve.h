/* A model server, whole: its models, and the services by which they are asked. */
#ifndef SERVING_SERVE_H
#define SERVING_SERVE_H

#include "rpc/tls.h"
#include "serving/catalog.h"

struct model_server;

struct model_server_options {
  struct models_config *models; /* taken over */
  struct catalog_options catalog;
  const char *host; /* to bind; NULL: loopback */
  int port;         /* 0: any */
  const struct rpc_tls *tls;
  int64_t max_request_bytes;               /* 0: 2 GiB */
  int rest_port;                           /* -1: no REST; 0: any */
  const char *rest_host;                   /* NULL: loopback */
  bool rest_tls;                           /* by TLS, as gRPC */
  int64_t rest_timeout_ms, rest_max_bytes; /* 0: none; 256 MiB */
};

/* Loads the models, and lets clients in. */
shoal_status model_server_start(const struct model_server_options *o, struct model_server **out);
int model_server_port(const struct model_server *s);
int model_server_rest_port(const struct model_server *s);
/* Lets nobody in any more, gives requests grace_ms to end, and frees all. */
void model_server_stop(struct model_server *s, int64_t grace_ms);

#endif
