/* A ring of ids in order of arrival, and an open-addressing set over it. */
#include "cluster/request_ids.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"

enum { KEEP = 100000, SLOTS = 1 << 18 };

struct request_ids {
  pthread_mutex_t lock;
  int64_t *ring; /* [KEEP]; made at the first id */
  int64_t *set;  /* [SLOTS], 0: free */
  size_t next;
};

struct request_ids *request_ids_new(void) {
  struct request_ids *r = mem_zalloc(1, sizeof *r);
  pthread_mutex_init(&r->lock, NULL);
  return r;
}

void request_ids_free(struct request_ids *r) {
  if (!r) return;
  free(r->ring);
  free(r->set);
  pthread_mutex_destroy(&r->lock);
  free(r);
}

static size_t home(int64_t id) { return (size_t)(((uint64_t)id * 0x9e3779b97f4a7c15u) >> 46) & (SLOTS - 1); }

static void forget(struct request_ids *r, int64_t id) {
  size_t i = home(id);
  while (r->set[i] && r->set[i] != id) i = (i + 1) & (SLOTS - 1);
  if (!r->set[i]) return;
  for (size_t hole = i;;) { /* close the gap, so that probing still finds the rest */
    r->set[hole] = 0;
    size_t k = hole;
    for (;;) {
      k = (k + 1) & (SLOTS - 1);
      if (!r->set[k]) return;
      size_t h = home(r->set[k]);
      if (((k - h) & (SLOTS - 1)) >= ((k - hole) & (SLOTS - 1))) break;
    }
    r->set[hole] = r->set[k];
    hole = k;
  }
}

/* What is kept of a request; never 0. */
static int64_t mark(int64_t id, int64_t step) {
  int64_t both = (int64_t)((uint64_t)id ^ (uint64_t)step * 0x9e3779b97f4a7c15u);
  return both ? both : 1;
}

shoal_status request_ids_track(struct request_ids *r, const char *method, int64_t id, int64_t step) {
  if (id == 0) return NULL;
  int64_t kept = mark(id, step);
  pthread_mutex_lock(&r->lock);
  if (!r->ring) {
    r->ring = mem_zalloc(KEEP, sizeof *r->ring);
    r->set = mem_zalloc(SLOTS, sizeof *r->set);
  }
  size_t i = home(kept);
  while (r->set[i] && r->set[i] != kept) i = (i + 1) & (SLOTS - 1);
  bool seen = r->set[i] == kept;
  if (!seen) {
    r->set[i] = kept;
    int64_t old = r->ring[r->next];
    r->ring[r->next] = kept;
    r->next = (r->next + 1) % KEEP;
    if (old) forget(r, old);
  }
  pthread_mutex_unlock(&r->lock);
  if (!seen) return NULL;
  return STATUS(SHOAL_ABORTED, "The same %s request was received twice. request_id: %lld", method, (long long)id);
}

uint64_t random_bits(void) {
  static __thread uint64_t drawn[32]; /* a system call for each would show in a step's time */
  static __thread unsigned left;
  uint64_t v;
  if (!left && getrandom(drawn, sizeof drawn, GRND_NONBLOCK) == sizeof drawn) left = COUNT_OF(drawn);
  if (left) return drawn[--left];
  static uint64_t fallback;
  v = (uint64_t)wall_nanos() + __atomic_add_fetch(&fallback, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
  return hash_bytes(&v, sizeof v, 0);
}

int64_t request_id_new(void) {
  int64_t id;
  while ((id = (int64_t)random_bits()) == 0) continue;
  return id;
}
