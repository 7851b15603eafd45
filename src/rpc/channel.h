/* Channels to peers, and calls on them.
 *
 * One channel a peer and process, shared by all calls. A call is started and answered later, on a thread of the loop;
 * rpc_call_wait() is the blocking form. Each call has a deadline, or whoever started it watches the peer and cancels.
 */
#ifndef RPC_CHANNEL_H
#define RPC_CHANNEL_H

#include "base/latch.h"
#include "base/status.h"
#include "rpc/body.h"
#include "rpc/message.h"
#include "rpc/tls.h"

struct rpc_channel;
struct rpc_pending; /* a call under way */

/* address: "host:port". tls NULL: plain text. name: what the peer's certificate must be made out to; NULL: the host.
 * The caller holds the network's loop (loop.h). */
struct rpc_channel *rpc_channel_new(const char *address, const struct rpc_tls *tls, const char *name);
struct rpc_channel *rpc_channel_ref(struct rpc_channel *c);
void rpc_channel_unref(struct rpc_channel *c);

enum rpc_flags {
  RPC_WAIT_FOR_READY = 1, /* keep trying to connect until the deadline, instead of failing at once */
};

/* Called once, on a thread of the loop: s (consumed) is the call's error, body (the callee may read it, and take it by
 * zeroing) its answer. */
typedef void (*rpc_done)(void *arg, shoal_status s, struct rpc_body *body);

/* Starts method ("/tensorflow.WorkerService/GetStatus") with a request (taken over; NULL: empty). handle (optional)
 * receives a reference for cancelling. */
void rpc_start(struct rpc_channel *c, const char *method, struct rpc_message *request, int64_t deadline, unsigned flags,
               rpc_done done, void *arg, struct rpc_pending **handle);
/* The same for an answer of which a part may go to a place of its own; place is called with arg, too. */
void rpc_start_placed(struct rpc_channel *c, const char *method, struct rpc_message *request, int64_t deadline,
                      unsigned flags, rpc_place place, rpc_done done, void *arg, struct rpc_pending **handle);
/* Ends the call with a copy of why's code and text; consumes why. Nothing happens to a call that has ended. */
void rpc_cancel(struct rpc_pending *p, shoal_status why);
void rpc_pending_unref(struct rpc_pending *p);

/* A thread's wait for one call, which is started with rpc_wait_done and the wait. */
struct rpc_wait {
  struct latch ended;
  struct rpc_body body;
};
void rpc_wait_init(struct rpc_wait *w);
void rpc_wait_done(void *wait, shoal_status s, struct rpc_body *body);
/* Waits; body (optional) is the caller's to release. */
shoal_status rpc_wait_finish(struct rpc_wait *w, struct rpc_body *body);

/* Starts and waits. body (optional) is the caller's to release. */
shoal_status rpc_call_wait(struct rpc_channel *c, const char *method, struct rpc_message *request, int64_t deadline,
                           unsigned flags, struct rpc_body *body);

#endif
