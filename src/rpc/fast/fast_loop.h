/* The fast path's threads: they wait for sockets on one epoll set, and do what frames ask for. */
#ifndef RPC_FAST_FAST_LOOP_H
#define RPC_FAST_FAST_LOOP_H

#include <stdint.h>

#include "base/vec.h"

struct fast_conn;

/* What an event's pointer is: a connection to be read, one to be written, a listener. */
enum fast_tag { FAST_TAG_IN = 0, FAST_TAG_OUT = 1, FAST_TAG_LISTEN = 2, FAST_TAG_MASK = 3 };
/* Waits once for an event of fd; op as for epoll_ctl. Starts the threads. */
void fast_loop_arm(int fd, uint32_t events, void *p, enum fast_tag tag, int op);
void fast_loop_forget(int fd);

typedef VEC(void *) fast_work;
/* Runs what frames of c asked for: here, or when too many do already, later; the list is emptied. */
void fast_loop_run(struct fast_conn *c, fast_work *todo);

/* Calls fn for each connection that comes to a listening socket; fd < 0: the socket is gone. */
void fast_listen(int fd, void (*fn)(void *arg, int fd), void *arg);

#endif
