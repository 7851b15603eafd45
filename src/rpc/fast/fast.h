/* The fast path between Shoal's own tasks: tensors are asked for and sent over a connection of its own instead of gRPC,
 * and steps are started over it. On one host it is a Unix socket; tensors of some size lie in shared memory, large ones
 * are copied by the receiver straight out of the sender's memory, once; between hosts it is TCP.
 *
 * How two tasks find each other: a RecvTensor (or RunGraph) request says in its transport_options that its sender would
 * take the fast path; a task that knows it answers with a ticket (a secret, a TCP port, the name of its Unix socket).
 * The next requests go through the Unix socket, if it can be reached (same host, same user), else through TCP; the
 * secret comes first on either. TensorFlow's tasks ignore all of this. With TLS no TCP port is offered: what leaves the
 * host stays inside gRPC's encryption.
 *
 * Ticket: 16 bytes of secret, u16 port (0: none), the name of the socket (may be empty).
 *
 * Frames, little-endian, in both directions; a connection begins with the 16 bytes of the secret:
 *
 *   0  u8   kind       1 ASK: key follows            2 VALUE: shape, then the bytes
 *                      3 REMOTE: shape, then pid and address; the receiver copies and answers DONE
 *                      4 ERROR: a message            5 CANCEL   6 DONE   7 RESEND: copying is not allowed here
 *                      8 CALL: a RunGraphRequest     9 RESULT: the bytes of its response
 *                     10 SHARED: shape, then where shared memory has the bytes (fast_shared.h); DONE when they are no
 *                        longer needed
 *                     11 WINDOW: shape, then where a card's memory has them (fast_window.h); DONE when they were copied
 *   1  u8   flags      1 dead  2 encoded as a TensorProto  4 derived  8 restarted  16 (ASK) for a card: by a window
 *   2  u8   dtype (VALUE, REMOTE) or code (ERROR)
 *   3  u8   rank
 *   4  u32  bytes of the head that follows (key, 8 * rank of dimensions, message, request; REMOTE: and 16 of pid and
 *           address; SHARED: and 40 of the arena's pid, descriptor, inode, size, and the offset in it; WINDOW: and
 *           80 of its handle, its size, and the offset in it)
 *   8  u64  id, the asker's
 *  16  u64  ASK: step; CALL: nanoseconds left; VALUE, REMOTE, SHARED, WINDOW, RESULT: bytes of the body */
#ifndef RPC_FAST_FAST_H
#define RPC_FAST_FAST_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "rpc/address.h"
#include "tensor/tensor.h"

/* Until fast_release(), frames that this thread sends may wait for each other, to leave together. Calls nest. */
void fast_hold(void);
void fast_release(void);
/* Sends what is held: before anything that takes long. */
void fast_flush(void);

/* Bytes that came and left by the fast path so far, through sockets and memory. */
void fast_bytes(int64_t *in, int64_t *out);

/* ---- the answering side ---- */

struct fast_server;
struct fast_request;
struct fast_handlers {
  /* Somebody asks for a value of a step. */
  void (*recv)(void *arg, struct fast_request *r, int64_t step, const char *key);
  /* Somebody calls; data stays valid until the answer. */
  void (*call)(void *arg, struct fast_request *r, const void *data, size_t n, int64_t deadline);
};

/* host: where to listen for TCP ("127.0.0.1", "[::]"); NULL: not at all. NULL when the system has no such sockets. */
struct fast_server *fast_server_new(const struct fast_handlers *handlers, void *arg, const char *host);
/* Ends all connections; requests still open are cancelled, and waited for. False: some have not ended after a while,
 * and may call the handlers yet. */
bool fast_server_stop(struct fast_server *s);
void fast_server_unref(struct fast_server *s);
/* What a receiver needs to connect. */
void fast_server_ticket(const struct fast_server *s, struct text *out);
/* Answers, once, from any thread: s (consumed) or the value (its reference is taken over), in host memory or a
 * device's, which outlives the server. */
void fast_answer(struct fast_request *r, shoal_status s, struct tensor *value, bool is_dead);
/* Answers a call, once: s (consumed) or bytes (taken over). */
void fast_reply(struct fast_request *r, shoal_status s, struct text *bytes);
/* Where it came from, while the request is not answered; no connection of gRPC's has its number, which are odd. */
struct rpc_origin fast_origin(const struct fast_request *r);
/* fn(arg) is called at most once, if the receiver no longer wants the answer. Call it in the handler. */
void fast_on_cancel(struct fast_request *r, void (*fn)(void *arg), void *arg);

/* ---- the asking side ---- */

struct fast_client;
struct fast_call;
typedef void (*fast_done)(void *arg, shoal_status s, struct tensor *value, bool is_dead);

/* host: the peer's, for TCP. NULL when the ticket leads nowhere from here. May take FAST_DIAL_MS, and longer where a
 * name is to be looked up. */
struct fast_client *fast_client_new(const void *ticket, size_t n, const char *host);
/* The same on a thread that may wait; done is called there, once, with the client or NULL. (Where no thread can be had,
 * at once with NULL.) */
void fast_client_dial(const void *ticket, size_t n, const char *host, void (*done)(void *arg, struct fast_client *c),
                      void *arg);
/* Ends the connection; calls still open end with UNAVAILABLE. */
void fast_client_free(struct fast_client *c);
/* "shared memory", with windows of cards where values came by them, or "TCP". */
const char *fast_client_kind(const struct fast_client *c);
/* Asks for a value; done is called once, from a thread of the network, or by fast_cancel. handle (optional): a
 * reference for cancelling. False, and nothing has happened, when the connection is gone. */
bool fast_ask(struct fast_client *c, int64_t step, const char *key, fast_done done, void *arg,
              struct fast_call **handle);
/* The same for the memory of a device, which outlives the client: the value may be in it, or the host's. */
bool fast_ask_into(struct fast_client *c, int64_t step, const char *key, struct device *to, fast_done done, void *arg,
                   struct fast_call **handle);
/* Where the bytes of a value go as they come, in place of a tensor made for them. It is the asker's, and is used until
 * done is called. */
enum { FAST_GRAIN = 64 };
struct fast_sink {
  size_t
      bytes; /* a value that has not as many of type uint8, or comes in another way, comes as a tensor all the same */
  void *to;  /* they are written there */
  /* (optional) Is given them instead, in order, from memory that any type may lie in, and but for the last in multiples
   * of FAST_GRAIN: by the thread that leads the network, some 100 KB at a time. */
  void (*take)(struct fast_sink *s, const void *piece, size_t at, size_t n);
  bool filled; /* set before done is called: all of them have come, and there is no tensor */
};
/* Asks for a value that is to go into a sink. */
bool fast_ask_poured(struct fast_client *c, int64_t step, const char *key, struct fast_sink *sink, fast_done done,
                     void *arg, struct fast_call **handle);
/* The same for a call of at most FAST_MAX_HEAD bytes; the value is the answer's bytes. */
bool fast_call(struct fast_client *c, const void *data, size_t n, int64_t deadline, fast_done done, void *arg,
               struct fast_call **handle);
/* Ends the call with why (consumed), here and now, unless it has ended. */
void fast_cancel(struct fast_call *call, shoal_status why);
void fast_call_unref(struct fast_call *call);

#endif
