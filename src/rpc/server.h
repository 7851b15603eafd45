/* A gRPC server with unary methods on raw bytes.
 *
 * A handler runs on a thread of the loop as soon as the request has arrived. It answers with rpc_call_reply() or
 * rpc_call_fail(), at once or later from any thread: a call that waits costs no thread. A call that is not answered
 * when its handler returns is watched: when its client goes away, or its deadline passes, the call's cancel function is
 * called. */
#ifndef RPC_SERVER_H
#define RPC_SERVER_H

#include <stdint.h>

#include "base/status.h"
#include "rpc/address.h"
#include "rpc/body.h"
#include "rpc/message.h"
#include "rpc/tls.h"

struct rpc_call;
struct rpc_event;
struct rpc_server;

struct rpc_method {
  const char *name; /* "/tensorflow.MasterService/RunStep" */
  void (*fn)(struct rpc_call *call, void *arg);
};

struct rpc_server_options {
  const char *host;                 /* to bind: "127.0.0.1", "[::]", ...; NULL: loopback */
  int port;                         /* 0: any */
  const struct rpc_tls *tls;        /* NULL: plain text */
  const struct rpc_method *methods; /* stay the caller's */
  int n_methods;
  void *arg;                 /* for the handlers */
  int64_t max_request_bytes; /* 0: 2 GiB */
};

/* Listens: the port is known, and nobody is let in before rpc_server_accept(), which is for when all that handlers need
 * is there. UNKNOWN "Could not start gRPC server" with the cause when the port is taken. */
shoal_status rpc_server_start(const struct rpc_server_options *o, struct rpc_server **out);
void rpc_server_accept(struct rpc_server *s);
int rpc_server_port(const struct rpc_server *s);
/* Connections that are open. */
int rpc_server_connections(struct rpc_server *s);
/* How many of its clients work with it: have a connection over which they opened more than they closed, or which they
 * used less than idle_ns ago. As handlers said by rpc_call_uses. */
int rpc_server_users(struct rpc_server *s, int64_t idle_ns);
/* Takes no more calls, gives those running grace_ms to end, then cancels them and waits; frees s. Not from a
 * handler. */
void rpc_server_stop(struct rpc_server *s, int64_t grace_ms);

/* The request in one piece; valid until the answer. */
shoal_status rpc_call_request(struct rpc_call *c, const void **data, size_t *size);
/* The request becomes so many bytes more: they are held as its own are, until the call has ended. False: there is no
 * room for them. */
bool rpc_call_unpacks(struct rpc_call *c, size_t n);
/* As clock_ns() has it; DEADLINE_NEVER when the client gave none. */
int64_t rpc_call_deadline(const struct rpc_call *c);
/* "ipv4:10.0.0.1:4711"; the caller frees it. */
char *rpc_call_peer(struct rpc_call *c);
/* The caller works with this server, other than one who only asks how it is; opens: 1, or -1 when he closes what he
 * opened, else 0. */
void rpc_call_uses(struct rpc_call *c, int opens);
/* A number for the connection the call came over, unlike those of others that are open; 0: none. And is it still
 * open? */
uint64_t rpc_call_connection(const struct rpc_call *c);
struct rpc_origin rpc_call_origin(const struct rpc_call *c);
bool rpc_server_connected(struct rpc_server *s, uint64_t connection);
/* Does any DNS name in the caller's certificate (of its subject alternative names) match? True when callers need none.
 */
bool rpc_call_peer_named(struct rpc_call *c, bool (*match)(const char *name, void *arg), void *arg);
/* fn(arg) is called at most once, on a thread of the loop, if the client goes away before the answer. Call it in the
 * handler. rpc_call_reply and _fail wait until a call of fn that is under way has ended. */
void rpc_call_on_cancel(struct rpc_call *c, void (*fn)(void *arg), void *arg);
/* The same for a handler that waits itself, and answers before it returns: fn may be called meanwhile, from another
 * thread, or at once. */
void rpc_call_on_lost(struct rpc_call *c, void (*fn)(void *arg), void *arg);
/* A call that is not answered yet is gone on with by e, as if its request had just come: in the line of its connection,
 * which has so many of them under way and no more. */
void rpc_call_goes_on(struct rpc_call *c, struct rpc_event *e);
/* Answers, once; c is not to be used afterwards. Takes over m (NULL: an empty message). */
void rpc_call_reply(struct rpc_call *c, struct rpc_message *m);
/* Consumes s; NULL answers an empty message. */
void rpc_call_fail(struct rpc_call *c, shoal_status s);
/* One or the other: s, or the message in t. Consumes both. */
void rpc_call_answer(struct rpc_call *c, shoal_status s, struct text *t);

/* A call that came over no network, for tests: runs the handler; done is called with the answer (s consumed by it,
 * m freed after it), perhaps later. What it returns is for rpc_call_local_end. */
typedef void (*rpc_local_done)(void *arg, shoal_status s, struct rpc_message *m);
struct rpc_call *rpc_call_local(const struct rpc_method *m, void *server, const void *request, size_t size,
                                rpc_local_done done, void *arg);
/* The client is gone: the call is cancelled unless it is answered. Once a call. */
void rpc_call_local_end(struct rpc_call *c);

#endif
