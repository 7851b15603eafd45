/* One connection of HTTP/1.1, between http1*.c.
 *
 * All of it belongs to the leader of the loop, but for what a handler has while the visit is worked on (its body,
 * request and answer), and `unwanted`, which the server's lock guards. */
#ifndef RPC_HTTP1_HTTP1_VISIT_H
#define RPC_HTTP1_HTTP1_VISIT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/ref.h"
#include "base/vec.h"
#include "rpc/address.h"
#include "rpc/body.h"
#include "rpc/door.h"
#include "rpc/http1/http1.h"
#include "rpc/http1/http1_parse.h"
#include "rpc/listener.h"
#include "rpc/loop.h"
#include "rpc/room.h"
#include "rpc/socket.h"
#include "rpc/unwanted.h"

struct visit {
  struct http1 *server;
  struct rpc_address *from;
  struct ref refs; /* the connection's own; of events that are posted */
  struct rpc_socket socket;
  struct rpc_watch watch;
  struct rpc_timer timer;
  struct room_waiter room;  /* for its body */
  struct rpc_event work;    /* is worked on, is done */
  struct rpc_event turn;    /* while in_line */
  struct rpc_event unasked; /* its answer is not wanted any more */
  struct rpc_event closing;
  enum visit_state { VISIT_SHAKES, VISIT_HEAD, VISIT_BODY, VISIT_WORK, VISIT_ANSWER, VISIT_LAST } state;
  uint32_t watched; /* events */
  bool in_line;     /* it goes on when others have had their turn */
  bool greeted;     /* it had an answer */
  bool roomy;       /* all the room that its body needs is taken */
  bool closed;      /* it is on its way out */
  bool told;        /* unasked was posted, for this request */
  atomic_bool lost; /* while it is worked on: the client is gone */
  int64_t made;     /* when */
  int64_t heard;    /* when the last of it came, or its answer went */
  int64_t until;    /* when it has had its time */
  int64_t due;      /* when the timer comes; 0: it does not */
  int64_t began;    /* the body */
  struct text in;   /* the head as it comes; what came behind a request */
  struct text head; /* of the request that is worked on: request points into it */
  struct http1_head request;
  struct http1_chunks chunks;
  struct rpc_body body;
  struct budget held, unread;
  size_t unpacked; /* taken of held beside the body */
  struct http1_answer answer;
  struct text answer_head;
  size_t sent;    /* of both */
  size_t counted; /* of the answer, among those that are not read */
  bool keep;
  struct unwanted unwanted; /* the server's lock */
  bool unwelcome;           /* the server's lock: unasked has come, for this request */
  size_t place;             /* in the server's list */
};

struct http1 {
  struct http1_options o;
  SSL_CTX *tls;
  int port, fd;
  struct listener *listener;
  struct door door;
  struct rpc_event stopping, ending;
  struct rpc_timer late;      /* the grace of the end is over */
  VEC(struct visit *) visits; /* the leader's */
  bool stops, is_late;        /* the leader's */
  struct http1_stall *stall;  /* NULL: none */
  pthread_mutex_t lock;
  pthread_cond_t news;
  int64_t stop_at; /* lock: 0, or when those that are left are ended */
  int alive;       /* lock: visits that are not freed */
  bool deaf, over; /* lock */
};

/* On the leader. Takes over fd and from, which is counted. */
void visit_begin(struct http1 *h, int fd, struct rpc_address *from);
/* Soon it is gone. Not while it is worked on. */
void visit_close(struct visit *v);
/* For how long nothing has been done for it, beyond what it may be idle; negative: not yet. */
int64_t visit_idle_for(const struct visit *v, int64_t now);
/* Is it between requests, or done with them? */
bool visit_is_idle(const struct visit *v);
/* While it is worked on: its handler hears that nobody waits for it. */
void visit_unwanted(struct visit *v);

/* What is said while the loop does not turn (http1_stall.c). */
struct http1_stall *http1_stall_new(struct http1 *h);
void http1_stall_free(struct http1_stall *s);

#endif
