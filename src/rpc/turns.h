/* Whose turn it is: events that may take long wait in a line for each connection (of HTTP/1, where a connection is
 * one question at a time, for each address), and the lines take turns.
 *
 * First come, first served over all connections was here before: whoever sent two hundred requests at once was served
 * two hundred times before anybody else was. Now a connection has one event begun, then the next connection has; and it
 * has no more of them under way at a time than it may, whatever else is free.
 *
 * Everything here happens under the loop's lock for events. */
#ifndef RPC_TURNS_H
#define RPC_TURNS_H

#include <stdatomic.h>
#include <stdbool.h>

struct rpc_event;

struct event_list {
  struct rpc_event *first, **last;
};

/* Of one connection. It is in turn while it has events that wait and may be begun. */
struct rpc_line {
  struct event_list waiting;
  struct rpc_line *next; /* of those in turn */
  bool in_turn;
  bool left; /* its owner has gone: it goes with the last event that is under way */
  int most;  /* under way at a time; 0: as many as its kind has it */
  int under_way;
};

/* Events of one kind, of all connections. */
struct turns {
  struct rpc_line *first, **last; /* in turn */
  atomic_int under_way;
};

void event_list_init(struct event_list *l);
void event_list_add(struct event_list *l, struct rpc_event *e);
/* NULL: it is empty. */
struct rpc_event *event_list_pop(struct event_list *l);

void turns_init(struct turns *t);
/* e waits in l; each line may have so many under way. */
void turns_add(struct turns *t, struct rpc_line *l, struct rpc_event *e, int each);
/* The event whose turn it is, counted as under way; NULL when all in turn have to wait for one to end. When there are
 * as many as there may be in all, a line that has none under way may still begin one, up to as many again: a few
 * connections whose requests do not end do not lock everybody else out. */
struct rpc_event *turns_next(struct turns *t, int all, int each);
/* One of l's has ended. */
void turns_end(struct turns *t, struct rpc_line *l, int each);

/* most: see above. */
struct rpc_line *rpc_line_new(int most);
/* Nothing waits in it. */
void line_leave(struct rpc_line *l);

#endif
