/* The other tasks as this process sees them: one channel each, the calls that wait for an answer, and the watch over
 * both.
 *
 * No silent hang: while any call waits for a peer, the peer is asked for its status every few seconds. One that does
 * not answer (killed, stopped, unreachable) or answers as another incarnation (restarted) fails every call that waits
 * for it, with its name, address, step and what was being waited for. Nothing is sent to peers nobody waits for.
 * HTTP/2's own keepalive was rejected for this: TensorFlow's servers close connections that ping more often than every
 * five minutes. */
#ifndef CLUSTER_PEER_H
#define CLUSTER_PEER_H

#include "base/status.h"
#include "base/text.h"
#include "rpc/channel.h"
#include "rpc/fast/fast.h"
#include "tensor/tensor.h"

struct peers; /* of one server or client */
struct peer;
struct peer_call; /* a call that waits for an answer */

/* fast_path: take it towards peers that offer it. Until they are freed the network's loop runs. */
shoal_status peers_new(const struct rpc_tls *tls, int64_t timeout_ms, bool fast_path, struct peers **out);
/* No calls may be waiting. */
void peers_free(struct peers *p);
/* The peer under that name and address, made at first use; a reference. keep: it stays, whoever lets go of it, as those
 * of the own cluster do; others go, with their connection, when nobody has them and no call is under way. */
struct peer *peers_get(struct peers *p, const char *task, const char *address, bool keep);
void peer_unref(struct peer *p);
/* After how much silence a peer that is waited for is asked for its status, and how long that question waits. */
int64_t peers_quiet_ns(const struct peers *p);
int64_t peers_patience_ns(const struct peers *p);
/* "Task T at A does not answer (...)", of a peer whose answer to GetStatus was s; NULL: it is there. */
shoal_status peer_absence(const struct peer *p, shoal_status s);
/* One line for each call that waits. */
void peers_describe(struct peers *p, struct text *out);

const char *peer_address(const struct peer *p);
/* No new reference. */
struct rpc_channel *peer_channel(struct peer *p);
/* Did it fail to answer when last asked? Then nobody should wait long for it to tidy up. */
bool peer_is_silent(struct peer *p);

/* What it said of its devices, a GetStatusResponse: whoever asks tells. And the incarnation of one, by its name in any
 * cluster; 0: it is not known. */
void peer_learn(struct peer *p, const void *status, size_t n);
/* Does it say that it is another task of the cluster than the one under whose name it is known? For those of the own
 * cluster: in one that a client made tasks have other names than they were started with. */
shoal_status peer_check_name(struct peer *p);
uint64_t peer_device_incarnation(struct peer *p, const char *device);
/* How many devices of a type it said it has. */
int peer_count_devices(struct peer *p, const char *type);
/* Of its first device: another one says that the task was started anew. */
uint64_t peer_incarnation(struct peer *p);
/* When it was learnt that it was started anew; 0: never. */
int64_t peer_changed(struct peer *p);

enum peer_flags {
  PEER_UNWATCHED = 0x100, /* not failed by the watch: for calls that wait for a peer to come up */
  PEER_FAST = 0x200,      /* may go by the fast path: RunGraph */
};

/* Like rpc_start. step (0: none) and what (may be NULL; copied) are for errors and status pages. done gets errors that
 * name the peer. True when it went by the fast path. */
bool peer_start(struct peer *p, const char *method, struct rpc_message *request, int64_t deadline, unsigned flags,
                int64_t step, const char *what, rpc_done done, void *arg, struct peer_call **handle);
/* Fetches a tensor of a step: by the fast path when there is one, else by RecvTensor. to: the device it is for, in
 * whose memory it may be then; NULL: it is in the host's. sink (optional): where its bytes may go (fast.h). done gets
 * the value (owned by the callee) or an error that names the peer; it may be called by peer_cancel, on the canceller's
 * thread. */
void peer_fetch(struct peer *p, int64_t step, const char *key, struct device *to, struct fast_sink *sink,
                void (*done)(void *arg, shoal_status s, struct tensor *value, bool is_dead), void *arg,
                struct peer_call **handle);
void peer_cancel(struct peer_call *c, shoal_status why);
/* Should a request ask for a ticket to the fast path? And what to do with the one that came; it does not wait. */
bool peer_wants_ticket(struct peer *p);
void peer_take_ticket(struct peer *p, const struct text *ticket);
static inline struct peer_call *peer_call_ref(struct peer_call *c) {
  atomic_fetch_add((atomic_int *)(void *)c, 1); /* the count comes first */
  return c;
}
void peer_call_unref(struct peer_call *c);
/* Waits for the answer; give_up (NULL: nobody) is asked meanwhile, and ends the call with CANCELLED. */
shoal_status peer_wait(struct peer *p, const char *method, struct rpc_message *request, int64_t deadline,
                       unsigned flags, bool (*give_up)(void), struct rpc_body *body);
/* Ends what waits for this peer with why. */
void peer_cancel_all(struct peer *p, shoal_status why);

#endif
