/* The transport's limits; see limits.h. */
#include "rpc/limits.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/machine.h"

const struct rpc_limit_row rpc_limit_rows[RPC_LIMITS] = {
    [RPC_MAX_CONNECTIONS] = {"max_connections", "N", "connections at a time (default 4096)", 4096, .counted = true},
    [RPC_MAX_ADDRESS_CONNECTIONS] = {"max_address_connections", "N",
                                     "of these, from one address (default 3072, three quarters of them)"},
    [RPC_MAX_CALLS] = {"max_calls", "N", "calls under way (default 65536)", 65536, .counted = true},
    [RPC_MAX_CONNECTION_CALLS] = {"max_connection_calls", "N", "of these, on one connection (default 16384)", 16384},
    [RPC_MAX_HELD_BYTES] = {"max_held_bytes", "N", "requests that arrive or are worked on (default: half the memory)",
                            .share = 2, .counted = true},
    [RPC_MAX_CONNECTION_HELD_BYTES] = {"max_connection_held_bytes", "N",
                                       "of these, from one connection (default: a third of the memory)", .share = 3},
    [RPC_MAX_UNREAD_BYTES] = {"max_unread_bytes", "N", "answers that clients have not read (default: half the memory)",
                              .share = 2, .counted = true},
    [RPC_MAX_CONNECTION_UNREAD_BYTES] = {"max_connection_unread_bytes", "N",
                                         "of these, on one connection (default: a third of the memory)", .share = 3},
    [RPC_MAX_FRAMING_BYTES] = {"max_framing_bytes", "N", "HTTP/2's own tables and queues (default 256 MiB)",
                               (int64_t)256 << 20, .counted = true},
    [RPC_MAX_CONNECTION_FRAMING_BYTES] = {"max_connection_framing_bytes", "N",
                                          "of these, of one connection (default 32 MiB)", (int64_t)32 << 20},
    [RPC_MAX_HANDLERS] = {"max_handlers", "N",
                          "requests worked on at a time, others wait; as many again for who has none (default 192)",
                          192},
    [RPC_MAX_CONNECTION_HANDLERS] = {"max_connection_handlers", "N", "of these, for one connection (default 64)", 64},
    [RPC_MAX_HTTP_HANDLERS] = {"max_http_handlers", "N", "of these, for HTTP/1 from one address (default 64)", 64},
    [RPC_GREETING_TIMEOUT] = {"greeting_timeout", "SECONDS", "until a client has begun with TLS and HTTP (default 20)",
                              20},
    [RPC_REQUEST_TIMEOUT] = {"request_timeout", "SECONDS", "without a byte of a request that has begun (default 60)",
                             60},
    [RPC_ROOM_TIMEOUT] = {"room_timeout", "SECONDS", "a request waits for room among those that are held (default 60)",
                          60},
    [RPC_STALL_TIMEOUT] = {"stall_timeout", "SECONDS",
                           "without a byte of a request that has room while others wait (default 10)", 10},
    [RPC_UNREAD_TIMEOUT] = {"unread_timeout", "SECONDS", "without a byte of an answer being taken (default 300)", 300},
    [RPC_IDLE_TIMEOUT] = {"idle_timeout", "SECONDS", "of a connection without calls (default 7200)", 7200},
    [RPC_WATCHDOG] = {"watchdog", "SECONDS", "the network's thread not turning is reported (default 10)", 10},
    [RPC_MAX_FAST_CONNECTIONS] = {"max_fast_connections", "N", "connections of the fast path at a time (default 4096)",
                                  4096, .counted = true},
    [RPC_MAX_FAST_STRANGERS] = {"max_fast_strangers", "N", "of these, who have not shown the secret (default 64)", 64},
    [RPC_MAX_FAST_REQUESTS] = {"max_fast_requests", "N",
                               "requests open on one connection of the fast path (default 65536)", 65536},
    [RPC_MAX_FAST_UNREAD_BYTES] = {"max_fast_unread_bytes", "N",
                                   "waiting for one peer of the fast path, large tensors not counted (default 64 MiB)",
                                   (int64_t)64 << 20},
    [RPC_MAX_FAST_ARENAS] = {"max_fast_arenas", "N", "shared memories of the fast path, of 8 MiB (default 512)", 512,
                             .counted = true},
    [RPC_FAST_GREETING_TIMEOUT] = {"fast_greeting_timeout", "SECONDS",
                                   "until a peer of the fast path has shown the secret (default 5)", 5},
    [RPC_FAST_UNREAD_TIMEOUT] = {"fast_unread_timeout", "SECONDS",
                                 "without a byte taken by a peer of the fast path (default 60)", 60},
};

static atomic_llong chosen[RPC_LIMITS];
static struct budget budgets[RPC_LIMITS];

int64_t rpc_limit(enum rpc_limit which) {
  const struct rpc_limit_row *row = &rpc_limit_rows[which];
  int64_t mine = atomic_load_explicit(&chosen[which], memory_order_relaxed);
  if (mine > 0) return mine;
  if (row->usual) return row->usual;
  if (row->share) return (int64_t)machine_memory() / row->share;
  int64_t before = rpc_limit(which - 1);
  return before - before / 4;
}

static void set_budgets(void) {
  for (int i = 0; i < RPC_LIMITS; i++) budgets[i].most = (size_t)rpc_limit((enum rpc_limit)i);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

struct budget *rpc_budget(enum rpc_limit which) {
  pthread_once(&once, set_budgets);
  return &budgets[which];
}

void rpc_limit_set(enum rpc_limit which, int64_t value) {
  atomic_store(&chosen[which], value);
  struct budget *b = rpc_budget(which);
  size_t most = (size_t)rpc_limit(which);
  if (b->most != most) b->most = most; /* others may be looking at it when it is what it was */
}

bool rpc_limit_take(enum rpc_limit which) {
  struct budget *b = rpc_budget(which);
  budget_force(b, 1);
  if (budget_used(b) <= (size_t)rpc_limit(which)) return true;
  budget_give(b, 1);
  return false;
}
