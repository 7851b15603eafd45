/* Pages for people's tools: a few fixed paths over HTTP/1.1, for probes and for whoever collects numbers.
 *
 * A server of HTTP/1 (http1.h) that takes GET and HEAD, no bodies, and one request a connection; nothing of a request
 * but its path is used. While the network's loop does not turn, whoever connects is told that. */
#ifndef RPC_HTTP1_PAGES_H
#define RPC_HTTP1_PAGES_H

#include "rpc/http1/http1.h"

struct page {
  const char *path, *type; /* "/healthz", "text/plain; charset=utf-8" */
  /* Writes the page; returns the status: 200, 503. On a thread of the loop. */
  int (*write)(void *arg, struct text *out);
};

struct pages;

/* host: "127.0.0.1", "::1", "0.0.0.0", ...; port 0: any that is free. rows stay the caller's. */
shoal_status pages_start(const char *host, int port, const struct page *rows, int n, void *arg, struct pages **out);
int pages_port(const struct pages *p);
/* Lets nobody in any more, and waits for nobody; NULL is fine. */
void pages_close(struct pages *p);
/* After that: waits for the pages that are being written. NULL is fine. */
void pages_stop(struct pages *p);

/* The answer to a request. Separate for the fuzzer. */
void pages_answer(const struct page *rows, int n_rows, void *arg, const struct http1_request *r,
                  struct http1_answer *a);

#endif
