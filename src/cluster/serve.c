/* Programs that are a parameter server for part of the time: serving until told to stop, or until the training that is
 * done with its variables has ended; see shoal_server_serve. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/log.h"
#include "base/stop.h"
#include "cluster/server.h"
#include "shoal/cluster.h"

enum { LOOK_MS = 50 };

struct serving {
  shoal_server *server;
  atomic_bool over;
  bool drained;
};

static void *watch(void *arg) {
  struct serving *s = arg;
  struct job_watch seen = {0};
  while (!atomic_load(&s->over) && !stop_told() && !server_run_is_done(s->server, &seen))
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
  if (stop_told()) s->drained = shoal_server_drain(s->server, 0);
  shoal_server_quit(s->server);
  return NULL;
}

int shoal_server_serve(shoal_server *server) {
  struct serving s = {.server = server};
  stop_signals_take();
  pthread_t t;
  int err = pthread_create(&t, NULL, watch, &s);
  if (err) LOGE("cannot start a thread: signals end this server at once");
  if (err) stop_signals_leave();
  shoal_server_join(server);
  atomic_store(&s.over, true);
  if (!err) {
    pthread_join(t, NULL);
    stop_signals_leave();
  }
  shoal_status why = shoal_server_failure(server);
  bool failed = why != NULL;
  shoal_status_free(why);
  shoal_server_stop(server);
  return failed ? 1 : s.drained ? SHOAL_EXIT_RETRY : 0;
}
