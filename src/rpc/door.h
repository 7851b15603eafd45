/* Who is let in, at whichever of the process's ports: gRPC's, REST's, the pages'.
 *
 * Connections are counted for the process and for their address (rpc/limits.h, rpc/address.h). Where there are as many
 * as there may be, one that has been idle makes room: of all servers' the one that has been so for longest, so that
 * idle clients of REST lock nobody out of gRPC, nor the other way round.
 *
 * On the leader alone, but for adding a server and taking it away. */
#ifndef RPC_DOOR_H
#define RPC_DOOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "rpc/address.h"

/* Connections that have been idle for so long, in the middle of a request too, or have not begun with one for so long,
 * make room for new ones. */
enum { DOOR_IDLE_S = 10, DOOR_GREETING_S = 1 };

/* A server's connections. of: of an address, by its number; NULL: of all. */
struct door {
  /* For how long one has been idle beyond what it may, the longest; negative: none has. */
  int64_t (*longest)(struct door *d, const struct rpc_address *of);
  /* Ends that one; false: it was busy again. */
  bool (*end)(struct door *d, const struct rpc_address *of);
  struct door *next; /* door.c's */
};

void door_add(struct door *d);
void door_remove(struct door *d);
/* May one more come from there? It is counted then; to be given back to from->connections. */
bool door_lets_in(struct rpc_address *from, const struct sockaddr_storage *peer);
/* No descriptor is free: some that are idle go. */
void door_free_descriptors(void);

#endif
