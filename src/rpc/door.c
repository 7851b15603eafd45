/* Who is let in; see door.h. */
#include "rpc/door.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/limits.h"
#include "rpc/socket.h"

enum { SOME = 16 };
static const int64_t SAY_NS = 5000000000; /* between two lines that say the same */

static struct {
  pthread_mutex_t lock; /* held while servers are asked: none of them goes meanwhile */
  struct door *first;
} doors = {.lock = PTHREAD_MUTEX_INITIALIZER};

void door_add(struct door *d) {
  pthread_mutex_lock(&doors.lock);
  d->next = doors.first;
  doors.first = d;
  pthread_mutex_unlock(&doors.lock);
}

void door_remove(struct door *d) {
  pthread_mutex_lock(&doors.lock);
  for (struct door **at = &doors.first; *at; at = &(*at)->next) {
    if (*at != d) continue;
    *at = d->next;
    break;
  }
  pthread_mutex_unlock(&doors.lock);
}

static bool end_an_idle_one(const struct rpc_address *of) {
  struct door *found = NULL;
  int64_t longest = 0;
  pthread_mutex_lock(&doors.lock);
  for (struct door *d = doors.first; d; d = d->next) {
    int64_t ns = d->longest(d, of);
    if (ns < longest) continue;
    found = d;
    longest = ns;
  }
  bool ended = found && found->end(found, of);
  pthread_mutex_unlock(&doors.lock);
  return ended;
}

void door_free_descriptors(void) {
  for (int i = 0; i < SOME && end_an_idle_one(NULL);) i++;
}

bool door_lets_in(struct rpc_address *from, const struct sockaddr_storage *peer) {
  if (budget_take(&from->connections, 1)) return true;
  const struct budget *of = from->whole ? &from->whole->connections : &from->connections;
  bool share = budget_used(of) >= of->most;
  if (end_an_idle_one(share ? from : NULL)) { /* which counts until it is gone */
    budget_force(&from->connections, 1);
    return true;
  }
  static int64_t said; /* a flood of connections shall not be one of lines */
  int64_t now = clock_ns();
  if (said && now - said <= SAY_NS) return false;
  enum rpc_limit full = share ? RPC_MAX_ADDRESS_CONNECTIONS : RPC_MAX_CONNECTIONS;
  struct text text = {0};
  socket_address(peer, &text);
  said = now;
  LOGW("a connection from %s is not taken: there are as many %sas there may be (--%s=%lld)", text_cstr(&text),
       share ? "from there " : "", rpc_limit_rows[full].flag, (long long)rpc_limit(full));
  text_release(&text);
  return false;
}
