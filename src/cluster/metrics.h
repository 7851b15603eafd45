/* A server in numbers; see metrics.c. */
#ifndef CLUSTER_METRICS_H
#define CLUSTER_METRICS_H

#include "cluster/server.h"

/* What /shoal.Server/Status answers, beside a text: StatusResponse in src/proto/shoal.proto. */
struct server_numbers {
  int64_t pid, up_ms, tensor_bytes, sessions, running, variables, variable_bytes;
  int64_t global_step; /* -1: it is not here; on the wire one more */
  int64_t memory_bytes, steps, master_sessions;
};

void server_numbers_get(struct shoal_server *s, struct server_numbers *n);

/* /healthz and /metrics. host NULL: loopback; port below 1: any that is free. */
shoal_status server_pages_start(struct shoal_server *s, const char *host, int port);

#endif
