/* The network's threads: one epoll set for all servers and channels of a process, gRPC's and the fast path's.
 *
 * Sockets are watched by a struct rpc_watch, moments by a struct rpc_timer; their functions run on the thread that
 * leads, must not block and call nobody's handlers. What may take its time is posted as a struct rpc_event: while an
 * event's function runs another thread takes over the network within milliseconds (answers, cancellations and pings
 * go on), at once when it says rpc_loop_hand_over().
 *
 * Whatever handlers do, the network goes on: requests are worked on by at most --max_handlers threads, and by at most
 * --max_connection_handlers for one connection; further ones wait in their connection's line, and the lines take turns
 * (turns.h). Other events (answers that came, clients that went) have threads of their own beyond these, since it may
 * be them that the handlers wait for; and nothing that may block is begun before there is a thread that can take over.
 */
#ifndef RPC_LOOP_H
#define RPC_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal/status.h"

struct rpc_event {
  void (*fn)(struct rpc_event *e);
  struct rpc_event *next;
  struct rpc_line *line; /* REQUEST and COMPUTE: whose it is, of that kind */
  enum rpc_event_kind {
    RPC_EVENT_NEWS,     /* of a call: may block, but should not for long */
    RPC_EVENT_REQUEST,  /* a handler */
    RPC_EVENT_COMPUTE,  /* takes a processor for long and waits for nobody: a few at a time, never on the leader */
    RPC_EVENT_TURN,     /* goes on with something that does not block, and takes turns with all others */
    RPC_EVENT_GREETING, /* the same for handshakes, apart: those who come wait for nobody's uploads */
    RPC_EVENT_QUICK,    /* does not block, and runs before all others: nobody polls meanwhile */
  } kind;
};

struct rpc_watch {
  void (*fn)(struct rpc_watch *w, uint32_t events);
  int fd;
};

struct rpc_timer {
  void (*fn)(struct rpc_timer *t);
  int64_t when;
  size_t place; /* in the heap, from 1; 0: not set */
};

/* Starts the loop at the first call; each that succeeds is paired with a release, the last of which ends it. Without
 * descriptors or threads for it: RESOURCE_EXHAUSTED. */
shoal_status rpc_loop_acquire(void);
/* The same, for one who knows that it runs. */
void rpc_loop_hold(void);
/* The last one waits until the loop has ended; on a thread of the loop it does not, and it ends right after. */
void rpc_loop_release(void);
/* Of rpc_line_new (turns.h). Nothing waits in it when it is freed; some may be under way. */
void rpc_line_free(struct rpc_line *l);
/* e is the loop's until its function is called; from any thread. */
void rpc_loop_post(struct rpc_event *e);
/* Watches for events (EPOLLIN, ...), from now on or with others than before. unwatch: from the thread that leads alone
 * (a watch's, a timer's or a quick event's function). */
bool rpc_loop_watch(struct rpc_watch *w, uint32_t events);
bool rpc_loop_rewatch(struct rpc_watch *w, uint32_t events);
void rpc_loop_unwatch(struct rpc_watch *w);
/* Sets or moves a timer (when as clock_ns() has it); from any thread. */
void rpc_timer_set(struct rpc_timer *t, int64_t when);
/* True: it was set, and its function will not be called. */
bool rpc_timer_clear(struct rpc_timer *t);
/* Says that this thread is about to wait or to compute for long. Does nothing on threads that are not the loop's. */
void rpc_loop_hand_over(void);
/* For how many seconds the network's thread has not turned, when that is too long (--watchdog), or 0; and how often
 * that has happened. */
int64_t rpc_loop_stalled(void);
int64_t rpc_loop_stalls(void);
/* Who is to speak while the leader cannot: fn is called now and then with for how long it has not turned, on the thread
 * that looks after it; 0, once, when it turns again. fn waits for nobody, and posts nothing. */
struct rpc_stall {
  void (*fn)(struct rpc_stall *s, int64_t ns);
  bool speaks;
  struct rpc_stall *next;
};
void rpc_loop_when_stalled(struct rpc_stall *s);
/* fn is not called any more. */
void rpc_loop_forget_stalled(struct rpc_stall *s);
/* Memory for what is read from a socket, the leader's. */
enum { RPC_SCRATCH = 256 << 10 };
uint8_t *rpc_loop_scratch(void);

#endif
