/* See serve.h. The port is taken first, so that a server that cannot have it has loaded nothing; nobody is let in
 * before the models are there. */
#include "serving/serve.h"

#include <stdlib.h>

#include "serving/rest.h"
#include "serving/service.h"

struct model_server {
  struct service service;
  struct rpc_server *rpc;
  struct rest rest;
  struct http1 *http;
};

static void stop(struct model_server *s, int64_t grace_ms) {
  http1_close(s->http, grace_ms); /* both at a time: neither lets anybody in while the other ends */
  if (s->rpc) rpc_server_stop(s->rpc, grace_ms);
  http1_stop(s->http);
  catalog_free(s->service.catalog);
  free(s);
}

static shoal_status start_rest(struct model_server *s, const struct model_server_options *o) {
  if (o->rest_port < 0) return NULL;
  s->rest = (struct rest){s->service.catalog, o->rest_timeout_ms};
  return http1_start(&(struct http1_options){.host = o->rest_host,
                                             .port = o->rest_port,
                                             .flags = "--rest_api_port",
                                             .tls = o->rest_tls ? o->tls : NULL,
                                             .max_body = (size_t)o->rest_max_bytes,
                                             .handle = rest_handle,
                                             .refuse = rest_refuse,
                                             .arg = &s->rest},
                     &s->http);
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
  if (!e) e = start_rest(s, o);
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

int model_server_rest_port(const struct model_server *s) { return s->http ? http1_port(s->http) : -1; }

void model_server_stop(struct model_server *s, int64_t grace_ms) { stop(s, grace_ms); }
