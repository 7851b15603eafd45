/* The fast path's limits; see fast_limits.h. */
#include "rpc/fast_limits.h"

#include "rpc/limits.h"

static const int64_t second = 1000000000;

struct fast_limits fast_limits = {.strangers = 64,
                                  .requests = 65536,
                                  .arenas = 512,
                                  .secret_ns = 5 * second,
                                  .stall_ns = 60 * second,
                                  .conn_copied_bytes = (size_t)64 << 20};

int fast_max_connections(void) {
  return fast_limits.connections ? fast_limits.connections : (int)rpc_limit(RPC_MAX_CONNECTIONS);
}

int64_t fast_half_ns(void) {
  return fast_limits.half_ns ? fast_limits.half_ns : rpc_limit(RPC_REQUEST_TIMEOUT) * second;
}

size_t fast_conn_held_bytes(void) {
  return fast_limits.conn_held_bytes ? fast_limits.conn_held_bytes : (size_t)rpc_limit(RPC_MAX_CONNECTION_HELD_BYTES);
}

struct budget *fast_held(void) {
  return rpc_budget(RPC_MAX_HELD_BYTES);
}
struct budget *fast_copied(void) {
  return rpc_budget(RPC_MAX_UNREAD_BYTES);
}
