#include "word2vec/crew.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

struct crew_member {
  pthread_t thread;
  shoal_status (*fn)(void *arg, int number);
  void *arg;
  int number;
  shoal_status outcome;
};

static void *work(void *p) {
  struct crew_member *m = p;
  m->outcome = m->fn(m->arg, m->number);
  return NULL;
}

shoal_status crew_run(int threads, shoal_status (*fn)(void *arg, int number), void *arg) {
  struct crew_member *crew = mem_zalloc((size_t)threads, sizeof *crew);
  shoal_status s = NULL;
  int started = 1;
  for (int i = 0; i < threads; i++) crew[i] = (struct crew_member){.fn = fn, .arg = arg, .number = i};
  while (started < threads && !pthread_create(&crew[started].thread, NULL, work, &crew[started])) started++;
  work(&crew[0]);
  for (int i = 1; i < started; i++) pthread_join(crew[i].thread, NULL);
  for (int i = 0; i < started; i++) {
    if (!s) s = crew[i].outcome;
    else shoal_status_free(crew[i].outcome);
  }
  free(crew);
  return s; /* where the system gave fewer threads, these have done it all: work is taken, not dealt out */
}
