/* Gates of devices; see gate.h. */
#include "device/gate.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

struct device_gate {
  pthread_mutex_t lock;
  pthread_cond_t opened;
  int inside; /* lock */
  bool shut;  /* lock */
};

struct device_gate *device_gate_new(void) {
  struct device_gate *g = mem_zalloc(1, sizeof *g);
  pthread_mutex_init(&g->lock, NULL);
  pthread_cond_init(&g->opened, NULL);
  return g;
}

void device_gate_free(struct device_gate *g) {
  if (!g) return;
  pthread_mutex_destroy(&g->lock);
  pthread_cond_destroy(&g->opened);
  free(g);
}

void device_gate_enter(struct device_gate *g) {
  if (!g) return;
  pthread_mutex_lock(&g->lock);
  while (g->shut) pthread_cond_wait(&g->opened, &g->lock);
  g->inside++;
  pthread_mutex_unlock(&g->lock);
}

void device_gate_leave(struct device_gate *g) {
  if (!g) return;
  pthread_mutex_lock(&g->lock);
  g->inside--;
  pthread_mutex_unlock(&g->lock);
}

bool device_gate_shut(struct device_gate *g) {
  if (!g) return false;
  pthread_mutex_lock(&g->lock);
  bool alone = g->inside == 1 && !g->shut;
  if (alone) g->shut = true;
  pthread_mutex_unlock(&g->lock);
  return alone;
}

void device_gate_open(struct device_gate *g) {
  pthread_mutex_lock(&g->lock);
  g->shut = false;
  pthread_cond_broadcast(&g->opened);
  pthread_mutex_unlock(&g->lock);
}
