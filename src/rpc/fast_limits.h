/* What the fast path lets others make it hold, and for how long.
 *
 * Who gets in has shown a secret, so these bounds are for peers that went wrong, and for those who took a task over.
 * What passes a limit is refused by name, and the step that asked sees it; a connection whose peer does not read or
 * stops in the middle of a frame is closed, and its steps end with UNAVAILABLE. */
#ifndef RPC_FAST_LIMITS_H
#define RPC_FAST_LIMITS_H

#include <stdint.h>

#include "base/budget.h"

struct fast_limits {
  int connections;          /* to one server */
  int strangers;            /* of these, who have not shown the secret */
  int requests;             /* open on one connection */
  int arenas;               /* of shared memory, in the process */
  int64_t secret_ns;        /* until the secret is there */
  int64_t half_ns;          /* without a byte in the middle of a frame */
  int64_t stall_ns;         /* without taking a byte of what waits for the peer */
  size_t conn_held_bytes;   /* requests and bodies of one connection, 0: a third of the memory */
  size_t held_bytes;        /* of all connections, 0: half of the memory */
  size_t conn_copied_bytes; /* frames that wait for one peer, large bodies not counted */
  size_t copied_bytes;      /* of all peers */
};
/* In force for connections that begin afterwards; a test changes them before its first. */
extern struct fast_limits fast_limits;

/* The process's: bytes of requests and of bodies that arrive; bytes that wait for peers. */
struct budget *fast_held(void);
struct budget *fast_copied(void);
/* Bytes of one connection's requests and bodies. */
size_t fast_conn_held_bytes(void);

#endif
