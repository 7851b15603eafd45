/* The fast path's limits; see fast_limits.h. */
#include "rpc/fast_limits.h"

#include <pthread.h>

#include "base/machine.h"

static const int64_t second = 1000000000;

struct fast_limits fast_limits = {.connections = 4096,
                                  .strangers = 64,
                                  .requests = 65536,
                                  .arenas = 512,
                                  .secret_ns = 5 * second,
                                  .half_ns = 60 * second,
                                  .stall_ns = 60 * second,
                                  .conn_copied_bytes = (size_t)64 << 20,
                                  .copied_bytes = (size_t)512 << 20};

static struct budget held, copied;

static void set(void) {
  budget_init(&held, fast_limits.held_bytes ? fast_limits.held_bytes : machine_memory() / 2, NULL);
  budget_init(&copied, fast_limits.copied_bytes, NULL);
}

static void set_once(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, set);
}

struct budget *fast_held(void) {
  set_once();
  return &held;
}

struct budget *fast_copied(void) {
  set_once();
  return &copied;
}

size_t fast_conn_held_bytes(void) {
  return fast_limits.conn_held_bytes ? fast_limits.conn_held_bytes : machine_memory() / 3;
}
