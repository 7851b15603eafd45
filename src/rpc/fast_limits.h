/* What the fast path lets others make it hold, and for how long.
 *
 * Who gets in has shown a secret, so these bounds are for peers that went wrong, and for those who took a task over.
 * What passes a limit is refused by name, and the step that asked sees it; a connection whose peer does not read or
 * stops in the middle of a frame is closed, and its steps end with UNAVAILABLE. Bytes are taken from the budgets of the
 * whole transport (limits.h): what comes in counts as requests, what waits as answers that were not read. */
#ifndef RPC_FAST_LIMITS_H
#define RPC_FAST_LIMITS_H

#include <stdint.h>

#include "base/budget.h"

/* 0: as --max_connections, --request_timeout, --max_connection_held_bytes say. */
struct fast_limits {
  _Atomic(int) connections;          /* to one server; 0 */
  _Atomic(int) strangers;            /* of these, who have not shown the secret */
  _Atomic(int) requests;             /* open on one connection */
  _Atomic(int) arenas;               /* of shared memory, in the process */
  _Atomic(int64_t) secret_ns;        /* until the secret is there */
  _Atomic(int64_t) half_ns;          /* without a byte in the middle of a frame; 0 */
  _Atomic(int64_t) stall_ns;         /* without taking a byte of what waits for the peer */
  _Atomic(size_t) conn_held_bytes;   /* requests and bodies of one connection; 0 */
  _Atomic(size_t) conn_copied_bytes; /* frames that wait for one peer, large bodies not counted */
};
/* Tests change them, while connections of the test before may be on their way out. */
extern struct fast_limits fast_limits;

int fast_max_connections(void);
int64_t fast_half_ns(void);
size_t fast_conn_held_bytes(void);
/* The process's: bytes of requests and of bodies that arrive; bytes that wait for peers. */
struct budget *fast_held(void);
struct budget *fast_copied(void);

#endif
