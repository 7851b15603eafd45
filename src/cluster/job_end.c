/* A server that ends with its job: `shoal server --exit_with_job`.
 *
 * A TensorFlow program never tells a parameter server that training is over; it only closes its session, or just ends.
 * So the end of the job is seen from here. Something of the job is here while there is a session, and a connection is
 * open over which one was opened and not closed, or which was used a moment ago: whoever has closed what he had is
 * done, whoever crashed has lost his connections. (Masters that make no sessions at workers leave graphs instead, and
 * count for as long as they are connected.) When nothing has been here for a while, and nobody came back, the job is
 * over. Asking the tasks that opened sessions whether they live was rejected: clients have no address.
 *
 * Where tasks that train have not come at all (absent.c), being started late or slowly, they have LATE_MS more: a short
 * job is over before the last of its workers has loaded its libraries. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "cluster/server.h"

enum { LATE_MS = 10000 };

void server_used(struct shoal_server *s, struct rpc_call *c, int opens) {
  rpc_call_uses(c, opens);
  if (!opens) return;
  int64_t now = clock_ns();
  atomic_store_explicit(&s->last_changed, now, memory_order_relaxed);
  if (opens > 0) atomic_store_explicit(&s->last_opened, now, memory_order_relaxed);
}

/* Is anybody here? idle: how long a connection without sessions counts after its last use. */
static bool in_use(struct shoal_server *s, int64_t idle) {
  struct worker *w = s->worker;
  pthread_mutex_lock(&w->lock);
  size_t n = w->sessions.n;
  struct worker_session *legacy = w->legacy; /* lives as long as the worker */
  pthread_mutex_unlock(&w->lock);
  if (legacy) {
    pthread_mutex_lock(&legacy->lock);
    if (legacy->graphs.n) idle = clock_ns();
    n += legacy->graphs.n;
    pthread_mutex_unlock(&legacy->lock);
  }
  pthread_mutex_lock(&s->master.lock);
  n += s->master.sessions.n;
  pthread_mutex_unlock(&s->master.lock);
  return n > 0 && rpc_server_users(s->rpc, idle) > 0;
}

bool server_waits_for_late(struct shoal_server *s, bool in_use, struct job_watch *w) {
  if (in_use) w->late_since = 0;
  if (in_use || !worker_absent(s->worker, NULL)) return false;
  int64_t now = clock_ns();
  if (!w->late_since) {
    struct text who = {0};
    worker_absent(s->worker, &who);
    LOGW("%s: all who came have ended; staying %d s for %s, which have not come yet", s->task, LATE_MS / 1000,
         text_cstr(&who));
    text_release(&who);
    w->late_since = now;
  }
  return now - w->late_since < LATE_MS * 1000000ll;
}

bool server_job_over(struct shoal_server *s, struct job_watch *w) {
  if (!s->exit_with_job_ms) return false;
  int64_t now = clock_ns();
  if (in_use(s, s->exit_with_job_ms * 1000000)) {
    atomic_store(&s->last_opened, now);
    server_waits_for_late(s, true, w);
    return false;
  }
  int64_t opened = atomic_load(&s->last_opened);
  if (!opened) return false;
  if (w->gone_since < opened) w->gone_since = now;
  if (now - w->gone_since < s->exit_with_job_ms * 1000000 || server_waits_for_late(s, false, w)) return false;
  LOGI("the job has ended: all who had sessions here have been gone for %" PRId64 " s", s->exit_with_job_ms / 1000);
  return true;
}
