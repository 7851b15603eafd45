/* Tasks whose collectives were refused (collective/refusals.h) and that go: they stay for a moment, so that all members
 * hear of it and none sees but a task that is lost. Those who have not asked have ten seconds. A server that was told
 * to stop does not stay.
 *
 * The leader stays until all have been told and have closed their connections, for they may not have read it yet. So
 * does each member that was told by it, for as long as the leader says that some were not: who comes later makes a
 * session first, and that wants all tasks. */
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/stop.h"
#include "cluster/server.h"
#include "proto/shoal.wire.h"

enum { LOOK_MS = 20, ASK_MS = 200, ANSWER_MS = 2000, MOST_LOOKED_AT = 64 };

static bool told_to_stop(struct shoal_server *s) {
  pthread_mutex_lock(&s->lock);
  bool told = s->quit;
  pthread_mutex_unlock(&s->lock);
  return told || stop_told();
}

/* Until the next look. untold: how many have not heard of it; it is said once. */
static void stay(struct shoal_server *s, size_t untold, bool *said, int ms) {
  if (untold && !*said)
    LOGW("%s: staying until all members have heard that collectives do not fit: %zu have not", s->task, untold);
  *said = *said || untold;
  nanosleep(&(struct timespec){.tv_nsec = ms * 1000000l}, NULL);
}

/* ---- the leader ---- */

/* Is anybody left to tell, or still reading? */
static bool some_left(struct shoal_server *s, size_t *untold) {
  uint64_t told[MOST_LOOKED_AT];
  size_t n;
  *untold = leader_left(s->worker->collectives.tables, told, MOST_LOOKED_AT, &n);
  bool some = *untold > 0;
  for (size_t i = 0; i < n && !some; i++) some = rpc_server_connected(s->rpc, told[i]);
  return some;
}

static void lead(struct shoal_server *s) {
  size_t untold;
  bool said = false;
  leader_last_words(s->worker->collectives.tables);
  while (some_left(s, &untold) && !told_to_stop(s)) stay(s, untold, &said, LOOK_MS);
}

/* ---- who was told ---- */

/* How many the leader has yet to tell; 0 also where it is gone. */
static size_t ask_leader(struct peer *leader) {
  struct rpc_body body = {0};
  const void *data;
  size_t size, unheard = 0;
  shoal_status s = peer_wait(leader, "/tensorflow.WorkerService/GetStatus", NULL, deadline_after_ms(ANSWER_MS),
                             PEER_UNWATCHED, stop_told, &body);
  if (!s) s = rpc_body_flat(&body, &data, &size);
  struct wire w = wire_from(s ? "" : data, s ? 0 : size);
  for (struct wire_field f; wire_next(&w, &f) == WIRE_FIELD;)
    if (f.tag == GetStatusExtra_unheard) unheard = f.value;
  shoal_status_free(s);
  rpc_body_release(&body);
  return unheard;
}

static struct peer *find_task(struct shoal_server *s, const char *task) {
  struct device_spec d;
  shoal_status bad = device_spec_parse(task, &d);
  const char *address = bad ? NULL : cluster_spec_find(s->worker->spec, d.job, d.task);
  shoal_status_free(bad);
  return address ? peers_get(s->peers, task, address, true) : NULL;
}

static void follow(struct shoal_server *s) {
  bool said = false, some = true;
  for (char *task; some && !told_to_stop(s) && (task = collectives_refused_by(&s->worker->collectives)); free(task)) {
    struct peer *leader = find_task(s, task);
    size_t untold = leader ? ask_leader(leader) : 0;
    peer_unref(leader);
    some = untold > 0;
    if (some) stay(s, untold, &said, ASK_MS);
  }
}

void server_last_words(struct shoal_server *s) {
  if (!s->worker || !s->rpc || told_to_stop(s)) return;
  lead(s);
  follow(s);
}
