#include "collective/refusals.h"

#include <string.h>

#include "base/clock.h"

enum { MOST_REFUSALS = 16, MOST_TOLD = 1024 };
static const int64_t READ_NS = 2000000000; /* for those who have been told */

static void refusal_free(struct refusal *f) {
  for (size_t i = 0; i < f->told.n; i++) free(f->told.at[i].device);
  vec_release(&f->told);
  shoal_status_free(f->why);
  free(f->name);
  free(f);
}

static void remove_at(struct refusals *r, size_t at) {
  refusal_free(r->at.at[at]);
  r->at.n--;
  memmove(r->at.at + at, r->at.at + at + 1, (r->at.n - at) * sizeof *r->at.at);
}

void refusals_release(struct refusals *r) {
  while (r->at.n) remove_at(r, r->at.n - 1);
  vec_release(&r->at);
}

void refusals_forget(struct refusals *r, const char *name) {
  for (size_t i = r->at.n; i-- > 0;)
    if (!strcmp(r->at.at[i]->name, name)) remove_at(r, i);
}

struct refusal *refusals_add(struct refusals *r, const char *name, size_t size, shoal_status why) {
  refusals_forget(r, name);
  if (size > MOST_TOLD) return NULL;
  if (r->at.n == MOST_REFUSALS) remove_at(r, 0);
  struct refusal *f = mem_zalloc(1, sizeof *f);
  *f = (struct refusal){.name = mem_strdup(name), .why = status_copy(why), .size = size, .since = clock_ns()};
  vec_push(&r->at, f);
  return f;
}

void refusal_tell(struct refusal *f, const char *device, uint64_t asker) {
  for (size_t i = 0; i < f->told.n; i++)
    if (!strcmp(f->told.at[i].device, device)) return;
  if (f->told.n < MOST_TOLD) vec_push(&f->told, (struct told_member){mem_strdup(device), asker, clock_ns()});
}

struct refusal *refusals_find(const struct refusals *r, const char *name) {
  for (size_t i = 0; i < r->at.n; i++)
    if (!strcmp(r->at.at[i]->name, name)) return r->at.at[i];
  return NULL;
}

size_t refusals_left(const struct refusals *r, uint64_t *told, size_t room, size_t *n_told) {
  size_t left = 0;
  int64_t now = clock_ns();
  *n_told = 0;
  for (size_t i = 0; i < r->at.n; i++) {
    const struct refusal *f = r->at.at[i];
    if (now - f->since < REFUSAL_KEPT_NS && f->told.n < f->size) left += f->size - f->told.n;
    for (size_t k = 0; k < f->told.n && *n_told < room; k++)
      if (now - f->told.at[k].when < READ_NS) told[(*n_told)++] = f->told.at[k].asker;
  }
  return left;
}
