#include "cluster/same_group.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void same_group_init(struct same_group *g) {
  *g = (struct same_group){0};
  pthread_mutex_init(&g->lock, NULL);
}

void same_group_release(struct same_group *g) {
  void *theirs;
  for (size_t i = 0; strmap_next(&g->others, &i, NULL, &theirs);) free(theirs);
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
                              size_t most) {
  pthread_mutex_lock(&g->lock);
  char *before = strmap_get(&g->others, task);
  if (before || g->others.n < most) strmap_put(&g->others, task, mem_strdup(theirs));
  shoal_status s = g->own && strcmp(g->own, theirs) != 0 ? differ(self, g->own, task, theirs) : NULL;
  pthread_mutex_unlock(&g->lock);
  free(before);
  return s;
}

shoal_status same_group_check(struct same_group *g, const char *self) {
  shoal_status s = NULL;
  const char *task;
  void *theirs;
  pthread_mutex_lock(&g->lock);
  for (size_t i = 0; g->own && !s && strmap_next(&g->others, &i, &task, &theirs);)
    if (strcmp(g->own, theirs) != 0) s = differ(self, g->own, task, theirs);
  pthread_mutex_unlock(&g->lock);
  return s;
}
