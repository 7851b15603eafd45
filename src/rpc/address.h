/* Clients by where they come from: what all connections of one address hold together.
 *
 * A connection's budgets bound nobody who opens more of them: two could take all sessions there may be, a few all room
 * for requests, and whoever came from elsewhere found nothing left. So between a connection's budgets and the process's
 * stand those of its address, with three quarters of what there is (of connections, what --max_address_connections
 * says). Flags for each were rejected: who has all clients behind one address, a tunnel's or a gateway's, gives the
 * process more. What counts as an address: one of IPv4, or all of IPv6 that share their first half, which is what one
 * machine is given. All that come to the fast path's Unix socket are one. Where a server may hold as much as the
 * process, which is so unless --max_request_bytes leaves it less, an address has one share of what is held of gRPC,
 * REST and the fast path together; else one of its own of gRPC. Of all else it has one share, by whichever port it
 * comes. Requests of HTTP/1 stand in one line for each address, as the calls of
 * a connection of HTTP/2 do. */
#ifndef RPC_ADDRESS_H
#define RPC_ADDRESS_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/budget.h"
#include "base/ref.h"

/* Where a request came from. */
struct rpc_origin {
  uint64_t connection; /* unlike those of others that are open; 0: none */
  uint64_t address;    /* 0: none */
};

struct rpc_address {
  struct rpc_address *next; /* the table's lock */
  struct ref refs;          /* taken and dropped with the table's lock held */
  uint64_t number;
  struct rpc_address *whole; /* of one whose held is a server's own: what it has of the process; a reference. Or NULL */
  struct budget connections, calls, held, unread, framing;
  struct rpc_line *requests, *packed; /* of HTTP/1: what waits for its handler; to be inflated first */
  size_t waiting;                     /* room's lock: its requests that wait for room */
  size_t bodies;                      /* the leader's: its bodies of HTTP/1 that do */
};

/* The same for all connections of one address, and never 0. */
uint64_t rpc_address_number(const struct sockaddr_storage *peer);
/* Of what there is in all, what one address may have. */
static inline size_t rpc_address_share(size_t all) { return all - all / 4; }

/* The address of a server's clients, by its number; a reference. held: what the server's requests are taken from. */
struct rpc_address *rpc_address_get(uint64_t number, struct budget *held);
void rpc_address_unref(struct rpc_address *a);

#endif
