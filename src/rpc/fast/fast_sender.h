/* The answering side's own: requests and connections (fast_server.c), answers (fast_answer.c). */
#ifndef RPC_FAST_FAST_SENDER_H
#define RPC_FAST_FAST_SENDER_H

#include "base/keyed_hash.h"
#include "base/ref.h"
#include "rpc/fast/fast.h"
#include "rpc/fast/fast_address.h"
#include "rpc/fast/fast_shared.h"
#include "rpc/fast/fast_window.h"
#include "rpc/fast/fast_wire.h"
#include "rpc/listener.h"
#include "rpc/unwanted.h"

enum { FAST_BUCKET_BITS = 10, FAST_BUCKETS = 1 << FAST_BUCKET_BITS };

struct fast_server {
  struct ref refs;              /* the owner's, the listeners', each connection's */
  struct listener *local, *tcp; /* NULL: none */
  struct rpc_event stopping;    /* closes them */
  int port;
  char name[FAST_NAME];
  uint8_t secret[FAST_SECRET];
  struct fast_handlers handlers;
  void *arg;
  pthread_mutex_t lock;
  struct sender *conns; /* lock: the newest first */
  bool stopped;         /* lock */
};

struct fast_request {
  struct fast_work work;
  struct rpc_event cancel;   /* calls the cancel function */
  struct fast_request *next; /* conn's lock */
  struct sender *conn;       /* a reference */
  struct ref refs;           /* the answer's, the handler's, a canceller's */
  uint64_t id;
  bool is_call, by_window;  /* by_window: the value is for a card of this host */
  int64_t step;             /* ASK */
  int64_t deadline;         /* CALL */
  struct unwanted unwanted; /* conn's lock */
  bool posted;              /* conn's lock: cancel was, once */
  bool cancelled;           /* conn's lock */
  size_t held;              /* bytes of the connection's budget */
  size_t n;
  char data[]; /* the key, or the request; NUL after it */
};

/* A tensor that the receiver copies, a block that it uses, or a part of a window that it copies, until it says DONE. */
enum held_kind { HELD_LENT, HELD_BLOCK, HELD_WINDOW };
struct held {
  struct held *next;
  uint64_t id;
  uint8_t flags;
  struct tensor value; /* of a block, or a window: only its type and shape */
  enum held_kind kind;
  int window;
  uint64_t offset; /* of the block, or the part */
  size_t bytes;
};

struct sender {
  struct fast_conn conn;
  struct fast_server *server;
  struct sender *prev, *next; /* server's lock */
  pthread_mutex_t lock;
  pthread_cond_t idle;
  struct fast_request *requests[FAST_BUCKETS]; /* lock */
  int n_requests;                              /* lock */
  bool closed;                                 /* lock: nothing is held for it any more */
  struct held *held[FAST_BUCKETS];             /* lock */
  bool no_remote;                              /* lock */
  bool no_shared;                              /* lock: the receiver cannot map the arena */
  struct fast_arena *arena;                    /* lock */
  bool no_windows;                             /* lock: the receiver cannot open them */
  struct fast_windows windows;                 /* lock */
};

/* Where in a table an id is, which the peer has chosen. */
static inline size_t fast_bucket(uint64_t id) { return hash_keyed_number(id) >> (64 - FAST_BUCKET_BITS); }

/* Sends a value of the host's memory; may_remote: the receiver may fetch it out of there. */
void sender_value(struct sender *c, uint64_t id, uint8_t flags, struct tensor *t, bool may_remote);
/* The same for one of a device's memory (fast_card.c): its reference is taken over. */
void sender_card_value(struct sender *c, uint64_t id, bool by_window, struct tensor *value);
/* The receiver cannot open a window: what is in the part comes by way of the host. */
void sender_card_again(struct sender *c, const struct held *h);
/* Keeps it for the receiver; false, and it is still the caller's, when the connection is closed. With the lock held. */
bool sender_hold(struct sender *c, struct held *h);
/* Answers with an error; s is consumed. */
void sender_error(struct sender *c, uint64_t id, shoal_status s);
/* The receiver needs a value no more (DONE), or cannot get at it and asks for it again (RESEND). */
void sender_let_go(struct sender *c, uint64_t id, bool again);
/* Lets go of all that is held for it, now and from now on. */
void sender_drop_held(struct sender *c);
/* The request is answered: it is in nobody's table any more, and its cancel function will not be called. */
void request_begin_answer(struct fast_request *r);
void request_unref(struct fast_request *r);

#endif
