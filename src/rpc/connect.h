/* A channel's connections: made when a call wants one, made anew when they are lost, tried again after a pause when
 * they cannot be made. Between channel.c and connect.c; others see channel.h. */
#ifndef RPC_CONNECT_H
#define RPC_CONNECT_H

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/ref.h"
#include "rpc/channel.h"
#include "rpc/http2/http2.h"

/* A call that waits for a connection. */
struct channel_waiting {
  struct channel_waiting *next, **at; /* at NULL: it does not wait */
  bool patient;                       /* RPC_WAIT_FOR_READY */
};

struct rpc_channel {
  struct ref refs, holds; /* holds: the users' one, its connections', its timer's, its event's, its resolver's */
  char *address, *host, *port, *name;
  SSL_CTX *tls;          /* NULL: plain text */
  shoal_status unusable; /* the certificates' error */
  struct rpc_event changed;
  atomic_bool is_changed; /* and the event posted */
  struct rpc_timer pause;

  pthread_mutex_t lock; /* for all that follows */
  enum { CHANNEL_IDLE, CHANNEL_CONNECTING, CHANNEL_READY, CHANNEL_PAUSED } state;
  bool closed;
  struct http2 *conn; /* connecting or ready */
  bool resolving;
  struct addrinfo *addresses, *next_address;
  char *error; /* why the last attempt failed */
  int64_t pause_ms;
  struct channel_waiting *first, **last;
};

/* With the channel's lock held. */
void channel_enter(struct rpc_channel *c, struct channel_waiting *w);
/* Takes it out of the list; false when it is not there. */
bool channel_forget(struct rpc_channel *c, struct channel_waiting *w);

/* channel.c's: */
/* Sends it on the channel's connection; false when that takes no more now. The channel's lock is held. */
bool channel_call_send(struct rpc_channel *c, struct channel_waiting *w);
void channel_call_fail(struct channel_waiting *w, shoal_status why);
void channel_call_ended(struct http2 *conn, struct http2_stream *s);
void channel_call_refused(struct http2 *conn, struct http2_stream *s, shoal_status why);
void channel_call_lost(struct http2 *conn, struct http2_stream *s, shoal_status why);

#endif
