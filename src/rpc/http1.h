/* A server of HTTP/1.1 for requests with bodies, on whose handlers one may wait: REST.
 *
 * One thread has the sockets; a request that is whole is handed to a pool, and its answer comes back to the thread.
 * What strangers can make it hold is bounded by the transport's table (rpc/limits.h): connections, bytes of requests
 * and of answers that are not read, times without a byte. Plain text alone. */
#ifndef RPC_HTTP1_H
#define RPC_HTTP1_H

#include "base/status.h"
#include "base/text.h"
#include "graph/node_def.h"

struct http1;

struct http1_request {
  struct chars method;
  const char *path; /* without the query, escapes resolved */
  struct chars body;
  struct visit *of; /* the connection's */
};

struct http1_answer {
  int code;         /* 200 */
  const char *type; /* a literal: "application/json" */
  struct text body;
};

struct http1_options {
  const char *host; /* NULL: loopback */
  int port;         /* 0: any */
  int threads;      /* of the pool; 0: four for each core */
  size_t max_body;  /* of a request, inflated; 0: 256 MiB */
  /* On a thread of the pool; a is zeroed. */
  void (*handle)(void *arg, const struct http1_request *r, struct http1_answer *a);
  /* For what never becomes a request: too large, no HTTP. */
  void (*refuse)(void *arg, int code, const char *words, struct http1_answer *a);
  void *arg;
};

/* For a handler: may so many bytes beside the body be held until the request is answered? They count from then on. */
bool http1_unpacks(const struct http1_request *r, size_t bytes);

/* Listens, and lets in. */
shoal_status http1_start(const struct http1_options *o, struct http1 **out);
int http1_port(const struct http1 *h);
/* Lets nobody in any more, gives requests that are under way grace_ms to be answered, and ends. NULL is fine. */
void http1_close(struct http1 *h, int64_t grace_ms);
/* After http1_close: waits until it has ended. NULL is fine. */
void http1_stop(struct http1 *h);

#endif
