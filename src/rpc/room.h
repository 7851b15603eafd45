/* Room for large requests: what does not fit beside the others waits, with its sender held back, and is not refused.
 *
 * A stream begins with a small window (first_window): a request that fits in it is taken as it comes. Of a larger one
 * no more is sent than that, until there is room for all of it in the budgets of its connection, its address, its
 * server and the process. Then the room is taken, the window is opened as wide as the request, and it can come to its
 * end whatever others do: no set of half requests holds all that there is and waits for more. Connections take turns,
 * the requests of one are in order; smaller ones go before one that does not fit, a bounded number of times.
 *
 * What was rejected: taking room as bytes arrive, and holding back whoever finds none (sixty uploads then hold a third
 * of themselves each, and none ends); not reading the socket (calls that are small, pings and cancellations wait, too).
 *
 * Room is given for what a request says of itself, once half of its first window has come. Then, while others wait, it
 * has to go on: who is silent for --stall_timeout, or so slow that it would not be whole within --room_timeout, is
 * refused (is_late() in room.c); so is who has waited for that long.
 *
 * All functions up to room_leave are called with the connection's lock held. */
#ifndef RPC_ROOM_H
#define RPC_ROOM_H

#include <stdbool.h>
#include <stddef.h>

struct http2;
struct http2_stream;
struct rpc_address;

/* The first window of a connection's streams: so small that thousands of them fit in its budgets. */
size_t room_first_window(const struct http2 *c);
/* Can a request of so many bytes ever have room? */
bool room_can_be(const struct http2 *c, size_t n);
/* s waits for its turn; false: too many wait. */
bool room_ask(struct http2 *c, struct http2_stream *s);
/* It needs no more than it has. */
void room_leave(struct http2 *c, struct http2_stream *s);
/* Something was given back. From any thread, under any lock. */
void room_freed(void);

/* Who waits for room and is no stream: a body of HTTP/1, whose sender is held back by not being read once
 * ROOM_BEGINNING bytes of it are here at most. They have what the streams leave, first come, first tried, and go before
 * one that does not fit as often as others may. On the leader alone. */
enum { ROOM_BEGINNING = 64 << 10 };
struct room_waiter {
  bool (*give)(struct room_waiter *w); /* takes the room there is; false: it is not enough */
  struct room_waiter *next, **at;      /* at NULL: it does not wait */
  struct rpc_address *from;            /* while it waits */
};
/* False: too many wait, and what has come of them leaves no room for any. */
bool room_wait(struct room_waiter *w, struct rpc_address *from);
/* It does not wait any more, whether or not it did. */
void room_wait_no_more(struct room_waiter *w);
/* Does anybody wait? Then who has room has to go on. */
bool room_is_wanted(void);

#endif
