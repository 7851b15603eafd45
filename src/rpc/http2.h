/* One HTTP/2 connection (RFC 9113) that carries unary gRPC calls, seen from either end.
 *
 * Only what gRPC needs: no priorities, no pushes, one message each way on a stream. A stream belongs to its role's user
 * (a call that is served, or one that waits for its answer) and is part of it; the connection knows it from open to
 * gone. Everything here happens under the connection's lock, the role's functions too: these may use the functions
 * below and post events, and run nobody's handlers. Input is read by the thread that leads alone; whoever has
 * something to say writes it to the socket at once, as far as that takes it, and the leader goes on with the rest.
 *
 * Lock order: channel or call, connection, server, loop. */
#ifndef RPC_HTTP2_H
#define RPC_HTTP2_H

#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/vec.h"
#include "rpc/body.h"
#include "rpc/headers.h"
#include "rpc/loop.h"
#include "rpc/message.h"
#include "rpc/socket.h"

/* The codes of RST_STREAM and GOAWAY that are used. */
enum http2_error {
  HTTP2_NO_ERROR = 0,
  HTTP2_PROTOCOL_ERROR = 1,
  HTTP2_FLOW_CONTROL_ERROR = 3,
  HTTP2_STREAM_CLOSED = 5,
  HTTP2_FRAME_SIZE_ERROR = 6,
  HTTP2_REFUSED_STREAM = 7,
  HTTP2_CANCEL = 8,
  HTTP2_COMPRESSION_ERROR = 9,
  HTTP2_ENHANCE_YOUR_CALM = 11,
  HTTP2_INADEQUATE_SECURITY = 12,
};

struct http2_stream {
  uint32_t id;               /* 0: the connection does not know it */
  struct http2_stream *next; /* in the connection's table */
  bool local_done, remote_done;

  /* what is being sent */
  struct rpc_message *out;
  size_t out_piece, out_at; /* the next byte */
  size_t out_left;          /* bytes, the prefix of 5 included */
  struct text tail;         /* trailers, after the message */
  bool has_tail, queued;
  struct http2_stream *next_out;
  int64_t send_window;

  /* what is being received */
  struct headers headers;
  struct rpc_body body;
  uint8_t prefix[5], prefix_n;
  size_t want;     /* bytes of the message */
  bool whole;      /* it is all there */
  rpc_place place; /* optional: where a part of it shall go; asked once */
  void *place_arg;
  int64_t receive_window;
};

struct http2;

struct http2_role {
  bool server;
  /* The peer's first SETTINGS are here. Optional. */
  void (*ready)(struct http2 *c);
  /* Servers: a new call; headers (to be taken by zeroing) are its. NULL: there are too many. */
  struct http2_stream *(*open)(struct http2 *c, struct headers *headers);
  /* The peer has said all that it will; its message, if any, is in body. Clients: the stream is gone already. */
  void (*ended)(struct http2 *c, struct http2_stream *s);
  /* The message is refused (why is consumed): answer, or give up. */
  void (*refuse)(struct http2 *c, struct http2_stream *s, shoal_status why);
  /* Reset by the peer, or lost with the connection (why is consumed); gone already. */
  void (*lost)(struct http2 *c, struct http2_stream *s, shoal_status why);
  /* Servers: the answer is on its way and the stream gone. */
  void (*sent)(struct http2 *c, struct http2_stream *s);
  /* The peer takes no more streams, or fewer are open now. Clients. */
  void (*changed)(struct http2 *c);
  /* It is over: on the leader, without the lock, as the last of all calls. */
  void (*closed)(struct http2 *c);
};

struct http2 {
  atomic_int refs;
  const struct http2_role *role;
  void *owner;
  struct sockaddr_storage peer;
  struct rpc_watch watch;
  struct rpc_event closing;
  struct rpc_timer timer; /* until it is ready */
  struct rpc_timer more;  /* at once: there is more to read, and others have had their turn */
  uint32_t watched;       /* events */

  pthread_mutex_t lock; /* for all that follows */
  struct rpc_socket socket;
  enum { HTTP2_CONNECTING, HTTP2_SHAKING, HTTP2_PREFACE, HTTP2_OPEN } state;
  bool dead;             /* nothing is sent or received any more */
  bool draining;         /* no new streams: a GOAWAY was sent or received, or the numbers are used up */
  bool close_when_empty; /* its streams, and what is left to send */
  struct text error;     /* why it is dead */
  struct http2_stream **table;
  uint32_t table_size, streams; /* size: a power of two */
  uint32_t last_id;             /* the peer's, or ours */
  size_t max_message;
  struct rpc_tally *tally;
  atomic_int calls; /* the server's: calls that are not freed yet */
  atomic_int opened;             /* the server's: what calls opened here, less what they closed */
  atomic_int_fast64_t last_used; /* the server's: when a call last worked with it; 0: never */

  /* output */
  struct text small; /* frames, and small messages */
  size_t small_done; /* of small, sent */
  VEC(struct http2_segment {
    const uint8_t *at; /* NULL: the next n bytes of small */
    size_t n;
    struct rpc_message *owner;
  })
  segments;
  size_t segments_done, queued; /* bytes in the segments */
  size_t unsent;                /* bytes of messages that are not in the segments yet */
  int unasked;                  /* frames sent only because the peer sent one, since all was sent */
  struct http2_stream *first_out, **last_out;
  struct rpc_message *dropped; /* freed when the lock is given back */
  int64_t send_window;
  int64_t peer_window; /* of its new streams */
  uint32_t peer_frame, peer_streams;

  /* input */
  nghttp2_hd_inflater *inflater;
  uint8_t head[9];
  uint8_t head_n, preface_n;
  uint8_t type, flags;
  uint32_t id, left;       /* of the frame whose payload is being read */
  uint32_t padding;        /* of left */
  bool need_padding;       /* its length is the next byte */
  struct http2_stream *to; /* whose data it is; NULL: nobody's */
  struct text part;        /* of a payload */
  uint32_t block_id;       /* whose headers are being read; 0: nobody's */
  bool block_ends;         /* the stream, too */
  size_t block_bytes;
  struct headers *block, others; /* where they go */
  int64_t receive_window;
};

/* A connection with two references: one the caller's, one the loop's, which ends with closed. Takes over fd, which is
 * connected, or (a client's) connecting. name: whom the peer's certificate must name. ready_ms: how long it may take
 * until the peer's SETTINGS are here. */
struct http2 *http2_new(int fd, SSL_CTX *ctx, const char *name, const struct http2_role *role, void *owner,
                        size_t max_message, struct rpc_tally *tally, int64_t ready_ms);
void http2_ref(struct http2 *c);
void http2_unref(struct http2 *c);
static inline void http2_lock(struct http2 *c) { pthread_mutex_lock(&c->lock); }
void http2_unlock(struct http2 *c);
/* "ipv4:10.0.0.1:4711". */
void http2_address(const struct sockaddr_storage *a, struct text *out);

/* ---- with the lock held ---- */

/* Numbers a new stream of a client's; false when there can be none now. */
bool http2_open(struct http2 *c, struct http2_stream *s);
/* Sends headers, then the message (taken over; NULL: none), then tail (taken over; optional). Without a message the
 * headers end the stream. */
void http2_send(struct http2 *c, struct http2_stream *s, const struct text *headers, struct rpc_message *m,
                struct text *tail);
/* Ends a stream at once. */
void http2_reset(struct http2 *c, struct http2_stream *s, enum http2_error code);
/* No more new streams; the connection closes when those open have ended. */
void http2_drain(struct http2 *c);
/* The connection is over: all its streams are lost with UNAVAILABLE why. */
void http2_kill(struct http2 *c, const char *why);
/* Writes what can be written. */
void http2_flush(struct http2 *c);

/* ---- between http2.c and http2_input.c ---- */

enum {
  HTTP2_FRAME = 1 << 20, /* the largest frame taken in */
  HTTP2_WINDOW = 16 << 20,
  HTTP2_CONNECTION_WINDOW = 32 << 20,
  HTTP2_MAX_STREAMS = 16384,
  HTTP2_MAX_UNASKED = 10000,
  HTTP2_HEADERS = 16384, /* bytes of a call's header fields */
};
enum http2_setting { SETTING_STREAMS = 3, SETTING_WINDOW = 4, SETTING_FRAME = 5, SETTING_HEADERS = 6 };
enum http2_type {
  FRAME_DATA,
  FRAME_HEADERS,
  FRAME_PRIORITY,
  FRAME_RST_STREAM,
  FRAME_SETTINGS,
  FRAME_PUSH_PROMISE,
  FRAME_PING,
  FRAME_GOAWAY,
  FRAME_WINDOW_UPDATE,
  FRAME_CONTINUATION
};
enum http2_flag { FLAG_END_STREAM = 1, FLAG_ACK = 1, FLAG_END_HEADERS = 4, FLAG_PADDED = 8, FLAG_PRIORITY = 32 };

struct http2_stream *http2_find(const struct http2 *c, uint32_t id);
void http2_add(struct http2 *c, struct http2_stream *s, uint32_t id);
/* Takes it out of the table, and forgets what it had to send. */
void http2_remove(struct http2 *c, struct http2_stream *s);
/* Queues a frame; n bytes of payload. */
void http2_frame(struct http2 *c, enum http2_type type, int flags, uint32_t id, const void *payload, size_t n);
void http2_frame_u32(struct http2 *c, enum http2_type type, uint32_t id, uint32_t value);
/* Says why with a GOAWAY, and kills. */
void http2_fail(struct http2 *c, enum http2_error code, const char *why);
/* s has bytes to send and a window for them. */
void http2_resume(struct http2 *c, struct http2_stream *s);
/* Frames and messages that arrived; false: the connection is dead. */
bool http2_input(struct http2 *c, const uint8_t *p, size_t n);
bool http2_data(struct http2 *c, const uint8_t *p, size_t n);
/* Where the next bytes may be read to directly: 0 bytes when they are not a message's. */
size_t http2_direct(struct http2 *c, uint8_t **to);

#endif
