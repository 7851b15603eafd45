/* What a peer can make the transport hold, and for how long: one table.
 *
 * Each row is a flag of `shoal server`, of the same name; docs/security.md has the same table, and a test compares the
 * two. A limit that is counted has a budget of the process; what is counted for each connection has a row of its own,
 * and its budget is a child of the process's. Limits are set before the first server starts. */
#ifndef RPC_LIMITS_H
#define RPC_LIMITS_H

#include <stdint.h>

#include "base/budget.h"

enum rpc_limit {
  RPC_MAX_CONNECTIONS,
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
  RPC_GREETING_TIMEOUT,
  RPC_REQUEST_TIMEOUT,
  RPC_ROOM_TIMEOUT,
  RPC_UNREAD_TIMEOUT,
  RPC_IDLE_TIMEOUT,
  RPC_WATCHDOG,
  RPC_LIMITS
};

struct rpc_limit_row {
  const char *flag, *unit, *meaning;
  int64_t usual; /* 0: told by the machine's memory */
  int share;     /* then: a part of it, 1/share */
};
extern const struct rpc_limit_row rpc_limit_rows[RPC_LIMITS];

/* The limit in force. */
int64_t rpc_limit(enum rpc_limit which);
/* 0: as usual. Budgets and what a connection is told when it begins: not while there are servers. */
void rpc_limit_set(enum rpc_limit which, int64_t value);
/* The process's budget of a row that counts something; others have none. */
struct budget *rpc_budget(enum rpc_limit which);

#endif
