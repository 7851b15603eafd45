/* Pages for people's tools: a few fixed paths over HTTP/1.1, for probes and for whoever collects numbers.
 *
 * They have a thread of their own, so that they can tell of a network loop that does not turn. Only GET and HEAD; one
 * request a connection; nothing of a request but its path is used. */
#ifndef RPC_PAGES_H
#define RPC_PAGES_H

#include "base/status.h"
#include "base/text.h"

struct page {
  const char *path, *type; /* "/healthz", "text/plain; charset=utf-8" */
  /* Writes the page; returns the status: 200, 503. On the pages' thread. */
  int (*write)(void *arg, struct text *out);
};

struct pages;

/* host: "127.0.0.1", "::1", "0.0.0.0", ...; port 0: any that is free. rows stay the caller's. */
shoal_status pages_start(const char *host, int port, const struct page *rows, int n, void *arg, struct pages **out);
int pages_port(const struct pages *p);
/* Waits for the thread; NULL is fine. */
void pages_stop(struct pages *p);

/* The answer to the n bytes of a request that came so far: false while it is not whole. Separate for the fuzzer. */
bool pages_answer(const struct page *rows, int n_rows, void *arg, const char *request, size_t n, struct text *out);

#endif
