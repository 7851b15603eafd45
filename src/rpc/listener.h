/* Sockets that listen: all that a server's host name stands for, on one port. */
#ifndef RPC_LISTENER_H
#define RPC_LISTENER_H

#include "base/status.h"
#include "base/vec.h"
#include "rpc/loop.h"

struct listener;

/* fn(arg, fd) is called on the leader for each connection; fd is nonblocking and fn's. -1: somebody waits, and no
 * descriptor is free; they are tried again soon. */
typedef void (*listener_fn)(void *arg, int fd);

/* host: "127.0.0.1", "[::]", a name; port 0: any, *port says which. UNKNOWN "Could not start gRPC server" with the
 * cause. */
shoal_status listener_open(const char *host, int *port, listener_fn fn, void *arg, struct listener **out);
/* One socket that listens already, and does not block; it is taken over. */
struct listener *listener_of(int fd, listener_fn fn, void *arg);
/* From now on connections are taken; until then they wait in the system's queue. */
void listener_begin(struct listener *l);
/* On the leader alone. */
void listener_close(struct listener *l);

#endif
