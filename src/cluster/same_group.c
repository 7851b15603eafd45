#include "cluster/same_group.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct other_group {
  char *group, *address;
};

static void free_other(struct other_group *o) {
  if (!o) return;
  free(o->group);
  free(o->address);
  free(o);
}

void same_group_init(struct same_group *g) {
  *g = (struct same_group){0};
  pthread_mutex_init(&g->lock, NULL);
}

void same_group_release(struct same_group *g) {
  void *other;
  for (size_t i = 0; strmap_next(&g->others, &i, NULL, &other);) free_other(other);
  strmap_release(&g->others);
  free(g->own);
  pthread_mutex_destroy(&g->lock);
}

void same_group_set(struct same_group *g, const char *own) {
  pthread_mutex_lock(&g->lock);
  free(g->own);
  g->own = mem_strdup(own);
  pthread_mutex_unlock(&g->lock);
}

char *same_group_own(struct same_group *g) {
  pthread_mutex_lock(&g->lock);
  char *own = g->own ? mem_strdup(g->own) : NULL;
  pthread_mutex_unlock(&g->lock);
  return own;
}

static shoal_status differ(const char *self, const char *own, const char *task, const char *theirs) {
  return INVALID("the tasks' lists of tasks differ: %s has %s in its list, and %s has %s", self, own, task, theirs);
}

shoal_status same_group_heard(struct same_group *g, const char *self, const char *task, const char *theirs,
                              const char *address, size_t most) {
  pthread_mutex_lock(&g->lock);
  struct other_group *before = strmap_get(&g->others, task);
  if (before || g->others.n < most) {
    struct other_group *now = mem_zalloc(1, sizeof *now);
    *now = (struct other_group){mem_strdup(theirs), mem_strdup(address)};
    strmap_put(&g->others, task, now);
  }
  shoal_status s = g->own && strcmp(g->own, theirs) != 0 ? differ(self, g->own, task, theirs) : NULL;
  pthread_mutex_unlock(&g->lock);
  free_other(before);
  return s;
}

char *same_group_address(struct same_group *g, const char *task) {
  pthread_mutex_lock(&g->lock);
  const struct other_group *o = strmap_get(&g->others, task);
  char *address = o && *o->address ? mem_strdup(o->address) : NULL;
  pthread_mutex_unlock(&g->lock);
  return address;
}

shoal_status same_group_check(struct same_group *g, const char *self) {
  shoal_status s = NULL;
  const char *task;
  void *other;
  pthread_mutex_lock(&g->lock);
  for (size_t i = 0; g->own && !s && strmap_next(&g->others, &i, &task, &other);) {
    const char *theirs = ((struct other_group *)other)->group;
    if (strcmp(g->own, theirs) != 0) s = differ(self, g->own, task, theirs);
  }
  pthread_mutex_unlock(&g->lock);
  return s;
}
