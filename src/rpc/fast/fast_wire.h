/* Connections of the fast path, shared by its two sides: frames in (fast_wire.c) and out (fast_send.c).
 *
 * A connection is a source of the network's loop (rpc/loop.h) like any of gRPC's: whoever leads reads it, and posts
 * what its frames ask for. Any thread writes, as far as the socket takes it; the leader writes the rest. */
#ifndef RPC_FAST_FAST_WIRE_H
#define RPC_FAST_FAST_WIRE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/ref.h"
#include "rpc/address.h"
#include "rpc/fast/fast_pour.h"
#include "rpc/loop.h"
#include "tensor/tensor.h"

enum fast_kind {
  FAST_ASK = 1,
  FAST_VALUE,
  FAST_REMOTE,
  FAST_ERROR,
  FAST_CANCEL,
  FAST_DONE,
  FAST_RESEND,
  FAST_CALL,
  FAST_RESULT,
  FAST_SHARED,
  FAST_WINDOW
};
enum fast_flags { FAST_DEAD = 1, FAST_ENCODED = 2, FAST_DERIVED = 4, FAST_RESTARTED = 8, FAST_BY_WINDOW = 16 };
enum { FAST_SECRET = 16, FAST_MAX_HEAD = 1 << 20 };

/* As it is on the wire; see the byte table in fast.h. */
struct fast_frame {
  uint8_t kind, flags, dtype, rank;
  uint32_t head;
  uint64_t id, size;
};
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little-endian, and written as they are");
_Static_assert(sizeof(struct fast_frame) == 24, "frames have 24 bytes");
_Static_assert(offsetof(struct fast_frame, flags) == 1 && offsetof(struct fast_frame, dtype) == 2 &&
                   offsetof(struct fast_frame, rank) == 3 && offsetof(struct fast_frame, head) == 4 &&
                   offsetof(struct fast_frame, id) == 8 && offsetof(struct fast_frame, size) == 16,
               "fields of a frame lie where fast.h says");

struct fast_conn;

/* What a frame asks for, at the head of a request or of a call. What was read at once is one event of the loop, that of
 * the first of them: hundreds of small frames pass from the reader to their doer as one. */
struct fast_work {
  struct rpc_event event;
  struct fast_work *next;
  struct fast_conn *conn; /* the first one's: a reference */
  unsigned kinds;         /* the first one's: bits, the frames that it stands for */
};

struct fast_conn_ops {
  unsigned kinds;           /* bits: the frames that the other side may send; others end the connection */
  enum rpc_event_kind work; /* REQUEST or NEWS: what is to be done, for the loop */
  /* One frame has arrived, and the leader reads; head is its bytes, body (VALUE, RESULT) its contents: a buffer the
   * callee takes over. Returns what is to be done about it (for run), or NULL. */
  struct fast_work *(*frame)(struct fast_conn *c, const struct fast_frame *f, const uint8_t *head, struct buffer *body);
  void (*run)(struct fast_conn *c, struct fast_work *w);
  /* (optional) A body begins: true where it is to be poured (fast_pour_begin). Then its frame comes without one. */
  bool (*pours)(struct fast_conn *c, const struct fast_frame *f, const uint8_t *head);
  /* Called once: nothing will arrive any more. It may take its time. */
  void (*closed)(struct fast_conn *c);
  void (*free)(struct fast_conn *c);
};

struct fast_out;

/* The head of each side's own connection. */
struct fast_conn {
  const struct fast_conn_ops *ops;
  struct ref refs;
  struct rpc_watch watch; /* its fd is the socket */
  struct rpc_timer check; /* for what is overdue */
  struct rpc_event gone;
  struct rpc_line *line; /* REQUEST: where its work waits its turn */
  atomic_uint slow; /* bits: kinds of frames whose last work took long; the next begins with the lead handed over */
  atomic_bool is_open;
  atomic_bool needs_secret; /* the peer has not sent it yet */
  uint8_t secret[FAST_SECRET];
  struct rpc_address *from; /* a reference; of the asking side NULL */
  struct budget held;       /* bytes of requests, and of bodies that arrive */
  struct budget copied;     /* bytes that wait to be sent */
  /* what the check looks at */
  int64_t began;
  atomic_llong last_in, last_out; /* clock_ns: when bytes last came, when some last left or began to wait */
  atomic_bool is_half;            /* a frame has begun and not ended */
  atomic_bool waits;              /* something waits to be sent */
  atomic_int lent;                /* values that the peer is to copy out of our memory */
  /* reading: the leader's */
  uint8_t *in;
  size_t have, room;
  struct fast_frame frame; /* whose body is being read */
  uint8_t *frame_head;
  struct buffer *body;
  size_t body_have;
  bool pours; /* it goes where `pour` has it, and there is no buffer */
  struct fast_pour pour;
  uint64_t skip; /* bytes of a body for which there was no room */
  /* writing */
  pthread_mutex_t lock;
  struct fast_out *first, *last; /* lock: not sent yet */
  size_t referred;               /* lock: bytes of bodies that wait, by reference */
  bool watched;                  /* lock: the loop has it */
  bool armed;                    /* lock: the leader goes on when there is room */
  bool tuned;                    /* lock: the socket is as large bodies have it */
};

/* Takes over fd. from: whose share it lives on, a reference that is taken over; such a peer must send the secret first.
 * NULL: we have dialled. One reference is the caller's, one the loop's. */
void fast_conn_start(struct fast_conn *c, const struct fast_conn_ops *ops, int fd, const uint8_t *secret,
                     struct rpc_address *from);
void fast_conn_unref(struct fast_conn *c);
static inline void fast_conn_ref(struct fast_conn *c) { ref_take(&c->refs); }
/* No more: closed() follows soon, on another thread. */
void fast_conn_shut(struct fast_conn *c);
/* Sends a frame, or adds it to what this thread holds (fast_hold). body (optional, f->size bytes at data) is kept by
 * reference until it is sent, unless it is small. A peer for which too much waits already is hung up on. */
void fast_conn_send(struct fast_conn *c, const struct fast_frame *f, const void *head, struct buffer *body,
                    const void *data);
/* Adds a frame without a body to what leaves next; nothing is sent for its sake. */
void fast_conn_queue(struct fast_conn *c, const struct fast_frame *f);

/* Bytes that came and left, through sockets and memory. */
extern atomic_llong fast_received, fast_sent;
static inline void fast_count(atomic_llong *of, uint64_t n) {
  atomic_fetch_add_explicit(of, (long long)n, memory_order_relaxed);
}

/* The leader's: there is room to write. */
void fast_conn_output(struct fast_conn *c);
/* Frees what was not sent. */
void fast_conn_drop_output(struct fast_conn *c);

#endif
