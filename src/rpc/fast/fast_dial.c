/* Connecting to a peer's fast path, on threads that may wait: the name of its host may have to be looked up, and who
 * listens there may accept nobody. A few threads do it, started when there is something to do; none of the network's
 * does, and a peer that cannot be reached delays nobody but those who would take the fast path to others. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "rpc/fast/fast.h"

enum { MAX_THREADS = 8 };

struct dial {
  struct dial *next;
  char *host;
  void (*done)(void *arg, struct fast_client *c);
  void *arg;
  size_t n;
  uint8_t ticket[];
};

static struct {
  pthread_mutex_t lock;
  struct dial *first, **last; /* lock: nobody's yet */
  int threads;                /* lock */
} dials = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = &dials.first};

static void dial_now(struct dial *d) {
  d->done(d->arg, fast_client_new(d->ticket, d->n, d->host));
  free(d->host);
  free(d);
}

static void *work(void *unused) {
  pthread_setname_np(pthread_self(), "shoal-dial");
  pthread_mutex_lock(&dials.lock);
  for (struct dial *d; (d = dials.first);) {
    dials.first = d->next;
    if (!dials.first) dials.last = &dials.first;
    pthread_mutex_unlock(&dials.lock);
    dial_now(d);
    pthread_mutex_lock(&dials.lock);
  }
  dials.threads--;
  pthread_mutex_unlock(&dials.lock);
  return NULL;
}

void fast_client_dial(const void *ticket, size_t n, const char *host, void (*done)(void *arg, struct fast_client *c),
                      void *arg) {
  struct dial *d = mem_alloc(sizeof *d + n);
  *d = (struct dial){.host = host ? mem_strdup(host) : NULL, .done = done, .arg = arg, .n = n};
  memcpy(d->ticket, ticket, n);
  pthread_t t;
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_mutex_lock(&dials.lock);
  *dials.last = d;
  dials.last = &d->next;
  if (dials.threads < MAX_THREADS && pthread_create(&t, &attr, work, NULL) == 0) dials.threads++;
  bool nobody = !dials.threads; /* then it leads nowhere */
  if (nobody) {
    dials.first = NULL;
    dials.last = &dials.first;
  }
  pthread_mutex_unlock(&dials.lock);
  pthread_attr_destroy(&attr);
  if (!nobody) return;
  done(arg, NULL);
  free(d->host);
  free(d);
}
