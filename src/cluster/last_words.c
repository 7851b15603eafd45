/* The leader of collectives that refused some (collective/refusals.h) and goes: it stays for a moment, so that all
 * members hear of it and none sees but a task that is lost. Those who were told go themselves, and close their
 * connections; those who have not asked have ten seconds. A server that was told to stop does not stay. */
#include <time.h>

#include "base/log.h"
#include "base/stop.h"
#include "cluster/server.h"

enum { LOOK_MS = 20, MOST_LOOKED_AT = 64 };

/* Is anybody left to tell, or still reading? */
static bool some_left(struct shoal_server *s, size_t *untold) {
  uint64_t told[MOST_LOOKED_AT];
  size_t n;
  *untold = leader_left(s->worker->collectives.tables, told, MOST_LOOKED_AT, &n);
  bool some = *untold > 0;
  for (size_t i = 0; i < n && !some; i++) some = rpc_server_connected(s->rpc, told[i]);
  return some;
}

static bool told_to_stop(struct shoal_server *s) {
  pthread_mutex_lock(&s->lock);
  bool told = s->quit;
  pthread_mutex_unlock(&s->lock);
  return told || stop_told();
}

void server_last_words(struct shoal_server *s) {
  if (!s->worker || !s->rpc || told_to_stop(s)) return;
  size_t untold, warned = 0;
  leader_last_words(s->worker->collectives.tables);
  while (some_left(s, &untold) && !told_to_stop(s)) {
    if (untold && !warned++)
      LOGW("%s: staying until all members have heard that collectives do not fit: %zu have not", s->task, untold);
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
  }
}
