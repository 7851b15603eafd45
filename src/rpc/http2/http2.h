/* One HTTP/2 connection (RFC 9113) that carries unary gRPC calls, seen from either end.
 *
 * Frames, header fields, windows and their rules are nghttp2's: a session of it belongs to each connection. Here is
 * what it leaves open: sockets, threads, time, memory, and gRPC's messages. A stream belongs to its role's user (a call
 * that is served, or one that waits for its answer) and is part of it; the connection knows it from open to gone.
 * Everything here happens under the connection's lock, the role's functions too: these may use the functions below and
 * post events, and run nobody's handlers. Input is read by the thread that leads alone; whoever has something to say
 * writes it to the socket at once, as far as that takes it, and the leader goes on with the rest.
 *
 * http2.c has the life of a connection, http2_input.c what it receives, http2_output.c what it sends, http2_memory.c
 * the session's memory.
 *
 * Lock order: channel or call, connection, server or room, loop. */
#ifndef RPC_HTTP2_HTTP2_H
#define RPC_HTTP2_HTTP2_H

#include <nghttp2/nghttp2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/budget.h"
#include "base/ref.h"
#include "base/vec.h"
#include "rpc/address.h"
#include "rpc/body.h"
#include "rpc/http2/headers.h"
#include "rpc/loop.h"
#include "rpc/message.h"
#include "rpc/socket.h"

struct http2_stream {
  uint32_t id;                          /* 0: the connection does not know it */
  struct http2_stream *next, *previous; /* of the connection's */
  bool local_done, remote_done;

  /* what is being sent */
  struct rpc_message *out;
  size_t out_piece, out_at; /* the next byte */
  size_t out_left;          /* bytes, the prefix of 5 included */

  /* what is being received */
  struct headers headers;
  struct rpc_body body;
  uint8_t prefix[5], prefix_n;
  size_t want;     /* bytes of the message */
  bool whole;      /* it is all there, or no more of it is wanted */
  bool refused;    /* its answer has been given, and has nothing to do with what comes of it */
  rpc_place place; /* optional: where a part of it shall go; asked once */
  void *place_arg;
  int64_t began, heard; /* when it was opened, and when the last byte of it came */

  /* room for it (room.h): its lock */
  enum { HTTP2_ROOM_NONE, HTTP2_ROOM_WAITS, HTTP2_ROOM_HAS } room; /* and the connection's */
  struct http2_stream *room_next, **room_at;
  struct http2 *room_conn;
  int64_t room_since; /* it waits, or has room */
  int room_passed;    /* how often others went before it, since it found none */
  int room_late;      /* ticks that it has not gone on */
  size_t room_from;   /* bytes of the message that were here when it got room */
  size_t held_back;   /* bytes that came and were not given back to its window; the connection's lock */
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
  struct ref refs;
  const struct http2_role *role;
  void *owner;
  struct sockaddr_storage peer;
  struct rpc_address *address; /* the server's: a reference */
  struct rpc_watch watch;
  struct rpc_event closing;
  struct rpc_event turn;  /* while in_line */
  struct rpc_timer timer; /* until it is ready; then, what has taken too long */
  int64_t due;            /* when it is to come; the lock's */
  uint32_t watched;       /* events */
  struct budget framing;  /* what the session takes */
  struct budget held;     /* what arrives */
  struct budget unread;   /* what is to be sent */

  pthread_mutex_t lock;     /* for all that follows */
  nghttp2_session *session; /* NULL: it is over */
  struct rpc_socket socket;
  enum { HTTP2_CONNECTING, HTTP2_SHAKING, HTTP2_PREFACE, HTTP2_OPEN } state;
  bool dead;             /* nothing is sent or received any more */
  bool draining;         /* no new streams: a GOAWAY was sent or received, or the numbers are used up */
  bool close_when_empty; /* its streams, and what is left to send */
  bool in_line;          /* there is more to read, or a handshake to go on with, when others have had their turn */
  bool put_off;          /* the same, but first the peer has to read */
  struct text cause;     /* what the session finds fault with */
  struct text error;     /* why it is dead */
  struct http2_stream *first;
  uint32_t streams;
  size_t max_message;
  int64_t made;                       /* when */
  size_t gulp;                        /* bytes read at once: fewer where they take long to work through */
  struct rpc_line *requests, *packed; /* the server's: calls that wait for their handlers; to be inflated first */
  atomic_int calls;                   /* the server's: calls that are not freed yet */
  atomic_int begun;                   /* the server's: of these, with all of their request here */
  atomic_llong quiet_since;           /* without streams; 0: with some */
  atomic_bool greeted;                /* its state is HTTP2_OPEN */
  atomic_bool ended;                  /* it is dead: for those who ask without the lock */
  atomic_llong heard;                 /* when the last byte came */
  atomic_int opened;                  /* the server's: what calls opened here, less what they closed */
  atomic_int_fast64_t last_used;      /* the server's: when a call last worked with it; 0: never */

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
  size_t counted;               /* taken from unread */
  int64_t taken;                /* when the peer last took some, or there was none */
  struct rpc_message *dropped;  /* freed when the lock is given back */

  /* input */
  uint8_t head[9]; /* a frame's first bytes, while they are too few */
  uint8_t head_n;
  uint32_t left;     /* payload to come of the frame that is being read; before the first, of the preface */
  uint32_t frame_id; /* its stream */
  uint8_t frame_type;
  uint32_t seen_id;     /* the highest of them with headers */
  uint32_t passed_over; /* payload to come of a frame that nghttp2 is not shown */
  bool plain_data;      /* it is DATA without padding */
  bool in_block;        /* header fields are being read, and not at their end */
  int block_frames;
  size_t block_bytes;
  int64_t block_since;
  uint32_t last_id;  /* the highest of the peer's streams */
  uint32_t over[64]; /* streams that ended by the peer's word, of late */
  uint32_t over_n;
  bool lifted;     /* the peer has moved the windows of its streams, and what comes of it is not sent yet */
  double patience; /* for frames that cost us more than the peer; filled up with time */
  int64_t patience_at;
  struct headers others; /* of a stream that is being opened */
  size_t first_window;   /* of each stream: what it sends before it is asked to go on */
  struct {
    struct http2_stream *first, **last; /* that wait */
    struct http2 *next;
    atomic_bool in_turn; /* some wait; changed with the lock held */
  } room;                /* room's lock */
};

/* What differs between connections. */
struct http2_options {
  SSL_CTX *tls;     /* NULL: plain text */
  const char *name; /* whom the peer's certificate must name; clients */
  struct sockaddr_storage peer;
  size_t max_message;
  struct rpc_address
      *address;     /* of a server's client, whose budgets count; a reference, taken over. NULL: a client's */
  int64_t ready_ms; /* until the peer's SETTINGS must be here */
};

/* A connection with two references: one the caller's, one the loop's, which ends with closed. Takes over fd, which is
 * connected, or (a client's) connecting. */
struct http2 *http2_new(int fd, const struct http2_role *role, void *owner, const struct http2_options *o);
void http2_ref(struct http2 *c);
void http2_unref(struct http2 *c);
static inline void http2_lock(struct http2 *c) { pthread_mutex_lock(&c->lock); }
void http2_unlock(struct http2 *c);

/* ---- with the lock held ---- */

/* Clients: a new stream that says fields and the message (taken over); false when there can be none now. */
bool http2_request(struct http2 *c, struct http2_stream *s, const struct fields *f, struct rpc_message *m);
/* Servers: the answer: fields, then the message (taken over) and the trailers of success; without a message the fields
 * end the stream. */
void http2_respond(struct http2 *c, struct http2_stream *s, const struct fields *f, struct rpc_message *m);
/* Is there room for an answer of n bytes beside those that nobody has read? */
bool http2_has_room(const struct http2 *c, size_t n);
/* Ends a stream at once; code: NGHTTP2_CANCEL, ... */
void http2_reset(struct http2 *c, struct http2_stream *s, uint32_t code);
/* No more new streams; the connection closes when those open have ended. */
void http2_drain(struct http2 *c);
/* The connection is over: all its streams are lost with UNAVAILABLE why. */
void http2_kill(struct http2 *c, const char *why);
/* Writes what can be written. */
void http2_flush(struct http2 *c);

/* ---- between the http2*.c ---- */

enum {
  HTTP2_FRAME = 1 << 20, /* the largest frame taken in */
  HTTP2_WINDOW = 16 << 20,
  HTTP2_CONNECTION_WINDOW = 32 << 20,
  HTTP2_USUAL_WINDOW = 65535, /* a stream's, until the peer has heard of another */
  HTTP2_HEADERS = 16384,      /* bytes of a call's header fields */
  HTTP2_BACKLOG = 1 << 20,    /* with more small bytes unsent nothing is read */
};

nghttp2_mem http2_memory(struct budget *b);
void http2_input_callbacks(nghttp2_session_callbacks *callbacks);
void http2_output_callbacks(nghttp2_session_callbacks *callbacks);
/* Into the list of streams, and out of it: what it had to send is forgotten. */
void http2_add(struct http2 *c, struct http2_stream *s, uint32_t id);
void http2_remove(struct http2 *c, struct http2_stream *s);
/* Has the session say why with a GOAWAY; http2_end follows. */
void http2_fail(struct http2 *c, uint32_t code, const char *why);
/* Sends what the session has to say yet, and kills: for the cause that was told, or else why. */
void http2_end(struct http2 *c, const char *why);
/* It is ready: from now on it is looked after what takes too long. */
void http2_be_on_time(struct http2 *c);
/* Bytes that arrived; false: the connection is dead. */
bool http2_input(struct http2 *c, const uint8_t *p, size_t n);
/* Bytes of a message, in the place that http2_direct gave. */
bool http2_input_direct(struct http2 *c, const uint8_t *p, size_t n);
/* Where the next bytes may be read to directly: 0 bytes when they are not a message's. */
size_t http2_direct(struct http2 *c, uint8_t **to);
/* Refuses the message (why is consumed). */
void http2_refuse(struct http2 *c, struct http2_stream *s, shoal_status why);
/* There is room for all of the message: the peer may send it. */
void http2_open_window(struct http2 *c, struct http2_stream *s);
/* Gives up requests that have begun and said nothing for ns; false: the connection is dead. */
bool http2_input_late(struct http2 *c, int64_t now, int64_t ns);
void http2_forget_output(struct http2 *c, struct http2_stream *s);
/* Writes some; true: there is more, but the socket is full, or others have their turn first. */
bool http2_write(struct http2 *c);
void http2_drop_output(struct http2 *c);
/* Resets a stream that the session does not know, since its headers are not read to their end. */
void http2_put_reset(struct http2 *c, uint32_t id, uint32_t code);

#endif
