/* A server of HTTP/1.1: REST's requests, and the pages of a server (pages.h).
 *
 * Its connections are sources of the network's loop, as gRPC's are: one parser, one writer of answers, one set of
 * time-outs for both of its users, and the budgets, lines and doors that gRPC has (rpc/limits.h, rpc/address.h,
 * rpc/door.h). A request that is whole is worked on by a thread of the loop, in the line of its address: a handler may
 * wait, and says so by rpc_loop_hand_over().
 *
 * http1_parse.c has the bytes, http1_visit.c one connection, http1.c the server, http1_stall.c what is said while the
 * loop does not turn. */
#ifndef RPC_HTTP1_HTTP1_H
#define RPC_HTTP1_HTTP1_H

#include "base/chars.h"
#include "base/status.h"
#include "base/text.h"
#include "rpc/tls.h"

struct http1;

struct http1_request {
  struct chars method;
  const char *path; /* without the query, escapes resolved */
  struct chars body;
  bool has_body;    /* and one that is not read: the server takes none */
  struct visit *of; /* the connection's */
};

struct http1_answer {
  int code;           /* 200 */
  const char *type;   /* a literal: "application/json" */
  const char *fields; /* further ones, a literal: "Allow: GET\r\n"; NULL: none */
  struct text body;
};

struct http1_options {
  const char *host;          /* NULL: loopback */
  int port;                  /* 0: any */
  const char *flags;         /* that say so: to blame */
  const struct rpc_tls *tls; /* NULL: plain text */
  size_t max_body;           /* of a request, inflated; 0: 256 MiB */
  bool no_body;              /* requests that have one are told so by the handler */
  bool once;                 /* one request a connection */
  int max_visits;            /* connections: the oldest goes when one more comes; 0: --max_connections */
  bool tells_stalls;         /* new connections are told of a loop that does not turn */
  /* On a thread of the loop; a is zeroed. */
  void (*handle)(void *arg, const struct http1_request *r, struct http1_answer *a);
  /* For what never becomes a request: too large, no HTTP. Must not block. */
  void (*refuse)(void *arg, int code, const char *words, struct http1_answer *a);
  void *arg;
};

/* For a handler: may so many bytes beside the body be held until the request is answered? They count from then on. */
bool http1_unpacks(const struct http1_request *r, size_t bytes);
/* For a handler: fn(arg) is called, once at most and from any thread, when nobody waits for the answer any more, or the
 * server does not; perhaps at once. Not after http1_wanted, which waits for a call that is under way. */
void http1_on_unwanted(const struct http1_request *r, void (*fn)(void *arg), void *arg);
void http1_wanted(const struct http1_request *r);

/* Listens, and lets in. */
shoal_status http1_start(const struct http1_options *o, struct http1 **out);
int http1_port(const struct http1 *h);
/* Lets nobody in any more, gives requests that are under way grace_ms to be answered, and ends what goes on then. NULL
 * is fine. */
void http1_close(struct http1 *h, int64_t grace_ms);
/* After http1_close: waits until all of it has ended, and frees h. Not on a thread of the loop. NULL is fine. */
void http1_stop(struct http1 *h);

/* The head of an answer; size: of its body. */
void http1_put_head(struct text *out, const struct http1_answer *a, size_t size, bool keep);

#endif
