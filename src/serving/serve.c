/* See serve.h. The port is taken first, so that a server that cannot have it has loaded nothing; nobody is let in
 * before the models are there. */
#include "serving/serve.h"

#include <stdlib.h>

#include "serving/service.h"

struct model_server {
  struct service service;
  struct rpc_server *rpc;
};

static void stop(struct model_server *s, int64_t grace_ms) {
  if (s->rpc) rpc_server_stop(s->rpc, grace_ms);
  catalog_free(s->service.catalog);
  free(s);
}

shoal_status model_server_start(const struct model_server_options *o, struct model_server **out) {
  struct model_server *s = mem_zalloc(1, sizeof *s);
  shoal_status e = rpc_server_start(&(struct rpc_server_options){.host = o->host,
                                                                .port = o->port,
                                                                .tls = o->tls,
                                                                .methods = service_methods,
                                                                .n_methods = service_n_methods,
                                                                .arg = &s->service,
                                                                .max_request_bytes = o->max_request_bytes},
                                    &s->rpc);
  if (!e) e = catalog_new(o->models, &o->catalog, &s->service.catalog);
  if (e) {
    models_config_release(o->models);
    stop(s, 0);
    return e;
  }
  rpc_server_accept(s->rpc);
  *out = s;
  return NULL;
}

int model_server_port(const struct model_server *s) { return rpc_server_port(s->rpc); }

void model_server_stop(struct model_server *s, int64_t grace_ms) { stop(s, grace_ms); }
