/* What a peer can make the transport hold, and for how long: one table, for HTTP/2, HTTP/1 and the fast
 * path.
 *
 * Each row is a flag of `shoal server`, of the same name; docs/security.md has the same table, and a test compares the
 * two. A limit that is counted has a budget of the process; what is counted for each connection has a row of its own,
 * and its budget is a child of the process's. Limits are set before the first server starts.
 *
 * Who gets in by the fast path has shown a secret, so its rows are for peers that went wrong, and for those who took a
 * task over. What passes a limit there is refused by name, and the step that asked sees it; a connection whose peer
 * does not read or stops in the middle of a frame is closed, and its steps end with UNAVAILABLE. What comes in counts
 * as requests, what waits as answers that were not read, for the same rows as HTTP/2's. */
#ifndef RPC_LIMITS_H
#define RPC_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"

enum rpc_limit {
  RPC_MAX_CONNECTIONS,
  RPC_MAX_ADDRESS_CONNECTIONS,
  RPC_MAX_CALLS,
  RPC_MAX_CONNECTION_CALLS,
  RPC_MAX_HELD_BYTES,
  RPC_MAX_CONNECTION_HELD_BYTES,
  RPC_MAX_UNREAD_BYTES,
  RPC_MAX_CONNECTION_UNREAD_BYTES,
  RPC_MAX_FRAMING_BYTES,
  RPC_MAX_CONNECTION_FRAMING_BYTES,
  RPC_MAX_HANDLERS,
  RPC_MAX_CONNECTION_HANDLERS,
  RPC_MAX_HTTP_HANDLERS,
  RPC_GREETING_TIMEOUT,
  RPC_REQUEST_TIMEOUT,
  RPC_ROOM_TIMEOUT,
  RPC_STALL_TIMEOUT,
  RPC_UNREAD_TIMEOUT,
  RPC_IDLE_TIMEOUT,
  RPC_WATCHDOG,
  RPC_MAX_FAST_CONNECTIONS,
  RPC_MAX_FAST_STRANGERS,
  RPC_MAX_FAST_REQUESTS,
  RPC_MAX_FAST_UNREAD_BYTES,
  RPC_MAX_FAST_ARENAS,
  RPC_FAST_GREETING_TIMEOUT,
  RPC_FAST_UNREAD_TIMEOUT,
  RPC_LIMITS
};

struct rpc_limit_row {
  const char *flag, *unit, *meaning;
  int64_t usual; /* 0: told by the machine's memory */
  int share;     /* then: a part of it, 1/share; 0: of the row before, all but a quarter */
  bool counted;  /* there is a budget of the process that says how much of it is held */
};
extern const struct rpc_limit_row rpc_limit_rows[RPC_LIMITS];

/* The limit in force; of a time, in nanoseconds. */
int64_t rpc_limit(enum rpc_limit which);
static inline int64_t rpc_limit_ns(enum rpc_limit which) { return rpc_limit(which) * 1000000000; }
/* 0: as usual. Budgets and what a connection is told when it begins: not while there are servers. */
void rpc_limit_set(enum rpc_limit which, int64_t value);
/* The process's budget of a row that counts something; others have none. */
struct budget *rpc_budget(enum rpc_limit which);
/* One more of a row that counts something, by the limit in force now; false: there are as many as there may be. */
bool rpc_limit_take(enum rpc_limit which);

#endif
