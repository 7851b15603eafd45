/* The fast path between Shoal's own tasks on one host: tensors are asked for and sent over a Unix socket instead of
 * gRPC, and large ones are copied by the receiver straight out of the sender's memory, once.
 *
 * How two tasks find each other: a RecvTensor request says in its transport_options that the receiver would take the
 * fast path; a sender that knows it answers with a ticket (the name of its socket, a secret). The next requests go
 * through the socket, if it can be reached (same host, same user) and the secret is right. TensorFlow's tasks ignore
 * all of this.
 *
 * Frames, little-endian, in both directions; a connection begins with the 16 bytes of the secret:
 *
 *   0  u8   kind       1 ASK: key follows            2 VALUE: shape, then the bytes
 *                      3 REMOTE: shape, then pid and address; the receiver copies and answers DONE
 *                      4 ERROR: a message            5 CANCEL   6 DONE   7 RESEND: copying is not allowed here
 *   1  u8   flags      1 dead  2 encoded as a TensorProto  4 derived  8 restarted
 *   2  u8   dtype (VALUE, REMOTE) or code (ERROR)
 *   3  u8   rank
 *   4  u32  bytes of the head that follows (key, 8 * rank of dimensions, message; REMOTE: and 16 of pid and address)
 *   8  u64  id, the asker's
 *  16  u64  ASK: step; VALUE, REMOTE: bytes of the tensor */
#ifndef RPC_FAST_H
#define RPC_FAST_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "tensor/tensor.h"

/* ---- the sending side ---- */

struct fast_server;
struct fast_request;
typedef void (*fast_handler)(void *arg, struct fast_request *r, int64_t step, const char *key);

/* NULL when the system has no such sockets. */
struct fast_server *fast_server_new(fast_handler handler, void *arg);
/* Ends all connections; requests still open are cancelled. Answers may still be given. */
void fast_server_stop(struct fast_server *s);
void fast_server_unref(struct fast_server *s);
/* What a receiver needs to connect. */
void fast_server_ticket(const struct fast_server *s, struct text *out);
/* Answers, once, from any thread: s (consumed) or the value (its reference is taken over). */
void fast_answer(struct fast_request *r, shoal_status s, struct tensor *value, bool is_dead);
/* fn(arg) is called at most once, if the receiver no longer wants the value. Call it in the handler. */
void fast_on_cancel(struct fast_request *r, void (*fn)(void *arg), void *arg);

/* ---- the receiving side ---- */

struct fast_client;
struct fast_call;
typedef void (*fast_done)(void *arg, shoal_status s, struct tensor *value, bool is_dead);

/* NULL when the ticket leads nowhere from here. */
struct fast_client *fast_client_new(const void *ticket, size_t n);
/* Ends the connection; calls still open end with UNAVAILABLE. */
void fast_client_free(struct fast_client *c);
bool fast_client_is_open(struct fast_client *c);
/* Asks for a value; done is called once, from a thread of the fast path, or by fast_cancel. handle (optional): a
 * reference for cancelling. False, and nothing has happened, when the connection is gone. */
bool fast_ask(struct fast_client *c, int64_t step, const char *key, fast_done done, void *arg,
              struct fast_call **handle);
/* Ends the call with why (consumed), here and now, unless it has ended. */
void fast_cancel(struct fast_call *call, shoal_status why);
void fast_call_unref(struct fast_call *call);

#endif
