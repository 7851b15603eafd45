/* Things by number; see numbered.h. Numbers rise, so that what is added stands in order by itself and is found by
 * halving. What is taken out leaves a hole; when holes are more than half they are closed, which costs each of them a
 * few copies. Places that are used again were rejected: a number must not come to mean another thing. */
#include "base/numbered.h"

int64_t numbered_add(struct numbered *t, void *thing) {
  vec_push(&t->all, (struct numbered_thing){t->next, thing});
  return t->next++;
}

static struct numbered_thing *find(const struct numbered *t, int64_t number) {
  size_t from = 0, to = t->all.n;
  while (from < to) {
    size_t middle = from + (to - from) / 2;
    if (t->all.at[middle].number < number) from = middle + 1;
    else to = middle;
  }
  return from < t->all.n && t->all.at[from].number == number ? &t->all.at[from] : NULL;
}

void *numbered_get(const struct numbered *t, int64_t number) {
  const struct numbered_thing *found = find(t, number);
  return found ? found->thing : NULL;
}

static void close_holes(struct numbered *t) {
  size_t n = 0;
  for (size_t i = 0; i < t->all.n; i++)
    if (t->all.at[i].thing) t->all.at[n++] = t->all.at[i];
  t->all.n = n;
  t->holes = 0;
  enum { FEW = 8 };
  if (t->all.cap <= FEW || n > t->all.cap / 4) return;
  t->all.cap = MAX(FEW, 2 * n);
  t->all.at = mem_realloc(t->all.at, t->all.cap, sizeof *t->all.at);
}

void *numbered_remove(struct numbered *t, int64_t number) {
  struct numbered_thing *found = find(t, number);
  void *thing = found ? found->thing : NULL;
  if (!thing) return NULL;
  found->thing = NULL;
  if (++t->holes > t->all.n / 2) close_holes(t);
  return thing;
}

void *numbered_next(const struct numbered *t, size_t *i) {
  while (*i < t->all.n && !t->all.at[*i].thing) ++*i;
  return *i < t->all.n ? t->all.at[(*i)++].thing : NULL;
}

void numbered_release(struct numbered *t) {
  vec_release(&t->all);
  *t = (struct numbered){0};
}
