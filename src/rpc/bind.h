/* A socket that listens, for servers of HTTP/1: the errors blame the flags that named its place. */
#ifndef RPC_BIND_H
#define RPC_BIND_H

#include "base/status.h"

/* host: "127.0.0.1", "[::]", a name; port 0: any, *bound says which. what: the flags to blame. *fd does not block. */
shoal_status bind_and_listen(const char *host, int port, const char *what, int *fd, int *bound);

#endif
