/* Clients by their addresses; see address.h. */
#include "rpc/address.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/keyed_hash.h"
#include "base/mem.h"
#include "rpc/limits.h"
#include "rpc/loop.h"
#include "rpc/turns.h"

enum { BITS = 10 };

static struct {
  pthread_mutex_t lock;
  struct rpc_address *buckets[1 << BITS];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

uint64_t rpc_address_number(const struct sockaddr_storage *peer) {
  const struct sockaddr_in *v4 = (const struct sockaddr_in *)peer;
  const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)peer;
  uint32_t host = 0;
  uint64_t net = 0;
  if (peer->ss_family == AF_INET) host = v4->sin_addr.s_addr;
  else if (peer->ss_family != AF_INET6) return 1;
  else if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) memcpy(&host, &v6->sin6_addr.s6_addr[12], sizeof host);
  else memcpy(&net, &v6->sin6_addr, sizeof net);
  /* All zeros is the net of ::1. One that reads as another's number shares with it, and nobody is given such a one. */
  return net ? net : (uint64_t)1 << 32 | host;
}

/* Where a's entry is, or would be. */
static struct rpc_address **find(uint64_t number, const struct budget *held) {
  struct rpc_address **at = &table.buckets[hash_keyed_number(number) >> (64 - BITS)];
  while (*at && ((*at)->number != number || (*at)->held.parent != held)) at = &(*at)->next;
  return at;
}

/* A share of the process's; whole: what the address has of that already. */
static void share(struct budget *b, struct budget *of, struct budget *whole) {
  budget_init(b, rpc_address_share(of->most), whole ? whole : of);
}

static struct rpc_address *make(uint64_t number, struct budget *held, struct rpc_address *whole) {
  struct rpc_address *a = mem_zalloc(1, sizeof *a);
  ref_init(&a->refs, 1);
  a->number = number;
  a->whole = whole;
  budget_init(&a->connections, (size_t)rpc_limit(RPC_MAX_ADDRESS_CONNECTIONS),
              whole ? &whole->connections : rpc_budget(RPC_MAX_CONNECTIONS));
  share(&a->calls, rpc_budget(RPC_MAX_CALLS), whole ? &whole->calls : NULL);
  share(&a->held, held, NULL);
  share(&a->unread, rpc_budget(RPC_MAX_UNREAD_BYTES), whole ? &whole->unread : NULL);
  share(&a->framing, rpc_budget(RPC_MAX_FRAMING_BYTES), whole ? &whole->framing : NULL);
  a->requests = rpc_line_new((int)rpc_limit(RPC_MAX_HTTP_HANDLERS));
  a->packed = rpc_line_new(0);
  return a;
}

/* Call with the lock held. */
static struct rpc_address *get(uint64_t number, struct budget *held) {
  struct rpc_address *a = *find(number, held);
  if (a) {
    ref_take(&a->refs);
    return a;
  }
  struct budget *all = rpc_budget(RPC_MAX_HELD_BYTES);
  a = make(number, held, held == all ? NULL : get(number, all));
  *find(number, held) = a;
  return a;
}

struct rpc_address *rpc_address_get(uint64_t number, struct budget *held) {
  pthread_mutex_lock(&table.lock);
  struct rpc_address *a = get(number, held);
  pthread_mutex_unlock(&table.lock);
  return a;
}

void rpc_address_unref(struct rpc_address *a) {
  if (!a) return;
  pthread_mutex_lock(&table.lock);
  bool last = ref_drop(&a->refs);
  if (last) {
    struct rpc_address **at = find(a->number, a->held.parent);
    *at = a->next;
  }
  pthread_mutex_unlock(&table.lock);
  if (!last) return;
  rpc_line_free(a->requests);
  rpc_line_free(a->packed);
  rpc_address_unref(a->whole);
  free(a);
}
